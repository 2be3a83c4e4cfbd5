//! Connections as values, which leave one stack and enter another.

use std::sync::Arc;

use clock::Instant;
use transit::{Established, State, Timestamps};

use crate::buffer::{BufferPool, ByteQueue};
use crate::config::TcpOptions;
use crate::isn::timestamp_clock;
use crate::path::Hop;
use crate::seq::SeqRange;
use crate::tcp::connection::{Connection, Events, Shared};
use crate::tcp::receiver::Resumption;

/// A connection that has left its stack, and what only a stack knows of it. Another stack takes it by
/// [`Stack::attach`](crate::Stack::attach), the kernel takes the `connection`.
#[derive(Clone, Debug, PartialEq)]
pub struct Detached {
    /// All that the two ends agree on, and what is on its way.
    pub connection: Established,
    /// Where its packets left.
    pub hop: Hop,
    /// The socket's options.
    pub options: Arc<TcpOptions>,
}

/// Why a connection stayed where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetachError {
    /// There is no such connection.
    NotConnected,
    /// The handshake is not complete. It may be waited for, or aborted.
    Opening,
    /// It is over for the wire, or about to be reset: there is nothing to go on with. What was received can still be read.
    Over,
}

impl Connection {
    /// Why the connection cannot leave, if it cannot.
    pub(crate) fn obstacle_to_detach(&self) -> Option<DetachError> {
        if matches!(self.state, State::Closed | State::TimeWait) || self.flags.reset_due {
            return Some(DetachError::Over);
        }
        (!self.flags.syn_acknowledged || !self.state.is_transferable()).then_some(DetachError::Opening)
    }

    /// The connection as a value.
    pub(crate) fn snapshot(&mut self, shared: &Shared, now: Instant) -> Detached {
        let unsent = self.unsent_len() as usize;
        let (queued, unread) = (self.send.queue.len(), self.receive.queue.len());
        let timestamps = Timestamps { value: self.timestamp_now(now), echo: self.receive.ts_recent };
        let buffers = &shared.buffers;
        let mut received = octets(&mut self.receive.queue, buffers, 0, unread);
        self.remove_urgent_octet(&mut received);
        let connection = Established {
            local: self.key.local(),
            remote: self.key.remote(),
            state: self.state,
            snd_una: self.send.snd_una,
            snd_wnd: self.send.snd_wnd,
            snd_wl1: self.send.snd_wl1,
            max_window: self.send.max_window,
            rcv_nxt: self.receive.rcv_nxt,
            rcv_wnd: self.receive.offered_by_last_ack(),
            rcv_wup: self.receive.last_ack_sent,
            snd_wscale: self.send.scale,
            rcv_wscale: self.receive.scale,
            peer_mss: self.send.peer_mss,
            sack_permitted: self.flags.sack,
            ecn: self.flags.ecn,
            timestamps: self.flags.timestamps.then_some(timestamps),
            unacked: octets(&mut self.send.queue, buffers, 0, queued - unsent),
            unsent: octets(&mut self.send.queue, buffers, queued - unsent, unsent),
            received,
            fin_sent: self.flags.fin_was_sent,
            read_closed: self.flags.read_closed,
            orphaned: self.flags.orphaned,
        };
        debug_assert_eq!(connection.snd_nxt(), self.send.snd_nxt);
        debug_assert_eq!(connection.state.is_write_closed(), self.flags.write_closed);
        debug_assert_eq!(connection.state.has_fin_received(), self.receive.is_finished());
        Detached { connection, hop: shared.paths.hop(self.path), options: Arc::clone(&self.options) }
    }

    /// Goes on with a connection that has just been made and knows its ends and options only. False if its data finds no
    /// room in the buffers.
    pub(crate) fn resume(&mut self, from: &Established, shared: &mut Shared, now: Instant) -> bool {
        self.set_state(from.state, shared, now);
        self.resume_flags(from);
        if from.orphaned {
            self.abandon(shared);
        }
        self.resume_sender(from);
        let resumption = Resumption {
            rcv_nxt: from.rcv_nxt,
            rcv_wup: from.rcv_wup,
            rcv_wnd: from.rcv_wnd,
            scale: from.rcv_wscale,
            has_fin: from.state.has_fin_received(),
            unread: from.received.len() as u32,
        };
        self.receive.resume(&resumption, &self.options);
        if let Some(Timestamps { value, echo }) = from.timestamps {
            self.timestamp_offset = value.wrapping_sub(timestamp_clock(now));
            self.receive.ts_recent = echo;
            self.receive.ts_recent_at_s = (now.as_nanos() / 1_000_000_000) as u32;
        }
        self.update_mss(shared);
        if !self.resume_queues(from, shared) {
            return false;
        }
        self.push_held(); // What was held back may as well go now.
        self.resume_flight(shared, now);
        self.resume_timers(shared, now);
        self.receive.ack_now(); // The peer hears that we are there, and what the window is.
        self.raise(self.events_of_readiness());
        self.flags.writer_waits = !self.readiness().writable; // Perhaps a writer was refused before.
        true
    }

    fn resume_flags(&mut self, from: &Established) {
        let flags = &mut self.flags;
        flags.syn_acknowledged = true;
        flags.sack = from.sack_permitted;
        flags.timestamps = from.timestamps.is_some();
        flags.ecn = from.ecn;
        flags.write_closed = from.state.is_write_closed();
        flags.fin_was_sent = from.fin_sent;
        flags.read_closed = from.read_closed;
    }

    fn resume_sender(&mut self, from: &Established) {
        let send = &mut self.send;
        send.iss = from.snd_una - 1;
        send.snd_una = from.snd_una;
        send.snd_nxt = from.snd_nxt();
        send.small_end = from.snd_una;
        send.snd_wnd = from.snd_wnd;
        send.max_window = from.max_window;
        send.snd_wl1 = from.snd_wl1;
        send.snd_wl2 = from.snd_una;
        send.scale = from.snd_wscale;
        send.peer_mss = from.peer_mss;
    }

    fn resume_queues(&mut self, from: &Established, shared: &mut Shared) -> bool {
        let parts = [&from.unacked, &from.unsent];
        let sending = parts.iter().all(|part| self.send.queue.push(&mut shared.buffers, part) == part.len());
        let received = self.receive.queue.push(&mut shared.buffers, &from.received);
        sending && received == from.received.len()
    }

    /// What was sent is assumed to be in flight, in segments as we would have sent them.
    fn resume_flight(&mut self, shared: &mut Shared, now: Instant) {
        let (mut start, end) = (self.send.snd_una, self.send.snd_nxt);
        if start == end {
            return;
        }
        let mss = u32::from(self.send.mss);
        while start.is_before(end) {
            let mut next = end.min(start + mss);
            if self.flags.fin_was_sent && next + 1 == end {
                next = end; // The FIN goes with the last octets.
            }
            let sent = self.transmission(SeqRange::new(start, next), now);
            self.with_recovery(shared, now, |recovery, context| recovery.on_sent(&sent, context));
            start = next;
        }
        self.wake(shared, now).recovery.mark_taken_over();
    }

    fn resume_timers(&mut self, shared: &mut Shared, now: Instant) {
        self.restart_keepalive(now);
        self.restart_user_timeout(shared, now);
        self.update_persist(now);
        if self.state == State::FinWait2 && self.flags.orphaned {
            self.limit_fin_wait_2(shared, now);
        }
    }

    /// What a reader or writer would find.
    fn events_of_readiness(&self) -> Events {
        let readiness = self.readiness();
        let parts = [
            (readiness.readable, Events::READABLE),
            (readiness.writable, Events::WRITABLE),
            (readiness.read_closed, Events::READ_CLOSED),
        ];
        parts.into_iter().filter(|(is, _)| *is).fold(Events::NONE, |all, (_, event)| all | event)
    }
}

/// Copies `len` octets of a queue from `offset` on.
fn octets(queue: &mut ByteQueue, buffers: &BufferPool, offset: usize, len: usize) -> Vec<u8> {
    let mut octets = vec![0; len];
    let count = queue.read_at(buffers, offset, &mut octets);
    debug_assert_eq!(count, len, "the queue has what its length says");
    octets
}
