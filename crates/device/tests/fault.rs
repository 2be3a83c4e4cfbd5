//! The fault injector does what it is asked, repeatably, and loses no frame that it does not count.

use clock::{Duration, Instant};
use device::fault::{FaultCounts, FaultInjector, Faults};
use device::memory::{Config, MemoryDevice, pair};
use device::{Burst, Device};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const NONE: Faults = Faults {
    loss: 0.0,
    duplication: 0.0,
    reordering: 0.0,
    corruption: 0.0,
    truncation: 0.0,
    delay: 0.0,
    delay_min: Duration::ZERO,
    delay_max: Duration::ZERO,
};

fn ends() -> (MemoryDevice, MemoryDevice) {
    let (mut left, mut right) = pair(&Config { frames: 256, ring: 64, ..Config::default() });
    (left.remove(0), right.remove(0))
}

fn send(device: &mut dyn Device, packets: impl IntoIterator<Item = [u8; 8]>, now: Instant) {
    for packet in packets {
        let Some(mut frame) = device.alloc() else { return };
        frame.copy_from(&packet);
        let mut burst = Burst::new();
        burst.push(frame);
        device.tx_burst(&mut burst, now);
        burst.drain(..).for_each(|frame| device.release(frame));
    }
}

fn receive(device: &mut dyn Device, now: Instant) -> Vec<Vec<u8>> {
    let mut burst = Burst::new();
    device.rx_burst(&mut burst, now);
    let packets = burst.iter().map(|frame| frame.bytes().to_vec()).collect();
    burst.drain(..).for_each(|frame| device.release(frame));
    packets
}

/// Sends the numbers below `count` through received-side faults, and returns what arrives by `until`.
fn pass(faults: Faults, seed: u64, count: u64, until: Instant) -> (Vec<Vec<u8>>, FaultCounts) {
    let (mut left, right) = ends();
    let mut right = FaultInjector::new(right, seed, faults, NONE);
    let mut arrived = Vec::new();
    for number in 0..count {
        send(&mut left, [number.to_be_bytes()], Instant::ZERO);
        arrived.extend(receive(&mut right, Instant::ZERO));
    }
    for _ in 0..10 {
        arrived.extend(receive(&mut right, until));
    }
    (arrived, right.counts().0)
}

fn numbers(packets: &[Vec<u8>]) -> Vec<u64> {
    packets.iter().map(|packet| u64::from_be_bytes(packet[..].try_into().unwrap())).collect()
}

const LATER: Instant = Instant::from_nanos(10_000_000_000);

#[test]
fn without_faults_everything_passes_in_order() {
    let (arrived, counts) = pass(NONE, 1, 100, LATER);
    assert_eq!(numbers(&arrived), (0..100).collect::<Vec<_>>());
    assert_eq!(counts, FaultCounts { entered: 100, left: 100, ..FaultCounts::default() });
}

#[test]
fn loss_happens_as_often_as_asked() {
    let (arrived, counts) = pass(Faults { loss: 0.2, ..NONE }, 1, 2000, LATER);
    assert_eq!(arrived.len() as u64, 2000 - counts.lost);
    assert!((320..=480).contains(&counts.lost), "{counts:?}");
}

#[test]
fn a_duplicate_is_a_whole_copy() {
    let (arrived, counts) = pass(Faults { duplication: 1.0, ..NONE }, 1, 50, LATER);
    assert_eq!(numbers(&arrived), (0..100).map(|at| at / 2).collect::<Vec<_>>());
    assert_eq!(counts.duplicated, 50);
}

#[test]
fn a_reordered_frame_is_overtaken_by_at_most_eight() {
    let (arrived, counts) = pass(Faults { reordering: 0.1, ..NONE }, 1, 500, LATER);
    let order = numbers(&arrived);
    let moved = order.iter().enumerate().filter(|&(at, &number)| at as u64 > number).count();
    assert!(counts.reordered > 20 && moved > 20);
    assert!(order.iter().enumerate().all(|(at, &number)| at as u64 <= number + 8));
    assert_eq!(order.len(), 500);
}

#[test]
fn a_reordered_frame_does_not_wait_for_ever() {
    let (arrived, _) = pass(Faults { reordering: 1.0, ..NONE }, 1, 1, Instant::from_nanos(1_000_000));
    assert_eq!(numbers(&arrived), [0]);
}

#[test]
fn corruption_flips_one_bit() {
    let (arrived, counts) = pass(Faults { corruption: 1.0, ..NONE }, 1, 50, LATER);
    for (number, packet) in numbers(&arrived).into_iter().enumerate() {
        assert_eq!((packet ^ number as u64).count_ones(), 1);
    }
    assert_eq!(counts.corrupted, 50);
}

#[test]
fn truncation_cuts_the_end_off() {
    let (arrived, counts) = pass(Faults { truncation: 1.0, ..NONE }, 1, 50, LATER);
    for (number, packet) in arrived.iter().enumerate() {
        assert!(packet.len() < 8 && (number as u64).to_be_bytes().starts_with(packet));
    }
    assert_eq!((arrived.len(), counts.truncated), (50, 50));
}

#[test]
fn a_delayed_frame_comes_at_its_time_and_the_engine_is_told_when() {
    let (mut left, right) = ends();
    let delay = Duration::from_millis(20);
    let faults = Faults { delay: 1.0, delay_min: delay, delay_max: delay, ..NONE };
    let mut right = FaultInjector::new(right, 1, faults, NONE);
    send(&mut left, [[7; 8]], Instant::ZERO);
    let start = Instant::from_nanos(1000);
    assert!(receive(&mut right, start).is_empty());
    let due = start + delay;
    assert_eq!(right.poll_timeout(), Some(due));
    assert!(receive(&mut right, Instant::from_nanos(due.as_nanos() - 1)).is_empty());
    assert_eq!(receive(&mut right, due), [[7; 8]]);
    assert_eq!((right.poll_timeout(), right.held()), (None, 0));
}

#[test]
fn delays_lie_between_their_bounds() {
    let (min, max) = (Duration::from_millis(5), Duration::from_millis(6));
    let faults = Faults { delay: 1.0, delay_min: min, delay_max: max, ..NONE };
    assert!(pass(faults, 1, 60, Instant::from_nanos(4_999_999)).0.is_empty());
    assert_eq!(pass(faults, 1, 60, Instant::ZERO + max).0.len(), 60);
}

#[test]
fn a_sent_frame_that_is_delayed_leaves_while_the_engine_receives() {
    let (mut left, right) = ends();
    let delay = Duration::from_millis(1);
    let faults = Faults { delay: 1.0, delay_min: delay, delay_max: delay, ..NONE };
    let mut right = FaultInjector::new(right, 1, NONE, faults);
    send(&mut right, [[9; 8]], Instant::ZERO);
    assert!(receive(&mut left, Instant::ZERO).is_empty());
    receive(&mut right, Instant::ZERO + delay);
    assert_eq!(receive(&mut left, Instant::ZERO), [[9; 8]]);
}

#[test]
fn the_same_seed_brings_the_same_faults() {
    let faults = Faults { loss: 0.1, reordering: 0.1, corruption: 0.1, truncation: 0.1, ..NONE };
    assert_eq!(pass(faults, 42, 300, LATER), pass(faults, 42, 300, LATER));
    assert_ne!(pass(faults, 42, 300, LATER).0, pass(faults, 43, 300, LATER).0);
}

fn faults() -> impl Strategy<Value = Faults> {
    let chance = || 0.0f64..0.5;
    (chance(), chance(), chance(), chance(), chance(), chance()).prop_map(|chances| Faults {
        loss: chances.0,
        duplication: chances.1,
        reordering: chances.2,
        corruption: chances.3,
        truncation: chances.4,
        delay: chances.5,
        delay_min: Duration::from_micros(10),
        delay_max: Duration::from_millis(3),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    /// What enters leaves, is lost or is held, and in the end every frame is at home.
    #[test]
    fn frames_are_conserved(seed: u64, rx in faults(), tx in faults(), bursts in proptest::collection::vec(0u64..100, 1..30)) {
        let (mut left, right) = ends();
        let mut right = FaultInjector::new(right, seed, rx, tx);
        for (turn, count) in bursts.into_iter().enumerate() {
            let now = Instant::from_nanos(turn as u64 * 200_000);
            send(&mut left, (0..count).map(u64::to_be_bytes), now);
            let mut burst = Burst::new();
            right.rx_burst(&mut burst, now);
            right.tx_burst(&mut burst, now);
            burst.drain(..).for_each(|frame| right.release(frame));
            receive(&mut left, now);
            let (rx, tx) = right.counts();
            let held = right.held() as u64;
            let entered = rx.entered + rx.duplicated + tx.entered + tx.duplicated;
            prop_assert_eq!(entered, rx.left + rx.lost + tx.left + tx.lost + held);
        }
        let mut right = right.into_inner();
        for _ in 0..8 {
            receive(&mut left, LATER);
            receive(&mut right, LATER);
        }
        prop_assert_eq!((left.available(), right.available()), (256, 256));
    }
}
