//! Conversations on an engine's stack: those that peers begin, and those that the control socket asks for.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clock::Instant;
use engine::Application;
use stack::tcp::{Events, TcpError};
use stack::{ConnectionId, Event, ListenerId, Socket, Stack, TcpOptions};

use crate::behaviour::{Conversation, Io, Step};

/// Connections that wait to be accepted: those that complete within one turn.
const BACKLOG: u32 = 4096;

/// What the engine's thread and the control socket share.
#[derive(Clone, Default)]
pub(crate) struct Shared(Arc<Mutex<State>>);

#[derive(Default)]
pub(crate) struct State {
    /// Connections that were begun from here, until the application takes them over.
    pub(crate) begun: Vec<(ConnectionId, Conversation)>,
    /// How conversations ended, and how many did so.
    pub(crate) endings: BTreeMap<String, u64>,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Conversations {
    port: u16,
    listeners: Vec<ListenerId>,
    under_way: HashMap<ConnectionId, Conversation>,
    sleeping: BTreeSet<(Instant, ConnectionId)>,
    shared: Shared,
}

impl Conversations {
    /// Will listen at `port` of all addresses.
    pub(crate) fn new(port: u16, shared: Shared) -> Conversations {
        let (listeners, under_way, sleeping) = (Vec::new(), HashMap::new(), BTreeSet::new());
        Conversations { port, listeners, under_way, sleeping, shared }
    }

    fn accept_all(&mut self, listener: ListenerId, stack: &mut Stack, now: Instant) {
        while let Some(id) = stack.tcp_accept(listener) {
            self.under_way.insert(id, Conversation::asking());
            // It may have sent, or failed, before it was accepted: no event tells of that any more.
            let failed = stack.readiness(id).is_some_and(|ready| ready.hangup || ready.error);
            self.go_on(id, if failed { Events::CLOSED } else { Events::READABLE }, stack, now);
        }
    }

    fn go_on(&mut self, id: ConnectionId, events: Events, stack: &mut Stack, now: Instant) {
        let Some(conversation) = self.under_way.get_mut(&id) else { return };
        if let Some(error) = failure(id, stack) {
            stack.close(id, now);
            return self.end(id, error.to_string());
        }
        let mut io = Io { stack, id, now };
        match conversation.go_on(&mut io) {
            Step::Close => {
                stack.close(id, now);
                self.end(id, "closed".to_owned());
            }
            Step::Abort => {
                stack.abort(id, now);
                self.end(id, "aborted".to_owned());
            }
            Step::Wait | Step::Sleep(_) if events.intersects(Events::CLOSED | Events::ERROR) => {
                stack.close(id, now);
                self.end(id, "closed".to_owned());
            }
            Step::Sleep(time) => {
                self.sleeping.insert((now + time, id));
            }
            Step::Wait => {}
        }
    }

    fn end(&mut self, id: ConnectionId, how: String) {
        let Some(conversation) = self.under_way.remove(&id) else { return };
        self.sleeping.retain(|&(_, sleeper)| sleeper != id);
        let ending = format!("{how} {}", conversation.received());
        *self.shared.lock().endings.entry(ending).or_default() += 1;
    }
}

/// Why the connection has failed, if it has.
fn failure(id: ConnectionId, stack: &mut Stack) -> Option<TcpError> {
    let failed = stack.readiness(id).is_some_and(|ready| ready.error);
    if failed { stack.take_error(id) } else { None }
}

impl Application for Conversations {
    fn on_start(&mut self, stack: &mut Stack, _: Instant) {
        for any in [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()] {
            let address = SocketAddr::new(any, self.port);
            let options = Arc::new(TcpOptions::default());
            let listener = stack.tcp_listen(address, false, BACKLOG, options);
            self.listeners.push(listener.expect("nobody listens on a new stack"));
        }
    }

    fn on_event(&mut self, event: Event, stack: &mut Stack, now: Instant) {
        match event.socket {
            Socket::Listener(listener) => self.accept_all(listener, stack, now),
            Socket::Connection(id) => {
                if !self.under_way.contains_key(&id) {
                    self.under_way.extend(self.shared.lock().begun.drain(..));
                }
                self.go_on(id, event.events, stack, now);
            }
            Socket::Udp(_) => {}
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.sleeping.first().map(|&(at, _)| at)
    }

    fn on_timeout(&mut self, stack: &mut Stack, now: Instant) {
        while let Some(&(at, id)) = self.sleeping.first().filter(|(at, _)| *at <= now) {
            self.sleeping.remove(&(at, id));
            if let Some(conversation) = self.under_way.get_mut(&id) {
                conversation.wake();
            }
            self.go_on(id, Events::READABLE, stack, now);
        }
    }
}
