//! Options that only the kernel supports: signatures of segments, packet filters, other protocols on top of TCP.
//!
//! A socket on which one of them is set moves to the kernel: a stack without them would answer packets that the kernel ignores.
//! Resetting the option does not bring the socket back. If the kernel refuses the option, nothing changes.

use std::os::fd::RawFd;

use crate::errno::Errno;
use crate::socket::entry::{Role, Socket};
use crate::socket::option_table::int;
use crate::socket::settings::IPV6_MINHOPCOUNT;

const TCP_AO_ADD_KEY: i32 = 38;
const TCP_AO_INFO: i32 = 40;

/// Shared by all sockets of a port, whichever of them it is set on.
pub(crate) const REUSEPORT_PROGRAM: &str =
    "a program chooses among the sockets of its port (SO_ATTACH_REUSEPORT_CBPF, _EBPF)";
const FILTER: &str = "a filter is attached (SO_ATTACH_FILTER, SO_ATTACH_BPF)";
const PEEK_OFFSET: &str = "it is looked at from an offset (SO_PEEK_OFF)";
const HOP_LIMIT_MIN: &str = "a least hop limit is set (IP_MINTTL, IPV6_MINHOPCOUNT)";

/// An option and the value that it is to have.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'v> {
    pub(crate) level: i32,
    pub(crate) option: i32,
    pub(crate) value: &'v [u8],
}

impl Setting<'_> {
    /// Why a socket with this option is the kernel's, if it is one that the stack cannot honour.
    pub(crate) fn kernel_only(&self) -> Option<&'static str> {
        let is_set = int(self.value) != 0;
        match (self.level, self.option) {
            (libc::SOL_TCP, libc::TCP_MD5SIG | libc::TCP_MD5SIG_EXT) => {
                Some("segments are signed (TCP_MD5SIG)")
            }
            (libc::SOL_TCP, TCP_AO_ADD_KEY | TCP_AO_INFO) => Some("segments are authenticated (TCP_AO)"),
            (libc::SOL_TCP, libc::TCP_ULP) => Some("the kernel has a protocol on top of it (TCP_ULP)"),
            (libc::SOL_TCP, libc::TCP_REPAIR) if int(self.value) > 0 => Some("it is repaired (TCP_REPAIR)"),
            (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER | libc::SO_ATTACH_BPF) => Some(FILTER),
            (libc::SOL_SOCKET, libc::SO_LOCK_FILTER) if is_set => {
                Some("its filter is locked (SO_LOCK_FILTER)")
            }
            (libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF | libc::SO_ATTACH_REUSEPORT_EBPF) => {
                Some(REUSEPORT_PROGRAM)
            }
            (libc::SOL_IP, libc::IP_MINTTL) | (libc::SOL_IPV6, IPV6_MINHOPCOUNT) if is_set => {
                Some(HOP_LIMIT_MIN)
            }
            (libc::SOL_SOCKET, libc::SO_PEEK_OFF) if int(self.value) >= 0 => Some(PEEK_OFFSET),
            _ => None,
        }
    }

    pub(crate) fn set(&self, fd: RawFd) -> Result<(), Errno> {
        Ok(syscall::setsockopt(fd, self.level, self.option, self.value)?)
    }

    /// Only the program's own call can set it: then it is taken for granted that the kernel does.
    pub(crate) fn has_pointers(&self) -> bool {
        let with_pointers = [libc::SO_ATTACH_FILTER, libc::SO_ATTACH_REUSEPORT_CBPF];
        self.level == libc::SOL_SOCKET && with_pointers.contains(&self.option)
    }
}

/// Why a socket that another process has made must run on the kernel, as far as the kernel reports it.
pub(crate) fn found_at(fd: RawFd) -> Option<&'static str> {
    let is_set = |level, option| {
        crate::socket::udp_messages::udp_int(fd, level, option).is_some_and(|value| value != 0)
    };
    if syscall::has_filter(fd) {
        return Some(FILTER);
    }
    if crate::socket::udp_messages::udp_int(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF)
        .is_some_and(|offset| offset >= 0)
    {
        return Some(PEEK_OFFSET);
    }
    let has_limit = is_set(libc::SOL_IP, libc::IP_MINTTL) || is_set(libc::SOL_IPV6, IPV6_MINHOPCOUNT);
    has_limit.then_some(HOP_LIMIT_MIN)
}

/// Whether connections of the kernel's wait at a listener that the kernel does not know to wait there.
pub(crate) fn has_adopted(socket: &Socket) -> bool {
    matches!(&socket.role, Role::Listener { adopted, .. } if !adopted.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    use crate::descriptors::internal::close;
    use crate::socket::judge;

    #[test]
    fn what_sets_an_option_back_is_for_any_socket() {
        let is_kernel_only = |level, option, value: i32| {
            Setting { level, option, value: &value.to_ne_bytes() }.kernel_only().is_some()
        };
        for (level, option) in [
            (libc::SOL_IP, libc::IP_MINTTL),
            (libc::SOL_IPV6, IPV6_MINHOPCOUNT),
            (libc::SOL_SOCKET, libc::SO_LOCK_FILTER),
            (libc::SOL_TCP, libc::TCP_REPAIR),
        ] {
            assert!(is_kernel_only(level, option, 1) && !is_kernel_only(level, option, 0), "{option}");
        }
        assert!(!is_kernel_only(libc::SOL_TCP, libc::TCP_REPAIR, -1), "off, without a probe of the window");
        assert!(!is_kernel_only(libc::SOL_SOCKET, libc::IP_MINTTL, 1), "another level's option");
    }

    #[test]
    fn a_filter_is_found_at_a_socket_of_another_program() {
        let socket = judge::fresh(libc::AF_INET).unwrap();
        assert_eq!(found_at(socket.as_raw_fd()), None);
        syscall::setsockopt(socket.as_raw_fd(), libc::SOL_IP, libc::IP_MINTTL, &255i32.to_ne_bytes())
            .unwrap();
        assert_eq!(found_at(socket.as_raw_fd()), Some(HOP_LIMIT_MIN));
        close(socket);
    }
}
