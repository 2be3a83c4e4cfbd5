//! A ring of the latest events, always on: what happened on a connection recently.

use clock::Instant;

use crate::seq::SeqNum;

/// What happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum TraceKind {
    /// Nothing yet: an unused record.
    #[default]
    Unused,
    /// A segment arrived.
    Received,
    /// A segment arrived and was dropped.
    Dropped,
    /// A segment was sent for the first time.
    Sent,
    /// A segment was sent again.
    Retransmitted,
    /// The connection changed its state; `flags` is the new one.
    State,
    /// The retransmission timer expired.
    Timeout,
    /// A tail loss probe is due.
    LossProbe,
    /// The connection ended by an error.
    Aborted,
}

/// One event: 32 octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceRecord {
    /// When.
    pub at: Instant,
    /// Place of the connection in its stack.
    pub connection: u32,
    /// Sequence number, absolute.
    pub seq: SeqNum,
    /// Acknowledgement number, absolute.
    pub ack: SeqNum,
    /// Congestion window in octets; zero with [`TraceKind::Received`] and [`TraceKind::State`].
    pub cwnd: u32,
    /// Window, as it stood in the header.
    pub window: u16,
    /// Octets of payload.
    pub len: u16,
    /// How often the place was in use before, modulo 2^16: tells connections apart that had it one after the other.
    pub generation: u16,
    /// Flags of the segment.
    pub flags: u8,
    /// What happened.
    pub kind: TraceKind,
}

/// The ring. Recording overwrites the oldest record; nothing is allocated after the start.
#[derive(Debug)]
pub struct TraceRing {
    records: Box<[TraceRecord]>,
    next: usize,
}

impl TraceRing {
    /// Room for `records`, rounded up to a power of two, and at least one.
    pub fn new(records: usize) -> TraceRing {
        let len = records.clamp(1, 1 << 24).next_power_of_two();
        TraceRing { records: vec![TraceRecord::default(); len].into_boxed_slice(), next: 0 }
    }

    /// Keeps `record`.
    #[inline]
    pub fn record(&mut self, record: TraceRecord) {
        let mask = self.records.len() - 1;
        self.records[self.next & mask] = record;
        self.next = self.next.wrapping_add(1);
    }

    /// How many records there were ever: one more than the number of the latest.
    pub fn recorded(&self) -> usize {
        self.next
    }

    /// The records there are, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &TraceRecord> {
        self.since(0).map(|(_, record)| record)
    }

    /// The records there are from number `first` on, oldest first, each with its number; the first ever has number 0. With
    /// the number behind the last one it goes on later, for those who take a piece at a time.
    pub fn since(&self, first: usize) -> impl Iterator<Item = (usize, &TraceRecord)> {
        let oldest = self.next.saturating_sub(self.records.len());
        let mask = self.records.len() - 1;
        (first.max(oldest)..self.next).map(move |number| (number, &self.records[number & mask]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_takes_32_octets() {
        assert_eq!(size_of::<TraceRecord>(), 32);
    }

    #[test]
    fn the_latest_records_are_kept_oldest_first() {
        let mut ring = TraceRing::new(3);
        for number in 0..6 {
            ring.record(TraceRecord { connection: number, kind: TraceKind::Sent, ..TraceRecord::default() });
        }
        let kept: Vec<u32> = ring.iter().map(|record| record.connection).collect();
        assert_eq!(kept, [2, 3, 4, 5]);
    }

    #[test]
    fn a_reader_goes_on_where_it_was_or_at_the_oldest_there_is() {
        let mut ring = TraceRing::new(4);
        let numbers =
            |ring: &TraceRing, first| ring.since(first).map(|(number, _)| number).collect::<Vec<_>>();
        assert!(numbers(&ring, 0).is_empty());
        for _ in 0..3 {
            ring.record(TraceRecord::default());
        }
        assert_eq!(numbers(&ring, 1), [1, 2]);
        for _ in 0..6 {
            ring.record(TraceRecord::default());
        }
        assert_eq!(numbers(&ring, 3), [5, 6, 7, 8]);
        assert!(numbers(&ring, 9).is_empty());
    }
}
