//! Spans of time.

use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Div, Mul, Sub};

const NANOS_PER_MICRO: u64 = 1_000;
const NANOS_PER_MILLI: u64 = 1_000_000;
const NANOS_PER_SEC: u64 = 1_000_000_000;

/// A span of time in nanoseconds, up to some 584 years.
///
/// It is one number, where [`core::time::Duration`] is two: what TCP computes for every segment takes one instruction instead of a
/// dozen. Arithmetic saturates.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

impl Duration {
    /// No time.
    pub const ZERO: Duration = Duration(0);
    /// The longest.
    pub const MAX: Duration = Duration(u64::MAX);

    /// `nanos` nanoseconds.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Duration {
        Duration(nanos)
    }

    /// `micros` microseconds.
    #[inline]
    pub const fn from_micros(micros: u64) -> Duration {
        Duration(micros.saturating_mul(NANOS_PER_MICRO))
    }

    /// `millis` milliseconds.
    #[inline]
    pub const fn from_millis(millis: u64) -> Duration {
        Duration(millis.saturating_mul(NANOS_PER_MILLI))
    }

    /// `secs` seconds.
    #[inline]
    pub const fn from_secs(secs: u64) -> Duration {
        Duration(secs.saturating_mul(NANOS_PER_SEC))
    }

    /// `secs` seconds; zero if that is negative.
    pub fn from_secs_f64(secs: f64) -> Duration {
        Duration((secs * NANOS_PER_SEC as f64) as u64)
    }

    /// Nanoseconds.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole microseconds.
    #[inline]
    pub const fn as_micros(self) -> u64 {
        self.0 / NANOS_PER_MICRO
    }

    /// Whole milliseconds.
    #[inline]
    pub const fn as_millis(self) -> u64 {
        self.0 / NANOS_PER_MILLI
    }

    /// Whole seconds.
    #[inline]
    pub const fn as_secs(self) -> u64 {
        self.0 / NANOS_PER_SEC
    }

    /// Nanoseconds beyond whole seconds.
    #[inline]
    pub const fn subsec_nanos(self) -> u32 {
        (self.0 % NANOS_PER_SEC) as u32
    }

    /// Seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NANOS_PER_SEC as f64
    }

    /// Whether it is zero.
    #[inline]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl Add for Duration {
    type Output = Duration;

    #[inline]
    fn add(self, other: Duration) -> Duration {
        Duration(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Duration {
    #[inline]
    fn add_assign(&mut self, other: Duration) {
        *self = *self + other;
    }
}

impl Sub for Duration {
    type Output = Duration;

    #[inline]
    fn sub(self, other: Duration) -> Duration {
        Duration(self.0.saturating_sub(other.0))
    }
}

impl Mul<u32> for Duration {
    type Output = Duration;

    #[inline]
    fn mul(self, factor: u32) -> Duration {
        Duration(self.0.saturating_mul(u64::from(factor)))
    }
}

impl Mul<Duration> for u32 {
    type Output = Duration;

    #[inline]
    fn mul(self, span: Duration) -> Duration {
        span * self
    }
}

impl Div<u32> for Duration {
    type Output = Duration;

    #[inline]
    fn div(self, divisor: u32) -> Duration {
        Duration(self.0 / u64::from(divisor))
    }
}

impl Sum for Duration {
    fn sum<I: Iterator<Item = Duration>>(spans: I) -> Duration {
        spans.fold(Duration::ZERO, Add::add)
    }
}

impl From<Duration> for core::time::Duration {
    #[inline]
    fn from(span: Duration) -> core::time::Duration {
        core::time::Duration::from_nanos(span.0)
    }
}

impl From<core::time::Duration> for Duration {
    fn from(span: core::time::Duration) -> Duration {
        Duration(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        core::time::Duration::from(*self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_the_longest_or_none() {
        let short = Duration::from_millis(1);
        assert_eq!(Duration::MAX + short, Duration::MAX);
        assert_eq!(Duration::from_secs(u64::MAX) * 2, Duration::MAX);
        assert_eq!(short - Duration::from_secs(1), Duration::ZERO);
        assert_eq!(Duration::from(core::time::Duration::MAX), Duration::MAX);
    }

    #[test]
    fn it_reads_as_what_the_standard_library_has() {
        let span = Duration::from_micros(1500);
        assert_eq!(core::time::Duration::from(span), core::time::Duration::from_micros(1500));
        assert_eq!((span.as_nanos(), span.as_micros(), span.as_millis()), (1_500_000, 1500, 1));
        extern crate std;
        assert_eq!(std::format!("{span:?}"), "1.5ms");
    }
}
