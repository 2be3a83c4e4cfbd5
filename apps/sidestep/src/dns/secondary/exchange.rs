//! Questions to primaries and transfers from them, on sockets of the kernel that may wait.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dns_auth::ServedZone;
use dns_client::TransferTls;
use dns_message::question_message;
use dns_transfer::incoming::{serial_in, transfer_request};
use dns_transfer::tsig::{Verifier, VerifyError, sign_request};
use dns_transfer::{Incoming, IncomingError, Key, Received};
use dns_wire::{Name, Rtype};
use thiserror::Error;

use super::super::source::Sources;
use super::super::transfers::{random_number, unix_time};

/// How long an answer by UDP is waited for, each time that it is asked for.
const UDP_WAITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];
/// Time for a connection, and for the serial by it.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// Time for each message of a transfer, and for the longest transfer.
const MESSAGE_MAX: Duration = Duration::from_secs(10);
const TRANSFER_MAX: Duration = Duration::from_secs(3600);
/// Time for what follows a newer SOA that came in place of differences. Whoever has them sends them at once, and who has none sends nothing more, and
/// may keep the connection open: the whole zone is asked for then, which is right in both cases.
const BEHIND_SOA_MAX: Duration = Duration::from_secs(3);
/// Octets of the longest transfer.
const OCTETS_MAX: u64 = 8 << 30;

/// Why a primary gave nothing that can be used.
#[derive(Debug, Error)]
pub(super) enum ExchangeError {
    /// The network, or silence.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// What it sent.
    #[error(transparent)]
    Incoming(#[from] IncomingError),
    /// How it signed.
    #[error(transparent)]
    Signature(#[from] VerifyError),
    /// It takes too long.
    #[error("the transfer takes more than an hour")]
    TooSlow,
}

/// One primary of one zone.
pub(super) struct Primary<'a> {
    pub(super) address: SocketAddr,
    /// Where it is asked from.
    pub(super) sources: Sources,
    pub(super) origin: Name<'a>,
    pub(super) key: Option<&'a Arc<Key>>,
    /// How to connect, if all goes by TLS.
    pub(super) tls: Option<&'a Arc<TransferTls>>,
}

/// A connection, with TLS or without.
trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

impl ExchangeError {
    /// Whether the primary gives no sign of life, which takes as long as we wait.
    pub(super) fn is_silence(&self) -> bool {
        match self {
            ExchangeError::Io(error) => matches!(
                error.kind(),
                ErrorKind::TimedOut
                    | ErrorKind::WouldBlock
                    | ErrorKind::HostUnreachable
                    | ErrorKind::NetworkUnreachable
            ),
            ExchangeError::TooSlow => true,
            ExchangeError::Incoming(_) | ExchangeError::Signature(_) => false,
        }
    }

    /// Whether the primary has answered a request in a way that cannot be used, if only by the end of the connection. It may answer another one
    /// well: some do not know requests for differences.
    pub(super) fn is_of_this_request(&self) -> bool {
        match self {
            ExchangeError::Io(error) => matches!(
                error.kind(),
                ErrorKind::UnexpectedEof
                    | ErrorKind::ConnectionReset
                    | ErrorKind::ConnectionAborted
                    | ErrorKind::BrokenPipe
            ),
            ExchangeError::TooSlow => false,
            ExchangeError::Incoming(_) | ExchangeError::Signature(_) => true,
        }
    }
}

/// The connection by which a transfer has ended well, for the next one from the same primary (RFC 7766, 6.2.1; RFC 9103, 6.4): without it a
/// catalog of many zones takes as many ports.
#[derive(Default)]
pub(super) struct Idle(Option<Connection>);

struct Connection {
    address: SocketAddr,
    sources: Sources,
    tls: Option<Arc<TransferTls>>,
    stream: Box<dyn Stream>,
    /// The same socket, for its deadlines.
    socket: TcpStream,
}

impl Idle {
    /// Ends the connection.
    pub(super) fn close(&mut self) {
        self.0 = None;
    }

    /// The connection, if it is to that primary. One to another is ended.
    fn take(&mut self, primary: &Primary<'_>) -> Option<Connection> {
        let is_same = |tls: Option<&Arc<TransferTls>>| match (tls, primary.tls) {
            (None, None) => true,
            (Some(ours), Some(theirs)) => Arc::ptr_eq(ours, theirs),
            _ => false,
        };
        let is_way = |held: &Connection| (held.address, held.sources) == (primary.address, primary.sources);
        self.0.take().filter(|held| is_way(held) && is_same(held.tls.as_ref()))
    }
}

impl Primary<'_> {
    /// The serial that it has: by UDP, or by TCP if UDP gives nothing that can be used, or by TLS alone (RFC 9103, 6.1).
    pub(super) fn serial(&self, idle: &mut Idle) -> Result<u32, ExchangeError> {
        let waits = if self.tls.is_none() { &UDP_WAITS[..] } else { &[] };
        for wait in waits {
            match self.ask_by_udp(*wait) {
                Ok(serial) => return Ok(serial),
                Err(ExchangeError::Io(_)) => {}
                // Some answer differently by TCP: Knot refuses UDP for catalogs that it makes. And what came may be forged.
                Err(_) => break,
            }
        }
        let (id, request, mut verifier) = self.signed(|id| question_message(id, 0, self.origin, Rtype::SOA));
        let (connection, mut answer) = self.ask(&request, ANSWER_MAX, idle)?;
        verify(verifier.as_mut(), &mut answer)?;
        let serial = serial_in(&answer, id, self.origin)?;
        idle.0 = Some(connection);
        Ok(serial)
    }

    /// A truncated answer is an error, too.
    fn ask_by_udp(&self, wait: Duration) -> Result<u32, ExchangeError> {
        let (id, request, mut verifier) = self.signed(|id| question_message(id, 0, self.origin, Rtype::SOA));
        let socket = self.sources.to(self.address.ip()).bind()?;
        socket.connect(self.address)?;
        socket.set_read_timeout(Some(wait))?;
        socket.send(&request)?;
        let mut answer = vec![0; 4096];
        let len = socket.recv(&mut answer)?;
        answer.truncate(len);
        verify(verifier.as_mut(), &mut answer)?;
        Ok(serial_in(&answer, id, self.origin)?)
    }

    /// Transfers the zone: the differences from `held` if there is one, else all of it. `ours` is the serial that we have.
    pub(super) fn transfer(
        &self,
        held: Option<&Arc<ServedZone>>,
        ours: Option<u32>,
        idle: &mut Idle,
    ) -> Result<Received, ExchangeError> {
        let began = Instant::now();
        let zone = held.and_then(|held| held.tree().ok());
        let (id, request, mut verifier) = self.signed(|id| transfer_request(id, self.origin, zone));
        let (mut connection, mut message) = self.ask(&request, MESSAGE_MAX, idle)?;
        let seed = u64::from(random_number()) << 32 | u64::from(random_number());
        let mut incoming = Incoming::new(id, self.origin, held.cloned(), OCTETS_MAX, seed);
        loop {
            verify(verifier.as_mut(), &mut message)?;
            if incoming.on_message(&message)? {
                break;
            }
            if began.elapsed() > TRANSFER_MAX {
                return Err(ExchangeError::TooSlow);
            }
            message = next_message(&mut connection, &incoming)?;
        }
        if verifier.is_some_and(|verifier| !verifier.is_complete()) {
            return Err(VerifyError::Unsigned.into());
        }
        let received = incoming.finish(ours)?;
        idle.0 = Some(connection);
        Ok(received)
    }

    /// A request with a random ID, signed if there is a key.
    fn signed(&self, make: impl FnOnce(u16) -> Vec<u8>) -> (u16, Vec<u8>, Option<Verifier>) {
        let id = random_number() as u16;
        let mut request = make(id);
        let verifier = self.key.map(|key| sign_request(&mut request, key, unix_time()));
        (id, request, verifier)
    }

    /// Sends a request, and gives the first message of the answer: by the connection that is left of an exchange before, else by a new one. The
    /// primary may have ended the old one meanwhile.
    fn ask(&self, request: &[u8], patience: Duration, idle: &mut Idle) -> io::Result<(Connection, Vec<u8>)> {
        if let Some(mut connection) = idle.take(self) {
            match connection.ask(request, patience) {
                Ok(message) => return Ok((connection, message)),
                // It is there, and silent: a new connection would not hasten it.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Err(error);
                }
                Err(_) => {}
            }
        }
        let mut connection = self.connect()?;
        let message = connection.ask(request, patience).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset if self.tls.is_none() => io::Error::new(
                error.kind(),
                "it ends the connection without an answer; a port for TLS would need the option tls",
            ),
            ErrorKind::UnexpectedEof => {
                io::Error::new(error.kind(), "it ends the connection without an answer")
            }
            _ => error,
        })?;
        Ok((connection, message))
    }

    fn connect(&self) -> io::Result<Connection> {
        let stream = self.sources.to(self.address.ip()).connect(self.address, ANSWER_MAX);
        let what = if self.tls.is_some() { "no connection by TLS" } else { "no connection" };
        let stream = stream.map_err(|error| in_words(error, what, ANSWER_MAX))?;
        let (socket, stream): (_, Box<dyn Stream>) = match self.tls {
            Some(tls) => {
                let stream = tls.shake_hands(stream, ANSWER_MAX);
                let stream = stream.map_err(|error| in_words(error, what, ANSWER_MAX))?;
                (stream.sock.try_clone()?, Box::new(stream))
            }
            None => (stream.try_clone()?, Box::new(stream)),
        };
        socket.set_write_timeout(Some(MESSAGE_MAX))?;
        let (address, sources) = (self.address, self.sources);
        Ok(Connection { address, sources, tls: self.tls.cloned(), stream, socket })
    }
}

impl Connection {
    fn ask(&mut self, request: &[u8], patience: Duration) -> io::Result<Vec<u8>> {
        let framed = [&(request.len() as u16).to_be_bytes()[..], request].concat(); // A request is short.
        self.stream.write_all(&framed)?;
        self.stream.flush()?;
        self.read_message(patience)
    }

    /// The next message, which has to be there within `patience`, however slowly its octets come.
    fn read_message(&mut self, patience: Duration) -> io::Result<Vec<u8>> {
        let deadline = Instant::now() + patience;
        let mut read = |len: usize| {
            let mut octets = vec![0; len];
            self.read_until(&mut octets, deadline).map(|()| octets)
        };
        let message = read(2).and_then(|len| read(usize::from(u16::from_be_bytes([len[0], len[1]]))));
        message.map_err(|error| in_words(error, "no whole message", patience))
    }

    fn read_until(&mut self, mut buffer: &mut [u8], deadline: Instant) -> io::Result<()> {
        while !buffer.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            self.socket.set_read_timeout(Some(left))?;
            match self.stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => buffer = &mut buffer[len..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn next_message(connection: &mut Connection, incoming: &Incoming) -> Result<Vec<u8>, ExchangeError> {
    if incoming.is_soa_alone() {
        return connection.read_message(BEHIND_SOA_MAX).map_err(|_| IncomingError::SoaAlone.into());
    }
    Ok(connection.read_message(MESSAGE_MAX)?)
}

/// The system names silence in many ways, and the end of a connection in none that a reader of a log would know.
fn in_words(error: io::Error, what: &str, patience: Duration) -> io::Error {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => {
            io::Error::new(ErrorKind::TimedOut, format!("{what} within {} s", patience.as_secs()))
        }
        ErrorKind::UnexpectedEof => {
            io::Error::new(ErrorKind::UnexpectedEof, "it ends the connection within the transfer")
        }
        _ => error,
    }
}

fn verify(verifier: Option<&mut Verifier>, message: &mut Vec<u8>) -> Result<(), VerifyError> {
    verifier.map_or(Ok(()), |verifier| verifier.verify(message, unix_time()))
}
