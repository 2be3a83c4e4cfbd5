//! From octets to a packet, every checksum verified.

use wire::checksum::Sum;
use wire::ip::Ip;
use wire::ipv4::Ipv4;
use wire::ipv6::Ipv6;
use wire::tcp::{self, Tcp};
use wire::udp::Udp;
use wire::{DropReason, protocol};

use super::{IcmpHeader, Packet, Segment, Transport, tcp_options};

/// Reads one IP packet. The error says what is wrong with it.
pub(crate) fn decode(octets: &[u8]) -> Result<Packet, String> {
    let ip = parse_ip(octets).map_err(|reason| reason.name().to_owned())?;
    let (traffic_class, hop_limit, flow_label) = match &ip {
        Ip::V4(packet) if !packet.checksum_is_valid() => return Err("the IPv4 checksum is wrong".to_owned()),
        Ip::V4(packet) => (packet.traffic_class(), packet.ttl(), 0),
        Ip::V6(packet) => (packet.traffic_class(), packet.hop_limit(), packet.flow_label()),
    };
    Ok(Packet {
        source: ip.source(),
        destination: ip.destination(),
        traffic_class,
        hop_limit,
        flow_label,
        body: transport(&ip)?,
    })
}

fn parse_ip(octets: &[u8]) -> Result<Ip<'_>, DropReason> {
    match octets.first().map(|first| first >> 4) {
        Some(4) => Ipv4::parse(octets).map(Ip::V4),
        _ => Ipv6::parse(octets).map(Ip::V6),
    }
}

fn transport(ip: &Ip<'_>) -> Result<Transport, String> {
    let octets = ip.payload();
    let named = |reason: DropReason| reason.name().to_owned();
    match ip.protocol() {
        protocol::TCP => segment(octets, ip.pseudo_header(octets.len())).map(Transport::Tcp),
        protocol::UDP => {
            let udp = Udp::parse(octets).map_err(named)?;
            if !udp.checksum_is_valid(ip.pseudo_header(udp.total_len())) {
                return Err("the UDP checksum is wrong".to_owned());
            }
            let ports = (udp.source_port(), udp.destination_port());
            Ok(Transport::Udp { ports, payload: udp.payload().to_vec() })
        }
        protocol::ICMP | protocol::ICMPV6 => {
            let (header, quoted) = octets.split_first_chunk::<8>().ok_or("the ICMP message is too short")?;
            if !(ip.pseudo_header(octets.len()) + Sum::of(octets)).is_valid() {
                return Err("the ICMP checksum is wrong".to_owned());
            }
            let &[kind, code, _, _, a, b, c, d] = header;
            let header = IcmpHeader { kind, code, rest: u32::from_be_bytes([a, b, c, d]) };
            Ok(Transport::Icmp { header, quoted: quoted.to_vec() })
        }
        other => Err(format!("it carries protocol {other}")),
    }
}

fn segment(octets: &[u8], pseudo_header: Sum) -> Result<Segment, String> {
    let tcp = Tcp::parse(octets).map_err(|reason| reason.name().to_owned())?;
    if !tcp.checksum_is_valid(pseudo_header) {
        return Err("the TCP checksum is wrong".to_owned());
    }
    let options_end = octets.len() - tcp.payload().len();
    Ok(Segment {
        ports: (tcp.source_port(), tcp.destination_port()),
        seq: tcp.sequence_number(),
        ack: tcp.acknowledgement_number(),
        // The header's four flags above the octet; three of them are reserved.
        flags: u16::from(octets[12] & 15) << 8 | u16::from(tcp.flags()),
        window: tcp.window(),
        urgent: tcp.urgent_pointer(),
        options: tcp_options::decode(octets.get(tcp::HEADER_LEN..options_end).unwrap_or_default())?,
        payload: tcp.payload().to_vec(),
    })
}
