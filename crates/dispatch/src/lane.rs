//! The two rings between a dispatcher and one worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use device::Burst;
use frame::Frame;
use rtrb::chunks::ChunkError;
use rtrb::{Consumer, Producer, RingBuffer};

use crate::OUTSTANDING_MAX;
use crate::bell::{Bell, Ringer};

/// The dispatcher's end.
pub(crate) struct DispatcherEnd {
    down: Producer<Frame>,
    up: Consumer<Frame>,
    /// Frames that the worker has, or that are in the rings.
    outstanding: usize,
    wanted: Arc<AtomicUsize>,
    worker: Ringer,
}

/// The worker's end.
pub(crate) struct WorkerEnd {
    down: Consumer<Frame>,
    up: Producer<Frame>,
    wanted: Arc<AtomicUsize>,
    dispatcher: Ringer,
}

/// Joins the two. The rings have room for all frames that may be outstanding, so neither is ever full.
pub(crate) fn lane(dispatcher: &Bell, worker: &Bell) -> (DispatcherEnd, WorkerEnd) {
    let (down, from_dispatcher) = RingBuffer::new(OUTSTANDING_MAX);
    let (up, from_worker) = RingBuffer::new(OUTSTANDING_MAX);
    let wanted = Arc::new(AtomicUsize::new(0));
    let ours = DispatcherEnd {
        down,
        up: from_worker,
        outstanding: 0,
        wanted: Arc::clone(&wanted),
        worker: worker.ringer(),
    };
    let theirs = WorkerEnd { down: from_dispatcher, up, wanted, dispatcher: dispatcher.ringer() };
    (ours, theirs)
}

impl DispatcherEnd {
    /// Moves frames from the front of `burst` to the worker, in order, as far as it may have more.
    pub(crate) fn hand_over(&mut self, burst: &mut Burst) {
        let room = if self.is_abandoned() { 0 } else { OUTSTANDING_MAX - self.outstanding };
        let count = burst.len().min(room);
        if count == 0 {
            return;
        }
        let Ok(chunk) = self.down.write_chunk_uninit(count) else {
            unreachable!("the ring has room for all frames that may be outstanding")
        };
        chunk.fill_from_iter(burst.drain(..count));
        self.outstanding += count;
        self.worker.ring();
    }

    /// Appends frames that come back to `burst`, until it is full.
    pub(crate) fn take_back(&mut self, burst: &mut Burst) {
        let before = burst.len();
        receive(&mut self.up, burst);
        self.outstanding -= burst.len() - before;
    }

    /// The worker asks for empty frames.
    pub(crate) fn is_asked(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) > 0
    }

    /// How many it asks for. It has to ask again for more.
    pub(crate) fn take_request(&self) -> usize {
        self.wanted.swap(0, Ordering::Relaxed)
    }

    /// Frames that are not here.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Nothing has come back that was not taken yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.up.is_empty()
    }

    /// The worker is gone, and nothing comes back any more once the ring is empty.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.up.is_abandoned()
    }
}

impl WorkerEnd {
    /// Appends frames that have come to `burst`, until it is full.
    pub(crate) fn receive(&mut self, burst: &mut Burst) {
        receive(&mut self.down, burst);
    }

    /// Gives frames back: those with a packet are sent, empty ones are free. All of them are taken.
    pub(crate) fn give_back(&mut self, frames: impl ExactSizeIterator<Item = Frame>) {
        if frames.len() == 0 {
            return;
        }
        match self.up.write_chunk_uninit(frames.len()) {
            Ok(chunk) => chunk.fill_from_iter(frames),
            Err(ChunkError::TooFewSlots(_)) => unreachable!("a worker has no more frames than fit the ring"),
        };
        self.dispatcher.ring();
    }

    /// Asks for empty frames, in place of what was asked for and not looked at yet.
    pub(crate) fn want(&self, frames: usize) {
        self.wanted.store(frames, Ordering::Relaxed);
        self.dispatcher.ring();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.down.is_empty()
    }
}

fn receive(ring: &mut Consumer<Frame>, burst: &mut Burst) {
    let count = ring.slots().min(burst.remaining_capacity());
    if let Ok(frames) = ring.read_chunk(count) {
        burst.extend(frames);
    }
}
