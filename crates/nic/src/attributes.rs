//! Attributes: type, length, value, aligned to four octets (linux/netlink.h, `struct nlattr`).

const HEADER: usize = 4;
const ALIGNMENT: usize = 4;
const NESTED: u16 = 1 << 15;
const TYPE: u16 = 0x3fff;

/// Attributes of a message that is being made.
#[derive(Default)]
pub(crate) struct Attributes(Vec<u8>);

impl Attributes {
    pub(crate) fn with(self, kind: u16, value: &[u8]) -> Attributes {
        self.push(kind, value)
    }

    pub(crate) fn with_text(self, kind: u16, text: &str) -> Attributes {
        self.push(kind, &[text.as_bytes(), b"\0"].concat())
    }

    pub(crate) fn with_nested(self, kind: u16, inner: Attributes) -> Attributes {
        self.push(kind | NESTED, &inner.0)
    }

    pub(crate) fn into_octets(self) -> Vec<u8> {
        self.0
    }

    fn push(mut self, kind: u16, value: &[u8]) -> Attributes {
        let len = u16::try_from(HEADER + value.len()).expect("names and numbers are short");
        self.0.extend(len.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(ALIGNMENT), 0);
        self
    }
}

/// The attributes of an answer: type and value. What is cut short ends them.
pub(crate) fn parse(mut octets: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(u16::from_ne_bytes(octets.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(octets.get(2..HEADER)?.try_into().ok()?);
        let value = octets.get(HEADER..len)?;
        octets = octets.get(len.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        Some((kind & TYPE, value))
    })
}

/// The value of the first attribute of a type.
pub(crate) fn find(octets: &[u8], kind: u16) -> Option<&[u8]> {
    parse(octets).find_map(|(its, value)| (its == kind).then_some(value))
}

/// A number of one to eight octets, in the machine's order.
pub(crate) fn number(value: &[u8]) -> Option<u64> {
    match *value {
        [octet] => Some(octet.into()),
        [a, b] => Some(u16::from_ne_bytes([a, b]).into()),
        [a, b, c, d] => Some(u32::from_ne_bytes([a, b, c, d]).into()),
        _ => Some(u64::from_ne_bytes(value.try_into().ok()?)),
    }
}

/// Text with or without the octet that ends it.
pub(crate) fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.strip_suffix(b"\0").unwrap_or(value)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let inner = Attributes::default().with(7, &5u32.to_ne_bytes());
        let octets = Attributes::default().with_text(2, "veth0").with_nested(3, inner).into_octets();
        assert_eq!(octets.len() % ALIGNMENT, 0);
        assert_eq!(find(&octets, 2).map(text), Some("veth0".to_owned()));
        assert_eq!(find(&octets, 3).and_then(|inner| find(inner, 7)).and_then(number), Some(5));
        assert_eq!(find(&octets, 4), None);
    }

    #[test]
    fn no_cut_or_length_makes_it_panic() {
        let octets = Attributes::default().with_text(2, "veth0").with(3, &[1; 9]).into_octets();
        for len in 0..octets.len() {
            assert!(parse(&octets[..len]).count() <= 2);
        }
        for first in 0..=255u8 {
            let damaged = [&[first, 0], &octets[2..]].concat();
            assert!(parse(&damaged).count() <= octets.len());
        }
    }
}
