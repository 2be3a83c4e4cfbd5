//! TCP headers and options (RFC 9293, 3.1; RFC 7323; RFC 2018).

use crate::checksum::Sum;
use crate::{ChecksumPolicy, DropReason};

/// Octets of a header without options.
pub const HEADER_LEN: usize = 20;
/// Where the checksum is in a header.
pub(crate) const CHECKSUM_AT: usize = 16;

/// Bits of the flags octet.
pub mod flag {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Synchronise sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset the connection.
    pub const RST: u8 = 0x04;
    /// Push.
    pub const PSH: u8 = 0x08;
    /// The acknowledgement number counts.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer counts.
    pub const URG: u8 = 0x20;
    /// Congestion was experienced (RFC 3168).
    pub const ECE: u8 = 0x40;
    /// The congestion window was reduced (RFC 3168).
    pub const CWR: u8 = 0x80;
}

/// A segment whose header is complete. `parse` does not verify the checksum.
#[derive(Clone, Copy, Debug)]
pub struct Tcp<'a> {
    segment: &'a [u8],
    /// The start of `segment`.
    fixed: &'a [u8; HEADER_LEN],
    header_len: usize,
}

impl<'a> Tcp<'a> {
    /// Looks at the payload of an IP packet.
    #[inline]
    pub fn parse(octets: &'a [u8]) -> Result<Tcp<'a>, DropReason> {
        let fixed = octets.first_chunk::<HEADER_LEN>().ok_or(DropReason::TcpTruncated)?;
        let header_len = usize::from(fixed[12] >> 4) * 4;
        if header_len < HEADER_LEN || header_len > octets.len() {
            return Err(DropReason::TcpDataOffset);
        }
        Ok(Tcp { segment: octets, fixed, header_len })
    }

    /// Port of the sender.
    #[inline]
    pub fn source_port(&self) -> u16 {
        self.u16_at(0)
    }

    /// Port of the receiver.
    #[inline]
    pub fn destination_port(&self) -> u16 {
        self.u16_at(2)
    }

    /// Sequence number of the first octet, SYN counted.
    #[inline]
    pub fn sequence_number(&self) -> u32 {
        self.u32_at(4)
    }

    /// The next sequence number that the sender expects.
    #[inline]
    pub fn acknowledgement_number(&self) -> u32 {
        self.u32_at(8)
    }

    /// Bits of [`flag`].
    #[inline]
    pub fn flags(&self) -> u8 {
        self.fixed[13]
    }

    /// Window, not scaled.
    #[inline]
    pub fn window(&self) -> u16 {
        self.u16_at(14)
    }

    /// Urgent pointer.
    #[inline]
    pub fn urgent_pointer(&self) -> u16 {
        self.u16_at(18)
    }

    /// The options, one by one.
    #[inline]
    pub fn options(&self) -> Options<'a> {
        Options(self.segment.get(HEADER_LEN..self.header_len).unwrap_or_default())
    }

    /// Timestamps as (TSval, TSecr), if they are all the options there are, laid out as RFC 7323's appendix A has them: so they
    /// come with nearly every segment.
    #[inline]
    pub fn lone_timestamps(&self) -> Option<(u32, u32)> {
        match self.segment.get(HEADER_LEN..self.header_len)? {
            &[1, 1, 8, 10, a, b, c, d, e, f, g, h] => {
                Some((u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])))
            }
            _ => None,
        }
    }

    /// What the header is in front of.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.segment.get(self.header_len..).unwrap_or_default()
    }

    /// Whether the checksum is right behind the pseudo-header of [`crate::ip::Ip::pseudo_header`].
    pub fn checksum_is_valid(&self, pseudo_header: Sum) -> bool {
        (pseudo_header + Sum::of(self.segment)).is_valid()
    }

    /// Whether the checksum is right by `policy`: as [`crate::parse_udp`] looks at it.
    pub fn checksum_is_accepted(&self, pseudo_header: Sum, policy: ChecksumPolicy) -> bool {
        policy.verified
            || self.checksum_is_valid(pseudo_header)
            || policy.accept_partial && self.u16_at(16) == pseudo_header.fold()
    }

    #[inline]
    fn u16_at(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.fixed[at], self.fixed[at + 1]])
    }

    #[inline]
    fn u32_at(&self, at: usize) -> u32 {
        u32::from_be_bytes([self.fixed[at], self.fixed[at + 1], self.fixed[at + 2], self.fixed[at + 3]])
    }
}

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOption<'a> {
    /// Largest segment that the sender takes, in octets of payload.
    MaximumSegmentSize(u16),
    /// The shift of windows; more than 14 counts as 14 (RFC 7323, 2.3).
    WindowScale(u8),
    /// Selective acknowledgements may be sent.
    SackPermitted,
    /// Selective acknowledgements: up to four blocks of left and right edge.
    Sack(SackBlocks<'a>),
    /// Timestamps (RFC 7323, 3).
    Timestamps {
        /// The sender's clock.
        value: u32,
        /// The receiver's clock, echoed.
        echo_reply: u32,
    },
    /// An option of another kind, or of a known kind with a wrong length.
    Other {
        /// Its kind.
        kind: u8,
        /// What follows kind and length.
        data: &'a [u8],
    },
}

/// Edges of selectively acknowledged blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SackBlocks<'a>(&'a [[u8; 8]]);

impl SackBlocks<'_> {
    /// Left and right edge of each block, in the order of the option.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.0.iter().map(|&[a, b, c, d, e, f, g, h]| {
            (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
        })
    }
}

/// Iterates over options. Ends at the end-of-list option, or at one whose length is impossible.
#[derive(Clone, Debug)]
pub struct Options<'a>(&'a [u8]);

impl<'a> Iterator for Options<'a> {
    type Item = TcpOption<'a>;

    fn next(&mut self) -> Option<TcpOption<'a>> {
        const END_OF_LIST: u8 = 0;
        const NO_OPERATION: u8 = 1;
        while let Some((&NO_OPERATION, rest)) = self.0.split_first() {
            self.0 = rest;
        }
        let (&kind, _) = self.0.split_first().filter(|(kind, _)| **kind != END_OF_LIST)?;
        let len = usize::from(*self.0.get(1)?);
        let data = self.0.get(2..len)?; // None too for a length below two.
        self.0 = &self.0[len..];
        Some(decode(kind, data))
    }
}

fn decode(kind: u8, data: &[u8]) -> TcpOption<'_> {
    match (kind, data) {
        (2, &[high, low]) => TcpOption::MaximumSegmentSize(u16::from_be_bytes([high, low])),
        (3, &[shift]) => TcpOption::WindowScale(shift.min(14)),
        (4, []) => TcpOption::SackPermitted,
        (5, blocks) if !blocks.is_empty() && blocks.len().is_multiple_of(8) => {
            TcpOption::Sack(SackBlocks(blocks.as_chunks().0))
        }
        (8, &[a, b, c, d, e, f, g, h]) => TcpOption::Timestamps {
            value: u32::from_be_bytes([a, b, c, d]),
            echo_reply: u32::from_be_bytes([e, f, g, h]),
        },
        _ => TcpOption::Other { kind, data },
    }
}

/// What is written into a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields<'a> {
    /// Port of the sender.
    pub source_port: u16,
    /// Port of the receiver.
    pub destination_port: u16,
    /// Sequence number.
    pub sequence_number: u32,
    /// Acknowledgement number.
    pub acknowledgement_number: u32,
    /// Bits of [`flag`].
    pub flags: u8,
    /// Window, not scaled.
    pub window: u16,
    /// Urgent pointer.
    pub urgent_pointer: u16,
    /// Encoded options: a multiple of four octets, up to 40.
    pub options: &'a [u8],
}

/// Writes a header to the start of `segment`, whose rest is the payload, and fills in the checksum behind
/// `pseudo_header`, or leaves that to the device if there is none; returns the header's length.
///
/// `None` if `segment` is too short or the options have an impossible length.
pub fn write(segment: &mut [u8], fields: &Fields<'_>, pseudo_header: Option<Sum>) -> Option<usize> {
    let header_len = HEADER_LEN + fields.options.len();
    if header_len > 60 || !header_len.is_multiple_of(4) {
        return None;
    }
    let header = segment.get_mut(..header_len)?;
    header[..2].copy_from_slice(&fields.source_port.to_be_bytes());
    header[2..4].copy_from_slice(&fields.destination_port.to_be_bytes());
    header[4..8].copy_from_slice(&fields.sequence_number.to_be_bytes());
    header[8..12].copy_from_slice(&fields.acknowledgement_number.to_be_bytes());
    header[12] = (header_len / 4) as u8 * 16;
    header[13] = fields.flags;
    header[14..16].copy_from_slice(&fields.window.to_be_bytes());
    header[16..18].fill(0);
    header[18..20].copy_from_slice(&fields.urgent_pointer.to_be_bytes());
    header[20..].copy_from_slice(fields.options);
    if let Some(pseudo_header) = pseudo_header {
        let checksum = (pseudo_header + Sum::of(segment)).complement();
        segment[16..18].copy_from_slice(&checksum.to_be_bytes());
    }
    Some(header_len)
}

/// Makes the header of one segment out of that of a longer one: moves its sequence number on by `offset`, and takes the flags in `hidden`
/// away. `None` if it is shorter than a header.
pub(crate) fn continue_header(segment: &mut [u8], offset: u32, hidden: u8) -> Option<()> {
    let header = segment.first_chunk_mut::<HEADER_LEN>()?;
    let sequence_number = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    header[4..8].copy_from_slice(&sequence_number.wrapping_add(offset).to_be_bytes());
    header[13] &= !hidden;
    // The urgent pointer counts from the segment's first octet (RFC 9293, 3.1).
    match u32::from(u16::from_be_bytes([header[18], header[19]])).checked_sub(offset) {
        Some(urgent) => header[18..20].copy_from_slice(&(urgent as u16).to_be_bytes()),
        None => header[13] &= !flag::URG,
    }
    Some(())
}

/// Fills in the checksum of a segment. `None` if it is shorter than a header.
pub(crate) fn fill_in_checksum(segment: &mut [u8], pseudo_header: Sum) -> Option<()> {
    segment.get_mut(CHECKSUM_AT..CHECKSUM_AT + 2)?.fill(0);
    let checksum = (pseudo_header + Sum::of(segment)).complement();
    set_checksum(segment, checksum)
}

/// Puts this into the checksum field. `None` if there is none.
pub(crate) fn set_checksum(segment: &mut [u8], checksum: u16) -> Option<()> {
    segment.get_mut(CHECKSUM_AT..CHECKSUM_AT + 2)?.copy_from_slice(&checksum.to_be_bytes());
    Some(())
}
