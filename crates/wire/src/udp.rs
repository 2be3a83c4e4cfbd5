//! UDP headers (RFC 768).

use crate::DropReason;
use crate::checksum::Sum;

/// Octets of a header.
pub const HEADER_LEN: usize = 8;

/// A datagram whose length is consistent.
#[derive(Clone, Copy, Debug)]
pub struct Udp<'a>(&'a [u8]);

impl<'a> Udp<'a> {
    /// Looks at the payload of an IP packet; what follows the datagram in it is cut off.
    pub fn parse(octets: &'a [u8]) -> Result<Udp<'a>, DropReason> {
        let header = octets.first_chunk::<HEADER_LEN>().ok_or(DropReason::UdpTruncated)?;
        let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        match octets.get(..len) {
            Some(datagram) if len >= HEADER_LEN => Ok(Udp(datagram)),
            _ => Err(DropReason::UdpLength),
        }
    }

    /// Port of the sender.
    pub fn source_port(&self) -> u16 {
        self.u16_at(0)
    }

    /// Port of the receiver.
    pub fn destination_port(&self) -> u16 {
        self.u16_at(2)
    }

    /// The checksum field; zero if the sender computed none.
    pub fn checksum(&self) -> u16 {
        self.u16_at(6)
    }

    /// Whether the checksum is right behind the pseudo-header of [`crate::ip::Ip::pseudo_header`]. None at all counts as
    /// right, which IPv6 does not allow: see [`Udp::checksum`].
    pub fn checksum_is_valid(&self, pseudo_header: Sum) -> bool {
        self.checksum() == 0 || (pseudo_header + Sum::of(self.0)).is_valid()
    }

    /// Octets of header and payload.
    pub fn total_len(&self) -> usize {
        self.0.len()
    }

    /// What the header is in front of.
    pub fn payload(&self) -> &'a [u8] {
        &self.0[HEADER_LEN..]
    }

    fn u16_at(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }
}
