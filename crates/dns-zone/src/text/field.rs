//! The data of a record: field by field, or in the generic form.

use dns_wire::{Name, NameBuf, Rtype};

use super::encoding::{Decoder, push_unescaped};
use super::error::{Parsed, Problem};
use super::is_rdata;
use super::lexer::{Lexer, Token};
use super::mnemonic::{self, ALGORITHMS, CERTIFICATE_TYPES, DSYNC_SCHEMES};
use super::number::{decimal, duration_s, time_s};
use super::schema::{Field, schema};
use super::{address, loc};

/// The longest RDATA in octets.
pub(super) const RDATA_LEN_MAX: usize = 65535;

/// Reads what stands behind the type of a record.
pub(super) struct RdataReader<'r, 't> {
    pub(super) lexer: &'r mut Lexer<'t>,
    pub(super) origin: Option<Name<'r>>,
    /// The RDATA so far, uncompressed.
    pub(super) out: &'r mut Vec<u8>,
    /// Room for one name.
    pub(super) name: &'r mut NameBuf,
}

impl<'t> RdataReader<'_, 't> {
    /// Appends the RDATA of a record of type `rtype`, up to the end of the entry.
    pub(super) fn read(&mut self, rtype: Rtype) -> Parsed<()> {
        let start = self.lexer.position();
        if self.lexer.next_is(b"\\#")? {
            self.generic(rtype)?;
        } else {
            let Some(fields) = schema(rtype) else { return start.fault(Problem::NoTextFormat(rtype)) };
            for &field in fields {
                self.field(field)?;
            }
        }
        if self.out.len() > RDATA_LEN_MAX {
            return start.fault(Problem::RdataTooLong);
        }
        self.lexer.finish_entry()
    }

    fn field(&mut self, field: Field) -> Parsed<()> {
        match field {
            Field::U8 => self.u8("a number from 0 to 255"),
            Field::U16 => self.u16("a number from 0 to 65535"),
            Field::U32 => self.u32_by(|text| decimal(text, u32::MAX.into()), "a number from 0 to 4294967295"),
            Field::U64 => self.u64(),
            Field::Duration => self.u32_by(duration_s, "a number of seconds from 0 to 4294967295"),
            Field::Time => self.u32_by(|text| time_s(text).map(u64::from), "a time as YYYYMMDDHHmmSS"),
            Field::Name => self.name(),
            Field::Ipv4 => self.ipv4(),
            Field::Ipv6 => self.ipv6(),
            Field::String => self.string(),
            Field::StringOrNone => self.strings(0, 1),
            Field::Strings => self.strings(1, usize::MAX),
            Field::Tag => self.tag(),
            Field::Text => self.text("a string"),
            Field::SomeText => self.some_text(),
            Field::Base64 => self.base64(1),
            Field::Base64OrNone => self.base64(0),
            Field::Base64OrHyphen => self.base64_or_hyphen(),
            Field::Hex => self.hex(),
            Field::Salt => self.salt(),
            Field::HashedOwner => self.hashed_owner(),
            Field::Bitmap => self.bitmap(),
            Field::OldBitmap => self.old_bitmap(),
            Field::Type => self.u16_by(|text| Rtype::from_text(text).map(|rtype| rtype.0), "a type"),
            Field::Algorithm => self.word_u8(ALGORITHMS, "an algorithm"),
            Field::CertificateType => self
                .u16_by(|text| mnemonic::number(CERTIFICATE_TYPES, text, u16::MAX), "a type of certificate"),
            Field::DsyncScheme => self.word_u8(DSYNC_SCHEMES, "a scheme"),
            Field::Nsap => self.nsap(),
            Field::Atma => self.atma(),
            Field::Eui(length) => self.eui(length),
            Field::Ilnp64 => self.ilnp64(),
            Field::A6 => self.a6(),
            Field::Loc => loc::read(self),
            Field::Apl => address::read_apl(self),
            Field::Wks => self.wks(),
            Field::Ipseckey => self.ipseckey(),
            Field::Amtrelay => self.amtrelay(),
            Field::Hip => self.hip(),
            Field::SvcParams => self.svc_params(),
        }
    }

    /// `\# LENGTH HEX` (RFC 3597, 5).
    fn generic(&mut self, rtype: Rtype) -> Parsed<()> {
        let marker = self.lexer.require_word("\\#")?;
        let token = self.lexer.require_word("the number of octets")?;
        let stated = token.expect(decimal(token.text, 65535), "the number of octets from 0 to 65535")? as u16;
        let start = self.out.len();
        self.decode_rest(Decoder::base16(), "hex digits")?;
        let given = self.out.len() - start;
        if given != usize::from(stated) {
            return token.fault(Problem::GenericLength { stated, given });
        }
        if !is_rdata(rtype, &self.out[start..]) {
            return marker.fault(Problem::GenericMalformed(rtype));
        }
        Ok(())
    }

    pub(super) fn u8(&mut self, expected: &'static str) -> Parsed<()> {
        let token = self.lexer.require_word(expected)?;
        let value = token.expect(decimal(token.text, u8::MAX.into()), expected)?;
        self.out.push(value as u8);
        Ok(())
    }

    pub(super) fn u16(&mut self, expected: &'static str) -> Parsed<()> {
        self.u16_by(|text| decimal(text, u16::MAX.into()).map(|value| value as u16), expected)
    }

    fn u16_by(&mut self, read: impl Fn(&[u8]) -> Option<u16>, expected: &'static str) -> Parsed<()> {
        let token = self.lexer.require_word(expected)?;
        let value = token.expect(read(token.text), expected)?;
        self.out.extend_from_slice(&value.to_be_bytes());
        Ok(())
    }

    fn u32_by(&mut self, read: impl Fn(&[u8]) -> Option<u64>, expected: &'static str) -> Parsed<()> {
        let token = self.lexer.require_word(expected)?;
        let value = read(token.text).and_then(|value| u32::try_from(value).ok());
        let value = token.expect(value, expected)?;
        self.out.extend_from_slice(&value.to_be_bytes());
        Ok(())
    }

    fn u64(&mut self) -> Parsed<()> {
        const EXPECTED: &str = "a number from 0 to 18446744073709551615";
        let token = self.lexer.require_word(EXPECTED)?;
        let value = token.expect(decimal(token.text, u64::MAX), EXPECTED)?;
        self.out.extend_from_slice(&value.to_be_bytes());
        Ok(())
    }

    pub(super) fn word_u8(&mut self, words: &[(u16, &str)], expected: &'static str) -> Parsed<()> {
        let token = self.lexer.require_word(expected)?;
        let value = token.expect(mnemonic::number(words, token.text, u8::MAX.into()), expected)?;
        self.out.push(value as u8);
        Ok(())
    }

    pub(super) fn name(&mut self) -> Parsed<()> {
        let token = self.lexer.require_word("a domain name")?;
        self.push_name(&token)
    }

    pub(super) fn push_name(&mut self, token: &Token<'t>) -> Parsed<()> {
        if let Err(error) = self.name.set_from_text(token.text, self.origin) {
            return token.fault(Problem::of_name(token.shown(), error));
        }
        self.out.extend_from_slice(self.name.as_name().as_bytes());
        Ok(())
    }

    fn string(&mut self) -> Parsed<()> {
        let token = self.lexer.require("a string")?;
        self.push_string(&token)
    }

    fn push_string(&mut self, token: &Token<'t>) -> Parsed<()> {
        let start = self.out.len();
        self.out.push(0);
        self.push_text(token)?;
        let length = self.out.len() - start - 1;
        let Ok(octet) = u8::try_from(length) else { return token.fault(Problem::StringTooLong(length)) };
        self.out[start] = octet;
        Ok(())
    }

    fn strings(&mut self, count_min: usize, count_max: usize) -> Parsed<()> {
        for _ in 0..count_min {
            self.string()?;
        }
        for _ in count_min..count_max {
            let Some(token) = self.lexer.token()? else { break };
            self.push_string(&token)?;
        }
        Ok(())
    }

    fn tag(&mut self) -> Parsed<()> {
        const EXPECTED: &str = "a tag of letters and digits";
        let token = self.lexer.require_word(EXPECTED)?;
        if token.text.is_empty() || !token.text.iter().all(u8::is_ascii_alphanumeric) {
            return token.unexpected(EXPECTED);
        }
        self.push_string(&token)
    }

    fn text(&mut self, expected: &'static str) -> Parsed<()> {
        let token = self.lexer.require(expected)?;
        self.push_text(&token)
    }

    fn some_text(&mut self) -> Parsed<()> {
        const EXPECTED: &str = "a string that is not empty";
        let token = self.lexer.require(EXPECTED)?;
        if token.text.is_empty() { token.unexpected(EXPECTED) } else { self.push_text(&token) }
    }

    /// The octets that the text of `token` stands for, without a length.
    fn push_text(&mut self, token: &Token<'t>) -> Parsed<()> {
        if !token.escaped {
            self.out.extend_from_slice(token.text);
            return Ok(());
        }
        let pushed = push_unescaped(token.text, self.out);
        token.expect(pushed, "\\ and a character, or \\ and three digits up to 255")
    }

    pub(super) fn base64(&mut self, octets_min: usize) -> Parsed<()> {
        let start = self.out.len();
        self.decode_rest(Decoder::base64(), "base64 with its padding")?;
        self.require_octets(start, octets_min, "base64")
    }

    fn base64_or_hyphen(&mut self) -> Parsed<()> {
        if self.lexer.next_is(b"-")? {
            return self.lexer.require_word("-").map(|_| ());
        }
        self.base64(1)
    }

    fn hex(&mut self) -> Parsed<()> {
        let start = self.out.len();
        self.decode_rest(Decoder::base16(), "an even number of hex digits")?;
        self.require_octets(start, 1, "hex digits")
    }

    /// Decodes all tokens up to the end of the entry as if they were one.
    fn decode_rest(&mut self, mut decoder: Decoder, expected: &'static str) -> Parsed<()> {
        let mut last = None;
        while let Some(token) = self.lexer.token()? {
            token.expect(decoder.push(token.text, self.out), expected)?;
            last = Some(token);
        }
        match last {
            Some(token) => token.expect(decoder.finish(), expected),
            None => Ok(()),
        }
    }

    fn require_octets(&mut self, start: usize, octets_min: usize, expected: &'static str) -> Parsed<()> {
        if self.out.len() - start >= octets_min {
            return Ok(());
        }
        let found = String::from("the end of the line");
        self.lexer.position().fault(Problem::Expected { expected, found })
    }

    /// One token in an encoding, behind its length in one octet.
    fn counted(&mut self, token: &Token<'t>, mut decoder: Decoder, expected: &'static str) -> Parsed<()> {
        let start = self.out.len();
        self.out.push(0);
        let decoded = decoder.push(token.text, self.out).and_then(|()| decoder.finish());
        let length = decoded.and_then(|()| u8::try_from(self.out.len() - start - 1).ok());
        self.out[start] = token.expect(length.filter(|&length| length > 0), expected)?;
        Ok(())
    }

    fn salt(&mut self) -> Parsed<()> {
        const EXPECTED: &str = "a salt of up to 255 octets in hex, or - for none";
        let token = self.lexer.require_word(EXPECTED)?;
        if token.text == b"-" {
            self.out.push(0);
            return Ok(());
        }
        self.counted(&token, Decoder::base16(), EXPECTED)
    }

    fn hashed_owner(&mut self) -> Parsed<()> {
        const EXPECTED: &str = "a hash of up to 255 octets in base32hex";
        let token = self.lexer.require_word(EXPECTED)?;
        self.counted(&token, Decoder::base32_hex(), EXPECTED)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{rdata, refusal};

    #[test]
    fn numbers_stay_in_their_range() {
        assert_eq!(rdata("MX", "10 ."), [0, 10, 0]);
        assert_eq!(refusal("MX", "65536 ."), "expected a number from 0 to 65535, found \"65536\"");
        assert_eq!(refusal("MX", ""), "expected a number from 0 to 65535, found the end of the line");
        assert_eq!(refusal("MX", "10"), "expected a domain name, found the end of the line");
        assert_eq!(refusal("MX", "10 a b"), "expected the end of the line, found \"b\"");
        assert_eq!(refusal("MX", "10 \"a\""), "expected a domain name, found the quoted string \"a\"");
        assert_eq!(rdata("IPN", "18446744073709551615"), [0xff; 8]);
    }

    #[test]
    fn names_are_relative_to_the_origin() {
        assert_eq!(rdata("NS", "ns"), b"\x02ns\x07example\x00");
        assert_eq!(rdata("NS", "@"), b"\x07example\x00");
        assert_eq!(rdata("NS", "ns."), b"\x02ns\x00");
        assert_eq!(refusal("NS", "a..b"), "expected a domain name, found \"a..b\": a label is empty");
    }

    #[test]
    fn the_soa_takes_units() {
        let octets = rdata("SOA", "ns hostmaster 2026112001 1h 15m 1w 5m");
        let numbers: Vec<u32> = octets[octets.len() - 20..]
            .chunks(4)
            .map(|chunk| u32::from_be_bytes(chunk.try_into().unwrap()))
            .collect();
        assert_eq!(numbers, [2_026_112_001, 3600, 900, 604_800, 300]);
    }

    #[test]
    fn strings_have_a_length_and_escapes() {
        assert_eq!(rdata("TXT", r#"a "b c" "" d\"e "\092\255""#), b"\x01a\x03b c\x00\x03d\"e\x02\\\xff");
        assert_eq!(rdata("HINFO", "a b"), b"\x01a\x01b");
        assert_eq!(rdata("ISDN", "150862028003217 004"), b"\x0f150862028003217\x03004");
        assert_eq!(rdata("ISDN", "150862028003217"), b"\x0f150862028003217");
        assert_eq!(rdata("TXT", &"x".repeat(255)).len(), 256);
        assert_eq!(refusal("TXT", &"x".repeat(256)), "the string has 256 octets, and 255 is the most");
        assert_eq!(refusal("TXT", ""), "expected a string, found the end of the line");
        assert!(refusal("TXT", "\"\\25\"").starts_with("expected \\ and a character"));
    }

    #[test]
    fn rdata_is_at_most_65535_octets() {
        let strings = format!("{} ", "x".repeat(255)).repeat(256);
        assert_eq!(refusal("TXT", &strings), "the data of this record has more than 65535 octets");
        assert_eq!(rdata("TXT", &strings[..strings.len() - 2]).len(), 65535);
    }

    #[test]
    fn text_to_the_end_has_no_length() {
        assert_eq!(rdata("URI", "10 1 \"ftp://x/\""), b"\x00\x0a\x00\x01ftp://x/");
        assert_eq!(rdata("CAA", "0 issue \";\""), b"\x00\x05issue;");
        assert_eq!(rdata("CAA", "128 iodef \"\""), b"\x80\x05iodef");
        assert!(refusal("URI", "10 1 \"\"").starts_with("expected a string that is not empty"));
        assert!(refusal("CAA", "0 is-sue x").starts_with("expected a tag"));
    }

    #[test]
    fn encodings_go_on_to_the_end() {
        assert_eq!(rdata("DS", "60485 RSASHA1 1 2BB1 83AF"), [0xec, 0x45, 5, 1, 0x2b, 0xb1, 0x83, 0xaf]);
        assert_eq!(rdata("DNSKEY", "256 3 5 AQ PS"), [1, 0, 3, 5, 1, 3, 0xd2]);
        assert_eq!(rdata("CDNSKEY", "0 3 0 AA=="), [0, 0, 3, 0, 0]);
        assert_eq!(rdata("KEY", "49152 3 3"), [0xc0, 0, 3, 3]);
        assert_eq!(rdata("DOA", "0 1 2 \"\" -"), [0, 0, 0, 0, 0, 0, 0, 1, 2, 0]);
        assert_eq!(refusal("DS", "1 8 2"), "expected hex digits, found the end of the line");
        assert!(refusal("DS", "1 8 2 abc").starts_with("expected an even number of hex digits"));
        assert!(refusal("DNSKEY", "256 3 5 A").starts_with("expected base64"));
        assert_eq!(rdata("CERT", "PGP 0 0"), [0, 3, 0, 0, 0]);
    }

    #[test]
    fn nsec3_has_a_salt_and_a_hash() {
        // RFC 5155, appendix A.
        let octets = rdata("NSEC3", "1 1 12 aabbccdd 2t7b4g4vsa5smi47k61mv5bv1a22bojr MX");
        assert_eq!(octets[..9], [1, 1, 0, 12, 4, 0xaa, 0xbb, 0xcc, 0xdd]);
        assert_eq!(octets[9], 20);
        assert_eq!(rdata("NSEC3PARAM", "1 0 0 -"), [1, 0, 0, 0, 0]);
        assert!(refusal("NSEC3PARAM", "1 0 0 abc").starts_with("expected a salt"));
    }

    #[test]
    fn signatures_have_times() {
        let octets = rdata("RRSIG", "A 5 3 86400 20030322173103 ( 20030220173103 2642 example.com. oJB1 )");
        assert_eq!(octets[..8], [0, 1, 5, 3, 0, 1, 0x51, 0x80]);
        assert_eq!(octets[8..12], 1_048_354_263u32.to_be_bytes());
        assert!(refusal("RRSIG", "A 5 3 1 2003 x 1 . AA==").starts_with("expected a time"));
    }

    #[test]
    fn every_type_has_the_generic_form() {
        // RFC 3597, 5.
        assert_eq!(rdata("TYPE731", "\\# 6 abcdef (01 23 45)"), [0xab, 0xcd, 0xef, 1, 0x23, 0x45]);
        assert_eq!(rdata("TYPE62347", "\\# 0"), []);
        assert_eq!(rdata("A", "\\# 4 0A000001"), [10, 0, 0, 1]);
        assert_eq!(rdata("TYPE1", "10.0.0.2"), [10, 0, 0, 2]);
        assert_eq!(refusal("A", "\\# 4 0A0000"), "\\# says 4 octets, and 3 follow");
        assert_eq!(refusal("A", "\\# 3 0A0000"), "these octets are not A data");
        assert_eq!(refusal("MX", "\\# 4 0001c00c"), "these octets are not MX data");
        assert!(refusal("TYPE731", "abcd").starts_with("TYPE731 has no text format"));
        assert!(refusal("NULL", "abcd").starts_with("NULL has no text format"));
        assert_eq!(rdata("TXT", "\"\\#\""), b"\x01#");
        assert_eq!(rdata("TXT", "\\#x"), b"\x02#x");
    }
}
