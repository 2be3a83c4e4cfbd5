//! The name servers of a zone as its parent gave them: names, and the addresses that came along (glue).
//!
//! A zone's own NS records never come here: a child cannot prolong its delegation (the "ghost domain" attack), and its life ends with the
//! parent's TTL. Addresses that the child itself gives for its servers are in the cache and are preferred; glue is used until they are there,
//! and if they do not answer.

use std::net::{IpAddr, SocketAddr};

use dns_wire::{Name, NameBuf, Rtype};

use crate::message::{Message, Rrset};

/// A name server, and the addresses its parent knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NameServer {
    pub(crate) name: NameBuf,
    pub(crate) glue: Vec<IpAddr>,
}

/// A zone and its name servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delegation {
    pub(crate) zone: NameBuf,
    pub(crate) servers: Vec<NameServer>,
}

/// Name servers that are kept of one delegation. More would not fit a response over UDP.
const SERVERS_MAX: usize = 20;
/// Addresses that are kept of one name server.
const GLUE_MAX: usize = 8;

impl Delegation {
    /// The delegation by the NS records `set`, with the addresses in `message` that its sender, an authority of `parent`, may give: those
    /// of names in `parent`.
    pub(crate) fn new(set: &Rrset, message: &Message, parent: Name<'_>) -> Delegation {
        let names = set.rdatas.iter().filter_map(|rdata| Name::from_wire(rdata).ok());
        let servers = names.take(SERVERS_MAX).map(|name| NameServer {
            name: name.into(),
            glue: if name.ends_with(parent) { addresses_of(name, message) } else { Vec::new() },
        });
        Delegation { zone: set.owner.clone(), servers: servers.collect() }
    }

    /// Octets of memory.
    pub(crate) fn octets(&self) -> usize {
        let glue = self.servers.iter().map(|server| server.glue.len() * size_of::<IpAddr>());
        size_of::<Delegation>() + self.servers.len() * size_of::<NameServer>() + glue.sum::<usize>()
    }
}

fn addresses_of(name: Name<'_>, message: &Message) -> Vec<IpAddr> {
    let records = message.additional.iter().chain(&message.answer);
    let own = records.filter(|record| record.owner.as_name() == name);
    own.filter_map(|record| address(record.rtype, &record.rdata)).take(GLUE_MAX).collect()
}

/// The address in a record's data, if it is one of an address.
pub(crate) fn address(rtype: Rtype, rdata: &[u8]) -> Option<IpAddr> {
    match rtype {
        Rtype::A => <[u8; 4]>::try_from(rdata).ok().map(IpAddr::from),
        Rtype::AAAA => <[u8; 16]>::try_from(rdata).ok().map(IpAddr::from),
        _ => None,
    }
}

/// Whether a server may be at `address`: not this host, not everybody, and never an address that belongs to nobody.
pub(crate) fn may_be_asked(address: SocketAddr, loopback_too: bool, ipv6_too: bool) -> bool {
    let ip = address.ip().to_canonical();
    if address.port() == 0 || ip.is_unspecified() || ip.is_multicast() || (ip.is_loopback() && !loopback_too)
    {
        return false;
    }
    match ip {
        IpAddr::V4(ip) => !ip.is_broadcast() && ip.octets()[0] != 0,
        IpAddr::V6(_) => ipv6_too && address.is_ipv6(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_not_asked_at_addresses_that_cannot_be_theirs() {
        let may = |text: &str| may_be_asked(text.parse().unwrap(), false, true);
        assert!(may("192.0.2.1:53") && may("[2001:db8::1]:53"));
        for text in
            ["127.0.0.1:53", "[::1]:53", "0.0.0.0:53", "0.1.2.3:53", "224.0.0.1:53", "255.255.255.255:53"]
        {
            assert!(!may(text), "{text}");
        }
        assert!(!may("[::ffff:127.0.0.1]:53") && !may("[ff02::1]:53") && !may("192.0.2.1:0"));
        assert!(may_be_asked("127.0.0.1:53".parse().unwrap(), true, true));
        assert!(!may_be_asked("[2001:db8::1]:53".parse().unwrap(), false, false));
    }
}
