//! Waits until a connection that this process inherited is the kernel's.

use std::sync::MutexGuard;

use crate::errno::{Errno, fail};
use crate::ids::SocketId;
use crate::process::{Process, State};
use crate::request::Verdict;
use crate::socket::{Place, Role};
use crate::wait::on::{On, Stop, Waiting};

/// Connections that a process asks its parent for at a time. Threads that each ask for one have the rest of the broker's 64.
const ASKED_AT_A_TIME: usize = 32;

impl State {
    /// Asks for a connection that this process inherited, once; false if there is no parent to ask.
    fn ask_for_inherited(&mut self, id: SocketId) -> bool {
        let Some(Role::Stream(Place::FromParent(inherited))) =
            self.sockets.get(id).map(|socket| &socket.role)
        else {
            return false;
        };
        let (local, remote) = (inherited.local, inherited.remote);
        if inherited.request.is_some() {
            return true;
        }
        if let Some(kernel) = self.take_legacy(id) {
            self.go_on_with(id, kernel);
            return true;
        }
        self.reach();
        let request = self.attachment().and_then(|attachment| attachment.begin_inherit(local, remote));
        if let Some(Role::Stream(Place::FromParent(inherited))) =
            self.sockets.get_mut(id).map(|socket| &mut socket.role)
        {
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
        if !matches!(
            state.sockets.get(id).map(|socket| &socket.role),
            Some(Role::Stream(Place::FromParent(_)))
        ) {
            return Ok(());
        }
        if !state.ask_for_inherited(id) {
            return fail(libc::ECONNRESET);
        }
        let waiting = Waiting { on: On::Socket(id, None), deadline: None, mask: None, restarts: true };
        let result = self.wait(state, &waiting, &mut |state, now| {
            state.hear(now);
            match state.sockets.get(id).map(|socket| &socket.role) {
                Some(Role::Stream(Place::FromParent(_))) => None,
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
    pub(crate) fn inherit_for_kernel<T>(&self, state: MutexGuard<'_, State>, id: SocketId) -> Verdict<T> {
        self.inherit(state, id).map_or_else(|errno| Verdict::Done(Err(errno)), |()| Verdict::Kernel)
    }

    /// The same for several; the answers take their time together, for as many as the broker lets one process ask at a time.
    pub(crate) fn inherit_all(&self, ids: &[SocketId]) {
        for ids in ids.chunks(ASKED_AT_A_TIME) {
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
    }
}
