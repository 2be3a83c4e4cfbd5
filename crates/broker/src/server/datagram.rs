//! Datagrams that arrived at a process and must go to the kernel: the broker sends them again on this host, with their original source
//! address.
//!
//! A transparent socket (`IP_TRANSPARENT`, ip(7)) may be bound to a foreign address. What it sends to an address of this
//! host arrives through loopback, where nothing is claimed.

use std::io::Result;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, sendto, socket_with};

/// Options of ip(7) and ipv6(7) (linux/in.h, linux/in6.h).
const SOL_IP: i32 = 0;
const IP_TRANSPARENT: i32 = 19;
const SOL_IPV6: i32 = 41;
const IPV6_TRANSPARENT: i32 = 75;
/// Options of socket(7).
const SOL_SOCKET: i32 = 1;
const SO_REUSEADDR: i32 = 2;

/// Delivers a datagram to the kernel's socket at `local`. Both addresses are [`canonical`].
pub(super) fn deliver(local: SocketAddr, remote: SocketAddr, octets: &[u8]) -> Result<()> {
    let (family, level, option) = match remote.ip() {
        IpAddr::V4(_) => (AddressFamily::INET, SOL_IP, IP_TRANSPARENT),
        IpAddr::V6(_) => (AddressFamily::INET6, SOL_IPV6, IPV6_TRANSPARENT),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::DGRAM, flags, None)?;
    let on = 1i32.to_ne_bytes();
    syscall::setsockopt(socket.as_raw_fd(), level, option, &on)?;
    syscall::setsockopt(socket.as_raw_fd(), SOL_SOCKET, SO_REUSEADDR, &on)?;
    bind(&socket, &remote)?;
    sendto(&socket, octets, rustix::net::SendFlags::empty(), &local)?;
    Ok(())
}

/// An IPv4 address is written as one.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}
