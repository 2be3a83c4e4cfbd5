//! One entry for fuzzers: all requests of several clients, with real sockets beside them, to a whole broker whose interface is made up.
//!
//! The steps are those of [`crate::fuzz`]; the second octet of a message says which descriptor comes with it ([`Sockets::pick`]). What
//! nobody could guess is put in: a local port from 1 on stands for the port of one of the sockets, and the key `[n, 0]` for the one of
//! client `n`.
//!
//! Nothing leaves the machine, since all sockets are bound to loopback. So a connection is never made the kernel's here: its octets are read
//! as they would be, and the request is refused, as the connection is between ends of this host. What the kernel is told afterwards has a
//! target of its own, `late_segment`, and the laboratory's tests.

use std::io::Result;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use clock::{Duration, Instant};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with};

use super::broker::Broker;
use super::family::Family;
use super::made_up::{Log, all, setup};
use crate::fuzz::{Step, take_step};
use crate::moving::unpack;
use crate::protocol::{Answer, FromBroker, KEYS_MAX, Key, Moving, Request, ToBroker, decode, encode};
use crate::transfer::{Arrival, Inbox, send};

/// Clients at a time.
const CLIENTS_MAX: usize = 6;
/// Steps at most: what is found in more is found in fewer.
const STEPS_MAX: usize = 60;
/// Longer than helpers take for sockets that nobody holds up.
const PATIENCE: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

/// Sends what `data` says to a broker, and looks at all that it answers: each request of a client that is not disconnected has one answer,
/// and every message can be read. In the end nothing of anybody's is left.
///
/// # Panics
/// If something is wrong: that is what fuzzers look for. Also if there are no sockets to be had.
pub fn fuzz_requests(data: &[u8]) {
    let mut world = World::new().expect("sockets on loopback");
    let mut rest = data;
    for _ in 0..STEPS_MAX {
        let Some(step) = take_step(&mut rest) else { break };
        world.apply(step);
        world.settle();
    }
    // By then those who were asked for connections and neighbours have been waited for long enough.
    for _ in 0..KEYS_MAX + 2 {
        world.pass(Duration::from_secs(4));
    }
    world.check_all_are_answered();
    world.clients.iter_mut().for_each(|client| *client = None);
    world.pass(Duration::from_secs(4));
    world.check_nothing_is_left();
}

/// A broker and its clients.
struct World {
    broker: Broker,
    now: Instant,
    clients: [Option<Client>; CLIENTS_MAX],
    sockets: Sockets,
}

struct Client {
    socket: OwnedFd,
    inbox: Inbox,
    key: Option<Key>,
    /// Numbers of requests that have no answer yet.
    unanswered: Vec<u64>,
}

/// What clients may send beside their messages.
struct Sockets {
    udp: UdpSocket,
    listener: TcpListener,
    bound: OwnedFd,
    accepted: TcpStream,
    _peer: TcpStream,
    octets: OwnedFd,
    other: UnixStream,
}

impl World {
    fn new() -> Result<World> {
        let family = Family { head: std::process::id(), group: None };
        let now = Instant::from_nanos(1);
        let broker =
            Broker::open(setup(2, &Log::default(), family, all()), now).map_err(std::io::Error::other)?;
        Ok(World { broker, now, clients: [const { None }; CLIENTS_MAX], sockets: Sockets::new()? })
    }

    fn apply(&mut self, step: Step<'_>) {
        match step {
            Step::Message { client, socket, octets } => self.send(client % CLIENTS_MAX, socket, octets),
            Step::Other { kind, which, how } => match (kind - 128) % 4 {
                0 => self.admit(usize::from(which) % CLIENTS_MAX),
                1 => self.clients[usize::from(which) % CLIENTS_MAX] = None,
                2 => self.pass(Duration::from_millis(how.into())),
                _ => self.pass(Duration::from_millis(u64::from(how) * 100)),
            },
        }
    }

    /// Has a client connect if it is not connected.
    fn admit(&mut self, number: usize) {
        if self.clients[number].is_none() {
            self.clients[number] =
                Some(Client::connect(self.broker.name()).expect("room for one more client"));
            self.settle();
        }
    }

    fn send(&mut self, number: usize, socket: u8, octets: &[u8]) {
        self.admit(number);
        let message = decode::<ToBroker>(octets).ok().map(|message| self.put_in(message));
        let written = message.as_ref().and_then(|message| encode(message).ok());
        let octets = written.as_deref().unwrap_or(octets);
        let fds = self.sockets.pick(socket);
        if let Some(ToBroker { request: Request::Move { connection, .. }, .. }) = &message {
            check_octets(connection, fds.first().copied());
        }
        let Some(client) = &mut self.clients[number] else { return };
        if send(&client.socket, octets, &fds).is_ok() {
            client.unanswered.extend(message.map(|message| message.id));
        }
    }

    /// The message with what nobody could guess.
    fn put_in(&self, mut message: ToBroker) -> ToBroker {
        let locals = match &mut message.request {
            Request::Move { connection, .. } => vec![&mut connection.connection.local],
            Request::Enqueue { connections, .. } => {
                connections.iter_mut().map(|moving| &mut moving.connection.local).collect()
            }
            Request::MoveFor { keys, local, .. } => {
                keys.iter_mut().for_each(|key| *key = self.known_key(*key));
                vec![local]
            }
            Request::Deliver { local, .. } => vec![local],
            Request::Handshake(handshake) => vec![&mut handshake.local],
            Request::Serve { key: Some(key), .. } => {
                *key = self.known_key(*key);
                Vec::new()
            }
            _ => Vec::new(),
        };
        let addresses = self.sockets.addresses();
        for local in locals {
            let known = addresses.get(usize::from(local.port()).wrapping_sub(1));
            *local = known.copied().unwrap_or(*local);
        }
        message
    }

    fn known_key(&self, key: Key) -> Key {
        let Key([number, 0]) = key else { return key };
        let client = usize::try_from(number).ok().and_then(|number| self.clients.get(number)?.as_ref());
        client.and_then(|client| client.key).unwrap_or(key)
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.settle();
    }

    /// Lets the broker and its helpers do what there is to do, and has the clients read what they are told.
    fn settle(&mut self) {
        self.broker.turn(self.now);
        while self.broker.under_way.is_busy() || self.broker.sending > 0 {
            let mut fds = [PollFd::from_borrowed_fd(self.broker.fd(), PollFlags::IN)];
            assert!(!matches!(poll(&mut fds, Some(&PATIENCE)), Ok(0)), "helpers do not come to an end");
            self.broker.turn(self.now);
        }
        for client in &mut self.clients {
            if client.as_mut().is_some_and(|client| !client.read()) {
                *client = None;
            }
        }
        self.broker.take_notices();
    }

    fn check_all_are_answered(&self) {
        for client in self.clients.iter().flatten() {
            assert!(client.unanswered.is_empty(), "requests without an answer: {:?}", client.unanswered);
        }
    }

    fn check_nothing_is_left(&self) {
        assert!(self.broker.is_alone(), "clients that are gone");
        assert!(
            self.broker.kept.is_empty() && self.broker.doomed.is_empty(),
            "sockets of clients that are gone"
        );
        assert!(self.broker.orphans.is_empty(), "connections that nobody has come for");
        assert_eq!(
            self.broker.registry.shadows(None, usize::MAX).count(),
            0,
            "claims of clients that are gone"
        );
    }
}

/// The octets of a connection are as many as the message says, or there is an error.
fn check_octets(moving: &Moving, file: Option<BorrowedFd<'_>>) {
    let lens = [moving.received_len, moving.unacked_len, moving.unsent_len];
    let Ok(connection) = unpack(moving.clone(), file, 0) else { return };
    let read = [connection.received.len(), connection.unacked.len(), connection.unsent.len()];
    assert_eq!(read.map(|len| len as u32), lens);
}

impl Client {
    fn connect(name: &str) -> Result<Client> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        Ok(Client { socket, inbox: Inbox::new(), key: None, unanswered: Vec::new() })
    }

    /// Reads what has come; false at the end of the connection.
    fn read(&mut self) -> bool {
        loop {
            let message = match self.inbox.receive(&self.socket, |fd: OwnedFd| fd) {
                Ok(Arrival::Message(parcel)) => {
                    decode(parcel.octets).expect("the broker says what can be read")
                }
                Ok(Arrival::Nothing) => return true,
                Ok(Arrival::End) | Err(_) => return false,
            };
            let FromBroker::Answer { id, answer } = message else { continue };
            let asked = self.unanswered.iter().position(|asked| *asked == id);
            self.unanswered.swap_remove(asked.expect("only what was asked is answered"));
            if let Answer::Welcome(welcome) = answer {
                self.key = Some(welcome.key);
            }
        }
    }
}

impl Sockets {
    fn new() -> Result<Sockets> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let peer = TcpStream::connect(listener.local_addr()?)?;
        let bound = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        bind(&bound, &SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let octets = memfd_create("octets", MemfdFlags::CLOEXEC)?;
        rustix::io::write(&octets, &[7; 64])?;
        Ok(Sockets {
            udp: UdpSocket::bind("127.0.0.1:0")?,
            accepted: listener.accept()?.0,
            listener,
            bound,
            _peer: peer,
            octets,
            other: UnixStream::pair()?.0,
        })
    }

    /// The descriptors that `which` stands for.
    fn pick(&self, which: u8) -> Vec<BorrowedFd<'_>> {
        match which % 8 {
            0 => vec![],
            1 => vec![self.udp.as_fd()],
            2 => vec![self.listener.as_fd()],
            3 => vec![self.bound.as_fd()],
            4 => vec![self.accepted.as_fd()],
            5 => vec![self.octets.as_fd()],
            6 => vec![self.other.as_fd()],
            _ => vec![self.udp.as_fd(), self.listener.as_fd()],
        }
    }

    /// Where they are bound, in the same order.
    fn addresses(&self) -> Vec<SocketAddr> {
        let bound = rustix::net::getsockname(&self.bound).ok().and_then(|address| address.try_into().ok());
        let own = [self.udp.local_addr().ok(), self.listener.local_addr().ok(), bound];
        own.into_iter().flatten().collect()
    }
}
