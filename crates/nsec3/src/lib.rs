//! Hashed names (RFC 5155, 5): what a server denies names by, and a resolver checks.
//!
//! SHA-1 is the only algorithm that was ever registered for this.
#![forbid(unsafe_code)]

use dns_wire::Name;
use dns_wire::name::NAME_LEN_MAX;
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA1_OUTPUT_LEN};

/// The hash of a name. Hashes are ordered as their owners are.
pub type Hash = [u8; SHA1_OUTPUT_LEN];

/// The number of SHA-1 among hash algorithms (RFC 5155, 11).
pub const SHA1: u8 = 1;
/// The flag of a record between whose hash and the next one there may be insecure delegations without a record (RFC 5155, 3.1.2.1).
pub const OPT_OUT: u8 = 1;

/// How the names of a zone are hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters<'a> {
    /// How often the hash is hashed again.
    pub iterations: u16,
    /// What is appended each time.
    pub salt: &'a [u8],
}

impl<'a> Parameters<'a> {
    /// What the data of an NSEC3 or NSEC3PARAM record begins with: the parameters, the flags, and what follows. `None` if it is malformed,
    /// or of another algorithm.
    pub fn split_from(rdata: &'a [u8]) -> Option<(Parameters<'a>, u8, &'a [u8])> {
        let ([SHA1, flags, high, low, salt_len], rest) = rdata.split_first_chunk()? else { return None };
        let (salt, rest) = rest.split_at_checked(usize::from(*salt_len))?;
        Some((Parameters { iterations: u16::from_be_bytes([*high, *low]), salt }, *flags, rest))
    }

    /// The hash of `name`, whatever its case.
    pub fn hash(self, name: Name<'_>) -> Hash {
        let mut lower = [0; NAME_LEN_MAX];
        let mut hash = digest(name.lowercase(&mut lower).as_bytes(), self.salt);
        for _ in 0..self.iterations {
            hash = digest(&hash, self.salt);
        }
        hash
    }
}

fn digest(octets: &[u8], salt: &[u8]) -> Hash {
    let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    context.update(octets);
    context.update(salt);
    context.finish().as_ref().try_into().expect("SHA-1 has so many octets")
}

/// The hash that is the first label of a record's owner (RFC 4648, 7: 32 characters of five bits each).
pub fn from_base32hex(label: &[u8]) -> Option<Hash> {
    let mut hash = [0; SHA1_OUTPUT_LEN];
    if label.len() * 5 != hash.len() * 8 {
        return None;
    }
    for (characters, octets) in label.chunks_exact(8).zip(hash.chunks_exact_mut(5)) {
        let mut bits = 0u64;
        for character in characters {
            let value = match character {
                b'0'..=b'9' => character - b'0',
                b'a'..=b'v' => character - b'a' + 10,
                b'A'..=b'V' => character - b'A' + 10,
                _ => return None,
            };
            bits = bits << 5 | u64::from(value);
        }
        octets.copy_from_slice(&bits.to_be_bytes()[3..]);
    }
    Some(hash)
}

/// The first label of the owner of a hash's record.
pub fn to_base32hex(hash: &Hash) -> [u8; 32] {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
    let mut label = [0; 32];
    for (characters, octets) in label.chunks_exact_mut(8).zip(hash.chunks_exact(5)) {
        let bits = octets.iter().fold(0u64, |bits, octet| bits << 8 | u64::from(*octet));
        for (place, character) in characters.iter_mut().enumerate() {
            *character = DIGITS[(bits >> (35 - 5 * place)) as usize & 31];
        }
    }
    label
}

#[cfg(test)]
mod tests {
    use dns_wire::NameBuf;

    use super::*;

    #[test]
    fn names_hash_as_in_the_appendix_of_the_rfc() {
        let parameters = Parameters { iterations: 12, salt: &[0xaa, 0xbb, 0xcc, 0xdd] };
        for (text, label) in [
            ("example.", "0p9mhaveqvm6t7vbl5lop2u3t2rp3tom"),
            ("A.example.", "35mthgpgcu1qg68fab165klnsnk3dpvl"),
            ("*.w.example.", "r53bq7cc2uvmubfu5ocmm6pers9tk9en"),
        ] {
            let name = NameBuf::from_text(text.as_bytes(), None).unwrap();
            let wanted = from_base32hex(label.as_bytes()).unwrap();
            assert_eq!(parameters.hash(name.as_name()), wanted, "{text}: RFC 5155, appendix A");
            assert_eq!(to_base32hex(&wanted), label.as_bytes());
        }
    }

    #[test]
    fn labels_that_are_no_hash_are_refused() {
        assert_eq!(from_base32hex(b"0p9mhaveqvm6t7vbl5lop2u3t2rp3tow"), None, "w is no digit");
        assert_eq!(from_base32hex(b"0p9mhaveqvm6t7vbl5lop2u3t2rp3to"), None, "a digit is missing");
        assert_eq!(from_base32hex(b""), None);
    }

    #[test]
    fn parameters_are_read_from_both_records() {
        let rdata = [1, 1, 0, 12, 2, 0xaa, 0xbb, 20];
        let parameters = Parameters { iterations: 12, salt: &[0xaa, 0xbb] };
        assert_eq!(Parameters::split_from(&rdata), Some((parameters, OPT_OUT, &[20][..])));
        assert_eq!(Parameters::split_from(&rdata[..6]), None, "the salt is cut short");
        assert_eq!(Parameters::split_from(&[2, 0, 0, 0, 0]), None, "another algorithm");
    }
}
