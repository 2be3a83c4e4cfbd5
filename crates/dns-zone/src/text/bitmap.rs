//! Sets of types as bits.

use dns_wire::Rtype;

use super::error::Parsed;
use super::field::RdataReader;

/// The octets of the longest window (RFC 4034, 4.1.2).
const WINDOW_LEN_MAX: usize = 32;

impl RdataReader<'_, '_> {
    /// The types up to the end of the entry, in windows (RFC 4034, 4.1.2).
    pub(super) fn bitmap(&mut self) -> Parsed<()> {
        let mut bits = [0; 256 * WINDOW_LEN_MAX];
        let mut window_lens = [0; 256];
        while let Some(Rtype(number)) = self.next_type()? {
            let (window, within) = (usize::from(number >> 8), usize::from(number & 0xff));
            bits[window * WINDOW_LEN_MAX + within / 8] |= 0x80 >> (within % 8);
            window_lens[window] = window_lens[window].max(within / 8 + 1);
        }
        for (window, &length) in window_lens.iter().enumerate().filter(|(_, length)| **length > 0) {
            self.out.extend_from_slice(&[window as u8, length as u8]);
            self.out.extend_from_slice(&bits[window * WINDOW_LEN_MAX..][..length]);
        }
        Ok(())
    }

    /// The types below 128 up to the end of the entry, in one row without trailing zeros (RFC 2535, 5.2).
    pub(super) fn old_bitmap(&mut self) -> Parsed<()> {
        let mut bits = [0u8; 16];
        let mut length = 0;
        while let Some(token) = self.lexer.token()? {
            let rtype = Rtype::from_text(token.text).filter(|rtype| rtype.0 < 128);
            let number = usize::from(token.expect(rtype, "a type below 128")?.0);
            bits[number / 8] |= 0x80 >> (number % 8);
            length = length.max(number / 8 + 1);
        }
        self.out.extend_from_slice(&bits[..length]);
        Ok(())
    }

    fn next_type(&mut self) -> Parsed<Option<Rtype>> {
        let Some(token) = self.lexer.token()? else { return Ok(None) };
        token.expect(Rtype::from_text(token.text), "a type").map(Some)
    }
}

/// The types in windows, as far as these are whole.
pub(super) fn types_in(octets: &[u8]) -> impl Iterator<Item = Rtype> {
    let mut rest = octets;
    let windows = std::iter::from_fn(move || {
        let [window, length, behind @ ..] = rest else { return None };
        let bits;
        (bits, rest) = behind.split_at_checked(usize::from(*length))?;
        Some((u16::from(*window) << 8, bits))
    });
    windows.flat_map(|(window, bits)| {
        let numbers = (0..bits.len().min(WINDOW_LEN_MAX) as u16 * 8)
            .filter(|number| bits[usize::from(number / 8)] & (0x80 >> (number % 8)) != 0);
        numbers.map(move |number| Rtype(window | number))
    })
}

/// True if the windows ascend, and none is empty, too long, or ends in a zero octet.
pub(super) fn is_bitmap(mut octets: &[u8]) -> bool {
    let mut lowest_window = 0;
    while let [window, length, rest @ ..] = octets {
        let Some((bits, rest)) = rest.split_at_checked(usize::from(*length)) else { return false };
        let ends_in_zero = bits.last().is_none_or(|&last| last == 0);
        if u16::from(*window) < lowest_window || ends_in_zero || bits.len() > WINDOW_LEN_MAX {
            return false;
        }
        lowest_window = u16::from(*window) + 1;
        octets = rest;
    }
    octets.is_empty()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{rdata, refusal};
    use super::*;

    #[test]
    fn the_example_of_rfc_4034_has_its_octets() {
        let octets = rdata("NSEC", "host.example.com. ( A MX RRSIG NSEC TYPE1234 )");
        let mut expected = b"\x04host\x07example\x03com\x00".to_vec();
        expected.extend([0x00, 0x06, 0x40, 0x01, 0x00, 0x00, 0x00, 0x03, 0x04, 0x1b]);
        expected.extend([0; 26]);
        expected.push(0x20);
        assert_eq!(octets, expected);
    }

    #[test]
    fn order_and_repetition_do_not_matter() {
        assert_eq!(rdata("NSEC", ". TYPE256 A MX A"), rdata("NSEC", ". A MX URI"));
        assert_eq!(rdata("NSEC", "."), [0]);
        assert_eq!(rdata("NXT", ". MX A"), [0, 0x40, 0x01]);
    }

    #[test]
    fn words_that_are_no_types_are_refused() {
        assert_eq!(refusal("NSEC", ". A FOO"), "expected a type, found \"FOO\"");
        assert_eq!(refusal("NXT", ". A URI"), "expected a type below 128, found \"URI\"");
    }

    #[test]
    fn windows_ascend_and_end_in_a_bit() {
        assert!(is_bitmap(&[]));
        assert!(is_bitmap(&[0, 1, 0x40, 1, 1, 0x80]));
        for octets in [&[0u8, 1, 0][..], &[0, 0], &[0], &[0, 2, 1], &[1, 1, 1, 0, 1, 1], &[0, 1, 1, 0, 1, 1]]
        {
            assert!(!is_bitmap(octets), "{octets:?}");
        }
    }
}
