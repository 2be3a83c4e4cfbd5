//! Ethernet, VLAN, IPv4, IPv6, ICMP, UDP, TCP headers and checksums, parsed and written in place.
//!
//! Pure: views borrow the frame, builders write into it, and nothing allocates or reads a clock. No input makes it panic.
//! A rejected packet has a [`DropReason`].
//!
//! Start with [`responder`]: the two functions that a UDP service needs for each packet. The protocol modules hold the
//! views that everything else uses.
#![forbid(unsafe_code)]
#![no_std]

#[cfg(test)]
extern crate std;

pub mod checksum;
mod drop_reason;
pub mod ethernet;
mod fuzz;
pub mod icmp;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
pub mod responder;
pub mod super_segment;
pub mod tcp;
pub mod udp;
mod write_udp;

pub use drop_reason::DropReason;
pub use ethernet::{MacAddress, VlanTag};
#[doc(hidden)]
pub use fuzz::fuzz_wire;
pub use responder::{ChecksumPolicy, IpVersion, UdpHeaders, parse_udp, turn_around};
pub use write_udp::{Endpoints, Envelope, write_udp, write_udp_headers};

/// Numbers of transport protocols, as in IPv4's protocol field and IPv6's next-header field.
pub mod protocol {
    /// ICMP for IPv4.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
}
