//! What filters examine.

use std::net::{IpAddr, SocketAddr};

use wire::ethernet::Ethernet;
use wire::ip::Ip;
use wire::protocol;

/// A packet or a socket with the properties that filters examine. A property that it does not have is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// Number of the transport protocol.
    pub protocol: Option<u8>,
    /// A packet's source; a socket's own address.
    pub source: Option<IpAddr>,
    /// A packet's destination; the address of a socket's peer.
    pub destination: Option<IpAddr>,
    /// The port of `source`.
    pub source_port: Option<u16>,
    /// The port of `destination`.
    pub destination_port: Option<u16>,
}

impl Subject {
    /// A socket of `protocol`.
    pub fn of_socket(protocol: u8, local: SocketAddr, remote: Option<SocketAddr>) -> Subject {
        Subject {
            protocol: Some(protocol),
            source: Some(local.ip()),
            destination: remote.map(|remote| remote.ip()),
            source_port: Some(local.port()),
            destination_port: remote.map(|remote| remote.port()),
        }
    }

    /// The IP packet of an Ethernet frame, behind up to two VLAN tags. Fragments have no ports, because only the first one has a header.
    pub fn of_frame(frame: &[u8]) -> Subject {
        let packet = Ethernet::parse(frame).and_then(|ethernet| Ip::in_frame(&ethernet));
        let Ok(packet) = packet else { return Subject::default() };
        let has_ports = matches!(packet.protocol(), protocol::TCP | protocol::UDP) && !packet.is_fragment();
        let port = |at: usize| {
            let octets = packet.payload().get(at..)?.first_chunk()?;
            Some(u16::from_be_bytes(*octets))
        };
        Subject {
            protocol: Some(packet.protocol()),
            source: Some(packet.source()),
            destination: Some(packet.destination()),
            source_port: port(0).filter(|_| has_ports),
            destination_port: port(2).filter(|_| has_ports),
        }
    }
}
