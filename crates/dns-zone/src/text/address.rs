//! Addresses of all kinds.

use std::net::Ipv6Addr;

use super::encoding::Decoder;
use super::error::{Parsed, Problem};
use super::field::RdataReader;
use super::lexer::Token;
use super::mnemonic::{self, PROTOCOLS, SERVICES};
use super::number::decimal;

const IPV4: &str = "an IPv4 address";
const IPV6: &str = "an IPv6 address";

/// Four numbers of one to three digits, without zeros in front.
pub(super) fn parse_ipv4(text: &[u8]) -> Option<[u8; 4]> {
    let mut octets = [0; 4];
    let mut rest = text;
    for (index, octet) in octets.iter_mut().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix(b".")?;
        }
        let mut value = 0u32;
        let mut length = 0;
        while let Some(digit) = rest.get(length).filter(|octet| octet.is_ascii_digit()) {
            value = value * 10 + u32::from(digit - b'0');
            length += 1;
            if length > 3 {
                return None;
            }
        }
        if length == 0 || (length > 1 && rest[0] == b'0') {
            return None;
        }
        *octet = u8::try_from(value).ok()?;
        rest = &rest[length..];
    }
    rest.is_empty().then_some(octets)
}

/// Text as in RFC 4291, 2.2.
pub(super) fn parse_ipv6(text: &[u8]) -> Option<[u8; 16]> {
    let address: Ipv6Addr = std::str::from_utf8(text).ok()?.parse().ok()?;
    Some(address.octets())
}

impl RdataReader<'_, '_> {
    pub(super) fn ipv4(&mut self) -> Parsed<()> {
        let token = self.lexer.require_word(IPV4)?;
        let octets = token.expect(parse_ipv4(token.text), IPV4)?;
        self.out.extend_from_slice(&octets);
        Ok(())
    }

    pub(super) fn ipv6(&mut self) -> Parsed<()> {
        let token = self.lexer.require_word(IPV6)?;
        let octets = token.expect(parse_ipv6(token.text), IPV6)?;
        self.out.extend_from_slice(&octets);
        Ok(())
    }

    /// `0x` and hex digits with dots anywhere (RFC 1706, 7).
    pub(super) fn nsap(&mut self) -> Parsed<()> {
        const EXPECTED: &str = "an NSAP address as 0x and hex digits";
        let token = self.lexer.require_word(EXPECTED)?;
        let digits = token.text.strip_prefix(b"0x").or_else(|| token.text.strip_prefix(b"0X"));
        let digits = token.expect(digits, EXPECTED)?;
        self.dotted_hex(&token, digits, EXPECTED)
    }

    /// Hex digits with dots are an AESA (format 0), a plus sign and digits a number as in E.164 (format 1).
    pub(super) fn atma(&mut self) -> Parsed<()> {
        const EXPECTED: &str = "an ATM address as hex digits, or + and decimal digits";
        let token = self.lexer.require_word(EXPECTED)?;
        let Some(number) = token.text.strip_prefix(b"+") else {
            self.out.push(0);
            return self.dotted_hex(&token, token.text, EXPECTED);
        };
        self.out.push(1);
        if number.is_empty() || !number.iter().all(|octet| octet.is_ascii_digit() || *octet == b'.') {
            return token.unexpected(EXPECTED);
        }
        self.out.extend(number.iter().filter(|octet| **octet != b'.'));
        Ok(())
    }

    fn dotted_hex(&mut self, token: &Token<'_>, digits: &[u8], expected: &'static str) -> Parsed<()> {
        let start = self.out.len();
        let mut decoder = Decoder::base16();
        for part in digits.split(|&octet| octet == b'.') {
            token.expect(decoder.push(part, self.out), expected)?;
        }
        token.expect(decoder.finish().filter(|()| self.out.len() > start), expected)
    }

    /// `octets` pairs of hex digits with hyphens between (RFC 7043, 3.2 and 4.2).
    pub(super) fn eui(&mut self, octets: usize) -> Parsed<()> {
        const EXPECTED: &str = "pairs of hex digits with hyphens between";
        let token = self.lexer.require_word(EXPECTED)?;
        let is_form = token.text.len() == octets * 3 - 1
            && token.text.iter().enumerate().all(|(index, octet)| (index % 3 == 2) == (*octet == b'-'));
        token.expect(is_form.then_some(()), EXPECTED)?;
        let mut decoder = Decoder::base16();
        for pair in token.text.split(|&octet| octet == b'-') {
            token.expect(decoder.push(pair, self.out), EXPECTED)?;
        }
        Ok(())
    }

    /// Four groups of one to four hex digits with colons between (RFC 6742, 2.1.2).
    pub(super) fn ilnp64(&mut self) -> Parsed<()> {
        const EXPECTED: &str = "four groups of hex digits with colons between";
        let token = self.lexer.require_word(EXPECTED)?;
        let mut count = 0;
        for group in token.text.split(|&octet| octet == b':') {
            let is_hex = (1..=4).contains(&group.len()) && group.iter().all(u8::is_ascii_hexdigit);
            let value = std::str::from_utf8(group).ok().filter(|_| is_hex);
            let value = value.and_then(|digits| u16::from_str_radix(digits, 16).ok());
            self.out.extend_from_slice(&token.expect(value, EXPECTED)?.to_be_bytes());
            count += 1;
        }
        token.expect((count == 4).then_some(()), EXPECTED)
    }

    /// Prefix length, then the rest of the address if it is not all prefix, then the prefix name if there is a
    /// prefix (RFC 2874, 3).
    pub(super) fn a6(&mut self) -> Parsed<()> {
        const LENGTH: &str = "a prefix length from 0 to 128";
        let token = self.lexer.require_word(LENGTH)?;
        let prefix_bits = token.expect(decimal(token.text, 128), LENGTH)? as usize;
        self.out.push(prefix_bits as u8);
        if prefix_bits < 128 {
            let token = self.lexer.require_word(IPV6)?;
            let mut octets = token.expect(parse_ipv6(token.text), IPV6)?;
            let skipped = prefix_bits / 8;
            octets[skipped] &= 0xff >> (prefix_bits % 8); // padding bits are zero: RFC 2874, 3.1.1
            self.out.extend_from_slice(&octets[skipped..]);
        }
        if prefix_bits > 0 { self.name() } else { Ok(()) }
    }

    /// Address, protocol, then ports as bits (RFC 1035, 3.4.2).
    pub(super) fn wks(&mut self) -> Parsed<()> {
        self.ipv4()?;
        self.word_u8(PROTOCOLS, "a protocol")?;
        let start = self.out.len();
        while let Some(token) = self.lexer.token()? {
            let port = usize::from(token.expect(mnemonic::number(SERVICES, token.text, u16::MAX), "a port")?);
            let octet = start + port / 8;
            if self.out.len() <= octet {
                self.out.resize(octet + 1, 0);
            }
            self.out[octet] |= 0x80 >> (port % 8);
        }
        Ok(())
    }
}

/// Address prefixes up to the end of the entry: `1:192.0.2.0/24 !2:2001:db8::/32` (RFC 3123, 5).
pub(super) fn read_apl(rdata: &mut RdataReader<'_, '_>) -> Parsed<()> {
    while let Some(token) = rdata.lexer.token()? {
        let item = token.expect(parse_prefix(token.text), "a prefix such as 1:192.0.2.0/24")?;
        let octets = &item.address[..item.length];
        rdata.out.extend_from_slice(&item.family.to_be_bytes());
        rdata.out.push(item.prefix_bits);
        rdata.out.push(if item.negated { 0x80 } else { 0 } | octets.len() as u8);
        rdata.out.extend_from_slice(octets);
        if rdata.out.len() > super::field::RDATA_LEN_MAX {
            return token.fault(Problem::RdataTooLong);
        }
    }
    Ok(())
}

struct Prefix {
    negated: bool,
    family: u16,
    prefix_bits: u8,
    address: [u8; 16],
    /// Octets up to the last that is not zero (RFC 3123, 4).
    length: usize,
}

fn parse_prefix(text: &[u8]) -> Option<Prefix> {
    let (negated, text) = match text.strip_prefix(b"!") {
        Some(text) => (true, text),
        None => (false, text),
    };
    let (family, text) = (*text.first()?, text[1..].strip_prefix(b":")?);
    let slash = text.iter().rposition(|&octet| octet == b'/')?;
    let (address_text, bits_text) = (&text[..slash], &text[slash + 1..]);
    let mut address = [0; 16];
    let (family, bits_max) = match family {
        b'1' => {
            address[..4].copy_from_slice(&parse_ipv4(address_text)?);
            (1, 32)
        }
        b'2' => {
            address = parse_ipv6(address_text)?;
            (2, 128)
        }
        _ => return None,
    };
    let prefix_bits = decimal(bits_text, bits_max)? as u8;
    let length = address.iter().rposition(|&octet| octet != 0).map_or(0, |last| last + 1);
    Some(Prefix { negated, family, prefix_bits, address, length })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{rdata, refusal};

    #[test]
    fn ipv4_is_four_plain_numbers() {
        assert_eq!(rdata("A", "192.0.2.1"), [192, 0, 2, 1]);
        assert_eq!(refusal("A", "192.0.2.300"), "expected an IPv4 address, found \"192.0.2.300\"");
        for text in [
            "1.2.3",
            "1.2.3.4.5",
            "1.2.3.4.",
            ".1.2.3.4",
            "01.2.3.4",
            "1..2.3",
            "1.2.3.0004",
            "::1",
            "1.2.3.+4",
        ] {
            assert!(refusal("A", text).starts_with("expected an IPv4 address"), "{text}");
        }
    }

    #[test]
    fn ipv6_has_all_forms_of_its_rfc() {
        assert_eq!(rdata("AAAA", "::"), [0; 16]);
        assert_eq!(rdata("AAAA", "2001:db8::1")[..4], [0x20, 0x01, 0x0d, 0xb8]);
        assert_eq!(rdata("AAAA", "::ffff:192.0.2.1")[12..], [192, 0, 2, 1]);
        for text in ["1.2.3.4", "fe80::1%eth0", ":::", "1:2:3:4:5:6:7", "g::"] {
            assert!(refusal("AAAA", text).starts_with("expected an IPv6 address"), "{text}");
        }
    }

    #[test]
    fn prefixes_drop_trailing_zeros() {
        let octets = rdata("APL", "1:192.168.32.0/21 !1:192.168.38.0/28 2:FF00:0:0:0:0:0:0:0/8");
        let expected: [&[u8]; 3] =
            [&[0, 1, 21, 3, 192, 168, 32], &[0, 1, 28, 0x83, 192, 168, 38], &[0, 2, 8, 1, 0xff]];
        assert_eq!(octets, expected.concat());
        assert_eq!(rdata("APL", ""), []);
        for text in ["3:x/1", "1:192.0.2.0", "1:192.0.2.0/33", "1192.0.2.0/24", "!", ""] {
            assert!(text.is_empty() || refusal("APL", text).starts_with("expected a prefix"), "{text}");
        }
    }

    #[test]
    fn link_addresses_have_hyphens() {
        assert_eq!(rdata("EUI48", "00-00-5e-00-53-2a"), [0, 0, 0x5e, 0, 0x53, 0x2a]);
        assert_eq!(rdata("EUI64", "00-00-5E-ef-10-00-00-2a"), [0, 0, 0x5e, 0xef, 0x10, 0, 0, 0x2a]);
        for text in ["00-00-5e-00-53", "00:00:5e:00:53:2a", "00-00-5e-00-53-2g", "0-000-5e-00-53-2a"] {
            assert!(refusal("EUI48", text).starts_with("expected pairs"), "{text}");
        }
    }

    #[test]
    fn node_identifiers_are_four_groups() {
        assert_eq!(
            rdata("NID", "10 14:4fff:ff20:ee64"),
            [0, 10, 0, 0x14, 0x4f, 0xff, 0xff, 0x20, 0xee, 0x64]
        );
        for text in ["10 14:4fff:ff20", "10 1:2:3:4:5", "10 ::1:2", "10 12345:1:1:1", "10 +1:1:1:1"] {
            assert!(refusal("L64", text).starts_with("expected four groups"), "{text}");
        }
        assert_eq!(rdata("L32", "10 10.1.2.0"), [0, 10, 10, 1, 2, 0]);
    }

    #[test]
    fn old_networks_have_their_addresses() {
        assert_eq!(rdata("NSAP", "0x47.0005.80"), [0x47, 0, 5, 0x80]);
        assert_eq!(rdata("ATMA", "47.0005.80"), [0, 0x47, 0, 5, 0x80]);
        assert_eq!(rdata("ATMA", "+358.400"), b"\x01358400");
        assert!(refusal("NSAP", "47").starts_with("expected an NSAP address"));
        assert!(refusal("NSAP", "0x").starts_with("expected an NSAP address"));
        assert_eq!(rdata("A6", "0 ::1")[..2], [0, 0]);
        assert_eq!(rdata("A6", "64 ffff::1 p."), b"\x40\0\0\0\0\0\0\0\x01\x01p\0");
        assert_eq!(rdata("A6", "128 p."), b"\x80\x01p\0");
        assert_eq!(rdata("WKS", "10.0.0.1 TCP smtp 7"), [10, 0, 0, 1, 6, 1, 0, 0, 0x40]);
    }
}
