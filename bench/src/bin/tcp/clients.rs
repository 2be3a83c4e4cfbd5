//! What clients do, all of them on one engine.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clock::Instant;
use engine::Application;
use stack::tcp::Events;
use stack::{Connect, ConnectionId, Event, Hop, Socket, Stack, TcpOptions};

use crate::MESSAGE;
use crate::pair::Counts;
use crate::server::SERVER;

/// Connections that are being opened at a time: what the server's backlog takes with ease.
const OPENING_MAX: u32 = 1024;

/// Clients on one engine.
pub(crate) struct Clients {
    plan: Plan,
    counts: Arc<Counts>,
    options: Arc<TcpOptions>,
    /// Connections begun so far; gives each its own address and port.
    begun: u32,
    opening: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    /// So many connections, each with one request under way.
    Ask(u32),
    /// So many connections at a time, each used once.
    ComeAndGo(u32),
    /// One connection that sends.
    Send,
    /// So many connections that do nothing, then one that asks.
    Idle(u32),
}

impl Clients {
    pub(crate) fn asking(connections: u32) -> Clients {
        Clients::with(Plan::Ask(connections))
    }

    pub(crate) fn coming_and_going(under_way: u32) -> Clients {
        Clients::with(Plan::ComeAndGo(under_way))
    }

    pub(crate) fn sending() -> Clients {
        Clients::with(Plan::Send)
    }

    pub(crate) fn mostly_idle(idle: u32) -> Clients {
        Clients::with(Plan::Idle(idle))
    }

    fn with(plan: Plan) -> Clients {
        let options = Arc::new(TcpOptions { no_delay: true, ..TcpOptions::default() });
        Clients { plan, counts: Arc::default(), options, begun: 0, opening: 0 }
    }

    pub(crate) fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    /// Connections that are to be begun in all.
    fn total(&self) -> u32 {
        match self.plan {
            Plan::Ask(connections) => connections,
            Plan::ComeAndGo(_) => u32::MAX,
            Plan::Send => 1,
            Plan::Idle(idle) => idle + 1,
        }
    }

    /// Begins as many connections as may be under way.
    fn begin_more(&mut self, stack: &mut Stack, now: Instant) {
        let under_way_max = match self.plan {
            Plan::ComeAndGo(under_way) => under_way,
            _ => OPENING_MAX,
        };
        while self.opening < under_way_max && self.begun < self.total() {
            let local = address(self.begun);
            self.begun = self.begun.wrapping_add(1);
            let options = Arc::clone(&self.options);
            let connect =
                Connect { local, remote: SERVER, is_bound: false, hop: Hop::default(), options, data: b"" };
            // One that is still in TIME-WAIT is left out.
            if stack.tcp_connect(&connect, now).is_ok() {
                self.opening += 1;
            }
        }
    }

    fn on_open(&mut self, id: ConnectionId, stack: &mut Stack, now: Instant) {
        let open = add(&self.counts.open);
        match self.plan {
            Plan::Idle(idle) if open <= u64::from(idle) => {}
            Plan::Send => {}
            _ => ask(id, stack, now),
        }
        if !matches!(self.plan, Plan::ComeAndGo(_)) {
            self.opening -= 1;
            self.begin_more(stack, now);
        }
    }

    fn on_readable(&mut self, id: ConnectionId, stack: &mut Stack, now: Instant) {
        while stack.queued(id).is_some_and(|(unread, _)| unread >= MESSAGE) {
            stack.consume(id, MESSAGE, now);
            add(&self.counts.transactions);
            if !matches!(self.plan, Plan::ComeAndGo(_)) {
                ask(id, stack, now);
            }
        }
        let ended = stack.readiness(id).is_none_or(|ready| ready.read_closed);
        if ended && matches!(self.plan, Plan::ComeAndGo(_)) {
            stack.close(id, now);
            self.opening -= 1;
            self.begin_more(stack, now);
        }
    }
}

impl Application for Clients {
    fn on_start(&mut self, stack: &mut Stack, now: Instant) {
        self.begin_more(stack, now);
    }

    fn on_event(&mut self, event: Event, stack: &mut Stack, now: Instant) {
        const OPEN: u64 = 1;
        let Socket::Connection(id) = event.socket else { return };
        if event.token != OPEN && event.events.contains(Events::WRITABLE) {
            stack.set_token(id, OPEN);
            self.on_open(id, stack, now);
        }
        if self.plan == Plan::Send && event.events.contains(Events::WRITABLE) {
            while stack.send(id, &[7; 1 << 16], now).is_ok() {}
        }
        if event.events.intersects(Events::READABLE | Events::READ_CLOSED) {
            self.on_readable(id, stack, now);
        }
    }
}

fn ask(id: ConnectionId, stack: &mut Stack, now: Instant) {
    // Always finds room: there is one request under way.
    let _ = stack.send(id, &[7; MESSAGE], now);
}

/// A client's end of its own for each number: 60 000 ports of each address.
fn address(number: u32) -> SocketAddr {
    const PORTS: u32 = 60_000;
    let host = Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 1).to_bits() + number / PORTS);
    SocketAddr::new(IpAddr::V4(host), (2000 + number % PORTS) as u16)
}

/// One writer, so a plain load and store do. Returns the new count.
fn add(counter: &AtomicU64) -> u64 {
    let count = counter.load(Ordering::Relaxed) + 1;
    counter.store(count, Ordering::Relaxed);
    count
}
