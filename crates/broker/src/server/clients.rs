//! Clients: connecting, sending, blocking, leaving.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use clock::{Duration, Instant};
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, getrlimit, pidfd_open, setrlimit};

use super::broker::{Broker, watch};
use super::connection::{Connection, Fault, Untold};
use super::family::{Kin, nearest};
use super::helpers::{Passed, Theirs};
use super::machine::random_numbers;
use super::names::printable;
use super::notice::Notice;
use super::privilege::is_as_privileged;
use super::strangers::set_rights;
use super::token;
use crate::peer::Peer;
use crate::protocol::{Answer, Key, News, Options, ProtocolError, Refusal, ToBroker, VERSION, decode};
use crate::registry::{ClientId, Identity};
use crate::shares::{User, has_room};
use crate::transfer::Arrival;

/// Clients at one time, of which one user has its share: see [`has_room`].
const CLIENTS_MAX: usize = 1024;
/// Of these, of one process: what was forked and has not said its own number yet counts too.
const CLIENTS_OF_A_PROCESS_MAX: usize = 16;
/// Connections that are accepted, and messages of one client that are read, in one turn.
const ACCEPTS_MAX: usize = 16;
const MESSAGES_MAX: usize = 32;
/// Messages that are read of a process that has ended: a child of it may go on to send in its name.
const UNREAD_MAX: u32 = 1024;
/// Numbers for descriptors that are left for the broker's own work when as many clients are connected as there are numbers for.
const RESERVED: u64 = 16;
/// How long no client is accepted after descriptors ran out.
const DEAFNESS: Duration = Duration::from_millis(50);

/// How long a process that nobody has started may be connected before it has joined, or proven what it had.
const STRANGE_MAX: Duration = Duration::from_secs(10);

/// Who connects, and the key of the client that it becomes.
struct Welcomed {
    pid: u32,
    pidfd: Option<OwnedFd>,
    key: Key,
    kin: Kin,
    is_stranger: bool,
}

impl Broker {
    /// Accepts the clients that may connect.
    pub(super) fn accept(&mut self, now: Instant) {
        for _ in 0..ACCEPTS_MAX {
            if self.helpers.are_overrun() || self.strangers.are_too_many() {
                return self.stop_listening(now);
            }
            match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                // A stranger, or one too many, sees the end of the connection; everything of its runs on the kernel.
                Ok(socket) => self.admit(socket, now),
                Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                    return self.stop_listening(now);
                }
                Err(_) => return,
            }
        }
    }

    fn stop_listening(&mut self, now: Instant) {
        let _ = epoll::delete(&self.epoll, &self.listener);
        self.deaf_until = Some(now + DEAFNESS);
    }

    /// Listens again when there may be descriptors.
    pub(super) fn listen_again(&mut self, now: Instant) {
        if self.deaf_until.is_some_and(|until| now >= until) {
            let added = watch(&self.epoll, &self.listener, token::LISTENER, EventFlags::IN);
            self.deaf_until = added.is_err().then_some(now + DEAFNESS);
        }
    }

    fn admit(&mut self, socket: OwnedFd, now: Instant) {
        let peer = Peer::of(&socket);
        let user = peer.as_ref().map_or(User::MAX, |peer| peer.uid);
        let socket = Theirs::new(socket, user, &self.helpers);
        let Some(welcome) = peer.ok().and_then(|peer| self.examine_peer(socket.as_fd(), &peer)) else {
            return self.strangers.turn_away(socket);
        };
        // What a stranger may ask needs no descriptors.
        set_rights(&socket, !welcome.is_stranger);
        let client = self.registry.add_client();
        self.registry.set_user(client, user);
        let Welcomed { pid, pidfd, key, kin, is_stranger } = welcome;
        let mut connection = Connection::new(socket, pidfd, (pid, user), key, &kin);
        connection.stranger_since = is_stranger.then_some(now);
        let watched = watch(&self.epoll, connection.socket(), token::socket(client), EventFlags::IN);
        let process = connection.pidfd.as_ref();
        let watched = watched.and_then(|()| match process {
            Some(process) => watch(&self.epoll, process, token::process(client), EventFlags::IN),
            None => Ok(()),
        });
        self.connections.insert(client, connection);
        if watched.is_err() {
            self.connections.remove(&client);
            self.registry.remove_client(client, Instant::ZERO);
        }
    }

    /// Disconnects who is still none of ours, and has no `sidestep run` of its own: others need the room.
    pub(super) fn end_strangers(&mut self, now: Instant) {
        let is_late = |since: Instant| now.since(since) >= STRANGE_MAX;
        let late = self.connections.iter().filter(|(_, it)| it.stranger_since.is_some_and(is_late));
        let late: Vec<ClientId> =
            late.map(|(client, _)| *client).filter(|client| !self.families.is_head(*client)).collect();
        late.into_iter().for_each(|client| self.disconnect(client, &Fault::Stranger, now));
    }

    /// Who connects; `None` if it may not.
    fn examine_peer(&self, socket: BorrowedFd<'_>, peer: &Peer) -> Option<Welcomed> {
        // Opened before anything is asked about the process: a number that was used again later does no harm.
        let pidfd = Pid::from_raw(peer.pid as i32).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let pid = peer.pid; // Those of other PID namespaces are as one process.
        let own = self.connections.values().filter(|connection| connection.pid == pid).count();
        let users = self.connections.values().map(|connection| connection.user);
        let is_one_too_many = !has_room(CLIENTS_MAX, users, peer.uid) || own >= CLIENTS_OF_A_PROCESS_MAX;
        if is_one_too_many {
            return None;
        }
        let kin = self.families.of(socket, peer).cloned().or_else(|| self.kin_of_parents(pid));
        let is_program = kin.is_some() || self.may_come_back(peer);
        // A program of a killed broker may be another user's by now, and prove who it was.
        if !is_program && !is_as_privileged(pid, peer.uid) && self.succession.is_none() {
            return None;
        }
        raise_descriptor_limit();
        has_numbers_left(socket).then_some(())?;
        let kin = kin.unwrap_or_else(|| self.families.unknown());
        Some(Welcomed { pid, pidfd, key: Key(random_numbers().ok()?), kin, is_stranger: !is_program })
    }

    /// Whose a process is by the nearest of its ancestors that is connected: the `sidestep run` that started them may have been killed.
    fn kin_of_parents(&self, pid: u32) -> Option<Kin> {
        nearest(pid, |ancestor| {
            let mut programs = self.connections.values().filter(|it| it.is_program() && it.pid == ancestor);
            // Filters that a program has set count as its own, whoever started it.
            programs.next().map(|it| Kin {
                joined: it.joined,
                head: std::process::id(),
                options: Arc::clone(&it.options),
            })
        })
    }

    /// Another `sidestep run` joins, with all that descend from it.
    pub(super) fn join(&mut self, client: ClientId, version: u32, options: Options) -> Result<(), Refusal> {
        let pid = self.connections.get(&client).map_or(0, |connection| connection.pid);
        self.check_version(pid, version)?;
        if self.is_closing {
            return Err(Refusal::Ends);
        }
        if !self.is_as_privileged(client) {
            return Err(Refusal::MayNotJoin);
        }
        if !self.ports.iter().filter_map(|port| port.open.as_ref()).any(|open| open.path.is_kept()) {
            return Err(Refusal::NotKept);
        }
        self.families.join(client, pid, options);
        self.find_kin();
        self.notices.push(Notice::Joined { pid });
        Ok(())
    }

    /// Programs may have come back to this broker before who has started them, and share as their own `sidestep run` says.
    fn find_kin(&mut self) {
        let mut share_otherwise = Vec::new();
        for (client, connection) in self.connections.iter_mut().filter(|(_, it)| it.joined.is_none()) {
            let Some(kin) = self.families.of_descendant(connection.pid) else { continue };
            let shared = connection.options.share;
            connection.note_kin(kin);
            share_otherwise.extend((connection.options.share != shared).then_some(*client));
        }
        for client in share_otherwise {
            self.registry.set_identity(client, self.identify(client));
        }
    }

    /// Who speaks another version of the protocol is refused.
    pub(super) fn check_version(&mut self, pid: u32, version: u32) -> Result<(), Refusal> {
        if version == VERSION {
            return Ok(());
        }
        self.notices.push(Notice::OtherVersion { pid, version });
        Err(Refusal::Version(VERSION))
    }

    /// One of a client's descriptors is ready.
    pub(super) fn serve(&mut self, client: ClientId, which: u64, flags: EventFlags, now: Instant) {
        if which == token::control(client) {
            return self.introduce(client, now);
        }
        let is_under_way = self.is_under_way(client);
        let Some(connection) = self.connections.get_mut(&client) else { return };
        if which == token::process(client) {
            connection.unread.get_or_insert(UNREAD_MAX);
            connection.pidfd.take().into_iter().for_each(|process| _ = epoll::delete(&self.epoll, &process));
            return self.read_the_rest(client, now);
        }
        let outcome = if is_under_way && !flags.contains(EventFlags::OUT) {
            return; // It is gone, perhaps, but what it has asked for last is done.
        } else if flags.contains(EventFlags::OUT) {
            connection.flush().and_then(|()| self.read(client, now))
        } else {
            self.read(client, now)
        };
        self.note(client, outcome, now);
    }

    /// Reads what a process sent before it ended, which others may need, such as its children; then it is gone.
    pub(super) fn read_the_rest(&mut self, client: ClientId, now: Instant) {
        let has_ended = |it: &Connection| it.unread.is_some();
        // To its end: nothing tells of it again if a child has the socket.
        while self.connections.get(&client).is_some_and(has_ended) && !self.is_under_way(client) {
            let outcome = self.read(client, now);
            self.note(client, outcome, now);
        }
    }

    /// Whether helpers do something for a client, which is read again after that.
    fn is_under_way(&self, client: ClientId) -> bool {
        self.under_way.has(client) || self.gives.contains_key(&client)
    }

    /// Reads what a client sent, a part of it if it is much: others want to be served too.
    fn read(&mut self, client: ClientId, now: Instant) -> Result<(), Fault> {
        for _ in 0..MESSAGES_MAX {
            let is_under_way = self.is_under_way(client);
            let Some(connection) = self.connections.get_mut(&client) else { return Ok(()) };
            // A client that does not read its answers gets no more of them; what is queued comes first.
            if connection.is_waiting() && connection.unread.is_none() || is_under_way {
                return Ok(());
            }
            let user = connection.user;
            let is_last = connection.unread.as_mut().is_some_and(|unread| {
                *unread = unread.saturating_sub(1);
                *unread == 0
            });
            let take = |fd| Theirs::new(fd, user, &self.helpers);
            let arrival = self.inbox.receive(connection.socket(), take).map_err(|_| Fault::Gone)?;
            let (message, fds) = match arrival {
                Arrival::Nothing if connection.unread.is_none() => return Ok(()),
                Arrival::Nothing | Arrival::End => return Err(Fault::Gone),
                Arrival::Message(parcel) => (decode::<ToBroker>(parcel.octets), parcel.fds),
            };
            if !fds.is_empty() && self.helpers.is_too_much(user) {
                return Err(Fault::HoldsUp);
            }
            // The error quotes what it is about.
            let no_message = |error: ProtocolError| Fault::NoMessage(printable(&error.to_string()));
            let ToBroker { id, request } = message.map_err(no_message)?;
            self.handle(client, id, request, fds, now)?;
            if is_last {
                return Err(Fault::Gone);
            }
        }
        Ok(())
    }

    /// Answers a request.
    pub(super) fn answer(
        &mut self,
        client: ClientId,
        id: u64,
        outcome: Result<Answer, Refusal>,
        fds: Vec<Passed>,
    ) -> Result<(), Fault> {
        let answer = outcome.unwrap_or_else(Answer::Refused);
        self.connections.get_mut(&client).map_or(Ok(()), |connection| connection.answer(id, answer, fds))
    }

    /// Tells one client something.
    pub(super) fn tell(&mut self, client: ClientId, news: News, fds: Vec<Passed>, now: Instant) {
        let Some(connection) = self.connections.get_mut(&client) else { return };
        match connection.tell(news, fds) {
            Ok(()) => self.note(client, Ok(()), now),
            Err(Untold::Fault(fault)) => self.note(client, Err(fault), now),
            Err(Untold::TooLong(error)) => {
                let (pid, error) = (connection.pid, error.to_string());
                self.notices.push(Notice::NotTold { pid, error });
            }
        }
    }

    /// Whether a client's process has the broker's privileges.
    pub(super) fn is_as_privileged(&self, client: ClientId) -> bool {
        let connection = self.connections.get(&client);
        connection.is_some_and(|connection| is_as_privileged(connection.pid, connection.user))
    }

    /// With whom a client's process may share queues: with its like, who it is now and for good, unless it may with anybody.
    pub(super) fn identify(&self, client: ClientId) -> Option<Identity> {
        let connection = self.connections.get(&client)?;
        if connection.options.share {
            return Some(Identity::ANYBODY);
        }
        let process = connection.pidfd.as_ref().map(AsFd::as_fd);
        (self.identify)((connection.pid, connection.user), process)
    }

    /// The user of a client's process, while it is there.
    pub(super) fn user_of(&self, client: ClientId) -> User {
        self.connections.get(&client).map_or(User::MAX, |connection| connection.user)
    }

    /// Whether others may have things told to a client, see [`Connection::is_patient`].
    pub(super) fn is_patient(&self, client: ClientId) -> bool {
        self.connections.get(&client).is_some_and(Connection::is_patient)
    }

    /// Sends to all clients.
    pub(super) fn tell_all(&mut self, news: &News, now: Instant) {
        let known = self.connections.iter().filter(|(_, connection)| connection.is_program());
        let clients: Vec<ClientId> = known.map(|(client, _)| *client).collect();
        clients.into_iter().for_each(|client| self.tell(client, news.clone(), Vec::new(), now));
    }

    /// Tells all clients that routes may have changed.
    pub(super) fn tell_ways_changed(&mut self, now: Instant) {
        let clients: Vec<ClientId> = self.connections.keys().copied().collect();
        for client in clients {
            let known = self.connections.get_mut(&client).filter(|connection| connection.is_program());
            if let Some(outcome) = known.map(Connection::tell_ways_changed) {
                self.note(client, outcome, now);
            }
        }
    }

    /// After something was done for a client: disconnects it if it is at fault, and waits for it to read if it must.
    pub(super) fn note(&mut self, client: ClientId, outcome: Result<(), Fault>, now: Instant) {
        match outcome {
            Ok(()) => self.set_interest(client),
            Err(fault) => self.disconnect(client, &fault, now),
        }
    }

    pub(super) fn set_interest(&mut self, client: ClientId) {
        let Some(connection) = self.connections.get(&client) else { return };
        let flags = match (connection.is_waiting(), self.is_under_way(client)) {
            (true, _) => EventFlags::OUT,
            // Nothing is read from it now. epoll always reports its end, and does so once.
            (false, true) => EventFlags::ONESHOT,
            (false, false) => EventFlags::IN,
        };
        let data = epoll::EventData::new_u64(token::socket(client));
        // The connection is watched, and changing that takes no memory.
        let _ = epoll::modify(&self.epoll, connection.socket(), data, flags);
    }

    /// A client is gone, or is to go. What it had goes with it.
    pub(super) fn disconnect(&mut self, client: ClientId, fault: &Fault, now: Instant) {
        let Some(mut connection) = self.connections.remove(&client) else { return };
        // A child may have the socket open, and epoll watches the file, not our descriptor of it.
        let _ = epoll::delete(&self.epoll, connection.socket());
        if let Some(process) = &connection.pidfd {
            let _ = epoll::delete(&self.epoll, process.as_fd());
        }
        if *fault != Fault::Gone {
            let (pid, fault) = (connection.pid, fault.to_string());
            self.notices.push(Notice::Disconnected { pid, fault });
        }
        let claims: Vec<_> = self.registry.claims(client).map(|(claim, ..)| claim).collect();
        self.doomed.extend(claims.into_iter().filter_map(|claim| self.kept.remove((claim, client))));
        let places = self.registry.tcp_bounds(client);
        self.registry.remove_client(client, now);
        if let Some(book) = connection.book.take().filter(|_| !places.is_empty()) {
            self.farewells.add(book, places);
        }
        self.families.remove(client);
        self.routes.forget(client);
        self.under_way.forget(client);
        for question in self.questions.expire(now, Some(client)) {
            self.ask_on(question, now);
        }
        let nobodys = self.strays.forget(client);
        self.settle_strays(nobodys, Err(Refusal::Nobody), now);
    }
}

/// Whether enough numbers for descriptors are left beside this one, which has the lowest that was free.
fn has_numbers_left(fd: BorrowedFd<'_>) -> bool {
    let limit = getrlimit(Resource::Nofile).current;
    limit.is_none_or(|limit| fd.as_raw_fd() as u64 + RESERVED <= limit)
}

/// Each client costs two descriptors, and each outgoing connection one. Not done before somebody connects: the program inherits
/// the limit when it is started, and may take it for a hint.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }); // Less will do as well.
    }
}
