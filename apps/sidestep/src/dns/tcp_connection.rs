//! One TCP connection on a kernel socket: from the socket to the stream of queries and back.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use clock::{Duration, Instant};
use dns_server::{Permit, QueryStream, StreamResponder};

use super::read_once::{Came, read_once};

/// Octets read at a time.
const READ_SIZE: usize = 16 << 10;
/// Reads, or fillings of the output, in one go, so that one busy client does not keep the others waiting.
const ROUNDS_MAX: usize = 8;
/// A length, and the longest message.
const MESSAGE_MAX: usize = 2 + 65_535;

/// What a connection is to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait for the socket to become readable or writable.
    Wait,
    /// Go on soon: there is more to do, but others have a turn first.
    Again,
    /// Go on soon: an update is being carried out, and no event tells of its end.
    Soon,
    /// Nothing more to do: close it.
    Close,
}

/// A connection over any stream, so that tests need no socket.
pub(crate) struct Connection<S> {
    pub(crate) socket: S,
    pub(crate) queries: QueryStream,
    input: Vec<u8>,
    /// The client has sent its last octet.
    ended: bool,
    /// When to look again whether the client is idle.
    idle_until: Instant,
    _permit: Permit,
}

impl<S: Read + Write> Connection<S> {
    pub(crate) fn new(socket: S, client: SocketAddr, permit: Permit, now: Instant) -> Connection<S> {
        let queries = QueryStream::new(client, now);
        Connection { socket, queries, input: Vec::new(), ended: false, idle_until: now, _permit: permit }
    }

    /// Does all that can be done without waiting, up to a fair share.
    pub(crate) fn drive(&mut self, responder: &mut StreamResponder, now: Instant) -> Next {
        // An error of the socket means that the client is gone.
        self.try_drive(responder, now).unwrap_or(Next::Close)
    }

    fn try_drive(&mut self, responder: &mut StreamResponder, now: Instant) -> io::Result<Next> {
        for _ in 0..ROUNDS_MAX {
            let Ok(answered) = self.queries.answer(&self.input, responder, now) else {
                return Ok(Next::Close);
            };
            self.input.drain(..answered);
            let may_have_more = !self.queries.has_room();
            let is_sent = self.flush(responder)?;
            if is_sent && self.queries.look_again().is_some() {
                return Ok(Next::Soon);
            }
            if is_sent && may_have_more {
                continue; // What had no room: no event would tell of it.
            }
            if is_sent && self.ended {
                return Ok(Next::Close);
            }
            if !self.queries.has_room() || self.ended || !self.receive()? {
                if self.input.is_empty() {
                    self.input = Vec::new(); // An idle connection keeps no buffers.
                }
                return Ok(Next::Wait);
            }
        }
        Ok(Next::Again)
    }

    /// Sends what is waiting; true if nothing is left.
    fn flush(&mut self, responder: &mut StreamResponder) -> io::Result<bool> {
        while self.has_output() {
            match self.socket.write(self.queries.output()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.queries.on_sent(count, responder),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Reads once; false if there is nothing now. A full input is answered before more is read.
    fn receive(&mut self) -> io::Result<bool> {
        let start = self.input.len();
        let size = READ_SIZE.min(MESSAGE_MAX - start.min(MESSAGE_MAX));
        if size == 0 {
            return Ok(false); // A whole message waits for room in the output.
        }
        let came = read_once(&mut self.socket, &mut self.input, size)?;
        self.ended |= came == Came::End;
        Ok(came != Came::Nothing)
    }

    /// Whether answers are waiting for the client.
    pub(crate) fn has_output(&self) -> bool {
        !self.queries.output().is_empty()
    }
}

impl<S: AsRawFd> Connection<S> {
    /// Whether the client has been idle for `limit`.
    pub(crate) fn is_idle(&mut self, limit: Duration, now: Instant) -> bool {
        if self.idle_until <= now {
            self.idle_until = self.queries.idle_until(self.unacknowledged(), limit, now);
        }
        self.idle_until <= now
    }

    /// Octets in the socket that the client has not acknowledged: SIOCOUTQ in tcp(7).
    fn unacknowledged(&self) -> usize {
        const SIOCOUTQ: u64 = 0x5411;
        let mut octets = 0;
        // Without an answer the socket is dead, and nothing in it is delivered.
        let asked = syscall::ioctl(self.socket.as_raw_fd(), SIOCOUTQ, &mut octets);
        if asked.is_ok() { octets.max(0) as usize } else { 0 }
    }
}
