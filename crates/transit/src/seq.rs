//! Sequence numbers (RFC 9293, 3.4).

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

/// A TCP sequence number. Arithmetic is modulo 2^32, and so is order: two numbers are compared by the shorter way round.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SeqNum(pub u32);

impl SeqNum {
    /// Whether `self` is before `other`: less than 2^31 behind it.
    #[inline]
    pub const fn is_before(self, other: SeqNum) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Whether `self` is after `other`.
    #[inline]
    pub const fn is_after(self, other: SeqNum) -> bool {
        other.is_before(self)
    }

    /// Whether `self` is before `other` or equal to it.
    #[inline]
    pub const fn is_at_or_before(self, other: SeqNum) -> bool {
        !self.is_after(other)
    }

    /// Whether `self` is after `other` or equal to it.
    #[inline]
    pub const fn is_at_or_after(self, other: SeqNum) -> bool {
        !self.is_before(other)
    }

    /// Octets from `start` to `self`; the caller knows that `self` is not before `start`.
    #[inline]
    pub const fn since(self, start: SeqNum) -> u32 {
        debug_assert!(self.is_at_or_after(start));
        self.0.wrapping_sub(start.0)
    }

    /// The later of the two.
    #[inline]
    pub fn max(self, other: SeqNum) -> SeqNum {
        if self.is_before(other) { other } else { self }
    }

    /// The earlier of the two.
    #[inline]
    pub fn min(self, other: SeqNum) -> SeqNum {
        if self.is_before(other) { self } else { other }
    }
}

impl Add<u32> for SeqNum {
    type Output = SeqNum;

    #[inline]
    fn add(self, octets: u32) -> SeqNum {
        SeqNum(self.0.wrapping_add(octets))
    }
}

impl AddAssign<u32> for SeqNum {
    #[inline]
    fn add_assign(&mut self, octets: u32) {
        *self = *self + octets;
    }
}

impl Sub<u32> for SeqNum {
    type Output = SeqNum;

    #[inline]
    fn sub(self, octets: u32) -> SeqNum {
        SeqNum(self.0.wrapping_sub(octets))
    }
}

impl fmt::Debug for SeqNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Octets from `start` up to but without `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeqRange {
    /// The first.
    pub start: SeqNum,
    /// The one behind the last.
    pub end: SeqNum,
}

impl SeqRange {
    /// The range from `start` to `end`, which is not before it.
    pub const fn new(start: SeqNum, end: SeqNum) -> SeqRange {
        SeqRange { start, end }
    }

    /// Octets in it.
    #[inline]
    pub const fn len(self) -> u32 {
        self.end.since(self.start)
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Whether `other` lies wholly inside.
    #[inline]
    pub const fn contains(self, other: SeqRange) -> bool {
        self.start.is_at_or_before(other.start) && other.end.is_at_or_before(self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_goes_the_shorter_way_round_the_circle() {
        let end = SeqNum(u32::MAX);
        assert!(end.is_before(end + 1));
        assert!((end + 10).is_after(end));
        assert_eq!((end + 10).since(end), 10);
        assert_eq!(end.max(end + 1), SeqNum(0));
        assert_eq!(end.min(end + 1), end);
    }

    #[test]
    fn a_range_across_the_wrap_has_its_length() {
        let range = SeqRange::new(SeqNum(u32::MAX - 1), SeqNum(3));
        assert_eq!(range.len(), 5);
        assert!(range.contains(SeqRange::new(SeqNum(0), SeqNum(3))));
        assert!(!range.contains(SeqRange::new(SeqNum(0), SeqNum(4))));
    }
}
