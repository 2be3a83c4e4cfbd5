//! From a packet to its octets.

use std::net::IpAddr;

use wire::checksum::{self, Sum};
use wire::{ipv4, ipv6, protocol, tcp, udp};

use super::{Packet, Segment, Transport, tcp_options};

/// The octets of `packet` with all checksums. The error says why there is no such packet.
pub(crate) fn encode(packet: &Packet) -> Result<Vec<u8>, String> {
    let v6 = packet.source.is_ipv6();
    let protocol = match packet.body {
        Transport::Tcp(_) => protocol::TCP,
        Transport::Udp { .. } => protocol::UDP,
        Transport::Icmp { .. } if v6 => protocol::ICMPV6,
        Transport::Icmp { .. } => protocol::ICMP,
    };
    let body_len = body_len(packet)?;
    let too_long = || "the packet is longer than IP allows".to_owned();
    let header_len = if v6 { ipv6::HEADER_LEN } else { ipv4::HEADER_LEN };
    let mut octets = vec![0; header_len + body_len];
    write_ip(&mut octets, packet, protocol, body_len).ok_or_else(too_long)?;
    let pseudo_header = pseudo_header(packet, protocol, body_len);
    write_body(&mut octets[header_len..], &packet.body, pseudo_header).ok_or_else(too_long)?;
    Ok(octets)
}

fn body_len(packet: &Packet) -> Result<usize, String> {
    Ok(match &packet.body {
        Transport::Tcp(segment) => {
            let options_len = tcp_options::encode(&segment.options).len();
            if options_len > 40 {
                return Err(format!("{options_len} octets of TCP options do not fit a header"));
            }
            tcp::HEADER_LEN + options_len + segment.payload.len()
        }
        Transport::Udp { payload, .. } => udp::HEADER_LEN + payload.len(),
        Transport::Icmp { quoted, .. } => wire::icmp::HEADER_LEN + quoted.len(),
    })
}

fn write_ip(octets: &mut [u8], packet: &Packet, protocol: u8, payload_len: usize) -> Option<()> {
    let Packet { traffic_class, hop_limit, .. } = *packet;
    match (packet.source, packet.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let fields =
                ipv4::Fields { source, destination, protocol, ttl: hop_limit, traffic_class, payload_len };
            ipv4::write(octets, &fields)?;
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let next_header = protocol;
            let fields =
                ipv6::Fields { source, destination, next_header, hop_limit, traffic_class, payload_len };
            ipv6::write(octets, &fields)?;
            octets[1] |= (packet.flow_label >> 16) as u8 & 15;
            octets[2..4].copy_from_slice(&(packet.flow_label as u16).to_be_bytes());
        }
        _ => return None,
    }
    Some(())
}

/// What the transport's checksum starts from; ICMP for IPv4 has no pseudo-header.
fn pseudo_header(packet: &Packet, protocol: u8, len: usize) -> Sum {
    match (packet.source, packet.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) if protocol != protocol::ICMP => {
            Sum::pseudo_v4(source, destination, protocol, len as u16)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            Sum::pseudo_v6(source, destination, protocol, len as u16)
        }
        _ => Sum::ZERO,
    }
}

fn write_body(octets: &mut [u8], body: &Transport, pseudo_header: Sum) -> Option<()> {
    match body {
        Transport::Tcp(segment) => write_segment(octets, segment, pseudo_header),
        Transport::Udp { ports, payload } => {
            octets[udp::HEADER_LEN..].copy_from_slice(payload);
            let len = u16::try_from(octets.len()).ok()?;
            octets[..2].copy_from_slice(&ports.0.to_be_bytes());
            octets[2..4].copy_from_slice(&ports.1.to_be_bytes());
            octets[4..6].copy_from_slice(&len.to_be_bytes());
            let checksum = checksum::udp_field(pseudo_header + Sum::of(octets));
            octets[6..8].copy_from_slice(&checksum.to_be_bytes());
            Some(())
        }
        Transport::Icmp { header, quoted } => {
            octets[wire::icmp::HEADER_LEN..].copy_from_slice(quoted);
            let fields = wire::icmp::Fields { kind: header.kind, code: header.code, rest: header.rest };
            wire::icmp::write(octets, &fields, pseudo_header).map(drop)
        }
    }
}

fn write_segment(octets: &mut [u8], segment: &Segment, pseudo_header: Sum) -> Option<()> {
    let options = tcp_options::encode(&segment.options);
    octets[tcp::HEADER_LEN + options.len()..].copy_from_slice(&segment.payload);
    let fields = tcp::Fields {
        source_port: segment.ports.0,
        destination_port: segment.ports.1,
        sequence_number: segment.seq,
        acknowledgement_number: segment.ack,
        flags: segment.flags as u8,
        window: segment.window,
        urgent_pointer: segment.urgent,
        options: &options,
    };
    tcp::write(octets, &fields, None)?;
    octets[12] |= (segment.flags >> 8) as u8 & 1; // The bit that RFC 9768 calls AE.
    let checksum = (pseudo_header + Sum::of(octets)).complement();
    octets[16..18].copy_from_slice(&checksum.to_be_bytes());
    Some(())
}
