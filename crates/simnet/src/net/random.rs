//! Chance that repeats: the same seed, the same numbers.

use clock::Duration;

/// SplitMix64 (Steele, Lea, Flood 2014): small, fast, and good enough to choose what a network does.
#[derive(Clone, Debug)]
pub struct Random(u64);

/// One step of SplitMix64's output function: a hash of 64 bits.
pub(crate) const fn mix(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

impl Random {
    /// The numbers of `seed`.
    pub const fn new(seed: u64) -> Random {
        Random(mix(seed))
    }

    /// The next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `end`, which is not zero. The bias of the remainder does not matter here.
    pub const fn below(&mut self, end: u64) -> u64 {
        self.bits() % end
    }

    /// A number from `least` to `most`, both included.
    pub const fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// A number from `least` to `most` whose magnitude is as likely to be small as large.
    pub fn magnitude(&mut self, least: u64, most: u64) -> u64 {
        let bits = u64::from(64 - least.max(1).leading_zeros());
        let chosen = self.between(bits, u64::from(64 - most.leading_zeros()).max(bits));
        let top = 1u64.checked_shl(chosen as u32).map_or(u64::MAX, |end| end - 1);
        self.between(least, most.min(top).max(least))
    }

    /// True `per_million` times in a million.
    pub const fn chance(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < per_million as u64
    }

    /// True once in `count` times.
    pub const fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// One of `choices`, of which there is at least one.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// A span from `least` to `most`, by microseconds.
    pub fn span(&mut self, least: Duration, most: Duration) -> Duration {
        let (least, most) = (least.as_micros(), most.as_micros());
        Duration::from_micros(self.between(least, most))
    }

    /// Numbers of their own for a part of the whole, so that what one part draws does not change the others.
    pub const fn fork(&mut self) -> Random {
        Random(self.bits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_gives_the_same_numbers() {
        let draw = |seed| Random::new(seed).bits();
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn magnitudes_stay_within_their_bounds() {
        let mut random = Random::new(1);
        for _ in 0..10_000 {
            assert!((3..=100_000).contains(&random.magnitude(3, 100_000)));
        }
        assert_eq!(random.magnitude(5, 5), 5);
    }
}
