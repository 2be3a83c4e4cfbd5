//! getsockopt(2) for options that only a connection can answer.

use std::os::fd::RawFd;

use clock::Instant;
use stack::{ConnectionId, Stack};

use crate::address::encode;
use crate::calls::option_value::put;
use crate::errno::{Errno, fail};
use crate::ids::SocketId;
use crate::process::State;
use crate::socket::Role;
use crate::socket::tcp_info::linux_tcp_info;

impl State {
    /// `TCP_INFO` of a listener: as the kernel has it, but for what waits here.
    pub(crate) fn listener_info(
        &mut self,
        id: SocketId,
        fd: RawFd,
        value: &mut [u8],
    ) -> Result<usize, Errno> {
        /// `tcpi_unacked`, which counts a listener's queue.
        const WAITING: std::ops::Range<usize> = 24..28;
        let len = syscall::getsockopt(fd, libc::SOL_TCP, libc::TCP_INFO, value)?;
        // A peer may know that it is connected before any thread here has checked.
        let now = self.clock.now();
        self.take_in(now);
        let Some(Role::Listener { on_stack, adopted, .. }) = self.sockets.get(id).map(|socket| &socket.role)
        else {
            return Ok(len);
        };
        let (on_stack, adopted) = (*on_stack, adopted.len() as u32);
        let queued =
            on_stack.and_then(|listener| self.queue.stack()?.accept_queue(listener)).map_or(0, |it| it.0);
        if let Some(waiting) = value[..len].get_mut(WAITING).and_then(|octets| octets.first_chunk_mut::<4>())
        {
            *waiting = (u32::from_ne_bytes(*waiting) + queued + adopted).to_ne_bytes();
        }
        Ok(len)
    }
}

const TCP_SAVED_SYN: i32 = 28;
const TCP_ZEROCOPY_RECEIVE: i32 = 35;

impl State {
    /// What only a connection has to tell.
    pub(crate) fn get_of_connection(
        &mut self,
        id: SocketId,
        connection: ConnectionId,
        (level, option): (i32, i32),
        value: &mut [u8],
        now: Instant,
    ) -> Option<Result<usize, Errno>> {
        match (level, option) {
            (libc::SOL_SOCKET, libc::SO_PEERNAME) => return Some(self.peer_name(id, value)),
            (libc::SOL_SOCKET, libc::SO_INCOMING_CPU) => {
                let socket = self.sockets.get(id)?;
                let is_set = socket.settings.get(level, option).is_some();
                // Packets are worked on where the program asks for them.
                return (!is_set).then(|| put(level, &syscall::processor().to_ne_bytes(), value));
            }
            _ => {}
        }
        let stack = self.queue.stack()?;
        let int = match (level, option) {
            (libc::SOL_TCP, libc::TCP_INFO) => {
                return Some(put(level, linux_tcp_info(&stack.info(connection, now)?).octets(), value));
            }
            (libc::SOL_TCP, TCP_SAVED_SYN) => return Some(take_saved_syn(stack, connection, value)),
            (libc::SOL_TCP, TCP_ZEROCOPY_RECEIVE) => {
                return Some(nothing_to_map(stack.info(connection, now)?.unread, value));
            }
            (libc::SOL_TCP, libc::TCP_MAXSEG) => stack.info(connection, now)?.snd_mss,
            (libc::SOL_TCP, libc::TCP_QUICKACK) => u32::from(stack.is_quick_ack(connection)),
            (libc::SOL_IP, libc::IP_MTU) | (libc::SOL_IPV6, libc::IPV6_MTU) => {
                stack.info(connection, now)?.pmtu
            }
            _ => return None,
        };
        Some(put(level, &int.to_ne_bytes(), value))
    }

    /// `SO_PEERNAME`, which fails if the buffer is too large.
    fn peer_name(&mut self, id: SocketId, value: &mut [u8]) -> Result<usize, Errno> {
        let domain = self.sockets.get(id).ok_or(Errno(libc::EBADF))?.domain;
        let (_, remote) = self.endpoints(id).ok_or(Errno(libc::ENOTCONN))?;
        let (name, len) = encode(remote, domain);
        if len < value.len() { fail(libc::EINVAL) } else { put(libc::SOL_SOCKET, &name[..len], value) }
    }
}

/// `TCP_SAVED_SYN`, which can be read once.
fn take_saved_syn(stack: &mut Stack, connection: ConnectionId, value: &mut [u8]) -> Result<usize, Errno> {
    let saved = stack.saved_syn(connection).unwrap_or_default();
    let Some(room) = value.get_mut(..saved.len()) else { return fail(libc::EINVAL) };
    room.copy_from_slice(saved);
    let len = saved.len();
    stack.forget_saved_syn(connection);
    Ok(len)
}

/// `TCP_ZEROCOPY_RECEIVE`: nothing can be mapped; reports how much to read instead.
fn nothing_to_map(unread: u32, value: &mut [u8]) -> Result<usize, Errno> {
    // struct tcp_zerocopy_receive: an address, the length, how much to read instead, how much there is.
    let wanted =
        u32::from_ne_bytes(*value.get(8..).and_then(|it| it.first_chunk()).ok_or(Errno(libc::EINVAL))?);
    for (at, word) in [(8, 0), (12, unread.min(wanted)), (16, unread)] {
        if let Some(room) = value.get_mut(at..at + 4) {
            room.copy_from_slice(&word.to_ne_bytes());
        }
    }
    Ok(value.len().min(64))
}
