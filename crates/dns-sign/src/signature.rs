//! RRSIG records (RFC 4034, 3).

use dns_message::{is_older, push_canonical_set, signed_label_count};
use dns_wire::name::NAME_LEN_MAX;
use dns_wire::{Name, Rtype, fold};
use dns_zone::Rrset;

use crate::key::Key;
use crate::key_set::Active;
use crate::wanted::Set;

/// How long signatures are good, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// From now to the expiration at most.
    pub validity: u32,
    /// By so much less at most: those that were made together do not expire together.
    pub spread: u32,
    /// A signature that is good for less than this is made anew.
    pub refresh: u32,
}

impl Default for Lifetimes {
    fn default() -> Lifetimes {
        const DAY: u32 = 86_400;
        Lifetimes { validity: 14 * DAY, spread: 3 * DAY, refresh: 7 * DAY }
    }
}

/// Signatures begin so many seconds ago: the clocks of validators differ.
const CLOCK_SKEW: u32 = 3600;

/// Octets of RRSIG data in front of the signer's name.
const FIXED_LEN: usize = 18;

/// Algorithm and tag of the key that has made a signature; `None` if that is malformed.
pub(crate) fn key_of(rrsig: &[u8]) -> Option<(u8, u16)> {
    let fixed = rrsig.first_chunk::<FIXED_LEN>()?;
    Some((fixed[2], u16::from_be_bytes([fixed[16], fixed[17]])))
}

/// A set that a signature covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Covered<'s> {
    pub(crate) owner: Name<'s>,
    pub(crate) rtype: Rtype,
    pub(crate) ttl: u32,
    pub(crate) records: &'s [&'s [u8]],
}

/// The data of the signature of a set by a key of the zone `origin`; `None` if the key cannot sign. Both times are in seconds since 1970, modulo 2^32.
pub(crate) fn rrsig(
    key: &Key,
    origin: Name<'_>,
    set: &Covered<'_>,
    now: u32,
    expiration: u32,
) -> Option<Vec<u8>> {
    let mut rdata = Vec::with_capacity(FIXED_LEN + origin.len() + 64);
    rdata.extend_from_slice(&set.rtype.0.to_be_bytes());
    rdata.extend_from_slice(&[key.algorithm(), signed_label_count(set.owner) as u8]); // At most 127 labels.
    rdata.extend_from_slice(&set.ttl.to_be_bytes());
    rdata.extend_from_slice(&expiration.to_be_bytes());
    rdata.extend_from_slice(&now.wrapping_sub(CLOCK_SKEW).to_be_bytes());
    rdata.extend_from_slice(&key.tag().to_be_bytes());
    let mut lower = [0; NAME_LEN_MAX];
    rdata.extend_from_slice(origin.lowercase(&mut lower).as_bytes());
    let mut signed = rdata.clone();
    push_canonical_set(&mut signed, set.owner, set.rtype, set.ttl, set.records.iter().copied());
    rdata.extend_from_slice(&key.sign(&signed)?);
    Some(rdata)
}

/// What signatures are made with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pen<'k> {
    pub(crate) keys: &'k Active<'k>,
    pub(crate) origin: Name<'k>,
    /// Seconds since 1970, as signatures count them: modulo 2^32 (RFC 4034, 3.1.5).
    pub(crate) now: u32,
    pub(crate) lifetimes: Lifetimes,
}

impl Pen<'_> {
    /// The data of a set's signatures, one by each key; `None` if a key cannot sign.
    pub(crate) fn sign(&self, owner: Name<'_>, set: &Set) -> Option<Vec<Vec<u8>>> {
        self.keys.signers(set.rtype).iter().map(|key| self.sign_with(key, owner, set)).collect()
    }

    fn sign_with(&self, key: &Key, owner: Name<'_>, set: &Set) -> Option<Vec<u8>> {
        let records: Vec<&[u8]> = set.records.iter().map(Vec::as_slice).collect();
        let covered = Covered { owner, rtype: set.rtype, ttl: set.ttl, records: &records };
        rrsig(key, self.origin, &covered, self.now, self.expiration(owner, set.rtype))
    }

    fn expiration(&self, owner: Name<'_>, rtype: Rtype) -> u32 {
        let Lifetimes { validity, spread, .. } = self.lifetimes;
        let share = fold::hash_name(owner.as_bytes(), u64::from(rtype.0)) >> 32;
        let less = (share * u64::from(spread)) >> 32;
        self.now.wrapping_add(validity - less as u32) // Less than the spread, which is less than the validity.
    }

    /// Whether these are the signatures of all keys for a set of this type, and good for long enough.
    pub(crate) fn are_good<'s>(
        &self,
        rtype: Rtype,
        mut signatures: impl ExactSizeIterator<Item = &'s [u8]>,
    ) -> bool {
        let signers = self.keys.signers(rtype);
        signatures.len() == signers.len()
            && signatures.all(|rdata| {
                let is_by = |key: &&Key| {
                    rdata.get(2) == Some(&key.algorithm())
                        && rdata.get(16..18) == Some(&key.tag().to_be_bytes())
                };
                signers.iter().any(is_by) && self.is_good(rdata)
            })
    }

    /// The same of those that a zone has.
    pub(crate) fn are_good_in(&self, rtype: Rtype, signatures: Option<Rrset<'_>>) -> bool {
        let records: Vec<&[u8]> = signatures.into_iter().flat_map(Rrset::records).collect();
        self.are_good(rtype, records.into_iter())
    }

    /// Whether a signature need not be made anew yet.
    fn is_good(&self, rdata: &[u8]) -> bool {
        let time = |at: usize| rdata.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
        let (Some(expiration), Some(inception)) = (time(8), time(12)) else { return false };
        // One that has not begun was made before the clock went back.
        let has_begun = !is_older(self.now, inception);
        has_begun && is_older(self.now, expiration.wrapping_sub(self.lifetimes.refresh))
    }
}
