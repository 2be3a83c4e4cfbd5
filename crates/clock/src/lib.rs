//! Time as an argument.
//!
//! Pure cores take `now` from their caller: the engine reads the machine's clock, the simulator its own. Nothing in
//! this crate, nor in any pure crate, reads a clock.
#![forbid(unsafe_code)]
#![no_std]

mod duration;

use core::ops::{Add, AddAssign, Sub};

pub use duration::Duration;

/// Nanoseconds since an arbitrary start that all instants of one run share; never goes backwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The arbitrary start.
    pub const ZERO: Instant = Instant(0);

    /// The instant `nanos` nanoseconds after the start.
    pub const fn from_nanos(nanos: u64) -> Instant {
        Instant(nanos)
    }

    /// Nanoseconds since the start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time from `earlier` to `self`; zero if `earlier` is later.
    #[inline]
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    /// Saturates at the end of representable time, some 584 years after the start.
    #[inline]
    fn add(self, span: Duration) -> Instant {
        Instant(self.0.saturating_add(span.as_nanos()))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self.since(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_between_instants_never_go_negative() {
        let early = Instant::from_nanos(5);
        let late = early + Duration::from_micros(1);
        assert_eq!(late - early, Duration::from_micros(1));
        assert_eq!(early - late, Duration::ZERO);
    }

    #[test]
    fn adding_saturates_at_the_end_of_time() {
        assert_eq!(Instant::from_nanos(1) + Duration::MAX, Instant::from_nanos(u64::MAX));
    }
}
