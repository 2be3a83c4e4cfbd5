//! The clock that all processes of this machine share, and that goes on from one broker to the next.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of CLOCK_BOOTTIME.
pub(crate) fn nanoseconds() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64 // Neither is negative.
}
