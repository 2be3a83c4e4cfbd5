//! One client's stream: octets in, length-prefixed messages, octets out (RFC 1035, 4.2.2; RFC 7766).

use std::mem;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use clock::{Duration, Instant};
use dns_message::Compressor;
use dns_transfer::{Transfer, UpdateRequest};

use crate::{Answer, Asker, DnsResponder};

/// Answers that wait for a client to read them, in octets; beyond it no more queries of that client are answered.
const OUTPUT_MAX: usize = 64 << 10;
/// A client that takes its answers slowly has to take [`OUTPUT_MAX`] octets within this many idle time-outs.
const SLOW_TIMEOUTS: u32 = 12;

/// The stream cannot go on, close the connection: the client sent something other than DNS, or its transfer cannot be finished, or takes too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswerable;

/// What answers the messages of all streams of a thread.
pub struct StreamResponder {
    responder: DnsResponder,
    /// How long connections may be idle.
    idle_timeout: Duration,
    /// Room for one message and its answer.
    scratch: Vec<u8>,
    /// A buffer for answers that no stream needs now.
    spare: Vec<u8>,
    /// Where names stand in the message of a transfer that is being written.
    compressor: Compressor,
    /// That message.
    message: Vec<u8>,
}

impl StreamResponder {
    /// One that answers by `responder`, and tells clients that their connections may be idle for `idle_timeout`.
    pub fn new(responder: DnsResponder, idle_timeout: Duration) -> StreamResponder {
        StreamResponder {
            responder,
            idle_timeout,
            scratch: vec![0; 65_535],
            spare: Vec::new(),
            compressor: Compressor::default(),
            message: Vec::new(),
        }
    }

    /// Answers one message; a reply is then in the scratch.
    fn answer(&mut self, message: &[u8], client: SocketAddr) -> Answer {
        self.scratch[..message.len()].copy_from_slice(message);
        let (transport, idle_timeout) = (dns_log::Transport::Tcp, self.idle_timeout);
        let asker = Asker { remote: client, transport, idle_timeout, takes_transfers: true };
        self.responder.respond_one(&mut self.scratch, message.len(), &asker)
    }

    /// Has an update carried out, and returns where its answer will be.
    fn submit(&self, update: Box<UpdateRequest>) -> Receiver<Vec<u8>> {
        let (sender, answer) = channel();
        self.responder.submit(update, Box::new(move |octets| drop(sender.send(octets)))); // Clients may go.
        answer
    }

    /// The next message of a transfer to `client`, which can take it at `now`.
    fn continue_transfer(
        &mut self,
        transfer: &mut Transfer,
        client: SocketAddr,
        now: Instant,
    ) -> Result<&[u8], Unanswerable> {
        let out = (&mut self.compressor, &mut self.message);
        let written = self.responder.continue_transfer(transfer, out, client.ip(), now);
        written.map(|()| &self.message[..]).map_err(|_| Unanswerable)
    }
}

/// What is kept of one client. The input stays where it came: the caller shows it, and drops what was answered.
#[derive(Debug)]
pub struct QueryStream {
    client: SocketAddr,
    /// The transfer that is under way. Queries behind it wait.
    transfer: Option<Box<Transfer>>,
    /// Where the answer to an update will be that is being carried out. Queries behind it wait, too.
    update: Option<Receiver<Vec<u8>>>,
    output: Vec<u8>,
    /// Octets of the output that are sent.
    sent: usize,
    /// When the last whole query came, or the connection began.
    last_query: Instant,
    /// Octets of all answers.
    written: u64,
    delivery: Delivery,
}

/// How the client takes its answers, seen whenever [`QueryStream::idle_until`] is asked.
#[derive(Clone, Copy, Debug)]
enum Delivery {
    /// Answers do not wait for the client, and have not since then.
    Done(Instant),
    /// The client has yet to take answers.
    Waiting {
        /// Octets that it has taken of all answers.
        taken: u64,
        /// When it was last seen to have taken some.
        moved: Instant,
        /// Where the share that it is to take in time ends, and when.
        goal: (u64, Instant),
    },
}

impl QueryStream {
    /// The stream of a client that connects now.
    pub fn new(client: SocketAddr, now: Instant) -> QueryStream {
        QueryStream {
            client,
            transfer: None,
            update: None,
            output: Vec::new(),
            sent: 0,
            last_query: now,
            written: 0,
            delivery: Delivery::Done(now),
        }
    }

    /// Goes on with a transfer, and answers the whole messages at the start of `input`, as long as the output has room; returns how many octets
    /// those are. It may be none although there is more output.
    pub fn answer(
        &mut self,
        input: &[u8],
        responder: &mut StreamResponder,
        now: Instant,
    ) -> Result<usize, Unanswerable> {
        if self.output.capacity() == 0 {
            mem::swap(&mut self.output, &mut responder.spare);
        }
        self.output.drain(..self.sent);
        self.sent = 0;
        let mut at = 0;
        while self.has_room() {
            if let Some(mut transfer) = self.transfer.take() {
                self.push(responder.continue_transfer(&mut transfer, self.client, now)?);
                self.last_query = now;
                self.transfer = Some(transfer).filter(|transfer| !transfer.is_done());
                continue;
            }
            if let Some(update) = &self.update {
                match update.try_recv() {
                    Ok(answer) => self.push(&answer),
                    Err(TryRecvError::Disconnected) => {} // The server ends, and carries no more out.
                    Err(TryRecvError::Empty) => break,
                }
                self.update = None;
                self.last_query = now;
                continue;
            }
            let Some((prefix, rest)) = input[at..].split_first_chunk::<2>() else { break };
            let len = usize::from(u16::from_be_bytes(*prefix));
            let Some(message) = rest.get(..len) else { break };
            if len == 0 {
                return Err(Unanswerable);
            }
            match responder.answer(message, self.client) {
                Answer::Reply(len) => self.push(&responder.scratch[..len]),
                Answer::Transfer(transfer) => self.transfer = Some(transfer),
                Answer::Update(update) => self.update = Some(responder.submit(update)),
                Answer::None => {}
            }
            self.last_query = now;
            at += 2 + len;
        }
        self.release_buffer(responder);
        Ok(at)
    }

    fn push(&mut self, message: &[u8]) {
        self.output.extend_from_slice(&(message.len() as u16).to_be_bytes()); // At most 65535.
        self.output.extend_from_slice(message);
        self.written += 2 + message.len() as u64;
    }

    /// Answers to send.
    pub fn output(&self) -> &[u8] {
        &self.output[self.sent..]
    }

    /// The first `count` octets of the output are sent.
    pub fn on_sent(&mut self, count: usize, responder: &mut StreamResponder) {
        self.sent += count;
        self.release_buffer(responder);
    }

    /// Releases the buffer for another connection if it is empty: an idle client keeps none.
    fn release_buffer(&mut self, responder: &mut StreamResponder) {
        if self.sent < self.output.len() {
            return;
        }
        let mut buffer = mem::take(&mut self.output);
        self.sent = 0;
        if responder.spare.capacity() == 0 {
            buffer.clear();
            responder.spare = buffer;
        }
    }

    /// How soon [`QueryStream::answer`] is to be called again although nothing comes: an update is being carried out.
    pub fn look_again(&self) -> Option<Duration> {
        const SOON: Duration = Duration::from_millis(1);
        self.update.as_ref().map(|_| SOON)
    }

    /// Whether more queries would be answered before the client takes what there is.
    pub fn has_room(&self) -> bool {
        self.output().len() <= OUTPUT_MAX
    }

    /// When the client has been idle for too long. Idle is measured in queries (RFC 7766, 6.2.3), and does not begin while the client
    /// takes answers: it is to take some within every time-out, and a share of them within twelve. `unacknowledged` octets of answers
    /// are with the transport. To be asked when the time that was given last has come.
    pub fn idle_until(&mut self, unacknowledged: usize, idle_timeout: Duration, now: Instant) -> Instant {
        let waiting = self.output().len() + unacknowledged;
        if waiting == 0 {
            if let Delivery::Waiting { .. } = self.delivery {
                self.delivery = Delivery::Done(now);
            }
        } else {
            let taken = self.written.saturating_sub(waiting as u64);
            self.delivery = self.delivery.after(taken, idle_timeout, now);
        }
        match self.delivery {
            Delivery::Done(since) => self.last_query.max(since) + idle_timeout,
            Delivery::Waiting { moved, goal: (_, until), .. } => until.min(moved + idle_timeout),
        }
    }

    /// Whether answers wait for the client, as far as was seen when [`QueryStream::idle_until`] was asked last.
    pub fn is_waiting(&self) -> bool {
        matches!(self.delivery, Delivery::Waiting { .. })
    }
}

impl Delivery {
    /// Goes on to `now`, when the client has taken `taken` octets and others wait.
    fn after(self, taken: u64, idle_timeout: Duration, now: Instant) -> Delivery {
        let next_goal = (taken + OUTPUT_MAX as u64, now + idle_timeout * SLOW_TIMEOUTS);
        match self {
            Delivery::Done(_) => Delivery::Waiting { taken, moved: now, goal: next_goal },
            Delivery::Waiting { taken: before, moved, goal } => Delivery::Waiting {
                taken,
                moved: if taken > before { now } else { moved },
                goal: if taken >= goal.0 { next_goal } else { goal },
            },
        }
    }
}

/// Octets of the message at the start of `input`, with the length in front of it, 2 if that has not come.
pub(crate) fn message_len(input: &[u8]) -> usize {
    2 + input.first_chunk::<2>().map_or(0, |prefix| usize::from(u16::from_be_bytes(*prefix)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arc_swap::ArcSwap;
    use dns_auth::{Catalog, Counters};

    use super::*;
    use crate::Published;

    /// One that has no zone, and refuses.
    fn responder() -> StreamResponder {
        let catalog = Arc::new(Catalog::new([], 1));
        let (settings, transfers) = Default::default();
        let published = Published { catalog, settings, transfers, guard: None, log: None };
        let published = Arc::new(ArcSwap::from_pointee(published));
        let responder = DnsResponder::new(&published, Arc::new(Counters::default()));
        StreamResponder::new(responder, Duration::from_secs(10))
    }

    #[test]
    fn what_was_sent_is_not_kept_while_more_is_to_be_sent() {
        let (mut responder, now) = (responder(), Instant::ZERO);
        let mut stream = QueryStream::new(([192, 0, 2, 1], 4000).into(), now);
        let query = b"\x00\x11\x12\x34\0\0\0\x01\0\0\0\0\0\0\0\0\x01\0\x01";
        let input = query.repeat(10_000);
        for _ in 0..100 {
            assert!(stream.answer(&input, &mut responder, now).unwrap() > 0);
            assert!(!stream.has_room() && stream.output().starts_with(b"\x00\x11\x12\x34\x80"));
            stream.on_sent(100 * query.len(), &mut responder);
        }
        assert!(stream.output.len() <= OUTPUT_MAX + 2 + 65_535, "{} octets are kept", stream.output.len());
    }
}
