//! getsockopt(2) and setsockopt(2).

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use clock::Instant;
use stack::{ConnectionId, TcpOptions};

use crate::calls::option_value::put;
use crate::descriptors::internal::close;
use crate::errno::{Errno, fail};
use crate::ids::SocketId;
use crate::process::{Process, State};
use crate::request::Verdict;
use crate::socket::kernel_only::Setting;
use crate::socket::option_table::{Row, find};
use crate::socket::settings::read;
use crate::socket::{Place, Role, judge};

impl State {
    /// The error of a UDP socket that the stack has, once.
    pub(crate) fn take_udp_error(&mut self, id: SocketId) -> Option<Errno> {
        let Role::Udp(udp) = &self.sockets.get(id)?.role else { return None };
        let on_stack = udp.on_stack?;
        self.queue.stack()?.udp_take_error(on_stack).map(Errno::from)
    }
}

impl Process {
    /// setsockopt(2).
    pub(crate) fn setsockopt(&self, fd: RawFd, level: i32, option: i32, value: &[u8]) -> Verdict<()> {
        let mut state = self.lock();
        let Some(id) = state.socket_of(fd) else { return Verdict::Kernel };
        let Some(socket) = state.sockets.get_mut(id) else { return Verdict::Kernel };
        socket.touched.note(level, option);
        let setting = Setting { level, option, value };
        if let Some(reason) = setting.kernel_only() {
            return self.set_kernel_only(state, id, setting, reason);
        }
        let now = self.now();
        match &socket.role {
            Role::Stream(Place::Stack(connection)) => {
                let connection = *connection;
                let result = state.set_option(id, connection, (level, option), value, now);
                state.queue.leave(now);
                Verdict::Done(result)
            }
            Role::Listener { on_stack: Some(_), .. } => {
                let result = syscall::setsockopt(fd, level, option, value).map_err(Errno::from);
                state.refresh_listener(id);
                Verdict::Done(result)
            }
            Role::Udp(udp) if udp.on_stack.is_some() => {
                let result = syscall::setsockopt(fd, level, option, value).map_err(Errno::from);
                state.refresh_udp(id);
                Verdict::Done(result)
            }
            Role::Listener { .. } | Role::Udp(_) if socket.claim.is_some() => {
                let result = syscall::setsockopt(fd, level, option, value).map_err(Errno::from);
                state.refresh_timeout(id);
                Verdict::Done(result)
            }
            Role::Stream(Place::FromParent(_)) => self.inherit_for_kernel(state, id),
            Role::Stream(Place::ToStack { .. } | Place::Lost) => {
                let result = syscall::setsockopt(fd, level, option, value).map_err(Errno::from);
                Verdict::Done(result)
            }
            _ => Verdict::Kernel,
        }
    }

    /// getsockopt(2).
    pub(crate) fn getsockopt(&self, fd: RawFd, level: i32, option: i32, value: &mut [u8]) -> Verdict<usize> {
        let mut state = self.lock();
        let Some(id) = state.socket_of(fd) else { return Verdict::Kernel };
        let Some(socket) = state.sockets.get(id) else { return Verdict::Kernel };
        let now = self.now();
        if (level, option) == (libc::SOL_SOCKET, libc::SO_ERROR)
            && (!socket.is_shadow() || socket.error.is_some())
        {
            let error = state.take_error(id).map_or(0, |errno| errno.0);
            return Verdict::Done(put(level, &error.to_ne_bytes(), value));
        }
        match &socket.role {
            Role::Stream(Place::Stack(_)) if (level, option) == (libc::SOL_SOCKET, libc::SO_COOKIE) => {
                self.before_identity(state, id);
                Verdict::Kernel
            }
            Role::Stream(Place::Stack(connection)) => {
                let connection = *connection;
                Verdict::Done(state.get_option(id, connection, (level, option), value, now))
            }
            Role::Stream(Place::FromParent(_)) => match constant_of(socket.domain, (level, option)) {
                Some(constant) => Verdict::Done(put(level, &constant.to_ne_bytes(), value)),
                None => self.inherit_for_kernel(state, id),
            },
            Role::Stream(Place::ToStack { .. }) if (level, option) == (libc::SOL_TCP, libc::TCP_INFO) => {
                Verdict::Done(info_before_route(fd, value))
            }
            Role::Listener { on_stack: Some(_), .. }
                if (level, option) == (libc::SOL_TCP, libc::TCP_INFO) =>
            {
                Verdict::Done(state.listener_info(id, fd, value))
            }
            Role::Udp(_) if (level, option) == (libc::SOL_SOCKET, libc::SO_ERROR) => {
                match state.take_udp_error(id) {
                    Some(errno) => Verdict::Done(put(level, &errno.0.to_ne_bytes(), value)),
                    None => Verdict::Kernel,
                }
            }
            _ => Verdict::Kernel,
        }
    }
}

/// What is the same of every TCP connection: who only asks what it has got need not have it.
fn constant_of(domain: i32, (level, option): (i32, i32)) -> Option<i32> {
    match (level, option) {
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => Some(domain),
        (libc::SOL_SOCKET, libc::SO_TYPE) => Some(libc::SOCK_STREAM),
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) => Some(libc::IPPROTO_TCP),
        (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => Some(0),
        _ => None,
    }
}

/// The shadow of a connection that is about to begin knows nothing of it.
fn info_before_route(fd: RawFd, value: &mut [u8]) -> Result<usize, Errno> {
    const SYN_SENT: u8 = 2;
    let len = syscall::getsockopt(fd, libc::SOL_TCP, libc::TCP_INFO, value)?;
    if let Some(state) = value.first_mut() {
        *state = SYN_SENT;
    }
    Ok(len)
}

impl State {
    fn set_option(
        &mut self,
        id: SocketId,
        connection: ConnectionId,
        (level, option): (i32, i32),
        value: &[u8],
        now: Instant,
    ) -> Result<(), Errno> {
        if (level, option) == (libc::SOL_TCP, libc::TCP_QUICKACK) {
            let on = i32::from_ne_bytes(*value.first_chunk().ok_or(Errno(libc::EINVAL))?) != 0;
            if let Some(stack) = self.queue.stack() {
                stack.set_quick_ack(connection, on, now);
            }
            return Ok(());
        }
        if is_plain_switch(level, option) {
            let switch = i32::from_ne_bytes(*value.first_chunk().ok_or(Errno(libc::EINVAL))?);
            let is_on = i32::from(switch != 0).to_ne_bytes();
            self.take(id, connection, (level, option), &is_on, now)?;
            if lets_go(level, option, switch != 0) {
                self.queue.stack().into_iter().for_each(|stack| stack.push(connection, now));
            }
            return Ok(());
        }
        if (level, option) == (libc::SOL_SOCKET, libc::SO_LINGER) && is_linger_without_time(value) {
            let at_once = [1i32.to_ne_bytes(), 0i32.to_ne_bytes()].concat();
            return self.take(id, connection, (level, option), &at_once, now);
        }
        let domain = self.sockets.get(id).ok_or(Errno(libc::EBADF))?.domain;
        let judge = judge::of_connections(domain, level, option)?;
        let judged = syscall::setsockopt(judge.as_raw_fd(), level, option, value);
        let changed = changed_by(level, option);
        let told: Vec<_> = changed.iter().map(|it| (*it, read(judge.as_raw_fd(), it.0, it.1))).collect();
        close(judge);
        judged?;
        for (changed, told) in told {
            // What cannot be read back, can be told only as it was set.
            self.take(id, connection, changed, told.as_deref().unwrap_or(value), now)?;
        }
        Ok(())
    }

    /// An option has this value now: the stack follows, and what it would not tell so is remembered.
    fn take(
        &mut self,
        id: SocketId,
        connection: ConnectionId,
        (level, option): (i32, i32),
        value: &[u8],
        now: Instant,
    ) -> Result<(), Errno> {
        let row = find(level, option).filter(|row| !row.is_of_the_beginning);
        let is_told = match row {
            Some(row) => self.apply(connection, row, value, now)?,
            None => false,
        };
        let socket = self.sockets.get_mut(id).ok_or(Errno(libc::EBADF))?;
        if is_told {
            socket.settings.forget(level, option);
            return Ok(());
        }
        socket.settings.set(level, option, value);
        match (level, option) {
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => {
                socket.receive_timeout = socket.settings.receive_timeout();
            }
            (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => socket.send_timeout = socket.settings.send_timeout(),
            (libc::SOL_SOCKET, libc::SO_TIMESTAMPING) => self.begin_send_times(id, connection, now),
            _ => {}
        }
        Ok(())
    }

    /// Returns whether the stack reports the same value from now on.
    fn apply(
        &mut self,
        connection: ConnectionId,
        row: &Row,
        value: &[u8],
        now: Instant,
    ) -> Result<bool, Errno> {
        let Some(stack) = self.queue.stack() else { return Ok(true) };
        let Some(options) = stack.options(connection) else { return fail(libc::EINVAL) };
        let mut changed = TcpOptions::clone(options);
        (row.apply)(&mut changed, value);
        let is_told = row.tells(&changed, value);
        if changed != **options {
            stack.set_options(connection, Arc::new(changed), now);
        }
        Ok(is_told)
    }

    fn get_option(
        &mut self,
        id: SocketId,
        connection: ConnectionId,
        (level, option): (i32, i32),
        value: &mut [u8],
        now: Instant,
    ) -> Result<usize, Errno> {
        if let Some(result) = self.get_of_connection(id, connection, (level, option), value, now) {
            return result;
        }
        let socket = self.sockets.get(id).ok_or(Errno(libc::EBADF))?;
        if let Some(kept) = socket.settings.get(level, option) {
            return put(level, kept, value);
        }
        let domain = socket.domain;
        let row = find(level, option).filter(|row| !row.is_of_the_beginning);
        if let Some(told) = row.and_then(|row| (row.tell)(self.queue.stack()?.options(connection)?)) {
            return put(level, &told, value);
        }
        judge::get(domain, level, option, value)
    }
}

/// The options that change when one is set, itself first if it can be read.
fn changed_by(level: i32, option: i32) -> Vec<(i32, i32)> {
    const TIMES: [i32; 4] = [libc::SO_TIMESTAMP, libc::SO_TIMESTAMPNS, 63, 64];
    const SPANS: [i32; 2] = [libc::SO_TIMESTAMPING, 65];
    let of_sockets = |options: &[i32]| options.iter().map(|option| (libc::SOL_SOCKET, *option)).collect();
    match (level, option) {
        (libc::SOL_SOCKET, libc::SO_SNDBUFFORCE) => of_sockets(&[libc::SO_SNDBUF]),
        (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE) => of_sockets(&[libc::SO_RCVBUF]),
        (libc::SOL_SOCKET, 66) => of_sockets(&[libc::SO_RCVTIMEO]),
        (libc::SOL_SOCKET, 67) => of_sockets(&[libc::SO_SNDTIMEO]),
        (libc::SOL_SOCKET, option) if TIMES.contains(&option) => of_sockets(&TIMES),
        (libc::SOL_SOCKET, option) if SPANS.contains(&option) => of_sockets(&SPANS),
        (libc::SOL_IP, libc::IP_TOS) => vec![(level, option), (libc::SOL_SOCKET, libc::SO_PRIORITY)],
        _ => vec![(level, option)],
    }
}

/// Options whose value may be any int, and that are set often enough for a system call to matter.
fn is_plain_switch(level: i32, option: i32) -> bool {
    matches!(
        (level, option),
        (libc::SOL_TCP, libc::TCP_NODELAY | libc::TCP_CORK) | (libc::SOL_SOCKET, libc::SO_KEEPALIVE)
    )
}

/// Whether to set this sends what is held back, also if it was set before.
fn lets_go(level: i32, option: i32, is_on: bool) -> bool {
    let lets_go_by = [(libc::TCP_NODELAY, true), (libc::TCP_CORK, false)];
    level == libc::SOL_TCP && lets_go_by.contains(&(option, is_on))
}

/// Whether this is a `struct linger` by which closing resets: proxies set one for each connection.
fn is_linger_without_time(value: &[u8]) -> bool {
    value.first_chunk::<8>().is_some_and(|linger| linger[..4] != [0; 4] && linger[4..] == [0; 4])
}
