//! Who may do what: addresses and keys.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dns_wire::{Name, NameBuf};

/// Addresses whose first `bits` bits are those of one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    bits: u8,
}

impl Prefix {
    /// Reads `192.0.2.0/24`, `2001:db8::/32`, or one address.
    pub fn from_text(text: &str) -> Option<Prefix> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address.parse().ok()?, Some(bits.parse::<u8>().ok()?)),
            None => (text.parse().ok()?, None),
        };
        let most = if matches!(address, IpAddr::V4(_)) { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        (bits <= most).then_some(Prefix { address, bits })
    }

    /// The prefix without the bits beyond its length, if it has some: whoever wrote them meant another length, or one address.
    pub fn without_rest(self) -> Option<Prefix> {
        let kept = |width: u32| u128::MAX.checked_shl(width - u32::from(self.bits)).unwrap_or(0);
        let address = match self.address {
            IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & kept(32) as u32).into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & kept(128)).into(),
        };
        (address != self.address).then_some(Prefix { address, ..self })
    }

    /// Whether `address` is one of them. An IPv4 address that is mapped into IPv6 is an IPv4 address.
    pub fn contains(self, address: IpAddr) -> bool {
        let differ = match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => u128::from(u32::from(own) ^ u32::from(other)) << 96,
            (IpAddr::V6(own), IpAddr::V6(other)) => u128::from(own) ^ u128::from(other),
            _ => return false,
        };
        differ.leading_zeros() >= u32::from(self.bits)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// A client as access lists see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// Where it asks from.
    pub address: IpAddr,
    /// Whether nobody on the way can read what it is sent: by TLS or QUIC.
    pub is_encrypted: bool,
    /// Whether what it asks by may carry a transfer: not HTTPS, and not TLS before 1.3 (RFC 9103, 7.1).
    pub takes_transfers: bool,
}

impl Client {
    /// One that asks by plain UDP or TCP.
    pub fn plain(address: IpAddr) -> Client {
        Client { address, is_encrypted: false, takes_transfers: true }
    }
}

/// One of those who are allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Who.
    pub who: Who,
    /// Whether only by TLS or QUIC.
    pub encrypted_only: bool,
}

/// Addresses, or who has a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// Whoever has such an address.
    Address(Prefix),
    /// Whoever signs with the key of this name.
    Key(Box<NameBuf>),
}

impl From<Who> for Allowed {
    /// By any transport.
    fn from(who: Who) -> Allowed {
        Allowed { who, encrypted_only: false }
    }
}

/// Those who are allowed; nobody by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessList(pub Vec<Allowed>);

/// Bits of the widest prefix whose addresses are known: an operator has none that is wider, and the whole of the Internet begins with fewer.
const KNOWN_BITS: u8 = 8;

impl AccessList {
    /// Whether it names an address, and not just as one of all or nearly all. Whoever is allowed by a key alone is not named.
    pub fn names(&self, client: Client) -> bool {
        self.0.iter().filter(|allowed| client.is_encrypted || !allowed.encrypted_only).any(|allowed| {
            matches!(allowed.who, Who::Address(prefix) if prefix.bits >= KNOWN_BITS && prefix.contains(client.address))
        })
    }

    /// Whether a client is allowed that has signed with this key, if it has signed. One match is enough.
    pub fn allows(&self, client: Client, key: Option<Name<'_>>) -> bool {
        self.0.iter().filter(|allowed| client.is_encrypted || !allowed.encrypted_only).any(|allowed| {
            match &allowed.who {
                Who::Address(prefix) => prefix.contains(client.address),
                Who::Key(name) => key == Some(name.as_name()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_prefix_contains_its_addresses_and_no_others() {
        let contains = |prefix, text| Prefix::from_text(prefix).unwrap().contains(address(text));
        assert!(contains("192.0.2.0/25", "192.0.2.127") && !contains("192.0.2.0/25", "192.0.2.128"));
        assert!(contains("192.0.2.1", "::ffff:192.0.2.1") && !contains("192.0.2.1", "192.0.2.2"));
        assert!(contains("2001:db8::/32", "2001:db8:1::") && !contains("2001:db8::/32", "2001:db9::"));
        assert!(contains("0.0.0.0/0", "203.0.113.9") && !contains("0.0.0.0/0", "::1"));
        for text in ["192.0.2.0/33", "::/129", "key", "192.0.2.0/", ""] {
            assert_eq!(Prefix::from_text(text), None, "{text}");
        }
    }

    fn key(text: &str) -> NameBuf {
        NameBuf::from_text(text.as_bytes(), None).unwrap()
    }

    #[test]
    fn nobody_is_allowed_unless_an_address_or_a_key_matches() {
        let (key, client) = (key("Key."), |text| Client::plain(address(text)));
        assert!(!AccessList::default().allows(client("192.0.2.1"), Some(key.as_name())));
        let list = AccessList(vec![
            Who::Key(Box::new(self::key("key."))).into(),
            Who::Address(Prefix::from_text("192.0.2.1").unwrap()).into(),
        ]);
        assert!(list.allows(client("198.51.100.1"), Some(key.as_name())));
        assert!(list.allows(client("192.0.2.1"), None));
        assert!(!list.allows(client("198.51.100.1"), None));
    }

    #[test]
    fn a_list_that_allows_everybody_names_nobody() {
        let names = |prefix: &str, text: &str| {
            let list = AccessList(vec![Who::Address(Prefix::from_text(prefix).unwrap()).into()]);
            assert!(list.allows(Client::plain(address(text)), None), "{prefix}");
            list.names(Client::plain(address(text)))
        };
        for (wide, client) in [
            ("0.0.0.0/0", "192.0.2.1"),
            ("128.0.0.0/1", "192.0.2.1"),
            ("::/0", "2001:db8::1"),
            ("2000::/3", "2001:db8::1"),
        ] {
            assert!(!names(wide, client), "{wide}");
        }
        for (narrow, client) in
            [("10.0.0.0/8", "10.1.1.1"), ("192.0.2.1", "192.0.2.1"), ("fd00::/8", "fd00::1")]
        {
            assert!(names(narrow, client), "{narrow}");
        }
        assert!(
            !AccessList(vec![Who::Key(Box::new(key("key."))).into()]).names(Client::plain(address("::1")))
        );
    }

    #[test]
    fn who_is_allowed_by_encrypted_transports_only_is_refused_by_others() {
        let who = Who::Address(Prefix::from_text("192.0.2.0/24").unwrap());
        let list = AccessList(vec![Allowed { who, encrypted_only: true }]);
        let plain = Client::plain(address("192.0.2.1"));
        assert!(!list.allows(plain, None));
        assert!(list.allows(Client { is_encrypted: true, ..plain }, None));
    }
}
