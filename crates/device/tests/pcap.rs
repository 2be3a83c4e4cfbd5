//! Captures are replayed as they were recorded, and recorded as they were seen.

use std::io::{self, Write};

use clock::{Duration, Instant};
use device::memory::{Config, pair};
use device::pcap::{Capture, CaptureError, Pace, PcapRecord, PcapReplay, ReplayConfig};
use device::{Burst, Device};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// A classic file: each packet with seconds and the fraction.
fn classic(big_endian: bool, magic: u32, packets: &[(u32, u32, &[u8])]) -> Vec<u8> {
    let number = |number: u32| if big_endian { number.to_be_bytes() } else { number.to_le_bytes() };
    let version = if big_endian { [0, 2, 0, 4] } else { [2, 0, 4, 0] };
    let mut file = number(magic).to_vec();
    file.extend_from_slice(&version);
    [0, 0, 65535, 1].into_iter().for_each(|field| file.extend_from_slice(&number(field)));
    for (seconds, fraction, frame) in packets {
        let len = frame.len() as u32;
        [*seconds, *fraction, len, len].into_iter().for_each(|field| file.extend_from_slice(&number(field)));
        file.extend_from_slice(frame);
    }
    file
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let len = (12 + body.len().next_multiple_of(4)) as u32;
    let mut block = [kind.to_le_bytes(), len.to_le_bytes()].concat();
    block.extend_from_slice(body);
    block.resize(len as usize - 4, 0);
    block.extend_from_slice(&len.to_le_bytes());
    block
}

/// A pcapng file whose interface counts time in nanoseconds.
fn next_generation(packets: &[(u64, &[u8])]) -> Vec<u8> {
    let section = [0x1a2b_3c4du32.to_le_bytes(), [1, 0, 0, 0], [0xff; 4], [0xff; 4]].concat();
    let interface = [1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0];
    let mut file = [block(0x0a0d_0d0a, &section), block(1, &interface), block(5, b"statistics..")].concat();
    for (time, frame) in packets {
        let len = (frame.len() as u32).to_le_bytes();
        let (high, low) = (((time >> 32) as u32).to_le_bytes(), (*time as u32).to_le_bytes());
        let body = [&[0; 4], &high, &low, &len, &len, *frame].concat();
        file.extend_from_slice(&block(6, &body));
    }
    file
}

fn seen(capture: &Capture) -> Vec<(u64, Vec<u8>)> {
    capture.packets().map(|packet| (packet.time_ns, packet.frame.to_vec())).collect()
}

fn receive(device: &mut dyn Device, now: Instant) -> Vec<Vec<u8>> {
    let mut burst = Burst::new();
    device.rx_burst(&mut burst, now);
    burst
        .into_iter()
        .map(|frame| {
            let bytes = frame.bytes().to_vec();
            device.release(frame);
            bytes
        })
        .collect()
}

#[test]
fn every_flavour_of_a_classic_file_is_read() {
    for big_endian in [false, true] {
        let micro = classic(big_endian, 0xa1b2_c3d4, &[(2, 7, b"one"), (3, 0, b"")]);
        let nano = classic(big_endian, 0xa1b2_3c4d, &[(2, 7000, b"one"), (3, 0, b"")]);
        let expected = [(2_000_007_000, b"one".to_vec()), (3_000_000_000, Vec::new())];
        assert_eq!(seen(&Capture::parse(micro).unwrap()), expected);
        assert_eq!(seen(&Capture::parse(nano).unwrap()), expected);
    }
}

#[test]
fn a_pcapng_file_is_read_and_unknown_blocks_are_skipped() {
    let time = 1_700_000_000_123_456_789;
    let capture = Capture::parse(next_generation(&[(time, b"first"), (time + 5, b"second!!")])).unwrap();
    assert_eq!(seen(&capture), [(time, b"first".to_vec()), (time + 5, b"second!!".to_vec())]);
}

#[test]
fn a_file_that_is_cut_off_says_where() {
    let file = classic(false, 0xa1b2_c3d4, &[(1, 0, b"whole"), (2, 0, b"cut off")]);
    let error = Capture::parse(&file[..file.len() - 1]).unwrap_err();
    assert_eq!(error, CaptureError::Truncated { start: 24 + 16 + 5, end: file.len() - 1 });
    assert_eq!(error.to_string(), "the file ends at offset 67 within what starts at offset 45");
    let file = next_generation(&[(1, b"cut off")]);
    let start = file.len() - 40;
    let error = Capture::parse(&file[..file.len() - 1]).unwrap_err();
    assert_eq!(error, CaptureError::Truncated { start, end: file.len() - 1 });
}

#[test]
fn files_of_other_kinds_are_refused() {
    assert_eq!(Capture::parse(*b"GIF89a").unwrap_err(), CaptureError::Unrecognised);
    assert_eq!(Capture::parse(*b"").unwrap_err(), CaptureError::Unrecognised);
    let mut raw_ip = classic(false, 0xa1b2_c3d4, &[]);
    raw_ip[20] = 101;
    assert_eq!(Capture::parse(raw_ip).unwrap_err(), CaptureError::LinkType(101));
    let mut huge = classic(false, 0xa1b2_c3d4, &[(1, 0, b"x")]);
    huge[24 + 11] = 0xff;
    assert!(matches!(Capture::parse(huge).unwrap_err(), CaptureError::Length { offset: 24, .. }));
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn no_file_is_so_broken_that_reading_panics(
        start in 0usize..3,
        octets in proptest::collection::vec(any::<u8>(), 0..200),
        at in 0usize..120,
    ) {
        let mut file = match start {
            0 => classic(false, 0xa1b2_c3d4, &[(1, 2, b"packet")]),
            1 => next_generation(&[(1, b"packet")]),
            _ => Vec::new(),
        };
        file.truncate(at.max(8).min(file.len()));
        file.extend(octets);
        let _ = Capture::parse(file);
    }
}

#[test]
fn a_capture_is_replayed_as_often_as_asked() {
    let capture = Capture::parse(classic(false, 0xa1b2_c3d4, &[(1, 0, b"a"), (9, 0, b"b")])).unwrap();
    let config = ReplayConfig { loops: Some(2), ..ReplayConfig::default() };
    let mut replay = PcapReplay::new(capture, config).unwrap();
    assert!(!replay.prepare_wait());
    assert_eq!(receive(&mut replay, Instant::ZERO), [b"a", b"b", b"a", b"b"]);
    assert!(replay.is_finished() && replay.prepare_wait());
    assert!(receive(&mut replay, Instant::ZERO).is_empty());
}

#[test]
fn a_capture_keeps_its_pauses_if_asked() {
    let packets: [(u32, u32, &[u8]); 3] = [(5, 0, b"a"), (5, 0, b"b"), (5, 300, b"c")];
    let capture = Capture::parse(classic(false, 0xa1b2_c3d4, &packets)).unwrap();
    let config = ReplayConfig { pace: Pace::Recorded, ..ReplayConfig::default() };
    let mut replay = PcapReplay::new(capture, config).unwrap();
    let start = Instant::from_nanos(77);
    let due = start + Duration::from_micros(300);
    assert_eq!(receive(&mut replay, start), [b"a", b"b"]);
    assert_eq!(replay.poll_timeout(), Some(due));
    assert!(receive(&mut replay, start + Duration::from_micros(299)).is_empty());
    assert_eq!(receive(&mut replay, due), [b"c"]);
    assert_eq!(replay.poll_timeout(), None);
}

#[test]
fn a_packet_longer_than_a_frame_is_dropped_and_counted() {
    let capture = Capture::parse(classic(false, 0xa1b2_c3d4, &[(1, 0, &[0; 300]), (1, 0, b"fits")])).unwrap();
    let config = ReplayConfig { slot_size: 256, loops: None, ..ReplayConfig::default() };
    let mut replay = PcapReplay::new(capture, config).unwrap();
    let received = receive(&mut replay, Instant::ZERO);
    assert!(received.iter().all(|frame| frame == b"fits"));
    assert_eq!(replay.counters().rx_dropped_invalid as usize, received.len());
}

#[test]
fn what_is_recorded_is_what_was_received_and_sent() {
    let (mut left, mut right) = pair(&Config::default());
    let epoch = Duration::from_secs(1_000_000);
    let mut recorder = PcapRecord::new(left.remove(0), Vec::new(), epoch);
    let mut burst = Burst::new();
    let mut frame = recorder.alloc().unwrap();
    frame.copy_from(b"question");
    burst.push(frame);
    recorder.tx_burst(&mut burst, Instant::from_nanos(5));
    right[0].rx_burst(&mut burst, Instant::ZERO);
    burst[0].copy_from(b"answer");
    right[0].tx_burst(&mut burst, Instant::ZERO);
    recorder.rx_burst(&mut burst, Instant::from_nanos(9));
    burst.drain(..).for_each(|frame| recorder.release(frame));
    assert_eq!((recorder.recorded(), recorder.write_errors()), (2, 0));
    let (mut device, file) = recorder.finish();
    let capture = Capture::parse(file.unwrap()).unwrap();
    let at = |nanos: u64| 1_000_000_000_000_000 + nanos;
    assert_eq!(seen(&capture), [(at(5), b"question".to_vec()), (at(9), b"answer".to_vec())]);
    assert_eq!(device.available(), 1024);
}

/// Takes the file's header and one record, then fails.
struct FullDisk(usize);

impl Write for FullDisk {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(1).ok_or(io::ErrorKind::StorageFull)?;
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_ends_the_recording_and_nothing_else() {
    let capture = Capture::parse(classic(false, 0xa1b2_c3d4, &[(1, 0, b"a")])).unwrap();
    let config = ReplayConfig { loops: Some(500), ..ReplayConfig::default() };
    let replay = PcapReplay::new(capture, config).unwrap();
    let mut recorder = PcapRecord::new(replay, FullDisk(2), Duration::ZERO);
    let received: usize = (0..8).map(|_| receive(&mut recorder, Instant::ZERO).len()).sum();
    assert_eq!(received, 500);
    assert_eq!((recorder.recorded(), recorder.write_errors()), (64, 1));
    assert!(recorder.finish().1.is_none());
}
