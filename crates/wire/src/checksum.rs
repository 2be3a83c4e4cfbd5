//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624).
//!
//! Sums are kept in the machine's byte order: one's complement addition gives the same octets in either order (RFC 1071,
//! section 2B), so nothing is swapped until a number is wanted.

use core::net::{Ipv4Addr, Ipv6Addr};
use core::ops::Add;

/// An unfinished one's complement sum of 16-bit words.
///
/// Pieces may be added in any order, but each piece except the last in the packet must have an even number of octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// The sum of nothing.
    pub const ZERO: Sum = Sum(0);

    /// The sum of the 16-bit words of `octets`, the last padded with a zero octet if their number is odd.
    ///
    /// Words of any even length give the same sum once it is folded (RFC 1071, section 2A), so it adds eight octets at once
    /// and counts the carries above them: an addition and an addition of the carry.
    #[inline]
    pub fn of(octets: &[u8]) -> Sum {
        let (words, rest) = octets.as_chunks::<8>();
        let mut sum = 0u128;
        for word in words {
            sum += u128::from(u64::from_ne_bytes(*word));
        }
        let (carries, sum) = ((sum >> 64) as u64, sum as u64);
        Sum(carries + (sum >> 32) + (sum & 0xffff_ffff) + of_short(rest))
    }

    /// The sum of one 16-bit number.
    #[inline]
    pub fn of_u16(number: u16) -> Sum {
        Sum(u64::from(number.to_be()))
    }

    /// The sum of four octets, such as the ports of a UDP header.
    #[inline]
    pub fn of_four(octets: [u8; 4]) -> Sum {
        Sum(u64::from(u32::from_ne_bytes(octets)))
    }

    /// The sum of eight octets, such as the two addresses of an IPv4 header.
    #[inline]
    pub fn of_eight(octets: [u8; 8]) -> Sum {
        let word = u64::from_ne_bytes(octets);
        Sum((word & 0xffff_ffff) + (word >> 32))
    }

    /// The pseudo-header of IPv4 (RFC 768): addresses, protocol and the length of header and payload.
    #[inline]
    pub fn pseudo_v4(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, len: u16) -> Sum {
        Sum::of_four(source.octets())
            + Sum::of_four(destination.octets())
            + Sum::of_u16(u16::from(protocol))
            + Sum::of_u16(len)
    }

    /// The pseudo-header of IPv6 (RFC 8200, 8.1), for packets up to 65535 octets.
    #[inline]
    pub fn pseudo_v6(source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, len: u16) -> Sum {
        Sum::of(&source.octets())
            + Sum::of(&destination.octets())
            + Sum::of_u16(u16::from(protocol))
            + Sum::of_u16(len)
    }

    /// The sum as a 16-bit number. Zero only if every word was zero.
    #[inline]
    pub fn fold(self) -> u16 {
        u16::from_be(self.fold_native())
    }

    /// The checksum field that makes a packet with this sum (its field counted as zero) valid.
    #[inline]
    pub fn complement(self) -> u16 {
        !self.fold()
    }

    /// Whether this is the sum of a packet whose checksum, counted in, is right.
    #[inline]
    pub fn is_valid(self) -> bool {
        self.fold_native() == 0xffff
    }

    #[inline]
    fn fold_native(self) -> u16 {
        let sum = (self.0 >> 32) + (self.0 & 0xffff_ffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        ((sum >> 16) + (sum & 0xffff)) as u16 // Three folds of 33 bits leave sixteen.
    }
}

impl Add for Sum {
    type Output = Sum;

    #[inline]
    fn add(self, other: Sum) -> Sum {
        // Each part is below 2^49 for packets below 2^16 octets; callers add a handful of parts.
        Sum(self.0 + other.0)
    }
}

/// The checksum of `octets`, in which the checksum field counts as zero (RFC 1071).
pub fn checksum(octets: &[u8]) -> u16 {
    Sum::of(octets).complement()
}

/// The checksum after one 16-bit word of the packet changed from `old` to `new` (RFC 1624, equation 3).
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    (Sum::of_u16(!checksum) + Sum::of_u16(!old) + Sum::of_u16(new)).complement()
}

/// The UDP checksum field for a datagram with this sum: a computed zero is sent as all ones (RFC 768).
#[inline]
pub fn udp_field(sum: Sum) -> u16 {
    match sum.complement() {
        0 => 0xffff,
        field => field,
    }
}

/// Sums fewer than eight octets.
#[inline]
fn of_short(octets: &[u8]) -> u64 {
    let (mut sum, mut rest) = (0, octets);
    if let Some((four, behind)) = rest.split_first_chunk() {
        (sum, rest) = (u64::from(u32::from_ne_bytes(*four)), behind);
    }
    if let Some((two, behind)) = rest.split_first_chunk() {
        (sum, rest) = (sum + u64::from(u16::from_ne_bytes(*two)), behind);
    }
    match rest {
        [last] => sum + u64::from(u16::from_ne_bytes([*last, 0])),
        _ => sum,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071_gives_its_sum() {
        // RFC 1071, section 3: the words sum to ddf2.
        let octets = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::of(&octets).fold(), 0xddf2);
        assert_eq!(checksum(&octets), !0xddf2);
    }

    #[test]
    fn the_example_of_rfc_1624_updates_to_zero() {
        // RFC 1624, section 4: HC = dd2f, m = 5555, m' = 3285 gives 0000.
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn the_largest_packet_does_not_overflow() {
        assert_eq!(Sum::of(&[0xff; 65535]).fold(), 0xff00);
    }

    #[test]
    fn a_udp_checksum_is_never_sent_as_zero() {
        assert_eq!(udp_field(Sum::of_u16(0xffff)), 0xffff);
    }
}
