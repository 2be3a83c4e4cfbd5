//! Two socket options that neither rustix nor socket2 offers.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Asks for the destination address of each received datagram: IP_PKTINFO (ip(7)) or IPV6_RECVPKTINFO (ipv6(7)).
pub(crate) fn request_packet_info(socket: BorrowedFd<'_>, v6: bool) -> io::Result<()> {
    let (level, name) = match v6 {
        true => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
        false => (libc::IPPROTO_IP, libc::IP_PKTINFO),
    };
    let on: libc::c_int = 1;
    let len = size_of_val(&on) as libc::socklen_t;
    // SAFETY: the value points to `len` octets that live during the call (setsockopt(2)).
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, ptr::from_ref(&on).cast(), len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Datagrams that the kernel dropped because the receive buffer was full: SO_MEMINFO (linux/sock_diag.h). Zero if the
/// kernel does not say.
pub(crate) fn dropped_datagrams(socket: BorrowedFd<'_>) -> u64 {
    const SK_MEMINFO_DROPS: usize = 8;
    let mut values = [0u32; SK_MEMINFO_DROPS + 1];
    let mut len = size_of_val(&values) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` octets to `values`, and the number written to `len` (getsockopt(2)).
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result < 0 { 0 } else { u64::from(values[SK_MEMINFO_DROPS]) }
}
