//! What in a configuration stands in the way of something else in it, and what nothing can come of.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use super::Report;
use crate::dns::config::{Config, DeviceChoice};
use crate::dns::line_table::LoadedLines;

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

    /// Two sockets of one transport and one address: the second one cannot be opened.
    fn check_addresses(&mut self, config: &Config) {
        let Some(encrypted) = &config.encrypted else { return };
        let listen: &[SocketAddr] = match &config.device {
            DeviceChoice::Kernel(addresses) => addresses,
            DeviceChoice::Interface(..) => &[],
        };
        let by_tcp = [("encrypted.tls", &*encrypted.dot), ("encrypted.https", &*encrypted.doh)];
        let by_udp = [("encrypted.quic", &*encrypted.doq)];
        for options in [&by_tcp[..], &by_udp] {
            let mut owners: BTreeMap<SocketAddr, &str> =
                listen.iter().map(|address| (*address, "listen")).collect();
            for (option, addresses) in options {
                for address in addresses.iter().filter(|address| address.port() != 0) {
                    if let Some(other) = owners.insert(*address, option) {
                        self.error(option, format!("{address} is in {other} already: give it another port"));
                    }
                }
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
