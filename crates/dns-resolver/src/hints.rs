//! Where the root's servers are, to ask one of them where they are (RFC 9609).
//!
//! The names and addresses are those that the root zone had in November 2026. Hints that are out of date do no harm as long as
//! one of them answers: what the root says about itself takes their place.

use std::net::IpAddr;

use dns_wire::NameBuf;

use crate::delegation::{Delegation, NameServer};

/// Letter, IPv4 and IPv6 address of the servers `x.root-servers.net.`
const ROOT_SERVERS: [(&str, &str, &str); 13] = [
    ("a", "198.41.0.4", "2001:503:ba3e::2:30"),
    ("b", "170.247.170.2", "2801:1b8:10::b"),
    ("c", "192.33.4.12", "2001:500:2::c"),
    ("d", "199.7.91.13", "2001:500:2d::d"),
    ("e", "192.203.230.10", "2001:500:a8::e"),
    ("f", "192.5.5.241", "2001:500:2f::f"),
    ("g", "192.112.36.4", "2001:500:12::d0d"),
    ("h", "198.97.190.53", "2001:500:1::53"),
    ("i", "192.36.148.17", "2001:7fe::53"),
    ("j", "192.58.128.30", "2001:503:c27::2:30"),
    ("k", "193.0.14.129", "2001:7fd::1"),
    ("l", "199.7.83.42", "2001:500:9f::42"),
    ("m", "202.12.27.33", "2001:dc3::35"),
];

/// Names and addresses of root servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hints(pub(crate) Delegation);

impl Default for Hints {
    /// Those of the Internet.
    fn default() -> Hints {
        let servers = ROOT_SERVERS.map(|(letter, v4, v6)| {
            let name = format!("{letter}.root-servers.net.");
            let addresses = [v4, v6].map(|text| text.parse::<IpAddr>().expect("the table has addresses"));
            (NameBuf::from_text(name.as_bytes(), None).expect("the table has names"), addresses.to_vec())
        });
        Hints::new(servers)
    }
}

impl Hints {
    /// Those of another root.
    pub fn new(servers: impl IntoIterator<Item = (NameBuf, Vec<IpAddr>)>) -> Hints {
        let servers = servers.into_iter().map(|(name, glue)| NameServer { name, glue }).collect();
        Hints(Delegation { zone: NameBuf::root(), servers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_thirteen_servers_with_two_addresses_each() {
        let Hints(delegation) = Hints::default();
        assert_eq!(delegation.servers.len(), 13);
        assert!(delegation.servers.iter().all(|server| server.glue.len() == 2));
    }
}
