//! Faults on purpose: a device that loses, doubles, delays, reorders and damages what passes through it.
//!
//! Everything is decided by a seeded generator in the order in which frames come, so a run with the same seed and the
//! same frames at the same instants repeats exactly.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use clock::{Duration, Instant};
use frame::Frame;

use crate::{BURST, Burst, Capabilities, Device, DeviceCounters};

/// A reordered frame goes ahead after this time even if none comes that could overtake it.
const REORDER_PATIENCE: Duration = Duration::from_millis(1);
/// A reordered frame lets up to this many others pass.
const OVERTAKERS_MAX: u64 = 8;

/// How often each fault happens in one direction: probabilities from 0 to 1 per frame.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// The frame is lost.
    pub loss: f64,
    /// A copy of it arrives too.
    pub duplication: f64,
    /// One to eight later frames overtake it.
    pub reordering: f64,
    /// One of its bits is flipped.
    pub corruption: f64,
    /// Its end is cut off, at least one octet and at most all of it.
    pub truncation: f64,
    /// It arrives later, by a time evenly spread between `delay_min` and `delay_max`.
    pub delay: f64,
    /// Shortest delay.
    pub delay_min: Duration,
    /// Longest delay.
    pub delay_max: Duration,
}

/// How often each fault happened in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Frames that entered.
    pub entered: u64,
    /// Frames that left, copies included.
    pub left: u64,
    /// Frames lost.
    pub lost: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Frames that had to let others pass.
    pub reordered: u64,
    /// Frames with a flipped bit.
    pub corrupted: u64,
    /// Frames cut short.
    pub truncated: u64,
    /// Frames delayed.
    pub delayed: u64,
}

/// Wraps a device and troubles what it receives and sends.
///
/// Frames are lost by releasing them into the device below, so those to be sent must be frames that it takes back.
#[derive(Debug)]
pub struct FaultInjector<D> {
    device: D,
    rx: Direction,
    tx: Direction,
}

impl<D: Device> FaultInjector<D> {
    /// Troubles `device`, with the same faults for the same `seed`.
    pub fn new(device: D, seed: u64, rx: Faults, tx: Faults) -> FaultInjector<D> {
        let mut seeds = Random(seed);
        let (rx_seed, tx_seed) = (seeds.draw(), seeds.draw());
        FaultInjector { device, rx: Direction::new(rx, rx_seed), tx: Direction::new(tx, tx_seed) }
    }

    /// What happened so far to received and to sent frames.
    pub fn counts(&self) -> (FaultCounts, FaultCounts) {
        (self.rx.counts, self.tx.counts)
    }

    /// Number of frames that are being held back.
    pub fn held(&self) -> usize {
        self.rx.held.len() + self.rx.ready.len() + self.tx.held.len() + self.tx.ready.len()
    }

    /// The device inside; frames that are held back are released into it.
    pub fn into_inner(mut self) -> D {
        for direction in [&mut self.rx, &mut self.tx] {
            direction.held.drain(..).for_each(|held| self.device.release(held.frame));
            direction.ready.drain(..).for_each(|frame| self.device.release(frame));
        }
        self.device
    }

    /// Hands frames whose time has come to the device below, as far as it has room.
    fn transmit(&mut self, now: Instant) {
        self.tx.release_due(now);
        let mut burst = Burst::new();
        while let Some(frame) = self.tx.ready.pop_front() {
            burst.push(frame);
            if burst.is_full() || self.tx.ready.is_empty() {
                let sent = self.device.tx_burst(&mut burst, now);
                self.tx.counts.left += sent as u64;
                if !burst.is_empty() {
                    break;
                }
            }
        }
        burst.drain(..).rev().for_each(|frame| self.tx.ready.push_front(frame));
    }
}

impl<D: Device> Device for FaultInjector<D> {
    fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }

    fn rx_burst(&mut self, burst: &mut Burst, now: Instant) -> usize {
        self.transmit(now);
        if self.rx.ready.len() < BURST {
            let mut arrived = Burst::new();
            self.device.rx_burst(&mut arrived, now);
            for frame in arrived {
                self.rx.enter(frame, &mut self.device, now);
            }
        }
        self.rx.release_due(now);
        let count = self.rx.ready.len().min(burst.remaining_capacity());
        burst.extend(self.rx.ready.drain(..count));
        self.rx.counts.left += count as u64;
        count
    }

    fn tx_burst(&mut self, burst: &mut Burst, now: Instant) -> usize {
        let room = BURST.saturating_sub(self.tx.ready.len());
        let count = room.min(burst.len());
        for frame in burst.drain(..count) {
            self.tx.enter(frame, &mut self.device, now);
        }
        self.transmit(now);
        count
    }

    fn alloc(&mut self) -> Option<Frame> {
        self.device.alloc()
    }

    fn release(&mut self, frame: Frame) {
        self.device.release(frame);
    }

    fn take_foreign(&mut self) -> Option<Frame> {
        self.device.take_foreign()
    }

    fn wait_fds<'a>(&'a self, fds: &mut Vec<BorrowedFd<'a>>) {
        self.device.wait_fds(fds);
    }

    fn prepare_wait(&mut self) -> bool {
        self.rx.ready.is_empty() && self.tx.ready.is_empty() && self.device.prepare_wait()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let held = [&self.rx, &self.tx].into_iter().filter_map(Direction::next_due).min();
        held.into_iter().chain(self.device.poll_timeout()).min()
    }

    fn holds_unsent(&self) -> bool {
        self.device.holds_unsent()
    }

    fn counters(&self) -> DeviceCounters {
        self.device.counters()
    }
}

/// What happens to frames that go one way.
#[derive(Debug)]
struct Direction {
    faults: Faults,
    random: Random,
    /// Frames whose time has not come, in no order.
    held: Vec<Held>,
    /// Frames whose time has come.
    ready: VecDeque<Frame>,
    counts: FaultCounts,
}

#[derive(Debug)]
struct Held {
    frame: Frame,
    due: Instant,
    /// Due as well once this many frames have entered.
    overtaken_at: u64,
}

impl Direction {
    fn new(faults: Faults, seed: u64) -> Direction {
        Direction {
            faults,
            random: Random(seed),
            held: Vec::new(),
            ready: VecDeque::new(),
            counts: FaultCounts::default(),
        }
    }

    /// Decides what becomes of `frame`, which enters at `now`.
    fn enter(&mut self, mut frame: Frame, device: &mut impl Device, now: Instant) {
        let fate = self.draw();
        self.counts.entered += 1;
        self.release_overtaken();
        if fate.lost {
            self.counts.lost += 1;
            return device.release(frame);
        }
        if fate.doubled
            && let Some(copy) = copy(&frame, device)
        {
            self.counts.duplicated += 1;
            self.ready.push_back(copy);
        }
        self.damage(&mut frame, &fate);
        if fate.delayed {
            self.counts.delayed += 1;
            self.hold(frame, now + self.delay(fate.lateness), u64::MAX);
        } else if fate.reordered {
            self.counts.reordered += 1;
            let overtaken_at = self.counts.entered + 2 + fate.overtakers % OVERTAKERS_MAX;
            self.hold(frame, now + REORDER_PATIENCE, overtaken_at);
        } else {
            self.ready.push_back(frame);
        }
    }

    /// Draws what happens to one frame. Always takes as many random numbers, so that one fault's probability does not
    /// change where the others strike.
    fn draw(&mut self) -> Fate {
        let Faults { loss, duplication, reordering, corruption, truncation, delay, .. } = self.faults;
        Fate {
            lost: self.random.chance(loss),
            doubled: self.random.chance(duplication),
            reordered: self.random.chance(reordering),
            corrupted: self.random.chance(corruption),
            truncated: self.random.chance(truncation),
            delayed: self.random.chance(delay),
            place: self.random.draw(),
            lateness: self.random.draw(),
            overtakers: self.random.draw(),
        }
    }

    fn damage(&mut self, frame: &mut Frame, fate: &Fate) {
        if frame.is_empty() {
            return;
        }
        if fate.corrupted {
            self.counts.corrupted += 1;
            let bit = fate.place % (8 * frame.len() as u64);
            frame.bytes_mut()[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        if fate.truncated {
            self.counts.truncated += 1;
            frame.set_len((fate.place % frame.len() as u64) as usize);
        }
    }

    fn hold(&mut self, frame: Frame, due: Instant, overtaken_at: u64) {
        self.held.push(Held { frame, due, overtaken_at });
    }

    /// A delay between the shortest and the longest.
    fn delay(&self, random: u64) -> Duration {
        let (min, max) = (self.faults.delay_min, self.faults.delay_max);
        let range = (max - min).as_nanos();
        min + Duration::from_nanos(random % range.saturating_add(1))
    }

    fn release_overtaken(&mut self) {
        let entered = self.counts.entered;
        self.release_where(|held| held.overtaken_at <= entered);
    }

    fn release_due(&mut self, now: Instant) {
        self.held.sort_by_key(|held| held.due);
        self.release_where(|held| held.due <= now);
    }

    fn release_where(&mut self, mut is_over: impl FnMut(&Held) -> bool) {
        self.ready.extend(self.held.extract_if(.., |held| is_over(held)).map(|held| held.frame));
    }

    fn next_due(&self) -> Option<Instant> {
        self.held.iter().map(|held| held.due).min()
    }
}

/// What happens to one frame, and the numbers that say how.
struct Fate {
    lost: bool,
    doubled: bool,
    reordered: bool,
    corrupted: bool,
    truncated: bool,
    delayed: bool,
    place: u64,
    lateness: u64,
    overtakers: u64,
}

/// A copy of `frame` from the device's pool, if that has a frame left and it fits.
fn copy(frame: &Frame, device: &mut impl Device) -> Option<Frame> {
    let mut copy = device.alloc()?;
    if frame.len() > copy.tailroom() {
        device.release(copy);
        return None;
    }
    copy.copy_from(frame.bytes());
    copy.queue = frame.queue;
    Some(copy)
}

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// True with the given probability.
    fn chance(&mut self, probability: f64) -> bool {
        let unit = (self.draw() >> 11) as f64 / (1u64 << 53) as f64; // 0 <= unit < 1
        unit < probability
    }
}
