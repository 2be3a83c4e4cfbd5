//! Networks that exist only in memory, around the TCP and UDP stack of the `stack` crate.
//!
//! [`net`] makes a network with two hosts out of a seed, [`engines`] does the same with whole engines and their devices. [`pkt`] plays scripts in packetdrill's language against one stack under
//! simulated time.
#![forbid(unsafe_code)]

pub mod engines;
pub mod net;
pub mod pkt;
