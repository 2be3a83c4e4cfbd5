//! A ring of the latest events, always on: what happened on a connection just before it was looked at.

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
    /// Index of the connection.
    pub connection: u32,
    /// Sequence number, absolute.
    pub seq: SeqNum,
    /// Acknowledgement number, absolute.
    pub ack: SeqNum,
    /// Congestion window in octets.
    pub cwnd: u32,
    /// Window, as it stood in the header.
    pub window: u16,
    /// Octets of payload.
    pub len: u16,
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

    /// The records there are, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &TraceRecord> {
        let split = self.next & (self.records.len() - 1);
        let (newer, older) = self.records.split_at(split);
        older.iter().chain(newer).filter(|record| record.kind != TraceKind::Unused)
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
}
