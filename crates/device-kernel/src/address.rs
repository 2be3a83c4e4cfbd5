//! Socket addresses and control messages as the kernel lays them out (ip(7), ipv6(7), cmsg(3)); all safe code.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Room for a `sockaddr_in` or a `sockaddr_in6`.
pub(crate) type Name = [u8; 28];

/// Octets of a `sockaddr_in`.
const V4_NAME_LEN: usize = 16;
/// Octets of a `cmsghdr`: a length in a word, level and type in an `int` each.
const CMSG_HEADER_LEN: usize = size_of::<usize>() + 8;
/// Octets of an `in_pktinfo` and an `in6_pktinfo`.
const V4_INFO_LEN: usize = 12;
const V6_INFO_LEN: usize = 20;

/// Room for one control message with packet information, aligned as the kernel wants it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(8))]
pub(crate) struct Control {
    pub(crate) octets: [[u8; 8]; 8],
}

/// The local side of a datagram, from or for IP_PKTINFO or IPV6_PKTINFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketInfo {
    /// Destination of a received datagram, source of one to be sent.
    pub(crate) address: IpAddr,
    /// Interface number; 0 leaves it to routing.
    pub(crate) interface: u32,
}

impl PacketInfo {
    /// The interface that the address belongs to, if it is one of a link; else 0, and routing decides.
    pub(crate) fn link(self) -> u32 {
        match self.address {
            IpAddr::V6(address) if address.is_unicast_link_local() => self.interface,
            _ => 0,
        }
    }
}

/// Writes `address` into `name`; returns its length.
pub(crate) fn write_name(name: &mut Name, address: SocketAddr) -> u32 {
    name[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(address) => {
            name[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            name[4..8].copy_from_slice(&address.ip().octets());
            name[8..V4_NAME_LEN].fill(0);
            V4_NAME_LEN as u32
        }
        SocketAddr::V6(address) => {
            name[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
            name[4..8].fill(0); // Flow label
            name[8..24].copy_from_slice(&address.ip().octets());
            name[24..].copy_from_slice(&address.scope_id().to_ne_bytes());
            name.len() as u32
        }
    }
}

/// The address in `name`, of which the kernel wrote `len` octets; `None` if it is of neither family.
pub(crate) fn read_name(name: &Name, len: u32) -> Option<SocketAddr> {
    let family = libc::c_int::from(u16::from_ne_bytes([name[0], name[1]]));
    let port = u16::from_be_bytes([name[2], name[3]]);
    if family == libc::AF_INET && len as usize >= V4_NAME_LEN {
        return Some(SocketAddrV4::new(Ipv4Addr::from(part(name, 4)), port).into());
    }
    if family == libc::AF_INET6 && len as usize >= name.len() {
        let scope = u32::from_ne_bytes(part(name, 24));
        return Some(SocketAddrV6::new(Ipv6Addr::from(part(name, 8)), port, 0, scope).into());
    }
    None
}

impl Control {
    /// Octets that the kernel may write.
    pub(crate) const SIZE: usize = size_of::<Control>();

    /// Writes the one control message that says from which address to send; returns its length with padding.
    pub(crate) fn write(&mut self, info: PacketInfo) -> usize {
        let octets = self.octets.as_flattened_mut();
        let (level, kind, data_len) = match info.address {
            IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_PKTINFO, V4_INFO_LEN),
            IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, V6_INFO_LEN),
        };
        let (header, data) = octets.split_at_mut(CMSG_HEADER_LEN);
        let (len, rest) = header.split_at_mut(size_of::<usize>());
        len.copy_from_slice(&(CMSG_HEADER_LEN + data_len).to_ne_bytes());
        rest[..4].copy_from_slice(&level.to_ne_bytes());
        rest[4..8].copy_from_slice(&kind.to_ne_bytes());
        match info.address {
            IpAddr::V4(address) => {
                data[..4].copy_from_slice(&info.interface.to_ne_bytes());
                data[4..8].copy_from_slice(&address.octets()); // ipi_spec_dst, the source of what is sent
                data[8..12].fill(0);
            }
            IpAddr::V6(address) => {
                data[..16].copy_from_slice(&address.octets());
                data[16..20].copy_from_slice(&info.interface.to_ne_bytes());
            }
        }
        CMSG_HEADER_LEN + data_len.next_multiple_of(size_of::<usize>())
    }

    /// The packet information in the first control message of the `len` octets that the kernel wrote.
    pub(crate) fn read(&self, len: usize) -> Option<PacketInfo> {
        let octets = self.octets.as_flattened();
        let word = size_of::<usize>();
        let cmsg_len = usize::from_ne_bytes(part(octets, 0));
        if len < CMSG_HEADER_LEN || cmsg_len > len {
            return None;
        }
        let level = libc::c_int::from_ne_bytes(part(octets, word));
        let kind = libc::c_int::from_ne_bytes(part(octets, word + 4));
        let data = &octets[CMSG_HEADER_LEN..];
        match (level, kind, cmsg_len - CMSG_HEADER_LEN) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO, V4_INFO_LEN) => Some(PacketInfo {
                address: Ipv4Addr::from(part(data, 8)).into(), // ipi_addr, the destination in the packet
                interface: u32::from_ne_bytes(part(data, 0)),
            }),
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, V6_INFO_LEN) => Some(PacketInfo {
                address: Ipv6Addr::from(part(data, 0)).into(),
                interface: u32::from_ne_bytes(part(data, 16)),
            }),
            _ => None,
        }
    }
}

/// `N` octets at `at`, which the caller knows to be there.
fn part<const N: usize>(octets: &[u8], at: usize) -> [u8; N] {
    *octets[at..].first_chunk().expect("fields lie within their structures")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_were_written() {
        for text in ["192.0.2.1:53", "[2001:db8::1]:5353", "[fe80::1%3]:53"] {
            let address: SocketAddr = text.parse().unwrap();
            let mut name = Name::default();
            let len = write_name(&mut name, address);
            assert_eq!(read_name(&name, len), Some(address));
        }
    }

    #[test]
    fn no_name_is_no_address() {
        assert_eq!(read_name(&Name::default(), 0), None);
    }

    #[test]
    fn packet_information_is_read_as_it_was_written() {
        let info = PacketInfo { address: "fe80::1".parse().unwrap(), interface: 7 };
        let mut control = Control::default();
        let len = control.write(info);
        assert_eq!(len, 40);
        assert_eq!(control.read(len), Some(info));
        assert_eq!(control.read(0), None);
    }
}
