//! Packets from and to capture files.
//!
//! [`Capture`] reads a classic pcap or a pcapng file, [`PcapReplay`] is a device that receives what the file holds, and
//! [`PcapRecord`] writes down what passes through any device.

mod capture;
mod classic;
mod next_generation;
mod record;
mod replay;

pub use capture::{Capture, CaptureError, Packet};
pub use record::PcapRecord;
pub use replay::{Pace, PcapReplay, ReplayConfig};
