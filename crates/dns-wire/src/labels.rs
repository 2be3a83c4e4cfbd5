//! Where the labels of a name start.

use crate::Name;
use crate::name::{LABEL_COUNT_MAX, LABEL_LEN_MAX, NAME_LEN_MAX};

/// Offsets of the labels of one name, noted while it is read.
///
/// Each label of a name tells where the next one starts, so a walk over a deep name waits for memory once a label. With these offsets that
/// walk happens once a query.
#[derive(Clone, Copy, Debug)]
pub struct LabelStarts {
    /// Offsets of the labels, the root label at last.
    starts: [u8; LABEL_COUNT_MAX + 1],
    /// Labels besides the root.
    count: u8,
}

impl Default for LabelStarts {
    fn default() -> LabelStarts {
        LabelStarts { starts: [0; LABEL_COUNT_MAX + 1], count: 0 }
    }
}

impl LabelStarts {
    /// Those of `name`.
    pub fn of(name: Name<'_>) -> LabelStarts {
        let mut starts = LabelStarts::default();
        starts.scan(name.as_bytes()).expect("a name is valid");
        starts
    }

    /// Reads the uncompressed name that `octets` start with, and returns its length in octets. `None` if there is no valid one: these
    /// are then the offsets of nothing.
    ///
    /// In a question a compression pointer could only point to the header or to itself: refused like any bad label.
    #[inline(always)]
    pub fn scan(&mut self, octets: &[u8]) -> Option<u8> {
        let mut at = 0;
        for (labels, start) in self.starts.iter_mut().enumerate() {
            let len = usize::from(*octets.get(at)?);
            *start = at as u8; // What is cut here is refused below.
            if len.wrapping_sub(1) >= LABEL_LEN_MAX {
                self.count = labels as u8;
                return (len == 0 && at < NAME_LEN_MAX).then(|| at as u8 + 1);
            }
            at += 1 + len;
        }
        None
    }

    /// Number of labels, the root label not counted.
    #[inline(always)]
    pub fn count(&self) -> u8 {
        self.count
    }

    /// Where the last `labels` labels start.
    ///
    /// # Panics
    /// If the name has fewer.
    #[inline(always)]
    pub fn of_last(&self, labels: u8) -> usize {
        usize::from(self.starts[usize::from(self.count - labels)])
    }

    /// Whether a label starts at this offset: octets within a label may look like one.
    pub fn contains(&self, offset: usize) -> bool {
        let starts = &self.starts[..=usize::from(self.count)];
        starts.binary_search_by(|start| usize::from(*start).cmp(&offset)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offsets_of_a_name_are_those_of_its_suffixes() {
        let mut name = crate::NameBuf::root();
        for labels in 0..=127u8 {
            let starts = LabelStarts::of(name.as_name());
            assert_eq!(starts.count(), labels);
            let mut suffix = name.as_name();
            for left in (0..labels).rev() {
                suffix = suffix.parent().unwrap();
                assert_eq!(&name.as_name().as_bytes()[starts.of_last(left)..], suffix.as_bytes());
            }
            let within = (0..=255).filter(|offset| starts.contains(*offset)).count();
            assert_eq!(within, usize::from(labels) + 1, "no other offset is one");
            let _ = name.prepend(b"x");
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let mut starts = LabelStarts::default();
        assert_eq!(starts.scan(b"\x03www\x00rest"), Some(5));
        for octets in [&b""[..], b"\x01", b"\x01a", b"\xc0\x0c", b"\x40"] {
            assert_eq!(starts.scan(octets), None, "{octets:?}");
        }
        assert_eq!(starts.scan(&[1; 256]), None, "127 labels and no end");
    }
}
