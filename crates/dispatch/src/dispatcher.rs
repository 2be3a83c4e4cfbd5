//! The end with the real device.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use clock::Instant;
use device::{Burst, Capabilities, Device, DeviceCounters, SuperSegment, Taken};
use frame::Frame;

use crate::bell::Bell;
use crate::lane::{DispatcherEnd, lane};
use crate::scatter::{Place, Scatter};
use crate::worker::{self, Worker};
use crate::{OUTSTANDING_MAX, STOCK};

/// How long a dispatcher that ends waits for its workers to bring frames back. Memory of frames that stay away is lost.
const FAREWELL: Duration = Duration::from_secs(1);
const FAREWELL_STEP: Duration = Duration::from_millis(1);

/// The device of the engine that receives and sends for all.
///
/// [`Device::rx_burst`] returns how many frames moved, those of workers included; what it appends is the own engine's.
pub struct Dispatcher {
    device: Box<dyn Device>,
    scatter: Scatter,
    /// One for each worker.
    lanes: Vec<DispatcherEnd>,
    /// Frames of the burst at hand, by worker. Empty between two calls.
    sorted: Vec<Burst>,
    /// Of workers, and not yet taken by the device.
    answers: Burst,
    /// The lane whose frames are taken back first next time.
    next: usize,
    bell: Bell,
    passed: Passed,
}

/// Frames that the device counts, and that are not the own engine's.
#[derive(Default)]
struct Passed {
    /// Received, and for workers.
    down: u64,
    /// Of these, frames for workers that were too far behind.
    dropped: u64,
    /// Answers of workers that the device has taken.
    up: u64,
}

/// Shares a device: with one worker for each flow that `scatter` does not leave to the dispatcher's own engine. Fails for want of descriptors.
///
/// Drop the workers first. The dispatcher then collects their frames.
pub fn share(
    mut device: Box<dyn Device>,
    workers: usize,
    scatter: Scatter,
) -> io::Result<(Dispatcher, Vec<Worker>)> {
    let bell = Bell::new()?;
    let offer = worker::Offer::of(&mut *device);
    let (mut lanes, mut made) = (Vec::new(), Vec::new());
    for number in 0..workers {
        let theirs = Bell::new()?;
        let (ours, end) = lane(&bell, &theirs);
        lanes.push(ours);
        made.push(Worker::new(end, theirs, offer.clone(), number));
    }
    let sorted = (0..workers).map(|_| Burst::new()).collect();
    let (answers, passed) = (Burst::new(), Passed::default());
    let mut dispatcher = Dispatcher { device, scatter, lanes, sorted, answers, next: 0, bell, passed };
    (0..workers).for_each(|worker| dispatcher.lend(worker, STOCK));
    Ok((dispatcher, made))
}

impl Dispatcher {
    /// Hands out what the device has received; what is the own engine's stays in `burst`, behind its first `before` frames.
    fn hand_out(&mut self, burst: &mut Burst, before: usize) {
        let received: Burst = burst.drain(before..).collect();
        for frame in received {
            match self.scatter.place(frame.bytes()) {
                Place::Own => burst.push(frame),
                Place::Worker(number) => self.sorted[number].push(frame),
            }
        }
        for (lane, frames) in self.lanes.iter_mut().zip(&mut self.sorted) {
            self.passed.down += frames.len() as u64;
            lane.hand_over(frames);
            self.passed.dropped += frames.len() as u64;
            frames.drain(..).for_each(|frame| self.device.release(frame));
        }
    }

    /// Takes a burst of what workers give back, and sends their answers as far as there is room. Returns how many frames came.
    fn bring_back(&mut self, now: Instant) -> usize {
        let mut came = 0;
        for turn in 0..self.lanes.len() {
            let mut returned = Burst::new();
            let at = (self.next + turn) % self.lanes.len();
            if self.answers.remaining_capacity() < returned.capacity() {
                break; // There may be as many answers.
            }
            self.lanes[at].take_back(&mut returned);
            came += returned.len();
            self.sort_out(returned);
            self.send_answers(now);
        }
        self.next = (self.next + 1) % self.lanes.len();
        if came == 0 && !self.answers.is_empty() {
            came = self.send_answers(now);
        }
        came
    }

    /// Sends what there is room for. Returns how many the device has taken.
    fn send_answers(&mut self, now: Instant) -> usize {
        let sent = self.device.tx_burst(&mut self.answers, now);
        self.passed.up += sent as u64;
        sent
    }

    /// Keeps the answers, and releases the rest.
    fn sort_out(&mut self, returned: Burst) {
        for frame in returned {
            match frame.is_empty() {
                true => self.device.release(frame),
                false => self.answers.push(frame),
            }
        }
    }

    /// Gives workers the empty frames that they ask for.
    fn lend_what_is_wanted(&mut self) {
        for worker in 0..self.lanes.len() {
            if self.lanes[worker].is_asked() {
                let wanted = self.lanes[worker].take_request();
                self.lend(worker, wanted);
            }
        }
    }

    fn lend(&mut self, worker: usize, count: usize) {
        let mut frames = Burst::new();
        while frames.len() < count.min(frames.capacity())
            && let Some(frame) = self.device.alloc()
        {
            frames.push(frame);
        }
        self.lanes[worker].hand_over(&mut frames);
        frames.drain(..).for_each(|frame| self.device.release(frame));
    }

    fn outstanding(&self) -> usize {
        self.lanes.iter().map(DispatcherEnd::outstanding).sum()
    }

    /// Releases what has come back, answers and all: the device is about to go.
    fn collect(&mut self) {
        for at in 0..self.lanes.len() {
            let mut returned = Burst::new();
            self.lanes[at].take_back(&mut returned);
            returned.into_iter().chain(self.answers.drain(..)).for_each(|frame| self.device.release(frame));
        }
    }
}

impl Device for Dispatcher {
    fn capabilities(&self) -> Capabilities {
        let capabilities = self.device.capabilities();
        let description = format!("{}, dispatcher of {} workers", capabilities.description, self.lanes.len());
        Capabilities { description, ..capabilities }
    }

    fn rx_burst(&mut self, burst: &mut Burst, now: Instant) -> usize {
        self.bell.disarm();
        let came_back = self.bring_back(now);
        self.lend_what_is_wanted();
        let before = burst.len();
        let received = self.device.rx_burst(burst, now);
        if received > 0 {
            self.hand_out(burst, before);
        }
        came_back + received
    }

    fn tx_burst(&mut self, burst: &mut Burst, now: Instant) -> usize {
        self.device.tx_burst(burst, now)
    }

    fn tx_super_segment(&mut self, packet: &mut SuperSegment<'_>, now: Instant) -> Taken {
        self.device.tx_super_segment(packet, now)
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

    fn set_mtu(&mut self, mtu: u16) {
        self.device.set_mtu(mtu);
    }

    fn wait_fds<'a>(&'a self, fds: &mut Vec<BorrowedFd<'a>>) {
        let before = fds.len();
        self.device.wait_fds(fds);
        // Without a descriptor of the device it must be polled, whatever the workers do.
        if fds.len() > before {
            fds.push(self.bell.fd());
        }
    }

    fn prepare_wait(&mut self) -> bool {
        self.bell.arm();
        let is_quiet = |lane: &DispatcherEnd| lane.is_empty() && !lane.is_asked();
        self.device.prepare_wait() && self.lanes.iter().all(is_quiet)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.device.poll_timeout()
    }

    fn holds_unsent(&self) -> bool {
        !self.answers.is_empty() || self.device.holds_unsent()
    }

    /// Those of the device without the frames of workers, which count these themselves: sums over all its ends are right. Frames
    /// for workers that were too far behind are lost here, and workers' frames are not held by this one's user.
    fn counters(&self) -> DeviceCounters {
        let counters = self.device.counters();
        let elsewhere = (self.outstanding() + self.answers.len()) as u64;
        DeviceCounters {
            rx_frames: counters.rx_frames.saturating_sub(self.passed.down),
            tx_frames: counters.tx_frames.saturating_sub(self.passed.up),
            rx_dropped_full: counters.rx_dropped_full + self.passed.dropped,
            frames_held: counters.frames_held.saturating_sub(elsewhere),
            ..counters
        }
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        let mut waited = Duration::ZERO;
        loop {
            let are_gone = self.lanes.iter().all(DispatcherEnd::is_abandoned);
            self.collect();
            let is_done = self.lanes.iter().all(DispatcherEnd::is_empty) && are_gone;
            if is_done || waited >= FAREWELL {
                return;
            }
            if !are_gone {
                std::thread::sleep(FAREWELL_STEP);
                waited += FAREWELL_STEP;
            }
        }
    }
}

const _: () = assert!(STOCK <= device::BURST && STOCK < OUTSTANDING_MAX);
