//! A wire in memory with faults, whose ends engines have and the simulation can still look at.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use clock::{Duration, Instant};
use device::fault::{FaultInjector, Faults};
use device::memory::{self, MemoryDevice};
use device::{Burst, Capabilities, Device, DeviceCounters};
use frame::Frame;

type Troubled = FaultInjector<MemoryDevice>;

/// Both ends: that of host 0 and that of host 1.
pub(super) struct Wire {
    ends: [Arc<Mutex<Troubled>>; 2],
    frames: usize,
}

/// One end, as an engine has it.
pub(super) struct End {
    device: Arc<Mutex<Troubled>>,
    /// What an engine would sleep on. Nobody does: the simulation sees by itself that frames have come.
    descriptor: std::io::PipeReader,
}

impl Wire {
    /// A wire that troubles what is sent, at both ends.
    pub(super) fn new(config: &memory::Config, faults: Faults, seed: u64) -> Wire {
        let (mut left, mut right) = memory::pair(config);
        let end =
            |device, seed| Arc::new(Mutex::new(FaultInjector::new(device, seed, Faults::default(), faults)));
        Wire { ends: [end(left.remove(0), seed), end(right.remove(0), !seed)], frames: config.frames }
    }

    pub(super) fn ends(&self) -> [End; 2] {
        self.ends.each_ref().map(|device| {
            let (descriptor, _) = std::io::pipe().expect("descriptors for a simulation");
            End { device: Arc::clone(device), descriptor }
        })
    }

    /// Whether frames wait at the end of a host.
    pub(super) fn has_frames(&self, host: usize) -> bool {
        !lock(&self.ends[host]).prepare_wait()
    }

    /// Sees that every frame is back in its pool once none is on its way. Returns how many faults there were.
    pub(super) fn account(self) -> Result<u64, String> {
        let counts = self.ends.each_ref().map(|end| lock(end).counts().1);
        let faults = |counts: &device::fault::FaultCounts| {
            counts.lost + counts.duplicated + counts.reordered + counts.delayed
        };
        let mut devices = self.ends.map(|end| {
            let troubled = Arc::into_inner(end).expect("the engines are gone");
            troubled.into_inner().expect("nothing panicked while it was locked").into_inner()
        });
        for device in &mut devices {
            let mut burst = Burst::new();
            while device.rx_burst(&mut burst, Instant::ZERO + Duration::from_secs(3600)) > 0 {
                burst.drain(..).for_each(|frame| device.release(frame));
            }
        }
        let available = devices.each_mut().map(MemoryDevice::available);
        if available != [self.frames; 2] {
            return Err(format!("of {} frames each, {available:?} are back in their pools", self.frames));
        }
        Ok(counts.iter().map(faults).sum())
    }
}

fn lock(device: &Mutex<Troubled>) -> MutexGuard<'_, Troubled> {
    device.lock().expect("nothing panicked while it was locked")
}

impl Device for End {
    fn capabilities(&self) -> Capabilities {
        lock(&self.device).capabilities()
    }

    fn rx_burst(&mut self, burst: &mut Burst, now: Instant) -> usize {
        lock(&self.device).rx_burst(burst, now)
    }

    fn tx_burst(&mut self, burst: &mut Burst, now: Instant) -> usize {
        lock(&self.device).tx_burst(burst, now)
    }

    fn alloc(&mut self) -> Option<Frame> {
        lock(&self.device).alloc()
    }

    fn release(&mut self, frame: Frame) {
        lock(&self.device).release(frame);
    }

    fn take_foreign(&mut self) -> Option<Frame> {
        lock(&self.device).take_foreign()
    }

    fn set_mtu(&mut self, mtu: u16) {
        lock(&self.device).set_mtu(mtu);
    }

    fn wait_fds<'a>(&'a self, fds: &mut Vec<BorrowedFd<'a>>) {
        fds.push(self.descriptor.as_fd());
    }

    fn prepare_wait(&mut self) -> bool {
        lock(&self.device).prepare_wait()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        lock(&self.device).poll_timeout()
    }

    fn holds_unsent(&self) -> bool {
        lock(&self.device).holds_unsent()
    }

    fn counters(&self) -> DeviceCounters {
        lock(&self.device).counters()
    }
}
