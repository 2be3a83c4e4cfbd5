//! Case folding, hashing and comparing of wire-format names, eight octets at a time.
//!
//! A length octet is at most 63, below `A` (65), so a whole wire-format name can be folded without looking at where
//! its labels begin (RFC 1035, 3.1; RFC 4343, 3).

const LOW_BITS: u64 = 0x7f7f_7f7f_7f7f_7f7f;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
const ONES: u64 = 0x0101_0101_0101_0101;

/// Turns the ASCII upper-case letters among eight octets into lower case and leaves all else alone.
#[inline(always)]
pub const fn lowercase8(octets: u64) -> u64 {
    let low = octets & LOW_BITS;
    let at_least_a = low.wrapping_add(ONES * (0x80 - b'A' as u64));
    let beyond_z = low.wrapping_add(ONES * (0x7f - b'Z' as u64));
    let upper = (at_least_a ^ beyond_z) & !octets & HIGH_BITS;
    octets | (upper >> 2)
}

/// Hashes a name without regard to ASCII case. `seed` makes the outcome unpredictable from outside.
///
/// The octets are taken eight at a time, the last ones filled up with zeros, so that [`Folded`] hashes the same.
#[inline(always)]
pub fn hash_name(name: &[u8], seed: u64) -> u64 {
    let (chunks, rest) = name.as_chunks::<8>();
    let mut hash = seed ^ name.len() as u64;
    for chunk in chunks {
        hash = mix(hash ^ lowercase8(u64::from_le_bytes(*chunk)), MULTIPLIER);
    }
    if rest.is_empty() { hash } else { mix(hash ^ lowercase8(last_octets(name, rest)), MULTIPLIER) }
}

/// The octets of `rest`, the last fewer than eight of `name`, as a number.
#[inline(always)]
fn last_octets(name: &[u8], rest: &[u8]) -> u64 {
    match name.last_chunk::<8>() {
        Some(chunk) => u64::from_le_bytes(*chunk) >> (64 - 8 * rest.len()),
        None => short(rest),
    }
}

/// A name in lower case, followed by zeros: made once per query, then hashed and compared without folding.
///
/// It is meant for repeated use: nothing is cleared that need not be.
#[derive(Clone, Copy)]
pub struct Folded {
    /// Zeros follow the name up to the next multiple of eight, and eight more: any suffix can be read in whole chunks.
    octets: [u8; FOLDED_LEN],
    len: u8,
}

/// 255 octets, rounded up to whole blocks, and one more chunk.
const FOLDED_LEN: usize = 256 + 8;
/// Octets folded at a time; the compiler makes vector instructions of it. Most names take one block.
const BLOCK: usize = 32;

impl Default for Folded {
    fn default() -> Folded {
        Folded { octets: [0; FOLDED_LEN], len: 0 }
    }
}

impl Folded {
    /// This name.
    ///
    /// # Panics
    /// If it is longer than 255 octets.
    pub fn of(name: &[u8]) -> Folded {
        let mut folded = Folded::default();
        folded.set(name, u8::try_from(name.len()).expect("a name has at most 255 octets"));
        folded
    }

    /// Takes the name that is the first `len` octets of `octets`. What follows them there does not matter, but lets the
    /// last block be read whole.
    ///
    /// # Panics
    /// If `octets` is shorter than `len`.
    #[inline(always)]
    pub fn set(&mut self, octets: &[u8], len: u8) {
        self.len = len;
        let len = usize::from(len);
        let mut at = 0;
        while at < len {
            match octets[at..].first_chunk::<BLOCK>() {
                Some(block) => self.put(at, block, len - at),
                None => self.put_last(at, &octets[at..], len - at),
            }
            at += BLOCK;
        }
        // A reader that reads the last octets of a suffix by chunks reads beyond a name that fills its block.
        self.octets[at..at + 8].fill(0);
    }

    /// Folds a block of which the first `count` octets, or all, are the name's.
    #[inline(always)]
    fn put(&mut self, at: usize, block: &[u8; BLOCK], count: usize) {
        let count = count.min(BLOCK) as u8;
        let room: &mut [u8; BLOCK] =
            self.octets[at..].first_chunk_mut().expect("255 octets are eight blocks");
        for (index, (to, from)) in room.iter_mut().zip(block).enumerate() {
            let lower = from.to_ascii_lowercase();
            *to = if (index as u8) < count { lower } else { 0 };
        }
    }

    #[inline(never)]
    fn put_last(&mut self, at: usize, octets: &[u8], count: usize) {
        let mut block = [0; BLOCK];
        block[..count].copy_from_slice(&octets[..count]);
        self.put(at, &block, count);
    }

    /// The name.
    #[inline(always)]
    pub fn name(&self) -> &[u8] {
        &self.octets[..usize::from(self.len)]
    }

    /// As [`hash_name`] of the suffix that starts at octet `from`.
    #[inline(always)]
    pub fn hash_suffix(&self, from: usize, seed: u64) -> u64 {
        let len = usize::from(self.len) - from;
        let mut hash = seed ^ len as u64;
        let mut at = from;
        while at < from + len {
            hash = mix(hash ^ chunk(&self.octets, at), MULTIPLIER);
            at += 8;
        }
        hash
    }
}

#[inline(always)]
fn chunk(octets: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(octets[at..at + 8].try_into().expect("eight octets"))
}

/// Mixes a record type into the hash of a name.
#[inline(always)]
pub fn hash_with_type(name_hash: u64, rtype: u16) -> u64 {
    mix(name_hash ^ u64::from(rtype), MULTIPLIER)
}

/// Whether two names are equal without regard to ASCII case.
#[inline(always)]
pub fn equal(left: &[u8], right: &[u8]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    let (mut left_rest, mut right_rest) = (left, right);
    let mut difference = 0;
    while let (Some((l, l_tail)), Some((r, r_tail))) =
        (left_rest.split_first_chunk::<8>(), right_rest.split_first_chunk::<8>())
    {
        difference |= lowercase8(u64::from_le_bytes(*l)) ^ lowercase8(u64::from_le_bytes(*r));
        (left_rest, right_rest) = (l_tail, r_tail);
    }
    let (l, r) = match (left.last_chunk::<8>(), right.last_chunk::<8>()) {
        (Some(l), Some(r)) => (u64::from_le_bytes(*l), u64::from_le_bytes(*r)),
        _ => (short(left), short(right)),
    };
    difference | (lowercase8(l) ^ lowercase8(r)) == 0
}

/// An odd constant without pattern: the fractional part of the golden ratio.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Multiplies to 128 bits and folds the halves together, so that every input bit reaches every output bit.
#[inline(always)]
const fn mix(value: u64, multiplier: u64) -> u64 {
    let product = (value as u128).wrapping_mul(multiplier as u128);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Fewer than eight octets as a number.
#[inline(always)]
fn short(octets: &[u8]) -> u64 {
    octets.iter().rev().fold(0, |number, &octet| number << 8 | u64::from(octet))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folding_changes_upper_case_letters_only() {
        for octet in 0..=255u8 {
            let folded = lowercase8(u64::from_le_bytes([octet; 8])).to_le_bytes();
            assert_eq!(folded, [octet.to_ascii_lowercase(); 8], "octet {octet}");
        }
    }

    #[test]
    fn neighbouring_octets_do_not_disturb_each_other() {
        let mixed = *b"aZ\xc1[@A\x00z";
        let folded = lowercase8(u64::from_le_bytes(mixed)).to_le_bytes();
        assert_eq!(folded.to_vec(), mixed.to_ascii_lowercase());
    }

    #[test]
    fn names_of_every_length_hash_and_compare_without_case() {
        for len in 0..40u8 {
            let lower: Vec<u8> = (0..len).map(|i| b'a' + i % 26).collect();
            let upper = lower.to_ascii_uppercase();
            assert_eq!(hash_name(&lower, 7), hash_name(&upper, 7), "length {len}");
            assert!(equal(&lower, &upper), "length {len}");
        }
    }

    #[test]
    fn a_folded_name_hashes_like_the_name_and_each_of_its_suffixes() {
        let mut folded = Folded::default();
        for len in (0..=255u8).rev() {
            let name: Vec<u8> = (0..len).map(|i| b'A' + i % 60).collect();
            for beyond in [0, 4, 30] {
                let octets = [&name[..], &vec![b'Z'; beyond]].concat();
                folded.set(&octets, len);
                assert_eq!(folded.name(), name.to_ascii_lowercase());
                for from in 0..=usize::from(len) {
                    assert_eq!(folded.hash_suffix(from, 5), hash_name(&name[from..], 5), "{len}, {from}");
                }
            }
        }
    }

    #[test]
    fn one_changed_octet_anywhere_is_noticed() {
        for len in 1..40usize {
            let name: Vec<u8> = (0..len).map(|i| b'a' + (i % 26) as u8).collect();
            for at in 0..len {
                let mut other = name.clone();
                other[at] = b'-';
                assert!(!equal(&name, &other), "length {len}, octet {at}");
                assert_ne!(hash_name(&name, 7), hash_name(&other, 7), "length {len}, octet {at}");
            }
        }
    }
}
