//! One connection: its variables, by the names of RFC 9293, 3.3.1.

use std::sync::Arc;

use clock::{Duration, Instant};
pub(crate) use transit::State;

use crate::buffer::{BufferPool, ByteQueue};
use crate::config::{Config, TcpOptions};
use crate::congestion::CongestionControl;
use crate::counters::Counters;
use crate::fast_open::FastOpenCache;
use crate::flow_table::FlowKey;
use crate::isn::timestamp_clock;
use crate::path::{LinkId, PathId, PathTable};
use crate::path_mtu::{PathMtu, PathMtuCache};
use crate::recovery::FlightPool;
use crate::rtt::RttEstimator;
use crate::seq::SeqNum;
use crate::slab::Handle;
use crate::tcp::receiver::Receiver;
use crate::tcp::timers::Timers;
use crate::tcp::transfer::{Rest, SpareTransfers, Transfer};
use crate::tcp::urgent::Rare;
use crate::tcp::user::TcpError;
use crate::trace::{TraceKind, TraceRecord, TraceRing};

/// What a socket can be used for now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Receiving returns data, the end of the stream or an error, at once.
    pub readable: bool,
    /// Sending takes data, or fails, at once.
    pub writable: bool,
    /// The peer sends no more.
    pub read_closed: bool,
    /// Neither side sends any more.
    pub hangup: bool,
    /// An error waits to be taken.
    pub error: bool,
    /// The peer's urgent octet is there (`EPOLLPRI`).
    pub urgent: bool,
}

/// What changed on a socket since it was last told of.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Events(u8);

impl Events {
    /// Nothing.
    pub const NONE: Events = Events(0);
    /// Data, the end of the stream or an error arrived; for a listener: a connection.
    pub const READABLE: Events = Events(1);
    /// There is room for data again; for a connecting socket: it is connected.
    pub const WRITABLE: Events = Events(2);
    /// The peer sends no more.
    pub const READ_CLOSED: Events = Events(4);
    /// Neither side sends any more: all is acknowledged, or the connection failed.
    pub const CLOSED: Events = Events(8);
    /// There is an error to be taken.
    pub const ERROR: Events = Events(16);
    /// The peer announced urgent data, or its octet is there (`SIGURG`, `EPOLLPRI`).
    pub const URGENT: Events = Events(32);

    /// Whether all of `other` are in.
    pub const fn contains(self, other: Events) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any of `other` are in.
    pub const fn intersects(self, other: Events) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl core::ops::BitOr for Events {
    type Output = Events;

    fn bitor(self, other: Events) -> Events {
        Events(self.0 | other.0)
    }
}

impl core::ops::BitOrAssign for Events {
    fn bitor_assign(&mut self, other: Events) {
        self.0 |= other.0;
    }
}

impl core::fmt::Debug for Events {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        const NAMES: [(Events, &str); 6] = [
            (Events::READABLE, "readable"),
            (Events::WRITABLE, "writable"),
            (Events::READ_CLOSED, "read-closed"),
            (Events::CLOSED, "closed"),
            (Events::ERROR, "error"),
            (Events::URGENT, "urgent"),
        ];
        f.debug_set().entries(NAMES.iter().filter(|(event, _)| self.contains(*event)).map(|n| n.1)).finish()
    }
}

/// What all connections of a stack share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) counters: Counters,
    pub(crate) trace: TraceRing,
    pub(crate) buffers: BufferPool,
    pub(crate) flights: FlightPool,
    pub(crate) spare_transfers: SpareTransfers,
    pub(crate) paths: PathTable,
    pub(crate) path_mtus: PathMtuCache,
    pub(crate) fast_open_cache: FastOpenCache,
    pub(crate) challenges: ChallengeLimiter,
    /// Connections that no socket holds any more.
    pub(crate) orphans: u32,
}

/// Challenge ACKs of the whole stack a second (RFC 5961, 7).
#[derive(Debug, Default)]
pub(crate) struct ChallengeLimiter {
    second: u64,
    sent: u32,
}

impl ChallengeLimiter {
    pub(crate) fn may_send(&mut self, limit: u32, now: Instant) -> bool {
        let second = now.as_nanos() / 1_000_000_000;
        if second != self.second {
            *self = ChallengeLimiter { second, sent: 0 };
        }
        self.sent = self.sent.saturating_add(1);
        self.sent <= limit
    }
}

impl Shared {
    /// Whether the rest of the buffers is reserved for existing connections.
    pub(crate) fn is_under_pressure(&self) -> bool {
        self.buffers.is_scarce()
    }
}

/// What becomes of a connection after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Fate {
    /// The connection continues.
    Alive,
    /// It is over on the wire: remove its flow, or leave it to the TIME-WAIT table.
    Over,
    /// Answer the segment with a reset; the connection continues.
    ResetPeer,
    /// The segment is to be answered with a reset, and the connection is over.
    Refused,
}

/// How a connection began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// By connecting.
    Active,
    /// From a listener.
    Passive,
}

/// Sequence variables of the sending side (RFC 9293, 3.3.1), and what limits it.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) iss: SeqNum,
    pub(crate) snd_una: SeqNum,
    pub(crate) snd_nxt: SeqNum,
    /// Scaled, in octets.
    pub(crate) snd_wnd: u32,
    /// Largest window that the peer ever offered.
    pub(crate) max_window: u32,
    pub(crate) snd_wl1: SeqNum,
    pub(crate) snd_wl2: SeqNum,
    /// End of the last segment that was smaller than the MSS (Minshall's variant of Nagle's rule).
    pub(crate) small_end: SeqNum,
    /// Octets from `snd_una` on (from the one behind the SYN while that is not acknowledged).
    pub(crate) queue: ByteQueue,
    pub(crate) scale: u8,
    /// Payload of a full segment without SACK blocks.
    pub(crate) mss: u16,
    /// What the peer said in its SYN.
    pub(crate) peer_mss: u16,
    /// Zero-window or keepalive probes since the last answer.
    pub(crate) probes: u8,
    /// Doublings of the time between probes of this closed window.
    pub(crate) probe_backoff: u8,
}

impl Sender {
    /// Whether a segment smaller than the MSS is unacknowledged. What lies behind SND.NXT is none: it is a number of two GiB
    /// ago.
    pub(crate) fn has_small_in_flight(&self) -> bool {
        self.small_end.is_after(self.snd_una) && self.small_end.is_at_or_before(self.snd_nxt)
    }
}

/// Yes-or-no properties, each a bit of the state machine's memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags {
    pub(crate) sack: bool,
    pub(crate) timestamps: bool,
    pub(crate) ecn: bool,
    /// Our ECE stays on until the peer's CWR (RFC 3168, 6.1.3).
    pub(crate) echo_congestion: bool,
    /// The next new data says CWR.
    pub(crate) announce_cwr: bool,
    /// No more data will be written: a FIN follows the queue.
    pub(crate) write_closed: bool,
    /// The reader wants no more.
    pub(crate) read_closed: bool,
    /// No socket holds the connection.
    pub(crate) orphaned: bool,
    /// In the list of connections with something to send.
    pub(crate) queued: bool,
    /// In the list of connections whose acknowledgement waits for data to carry it.
    pub(crate) holds_ack: bool,
    /// In the list of connections with events to tell of.
    pub(crate) signalled: bool,
    /// Its flow is no longer in the table.
    pub(crate) flow_ended: bool,
    /// The peer has acknowledged our SYN. Not to be told from sequence numbers: they come round after 4 GiB.
    pub(crate) syn_acknowledged: bool,
    /// A FIN has been sent at least once.
    pub(crate) fin_was_sent: bool,
    /// A writer was refused: tell when there is room.
    pub(crate) writer_waits: bool,
    /// There was no space since the last report of some: a writer finds none, and waits for an event.
    pub(crate) lacks_room: bool,
    /// It was refused for lack of buffers, not because its queue was full.
    pub(crate) lacks_memory: bool,
    /// In the list of connections that get an event when there are buffers.
    pub(crate) starved: bool,
    /// A handshake segment is due.
    pub(crate) handshake_due: bool,
    /// A probe of the window or of a silent peer is due.
    pub(crate) probe_due: bool,
    /// A reset is due; the connection is over behind it.
    pub(crate) reset_due: bool,
    /// What is queued goes out though Nagle or cork would hold it, until more is queued.
    pub(crate) push: bool,
    /// The next segment may be a part of a small window (RFC 9293, 3.8.6.2.1, (4)).
    pub(crate) window_override: bool,
    /// What was queued last is to be followed by more (`MSG_MORE`).
    pub(crate) more_follows: bool,
    /// What does not fill a segment waits for that.
    pub(crate) held_for_more: bool,
    /// Data was in the SYN that we sent; once it is answered, whether any of it was taken.
    pub(crate) data_in_syn: bool,
    /// The SYN that we sent had a Fast Open option.
    pub(crate) fast_open_tried: bool,
    /// Accepted from a SYN with data.
    pub(crate) fast_open_child: bool,
    /// Counted as such by its listener, until the handshake is complete.
    pub(crate) fast_open_pending: bool,
    /// A reset answered our FIN, the last of both.
    pub(crate) fin_refused: bool,
    /// In the accept queue of a listener.
    pub(crate) waits_for_accept: bool,
    /// Not every octet makes the socket readable.
    pub(crate) has_low_water: bool,
}

/// Counts of one connection, for `TCP_INFO`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) bytes_acked: u64,
    pub(crate) bytes_received: u64,
    pub(crate) bytes_retrans: u32,
    pub(crate) segs_in: u32,
    pub(crate) segs_out: u32,
    pub(crate) data_segs_in: u32,
    pub(crate) data_segs_out: u32,
    pub(crate) retransmits_total: u32,
    /// Milliseconds since the stack's start.
    pub(crate) last_sent_ms: u32,
    pub(crate) last_received_ms: u32,
    pub(crate) last_ack_ms: u32,
    /// When a segment outside the window was last answered.
    pub(crate) last_answered_ms: u32,
}

/// One connection. The module's page says which functions call which.
#[derive(Debug)]
pub struct Connection {
    pub(crate) key: FlowKey,
    /// Its place in the stack's table.
    pub(crate) index: u32,
    /// How often the place was in use before, for the trace.
    pub(crate) generation: u16,
    pub(crate) path: PathId,
    pub(crate) link: LinkId,
    pub(crate) state: State,
    pub(crate) origin: Origin,
    pub(crate) flags: Flags,
    pub(crate) events: Events,
    pub(crate) error: Option<TcpError>,
    /// What ICMP said, should the connection time out (RFC 5927, 5.2).
    pub(crate) soft_error: Option<TcpError>,
    pub(crate) send: Sender,
    pub(crate) receive: Receiver,
    /// While data is on the way, and some time longer.
    pub(crate) transfer: Option<Box<Transfer>>,
    pub(crate) rest: Rest,
    pub(crate) rtt: RttEstimator,
    pub(crate) path_mtu: PathMtu,
    pub(crate) timers: Timers,
    pub(crate) options: Arc<TcpOptions>,
    pub(crate) rare: Option<Box<Rare>>,
    /// Added to the clock to make our timestamps (RFC 7323, 5.4 forbids to tell the machine's).
    pub(crate) timestamp_offset: u32,
    /// SYNs or SYN-ACKs sent.
    pub(crate) handshakes: u8,
    /// Times that none of them was answered in time.
    pub(crate) handshake_timeouts: u8,
    /// When the first of them was, in [`micros`].
    pub(crate) handshake_sent_at: u32,
    pub(crate) tally: Tally,
    /// Whatever the application wants to find again.
    pub(crate) token: u64,
    /// Listener that it came from, until it is accepted.
    pub(crate) listener: Option<Handle<super::listener::Listener>>,
}

impl Connection {
    /// Our timestamp clock: milliseconds with an offset (RFC 7323, 4.1: between 1 ms and 1 s a tick).
    pub(crate) fn timestamp_now(&self, now: Instant) -> u32 {
        timestamp_clock(now).wrapping_add(self.timestamp_offset)
    }

    /// The sequence number of the first octet in the send queue.
    pub(crate) fn data_una(&self) -> SeqNum {
        if self.flags.syn_acknowledged { self.send.snd_una } else { self.send.iss + 1 }
    }

    /// Where our FIN is, or would be, in sequence space.
    pub(crate) fn fin_seq(&self) -> SeqNum {
        self.data_una() + self.send.queue.len() as u32
    }

    /// Whether our FIN is acknowledged.
    pub(crate) fn fin_acknowledged(&self) -> bool {
        self.flags.fin_was_sent && self.send.snd_una == self.send.snd_nxt
    }

    /// Octets that have never been sent.
    pub(crate) fn unsent_len(&self) -> u32 {
        let end = self.fin_seq();
        let next = self.send.snd_nxt.max(self.data_una());
        if next.is_before(end) { end.since(next) } else { 0 }
    }

    /// Enters `state`.
    pub(crate) fn set_state(&mut self, state: State, shared: &mut Shared, now: Instant) {
        self.state = state;
        self.record(shared, TraceKind::State, now, |record| record.flags = state as u8);
    }

    /// Notes an event for the application.
    pub(crate) fn raise(&mut self, events: Events) {
        self.events |= events;
    }

    /// Adds a record to the trace.
    #[inline]
    pub(crate) fn record(
        &self,
        shared: &mut Shared,
        kind: TraceKind,
        at: Instant,
        fill: impl FnOnce(&mut TraceRecord),
    ) {
        let (connection, generation) = (self.index, self.generation);
        // What arrives changes the window only behind its record; what is sent next shows it.
        let has_cwnd = !matches!(kind, TraceKind::Received | TraceKind::State);
        let cwnd = if has_cwnd { self.cwnd() } else { 0 };
        let mut record = TraceRecord { at, connection, generation, cwnd, kind, ..TraceRecord::default() };
        fill(&mut record);
        shared.trace.record(record);
    }

    /// What the socket can be used for now.
    pub fn readiness(&self) -> Readiness {
        let over = matches!(self.state, State::Closed | State::TimeWait);
        let read_closed = self.receive.is_finished() || self.flags.read_closed || over;
        let connecting = matches!(self.state, State::SynSent | State::SynReceived);
        Readiness {
            readable: self.has_readable() || read_closed || self.error.is_some(),
            writable: self.error.is_some() || self.flags.write_closed || !connecting && self.has_send_room(),
            read_closed,
            hangup: over || read_closed && self.flags.write_closed,
            error: self.error.is_some(),
            urgent: self.has_urgent(),
        }
    }

    /// Whether as much is there to be read as the application wants, beside an urgent octet that reading skips.
    #[inline]
    pub(crate) fn has_readable(&self) -> bool {
        let is_usual = self.rare.is_none() && !self.flags.has_low_water;
        if is_usual { !self.receive.queue.is_empty() } else { self.reaches_low_water() }
    }

    /// `tcp_stream_is_readable` of Linux.
    #[cold]
    fn reaches_low_water(&self) -> bool {
        let unread = self.receive.queue.len() - self.stretch_from(0).skipped;
        let has_enough = unread >= self.options.receive_low_water as usize;
        unread > 0 && (has_enough || self.receive.offered() <= u32::from(self.receive.segment_size))
    }

    /// The socket is readable from so many octets on: the buffer has room for them.
    pub(crate) fn follow_low_water(&mut self) {
        self.flags.has_low_water = self.options.receive_low_water > 1;
        self.receive.make_room_for(self.options.receive_low_water, &self.options);
    }

    /// Whether a third of the send buffer is free, as Linux asks before it calls a socket writable, less than half of what may be held
    /// back is, and there is memory for it.
    #[inline]
    pub(crate) fn has_send_room(&self) -> bool {
        let limit = self.send_limit();
        let queued = self.send.queue.len() as u32;
        queued < limit - limit / 3 && self.is_below_low_water() && !self.flags.lacks_memory
    }

    /// `tcp_stream_memory_free` of Linux. What the windows let go is as good as sent: it leaves in this turn.
    #[inline]
    fn is_below_low_water(&self) -> bool {
        let limit = self.options.not_sent_low_water;
        let held_back = || self.unsent_len().saturating_sub(self.sendable());
        limit == u32::MAX || held_back().saturating_mul(2) < limit
    }

    /// Octets of new data that the windows let go now.
    fn sendable(&self) -> u32 {
        self.allowance().min(self.usable_window())
    }

    /// Octets that the congestion window lets go now.
    pub(super) fn allowance(&self) -> u32 {
        let allowance = |transfer: &Transfer| transfer.recovery.allowance(transfer.controller.cwnd());
        self.transfer.as_deref().map_or_else(|| self.cwnd(), allowance)
    }

    /// Octets that the send queue takes now, as far as memory goes. A writer that was refused gets in again when a third of the
    /// queue is free, as on Linux, and not with every octet that is acknowledged.
    pub(crate) fn send_room(&self) -> usize {
        if self.flags.writer_waits && !self.has_send_room() {
            return 0;
        }
        let by_buffer = self.send_limit().saturating_sub(self.send.queue.len() as u32);
        by_buffer.min(self.room_by_low_water()) as usize
    }

    /// Octets that the queue takes until as much is held back as `TCP_NOTSENT_LOWAT` says, in whole segments as on Linux.
    fn room_by_low_water(&self) -> u32 {
        let limit = self.options.not_sent_low_water;
        if limit == u32::MAX {
            return u32::MAX;
        }
        let room = limit.saturating_add(self.sendable()).saturating_sub(self.unsent_len());
        room.checked_next_multiple_of(self.send.mss.into()).unwrap_or(u32::MAX)
    }

    /// Octets that the send queue may hold: what was asked for, or twice the congestion window.
    pub(crate) fn send_limit(&self) -> u32 {
        const LEAST: u32 = 16 << 10;
        const MOST: u32 = 4 << 20;
        let automatic = || self.cwnd().saturating_mul(2).clamp(5 * LEAST, MOST);
        self.options.send_buffer.unwrap_or_else(automatic).max(LEAST / 4)
    }

    /// Ends the connection with `error` for the application; nothing is sent.
    pub(crate) fn fail(&mut self, error: TcpError, shared: &mut Shared, now: Instant) -> Fate {
        self.error = Some(error);
        self.raise(Events::ERROR | Events::CLOSED | Events::READABLE | Events::WRITABLE);
        self.record(shared, TraceKind::Aborted, now, |_| ());
        self.finish(shared, now)
    }

    /// The connection is over for the wire. What was received stays readable.
    pub(crate) fn finish(&mut self, shared: &mut Shared, now: Instant) -> Fate {
        self.set_state(State::Closed, shared, now);
        self.stop_timers();
        self.end_transfer(shared, now);
        self.send.queue.clear(&mut shared.buffers);
        self.receive.drop_out_of_order(&mut shared.buffers);
        self.receive.forget_ack();
        self.raise(Events::CLOSED | Events::READABLE | Events::WRITABLE);
        Fate::Over
    }

    /// No socket holds the connection any more.
    pub(crate) fn abandon(&mut self, shared: &mut Shared) {
        shared.orphans += u32::from(!std::mem::replace(&mut self.flags.orphaned, true));
    }

    /// Gives back all that the connection holds.
    pub(crate) fn release(mut self, shared: &mut Shared) {
        shared.orphans -= u32::from(self.flags.orphaned);
        self.send.queue.clear(&mut shared.buffers);
        self.receive.queue.clear(&mut shared.buffers);
        self.receive.drop_out_of_order(&mut shared.buffers);
        self.end_transfer(shared, Instant::ZERO);
        shared.paths.release(self.path);
    }
}

/// Milliseconds since the stack's start, for [`Tally`].
pub(crate) fn millis(now: Instant) -> u32 {
    (now.as_nanos() / 1_000_000) as u32
}

/// Microseconds since the stack's start, for spans of less than an hour.
pub(crate) fn micros(now: Instant) -> u32 {
    (now.as_nanos() / 1000) as u32
}

/// Time since a stamp of [`micros`].
pub(crate) fn since_micros(stamp: u32, now: Instant) -> Duration {
    Duration::from_micros(u64::from(micros(now).wrapping_sub(stamp)))
}

/// Time since a stamp of [`millis`].
pub(crate) fn since_millis(stamp: u32, now: Instant) -> Duration {
    Duration::from_millis(u64::from(millis(now).wrapping_sub(stamp)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_segment_is_forgotten_when_it_is_acknowledged_and_for_ever() {
        let mut send = Sender::new();
        send.small_end = SeqNum(100);
        send.snd_nxt = SeqNum(100);
        assert!(send.has_small_in_flight());
        for ahead in [0, 1, 1 << 30, (1 << 31) - 1, 1 << 31, (1 << 31) + 1, 3 << 30] {
            send.snd_una = SeqNum(100) + ahead;
            send.snd_nxt = send.snd_una;
            assert!(!send.has_small_in_flight(), "{ahead} octets later");
        }
    }
}
