//! The loop: sockets and time to the core, and queries and answers back.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{SystemTime, UNIX_EPOCH};

use clock::{Duration, Instant};
use device::BURST;
use device_kernel::{Datagrams, Peer};
use dns_front::{Questions, Via};
use dns_log::AnswerLog;
use dns_log::dnstap::Role;
use dns_resolver::{QueryId, Random, Resolver};
use dns_server::Admission;
use engine::{Clock, Datagram, EngineHandle, ReturnPath, UdpResponder};
use mio::net::TcpListener;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use observe::report::{Count, NameServerReport};

use super::clients::{Clients, Place};
use super::config::Config;
use super::control::{Command, Control};
use super::core::{Asked, Core, Judged};
use super::front::{Front, Verdict, Way};
use super::saved;
use super::streams::{StreamId, Streams};
use super::upstreams::{Received, Upstreams};
use crate::dns::answer_log::QueryLog;
use crate::dns::tcp;

/// What an event is about; the upper bits of a token, above the number of the thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Wake,
    Udp,
    Listener,
    Stream,
    Upstream,
    Device,
}

const KINDS: [Kind; 6] = [Kind::Wake, Kind::Udp, Kind::Listener, Kind::Stream, Kind::Upstream, Kind::Device];
const NUMBER_BITS: u32 = 56;

/// The token of a thing. Numbers count up from 0 and never reach 2^56.
pub(super) fn token(kind: Kind, number: u64) -> Token {
    Token((kind as usize) << NUMBER_BITS | number as usize)
}

fn split(Token(token): Token) -> (Kind, u64) {
    (KINDS[token >> NUMBER_BITS], token as u64 & ((1 << NUMBER_BITS) - 1))
}

/// Rounds in which queries of connections are taken in one turn, so that the others have theirs.
const ROUNDS: usize = 64;
/// Octets that the kernel keeps for a socket while the loop is busy: some thousand queries.
const SOCKET_BUFFER: usize = 1 << 20;
/// How often idle connections are looked for, and listeners that ran out of descriptors tried again.
const SWEEP: Duration = Duration::from_millis(250);
/// The longest message.
const MESSAGE_MAX: usize = 65_535;

/// What the clock shows at the start: entries of an earlier run are older than this run, by a week and what has expired at most.
const BEFORE: Instant = Instant::from_nanos(30 * 86_400 * 1_000_000_000);

/// A UDP socket, and the answers that leave it with the next system call.
struct Listener {
    socket: Datagrams,
    answers: Vec<(Peer, Vec<u8>)>,
}

/// The resolver, on kernel sockets, and the responder of an engine, which may have an interface.
pub(super) struct Server {
    config: Config,
    poll: Poll,
    waker: Arc<Waker>,
    commands: Receiver<Command>,
    clock: Clock,
    core: Core,
    udp: Vec<Listener>,
    /// The engine, if it has an interface.
    engine: Option<EngineHandle>,
    /// Answers that leave by it.
    late: VecDeque<(ReturnPath, Vec<u8>)>,
    /// Queries have come by it.
    has_received: bool,
    tcp: Vec<TcpListener>,
    streams: Streams,
    /// DNS over TLS, HTTPS and QUIC.
    encrypted: Option<(dns_front::Front, Questions)>,
    /// More of their questions may wait.
    more_encrypted: bool,
    query_log: Option<QueryLog>,
    upstreams: Upstreams,
    clients: Clients,
    /// Sockets that may have more to read.
    again: Vec<usize>,
    /// Connections that may have more queries.
    more: BTreeSet<StreamId>,
    buffer: Vec<u8>,
    next_sweep: Instant,
    /// When a loop that is to stop does so at the latest.
    stop_at: Option<Instant>,
}

impl Server {
    /// Binds the addresses of `config`.
    pub(super) fn bind(config: Config, key: [u8; 16]) -> anyhow::Result<(Server, Control)> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), token(Kind::Wake, 0))?);
        let (control, commands) = Control::new(Arc::clone(&waker));
        let (udp, tcp) = tcp::on_free_ports(&config.listen, || open_sockets(&config, poll.registry()))?;
        let encrypted = config.encrypted.as_ref().map(|options| {
            let waker = Arc::clone(&waker);
            // A wake-up that fails means that the loop has ended.
            dns_front::Front::open(options, move || drop(waker.wake()))
        });
        let encrypted = encrypted.transpose()?;
        let clock = Clock::start_at(BEFORE);
        let mut random = Random::new(key);
        let resolver = Resolver::new(config.options.clone(), config.zones.clone(), random.key(), clock.now());
        let front_random = Random::new(random.key());
        let server = Server {
            core: Core {
                front: Front::new(config.front.clone(), front_random, clock.now()),
                resolver,
                log: None,
                unix_secs: 0,
            },
            streams: Streams::new(Admission::new(config.tcp)),
            encrypted,
            query_log: None,
            more_encrypted: false,
            upstreams: Upstreams::new(&config.source_addresses, random)?,
            next_sweep: clock.now() + SWEEP,
            config,
            poll,
            waker,
            commands,
            clock,
            udp,
            engine: None,
            late: VecDeque::new(),
            has_received: false,
            tcp,
            clients: Clients::default(),
            again: Vec::new(),
            more: BTreeSet::new(),
            buffer: vec![0; MESSAGE_MAX],
            stop_at: None,
        };
        Ok((server, control))
    }

    /// The addresses that are served on kernel sockets over UDP.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.udp.iter().map(|listener| listener.socket.local_addr()).collect()
    }

    /// The interface by which queries over UDP come, if there is one, and the addresses that it brings them for.
    pub(super) fn device(&self) -> Option<(&str, &[SocketAddr])> {
        self.config.device.as_deref().map(|name| (name, &self.config.listen[..]))
    }

    /// Is told which engine it is the responder of.
    pub(super) fn set_engine(&mut self, engine: EngineHandle) {
        self.engine = Some(engine);
    }

    /// What ends the wait of [`Server::turn`].
    pub(super) fn waker(&self) -> Arc<Waker> {
        Arc::clone(&self.waker)
    }

    pub(super) fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Whether queries have come by the interface since the last call.
    pub(super) fn has_received(&mut self) -> bool {
        mem::take(&mut self.has_received)
    }

    /// The addresses that are served over TLS, HTTPS and QUIC.
    pub(super) fn encrypted_addresses(&self) -> &[(Via, SocketAddr)] {
        self.encrypted.as_ref().map_or(&[], |(front, _)| front.addresses())
    }

    /// Takes in the cache that an earlier run has left, if there is one.
    pub(super) fn restore_cache(&mut self) {
        self.tell_wall_clock();
        if let Some(path) = &self.config.cache_file {
            let octets_max = self.config.options.cache.octets_max;
            saved::restore(path, octets_max, &mut self.core.resolver, self.clock.now());
        }
    }

    /// Starts what has threads of its own.
    pub(super) fn start(&mut self) {
        if let Some((front, _)) = &mut self.encrypted
            && let Err(error) = front.start()
        {
            log::error!("no DNS over TLS, HTTPS and QUIC: {error}");
        }
    }

    /// One turn of the loop, except for what the interface brings: waits for at most `patience`, and looks after what has happened.
    pub(super) fn turn(&mut self, events: &mut Events, patience: Duration) {
        self.tell_wall_clock();
        if self.poll.poll(events, Some(patience.into())).is_err() {
            events.clear(); // A signal; anything else would come again.
        }
        let again = mem::take(&mut self.again);
        for event in &*events {
            self.on_event(event.token());
        }
        again.into_iter().for_each(|number| self.receive(number));
        self.receive_encrypted();
        self.core.resolver.on_timeout(self.clock.now());
        self.sweep();
        self.deliver();
        while let Ok(command) = self.commands.try_recv() {
            self.obey(command);
        }
    }

    /// Leaves the cache for the next run.
    pub(super) fn finish(&mut self) {
        if let Some(path) = &self.config.cache_file {
            saved::save(path, &self.core.resolver, self.clock.now());
        }
        drop(self.query_log.take());
    }

    /// Signatures are judged by the calendar.
    fn tell_wall_clock(&mut self) {
        // A clock before 1970 is as wrong as one that stands there.
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.core.unix_secs = since_1970.as_secs();
        self.core.resolver.on_wall_clock(self.core.unix_secs, self.clock.now());
    }

    /// How long there is nothing to do, unless something happens.
    pub(super) fn patience(&self) -> Duration {
        if !self.again.is_empty() || !self.more.is_empty() || self.more_encrypted {
            return Duration::ZERO;
        }
        let mut until = self.core.resolver.poll_timeout();
        if !self.streams.is_empty() || self.stop_at.is_some() {
            until = until.into_iter().chain([self.next_sweep]).min();
        }
        until.map_or(Duration::from_secs(60), |until| until.since(self.clock.now()))
    }

    pub(super) fn has_stopped(&self) -> bool {
        let Some(stop_at) = self.stop_at else { return false };
        self.clients.is_empty() || self.clock.now() >= stop_at
    }

    fn on_event(&mut self, token: Token) {
        match split(token) {
            (Kind::Wake | Kind::Device, _) => {} // Both are looked after in each turn.
            (Kind::Udp, number) => self.receive(number as usize),
            (Kind::Listener, number) => self.accept(number as usize),
            (Kind::Stream, id) => self.drive(id),
            (Kind::Upstream, query) => self.receive_from_server(QueryId(query)),
        }
    }

    /// Takes a batch of queries from a UDP socket. What is left comes in the next turn, so that the others have theirs.
    fn receive(&mut self, number: usize) {
        let Some(listener) = self.udp.get_mut(number).filter(|_| self.stop_at.is_none()) else { return };
        let count = listener.socket.receive();
        let now = self.clock.now();
        for index in 0..count {
            let Some((peer, octets)) = self.udp[number].socket.received(index) else { continue };
            let asked = Asked { client: peer.address, way: Way::Udp, at: now };
            let verdict = match self.core.judge(asked, octets) {
                Judged::Known(known) => {
                    let answer = known.to_octets(octets);
                    self.core.log(asked, &answer, now);
                    self.udp[number].answers.push((peer, answer));
                    continue;
                }
                Judged::Open(Verdict::Drop) => continue,
                Judged::Open(verdict) => verdict,
            };
            let client = self.clients.add(Place::Udp(number, peer), asked);
            self.core.hand_in(client, verdict, octets, now);
        }
        self.deliver();
        if count == BURST && !self.again.contains(&number) {
            self.again.push(number);
        }
    }

    /// Takes a batch of questions that came over TLS, HTTPS and QUIC.
    fn receive_encrypted(&mut self) {
        let Some((_, questions)) = &mut self.encrypted else { return };
        let now = self.clock.now();
        let mut count = 0;
        while count < BURST
            && let Some(question) = questions.next_waiting()
        {
            count += 1;
            let asked = Asked { client: question.client, way: Way::Encrypted(question.via), at: now };
            let verdict = self.core.judge_open(asked, &question.octets);
            let (octets, reply) = question.into_parts();
            if verdict == Verdict::Drop {
                continue;
            }
            let client = self.clients.add(Place::Encrypted(reply), asked);
            self.core.hand_in(client, verdict, &octets, now);
        }
        self.more_encrypted = count == BURST;
        if count > 0 {
            self.deliver();
        }
    }

    /// Answers a datagram by what is known, or hands it in.
    fn answer_in_place(&mut self, datagram: &mut Datagram<'_>, now: Instant) -> Option<usize> {
        let asked = Asked { client: datagram.source(), way: Way::Udp, at: now };
        let query = &datagram.buffer[..datagram.len];
        let verdict = match self.core.judge(asked, query) {
            Judged::Known(known) if known.len() <= datagram.buffer.len() => {
                let len = known.len();
                known.write_over(datagram.buffer);
                self.core.log(asked, &datagram.buffer[..len], now);
                return Some(len);
            }
            Judged::Known(_) => Verdict::Ask(Way::Udp.terms()),
            Judged::Open(verdict) => verdict,
        };
        if verdict == Verdict::Drop || self.stop_at.is_some() {
            return None;
        }
        let path = datagram.return_path();
        let verdict = verdict.within(path.room());
        let client = self.clients.add(Place::Device(path), asked);
        self.core.hand_in(client, verdict, query, now);
        None
    }

    fn accept(&mut self, number: usize) {
        let now = self.clock.now();
        while let Some(listener) = self.tcp.get(number) {
            // Out of descriptors or memory: the sweep tries again.
            let may_ask = |client| self.core.front.may_ask(client);
            let accepted = self.streams.accept(listener, self.poll.registry(), may_ask, now);
            let Ok(Some(id)) = accepted else { return };
            self.drive(id);
        }
    }

    /// Takes one query from a connection. The next one follows once [`Server::deliver`] has sent the answer, if there is one already: so
    /// that a client that does not read its answers gets no more of them.
    fn drive(&mut self, id: StreamId) {
        let now = self.clock.now();
        let Some((peer, query)) = self.streams.next_query(id, now) else { return };
        self.more.insert(id);
        let asked = Asked { client: peer, way: Way::Tcp, at: now };
        let verdict = self.core.judge_open(asked, &query);
        if verdict == Verdict::Drop {
            return self.streams.answer(id, &[], now);
        }
        let client = self.clients.add(Place::Stream(id), asked);
        self.core.hand_in(client, verdict, &query, now);
    }

    fn receive_from_server(&mut self, query: QueryId) {
        loop {
            let (from, received) = self.upstreams.receive(query, &mut self.buffer);
            let now = self.clock.now();
            match received {
                Received::Nothing => return,
                Received::Failed => {
                    self.upstreams.close(query);
                    return self.core.resolver.on_unreachable(query, now);
                }
                Received::Message(len) => {
                    self.core.resolver.on_response(query, from, &self.buffer[..len], now)
                }
            }
            self.deliver();
        }
    }

    /// Takes from the core all that it has, and queries of connections that have room, in turns, until there is nothing more. What a
    /// client with very many queries has left after [`ROUNDS`] of them comes in the next turn of the loop.
    pub(super) fn deliver(&mut self) {
        for _ in 0..ROUNDS {
            self.deliver_all();
            if self.more.is_empty() {
                break;
            }
            for id in mem::take(&mut self.more) {
                self.drive(id);
            }
        }
        for listener in &mut self.udp {
            listener.socket.send(&listener.answers); // A client that it does not reach asks again.
            listener.answers.clear();
        }
    }

    fn deliver_all(&mut self) {
        while let Some(transmit) = self.core.resolver.poll_transmit() {
            let query = transmit.query;
            if let Err(error) = self.upstreams.send(transmit, self.poll.registry()) {
                self.on_send_error(query, &error);
            }
        }
        while let Some(query) = self.core.resolver.poll_closed() {
            self.upstreams.close(query);
        }
        while let Some(answer) = self.core.resolver.poll_answer() {
            if let Some(waiting) = self.clients.remove(answer.client) {
                self.core.log(waiting.asked, &answer.octets, self.clock.now());
                self.answer(waiting.place, answer.octets);
            }
        }
    }

    /// The network cannot reach a server, or this host lacks descriptors, ports or memory.
    fn on_send_error(&mut self, query: QueryId, error: &io::Error) {
        use io::ErrorKind::{AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable};
        let now = self.clock.now();
        match error.kind() {
            // No address of ours is of the server's family.
            AddrNotAvailable | ConnectionRefused | HostUnreachable | NetworkUnreachable => {
                self.core.resolver.on_unreachable(query, now);
            }
            _ => self.core.resolver.on_not_sent(query, now),
        }
    }

    /// Begins the query log that is configured, or goes on with it. If there can be none, an old one goes on.
    pub(super) fn open_query_log(&mut self) -> anyhow::Result<()> {
        let spec = self.config.query_log.as_ref();
        let old = QueryLog::follow(&mut self.query_log, spec, Role::Resolver)?;
        let answers = self.query_log.as_ref().map(|log| &log.answers);
        if self.core.log.as_ref().map(|log| Arc::as_ptr(log.log())) != answers.map(Arc::as_ptr) {
            self.core.log = answers.map(AnswerLog::writer);
        }
        drop(old);
        Ok(())
    }

    /// Sends an answer; an empty one is none.
    fn answer(&mut self, place: Place, octets: Vec<u8>) {
        match place {
            Place::Udp(number, to) => {
                if !octets.is_empty() {
                    self.udp[number].answers.push((to, octets));
                }
            }
            Place::Device(path) => {
                if !octets.is_empty() {
                    self.late.push_back((path, octets));
                }
            }
            Place::Stream(id) => {
                self.streams.answer(id, &octets, self.clock.now());
                self.more.insert(id); // There may be room for more of its queries.
            }
            Place::Encrypted(reply) => reply.answer(octets),
        }
    }

    fn sweep(&mut self) {
        let now = self.clock.now();
        if now < self.next_sweep {
            return;
        }
        self.next_sweep = now + SWEEP;
        self.core.front.on_time(now);
        self.streams.sweep(now);
        (0..self.tcp.len()).for_each(|number| self.accept(number));
    }

    fn obey(&mut self, command: Command) {
        let now = self.clock.now();
        match command {
            Command::Reload(config) => {
                self.core.resolver.reconfigure(config.options.clone(), config.zones.clone());
                self.core.front.reconfigure(config.front.clone());
                self.reload_certificate();
                self.config = *config;
                if let Err(error) = self.open_query_log() {
                    log::error!("the query log stays as it was: {error:#}");
                }
            }
            Command::Stop => {
                self.stop_at = Some(now + self.config.linger);
                self.tcp.clear(); // The sockets of UDP stay, for answers.
            }
            Command::Servers(reply) => {
                let _ = reply.send(self.servers(now)); // A tool that has gone needs none.
            }
            Command::Counters(reply) => {
                let _ = reply.send(self.counts());
            }
            Command::Flush(name, scope, reply) => {
                let _ = reply.send(self.core.resolver.flush(&name, scope));
            }
        }
    }

    fn reload_certificate(&self) {
        let Some((front, _)) = &self.encrypted else { return };
        if let Err(error) = front.reload_certificate() {
            log::error!("the certificate stays as it was: {:#}", anyhow::Error::from(error));
        }
    }

    fn servers(&self, now: Instant) -> Vec<NameServerReport> {
        let reports = self.core.resolver.servers(now).into_iter();
        let lines = reports.map(|server| NameServerReport {
            address: server.address,
            srtt_us: server.srtt.map(Duration::as_micros),
            rttvar_us: server.rttvar.map(Duration::as_micros),
            penalty_us: server.penalty.as_micros(),
            silent: server.silent,
            edns: server.edns,
            tcp: server.tcp,
            queries: server.queries,
            probes: server.probes,
            answers: server.answers,
            losses: server.losses,
            age_ms: server.age.as_millis(),
        });
        lines.collect()
    }

    fn counts(&self) -> Vec<Count> {
        let (entries, octets, evictions) = self.core.resolver.cache_usage();
        let [tasks, clients, queries] = self.core.resolver.load();
        let lost = self.query_log.as_ref().map_or(0, |log| log.answers.lost());
        let usage = [
            ("query_log_lost", lost),
            ("cache_entries", entries as u64),
            ("cache_octets", octets as u64),
            ("cache_evictions", evictions),
            ("tasks", tasks as u64),
            ("clients_waiting", clients as u64),
            ("queries_in_flight", queries as u64),
        ];
        let tcp = self.streams.admission().counters().named();
        let counters = self.core.resolver.counters().named();
        let resolver = counters
            .into_iter()
            .chain(usage)
            .chain(self.core.front.counts())
            .map(|(name, value)| (format!("resolver_{name}"), value));
        let engine = self.engine.iter().flat_map(|engine| engine.counters().named());
        let engine = engine.map(|(name, value)| (format!("engine_{name}"), value));
        let encrypted = self.encrypted.iter().flat_map(|(front, _)| front.admission().counters().named());
        let encrypted = encrypted.map(|(name, value)| (format!("encrypted_{name}"), value));
        resolver
            .chain(engine)
            .chain(encrypted)
            .chain(tcp.map(|(name, value)| (format!("tcp_{name}"), value)))
            .collect()
    }
}

/// Opens the sockets of UDP, unless an interface brings what they would, and those of TCP, and has them watched.
fn open_sockets(config: &Config, registry: &Registry) -> anyhow::Result<(Vec<Listener>, Vec<TcpListener>)> {
    let (mut udp, mut tcp) = (Vec::new(), Vec::new());
    let sockets = device_kernel::Config {
        share_port: false,
        receive_buffer: SOCKET_BUFFER,
        send_buffer: SOCKET_BUFFER,
        ..device_kernel::Config::default()
    };
    for address in &config.listen {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}"));
        let mut local = *address;
        if config.device.is_none() {
            let socket = Datagrams::open(*address, &sockets)?;
            local = socket.local_addr();
            let descriptor = socket.as_fd().as_raw_fd();
            let place = token(Kind::Udp, udp.len() as u64);
            registry.register(&mut SourceFd(&descriptor), place, Interest::READABLE)?;
            udp.push(Listener { socket, answers: Vec::new() });
        }
        let mut listener = TcpListener::from_std(tcp::listen(local, false).map_err(named)?);
        let place = token(Kind::Listener, tcp.len() as u64);
        registry.register(&mut listener, place, Interest::READABLE)?;
        tcp.push(listener);
    }
    Ok((udp, tcp))
}

/// What comes by the interface. Answers that are not known leave late, once [`Server::deliver`] has them.
impl UdpResponder for Server {
    fn respond(&mut self, batch: &mut [Datagram<'_>], now: Instant) {
        self.has_received = true;
        for datagram in batch {
            datagram.reply = self.answer_in_place(datagram, now);
        }
    }

    fn has_late_answers(&self) -> bool {
        !self.late.is_empty()
    }

    fn late_answer(&mut self) -> Option<(ReturnPath, Vec<u8>)> {
        self.late.pop_front()
    }
}
