//! Numbers that nobody outside can guess, from one key.
//!
//! SipHash of a counter, under a key of 128 bits: message IDs, the case of names and source ports are drawn from it
//! (RFC 5452, 9.2). A test that gives the same key gets the same numbers.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

/// The generator that a resolver is made with.
#[derive(Clone, Debug)]
pub struct Random {
    key: (u64, u64),
    drawn: u64,
}

impl Random {
    /// One whose numbers depend on `key` alone. Take it from the operating system's generator.
    #[must_use]
    pub fn new(key: [u8; 16]) -> Random {
        let key = u128::from_le_bytes(key);
        Random { key: (key as u64, (key >> 64) as u64), drawn: 0 }
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.drawn += 1;
        let mut hasher = SipHasher24::new_with_keys(self.key.0, self.key.1);
        hasher.write_u64(self.drawn);
        hasher.finish()
    }

    /// A key for something else.
    pub fn key(&mut self) -> [u8; 16] {
        (u128::from(self.draw()) << 64 | u128::from(self.draw())).to_le_bytes()
    }

    /// The next number below `bound`, or 0 if that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The bias is at most bound / 2^64.
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_key_gives_the_same_numbers_and_another_key_others() {
        let draw = |key: u8| {
            let mut random = Random::new([key; 16]);
            [random.draw(), random.draw()]
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert_ne!(draw(1)[0], draw(1)[1]);
    }

    #[test]
    fn numbers_stay_below_their_bound_and_reach_all_of_it() {
        let mut random = Random::new([7; 16]);
        let mut seen = [false; 5];
        (0..1000).for_each(|_| seen[random.below(5) as usize] = true);
        assert_eq!((seen, random.below(0)), ([true; 5], 0));
    }
}
