//! Octets of any number, and places in them.

use std::collections::TryReserveError;

/// A place among [`Octets`], in 48 bits: names or data may exceed 4 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offset([u16; 3]);

impl Offset {
    /// No place.
    pub(crate) const NONE: Offset = Offset([u16::MAX; 3]);

    /// # Panics
    /// At 256 TiB and beyond.
    fn new(at: usize) -> Offset {
        let offset = Offset([at as u16, (at >> 16) as u16, (at >> 32) as u16]);
        assert!(offset.get() == at && offset != Offset::NONE, "no memory has 256 TiB");
        offset
    }

    fn get(self) -> usize {
        let [low, middle, high] = self.0;
        usize::from(high) << 32 | usize::from(middle) << 16 | usize::from(low)
    }

    pub(crate) fn to_octets(self) -> [u8; 6] {
        let [[a, b], [c, d], [e, f]] = self.0.map(u16::to_le_bytes);
        [a, b, c, d, e, f]
    }

    pub(crate) fn from_octets([a, b, c, d, e, f]: [u8; 6]) -> Offset {
        Offset([[a, b], [c, d], [e, f]].map(u16::from_le_bytes))
    }
}

/// Octets that are added at the end and found by their offset.
#[derive(Debug, Default)]
pub(crate) struct Octets {
    octets: Vec<u8>,
    /// The offset of the first octet. Tests begin beyond what 32 bits tell apart.
    #[cfg(test)]
    base: usize,
}

impl Octets {
    /// Octets of which the first has the offset `base`.
    #[cfg(test)]
    pub(crate) fn starting_at(base: usize) -> Octets {
        Octets { octets: Vec::new(), base }
    }

    /// The offset of what is added next.
    pub(crate) fn end(&self) -> Offset {
        Offset::new(self.base() + self.octets.len())
    }

    pub(crate) fn extend_from_slice(&mut self, octets: &[u8]) {
        self.octets.extend_from_slice(octets);
    }

    /// What stands from `offset` on.
    #[inline(always)]
    pub(crate) fn at(&self, offset: Offset) -> &[u8] {
        &self.octets[offset.get() - self.base()..]
    }

    pub(crate) fn at_mut(&mut self, offset: Offset) -> &mut [u8] {
        let at = offset.get() - self.base();
        &mut self.octets[at..]
    }

    pub(crate) fn len(&self) -> usize {
        self.octets.len()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.octets.capacity()
    }

    pub(crate) fn shrink_to_fit(&mut self) {
        self.octets.shrink_to_fit();
    }

    pub(crate) fn try_reserve_exact(&mut self, more: usize) -> Result<(), TryReserveError> {
        self.octets.try_reserve_exact(more)
    }

    #[cfg(test)]
    fn base(&self) -> usize {
        self.base
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "tests have one that is not zero")]
    #[inline(always)]
    fn base(&self) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_of_48_bits_are_told_apart() {
        for at in [0, 1, 0xffff, 0x1_0000, u32::MAX as usize, 1 << 32, (1 << 32) + 7, (1 << 48) - 2] {
            assert_eq!(Offset::new(at).get(), at);
            assert_eq!(Offset::from_octets(Offset::new(at).to_octets()), Offset::new(at));
        }
        assert_eq!(Offset::from_octets([0xff; 6]), Offset::NONE);
    }
}
