//! A thread that sends every frame of a device back where it came from.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use clock::Instant;
use device::{Burst, Device};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wire::ChecksumPolicy;

pub(crate) struct Echo<D> {
    shared: Arc<Shared>,
    thread: JoinHandle<D>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    turns: AtomicU64,
    frames_by_queue: [AtomicU64; 2],
}

impl<D: Device + 'static> Echo<D> {
    pub(crate) fn start(mut device: D) -> Echo<D> {
        let shared = Arc::new(Shared::default());
        let thread = thread::spawn({
            let shared = shared.clone();
            move || {
                while !shared.stop.load(Ordering::Relaxed) {
                    turn(&mut device, &shared);
                }
                device
            }
        });
        Echo { shared, thread }
    }

    /// Turns of the loop so far.
    pub(crate) fn turns(&self) -> u64 {
        self.shared.turns.load(Ordering::Relaxed)
    }

    pub(crate) fn frames_by_queue(&self) -> [u64; 2] {
        [0, 1].map(|queue| self.shared.frames_by_queue[queue].load(Ordering::Relaxed))
    }

    pub(crate) fn stop(self) -> D {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn turn(device: &mut impl Device, shared: &Shared) {
    shared.turns.fetch_add(1, Ordering::Relaxed);
    let mut burst = Burst::new();
    if device.rx_burst(&mut burst, Instant::ZERO) == 0 {
        if device.prepare_wait() {
            let mut fds: Vec<BorrowedFd<'_>> = Vec::new();
            device.wait_fds(&mut fds);
            let mut polled: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
            let _ = poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 10_000_000 }));
        }
        return;
    }
    for frame in &mut burst {
        shared.frames_by_queue[usize::from(frame.queue)].fetch_add(1, Ordering::Relaxed);
        turn_around(frame.bytes_mut());
    }
    device.tx_burst(&mut burst, Instant::ZERO);
    burst.drain(..).for_each(|frame| device.release(frame));
}

/// Makes the request its own reply; frames that hold no UDP request stay as they are.
fn turn_around(frame: &mut [u8]) {
    let policy = ChecksumPolicy { verified: false, accept_partial: true };
    if let Ok(headers) = wire::parse_udp(frame, policy) {
        wire::turn_around(frame, &headers, headers.payload_range().len(), false);
    }
}
