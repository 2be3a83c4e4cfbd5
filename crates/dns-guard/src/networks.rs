//! Networks of clients.

use std::net::IpAddr;
use std::str::FromStr;

/// An address and how many of its first bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    length: u8,
}

/// What a text has to be to be one.
pub const NETWORK_FORM: &str = "a network such as 192.0.2.0/24, 2001:db8::/32 or an address";

impl FromStr for Network {
    type Err = ();

    fn from_str(text: &str) -> Result<Network, ()> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length.parse().map_err(drop)?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(drop)?;
        let whole = if address.is_ipv4() { 32 } else { 128 };
        let length: u8 = length.unwrap_or(whole);
        if length > whole {
            return Err(());
        }
        Ok(Network { address, length })
    }
}

impl Network {
    /// Whether its address has bits beyond its length, so that it may be another one than was meant.
    #[must_use]
    pub fn has_rest(self) -> bool {
        match self.address {
            IpAddr::V4(address) => {
                address.to_bits().checked_shl(self.length.into()).is_some_and(|rest| rest != 0)
            }
            IpAddr::V6(address) => {
                address.to_bits().checked_shl(self.length.into()).is_some_and(|rest| rest != 0)
            }
        }
    }

    fn contains(self, address: IpAddr) -> bool {
        let differing = match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => (own.to_bits() ^ other.to_bits()).leading_zeros(),
            (IpAddr::V6(own), IpAddr::V6(other)) => (own.to_bits() ^ other.to_bits()).leading_zeros(),
            _ => return false,
        };
        differing >= self.length.into()
    }
}

/// Networks for which something holds. By default it is this host alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Networks(Vec<Network>);

impl Networks {
    /// These.
    #[must_use]
    pub fn new(networks: Vec<Network>) -> Networks {
        Networks(networks)
    }

    /// Whether an address is in one of them.
    #[must_use]
    pub fn contain(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        self.0.iter().any(|network| network.contains(client))
    }
}

impl Default for Networks {
    fn default() -> Networks {
        Networks(["127.0.0.0/8", "::1/128"].map(|text| text.parse().expect("they are networks")).to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_it_is_this_host() {
        let networks = Networks::default();
        let permits = |text: &str| networks.contain(text.parse().unwrap());
        assert!(
            permits("127.0.0.1") && permits("127.255.0.1") && permits("::1") && permits("::ffff:127.0.0.1")
        );
        assert!(!permits("128.0.0.1") && !permits("192.168.0.1") && !permits("::2") && !permits("::"));
    }

    #[test]
    fn bits_beyond_the_length_are_seen() {
        let has_rest = |text: &str| text.parse::<Network>().unwrap().has_rest();
        assert!(
            ["192.0.2.0/24", "192.0.2.1", "0.0.0.0/0", "2001:db8::/32", "::1"]
                .iter()
                .all(|text| !has_rest(text))
        );
        assert!(
            ["192.0.2.1/24", "192.0.2.1/0", "2001:db8::1/32", "::1/127"].iter().all(|text| has_rest(text))
        );
    }

    #[test]
    fn networks_have_any_length() {
        let permits = |network: &str, client: &str| {
            Networks::new(vec![network.parse().unwrap()]).contain(client.parse().unwrap())
        };
        assert!(permits("0.0.0.0/0", "203.0.113.1") && !permits("0.0.0.0/0", "2001:db8::1"));
        assert!(permits("192.0.2.4/31", "192.0.2.5") && !permits("192.0.2.4/31", "192.0.2.6"));
        assert!(permits("2001:db8::/33", "2001:db8:7fff::1") && !permits("2001:db8::/33", "2001:db8:8000::"));
        assert!(permits("192.0.2.1", "192.0.2.1") && !permits("192.0.2.1", "192.0.2.2"));
        for text in ["", "192.0.2.1/33", "192.0.2/24", "::/129", "192.0.2.0/-1", "192.0.2.0/"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }
}
