//! Where packets leave.

use serde::{Deserialize, Serialize};
use wire::{MacAddress, VlanTag};

/// A network interface, as the engine numbers them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LinkId(pub u16);

/// Headers below IP of a packet that we send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkHeader {
    /// The next hop's address.
    pub destination: MacAddress,
    /// Our own.
    pub source: MacAddress,
    /// VLAN tags, outer first.
    pub tags: [Option<VlanTag>; 2],
}

impl LinkHeader {
    /// The header of a reply to a packet that had this one.
    pub fn reversed(self) -> LinkHeader {
        LinkHeader { destination: self.source, source: self.destination, tags: self.tags }
    }
}

/// Where packets of a flow leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hop {
    /// The interface.
    pub link: LinkId,
    /// The header in front of IP.
    pub header: LinkHeader,
}
