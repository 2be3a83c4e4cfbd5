//! Segments in the peer's name. They go by the loopback interface to the very socket that they are for.

use std::io;
use std::net::{IpAddr, SocketAddr};

use wire::checksum::Sum;
use wire::tcp::{self, flag};
use wire::{ipv4, ipv6, protocol};

use crate::established::Established;
use crate::socket::RawSocket;

/// Speaks for the peer of one connection.
#[derive(Debug)]
pub(crate) struct StandIn<'a> {
    socket: RawSocket,
    established: &'a Established,
}

impl StandIn<'_> {
    pub(crate) fn new(established: &Established) -> io::Result<StandIn<'_>> {
        Ok(StandIn { socket: RawSocket::new(established.local.is_ipv6())?, established })
    }

    /// The FIN that came already, behind all data that did.
    pub(crate) fn send_fin(&self) -> io::Result<()> {
        self.send(flag::FIN | flag::ACK, self.established.received_end())
    }

    /// An acknowledgement of all that the peer acknowledged.
    pub(crate) fn send_acknowledgement(&self) -> io::Result<()> {
        self.send(flag::ACK, self.established.rcv_nxt)
    }

    fn send(&self, flags: u8, sequence_number: u32) -> io::Result<()> {
        let (peer, us) = (self.established.remote, self.established.local);
        let window =
            (self.established.snd_wnd >> self.established.snd_wscale).min(u32::from(u16::MAX)) as u16;
        let fields = tcp::Fields {
            source_port: peer.port(),
            destination_port: us.port(),
            sequence_number,
            acknowledgement_number: self.established.snd_una,
            flags,
            window,
            urgent_pointer: 0,
            options: &self.options(),
        };
        let mut packet = [0; ipv6::HEADER_LEN + 60];
        let len = write(&mut packet, (peer, us), &fields).ok_or(io::ErrorKind::InvalidInput)?;
        self.socket.send(&packet[..len], us)
    }

    /// What the peer would have: its clock as it was told last, and ours, which nobody looks at.
    fn options(&self) -> Vec<u8> {
        let Some(timestamps) = self.established.timestamps else {
            return Vec::new();
        };
        let mut options = vec![1, 1, 8, 10];
        options.extend(timestamps.echo.to_be_bytes());
        options.extend(timestamps.value.to_be_bytes());
        options
    }
}

/// Writes an IP packet with a header of TCP and nothing behind it; its length.
fn write(packet: &mut [u8], ends: (SocketAddr, SocketAddr), fields: &tcp::Fields<'_>) -> Option<usize> {
    let payload_len = tcp::HEADER_LEN + fields.options.len();
    let (ip_len, sum) = match (ends.0.ip(), ends.1.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let ip = ipv4::Fields {
                source,
                destination,
                protocol: protocol::TCP,
                ttl: 64,
                traffic_class: 0,
                payload_len,
            };
            let sum = Sum::pseudo_v4(source, destination, protocol::TCP, payload_len as u16);
            (ipv4::write(packet, &ip)?, sum)
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
            let sum = Sum::pseudo_v6(source, destination, protocol::TCP, payload_len as u16);
            (ipv6::write(packet, &ip)?, sum)
        }
        _ => return None,
    };
    tcp::write(packet.get_mut(ip_len..ip_len + payload_len)?, fields, Some(sum))?;
    Some(ip_len + payload_len)
}
