//! poll(2).

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::check;
use crate::raw::raw;

/// `struct pollfd`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PollFd {
    /// The descriptor; negative: to be ignored.
    pub fd: RawFd,
    /// What is waited for.
    pub events: i16,
    /// What there is.
    pub revents: i16,
}

/// How long a call sleeps, in memory that the kernel reads when the call begins.
///
/// A signal handler that runs on the thread just before that, when nothing can keep it from sleeping any more, can end the time:
/// [`Timeout::expire`].
#[derive(Debug, Default)]
#[repr(C)]
pub struct Timeout {
    secs: AtomicI64,
    nanos: AtomicI64,
}

/// Some decades: of a longer time the kernel may make none.
const FOREVER_SECS: i64 = 1 << 30;

impl Timeout {
    /// None.
    pub const fn zero() -> Timeout {
        Timeout { secs: AtomicI64::new(0), nanos: AtomicI64::new(0) }
    }

    /// `None` is for ever.
    pub fn set(&self, time: Option<Duration>) {
        let (secs, nanos) = time.map_or((u64::MAX, 0), |time| (time.as_secs(), time.subsec_nanos()));
        self.secs.store(
            i64::try_from(secs).map_or(FOREVER_SECS, |secs| secs.min(FOREVER_SECS)),
            Ordering::Relaxed,
        );
        self.nanos.store(nanos.into(), Ordering::Relaxed);
    }

    /// It is over. May be called by signal handlers.
    pub fn expire(&self) {
        self.secs.store(0, Ordering::Relaxed);
        self.nanos.store(0, Ordering::Relaxed);
    }

    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        self.secs.load(Ordering::Relaxed) == 0 && self.nanos.load(Ordering::Relaxed) == 0
    }
}

/// ppoll(2): `None` waits for ever, `mask` is the kernel's `sigset_t`. Returns the number of descriptors with something.
pub fn ppoll(fds: &mut [PollFd], timeout: Option<Duration>, mask: Option<u64>) -> io::Result<usize> {
    let own = Timeout::zero();
    own.set(timeout);
    ppoll_within(fds, &own, mask)
}

/// The same with a time that may end before the call begins. The kernel writes to it what is left.
pub fn ppoll_within(fds: &mut [PollFd], timeout: &Timeout, mask: Option<u64>) -> io::Result<usize> {
    let time = std::ptr::from_ref(timeout);
    let mask = mask.as_ref().map_or(std::ptr::null(), |mask| &raw const *mask);
    let (room, count) = (fds.as_mut_ptr(), fds.len());
    // SAFETY: `fds` has `count` elements of the kernel's layout; `time` has the layout of a `struct timespec` and, as it consists of
    // atomics, may be written by the kernel through a shared reference; mask is null or has the 8 octets that are told. All live until the
    // call returns.
    check(unsafe { raw!(libc::SYS_ppoll, room, count, time, mask, 8usize) })
}

// The kernel's `struct timespec` on all 64-bit machines.
const _: () = assert!(size_of::<Timeout>() == size_of::<libc::timespec>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_does_not_sleep_when_its_time_has_ended_before() {
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let timeout = Timeout::zero();
            timeout.set(None);
            assert!(!timeout.is_over());
            timeout.expire();
            let polled = ppoll_within(&mut [], &timeout, None);
            let epfd = crate::epoll_create(libc::EPOLL_CLOEXEC).unwrap();
            let waited =
                crate::epoll_pwait2(epfd, &mut [libc::epoll_event { events: 0, u64: 0 }], &timeout, None);
            let _ = done.send((polled.unwrap(), waited.unwrap()));
        });
        assert_eq!(is_done.recv_timeout(Duration::from_secs(60)), Ok((0, 0)));
    }

    #[test]
    fn a_call_sleeps_as_long_as_it_is_told_and_no_longer() {
        let began = std::time::Instant::now();
        assert_eq!(ppoll(&mut [], Some(Duration::from_millis(20)), None).unwrap(), 0);
        assert!(began.elapsed() >= Duration::from_millis(20));
    }
}
