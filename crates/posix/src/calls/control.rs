//! fcntl(2), ioctl(2).

use std::os::fd::RawFd;

use crate::descriptors::fd_table::Entry;
use crate::errno::{Errno, fail};
use crate::process::Process;
use crate::request::Verdict;
use crate::socket::{Happening, Place, Role, Socket};

/// `SIOCATMARK`.
const AT_MARK: u64 = 0x8905;
/// `F_SETOWN_EX`: signals for one thread.
const F_SETOWN_EX: i32 = 15;
const F_SETSIG: i32 = 10;
const F_GETSIG: i32 = 11;
/// Why sockets with such owners and signals are the kernel's: nobody else can send these.
const OWNED_BY_THREAD: &str = "one thread gets signals of it (F_SETOWN_EX)";
const SIGNALS_TELL_WHY: &str = "signals of it say what they are about (F_SETSIG)";
/// `SIOCOUTQNSD`.
const OUT_QUEUE_NOT_SENT: u64 = 0x894b;

impl Process {
    /// fcntl(2).
    pub(crate) fn fcntl(&self, fd: RawFd, command: i32, argument: i64) -> Verdict<i32> {
        match self.table.get(fd) {
            Entry::Internal => return Verdict::Done(fail(libc::EBADF)),
            Entry::None => return Verdict::Kernel,
            _ => {}
        }
        if let libc::F_DUPFD | libc::F_DUPFD_CLOEXEC = command {
            return self.dup_from(fd, argument, command == libc::F_DUPFD_CLOEXEC);
        }
        let mut state = self.lock();
        let Some(id) = state.socket_of(fd) else { return Verdict::Kernel };
        let only_by_kernel = match command {
            F_SETOWN_EX => Some(OWNED_BY_THREAD),
            F_SETSIG if is_signal(argument) => Some(SIGNALS_TELL_WHY),
            _ => None,
        };
        if let Some(why) = only_by_kernel {
            let moved = self.on_happening(state, id, Happening::KernelOnly(why));
            return moved.map_or_else(|errno| Verdict::Done(Err(errno)), |()| Verdict::Kernel);
        }
        let Some(socket) = state.sockets.get_mut(id) else { return Verdict::Kernel };
        match command {
            // Flags and owners that parent and child have in common are the kernel's to keep.
            libc::F_SETFL | libc::F_SETOWN | F_SETSIG
                if matches!(socket.role, Role::Stream(Place::FromParent(_))) =>
            {
                self.inherit_for_kernel(state, id)
            }
            libc::F_SETFL => {
                socket.nonblocking = argument & i64::from(libc::O_NONBLOCK) != 0;
                socket.keep_status(argument as i32);
                // The placeholder's status flags are shared with all other connections.
                if socket.is_placeholder { Verdict::Done(Ok(0)) } else { Verdict::Kernel }
            }
            libc::F_GETFL if socket.is_placeholder => {
                let nonblocking = if socket.nonblocking { libc::O_NONBLOCK } else { 0 };
                Verdict::Done(Ok(libc::O_RDWR | nonblocking | socket.status()))
            }
            libc::F_SETFD => {
                let survives = argument & i64::from(libc::FD_CLOEXEC) == 0;
                let is_only_one = socket.fds().count() == 1;
                socket.may_survive_exec = survives || socket.may_survive_exec && !is_only_one;
                Verdict::Kernel
            }
            libc::F_SETOWN => {
                let set = socket.set_owner(argument);
                if socket.is_placeholder { Verdict::Done(set) } else { Verdict::Kernel }
            }
            F_SETSIG if socket.is_placeholder && argument != 0 => Verdict::Done(fail(libc::EINVAL)),
            F_SETSIG | F_GETSIG if socket.is_placeholder => Verdict::Done(Ok(0)),
            libc::F_GETOWN if socket.is_placeholder => Verdict::Done(Ok(socket.owner())),
            _ => Verdict::Kernel,
        }
    }

    /// ioctl(2) with an int.
    pub(crate) fn ioctl(&self, fd: RawFd, request: u64, argument: &mut i32) -> Verdict<i32> {
        if self.table.get(fd) == Entry::Internal {
            return Verdict::Done(fail(libc::EBADF));
        }
        let mut state = self.lock();
        let Some(id) = state.socket_of(fd) else { return Verdict::Kernel };
        let Some(socket) = state.sockets.get_mut(id) else { return Verdict::Kernel };
        if request == libc::FIONCLEX {
            socket.may_survive_exec = true;
            return Verdict::Kernel;
        }
        if matches!(socket.role, Role::Stream(Place::FromParent(_))) {
            return self.inherit_for_kernel(state, id);
        }
        if request == libc::FIONBIO {
            socket.nonblocking = *argument != 0;
            return if socket.is_placeholder { Verdict::Done(Ok(0)) } else { Verdict::Kernel };
        }
        if let Some(done) = own_request(socket, request, argument) {
            return if socket.is_placeholder { Verdict::Done(done) } else { Verdict::Kernel };
        }
        match (request, &socket.role) {
            (_, Role::Stream(Place::Stack(connection))) => {
                let connection = *connection;
                let Some(stack) = state.queue.stack() else { return Verdict::Done(fail(libc::ENOTCONN)) };
                let (unread, queued) = stack.queued(connection).unwrap_or_default();
                let now = self.now();
                let value = match request {
                    libc::FIONREAD => unread,
                    libc::TIOCOUTQ => queued,
                    OUT_QUEUE_NOT_SENT => {
                        stack.info(connection, now).map_or(0, |info| info.notsent_bytes as usize)
                    }
                    AT_MARK => usize::from(stack.is_at_urgent_mark(connection)),
                    _ => return Verdict::Kernel,
                };
                *argument = i32::try_from(value).unwrap_or(i32::MAX);
                Verdict::Done(Ok(0))
            }
            (libc::FIONREAD, Role::Udp(udp)) => {
                let on_stack = udp.on_stack;
                let queued =
                    on_stack.and_then(|id| state.queue.stack()?.udp_queued(id)).map_or(0, |(next, _)| next);
                let Some(socket) = state.sockets.get_mut(id) else { return Verdict::Kernel };
                if queued == 0 {
                    socket.own_run.note_seen_at_shadow();
                    return Verdict::Kernel;
                }
                socket.own_run.note_seen();
                *argument = queued as i32;
                Verdict::Done(Ok(0))
            }
            _ => Verdict::Kernel,
        }
    }
}

/// Whether it is the number of a signal (signal(7)).
fn is_signal(argument: i64) -> bool {
    (1..=64).contains(&argument)
}

/// Requests about the owner of signals; the kernel's socket, if there is one, gets them, too.
fn own_request(socket: &mut Socket, request: u64, argument: &mut i32) -> Option<Result<i32, Errno>> {
    const SET_OWNER: [u64; 2] = [0x8901, 0x8902];
    const GET_OWNER: [u64; 2] = [0x8903, 0x8904];
    if request == libc::FIOASYNC {
        let others = socket.status() & !libc::O_ASYNC;
        socket.keep_status(if *argument != 0 { others | libc::O_ASYNC } else { others });
    } else if SET_OWNER.contains(&request) {
        return Some(socket.set_owner((*argument).into()));
    } else if GET_OWNER.contains(&request) {
        *argument = socket.owner();
    } else {
        return None;
    }
    Some(Ok(0))
}
