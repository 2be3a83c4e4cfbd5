//! Connections that move to the kernel, and connections that have moved.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::MutexGuard;

use clock::Instant;
use stack::tcp::Detached;
use stack::{Stack, TcpOptions};

use super::{READABLE, Role, Settings, Socket, SocketId, Stalls, WRITABLE};
use crate::Errno;
use crate::attachment::{MovedSocket, NotMoved, RequestId};
use crate::calls::Verdict;
use crate::drive::{On, Stop, Waiting};
use crate::epoll::Interest;
use crate::errno::fail;
use crate::fd_table::Entry;
use crate::internal::close;
use crate::kinship::Ends;
use crate::process::{Process, State};
use crate::runtime::Runtime;

impl State {
    /// What our epoll instances watch of a socket, the kernel's watch from now on.
    pub(crate) fn give_to_kernel(&mut self, id: SocketId) {
        for place in 0.. {
            let interest = self.sockets.get(id).and_then(|socket| socket.interests.at(place));
            let Some(Interest { epoll: epoll_id, item: item_id }) = interest else { return };
            let Some(epoll) = self.epolls.get_mut(epoll_id) else { continue };
            let (epfd, Some(item)) = (epoll.fd(), epoll.items.get_mut(item_id)) else { continue };
            if !std::mem::replace(&mut item.in_kernel, true) {
                let event = syscall::EpollEvent { events: item.events, u64: item.data };
                // Fails only for lack of memory; then it is silent, and nothing can be reported.
                let _ = syscall::epoll_ctl(epfd, libc::EPOLL_CTL_ADD, item.fd, Some(event));
                epoll.note_shadow(item_id);
            }
        }
    }

    /// Takes a connection off the stack and has the kernel go on with it, behind the same descriptors. A connection that cannot
    /// move stays, if it only is not established yet; one that was lost on the way has failed.
    pub(crate) fn move_to_kernel(&mut self, id: SocketId, now: Instant) -> Result<(), Errno> {
        let ends = self.endpoints(id);
        let kernel = self.take_off_stack(id, now)?;
        if let Some(ends) = ends {
            self.share_with_children(id, ends, &kernel);
        }
        self.replace_by(id, kernel, now);
        Ok(())
    }

    /// Moves a connection to the kernel that need not move: if the kernel refuses it, it goes on here. Whether it has moved.
    pub(super) fn move_to_kernel_if_taken(&mut self, id: SocketId, now: Instant) -> bool {
        self.take_in(now);
        let Some(socket) = self.sockets.get(id) else { return false };
        let (Some(connection), kind) = (socket.connection(), socket.kind_to_move()) else { return false };
        let (settings, ends) = (socket.settings.clone(), self.endpoints(id));
        let Some(Ok(detached)) = self.stack().map(|stack| stack.detach(connection, now)) else {
            return false;
        };
        let kernel = match self.ask_kernel(&detached, kind, &settings) {
            Ok(kernel) => kernel,
            Err(NotMoved::Refused) => {
                self.put_back(id, &detached, now);
                return false;
            }
            Err(NotMoved::Lost) => {
                self.reset_lost(&detached);
                self.fail_socket(id, Errno(libc::ECONNRESET));
                return false;
            }
        };
        self.set_flags_at_kernel(id, &kernel);
        self.follow_moved();
        if let Some(ends) = ends {
            self.share_with_children(id, ends, &kernel);
        }
        self.replace_by(id, kernel, now);
        true
    }

    /// A connection that was to leave stays on the stack.
    fn put_back(&mut self, id: SocketId, detached: &Detached, now: Instant) {
        let back = self.stack().and_then(|stack| stack.attach(detached, detached.hop, now).ok());
        let (Some(back), Some(socket)) = (back, self.sockets.get_mut(id)) else {
            return self.fail_socket(id, Errno(libc::ECONNRESET));
        };
        socket.role = Role::Connection(back);
        if let Some(stack) = self.stack() {
            stack.set_token(back, id.to_bits());
        }
    }

    /// Takes a connection off the stack. Returns the kernel's socket of it, with all options and flags that the program has set.
    pub(crate) fn take_off_stack(&mut self, id: SocketId, now: Instant) -> Result<OwnedFd, Errno> {
        // What has come until now goes with it.
        self.take_in(now);
        let socket = self.sockets.get(id).ok_or(Errno(libc::ENOTCONN))?;
        let (connection, kind) = (socket.connection().ok_or(Errno(libc::ENOTCONN))?, socket.kind_to_move());
        let settings = socket.settings.clone();
        let stack = self.stack().ok_or(Errno(libc::ENOTCONN))?;
        let Ok(detached) = stack.detach(connection, now) else { return fail(libc::ENOTCONN) };
        let Some(kernel) = self.hand_to_kernel(&detached, kind, &settings) else {
            self.fail_socket(id, Errno(libc::ECONNRESET));
            return fail(libc::ECONNRESET);
        };
        self.set_flags_at_kernel(id, &kernel);
        self.follow_moved();
        Ok(kernel)
    }

    /// The kernel's socket of a connection that is off the stack. One that the kernel does not take is lost, and the peer told so.
    pub(super) fn hand_to_kernel(
        &mut self,
        connection: &Detached,
        kind: MovedSocket,
        settings: &Settings,
    ) -> Option<OwnedFd> {
        let moved = self.ask_kernel(connection, kind, settings).ok();
        if moved.is_none() {
            self.reset_lost(connection);
        }
        moved
    }

    /// The kernel's socket of a connection that is off the stack, with its options. What becomes of one that it does not take is left to
    /// the caller.
    fn ask_kernel(
        &mut self,
        connection: &Detached,
        kind: MovedSocket,
        settings: &Settings,
    ) -> Result<OwnedFd, NotMoved> {
        let kernel = self.attachment().ok_or(NotMoved::Refused)?.move_to_kernel(connection, kind)?;
        settle_kernel_socket(&kernel, connection, settings);
        self.left_to_kernel.moved += 1;
        Ok(kernel)
    }

    /// Resets a connection that is off the stack already.
    fn reset_lost(&mut self, connection: &Detached) {
        let now = self.clock.now();
        let Some(stack) = self.stack() else { return };
        if let Ok(back) = stack.attach(connection, connection.hop, now) {
            stack.set_token(back, u64::MAX); // What happens to it is nobody's business.
            stack.abort(back, now);
        }
    }

    /// Connections have become the kernel's: what came for them while they did follows them. The peer would notice after 200 ms that
    /// it has to be sent again.
    pub(crate) fn follow_moved(&mut self) {
        let now = self.clock.now();
        self.take_in(now);
        self.pass_on_late();
    }

    /// Gives the kernel what was taken in for connections that it has by now. A packet that the steering program had in hand when it
    /// was told of the move may come some turns later.
    pub(crate) fn pass_on_late(&mut self) {
        while let Some(segment) = self.stack().and_then(Stack::next_late_segment) {
            if let Some(attachment) = self.attachment() {
                attachment.deliver_late(&segment);
            }
        }
    }

    /// Puts a socket of the kernel's behind the descriptors of `id`, which is forgotten.
    fn replace_by(&mut self, id: SocketId, kernel: OwnedFd, now: Instant) {
        let Some(socket) = self.sockets.get_mut(id) else { return close(kernel) };
        let claim = socket.claim.take();
        socket.role = Role::Fresh;
        self.put_behind(id, kernel);
        self.moves = self.moves.wrapping_add(1);
        self.give_to_kernel(id);
        self.live_fds(id).into_iter().for_each(|fd| self.let_go(fd, now));
        self.release_claim(claim);
    }

    pub(crate) fn fail_socket(&mut self, id: SocketId, errno: Errno) {
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.role = Role::Failed;
            socket.error = Some(errno);
        }
        self.raise(id, READABLE | WRITABLE | (libc::EPOLLERR | libc::EPOLLHUP | libc::EPOLLRDHUP) as u32);
    }

    /// Everything on the stack is cut off.
    pub(crate) fn fail_all(&mut self) {
        let connections: Vec<SocketId> = self
            .sockets
            .iter()
            .filter(|(_, socket)| socket.connection().is_some())
            .map(|(id, _)| id)
            .collect();
        for id in connections {
            self.fail_socket(id, Errno(libc::ECONNRESET));
        }
        for place in 0..self.sockets.places() {
            let Some((_, socket)) = self.sockets.at_mut(place) else { continue };
            socket.claim = None;
            match &mut socket.role {
                Role::Listener { on_stack, .. } => *on_stack = None,
                Role::Udp(udp) => udp.on_stack = None,
                _ => {}
            }
        }
        self.ended.clear();
        self.kept_ports.clear();
        self.stalls = Stalls::default();
        let descriptors = self.runtime.as_mut().map(Runtime::remove_devices).unwrap_or_default();
        for fd in descriptors {
            self.table.set(fd, Entry::None);
        }
        self.runtime = None;
        self.wake_driver();
    }

    /// A child wants a connection that it inherited from us.
    pub(crate) fn on_surrender(&mut self, token: u64, local: SocketAddr, remote: SocketAddr, now: Instant) {
        let ends = (local, remote);
        self.read_notes();
        // What no child can have inherited, no other process can ask for.
        if self.is_held_by_child(ends) && !self.has_bequest(ends) {
            self.move_common(ends, now);
        }
        if !self.hand_bequest(token, ends)
            && let Some(attachment) = self.attachment()
        {
            attachment.refuse_surrender(token);
        }
    }

    /// Moves a connection to the kernel that children have as well: they get it from there.
    fn move_common(&mut self, ends: Ends, now: Instant) {
        let is_common = |socket: &Socket| socket.is_common && socket.connection().is_some();
        let common = self.sockets.iter().filter(|(_, socket)| is_common(socket));
        let ids: Vec<SocketId> = common.map(|(id, _)| id).collect();
        if let Some(id) = ids.into_iter().find(|id| self.endpoints(*id) == Some(ends)) {
            // One that is lost on the way is nobody's.
            let _ = self.move_to_kernel(id, now);
        }
    }

    /// A connection has become the kernel's: children that hold it as well are to have it from us.
    fn share_with_children(&mut self, id: SocketId, ends: Ends, kernel: &OwnedFd) {
        // A connection that was made after the fork may have the addresses of one before it.
        let is_common = self.sockets.get(id).is_some_and(|socket| socket.is_common);
        if is_common
            && self.is_held_by_child(ends)
            && let Some(copy) = crate::internal::copy(kernel.as_raw_fd())
        {
            self.bequeath(ends, copy);
        }
    }

    /// The parent gave a connection up, or does not have it any more.
    pub(crate) fn on_inherited(&mut self, request: RequestId, kernel: Option<OwnedFd>) {
        let is_it = |socket: &Socket| matches!(&socket.role, Role::Inherited(inherited) if inherited.request == Some(request));
        let Some(id) = self.sockets.iter().find(|(_, socket)| is_it(socket)).map(|(id, _)| id) else {
            return;
        };
        match kernel {
            Some(kernel) => {
                if let Some(ends) = self.endpoints(id) {
                    self.note_let_go(ends);
                }
                self.replace_by(id, kernel, Instant::ZERO);
            }
            None => self.fail_socket(id, Errno(libc::ECONNRESET)),
        }
    }
}

impl State {
    /// Asks for a connection that this process inherited, once; false if there is no parent to ask.
    fn ask_for_inherited(&mut self, id: SocketId) -> bool {
        let Some(Role::Inherited(inherited)) = self.sockets.get(id).map(|socket| &socket.role) else {
            return false;
        };
        let (local, remote) = (inherited.local, inherited.remote);
        if inherited.request.is_some() {
            return true;
        }
        self.reach();
        let request = self.attachment().and_then(|attachment| attachment.begin_inherit(local, remote));
        if let Some(Role::Inherited(inherited)) = self.sockets.get_mut(id).map(|socket| &mut socket.role) {
            inherited.request = request;
        }
        request.is_some()
    }
}

impl Process {
    /// Whether a connection has become the kernel's while a call waited for it, which is the kernel's then as well; `moves` is from
    /// before.
    pub(crate) fn was_moved(&self, id: SocketId, moves: u32) -> bool {
        let state = self.lock();
        state.moves != moves && state.sockets.get(id).is_none()
    }

    /// Waits until a connection that this process inherited is the kernel's, behind the same descriptor.
    pub(crate) fn inherit(&self, mut state: MutexGuard<'_, State>, id: SocketId) -> Result<(), Errno> {
        if !matches!(state.sockets.get(id).map(|socket| &socket.role), Some(Role::Inherited(_))) {
            return Ok(());
        }
        if !state.ask_for_inherited(id) {
            return fail(libc::ECONNRESET);
        }
        let waiting = Waiting { on: On::Socket(id, None), deadline: None, mask: None, restarts: true };
        let result = self.wait(state, &waiting, &mut |state, now| {
            state.hear(now);
            match state.sockets.get(id).map(|socket| &socket.role) {
                Some(Role::Inherited(_)) => None,
                Some(_) => Some(state.take_error(id).map_or(fail(libc::ECONNRESET), Err)),
                None => Some(Ok(())),
            }
        });
        result.unwrap_or_else(|stop| match stop {
            Stop::TimedOut => fail(libc::ECONNRESET),
            Stop::Interrupted => fail(libc::EINTR),
        })
    }

    /// The same for a call that is the kernel's then.
    pub(super) fn inherit_for_kernel<T>(&self, state: MutexGuard<'_, State>, id: SocketId) -> Verdict<T> {
        self.inherit(state, id).map_or_else(|errno| Verdict::Done(Err(errno)), |()| Verdict::Kernel)
    }

    /// The same for several; the answers take their time together.
    pub(crate) fn inherit_all(&self, ids: &[SocketId]) {
        let mut state = self.lock();
        for id in ids {
            state.ask_for_inherited(*id);
        }
        drop(state);
        for id in ids {
            // One that is lost says so when it is used.
            let _ = self.inherit(self.lock(), *id);
        }
    }

    /// `fd` gets out of sight: it becomes the kernel's.
    pub(crate) fn surrender(&self, fd: RawFd) {
        let mut state = self.lock();
        let Some(id) = state.socket_of(fd) else { return };
        let now = self.now();
        match state.sockets.get(id).map(|socket| &socket.role) {
            Some(Role::Connection(connection)) => {
                let connection = *connection;
                state.turn(now);
                if state.connect_by_kernel(id, connection, now) {
                    return;
                }
                // What cannot move is lost to who gets it, as if the peer had reset it.
                let _ = state.move_to_kernel(id, now);
            }
            Some(Role::Inherited(_)) => drop(self.inherit(state, id)),
            Some(Role::Departing { .. }) => state.depart_by_kernel_after_all(id, now),
            // What others have a part in is not connected by us.
            Some(Role::Fresh | Role::Listener { .. } | Role::Udp(_)) => {
                if let Some(socket) = state.sockets.get_mut(id) {
                    socket.is_common = true;
                }
            }
            Some(Role::Failed) | None => {}
        }
    }
}

/// What repairing does not bring: a FIN that is due, options, and what else was set of the socket.
pub(super) fn settle_kernel_socket(kernel: &OwnedFd, from: &Detached, settings: &Settings) {
    // What was held back for MSG_MORE looks corked, and nobody would uncork it.
    let cork = from.options.cork && !settings.is_held_back;
    let options = TcpOptions { cork, ..TcpOptions::clone(&from.options) };
    super::option_table::set_at_kernel(kernel.as_raw_fd(), &options);
    settings.set_at_kernel(kernel.as_raw_fd());
    if from.write_closed && !from.fin_sent {
        // The connection is there and open: nothing to fail.
        let _ = syscall::shutdown(kernel.as_raw_fd(), libc::SHUT_WR);
    }
}
