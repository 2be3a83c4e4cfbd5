//! IPv6 headers and extension headers (RFC 8200, sections 3 and 4).

use core::net::Ipv6Addr;

use crate::DropReason;
use crate::checksum::Sum;

/// Octets of the fixed header.
pub const HEADER_LEN: usize = 40;
/// More extension headers than this have no honest use.
const EXTENSIONS_MAX: usize = 8;

/// Numbers of extension headers.
mod extension {
    pub(super) const HOP_BY_HOP: u8 = 0;
    pub(super) const ROUTING: u8 = 43;
    pub(super) const FRAGMENT: u8 = 44;
    pub(super) const AUTHENTICATION: u8 = 51;
    pub(super) const DESTINATION: u8 = 60;
}

/// A packet whose fixed header is complete, whose length is consistent, and whose extension headers were walked.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6<'a> {
    /// Exactly the packet.
    packet: &'a [u8],
    transport: Transport,
}

/// What the extension headers lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Transport {
    protocol: u8,
    /// Octets from the start of the packet.
    offset: usize,
    fragment: Option<Fragment>,
}

/// What a fragment header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Octets of the whole packet in front of this part.
    pub offset: u16,
    /// Whether more parts follow.
    pub more: bool,
    /// What the parts of one packet share.
    pub identification: u32,
}

impl<'a> Ipv6<'a> {
    /// Looks at the packet at the start of `octets`; padding behind it is cut off.
    pub fn parse(octets: &'a [u8]) -> Result<Ipv6<'a>, DropReason> {
        let header = fixed_header(octets)?;
        let total_len = HEADER_LEN + usize::from(u16::from_be_bytes([header[4], header[5]]));
        let packet = octets.get(..total_len).ok_or(DropReason::IpLength)?;
        Ok(Ipv6 { packet, transport: walk(packet)? })
    }

    /// As [`Ipv6::parse`], for a packet that may end early, such as one quoted in an ICMP error.
    pub fn parse_quoted(octets: &'a [u8]) -> Result<Ipv6<'a>, DropReason> {
        fixed_header(octets)?;
        Ok(Ipv6 { packet: octets, transport: walk(octets)? })
    }

    /// DSCP (6 bits) and ECN (2 bits).
    pub fn traffic_class(&self) -> u8 {
        self.packet[0] << 4 | self.packet[1] >> 4
    }

    /// Flow label, 20 bits.
    pub fn flow_label(&self) -> u32 {
        u32::from_be_bytes([0, self.packet[1] & 15, self.packet[2], self.packet[3]])
    }

    /// Hop limit.
    pub fn hop_limit(&self) -> u8 {
        self.packet[7]
    }

    /// Number of the protocol behind the extension headers.
    pub fn protocol(&self) -> u8 {
        self.transport.protocol
    }

    /// Whether there are extension headers.
    pub fn has_extensions(&self) -> bool {
        self.transport.offset != HEADER_LEN
    }

    /// The fragment header, if there is one. One with offset zero and nothing to follow is an atomic fragment: a whole
    /// packet (RFC 6946).
    pub fn fragment(&self) -> Option<Fragment> {
        self.transport.fragment
    }

    /// Octets behind the fixed header, as that says.
    pub fn payload_len(&self) -> usize {
        self.packet.get(4..6).map_or(0, |field| usize::from(u16::from_be_bytes([field[0], field[1]])))
    }

    /// What the headers are in front of.
    pub fn payload(&self) -> &'a [u8] {
        self.packet.get(self.transport.offset..).unwrap_or_default()
    }

    /// Octets from the start of the packet to its payload.
    pub fn payload_offset(&self) -> usize {
        self.transport.offset
    }

    /// Sender.
    pub fn source(&self) -> Ipv6Addr {
        self.address_at(8)
    }

    /// Receiver, as the fixed header names it: a routing header may name one further on.
    pub fn destination(&self) -> Ipv6Addr {
        self.address_at(24)
    }

    /// The pseudo-header for a transport checksum over `len` octets.
    pub fn pseudo_header(&self, len: usize) -> Sum {
        Sum::pseudo_v6(self.source(), self.destination(), self.protocol(), len as u16)
    }

    fn address_at(&self, at: usize) -> Ipv6Addr {
        let octets: Option<&[u8; 16]> = self.packet.get(at..).and_then(|rest| rest.first_chunk());
        Ipv6Addr::from(*octets.expect("the fixed header is complete"))
    }
}

fn fixed_header(octets: &[u8]) -> Result<&[u8; HEADER_LEN], DropReason> {
    let header = octets.first_chunk::<HEADER_LEN>().ok_or(DropReason::IpTruncated)?;
    if header[0] >> 4 != 6 {
        return Err(DropReason::IpVersion);
    }
    Ok(header)
}

/// Follows the chain of extension headers. What follows a fragment header with an offset is data of another packet's
/// middle, so the walk ends there.
fn walk(packet: &[u8]) -> Result<Transport, DropReason> {
    let mut at = Transport { protocol: packet[6], offset: HEADER_LEN, fragment: None };
    for _ in 0..EXTENSIONS_MAX {
        let unit_and_bias = match at.protocol {
            extension::HOP_BY_HOP | extension::ROUTING | extension::DESTINATION => (8, 1),
            extension::AUTHENTICATION => (4, 2), // RFC 4302, 2.2
            extension::FRAGMENT => (0, 0),
            _ => return Ok(at),
        };
        let rest = packet.get(at.offset..).unwrap_or_default();
        let Some(&[next, len, ..]) = rest.first_chunk::<8>() else {
            return Err(DropReason::Ipv6ExtensionMalformed);
        };
        let (unit, bias) = unit_and_bias;
        let len = if at.protocol == extension::FRAGMENT { 8 } else { unit * (usize::from(len) + bias) };
        if len < 8 || len > rest.len() {
            return Err(DropReason::Ipv6ExtensionMalformed);
        }
        if at.protocol == extension::FRAGMENT {
            at.fragment = fragment(rest);
        }
        at = Transport { protocol: next, offset: at.offset + len, ..at };
        if at.fragment.is_some_and(|fragment| fragment.offset != 0) {
            return Ok(at);
        }
    }
    Err(DropReason::Ipv6ExtensionMalformed)
}

fn fragment(header: &[u8]) -> Option<Fragment> {
    let &[_, _, high, low, a, b, c, d] = header.first_chunk::<8>()?;
    let field = u16::from_be_bytes([high, low]);
    Some(Fragment {
        offset: field & !7,
        more: field & 1 != 0,
        identification: u32::from_be_bytes([a, b, c, d]),
    })
}

/// What is written into a fixed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    /// Sender.
    pub source: Ipv6Addr,
    /// Receiver.
    pub destination: Ipv6Addr,
    /// Number of what follows.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Octets behind the header.
    pub payload_len: usize,
}

/// Writes a fixed header with flow label zero; returns its length, or `None` if `octets` is shorter or the payload longer
/// than 65535 octets.
pub fn write(octets: &mut [u8], fields: &Fields) -> Option<usize> {
    let payload_len = u16::try_from(fields.payload_len).ok()?;
    let header = octets.first_chunk_mut::<HEADER_LEN>()?;
    let first = 6u32 << 28 | u32::from(fields.traffic_class) << 20;
    header[..4].copy_from_slice(&first.to_be_bytes());
    header[4..6].copy_from_slice(&payload_len.to_be_bytes());
    header[6] = fields.next_header;
    header[7] = fields.hop_limit;
    header[8..24].copy_from_slice(&fields.source.octets());
    header[24..].copy_from_slice(&fields.destination.octets());
    Some(HEADER_LEN)
}

/// Changes the length of what follows a fixed header. `None` if `header` is shorter, or the payload longer than 65535 octets.
pub(crate) fn set_payload_len(header: &mut [u8], payload_len: usize) -> Option<()> {
    let header = header.first_chunk_mut::<HEADER_LEN>()?;
    header[4..6].copy_from_slice(&u16::try_from(payload_len).ok()?.to_be_bytes());
    Some(())
}
