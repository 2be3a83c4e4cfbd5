//! Networks that exist only in memory, around the TCP and UDP stack of the `stack` crate.
//!
//! [`net`] makes a network with two hosts out of a seed. [`pkt`] plays scripts in packetdrill's language against one stack under
//! simulated time.
#![forbid(unsafe_code)]

pub mod net;
pub mod pkt;
