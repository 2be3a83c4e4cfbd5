//! Sockets; addresses and options as octets.

use std::io;
use std::os::fd::{OwnedFd, RawFd};

use crate::check;
use crate::file::owned;
use crate::raw::raw;

/// socket(2).
pub fn socket(domain: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved.
    check(unsafe { raw!(libc::SYS_socket, domain, kind, protocol) }).map(owned)
}

/// socketpair(2).
pub fn socketpair(domain: i32, kind: i32, protocol: i32) -> io::Result<[OwnedFd; 2]> {
    let mut pair = [0i32; 2];
    // SAFETY: the kernel writes two descriptors into `pair`.
    check(unsafe { raw!(libc::SYS_socketpair, domain, kind, protocol, pair.as_mut_ptr()) })?;
    Ok(pair.map(|fd| owned(fd as usize)))
}

/// bind(2).
pub fn bind(fd: RawFd, name: &[u8]) -> io::Result<()> {
    // SAFETY: the kernel reads `name.len()` octets of `name`.
    check(unsafe { raw!(libc::SYS_bind, fd, name.as_ptr(), name.len()) }).map(drop)
}

/// listen(2).
pub fn listen(fd: RawFd, backlog: i32) -> io::Result<()> {
    // SAFETY: no memory is involved.
    check(unsafe { raw!(libc::SYS_listen, fd, backlog) }).map(drop)
}

/// connect(2).
pub fn connect(fd: RawFd, name: &[u8]) -> io::Result<()> {
    // SAFETY: the kernel reads `name.len()` octets of `name`.
    check(unsafe { raw!(libc::SYS_connect, fd, name.as_ptr(), name.len()) }).map(drop)
}

/// shutdown(2).
pub fn shutdown(fd: RawFd, how: i32) -> io::Result<()> {
    // SAFETY: no memory is involved.
    check(unsafe { raw!(libc::SYS_shutdown, fd, how) }).map(drop)
}

/// accept4(2): the descriptor, and the length that the peer's address has.
pub fn accept(fd: RawFd, name: Option<&mut [u8]>, flags: i32) -> io::Result<(RawFd, usize)> {
    let mut len = name.as_ref().map_or(0, |name| name.len()) as libc::socklen_t;
    let (room, len_at) = match name {
        Some(name) => (name.as_mut_ptr(), &raw mut len),
        None => (std::ptr::null_mut(), std::ptr::null_mut()),
    };
    // SAFETY: the kernel writes at most `len` octets of the address, and its length; or neither, if null.
    let fd = check(unsafe { raw!(libc::SYS_accept4, fd, room, len_at, flags) })?;
    Ok((fd as RawFd, len as usize))
}

/// getsockname(2): the length that the address has, also if that is more than there was room for.
pub fn getsockname(fd: RawFd, name: &mut [u8]) -> io::Result<usize> {
    let mut len = name.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` octets of the address, and its length.
    check(unsafe { raw!(libc::SYS_getsockname, fd, name.as_mut_ptr(), &raw mut len) })?;
    Ok(len as usize)
}

/// getpeername(2): as [`getsockname`].
pub fn getpeername(fd: RawFd, name: &mut [u8]) -> io::Result<usize> {
    let mut len = name.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` octets of the address, and its length.
    check(unsafe { raw!(libc::SYS_getpeername, fd, name.as_mut_ptr(), &raw mut len) })?;
    Ok(len as usize)
}

/// Options of getsockopt(2) and setsockopt(2) whose value has pointers in it.
fn has_pointers(level: i32, option: i32) -> bool {
    const SO_ATTACH_FILTER: i32 = 26;
    const SO_ATTACH_REUSEPORT_CBPF: i32 = 51;
    const TCP_ZEROCOPY_RECEIVE: i32 = 35;
    match level {
        libc::SOL_SOCKET => matches!(option, SO_ATTACH_FILTER | SO_ATTACH_REUSEPORT_CBPF),
        libc::SOL_TCP => option == TCP_ZEROCOPY_RECEIVE,
        // Tables of the packet filters.
        libc::SOL_IP => matches!(option, 64..=67),
        libc::SOL_IPV6 => matches!(option, 64 | 65),
        _ => false,
    }
}

/// getsockopt(2): the length of the value.
pub fn getsockopt(fd: RawFd, level: i32, option: i32, value: &mut [u8]) -> io::Result<usize> {
    if has_pointers(level, option) {
        return Err(io::Error::from_raw_os_error(libc::ENOPROTOOPT));
    }
    let mut len = value.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` octets of the value, and its length; options that would have it follow
    // pointers in it are refused above.
    check(unsafe { raw!(libc::SYS_getsockopt, fd, level, option, value.as_mut_ptr(), &raw mut len) })?;
    Ok(len as usize)
}

/// The kernel's number for the network namespace of a socket (SO_NETNS_COOKIE). Until the next boot no other one gets it, unlike the number of the
/// namespace's file.
pub fn network_namespace(fd: RawFd) -> io::Result<u64> {
    let mut cookie = [0; 8];
    getsockopt(fd, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, &mut cookie)?;
    Ok(u64::from_ne_bytes(cookie))
}

/// Whether packets to a socket pass a filter: one of classic BPF, or a program of eBPF, which the kernel has and does not show.
pub fn has_filter(fd: RawFd) -> bool {
    let mut count: libc::socklen_t = 0;
    let nowhere = std::ptr::null_mut::<u8>();
    // SAFETY: without room the kernel tells the number of instructions, and writes none.
    let told = check(unsafe {
        raw!(libc::SYS_getsockopt, fd, libc::SOL_SOCKET, libc::SO_GET_FILTER, nowhere, &raw mut count)
    });
    told.map_or_else(|error| error.raw_os_error() == Some(libc::EACCES), |_| count > 0)
}

/// setsockopt(2).
pub fn setsockopt(fd: RawFd, level: i32, option: i32, value: &[u8]) -> io::Result<()> {
    if has_pointers(level, option) {
        return Err(io::Error::from_raw_os_error(libc::ENOPROTOOPT));
    }
    // SAFETY: the kernel reads `value.len()` octets of `value`; options that would have it follow pointers in it are refused
    // above.
    check(unsafe { raw!(libc::SYS_setsockopt, fd, level, option, value.as_ptr(), value.len()) }).map(drop)
}
