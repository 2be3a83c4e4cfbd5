//! The broker as an [`Attachment`].

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use broker::client::{self, Client, ClientError, Event, Granted, Search, Ticket};
use broker::protocol::{KEYS_MAX, Key, Refusal, Route, Welcome};
use clock::{Duration, Instant};
use stack::{Handshake, Hop, LateSegment, LinkHeader, LinkId, Stray};
use transit::{Established, SocketKind};
use wire::{MacAddress, VlanTag};

use crate::address::source_for;
use crate::broker_side::attachment::{
    Answers, Asked, Attachment, CameOfBegun, ClaimId, Enqueued, HomePorts, Incident, NotMoved, Observer,
    Peer, Purpose, RequestId, Routed, Status, Way,
};
use crate::broker_side::left_to_kernel::MadeBecause;
use crate::broker_side::strays::{Sought, Strays};
use crate::broker_side::values::{
    asked, came_of_begun, changes_ways, filter_of, home_ports_of, incident_of, outcomes, program_report,
    unless_refused,
};
use crate::broker_side::ways::Ways;
use crate::descriptors::internal;

/// Interfaces and IP versions of which it is remembered what was told of ports.
const HOME_PORTS_MAX: usize = 16;
/// A stray is passed on with what it says if it has so many octets at most: requests are short, and octets are numbers in messages.
const PASSED_MAX: usize = 512;
/// Connections that one request moves into an accept queue, fewer than the broker takes: one that is stopped in the middle holds up no more than these.
const ENQUEUED_TOGETHER: usize = 8;
/// How long a broker has for its first answer before the program goes on without it. It may come later.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(3);
/// How long after the end of a broker another one that had joined it may need to take its place.
const SUCCESSION_MAX: std::time::Duration = std::time::Duration::from_secs(2);

/// A client of the broker, with what it was asked and has not answered.
pub(crate) struct Brokered {
    name: String,
    /// Those of the processes that this one was forked from, the nearest first.
    inherited_keys: Vec<Key>,
    line: Line,
    welcome: Welcome,
    routes: Vec<AskedWay>,
    ways: Ways,
    /// What was told of interfaces of which some queues are ours; the latest first.
    home_ports: Vec<Arc<HomePorts>>,
    inherits: Vec<(RequestId, Ticket)>,
    /// Lists of connections that are to wait in the kernel's accept queues, and how long they are.
    enqueues: Vec<(RequestId, usize, Ticket)>,
    /// Claims that are to take no new connections.
    drains: Vec<(RequestId, Ticket)>,
    strays: Strays,
    incidents: std::collections::VecDeque<Incident>,
    /// Queues that were granted and are not driven yet.
    granted: Vec<(LinkId, Vec<u16>)>,
    next_request: u64,
    /// When there was nobody at the broker's name for the first time.
    missed_since: Option<std::time::Instant>,
}

/// A question for the way to a peer.
struct AskedWay {
    request: RequestId,
    ticket: Ticket,
    /// Where to, from where, and when that was asked; `None` if something changed since, so that the answer may be of before.
    asked: Option<((IpAddr, Option<IpAddr>), Instant)>,
}

/// The way to the broker.
enum Line {
    /// Nothing had to be said yet: most children only become another program.
    Idle,
    /// The broker has been told who we are, and has not answered: it may be stopped.
    Greeted(Box<Client>, Ticket),
    Open(Box<Client>),
    /// It is gone.
    Cut,
}

impl Brokered {
    /// Reaches the broker of that name; `None` if it is not there.
    pub(crate) fn connect(name: &str) -> Option<Brokered> {
        let (mut client, ticket) = dial(name).ok()?;
        let welcome = client.await_welcome(&ticket, PATIENCE).ok()??;
        let mut brokered = Brokered::idle(name.to_owned(), Vec::new(), welcome);
        brokered.line = Line::Open(Box::new(client));
        Some(brokered)
    }

    /// One that reaches the broker when it has something to say.
    fn idle(name: String, inherited_keys: Vec<Key>, welcome: Welcome) -> Brokered {
        Brokered {
            name,
            inherited_keys,
            line: Line::Idle,
            welcome,
            routes: Vec::new(),
            ways: Ways::default(),
            home_ports: Vec::new(),
            inherits: Vec::new(),
            enqueues: Vec::new(),
            drains: Vec::new(),
            strays: Strays::default(),
            incidents: std::collections::VecDeque::new(),
            granted: Vec::new(),
            next_request: 0,
            missed_since: None,
        }
    }

    /// Whether another broker may be about to take the place of the one that our parent had.
    fn may_follow(&mut self) -> bool {
        let since = *self.missed_since.get_or_insert_with(std::time::Instant::now);
        self.welcome.is_kept && since.elapsed() < SUCCESSION_MAX
    }

    /// The broker may answer within that time; else it is asked later whether it has.
    fn hear_welcome(&mut self, patience: std::time::Duration) -> Result<(), ClientError> {
        let Line::Greeted(client, ticket) = &mut self.line else { return Ok(()) };
        let Some(welcome) = client.await_welcome(ticket, patience)? else { return Ok(()) };
        self.welcome = welcome;
        if let Line::Greeted(client, _) = std::mem::replace(&mut self.line, Line::Cut) {
            self.line = Line::Open(client);
        }
        Ok(())
    }

    fn enqueue_some(
        &mut self,
        connections: &[&Established],
        listener: BorrowedFd<'_>,
        offered_for: Option<Duration>,
    ) -> Vec<Enqueued> {
        let (offered_for, count) = (offered_for.map(Into::into), connections.len());
        let answer = self.ask(|client| match client.enqueue(connections, listener, offered_for) {
            Err(ClientError::Refused(Refusal::TooLate)) => Ok(Err(NotMoved::NotYet)),
            Err(ClientError::Refused(_) | ClientError::Unmade(_)) => Ok(Err(NotMoved::Refused)),
            enqueued => enqueued.map(Ok),
        });
        match answer.unwrap_or(Err(NotMoved::Lost)) {
            Ok(client::Enqueued::Answered(refused)) => {
                outcomes(count, refused).into_iter().map(Enqueued::Done).collect()
            }
            Ok(client::Enqueued::Begun(ticket)) => {
                let request = self.next_request();
                self.enqueues.push((request, count, ticket));
                vec![Enqueued::Begun(request); count]
            }
            Err(why) => vec![Enqueued::Done(Err(why)); count], // Without an answer nobody knows.
        }
    }

    /// Asks, unless the broker is gone; notices if it is by now.
    fn ask<T>(&mut self, ask: impl FnOnce(&mut Client) -> Result<T, ClientError>) -> Result<T, String> {
        let client = match &mut self.line {
            Line::Open(client) => client,
            Line::Idle | Line::Greeted(..) => return Err(ClientError::TimedOut.to_string()),
            Line::Cut => return Err(ClientError::Gone.to_string()),
        };
        ask(client).map_err(|error| {
            if error.is_fatal() {
                self.line = Line::Cut;
                self.incidents.push_back(Incident::Gone);
            }
            error.to_string()
        })
    }

    fn next_request(&mut self) -> RequestId {
        self.next_request += 1;
        RequestId(self.next_request)
    }

    fn on_granted(&mut self, granted: Granted) {
        let link = LinkId(granted.grant.interface.link);
        let descriptors: Vec<RawFd> = granted.sockets.iter().map(AsRawFd::as_raw_fd).collect();
        let queues = granted.grant.queues;
        let index = granted.grant.interface.index;
        // A queue that cannot be mapped stays silent until the process ends, and the kernel's sockets continue.
        if let Ok(device) = device_xdp::adopt(granted.grant.layout, granted.memory, granted.sockets) {
            self.granted.push((link, queues));
            self.incidents.push_back(Incident::Granted { link, index, device, descriptors });
            let filters = granted.grant.sources.into_iter().map(filter_of).collect();
            self.incidents.push_back(Incident::Sources(link, filters));
        }
    }

    fn on_event(&mut self, event: Event) {
        if changes_ways(&event) {
            self.forget_ways();
        }
        match event {
            Event::QueueGranted(granted) => self.on_granted(granted),
            Event::Adopt { claim, socket, .. } => {
                self.incidents.push_back(Incident::Adopt { claim: ClaimId(claim.0), socket });
            }
            Event::Observer { pid, program, stream } => {
                self.incidents.push_back(Incident::Observer(Observer { stream, pid, program }));
            }
            Event::Returned(welcome) => {
                self.welcome = *welcome;
                self.incidents.push_back(Incident::Returned);
            }
            Event::News(news) => self.incidents.extend(incident_of(news)),
        }
    }

    /// Ways that were told, or are about to be, may not be so any more.
    fn forget_ways(&mut self) {
        self.ways.forget();
        self.routes.iter_mut().for_each(|route| route.asked = None);
    }

    fn way_of(&mut self, route: Route) -> Way {
        let tag = |vlan: u16| (vlan != 0).then_some(VlanTag { tpid: 0x8100, control: vlan });
        let header = LinkHeader {
            destination: MacAddress(route.destination),
            source: MacAddress(route.source),
            tags: route.vlan.map(tag),
        };
        let hop = Hop { link: LinkId(route.link), header };
        let answers = match route.home_ports {
            _ if route.all_queues_yours => Answers::Ours,
            Some(told) => Answers::From(self.home_ports_of(told)),
            None => Answers::Anybodys,
        };
        Way { local: route.local, hop, answers }
    }

    /// The same value as before if it is the same: who compares them need not look into them.
    fn home_ports_of(&mut self, told: broker::protocol::HomePorts) -> Arc<HomePorts> {
        let home = home_ports_of(told);
        let known = self.home_ports.iter().find(|known| ***known == home).cloned();
        known.unwrap_or_else(|| {
            let home = Arc::new(home);
            self.home_ports.truncate(HOME_PORTS_MAX - 1);
            self.home_ports.insert(0, Arc::clone(&home));
            home
        })
    }

    /// Whether a claim takes no new connections by now; its place in the list is free if so. What was refused has none.
    fn look_at_drain(&mut self, (request, ticket): (RequestId, Ticket), within: Duration) -> bool {
        let is_drained = self.ask(|client| client.is_drained(&ticket, within.into())) != Ok(false);
        if !is_drained {
            self.drains.push((request, ticket));
        }
        is_drained
    }

    fn poll_enqueues(&mut self) -> Vec<Incident> {
        let mut answers = Vec::new();
        for (request, count, ticket) in std::mem::take(&mut self.enqueues) {
            match self.ask(|client| unless_refused(client.poll_enqueued(&ticket))) {
                Ok(Ok(None)) => self.enqueues.push((request, count, ticket)),
                answer => {
                    let answer = answer.map(|answer| answer.map(Option::unwrap_or_default));
                    answers.push(Incident::Enqueued(request, came_of_begun(count, answer)));
                }
            }
        }
        answers
    }

    /// The answers that have come to questions which take their time.
    fn poll_tickets(&mut self) -> Vec<Incident> {
        let mut answers = Vec::new();
        for AskedWay { request, ticket, asked } in std::mem::take(&mut self.routes) {
            let routed = match self.ask(|client| unless_refused(client.poll_route(&ticket))) {
                Ok(Ok(None)) => {
                    self.routes.push(AskedWay { request, ticket, asked });
                    continue;
                }
                Ok(Ok(Some(route))) => {
                    let way = self.way_of(route);
                    asked.into_iter().for_each(|(ends, at)| self.ways.note(ends, way.clone(), at));
                    Routed::Way(way)
                }
                Ok(Err(Refusal::NoNeighbour)) => Routed::NoHost,
                Ok(Err(_)) | Err(_) => Routed::NotOurs,
            };
            answers.push(Incident::Routed(request, routed));
        }
        for (request, ticket) in std::mem::take(&mut self.inherits) {
            match self.ask(|client| client.poll_move_for(&ticket)) {
                Ok(None) => self.inherits.push((request, ticket)),
                answer => answers.push(Incident::ParentAnswers(request, answer.ok().flatten())),
            }
        }
        answers.extend(self.poll_enqueues());
        for drain in std::mem::take(&mut self.drains) {
            self.look_at_drain(drain, Duration::ZERO); // Who asked looks again.
        }
        for asked in std::mem::take(&mut self.strays.asked) {
            let search = match self.ask(|client| client.poll_stray(&asked.ticket)) {
                Ok(None) => {
                    self.strays.asked.push(asked);
                    continue;
                }
                answer => answer.ok().flatten().unwrap_or(Search::Open),
            };
            match search {
                Search::Open => continue, // Its sender tries again.
                Search::Alone => self.strays.on_alone(asked.stray.local.port(), asked.at),
                Search::Nobodys => {}
            }
            answers.push(Incident::Nobodys(asked.stray));
        }
        answers
    }
}

impl Attachment for Brokered {
    fn descriptor(&self) -> Option<RawFd> {
        match &self.line {
            Line::Open(client) | Line::Greeted(client, _) => client.fd_to_sleep_on().map(|fd| fd.as_raw_fd()),
            Line::Idle | Line::Cut => None,
        }
    }

    fn reach(&mut self) -> bool {
        let reached = match std::mem::replace(&mut self.line, Line::Cut) {
            Line::Idle => dial(&self.name).and_then(|(client, ticket)| {
                self.line = Line::Greeted(Box::new(client), ticket);
                self.hear_welcome(PATIENCE)
            }),
            line @ Line::Greeted(..) => {
                self.line = line;
                self.hear_welcome(std::time::Duration::ZERO)
            }
            line => {
                self.line = line;
                Ok(())
            }
        };
        match reached {
            Ok(()) => {}
            // Its socket has no room: it may be stopped.
            Err(ClientError::System(error)) if error.raw_os_error() == libc::EAGAIN => {
                self.line = Line::Idle;
            }
            Err(ClientError::System(error))
                if error.raw_os_error() == libc::ECONNREFUSED && self.may_follow() =>
            {
                self.line = Line::Idle;
            }
            Err(_) => {
                self.line = Line::Cut;
                self.incidents.push_back(Incident::Gone);
            }
        }
        matches!(self.line, Line::Open(_))
    }

    fn may_be_reached(&self) -> bool {
        !matches!(self.line, Line::Cut)
    }

    fn has_incident(&self) -> bool {
        !self.incidents.is_empty() || matches!(&self.line, Line::Open(client) if client.has_news())
    }

    fn spin(&self) -> Duration {
        Duration::from_micros(self.welcome.options.spin_us.into())
    }

    fn gather(&self) -> Duration {
        Duration::from_micros(self.welcome.options.gather_us.into())
    }

    fn mss_clamp(&self) -> Option<u16> {
        self.welcome.options.mss_clamp
    }

    fn leaves_unsuited(&mut self) -> bool {
        let Line::Open(client) = &mut self.line else { return false };
        self.welcome.options.profile.leaves_unsuited && client.is_behind().is_ok_and(|is_behind| !is_behind)
    }

    fn wants(&self, purpose: Purpose) -> bool {
        let profile = &self.welcome.options.profile;
        !matches!(self.line, Line::Cut)
            && match purpose {
                Purpose::Listener => profile.listeners,
                Purpose::Outgoing => profile.outgoing,
                Purpose::Udp => profile.udp,
            }
    }

    fn attach(&mut self) {
        if let Ok(attached) = self.ask(Client::attach) {
            attached.granted.into_iter().for_each(|granted| self.on_granted(granted));
        }
    }

    fn ready(&mut self, link: LinkId) {
        for (granted, queues) in std::mem::take(&mut self.granted) {
            if granted == link {
                // If the broker is gone, so are the queues.
                let _ = self.ask(|client| client.ready(link.0, &queues));
            } else {
                self.granted.push((granted, queues));
            }
        }
    }

    fn claim(&mut self, shadow: BorrowedFd<'_>, purpose: Purpose) -> Result<Option<ClaimId>, String> {
        let (transport, purpose) = asked(purpose);
        self.ask(|client| match client.claim(transport, purpose, shadow) {
            Err(ClientError::TimedOut) => Ok(None),
            claimed => claimed.map(|(claim, _)| Some(ClaimId(claim.0))),
        })
    }

    fn claim_again(&mut self, shadow: BorrowedFd<'_>, purpose: Purpose, claim: ClaimId) {
        let ((transport, purpose), claim) = (asked(purpose), broker::protocol::ClaimId(claim.0));
        let _ = self.ask(|client| client.claim_again(transport, purpose, shadow, claim)); // If that one is gone, too, there will be another.
    }

    fn release(&mut self, claims: &[ClaimId]) {
        let claims: Vec<_> = claims.iter().map(|claim| broker::protocol::ClaimId(claim.0)).collect();
        // If the broker is gone, so are the claims; here as below.
        let _ = self.ask(|client| client.release_all(&claims));
    }

    fn begin_route(
        &mut self,
        peer: Peer<'_>,
        from: Option<IpAddr>,
        now: Instant,
    ) -> Result<RequestId, MadeBecause> {
        let ends = (peer.ip, from);
        if let Some(way) = self.ways.find(ends, now) {
            let request = self.next_request();
            self.incidents.push_back(Incident::Routed(request, Routed::Way(way)));
            return Ok(request);
        }
        source_for(peer.name, peer.domain).ok_or(MadeBecause::NotOurs)?;
        let ticket = self.ask(|client| client.begin_route(peer.ip, from)).map_err(|_| MadeBecause::Broker)?;
        let request = self.next_request();
        self.routes.push(AskedWay { request, ticket, asked: Some((ends, now)) });
        Ok(request)
    }

    fn give_up_route(&mut self, request: RequestId) {
        for AskedWay { ticket, .. } in self.routes.extract_if(.., |asked| asked.request == request) {
            if let Line::Open(client) = &mut self.line {
                client.abandon(&ticket);
            }
        }
    }

    fn unanswered(&mut self, local: SocketAddr, remote: SocketAddr) {
        let _ = self.ask(|client| client.unanswered(local, remote)); // If the broker is gone, nobody relies on the interface any more.
    }

    fn move_to_kernel(
        &mut self,
        connection: &Established,
        socket: SocketKind,
        offered_for: Option<Duration>,
    ) -> Result<OwnedFd, NotMoved> {
        let offered_for = offered_for.map(Into::into);
        let moved = self.ask(|client| match client.move_connection(connection, socket, offered_for) {
            Err(ClientError::Refused(Refusal::Lost(_))) => Ok(Err(NotMoved::Lost)),
            Err(ClientError::Refused(Refusal::TooLate)) => Ok(Err(NotMoved::NotYet)),
            Err(ClientError::Refused(_) | ClientError::Unmade(_)) => Ok(Err(NotMoved::Refused)),
            moved => moved.map(Ok),
        });
        // Without an answer nobody knows.
        moved.unwrap_or(Err(NotMoved::Lost))
    }

    fn enqueue(
        &mut self,
        connections: &[&Established],
        listener: BorrowedFd<'_>,
        offered_for: Option<Duration>,
    ) -> Vec<Enqueued> {
        let mut enqueued = Vec::with_capacity(connections.len());
        for some in connections.chunks(ENQUEUED_TOGETHER) {
            // Where it stands still, others need not find out again.
            let stands_still = !self.enqueues.is_empty() && offered_for.is_some();
            match stands_still {
                true => enqueued.extend(some.iter().map(|_| Enqueued::Done(Err(NotMoved::NotYet)))),
                false => enqueued.extend(self.enqueue_some(some, listener, offered_for)),
            }
        }
        enqueued
    }

    fn await_enqueued(&mut self, request: RequestId) -> CameOfBegun {
        if let Some(outcome) = self.look_at_enqueued(request) {
            return outcome;
        }
        let asked = self.enqueues.iter().position(|(of, ..)| *of == request);
        let Some((_, count, ticket)) = asked.map(|at| self.enqueues.remove(at)) else {
            return Err(NotMoved::Lost);
        };
        came_of_begun(count, self.ask(|client| unless_refused(client.await_enqueued(ticket))))
    }

    fn look_at_enqueued(&mut self, request: RequestId) -> Option<CameOfBegun> {
        let answers = self.poll_enqueues();
        self.incidents.extend(answers);
        let is_it = |incident: &Incident| matches!(incident, Incident::Enqueued(of, _) if *of == request);
        let came = self.incidents.iter().position(is_it).and_then(|at| self.incidents.remove(at));
        match came {
            Some(Incident::Enqueued(_, outcome)) => Some(outcome),
            _ if self.enqueues.iter().any(|(of, ..)| *of == request) => None,
            _ => Some(Err(NotMoved::Lost)),
        }
    }

    fn give_up(&mut self) {
        if let Line::Open(client) = &mut self.line {
            client.give_up_waiting();
        }
    }

    fn has_returned(&mut self) -> bool {
        while let Ok(Some(event)) = self.ask(Client::poll_event) {
            self.on_event(event);
        }
        let is_it = |incident: &Incident| matches!(incident, Incident::Returned);
        let at = self.incidents.iter().position(is_it);
        at.and_then(|at| self.incidents.remove(at)).is_some()
    }

    fn has_given_up(&mut self) -> bool {
        self.ask(Client::has_given_up).unwrap_or(true)
    }

    fn deliver_late(&mut self, segment: &LateSegment) {
        // What the kernel does not get, the peer sends again.
        let _ = self.ask(|client| client.deliver_late(segment.local, segment.remote, &segment.octets));
    }

    fn begin_stray(&mut self, stray: Box<Stray>, now: Instant) -> Result<(), Box<Stray>> {
        if self.strays.is_alone(stray.local.port(), now) {
            return Err(stray);
        }
        if self.strays.is_asked(&stray) {
            return Ok(());
        }
        if matches!(&self.line, Line::Open(client) if client.is_left_alone()) {
            return Ok(()); // Other processes cannot be asked. Its sender tries again, and a broker may be there by then.
        }
        let octets = if stray.octets.len() <= PASSED_MAX { &*stray.octets } else { &[] };
        let begun = self.ask(|client| match client.begin_stray(stray.local, stray.remote, octets) {
            Err(ClientError::TimedOut | ClientError::Unmade(_)) => Ok(None), // The broker may have been stopped. As above.
            begun => begun.map(Some),
        });
        match begun {
            Ok(Some(ticket)) => self.strays.asked.push(Sought { stray, ticket, at: now }),
            Ok(None) => {}
            Err(_) => return Err(stray),
        }
        Ok(())
    }

    fn disown(&mut self, token: u64) {
        let _ = self.ask(|client| client.disown(token));
    }

    fn give_to_child(&mut self, token: u64, socket: BorrowedFd<'_>) {
        let _ = self.ask(|client| client.give_to_child(token, socket));
    }

    fn refuse_child(&mut self, token: u64) {
        let _ = self.ask(|client| client.refuse_child(token));
    }

    fn begin_inherit(&mut self, local: SocketAddr, remote: SocketAddr) -> Asked<RequestId> {
        let keys = self.inherited_keys.clone();
        let begun = self.ask(|client| match client.begin_move_for(&keys, local, remote) {
            Err(ClientError::TimedOut | ClientError::Unmade(_)) if !client.is_left_alone() => Ok(None),
            begun => begun.map(Some),
        });
        match begun {
            Ok(Some(ticket)) => {
                let request = self.next_request();
                self.inherits.push((request, ticket));
                Asked::Yes(request)
            }
            Ok(None) => Asked::NotYet,
            Err(_) => Asked::Nobody,
        }
    }

    fn keep_book(&mut self, book: BorrowedFd<'_>) {
        let _ = self.ask(|client| client.keep_book(book)); // Another broker is told again.
    }

    fn is_shared(&mut self, claim: ClaimId) -> bool {
        self.ask(|client| client.is_shared(broker::protocol::ClaimId(claim.0))).unwrap_or(false)
    }

    fn leave_socket(&mut self, claim: ClaimId) {
        // If the broker is gone, whoever has the socket finds the same.
        let _ = self.ask(|client| client.leave_socket(broker::protocol::ClaimId(claim.0)));
    }

    fn deliver(&mut self, shadow: BorrowedFd<'_>, local: SocketAddr, remote: SocketAddr, octets: &[u8]) {
        // What cannot be delivered is lost, as datagrams may be.
        let _ = self.ask(|client| client.deliver(shadow, local, remote, octets));
    }

    fn settle(&mut self) {
        let settle = |client: &mut Client| if client.is_behind()? { Ok(()) } else { client.settle() };
        let _ = self.ask(settle); // What it refused is nobody's.
    }

    fn move_to_sibling(&mut self, socket: OwnedFd) {
        if self.ask(|client| client.hand_over(socket.as_fd())).is_err() {
            // No process has its listener any more: connections that waited there are reset.
            let at_once = [1i32.to_ne_bytes(), 0i32.to_ne_bytes()].concat();
            let _ = syscall::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &at_once);
        }
        let _ = syscall::close(std::os::fd::IntoRawFd::into_raw_fd(socket)); // It was open: nothing to fail.
    }

    fn move_handshake(&mut self, handshake: Handshake) {
        // If no process will have it, the peer is reset, as by a kernel that has forgotten the connection.
        let _ = self.ask(|client| client.hand_on(handshake));
    }

    fn drain(&mut self, claim: ClaimId) {
        let _ = self.ask(|client| client.drain(broker::protocol::ClaimId(claim.0)));
    }

    fn begin_to_drain(&mut self, claim: ClaimId) -> Option<RequestId> {
        let claim = broker::protocol::ClaimId(claim.0);
        let begun = self.ask(|client| match client.begin_to_drain(claim) {
            Err(ClientError::TimedOut | ClientError::Unmade(_)) => Ok(None),
            begun => begun.map(Some),
        });
        let ticket = begun.ok().flatten()?;
        let request = self.next_request();
        self.drains.push((request, ticket));
        Some(request)
    }

    fn is_drained(&mut self, request: RequestId, within: Duration) -> bool {
        let at = self.drains.iter().position(|(of, _)| *of == request);
        let drain = at.map(|at| self.drains.remove(at));
        drain.is_none_or(|drain| self.look_at_drain(drain, within))
    }

    fn stands_still(&mut self) -> bool {
        self.ask(Client::stands_still).unwrap_or(false) // If it is gone, nobody is waited for.
    }

    fn give_back(&mut self) {
        self.forget_ways();
        let _ = self.ask(Client::give_back);
        // What was granted meanwhile is not ours either.
        while let Ok(Some(event)) = self.ask(Client::poll_event) {
            self.on_event(event);
        }
        self.granted.clear();
        self.incidents.retain(|incident| !matches!(incident, Incident::Granted { .. }));
    }

    fn report(&mut self, status: Status) {
        let report = program_report(status);
        let _ = self.ask(|client| client.report(report));
    }

    fn poll(&mut self) -> Option<Incident> {
        if self.incidents.is_empty() {
            let answers = self.poll_tickets();
            // What came before an answer goes before it: a way that needs all queues is of no use until they are there.
            while let Ok(Some(event)) = self.ask(Client::poll_event) {
                self.on_event(event);
            }
            self.incidents.extend(answers);
        }
        self.incidents.pop_front()
    }

    fn in_child(self: Box<Self>) -> Option<Box<dyn Attachment>> {
        // One that never said anything has nothing that could be inherited.
        let own = matches!(self.line, Line::Open(_)).then_some(self.welcome.key);
        let keys = own.into_iter().chain(self.inherited_keys.iter().copied());
        let child = match self.line {
            Line::Cut => None,
            _ => Some(Brokered::idle(self.name.clone(), keys.take(KEYS_MAX).collect(), self.welcome.clone())),
        };
        // Its descriptors were closed by number, as all internal ones.
        std::mem::forget(self);
        child.map(|child| Box::new(child) as Box<dyn Attachment>)
    }
}

/// Connects to the broker of that name.
fn dial(name: &str) -> Result<(Client, Ticket), ClientError> {
    let program = std::env::args_os().next().unwrap_or_default();
    let program = program.to_string_lossy().into_owned();
    let pid = syscall::process_id().unsigned_abs();
    Client::greet(name.as_bytes(), &program, pid, internal::floor())
}
