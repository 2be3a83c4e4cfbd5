//! Connections that the kernel serves better leave, as `socket/usage.rs` finds them; so do listeners whose connections it serves better.

use clock::Instant;

use crate::broker_side::MadeBecause;
use crate::ids::SocketId;
use crate::moves::to_kernel::NOT_YET;
use crate::process::State;
use crate::socket::usage::{Experience, Unsuited, Usage};
use crate::socket::{Happening, Role, Socket, Step};

const SLEEPING_THREADS: &str = "threads sleep in calls for its connections, and others wake them";
const IDENTIFIED: &str = "the program asks which its connections are (fstat(2), SO_COOKIE)";

impl State {
    /// Whether the use of a connection does not suit the stack.
    pub(crate) fn is_unsuited(&self, id: SocketId) -> bool {
        self.sockets.get(id).is_some_and(|socket| socket.usage.unsuited().is_some())
    }

    /// Leaves such a connection to the kernel; whether it has left. One that cannot leave now may after as much use again.
    pub(crate) fn leave_unsuited(&mut self, id: SocketId, now: Instant) -> bool {
        let Some(unsuited) = self.sockets.get(id).map(|socket| socket.usage.unsuited()) else { return false };
        self.note_sleeps(id);
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.usage = Usage::default();
        }
        if !self.may_leave(id) || !self.attachment().is_some_and(|it| it.leaves_unsuited()) {
            return false;
        }
        let step = self.step(id, Happening::Unsuited);
        if step != Step::Offer {
            return false;
        }
        let moved = self.carry_out(id, step, now); // The call itself tells of a connection that was lost.
        let has_left = self.sockets.get(id).is_none();
        match unsuited {
            Some(Unsuited::Threads) => self.left_to_kernel.threads += u64::from(has_left),
            _ => self.left_to_kernel.bulk += u64::from(has_left),
        }
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.usage.stays = moved != Err(NOT_YET);
        }
        has_left
    }

    /// The sleeps of a connection that ends or leaves count with those of others that came or were made as it was.
    pub(crate) fn note_sleeps(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        let sleeps = std::mem::take(&mut socket.usage.sleeps);
        if let Some(experience) = self.experience_with(id) {
            experience.sleeps.add(sleeps);
        }
    }

    /// What is known of connections that came, or were made, as this one.
    pub(crate) fn experience_with(&mut self, id: SocketId) -> Option<&mut Experience> {
        let socket = self.sockets.get(id)?;
        match socket.listener {
            Some(listener) => match &mut self.sockets.get_mut(listener)?.role {
                Role::Listener { experience, .. } => Some(experience),
                _ => None,
            },
            None => socket.relies_on.is_some().then_some(&mut self.experience_of_made),
        }
    }

    /// Leaves a listener to the kernel whose connections are better off there.
    pub(crate) fn leave_if_unsuited(&mut self, id: SocketId, now: Instant) {
        let Some(Socket { role: Role::Listener { experience, .. }, claim: Some(claim), .. }) =
            self.sockets.get_mut(id)
        else {
            return;
        };
        let why = match experience.unsuited() {
            Some(Unsuited::Identified) => IDENTIFIED,
            Some(_) => SLEEPING_THREADS,
            None => return,
        };
        *experience = Experience::default();
        let claim = *claim;
        if self.attachment().is_some_and(|it| it.leaves_unsuited()) {
            self.leave_socket((id, claim), why, now); // If the broker has stopped, as much use again tells the same.
        }
    }

    /// Why the kernel is to make connections, if so.
    pub(crate) fn makes_unsuited(&mut self) -> Option<MadeBecause> {
        let why = match self.experience_of_made.unsuited()? {
            Unsuited::Identified => MadeBecause::Identified,
            _ => MadeBecause::Threads,
        };
        self.attachment().is_some_and(|it| it.leaves_unsuited()).then_some(why)
    }

    /// Whether nothing of a connection would stay behind: an octet that is urgent, what the program is to be told of its sends. Nor may
    /// another thread's call wait: a connection that the kernel refuses comes back with another id, and the call has the old one.
    fn may_leave(&mut self, id: SocketId) -> bool {
        let Some(socket) = self.sockets.get(id) else { return false };
        let is_bare = socket.callers.is_empty() && socket.rare.is_none();
        let Some(connection) = socket.connection().filter(|_| is_bare) else { return false };
        let ready = self.queue.stack().and_then(|stack| stack.readiness(connection));
        ready.is_some_and(|ready| !ready.urgent)
    }
}
