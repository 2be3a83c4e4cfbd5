//! One TCP connection: octets in, length-prefixed messages, octets out (RFC 1035, 4.2.2; RFC 7766).

use std::io::{self, Read, Write};
use std::time::Instant;

use dns_auth::{Outcome, Transport};
use dns_server::DnsResponder;

/// Answers that wait for a client to read them, in octets; beyond it nothing more is read from that client.
const OUTPUT_MAX: usize = 64 << 10;
/// Octets read at a time.
const READ_SIZE: usize = 16 << 10;
/// Reads in one go, so that one busy client does not keep the others waiting.
const READS_MAX: usize = 8;
/// A length, and the longest message.
const MESSAGE_MAX: usize = 2 + 65_535;

/// What a connection is to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait for the socket to become readable or writable.
    Wait,
    /// Go on soon: there is more to do, but others have a turn first.
    Again,
    /// Nothing more to do: close it.
    Close,
}

/// A connection over any stream, so that tests need no socket.
pub(crate) struct Connection<S> {
    pub(crate) stream: S,
    input: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
    /// The client has sent its last octet.
    ended: bool,
    /// When the last whole query came, or the connection began (RFC 7766, 6.2.3: idle is measured in queries).
    pub(crate) last_query: Instant,
}

impl<S: Read + Write> Connection<S> {
    pub(crate) fn new(stream: S, now: Instant) -> Connection<S> {
        Connection { stream, input: Vec::new(), output: Vec::new(), sent: 0, ended: false, last_query: now }
    }

    /// Does all that can be done without waiting, up to a fair share.
    pub(crate) fn drive(&mut self, responder: &mut DnsResponder, scratch: &mut [u8], now: Instant) -> Next {
        self.try_drive(responder, scratch, now).unwrap_or(Next::Close)
    }

    /// An error of the stream means that the client is gone.
    fn try_drive(
        &mut self,
        responder: &mut DnsResponder,
        scratch: &mut [u8],
        now: Instant,
    ) -> io::Result<Next> {
        for _ in 0..READS_MAX {
            if !self.answer_input(responder, scratch, now) {
                return Ok(Next::Close);
            }
            if !self.flush()? {
                if self.output.len() - self.sent > OUTPUT_MAX {
                    return Ok(Next::Wait);
                }
            } else if self.ended {
                return Ok(Next::Close);
            }
            if self.ended || !self.receive()? {
                self.release_memory();
                let more = self.ended && self.output.is_empty();
                return Ok(if more { Next::Again } else { Next::Wait });
            }
        }
        Ok(Next::Again)
    }

    /// Answers the whole messages of the input as long as the output has room; false if the client talks nonsense.
    fn answer_input(&mut self, responder: &mut DnsResponder, scratch: &mut [u8], now: Instant) -> bool {
        let mut at = 0;
        while self.output.len() - self.sent <= OUTPUT_MAX {
            let Some((prefix, rest)) = self.input[at..].split_first_chunk::<2>() else { break };
            let len = usize::from(u16::from_be_bytes(*prefix));
            let Some(message) = rest.get(..len) else { break };
            if len == 0 {
                return false;
            }
            scratch[..len].copy_from_slice(message);
            if let Outcome::Reply(reply_len) = responder.respond_one(scratch, len, Transport::Tcp) {
                self.output.extend_from_slice(&(reply_len as u16).to_be_bytes()); // At most 65535.
                self.output.extend_from_slice(&scratch[..reply_len]);
            }
            self.last_query = now;
            at += 2 + len;
        }
        self.input.drain(..at);
        true
    }

    /// Sends what is waiting; true if nothing is left.
    fn flush(&mut self) -> io::Result<bool> {
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.sent = 0;
        Ok(true)
    }

    /// Reads once; false if there is nothing now. A full input is drained by `answer_input` before more is read.
    fn receive(&mut self) -> io::Result<bool> {
        let start = self.input.len();
        let size = READ_SIZE.min(MESSAGE_MAX - start.min(MESSAGE_MAX));
        if size == 0 {
            return Ok(false); // A whole message waits for room in the output.
        }
        self.input.resize(start + size, 0);
        let outcome = self.stream.read(&mut self.input[start..]);
        self.input.truncate(start + *outcome.as_ref().unwrap_or(&0));
        match outcome {
            Ok(0) => self.ended = true,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// An idle connection keeps no buffers.
    fn release_memory(&mut self) {
        if self.input.is_empty() {
            self.input = Vec::new();
        }
        if self.output.is_empty() {
            self.output = Vec::new();
        }
    }

    /// Whether answers are waiting for the client.
    pub(crate) fn has_output(&self) -> bool {
        self.sent < self.output.len()
    }
}
