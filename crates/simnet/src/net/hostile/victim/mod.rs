//! Our stack with connections under attack, watched by a reference model.

mod application;
mod checks;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use clock::{Duration, Instant};
use stack::tcp::State;
use stack::{Arrival, Config, Connect, ConnectionId, Hop, ListenerId, Stack, TcpOptions};
use wire::tcp::flag;

use super::forged::Forged;
use super::reference::Reference;
use crate::net::sight::{Sight, describe};

/// Connections that may be lied to at once: half of them the liar begins, half of them the victim.
pub const FLOWS: usize = 8;
const PORT: u16 = 80;
const MTU: usize = 1500;

/// A victim.
#[derive(Debug)]
pub struct Victim {
    stack: Stack,
    listener: ListenerId,
    now: Instant,
    v6: bool,
    options: Arc<TcpOptions>,
    flows: [Flow; FLOWS],
    /// Packets that it has sent since the last query.
    sent: Vec<Vec<u8>>,
    trace: bool,
}

/// One flow and the connection on it.
#[derive(Debug, Default)]
struct Flow {
    id: Option<ConnectionId>,
    reference: Option<Reference>,
    /// Octets of `reference.seen` that the application has not taken.
    unread: u64,
    /// The victim's SYN of a connection whose socket is closed, and which may still be there.
    left: Option<u32>,
}

impl Flow {
    /// The flow when its socket is closed.
    fn left(&self) -> Flow {
        Flow { left: self.reference.as_ref().map(|reference| reference.iss), ..Flow::default() }
    }
}

/// What is looked at before a segment, to see what it changed.
#[derive(Clone, Copy, Debug)]
struct Before {
    state: State,
    finished: bool,
    acked: u64,
}

impl Victim {
    /// A victim that listens, with nothing open.
    pub fn new(config: Config, options: TcpOptions, v6: bool, now: Instant) -> Victim {
        // What comes is compared octet by octet.
        let options = TcpOptions { urgent_inline: true, ..options };
        let mut stack = Stack::new(config, [7; 32], now);
        let options = Arc::new(options);
        let local = SocketAddr::new(addresses(v6)[1], PORT);
        let listener = stack.tcp_listen(local, false, 64, Arc::clone(&options)).expect("it is the first");
        let trace = std::env::var_os("SIMNET_TRACE").is_some();
        Victim { stack, listener, now, v6, options, flows: Default::default(), sent: Vec::new(), trace }
    }

    /// The liar's end of a flow, and the victim's.
    pub fn ends(&self, flow: usize) -> (SocketAddr, SocketAddr) {
        let [liar, victim] = addresses(self.v6);
        let port = if flow < FLOWS / 2 { PORT } else { 50_000 + flow as u16 };
        (SocketAddr::new(liar, 40_000 + flow as u16), SocketAddr::new(victim, port))
    }

    /// The stack.
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// State of the connection on a flow.
    pub fn state(&self, flow: usize) -> Option<State> {
        self.stack.state(self.flows[flow].id?)
    }

    /// What an informed liar knows of a flow: the sequence number that the victim expects, and the one that it sends next.
    pub fn numbers(&self, flow: usize) -> (u32, u32) {
        let Some(reference) = &self.flows[flow].reference else {
            return (0, 0);
        };
        let rcv_nxt = reference.rcv_nxt(self.is_finished(flow)).unwrap_or(0);
        (rcv_nxt, reference.iss.wrapping_add(1).wrapping_add(reference.sent as u32))
    }

    /// Packets sent since this was asked before.
    pub fn take_sent(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.sent)
    }

    fn is_finished(&self, flow: usize) -> bool {
        let readiness = self.flows[flow].id.and_then(|id| self.stack.readiness(id));
        let over = matches!(self.state(flow), Some(State::Closed | State::TimeWait) | None);
        readiness.is_some_and(|readiness| readiness.read_closed) && !over
    }

    /// Opens a flow properly, from the liar's side or the victim's, with `irs` as the liar's initial sequence number.
    pub fn open(&mut self, flow: usize, irs: u32, options: &[u8]) {
        let syn = Forged { seq: irs, window: 0xffff, options: options.to_vec(), ..Forged::default() };
        if flow >= FLOWS / 2 {
            self.connect(flow);
            let (_, snd_nxt) = self.numbers(flow);
            self.inject(flow, &Forged { ack: snd_nxt, flags: flag::SYN | flag::ACK, ..syn });
            return;
        }
        self.inject(flow, &Forged { flags: flag::SYN, ..syn });
        let (rcv_nxt, snd_nxt) = self.numbers(flow);
        let options = timestamps_behind(options);
        let ack = Forged {
            seq: rcv_nxt,
            ack: snd_nxt,
            flags: flag::ACK,
            window: 0xffff,
            options,
            ..Forged::default()
        };
        self.inject(flow, &ack);
    }

    /// Has the victim begin to connect.
    pub fn connect(&mut self, flow: usize) {
        if self.flows[flow].id.is_some() {
            return;
        }
        let (remote, local) = self.ends(flow);
        let options = Arc::clone(&self.options);
        let connect = Connect { local, remote, is_bound: false, hop: Hop::default(), options, data: b"" };
        let id = self.stack.tcp_connect(&connect, self.now).ok();
        if id.is_some() {
            self.flows[flow] = Flow { id, ..Flow::default() };
        }
        self.settle(None);
    }

    /// A segment of the liar's arrives.
    ///
    /// # Panics
    /// If the victim makes of it what it must not.
    pub fn inject(&mut self, flow: usize, segment: &Forged) {
        let (from, to) = self.ends(flow);
        let before = self.before(flow);
        if let Some(reference) = &mut self.flows[flow].reference {
            reference.offer(segment);
        }
        let packet = segment.packet(from, to);
        self.say("arrives", &packet);
        let _ = self.stack.on_packet(&packet, &Arrival::default(), self.now);
        self.learn_peer(flow, segment, before);
        self.settle(Some((flow, segment)));
        if let Some(before) = before {
            self.check_change(flow, segment, before);
        }
        self.leave_ended(flow);
    }

    /// Any octets arrive.
    pub fn inject_octets(&mut self, packet: &[u8]) {
        self.say("arrives", packet);
        let _ = self.stack.on_packet(packet, &Arrival::default(), self.now);
        self.settle(None);
        (0..FLOWS).for_each(|flow| self.leave_ended(flow));
    }

    fn before(&self, flow: usize) -> Option<Before> {
        let id = self.flows[flow].id?;
        let acked = self.stack.info(id, self.now)?.bytes_acked;
        Some(Before { state: self.stack.state(id)?, finished: self.is_finished(flow), acked })
    }

    /// The victim's own connection has found its peer.
    fn learn_peer(&mut self, flow: usize, segment: &Forged, before: Option<Before>) {
        let was_alone = before.is_some_and(|before| before.state == State::SynSent);
        let is_alone = matches!(self.state(flow), Some(State::SynSent | State::Closed) | None);
        if was_alone
            && !is_alone
            && let Some(reference) = &mut self.flows[flow].reference
        {
            reference.note_liar_syn(segment);
            reference.offer(segment);
        }
    }

    /// Takes what is accepted, what is sent and what has come, and checks it. `cause` is the segment that led to it.
    fn settle(&mut self, cause: Option<(usize, &Forged)>) {
        while let Some(id) = self.stack.tcp_accept(self.listener) {
            let (_, remote) = self.stack.endpoints(id).expect("it was accepted just now");
            let flow = usize::from(remote.port() - 40_000);
            assert_ne!(self.stack.state(id), Some(State::SynReceived), "a connection without its handshake");
            self.flows[flow].id = Some(id);
            self.flows[flow].unread = 0;
            if let (Some((_, segment)), Some(reference)) = (cause, &mut self.flows[flow].reference) {
                reference.offer(segment);
            }
        }
        while self.stack.poll_event().is_some() {}
        self.look_at_data();
        self.transmit(cause);
        let (used, limit) = self.stack.buffer_memory();
        assert!(used <= limit, "{used} octets of buffers are more than {limit}");
    }

    /// Compares what has come in order with what was offered.
    fn look_at_data(&mut self) {
        for flow in &mut self.flows {
            let (Some(id), Some(reference)) = (flow.id, &mut flow.reference) else {
                continue;
            };
            let mut room = [0; 4096];
            while let Ok(count) = self.stack.peek(id, flow.unread as usize, &mut room) {
                if count == 0 {
                    break;
                }
                reference.see(&room[..count]);
                flow.unread += count as u64;
            }
        }
    }

    fn transmit(&mut self, cause: Option<(usize, &Forged)>) {
        let mut room = [0; 2 * MTU];
        let mut bare = 0;
        while let Some(transmit) = self.stack.poll_transmit(self.now, &mut room) {
            let packet = &room[..transmit.len];
            assert!(packet.len() <= MTU, "{} octets are sent on a link of {MTU}", packet.len());
            self.say("sends", packet);
            let sight = Sight::of(packet).expect("our packets are valid");
            bare += u32::from(sight.payload.is_empty());
            self.on_sent(&sight, cause);
            self.sent.push(packet.to_vec());
        }
        assert!(cause.is_none() || bare <= 2 * FLOWS as u32, "{bare} segments without data answer one");
    }

    fn say(&self, verb: &str, packet: &[u8]) {
        if self.trace {
            println!("{:>14.6} {verb} {}", self.now.as_nanos() as f64 / 1e9, describe(packet));
        }
    }

    fn on_sent(&mut self, sight: &Sight<'_>, cause: Option<(usize, &Forged)>) {
        let Some(at) = usize::from(sight.to.port()).checked_sub(40_000).filter(|at| *at < FLOWS) else {
            return;
        };
        let flow = &mut self.flows[at];
        if sight.has(flag::SYN) && flow.left == Some(sight.seq) {
            return;
        }
        let is_new = flow.reference.as_ref().is_none_or(|reference| !reference.begins_by(sight));
        if sight.has(flag::SYN) && is_new {
            assert!(flow.id.is_none() || sight.ack.is_none(), "a connection begins anew by {cause:?}");
            flow.reference = Some(Reference::new(sight, cause.map(|(_, segment)| segment)));
            return;
        }
        if let Some(reference) = flow.reference.as_mut().filter(|_| !sight.has(flag::RST)) {
            reference.on_sent(sight);
        }
    }

    /// Lets go of a connection that is over.
    fn leave_ended(&mut self, flow: usize) {
        if let Some(id) = self.flows[flow].id
            && matches!(self.stack.state(id), Some(State::Closed | State::TimeWait) | None)
        {
            self.stack.close(id, self.now);
            self.flows[flow] = self.flows[flow].left();
        }
    }

    /// Time passes, and timers fire when they are due.
    pub fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        for _ in 0..100_000 {
            let Some(at) = self.stack.poll_timeout().filter(|at| *at <= end) else {
                self.now = end;
                (0..FLOWS).for_each(|flow| self.leave_ended(flow));
                return;
            };
            self.now = self.now.max(at);
            self.stack.on_timeout(self.now);
            self.settle(None);
        }
        panic!("timers fire without end");
    }

    /// Closes everything, and checks that in the end nothing is left of it.
    ///
    /// # Panics
    /// If something is.
    pub fn finish(mut self) {
        for flow in 0..FLOWS {
            self.close(flow, flow % 2 == 0);
        }
        self.pass(Duration::from_secs(3600));
        assert_eq!(self.stack.population(), (0, 0, 0), "connections, half-open and TIME-WAIT are left");
        assert_eq!(self.stack.buffer_memory().0, 0, "octets of buffers are left");
        assert_eq!(self.stack.poll_timeout(), None, "a timer is left");
    }
}

fn addresses(v6: bool) -> [std::net::IpAddr; 2] {
    [9, 1].map(|host| match v6 {
        false => Ipv4Addr::new(192, 0, 2, host).into(),
        true => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host.into()).into(),
    })
}

/// The timestamps option that goes with a SYN whose options had one: a little later.
fn timestamps_behind(options: &[u8]) -> Vec<u8> {
    let has = options.windows(2).any(|window| window == [8, 10]);
    if has { super::script::timestamps(1000, 0).to_vec() } else { Vec::new() }
}
