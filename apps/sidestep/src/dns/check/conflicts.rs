//! What in a configuration stands in the way of something else in it, and what nothing can come of.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use super::Report;
use crate::dns::config::{Config, DeviceChoice};
use crate::dns::line_table::LoadedLines;

/// Whether one socket only can be opened of these two. Those of IPv6 take nothing of IPv4 here.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let is_any = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && (one.ip() == other.ip() || is_any && one.is_ipv4() == other.is_ipv4())
}

impl Report {
    /// What needs no look at zones.
    pub(super) fn check_conflicts(&mut self, config: &Config) {
        self.check_addresses(config);
        self.check_encrypted(config);
        self.check_secondary_names(config);
        // An address of a Unix socket has a length.
        let control = config.control.as_deref().map(std::os::unix::net::SocketAddr::from_pathname);
        if let Some(Err(error)) = control {
            self.warning("control", format!("{error}: tools could not find the server"));
        }
    }

    /// Two sockets of one transport and one address, or one at all addresses and one at one of them: the second one cannot be opened.
    fn check_addresses(&mut self, config: &Config) {
        let none: &[SocketAddr] = &[];
        let encrypted = config.encrypted.as_ref();
        let [dot, doh, doq] = encrypted.map_or([none; 3], |own| [&*own.dot, &own.doh, &own.doq]);
        let listen: &[SocketAddr] = match &config.device {
            DeviceChoice::Kernel(addresses) => addresses,
            DeviceChoice::Interface(..) => &[],
        };
        // The same address twice in it is one socket.
        let own: BTreeSet<SocketAddr> = listen.iter().copied().collect();
        let own: Vec<SocketAddr> = own.into_iter().collect();
        self.check_overlaps(&[("listen", &own), ("encrypted.tls", dot), ("encrypted.https", doh)], "");
        // What is wrong within `listen` is told already.
        self.check_overlaps(&[("listen", &own), ("encrypted.quic", doq)], "listen");
    }

    /// Looks at the addresses of options in their order, and says nothing of what is in the option that is `told`.
    fn check_overlaps(&mut self, options: &[(&'static str, &[SocketAddr])], told: &str) {
        let mut before: Vec<(&str, SocketAddr)> = Vec::new();
        for (option, addresses) in options {
            for &address in addresses.iter().filter(|address| address.port() != 0) {
                let other = before.iter().find(|(_, other)| overlap(*other, address));
                if let Some((owner, other)) = other.filter(|_| *option != told) {
                    let what = match *other == address {
                        true => format!("{address} is in {owner} already: give it another port"),
                        false => format!(
                            "{address} and {other} of {owner} have addresses in common: leave one out, or give it another port"
                        ),
                    };
                    self.error(option, what);
                }
                before.push((option, address));
            }
        }
    }

    fn check_encrypted(&mut self, config: &Config) {
        let has_address = config.encrypted.as_ref().is_some_and(|options| {
            [&options.dot, &options.doh, &options.doq].iter().any(|all| !all.is_empty())
        });
        if config.encrypted.is_some() && !has_address {
            self.warning("encrypted", "nothing is served: name addresses in tls, https or quic");
        }
        if !has_address && config.transfers.has_encrypted_only() {
            let what = "nobody can come by encrypted: as long as [encrypted] has no address";
            self.warning("access list", what);
        }
    }

    fn check_secondary_names(&mut self, config: &Config) {
        let mut names = BTreeSet::new();
        for spec in &config.transfers.secondaries {
            if !names.insert(&spec.origin) {
                let what = "there is another [[secondary]] of this name, and only the last is served: remove one of them";
                self.error(format!("secondary {}", spec.origin), what);
            }
        }
    }

    /// The catalog that is made, once it is known which zones there are.
    pub(super) fn check_catalog(&mut self, config: &Config) {
        let Some(spec) = &config.transfers.catalog else { return };
        let is_secondary = config.transfers.secondaries.iter().any(|other| other.origin == spec.origin);
        if is_secondary || self.files.contains_key(&spec.origin) {
            let what = format!(
                "there is a zone {} already, so no catalog is made: give it another name",
                spec.origin
            );
            self.error("catalog", what);
        }
    }

    /// Lines that no client is in.
    pub(super) fn check_lines(&mut self, config: &Config) {
        match LoadedLines::load(&config.lines, None) {
            Ok(lines) => {
                let remarks = lines.into_iter().flat_map(|lines| lines.remarks);
                remarks.for_each(|(place, what)| self.warning(place, what));
            }
            Err(error) => self.error("line", format!("{error:#}")),
        }
    }
}
