//! Waits until a connection that begins is there.

use std::sync::MutexGuard;

use clock::Instant;

use crate::errno::{Errno, fail};
use crate::ids::SocketId;
use crate::process::{Process, State};
use crate::wait::on::{On, Stop, Waiting};

impl Process {
    /// Waits until the handshake is over, one way or the other; what `conclude` says of it then.
    pub(crate) fn wait_connected<T>(
        &self,
        state: MutexGuard<'_, State>,
        id: SocketId,
        conclude: impl Fn(&mut State, Instant) -> T,
    ) -> Result<T, Stop> {
        let timeout = state.sockets.get(id).and_then(|socket| socket.send_timeout);
        let deadline = timeout.map(|timeout| self.now() + timeout);
        let waiting = Waiting { on: On::Socket(id, None), deadline, mask: None, restarts: timeout.is_none() };
        self.wait(state, &waiting, &mut |state, now| {
            state.hear(now);
            (!state.is_connecting(id)).then(|| conclude(state, now))
        })
    }

    /// Called to send or receive on a socket whose route is not known yet: waits until the socket is a connection, or the kernel's.
    pub(crate) fn wait_routed(
        &self,
        state: MutexGuard<'_, State>,
        id: SocketId,
        flags: i32,
    ) -> Result<(), Errno> {
        if flags & libc::MSG_DONTWAIT != 0 || !socket_is_patient(&state, id) {
            return fail(libc::EAGAIN);
        }
        self.wait_connected(state, id, |_, _| ()).or_else(|stop| match stop {
            Stop::TimedOut => fail(libc::EAGAIN),
            Stop::Interrupted => fail(libc::EINTR),
        })
    }
}

pub(crate) fn socket_is_patient(state: &State, id: SocketId) -> bool {
    state.sockets.get(id).is_some_and(|socket| !socket.nonblocking)
}
