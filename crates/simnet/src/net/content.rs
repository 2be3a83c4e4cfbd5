//! Octets that prove where in a stream they belong.

use super::random::mix;

/// The content of one direction of one connection: each octet is a hash of its position, so that what is lost, doubled, moved
/// or changed shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content(u64);

impl Content {
    /// The content that `key` names.
    pub const fn new(key: u64) -> Content {
        Content(mix(key))
    }

    /// Writes the octets from position `at` on.
    pub fn fill(self, at: u64, octets: &mut [u8]) {
        let mut at = at;
        let mut rest = octets;
        while !rest.is_empty() {
            let block = self.block(at / 8);
            let part = &block[(at % 8) as usize..];
            let len = part.len().min(rest.len());
            let (front, behind) = rest.split_at_mut(len);
            front.copy_from_slice(&part[..len]);
            at += len as u64;
            rest = behind;
        }
    }

    /// The first position at which `octets`, received from position `at` on, differ.
    pub fn first_difference(self, at: u64, octets: &[u8]) -> Option<u64> {
        let mut position = at;
        let mut rest = octets;
        while !rest.is_empty() {
            let block = self.block(position / 8);
            let part = &block[(position % 8) as usize..];
            let len = part.len().min(rest.len());
            if part[..len] != rest[..len] {
                let same = part.iter().zip(rest).take_while(|(ours, theirs)| ours == theirs).count();
                return Some(position + same as u64);
            }
            position += len as u64;
            rest = &rest[len..];
        }
        None
    }

    fn block(self, number: u64) -> [u8; 8] {
        mix(self.0 ^ number).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_are_the_same_however_they_are_cut() {
        let content = Content::new(3);
        let mut whole = [0; 100];
        content.fill(5, &mut whole);
        let mut part = [0; 40];
        content.fill(25, &mut part);
        assert_eq!(whole[20..60], part);
        assert_eq!(content.first_difference(25, &part), None);
    }

    #[test]
    fn a_changed_octet_is_found_where_it_is() {
        let content = Content::new(3);
        let mut octets = [0; 100];
        content.fill(1000, &mut octets);
        octets[61] ^= 4;
        assert_eq!(content.first_difference(1000, &octets), Some(1061));
        assert!(content.first_difference(1001, &octets).is_some());
    }
}
