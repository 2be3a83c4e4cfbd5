//! Writing whole UDP frames: for generators, tests, and devices that receive bare payloads.

use core::net::{SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::checksum::Sum;
use crate::ethernet::{self, MacAddress, VlanTag, ethertype};
use crate::responder::{
    IPV4_LEN, IPV6_LEN, IpVersion, UDP_LEN, UdpHeaders, write_udp_fields, write_v4_header, write_v6_fixed,
};

/// From where to where a datagram goes; both ends are of one IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endpoints {
    /// Over IPv4.
    V4 {
        /// The sender.
        source: SocketAddrV4,
        /// The receiver.
        destination: SocketAddrV4,
    },
    /// Over IPv6. Scope and flow label are not written.
    V6 {
        /// The sender.
        source: SocketAddrV6,
        /// The receiver.
        destination: SocketAddrV6,
    },
}

/// What is written around a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// MAC address of the sender.
    pub source_mac: MacAddress,
    /// MAC address of the next hop.
    pub destination_mac: MacAddress,
    /// VLAN tags, outermost first.
    pub tags: [Option<VlanTag>; 2],
    /// IP addresses and ports.
    pub endpoints: Endpoints,
}

impl Endpoints {
    /// `None` if the two are of different IP versions.
    pub fn new(source: SocketAddr, destination: SocketAddr) -> Option<Endpoints> {
        match (source, destination) {
            (SocketAddr::V4(source), SocketAddr::V4(destination)) => {
                Some(Endpoints::V4 { source, destination })
            }
            (SocketAddr::V6(source), SocketAddr::V6(destination)) => {
                Some(Endpoints::V6 { source, destination })
            }
            _ => None,
        }
    }

    fn ip_version(&self) -> IpVersion {
        match self {
            Endpoints::V4 { .. } => IpVersion::V4,
            Endpoints::V6 { .. } => IpVersion::V6,
        }
    }
}

impl Envelope {
    /// An envelope without VLAN tags between zero MAC addresses.
    pub fn untagged(endpoints: Endpoints) -> Envelope {
        Envelope {
            source_mac: MacAddress::default(),
            destination_mac: MacAddress::default(),
            tags: [None, None],
            endpoints,
        }
    }

    /// Octets in front of the payload.
    pub fn header_len(&self) -> usize {
        let ip_len = match self.endpoints.ip_version() {
            IpVersion::V4 => IPV4_LEN,
            IpVersion::V6 => IPV6_LEN,
        };
        ethernet::header_len(self.tags) + ip_len + UDP_LEN
    }
}

/// Writes a whole frame with every checksum to the start of `frame`; returns its length.
///
/// `None` if it does not fit `frame` or an IP packet.
pub fn write_udp(frame: &mut [u8], envelope: &Envelope, payload: &[u8]) -> Option<usize> {
    let start = envelope.header_len();
    frame.get_mut(start..start + payload.len())?.copy_from_slice(payload);
    let headers = write_udp_headers(frame, envelope, payload.len(), false)?;
    Some(headers.payload_range().end)
}

/// Writes the headers around a payload of `payload_len` octets that stands at [`Envelope::header_len`] already.
///
/// With `checksum_offload` the UDP checksum field is zero: the device fills it in, or the receiver ignores it.
/// `None` if the datagram does not fit `frame` or an IP packet.
pub fn write_udp_headers(
    frame: &mut [u8],
    envelope: &Envelope,
    payload_len: usize,
    checksum_offload: bool,
) -> Option<UdpHeaders> {
    let version = envelope.endpoints.ip_version();
    let frame = frame.get_mut(..envelope.header_len().checked_add(payload_len)?)?;
    let l3 = ethernet::header_len(envelope.tags);
    let headers = UdpHeaders::new(version, l3, u16::try_from(payload_len).ok()?);
    if payload_len > headers.max_payload(u16::MAX) {
        return None;
    }
    let kind = match version {
        IpVersion::V4 => ethertype::IPV4,
        IpVersion::V6 => ethertype::IPV6,
    };
    ethernet::write(frame, envelope.destination_mac, envelope.source_mac, envelope.tags, kind)?;
    let packet = &mut frame[l3..];
    match envelope.endpoints {
        Endpoints::V4 { source, destination } => {
            write_v4(packet, source, destination, checksum_offload);
        }
        Endpoints::V6 { source, destination } => {
            write_v6(packet, source, destination, checksum_offload);
        }
    }
    Some(headers)
}

fn write_v4(packet: &mut [u8], source: SocketAddrV4, destination: SocketAddrV4, checksum_offload: bool) {
    let addresses = u64::from(source.ip().to_bits()) << 32 | u64::from(destination.ip().to_bits());
    let total_len = packet.len() as u16;
    let (header, payload) = packet.split_first_chunk_mut::<28>().expect("sized by the caller");
    write_v4_header(header.first_chunk_mut().expect("a longer array"), addresses, total_len);
    header[26..28].fill(0);
    let addresses = Sum::of_eight(addresses.to_be_bytes());
    let ports = ports(source.port(), destination.port());
    write_udp_fields(&mut header[IPV4_LEN..], payload, ports, addresses, checksum_offload);
}

fn write_v6(packet: &mut [u8], source: SocketAddrV6, destination: SocketAddrV6, checksum_offload: bool) {
    let (header, payload) = packet.split_first_chunk_mut::<48>().expect("sized by the caller");
    write_v6_fixed(header.first_chunk_mut().expect("a longer array"), (UDP_LEN + payload.len()) as u16);
    header[8..24].copy_from_slice(&source.ip().octets());
    header[24..40].copy_from_slice(&destination.ip().octets());
    header[46..48].fill(0);
    let addresses = Sum::of(&header[8..IPV6_LEN]);
    let ports = ports(source.port(), destination.port());
    write_udp_fields(&mut header[IPV6_LEN..], payload, ports, addresses, checksum_offload);
}

fn ports(source: u16, destination: u16) -> u32 {
    u32::from(source) << 16 | u32::from(destination)
}
