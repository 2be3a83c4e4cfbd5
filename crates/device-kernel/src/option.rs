//! Socket options, and one address, that neither rustix nor socket2 offers.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Asks for the destination address of each received datagram: IP_PKTINFO (ip(7)) or IPV6_RECVPKTINFO (ipv6(7)).
pub(crate) fn request_packet_info(socket: BorrowedFd<'_>, v6: bool) -> io::Result<()> {
    let (level, name) = match v6 {
        true => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
        false => (libc::IPPROTO_IP, libc::IP_PKTINFO),
    };
    set(socket, level, name, &ON)
}

/// Ignores frames that this machine sends on the interface: PACKET_IGNORE_OUTGOING (linux/if_packet.h).
pub(crate) fn ignore_outgoing(socket: BorrowedFd<'_>) -> io::Result<()> {
    set(socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &ON)
}

/// Receives frames for other hardware addresses too, while the socket is open: PACKET_MR_PROMISC (packet(7)).
pub(crate) fn receive_for_others(socket: BorrowedFd<'_>, interface: u32) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: interface as libc::c_int,
        mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)
}

/// Has a packet socket receive all protocols of an interface: bind(2) with the address of packet(7).
pub(crate) fn bind_to_interface(socket: BorrowedFd<'_>, interface: u32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as libc::c_ushort,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: interface as libc::c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address is a whole `sockaddr_ll` of `len` octets that lives during the call.
    let result = unsafe { libc::bind(socket.as_raw_fd(), ptr::from_ref(&address).cast(), len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The value that switches an option on.
const ON: libc::c_int = 1;

/// setsockopt(2) with a plain C value.
fn set<T: Copy>(socket: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    let len = size_of_val(value) as libc::socklen_t;
    // SAFETY: the value points to `len` octets that live during the call, which only reads them; the callers give each
    // option the type that its manual page names.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, ptr::from_ref(value).cast(), len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Datagrams that the kernel dropped because the receive buffer was full: SO_MEMINFO (linux/sock_diag.h). Zero if the
/// kernel does not report it.
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
