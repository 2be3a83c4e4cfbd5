//! The library's end of the connection to the broker.
//!
//! It runs inside foreign programs whose C library is hooked, so it makes system calls through `rustix` and [`syscall`] only. Its
//! descriptors have at least the number that is given to [`Client::connect`], out of the program's way.
//!
//! Requests that the program's call cannot return without wait for their answer, some tenths of a millisecond: claims come and go before the
//! sockets do, and a moved connection has its socket. All others are sent, and what is wrong with them only costs what they were for.
//! [`Client::begin_route`] and [`Client::begin_move_for`] take seconds, and their answers are asked for, as is that of an [`Enqueued::Begun`]. News arrive through
//! [`Client::poll_event`], which never waits: call it when [`Client::fd`] is
//! readable, and before sleeping on it if [`Client::has_news`]. After an error of [`ClientError::is_fatal`] the broker is gone:
//! drop the client, and leave everything to the kernel.
//!
//! A broker that does not answer in time may be stopped (SIGSTOP), or starved. The queues are there all the same, so nothing is given
//! up but the answer. Until the broker has caught up, what wants an answer is [`ClientError::TimedOut`] at once, and what does not is sent
//! without waiting: the broker does it when it goes on.
//!
//! A broker that was killed is as one that does not answer, if the queues that it has lent go on without it
//! ([`is_kept`](crate::protocol::Grant::is_kept)), until another one takes its place: [`Event::Returned`].
//!
//! | file | what it has |
//! | --- | --- |
//! | `mod.rs` | each request, as a call |
//! | `exchange.rs` | how requests and answers travel |
//! | `event.rs` | what comes without being asked for |
//! | `without_broker.rs` | what is left when the broker is gone |
//! | `error.rs` | why there is no answer |

mod error;
mod event;
mod exchange;
pub(crate) mod without_broker;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use transit::{Established, Handshake, SocketKind};

pub use error::ClientError;
pub use event::{Attached, Event, Granted};

use crate::moving::{decide, pack, pack_all};
use crate::peer::Peer;
use crate::protocol::{
    Answer, ClaimId, Claimed, DATAGRAM_MAX, Key, News, ProgramReport, Purpose, RELEASED_MAX, Refusal,
    Request, Route, ToBroker, Transport, VERSION, Welcome, encode,
};
use crate::transfer::{Inbox, Internal, discard};
use event::raise;
use exchange::{Arrived, Late, Unawaited, moved, refused_of, unexpected};
use without_broker::Line;

/// How long an answer may take that does not depend on others.
const PATIENCE: Duration = Duration::from_secs(3);

/// The same for what may be asked later just as well.
const PATIENCE_IN_PASSING: Duration = Duration::from_millis(100);

/// The same for a connection that the stack has let go of: whoever gives up loses it.
const PATIENCE_TO_MOVE: Duration = Duration::from_secs(60);

/// A request whose answer takes time.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Ticket(u64);

/// A connection to the broker. Belongs to one process: a child that inherited it drops it, which says nothing to the broker, and
/// makes its own.
pub struct Client {
    socket: Internal,
    fd_floor: RawFd,
    last_id: u64,
    /// The last request to a broker that was killed: there are no more answers to those up to it.
    lost_to: u64,
    inbox: Inbox,
    /// Questions with tickets that are still held.
    open: BTreeMap<u64, Option<Arrived<Answer>>>,
    /// What came for some of them before their answers.
    ahead: BTreeMap<u64, Vec<OwnedFd>>,
    /// The same of news.
    ahead_of_news: Vec<(News, Vec<OwnedFd>)>,
    /// Requests for whose answers nobody waits, the earliest first. When one of them is old, the broker is behind.
    unawaited: BTreeMap<u64, Unawaited>,
    /// The first of them that was refused, since that was last asked.
    refused: Option<Refusal>,
    /// Requests for which the kernel had no room.
    unsent: VecDeque<Vec<u8>>,
    /// Nobody waits for it any more until it says something.
    given_up: bool,
    events: VecDeque<Event>,
    /// The broker's name, and our own introduction.
    name: Vec<u8>,
    hello: Vec<u8>,
    /// [`Welcome::key`].
    pub(crate) key: Key,
    /// Queues that we serve, by link.
    served: BTreeMap<u16, Vec<u16>>,
    /// We want queues.
    has_attached: bool,
    /// What the broker has lent goes on if it is killed.
    is_kept: bool,
    line: Line,
}

/// What became of connections that are to wait at the kernel's listener.
#[derive(Debug)]
pub enum Enqueued {
    /// They do, but for these.
    Answered(Vec<(usize, Refusal)>),
    /// They are the broker's, which has yet to say: [`Client::poll_enqueued`].
    Begun(Ticket),
}

/// What became of a request to move connections.
enum Moves {
    Answered(Arrived<Answer>),
    /// They were only offered, and the broker has begun.
    Begun(Ticket),
}

/// What became of the search for a connection's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// Somebody has it, or may have it.
    Open,
    /// Nobody has it.
    Nobodys,
    /// Nobody has it, as no other process has the port.
    Alone,
}

impl Client {
    /// Connects to the broker whose abstract socket has this name (the value of [`crate::protocol::ENVIRONMENT`]), and tells it that
    /// this is `program`. Descriptors of the connection, and those that come by it, are numbered `fd_floor` or higher.
    pub fn connect(
        name: &[u8],
        program: &str,
        pid: u32,
        fd_floor: RawFd,
    ) -> Result<(Client, Welcome), ClientError> {
        let (mut client, ticket) = Client::greet(name, program, pid, fd_floor)?;
        let welcome = client.await_welcome(&ticket, PATIENCE)?.ok_or(ClientError::TimedOut)?;
        Ok((client, welcome))
    }

    /// The same without waiting for the broker: nothing can be asked before [`Client::await_welcome`] has its answer.
    pub fn greet(
        name: &[u8],
        program: &str,
        pid: u32,
        fd_floor: RawFd,
    ) -> Result<(Client, Ticket), ClientError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let socket = Internal::new(raise(socket, fd_floor)?);
        let mut client = Client {
            socket,
            fd_floor,
            last_id: 0,
            inbox: Inbox::new(),
            lost_to: 0,
            open: BTreeMap::new(),
            ahead: BTreeMap::new(),
            ahead_of_news: Vec::new(),
            unawaited: BTreeMap::new(),
            refused: None,
            unsent: VecDeque::new(),
            given_up: false,
            events: VecDeque::new(),
            name: name.to_owned(),
            hello: Vec::new(),
            key: Key([0; 2]),
            served: BTreeMap::new(),
            has_attached: false,
            is_kept: false,
            line: Line::Connected,
        };
        connect(&client.socket, &SocketAddrUnix::new_abstract_name(name)?)?;
        client.check_peer()?;
        let request = Request::Hello { version: VERSION, program: program.to_owned(), pid };
        client.hello = encode(&ToBroker { id: 1, request: request.clone() })?;
        let ticket = client.begin(request)?;
        Ok((client, ticket))
    }

    /// What the broker answers to [`Client::greet`], if it does so within that time. `Ok(None)` may be asked again, after that never.
    pub fn await_welcome(
        &mut self,
        ticket: &Ticket,
        patience: Duration,
    ) -> Result<Option<Welcome>, ClientError> {
        match self.answer_until(ticket.0, Instant::now() + patience)?.map(|arrived| arrived.message) {
            None => Ok(None),
            Some(Answer::Welcome(welcome)) => {
                (self.key, self.is_kept) = (welcome.key, welcome.is_kept);
                Ok(Some(welcome))
            }
            Some(answer) => Err(unexpected(answer)),
        }
    }

    /// Anybody can bind an abstract name first. Only root, and this user itself, can be the broker.
    fn check_peer(&self) -> Result<(), ClientError> {
        if Peer::of(&self.socket)?.is_root_or_oneself() { Ok(()) } else { Err(ClientError::Impostor) }
    }

    /// Readable when there is something to take by [`Client::poll_event`].
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The same for who sleeps. None while the broker is gone and the process has no descriptor for a timer: then [`Client::poll_event`] is to
    /// be called from time to time.
    pub fn fd_to_sleep_on(&self) -> Option<BorrowedFd<'_>> {
        (!matches!(self.line, Line::Alone { looks_at: Some(_), .. })).then(|| self.fd())
    }

    /// Whether an event came while a request waited, so that [`Client::fd`] need not be readable for it.
    pub fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    /// The same, also for the answers of tickets.
    pub fn has_news(&self) -> bool {
        self.has_event() || self.open.iter().any(|(id, answer)| answer.is_some() || self.is_lost(*id))
    }

    /// What came, if anything; never waits.
    pub fn poll_event(&mut self) -> Result<Option<Event>, ClientError> {
        while self.events.is_empty() {
            if !self.receive()? {
                return Ok(None);
            }
        }
        Ok(self.events.pop_front())
    }

    /// Asks for queues. Once is enough: a queue that is released later comes as an [`Event::QueueGranted`].
    pub fn attach(&mut self) -> Result<Attached, ClientError> {
        self.has_attached = true;
        if self.is_behind()? {
            self.say(&Request::Queues { wanted: true }, &[])?; // What there is comes as events.
            return Err(ClientError::TimedOut);
        }
        match self.ask(Request::Queues { wanted: true }, &[])?.message {
            Answer::Attached { without } => Ok(Attached { granted: self.take_granted(), without }),
            answer => Err(unexpected(answer)),
        }
    }

    /// Says that granted queues are served: an engine has the device, and polls it. Claims take hold of them from now on.
    pub fn ready(&mut self, link: u16, queues: &[u16]) -> Result<(), ClientError> {
        self.served.entry(link).or_default().extend(queues);
        self.tell(&Request::Serve { queues: vec![(link, queues.to_vec())], key: None }, &[])
    }

    /// Asks that packets to where `shadow` is bound come to this process's queues; returns where they do by now.
    pub fn claim(
        &mut self,
        transport: Transport,
        purpose: Purpose,
        shadow: BorrowedFd<'_>,
    ) -> Result<(ClaimId, Vec<Claimed>), ClientError> {
        match self.ask(Request::Claim { transport, purpose, again: None }, &[shadow])?.message {
            Answer::Claimed { claim, on } => Ok((claim, on)),
            answer => Err(unexpected(answer)),
        }
    }

    /// Claims again what a broker has granted that was killed, after an [`Event::Returned`]. Waits until there is room for the request, and not
    /// for its answer: if there is another one by now that has the port, packets are that one's after a minute.
    pub fn claim_again(
        &mut self,
        transport: Transport,
        purpose: Purpose,
        shadow: BorrowedFd<'_>,
        claim: ClaimId,
    ) -> Result<(), ClientError> {
        // The broker answers one after the other, and hears nobody who does not listen to it.
        while self.receive()? {}
        let request = Request::Claim { transport, purpose, again: Some(claim) };
        let id = self.send(&request, &[shadow], Instant::now() + PATIENCE)?;
        self.unawaited.insert(id, Unawaited::new(&request));
        Ok(())
    }

    /// Gives a claim back; at the latest before its shadow is closed, unless it is drained.
    pub fn release(&mut self, claim: ClaimId) -> Result<(), ClientError> {
        self.ask_for_done(Request::Release { claims: vec![claim], drain: false }, &[])
    }

    /// The same for several. Those that are none of ours are left out.
    pub fn release_all(&mut self, claims: &[ClaimId]) -> Result<(), ClientError> {
        for some in claims.chunks(RELEASED_MAX) {
            match self.ask_for_done(Request::Release { claims: some.to_vec(), drain: false }, &[]) {
                Ok(()) | Err(ClientError::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Leaves new connections to the kernel, and keeps those that there are. To be called before the listener is closed.
    pub fn drain(&mut self, claim: ClaimId) -> Result<(), ClientError> {
        self.ask_for_done(Request::Release { claims: vec![claim], drain: true }, &[])
    }

    /// The same without waiting until it is so: [`Client::is_drained`].
    pub fn begin_to_drain(&mut self, claim: ClaimId) -> Result<Ticket, ClientError> {
        self.begin_at_once(Request::Release { claims: vec![claim], drain: true })
    }

    /// Whether it is so, if it is within that time. `Ok(false)` may be asked again, after that never. An error if the broker was killed before it answered.
    pub fn is_drained(&mut self, ticket: &Ticket, patience: Duration) -> Result<bool, ClientError> {
        match self.answer_until(ticket.0, Instant::now() + patience)?.map(|arrived| arrived.message) {
            None if self.is_lost(ticket.0) => Err(self.give_up(ticket)),
            None => Ok(false),
            Some(Answer::Done) => Ok(true),
            Some(answer) => Err(unexpected(answer)),
        }
    }

    /// Starts to look for the way to `remote` from `from`, or from wherever the kernel would.
    pub fn begin_route(&mut self, remote: IpAddr, from: Option<IpAddr>) -> Result<Ticket, ClientError> {
        self.begin(Request::Route { remote, from })
    }

    /// The way, if it is known by now. `Ok(None)` may be asked again, after that never.
    pub fn poll_route(&mut self, ticket: &Ticket) -> Result<Option<Route>, ClientError> {
        match self.poll_answer(ticket)?.map(|arrived| arrived.message) {
            None => Ok(None),
            Some(Answer::Route(route)) => Ok(Some(route)),
            Some(answer) => Err(unexpected(answer)),
        }
    }

    /// Says that a connection from one of [`Route::home_ports`] has had no answer.
    pub fn unanswered(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<(), ClientError> {
        self.tell(&Request::Unanswered { local, remote }, &[])
    }

    /// Hands over a connection that the stack has let go of, a few milliseconds at most; returns the kernel's socket.
    ///
    /// One that is only offered is withdrawn if the broker has not begun to move it within that time: [`Refusal::TooLate`], and it goes on at
    /// the stack. If it has begun, its answer is waited for.
    pub fn move_connection(
        &mut self,
        connection: &Established,
        socket: SocketKind,
        offered_for: Option<Duration>,
    ) -> Result<OwnedFd, ClientError> {
        let offered = offered_for.is_some();
        self.check_moving(offered)?;
        let (connection, file) = pack(connection, socket, offered).map_err(ClientError::Unmade)?;
        let request = Request::Move { connection, offered };
        let began = Instant::now();
        match self.ask_to_move(&request, None, file, offered_for)? {
            Moves::Answered(answer) => moved(answer),
            Moves::Begun(ticket) => {
                let last = began + self.patience_to_move()?;
                moved(self.await_move(ticket.0, (began, last))?)
            }
        }
    }

    /// Has connections that wait to be accepted, and that the stack has let go of, wait at the kernel's listener; at most [`ENQUEUED_MAX`]. Those that are
    /// refused are still ours: their places in the list, in order, and why. After any other error than a refusal of all nobody knows.
    ///
    /// If they are only offered, all of them are withdrawn as one connection is by [`Client::move_connection`]. If the broker has begun by then, it is not
    /// waited for, as it may have been stopped since.
    ///
    /// [`ENQUEUED_MAX`]: crate::protocol::ENQUEUED_MAX
    pub fn enqueue(
        &mut self,
        connections: &[&Established],
        listener: BorrowedFd<'_>,
        offered_for: Option<Duration>,
    ) -> Result<Enqueued, ClientError> {
        let offered = offered_for.is_some();
        self.check_moving(offered)?;
        let (connections, file) =
            pack_all(connections, SocketKind::default(), offered).map_err(ClientError::Unmade)?;
        let request = Request::Enqueue { connections, offered };
        match self.ask_to_move(&request, Some(listener), file, offered_for)? {
            Moves::Answered(answer) => refused_of(answer).map(Enqueued::Answered),
            Moves::Begun(ticket) => Ok(Enqueued::Begun(ticket)),
        }
    }

    /// What [`Client::enqueue`] would have returned, if the broker has ended what it had begun; as [`Client::poll_route`].
    pub fn poll_enqueued(&mut self, ticket: &Ticket) -> Result<Option<Vec<(usize, Refusal)>>, ClientError> {
        self.poll_answer(ticket)?.map(refused_of).transpose()
    }

    /// Waits for that, as long as for what cannot stay.
    pub fn await_enqueued(&mut self, ticket: Ticket) -> Result<Vec<(usize, Refusal)>, ClientError> {
        let since = Instant::now();
        let last = since + self.patience_to_move()?;
        refused_of(self.await_move(ticket.0, (since, last))?)
    }

    /// Whether there are descriptors for the octets of a connection and for the kernel's socket, without which the broker would have moved it in
    /// vain. A thread that opens files at this very moment may still take them.
    fn has_room(&self) -> bool {
        #[cfg(test)]
        if without_broker::LACKS_DESCRIPTORS.get() {
            return false;
        }
        let copies = [(); 2].map(|()| rustix::io::fcntl_dupfd_cloexec(&self.socket, 0));
        let has_room = copies.iter().all(Result::is_ok);
        copies.into_iter().flatten().for_each(discard);
        has_room
    }

    /// Refuses to move connections while nobody can take them, or would have to hurry.
    fn check_moving(&mut self, offered: bool) -> Result<(), ClientError> {
        // Another broker may be about to be there: who offers it may try again.
        if offered && self.may_be_followed() {
            return Err(Refusal::TooLate.into());
        }
        if self.is_left_alone() {
            return Err(Refusal::NotTaken("the broker was killed".to_owned()).into());
        }
        if offered && self.stands_still()? {
            return Err(Refusal::TooLate.into());
        }
        if !self.has_room() {
            let refusal = Refusal::NotTaken("this process has no free descriptors".to_owned());
            return Err(if offered { Refusal::TooLate } else { refusal }.into());
        }
        Ok(())
    }

    /// Asks with these descriptors, a listener and the file of the connections.
    fn ask_to_move(
        &mut self,
        request: &Request,
        listener: Option<BorrowedFd<'_>>,
        file: Option<OwnedFd>,
        offered_for: Option<Duration>,
    ) -> Result<Moves, ClientError> {
        let fds: Vec<BorrowedFd<'_>> = listener.into_iter().chain(file.as_ref().map(AsFd::as_fd)).collect();
        let answer = self.ask_or_withdraw(request, &fds, offered_for);
        file.into_iter().for_each(discard);
        answer
    }

    /// The last descriptor decides who has what is only offered.
    fn ask_or_withdraw(
        &mut self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
        offered_for: Option<Duration>,
    ) -> Result<Moves, ClientError> {
        let began = Instant::now();
        let Some(time) = offered_for else {
            let last = began + self.patience_to_move()?;
            let id = self.put(request, fds, last)?;
            return self.await_move(id, (began, last)).map(Moves::Answered);
        };
        let id = match self.put(request, fds, began + time) {
            Err(ClientError::TimedOut) => return Err(Refusal::TooLate.into()),
            sent => sent?,
        };
        if let Some(answer) = self.answer_until(id, began + time)? {
            return Ok(Moves::Answered(answer));
        }
        if fds.last().is_some_and(decide) {
            self.wait_no_more(id, Late::Forget, began);
            return Err(Refusal::TooLate.into());
        }
        Ok(Moves::Begun(Ticket(id)))
    }

    /// Waits for the answer about what cannot stay, or is the broker's by now.
    fn await_move(
        &mut self,
        id: u64,
        (since, last): (Instant, Instant),
    ) -> Result<Arrived<Answer>, ClientError> {
        if let Some(answer) = self.answer_until(id, last)? {
            return Ok(answer);
        }
        self.wait_no_more(id, Late::Forget, since);
        Err(ClientError::TimedOut)
    }

    /// How long a connection may take that cannot stay. If the broker has not said anything for as long, the others do not wait, too.
    fn patience_to_move(&mut self) -> Result<Duration, ClientError> {
        let is_behind = self.is_behind()?;
        let waits_for_long = self.waits_since().is_some_and(|since| since.elapsed() >= PATIENCE_TO_MOVE);
        let is_silent = is_behind && (waits_for_long || self.given_up);
        Ok(if is_silent { Duration::ZERO } else { PATIENCE_TO_MOVE })
    }

    /// Answers a [`News::ChildAsks`] by a kernel socket.
    pub fn give_to_child(&mut self, token: u64, socket: BorrowedFd<'_>) -> Result<(), ClientError> {
        self.tell(&Request::Give { token: Some(token) }, &[socket])
    }

    /// Answers a [`News::ChildAsks`] that names no connection of ours.
    pub fn refuse_child(&mut self, token: u64) -> Result<(), ClientError> {
        self.tell(&Request::Give { token: Some(token) }, &[])
    }

    /// Asks for a connection of a process that this one was forked from. `keys` are the [`Welcome::key`]s of its parent, its
    /// parent's parent and so on, as far as they had one.
    pub fn begin_move_for(
        &mut self,
        keys: &[Key],
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<Ticket, ClientError> {
        self.begin_at_once(Request::MoveFor { keys: keys.to_vec(), local, remote })
    }

    /// The kernel's socket, if it is there by now; as [`Client::poll_route`].
    pub fn poll_move_for(&mut self, ticket: &Ticket) -> Result<Option<OwnedFd>, ClientError> {
        self.poll_answer(ticket)?.map(moved).transpose()
    }

    /// Waits for the broker to say anything; false if it did not in that time.
    pub fn wait(&mut self, time: Duration) -> Result<bool, ClientError> {
        if self.has_event() {
            return Ok(true);
        }
        self.wait_for(PollFlags::IN, Instant::now() + time)
    }

    /// Hands a kernel socket that waited at a closed listener to another process that has the same listener.
    pub fn hand_over(&mut self, socket: BorrowedFd<'_>) -> Result<(), ClientError> {
        self.ask_for_done(Request::Give { token: None }, &[socket])
    }

    /// Hands a handshake at a listener that is about to be closed to the process that gets our queues and has the same listener.
    pub fn hand_on(&mut self, handshake: Handshake) -> Result<(), ClientError> {
        self.tell(&Request::Handshake(handshake), &[])
    }

    /// Our connections are in this book from now on.
    pub fn keep_book(&mut self, book: BorrowedFd<'_>) -> Result<(), ClientError> {
        self.tell(&Request::Book, &[book])
    }

    /// Whether another process has claimed the same socket. Without an answer it may be asked again later, so a broker that has kept anybody waiting is not
    /// waited for.
    pub fn is_shared(&mut self, claim: ClaimId) -> Result<bool, ClientError> {
        if self.stands_still()? {
            return Err(ClientError::TimedOut);
        }
        match self.ask_within(PATIENCE_IN_PASSING, &Request::IsShared { claim }, &[])?.message {
            Answer::Done => Ok(true),
            Answer::Refused(Refusal::Nobody) => Ok(false),
            answer => Err(unexpected(answer)),
        }
    }

    /// Has the kernel serve the socket of a claim for all who have it.
    pub fn leave_socket(&mut self, claim: ClaimId) -> Result<(), ClientError> {
        self.tell(&Request::LeaveSocket { claim }, &[])
    }

    /// Has the kernel deliver a datagram that came to `shadow`.
    pub fn deliver(
        &mut self,
        shadow: BorrowedFd<'_>,
        local: SocketAddr,
        remote: SocketAddr,
        octets: &[u8],
    ) -> Result<(), ClientError> {
        let octets = as_one_packet(octets)?;
        self.tell(&Request::Deliver { local, remote, octets }, &[shadow])
    }

    /// Gives the kernel a segment of a connection that [`Client::move_connection`] has just moved, which came to our queues: the TCP
    /// header and what follows.
    pub fn deliver_late(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        octets: &[u8],
    ) -> Result<(), ClientError> {
        let octets = as_one_packet(octets)?;
        self.tell(&Request::Deliver { local, remote, octets }, &[])
    }

    /// Asks for the owner of a connection that is not ours, of which this segment came by our queues: the TCP header and what follows.
    pub fn begin_stray(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        octets: &[u8],
    ) -> Result<Ticket, ClientError> {
        let octets = as_one_packet(octets)?;
        self.begin_at_once(Request::Stray { local, remote, octets })
    }

    /// What became of it, if that is known by now; as [`Client::poll_route`].
    pub fn poll_stray(&mut self, ticket: &Ticket) -> Result<Option<Search>, ClientError> {
        Ok(self.poll_answer(ticket)?.map(|arrived| match arrived.message {
            Answer::Refused(Refusal::Nobody) => Search::Nobodys,
            Answer::Refused(Refusal::Alone) => Search::Alone,
            _ => Search::Open,
        }))
    }

    /// Says that the connection of a [`News::Strayed`] is not ours.
    pub fn disown(&mut self, token: u64) -> Result<(), ClientError> {
        self.tell(&Request::Unknown { token }, &[])
    }

    /// Says that the sockets of our queues are closed, and that we want no others. Queues that were granted before the answer are not
    /// ours either.
    pub fn give_back(&mut self) -> Result<(), ClientError> {
        self.has_attached = false;
        self.served.clear();
        self.ask_for_done(Request::Queues { wanted: false }, &[])
    }

    /// Says what the program looks like.
    pub fn report(&mut self, report: ProgramReport) -> Result<(), ClientError> {
        self.tell(&Request::Status(report), &[])
    }

    /// Takes the grants from among the events.
    fn take_granted(&mut self) -> Vec<Granted> {
        let (mut granted, mut others) = (Vec::new(), VecDeque::new());
        for event in self.events.drain(..) {
            match event {
                Event::QueueGranted(queues) => granted.push(queues),
                event => others.push_back(event),
            }
        }
        self.events = others;
        granted
    }
}

/// A datagram, or a segment of TCP, for a message.
fn as_one_packet(octets: &[u8]) -> Result<Vec<u8>, ClientError> {
    if octets.len() > DATAGRAM_MAX {
        return Err(Refusal::NotTaken("it is too long".to_owned()).into());
    }
    Ok(octets.to_vec())
}

impl Drop for Client {
    /// Closes descriptors that the caller did not take, bypassing the hooks.
    fn drop(&mut self) {
        for event in self.events.drain(..) {
            match event {
                Event::QueueGranted(Granted { memory, sockets, .. }) => {
                    discard(memory);
                    sockets.into_iter().for_each(discard);
                }
                Event::Adopt { socket, .. } | Event::Observer { stream: socket, .. } => discard(socket),
                Event::News(_) | Event::Returned(_) => {}
            }
        }
        let answers = std::mem::take(&mut self.open).into_values().flatten();
        let of_news = std::mem::take(&mut self.ahead_of_news).into_iter().flat_map(|(_, fds)| fds);
        let ahead = std::mem::take(&mut self.ahead).into_values().flatten().chain(of_news);
        answers.flat_map(|arrived| arrived.fds).chain(ahead).for_each(discard);
    }
}
