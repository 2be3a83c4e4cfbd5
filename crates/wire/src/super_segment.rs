//! TCP segments that are cut late: one packet of up to 64 KiB, from which several are made.
//!
//! ```text
//!   [IP][TCP][................. payload .................]     a super-segment
//!   [IP][TCP][... size ...]  [IP][TCP][... size ...]  [IP][TCP][.. rest ..]
//! ```
//!
//! Linux calls it a GSO packet, and a NIC that cuts it does TSO. Whoever cuts continues the sequence numbers, leaves PSH and FIN to the last
//! segment and CWR to the first (RFC 3168, 6.1.2), and fills in lengths and checksums. [`Headers::write_segment`] does so where nobody else
//! does, and [`offload`] prepares the headers for a kernel or a NIC.

use crate::checksum::Sum;
use crate::ip::Ip;
use crate::tcp::{self, Tcp, flag};
use crate::{DropReason, ipv4, ipv6, protocol};

/// The IP and TCP headers of a super-segment: no IP options, no extension headers.
#[derive(Clone, Copy, Debug)]
pub struct Headers<'a> {
    octets: &'a [u8],
    ip: Ip<'a>,
    ip_len: usize,
}

/// Which octets of a super-segment's payload one segment has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it begins in the payload.
    pub offset: usize,
    /// Its octets.
    pub len: usize,
    /// Whether nothing follows.
    pub is_last: bool,
}

/// What is to be told of a super-segment's headers to those who cut it and fill in the checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offload {
    /// IPv6, not IPv4.
    pub is_ipv6: bool,
    /// Octets in front of the TCP header.
    pub ip_len: usize,
    /// Octets of both headers.
    pub len: usize,
}

impl<'a> Headers<'a> {
    /// The headers at the start of `octets`, which may end behind them.
    pub fn parse(octets: &'a [u8]) -> Result<Headers<'a>, DropReason> {
        let ip = Ip::parse_quoted(octets)?;
        let ip_len = match ip {
            Ip::V4(_) => ipv4::HEADER_LEN,
            Ip::V6(_) => ipv6::HEADER_LEN,
        };
        let segment = octets.get(ip_len..).ok_or(DropReason::TcpTruncated)?;
        let len = ip_len + segment.len() - Tcp::parse(segment)?.payload().len();
        Ok(Headers { octets: &octets[..len], ip, ip_len })
    }

    /// Writes one segment as an IP packet; `fill` puts its payload in. Its length; `None` if `room` is shorter.
    pub fn write_segment(&self, room: &mut [u8], part: Part, fill: impl FnOnce(&mut [u8])) -> Option<usize> {
        let len = self.octets.len() + part.len;
        let packet = room.get_mut(..len)?;
        let (headers, payload) = packet.split_at_mut(self.octets.len());
        headers.copy_from_slice(self.octets);
        fill(payload);
        let pseudo_header = self.continue_headers(&mut packet[..self.octets.len()], part)?;
        tcp::fill_in_checksum(&mut packet[self.ip_len..], pseudo_header)?;
        Some(len)
    }

    /// Octets of both headers.
    pub fn len(&self) -> usize {
        self.octets.len()
    }

    /// Whether there are none, which never is so.
    pub fn is_empty(&self) -> bool {
        self.octets.is_empty()
    }

    /// Writes the headers of one segment over `headers`, of [`Headers::len`] octets, whose payload lies behind them already. The checksum is
    /// left unfinished: its field has the sum of the pseudo-header. `None` if the lengths cannot be.
    pub fn write_unfinished(&self, headers: &mut [u8], part: Part) -> Option<()> {
        if headers.len() != self.octets.len() {
            return None;
        }
        headers.copy_from_slice(self.octets);
        let pseudo_header = self.continue_headers(headers, part)?;
        tcp::set_checksum(&mut headers[self.ip_len..], pseudo_header.fold())
    }

    /// Whether what was received is what these headers tell of: one TCP segment, with a payload in these pieces, whose checksum is right or was
    /// left unfinished.
    pub fn are_of<'p>(&self, pieces: impl Iterator<Item = &'p [u8]> + Clone) -> bool {
        let len = self.octets.len() - self.ip_len + pieces.clone().map(<[u8]>::len).sum::<usize>();
        let is_plain = match self.ip {
            Ip::V4(ip) => {
                ip.header_len() == self.ip_len
                    && usize::from(ip.total_len()) == self.ip_len + len
                    && ip.checksum_is_valid()
            }
            Ip::V6(ip) => !ip.has_extensions() && ip.payload_len() == len,
        };
        if !is_plain || self.ip.is_fragment() || self.ip.protocol() != protocol::TCP {
            return false;
        }
        let pseudo_header = self.ip.pseudo_header(len);
        let field = self.octets.get(self.ip_len + tcp::CHECKSUM_AT..).and_then(<[u8]>::first_chunk);
        if field.copied().map(u16::from_be_bytes) == Some(pseudo_header.fold()) {
            return true;
        }
        let header = pseudo_header + Sum::of(&self.octets[self.ip_len..]);
        let mut at = 0;
        let payload = pieces.fold(header, |sum, piece| {
            let own = Sum::of(piece);
            // A piece that begins with the second octet of a word counts with its octets swapped (RFC 1071, 2).
            let own = if at % 2 == 1 { Sum::of_u16(own.fold().swap_bytes()) } else { own };
            at += piece.len();
            sum + own
        });
        payload.is_valid()
    }

    /// Writes lengths, sequence number and flags of one segment into a copy of the headers; returns the sum of its pseudo-header.
    fn continue_headers(&self, headers: &mut [u8], part: Part) -> Option<Sum> {
        let len = headers.len() - self.ip_len + part.len;
        let (ip, segment) = headers.split_at_mut(self.ip_len);
        match self.ip {
            Ip::V4(_) => ipv4::set_payload_len(ip, len),
            Ip::V6(_) => ipv6::set_payload_len(ip, len),
        }?;
        let hidden = if part.is_last { 0 } else { flag::FIN | flag::PSH };
        let hidden = if part.offset > 0 { hidden | flag::CWR } else { hidden };
        tcp::continue_header(segment, part.offset as u32, hidden)?;
        Some(self.ip.pseudo_header(len))
    }
}

/// The parts of a payload of `len` octets, each of `size` octets but the last.
pub fn parts(len: usize, size: usize) -> impl Iterator<Item = Part> {
    let size = size.max(1);
    (0..len).step_by(size).map(move |offset| {
        let part = size.min(len - offset);
        Part { offset, len: part, is_last: offset + part == len }
    })
}

/// Puts into the checksum field of a super-segment with `payload_len` octets what those expect there who finish it: the sum of the
/// pseudo-header.
pub fn offload(octets: &mut [u8], payload_len: usize) -> Result<Offload, DropReason> {
    let Headers { octets: headers, ip, ip_len } = Headers::parse(octets)?;
    let len = headers.len();
    let is_ipv6 = matches!(ip, Ip::V6(_));
    let sum: Sum = ip.pseudo_header(len - ip_len + payload_len);
    let at = ip_len + tcp::CHECKSUM_AT;
    octets[at..at + 2].copy_from_slice(&sum.fold().to_be_bytes());
    Ok(Offload { is_ipv6, ip_len, len })
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};
    use std::vec;
    use std::vec::Vec;

    use super::*;

    const PAYLOAD: usize = 2500;
    const FLAGS: u8 = flag::ACK | flag::PSH | flag::FIN | flag::CWR;

    fn headers(is_ipv6: bool) -> Vec<u8> {
        let mut octets = vec![0; 80];
        let payload_len = tcp::HEADER_LEN + 12 + PAYLOAD;
        let ip_len = if is_ipv6 {
            let (source, destination) = (Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED);
            let (next_header, hop_limit, traffic_class) = (protocol::TCP, 64, 0);
            let fields =
                ipv6::Fields { source, destination, next_header, hop_limit, traffic_class, payload_len };
            ipv6::write(&mut octets, &fields)
        } else {
            let (source, destination) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
            let (protocol, ttl, traffic_class) = (protocol::TCP, 64, 0);
            ipv4::write(
                &mut octets,
                &ipv4::Fields { source, destination, protocol, ttl, traffic_class, payload_len },
            )
        };
        let ip_len = ip_len.unwrap();
        let fields = tcp::Fields {
            sequence_number: u32::MAX - 999,
            flags: FLAGS,
            options: &[1; 12],
            ..Default::default()
        };
        let tcp_len = tcp::write(&mut octets[ip_len..], &fields, None).unwrap();
        octets.truncate(ip_len + tcp_len);
        octets
    }

    /// Cuts into segments of 1000 octets, and looks at each as a receiver does: sequence number, flags, payload.
    fn cut(headers: &[u8], payload: &[u8]) -> Vec<(u32, u8, Vec<u8>)> {
        let headers = Headers::parse(headers).unwrap();
        let segments = parts(payload.len(), 1000).map(|part| {
            let mut room = [0; 1500];
            let octets = &payload[part.offset..part.offset + part.len];
            let len = headers.write_segment(&mut room, part, |out| out.copy_from_slice(octets)).unwrap();
            let ip = match room[0] >> 4 {
                4 => Ip::V4(ipv4::Ipv4::parse(&room[..len]).unwrap()),
                _ => Ip::V6(ipv6::Ipv6::parse(&room[..len]).unwrap()),
            };
            if let Ip::V4(packet) = ip {
                assert!(packet.checksum_is_valid());
            }
            let tcp = Tcp::parse(ip.payload()).unwrap();
            assert!(tcp.checksum_is_valid(ip.pseudo_header(ip.payload().len())));
            (tcp.sequence_number(), tcp.flags(), tcp.payload().to_vec())
        });
        segments.collect()
    }

    #[test]
    fn segments_continue_each_other_and_have_valid_checksums() {
        let payload: Vec<u8> = (0..PAYLOAD).map(|n| n as u8).collect();
        for is_ipv6 in [false, true] {
            let segments = cut(&headers(is_ipv6), &payload);
            let starts: Vec<u32> = segments.iter().map(|segment| segment.0).collect();
            assert_eq!(starts, [u32::MAX - 999, 0, 1000], "sequence numbers wrap");
            let joined: Vec<u8> = segments.iter().flat_map(|segment| segment.2.clone()).collect();
            assert_eq!(joined, payload);
        }
    }

    #[test]
    fn the_first_says_cwr_and_the_last_psh_and_fin() {
        let flags: Vec<u8> = cut(&headers(false), &[0; PAYLOAD]).iter().map(|segment| segment.1).collect();
        assert_eq!(flags, [flag::ACK | flag::CWR, flag::ACK, flag::ACK | flag::PSH | flag::FIN]);
    }

    #[test]
    fn a_device_that_cuts_finds_the_sum_of_the_pseudo_header() {
        for is_ipv6 in [false, true] {
            let mut octets = headers(is_ipv6);
            let offload = offload(&mut octets, PAYLOAD).unwrap();
            assert_eq!((offload.is_ipv6, offload.len), (is_ipv6, octets.len()));
            // Whoever finishes it adds the sum of header and payload, the field counted in.
            octets.extend([7; PAYLOAD]);
            let rest = Sum::of(&octets[offload.ip_len..]).complement();
            let at = offload.ip_len + tcp::CHECKSUM_AT;
            octets[at..at + 2].copy_from_slice(&rest.to_be_bytes());
            let ip = Ip::parse_quoted(&octets).unwrap();
            let segment = &octets[offload.ip_len..];
            assert!(Tcp::parse(segment).unwrap().checksum_is_valid(ip.pseudo_header(segment.len())));
        }
    }

    #[test]
    fn headers_that_end_early_are_refused() {
        let octets = headers(false);
        for len in 0..octets.len() {
            assert!(Headers::parse(&octets[..len]).is_err(), "{len}");
        }
    }
    /// The headers with a right checksum, or with an unfinished one.
    fn finished(is_ipv6: bool, payload: &[u8], is_finished: bool) -> Vec<u8> {
        let mut octets = headers(is_ipv6);
        let Offload { ip_len, .. } = offload(&mut octets, payload.len()).unwrap();
        if is_finished {
            let rest = (Sum::of(&octets[ip_len..]) + Sum::of(payload)).complement();
            octets[ip_len + tcp::CHECKSUM_AT..][..2].copy_from_slice(&rest.to_be_bytes());
        }
        octets
    }

    #[test]
    fn a_payload_in_pieces_is_known_by_its_length_and_its_checksum() {
        let payload: Vec<u8> = (0..PAYLOAD).map(|n| n as u8).collect();
        for (is_ipv6, is_finished) in [(false, false), (false, true), (true, false), (true, true)] {
            let octets = finished(is_ipv6, &payload, is_finished);
            let headers = Headers::parse(&octets).unwrap();
            for size in [1, 999, 1000, PAYLOAD] {
                assert!(headers.are_of(payload.chunks(size)), "{is_ipv6} {is_finished}, in pieces of {size}");
                assert!(!headers.are_of(payload[1..].chunks(size)), "an octet less");
            }
            let mut changed = payload.clone();
            changed[PAYLOAD - 1] ^= 1;
            assert_eq!(
                headers.are_of(changed.chunks(999)),
                !is_finished,
                "nobody can tell before it is finished"
            );
        }
        assert!(!Headers::parse(&headers(false)).unwrap().are_of(payload.chunks(999)), "the field is zero");
    }

    #[test]
    fn a_header_in_front_of_its_payload_leaves_the_checksum_unfinished() {
        let payload = [7; PAYLOAD];
        for is_ipv6 in [false, true] {
            let whole = finished(is_ipv6, &payload, false);
            let headers = Headers::parse(&whole).unwrap();
            for part in parts(PAYLOAD, 1000) {
                let mut own = vec![0; headers.len()];
                headers.write_unfinished(&mut own, part).unwrap();
                let of_part = Headers::parse(&own).unwrap();
                assert!(of_part.are_of([&payload[..part.len]].into_iter()));
            }
            assert_eq!(
                headers.write_unfinished(&mut [0; 20], Part { offset: 0, len: 1, is_last: true }),
                None
            );
        }
    }

    #[test]
    fn the_urgent_pointer_counts_from_each_segment() {
        let mut segment = [0; tcp::HEADER_LEN];
        let fields = tcp::Fields { flags: flag::URG | flag::ACK, urgent_pointer: 1500, ..Default::default() };
        tcp::write(&mut segment, &fields, None).unwrap();
        let continued = |offset| {
            let mut segment = segment;
            tcp::continue_header(&mut segment, offset, 0).unwrap();
            let tcp = Tcp::parse(&segment).unwrap();
            (tcp.flags() & flag::URG != 0, tcp.urgent_pointer())
        };
        assert_eq!([0, 1000].map(continued), [(true, 1500), (true, 500)]);
        assert!(!continued(2000).0, "it points to an earlier one");
    }
}
