//! Until when a certificate is valid: as much of X.509 as that takes (RFC 5280, 4.1).

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

/// The end of a certificate in DER, in seconds since 1970; `None` if it cannot be read.
pub(crate) fn not_after(certificate: &[u8]) -> Option<u64> {
    let (_, certificate, _) = split(certificate)?;
    let (tag, mut fields, _) = split(certificate)?;
    if tag != SEQUENCE {
        return None;
    }
    if fields.first() == Some(&VERSION) {
        fields = split(fields)?.2;
    }
    // Serial number, algorithm, issuer; then from when on and until when.
    for expected in [INTEGER, SEQUENCE, SEQUENCE] {
        let (tag, _, rest) = split(fields)?;
        fields = Some(rest).filter(|_| tag == expected)?;
    }
    let (_, validity, _) = split(fields)?;
    let (_, _, rest) = split(validity)?;
    let (tag, time, _) = split(rest)?;
    seconds(tag, time)
}

/// Tag and content of the first element, and what follows it.
fn split(octets: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = octets.split_first_chunk()?;
    // A long length has its own number of octets first.
    let count = if first < 0x80 { 0 } else { usize::from(first & 0x7f) };
    let (long, rest) = rest.split_at_checked(count).filter(|_| count <= 4)?;
    let number = |length, octet: &u8| length << 8 | usize::from(*octet);
    let length = if first < 0x80 { usize::from(first) } else { long.iter().fold(0, number) };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// `YYMMDDhhmmssZ` from 1950 to 2049, or `YYYYMMDDhhmmssZ` (RFC 5280, 4.1.2.5).
fn seconds(tag: u8, time: &[u8]) -> Option<u64> {
    let digits = time.strip_suffix(b"Z").filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    let number = |[tens, ones]: &[u8; 2]| u64::from(tens - b'0') * 10 + u64::from(ones - b'0');
    let pairs: Vec<u64> = pairs.iter().map(number).collect();
    let (year, rest) = match (tag, &*pairs) {
        (UTC_TIME, [year, rest @ ..]) => (if *year < 50 { 2000 + year } else { 1900 + year }, rest),
        (GENERALIZED_TIME, [century, year, rest @ ..]) => (century * 100 + year, rest),
        _ => return None,
    };
    let &[month @ 1..=12, day @ 1..=31, hour @ ..24, minute @ ..60, second @ ..61] = rest else {
        return None;
    };
    let days = days_since_1970(year, month, day)?;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

/// Years are counted from March, so that a leap day ends one.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    const DAYS_TO_1970: u64 = 719_468; // From 1 March of the year 0.
    let year = if month < 3 { year.checked_sub(1)? } else { year };
    let month = (month + 9) % 12;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    days.checked_sub(DAYS_TO_1970)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(tag: u8, content: &[&[u8]]) -> Vec<u8> {
        let content = content.concat();
        let length = content.len() as u16;
        [&[tag, 0x82][..], &length.to_be_bytes(), &content].concat()
    }

    fn certificate(version: &[u8], end: (u8, &[u8])) -> Vec<u8> {
        let validity = [element(UTC_TIME, &[b"250101000000Z"]), element(end.0, &[end.1])].concat();
        let fields =
            [version, &element(INTEGER, &[b"7"]), &element(SEQUENCE, &[]), &element(SEQUENCE, &[&[0; 300]])];
        let body = element(SEQUENCE, &[&fields.concat(), &element(SEQUENCE, &[&validity]), b"rest"]);
        element(SEQUENCE, &[&body, b"signature"])
    }

    #[test]
    fn the_end_of_a_certificate_is_found_in_both_forms_of_time() {
        let version = element(VERSION, &[&[2, 1, 2]]);
        let whole = certificate(&version, (UTC_TIME, b"261128233005Z"));
        assert_eq!(not_after(&whole), Some(1_795_908_605));
        assert_eq!(not_after(&certificate(&[], (GENERALIZED_TIME, b"20500301000000Z"))), Some(2_529_705_600));
        assert_eq!(not_after(&certificate(&[], (UTC_TIME, b"491231235959Z"))), Some(2_524_607_999));
        assert_eq!(not_after(&certificate(&[], (UTC_TIME, b"700101000000Z"))), Some(0));
        for time in [&b"500101000000Z"[..], b"261328233005Z", b"26112823300Z", b"261128233005", b""] {
            assert_eq!(not_after(&certificate(&[], (UTC_TIME, time))), None, "{time:?}");
        }
    }

    #[test]
    fn a_certificate_that_is_cut_anywhere_has_no_end() {
        let whole = certificate(&[], (UTC_TIME, b"261128233005Z"));
        for len in 0..whole.len() {
            assert_eq!(not_after(&whole[..len]), None, "{len} octets");
        }
    }
}
