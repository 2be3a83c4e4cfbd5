//! The octets of a packet.

use core::net::IpAddr;

use wire::checksum::Sum;
use wire::{ipv4, ipv6, protocol, udp};

use crate::flow_table::FlowKey;
use crate::udp::Datagram;

/// Octets of IP and UDP header.
pub(crate) fn headers_len(flow: &FlowKey) -> usize {
    if flow.is_v6() { ipv6::HEADER_LEN + udp::HEADER_LEN } else { ipv4::HEADER_LEN + udp::HEADER_LEN }
}

/// Writes an IP packet into the front of `room`, with `payload_len` octets that `fill` puts in; `None` if it does not fit.
///
/// The checksum is always there (RFC 1122, 4.1.3.4), unless the device fills it in. Over IPv4 the packet is not to be
/// fragmented, and its identification is zero (RFC 6864, 4.1).
pub(crate) fn write_packet(
    room: &mut [u8],
    datagram: &Datagram,
    payload_len: usize,
    checksum_offload: bool,
    fill: impl FnOnce(&mut [u8]),
) -> Option<usize> {
    let udp_len = udp::HEADER_LEN + payload_len;
    let (ip_len, pseudo_header) = write_ip(room, datagram, udp_len)?;
    let octets = room.get_mut(ip_len..ip_len + udp_len)?;
    fill(&mut octets[udp::HEADER_LEN..]);
    let (source, destination) = (datagram.key.local().port(), datagram.key.remote().port());
    udp::write(octets, source, destination, Some(pseudo_header).filter(|_| !checksum_offload))?;
    Some(ip_len + udp_len)
}

fn write_ip(room: &mut [u8], datagram: &Datagram, payload_len: usize) -> Option<(usize, Sum)> {
    let &Datagram { key, traffic_class, hop_limit, .. } = datagram;
    let udp_len = u16::try_from(payload_len).ok()?;
    match (key.local().ip(), key.remote().ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let (protocol, ttl) = (protocol::UDP, hop_limit);
            let fields = ipv4::Fields { source, destination, protocol, ttl, traffic_class, payload_len };
            let pseudo_header = Sum::pseudo_v4(source, destination, protocol, udp_len);
            Some((ipv4::write(room, &fields)?, pseudo_header))
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let next_header = protocol::UDP;
            let fields =
                ipv6::Fields { source, destination, next_header, hop_limit, traffic_class, payload_len };
            let pseudo_header = Sum::pseudo_v6(source, destination, next_header, udp_len);
            Some((ipv6::write(room, &fields)?, pseudo_header))
        }
        _ => None, // A key has two addresses of one version.
    }
}
