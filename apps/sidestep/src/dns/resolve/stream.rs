//! One client's connection: queries in as they come, answers out in any order (RFC 7766, 6.2.1.1 and 7).

use std::io::{self, Read, Write};
use std::mem;

use clock::{Duration, Instant};
use dns_server::Permit;

use crate::dns::read_once::{Came, read_once};

/// Queries of a client that may be under way; beyond it the client is not read from.
const PENDING_MAX: usize = 100;
/// Answers that wait for a client to read them, in octets; beyond it the client is not read from.
const OUTPUT_MAX: usize = 64 << 10;
/// Octets read at a time.
const READ_SIZE: usize = 4 << 10;

/// A connection over any stream, so that tests need no socket.
pub(super) struct Stream<S> {
    pub(super) socket: S,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Queries without an answer yet.
    pending: usize,
    /// The client has sent its last octet.
    ended: bool,
    /// When the client last did something useful.
    active: Instant,
    _permit: Permit,
}

/// The connection is over.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Closed;

impl<S: Read + Write> Stream<S> {
    pub(super) fn new(socket: S, permit: Permit, now: Instant) -> Stream<S> {
        let (input, output) = (Vec::new(), Vec::new());
        Stream { socket, input, output, pending: 0, ended: false, active: now, _permit: permit }
    }

    /// Sends what is waiting, and takes the next whole message that has come. To be called again until there is none: each answer may end
    /// the room for more.
    pub(super) fn next_query(&mut self, now: Instant) -> Result<Option<Vec<u8>>, Closed> {
        self.flush(now)?;
        while self.has_room() {
            if let Some(message) = self.next_message()? {
                self.pending += 1;
                self.active = now;
                return Ok(Some(message));
            }
            if self.ended || !self.receive()? {
                break;
            }
        }
        let is_done = self.ended && self.pending == 0 && self.output.is_empty();
        if is_done { Err(Closed) } else { Ok(None) }
    }

    /// Sends an answer; an empty one is none.
    pub(super) fn answer(&mut self, octets: &[u8], now: Instant) -> Result<(), Closed> {
        self.pending = self.pending.saturating_sub(1);
        if octets.is_empty() {
            return Ok(());
        }
        let len = u16::try_from(octets.len()).map_err(|_| Closed)?;
        self.output.extend_from_slice(&len.to_be_bytes());
        self.output.extend_from_slice(octets);
        self.flush(now)
    }

    /// Whether the client has done nothing useful for `limit`, and nothing is being resolved for it.
    pub(super) fn is_idle(&self, limit: Duration, now: Instant) -> bool {
        self.active + limit <= now && (self.pending == 0 || !self.output.is_empty())
    }

    fn has_room(&self) -> bool {
        self.pending < PENDING_MAX && self.output.len() < OUTPUT_MAX
    }

    /// Takes a whole message off the input. An empty one is not DNS.
    fn next_message(&mut self) -> Result<Option<Vec<u8>>, Closed> {
        let Some((prefix, rest)) = self.input.split_first_chunk::<2>() else { return Ok(None) };
        let len = usize::from(u16::from_be_bytes(*prefix));
        if len == 0 {
            return Err(Closed);
        }
        let Some(message) = rest.get(..len).map(<[u8]>::to_vec) else { return Ok(None) };
        self.input.drain(..2 + len);
        if self.input.is_empty() {
            self.input = Vec::new(); // An idle connection keeps no buffers.
        }
        Ok(Some(message))
    }

    /// Reads once; false if there is nothing now.
    fn receive(&mut self) -> Result<bool, Closed> {
        let came = read_once(&mut self.socket, &mut self.input, READ_SIZE).map_err(|_| Closed)?;
        self.ended |= came == Came::End;
        Ok(came != Came::Nothing)
    }

    fn flush(&mut self, now: Instant) -> Result<(), Closed> {
        while !self.output.is_empty() {
            match self.socket.write(&self.output) {
                Ok(0) => return Err(Closed),
                Ok(count) => {
                    self.output.drain(..count);
                    self.active = now;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Closed),
            }
        }
        drop(mem::take(&mut self.output));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use dns_server::{Admission, TcpLimits};

    use super::*;

    /// What a client sends, and what it got; it reads no more than `room` octets.
    struct Pipe {
        sent: Vec<u8>,
        got: Vec<u8>,
        room: usize,
    }

    impl Read for Pipe {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            if self.sent.is_empty() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let count = into.len().min(self.sent.len()).min(7);
            into[..count].copy_from_slice(&self.sent[..count]);
            self.sent.drain(..count);
            Ok(count)
        }
    }

    impl Write for Pipe {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            let count = octets.len().min(self.room);
            if count == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.room -= count;
            self.got.extend_from_slice(&octets[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn stream(sent: &[u8], room: usize) -> Stream<Pipe> {
        let idle_timeout = Duration::from_secs(10);
        let limits = TcpLimits { idle_timeout, connections_max: 1, connections_per_client_max: 1 };
        let permit = Admission::new(limits).admit([192, 0, 2, 1].into()).unwrap();
        Stream::new(Pipe { sent: sent.to_vec(), got: Vec::new(), room }, permit, Instant::ZERO)
    }

    fn driven(stream: &mut Stream<Pipe>) -> (Vec<Vec<u8>>, Result<(), Closed>) {
        let mut queries = Vec::new();
        loop {
            match stream.next_query(Instant::ZERO) {
                Ok(Some(query)) => queries.push(query),
                Ok(None) => return (queries, Ok(())),
                Err(closed) => return (queries, Err(closed)),
            }
        }
    }

    #[test]
    fn queries_come_in_any_pieces_and_answers_go_with_their_length() {
        let mut stream = stream(b"\0\x03one\0\x0dtwo and a half\0", 100);
        let (queries, outcome) = driven(&mut stream);
        assert_eq!((queries, outcome), (vec![b"one".to_vec(), b"two and a hal".to_vec()], Ok(())));
        stream.answer(b"1", Instant::ZERO).unwrap();
        assert_eq!(stream.socket.got, b"\0\x011");
    }

    #[test]
    fn an_empty_message_ends_the_connection() {
        assert_eq!(driven(&mut stream(b"\0\0", 100)).1, Err(Closed));
    }

    #[test]
    fn a_client_with_many_queries_under_way_waits_for_answers() {
        let mut stream = stream(&b"\0\x01q".repeat(1000), usize::MAX);
        assert_eq!(driven(&mut stream).0.len(), PENDING_MAX);
        assert_eq!(driven(&mut stream).0.len(), 0);
        stream.answer(b"a", Instant::ZERO).unwrap();
        assert_eq!(driven(&mut stream).0.len(), 1);
    }

    #[test]
    fn a_client_that_does_not_read_is_not_read_from_and_is_idle_in_the_end() {
        let mut stream = stream(&b"\0\x01q".repeat(1000), 10);
        let _ = driven(&mut stream);
        let answer = vec![0; 40_000];
        (0..2).for_each(|_| stream.answer(&answer, Instant::ZERO).unwrap());
        assert_eq!(driven(&mut stream).0.len(), 0);
        assert!(stream.is_idle(Duration::from_secs(10), Instant::ZERO + Duration::from_secs(10)));
    }

    #[test]
    fn a_client_that_does_not_read_has_bounded_output() {
        let mut stream = stream(&b"\0\x01q".repeat(1000), 10);
        let mut taken = 0;
        while stream.next_query(Instant::ZERO).unwrap().is_some() {
            taken += 1;
            stream.answer(&[0; 40_000], Instant::ZERO).unwrap();
        }
        assert_eq!(taken, 2);
    }

    #[test]
    fn a_client_that_waits_for_a_resolution_is_not_idle() {
        let mut stream = stream(b"\0\x01q", 100);
        let _ = driven(&mut stream);
        let later = Instant::ZERO + Duration::from_secs(60);
        assert!(!stream.is_idle(Duration::from_secs(10), later));
        stream.answer(b"a", Instant::ZERO).unwrap();
        assert!(stream.is_idle(Duration::from_secs(10), later));
    }
}
