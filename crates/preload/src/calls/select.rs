//! select(2) and pselect(2), as poll(2) over the descriptors of their sets.

use std::ffi::{c_int, c_ulong};
use std::time::{Duration, Instant};

use crate::asked::{self, PollFd, SignalMask, Verdict};
use libc::{
    FD_SETSIZE, POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, fd_set, sigset_t, timespec, timeval,
};
use posix::Errno;

use crate::answer::{Asked, active, ours};
use crate::memory::{self, EINVAL};

const WORD_BITS: usize = c_ulong::BITS as usize;

/// For each of the three sets, the events to ask poll(2) for, and the answers that count (`POLLIN_SET` and the like in the kernel's
/// select.c).
const MEANING: [(i16, i16); 3] =
    [(POLLIN, POLLIN | POLLHUP | POLLERR), (POLLOUT, POLLOUT | POLLERR), (POLLPRI, POLLPRI)];

/// The sets of a select(2), as the bits of their words. A set may have more than `FD_SETSIZE` descriptors, if the program made it so.
#[derive(Clone, Copy)]
pub(crate) struct Sets {
    words: [*mut c_ulong; 3],
    count: usize,
}

impl Sets {
    /// # Safety
    /// Each pointer is null or has `count` bits, for as long as the result is used.
    pub(crate) unsafe fn new(
        count: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
    ) -> Sets {
        Sets { words: [read.cast(), write.cast(), except.cast()], count: usize::try_from(count).unwrap_or(0) }
    }

    /// Whether any descriptor of the sets is ours. What is wrong with a set the kernel says.
    pub(crate) fn any_ours(&self) -> bool {
        let is_bad =
            |set: &*mut c_ulong| !set.is_null() && memory::is_bad(set.addr(), self.count.div_ceil(8));
        if self.words.iter().any(is_bad) {
            return false;
        }
        active() && (0..self.count).any(|fd| ours(fd as c_int) && (0..3).any(|set| self.has(set, fd)))
    }

    fn has(&self, set: usize, fd: usize) -> bool {
        let words = self.words[set];
        // SAFETY: not null, so it has the word of each descriptor below `count`.
        !words.is_null() && unsafe { *words.add(fd / WORD_BITS) } >> (fd % WORD_BITS) & 1 == 1
    }

    /// The descriptors of the sets, each once.
    fn polled(&self) -> Vec<PollFd> {
        let count = self.count.min(if self.count > FD_SETSIZE { descriptors_max() } else { FD_SETSIZE });
        let events = |fd| (0..3).filter(|set| self.has(*set, fd)).fold(0, |all, set| all | MEANING[set].0);
        let entries = (0..count).map(|fd| PollFd { fd: fd as c_int, events: events(fd), revents: 0 });
        entries.filter(|entry| entry.events != 0).collect()
    }

    /// Leaves those in the sets that are ready, and returns how many that are.
    fn retain(&self, ready: &[PollFd]) -> usize {
        let mut kept = 0;
        for (set, (asked, counts)) in MEANING.into_iter().enumerate() {
            for entry in ready.iter().filter(|entry| entry.events & asked != 0) {
                if entry.revents & counts != 0 {
                    kept += 1;
                } else {
                    self.remove(set, entry.fd as usize);
                }
            }
        }
        kept
    }

    fn remove(&self, set: usize, fd: usize) {
        // SAFETY: `fd` was found in this set, so the set is not null and has that word.
        unsafe { *self.words[set].add(fd / WORD_BITS) &= !(1 << (fd % WORD_BITS)) }
    }
}

/// Places of the kernel's table of descriptors: it looks at no more of a set, however large a count is given, as by programs that give
/// getdtablesize(3) and a set that is smaller.
fn descriptors_max() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let places = status.lines().find_map(|line| line.strip_prefix("FDSize:")?.trim().parse().ok());
    places.unwrap_or(usize::MAX)
}

/// # Safety
/// As select(2).
pub(crate) unsafe fn select(sets: Sets, timeout: *mut timeval) -> Asked<c_int> {
    if timeout.is_null() {
        return wait(sets, None, None);
    }
    // SAFETY: as the caller says.
    let given = unsafe { memory::copy(timeout)? };
    let seconds = u64::try_from(given.tv_sec).map_err(|_| EINVAL)?;
    let microseconds = u64::try_from(given.tv_usec).map_err(|_| EINVAL)?;
    let span = Duration::from_secs(seconds).saturating_add(Duration::from_micros(microseconds));
    let start = Instant::now();
    let ready = wait(sets, Some(span), None)?;
    if matches!(ready, Verdict::Done(_)) {
        let left = span.saturating_sub(start.elapsed());
        // SAFETY: as above; Linux writes the remaining time.
        unsafe { *timeout = timeval { tv_sec: left.as_secs() as _, tv_usec: left.subsec_micros().into() } };
    }
    Ok(ready)
}

/// # Safety
/// As pselect(2).
pub(crate) unsafe fn pselect(sets: Sets, timeout: *const timespec, mask: *const sigset_t) -> Asked<c_int> {
    // SAFETY: as the caller says.
    unsafe { wait(sets, memory::timeout(timeout)?, memory::signal_mask(mask)?) }
}

fn wait(sets: Sets, timeout: Option<Duration>, mask: Option<SignalMask>) -> Asked<c_int> {
    let mut polled = sets.polled();
    Ok(match asked::poll(&mut polled, timeout, mask) {
        Verdict::Done(Ok(_)) if polled.iter().any(|entry| entry.revents & POLLNVAL != 0) => {
            Verdict::Done(Err(Errno(libc::EBADF)))
        }
        Verdict::Done(Ok(_)) => Verdict::Done(Ok(sets.retain(&polled) as c_int)),
        Verdict::Done(Err(error)) => Verdict::Done(Err(error)),
        Verdict::Kernel => Verdict::Kernel,
    })
}
