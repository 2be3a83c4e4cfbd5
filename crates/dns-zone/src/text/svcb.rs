//! Service parameters (RFC 9460, 2.1 and appendix A).

use std::ops::Range;

use super::address::{parse_ipv4, parse_ipv6};
use super::encoding::{Decoder, Encoding, encode, push_unescaped};
use super::error::{Parsed, Problem};
use super::field::{RDATA_LEN_MAX, RdataReader};
use super::lexer::Token;
use super::number::decimal;
use super::print::{Octets, Quoted, Words};

const MANDATORY: u16 = 0;
const ALPN: u16 = 1;
const NO_DEFAULT_ALPN: u16 = 2;
const PORT: u16 = 3;
const IPV4HINT: u16 = 4;
const ECH: u16 = 5;
const IPV6HINT: u16 = 6;
const DOHPATH: u16 = 7;
const OHTTP: u16 = 8;
const TLS_SUPPORTED_GROUPS: u16 = 9;
/// Reserved as "invalid key" (RFC 9460, 14.3.2).
const INVALID: u16 = 65535;

const KEYS: &[(u16, &str)] = &[
    (MANDATORY, "mandatory"),
    (ALPN, "alpn"),
    (NO_DEFAULT_ALPN, "no-default-alpn"),
    (PORT, "port"),
    (IPV4HINT, "ipv4hint"),
    (ECH, "ech"),
    (IPV6HINT, "ipv6hint"),
    (DOHPATH, "dohpath"),
    (OHTTP, "ohttp"),
    (TLS_SUPPORTED_GROUPS, "tls-supported-groups"),
];

impl RdataReader<'_, '_> {
    /// `key`, `key=value` and `key="value"` up to the end of the entry, in any order.
    pub(super) fn svc_params(&mut self) -> Parsed<()> {
        let start = self.out.len();
        let position = self.lexer.position();
        let mut params: Vec<(u16, Range<usize>)> = Vec::new();
        while let Some(token) = self.lexer.token()? {
            let param_start = self.out.len();
            let key = self.svc_param(&token)?;
            if self.out.len() > RDATA_LEN_MAX {
                return token.fault(Problem::RdataTooLong);
            }
            if params.iter().any(|(known, _)| *known == key) {
                return token.fault(Problem::SvcParams("this service parameter is there twice"));
            }
            params.push((key, param_start..self.out.len()));
        }
        if !params.is_sorted_by_key(|(key, _)| *key) {
            params.sort_unstable_by_key(|(key, _)| *key);
            let unsorted = self.out.split_off(start);
            for (_, range) in params {
                self.out.extend_from_slice(&unsorted[range.start - start..range.end - start]);
            }
        }
        check_params(&self.out[start..]).or_else(|reason| position.fault(Problem::SvcParams(reason)))
    }

    /// Appends one parameter and returns its key.
    fn svc_param(&mut self, token: &Token<'_>) -> Parsed<u16> {
        let equals = token.text.iter().position(|&octet| octet == b'=');
        let (key_text, value_text) = match equals {
            Some(equals) => (&token.text[..equals], Some(&token.text[equals + 1..])),
            None => (token.text, None),
        };
        let key = parse_key(key_text).filter(|_| !token.quoted);
        let (key, is_generic) = token.expect(key, "a service parameter")?;
        let value = match value_text {
            // The value is in quotes of its own: a token that follows without a blank.
            Some([]) if self.lexer.at_quote() => self.lexer.require("a value")?,
            value => Token { text: value.unwrap_or_default(), ..*token },
        };

        self.out.extend_from_slice(&key.to_be_bytes());
        let length_at = self.out.len();
        self.out.extend_from_slice(&[0, 0]);
        self.svc_value(if is_generic { INVALID } else { key }, &value)?;
        let length = self.out.len() - length_at - 2;
        let Ok(length) = u16::try_from(length) else { return token.fault(Problem::RdataTooLong) };
        self.out[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
        Ok(key)
    }

    /// Appends the value of `key`; of keys that have no text format of their own, the octets as they are.
    fn svc_value(&mut self, key: u16, token: &Token<'_>) -> Parsed<()> {
        let mut value = Vec::new();
        let unescaped = push_unescaped(token.text, &mut value);
        token.expect(unescaped, "\\ and a character, or \\ and three digits up to 255")?;
        let out = &mut *self.out;
        match key {
            MANDATORY => token.expect(push_mandatory(&value, out), "a list of service parameters"),
            ALPN => token.expect(push_alpn(&value, out), "a list of protocols of 1 to 255 octets"),
            NO_DEFAULT_ALPN | OHTTP => token.expect(value.is_empty().then_some(()), "no value"),
            PORT => token.expect(push_u16(&value, out), "a port from 0 to 65535"),
            IPV4HINT => {
                let pushed = push_list(&value, |item| parse_ipv4(item).map(|octets| out.extend(octets)));
                token.expect(pushed, "a list of IPv4 addresses")
            }
            IPV6HINT => {
                let pushed = push_list(&value, |item| parse_ipv6(item).map(|octets| out.extend(octets)));
                token.expect(pushed, "a list of IPv6 addresses")
            }
            TLS_SUPPORTED_GROUPS => {
                token.expect(push_list(&value, |item| push_u16(item, out)), "a list of group numbers")
            }
            ECH => {
                let mut decoder = Decoder::base64();
                let decoded = decoder.push(&value, out).and_then(|()| decoder.finish());
                token.expect(decoded.filter(|()| !value.is_empty()), "base64")
            }
            _ => {
                out.extend_from_slice(&value);
                Ok(())
            }
        }
    }
}

/// The parameters as [`RdataReader::svc_params`] reads them.
pub(super) fn print(words: &mut Words<'_>, octets: &mut Octets<'_>) -> Option<()> {
    while !octets.0.is_empty() {
        let (key, length) = (octets.u16()?, octets.u16()?);
        let value = octets.take(length.into())?;
        let text = value_text(key, &mut Octets(value))?;
        words.push(format_args!("{}{text}", key_text(key)));
    }
    Some(())
}

fn key_text(key: u16) -> String {
    let known = KEYS.iter().find(|(known, _)| *known == key);
    known.map_or_else(|| format!("key{key}"), |(_, word)| (*word).to_owned())
}

/// What stands behind a key: `=` and a value, or nothing.
fn value_text(key: u16, value: &mut Octets<'_>) -> Option<String> {
    Some(match key {
        MANDATORY => list(value, |value| value.u16().map(key_text))?,
        ALPN => format!("={}", Quoted(&protocols(value)?)),
        PORT | TLS_SUPPORTED_GROUPS => list(value, |value| value.u16().map(|number| number.to_string()))?,
        IPV4HINT => list(value, |value| value.ipv4().map(|address| address.to_string()))?,
        IPV6HINT => list(value, |value| value.ipv6().map(|address| address.to_string()))?,
        ECH => {
            let mut text = "=".to_owned();
            encode(Encoding::Base64, value.rest(), &mut text);
            text
        }
        _ if value.0.is_empty() => String::new(),
        _ => format!("={}", Quoted(value.rest())),
    })
}

fn list(value: &mut Octets<'_>, item: impl Fn(&mut Octets<'_>) -> Option<String>) -> Option<String> {
    let mut items = Vec::new();
    while !value.0.is_empty() {
        items.push(item(value)?);
    }
    Some(format!("={}", items.join(",")))
}

/// Protocols with commas between, as [`push_alpn`] reads them.
fn protocols(value: &mut Octets<'_>) -> Option<Vec<u8>> {
    let mut protocols = Vec::new();
    while !value.0.is_empty() {
        let mut escaped = Vec::new();
        for &octet in value.counted()? {
            escaped.extend(matches!(octet, b'\\' | b',').then_some(b'\\'));
            escaped.push(octet);
        }
        protocols.push(escaped);
    }
    Some(protocols.join(&b','))
}

/// A key, and whether it is in the form `keyNNNNN`, whose value is in wire format.
fn parse_key(text: &[u8]) -> Option<(u16, bool)> {
    if let Some((key, _)) = KEYS.iter().find(|(_, word)| word.as_bytes().eq_ignore_ascii_case(text)) {
        return Some((*key, false));
    }
    let (word, digits) = text.split_at_checked(3)?;
    let has_leading_zero = digits.len() > 1 && digits[0] == b'0';
    if !word.eq_ignore_ascii_case(b"key") || has_leading_zero {
        return None;
    }
    decimal(digits, u64::from(INVALID) - 1).map(|key| (key as u16, true))
}

fn push_u16(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let value = decimal(text, u16::MAX.into())? as u16;
    out.extend_from_slice(&value.to_be_bytes());
    Some(())
}

/// Items between commas, at least one; none of these lists needs escapes.
fn push_list(text: &[u8], mut push: impl FnMut(&[u8]) -> Option<()>) -> Option<()> {
    text.split(|&octet| octet == b',').try_for_each(&mut push)
}

/// Keys in ascending order, whatever order they were given in.
fn push_mandatory(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut keys = Vec::new();
    push_list(text, |item| parse_key(item).map(|(key, _)| keys.push(key)))?;
    keys.sort_unstable();
    out.extend(keys.iter().flat_map(|key| key.to_be_bytes()));
    Some(())
}

/// Protocols behind their lengths. The text has been unescaped once as a string; within the list `\,` is a comma and
/// `\\` a backslash (RFC 9460, appendix A.1).
fn push_alpn(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut start = out.len();
    out.push(0);
    let mut octets = text.iter();
    loop {
        let octet = octets.next();
        if matches!(octet, None | Some(b',')) {
            let length = u8::try_from(out.len() - start - 1).ok().filter(|&length| length > 0)?;
            out[start] = length;
            if octet.is_none() {
                return Some(());
            }
            start = out.len();
            out.push(0);
            continue;
        }
        match octet? {
            b'\\' => out.push(*octets.next().filter(|octet| matches!(octet, b'\\' | b','))?),
            octet => out.push(*octet),
        }
    }
}

/// Whether `params` in wire format are in order, have values of the right shape, and do not contradict each other
/// (RFC 9460, 2.2, 7.1 to 7.3 and 8).
pub(super) fn check_params(params: &[u8]) -> Result<(), &'static str> {
    let mut mandatory = Vec::new();
    let mut seen: Vec<u16> = Vec::new();
    let mut rest = params;
    while !rest.is_empty() {
        let [key_high, key_low, length_high, length_low, behind @ ..] = rest else {
            return Err("a service parameter is cut short");
        };
        let key = u16::from_be_bytes([*key_high, *key_low]);
        let length = usize::from(u16::from_be_bytes([*length_high, *length_low]));
        let (value, behind) = behind.split_at_checked(length).ok_or("a service parameter is cut short")?;
        if seen.last().is_some_and(|&last| last >= key) {
            return Err("service parameters are not in ascending order");
        }
        if !has_shape(key, value) {
            return Err("a service parameter has a value that it cannot have");
        }
        if key == MANDATORY {
            mandatory.extend(value.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])));
        }
        seen.push(key);
        rest = behind;
    }
    if seen.binary_search(&NO_DEFAULT_ALPN).is_ok() && seen.binary_search(&ALPN).is_err() {
        return Err("no-default-alpn needs alpn beside it");
    }
    if mandatory.contains(&MANDATORY) || !mandatory.is_sorted_by(|left, right| left < right) {
        return Err("mandatory names itself, or a service parameter twice");
    }
    if mandatory.iter().any(|key| seen.binary_search(key).is_err()) {
        return Err("a service parameter is mandatory and not there");
    }
    Ok(())
}

fn has_shape(key: u16, value: &[u8]) -> bool {
    let items_of = |length: usize| !value.is_empty() && value.len().is_multiple_of(length);
    match key {
        MANDATORY | TLS_SUPPORTED_GROUPS => items_of(2),
        ALPN => is_alpn(value),
        NO_DEFAULT_ALPN | OHTTP => value.is_empty(),
        PORT => value.len() == 2,
        IPV4HINT => items_of(4),
        IPV6HINT => items_of(16),
        ECH | DOHPATH => !value.is_empty(),
        _ => key != INVALID,
    }
}

fn is_alpn(mut value: &[u8]) -> bool {
    let is_empty = value.is_empty();
    while let Some((&length, rest)) = value.split_first() {
        match rest.get(usize::from(length)..) {
            Some(rest) if length > 0 => value = rest,
            _ => return false,
        }
    }
    !is_empty
}

#[cfg(test)]
mod tests {
    use super::super::testing::{rdata, refusal};

    /// The parameters behind priority 1 and target `.`.
    fn params(text: &str) -> Vec<u8> {
        rdata("SVCB", &format!("1 . {text}")).split_off(3)
    }

    fn refused(text: &str) -> String {
        refusal("SVCB", &format!("1 . {text}"))
    }

    #[test]
    fn the_alias_form_has_no_parameters() {
        // RFC 9460, appendix D.1.
        assert_eq!(rdata("HTTPS", "0 foo.example.com."), b"\x00\x00\x03foo\x07example\x03com\x00");
    }

    #[test]
    fn the_vectors_of_the_service_form_have_their_octets() {
        // RFC 9460, appendix D.2.
        assert_eq!(params(""), []);
        assert_eq!(params("port=53"), [0, 3, 0, 2, 0, 53]);
        assert_eq!(params("key667=hello"), b"\x02\x9b\x00\x05hello");
        assert_eq!(params(r#"key667="hello\210qoo""#), b"\x02\x9b\x00\x09hello\xd2qoo");
        assert_eq!(
            params(r#"ipv6hint="2001:db8::1,2001:db8::53:1""#),
            *b"\x00\x06\x00\x20\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\x53\0\x01"
        );
        assert_eq!(
            params("alpn=h2,h3-19 mandatory=ipv4hint,alpn ipv4hint=192.0.2.1"),
            b"\0\0\0\x04\0\x01\0\x04\0\x01\0\x09\x02h2\x05h3-19\0\x04\0\x04\xc0\0\x02\x01"
        );
    }

    #[test]
    fn protocols_are_escaped_twice() {
        // RFC 9460, appendix D.2, figure 10.
        let expected = b"\x00\x01\x00\x0c\x08f\\oo,bar\x02h2";
        assert_eq!(params(r#"alpn="f\\\\oo\\,bar,h2""#), expected);
        assert_eq!(params(r"alpn=f\\\092oo\092,bar,h2"), expected);
    }

    #[test]
    fn the_failure_cases_of_the_rfc_fail() {
        // RFC 9460, appendix D.3.
        assert_eq!(refused("key123=abc key123=def"), "this service parameter is there twice");
        for key in ["mandatory", "alpn", "port", "ipv4hint", "ipv6hint", "ech"] {
            assert!(refused(key).starts_with("expected"), "{key}");
        }
        assert_eq!(refused("no-default-alpn=abc"), "expected no value, found \"abc\"");
        assert_eq!(refused("mandatory=key123"), "a service parameter is mandatory and not there");
        assert_eq!(refused("mandatory=mandatory"), "mandatory names itself, or a service parameter twice");
        assert_eq!(
            refused("mandatory=key123,key123 key123=abc"),
            "mandatory names itself, or a service parameter twice"
        );
    }

    #[test]
    fn every_known_parameter_is_read() {
        assert_eq!(params("alpn=h2 no-default-alpn"), b"\0\x01\0\x03\x02h2\0\x02\0\0");
        assert_eq!(params("ech=AEj+DQ=="), [0, 5, 0, 4, 0, 0x48, 0xfe, 0x0d]);
        assert_eq!(params("dohpath=/dns-query{?dns}"), b"\0\x07\0\x10/dns-query{?dns}");
        assert_eq!(params("ohttp"), [0, 8, 0, 0]);
        assert_eq!(params("tls-supported-groups=29,23"), [0, 9, 0, 4, 0, 29, 0, 23]);
        assert_eq!(params(r#"key3="\000\080""#), params("port=80"));
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        assert_eq!(refused("no-default-alpn"), "no-default-alpn needs alpn beside it");
        for text in [
            "key65535=a",
            "key01=a",
            "key=a",
            "foo",
            "\"port=1\"",
            "port=65536",
            "alpn=h2,,h3",
            "alpn=a\\\\b",
            "ipv4hint=1.2.3.4,",
            "ech=A",
        ] {
            assert!(refused(text).starts_with("expected"), "{text}");
        }
        assert_eq!(refused("key3=a"), "a service parameter has a value that it cannot have");
        let long = format!("alpn={}", "x".repeat(256));
        assert!(refused(&long).starts_with("expected a list of protocols"));
    }
}
