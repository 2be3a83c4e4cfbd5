//! Segments in the peer's name, and segments of the peer that arrived at our stack. The loopback interface carries them to the socket.

use std::io;
use std::net::{IpAddr, SocketAddr};

use transit::Established;
use wire::checksum::Sum;
use wire::tcp::{self, flag};
use wire::{ipv4, ipv6, protocol};

use crate::socket::RawSocket;

/// Offset of the checksum in a parsed header.
pub(crate) const CHECKSUM: std::ops::Range<usize> = 16..18;

/// Sends segments in the name of a connection's peer.
#[derive(Debug)]
pub(crate) struct StandIn(RawSocket);

impl StandIn {
    pub(crate) fn new(established: &Established) -> io::Result<StandIn> {
        RawSocket::new(established.local.is_ipv6()).map(StandIn)
    }

    pub(crate) fn over(socket: RawSocket) -> StandIn {
        StandIn(socket)
    }

    /// The FIN that has already arrived, behind all received data.
    pub(crate) fn send_fin(&self, established: &Established) -> io::Result<()> {
        self.send_segment(established, flag::FIN | flag::ACK, established.received.len() as u32, &[])
    }

    /// An acknowledgement of all that the peer has acknowledged, as if it came before the FIN.
    pub(crate) fn send_acknowledgement(&self, established: &Established) -> io::Result<()> {
        self.send_segment(established, flag::ACK, established.received.len() as u32, &[])
    }

    /// A segment that begins so many octets behind the first one that was not read, with all that the peer has acknowledged.
    pub(crate) fn send_segment(
        &self,
        established: &Established,
        flags: u8,
        at: u32,
        payload: &[u8],
    ) -> io::Result<()> {
        let (peer, us) = (established.remote, established.local);
        let window = (established.snd_wnd >> established.snd_wscale).min(u32::from(u16::MAX)) as u16;
        let unread = established.received.len() as u32;
        let fields = tcp::Fields {
            source_port: peer.port(),
            destination_port: us.port(),
            sequence_number: (established.received_end() - unread + at).0,
            acknowledgement_number: established.snd_una.0,
            flags,
            window,
            urgent_pointer: 0,
            options: &options(established),
        };
        let packet = write(&fields, (peer, us), payload).ok_or(io::ErrorKind::InvalidInput)?;
        self.0.send(&packet, us)
    }
}

/// The peer's timestamps: its clock as of its latest segment, and ours, which is not checked.
fn options(established: &Established) -> Vec<u8> {
    let Some(timestamps) = established.timestamps else {
        return Vec::new();
    };
    let mut options = vec![1, 1, 8, 10];
    options.extend(timestamps.echo.to_be_bytes());
    options.extend(timestamps.value.to_be_bytes());
    options
}

/// Injects into the kernel a segment that the peer `remote` sent to `local` and that arrived at us: header and data, with any checksum.
/// The kernel sees it arrive now. Needs `CAP_NET_RAW`.
///
/// The caller must know that the kernel has the connection: the kernel answers a segment of an unknown connection with a reset to the
/// peer. Fails with `InvalidInput` if the segment is malformed, belongs to another flow or has a SYN, and otherwise as the system calls do.
pub fn deliver(local: SocketAddr, remote: SocketAddr, segment: &[u8]) -> io::Result<()> {
    let packet = packet_of(local, remote, segment).ok_or(io::ErrorKind::InvalidInput)?;
    RawSocket::new(local.is_ipv6())?.send(&packet, local)
}

/// Sends the peer a segment of a connection that nobody has any more, to which it answers. Its sequence numbers are most likely wrong: the answer of whoever has the
/// connection is an acknowledgement (RFC 9293, 3.10.7.4), which the kernel answers by a reset. Needs `CAP_NET_RAW`.
pub fn probe(local: SocketAddr, remote: SocketAddr) -> io::Result<()> {
    let fields = tcp::Fields {
        source_port: local.port(),
        destination_port: remote.port(),
        flags: flag::ACK,
        ..tcp::Fields::default()
    };
    let packet = write(&fields, (local, remote), &[]).ok_or(io::ErrorKind::InvalidInput)?;
    RawSocket::new(local.is_ipv6())?.send(&packet, remote)
}

/// An IP packet with this segment and its checksum, if its ports are those of the two ends, and it does not start
/// another connection between them.
pub(crate) fn packet_of(local: SocketAddr, remote: SocketAddr, segment: &[u8]) -> Option<Vec<u8>> {
    let header = tcp::Tcp::parse(segment).ok()?;
    let is_of_flow = (header.source_port(), header.destination_port()) == (remote.port(), local.port());
    if !is_of_flow || header.flags() & flag::SYN != 0 {
        return None;
    }
    let mut packet = vec![0; ipv6::HEADER_LEN + segment.len()];
    let (ip_len, sum) = write_ip(&mut packet, (remote, local), segment.len())?;
    packet.truncate(ip_len + segment.len());
    let place = packet.get_mut(ip_len..)?;
    place.copy_from_slice(segment);
    place[CHECKSUM].fill(0);
    let checksum = (sum + Sum::of(place)).complement();
    place[CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
    Some(packet)
}

/// An IP packet with this TCP segment.
fn write(fields: &tcp::Fields<'_>, ends: (SocketAddr, SocketAddr), payload: &[u8]) -> Option<Vec<u8>> {
    let segment_len = tcp::HEADER_LEN + fields.options.len() + payload.len();
    let mut packet = vec![0; ipv6::HEADER_LEN + segment_len];
    let (ip_len, sum) = write_ip(&mut packet, ends, segment_len)?;
    packet.truncate(ip_len + segment_len);
    let segment = packet.get_mut(ip_len..)?;
    segment.get_mut(segment_len - payload.len()..)?.copy_from_slice(payload);
    tcp::write(segment, fields, Some(sum))?;
    Some(packet)
}

/// Writes the IP header from the first end to the second; returns its length, and the initial sum of the TCP checksum.
fn write_ip(packet: &mut [u8], ends: (SocketAddr, SocketAddr), payload_len: usize) -> Option<(usize, Sum)> {
    let len = u16::try_from(payload_len).ok()?;
    match (ends.0.ip(), ends.1.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let ip = ipv4::Fields {
                source,
                destination,
                protocol: protocol::TCP,
                ttl: 64,
                traffic_class: 0,
                payload_len,
            };
            Some((ipv4::write(packet, &ip)?, Sum::pseudo_v4(source, destination, protocol::TCP, len)))
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let ip = ipv6::Fields {
                source,
                destination,
                next_header: protocol::TCP,
                hop_limit: 64,
                traffic_class: 0,
                payload_len,
            };
            Some((ipv6::write(packet, &ip)?, Sum::pseudo_v6(source, destination, protocol::TCP, len)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use wire::ip::Ip;

    use super::*;

    fn ends(local: &str, remote: &str) -> (SocketAddr, SocketAddr) {
        (local.parse().unwrap(), remote.parse().unwrap())
    }

    fn segment(source_port: u16, flags: u8) -> Vec<u8> {
        let mut segment = [[0; tcp::HEADER_LEN].as_slice(), b"late"].concat();
        let fields = tcp::Fields {
            source_port,
            destination_port: 80,
            sequence_number: 7,
            flags,
            ..tcp::Fields::default()
        };
        tcp::write(&mut segment, &fields, None).unwrap();
        segment
    }

    #[test]
    fn a_segment_whose_checksum_was_left_to_the_device_is_given_with_the_right_one() {
        for (local, remote) in
            [ends("192.0.2.1:80", "192.0.2.2:4000"), ends("[2001:db8::1]:80", "[2001:db8::2]:4000")]
        {
            let packet = packet_of(local, remote, &segment(4000, flag::ACK)).unwrap();
            let ip = Ip::parse_quoted(&packet).unwrap();
            let tcp = tcp::Tcp::parse(ip.payload()).unwrap();
            assert!(tcp.checksum_is_valid(ip.pseudo_header(ip.payload().len())));
            assert_eq!((tcp.sequence_number(), tcp.payload()), (7, b"late".as_slice()));
        }
    }

    #[test]
    fn what_is_no_segment_of_the_flow_makes_no_packet() {
        let (local, remote) = ends("192.0.2.1:80", "192.0.2.2:4000");
        assert!(packet_of(local, remote, &segment(4001, flag::ACK)).is_none());
        assert!(packet_of(local, remote, &segment(4000, flag::SYN)).is_none());
        let segment = segment(4000, flag::ACK);
        assert!(packet_of(local, remote, &segment[..12]).is_none());
        assert!(packet_of(local, "[2001:db8::2]:4000".parse().unwrap(), &segment).is_none());
        assert!(packet_of(local, remote, &[&segment[..], &[0; 1 << 16]].concat()).is_none());
    }
}
