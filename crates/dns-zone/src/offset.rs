//! Places among the octets of a zone.

/// A place among octets, in 48 bits: names or data may exceed 4 GiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offset([u16; 3]);

impl Offset {
    /// No place.
    pub(crate) const NONE: Offset = Offset([u16::MAX; 3]);

    /// # Panics
    /// At 256 TiB and beyond.
    pub(crate) fn new(at: usize) -> Offset {
        let offset = Offset([at as u16, (at >> 16) as u16, (at >> 32) as u16]);
        assert!(offset.get() == at && offset != Offset::NONE, "no memory has 256 TiB");
        offset
    }

    pub(crate) fn get(self) -> usize {
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

#[cfg(test)]
mod tests {
    use super::Offset;

    #[test]
    fn offsets_of_48_bits_are_told_apart() {
        for at in [0, 1, 0xffff, 0x1_0000, u32::MAX as usize, 1 << 32, (1 << 32) + 7, (1 << 48) - 2] {
            assert_eq!(Offset::new(at).get(), at);
            assert_eq!(Offset::from_octets(Offset::new(at).to_octets()), Offset::new(at));
        }
        assert_eq!(Offset::from_octets([0xff; 6]), Offset::NONE);
    }
}
