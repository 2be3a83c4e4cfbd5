//! The library's end of the connection to the broker.
//!
//! It runs inside foreign programs whose C library is hooked, so it makes system calls through `rustix` and [`syscall`] only. Its
//! descriptors have at least the number that is given to [`Client::connect`], out of the program's way.
//!
//! Requests wait for their answer, some tenths of a millisecond. [`Client::begin_route`] and [`Client::begin_move_for`] do not wait,
//! because theirs may take seconds. News arrive through [`Client::poll_event`], which never waits: call it when [`Client::fd`] is
//! readable, and before sleeping on it if [`Client::has_news`]. After an error of [`ClientError::is_fatal`] the broker is gone:
//! drop the client, and leave everything to the kernel.
//!
//! A broker that does not answer in time may be stopped (SIGSTOP), or starved. The queues are there all the same, so nothing is given
//! up but the answer. Until the broker has caught up, what wants an answer is [`ClientError::TimedOut`] at once, and what does not is sent
//! without waiting: the broker does it when it goes on.
//!
//! A broker that was killed is as one that never answers again, if the queues that it has lent go on without it ([`Grant::is_kept`]).

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use tcp_repair::Established;

use crate::moving::pack;
use crate::peer::Peer;
use crate::protocol::{
    Answer, ClaimId, Claimed, DATAGRAM_MAX, FromBroker, Grant, Handshake, Key, News, ProgramReport,
    ProtocolError, Purpose, Refusal, Request, Route, ToBroker, Transport, VERSION, Welcome, decode, encode,
};
use crate::transfer::{Arrival, Inbox, Internal, discard, send};

/// How long an answer may take that does not depend on others.
const PATIENCE: Duration = Duration::from_secs(3);

/// The same for a connection that the stack has let go of: whoever gives up loses it.
const PATIENCE_TO_MOVE: Duration = Duration::from_secs(60);

/// Requests that wait until the broker reads again, if the kernel has no room for more.
const UNSENT_MAX: usize = 1 << 14;

/// Claims that are released at a time: requests and answers fit what the kernel keeps of a connection.
const RELEASED_MAX: usize = 32;

/// Why a request was not answered, or not as wished.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The broker does not do it: the kernel serves what it is about, and the text says why.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The broker is gone.
    #[error("the broker has ended")]
    Gone,
    /// The broker does not answer now: the kernel serves what was to be asked.
    #[error("the broker does not answer")]
    TimedOut,
    /// What listens there is no broker of this user's or root's.
    #[error("the broker's socket belongs to another user")]
    Impostor,
    /// What came is no message.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// A message came that does not belong there.
    #[error("an answer to another request")]
    OutOfPlace,
    /// A system call failed.
    #[error("the broker's socket: {0}")]
    System(#[from] Errno),
}

impl ClientError {
    /// Whether the connection to the broker is lost: after every error but a refusal and the want of an answer.
    pub fn is_fatal(&self) -> bool {
        !matches!(self, ClientError::Refused(_) | ClientError::TimedOut)
    }
}

/// What came without being asked for.
#[derive(Debug)]
pub enum Event {
    /// Queues are ours, in addition to those that we have.
    QueueGranted(Granted),
    /// A connection to be accepted at a listener of ours.
    Adopt {
        /// The listener's claim.
        claim: ClaimId,
        /// Our end.
        local: SocketAddr,
        /// The peer.
        remote: SocketAddr,
        /// The kernel's socket.
        socket: OwnedFd,
    },
    /// A tool that observes this process.
    Observer {
        /// What the process is called there.
        pid: u32,
        /// What the program is.
        program: String,
        /// The connection, for [`observe::attend`].
        stream: OwnedFd,
    },
    /// Any other, which has no descriptors.
    News(News),
}

/// Queues, and what makes a device of them.
#[derive(Debug)]
pub struct Granted {
    /// Which queues.
    pub grant: Grant,
    /// The packet memory.
    pub memory: OwnedFd,
    /// One socket for each queue, in the order of [`Grant::queues`].
    pub sockets: Vec<OwnedFd>,
}

/// What [`Client::attach`] gave.
#[derive(Debug)]
pub struct Attached {
    /// Queues that are ours from now on.
    pub granted: Vec<Granted>,
    /// Interfaces, by link, of which no queue is, and why. It may come later as an [`Event::QueueGranted`].
    pub without: Vec<(u16, Refusal)>,
}

/// A request whose answer takes time.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Ticket(u64);

/// A message from the broker with what came beside it.
struct Arrived<M> {
    message: M,
    fds: Vec<OwnedFd>,
}

/// What is to be done when an answer comes for which nobody waits any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Late {
    /// Nothing.
    Forget,
    /// The claim is released: what it was for is the kernel's.
    Release,
    /// Queues that were granted before it are not ours.
    GaveBack,
}

/// What of the queues goes on if the broker is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeps {
    /// There are none.
    Nothing,
    /// All.
    All,
    /// Not all, or the broker has ended all.
    NotAll,
}

impl Keeps {
    fn after(self, news: &News) -> Keeps {
        match news {
            News::QueueGranted(grant) if grant.is_kept && self != Keeps::NotAll => Keeps::All,
            News::QueueGranted(_) | News::Closing => Keeps::NotAll,
            _ => self,
        }
    }
}

/// A connection to the broker. Belongs to one process: a child that inherited it drops it, which says nothing to the broker, and
/// makes its own.
pub struct Client {
    socket: Internal,
    fd_floor: RawFd,
    last_id: u64,
    inbox: Inbox,
    /// Questions with tickets that are still held.
    open: BTreeMap<u64, Option<Arrived<Answer>>>,
    /// Requests for whose answers nobody waits. While there are any, the broker is behind.
    unawaited: BTreeMap<u64, Late>,
    /// Requests for which the kernel had no room.
    unsent: VecDeque<Vec<u8>>,
    events: VecDeque<Event>,
    /// The broker's name, and our own introduction.
    name: Vec<u8>,
    hello: Vec<u8>,
    keeps: Keeps,
    /// The broker was killed, and `socket` is a descriptor on which nothing happens.
    is_left_alone: bool,
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
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let socket = Internal::new(raise(socket, fd_floor)?);
        let mut client = Client {
            socket,
            fd_floor,
            last_id: 0,
            inbox: Inbox::new(),
            open: BTreeMap::new(),
            unawaited: BTreeMap::new(),
            unsent: VecDeque::new(),
            events: VecDeque::new(),
            name: name.to_owned(),
            hello: Vec::new(),
            keeps: Keeps::Nothing,
            is_left_alone: false,
        };
        connect(&client.socket, &SocketAddrUnix::new_abstract_name(name)?)?;
        client.check_peer()?;
        let request = Request::Hello { version: VERSION, program: program.to_owned(), pid };
        client.hello = encode(&ToBroker { id: 1, request: request.clone() })?;
        match client.ask(request, &[])?.message {
            Answer::Welcome(welcome) => Ok((client, welcome)),
            answer => Err(unexpected(answer)),
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

    /// Whether an event came while a request waited, so that [`Client::fd`] need not be readable for it.
    pub fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    /// The same, also for the answers of tickets.
    pub fn has_news(&self) -> bool {
        self.has_event() || self.open.values().any(|answer| answer.is_some() || self.is_left_alone)
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
        if self.is_behind()? {
            self.say(&Request::Attach, &[])?; // What there is comes as events.
            return Err(ClientError::TimedOut);
        }
        match self.ask(Request::Attach, &[])?.message {
            Answer::Attached { without } => Ok(Attached { granted: self.take_granted(), without }),
            answer => Err(unexpected(answer)),
        }
    }

    /// Says that granted queues are served: an engine has the device, and polls it. Claims take hold of them from now on.
    pub fn ready(&mut self, link: u16, queues: &[u16]) -> Result<(), ClientError> {
        self.ask_for_done(Request::Ready { link, queues: queues.to_vec() }, &[])
    }

    /// Asks that packets to where `shadow` is bound come to this process's queues; returns where they do by now.
    pub fn claim(
        &mut self,
        transport: Transport,
        purpose: Purpose,
        shadow: BorrowedFd<'_>,
    ) -> Result<(ClaimId, Vec<Claimed>), ClientError> {
        match self.ask(Request::Claim { transport, purpose }, &[shadow])?.message {
            Answer::Claimed { claim, on } => Ok((claim, on)),
            answer => Err(unexpected(answer)),
        }
    }

    /// Gives a claim back; at the latest before its shadow is closed, unless it is drained.
    pub fn release(&mut self, claim: ClaimId) -> Result<(), ClientError> {
        self.ask_for_done(Request::Release { claim }, &[])
    }

    /// The same for several, which wait together: the broker serves no other client in between, except in its own turns.
    pub fn release_all(&mut self, claims: &[ClaimId]) -> Result<(), ClientError> {
        for some in claims.chunks(RELEASED_MAX) {
            let ids = some.iter().map(|claim| self.say(&Request::Release { claim: *claim }, &[]));
            let ids = ids.collect::<Result<Vec<u64>, _>>()?;
            // What it refuses was none of ours.
            self.await_all(&ids, Instant::now() + PATIENCE)?;
        }
        Ok(())
    }

    /// Leaves new connections to the kernel, and keeps those that there are. To be called before the listener is closed.
    pub fn drain(&mut self, claim: ClaimId) -> Result<(), ClientError> {
        self.ask_for_done(Request::Drain { claim }, &[])
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

    /// Hands over a connection that the stack has let go of, a few milliseconds at most; returns the kernel's socket.
    pub fn move_connection(&mut self, connection: Established) -> Result<OwnedFd, ClientError> {
        if self.is_left_alone {
            return Err(Refusal::NotTaken("the broker was killed".to_owned()).into());
        }
        let (connection, content) = pack(connection)?;
        let fds: Vec<BorrowedFd<'_>> = content.iter().map(AsFd::as_fd).collect();
        let answer = self.ask_within(PATIENCE_TO_MOVE, &Request::Move { connection }, &fds);
        content.into_iter().for_each(discard);
        moved(answer?)
    }

    /// Answers a [`News::Surrender`] by a kernel socket.
    pub fn surrender(&mut self, token: u64, socket: BorrowedFd<'_>) -> Result<(), ClientError> {
        self.ask_for_done(Request::Surrendered { token }, &[socket])
    }

    /// Answers a [`News::Surrender`] that names no connection of ours.
    pub fn refuse_surrender(&mut self, token: u64) -> Result<(), ClientError> {
        self.ask_for_done(Request::NotSurrendered { token }, &[])
    }

    /// Asks for a connection of a process that this one was forked from. `keys` are the [`Welcome::key`]s of its parent, its
    /// parent's parent and so on, as far as they had one.
    pub fn begin_move_for(
        &mut self,
        keys: &[Key],
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<Ticket, ClientError> {
        self.begin(Request::MoveFor { keys: keys.to_vec(), local, remote })
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
        self.ask_for_done(Request::Adopt, &[socket])
    }

    /// Hands a handshake at a listener that is about to be closed to the process that gets our queues and has the same listener.
    pub fn hand_on(&mut self, handshake: Handshake) -> Result<(), ClientError> {
        self.ask_for_done(Request::Handshake(handshake), &[])
    }

    /// Whether another process has claimed the same socket.
    pub fn is_shared(&mut self, claim: ClaimId) -> Result<bool, ClientError> {
        match self.ask(Request::IsShared { claim }, &[])?.message {
            Answer::Done => Ok(true),
            Answer::Refused(Refusal::Nobody) => Ok(false),
            answer => Err(unexpected(answer)),
        }
    }

    /// Has the kernel deliver a datagram that came to `shadow`.
    pub fn deliver(
        &mut self,
        shadow: BorrowedFd<'_>,
        local: SocketAddr,
        remote: SocketAddr,
        octets: &[u8],
    ) -> Result<(), ClientError> {
        if octets.len() > DATAGRAM_MAX {
            return Err(Refusal::NotTaken("it is too long".to_owned()).into());
        }
        self.ask_for_done(Request::Deliver { local, remote, octets: octets.to_vec() }, &[shadow])
    }

    /// Gives the kernel a segment of a connection that [`Client::move_connection`] has just moved, which came to our queues: the TCP
    /// header and what follows.
    pub fn deliver_late(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        octets: &[u8],
    ) -> Result<(), ClientError> {
        if octets.len() > DATAGRAM_MAX {
            return Err(Refusal::NotTaken("it is too long".to_owned()).into());
        }
        self.ask_for_done(Request::Late { local, remote, octets: octets.to_vec() }, &[])
    }

    /// Says that the sockets of our queues are closed, and that we want no others. Queues that were granted before the answer are not
    /// ours either.
    pub fn give_back(&mut self) -> Result<(), ClientError> {
        self.ask_for_done(Request::GiveBack, &[])
    }

    /// Says what the program looks like.
    pub fn report(&mut self, report: ProgramReport) -> Result<(), ClientError> {
        self.ask_for_done(Request::Status(report), &[])
    }

    /// Asks for what needs no more than to be done: if the broker is behind, it does it when it goes on.
    fn ask_for_done(&mut self, request: Request, fds: &[BorrowedFd<'_>]) -> Result<(), ClientError> {
        if self.is_behind()? {
            return self.say(&request, fds).map(drop);
        }
        match self.ask(request, fds) {
            Ok(Arrived { message: Answer::Done, .. }) | Err(ClientError::TimedOut) => Ok(()),
            Ok(arrived) => Err(unexpected(arrived.message)),
            Err(error) => Err(error),
        }
    }

    /// Whether an answer is overdue.
    pub fn is_behind(&mut self) -> Result<bool, ClientError> {
        if !self.unawaited.is_empty() {
            while self.receive()? {}
        }
        Ok(self.is_left_alone || !self.unawaited.is_empty())
    }

    fn begin(&mut self, request: Request) -> Result<Ticket, ClientError> {
        if self.is_behind()? && (self.is_left_alone || matches!(request, Request::Route { .. })) {
            return Err(ClientError::TimedOut);
        }
        let id = self.send(&request, &[], Instant::now() + PATIENCE)?;
        self.open.insert(id, None);
        Ok(Ticket(id))
    }

    fn poll_answer(&mut self, ticket: &Ticket) -> Result<Option<Arrived<Answer>>, ClientError> {
        while self.open.get(&ticket.0).is_some_and(Option::is_none) {
            if !self.receive()? {
                return if self.is_left_alone { Err(self.give_up(ticket)) } else { Ok(None) };
            }
        }
        // A ticket whose answer was taken has none any more.
        self.open.remove(&ticket.0).flatten().map(Some).ok_or(ClientError::OutOfPlace)
    }

    /// No answer will come.
    fn give_up(&mut self, ticket: &Ticket) -> ClientError {
        self.open.remove(&ticket.0);
        ClientError::TimedOut
    }

    /// Sends a request and waits for its answer; what else comes meanwhile is kept.
    fn ask(&mut self, request: Request, fds: &[BorrowedFd<'_>]) -> Result<Arrived<Answer>, ClientError> {
        if self.is_behind()? { Err(ClientError::TimedOut) } else { self.ask_within(PATIENCE, &request, fds) }
    }

    fn ask_within(
        &mut self,
        patience: Duration,
        request: &Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Arrived<Answer>, ClientError> {
        let deadline = Instant::now() + patience;
        let id = self.send(request, fds, deadline)?;
        self.open.insert(id, None);
        while self.open.get(&id).is_some_and(Option::is_none) {
            if !self.receive()? && (self.is_left_alone || !self.wait_for(PollFlags::IN, deadline)?) {
                self.open.remove(&id);
                self.unawaited.insert(id, late(request));
                return Err(ClientError::TimedOut);
            }
        }
        self.open.remove(&id).flatten().ok_or(ClientError::TimedOut)
    }

    /// Waits for the answers to requests that were said, up to a time.
    fn await_all(&mut self, ids: &[u64], deadline: Instant) -> Result<(), ClientError> {
        let is_before = |client: &Client| !client.unawaited.keys().any(|id| !ids.contains(id));
        while is_before(self) && !self.unawaited.is_empty() {
            if !self.receive()? && (self.is_left_alone || !self.wait_for(PollFlags::IN, deadline)?) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Sends a request without waiting for anything. One that came with descriptors and finds no room is not sent.
    fn say(&mut self, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<u64, ClientError> {
        let octets = self.number(request)?;
        match self.try_send(&octets, fds)? {
            true => {}
            false if self.is_left_alone => return Ok(self.last_id),
            false if fds.is_empty() && self.unsent.len() < UNSENT_MAX => self.unsent.push_back(octets),
            false => return Err(ClientError::TimedOut),
        }
        self.unawaited.insert(self.last_id, late(request));
        Ok(self.last_id)
    }

    /// Sends if there is room, behind what there was no room for before.
    fn try_send(&mut self, octets: &[u8], fds: &[BorrowedFd<'_>]) -> Result<bool, ClientError> {
        self.send_unsent()?;
        if self.is_left_alone || !self.unsent.is_empty() {
            return Ok(false);
        }
        let sent = send(&self.socket, octets, fds);
        self.on_sent(sent)
    }

    /// Whether it was sent. Of a broker that is gone all that it has said is heard first.
    fn on_sent(&mut self, outcome: Result<(), Errno>) -> Result<bool, ClientError> {
        match outcome {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(Errno::PIPE | Errno::CONNRESET) => {
                while self.receive()? {}
                if self.is_left_alone { Ok(false) } else { Err(ClientError::Gone) }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Sends what there was no room for before.
    fn send_unsent(&mut self) -> Result<(), ClientError> {
        while let Some(octets) = self.unsent.front() {
            match send(&self.socket, octets, &[]) {
                Ok(()) => drop(self.unsent.pop_front()),
                Err(Errno::AGAIN | Errno::PIPE | Errno::CONNRESET) => return Ok(()), // Its end is heard of by who receives.
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn number(&mut self, request: &Request) -> Result<Vec<u8>, ClientError> {
        self.last_id += 1;
        Ok(encode(&ToBroker { id: self.last_id, request: request.clone() })?)
    }

    fn send(
        &mut self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
        deadline: Instant,
    ) -> Result<u64, ClientError> {
        let octets = self.number(request)?;
        let id = self.last_id;
        while !self.try_send(&octets, fds)? {
            if self.is_left_alone || !self.wait_for(PollFlags::OUT, deadline)? {
                return Err(ClientError::TimedOut);
            }
        }
        Ok(id)
    }

    /// Takes one message if there is one, and puts it where it belongs.
    fn receive(&mut self) -> Result<bool, ClientError> {
        if self.is_left_alone {
            return Ok(false);
        }
        let (message, fds) = match self.inbox.receive(&self.socket, Internal::new)? {
            Arrival::Nothing => return Ok(false),
            Arrival::End => return self.on_end().map(|()| false),
            Arrival::Message(parcel) => (decode::<FromBroker>(parcel.octets), parcel.fds),
        };
        self.send_unsent()?; // It reads, too.
        let fds = raise_all(fds.into_iter().map(Internal::into_inner), self.fd_floor);
        match message? {
            FromBroker::Answer { id, answer } => match self.open.get_mut(&id) {
                Some(place) => *place = Some(Arrived { message: answer, fds }),
                None => {
                    fds.into_iter().for_each(discard);
                    self.on_unawaited(id, &answer)?;
                }
            },
            FromBroker::News(News::QueueGranted(_)) if self.has_given_back() => {
                fds.into_iter().for_each(discard);
            }
            FromBroker::News(news) => {
                self.keeps = self.keeps.after(&news);
                self.events.extend(event(news, fds)?);
            }
        }
        Ok(true)
    }

    /// The connection has ended. If the broker was killed, and what it has lent goes on, all goes on without it.
    fn on_end(&mut self) -> Result<(), ClientError> {
        if self.keeps != Keeps::All || self.has_broker() {
            return Err(ClientError::Gone);
        }
        let silent = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let outcome = self.socket.become_copy_of(&silent);
        discard(silent);
        outcome?;
        self.is_left_alone = true;
        self.unawaited.clear();
        self.unsent.clear();
        Ok(())
    }

    /// Whether a broker answers by the name of ours. One that is being killed may accept connections until the kernel closes its socket.
    fn has_broker(&self) -> bool {
        let asked = || -> Result<bool, Errno> {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = Internal::new(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?);
            match connect(&socket, &SocketAddrUnix::new_abstract_name(&self.name)?) {
                Err(Errno::CONNREFUSED) => return Ok(false),
                outcome => outcome?,
            }
            send(&socket, &self.hello, &[])?;
            let answers = wait_for(&socket, PollFlags::IN, Instant::now() + PATIENCE)?;
            let arrival = Inbox::new()
                .receive(&socket, Internal::new)
                .map(|arrival| matches!(arrival, Arrival::Message(_)));
            Ok(answers && arrival?)
        };
        !matches!(asked(), Ok(false) | Err(Errno::PIPE | Errno::CONNRESET))
    }

    fn on_unawaited(&mut self, id: u64, answer: &Answer) -> Result<(), ClientError> {
        match (self.unawaited.remove(&id), answer) {
            (Some(Late::Release), Answer::Claimed { claim, .. }) => {
                self.say(&Request::Release { claim: *claim }, &[]).map(drop)
            }
            _ => Ok(()),
        }
    }

    fn has_given_back(&self) -> bool {
        self.unawaited.values().any(|late| *late == Late::GaveBack)
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

    fn wait_for(&self, what: PollFlags, deadline: Instant) -> Result<bool, ClientError> {
        Ok(wait_for(&self.socket, what, deadline)?)
    }
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
                Event::News(_) => {}
            }
        }
        let answers = std::mem::take(&mut self.open).into_values().flatten();
        answers.flat_map(|arrived| arrived.fds).for_each(discard);
    }
}

/// Waits until a socket is ready for `what`; false when it is too late.
fn wait_for(socket: impl AsFd, what: PollFlags, deadline: Instant) -> Result<bool, Errno> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&socket, what)], Some(&timeout)) {
            Ok(0) if left.is_zero() => return Ok(false),
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error),
        }
    }
}

/// What is to be done about the answer to a request if it comes late.
fn late(request: &Request) -> Late {
    match request {
        Request::Claim { .. } => Late::Release,
        Request::GiveBack => Late::GaveBack,
        _ => Late::Forget,
    }
}

/// The answer that is a socket.
fn moved(mut arrived: Arrived<Answer>) -> Result<OwnedFd, ClientError> {
    match (arrived.message, arrived.fds.pop()) {
        (Answer::Moved, Some(socket)) => Ok(socket),
        (Answer::Moved, None) => Err(Refusal::Lost("this process has no free descriptor".to_owned()).into()),
        (answer, _) => Err(unexpected(answer)),
    }
}

fn unexpected(answer: Answer) -> ClientError {
    match answer {
        Answer::Refused(refusal) => ClientError::Refused(refusal),
        _ => ClientError::OutOfPlace,
    }
}

/// News with the descriptors that belong to them. What came when this process had no free descriptor came in vain: a connection is
/// lost, queues stay silent, tools may connect again.
fn event(news: News, mut fds: Vec<OwnedFd>) -> Result<Option<Event>, ClientError> {
    match news {
        News::QueueGranted(grant) if fds.len() == grant.layout.sockets() + 1 => {
            let sockets = fds.split_off(1);
            let memory = fds.pop().expect("there is one more than sockets");
            Ok(Some(Event::QueueGranted(Granted { grant, memory, sockets })))
        }
        News::Adopt { claim, local, remote } if fds.len() == 1 => {
            let socket = fds.pop().expect("there is one");
            Ok(Some(Event::Adopt { claim, local, remote, socket }))
        }
        News::Observer { pid, program } if fds.len() == 1 => {
            Ok(fds.pop().map(|stream| Event::Observer { pid, program, stream }))
        }
        News::QueueGranted(_) | News::Adopt { .. } | News::Observer { .. } if fds.is_empty() => Ok(None),
        News::QueueGranted(_) | News::Adopt { .. } | News::Observer { .. } => Err(ClientError::OutOfPlace),
        news => {
            fds.into_iter().for_each(discard);
            Ok(Some(Event::News(news)))
        }
    }
}

/// All of them at numbers of `floor` or higher, or none if there is no room for one.
fn raise_all(fds: impl Iterator<Item = OwnedFd>, floor: RawFd) -> Vec<OwnedFd> {
    let (raised, failed): (Vec<_>, Vec<_>) = fds.map(|fd| raise(fd, floor)).partition(Result::is_ok);
    let mut raised: Vec<OwnedFd> = raised.into_iter().flatten().collect();
    if !failed.is_empty() {
        raised.drain(..).for_each(discard);
    }
    raised
}

/// The same file at a number of `floor` or higher; below it if the program has lowered its limit since (`setrlimit(2)`).
fn raise(fd: OwnedFd, mut floor: RawFd) -> Result<OwnedFd, Errno> {
    if fd.as_raw_fd() >= floor {
        return Ok(fd);
    }
    let mut raised = fcntl_dupfd_cloexec(&fd, floor);
    while matches!(raised, Err(Errno::INVAL)) && floor > 1 {
        floor = floor / 4 * 3;
        raised = fcntl_dupfd_cloexec(&fd, floor);
    }
    discard(fd);
    raised
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_without_its_descriptor_costs_no_more_than_itself() {
        let without = moved(Arrived { message: Answer::Moved, fds: Vec::new() });
        assert!(without.is_err_and(|error| !error.is_fatal()));
        let ends = "10.0.0.1:80".parse().unwrap();
        let adopt = || News::Adopt { claim: ClaimId(1), local: ends, remote: ends };
        assert!(matches!(event(adopt(), Vec::new()), Ok(None)));
        let stdin = || std::io::stdin().as_fd().try_clone_to_owned().unwrap();
        assert!(matches!(event(adopt(), vec![stdin()]), Ok(Some(Event::Adopt { .. }))));
        assert!(event(adopt(), vec![stdin(), stdin()]).is_err(), "more than belong to it is nonsense");
    }
}
