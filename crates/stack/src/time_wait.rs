//! TIME-WAIT.

use clock::{Duration, Instant};
use wire::tcp::flag;

use crate::flow_table::recency_list::{Links, RecencyList};
use crate::flow_table::{FlowKey, FlowTable};
use crate::seq::SeqNum;

/// What a connection leaves behind when it enters TIME-WAIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeWait {
    /// Its ends.
    pub key: FlowKey,
    /// Behind our FIN.
    pub snd_nxt: SeqNum,
    /// Behind the peer's FIN.
    pub rcv_nxt: SeqNum,
    /// The window field of what we send: octets shifted right by our scale.
    pub window: u16,
    /// The latest timestamp of the peer, if the connection uses timestamps.
    pub ts_recent: Option<u32>,
}

/// What TIME-WAIT looks at in a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentSummary {
    /// Its sequence number.
    pub seq: SeqNum,
    /// Octets of payload.
    pub len: u32,
    /// Bits of [`wire::tcp::flag`].
    pub flags: u8,
    /// Its TSval.
    pub ts_val: Option<u32>,
}

/// What the caller does about a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeWaitVerdict {
    /// Nothing.
    Ignore,
    /// Nothing: one like it was answered a moment ago, and two hosts must not throw ACKs at each other for ever.
    Skip,
    /// Answer with an ACK of these fields, within the limit for such ACKs (RFC 5961, 7).
    Acknowledge {
        /// Sequence number.
        seq: SeqNum,
        /// Acknowledgement number.
        ack: SeqNum,
        /// Window field.
        window: u16,
        /// TSecr, if there are timestamps; TSval is now's, with the offset of the flow (`isn::IsnGenerator`).
        ts_recent: Option<u32>,
    },
    /// Treat the segment as a SYN to a listener, as it begins a new connection. The entry stays, as the SYN may turn out to
    /// be an old one (RFC 1122, 4.2.2.13): [`TimeWaitTable::remove`] it when the new connection is established.
    Reuse {
        /// The new initial sequence number is at or behind this.
        min_iss: SeqNum,
    },
    /// Nothing; the entry is gone.
    Remove,
}

/// What can be chosen about TIME-WAIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeWaitConfig {
    /// Entries, of 64 octets and some 10 in the index. When there are more, the oldest is given up.
    pub entries_max: u32,
    /// How long an entry stays: twice the maximum segment lifetime (RFC 9293, 3.4.2); at most 12 days.
    pub lifetime: Duration,
    /// Whether a RST does not end TIME-WAIT (RFC 1337, 3). If not, one with exactly the next sequence number does
    /// (RFC 5961, 3.2).
    pub ignore_rst: bool,
    /// Least time between two answers to segments without data (`tcp_invalid_ratelimit`); at most some seconds.
    pub answer_interval: Duration,
}

impl Default for TimeWaitConfig {
    /// 262 144 entries, 60 seconds, an end by RST and half a second, as in Linux.
    fn default() -> TimeWaitConfig {
        TimeWaitConfig {
            entries_max: 1 << 18,
            lifetime: Duration::from_secs(60),
            ignore_rst: false,
            answer_interval: Duration::from_millis(500),
        }
    }
}

/// Connections in TIME-WAIT (RFC 9293, 3.10.7.4), in order of expiry.
#[derive(Debug)]
pub struct TimeWaitTable {
    config: TimeWaitConfig,
    index: FlowTable,
    order: RecencyList,
    entries: Vec<Entry>,
    recycled: u64,
    /// The latest time seen, from which shortened times are completed.
    now: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: FlowKey,
    notes: Notes,
    window: u16,
    snd_nxt: SeqNum,
    rcv_nxt: SeqNum,
    ts_recent: u32,
    expiry: Stamp,
}

const _: () = assert!(size_of::<Entry>() + size_of::<Links>() <= 64);

impl TimeWaitTable {
    /// An empty table; memory is taken when it is first needed. `key` is the secret of the [`FlowTable`] that makes the
    /// hashes passed to this one.
    pub fn new(config: TimeWaitConfig, key: [u64; 2]) -> TimeWaitTable {
        TimeWaitTable {
            config,
            index: FlowTable::new(config.entries_max as usize, key),
            order: RecencyList::new(config.entries_max),
            entries: Vec::with_capacity(config.entries_max as usize),
            recycled: 0,
            now: Instant::ZERO,
        }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.order.len() == 0
    }

    /// Entries removed early because the table was full.
    pub fn recycled(&self) -> u64 {
        self.recycled
    }

    /// Whether the flow is in TIME-WAIT.
    pub fn contains(&self, hash: u64, key: &FlowKey) -> bool {
        self.find(hash, key).is_some()
    }

    /// Adds an entry, or replaces that of the same flow. Returns the flow that had to go for it, if any.
    pub fn insert(&mut self, hash: u64, left: TimeWait, now: Instant) -> Option<FlowKey> {
        self.now = self.now.max(now);
        let entry = Entry {
            key: left.key,
            notes: Notes::new(left.ts_recent.is_some()),
            window: left.window,
            snd_nxt: left.snd_nxt,
            rcv_nxt: left.rcv_nxt,
            ts_recent: left.ts_recent.unwrap_or(0),
            expiry: Stamp::after(self.now + self.config.lifetime),
        };
        if let Some(slot) = self.find(hash, &left.key) {
            self.order.touch(slot);
            self.entries[slot as usize] = entry;
            return None;
        }
        let recycled = (self.order.len() == self.config.entries_max as usize).then(|| self.recycle(left.key));
        if let Some(slot) = self.order.take() {
            self.index.insert(hash, slot);
            match self.entries.get_mut(slot as usize) {
                Some(place) => *place = entry,
                None => self.entries.push(entry),
            }
        }
        recycled
    }

    /// Judges a segment of a flow in TIME-WAIT; `None` if the flow is not there.
    pub fn on_segment(
        &mut self,
        hash: u64,
        key: &FlowKey,
        segment: &SegmentSummary,
        now: Instant,
    ) -> Option<TimeWaitVerdict> {
        let slot = self.find(hash, key)?;
        let entry = &mut self.entries[slot as usize];
        if segment.flags & flag::RST != 0 {
            let ends = !self.config.ignore_rst && segment.seq == entry.rcv_nxt;
            if ends {
                self.free(slot);
            }
            return Some(if ends { TimeWaitVerdict::Remove } else { TimeWaitVerdict::Ignore });
        }
        let mut verdict = entry.judge(segment);
        if matches!(verdict, TimeWaitVerdict::Acknowledge { .. }) && segment.may_loop() {
            let may_answer = entry.notes.may_answer(self.config.answer_interval, now);
            verdict = if may_answer { verdict } else { TimeWaitVerdict::Skip };
        }
        if verdict != TimeWaitVerdict::Ignore && entry.is_fin_again(segment) {
            self.now = self.now.max(now);
            entry.expiry = Stamp::after(self.now + self.config.lifetime);
            self.order.touch(slot);
        }
        Some(verdict)
    }

    /// Whether we may connect anew on a flow that has been there for the time `age`, and from which sequence number on: timestamps
    /// tell what is under way from before from what the new connection sends (RFC 6191, 2; RFC 7323, 5; Linux's tcp_tw_reuse). `None`
    /// if not, or if the flow is not in TIME-WAIT.
    pub fn may_connect(&self, hash: u64, key: &FlowKey, age: Duration, now: Instant) -> Option<SeqNum> {
        let entry = &self.entries[self.find(hash, key)? as usize];
        let remaining = entry.expiry.near(self.now).since(now);
        let is_old = age.is_zero() || remaining + age <= self.config.lifetime;
        // Beyond any window of the old connection, should the peer still be in it.
        (entry.notes.has_timestamps() && is_old).then(|| entry.snd_nxt + (u32::from(u16::MAX) + 2))
    }

    /// Removes the entry of a flow; returns whether there was one.
    pub fn remove(&mut self, hash: u64, key: &FlowKey) -> bool {
        self.find(hash, key).map(|slot| self.free(slot)).is_some()
    }

    /// When the next entry expires, to the millisecond.
    pub fn next_expiry(&self) -> Option<Instant> {
        self.order.oldest().map(|slot| self.entries[slot as usize].expiry.near(self.now))
    }

    /// Removes an entry that has expired and returns its flow, whose port is now free. Called until it returns `None`.
    pub fn expire(&mut self, now: Instant) -> Option<FlowKey> {
        self.now = self.now.max(now);
        let slot = self.order.oldest().filter(|_| self.next_expiry() <= Some(now))?;
        self.free(slot);
        Some(self.entries[slot as usize].key)
    }

    fn find(&self, hash: u64, key: &FlowKey) -> Option<u32> {
        self.index.find(hash, |slot| self.entries[slot as usize].key == *key)
    }

    /// Makes room by giving up the oldest; without any room at all it is `newest` that goes.
    fn recycle(&mut self, newest: FlowKey) -> FlowKey {
        self.recycled += 1;
        let Some(slot) = self.order.oldest() else {
            return newest;
        };
        self.free(slot);
        self.entries[slot as usize].key
    }

    fn free(&mut self, slot: u32) {
        let hash = self.index.hash_of(&self.entries[slot as usize].key);
        let removed = self.index.remove(hash, slot);
        debug_assert!(removed, "the hashes passed in are those of the table's own secret");
        self.order.give_back(slot);
    }
}

impl SegmentSummary {
    /// Whether it may itself be an answer to an ACK of ours: data is not.
    fn may_loop(&self) -> bool {
        self.flags & flag::SYN != 0 || self.len == 0 && self.flags & flag::FIN == 0
    }
}

impl Entry {
    /// What is done about a segment without RST.
    fn judge(&mut self, segment: &SegmentSummary) -> TimeWaitVerdict {
        let is_syn = segment.flags & flag::SYN != 0;
        if is_syn && segment.flags & flag::ACK == 0 && self.is_newer(segment) {
            return TimeWaitVerdict::Reuse { min_iss: self.snd_nxt + 1 };
        }
        if let Some(ts_val) = segment.ts_val.filter(|_| self.notes.has_timestamps() && !is_syn) {
            if is_later(self.ts_recent, ts_val) {
                return self.acknowledge(); // PAWS: RFC 7323, 5.3, R1
            }
            if segment.seq.is_at_or_before(self.rcv_nxt) {
                self.ts_recent = ts_val;
            }
        }
        let is_bare = segment.len == 0 && segment.flags & (flag::SYN | flag::FIN) == 0;
        let is_expected = is_bare && segment.seq == self.rcv_nxt;
        let has_ack = is_syn || segment.flags & flag::ACK != 0;
        if is_expected || !has_ack { TimeWaitVerdict::Ignore } else { self.acknowledge() }
    }

    /// Whether a SYN was sent after everything of this connection (RFC 6191, 2).
    fn is_newer(&self, syn: &SegmentSummary) -> bool {
        let by_seq = syn.seq.is_after(self.rcv_nxt);
        match (self.notes.has_timestamps(), syn.ts_val) {
            (true, Some(ts_val)) => is_later(ts_val, self.ts_recent) || ts_val == self.ts_recent && by_seq,
            (false, Some(_)) => true,
            (_, None) => by_seq,
        }
    }

    /// Whether the segment ends with the peer's FIN, which restarts the timer (RFC 9293, 3.10.7.4).
    fn is_fin_again(&self, segment: &SegmentSummary) -> bool {
        segment.flags & (flag::FIN | flag::SYN) == flag::FIN && segment.seq + segment.len + 1 == self.rcv_nxt
    }

    fn acknowledge(&self) -> TimeWaitVerdict {
        TimeWaitVerdict::Acknowledge {
            seq: self.snd_nxt,
            ack: self.rcv_nxt,
            window: self.window,
            ts_recent: self.notes.has_timestamps().then_some(self.ts_recent),
        }
    }
}

/// Whether timestamp `a` is later than `b` (RFC 7323, 5.2).
fn is_later(a: u32, b: u32) -> bool {
    SeqNum(a).is_after(SeqNum(b))
}

/// An octet's worth: whether the connection uses timestamps, and when a segment without data was answered last.
#[derive(Clone, Copy, Debug)]
struct Notes(u8);

impl Notes {
    const TIMESTAMPS: u8 = 0x80;
    /// Times are in units of 2^26 nanoseconds, 67 ms, modulo this; zero is never.
    const TIMES: u64 = 127;

    fn new(has_timestamps: bool) -> Notes {
        Notes(if has_timestamps { Notes::TIMESTAMPS } else { 0 })
    }

    fn has_timestamps(self) -> bool {
        self.0 & Notes::TIMESTAMPS != 0
    }

    /// Whether the last answer was long enough ago; if so this is one. What was 8.5 seconds ago, or a multiple of that, may pass
    /// for recent: the peer asks again.
    fn may_answer(&mut self, interval: Duration, now: Instant) -> bool {
        let time = (now.as_nanos() >> 26) % Notes::TIMES + 1;
        let last = u64::from(self.0 & !Notes::TIMESTAMPS);
        let elapsed = Duration::from_nanos(((time + Notes::TIMES - last) % Notes::TIMES) << 26);
        if last != 0 && elapsed < interval {
            return false;
        }
        self.0 = self.0 & Notes::TIMESTAMPS | time as u8;
        true
    }
}

/// A time in units of 2^20 nanoseconds, modulo 52 days.
#[derive(Clone, Copy, Debug)]
struct Stamp(u32);

impl Stamp {
    const UNIT_BITS: u32 = 20;

    /// The first stamp that is not before `at`.
    fn after(at: Instant) -> Stamp {
        Stamp(((at.as_nanos() >> Self::UNIT_BITS) + 1) as u32)
    }

    /// The time that is meant, less than 26 days from `now`.
    fn near(self, now: Instant) -> Instant {
        let units = now.as_nanos() >> Self::UNIT_BITS;
        let distance = self.0.wrapping_sub(units as u32) as i32;
        Instant::from_nanos(units.saturating_add_signed(distance.into()) << Self::UNIT_BITS)
    }
}

#[cfg(test)]
mod tests;
