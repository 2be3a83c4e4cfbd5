//! DNSKEY and DS records (RFC 4034, 2 and 5), and which keys a DS set vouches for (RFC 4035, 5.2).

use dns_wire::name::NAME_LEN_MAX;
use dns_wire::{Name, Rtype};

use super::signature::{self, Verified};
use super::{Budget, algorithm};
use crate::message::{Ede, Rdatas, Rrset};
use crate::options::Dnssec;

/// The key belongs to a zone (RFC 4034, 2.1.1).
const ZONE_KEY: u16 = 0x0100;
/// Its owner has given the key up (RFC 5011, 3).
const REVOKED: u16 = 0x0080;

/// The data of a DNSKEY record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dnskey<'a> {
    rdata: &'a [u8],
    flags: u16,
    protocol: u8,
    pub(super) algorithm: u8,
    pub(super) key: &'a [u8],
}

impl<'a> Dnskey<'a> {
    fn parse(rdata: &'a [u8]) -> Option<Dnskey<'a>> {
        let ([flags_high, flags_low, protocol, algorithm], key) = rdata.split_first_chunk()?;
        let flags = u16::from_be_bytes([*flags_high, *flags_low]);
        Some(Dnskey { rdata, flags, protocol: *protocol, algorithm: *algorithm, key })
    }

    /// RFC 4034, appendix B. Algorithm 1, which counts otherwise, is not supported.
    pub(super) fn tag(&self) -> u16 {
        let halves = self.rdata.chunks(2).map(|pair| match *pair {
            [high, low] => u32::from(u16::from_be_bytes([high, low])),
            [high] => u32::from(high) << 8,
            _ => 0,
        });
        let sum: u32 = halves.sum();
        (sum + (sum >> 16)) as u16
    }

    pub(super) fn may_sign(&self) -> bool {
        self.flags & ZONE_KEY != 0 && self.protocol == 3
    }

    fn is_revoked(&self) -> bool {
        self.flags & REVOKED != 0
    }
}

/// The data of a DS record.
#[derive(Clone, Copy, Debug)]
struct Ds<'a> {
    key_tag: u16,
    algorithm: u8,
    digest_type: u8,
    digest: &'a [u8],
}

impl<'a> Ds<'a> {
    fn parse(rdata: &'a [u8]) -> Option<Ds<'a>> {
        let ([high, low, algorithm, digest_type], digest) = rdata.split_first_chunk()?;
        let key_tag = u16::from_be_bytes([*high, *low]);
        Some(Ds { key_tag, algorithm: *algorithm, digest_type: *digest_type, digest })
    }

    /// RFC 4034, 5.1.4.
    fn matches(&self, owner: Name<'_>, key: &Dnskey<'_>) -> bool {
        if self.algorithm != key.algorithm || self.key_tag != key.tag() {
            return false;
        }
        let mut lower = [0; NAME_LEN_MAX];
        let owner = owner.lowercase(&mut lower);
        let digest = algorithm::digest(self.digest_type, &[owner.as_bytes(), key.rdata]);
        digest.is_some_and(|digest| digest.as_ref() == self.digest)
    }
}

/// The data of the DS record for the DNSKEY record with `rdata` at `owner`, by SHA-256.
pub(super) fn ds_of(owner: Name<'_>, rdata: &[u8]) -> Option<Vec<u8>> {
    const SHA256: u8 = 2;
    let key = Dnskey::parse(rdata)?;
    let mut lower = [0; NAME_LEN_MAX];
    let digest = algorithm::digest(SHA256, &[owner.lowercase(&mut lower).as_bytes(), rdata])?;
    Some([&key.tag().to_be_bytes()[..], &[key.algorithm, SHA256], digest.as_ref()].concat())
}

/// Keys of one zone that are looked at. Zones in a roll-over have four to eight.
const KEYS_MAX: usize = 64;

/// The keys of a DNSKEY set.
pub(super) fn keys(set: &Rrset) -> Vec<Dnskey<'_>> {
    set.rdatas.iter().filter_map(Dnskey::parse).take(KEYS_MAX).collect()
}

/// Whether we know the algorithm and the digest of any of the DS records `ds`; if not, why their zone is insecure (RFC 4035, 5.2).
pub(super) fn check_support(ds: &Rdatas, sha1: bool) -> Result<(), Ede> {
    let mut reason = Ede::UNSUPPORTED_ALGORITHM;
    for ds in ds.iter().filter_map(Ds::parse).filter(|ds| algorithm::is_supported(ds.algorithm, sha1)) {
        if algorithm::is_digest_supported(ds.digest_type, sha1) {
            return Ok(());
        }
        reason = Ede::UNSUPPORTED_DIGEST;
    }
    Err(reason)
}

/// Whether one of the keys that `ds` vouches for signed the DNSKEY set `set` (RFC 4035, 5.2).
pub(super) fn verify_keys(
    set: &Rrset,
    ds: &Rdatas,
    wall_secs: u32,
    options: &Dnssec,
    budget: &dyn Budget,
) -> Result<Verified, Ede> {
    debug_assert_eq!(set.rtype, Rtype::DNSKEY);
    let owner = set.owner.as_name();
    let vouched: Vec<Dnskey<'_>> = keys(set)
        .into_iter()
        .filter(|key| key.may_sign() && !key.is_revoked())
        .filter(|key| usable(ds, options).any(|ds| ds.matches(owner, key)))
        .take(options.colliding_keys_max.into())
        .collect();
    if vouched.is_empty() {
        return Err(Ede::DNSKEY_MISSING);
    }
    signature::verify(set, owner, &vouched, wall_secs, options, budget)
}

/// The DS records that count: those by SHA-1 do not where there are others (RFC 4509, 3).
fn usable<'a>(ds: &'a Rdatas, options: &Dnssec) -> impl Iterator<Item = Ds<'a>> {
    let sha1 = options.sha1;
    let supported = move |ds: &Ds<'_>| {
        algorithm::is_supported(ds.algorithm, sha1) && algorithm::is_digest_supported(ds.digest_type, sha1)
    };
    let all = move || ds.iter().filter_map(Ds::parse).filter(supported);
    let has_better = all().any(|ds| ds.digest_type != algorithm::DIGEST_SHA1);
    all()
        .filter(move |ds| !has_better || ds.digest_type != algorithm::DIGEST_SHA1)
        .take(options.ds_max.into())
}

#[cfg(test)]
mod tests {
    use dns_wire::NameBuf;

    use super::*;

    struct Ample;

    impl Budget for Ample {
        fn take_signature(&self) -> bool {
            true
        }

        fn take_hash(&self) -> bool {
            true
        }
    }

    /// What is wrong with a zone that has one key with these flags and this protocol, which its DS record names, and no signature.
    fn failure(flags: u16, protocol: u8, digest_type: u8) -> Ede {
        let key = [&flags.to_be_bytes()[..], &[protocol, 15], &[7; 32]].concat();
        let mut ds = ds_of(Name::ROOT, &key).unwrap();
        ds[3] = digest_type;
        let set = Rrset::unsigned(NameBuf::root(), Rtype::DNSKEY, 60, Rdatas::pack([&key[..]]));
        verify_keys(&set, &Rdatas::pack([&ds[..]]), 0, &Dnssec::default(), &Ample).unwrap_err()
    }

    #[test]
    fn a_parent_vouches_only_for_keys_of_zones_that_were_not_given_up() {
        assert_eq!(failure(257, 3, 2), Ede::RRSIGS_MISSING, "the key is good");
        assert_eq!(failure(256, 3, 2), Ede::RRSIGS_MISSING, "SEP is a hint (RFC 4034, 2.1.1)");
        assert_eq!(failure(257 | REVOKED, 3, 2), Ede::DNSKEY_MISSING);
        assert_eq!(failure(1, 3, 2), Ede::DNSKEY_MISSING, "no zone key");
        assert_eq!(failure(257, 4, 2), Ede::DNSKEY_MISSING, "another protocol");
        assert_eq!(failure(257, 3, 4), Ede::DNSKEY_MISSING, "another digest");
    }
}
