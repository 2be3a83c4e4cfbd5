//! The receiving side: what is accepted, how large a window is offered, and when an acknowledgement is due.
//!
//! ```text
//!      read by the application │ queue (in order, unread) │ assembler (out of order) and gaps │
//!   ───────────────────────────┼──────────────────────────┼───────────────────────────────────┼──▶ sequence space
//!                              │                       rcv_nxt                             rcv_adv
//!                              │◀──────────────────── limit ──────────────────────────────────▶
//! ```

use arrayvec::ArrayVec;
use clock::{Duration, Instant};

use crate::assembler::Assembler;
use crate::buffer::{BufferPool, ByteQueue};
use crate::config::TcpOptions;
use crate::seq::{SeqNum, SeqRange};
use crate::tcp::connection::{millis, since_millis};

/// Segments that are acknowledged at once when a connection begins, so that the peer's window grows quickly.
const QUICK_ACKS: u8 = 16;
/// The smallest receive buffer.
const LIMIT_LEAST: u32 = 256;

/// When an acknowledgement is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum AckDue {
    #[default]
    No,
    /// With the next segment, or when the delay is over.
    Delayed,
    /// With the next segment, or as soon as the application has nothing to send.
    Soon,
    Now,
}

/// Receiving variables of one connection (RFC 9293, 3.3.1).
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) rcv_nxt: SeqNum,
    /// Right edge of the window as last offered: never taken back (RFC 9293, 3.8.6).
    pub(crate) rcv_adv: SeqNum,
    /// `rcv_nxt` as last sent: Last.ACK.sent of RFC 7323.
    pub(crate) last_ack_sent: SeqNum,
    pub(crate) queue: ByteQueue,
    assembler: Assembler,
    /// Where the peer's FIN is, once it came.
    fin: Option<SeqNum>,
    /// Octets that queue and window may come to.
    pub(crate) limit: u32,
    pub(crate) window_clamp: u32,
    pub(crate) scale: u8,
    /// Size of the peer's full segments, learned from what comes.
    pub(crate) segment_size: u16,
    /// The last segment with data was shorter than that, see [`Receiver::learn_segment_size`].
    last_was_shorter: bool,
    /// RFC 7323, 4.3: TS.Recent, and when it was set in seconds of the stack's clock.
    pub(crate) ts_recent: u32,
    pub(crate) ts_recent_at_s: u32,
    ack: AckDue,
    quick_acks: u8,
    /// Data goes back and forth, so that our data will carry the acknowledgement.
    interactive: bool,
    /// For growing `limit`: octets read by the application since `measured_at`.
    copied: u32,
    measured_at_ms: u32,
    /// What arrived twice, to be told with the next ACK (RFC 2883); empty if nothing did.
    duplicate: SeqRange,
}

/// The state of a connection that comes from another stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resumption {
    pub(crate) rcv_nxt: SeqNum,
    pub(crate) rcv_wup: SeqNum,
    /// From `rcv_wup` on.
    pub(crate) rcv_wnd: u32,
    pub(crate) scale: u8,
    /// The peer's FIN is the last that came.
    pub(crate) has_fin: bool,
    /// Octets that the queue will hold.
    pub(crate) unread: u32,
}

/// What became of data that arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Received {
    /// Octets by which `rcv_nxt` moved.
    pub(crate) in_order: u32,
    /// Something is missing in front of it: it is kept for later, unless memory was exhausted.
    pub(crate) out_of_order: bool,
    /// All of it, or part of it, had come before.
    pub(crate) duplicate: bool,
    /// Some of it did not fit the window.
    pub(crate) outside_window: bool,
    /// Dropped for lack of memory; the peer sends it again.
    pub(crate) exhausted: bool,
    /// Earlier out-of-order data was dropped for lack of memory.
    pub(crate) pruned: bool,
    /// The peer's FIN is now in order.
    pub(crate) finished: bool,
}

impl Receiver {
    /// A receiver in front of a peer's SYN.
    pub(crate) fn new(options: &TcpOptions, now: Instant) -> Receiver {
        let limit = options.receive_buffer.unwrap_or(options.receive_buffer_initial);
        Receiver {
            rcv_nxt: SeqNum(0),
            rcv_adv: SeqNum(0),
            last_ack_sent: SeqNum(0),
            queue: ByteQueue::new(),
            assembler: Assembler::new(),
            fin: None,
            limit: limit.clamp(LIMIT_LEAST, limit_max(options)),
            window_clamp: options.window_clamp.unwrap_or(u32::MAX),
            scale: 0,
            segment_size: 536,
            last_was_shorter: false,
            ts_recent: 0,
            ts_recent_at_s: 0,
            ack: AckDue::No,
            quick_acks: QUICK_ACKS,
            interactive: false,
            duplicate: SeqRange::default(),
            copied: 0,
            measured_at_ms: millis(now),
        }
    }

    /// The peer's SYN arrived.
    ///
    /// Our SYN or SYN-ACK offered `window` octets.
    pub(crate) fn on_syn(&mut self, irs: SeqNum, window: u16) {
        self.rcv_nxt = irs + 1;
        self.last_ack_sent = self.rcv_nxt;
        self.rcv_adv = self.rcv_nxt + u32::from(window);
    }

    /// Goes on in the middle. The buffer is as large as what was promised, unless the application said how large it is.
    pub(crate) fn resume(&mut self, at: &Resumption, options: &TcpOptions) {
        self.rcv_nxt = at.rcv_nxt;
        self.last_ack_sent = at.rcv_wup;
        self.rcv_adv = at.rcv_wup + at.rcv_wnd;
        self.scale = at.scale;
        self.fin = at.has_fin.then_some(at.rcv_nxt - 1);
        let promised = at.unread.saturating_add(self.offered());
        self.limit = self.limit.max(promised).min(limit_max(options));
    }

    /// Window scale to offer: enough for what the buffer may become (RFC 7323, 2.3).
    pub(crate) fn scale_to_offer(&self, options: &TcpOptions) -> u8 {
        scale_for(limit_max(options).min(self.window_clamp))
    }

    /// The window from `rcv_nxt` that the peer may still use.
    pub(crate) fn offered(&self) -> u32 {
        if self.rcv_adv.is_after(self.rcv_nxt) { self.rcv_adv.since(self.rcv_nxt) } else { 0 }
    }

    /// The window that the last acknowledgement offered, of which the peer may have used a part since.
    pub(crate) fn offered_by_last_ack(&self) -> u32 {
        if self.rcv_adv.is_after(self.last_ack_sent) { self.rcv_adv.since(self.last_ack_sent) } else { 0 }
    }

    /// Whether a segment may be accepted: RFC 9293, 3.10.7.4, first step. A segment of which a part is new is cut later;
    /// one at the edge of a closed window is cut to nothing, so that its acknowledgement counts.
    pub(crate) fn is_acceptable(&self, range: SeqRange) -> bool {
        let end = self.rcv_nxt + self.offered();
        if range.start == self.rcv_nxt {
            return true;
        }
        if range.is_empty() {
            return range.start.is_after(self.rcv_nxt) && range.start.is_at_or_before(end);
        }
        range.end.is_after(self.rcv_nxt) && range.start.is_before(end)
    }

    /// Takes the part of `data`, which begins at `seq`, that fits the window, and the FIN behind it.
    pub(crate) fn accept(&mut self, seq: SeqNum, data: &[u8], fin: bool, pool: &mut BufferPool) -> Received {
        let mut received = Received::default();
        if !data.is_empty() {
            self.learn_segment_size(data.len());
        }
        let (start, data) = self.cut_front(seq, data, &mut received);
        let (data, cut) = self.cut_back(start, data);
        let end = start + data.len() as u32;
        if fin && !cut && self.fin.is_none() && !self.has_behind(end) {
            self.fin = Some(end);
        }
        received.outside_window = cut;
        if !data.is_empty() {
            self.store(start, data, pool, &mut received);
        }
        received.finished = self.take_fin();
        self.note_ack_due(data.len(), &received);
        received
    }

    /// Whether something behind `end` has come, so that a FIN there is a lie.
    fn has_behind(&self, end: SeqNum) -> bool {
        self.assembler.iter().any(|range| range.end.is_after(end))
    }

    /// Removes data before `rcv_nxt`.
    fn cut_front<'d>(&mut self, seq: SeqNum, data: &'d [u8], received: &mut Received) -> (SeqNum, &'d [u8]) {
        if !seq.is_before(self.rcv_nxt) {
            return (seq, data);
        }
        let old = (self.rcv_nxt.since(seq) as usize).min(data.len());
        if old > 0 {
            received.duplicate = true;
            self.tell_duplicate(SeqRange::new(seq, seq + old as u32));
        }
        (seq + old as u32, &data[old..])
    }

    /// Removes data behind the window; returns whether there was any.
    fn cut_back<'d>(&self, start: SeqNum, data: &'d [u8]) -> (&'d [u8], bool) {
        let end = self.rcv_nxt + self.offered();
        let end = self.fin.map_or(end, |fin| end.min(fin));
        let room = if start.is_before(end) { end.since(start) as usize } else { 0 };
        if data.len() > room { (&data[..room], true) } else { (data, false) }
    }

    fn store(&mut self, start: SeqNum, data: &[u8], pool: &mut BufferPool, received: &mut Received) {
        let range = SeqRange::new(start, start + data.len() as u32);
        received.out_of_order = start != self.rcv_nxt;
        if !received.out_of_order && self.assembler.is_empty() {
            return self.append(range, data, pool, received);
        }
        if !self.assembler.has_room_for(range, self.rcv_nxt) {
            received.exhausted = true;
            return;
        }
        let offset = start.since(self.rcv_nxt) as usize + self.queue.len();
        let is_refused = received.out_of_order
            && pool.is_scarce()
            && self.queue.chunks_needed(pool, offset, data.len()) > 0;
        if is_refused || self.queue.write_at(pool, offset, data).is_err() {
            return self.prune(range, data, pool, received);
        }
        let inserted = self.assembler.insert(range, self.rcv_nxt).expect("the assembler was asked before");
        if let Some(duplicate) = inserted.duplicate {
            received.duplicate = true;
            self.tell_duplicate(duplicate);
        }
        let next = self.assembler.take_contiguous(self.rcv_nxt);
        received.in_order = next.since(self.rcv_nxt);
        self.queue.extend_to(self.queue.len() + received.in_order as usize);
        self.rcv_nxt = next;
    }

    /// Takes what is in order while nothing is out of order.
    fn append(&mut self, range: SeqRange, data: &[u8], pool: &mut BufferPool, received: &mut Received) {
        if self.queue.room(pool) < data.len() {
            received.exhausted = true;
            return;
        }
        self.queue.push(pool, data);
        self.rcv_nxt = range.end;
        received.in_order = range.len();
    }

    /// There is no memory for `data`. What came out of order is the first that has to go, as the peer will send it again
    /// (RFC 2018, 8): that makes room for data in order, and a peer that leaves gaps holds none of the last of the memory.
    #[cold]
    fn prune(&mut self, range: SeqRange, data: &[u8], pool: &mut BufferPool, received: &mut Received) {
        received.pruned = !self.assembler.is_empty();
        self.drop_out_of_order(pool);
        if received.out_of_order {
            received.exhausted = true;
        } else {
            self.append(range, data, pool, received);
        }
    }

    /// Counts the FIN once all in front of it is there.
    fn take_fin(&mut self) -> bool {
        let finished = self.fin == Some(self.rcv_nxt);
        if finished {
            self.rcv_nxt += 1;
        }
        finished
    }

    /// Whether the peer's FIN is in order: no more will come.
    pub(crate) fn is_finished(&self) -> bool {
        self.fin.is_some_and(|fin| self.rcv_nxt.is_after(fin))
    }

    /// Until data comes, the peer's full segments are as long as ours, and no longer than those of a peer that knows nothing of the path
    /// (`tcp_initialize_rcv_mss` of Linux).
    pub(crate) fn guess_segment_size(&mut self, ours: u16) {
        self.segment_size = ours.clamp(88, 536);
    }

    /// Full segments are the longest; or as long as the second of two shorter ones in a row, as the peer's path may have become narrower.
    fn learn_segment_size(&mut self, len: usize) {
        /// What a peer sends that knows no more of the path (RFC 9293, 3.7.1).
        const FULL_LEAST: u16 = 536;
        let len = len.min(usize::from(u16::MAX)) as u16;
        let is_shorter = (FULL_LEAST..self.segment_size).contains(&len);
        if len >= self.segment_size || is_shorter && self.last_was_shorter {
            self.segment_size = len;
        }
        self.last_was_shorter = is_shorter;
    }

    /// RFC 9293, 3.8.6.3: at least every second full segment; RFC 5681, 4.2: at once when out of order, or when a gap is
    /// filled.
    fn note_ack_due(&mut self, len: usize, received: &Received) {
        let unacknowledged = self.rcv_nxt.since(self.last_ack_sent);
        let at_once = received.out_of_order
            || received.duplicate
            || received.exhausted
            || received.outside_window
            || !self.assembler.is_empty()
            || received.in_order as usize > len
            || unacknowledged >= 2 * u32::from(self.segment_size);
        if at_once {
            self.ack = AckDue::Now;
        } else if received.finished || self.quick_acks > 0 && !self.interactive {
            self.ack_soon();
        } else if len > 0 {
            self.ack = self.ack.max(AckDue::Delayed);
        }
    }

    /// An acknowledgement is due at once.
    pub(crate) fn ack_now(&mut self) {
        self.ack = AckDue::Now;
    }

    /// An acknowledgement is due as soon as the application has nothing to send.
    pub(crate) fn ack_soon(&mut self) {
        self.ack = self.ack.max(AckDue::Soon);
    }

    /// The connection is over, and nothing is acknowledged any more.
    pub(crate) fn forget_ack(&mut self) {
        self.ack = AckDue::No;
    }

    /// Whether to send an acknowledgement even without data to carry it.
    pub(crate) fn is_ack_due(&self) -> bool {
        self.ack == AckDue::Now
    }

    /// Whether one may wait for data to ride on, but no longer than the application has some to send.
    pub(crate) fn is_ack_due_soon(&self) -> bool {
        self.ack == AckDue::Soon
    }

    /// Whether one waits for its delay to be over.
    pub(crate) fn is_ack_delayed(&self) -> bool {
        self.ack == AckDue::Delayed
    }

    /// Whether something received is not acknowledged yet.
    pub(crate) fn is_ack_pending(&self) -> bool {
        self.ack != AckDue::No
    }

    /// A segment with the acknowledgement is on its way; it offered `window` octets.
    pub(crate) fn on_ack_sent(&mut self, window: u32, with_data: bool) {
        if self.ack != AckDue::No && self.quick_acks > 0 {
            self.quick_acks -= 1;
        }
        let acknowledges_data = self.last_ack_sent != self.rcv_nxt;
        if with_data && acknowledges_data && matches!(self.ack, AckDue::Delayed | AckDue::Soon) {
            self.interactive = true;
        }
        self.ack = AckDue::No;
        self.duplicate = SeqRange::default();
        self.last_ack_sent = self.rcv_nxt;
        self.rcv_adv = self.rcv_adv.max(self.rcv_nxt + window);
    }

    /// Data that lies wholly before `rcv_nxt` arrived again: the next ACK reports it (RFC 2883, 4).
    pub(crate) fn note_duplicate(&mut self, seq: SeqNum, len: usize) -> bool {
        let range = SeqRange::new(seq, seq + len as u32);
        let old = len > 0 && range.end.is_at_or_before(self.rcv_nxt);
        if old {
            self.tell_duplicate(range);
        }
        old
    }

    /// The next ACK reports `range` (RFC 2883, 4). One ACK may answer a burst: of pieces that touch it reports all, so that the peer finds
    /// out how much it sent needlessly, else the latest; but not a shorter one than it has, as long as that needs no block behind it.
    fn tell_duplicate(&mut self, range: SeqRange) {
        let told = self.duplicate;
        let touches = range.start.is_at_or_before(told.end) && told.start.is_at_or_before(range.end);
        let is_better = told.len() > range.len() && told.end.is_at_or_before(self.rcv_nxt);
        if told.is_empty() || !touches {
            self.duplicate = if is_better { told } else { range };
        } else {
            self.duplicate = SeqRange::new(told.start.min(range.start), told.end.max(range.end));
        }
    }

    /// `TCP_QUICKACK`.
    pub(crate) fn set_quick_ack(&mut self, on: bool) {
        self.interactive = !on;
        self.quick_acks = if on { QUICK_ACKS } else { 0 };
        if on && self.is_ack_pending() {
            self.ack = AckDue::Now;
        }
    }

    /// Whether `TCP_QUICKACK` reads as on.
    pub(crate) fn is_quick_ack(&self) -> bool {
        !self.interactive
    }

    /// Blocks for the SACK option: first what came twice (RFC 2883), then what came out of order, latest first (RFC 2018, 4).
    pub(crate) fn sack_blocks(&self) -> ArrayVec<SeqRange, 4> {
        let mut blocks = ArrayVec::new();
        if !self.duplicate.is_empty() {
            blocks.push(self.duplicate);
        }
        let room = blocks.remaining_capacity();
        blocks.extend(self.assembler.sack_blocks(room));
        blocks
    }

    /// Whether the next ACK reports duplicate data, and whether that was before `rcv_nxt`.
    pub(crate) fn pending_duplicate(&self) -> Option<bool> {
        let told = !self.duplicate.is_empty();
        told.then(|| self.duplicate.end.is_at_or_before(self.rcv_nxt))
    }

    /// The window to offer now, in octets, as the header can say it: not less than offered before, and more only if that is
    /// worth a segment (RFC 9293, 3.8.6.2.2). `may_grow` is false when memory is short.
    ///
    /// What was offered is rounded up to what the scale can say, which moves the edge by less than a unit. A peer that has
    /// every few octets acknowledged would so move it for ever. Beyond twice the buffer, which nobody comes to who sends full
    /// segments, it is rounded down: the edge goes back by less than a unit (RFC 7323, 2.4 and appendix F), and what was sent
    /// up to the old one is still taken.
    pub(crate) fn window(&self, may_grow: bool) -> u32 {
        let offered = self.offered();
        let limit = self.limit.min(self.window_clamp);
        let unread = self.queue.len() as u32;
        let free = limit.saturating_sub(unread);
        let worth = (limit / 2).min(u32::from(self.segment_size));
        let window = if may_grow && free >= offered.saturating_add(worth) { free } else { offered };
        let unit = 1u32 << self.scale;
        let rounded_up = window.next_multiple_of(unit);
        let has_room = unread.saturating_add(rounded_up) <= limit.saturating_mul(2);
        let rounded = if window == offered && has_room { rounded_up } else { window / unit * unit };
        rounded.min(u32::from(u16::MAX) << self.scale)
    }

    /// Whether reading made so much room that the peer should hear of it: two segments, or half the buffer (RFC 1122,
    /// 4.2.3.3).
    pub(crate) fn is_update_due(&self, may_grow: bool) -> bool {
        let offered = self.offered();
        let gain = self.window(may_grow).saturating_sub(offered);
        let limit = self.limit.min(self.window_clamp);
        gain >= (limit / 2).min(2 * u32::from(self.segment_size))
            && (offered < limit / 2 || gain >= limit / 2)
    }

    /// The application read `octets`. Grows the buffer when it reads more in a round trip than half of what there is, as
    /// Linux's receive buffer tuning does.
    pub(crate) fn on_read(&mut self, octets: usize, options: &TcpOptions, srtt: Duration, now: Instant) {
        self.copied = self.copied.saturating_add(octets as u32);
        let round = if srtt.is_zero() { Duration::from_millis(1) } else { srtt };
        if since_millis(self.measured_at_ms, now) < round {
            return;
        }
        let wanted = self.copied.saturating_mul(2).saturating_add(16 * u32::from(self.segment_size));
        self.limit = self.limit.max(wanted.min(limit_max(options)));
        self.copied = 0;
        self.measured_at_ms = millis(now);
    }

    /// Makes the buffer large enough for twice `octets`, unless the application said how large it is.
    pub(crate) fn make_room_for(&mut self, octets: u32, options: &TcpOptions) {
        self.limit = self.limit.max(octets.saturating_mul(2).min(limit_max(options)));
    }

    /// Sets the buffer's size (`SO_RCVBUF`).
    pub(crate) fn set_limit(&mut self, limit: u32) {
        self.limit = limit.max(LIMIT_LEAST);
    }

    /// Discards out-of-order data; no acknowledgement reports it any more.
    pub(crate) fn drop_out_of_order(&mut self, pool: &mut BufferPool) {
        self.assembler.clear();
        if self.duplicate.end.is_after(self.rcv_nxt) {
            self.duplicate = SeqRange::default();
        }
        self.queue.discard_out_of_order(pool);
    }
}

/// The shift with which a window of `limit` octets fits sixteen bits.
pub(crate) fn scale_for(limit: u32) -> u8 {
    let bits = 32 - limit.leading_zeros();
    bits.saturating_sub(16).min(14) as u8
}

/// What the receive buffer of a socket with `options` may become: the size that the application said, else what it may grow to.
fn limit_max(options: &TcpOptions) -> u32 {
    options.receive_buffer.unwrap_or(options.receive_buffer_max).max(LIMIT_LEAST)
}

/// What its window may become.
pub(crate) fn receive_limit(options: &TcpOptions) -> u32 {
    limit_max(options).min(options.window_clamp.unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests;
