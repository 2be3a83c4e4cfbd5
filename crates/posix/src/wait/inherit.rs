//! Waits until a connection that this process inherited is the kernel's.

use std::sync::MutexGuard;

use clock::{Duration, Instant};

use crate::broker_side::Asked;
use crate::errno::{Errno, fail};
use crate::ids::SocketId;
use crate::process::{Process, State};
use crate::request::Verdict;
use crate::socket::{Place, Role};
use crate::wait::on::{On, Stop, Waiting};

/// Connections that a process asks its parent for at a time. Threads that each ask for one have the rest of the broker's 64.
const ASKED_AT_A_TIME: usize = 32;

/// How long a broker that does not answer is waited for. After that the connection is lost.
const ASKED_WITHIN: Duration = Duration::from_secs(60);
/// Between two tries to ask.
const PAUSE: Duration = Duration::from_millis(50);

impl State {
    /// Asks for a connection that this process inherited, once.
    fn ask_for_inherited(&mut self, id: SocketId) -> Asked<()> {
        let Some(Role::Stream(Place::FromParent(inherited))) =
            self.sockets.get(id).map(|socket| &socket.role)
        else {
            return Asked::Yes(());
        };
        let (local, remote) = (inherited.local, inherited.remote);
        if inherited.request.is_some() {
            return Asked::Yes(());
        }
        if let Some(kernel) = self.take_legacy(id) {
            self.go_on_with(id, kernel);
            return Asked::Yes(());
        }
        if !self.reach() && self.attachment.as_ref().is_some_and(|attachment| attachment.may_be_reached()) {
            return Asked::NotYet;
        }
        let attachment = self.attachment();
        let request = match attachment.map_or(Asked::Nobody, |it| it.begin_inherit(local, remote)) {
            Asked::Yes(request) => request,
            Asked::NotYet => return Asked::NotYet,
            Asked::Nobody => return Asked::Nobody,
        };
        if let Some(Role::Stream(Place::FromParent(inherited))) =
            self.sockets.get_mut(id).map(|socket| &mut socket.role)
        {
            inherited.request = Some(request);
        }
        Asked::Yes(())
    }
}

impl State {
    /// What has become of a connection that the parent was asked for; `None` if nothing has yet.
    fn look_at_inherited(&mut self, id: SocketId, now: Instant) -> Option<Result<(), Errno>> {
        self.hear(now);
        match self.sockets.get(id).map(|socket| &socket.role) {
            Some(Role::Stream(Place::FromParent(_))) => None,
            Some(_) => Some(self.take_error(id).map_or(fail(libc::ECONNRESET), Err)),
            None => Some(Ok(())),
        }
    }

    /// A connection that is lost says so when it is used.
    fn keep_for_the_next_call(&mut self, id: SocketId, errno: Errno) {
        let socket = self.sockets.get_mut(id).filter(|it| matches!(it.role, Role::Stream(Place::Lost)));
        socket.into_iter().for_each(|socket| _ = socket.error.get_or_insert(errno));
    }
}

impl Process {
    /// Waits until a connection that this process inherited is the kernel's, behind the same descriptor.
    pub(crate) fn inherit<'p>(&'p self, mut state: MutexGuard<'p, State>, id: SocketId) -> Result<(), Errno> {
        if !matches!(
            state.sockets.get(id).map(|socket| &socket.role),
            Some(Role::Stream(Place::FromParent(_)))
        ) {
            return Ok(());
        }
        let until = self.now() + ASKED_WITHIN;
        loop {
            let asked = state.ask_for_inherited(id);
            let now = self.now();
            let deadline = match asked {
                Asked::Yes(()) => None,
                Asked::NotYet if now < until => Some(now + PAUSE),
                Asked::NotYet | Asked::Nobody => return fail(libc::ECONNRESET),
            };
            let waiting = Waiting { on: On::Socket(id, None), deadline, mask: None, restarts: true };
            let result = self.wait(state, &waiting, &mut |state, now| state.look_at_inherited(id, now));
            match result {
                Ok(result) => return result,
                Err(Stop::TimedOut) => state = self.lock(),
                Err(Stop::Interrupted) => return fail(libc::EINTR),
            }
        }
    }

    /// The same for a call that is the kernel's then.
    pub(crate) fn inherit_for_kernel<'p, T>(
        &'p self,
        state: MutexGuard<'p, State>,
        id: SocketId,
    ) -> Verdict<T> {
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
                if let Err(errno) = self.inherit(self.lock(), *id) {
                    self.lock().keep_for_the_next_call(*id, errno);
                }
            }
        }
    }
}
