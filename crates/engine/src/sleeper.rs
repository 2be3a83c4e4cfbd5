//! Sleeping until a frame comes, a command comes, or time is up.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use clock::Duration;
use device::Device;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::{read, write};

/// An epoll(7) instance over the descriptors of an engine's devices and an eventfd(2) for its handle.
///
/// A descriptor leaves by itself when its device is dropped, as nothing else holds it open.
pub(crate) struct Sleeper {
    epoll: OwnedFd,
    wake: Arc<OwnedFd>,
}

/// Ends the sleep of one engine.
#[derive(Clone)]
pub(crate) struct Waker(Arc<OwnedFd>);

const WAKE: u64 = 1;
const DEVICE: u64 = 0;

impl Sleeper {
    pub(crate) fn new() -> io::Result<(Sleeper, Waker)> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        epoll::add(&epoll, &wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        let waker = Waker(Arc::clone(&wake));
        Ok((Sleeper { epoll, wake }, waker))
    }

    /// Wakes for this device from now on; false if it has no descriptor, or the system refuses to watch it: then it must be
    /// polled.
    pub(crate) fn watch(&self, device: &dyn Device) -> bool {
        let mut fds: Vec<BorrowedFd<'_>> = Vec::new();
        device.wait_fds(&mut fds);
        let add = |fd: &BorrowedFd<'_>| {
            epoll::add(&self.epoll, fd, epoll::EventData::new_u64(DEVICE), epoll::EventFlags::IN).is_ok()
        };
        !fds.is_empty() && fds.iter().all(add)
    }

    /// Sleeps until something happens or `timeout` is over; a signal ends it too.
    pub(crate) fn sleep(&mut self, timeout: Option<Duration>) {
        let timeout = timeout.map(|span| Timespec {
            tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: span.subsec_nanos().into(),
        });
        let nothing = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = [nothing; 8];
        let count = epoll::wait(&self.epoll, &mut events[..], timeout.as_ref()).unwrap_or(0);
        if events[..count].iter().any(|event| event.data.u64() == WAKE) {
            // Never blocks; what it reads, a count of wake-ups, does not matter.
            let _ = read(&*self.wake, &mut [0; 8]);
        }
    }
}

impl Waker {
    pub(crate) fn wake(&self) {
        // Only fails when the count is at its end: then the engine is awake.
        let _ = write(&*self.0, &1u64.to_ne_bytes());
    }
}
