//! IPv4 headers (RFC 791).

use core::net::Ipv4Addr;

use crate::DropReason;
use crate::checksum::{Sum, checksum};

/// Octets of a header without options.
pub const HEADER_LEN: usize = 20;
const MORE_FRAGMENTS: u16 = 0x2000;
const DO_NOT_FRAGMENT: u16 = 0x4000;
const OFFSET_MASK: u16 = 0x1fff;

/// A packet whose header is complete and whose lengths are consistent. `parse` does not verify the checksum.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4<'a> {
    /// Exactly the packet: total length octets.
    packet: &'a [u8],
    /// The start of `packet`.
    fixed: &'a [u8; HEADER_LEN],
    header_len: usize,
}

impl<'a> Ipv4<'a> {
    /// Looks at the packet at the start of `octets`; padding behind it is cut off.
    #[inline]
    pub fn parse(octets: &'a [u8]) -> Result<Ipv4<'a>, DropReason> {
        let ipv4 = Ipv4::parse_quoted(octets)?;
        let total_len = usize::from(ipv4.total_len());
        if total_len < ipv4.header_len {
            return Err(DropReason::IpLength);
        }
        let packet = octets.get(..total_len).ok_or(DropReason::IpLength)?;
        Ok(Ipv4 { packet, ..ipv4 })
    }

    /// As [`Ipv4::parse`], for a packet that may end early, such as one quoted in an ICMP error.
    #[inline]
    pub fn parse_quoted(octets: &'a [u8]) -> Result<Ipv4<'a>, DropReason> {
        let Some(fixed) = octets.first_chunk::<HEADER_LEN>() else {
            return Err(DropReason::IpTruncated);
        };
        if fixed[0] >> 4 != 4 {
            return Err(DropReason::IpVersion);
        }
        let header_len = usize::from(fixed[0] & 15) * 4;
        if header_len < HEADER_LEN || header_len > octets.len() {
            return Err(DropReason::Ipv4HeaderLength);
        }
        Ok(Ipv4 { packet: octets, fixed, header_len })
    }

    /// Octets of the header, options included.
    pub fn header_len(&self) -> usize {
        self.header_len
    }

    /// Octets of the packet, as its header says.
    pub fn total_len(&self) -> u16 {
        self.u16_at(2)
    }

    /// The options, with their padding.
    pub fn options(&self) -> &'a [u8] {
        self.packet.get(HEADER_LEN..self.header_len).unwrap_or_default()
    }

    /// What the header and its options are in front of.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.packet.get(self.header_len..).unwrap_or_default()
    }

    /// Identification, which the fragments of one packet share.
    pub fn identification(&self) -> u16 {
        self.u16_at(4)
    }

    /// Whether routers must not fragment the packet.
    pub fn do_not_fragment(&self) -> bool {
        self.u16_at(6) & DO_NOT_FRAGMENT != 0
    }

    /// Whether this is a part of a packet only.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.u16_at(6) & (MORE_FRAGMENTS | OFFSET_MASK) != 0
    }

    /// Octets of the whole packet's payload in front of this fragment's.
    pub fn fragment_offset(&self) -> usize {
        usize::from(self.u16_at(6) & OFFSET_MASK) * 8
    }

    /// DSCP (6 bits) and ECN (2 bits).
    pub fn traffic_class(&self) -> u8 {
        self.fixed[1]
    }

    /// Time to live.
    pub fn ttl(&self) -> u8 {
        self.fixed[8]
    }

    /// Number of the transport protocol.
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.fixed[9]
    }

    /// Sender.
    #[inline]
    pub fn source(&self) -> Ipv4Addr {
        self.address_at(12)
    }

    /// Receiver.
    #[inline]
    pub fn destination(&self) -> Ipv4Addr {
        self.address_at(16)
    }

    /// Whether the header's checksum is right.
    #[inline]
    pub fn checksum_is_valid(&self) -> bool {
        Sum::of(&self.packet[..self.header_len]).is_valid()
    }

    /// The pseudo-header for a transport checksum over `len` octets.
    #[inline]
    pub fn pseudo_header(&self, len: usize) -> Sum {
        Sum::pseudo_v4(self.source(), self.destination(), self.protocol(), len as u16)
    }

    #[inline]
    fn u16_at(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.fixed[at], self.fixed[at + 1]])
    }

    #[inline]
    fn address_at(&self, at: usize) -> Ipv4Addr {
        Ipv4Addr::new(self.fixed[at], self.fixed[at + 1], self.fixed[at + 2], self.fixed[at + 3])
    }
}

/// What is written into a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    /// Sender.
    pub source: Ipv4Addr,
    /// Receiver.
    pub destination: Ipv4Addr,
    /// Number of the transport protocol.
    pub protocol: u8,
    /// Time to live.
    pub ttl: u8,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Octets behind the header.
    pub payload_len: usize,
}

/// Writes a header without options, identification zero, not to be fragmented; returns its length, or `None` if `octets`
/// is shorter or the packet would be longer than 65535 octets.
pub fn write(octets: &mut [u8], fields: &Fields) -> Option<usize> {
    let total_len = u16::try_from(fields.payload_len.checked_add(HEADER_LEN)?).ok()?;
    let header = octets.first_chunk_mut::<HEADER_LEN>()?;
    *header = [0; HEADER_LEN];
    header[0] = 0x45;
    header[1] = fields.traffic_class;
    header[2..4].copy_from_slice(&total_len.to_be_bytes());
    header[6..8].copy_from_slice(&DO_NOT_FRAGMENT.to_be_bytes());
    header[8] = fields.ttl;
    header[9] = fields.protocol;
    header[12..16].copy_from_slice(&fields.source.octets());
    header[16..20].copy_from_slice(&fields.destination.octets());
    let sum = checksum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    Some(HEADER_LEN)
}

/// Changes the length of what follows a header without options, and its checksum. `None` if `header` is shorter, or the packet would be
/// longer than 65535 octets.
pub(crate) fn set_payload_len(header: &mut [u8], payload_len: usize) -> Option<()> {
    let header = header.first_chunk_mut::<HEADER_LEN>()?;
    let total_len = u16::try_from(payload_len + HEADER_LEN).ok()?;
    header[2..4].copy_from_slice(&total_len.to_be_bytes());
    header[10..12].fill(0);
    let sum = checksum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    Some(())
}
