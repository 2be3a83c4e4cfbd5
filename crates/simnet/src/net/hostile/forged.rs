//! Forged segments.

use std::net::{IpAddr, SocketAddr};

use wire::checksum::Sum;
use wire::{ipv4, ipv6, protocol, tcp};

use crate::net::random::mix;

/// A segment of any kind. Its checksums are right: what is wrong is what it says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forged {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Flags.
    pub flags: u8,
    /// Window as in the header.
    pub window: u16,
    /// Octets of options, padded to four with zeros and cut to forty.
    pub options: Vec<u8>,
    /// Which of four contents the data is.
    pub variant: u8,
    /// Octets of data.
    pub len: usize,
}

/// The octet that a `variant` of the data has at a sequence number.
pub fn octet(variant: u8, seq: u32) -> u8 {
    mix(u64::from(variant & 3) << 32 | u64::from(seq)) as u8
}

impl Forged {
    /// Whether all of `flags` are set.
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// The sequence number of its data.
    pub fn data_seq(&self) -> u32 {
        self.seq.wrapping_add(u32::from(self.has(tcp::flag::SYN)))
    }

    /// The segment in an IP packet.
    pub fn packet(&self, from: SocketAddr, to: SocketAddr) -> Vec<u8> {
        let mut options = self.options.clone();
        options.truncate(40);
        options.resize(options.len().next_multiple_of(4), 0);
        let header_len = tcp::HEADER_LEN + options.len();
        let segment_len = header_len + self.len;
        let mut packet = vec![0; ipv6::HEADER_LEN + segment_len];
        let (ip_len, sum) = write_ip(&mut packet, from.ip(), to.ip(), segment_len);
        packet.truncate(ip_len + segment_len);
        for (at, out) in packet[ip_len + header_len..].iter_mut().enumerate() {
            *out = octet(self.variant, self.data_seq().wrapping_add(at as u32));
        }
        let fields = tcp::Fields {
            source_port: from.port(),
            destination_port: to.port(),
            sequence_number: self.seq,
            acknowledgement_number: self.ack,
            flags: self.flags,
            window: self.window,
            urgent_pointer: 0,
            options: &options,
        };
        tcp::write(&mut packet[ip_len..], &fields, Some(sum)).expect("the options are of a possible length");
        packet
    }
}

fn write_ip(packet: &mut [u8], from: IpAddr, to: IpAddr, payload_len: usize) -> (usize, Sum) {
    let len = match (from, to) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let fields = ipv4::Fields {
                source,
                destination,
                protocol: protocol::TCP,
                ttl: 64,
                traffic_class: 0,
                payload_len,
            };
            let sum = Sum::pseudo_v4(source, destination, protocol::TCP, payload_len as u16);
            ipv4::write(packet, &fields).map(|len| (len, sum))
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let fields = ipv6::Fields {
                source,
                destination,
                next_header: protocol::TCP,
                hop_limit: 64,
                traffic_class: 0,
                payload_len,
            };
            let sum = Sum::pseudo_v6(source, destination, protocol::TCP, payload_len as u16);
            ipv6::write(packet, &fields).map(|len| (len, sum))
        }
        _ => None,
    };
    len.expect("both ends are of one family, and a segment is short")
}
