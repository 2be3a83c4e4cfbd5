//! What the authority remembers: who asked, by the nonce of the name. A ring of a stated size; the oldest entries go first.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::spec::Nonce;

/// How a query came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Via {
    /// In a datagram.
    Udp,
    /// On a TCP connection.
    Tcp,
    /// On TLS (RFC 7858).
    Tls,
    /// By HTTPS (RFC 8484).
    Https,
    /// By QUIC (RFC 9250).
    Quic,
}

/// A client subnet in a query (RFC 7871, 6).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Subnet {
    /// The address, filled up with zeros.
    pub address: std::net::IpAddr,
    /// Bits of it that count.
    pub source: u8,
    /// Bits for which an answer is good.
    pub scope: u8,
}

impl Subnet {
    /// Whether an address lies in it.
    #[must_use]
    pub fn contains(&self, address: std::net::IpAddr) -> bool {
        let bits = u32::from(self.source);
        let is_same = |own: u128, other: u128, width: u32| {
            let beyond = width.saturating_sub(bits);
            own.checked_shr(beyond) == other.checked_shr(beyond)
        };
        match (self.address, address) {
            (std::net::IpAddr::V4(own), std::net::IpAddr::V4(other)) => {
                is_same(own.to_bits().into(), other.to_bits().into(), 32)
            }
            (std::net::IpAddr::V6(own), std::net::IpAddr::V6(other)) => {
                is_same(own.to_bits(), other.to_bits(), 128)
            }
            _ => false,
        }
    }
}

/// One query for a name of the audit zone. Field names are short, as a page of a log has to fit a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When it came: milliseconds since 1970.
    #[serde(rename = "at")]
    pub at_ms: u64,
    /// Which of the run's names; `None` for a name of which the query has only the nonce's zone.
    #[serde(rename = "n")]
    pub number: u32,
    /// Which of the authority's addresses it came to.
    #[serde(rename = "s")]
    pub server: usize,
    /// Who asked.
    #[serde(rename = "from")]
    pub source: SocketAddr,
    /// How.
    pub via: Via,
    /// The message's ID.
    pub id: u16,
    /// The question's name, as it was spelled.
    #[serde(rename = "q")]
    pub qname: String,
    /// The question's type.
    #[serde(rename = "t")]
    pub qtype: u16,
    /// RD was set.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rd: bool,
    /// CD was set.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cd: bool,
    /// The largest answer that EDNS announces; `None` without EDNS.
    #[serde(rename = "e", default, skip_serializing_if = "Option::is_none")]
    pub edns_size: Option<u16>,
    /// DO was set.
    #[serde(rename = "do", default, skip_serializing_if = "std::ops::Not::not")]
    pub dnssec_ok: bool,
    /// There was a cookie.
    #[serde(rename = "c", default, skip_serializing_if = "std::ops::Not::not")]
    pub has_cookie: bool,
    /// The client's network.
    #[serde(rename = "ecs", default, skip_serializing_if = "Option::is_none")]
    pub subnet: Option<Subnet>,
}

/// The entries, by nonce.
#[derive(Debug)]
pub struct Log {
    capacity: usize,
    /// In the order in which they came; the first has the number `first`.
    entries: VecDeque<(Nonce, Entry)>,
    first: u64,
    /// The numbers of a nonce's entries.
    by_nonce: BTreeMap<Nonce, VecDeque<u64>>,
}

impl Log {
    /// An empty one for so many entries, some 300 octets each.
    #[must_use]
    pub fn new(capacity: usize) -> Log {
        Log { capacity: capacity.max(1), entries: VecDeque::new(), first: 0, by_nonce: BTreeMap::new() }
    }

    /// Adds an entry. The oldest one goes if there is no room.
    pub fn push(&mut self, nonce: Nonce, entry: Entry) {
        if self.entries.len() == self.capacity {
            self.drop_oldest();
        }
        let number = self.first + self.entries.len() as u64;
        self.by_nonce.entry(nonce).or_default().push_back(number);
        self.entries.push_back((nonce, entry));
    }

    fn drop_oldest(&mut self) {
        let Some((nonce, _)) = self.entries.pop_front() else { return };
        self.first += 1;
        if let Some(numbers) = self.by_nonce.get_mut(&nonce) {
            numbers.pop_front(); // The oldest entry of all is the oldest of its nonce.
            if numbers.is_empty() {
                self.by_nonce.remove(&nonce);
            }
        }
    }

    /// The entries of a nonce from the `from`th on, oldest first.
    pub fn of(&self, nonce: Nonce, from: usize) -> impl Iterator<Item = &Entry> {
        let numbers = self.by_nonce.get(&nonce).into_iter().flatten().skip(from);
        numbers.filter_map(|number| self.entries.get((number - self.first) as usize).map(|(_, entry)| entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u32) -> Entry {
        Entry {
            at_ms: 7,
            number,
            server: 0,
            source: ([192, 0, 2, 1], 53).into(),
            via: Via::Udp,
            id: 9,
            qname: "X.example.".to_owned(),
            qtype: 1,
            rd: false,
            cd: false,
            edns_size: Some(1232),
            dnssec_ok: true,
            has_cookie: false,
            subnet: None,
        }
    }

    #[test]
    fn the_oldest_entries_go_first_and_each_nonce_finds_its_own() {
        let mut log = Log::new(4);
        for number in 0..6 {
            log.push(Nonce(u64::from(number % 2)), entry(number));
        }
        let numbers = |nonce, from| log.of(Nonce(nonce), from).map(|entry| entry.number).collect::<Vec<_>>();
        assert_eq!((numbers(0, 0), numbers(1, 0), numbers(1, 1)), (vec![2, 4], vec![3, 5], vec![5]));
        assert_eq!((numbers(2, 0), numbers(0, 9)), (vec![], vec![]));
        for number in 6..20 {
            log.push(Nonce(2), entry(number));
        }
        assert_eq!((log.by_nonce.len(), log.of(Nonce(2), 0).count()), (1, 4));
    }

    #[test]
    fn a_subnet_contains_the_addresses_that_share_its_bits() {
        let contains = |address: &str, source, other: &str| {
            Subnet { address: address.parse().unwrap(), source, scope: 0 }.contains(other.parse().unwrap())
        };
        assert!(contains("198.51.0.0", 16, "198.51.100.7") && contains("2001:db8:7::", 48, "2001:db8:7::9"));
        assert!(
            !contains("198.51.0.0", 24, "198.51.100.7") && !contains("2001:db8:7::", 48, "2001:db8:8::9")
        );
        assert!(contains("0.0.0.0", 0, "203.0.113.9") && contains("::", 0, "2001:db8::1"));
        assert!(!contains("0.0.0.0", 0, "2001:db8::1") && contains("203.0.113.9", 32, "203.0.113.9"));
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let text = serde_json::to_string(&entry(3)).unwrap();
        assert_eq!(serde_json::from_str::<Entry>(&text).unwrap(), entry(3));
        assert!(text.len() < 200, "{text}");
    }
}
