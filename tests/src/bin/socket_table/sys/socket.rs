//! Sockets: making, naming, connecting, options.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;

use libc::{c_int, c_void, sockaddr, socklen_t};

use super::{Result, checked, done};

/// socket(2).
pub(crate) fn socket(domain: i32, kind: i32, protocol: i32) -> Result<RawFd> {
    // SAFETY: no pointers.
    checked(unsafe { libc::socket(domain, kind, protocol) })
}

/// socketpair(2).
pub(crate) fn socketpair(domain: i32, kind: i32, protocol: i32) -> Result<[RawFd; 2]> {
    let mut fds = [-1; 2];
    // SAFETY: `fds` has room for two descriptors.
    done(unsafe { libc::socketpair(domain, kind, protocol, fds.as_mut_ptr()) })?;
    Ok(fds)
}

/// bind(2).
pub(crate) fn bind(fd: RawFd, name: &[u8]) -> Result<()> {
    // SAFETY: pointer and length are those of a slice.
    done(unsafe { libc::bind(fd, name.as_ptr().cast(), name.len() as socklen_t) })
}

/// listen(2).
pub(crate) fn listen(fd: RawFd, backlog: i32) -> Result<()> {
    // SAFETY: no pointers.
    done(unsafe { libc::listen(fd, backlog) })
}

/// connect(2).
pub(crate) fn connect(fd: RawFd, name: &[u8]) -> Result<()> {
    // SAFETY: pointer and length are those of a slice.
    done(unsafe { libc::connect(fd, name.as_ptr().cast(), name.len() as socklen_t) })
}

/// shutdown(2).
pub(crate) fn shutdown(fd: RawFd, how: i32) -> Result<()> {
    // SAFETY: no pointers.
    done(unsafe { libc::shutdown(fd, how) })
}

/// accept(2) without an address.
pub(crate) fn accept(fd: RawFd) -> Result<RawFd> {
    // SAFETY: both pointers may be null.
    checked(unsafe { libc::accept(fd, std::ptr::null_mut(), std::ptr::null_mut()) })
}

/// accept4(2) without an address.
pub(crate) fn accept4(fd: RawFd, flags: i32) -> Result<RawFd> {
    // SAFETY: both pointers may be null.
    checked(unsafe { libc::accept4(fd, std::ptr::null_mut(), std::ptr::null_mut(), flags) })
}

/// accept(2) with room for `room` octets of address.
pub(crate) fn accept_name(fd: RawFd, room: usize) -> Result<(RawFd, Name)> {
    let mut accepted = -1;
    let name = name_by(room, |name, len| {
        // SAFETY: `name` has room for `*len` octets.
        accepted = checked(unsafe { libc::accept(fd, name, len) })?;
        Ok(())
    })?;
    Ok((accepted, name))
}

/// getsockname(2) with room for `room` octets.
pub(crate) fn getsockname(fd: RawFd, room: usize) -> Result<Name> {
    // SAFETY: `name` has room for `*len` octets.
    name_by(room, |name, len| done(unsafe { libc::getsockname(fd, name, len) }))
}

/// getpeername(2) with room for `room` octets.
pub(crate) fn getpeername(fd: RawFd, room: usize) -> Result<Name> {
    // SAFETY: `name` has room for `*len` octets.
    name_by(room, |name, len| done(unsafe { libc::getpeername(fd, name, len) }))
}

/// Room for every address.
pub(crate) const FULL: usize = 128;

/// An address as the system wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// What was written, no more than there was room.
    pub(crate) octets: Vec<u8>,
    /// The length that the system said.
    pub(crate) len: usize,
}

impl Name {
    /// The Internet address, if it is one.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        parse_name(&self.octets)
    }
}

fn name_by(room: usize, call: impl FnOnce(*mut sockaddr, *mut socklen_t) -> Result<()>) -> Result<Name> {
    let mut octets = vec![0xEE; FULL];
    let mut len = room as socklen_t;
    call(octets.as_mut_ptr().cast(), &mut len)?;
    octets.truncate(room.min(len as usize));
    Ok(Name { octets, len: len as usize })
}

/// `struct sockaddr_in` or `sockaddr_in6`.
pub(crate) fn name_of(address: SocketAddr) -> Vec<u8> {
    let mut name = Vec::with_capacity(28);
    match address {
        SocketAddr::V4(address) => {
            name.extend((libc::AF_INET as u16).to_ne_bytes());
            name.extend(address.port().to_be_bytes());
            name.extend(address.ip().octets());
            name.extend([0; 8]);
        }
        SocketAddr::V6(address) => {
            name.extend((libc::AF_INET6 as u16).to_ne_bytes());
            name.extend(address.port().to_be_bytes());
            name.extend(address.flowinfo().to_be_bytes());
            name.extend(address.ip().octets());
            name.extend(address.scope_id().to_ne_bytes());
        }
    }
    name
}

/// What [`name_of`] makes, read.
pub(crate) fn parse_name(name: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes(name.get(..2)?.try_into().ok()?));
    let port = u16::from_be_bytes(name.get(2..4)?.try_into().ok()?);
    let ip = if family == libc::AF_INET {
        let octets: [u8; 4] = name.get(4..8)?.try_into().ok()?;
        IpAddr::from(Ipv4Addr::from(octets))
    } else if family == libc::AF_INET6 {
        let octets: [u8; 16] = name.get(8..24)?.try_into().ok()?;
        IpAddr::from(Ipv6Addr::from(octets))
    } else {
        return None;
    };
    Some(SocketAddr::new(ip, port))
}

/// getsockopt(2) with room for `room` octets.
pub(crate) fn getsockopt(fd: RawFd, level: i32, option: i32, room: usize) -> Result<Vec<u8>> {
    let mut value = vec![0; room];
    let mut len = room as socklen_t;
    let at: *mut c_void = value.as_mut_ptr().cast();
    // SAFETY: `at` has room for `len` octets.
    done(unsafe { libc::getsockopt(fd, level, option, at, &mut len) })?;
    value.truncate(len as usize);
    Ok(value)
}

/// getsockopt(2) of an int.
pub(crate) fn getsockopt_int(fd: RawFd, level: i32, option: i32) -> Result<c_int> {
    let value = getsockopt(fd, level, option, 4)?;
    let mut octets = [0; 4];
    octets[..value.len().min(4)].copy_from_slice(&value[..value.len().min(4)]);
    Ok(c_int::from_ne_bytes(octets))
}

/// setsockopt(2).
pub(crate) fn setsockopt(fd: RawFd, level: i32, option: i32, value: &[u8]) -> Result<()> {
    let len = value.len() as socklen_t;
    // SAFETY: pointer and length are those of a slice.
    done(unsafe { libc::setsockopt(fd, level, option, value.as_ptr().cast(), len) })
}

/// setsockopt(2) of an int.
pub(crate) fn setsockopt_int(fd: RawFd, level: i32, option: i32, value: c_int) -> Result<()> {
    setsockopt(fd, level, option, &value.to_ne_bytes())
}

/// `SO_RCVTIMEO` or `SO_SNDTIMEO`.
pub(crate) fn set_timeout(fd: RawFd, option: i32, ms: u64) -> Result<()> {
    let time = [(ms / 1000) as i64, (ms % 1000 * 1000) as i64].map(i64::to_ne_bytes).concat();
    setsockopt(fd, libc::SOL_SOCKET, option, &time)
}

/// `SO_ATTACH_FILTER` of a filter that lets nothing pass.
pub(crate) fn attach_filter_of_nothing(fd: RawFd) -> Result<()> {
    // BPF_RET | BPF_K with 0: no octet of any packet.
    let mut code = [libc::sock_filter { code: 6, jt: 0, jf: 0, k: 0 }];
    let program = libc::sock_fprog { len: 1, filter: code.as_mut_ptr() };
    let (at, len) = ((&raw const program).cast(), size_of::<libc::sock_fprog>() as socklen_t);
    // SAFETY: the program and its code live until the call is over, and are only read.
    done(unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, at, len) })
}

/// getsockopt(2) with room for -1 octets.
pub(crate) fn getsockopt_negative(fd: RawFd, level: i32, option: i32) -> Result<()> {
    let mut value = [0u8; 256];
    let mut len = u32::MAX;
    // SAFETY: whoever takes it for a large length would write no option longer than the room.
    done(unsafe { libc::getsockopt(fd, level, option, value.as_mut_ptr().cast(), &mut len) })
}

/// setsockopt(2) with -1 octets.
pub(crate) fn setsockopt_negative(fd: RawFd, level: i32, option: i32) -> Result<()> {
    let value = [0u8; 256];
    // SAFETY: whoever takes it for a large length would read no option longer than the room.
    done(unsafe { libc::setsockopt(fd, level, option, value.as_ptr().cast(), u32::MAX) })
}
