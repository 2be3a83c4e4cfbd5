//! A socket of the program: its state in the stack, the threads that wait for it, and its readiness.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;

use clock::Duration;
use stack::{ConnectionId, LinkId, ListenerId, Stack, TcpOptions};
use transit::SocketKind;

use crate::address::local_of;
use crate::broker_side::ClaimId;
use crate::errno::Errno;
use crate::ids::{Interests, SocketId};
use crate::socket::error_queue::ZeroCopySends;
use crate::socket::own_run::OwnRun;
use crate::socket::owner::Owner;
use crate::socket::place::Place;
use crate::socket::queueing::Queueing;
use crate::socket::readiness::{HANG_UP, READABLE, WRITABLE, poll_of_connection};
use crate::socket::send_times::SendTimes;
use crate::socket::settings::{Settings, options_of_shadow};
use crate::socket::stall::Stall;
use crate::socket::touched::Touched;
use crate::socket::udp::UdpRole;
use crate::socket::usage::{Experience, Usage};
use crate::waiter::{Callers, Waiter};

/// Reasons are kept for status; most are shared.
pub(crate) type Reason = Arc<str>;

/// What a socket is.
pub(crate) enum Role {
    /// A TCP socket that does not listen.
    Stream(Place),
    /// A TCP listener: the kernel's, and the stack's if it is claimed.
    Listener {
        /// On the stack.
        on_stack: Option<ListenerId>,
        /// The backlog of listen(2).
        backlog: u32,
        /// Connections of the kernel that other processes left to us.
        adopted: VecDeque<OwnedFd>,
        /// How connections wait on the stack.
        queueing: Queueing,
        /// What connections were like that came from it.
        experience: Experience,
    },
    /// A UDP socket: the kernel's, and the stack's if it is claimed.
    Udp(UdpRole),
}

/// A socket that we know, behind one or more descriptors.
pub(crate) struct Socket {
    pub(crate) role: Role,
    /// `AF_INET` or `AF_INET6`.
    pub(crate) domain: i32,
    pub(crate) fd: RawFd,
    pub(crate) dups: Vec<RawFd>,
    /// The descriptors are copies of the placeholder, and not of a socket of its own.
    pub(crate) is_placeholder: bool,
    pub(crate) nonblocking: bool,
    pub(crate) claim: Option<ClaimId>,
    /// Where the shadow was bound before it was bound for a connection of ours.
    pub(crate) bound_before: Option<SocketAddr>,
    /// The listener that its connection was accepted from, if it was here.
    pub(crate) listener: Option<SocketId>,
    /// Its connection was made here, and relies on this interface's putting answers into queues that are ours.
    pub(crate) relies_on: Option<LinkId>,
    /// The claim that it had until it was left to the kernel for all who have it: others may still want us to accept what waited there.
    pub(crate) left: Option<ClaimId>,
    /// Why it was not claimed.
    pub(crate) unclaimable: Option<Reason>,
    /// Why it stays the kernel's: an option was set that the stack cannot honour.
    pub(crate) kernel_only: Option<&'static str>,
    pub(crate) interests: Interests,
    pub(crate) waiters: Vec<Arc<Waiter>>,
    /// Threads whose calls wait here: it lives until they are over.
    pub(crate) callers: Callers,
    pub(crate) stall: Stall,
    pub(crate) usage: Usage,
    pub(crate) own_run: OwnRun,
    /// Some descriptor of it may be without `FD_CLOEXEC`.
    pub(crate) may_survive_exec: bool,
    /// It was there before a fork or an exec, or came from elsewhere, so that other processes may have it: were it connected here,
    /// they would not know; and who waits there waits for them too.
    pub(crate) is_common: bool,
    pub(crate) settings: Settings,
    pub(crate) receive_timeout: Option<Duration>,
    pub(crate) send_timeout: Option<Duration>,
    /// connect(2) has not told yet that it is connected.
    pub(crate) is_connecting: bool,
    /// What `SO_ERROR` has, beside the stack's.
    pub(crate) error: Option<Errno>,
    /// The turn in which a call had to say that it would block: who asks twice in one turn gets another.
    pub(crate) blocked_in_turn: u32,
    /// Options of the kernel's socket that the program has set.
    pub(crate) touched: Touched,
    /// What few sockets have.
    pub(crate) rare: Option<Box<Rare>>,
}

/// What few sockets have.
#[derive(Debug, Default)]
pub(crate) struct Rare {
    pub(crate) zero_copy: ZeroCopySends,
    pub(crate) owner: Owner,
    pub(crate) send_times: SendTimes,
}

impl Socket {
    pub(crate) fn new(role: Role, domain: i32, fd: RawFd) -> Socket {
        Socket {
            role,
            domain,
            fd,
            dups: Vec::new(),
            is_placeholder: false,
            nonblocking: false,
            claim: None,
            bound_before: None,
            listener: None,
            relies_on: None,
            left: None,
            unclaimable: None,
            kernel_only: None,
            interests: Interests::default(),
            waiters: Vec::new(),
            callers: Callers::default(),
            stall: Stall::default(),
            usage: Usage::default(),
            own_run: OwnRun::default(),
            may_survive_exec: true,
            is_common: false,
            settings: Settings::default(),
            receive_timeout: None,
            send_timeout: None,
            is_connecting: false,
            error: None,
            blocked_in_turn: 0,
            touched: Touched::ANY,
            rare: None,
        }
    }

    /// Whether its connection did nothing with the kernel's socket behind its only descriptor, and nobody else has that.
    pub(crate) fn has_pristine_shadow(&self) -> bool {
        matches!(self.role, Role::Stream(Place::Stack(_)))
            && !self.is_placeholder
            && !self.is_common
            && self.bound_before.is_none()
            && !self.touched.may_be_named()
            && self.kernel_only.is_none()
            && self.rare.is_none()
            && self.dups.is_empty()
            && !self.callers.has_others()
    }

    /// What few sockets have, made if need be.
    pub(crate) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Whether a signal may be wanted on news.
    pub(crate) fn may_have_owner(&self) -> bool {
        self.rare.is_some()
    }

    /// One of its descriptors.
    pub(crate) fn fd(&self) -> RawFd {
        self.fd
    }

    /// All of its descriptors.
    pub(crate) fn fds(&self) -> impl Iterator<Item = RawFd> + '_ {
        std::iter::once(self.fd).chain(self.dups.iter().copied())
    }

    /// It was closed, and is known by this number from now on; none if negative.
    pub(crate) fn set_fd(&mut self, fd: RawFd) {
        self.fd = fd;
    }

    pub(crate) fn add_fd(&mut self, fd: RawFd) {
        self.dups.push(fd);
    }

    /// Takes a descriptor away; true if it was the last.
    pub(crate) fn remove_fd(&mut self, fd: RawFd) -> bool {
        if self.fd != fd {
            self.dups.retain(|dup| *dup != fd);
            return false;
        }
        match self.dups.pop() {
            Some(dup) => self.fd = dup,
            None => return true,
        }
        false
    }

    /// Whether its descriptor may have news of the kernel's.
    pub(crate) fn is_shadow(&self) -> bool {
        matches!(self.role, Role::Stream(Place::Kernel) | Role::Listener { .. } | Role::Udp(_))
    }

    /// Whether something of it is on the stack.
    pub(crate) fn is_on_stack(&self) -> bool {
        match &self.role {
            Role::Listener { on_stack, .. } => on_stack.is_some(),
            Role::Udp(udp) => udp.on_stack.is_some(),
            Role::Stream(Place::Stack(_)) => true,
            _ => false,
        }
    }

    /// What the kernel has to know of it.
    pub(crate) fn kind_to_move(&self) -> SocketKind {
        SocketKind {
            is_ipv6: self.domain == libc::AF_INET6,
            reuse_address: self.settings.is_on(libc::SO_REUSEADDR),
        }
    }

    /// The connection on the stack, if it is one.
    pub(crate) fn connection(&self) -> Option<ConnectionId> {
        match self.role {
            Role::Stream(Place::Stack(id)) => Some(id),
            _ => None,
        }
    }

    /// What poll(2) has of it, as far as the stack goes.
    pub(crate) fn poll(&self, stack: Option<&Stack>) -> u32 {
        let mut error = match (&self.error, &self.role) {
            (None, _) => 0,
            // The kernel's socket reports the rest.
            (Some(_), Role::Stream(Place::Kernel)) => libc::EPOLLERR as u32,
            (Some(_), _) => libc::EPOLLERR as u32 | READABLE | WRITABLE,
        };
        if self.rare.as_ref().is_some_and(|rare| rare.zero_copy.is_due() || rare.send_times.is_due()) {
            error |= libc::EPOLLERR as u32;
        }
        error
            | match (&self.role, stack) {
                (Role::Listener { on_stack, adopted, .. }, stack) => {
                    let waiting =
                        |id| stack.and_then(|stack| stack.accept_queue(id)).is_some_and(|(n, _)| n > 0);
                    if !adopted.is_empty() || on_stack.is_some_and(waiting) { READABLE } else { 0 }
                }
                (Role::Stream(Place::Stack(id)), Some(stack)) => {
                    stack.readiness(*id).map_or(HANG_UP, poll_of_connection)
                }
                (Role::Stream(Place::Stack(_) | Place::Lost), _) => HANG_UP | WRITABLE,
                (Role::Udp(udp), Some(stack)) => udp.poll(stack),
                (Role::Stream(Place::ToStack { .. } | Place::Kernel) | Role::Udp(_), _) => 0,
                // A thread that waits for it asks the parent for it first.
                (Role::Stream(Place::FromParent(_)), _) => READABLE | WRITABLE,
            }
    }
}

impl Socket {
    /// Where the kernel's socket is bound, if it may be.
    pub(crate) fn local_of_shadow(&self) -> Option<SocketAddr> {
        self.touched.may_be_named().then(|| local_of(self.fd()))?
    }

    /// The options that were set on the kernel's socket, which is about to connect.
    pub(crate) fn options_of_shadow(&self) -> (TcpOptions, Settings) {
        options_of_shadow(self.fd(), self.domain, self.touched)
    }
}

impl Socket {
    /// A call that was to send `wanted` octets has sent `sent` of them.
    pub(crate) fn note_sent(&mut self, wanted: usize, sent: usize) {
        self.usage.note_call(wanted, sent);
    }

    /// A call has received so many octets.
    pub(crate) fn note_received(&mut self, received: usize) {
        self.usage.note_call(received, received);
    }

    /// A call has slept, until another thread woke it because something had come, or something else ended its sleep.
    pub(crate) fn note_sleep(&mut self, by_other: bool) {
        self.usage.note_sleep(by_other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_descriptor_ends_a_socket() {
        let mut socket = Socket::new(Role::Stream(Place::Kernel), libc::AF_INET, 5);
        socket.add_fd(6);
        socket.add_fd(7);
        assert!(!socket.remove_fd(5) && !socket.remove_fd(6));
        assert_eq!(socket.fds().collect::<Vec<_>>(), [7]);
        assert!(socket.remove_fd(7));
    }
}
