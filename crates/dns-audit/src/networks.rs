//! What networks and countries addresses belong to, as far as a database says.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// What is known of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// The autonomous system.
    pub number: Option<u32>,
    /// Whose it is.
    pub organisation: Option<String>,
    /// ISO 3166-1, two letters.
    pub country: Option<String>,
}

/// Where addresses are looked up.
pub trait Networks {
    /// What is known of `address`.
    fn look_up(&self, address: IpAddr) -> Network;
}

/// Nothing is known of any address.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nowhere;

impl Networks for Nowhere {
    fn look_up(&self, _: IpAddr) -> Network {
        Network::default()
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let number = self.number.map(|number| format!("AS{number}"));
        let parts = [number, self.organisation.clone(), self.country.clone()];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(" "))
    }
}

/// Whether nobody outside of a site has this address (RFC 1918, RFC 4193, loopback, link-local), or it is shared by the clients of a provider (RFC 6598).
#[must_use]
pub fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            address.is_private()
                || address.octets()[0] == 100 && address.octets()[1] & 0xc0 == 64
                || address.is_loopback()
                || address.is_link_local()
                || address.is_unspecified()
        }
        IpAddr::V6(address) => {
            address.is_unique_local()
                || address.is_loopback()
                || address.is_unicast_link_local()
                || address.is_unspecified()
        }
    }
}
