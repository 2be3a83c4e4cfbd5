//! A device that receives the packets of a capture.

use std::os::fd::BorrowedFd;

use clock::{Duration, Instant};
use frame::{Frame, Pool, Region};

use super::Capture;
use crate::{BURST, Burst, Capabilities, Device, DeviceCounters, ForeignFrames};

/// How fast a capture is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As fast as frames are taken.
    Unlimited,
    /// With the pauses of the recording, counted from the first turn of the engine.
    Recorded,
}

/// How a capture is replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayConfig {
    /// How fast.
    pub pace: Pace,
    /// How often the whole capture is played; `None` for without end.
    pub loops: Option<u64>,
    /// Frames of the device's pool.
    pub frames: usize,
    /// Octets of one frame. A packet that is longer is dropped and counted.
    pub slot_size: u16,
}

impl Default for ReplayConfig {
    /// Once, as fast as possible, with 1024 frames of 2048 octets.
    fn default() -> ReplayConfig {
        ReplayConfig { pace: Pace::Unlimited, loops: Some(1), frames: 1024, slot_size: 2048 }
    }
}

/// Receives the packets of a capture and swallows what is sent.
#[derive(Debug)]
pub struct PcapReplay {
    capture: Capture,
    config: ReplayConfig,
    pool: Pool,
    /// The packet that comes next, and the round that it belongs to.
    next: usize,
    round: u64,
    /// When the current round started; `None` before the first turn.
    round_start: Option<Instant>,
    /// Sent frames of other pools, until their owner takes them.
    foreign: ForeignFrames,
    counters: DeviceCounters,
}

impl PcapReplay {
    /// Prepares to replay `capture`.
    ///
    /// # Errors
    /// If the frames' memory cannot be mapped.
    pub fn new(capture: Capture, config: ReplayConfig) -> std::io::Result<PcapReplay> {
        let region = Region::anonymous(config.frames * usize::from(config.slot_size))?;
        Ok(PcapReplay {
            pool: Pool::new(region, config.slot_size, 0),
            capture,
            config,
            next: 0,
            round: 0,
            round_start: None,
            foreign: ForeignFrames::default(),
            counters: DeviceCounters::default(),
        })
    }

    /// Whether every packet has been received as often as asked.
    pub fn is_finished(&self) -> bool {
        self.capture.is_empty() || self.config.loops.is_some_and(|loops| self.round >= loops)
    }

    /// When the next packet is due; `None` if there is none, or no turn has been taken yet.
    fn due(&self) -> Option<Instant> {
        let packet = self.capture.get(self.next).filter(|_| !self.is_finished())?;
        match self.config.pace {
            Pace::Unlimited => Some(Instant::ZERO),
            Pace::Recorded => Some(self.round_start? + self.since_first(packet.time_ns)),
        }
    }

    /// Time from the first packet to `time_ns`; zero for one that is out of order.
    fn since_first(&self, time_ns: u64) -> Duration {
        let first = self.capture.get(0).map_or(time_ns, |packet| packet.time_ns);
        Duration::from_nanos(time_ns.saturating_sub(first))
    }

    /// Moves on to the next packet. A round follows the last one's end at once.
    fn advance(&mut self, due: Instant) {
        self.next += 1;
        if self.next == self.capture.len() {
            self.next = 0;
            self.round += 1;
            self.round_start = Some(due);
        }
    }
}

impl Device for PcapReplay {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            description: format!("replay of {} packets", self.capture.len()),
            mtu: 1500,
            queues: 1,
            ..Capabilities::default()
        }
    }

    fn rx_burst(&mut self, burst: &mut Burst, now: Instant) -> usize {
        self.round_start.get_or_insert(now);
        let before = burst.len();
        for _ in 0..BURST.min(burst.remaining_capacity()) {
            let Some(due) = self.due().filter(|&due| due <= now) else { break };
            let Some(mut frame) = self.pool.alloc() else { break };
            let packet = self.capture.get(self.next).expect("what is due is there");
            if packet.frame.len() <= frame.tailroom() {
                frame.copy_from(packet.frame);
                burst.push(frame);
            } else {
                self.counters.rx_dropped_invalid += 1;
                self.pool.release(frame);
            }
            self.advance(due);
        }
        let received = burst.len() - before;
        self.counters.rx_frames += received as u64;
        received
    }

    fn tx_burst(&mut self, burst: &mut Burst, _now: Instant) -> usize {
        let count = self.foreign.room_for(&self.pool, burst);
        burst.drain(..count).for_each(|frame| self.foreign.retire(&mut self.pool, frame));
        self.counters.tx_frames += count as u64;
        count
    }

    fn alloc(&mut self) -> Option<Frame> {
        self.pool.alloc()
    }

    fn release(&mut self, frame: Frame) {
        self.pool.release(frame);
    }

    fn take_foreign(&mut self) -> Option<Frame> {
        self.foreign.take()
    }

    fn wait_fds<'a>(&'a self, _fds: &mut Vec<BorrowedFd<'a>>) {}

    fn prepare_wait(&mut self) -> bool {
        self.is_finished() || self.round_start.is_some() && self.config.pace == Pace::Recorded
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due()
    }

    fn counters(&self) -> DeviceCounters {
        self.counters
    }
}
