//! getsockopt(2) and setsockopt(2).

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use clock::{Duration, Instant};
use stack::{ConnectionId, TcpOptions};

use super::option_table::{Row, TABLE, VALUE_MAX, find};
use super::tcp_info::linux_tcp_info;
use super::{Role, SocketId};
use crate::Errno;
use crate::calls::Verdict;
use crate::errno::fail;
use crate::internal::close;
use crate::process::{Process, State};

/// Options without effect on the stack that connections inherit from their listener and tell.
const KEPT: &[(i32, i32)] = &[
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT),
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO),
    (libc::SOL_SOCKET, libc::SO_PRIORITY),
    (libc::SOL_SOCKET, libc::SO_MARK),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::SOL_SOCKET, libc::SO_DONTROUTE),
    (libc::SOL_SOCKET, libc::SO_BROADCAST),
    (libc::SOL_IPV6, libc::IPV6_V6ONLY),
];

/// An option and its value.
type Kept = (i32, i32, Vec<u8>);

/// What a socket was set to that the stack has no use for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    kept: Option<Arc<Vec<Kept>>>,
    /// `MSG_MORE` holds back what was sent.
    pub(crate) is_held_back: bool,
}

impl Settings {
    fn get(&self, level: i32, option: i32) -> Option<&[u8]> {
        let kept = self.kept.as_ref()?;
        kept.iter().find(|kept| (kept.0, kept.1) == (level, option)).map(|kept| &*kept.2)
    }

    fn set(&mut self, level: i32, option: i32, value: &[u8]) {
        let kept = Arc::make_mut(self.kept.get_or_insert_default());
        kept.retain(|kept| (kept.0, kept.1) != (level, option));
        kept.push((level, option, value.to_vec()));
    }

    fn time(&self, option: i32) -> Option<Duration> {
        let value = self.get(libc::SOL_SOCKET, option)?;
        let seconds = i64::from_ne_bytes(*value.first_chunk()?);
        let micros = i64::from_ne_bytes(*value.get(8..)?.first_chunk()?);
        let time = Duration::from_secs(seconds as u64) + Duration::from_micros(micros as u64);
        Some(time).filter(|time| !time.is_zero())
    }

    /// Whether an int of `SOL_SOCKET` was set to something.
    pub(crate) fn is_on(&self, option: i32) -> bool {
        self.get(libc::SOL_SOCKET, option).is_some_and(|value| value.iter().any(|octet| *octet != 0))
    }

    /// `SO_RCVTIMEO`, if one is set.
    pub(crate) fn receive_timeout(&self) -> Option<Duration> {
        self.time(libc::SO_RCVTIMEO)
    }

    /// `SO_SNDTIMEO`, if one is set.
    pub(crate) fn send_timeout(&self) -> Option<Duration> {
        self.time(libc::SO_SNDTIMEO)
    }

    /// `SO_RCVLOWAT`.
    pub(crate) fn receive_low_water(&self) -> usize {
        if self.kept.is_none() {
            return 1;
        }
        let value = self.get(libc::SOL_SOCKET, libc::SO_RCVLOWAT).and_then(|value| value.first_chunk());
        value.map_or(1, |octets| usize::try_from(i32::from_ne_bytes(*octets)).unwrap_or(usize::MAX))
    }
}

/// A fresh socket of the kernel, to ask what Linux would do.
fn scratch(domain: i32) -> Result<OwnedFd, Errno> {
    Ok(syscall::socket(domain, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0)?)
}

fn read(fd: RawFd, level: i32, option: i32) -> Option<Vec<u8>> {
    let mut value = [0; VALUE_MAX];
    let len = syscall::getsockopt(fd, level, option, &mut value).ok()?;
    Some(value[..len.min(VALUE_MAX)].to_vec())
}

/// The options that were set at a socket of the kernel: those in which it differs from a fresh one.
pub(crate) fn options_of_shadow(fd: RawFd, domain: i32) -> (TcpOptions, Settings) {
    let (mut options, mut settings) = (TcpOptions::default(), Settings::default());
    let Ok(fresh) = scratch(domain) else { return (options, settings) };
    let differs = |level, option| {
        let value = read(fd, level, option)?;
        (read(fresh.as_raw_fd(), level, option).as_ref() != Some(&value)).then_some(value)
    };
    for row in TABLE {
        if let Some(value) = differs(row.level, row.option) {
            (row.apply)(&mut options, &value);
        }
    }
    for &(level, option) in KEPT {
        if let Some(value) = differs(level, option) {
            settings.set(level, option, &value);
        }
    }
    close(fresh);
    (options, settings)
}

impl Process {
    /// setsockopt(2).
    pub(crate) fn setsockopt(&self, fd: RawFd, level: i32, option: i32, value: &[u8]) -> Verdict<()> {
        let mut state = self.lock();
        let Some(id) = state.socket_of(fd) else { return Verdict::Kernel };
        let Some(socket) = state.sockets.get(id) else { return Verdict::Kernel };
        let now = self.now();
        match &socket.role {
            Role::Connection(connection) => {
                let connection = *connection;
                let result = state.set_option(id, connection, (level, option), value, now);
                state.leave(now);
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
            Role::Inherited(_) => match self.inherit(state, id) {
                Ok(()) => Verdict::Kernel,
                Err(errno) => Verdict::Done(Err(errno)),
            },
            Role::Departing { .. } | Role::Failed => {
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
        if (level, option) == (libc::SOL_SOCKET, libc::SO_ERROR) && !socket.is_shadow() {
            let error = state.take_error(id).map_or(0, |errno| errno.0);
            return Verdict::Done(put(&error.to_ne_bytes(), value));
        }
        match &socket.role {
            Role::Connection(connection) => {
                let connection = *connection;
                Verdict::Done(state.get_option(id, connection, (level, option), value, now))
            }
            Role::Udp(_) if (level, option) == (libc::SOL_SOCKET, libc::SO_ERROR) => {
                match state.take_udp_error(id) {
                    Some(errno) => Verdict::Done(put(&errno.0.to_ne_bytes(), value)),
                    None => Verdict::Kernel,
                }
            }
            _ => Verdict::Kernel,
        }
    }
}

/// Writes as much of an option as there is room for.
fn put(octets: &[u8], value: &mut [u8]) -> Result<usize, Errno> {
    let len = octets.len().min(value.len());
    value[..len].copy_from_slice(&octets[..len]);
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
            if let Some(stack) = self.stack() {
                stack.set_quick_ack(connection, on, now);
            }
            return Ok(());
        }
        let row = find(level, option);
        if let Some(row) = row.filter(|_| is_plain_switch(level, option)) {
            let switch: [u8; 4] = *value.first_chunk().ok_or(Errno(libc::EINVAL))?;
            return self.apply(connection, row, &switch, now);
        }
        let domain = self.sockets.get(id).ok_or(Errno(libc::EBADF))?.domain;
        let judge = scratch(domain)?;
        let judged = syscall::setsockopt(judge.as_raw_fd(), level, option, value);
        let read = read(judge.as_raw_fd(), level, option);
        close(judge);
        judged?;
        let value = read.as_deref().unwrap_or(value);
        if let Some(row) = row {
            return self.apply(connection, row, value, now);
        }
        let socket = self.sockets.get_mut(id).ok_or(Errno(libc::EBADF))?;
        socket.settings.set(level, option, value);
        match (level, option) {
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => {
                socket.receive_timeout = socket.settings.receive_timeout();
            }
            (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => socket.send_timeout = socket.settings.send_timeout(),
            _ => {}
        }
        Ok(())
    }

    fn apply(
        &mut self,
        connection: ConnectionId,
        row: &Row,
        value: &[u8],
        now: Instant,
    ) -> Result<(), Errno> {
        let Some(stack) = self.stack() else { return Ok(()) };
        let Some(options) = stack.options(connection) else { return fail(libc::EINVAL) };
        let mut changed = TcpOptions::clone(options);
        (row.apply)(&mut changed, value);
        if changed != **options {
            stack.set_options(connection, Arc::new(changed), now);
        }
        Ok(())
    }

    fn get_option(
        &mut self,
        id: SocketId,
        connection: ConnectionId,
        (level, option): (i32, i32),
        value: &mut [u8],
        now: Instant,
    ) -> Result<usize, Errno> {
        let socket = self.sockets.get(id).ok_or(Errno(libc::EBADF))?;
        if let Some(kept) = socket.settings.get(level, option) {
            return put(kept, value);
        }
        let domain = socket.domain;
        if let Some(stack) = self.stack() {
            let info = stack.info(connection, now);
            match ((level, option), info) {
                ((libc::SOL_TCP, libc::TCP_INFO), Some(info)) => return put(&linux_tcp_info(&info), value),
                ((libc::SOL_TCP, libc::TCP_MAXSEG), Some(info)) => {
                    return put(&info.snd_mss.to_ne_bytes(), value);
                }
                ((libc::SOL_TCP, libc::TCP_QUICKACK), Some(_)) => {
                    return put(&i32::from(stack.is_quick_ack(connection)).to_ne_bytes(), value);
                }
                ((libc::SOL_IP, libc::IP_MTU) | (libc::SOL_IPV6, libc::IPV6_MTU), Some(info)) => {
                    return put(&info.pmtu.to_ne_bytes(), value);
                }
                _ => {}
            }
            if let Some(told) = find(level, option).and_then(|row| (row.tell)(stack.options(connection)?)) {
                return put(&told, value);
            }
        }
        let default = scratch(domain)?;
        let result = syscall::getsockopt(default.as_raw_fd(), level, option, value).map_err(Errno::from);
        close(default);
        result
    }
}

/// Options whose value may be any int, and that are set often enough for a system call to matter.
fn is_plain_switch(level: i32, option: i32) -> bool {
    matches!(
        (level, option),
        (libc::SOL_TCP, libc::TCP_NODELAY | libc::TCP_CORK) | (libc::SOL_SOCKET, libc::SO_KEEPALIVE)
    )
}
