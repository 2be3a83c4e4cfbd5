//! Options that only the kernel supports: signatures of segments, packet filters, other protocols on top of TCP.
//!
//! A socket on which one of them is set moves to the kernel: a stack without them would answer packets that the kernel ignores.
//! Resetting the option does not bring the socket back. If the kernel refuses the option, nothing changes.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::MutexGuard;

use clock::Instant;

use super::address::local_of;
use super::option_table::int;
use super::place::Happening;
use super::settings::IPV6_MINHOPCOUNT;
use super::{Place, READABLE, Role, Socket, SocketId, judge};
use crate::Errno;
use crate::calls::Verdict;
use crate::internal::close;
use crate::process::{Process, State};

const TCP_AO_ADD_KEY: i32 = 38;
const TCP_AO_INFO: i32 = 40;

/// Shared by all sockets of a port, whichever of them it is set on.
const REUSEPORT_PROGRAM: &str =
    "a program chooses among the sockets of its port (SO_ATTACH_REUSEPORT_CBPF, _EBPF)";
const FILTER: &str = "a filter is attached (SO_ATTACH_FILTER, SO_ATTACH_BPF)";
const PEEK_OFFSET: &str = "it is looked at from an offset (SO_PEEK_OFF)";
const HOP_LIMIT_MIN: &str = "a least hop limit is set (IP_MINTTL, IPV6_MINHOPCOUNT)";

/// An option and the value that it is to have.
#[derive(Clone, Copy)]
pub(super) struct Setting<'v> {
    pub(super) level: i32,
    pub(super) option: i32,
    pub(super) value: &'v [u8],
}

impl Setting<'_> {
    /// Why a socket with this option is the kernel's, if it is one that the stack cannot honour.
    pub(super) fn kernel_only(&self) -> Option<&'static str> {
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

    fn set(&self, fd: RawFd) -> Result<(), Errno> {
        Ok(syscall::setsockopt(fd, self.level, self.option, self.value)?)
    }

    /// Only the program's own call can set it: then it is taken for granted that the kernel does.
    fn has_pointers(&self) -> bool {
        let with_pointers = [libc::SO_ATTACH_FILTER, libc::SO_ATTACH_REUSEPORT_CBPF];
        self.level == libc::SOL_SOCKET && with_pointers.contains(&self.option)
    }
}

/// Why a socket that another process has made must run on the kernel, as far as the kernel reports it.
pub(super) fn found_at(fd: RawFd) -> Option<&'static str> {
    let is_set = |level, option| super::udp_int(fd, level, option).is_some_and(|value| value != 0);
    if syscall::has_filter(fd) {
        return Some(FILTER);
    }
    if super::udp_int(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF).is_some_and(|offset| offset >= 0) {
        return Some(PEEK_OFFSET);
    }
    let has_limit = is_set(libc::SOL_IP, libc::IP_MINTTL) || is_set(libc::SOL_IPV6, IPV6_MINHOPCOUNT);
    has_limit.then_some(HOP_LIMIT_MIN)
}

impl Process {
    /// setsockopt(2) of an option that only the kernel supports: if the kernel accepts the option, the socket moves to the kernel.
    pub(super) fn set_kernel_only(
        &self,
        state: MutexGuard<'_, State>,
        id: SocketId,
        setting: Setting<'_>,
        reason: &'static str,
    ) -> Verdict<()> {
        let Some(socket) = state.sockets.get(id) else { return Verdict::Kernel };
        let set = match (&socket.role, setting.has_pointers()) {
            // The process that has it does not know the option: it is set when the kernel has the connection.
            (Role::Stream(Place::FromParent(_)), _) | (_, true) => Verdict::Kernel,
            (Role::Stream(Place::Stack(_)), _) => match judge_of_connection(socket.domain, setting) {
                Ok(()) => Verdict::Kernel,
                refused => Verdict::Done(refused),
            },
            _ => Verdict::Done(setting.set(socket.fd())),
        };
        if let Verdict::Done(Err(_)) = set {
            return set;
        }
        let given_up = self.on_happening(state, id, Happening::KernelOnly(reason));
        let is_over = self.lock().sockets.get(id).is_some_and(|socket| socket.connection().is_some());
        // What is over has no socket of the kernel's that the option could be set at.
        let set = if is_over { Verdict::Done(Ok(())) } else { set };
        given_up.map_or_else(|errno| Verdict::Done(Err(errno)), |()| set)
    }
}

/// What a connection of the kernel's says to an option; ours stays where it is if that refuses.
fn judge_of_connection(domain: i32, setting: Setting<'_>) -> Result<(), Errno> {
    let judge = judge::connected(domain)?;
    let judged = setting.set(judge.as_raw_fd());
    close(judge);
    judged
}

impl State {
    /// Has a socket without a connection be the kernel's, and releases its claim.
    pub(super) fn keep_to_kernel(&mut self, id: SocketId, reason: &'static str, now: Instant) {
        let Some(socket) = self.sockets.get(id) else { return };
        let local = local_of(socket.fd()).filter(|_| reason == REUSEPORT_PROGRAM);
        let shares_port =
            |socket: &Socket| socket.claim.is_some() && local.is_some() && local_of(socket.fd()) == local;
        let sharing = self.sockets.iter().filter(|(_, socket)| shares_port(socket)).map(|(other, _)| other);
        let sharing: Vec<SocketId> = sharing.filter(|other| *other != id).collect();
        for id in sharing.into_iter().chain([id]) {
            if let Some(socket) = self.sockets.get_mut(id) {
                socket.kernel_only = Some(reason);
                socket.unclaimable = Some(reason.into());
            }
            self.unclaim(id, now);
        }
    }

    /// Why a socket that is bound to `local` may not be claimed: for options of its own, or of one that shares the port.
    pub(crate) fn why_kernel_only(&self, id: SocketId, local: SocketAddr) -> Option<&'static str> {
        let chooses = |socket: &Socket| {
            socket.kernel_only == Some(REUSEPORT_PROGRAM) && local_of(socket.fd()) == Some(local)
        };
        let own = self.sockets.get(id).and_then(|socket| socket.kernel_only);
        own.or_else(|| self.sockets.iter().any(|(_, socket)| chooses(socket)).then_some(REUSEPORT_PROGRAM))
    }

    /// What comes to a listener or a UDP socket is the kernel's from now on.
    fn unclaim(&mut self, id: SocketId, now: Instant) {
        let Some(socket) = self.sockets.get(id).filter(|socket| socket.claim.is_some()) else { return };
        match &socket.role {
            Role::Listener { .. } => self.move_listener_to_kernel(id),
            Role::Udp(_) => self.move_datagrams_and_queues(id, now),
            _ => {}
        }
        if self.sockets.get(id).is_some_and(has_adopted) {
            self.raise(id, READABLE);
        }
    }
}

/// Whether connections of the kernel's wait at a listener that the kernel does not know to wait there.
pub(crate) fn has_adopted(socket: &Socket) -> bool {
    matches!(&socket.role, Role::Listener { adopted, .. } if !adopted.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

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
