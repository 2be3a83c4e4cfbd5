//! Carries out each request.

use clock::Instant;

use super::broker::{ADDRESSES_MAX, Broker};
use super::connection::{Connection, Fault};
use super::helpers::Theirs;
use super::names::{name_of, printable};
use super::outcome::{Outcome, done};
use crate::protocol::{
    Answer, ClaimId, Key, Options, ProgramReport, QUEUES_MAX, Refusal, Request, Transport, Welcome,
};
use crate::registry::{ClientId, LinkNumber};

/// Interfaces in a [`Request::Serve`] at most.
const LINKS_MAX: usize = 64;

impl Broker {
    /// Carries out a request and answers it, unless the answer takes its time. An error ends the client.
    pub(super) fn handle(
        &mut self,
        client: ClientId,
        id: u64,
        request: Request,
        fds: Vec<Theirs>,
        now: Instant,
    ) -> Result<(), Fault> {
        let is_first = matches!(request, Request::Hello { .. } | Request::Join { .. });
        let connection = self.connections.get(&client);
        let is_known = connection.is_some_and(|connection| connection.program.is_some());
        let is_stranger = connection.is_some_and(Connection::is_stranger);
        if is_first == is_known
            || is_stranger && !self.is_for_strangers(&request)
            || self.families.is_head(client)
            || fds.len() > fds_max(&request)
        {
            return Err(Fault::OutOfOrder);
        }
        let outcome = self.carry_out(client, id, request, fds, now);
        self.conclude(client, id, outcome, now)
    }

    /// Who is no program that we know may join, and come back with what a killed broker has lent it.
    fn is_for_strangers(&self, request: &Request) -> bool {
        match request {
            Request::Join { .. } => true,
            Request::Hello { .. } => self.succession.is_some(),
            // Without a queue there is nothing to prove.
            Request::Serve { key: Some(_), queues } => {
                self.succession.is_some() && queues.iter().any(|(_, served)| !served.is_empty())
            }
            _ => false,
        }
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
        fds: Vec<Theirs>,
        now: Instant,
    ) -> Outcome {
        let mut fds = fds.into_iter();
        let fd = fds.next();
        match request {
            Request::Hello { version, program, .. } => self.hello(client, version, program),
            Request::Join { version, options } => done(self.join(client, version, options)),
            Request::Queues { wanted: true } => Ok(Some((self.attach(client, now), None))),
            Request::Queues { wanted: false } => {
                self.registry.give_back(client, now);
                done(Ok(()))
            }
            Request::Serve { queues, key } => done(self.serve_queues(client, key, &queues, now)),
            Request::Claim { transport, purpose, again } => {
                let socket = fd.ok_or(Refusal::NoSocket)?;
                self.examine_shadow((client, id), (transport, purpose, again), socket, now)
            }
            Request::Release { claims, drain } => self.release(client, claims, drain, now),
            Request::Route { remote, from } => self.route(client, id, remote, from, now),
            Request::Unanswered { local, remote } => self.on_unanswered(client, (local, remote), now),
            Request::Move { connection, offered } => {
                self.take_over((client, id), (connection, offered), fd, now)
            }
            Request::Enqueue { connections, offered } => {
                let listener = fd.ok_or(Refusal::NoSocket)?;
                self.enqueue((client, id), (connections, offered), (listener, fds.next()), now)
            }
            Request::MoveFor { keys, local, remote } => {
                self.inherit((client, id), &keys, (local, remote), now)
            }
            Request::Give { token: Some(token) } => {
                let asked = self.answer_question(client, token, fd, now);
                done(asked.then_some(()).ok_or(Refusal::NotAsked))
            }
            Request::Give { token: None } => {
                self.examine_handed((client, id), fd.ok_or(Refusal::NoSocket)?, now)
            }
            Request::Handshake(handshake) => done(self.keep_handshake(client, handshake, now)),
            Request::Book => done(self.note_book(client, fd)),
            Request::IsShared { claim } => done(self.is_shared(client, claim)),
            Request::LeaveSocket { claim } => done(self.leave_socket(client, claim, now)),
            Request::Deliver { local, remote, octets } => {
                self.deliver_to((client, id), fd, (local, remote), octets, now)
            }
            Request::Stray { local, remote, octets } => {
                self.look_for_owner((client, id), (local, remote), &octets, now)
            }
            Request::Unknown { token } => self.on_unknown(client, token, now),
            Request::Status(report) => {
                self.note_report(client, report, now);
                done(Ok(()))
            }
        }
    }

    fn is_shared(&self, client: ClientId, claim: ClaimId) -> Result<(), Refusal> {
        self.registry.has_others(client, claim)?.then_some(()).ok_or(Refusal::Nobody)
    }

    fn hello(&mut self, client: ClientId, version: u32, program: String) -> Outcome {
        let pid = self.connections.get(&client).map_or(0, |connection| connection.pid);
        self.check_version(pid, version)?;
        let addresses_max = ADDRESSES_MAX / self.ports.len().max(1);
        let interfaces = self.ports.iter().filter_map(|port| port.interface(addresses_max)).collect();
        let connection = self.connections.get_mut(&client).ok_or(Refusal::NotYours)?;
        connection.program = Some(name_of(connection.pid, &program));
        let options = Options::clone(&connection.options);
        let is_kept = self.ports.iter().filter_map(|port| port.open.as_ref()).any(|open| open.path.is_kept());
        Ok(Some((Answer::Welcome(Welcome { interfaces, options, key: connection.key, is_kept }), None)))
    }

    fn attach(&mut self, client: ClientId, now: Instant) -> Answer {
        if !self.ports.iter().any(|port| self.registry.has_queues(client, port.link)) {
            self.registry.set_identity(client, self.identify(client));
        }
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

    fn serve_queues(
        &mut self,
        client: ClientId,
        key: Option<Key>,
        queues: &[(LinkNumber, Vec<u16>)],
        now: Instant,
    ) -> Result<(), Refusal> {
        let is_too_much = |(_, queues): &(LinkNumber, Vec<u16>)| queues.len() > usize::from(QUEUES_MAX);
        if queues.len() > LINKS_MAX || queues.iter().any(is_too_much) {
            return Err(Refusal::TooMany);
        }
        if let Some(key) = key {
            return self.take_back(client, key, queues, now);
        }
        if queues.iter().any(|(link, _)| !self.registry.has_queues(client, *link)) {
            return Err(Refusal::NotYours);
        }
        queues.iter().for_each(|(link, queues)| self.registry.on_ready(client, *link, queues));
        self.show(client);
        Ok(())
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

/// How many descriptors belong to the request at most.
fn fds_max(request: &Request) -> usize {
    match request {
        Request::Enqueue { .. } => 2,
        Request::Claim { .. }
        | Request::Move { .. }
        | Request::Give { .. }
        | Request::Deliver { .. }
        | Request::Book => 1,
        _ => 0,
    }
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
