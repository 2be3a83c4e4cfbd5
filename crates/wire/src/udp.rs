//! UDP headers (RFC 768).

use crate::DropReason;
use crate::checksum::{Sum, udp_field};

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

/// Writes a header to the start of `datagram`, whose rest is the payload, and fills in the checksum behind
/// `pseudo_header`, or leaves that to the device if there is none; returns the header's length.
///
/// `None` if `datagram` is shorter than a header or longer than 65535 octets.
pub fn write(
    datagram: &mut [u8],
    source_port: u16,
    destination_port: u16,
    pseudo_header: Option<Sum>,
) -> Option<usize> {
    let total_len = u16::try_from(datagram.len()).ok()?;
    let header = datagram.first_chunk_mut::<HEADER_LEN>()?;
    header[..2].copy_from_slice(&source_port.to_be_bytes());
    header[2..4].copy_from_slice(&destination_port.to_be_bytes());
    header[4..6].copy_from_slice(&total_len.to_be_bytes());
    header[6..].fill(0);
    if let Some(pseudo_header) = pseudo_header {
        let checksum = udp_field(pseudo_header + Sum::of(datagram));
        datagram[6..HEADER_LEN].copy_from_slice(&checksum.to_be_bytes());
    }
    Some(HEADER_LEN)
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_written_datagram_is_read_back_and_its_checksum_is_right() {
        let (source, destination) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
        for payload_len in 0..4 {
            let mut octets = [7; 12];
            let datagram = &mut octets[..HEADER_LEN + payload_len];
            let pseudo_header = Sum::pseudo_v4(source, destination, 17, datagram.len() as u16);
            assert_eq!(write(datagram, 53, 1024, Some(pseudo_header)), Some(HEADER_LEN));
            let udp = Udp::parse(datagram).unwrap();
            assert_eq!((udp.source_port(), udp.destination_port()), (53, 1024));
            assert_eq!(udp.payload(), &[7; 4][..payload_len]);
            assert!(udp.checksum() != 0 && udp.checksum_is_valid(pseudo_header));
        }
    }

    #[test]
    fn a_checksum_left_to_the_device_is_zero() {
        let mut datagram = [7; 12];
        write(&mut datagram, 53, 1024, None).unwrap();
        assert_eq!(Udp::parse(&datagram).unwrap().checksum(), 0);
    }

    #[test]
    fn what_is_no_datagram_is_not_written() {
        assert_eq!(write(&mut [0; 7], 1, 2, None), None);
    }
}
