//! Carries out each request.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use clock::Instant;

use super::broker::{Broker, Notice};
use super::connection::Fault;
use super::helpers::{Passed, Theirs};
use super::port::address;
use super::questions::Question;
use super::routes::is_local;
use super::{datagram, shadow};
use crate::protocol::{
    Answer, ClaimId, Claimed, KEYS_MAX, Key, NAME_MAX, News, ProgramReport, Purpose, QUEUES_MAX, Refusal,
    Request, Transport, VERSION, Welcome,
};
use crate::registry::{ClientId, LinkNumber, Shadow};

/// Addresses of all interfaces together in a message, and of one in news.
pub(super) const ADDRESSES_MAX: usize = 400;
/// Places of a claim in an answer.
const PLACES_MAX: usize = 200;

/// An answer at once, with at most one descriptor; `Ok(None)`: it comes later.
pub(super) type Outcome = Result<Option<(Answer, Option<Passed>)>, Refusal>;

fn done(outcome: Result<(), Refusal>) -> Outcome {
    outcome.map(|()| Some((Answer::Done, None)))
}

impl Broker {
    /// Carries out a request and answers it, unless the answer takes its time. An error ends the client.
    pub(super) fn handle(
        &mut self,
        client: ClientId,
        id: u64,
        request: Request,
        mut fds: Vec<Theirs>,
        now: Instant,
    ) -> Result<(), Fault> {
        let is_hello = matches!(request, Request::Hello { .. });
        let is_known = self.connections.get(&client).is_some_and(|connection| connection.program.is_some());
        if is_hello == is_known || fds.len() > usize::from(takes_fd(&request)) {
            return Err(Fault::OutOfOrder);
        }
        let outcome = self.carry_out(client, id, request, fds.pop(), now);
        self.conclude(client, id, outcome, now)
    }

    /// Answers a request, unless the answer takes its time.
    pub(super) fn conclude(
        &mut self,
        client: ClientId,
        id: u64,
        outcome: Outcome,
        now: Instant,
    ) -> Result<(), Fault> {
        // The actions come first, then the answer.
        self.settle_registry(now);
        match outcome {
            Ok(None) => Ok(()),
            Ok(Some((answer, fd))) => self.answer(client, id, Ok(answer), fd.into_iter().collect()),
            Err(refusal) => self.answer(client, id, Err(refusal), Vec::new()),
        }
    }

    fn carry_out(
        &mut self,
        client: ClientId,
        id: u64,
        request: Request,
        fd: Option<Theirs>,
        now: Instant,
    ) -> Outcome {
        match request {
            Request::Hello { version, program, .. } => self.hello(client, version, program),
            Request::Attach => Ok(Some((self.attach(client, now), None))),
            Request::Ready { link, queues } => done(self.ready(client, link, &queues)),
            Request::Claim { transport, purpose } => {
                let socket = fd.ok_or(Refusal::NoSocket)?;
                self.examine_shadow((client, id), transport, purpose, socket, now)
            }
            Request::Release { claim } => {
                self.registry.release(client, claim)?;
                // Before the kernel may give the port to others.
                self.settle_registry(now);
                self.let_go((client, id), claim, now)
            }
            Request::Drain { claim } => done(self.registry.drain(client, claim, now)),
            Request::Route { remote, from } => self.route(client, id, remote, from, now),
            Request::Move { connection } => self.take_over((client, id), connection, fd, now),
            Request::Surrendered { token } => {
                let socket = fd.ok_or(Refusal::NoSocket)?;
                let asked = self.answer_question(client, token, Some(&socket), now);
                done(asked.then_some(()).ok_or(Refusal::NotAsked))
            }
            Request::NotSurrendered { token } => {
                let asked = self.answer_question(client, token, None, now);
                done(asked.then_some(()).ok_or(Refusal::NotAsked))
            }
            Request::MoveFor { keys, local, remote } => {
                let holders = self.holders(client, &keys);
                let question = self.questions.ask((client, id), holders, (local, remote), now);
                self.tell_holder(question.ok_or(Refusal::NoParent)?, now);
                Ok(None)
            }
            Request::Adopt => self.examine_handed((client, id), fd.ok_or(Refusal::NoSocket)?, now),
            Request::Handshake(handshake) => done(self.keep_handshake(client, handshake, now)),
            Request::IsShared { claim } => {
                let shared = self.registry.has_others(client, claim)?;
                done(shared.then_some(()).ok_or(Refusal::Nobody))
            }
            Request::Deliver { local, remote, octets } => {
                let socket = fd.ok_or(Refusal::NoSocket)?;
                self.examine_receiver((client, id), socket, (local, remote), octets, now)
            }
            Request::Late { local, remote, octets } => {
                done(self.deliver_late(client, (local, remote), &octets, now))
            }
            Request::GiveBack => {
                self.registry.give_back(client, now);
                done(Ok(()))
            }
            Request::Status(report) => {
                self.note_report(client, report, now);
                done(Ok(()))
            }
        }
    }

    fn hello(&mut self, client: ClientId, version: u32, program: String) -> Outcome {
        if version != VERSION {
            let pid = self.connections.get(&client).map_or(0, |connection| connection.pid);
            self.notices.push(Notice::OtherVersion { pid, version });
            return Err(Refusal::Version(VERSION));
        }
        let options = self.options.clone();
        let addresses_max = ADDRESSES_MAX / self.ports.len().max(1);
        let interfaces = self.ports.iter().filter_map(|port| port.interface(addresses_max)).collect();
        let connection = self.connections.get_mut(&client).ok_or(Refusal::NotYours)?;
        connection.program = Some(name_of(connection.pid, &program));
        Ok(Some((Answer::Welcome(Welcome { interfaces, options, key: connection.key }), None)))
    }

    fn attach(&mut self, client: ClientId, now: Instant) -> Answer {
        self.registry.attach(client, now);
        self.settle_registry(now); // Grants come before the answer.
        let lacks = self.ports.iter().filter(|port| !self.registry.has_queues(client, port.link));
        let without = lacks.map(|port| {
            let refusal = match (&port.failure, &port.open) {
                (Some(failure), _) => Refusal::Interface(failure.clone()),
                (None, None) => Refusal::Interface(port.describe_failure()),
                (None, Some(_)) => Refusal::NoFreeQueue,
            };
            (port.link, refusal)
        });
        Answer::Attached { without: without.collect() }
    }

    fn ready(&mut self, client: ClientId, link: LinkNumber, queues: &[u16]) -> Result<(), Refusal> {
        if queues.len() > usize::from(QUEUES_MAX) || !self.registry.has_queues(client, link) {
            return Err(Refusal::NotYours);
        }
        self.registry.on_ready(client, link, queues);
        self.show(client);
        Ok(())
    }

    fn examine_shadow(
        &mut self,
        (client, id): (ClientId, u64),
        transport: Transport,
        purpose: Purpose,
        socket: Theirs,
        now: Instant,
    ) -> Outcome {
        self.check_profile(purpose)?;
        let namespace = self.namespace;
        let look = move |socket: Theirs| {
            let found = shadow::examine(&socket, transport.into(), purpose, namespace);
            let kept = match (&found, purpose) {
                (Ok(_), Purpose::Outgoing) => Some(socket),
                (Ok(_), _) => {
                    socket.close(); // Before the answer: then the port is the client's to give up.
                    None
                }
                (Err(_), _) => None,
            };
            (found, kept)
        };
        type Found = (Result<Shadow, Refusal>, Option<Theirs>);
        let then = move |broker: &mut Broker, (found, socket): Found, now: Instant| {
            broker.claim(client, found?, socket, now).map(|answer| Some((answer, None)))
        };
        self.set_aside((client, id), move |_| look(socket), then, now)
    }

    fn claim(
        &mut self,
        client: ClientId,
        shadow: Shadow,
        kept: Option<Theirs>,
        now: Instant,
    ) -> Result<Answer, Refusal> {
        let purpose = shadow.purpose;
        if purpose == Purpose::Outgoing && !self.kept.have_room(self.user_of(client)) {
            return Err(Refusal::TooMany);
        }
        let claim = self.registry.claim(client, shadow)?;
        self.offer_handshakes(client, now);
        kept.into_iter().for_each(|socket| self.kept.insert(claim, socket));
        let places = self.registry.places_of(claim).into_iter().take(PLACES_MAX);
        let on = places.map(|(link, local)| Claimed { link, local: address(local) }).collect();
        Ok(Answer::Claimed { claim, on })
    }

    /// Closes the socket of a claim that is released, if we have it: when the client hears of it, the port is free.
    fn let_go(&mut self, (client, id): (ClientId, u64), claim: ClaimId, now: Instant) -> Outcome {
        match self.kept.remove(claim) {
            Some(socket) => self.set_aside((client, id), |_| socket.close(), |_, (), _| done(Ok(())), now),
            None => done(Ok(())),
        }
    }

    fn check_profile(&self, purpose: Purpose) -> Result<(), Refusal> {
        let profile = &self.options.profile;
        let wanted = match purpose {
            Purpose::Listener => profile.listeners,
            Purpose::Outgoing => profile.outgoing,
            Purpose::Udp => profile.udp,
        };
        match (wanted, &profile.reason) {
            (true, _) => Ok(()),
            (false, Some(reason)) => Err(Refusal::Profile(reason.clone())),
            (false, None) => Err(Refusal::Profile(format!("by the profile {}", profile.name))),
        }
    }

    fn route(
        &mut self,
        client: ClientId,
        id: u64,
        remote: IpAddr,
        from: Option<IpAddr>,
        now: Instant,
    ) -> Outcome {
        let mirror = self.monitor.mirror();
        self.routes.begin((client, id), (remote, from), &self.ports, mirror, now)?;
        self.registry.on_connecting(client, now);
        self.settle_registry(now); // It has its queues before it has the way.
        self.answer_routes(now); // The neighbour is known more often than not.
        Ok(None)
    }

    /// Answers the requests whose route is known by now.
    pub(super) fn answer_routes(&mut self, now: Instant) {
        for mut found in self.routes.settle(&self.ports, self.monitor.mirror(), now) {
            if let Ok(route) = &mut found.outcome {
                route.all_queues_yours = self.registry.has_all_queues(found.client, route.link);
            }
            let answer = found.outcome.map(Answer::Route);
            let outcome = self.answer(found.client, found.id, answer, Vec::new());
            self.note(found.client, outcome, now);
        }
    }

    /// The clients with these keys. A client that does not read its messages is not asked.
    fn holders(&self, asker: ClientId, keys: &[Key]) -> Vec<ClientId> {
        let holder = |key: &Key| {
            let mut others = self.connections.iter().filter(|(other, _)| **other != asker);
            others.find(|(_, connection)| connection.key == *key && connection.is_patient())
        };
        keys.iter().take(KEYS_MAX).filter_map(holder).map(|(holder, _)| *holder).collect()
    }

    fn tell_holder(&mut self, question: Question, now: Instant) {
        let Question { token, holder, local, remote, .. } = question;
        self.tell(holder, News::Surrender { token, local, remote }, Vec::new(), now);
    }

    /// Passes the holder's answer to the client that asked, or asks the next one; returns whether a client had asked.
    pub(super) fn answer_question(
        &mut self,
        holder: ClientId,
        token: u64,
        socket: Option<&Theirs>,
        now: Instant,
    ) -> bool {
        let Some(question) = self.questions.close(token, holder) else { return false };
        match socket.and_then(|socket| socket.try_clone().ok()) {
            Some(copy) => {
                let outcome = self.answer(question.asker, question.id, Ok(Answer::Moved), vec![copy.into()]);
                self.note(question.asker, outcome, now);
            }
            None => self.ask_on(question, now),
        }
        true
    }

    /// Asks the next client that may have the connection, if there is one.
    pub(super) fn ask_on(&mut self, question: Question, now: Instant) {
        let (asker, id) = (question.asker, question.id);
        match self.questions.ask_next(question, now) {
            Some(next) if self.is_patient(next.holder) => self.tell_holder(next, now),
            Some(next) => {
                // A client with many unread questions is not asked more; otherwise any client could have it disconnected.
                self.questions.close(next.token, next.holder);
                self.ask_on(next, now);
            }
            None => {
                let outcome = self.answer(asker, id, Err(Refusal::NoParent), Vec::new());
                self.note(asker, outcome, now);
            }
        }
    }

    fn examine_handed(&mut self, (client, id): (ClientId, u64), socket: Theirs, now: Instant) -> Outcome {
        let namespace = self.namespace;
        let look = move |socket: Theirs| {
            let ends = shadow::examine_connection(&socket, namespace)?;
            Ok((socket, ends))
        };
        type Found = Result<(Theirs, (SocketAddr, SocketAddr)), Refusal>;
        let then = move |broker: &mut Broker, found: Found, now: Instant| {
            let (socket, ends) = found?;
            done(broker.hand_over(client, socket, ends, now))
        };
        self.set_aside((client, id), move |_| look(socket), then, now)
    }

    /// Another program takes the connection for one that came to its listener: what is none, or came to none of the client's own, is
    /// not let through.
    fn hand_over(
        &mut self,
        client: ClientId,
        socket: Theirs,
        (local, remote): (SocketAddr, SocketAddr),
        now: Instant,
    ) -> Result<(), Refusal> {
        if !self.registry.has_listened(client, local) {
            return Err(Refusal::NoSuchClaim);
        }
        let heir = self.registry.heir(client, local).filter(|(heir, _)| self.is_patient(*heir));
        let Some((heir, claim)) = heir else {
            return self.keep_orphan(client, socket, (local, remote), now).map_err(|_| Refusal::Nobody);
        };
        self.tell(heir, News::Adopt { claim, local, remote }, vec![socket.into()], now);
        Ok(())
    }

    fn examine_receiver(
        &mut self,
        (client, id): (ClientId, u64),
        socket: Theirs,
        (local, remote): (SocketAddr, SocketAddr),
        octets: Vec<u8>,
        now: Instant,
    ) -> Outcome {
        let namespace = self.namespace;
        let look = move |socket: Theirs| {
            let shadow = shadow::examine(&socket, steering::Transport::Udp, Purpose::Udp, namespace);
            socket.close();
            shadow
        };
        let then = move |broker: &mut Broker, shadow: Result<Shadow, Refusal>, _now: Instant| {
            done(broker.deliver(&shadow?, local, remote, &octets))
        };
        self.set_aside((client, id), move |_| look(socket), then, now)
    }

    fn deliver(
        &self,
        shadow: &Shadow,
        local: SocketAddr,
        remote: SocketAddr,
        octets: &[u8],
    ) -> Result<(), Refusal> {
        if !shadow.bound.covers(local) {
            return Err(Refusal::NotBound);
        }
        self.check_is_local(local)?;
        // With an address of this host, or of a group, it could intercept packets for other services.
        if remote.port() == 0 || remote.ip().is_multicast() || self.is_own(remote) {
            return Err(Refusal::Local);
        }
        datagram::deliver(local, remote, octets).map_err(|error| Refusal::NotTaken(error.to_string()))
    }

    /// A client may speak for its peers, but to this host only: the address may have moved away.
    pub(super) fn check_is_local(&self, address: SocketAddr) -> Result<(), Refusal> {
        let ip = address.ip().to_canonical();
        let route = control::route_to(ip).map_err(|error| Refusal::NoRoute(error.to_string()))?;
        is_local(ip, route, self.monitor.mirror()).then_some(()).ok_or(Refusal::NotBound)
    }

    /// Whether it is an address of this host, as far as is known.
    pub(super) fn is_own(&self, address: SocketAddr) -> bool {
        let (ip, mirror) = (address.ip().to_canonical(), self.monitor.mirror());
        let is_on = |link: &control::Link| mirror.addresses(link.index).any(|address| address == ip);
        ip.is_loopback() || ip.is_unspecified() || mirror.links().any(is_on)
    }

    fn note_report(&mut self, client: ClientId, mut report: ProgramReport, now: Instant) {
        report.sockets.truncate(ProgramReport::SOCKETS_MAX);
        report.clean(printable);
        if let Some(connection) = self.connections.get_mut(&client) {
            connection.report = Some((report, now));
            connection.is_asked = false;
        }
    }
}

/// What a process was started as; if that cannot be seen, what it says it is. Its file would not do: one file may be several
/// programs.
pub(super) fn name_of(pid: u32, said: &str) -> String {
    /// Octets that the kernel keeps of the name.
    const COMM_LEN: usize = 15;
    let file_name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let comm = comm.trim_end();
    let file = std::fs::read_link(format!("/proc/{pid}/exe")).ok().and_then(|path| file_name(&path));
    let name = match file {
        Some(file) if comm.len() >= COMM_LEN && file.starts_with(comm) => file,
        _ if comm.is_empty() => file_name(Path::new(said)).unwrap_or_default(),
        _ => comm.to_owned(),
    };
    printable(&name)
}

/// What a process says, to be shown: it may say something that moves a terminal's cursor.
pub(super) fn printable(text: &str) -> String {
    text.chars().take(NAME_MAX).map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Whether a descriptor belongs to the request.
fn takes_fd(request: &Request) -> bool {
    matches!(
        request,
        Request::Claim { .. }
            | Request::Move { .. }
            | Request::Surrendered { .. }
            | Request::Adopt
            | Request::Deliver { .. }
    )
}

impl From<Transport> for steering::Transport {
    fn from(transport: Transport) -> steering::Transport {
        match transport {
            Transport::Tcp => steering::Transport::Tcp,
            Transport::Udp => steering::Transport::Udp,
        }
    }
}

impl From<steering::Transport> for Transport {
    fn from(transport: steering::Transport) -> Transport {
        match transport {
            steering::Transport::Tcp => Transport::Tcp,
            steering::Transport::Udp => Transport::Udp,
        }
    }
}
