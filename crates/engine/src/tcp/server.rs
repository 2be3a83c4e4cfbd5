//! Passes the stack's events to a handler.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use clock::Instant;
use stack::tcp::{Events, Shutdown, State, TcpError};
use stack::timer_wheel::TimerWheel;
use stack::{ConnectionId, Event, ListenerId, Socket, Stack, TcpOptions};

use super::{Connection, TcpHandler};
use crate::application::Application;

/// Connections that wait to be accepted: those that complete within one turn of the engine.
const BACKLOG: u32 = 4096;

/// Token of connections that the handler has, or had.
const TAKEN: u64 = 1;

/// Listens, accepts, and calls a [`TcpHandler`] for what happens on its connections.
///
/// A connection that somebody begins on the stack ([`Stack::tcp_connect`]) is the handler's from its first event on: when
/// it is established, or has failed.
pub struct TcpServer<H: TcpHandler> {
    handler: H,
    addresses: BTreeSet<SocketAddr>,
    options: Arc<TcpOptions>,
    listeners: Vec<ListenerId>,
    /// By the place of the connection in the stack, which is dense.
    places: Vec<Option<Place<H::State>>>,
    deadlines: TimerWheel,
    /// Room for received data that does not lie in one piece: of one connection at a time.
    scratch: Vec<u8>,
    /// The engine is to end: the handler has no connections any more.
    stopping: bool,
}

struct Place<S> {
    id: ConnectionId,
    /// The handler knows that the peer sends no more.
    ended: bool,
    state: S,
}

impl<H: TcpHandler> TcpServer<H> {
    /// A server that listens nowhere yet.
    pub fn new(handler: H) -> TcpServer<H> {
        TcpServer {
            handler,
            addresses: BTreeSet::new(),
            options: Arc::default(),
            listeners: Vec::new(),
            places: Vec::new(),
            deadlines: TimerWheel::new(Instant::ZERO, 0),
            scratch: Vec::new(),
            stopping: false,
        }
    }

    /// Listens there too. An unspecified address stands for all of its family.
    pub fn listen(mut self, address: SocketAddr) -> TcpServer<H> {
        self.addresses.insert(address);
        self
    }

    /// What connections start with.
    pub fn with_options(mut self, options: TcpOptions) -> TcpServer<H> {
        self.options = Arc::new(options);
        self
    }

    fn accept_all(&mut self, listener: ListenerId, stack: &mut Stack, now: Instant) {
        while let Some(id) = stack.tcp_accept(listener) {
            self.take(id, stack, now);
            // It may have sent, or failed, before it was accepted: no event reports that any more.
            let failed = stack.readiness(id).is_some_and(|ready| ready.hangup || ready.error);
            let events = if failed { Events::READABLE | Events::CLOSED } else { Events::READABLE };
            self.tell(id, events, stack, now);
        }
    }

    /// Makes a connection the handler's.
    fn take(&mut self, id: ConnectionId, stack: &mut Stack, now: Instant) {
        stack.set_token(id, TAKEN);
        let (deadlines, scratch) = (&mut self.deadlines, &mut self.scratch);
        let mut connection = Connection { id, stack, deadlines, scratch, now, over: false };
        let state = self.handler.on_open(&mut connection);
        if connection.over {
            self.deadlines.cancel(id.index());
            return self.handler.on_closed(state, None);
        }
        let at = id.index() as usize;
        if self.places.len() <= at {
            self.places.resize_with(at + 1, || None);
        }
        self.places[at] = Some(Place { id, ended: false, state });
    }

    /// Calls the handler for what happened on one connection.
    fn tell(&mut self, id: ConnectionId, events: Events, stack: &mut Stack, now: Instant) {
        let place = self.places.get_mut(id.index() as usize).and_then(Option::as_mut);
        let Some(place) = place.filter(|place| place.id == id) else { return };
        let (deadlines, scratch) = (&mut self.deadlines, &mut self.scratch);
        let mut connection = Connection { id, stack, deadlines, scratch, now, over: false };
        if events.intersects(Events::READABLE | Events::READ_CLOSED) && !connection.received().is_empty() {
            self.handler.on_data(&mut place.state, &mut connection);
        }
        if events.contains(Events::WRITABLE) && !connection.over {
            self.handler.on_writable(&mut place.state, &mut connection);
        }
        if !connection.over && !place.ended && connection.received().is_empty() && connection.is_ended() {
            place.ended = true;
            self.handler.on_end(&mut place.state, &mut connection);
        }
        let mut error = None;
        if !connection.over && events.intersects(Events::CLOSED | Events::ERROR) {
            error = connection.stack.take_error(id);
            connection.close();
        }
        if connection.over {
            self.forget(id, error);
        }
    }

    fn forget(&mut self, id: ConnectionId, error: Option<TcpError>) {
        self.deadlines.cancel(id.index());
        if let Some(place) = self.places.get_mut(id.index() as usize).and_then(Option::take) {
            self.handler.on_closed(place.state, error);
        }
    }

    /// The deadline of the connection at this place has come.
    fn on_deadline(&mut self, at: usize, stack: &mut Stack, now: Instant) {
        let Some(place) = self.places.get_mut(at).and_then(Option::as_mut) else { return };
        let id = place.id;
        let (deadlines, scratch) = (&mut self.deadlines, &mut self.scratch);
        let mut connection = Connection { id, stack, deadlines, scratch, now, over: false };
        self.handler.on_timeout(&mut place.state, &mut connection);
        if connection.over {
            self.forget(id, None);
        }
    }
}

impl<H: TcpHandler> Application for TcpServer<H> {
    fn on_start(&mut self, stack: &mut Stack, _now: Instant) {
        for &address in &self.addresses {
            let options = Arc::clone(&self.options);
            // Fails only if another listener has the address, or 65 536 listeners exist.
            self.listeners.extend(stack.tcp_listen(address, false, BACKLOG, options));
        }
    }

    fn on_event(&mut self, event: Event, stack: &mut Stack, now: Instant) {
        if self.stopping {
            if let Socket::Connection(id) = event.socket {
                discard(id, stack, now);
            }
        } else if let Socket::Connection(id) = event.socket {
            if event.token != TAKEN {
                self.take(id, stack, now);
            }
            self.tell(id, event.events, stack, now);
        } else if let Socket::Listener(id) = event.socket {
            self.accept_all(id, stack, now);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.next_deadline()
    }

    fn on_timeout(&mut self, stack: &mut Stack, now: Instant) {
        while let Some(at) = self.deadlines.poll_expired(now) {
            self.on_deadline(at as usize, stack, now);
        }
    }

    fn on_stop(&mut self, stack: &mut Stack, now: Instant) {
        for listener in self.listeners.drain(..) {
            stack.close_listener(listener, now);
        }
        self.stopping = true;
        for place in std::mem::take(&mut self.places).into_iter().flatten() {
            self.deadlines.cancel(place.id.index());
            self.handler.on_closed(place.state, None);
        }
        for id in stack.connections().collect::<Vec<_>>() {
            finish(id, stack, now);
        }
    }
}

/// Ends what we send behind what is queued. The connection is not closed: data that the peer sends after that would have it reset,
/// and what is on its way to the peer would be lost.
fn finish(id: ConnectionId, stack: &mut Stack, now: Instant) {
    if stack.state(id) == Some(State::SynSent) {
        return stack.close(id, now);
    }
    stack.shutdown(id, Shutdown::Write, now);
    discard(id, stack, now);
}

/// Drops what was received.
fn discard(id: ConnectionId, stack: &mut Stack, now: Instant) {
    let unread = stack.queued(id).map_or(0, |(unread, _)| unread);
    stack.consume(id, unread, now);
}
