//! The end of an engine that has no queue of its own.

use std::os::fd::BorrowedFd;

use arrayvec::ArrayVec;
use clock::Instant;
use device::{Burst, Capabilities, Device, DeviceCounters};
use frame::Frame;

use crate::STOCK;
use crate::bell::Bell;
use crate::lane::WorkerEnd;

/// What the shared device can do for a worker.
#[derive(Clone)]
pub(crate) struct Offer {
    capabilities: Capabilities,
    /// Octets of a frame.
    room: usize,
    /// Octets in front of a fresh packet.
    headroom: usize,
}

/// Octets in front of an IP packet that a frame needs: the addresses, two VLAN tags, the type.
const LINK_HEADER_MAX: usize = 22;

impl Offer {
    pub(crate) fn of(device: &mut dyn Device) -> Offer {
        let (mut room, mut headroom) = (usize::MAX, 0);
        if let Some(frame) = device.alloc() {
            headroom = frame.headroom();
            room = headroom + frame.tailroom();
            device.release(frame);
        }
        Offer { capabilities: device.capabilities(), room, headroom }
    }

    /// The largest IP packet of a link that takes `mtu` octets, as far as frames hold it.
    fn mtu(&self, mtu: u16) -> u16 {
        mtu.min(u16::try_from(self.room.saturating_sub(LINK_HEADER_MAX)).unwrap_or(u16::MAX))
    }
}

/// A device whose frames come from a [`crate::Dispatcher`], and leave by it.
///
/// All frames are those of the shared device: give it no other ones. Super-segments are not taken: the stack cuts them.
pub struct Worker {
    end: WorkerEnd,
    bell: Bell,
    offer: Offer,
    capabilities: Capabilities,
    /// Empty frames for [`Device::alloc`].
    stock: ArrayVec<Frame, STOCK>,
    /// Some were asked for, and none have come since.
    has_asked: bool,
    counters: DeviceCounters,
}

impl Worker {
    pub(crate) fn new(end: WorkerEnd, bell: Bell, offer: Offer, number: usize) -> Worker {
        let capabilities = Capabilities {
            description: format!("{}, worker {number}", offer.capabilities.description),
            mtu: offer.mtu(offer.capabilities.mtu),
            tso_max: 0,
            ..offer.capabilities.clone()
        };
        let (stock, counters) = (ArrayVec::new(), DeviceCounters::default());
        Worker { end, bell, offer, capabilities, stock, has_asked: false, counters }
    }

    /// Sees to it that there are frames in time. If the dispatcher had none to spare, an empty stock asks again.
    fn replenish(&mut self) {
        let has_enough = self.stock.len() >= STOCK / 2;
        if !has_enough && (!self.has_asked || self.stock.is_empty()) {
            self.has_asked = true;
            self.end.want(STOCK - self.stock.len());
        }
    }

    /// Keeps a frame without its packet, or gives it back if there are enough.
    fn put_by(&mut self, mut frame: Frame) {
        frame.reset(self.offer.headroom);
        if let Err(full) = self.stock.try_push(frame) {
            self.end.give_back([full.element()].into_iter());
        }
    }
}

impl Device for Worker {
    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    fn rx_burst(&mut self, burst: &mut Burst, _now: Instant) -> usize {
        self.bell.disarm();
        let before = burst.len();
        let mut came = Burst::new();
        // No more than fits: what is empty is put by, and the rest is the caller's.
        if burst.remaining_capacity() == came.capacity() {
            self.end.receive(&mut came);
        }
        for frame in came {
            if frame.is_empty() {
                self.has_asked = false;
                self.put_by(frame);
            } else {
                burst.push(frame);
            }
        }
        let received = burst.len() - before;
        self.counters.rx_frames += received as u64;
        self.counters.frames_held += received as u64;
        received
    }

    fn tx_burst(&mut self, burst: &mut Burst, _now: Instant) -> usize {
        let sent = burst.len();
        self.end.give_back(burst.drain(..));
        self.counters.tx_frames += sent as u64;
        self.counters.frames_held = self.counters.frames_held.saturating_sub(sent as u64);
        sent
    }

    fn alloc(&mut self) -> Option<Frame> {
        let frame = self.stock.pop();
        self.replenish();
        self.counters.frames_held += u64::from(frame.is_some());
        frame
    }

    fn release(&mut self, frame: Frame) {
        self.counters.frames_held = self.counters.frames_held.saturating_sub(1);
        self.put_by(frame);
    }

    fn set_mtu(&mut self, mtu: u16) {
        self.capabilities.mtu = self.offer.mtu(mtu);
    }

    fn wait_fds<'a>(&'a self, fds: &mut Vec<BorrowedFd<'a>>) {
        fds.push(self.bell.fd());
    }

    fn prepare_wait(&mut self) -> bool {
        self.bell.arm();
        self.end.is_empty()
    }

    fn counters(&self) -> DeviceCounters {
        self.counters
    }
}

impl Drop for Worker {
    /// Gives all frames back, for the dispatcher to collect.
    fn drop(&mut self) {
        self.end.give_back(std::mem::take(&mut self.stock).into_iter());
        let mut left = Burst::new();
        self.end.receive(&mut left);
        while !left.is_empty() {
            left.iter_mut().for_each(|frame| frame.set_len(0));
            self.end.give_back(left.drain(..));
            self.end.receive(&mut left);
        }
    }
}
