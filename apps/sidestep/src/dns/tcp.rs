//! DNS over TCP on kernel sockets, one thread for all connections.
//!
//! Connections beyond a limit, for all or for one client, are closed at once, newest first. A connection without a whole query for the idle
//! time is closed, unless the client still takes answers. A client that does not take its answers is not read from (RFC 7766, 6.2 and 10).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use clock::{Duration, Instant};
use dns_server::{Admission, DnsResponder, StreamResponder};
use engine::Clock;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use socket2::{Domain, Protocol, Socket, Type};

use super::tcp_connection::{Connection, Next};

enum Command {
    Add(SocketAddr, std::net::TcpListener),
    Remove(SocketAddr),
    Stop,
}

/// Reaches the service from other threads.
#[derive(Clone)]
pub(crate) struct TcpHandle {
    commands: Sender<Command>,
    waker: Arc<Waker>,
}

impl TcpHandle {
    /// Serves `listener` too. `address` names it for [`TcpHandle::remove`].
    pub(crate) fn add(&self, address: SocketAddr, listener: std::net::TcpListener) {
        self.send(Command::Add(address, listener));
    }

    /// Accepts no more connections at `address`; those there are go on.
    pub(crate) fn remove(&self, address: SocketAddr) {
        self.send(Command::Remove(address));
    }

    /// Answers what has come, closes everything, ends.
    pub(crate) fn stop(&self) {
        self.send(Command::Stop);
    }

    fn send(&self, command: Command) {
        // A service that ended has nothing left to be told; a failing wake-up means the same.
        if self.commands.send(command).is_ok() {
            let _ = self.waker.wake();
        }
    }
}

/// Opens a listener. With `free_bind`, also at an address that no interface has yet (IP_FREEBIND in ip(7)).
pub(crate) fn listen(address: SocketAddr, free_bind: bool) -> io::Result<std::net::TcpListener> {
    const BACKLOG: i32 = 1024;
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?; // A restart must not wait for TIME_WAIT.
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if free_bind {
        match address {
            SocketAddr::V4(_) => socket.set_freebind_v4(true)?,
            SocketAddr::V6(_) => socket.set_freebind_v6(true)?,
        }
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Has `open` bind sockets of UDP and then of TCP. Where `addresses` leaves the port to the kernel (port 0), it chooses one that UDP has
/// free, and TCP may not: then all of it is tried again.
pub(crate) fn on_free_ports<T>(
    addresses: &[SocketAddr],
    open: impl Fn() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    const TRIES: u32 = 100;
    let chooses = addresses.iter().any(|address| address.port() == 0);
    let is_taken = |error: &anyhow::Error| {
        let causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
        causes.map(io::Error::kind).any(|kind| kind == io::ErrorKind::AddrInUse)
    };
    let mut tries = 1;
    loop {
        match open() {
            Err(error) if chooses && tries < TRIES && is_taken(&error) => tries += 1,
            outcome => return outcome,
        }
    }
}

/// Starts the service on a thread of its own. Once it is to stop, it waits `linger` for clients to take their answers.
pub(crate) fn start(
    responder: DnsResponder,
    admission: Arc<Admission>,
    linger: Duration,
) -> io::Result<(TcpHandle, JoinHandle<()>)> {
    let poll = Poll::new()?;
    let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
    let (commands, receiver) = channel();
    let handle = TcpHandle { commands, waker: Arc::clone(&waker) };
    let service = Service {
        poll,
        _waker: waker,
        commands: receiver,
        clock: Clock::start(),
        responder: StreamResponder::new(responder, admission.limits().idle_timeout),
        admission,
        linger,
        listeners: BTreeMap::new(),
        connections: BTreeMap::new(),
        next_token: WAKE.0 + 1,
        again: Vec::new(),
        soon: BTreeSet::new(),
        accept_again: false,
    };
    let thread = std::thread::Builder::new().name("dns-tcp".to_owned()).spawn(move || service.run())?;
    Ok((handle, thread))
}

const WAKE: Token = Token(0);
/// How often connections are looked at whose updates are being carried out.
const SOON: Duration = Duration::from_millis(1);
/// How often idle connections are looked for, and listeners that ran out of descriptors tried again.
const SWEEP: Duration = Duration::from_millis(250);

struct Service {
    poll: Poll,
    /// The last handle may go as soon as it has told to stop, and closing the waker's descriptor would unmake the wake-up.
    _waker: Arc<Waker>,
    commands: Receiver<Command>,
    clock: Clock,
    responder: StreamResponder,
    admission: Arc<Admission>,
    /// How long a stopping service waits for clients to take their answers.
    linger: Duration,
    listeners: BTreeMap<Token, (SocketAddr, TcpListener)>,
    connections: BTreeMap<Token, Connection<TcpStream>>,
    /// Tokens are never used twice, so that an event for a closed connection finds nobody.
    next_token: usize,
    again: Vec<Token>,
    /// Those whose updates are being carried out.
    soon: BTreeSet<Token>,
    accept_again: bool,
}

impl Service {
    fn run(mut self) {
        let mut events = Events::with_capacity(256);
        let mut next_sweep = self.clock.now() + SWEEP;
        let mut stop_at: Option<Instant> = None;
        loop {
            let timeout = self.timeout(stop_at);
            if self.poll.poll(&mut events, timeout.map(Into::into)).is_err() {
                events.clear(); // A signal; anything else would come again, and the sweep goes on meanwhile.
            }
            let now = self.clock.now();
            for event in &events {
                self.on_event(event.token(), now);
            }
            let soon = std::mem::take(&mut self.soon);
            for token in std::mem::take(&mut self.again).into_iter().chain(soon) {
                self.drive(token, now);
            }
            if now >= next_sweep {
                self.sweep(now);
                next_sweep = now + SWEEP;
            }
            if self.obey_commands() {
                stop_at.get_or_insert(now + self.linger);
                self.listeners.clear();
            }
            if let Some(stop_at) = stop_at {
                self.close_finished(now);
                if self.connections.is_empty() || now >= stop_at {
                    return;
                }
            }
        }
    }

    fn timeout(&self, stop_at: Option<Instant>) -> Option<Duration> {
        if !self.again.is_empty() {
            return Some(Duration::ZERO);
        }
        if !self.soon.is_empty() {
            return Some(SOON);
        }
        if stop_at.is_some() {
            return Some(Duration::from_millis(10));
        }
        (self.accept_again || !self.connections.is_empty()).then_some(SWEEP)
    }

    fn obey_commands(&mut self) -> bool {
        let mut stop = false;
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Add(address, listener) => self.add_listener(address, listener),
                Command::Remove(address) => self.listeners.retain(|_, (own, _)| *own != address),
                Command::Stop => stop = true,
            }
        }
        stop
    }

    fn add_listener(&mut self, address: SocketAddr, listener: std::net::TcpListener) {
        let token = self.new_token();
        let mut listener = TcpListener::from_std(listener);
        if let Err(error) = self.poll.registry().register(&mut listener, token, Interest::READABLE) {
            log::error!("TCP at {address} is not served: {error}");
            return;
        }
        self.listeners.insert(token, (address, listener));
        self.accept(token, self.clock.now());
    }

    fn new_token(&mut self) -> Token {
        self.next_token += 1;
        Token(self.next_token)
    }

    fn on_event(&mut self, token: Token, now: Instant) {
        if self.listeners.contains_key(&token) {
            self.accept(token, now);
        } else {
            self.drive(token, now);
        }
    }

    fn accept(&mut self, token: Token, now: Instant) {
        while let Some((_, listener)) = self.listeners.get(&token) {
            match listener.accept() {
                Ok((stream, peer)) => self.admit(stream, peer, now),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    self.accept_again = true; // Out of descriptors or memory: there is no event for their return.
                    return;
                }
            }
        }
    }

    fn admit(&mut self, mut socket: TcpStream, peer: SocketAddr, now: Instant) {
        let Some(permit) = self.admission.admit(peer.ip()) else { return };
        let token = self.new_token();
        let interest = Interest::READABLE | Interest::WRITABLE;
        if self.poll.registry().register(&mut socket, token, interest).is_err() {
            return; // For want of memory: the client is gone, and its permit given back.
        }
        let _ = socket.set_nodelay(true); // Answers are whole; without it they come later, but they come.
        self.connections.insert(token, Connection::new(socket, peer, permit, now));
        self.drive(token, now);
    }

    fn drive(&mut self, token: Token, now: Instant) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        match connection.drive(&mut self.responder, now) {
            Next::Wait => {}
            Next::Again => self.again.push(token),
            Next::Soon => drop(self.soon.insert(token)),
            Next::Close => self.close(token),
        }
    }

    fn close(&mut self, token: Token) {
        self.connections.remove(&token);
    }

    fn sweep(&mut self, now: Instant) {
        let limit = self.admission.limits().idle_timeout;
        let idle =
            self.connections.iter_mut().filter_map(|(token, own)| own.is_idle(limit, now).then_some(*token));
        for token in idle.collect::<Vec<_>>() {
            self.admission.on_idle_closed();
            self.close(token);
        }
        if std::mem::take(&mut self.accept_again) {
            let listeners: Vec<Token> = self.listeners.keys().copied().collect();
            listeners.into_iter().for_each(|token| self.accept(token, now));
        }
    }

    /// While stopping: what has come is answered; a connection without a waiting answer has got all that it asked for.
    fn close_finished(&mut self, now: Instant) {
        let tokens: Vec<Token> = self.connections.keys().copied().collect();
        for token in tokens {
            self.drive(token, now);
            let busy = self.connections.get(&token).is_some_and(Connection::has_output);
            if !busy && !self.again.contains(&token) && !self.soon.contains(&token) {
                self.close(token);
            }
        }
    }
}
