//! Octets as text: base64, base16, base32hex (RFC 4648), and the escapes of strings.

/// Marks an octet that is no digit of an alphabet.
const NO_DIGIT: u8 = 0xff;

const fn digits(alphabet: &[u8], ignore_case: bool) -> [u8; 256] {
    let mut values = [NO_DIGIT; 256];
    let mut index = 0;
    while index < alphabet.len() {
        values[alphabet[index] as usize] = index as u8;
        if ignore_case {
            values[alphabet[index].to_ascii_lowercase() as usize] = index as u8;
        }
        index += 1;
    }
    values
}

const BASE64_DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const BASE32_HEX_DIGITS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUV";
const BASE16_DIGITS: &[u8] = b"0123456789ABCDEF";

const BASE64: [u8; 256] = digits(BASE64_DIGITS, false);
const BASE32_HEX: [u8; 256] = digits(BASE32_HEX_DIGITS, true);
const BASE16: [u8; 256] = digits(BASE16_DIGITS, true);

/// Collects digits of `digit_bits` bits each, possibly from several tokens, into octets.
pub(super) struct Decoder {
    values: &'static [u8; 256],
    digit_bits: u32,
    /// Bits that do not fill an octet yet: the low `pending_bits` of `pending`.
    pending: u32,
    pending_bits: u32,
    digit_count: usize,
    padding_count: usize,
    wants_padding: bool,
}

impl Decoder {
    /// Base64 with padding.
    pub(super) fn base64() -> Decoder {
        Decoder::new(&BASE64, 6, true)
    }

    /// Hexadecimal digits in any case.
    pub(super) fn base16() -> Decoder {
        Decoder::new(&BASE16, 4, false)
    }

    /// Base32 with extended hex alphabet, in any case, without padding (RFC 5155, 3.3).
    pub(super) fn base32_hex() -> Decoder {
        Decoder::new(&BASE32_HEX, 5, false)
    }

    fn new(values: &'static [u8; 256], digit_bits: u32, wants_padding: bool) -> Decoder {
        let (pending, pending_bits, digit_count, padding_count) = (0, 0, 0, 0);
        Decoder { values, digit_bits, pending, pending_bits, digit_count, padding_count, wants_padding }
    }

    /// Appends what `text` brings to `out`; `None` if it has an octet that does not belong.
    pub(super) fn push(&mut self, text: &[u8], out: &mut Vec<u8>) -> Option<()> {
        for &octet in text {
            if self.wants_padding && octet == b'=' {
                self.padding_count += 1;
                continue;
            }
            let value = self.values[usize::from(octet)];
            if value == NO_DIGIT || self.padding_count > 0 {
                return None;
            }
            self.digit_count += 1;
            self.pending = self.pending << self.digit_bits | u32::from(value);
            self.pending_bits += self.digit_bits;
            if self.pending_bits >= 8 {
                self.pending_bits -= 8;
                out.push((self.pending >> self.pending_bits) as u8);
                self.pending &= (1 << self.pending_bits) - 1;
            }
        }
        Some(())
    }

    /// `None` if digits are missing, padding is wrong, or bits are left over that are not zero.
    pub(super) fn finish(self) -> Option<()> {
        let whole = self.pending_bits < self.digit_bits && self.pending == 0;
        let padded = !self.wants_padding
            || ((self.digit_count + self.padding_count).is_multiple_of(4) && self.padding_count <= 2);
        (whole && padded).then_some(())
    }
}

/// How octets are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    /// With padding.
    Base64,
    Base16,
    /// Without padding.
    Base32Hex,
}

/// Appends octets as text, in upper case where there is a choice.
pub(super) fn encode(encoding: Encoding, octets: &[u8], text: &mut String) {
    let (digits, digit_bits): (&[u8], u32) = match encoding {
        Encoding::Base64 => (BASE64_DIGITS, 6),
        Encoding::Base16 => (BASE16_DIGITS, 4),
        Encoding::Base32Hex => (BASE32_HEX_DIGITS, 5),
    };
    let mut push = |bits: u32| text.push(char::from(digits[(bits & ((1 << digit_bits) - 1)) as usize]));
    let (mut pending, mut pending_bits) = (0u32, 0);
    for &octet in octets {
        pending = (pending << 8 | u32::from(octet)) & 0xffff;
        pending_bits += 8;
        while pending_bits >= digit_bits {
            pending_bits -= digit_bits;
            push(pending >> pending_bits);
        }
    }
    if pending_bits > 0 {
        push(pending << (digit_bits - pending_bits));
    }
    if encoding == Encoding::Base64 {
        let missing = (3 - octets.len() % 3) % 3;
        text.extend(std::iter::repeat_n('=', missing));
    }
}

/// Appends the octets that the escaped `text` stands for; `None` if an escape is wrong (RFC 1035, 5.1).
pub(super) fn push_unescaped(mut text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    while let Some((&octet, rest)) = text.split_first() {
        text = rest;
        let octet = if octet == b'\\' { dns_wire::name::unescape(&mut text)? } else { octet };
        out.push(octet);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(mut decoder: Decoder, parts: &[&str]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        for part in parts {
            decoder.push(part.as_bytes(), &mut out)?;
        }
        decoder.finish().map(|()| out)
    }

    #[test]
    fn base64_is_that_of_the_rfc() {
        // RFC 4648, 10.
        for (text, octets) in
            [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYmE=", "fooba")]
        {
            assert_eq!(decode(Decoder::base64(), &[text]).unwrap(), octets.as_bytes());
        }
        assert_eq!(decode(Decoder::base64(), &["Zm9", "vYg=", "="]).unwrap(), b"foob");
        for text in ["Z", "Zg", "Zg=", "Zh==", "Zg==Zg==", "Z===", "Zm9v====", "Zm-v", "="] {
            assert_eq!(decode(Decoder::base64(), &[text]), None, "{text}");
        }
    }

    #[test]
    fn base16_and_base32_ignore_case() {
        assert_eq!(decode(Decoder::base16(), &["dE", "aDb", "E"]).unwrap(), [0xde, 0xad, 0xbe]);
        assert_eq!(decode(Decoder::base16(), &["dea"]), None);
        assert_eq!(decode(Decoder::base32_hex(), &["CPNMUog"]), Some(b"foob".to_vec()));
        assert_eq!(decode(Decoder::base32_hex(), &["CPNMUOJ1"]), Some(b"fooba".to_vec()));
        assert_eq!(decode(Decoder::base32_hex(), &["C"]), None);
        assert_eq!(decode(Decoder::base32_hex(), &["W0"]), None);
    }

    #[test]
    fn escapes_become_octets() {
        let mut out = Vec::new();
        assert_eq!(push_unescaped(br#"a\"\065\\"#, &mut out), Some(()));
        assert_eq!(out, br#"a"A\"#);
        assert_eq!(push_unescaped(br"\25", &mut out), None);
    }
}
