//! A bounded ring from an engine's thread to a capture's thread: copies of the frames that match a filter.
//!
//! A record is a [`Header`] and the captured part of the frame. The engine writes both without waiting, or counts a drop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use clock::Instant;
use engine::{DeviceId, Direction, Tap};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::filter::Filter;

/// The description of a captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Octets of the frame.
    pub original_len: u32,
    /// Octets that were captured.
    pub captured_len: u32,
    /// The device within an engine; on the way to a client, the interface of the capture.
    pub source: u32,
    /// Its direction.
    pub direction: Direction,
}

impl Header {
    /// Octets that it takes.
    pub const LEN: usize = 21;

    /// As octets; numbers are little-endian.
    pub fn encode(&self) -> [u8; Header::LEN] {
        let mut octets = [0; Header::LEN];
        octets[..8].copy_from_slice(&self.time_ns.to_le_bytes());
        octets[8..12].copy_from_slice(&self.original_len.to_le_bytes());
        octets[12..16].copy_from_slice(&self.captured_len.to_le_bytes());
        octets[16..20].copy_from_slice(&self.source.to_le_bytes());
        octets[20] = (self.direction == Direction::Outbound).into();
        octets
    }

    /// The header at the start of `octets`, and what follows it; `None` if they are too few.
    pub fn decode(octets: &[u8]) -> Option<(Header, &[u8])> {
        let (header, rest) = octets.split_first_chunk::<{ Header::LEN }>()?;
        let number = |at: usize| header[at..].first_chunk().copied().map_or(0, u32::from_le_bytes);
        let header = Header {
            time_ns: u64::from(number(4)) << 32 | u64::from(number(0)),
            original_len: number(8),
            captured_len: number(12),
            source: number(16),
            direction: if header[20] == 0 { Direction::Inbound } else { Direction::Outbound },
        };
        Some((header, rest))
    }
}

/// What happened to the frames that matched the filter of one engine's tap.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    passed: AtomicU64,
    dropped: AtomicU64,
    /// The capture has ended.
    stopped: AtomicBool,
}

impl Tally {
    /// Frames that matched the filter, and those of them that were dropped because the ring was full.
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.passed.load(Ordering::Relaxed), self.dropped.load(Ordering::Relaxed))
    }

    /// There is one writer, so a plain load and store are enough.
    fn count(counter: &AtomicU64) {
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// The engine's end.
pub(crate) struct RingTap {
    filter: Filter,
    snaplen: usize,
    ring: Producer<u8>,
    tally: Arc<Tally>,
    /// Nanoseconds since 1970 at the start of the engine's clock.
    epoch_ns: u64,
}

/// The capture's end.
pub(crate) struct RingReader {
    ring: Consumer<u8>,
    pub(crate) tally: Arc<Tally>,
}

/// Both ends of a ring of `capacity` octets. It keeps at most `snaplen` octets of each frame that matches `filter`.
pub(crate) fn ring(filter: Filter, snaplen: usize, capacity: usize) -> (RingTap, RingReader) {
    let (producer, consumer) = RingBuffer::new(capacity);
    let tally = Arc::new(Tally::default());
    let reader = RingReader { ring: consumer, tally: Arc::clone(&tally) };
    (RingTap { filter, snaplen, ring: producer, tally, epoch_ns: 0 }, reader)
}

impl Tap for RingTap {
    /// Both clocks have the same rate. A later step of the machine's clock is not visible.
    fn on_start(&mut self, now: Instant) {
        self.epoch_ns = wall_clock_ns().saturating_sub(now.as_nanos());
    }

    fn on_frame(&mut self, frame: &[u8], device: DeviceId, direction: Direction, now: Instant) {
        if !self.filter.matches_frame(frame) {
            return;
        }
        Tally::count(&self.tally.passed);
        let captured = &frame[..frame.len().min(self.snaplen)];
        let header = Header {
            time_ns: self.epoch_ns + now.as_nanos(),
            original_len: frame.len() as u32,
            captured_len: captured.len() as u32,
            source: device.0,
            direction,
        };
        let fits = self.ring.slots() >= Header::LEN + captured.len();
        let pushed = fits
            && self.ring.push_entire_slice(&header.encode()).is_ok()
            && self.ring.push_entire_slice(captured).is_ok();
        if !pushed {
            Tally::count(&self.tally.dropped);
        }
    }

    fn is_over(&self) -> bool {
        self.ring.is_abandoned() || self.tally.stopped.load(Ordering::Relaxed)
    }
}

impl RingReader {
    /// Nothing more comes, except what is already in the ring.
    pub(crate) fn stop(&self) {
        self.tally.stopped.store(true, Ordering::Relaxed);
    }

    /// When the oldest packet was captured, if there is a whole one.
    pub(crate) fn next_time(&mut self) -> Option<u64> {
        self.peek().map(|header| header.time_ns)
    }

    /// Takes the oldest packet, and appends its octets to `frame`.
    pub(crate) fn pop(&mut self, frame: &mut Vec<u8>) -> Option<Header> {
        let header = self.peek()?;
        let record = self.ring.read_chunk(Header::LEN + header.captured_len as usize).ok()?;
        let (first, second) = record.as_slices();
        let in_first = first.len().min(Header::LEN);
        frame.extend_from_slice(&first[in_first..]);
        frame.extend_from_slice(&second[Header::LEN - in_first..]);
        record.commit_all();
        Some(header)
    }

    /// The header becomes visible before its frame does.
    fn peek(&mut self) -> Option<Header> {
        let available = self.ring.slots();
        let chunk = self.ring.read_chunk(Header::LEN).ok()?;
        let (first, second) = chunk.as_slices();
        let mut octets = [0; Header::LEN];
        octets[..first.len()].copy_from_slice(first);
        octets[first.len()..].copy_from_slice(second);
        let (header, _) = Header::decode(&octets)?;
        (available >= Header::LEN + header.captured_len as usize).then_some(header)
    }
}

/// Nanoseconds since 1970.
pub(crate) fn wall_clock_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(5);

    #[test]
    fn a_header_survives_its_encoding() {
        let header = Header {
            time_ns: 0x0102_0304_0506_0708,
            original_len: 1514,
            captured_len: 96,
            source: 7,
            direction: Direction::Outbound,
        };
        assert_eq!(Header::decode(&header.encode()), Some((header, [].as_slice())));
        assert_eq!(Header::decode(&[0; Header::LEN - 1]), None);
    }

    #[test]
    fn frames_come_out_in_order_and_cut_to_the_snaplen() {
        let (mut tap, mut reader) = ring(Filter::everything(), 4, 1000);
        tap.on_start(NOW);
        tap.on_frame(b"abcdef", DeviceId(1), Direction::Inbound, NOW);
        tap.on_frame(b"gh", DeviceId(2), Direction::Outbound, NOW);
        let mut frame = Vec::new();
        let first = reader.pop(&mut frame).unwrap();
        assert_eq!((first.original_len, first.captured_len, first.source), (6, 4, 1));
        let second = reader.pop(&mut frame).unwrap();
        assert_eq!((second.direction, frame.as_slice()), (Direction::Outbound, b"abcdgh".as_slice()));
        assert_eq!(reader.pop(&mut frame), None);
    }

    #[test]
    fn what_finds_no_room_is_counted_and_later_frames_come_whole() {
        let (mut tap, mut reader) = ring(Filter::everything(), 64, 2 * (Header::LEN + 3) + 2);
        for round in 0..50u8 {
            for at in 0..3 {
                tap.on_frame(&[round, at, 0], DeviceId(0), Direction::Inbound, NOW);
            }
            for at in 0..2 {
                let mut frame = Vec::new();
                reader.pop(&mut frame).unwrap();
                assert_eq!(frame, [round, at, 0]);
            }
        }
        assert_eq!(reader.tally.read(), (150, 50));
    }

    #[test]
    fn what_the_filter_refuses_is_not_counted() {
        let (mut tap, mut reader) = ring("tcp".parse().unwrap(), 64, 100);
        tap.on_frame(b"no packet", DeviceId(0), Direction::Inbound, NOW);
        assert_eq!((reader.tally.read(), reader.next_time()), ((0, 0), None));
    }

    #[test]
    fn a_tap_is_over_when_its_reader_has_gone() {
        let (tap, reader) = ring(Filter::everything(), 64, 100);
        assert!(!tap.is_over());
        drop(reader);
        assert!(tap.is_over());
    }
}
