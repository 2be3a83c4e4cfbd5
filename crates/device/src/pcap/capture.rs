//! A capture file in memory.

use std::ops::Range;

use super::{classic, next_generation};

/// The packets of a capture file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capture {
    octets: Vec<u8>,
    packets: Vec<Entry>,
}

/// One packet of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Nanoseconds since 1970 at which it was captured.
    pub time_ns: u64,
    /// The Ethernet frame, as far as it was captured.
    pub frame: &'a [u8],
}

/// Where a packet lies in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) time_ns: u64,
    pub(super) frame: Range<usize>,
}

/// Why a file could not be read. Offsets count octets from its start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    /// The file starts like neither pcap nor pcapng.
    #[error("not a capture file: it starts with neither the mark of pcap nor that of pcapng")]
    Unrecognised,
    /// The file ends within a header or a packet, as when it is still being written.
    #[error("the file ends at offset {end} within what starts at offset {start}")]
    Truncated {
        /// Start of the header or packet that is cut off.
        start: usize,
        /// Length of the file.
        end: usize,
    },
    /// The packets are not Ethernet frames (link type 1).
    #[error("the packets are of link type {0}, not Ethernet frames")]
    LinkType(u32),
    /// A length field is impossible.
    #[error("impossible length {len} at offset {offset}")]
    Length {
        /// Where the packet or block starts.
        offset: usize,
        /// The length that it claims.
        len: usize,
    },
}

/// LINKTYPE_ETHERNET.
pub(super) const ETHERNET: u32 = 1;

impl Capture {
    /// Reads a whole file: classic pcap with micro- or nanoseconds in either byte order, or pcapng.
    pub fn parse(octets: impl Into<Vec<u8>>) -> Result<Capture, CaptureError> {
        let octets = octets.into();
        let packets = match octets.first_chunk::<4>() {
            Some(&next_generation::SECTION_HEADER) => next_generation::read(&octets)?,
            Some(magic) => classic::read(&octets, *magic)?,
            None => return Err(CaptureError::Unrecognised),
        };
        Ok(Capture { octets, packets })
    }

    /// Number of packets.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether the file holds no packet.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// The packet at `index`, in the file's order.
    pub fn get(&self, index: usize) -> Option<Packet<'_>> {
        let entry = self.packets.get(index)?;
        Some(Packet { time_ns: entry.time_ns, frame: &self.octets[entry.frame.clone()] })
    }

    /// All packets, in the file's order.
    pub fn packets(&self) -> impl Iterator<Item = Packet<'_>> {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

/// Numbers of one byte order.
#[derive(Clone, Copy)]
pub(super) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    pub(super) fn u16(self, octets: &[u8], at: usize) -> Option<u16> {
        let octets = *octets.get(at..)?.first_chunk()?;
        Some(match self {
            ByteOrder::Little => u16::from_le_bytes(octets),
            ByteOrder::Big => u16::from_be_bytes(octets),
        })
    }

    pub(super) fn u32(self, octets: &[u8], at: usize) -> Option<u32> {
        let octets = *octets.get(at..)?.first_chunk()?;
        Some(match self {
            ByteOrder::Little => u32::from_le_bytes(octets),
            ByteOrder::Big => u32::from_be_bytes(octets),
        })
    }
}
