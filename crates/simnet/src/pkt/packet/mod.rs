//! IP packets as values: written to octets for the stack, read from the octets that it sends.

mod decode;
mod encode;
mod icmp_names;
mod tcp_options;

pub(crate) use decode::decode;
pub(crate) use encode::encode;
pub(crate) use icmp_names::{IcmpHeader, icmp_header};

use std::net::IpAddr;

use super::ast::OptionSpec;

/// One IP packet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Packet {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    /// DSCP and ECN.
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    /// IPv6's; zero for IPv4.
    pub(crate) flow_label: u32,
    pub(crate) body: Transport,
}

/// What a packet carries.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Transport {
    Tcp(Segment),
    Udp { ports: (u16, u16), payload: Vec<u8> },
    Icmp { header: IcmpHeader, quoted: Vec<u8> },
}

/// A TCP segment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Segment {
    /// Source and destination.
    pub(crate) ports: (u16, u16),
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    /// Bits of [`super::ast::flag`].
    pub(crate) flags: u16,
    pub(crate) window: u16,
    pub(crate) urgent: u16,
    pub(crate) options: Vec<OptionSpec>,
    pub(crate) payload: Vec<u8>,
}

impl Segment {
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & u16::from(flag) != 0
    }
}

impl Packet {
    pub(crate) fn segment(&self) -> Option<&Segment> {
        match &self.body {
            Transport::Tcp(segment) => Some(segment),
            _ => None,
        }
    }

    /// Source and destination port; ICMP has none.
    pub(crate) fn ports(&self) -> Option<(u16, u16)> {
        match &self.body {
            Transport::Tcp(segment) => Some(segment.ports),
            Transport::Udp { ports, .. } => Some(*ports),
            Transport::Icmp { .. } => None,
        }
    }

    /// Octets of data that it carries.
    pub(crate) fn payload(&self) -> &[u8] {
        match &self.body {
            Transport::Tcp(Segment { payload, .. }) | Transport::Udp { payload, .. } => payload,
            Transport::Icmp { .. } => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(source: &str, destination: &str, body: Transport) -> Packet {
        Packet {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            traffic_class: 2,
            hop_limit: 64,
            flow_label: 0,
            body,
        }
    }

    fn segment() -> Segment {
        Segment {
            ports: (40000, 8080),
            seq: 1,
            ack: 2,
            flags: 0x1d2,
            window: 512,
            urgent: 0,
            options: vec![
                OptionSpec::NoOperation,
                OptionSpec::NoOperation,
                OptionSpec::Timestamps { value: Some(7), echo_reply: Some(8) },
                OptionSpec::Sack(vec![(1, 2)]),
                OptionSpec::FastOpen { cookie: vec![1, 2, 3, 4], experimental: true },
                OptionSpec::NoOperation,
                OptionSpec::Other { kind: 99, data: vec![1] },
                OptionSpec::NoOperation,
                OptionSpec::EndOfList,
            ],
            payload: b"data".to_vec(),
        }
    }

    #[test]
    fn packets_come_back_from_their_octets() {
        let header = IcmpHeader { kind: 3, code: 4, rest: 1400 };
        for body in [
            Transport::Tcp(segment()),
            Transport::Udp { ports: (1, 2), payload: vec![0; 5] },
            Transport::Icmp { header, quoted: vec![0x45; 28] },
        ] {
            for (source, destination) in [("192.0.2.1", "192.168.0.1"), ("2001:db8::1", "fd3d::1")] {
                let packet = packet(source, destination, body.clone());
                assert_eq!(decode(&encode(&packet).unwrap()).as_ref(), Ok(&packet));
            }
        }
    }

    #[test]
    fn octets_that_are_no_packet_say_why() {
        assert!(decode(&[]).is_err());
        assert!(decode(&[0x45; 20]).is_err());
    }

    #[test]
    fn options_longer_than_a_header_can_hold_are_refused() {
        let mut segment = segment();
        segment.options.push(OptionSpec::Sack(vec![(1, 2); 3]));
        assert!(encode(&packet("192.0.2.1", "192.168.0.1", Transport::Tcp(segment))).is_err());
    }
}
