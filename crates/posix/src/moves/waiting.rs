//! Connections that wait for `accept` move to the kernel, for whoever has the listener to accept.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use clock::Instant;
use stack::ListenerId;
use stack::tcp::Detached;

use crate::broker_side::{CameOfBegun, ClaimId, Enqueued, NotMoved, RequestId};
use crate::descriptors::internal::{close, copy};
use crate::ids::SocketId;
use crate::kinship::Ends;
use crate::moves::to_kernel::{Terms, WaitsAgain};
use crate::process::State;
use crate::queue::{AcceptedAs, Begun, Heir};
use crate::socket::{READABLE, Role, Socket};

impl State {
    /// Another process left a connection to us.
    pub(crate) fn on_adopt(&mut self, claim: ClaimId, connection: OwnedFd, now: Instant) {
        let has_it = |socket: &Socket| socket.claim.or(socket.left) == Some(claim);
        let listener = self.sockets.iter().find(|(_, socket)| has_it(socket)).map(|(id, _)| id);
        // It was closed a moment ago: then a third one is to have it.
        let Some(id) = listener else { return self.move_to_sibling(connection) };
        if let Some(Role::Listener { adopted, .. }) = self.sockets.get_mut(id).map(|socket| &mut socket.role)
        {
            adopted.push_back(connection);
            self.raise(id, READABLE);
            self.note_arrival(id, now);
        }
    }

    /// Takes the connections that wait at a listener off the stack. They wait at the shadow from now on. The heir gets the kernel's sockets of those that
    /// cannot, and what others have left to us. False if none waited: then nothing was taken in either. The error if some wait on, as the broker
    /// does not take them at once, or is in the middle of that.
    pub(crate) fn leave_waiting(
        &mut self,
        id: SocketId,
        heir: Heir,
        terms: Terms,
        now: Instant,
    ) -> Result<bool, WaitsAgain> {
        if terms == Terms::Tried && now < self.tried_again_at {
            return Err(WaitsAgain);
        }
        let detached = self.detach_waiting(id, now);
        let were_any = !detached.is_empty();
        let (moved, stay) = match were_any {
            true => self.move_waiting_to_kernel(id, heir, detached, terms),
            false => (Vec::new(), false),
        };
        if stay {
            self.try_again_later();
        }
        let adopted = match heir {
            Heir::Others | Heir::AtPort if !stay => self.take_adopted(id),
            _ => VecDeque::new(),
        };
        let were_any = were_any || !adopted.is_empty();
        for socket in adopted.into_iter().chain(moved) {
            self.leave_to(heir, id, socket);
        }
        let is_done = !stay && (terms == Terms::Must || self.queue.begun.is_empty());
        if is_done { Ok(were_any) } else { Err(WaitsAgain) }
    }

    /// The kernel's socket of a connection that waited at a listener.
    fn leave_to(&mut self, heir: Heir, listener: SocketId, socket: OwnedFd) {
        match (heir, self.sockets.get_mut(listener).map(|socket| &mut socket.role)) {
            (Heir::Kernel, Some(Role::Listener { adopted, .. })) => adopted.push_back(socket),
            _ => self.move_to_sibling(socket),
        }
    }

    fn detach_waiting(&mut self, id: SocketId, now: Instant) -> Vec<Detached> {
        let listener = self.listener_on_stack(id);
        let stack = self.queue.stack();
        listener
            .zip(stack)
            .map(|(listener, stack)| stack.detach_accept_queue(listener, now))
            .unwrap_or_default()
    }

    pub(crate) fn listener_on_stack(&self, id: SocketId) -> Option<ListenerId> {
        match self.sockets.get(id)?.role {
            Role::Listener { on_stack, .. } => on_stack,
            _ => None,
        }
    }

    /// What others have left to a listener.
    fn take_adopted(&mut self, id: SocketId) -> VecDeque<OwnedFd> {
        match self.sockets.get_mut(id).map(|socket| &mut socket.role) {
            Some(Role::Listener { adopted, .. }) => std::mem::take(adopted),
            _ => VecDeque::new(),
        }
    }

    /// Has connections that waited at a listener, and are off the stack, wait in the kernel's accept queue. Of those that cannot, but for those that are
    /// lost, returns the kernel's sockets, with what accepted sockets have from their listener; and whether some wait at the stack again, as nobody took
    /// what may stay. Those with which the broker is not done yet are the broker's until it is.
    fn move_waiting_to_kernel(
        &mut self,
        id: SocketId,
        heir: Heir,
        waiting: Vec<Detached>,
        terms: Terms,
    ) -> (Vec<OwnedFd>, bool) {
        let Some(listener) = self.sockets.get(id) else { return (Vec::new(), false) };
        let accepted_as = (listener.kind_to_move(), listener.settings.clone());
        let (mut moved, mut stay) = (Vec::new(), false);
        let outcomes = self.enqueue(id, heir, &waiting, terms);
        for (connection, outcome) in waiting.into_iter().zip(outcomes) {
            match outcome {
                Enqueued::Done(outcome) => {
                    match self.settle_enqueued(&connection, or_stay(outcome, stay), &accepted_as, terms) {
                        Err(WaitsAgain) => {
                            self.wait_again(id, &connection);
                            stay = true;
                        }
                        Ok(kernel) => moved.extend(kernel),
                    }
                }
                Enqueued::Begun(request) => {
                    self.note_begun(request, connection, (id, heir, &accepted_as));
                }
            }
        }
        self.follow_moved();
        (moved, stay)
    }

    /// The broker has said what came of a connection that was to wait there. The kernel's socket of one that does not, and is not lost. One that may stay
    /// does so, if nobody takes it at once.
    fn settle_enqueued(
        &mut self,
        connection: &Detached,
        enqueued: Result<(), NotMoved>,
        accepted_as: &AcceptedAs,
        terms: Terms,
    ) -> Result<Option<OwnedFd>, WaitsAgain> {
        match enqueued {
            Ok(()) => self.left_to_kernel.moved += 1,
            Err(NotMoved::Lost) => self.reset_lost(connection),
            Err(NotMoved::NotYet) => return Err(WaitsAgain),
            Err(why @ (NotMoved::Refused | NotMoved::Never)) => {
                self.queue.stalls.is_pushed |= why == NotMoved::Never;
                return self.move_detached(connection, accepted_as, terms);
            }
        }
        Ok(None)
    }

    fn note_begun(
        &mut self,
        request: RequestId,
        connection: Detached,
        (listener, heir, accepted_as): (SocketId, Heir, &AcceptedAs),
    ) {
        match self.queue.begun.last_mut().filter(|last| last.request == request) {
            Some(last) => last.connections.push(connection),
            None => {
                let (connections, accepted_as) = (vec![connection], accepted_as.clone());
                self.queue.begun.push(Begun { request, listener, heir, connections, accepted_as });
            }
        }
    }

    /// A listener goes, or the process: what the broker has begun is waited for. What it refuses then could go nowhere later. Returns what time it is then.
    pub(crate) fn settle_begun(&mut self, now: Instant) -> Instant {
        if self.queue.begun.is_empty() {
            return now;
        }
        self.drive_until(|state| {
            state.hear_of_begun();
            state.queue.begun.is_empty()
        });
        while let Some(request) = self.queue.begun.first().map(|begun| begun.request) {
            let attachment = self.attachment();
            let enqueued = attachment.map_or(Err(NotMoved::Lost), |it| it.await_enqueued(request));
            self.on_enqueued(request, enqueued);
        }
        self.clock.now()
    }

    /// What has come of that by now.
    pub(crate) fn hear_of_begun(&mut self) {
        let requests: Vec<RequestId> = self.queue.begun.iter().map(|begun| begun.request).collect();
        for request in requests {
            let enqueued = self.attachment().and_then(|attachment| attachment.look_at_enqueued(request));
            enqueued.into_iter().for_each(|enqueued| self.on_enqueued(request, enqueued));
        }
    }

    /// The broker is done with connections that were to wait in the kernel's accept queue; an error if nobody knows of any.
    pub(crate) fn on_enqueued(&mut self, request: RequestId, enqueued: CameOfBegun) {
        for begun in self.queue.begun.extract_if(.., |begun| begun.request == request).collect::<Vec<_>>() {
            let may_stay = self.listener_on_stack(begun.listener).is_some();
            let terms = if may_stay { Terms::Tried } else { Terms::Must };
            let mut stay = false;
            for (at, connection) in begun.connections.iter().enumerate() {
                let outcome = enqueued.as_ref().map_or_else(|why| Err(*why), |outcomes| outcomes[at]);
                match self.settle_enqueued(connection, or_stay(outcome, stay), &begun.accepted_as, terms) {
                    Err(WaitsAgain) => {
                        self.wait_again(begun.listener, connection);
                        stay = true;
                    }
                    Ok(kernel) => {
                        kernel.into_iter().for_each(|it| self.leave_to(begun.heir, begun.listener, it));
                    }
                }
            }
            if stay {
                self.try_again_later();
            }
        }
        self.follow_moved();
    }

    /// Whether the broker is about to move the connection with these ends.
    pub(crate) fn has_begun(&self, ends: Ends) -> bool {
        let connections = self.queue.begun.iter().flat_map(|begun| &begun.connections);
        connections.map(|it| (it.connection.local, it.connection.remote)).any(|of| of == ends)
    }

    /// What came of each. Who waits at a listener that goes, and that nobody else has, could only be reset there.
    fn enqueue(&mut self, id: SocketId, heir: Heir, waiting: &[Detached], terms: Terms) -> Vec<Enqueued> {
        let refused = || vec![Enqueued::Done(Err(NotMoved::Refused)); waiting.len()];
        let listener = self.sockets.get(id).filter(|_| heir != Heir::AtPort);
        let Some(listener) = listener.and_then(|socket| copy(socket.fd())) else {
            return refused();
        };
        let connections: Vec<_> = waiting.iter().map(|detached| &detached.connection).collect();
        let offered_for = terms.offered_for(connections.iter().map(|it| it.received.len()).sum());
        let attachment = self.attachment();
        let enqueued =
            attachment.map_or_else(refused, |it| it.enqueue(&connections, listener.as_fd(), offered_for));
        close(listener);
        enqueued
    }

    /// A connection that nobody took waits at our listener as before, behind those that came meanwhile.
    fn wait_again(&mut self, id: SocketId, connection: &Detached) {
        let now = self.clock.now();
        let listener = self.listener_on_stack(id);
        let back = listener
            .zip(self.queue.stack())
            .map(|(listener, stack)| stack.attach_waiting(connection, (listener, connection.hop), now));
        if !matches!(back, Some(Ok(_))) {
            self.reset_lost(connection);
        }
    }

    /// Some other process that has the listener is to have a connection that waited there.
    pub(crate) fn move_to_sibling(&mut self, socket: OwnedFd) {
        match self.attachment() {
            Some(attachment) => attachment.move_to_sibling(socket),
            None => close(socket),
        }
    }
}

/// Nobody waits for a broker again that has stopped meanwhile: what it refused may stay.
fn or_stay(outcome: Result<(), NotMoved>, stay: bool) -> Result<(), NotMoved> {
    match outcome {
        Err(NotMoved::Refused | NotMoved::Never) if stay => Err(NotMoved::NotYet),
        outcome => outcome,
    }
}
