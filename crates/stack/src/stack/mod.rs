//! [`Stack`]: sockets, connections, and the packets of one engine.

mod arrival;
mod book;
mod cookies;
mod departure;
mod fast_opening;
mod half_open;
mod handshakes;
mod held_acks;
mod icmp;
mod late;
pub(crate) mod link_queues;
mod listeners;
mod passive;
mod recent_flows;
mod replies;
mod saved_syn;
mod starvation;
mod strays;
mod tcp_calls;
mod udp_calls;
mod udp_packets;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::ops::Range;

use clock::{Duration, Instant};
use wire::ChecksumPolicy;

use crate::buffer::BufferPool;
use crate::config::Config;
use crate::counters::Counters;
use crate::fast_open::{FastOpenCache, FastOpenServer};
use crate::flow_table::{FlowKey, FlowTable};
use crate::isn::IsnGenerator;
use crate::path::{Hop, Link, LinkHeader, LinkId, PathTable, RouteClamp};
use crate::path_mtu::PathMtuCache;
use crate::recovery::FlightPool;
use crate::slab::{Handle, Slab};
use crate::sources::{SourceFilter, Sources};
use crate::syn_cookie::SynCookies;
use crate::tcp::handshake::HalfOpen;
use crate::tcp::listener::Listener;
use crate::tcp::super_segment::{Cut, Packet};
use crate::tcp::{Connection, Events, Fate, Origin, Shared, State, TcpError};
use crate::time_wait::{TimeWaitConfig, TimeWaitTable};
use crate::timer_wheel::TimerWheel;
use crate::trace::TraceRing;
use crate::udp::{Udp, UdpId};

pub use book::Book;
use book::Kept;
pub use departure::AttachError;
use held_acks::HeldAcks;
pub use late::LateSegment;
use late::LateSegments;
use link_queues::LinkQueues;
use recent_flows::RecentFlows;
use replies::Replies;
use starvation::Starved;
pub use strays::Stray;
use strays::Strays;
pub use tcp_calls::{Connect, ConnectError, ListenError};

/// Flows that are not begun again because their peer has refused our FIN, and for how long (Linux: `tcp_fin_timeout`).
const FIN_REFUSED_MAX: usize = 1024;
const FIN_REFUSED_FOR: Duration = Duration::from_secs(60);

/// Names a connection.
pub type ConnectionId = Handle<Connection>;
/// Names a listening socket.
pub type ListenerId = Handle<Listener>;

/// How a packet arrived.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arrival {
    /// The interface.
    pub link: LinkId,
    /// The header in front of it, as received.
    pub header: LinkHeader,
    /// How its checksums are looked at.
    pub checksums: ChecksumPolicy,
}

/// A packet that is ready to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Octets of the IP packet in the room that was given.
    pub len: usize,
    /// Where it leaves.
    pub hop: Hop,
    /// The packet is a super-segment: in the room are its headers only, and this is its payload.
    pub payload: Option<Payload>,
}

impl Transmit {
    fn whole(len: usize, hop: Hop) -> Transmit {
        Transmit { len, hop, payload: None }
    }

    /// Segments on the wire.
    pub fn segments(&self) -> usize {
        self.payload.map_or(1, |payload| payload.len.div_ceil(usize::from(payload.segment_size).max(1)))
    }
}

/// Where the payload of a super-segment is: [`Stack::payload`] has its octets until the stack is called otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    connection: ConnectionId,
    offset: usize,
    /// Octets.
    pub len: usize,
    /// Octets of each segment, but for the last.
    pub segment_size: u16,
}

/// Where packets are written. What room there is depends on the interface that a packet leaves by.
pub trait Rooms {
    /// Room for a packet of the MTU of `link`. `None` if there is none now: what leaves by that link waits, and other links are asked.
    /// The room is used before the next call, or not at all.
    fn room(&mut self, link: LinkId) -> Option<&mut [u8]>;
}

/// One room, whatever the interface.
impl Rooms for [u8] {
    fn room(&mut self, _: LinkId) -> Option<&mut [u8]> {
        Some(self)
    }
}

/// One room, whatever the interface.
impl<const LEN: usize> Rooms for [u8; LEN] {
    fn room(&mut self, _: LinkId) -> Option<&mut [u8]> {
        Some(self)
    }
}

/// Which socket an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Socket {
    /// A listener.
    Listener(ListenerId),
    /// A connection.
    Connection(ConnectionId),
    /// A UDP socket.
    Udp(UdpId),
}

/// Something happened on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The socket.
    pub socket: Socket,
    /// What happened since the last event about it.
    pub events: Events,
    /// What the application attached to the socket.
    pub token: u64,
}

/// Segments that a connection, or datagrams that a UDP socket may send before the next one's turn.
const TRANSMIT_QUANTUM: u32 = 8;

/// UDP and TCP of one engine.
///
/// The order of calls in a turn: [`Stack::on_packet`] for each packet received, [`Stack::on_timeout`],
/// [`Stack::poll_event`] until there is none, with the application's calls in between, then [`Stack::poll_transmit`] until
/// there is nothing or no room. [`Stack::poll_timeout`] tells when the next turn is due though no packet comes.
#[derive(Debug)]
pub struct Stack {
    shared: Shared,
    connections: Slab<Connection>,
    half_open: Slab<HalfOpen>,
    listeners: Slab<Listener>,
    /// From what a listener is bound to, to its place.
    listening: FlowTable,
    /// From flow to place: of a connection, or of a half-open one with [`HALF_OPEN`] set.
    flows: FlowTable,
    time_wait: TimeWaitTable,
    /// Flows that we began, and whose peer has answered our FIN by a reset. It may still wait for that FIN, and then refuses the flow: Linux resets a
    /// SYN in FIN-WAIT-2, for a minute.
    fin_refused: RecentFlows,
    /// Keys as in `flows`, half-open ones behind the connections.
    timers: TimerWheel,
    isn: IsnGenerator,
    cookies: SynCookies,
    /// Some listener wants to keep SYNs.
    saves_syns: bool,
    /// When SYN cookies were last sent: only then are they believed.
    cookies_sent_at: Option<Instant>,
    fast_open_server: FastOpenServer,
    replies: Replies,
    /// Flows of connections that have just left.
    departed: RecentFlows,
    sources: Sources,
    /// Listeners that have just been left to others.
    left_listeners: Vec<(Listener, Instant)>,
    /// Segments for connections that have left, for their new owners.
    late: LateSegments,
    /// Segments that other stacks may know.
    strays: Strays,
    /// Connections with something to send, each once.
    ready: LinkQueues<u32>,
    held_acks: HeldAcks,
    starved: Starved,
    /// Half-open connections whose SYN-ACK is due.
    half_open_ready: LinkQueues<u32>,
    udp: Udp,
    /// Sockets with events, each once.
    signals: VecDeque<Socket>,
    book: Kept,
}

/// Marks places of half-open connections in the flow table.
const HALF_OPEN: u32 = 1 << 31;

impl Stack {
    /// A stack without links and sockets. `secret` keys hashes, sequence numbers and cookies: 32 unpredictable octets.
    pub fn new(config: Config, secret: [u8; 32], now: Instant) -> Stack {
        let key = |purpose: u8| derive_key(&secret, purpose);
        let (connections, half_open) = (config.connections_max, config.half_open_max);
        let flows = (connections + half_open) as usize;
        let time_wait = TimeWaitConfig {
            entries_max: config.time_wait_max,
            lifetime: config.time_wait,
            ignore_rst: config.time_wait_ignores_resets,
            answer_interval: config.out_of_window_ack_interval,
        };
        let chunks = (config.buffer_memory / crate::buffer::CHUNK_LEN).max(64) as u32;
        Stack {
            connections: Slab::new(connections.min(HALF_OPEN - 1)),
            half_open: Slab::new(half_open),
            listeners: Slab::new(1 << 16),
            listening: FlowTable::new(0, key(0)),
            flows: FlowTable::new(flows, key(0)),
            time_wait: TimeWaitTable::new(time_wait, key(0)),
            timers: TimerWheel::new(now, 0),
            isn: IsnGenerator::new(key(2)),
            cookies: SynCookies::new(key(3)),
            saves_syns: false,
            cookies_sent_at: None,
            fast_open_server: FastOpenServer::new(key(4)),
            replies: Replies::default(),
            departed: departure::departed(key(0)),
            sources: Sources::default(),
            left_listeners: Vec::new(),
            late: LateSegments::new(),
            strays: Strays::new(config.strays_max, key(0)),
            fin_refused: RecentFlows::new(FIN_REFUSED_MAX, FIN_REFUSED_FOR, key(0)),
            ready: LinkQueues::default(),
            held_acks: HeldAcks::default(),
            starved: Starved::default(),
            half_open_ready: LinkQueues::default(),
            udp: Udp::new(chunks, key(7)),
            signals: VecDeque::new(),
            book: Kept::default(),
            shared: Shared {
                counters: Counters::default(),
                trace: TraceRing::new(config.trace_records),
                buffers: BufferPool::new(chunks),
                flights: FlightPool::new(1 << 14),
                spare_transfers: Default::default(),
                paths: PathTable::default(),
                path_mtus: PathMtuCache::new(4096, key(6)),
                fast_open_cache: FastOpenCache::new(1024, key(5)),
                challenges: Default::default(),
                orphans: 0,
                config,
            },
        }
    }

    /// Tells of an interface, or that it changed. A smaller MTU takes effect on live connections at once.
    pub fn set_link(&mut self, id: LinkId, link: Link, now: Instant) {
        let before = self.shared.paths.link(id);
        self.shared.paths.set_link(id, link);
        if before.mtu == link.mtu && before.mss_clamp == link.mss_clamp {
            return;
        }
        let on_link =
            |(index, connection): (ConnectionId, &Connection)| (connection.link == id).then_some(index);
        let concerned: Vec<ConnectionId> = self.connections.iter().filter_map(on_link).collect();
        for id in concerned {
            self.with_connection(id, now, |connection, shared| connection.on_link_changed(shared, now));
        }
    }

    /// Clamps segment sizes for networks behind narrow paths, in place of what was set before: for new connections.
    pub fn set_route_clamps(&mut self, clamps: Vec<RouteClamp>) {
        self.shared.paths.set_route_clamps(clamps);
    }

    /// Says from which addresses packets may come on a link, in place of what was said before. A SYN or a datagram from another one,
    /// behind tags that a filter is for, is dropped. Other segments are not looked at: without a handshake they have no connection.
    pub fn set_sources(&mut self, link: LinkId, filters: Vec<SourceFilter>) {
        self.sources.set(link, filters);
    }

    /// Whether what goes to `remote` leaves by `hop` as far as [`Stack::set_sources`] has said. A datagram that came by it says less: its
    /// source may be forged.
    pub fn leads_to(&self, hop: &Hop, remote: IpAddr) -> bool {
        self.sources.lead_back(hop.link, &hop.header, remote)
    }

    /// An interface, as the caller described it.
    pub fn link(&self, id: LinkId) -> Link {
        self.shared.paths.link(id)
    }

    /// A neighbour has another hardware address now: live connections by it follow.
    pub fn replace_neighbour(&mut self, link: LinkId, old: wire::MacAddress, new: wire::MacAddress) -> usize {
        self.shared.paths.replace_neighbour(link, old, new)
    }

    /// Writes the next packet into the room of the link that it leaves by; `None` when there is no packet, or no room for it. TCP
    /// and UDP take turns.
    pub fn poll_transmit(&mut self, now: Instant, rooms: &mut (impl Rooms + ?Sized)) -> Option<Transmit> {
        if std::mem::take(&mut self.udp.goes_first)
            && let Some(transmit) = self.transmit_udp(rooms)
        {
            return Some(transmit);
        }
        let transmit = self.transmit_tcp(now, rooms);
        self.udp.goes_first = transmit.is_some();
        transmit.or_else(|| self.transmit_udp(rooms))
    }

    fn transmit_tcp(&mut self, now: Instant, rooms: &mut (impl Rooms + ?Sized)) -> Option<Transmit> {
        if let Some(transmit) = self.transmit_reply(rooms) {
            return Some(transmit);
        }
        if let Some(transmit) = self.transmit_syn_ack(now, rooms) {
            return Some(transmit);
        }
        let mut links = self.ready.links();
        links.find_map(|link| self.transmit_by(link, now, rooms))
    }

    /// The next packet of the connections that send by `link`.
    fn transmit_by(
        &mut self,
        link: LinkId,
        now: Instant,
        rooms: &mut (impl Rooms + ?Sized),
    ) -> Option<Transmit> {
        while let Some(&index) = self.ready.front(link) {
            // What was here may be gone, and another connection in its place.
            if self.connections.at(index).is_none_or(|(_, connection)| connection.link != link) {
                self.ready.pop(link);
                continue;
            }
            let room = rooms.room(link)?;
            if let Some(transmit) = self.transmit_of(link, index, now, room) {
                return Some(transmit);
            }
        }
        None
    }

    /// Lets the connection at the head of a link's list send one packet, and takes it from there when it has nothing more, or to
    /// the end when others had to wait for it.
    fn transmit_of(&mut self, link: LinkId, index: u32, now: Instant, room: &mut [u8]) -> Option<Transmit> {
        let (id, connection) = self.connections.at_mut(index)?;
        let packet = connection.poll_transmit(room, &mut self.shared, now);
        let hop = self.shared.paths.hop(connection.path);
        let segments = packet.map_or(1, |packet| packet.segments());
        let is_turn_over = self.ready.note_sent(link, segments, TRANSMIT_QUANTUM);
        let has_more = packet.is_some() && connection.has_more_to_send(now);
        if !has_more || is_turn_over {
            self.ready.pop(link);
            connection.flags.queued = has_more;
            if has_more {
                self.ready.push(link, index);
            }
        }
        let over = connection.state == State::Closed;
        if !has_more || over {
            self.settle(id, if over { Fate::Over } else { Fate::Alive }, now, false);
        }
        packet.map(|Packet { len, cut }| {
            let payload = cut.map(|Cut { offset, len, segment_size }| Payload {
                connection: id,
                offset,
                len,
                segment_size,
            });
            Transmit { len, hop, payload }
        })
    }

    /// The octets of a super-segment's payload, piece by piece.
    pub fn payload(&self, payload: &Payload) -> impl Iterator<Item = &[u8]> {
        let queue = self.connections.get(payload.connection).map(|connection| &connection.send.queue);
        let slices = queue.map(|queue| queue.slices_at(&self.shared.buffers, payload.offset));
        let mut rest = payload.len;
        slices.into_iter().flatten().map_while(move |octets| {
            let octets = &octets[..octets.len().min(rest)];
            rest -= octets.len();
            (!octets.is_empty()).then_some(octets)
        })
    }

    /// Whether [`Stack::poll_transmit`] may have a packet: cheaper to ask than to make room for it.
    pub fn may_transmit(&self) -> bool {
        !(self.ready.is_empty()
            && self.udp.ready.is_empty()
            && self.half_open_ready.is_empty()
            && self.replies.is_empty())
    }

    /// When to call [`Stack::on_timeout`]; never late, sometimes early.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let deadlines = [
            self.timers.next_deadline(),
            self.time_wait.next_expiry(),
            self.held_acks_deadline(),
            self.starved.deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Does what is due.
    pub fn on_timeout(&mut self, now: Instant) {
        while let Some(key) = self.timers.poll_expired(now) {
            match key.checked_sub(self.shared.config.connections_max) {
                Some(place) => self.on_half_open_timeout(place, now),
                None => self.on_connection_timeout(key, now),
            }
        }
        while self.time_wait.expire(now).is_some() {}
        self.send_acks_held_too_long(now);
        self.feed_starved(now);
    }

    fn on_connection_timeout(&mut self, index: u32, now: Instant) {
        if let Some((id, _)) = self.connections.at(index) {
            self.with_connection(id, now, |connection, shared| {
                let due = connection.deadline().is_some_and(|at| at <= now);
                if due { connection.on_timeout(shared, now) } else { Fate::Alive }
            });
        }
    }

    /// The next socket on which something happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        while let Some(socket) = self.signals.pop_front() {
            let event = match socket {
                Socket::Listener(id) => self.listeners.get_mut(id).map(|listener| {
                    listener.signalled = false;
                    Event { socket, events: Events::READABLE, token: listener.token }
                }),
                Socket::Udp(id) => self.take_udp_event(id),
                Socket::Connection(id) => self.connections.get_mut(id).map(|connection| {
                    connection.flags.signalled = false;
                    let events = std::mem::take(&mut connection.events);
                    Event { socket, events, token: connection.token }
                }),
            };
            if event.is_some() {
                return event;
            }
        }
        None
    }

    /// Counts since the start.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// The latest events of all connections.
    pub fn trace(&self) -> &TraceRing {
        &self.shared.trace
    }

    /// Settings.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Octets of buffers in use, and how many there may be.
    pub fn buffer_memory(&self) -> (usize, usize) {
        let chunk = crate::buffer::CHUNK_LEN;
        let buffers = &self.shared.buffers;
        (buffers.in_use() as usize * chunk, buffers.chunks_max() as usize * chunk)
    }

    /// All connections, TIME-WAIT aside.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.connections.iter().map(|(id, _)| id)
    }

    /// The connections at `places`, for those who look at a piece at a time. Places are dense from zero up to
    /// [`Stack::connection_places`].
    pub fn connections_at(&self, places: Range<u32>) -> impl Iterator<Item = ConnectionId> + '_ {
        let places = places.start..places.end.min(self.connections.places());
        places.filter_map(|place| self.connections.at(place).map(|(id, _)| id))
    }

    /// Number of places that connections have, or had.
    pub fn connection_places(&self) -> u32 {
        self.connections.places()
    }

    /// Connections, half-open ones, and those in TIME-WAIT.
    pub fn population(&self) -> (u32, u32, u32) {
        (self.connections.len(), self.half_open.len(), self.time_wait.len() as u32)
    }

    /// Connections that no socket holds any more and that still have something to say.
    pub fn orphans(&self) -> u32 {
        self.shared.orphans
    }

    /// Whether a connection is one of them.
    pub fn is_orphan(&self, id: ConnectionId) -> bool {
        self.connections.get(id).is_some_and(|connection| connection.flags.orphaned)
    }

    /// Whether some connection has data or an end of data to send that its peer has not acknowledged.
    pub fn has_unacknowledged(&self) -> bool {
        let waits =
            |connection: &Connection| connection.state != State::Closed && connection.has_unacknowledged();
        self.connections.iter().any(|(_, connection)| waits(connection))
    }

    /// Runs `act` on a connection and then does what follows from it: lists, timers, events, its end.
    fn with_connection(
        &mut self,
        id: ConnectionId,
        now: Instant,
        act: impl FnOnce(&mut Connection, &mut Shared) -> Fate,
    ) -> Option<Fate> {
        let connection = self.connections.get_mut(id)?;
        let fate = act(connection, &mut self.shared);
        self.settle(id, fate, now, true);
        Some(fate)
    }

    /// Brings lists, timer and tables in line with a connection after something happened to it.
    fn settle(&mut self, id: ConnectionId, fate: Fate, now: Instant, may_send: bool) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        if may_send && !connection.flags.queued && connection.has_something_due() {
            connection.flags.queued = true;
            self.ready.push(connection.link, id.index());
        }
        if connection.receive.is_ack_due_soon() && !connection.flags.holds_ack {
            connection.flags.holds_ack = true;
            self.held_acks.push_back((id, now + self.shared.config.ack_hold_max));
        }
        if connection.flags.lacks_memory && !connection.flags.starved {
            connection.flags.starved = true;
            self.starved.add(id, now);
        }
        if !connection.events.is_empty() && !connection.flags.signalled && !connection.flags.waits_for_accept
        {
            connection.flags.signalled = true;
            self.signals.push_back(Socket::Connection(id));
        }
        if matches!(fate, Fate::Over | Fate::Refused) {
            return self.end_flow(id, now);
        }
        let fast_open_done = connection.flags.fast_open_pending && connection.flags.syn_acknowledged;
        if let Some(at) = connection.deadline() {
            let scheduled = self.timers.deadline_of(id.index());
            if scheduled.is_none_or(|scheduled| at < scheduled) {
                self.timers.schedule(id.index(), at);
            }
        }
        if fast_open_done {
            self.leave_fast_open_queue(id, now);
        }
    }

    /// The connection is over for the wire: its flow is free, but for TIME-WAIT. What a socket holds stays until it closes.
    fn end_flow(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        self.timers.cancel(id.index());
        if !std::mem::replace(&mut connection.flags.flow_ended, true) {
            let hash = self.flows.hash_of(&connection.key);
            self.flows.remove(hash, id.index());
            if connection.flags.fin_refused && connection.origin == Origin::Active {
                self.fin_refused.insert(hash, connection.key, now);
            }
            if connection.state == State::TimeWait {
                self.begin_time_wait(id, hash, now);
            }
            self.leave_fast_open_queue(id, now);
            self.note_over(id);
        }
        let abandoned = self.connections.get(id).is_some_and(|connection| connection.flags.orphaned);
        if abandoned && let Some(connection) = self.connections.remove(id) {
            connection.release(&mut self.shared);
        }
    }

    /// A connection made by Fast Open has completed its handshake, or is over.
    fn leave_fast_open_queue(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        if !std::mem::replace(&mut connection.flags.fast_open_pending, false) {
            return;
        }
        let was_reset = !connection.flags.syn_acknowledged && connection.error == Some(TcpError::Reset);
        if let Some(listener) = connection.listener.and_then(|listener| self.listeners.get_mut(listener)) {
            listener.end_fast_open(was_reset, now);
        }
    }

    fn begin_time_wait(&mut self, id: ConnectionId, hash: u64, now: Instant) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        self.shared.counters.time_waited += 1;
        let hop = self.shared.paths.hop(connection.path);
        let final_ack = connection.final_ack(&self.shared, now);
        let entry = connection.time_wait_entry(final_ack.window);
        if connection.receive.is_ack_pending() {
            // A socket that is still held does not send it once more.
            connection.receive.on_ack_sent(u32::from(final_ack.window) << connection.receive.scale, false);
            self.replies.push(connection.key, hop, final_ack, &mut self.shared.counters);
        }
        let recycled = self.time_wait.insert(hash, entry, now);
        self.shared.counters.time_wait_overflow += u64::from(recycled.is_some());
    }

    /// The connection of a flow whose hash is `hash`, or the half-open one.
    fn find_flow(&self, hash: u64, key: &FlowKey) -> Option<u32> {
        self.flows.find(hash, |place| match place & HALF_OPEN {
            0 => self.connections.at(place).is_some_and(|(_, connection)| connection.key == *key),
            _ => self.half_open.at(place & !HALF_OPEN).is_some_and(|(_, half)| half.key == *key),
        })
    }
}

impl Drop for Stack {
    /// The buffers go as a whole: no queue has to give its own back.
    fn drop(&mut self) {
        let ids: Vec<ConnectionId> = self.connections().collect();
        for id in ids {
            if let Some(connection) = self.connections.get_mut(id) {
                connection.send.queue.forget();
                connection.receive.queue.forget();
            }
        }
    }
}

/// A key for one purpose out of the stack's secret.
fn derive_key(secret: &[u8; 32], purpose: u8) -> [u64; 2] {
    use core::hash::Hasher;
    use siphasher::sip128::{Hasher128, SipHasher24};
    let (first, second) = secret.split_at(16);
    let mut hasher = SipHasher24::new_with_key(first.try_into().expect("half of 32 octets"));
    hasher.write(second);
    hasher.write_u8(purpose);
    let hash = hasher.finish128();
    [hash.h1, hash.h2]
}
