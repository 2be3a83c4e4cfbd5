//! Streams that can be checked: octets that tell where they belong, and a hash of what came.

/// Writes the octets of the pattern from position `at` on: the eight at a multiple of eight are a mix of its number.
pub fn fill_pattern(at: u64, out: &mut [u8]) {
    let mut filled = 0;
    while filled < out.len() {
        let position = at + filled as u64;
        let word = mix(position / 8).to_le_bytes();
        let rest = &word[(position % 8) as usize..];
        let count = rest.len().min(out.len() - filled);
        out[filled..filled + count].copy_from_slice(&rest[..count]);
        filled += count;
    }
}

/// The hash of the pattern's first `len` octets.
pub fn pattern_hash(len: u64) -> u64 {
    let mut hash = StreamHash::default();
    let mut part = [0; 8192];
    while hash.len() < len {
        let part = &mut part[..(len - hash.len()).min(8192) as usize];
        fill_pattern(hash.len(), part);
        hash.update(part);
    }
    hash.value()
}

/// FNV-1a of 64 bits over a stream, with its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamHash {
    len: u64,
    value: u64,
}

impl Default for StreamHash {
    fn default() -> StreamHash {
        StreamHash { len: 0, value: 0xcbf2_9ce4_8422_2325 }
    }
}

impl StreamHash {
    /// Goes on by `octets`.
    pub fn update(&mut self, octets: &[u8]) {
        const PRIME: u64 = 0x0100_0000_01b3;
        self.len += octets.len() as u64;
        self.value =
            octets.iter().fold(self.value, |hash, &octet| (hash ^ u64::from(octet)).wrapping_mul(PRIME));
    }

    /// Octets so far.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there were none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The hash so far.
    pub fn value(&self) -> u64 {
        self.value
    }
}

/// As the test program and the tests write it to each other: length and hash.
impl std::fmt::Display for StreamHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:016x}", self.len, self.value)
    }
}

/// The finaliser of SplitMix64.
fn mix(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_is_the_same_in_whatever_pieces_it_is_written() {
        let (mut whole, mut pieces) = ([0; 100], [0; 100]);
        fill_pattern(7, &mut whole);
        fill_pattern(7, &mut pieces[..33]);
        fill_pattern(40, &mut pieces[33..]);
        assert_eq!(whole, pieces);
    }

    #[test]
    fn two_octets_that_changed_places_change_the_hash() {
        let (mut right, mut wrong) = (StreamHash::default(), StreamHash::default());
        right.update(b"ab");
        wrong.update(b"ba");
        assert_ne!(right, wrong);
        assert_eq!(right.len(), 2);
        // The value that the authors of FNV give for "a".
        let mut one = StreamHash::default();
        one.update(b"a");
        assert_eq!(one.value(), 0xaf63_dc4c_8601_ec8c);
    }
}
