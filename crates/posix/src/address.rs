//! Addresses as `sockaddr`s.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsRawFd;

use crate::errno::{Errno, fail};

/// Octets of the longest address of ours, a `sockaddr_in6`.
pub(crate) const NAME_MAX: usize = 28;
/// Octets of a `sockaddr_in`.
const V4_LEN: usize = 16;
/// Octets of a `sockaddr_in6` without scope, which Linux takes too.
const V6_LEAST: usize = 24;

/// Writes an address as a socket of `domain` has it into `name`, as much as there is room for; returns how long it is.
pub(crate) fn write_name(address: SocketAddr, domain: i32, name: &mut [u8]) -> usize {
    let (octets, len) = encode(address, domain);
    let room = name.len().min(len);
    name[..room].copy_from_slice(&octets[..room]);
    len
}

/// An address as a socket of `domain` has it: one of IPv6 sees IPv4 as mapped.
pub(crate) fn encode(address: SocketAddr, domain: i32) -> ([u8; NAME_MAX], usize) {
    let mut name = [0; NAME_MAX];
    name[2..4].copy_from_slice(&address.port().to_be_bytes());
    match (address.ip(), domain) {
        (IpAddr::V4(ip), libc::AF_INET) => {
            name[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            name[4..8].copy_from_slice(&ip.octets());
            (name, V4_LEN)
        }
        (ip, _) => {
            let (ip, scope) = match (ip, address) {
                (IpAddr::V4(ip), _) => (ip.to_ipv6_mapped(), 0),
                (IpAddr::V6(ip), SocketAddr::V6(v6)) => (ip, v6.scope_id()),
                (IpAddr::V6(ip), SocketAddr::V4(_)) => (ip, 0),
            };
            name[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
            name[8..24].copy_from_slice(&ip.octets());
            name[24..28].copy_from_slice(&scope.to_ne_bytes());
            (name, NAME_MAX)
        }
    }
}

/// The family that an address says it has.
pub(crate) fn family(name: &[u8]) -> Option<i32> {
    Some(u16::from_ne_bytes(*name.first_chunk()?).into())
}

/// The port that an address of the Internet asks for; 0 leaves it to the kernel.
pub(crate) fn port(name: &[u8]) -> u16 {
    name.get(2..4).map_or(0, |octets| u16::from_be_bytes([octets[0], octets[1]]))
}

/// The address in `name`, for a socket of `domain`; IPv4 that is mapped into IPv6 as IPv4.
///
/// # Errors
/// `EINVAL` for one that is too short, `EAFNOSUPPORT` for one of another family.
pub(crate) fn decode(name: &[u8], domain: i32) -> Result<SocketAddr, Errno> {
    let family = family(name).ok_or(Errno(libc::EINVAL))?;
    let octets = |from: usize, to: usize| name.get(from..to).ok_or(Errno(libc::EINVAL));
    if name.len() < V4_LEN || domain == libc::AF_INET6 && family == libc::AF_INET6 && name.len() < V6_LEAST {
        return fail(libc::EINVAL);
    }
    let port = u16::from_be_bytes([name[2], name[3]]);
    match family {
        libc::AF_INET => {
            let ip: [u8; 4] = octets(4, 8)?.try_into().map_err(|_| Errno(libc::EINVAL))?;
            Ok(SocketAddr::new(Ipv4Addr::from(ip).into(), port))
        }
        libc::AF_INET6 if domain == libc::AF_INET6 => {
            let ip: [u8; 16] = octets(8, 24)?.try_into().map_err(|_| Errno(libc::EINVAL))?;
            let scope = name.get(24..28).and_then(|it| it.try_into().ok()).map_or(0, u32::from_ne_bytes);
            let ip = Ipv6Addr::from(ip);
            Ok(match ip.to_ipv4_mapped() {
                Some(ip) => SocketAddr::new(ip.into(), port),
                None => SocketAddr::V6(SocketAddrV6::new(ip, port, 0, scope)),
            })
        }
        _ => fail(libc::EAFNOSUPPORT),
    }
}

/// Where a kernel's socket is bound.
pub(crate) fn local_of(fd: std::os::fd::RawFd) -> Option<SocketAddr> {
    let mut name = [0; 128];
    let len = syscall::getsockname(fd, &mut name).ok()?;
    let name = name.get(..len)?;
    decode(name, family(name)?).ok()
}

/// The address that the kernel would send from to `remote`, a name as connect(2) takes it; `None` without a route.
pub(crate) fn source_for(remote: &[u8], domain: i32) -> Option<IpAddr> {
    // Connecting a socket for datagrams looks for the route, and sends nothing.
    let probe = syscall::socket(domain, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0).ok()?;
    let connected = syscall::connect(probe.as_raw_fd(), remote);
    let local = connected.ok().and_then(|()| local_of(probe.as_raw_fd()));
    crate::descriptors::internal::close(probe);
    local.map(|local| local.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        for (text, domain) in [("192.0.2.1:80", libc::AF_INET), ("[2001:db8::1]:443", libc::AF_INET6)] {
            let address: SocketAddr = text.parse().unwrap();
            let (name, len) = encode(address, domain);
            assert_eq!(decode(&name[..len], domain), Ok(address));
        }
    }

    #[test]
    fn a_socket_of_ipv6_sees_ipv4_mapped() {
        let address: SocketAddr = "192.0.2.1:80".parse().unwrap();
        let (name, len) = encode(address, libc::AF_INET6);
        assert_eq!((len, &name[18..24]), (28, &[0xff, 0xff, 192, 0, 2, 1][..]));
        assert_eq!(decode(&name[..len], libc::AF_INET6), Ok(address));
    }

    #[test]
    fn a_short_address_and_a_foreign_one_are_refused_as_on_linux() {
        let (name, _) = encode("192.0.2.1:80".parse().unwrap(), libc::AF_INET);
        assert_eq!(decode(&name[..8], libc::AF_INET), fail(libc::EINVAL));
        let mut unix = name;
        unix[..2].copy_from_slice(&1u16.to_ne_bytes());
        assert_eq!(decode(&unix, libc::AF_INET), fail(libc::EAFNOSUPPORT));
    }
}
