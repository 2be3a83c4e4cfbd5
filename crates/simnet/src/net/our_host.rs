//! A host that runs our stack.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use ::wire::super_segment::{Headers, parts};
use clock::{Duration, Instant};
use stack::tcp::{RecvError, SendError, Shutdown, State};
use stack::{
    Arrival, Config, Connect, ConnectionId, Detached, Hop, Link, LinkId, ListenerId, Socket, Stack,
    TcpOptions, Transmit,
};

use super::host::{Host, Io, SocketNumber};
use super::sight::Sight;
use super::violation::{Broken, require};

/// How a host of ours is set up.
#[derive(Clone, Debug, PartialEq)]
pub struct OurSettings {
    /// Settings of its stack.
    pub config: Config,
    /// Options of its sockets; the first connection has the first, and so on, and the last is for all others.
    pub options: Vec<TcpOptions>,
    /// MTU of its interface.
    pub mtu: u16,
    /// Keys its hashes and sequence numbers.
    pub secret: u64,
    /// Its interface cuts super-segments.
    pub tso: bool,
}

impl OurSettings {
    /// Sequence number and timestamp with which a connection from `local` to `remote` would begin at `now`: found by trying.
    pub fn first_numbers(&self, local: SocketAddr, remote: SocketAddr, now: Instant) -> (u32, u32) {
        let config = Config { timestamps: true, ..self.config.clone() };
        let mut host = OurHost::new(&OurSettings { config, ..self.clone() }, now);
        host.connect(local, remote, b"", now);
        let mut room = [0; 1 << 14];
        let len = host.poll_transmit(now, &mut room).expect("the SYN is due");
        let sight = Sight::of(&room[..len]).expect("our packets are valid");
        (sight.seq, sight.timestamp.expect("timestamps are on"))
    }
}

/// [`Stack`] as a [`Host`].
///
/// As a rule there is one. Connections that move go on in another, and packets follow them as they would on a machine whose
/// engines each have a queue: a little late.
#[derive(Debug)]
pub struct OurHost {
    stacks: Vec<Stack>,
    settings: OurSettings,
    options: Vec<Arc<TcpOptions>>,
    listener: Option<ListenerId>,
    /// By number, the place of its stack and its handle there.
    sockets: Vec<(usize, ConnectionId)>,
    /// Connections that were moved while they waited to be accepted.
    unaccepted: VecDeque<(usize, ConnectionId)>,
    moves: BTreeMap<(SocketAddr, SocketAddr), Move>,
    /// Segments of the latest super-segment that have not left yet.
    cut: VecDeque<Vec<u8>>,
}

/// Where packets of a flow go.
#[derive(Clone, Copy, Debug)]
struct Move {
    from: usize,
    to: usize,
    since: Instant,
}

impl OurHost {
    /// A host without sockets.
    pub fn new(settings: &OurSettings, now: Instant) -> OurHost {
        let options = settings.options.iter().cloned().map(Arc::new).collect();
        OurHost {
            stacks: vec![settings.stack(settings.secret, now)],
            settings: settings.clone(),
            options,
            listener: None,
            sockets: Vec::new(),
            unaccepted: VecDeque::new(),
            moves: BTreeMap::new(),
            cut: VecDeque::new(),
        }
    }

    /// The stack itself, the first one if there are more.
    pub fn stack(&self) -> &Stack {
        &self.stacks[0]
    }

    fn options(&self, number: usize) -> Arc<TcpOptions> {
        let last = self.options.len().saturating_sub(1);
        self.options.get(number.min(last)).cloned().unwrap_or_default()
    }

    fn add(&mut self, (place, id): (usize, ConnectionId)) -> SocketNumber {
        let number = self.sockets.len();
        self.sockets.push((place, id));
        self.stacks[place].set_token(id, number as u64);
        SocketNumber(number)
    }

    fn socket(&mut self, socket: SocketNumber) -> (&mut Stack, ConnectionId) {
        let (place, id) = self.sockets[socket.0];
        (&mut self.stacks[place], id)
    }

    /// The place of the stack that gets a packet.
    fn place_for(&self, packet: &[u8], now: Instant) -> usize {
        let Some(sight) = Sight::of(packet) else {
            return self.stacks.len() - 1;
        };
        match self.moves.get(&(sight.to, sight.from)) {
            Some(moved) if now < moved.since => moved.from,
            Some(moved) => moved.to,
            None => 0,
        }
    }

    /// Puts a connection that has left the stack at `from` into the newest.
    fn attach(
        &mut self,
        detached: &Detached,
        from: usize,
        since: Instant,
        now: Instant,
    ) -> (usize, ConnectionId) {
        let to = self.stacks.len() - 1;
        let id = self.stacks[to].attach(detached, Hop::default(), now);
        let id = id.expect("the new stack is as large as the old one, and empty");
        self.moves.insert((detached.connection.local, detached.connection.remote), Move { from, to, since });
        (to, id)
    }
}

impl OurSettings {
    fn stack(&self, secret: u64, now: Instant) -> Stack {
        let mut stack = Stack::new(self.config.clone(), expand(secret), now);
        stack.set_link(
            LinkId(0),
            Link { mtu: self.mtu, tso_max: if self.tso { u16::MAX } else { 0 }, ..Link::default() },
            now,
        );
        stack
    }
}

/// Whether something is outstanding on a connection that only a timer brings on if the peer stays silent.
fn has_unfinished_work(stack: &Stack, id: ConnectionId, now: Instant) -> bool {
    let over = matches!(stack.state(id), Some(State::Closed | State::TimeWait));
    !over && stack.info(id, now).is_some_and(|info| info.unacked > 0 || info.notsent_bytes > 0)
}

fn check_stack(stack: &Stack, now: Instant) -> Result<(), Broken> {
    let (used, limit) = stack.buffer_memory();
    require!(used <= limit, "buffers hold {used} octets, more than {limit}");
    if stack.poll_timeout().is_none() {
        let waiting = stack.connections().find(|id| has_unfinished_work(stack, *id, now));
        require!(waiting.is_none(), "{waiting:?} has something outstanding and no timer");
    }
    Ok(())
}

fn check_empty_stack(stack: &Stack) -> Result<(), Broken> {
    let population = stack.population();
    require!(population == (0, 0, 0), "connections, half-open and TIME-WAIT are left: {population:?}");
    let orphans = stack.orphans();
    require!(orphans == 0, "{orphans} orphans are counted without a connection");
    let (used, _) = stack.buffer_memory();
    require!(used == 0, "{used} octets of buffers are left without a connection");
    let timeout = stack.poll_timeout();
    require!(timeout.is_none(), "a timer is left without a connection");
    Ok(())
}

fn describe_stack(stack: &Stack, now: Instant) -> String {
    let mut text = String::from("a host of ours\n");
    for id in stack.connections() {
        let (state, info) = (stack.state(id), stack.info(id, now));
        text += &format!("  {id:?} {state:?} {info:#?}\n");
    }
    let counters = stack.counters().named().filter(|(_, value)| *value > 0);
    let counters: Vec<String> = counters.map(|(name, value)| format!("{name}={value}")).collect();
    text + "  " + &counters.join(" ") + "\n"
}

/// 32 octets out of one number.
fn expand(secret: u64) -> [u8; 32] {
    let mut octets = [0; 32];
    super::content::Content::new(secret).fill(0, &mut octets);
    octets
}

impl Host for OurHost {
    fn on_packet(&mut self, packet: &[u8], now: Instant) {
        let place = self.place_for(packet, now);
        // Why a packet was not for the host is counted there; here only its effects matter.
        let _ = self.stacks[place].on_packet(packet, &Arrival::default(), now);
    }

    fn on_timeout(&mut self, now: Instant) {
        self.stacks.iter_mut().for_each(|stack| stack.on_timeout(now));
    }

    fn poll_timeout(&mut self, _now: Instant) -> Option<Instant> {
        self.stacks.iter().filter_map(Stack::poll_timeout).min()
    }

    fn poll_transmit(&mut self, now: Instant, room: &mut [u8]) -> Option<usize> {
        if let Some(segment) = self.cut.pop_front() {
            room[..segment.len()].copy_from_slice(&segment);
            return Some(segment.len());
        }
        let poll = |stack: &mut Stack| {
            stack.poll_transmit(now, room).map(|transmit| (transmit, cut(stack, &transmit, room)))
        };
        let (transmit, segments) = self.stacks.iter_mut().find_map(poll)?;
        self.cut = segments;
        if self.cut.is_empty() { Some(transmit.len) } else { self.poll_transmit(now, room) }
    }

    fn poll_woken(&mut self, _now: Instant) -> Option<SocketNumber> {
        for stack in &mut self.stacks {
            while let Some(event) = stack.poll_event() {
                if let Socket::Connection(_) = event.socket {
                    return Some(SocketNumber(event.token as usize));
                }
            }
        }
        None
    }

    fn listen(&mut self, local: SocketAddr) {
        let options = self.options(0);
        self.listener = self.stacks[0].tcp_listen(local, false, 1024, options).ok();
    }

    fn accept(&mut self, _now: Instant) -> Option<(SocketNumber, SocketAddr)> {
        let waiting = self.unaccepted.pop_front();
        let (place, id) = match waiting {
            Some(waiting) => waiting,
            None => (0, self.stacks[0].tcp_accept(self.listener?)?),
        };
        let (_, remote) = self.stacks[place].endpoints(id)?;
        Some((self.add((place, id)), remote))
    }

    fn connect(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        data: &[u8],
        now: Instant,
    ) -> (SocketNumber, usize) {
        let options = self.options(self.sockets.len());
        let connect = Connect { local, remote, is_bound: false, hop: Hop::default(), options, data };
        let id = self.stacks[0].tcp_connect(&connect, now).expect("the flow is new, and there are few");
        let taken = self.stacks[0].queued(id).map_or(0, |(_, to_send)| to_send);
        (self.add((0, id)), taken)
    }

    fn send(&mut self, socket: SocketNumber, data: &[u8], now: Instant) -> Io {
        let (stack, id) = self.socket(socket);
        match stack.send(id, data, now) {
            Ok(count) => Io::Moved(count),
            Err(SendError::WouldBlock | SendError::Connecting) => Io::Blocked,
            Err(SendError::Closed) => Io::End,
            Err(SendError::Failed(error)) => Io::Failed(error.to_string()),
            Err(SendError::NotConnected) => Io::Failed("not connected".to_owned()),
        }
    }

    fn recv(&mut self, socket: SocketNumber, room: &mut [u8], now: Instant) -> Io {
        let (stack, id) = self.socket(socket);
        match stack.recv(id, room, now) {
            Ok(0) => Io::End,
            Ok(count) => Io::Moved(count),
            Err(RecvError::WouldBlock) => Io::Blocked,
            Err(RecvError::Failed(error)) => Io::Failed(error.to_string()),
            // Before it is established there is nothing to read; the wake-up comes with the data.
            Err(RecvError::NotConnected) if stack.state(id).is_some() => Io::Blocked,
            Err(RecvError::NotConnected) => Io::Failed("not connected".to_owned()),
        }
    }

    fn finish(&mut self, socket: SocketNumber, now: Instant) -> bool {
        let (stack, id) = self.socket(socket);
        let early = stack.state(id) == Some(State::SynSent);
        if !early {
            stack.shutdown(id, Shutdown::Write, now);
        }
        !early
    }

    fn close(&mut self, socket: SocketNumber, now: Instant) {
        let (stack, id) = self.socket(socket);
        stack.close(id, now);
    }

    fn abort(&mut self, socket: SocketNumber, now: Instant) {
        let (stack, id) = self.socket(socket);
        stack.abort(id, now);
    }

    fn move_connections(&mut self, late: Duration, now: Instant) {
        let stack = self.settings.stack(self.settings.secret + self.stacks.len() as u64, now);
        self.stacks.push(stack);
        let since = now + late;
        if let Some(listener) = self.listener {
            for detached in self.stacks[0].detach_accept_queue(listener, now) {
                let moved = self.attach(&detached, 0, since, now);
                self.unaccepted.push_back(moved);
            }
        }
        for number in 0..self.sockets.len() {
            let (place, id) = self.sockets[number];
            if let Ok(detached) = self.stacks[place].detach(id, now) {
                let (place, id) = self.attach(&detached, place, since, now);
                self.sockets[number] = (place, id);
                self.stacks[place].set_token(id, number as u64);
            }
        }
    }

    fn check(&mut self, now: Instant) -> Result<(), Broken> {
        self.stacks.iter().try_for_each(|stack| check_stack(stack, now))
    }

    fn check_empty(&mut self) -> Result<(), Broken> {
        self.stacks.iter().try_for_each(check_empty_stack)
    }

    fn is_stuck(&mut self, _now: Instant) -> bool {
        false // `check` sees to that.
    }

    fn is_ours(&self) -> bool {
        true
    }

    fn describe(&mut self, now: Instant) -> String {
        self.stacks.iter().map(|stack| describe_stack(stack, now)).collect()
    }
}

/// The segments of a super-segment whose headers are in `room`; none if it is a packet.
fn cut(stack: &Stack, transmit: &Transmit, room: &[u8]) -> VecDeque<Vec<u8>> {
    let Some(payload) = &transmit.payload else { return VecDeque::new() };
    let octets: Vec<u8> = stack.payload(payload).flatten().copied().collect();
    assert_eq!(octets.len(), payload.len, "a super-segment has all of its payload");
    let headers = Headers::parse(&room[..transmit.len]).expect("the stack writes valid headers");
    let segments = parts(octets.len(), payload.segment_size.into()).map(|part| {
        let mut segment = vec![0; transmit.len + part.len];
        let fill = |out: &mut [u8]| out.copy_from_slice(&octets[part.offset..part.offset + part.len]);
        headers.write_segment(&mut segment, part, fill).expect("there is room for it");
        segment
    });
    segments.collect()
}
