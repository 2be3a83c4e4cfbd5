//! Connections as values, which leave one stack and enter another.

use std::net::SocketAddr;
use std::sync::Arc;

use clock::Instant;

use crate::buffer::{BufferPool, ByteQueue};
use crate::config::TcpOptions;
use crate::isn::timestamp_clock;
use crate::path::Hop;
use crate::segment::Timestamps;
use crate::seq::{SeqNum, SeqRange};
use crate::tcp::connection::{Connection, Events, Shared, State};
use crate::tcp::receiver::Resumption;

/// A connection that has left its stack: everything that its next owner needs. Another stack takes it by
/// [`Stack::attach`](crate::Stack::attach), the kernel as `tcp_repair::Established`, whose fields have the same names.
///
/// ```text
///   send queue:                │ unacked            │ FIN │ unsent
///   sequence space:   ─────────┼────────────────────┼─────┼──────────▶    the FIN is behind `unsent` until it was sent
///                           snd_una                    snd_nxt
///
///   receive queue:    received │ FIN │ may come
///   sequence space:   ─────────┼─────┼───────────────────────▶
///                                 rcv_nxt          rcv_wup + rcv_wnd
/// ```
///
/// What had arrived out of order is not part of it: the peer sends it again (RFC 2018, 8). Neither is what was learned of the
/// path: round-trip time and congestion window begin anew, as after a pause. Urgent data is forgotten: an octet out of band that
/// nobody read is lost, one on its way out goes in line.
#[derive(Clone, Debug, PartialEq)]
pub struct Detached {
    /// Our end.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// One of [`State::is_transferable`].
    pub state: State,
    /// Where its packets left.
    pub hop: Hop,
    /// The socket's options.
    pub options: Arc<TcpOptions>,
    /// The first sequence number that the peer has not acknowledged.
    pub snd_una: SeqNum,
    /// The next to send; behind our FIN if that was sent.
    pub snd_nxt: SeqNum,
    /// The peer's window in octets.
    pub snd_wnd: u32,
    /// Sequence number of the segment that told it.
    pub snd_wl1: SeqNum,
    /// The largest window that the peer ever offered.
    pub max_window: u32,
    /// The next that is expected; behind the peer's FIN if that came.
    pub rcv_nxt: SeqNum,
    /// The window that we offered last, in octets from `rcv_wup` on.
    pub rcv_wnd: u32,
    /// `rcv_nxt` as we told it last.
    pub rcv_wup: SeqNum,
    /// The shift of windows that the peer announces; 0 without window scaling.
    pub snd_wscale: u8,
    /// The shift of windows that we tell.
    pub rcv_wscale: u8,
    /// Largest segment that the peer takes, by its SYN.
    pub peer_mss: u16,
    /// Both sides agreed on SACK.
    pub sack_permitted: bool,
    /// Both sides agreed on ECN. The kernel has no way to set that, and continues without.
    pub ecn: bool,
    /// What the next segment would say, if both sides agreed on timestamps: our clock, and the peer's as it told it last.
    pub timestamps: Option<Timestamps>,
    /// Octets sent and not acknowledged, from `snd_una` on.
    pub unacked: Vec<u8>,
    /// Octets that follow and were never sent.
    pub unsent: Vec<u8>,
    /// Octets received in order and not read.
    pub received: Vec<u8>,
    /// The user sends no more: a FIN follows the queue, or was sent.
    pub write_closed: bool,
    /// Our FIN was sent; `unsent` is empty then.
    pub fin_sent: bool,
    /// The peer's FIN came, behind all of `received`.
    pub fin_received: bool,
    /// The user wants no more (`SHUT_RD`).
    pub read_closed: bool,
    /// The user closed the socket: there are no more reads or writes.
    pub orphaned: bool,
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

impl State {
    /// Whether a connection in this state can leave its stack ([`Stack::detach`](crate::Stack::detach)): as soon as both SYNs
    /// are acknowledged, as long as an end may have something to say.
    ///
    /// Not SYN-SENT and SYN-RECEIVED, where sequence numbers or options are not settled. Not TIME-WAIT, in which there is
    /// nothing left to be done but to answer the peer's FIN, and which the stack does by itself. FIN-WAIT-2 is one, as the peer
    /// may have a lot to send yet.
    pub fn is_transferable(self) -> bool {
        use State::*;
        matches!(self, Established | CloseWait | FinWait1 | FinWait2 | Closing | LastAck)
    }
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
        Detached {
            local: self.key.local(),
            remote: self.key.remote(),
            state: self.state,
            hop: shared.paths.hop(self.path),
            options: Arc::clone(&self.options),
            snd_una: self.send.snd_una,
            snd_nxt: self.send.snd_nxt,
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
            write_closed: self.flags.write_closed,
            fin_sent: self.flags.fin_was_sent,
            fin_received: self.receive.is_finished(),
            read_closed: self.flags.read_closed,
            orphaned: self.flags.orphaned,
        }
    }

    /// Goes on with a connection that has just been made and knows its ends and options only. False if its data finds no
    /// room in the buffers.
    pub(crate) fn resume(&mut self, from: &Detached, shared: &mut Shared, now: Instant) -> bool {
        self.set_state(from.state, shared, now);
        self.resume_flags(from);
        if from.orphaned {
            self.abandon(shared);
        }
        self.resume_sender(from);
        self.receive.resume(&Resumption {
            rcv_nxt: from.rcv_nxt,
            rcv_wup: from.rcv_wup,
            rcv_wnd: from.rcv_wnd,
            scale: from.rcv_wscale,
            has_fin: from.fin_received,
            unread: from.received.len() as u32,
        });
        if let Some(Timestamps { value, echo }) = from.timestamps {
            self.timestamp_offset = value.wrapping_sub(timestamp_clock(now));
            self.receive.ts_recent = echo;
            self.receive.ts_recent_at_s = (now.as_nanos() / 1_000_000_000) as u32;
        }
        self.update_mss(shared);
        if !self.resume_queues(from, shared) {
            return false;
        }
        self.resume_flight(shared, now);
        self.resume_timers(shared, now);
        self.receive.ack_now(); // The peer hears that we are there, and what the window is.
        self.raise(self.events_of_readiness());
        self.flags.writer_waits = !self.readiness().writable; // Perhaps a writer was refused before.
        true
    }

    fn resume_flags(&mut self, from: &Detached) {
        let flags = &mut self.flags;
        flags.syn_acknowledged = true;
        flags.sack = from.sack_permitted;
        flags.timestamps = from.timestamps.is_some();
        flags.ecn = from.ecn;
        flags.write_closed = from.write_closed;
        flags.fin_was_sent = from.fin_sent;
        flags.read_closed = from.read_closed;
        flags.push = !from.unsent.is_empty(); // What was held back may as well go now.
    }

    fn resume_sender(&mut self, from: &Detached) {
        let send = &mut self.send;
        send.iss = from.snd_una - 1;
        send.snd_una = from.snd_una;
        send.snd_nxt = from.snd_nxt;
        send.small_end = from.snd_una;
        send.snd_wnd = from.snd_wnd;
        send.max_window = from.max_window;
        send.snd_wl1 = from.snd_wl1;
        send.snd_wl2 = from.snd_una;
        send.scale = from.snd_wscale;
        send.peer_mss = from.peer_mss;
    }

    fn resume_queues(&mut self, from: &Detached, shared: &mut Shared) -> bool {
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
