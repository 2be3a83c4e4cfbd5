//! Connections of kernel sockets: TCP, with TLS if that is asked for, or UDP for QUIC; and the epoll instance that says which of them has
//! something.
//!
//! All calls are the C library's, and so may be taken over: `sidestep run -- sidestep gun http ...` asks by our own stack.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use clock::Duration;
use gun::streams::Fault;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use socket2::{Domain, Protocol, Socket, Type};

/// Events that are taken at a time.
const EVENTS_MAX: usize = 512;
/// Datagrams of one connection that are read before another one has its turn.
const DATAGRAMS_MAX: usize = 32;
/// epoll(7) sleeps for whole milliseconds, up to one too long. Shorter sleeps take one system call more.
const COARSE: Duration = Duration::from_millis(3);
const MILLISECOND: u64 = 1_000_000;

/// Where connections go.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) kind: Kind,
}

/// What connections are made of.
#[derive(Clone)]
pub(crate) enum Kind {
    Tcp,
    Tls(Tls),
    /// QUIC: what is said are datagrams, and the connection is theirs.
    Datagrams,
}

/// How TLS is spoken.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) name: ServerName<'static>,
    /// The server has to choose this protocol (ALPN).
    pub(crate) required: Option<&'static [u8]>,
}

/// A connection.
pub(crate) struct Wire {
    socket: Socket,
    stage: Stage,
    is_of_datagrams: bool,
    tls: Option<(Box<ClientConnection>, Option<&'static [u8]>)>,
    /// Tells this connection from others that had its number.
    generation: u32,
    waits_for_room: bool,
    /// Why TLS has failed.
    why: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connecting,
    /// TLS's.
    Handshaking,
    Open,
}

/// What a connection's way of opening has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It is open now.
    Opened,
    /// It was open.
    WasOpen,
    Waits,
}

impl Wire {
    /// Reads once. `take` gets what came, perhaps in several pieces. Whether the server may send more; errors are the connection's end.
    pub(crate) fn read(&mut self, buffer: &mut [u8], take: &mut dyn FnMut(&[u8])) -> Result<bool, Fault> {
        if self.is_of_datagrams {
            return read_datagrams(&mut self.socket, buffer, take);
        }
        let Some((tls, _)) = &mut self.tls else { return read_once(&mut self.socket, buffer, take) };
        let is_closed = match tls.read_tls(&mut self.socket) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) if is_passing(&error) => false,
            Err(error) => return Err(fault_of(&error)),
        };
        if let Err(error) = tls.process_new_packets() {
            self.why = Some(error.to_string());
            return Err(Fault::Tls);
        }
        loop {
            match tls.reader().read(buffer) {
                Ok(0) => return Ok(false),
                Ok(len) => take(&buffer[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(!is_closed),
                Err(_) => return Ok(false), // Closed without a notice: the protocol above sees whether something is missing.
            }
        }
    }

    /// Sends from the front of `octets` what there is room for. What is wrong with a connection shows when it is read.
    pub(crate) fn write(&mut self, octets: &[u8]) -> usize {
        if self.is_of_datagrams {
            return match self.socket.write(octets) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                Ok(_) | Err(_) => octets.len(), // One that did not leave is lost, as others are on their way.
            };
        }
        let Some((tls, _)) = &mut self.tls else { return self.socket.write(octets).unwrap_or(0) };
        let taken = tls.writer().write(octets).unwrap_or(0);
        self.flush();
        taken
    }

    /// Sends what TLS has to send.
    fn flush(&mut self) {
        let Some((tls, _)) = &mut self.tls else { return };
        while tls.wants_write() && tls.write_tls(&mut self.socket).is_ok_and(|len| len > 0) {}
    }

    /// Goes on with opening.
    pub(crate) fn open(&mut self) -> Result<Progress, Fault> {
        if self.stage == Stage::Open {
            self.flush();
            return Ok(Progress::WasOpen);
        }
        if self.stage == Stage::Connecting {
            if let Some(error) = self.socket.take_error().map_err(|error| fault_of(&error))? {
                return Err(fault_of(&error));
            }
            if self.socket.peer_addr().is_err() {
                return Ok(Progress::Waits);
            }
            self.stage = Stage::Handshaking;
        }
        self.shake_hands()
    }

    fn shake_hands(&mut self) -> Result<Progress, Fault> {
        self.flush();
        if let Some((tls, required)) = &mut self.tls {
            match tls.read_tls(&mut self.socket) {
                Ok(0) => {
                    self.why = Some("the server ended the connection".to_owned());
                    return Err(Fault::Tls);
                }
                Ok(_) => {}
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(fault_of(&error)),
            }
            if let Err(error) = tls.process_new_packets() {
                self.why = Some(error.to_string());
                self.flush(); // An alert.
                return Err(Fault::Tls);
            }
            if tls.is_handshaking() {
                self.flush();
                return Ok(Progress::Waits);
            }
            let chosen = tls.alpn_protocol();
            if let Some(required) = required.filter(|required| chosen != Some(*required)) {
                let [required, chosen] =
                    [required, chosen.unwrap_or(b"nothing")].map(String::from_utf8_lossy);
                self.why = Some(format!("of the protocols (ALPN) the server chose {chosen}, not {required}"));
                return Err(Fault::Tls);
            }
            self.flush();
        }
        self.stage = Stage::Open;
        Ok(Progress::Opened)
    }

    /// Why TLS has failed, if it has.
    pub(crate) fn why(&mut self) -> Option<String> {
        self.why.take()
    }

    fn waits_to_send(&self) -> bool {
        self.stage == Stage::Connecting || self.tls.as_ref().is_some_and(|(tls, _)| tls.wants_write())
    }
}

/// Datagrams, each a piece of its own. They have no end.
fn read_datagrams(
    socket: &mut Socket,
    buffer: &mut [u8],
    take: &mut dyn FnMut(&[u8]),
) -> Result<bool, Fault> {
    for _ in 0..DATAGRAMS_MAX {
        match socket.read(buffer) {
            Ok(len) => take(&buffer[..len]),
            Err(error) if is_passing(&error) => break,
            Err(error) => return Err(fault_of(&error)),
        }
    }
    Ok(true)
}

fn read_once(socket: &mut Socket, buffer: &mut [u8], take: &mut dyn FnMut(&[u8])) -> Result<bool, Fault> {
    match socket.read(buffer) {
        Ok(0) => Ok(false),
        Ok(len) => {
            take(&buffer[..len]);
            Ok(true)
        }
        Err(error) if is_passing(&error) => Ok(true),
        Err(error) => Err(fault_of(&error)),
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn errno_of(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw)
}

/// What an error of a socket means.
fn fault_of(error: &io::Error) -> Fault {
    match errno_of(error) {
        Some(Errno::ECONNREFUSED) => Fault::Refused,
        Some(Errno::ECONNRESET | Errno::EPIPE | Errno::ECONNABORTED) => Fault::Reset,
        Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM | Errno::EADDRNOTAVAIL) => {
            Fault::NoSocket
        }
        Some(Errno::ENETUNREACH | Errno::EHOSTUNREACH | Errno::ENETDOWN | Errno::EHOSTDOWN) => {
            Fault::Unreachable
        }
        _ => Fault::NotConnected,
    }
}

/// The sockets of a load, by the number that the load knows them by.
pub(crate) struct Sockets {
    epoll: Epoll,
    wires: Vec<Option<Wire>>,
    /// What came last, in as many of them as there was something.
    events: Vec<EpollEvent>,
    generation: u32,
}

impl Sockets {
    pub(crate) fn new() -> anyhow::Result<Sockets> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        Ok(Sockets { epoll, wires: Vec::new(), events: vec![EpollEvent::empty(); EVENTS_MAX], generation: 0 })
    }

    /// Begins a connection.
    pub(crate) fn dial(&mut self, number: usize, target: &Target) -> Result<(), Fault> {
        let socket = connect(target).map_err(|error| fault_of(&error))?;
        let is_of_datagrams = matches!(target.kind, Kind::Datagrams);
        let tls = match &target.kind {
            Kind::Tcp | Kind::Datagrams => None,
            Kind::Tls(tls) => {
                let connection = ClientConnection::new(Arc::clone(&tls.config), tls.name.clone());
                Some((Box::new(connection.map_err(|_| Fault::Tls)?), tls.required))
            }
        };
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT, name(number, generation));
        self.epoll.add(&socket, event).map_err(|error| fault_of(&error.into()))?;
        if self.wires.len() <= number {
            self.wires.resize_with(number + 1, || None);
        }
        // A socket of datagrams is there at once: so is its first event, for which it waits as others do.
        let stage = Stage::Connecting;
        let (waits_for_room, why) = (true, None);
        self.wires[number] =
            Some(Wire { socket, stage, is_of_datagrams, tls, generation, waits_for_room, why });
        Ok(())
    }

    pub(crate) fn wire(&mut self, number: usize) -> Option<&mut Wire> {
        self.wires.get_mut(number)?.as_mut()
    }

    /// Closes a connection.
    pub(crate) fn close(&mut self, number: usize) {
        if let Some(wire) = self.wires.get_mut(number) {
            *wire = None;
        }
    }

    /// Asks to be told when there is room to send, if something is to be sent, and not otherwise.
    pub(crate) fn watch(&mut self, number: usize, has_output: bool) {
        let Some(wire) = self.wires.get_mut(number).and_then(Option::as_mut) else { return };
        let waits = has_output || wire.waits_to_send();
        if std::mem::replace(&mut wire.waits_for_room, waits) == waits {
            return;
        }
        let flags = if waits { EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN };
        let mut event = EpollEvent::new(flags, name(number, wire.generation));
        // It fails for want of kernel memory alone; the connection then times out.
        let _ = self.epoll.modify(&wire.socket, &mut event);
    }

    /// Connections that have something at once: how many.
    pub(crate) fn poll(&mut self) -> anyhow::Result<usize> {
        self.wait_for_events(EpollTimeout::ZERO)
    }

    /// Sleeps until a connection has something, for `time` at most, and perhaps less.
    pub(crate) fn sleep(&mut self, time: Duration) -> anyhow::Result<usize> {
        if time >= COARSE {
            let millis = (time.as_nanos() / MILLISECOND - 1).min(1000);
            return self.wait_for_events(EpollTimeout::from(millis as u16));
        }
        let timeout = TimeSpec::new(0, time.as_nanos() as i64);
        match ppoll(&mut [PollFd::new(self.epoll.0.as_fd(), PollFlags::POLLIN)], Some(timeout), None) {
            Ok(0) | Err(Errno::EINTR) => Ok(0),
            Ok(_) => self.poll(),
            Err(error) => Err(error.into()),
        }
    }

    fn wait_for_events(&mut self, time: EpollTimeout) -> anyhow::Result<usize> {
        match self.epoll.wait(&mut self.events, time) {
            Ok(count) => Ok(count),
            Err(Errno::EINTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// The connection of an event; `None` if it is gone.
    pub(crate) fn event(&self, at: usize) -> Option<usize> {
        let data = self.events.get(at)?.data();
        let (number, generation) = (data as u32 as usize, (data >> 32) as u32);
        let wire = self.wires.get(number)?.as_ref()?;
        (wire.generation == generation).then_some(number)
    }
}

fn name(number: usize, generation: u32) -> u64 {
    u64::from(generation) << 32 | number as u64
}

fn connect(target: &Target) -> io::Result<Socket> {
    let domain = Domain::for_address(target.address);
    let socket = if matches!(target.kind, Kind::Datagrams) {
        Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?
    } else {
        let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        socket.set_tcp_nodelay(true)?;
        socket
    };
    match socket.connect(&target.address.into()) {
        Ok(()) => {}
        Err(error) if errno_of(&error) == Some(Errno::EINPROGRESS) => {}
        Err(error) => return Err(error),
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_a_way_is_not_one_that_takes_too_long() {
        let fault = |errno: Errno| fault_of(&io::Error::from_raw_os_error(errno as i32));
        let faults = [Errno::ENETUNREACH, Errno::EHOSTUNREACH, Errno::ETIMEDOUT].map(fault);
        assert_eq!(faults, [Fault::Unreachable, Fault::Unreachable, Fault::NotConnected]);
    }

    /// A connection may be dialled while something of the one before it is still to be done, with its number.
    #[test]
    fn a_socket_that_is_new_says_that_it_is_open_whatever_its_number_was_before() {
        let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let target = Target { address: server.local_addr().unwrap(), kind: Kind::Datagrams };
        let mut sockets = Sockets::new().unwrap();
        sockets.dial(0, &target).unwrap();
        sockets.watch(0, false);
        assert_eq!((sockets.poll().unwrap(), sockets.event(0)), (1, Some(0)));
        assert_eq!(sockets.wire(0).unwrap().open().unwrap(), Progress::Opened);
        sockets.watch(0, false);
        assert_eq!(sockets.poll().unwrap(), 0, "nothing is to be sent");
    }
}
