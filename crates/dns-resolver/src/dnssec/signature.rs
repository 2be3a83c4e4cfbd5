//! One set and its signatures (RFC 4035, 5.3).

use dns_message::signed_label_count;
use dns_wire::Name;

use super::keys::Dnskey;
use super::{Budget, algorithm, canonical};
use crate::message::{Ede, Rrset};
use crate::options::Dnssec;

/// The data of an RRSIG record (RFC 4034, 3.1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Rrsig<'a> {
    pub(super) algorithm: u8,
    /// Labels of the name that was signed.
    pub(super) labels: u8,
    pub(super) original_ttl: u32,
    /// Seconds since 1970, as serial numbers.
    pub(super) expiration: u32,
    pub(super) inception: u32,
    pub(super) key_tag: u16,
    /// The zone.
    pub(super) signer: Name<'a>,
    pub(super) signature: &'a [u8],
    /// All before the signer's name.
    pub(super) fixed: &'a [u8],
}

impl<'a> Rrsig<'a> {
    pub(super) fn parse(rdata: &'a [u8]) -> Option<Rrsig<'a>> {
        let (fixed, rest) = rdata.split_first_chunk::<18>()?;
        let (signer, signature) = Name::split_from(rest).ok()?;
        let word = |at: usize| u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        Some(Rrsig {
            algorithm: fixed[2],
            labels: fixed[3],
            original_ttl: word(4),
            expiration: word(8),
            inception: word(12),
            key_tag: u16::from_be_bytes([fixed[16], fixed[17]]),
            signer,
            signature,
            fixed,
        })
    }

    /// Whether the time has come, and has not passed: comparisons of serial numbers (RFC 4034, 3.1.5).
    fn check_time(&self, wall_secs: u32) -> Result<(), Ede> {
        if (self.expiration.wrapping_sub(wall_secs) as i32) < 0 {
            return Err(Ede::SIGNATURE_EXPIRED);
        }
        if (wall_secs.wrapping_sub(self.inception) as i32) < 0 {
            return Err(Ede::SIGNATURE_NOT_YET_VALID);
        }
        Ok(())
    }
}

/// A signature that fails counts as so many: honest zones hardly have any, and attackers nothing else.
const FAILURE_COST: u8 = 4;

/// What a good signature says about its set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verified {
    /// Seconds that the set may be kept (RFC 4035, 5.3.3).
    pub(super) ttl_max: u32,
    /// The set comes from a wildcard below a name with so many labels.
    pub(super) wildcard_labels: Option<usize>,
}

/// The zone that signed `set`, as its first readable signature says; it contains the set.
pub(super) fn signer(set: &Rrset) -> Option<Name<'_>> {
    let signers = set.sigs().filter_map(Rrsig::parse).map(|rrsig| rrsig.signer);
    signers.into_iter().find(|signer| set.owner.as_name().ends_with(*signer))
}

/// Looks for one signature of `signer` over `set` that one of `keys` made. Of several failures, the error names the one that came closest.
pub(super) fn verify(
    set: &Rrset,
    signer: Name<'_>,
    keys: &[Dnskey<'_>],
    wall_secs: u32,
    options: &Dnssec,
    budget: &dyn Budget,
) -> Result<Verified, Ede> {
    let mut failure = Ede::RRSIGS_MISSING;
    let mut fail = |ede: Ede| {
        if closeness(ede) > closeness(failure) {
            failure = ede;
        }
    };
    let sigs = set.sigs().filter_map(Rrsig::parse).filter(|rrsig| rrsig.signer == signer);
    for rrsig in sigs.take(options.signatures_max.into()) {
        if let Err(ede) = rrsig.check_time(wall_secs) {
            fail(ede);
            continue;
        }
        match verify_one(set, &rrsig, keys, options, budget) {
            Ok(()) => return Ok(verified(set, &rrsig, wall_secs)),
            Err(ede) => fail(ede),
        }
    }
    Err(failure)
}

fn closeness(ede: Ede) -> usize {
    let order = [
        Ede::RRSIGS_MISSING,
        Ede::DNSKEY_MISSING,
        Ede::SIGNATURE_NOT_YET_VALID,
        Ede::SIGNATURE_EXPIRED,
        Ede::BOGUS,
    ];
    order.iter().position(|other| *other == ede).unwrap_or(0)
}

fn verify_one(
    set: &Rrset,
    rrsig: &Rrsig<'_>,
    keys: &[Dnskey<'_>],
    options: &Dnssec,
    budget: &dyn Budget,
) -> Result<(), Ede> {
    let fits =
        |key: &&Dnskey<'_>| key.tag() == rrsig.key_tag && key.algorithm == rrsig.algorithm && key.may_sign();
    let mut failure = Ede::DNSKEY_MISSING;
    if !algorithm::is_supported(rrsig.algorithm, options.sha1) {
        return Err(failure);
    }
    let data = canonical::signed_data(rrsig, set).ok_or(Ede::BOGUS)?;
    for key in keys.iter().filter(fits).take(options.colliding_keys_max.into()) {
        failure = Ede::BOGUS;
        if !budget.take_signature() {
            break;
        }
        if algorithm::verify(rrsig.algorithm, key.key, &data, rrsig.signature) {
            return Ok(());
        }
        for _ in 1..FAILURE_COST {
            budget.take_signature();
        }
    }
    Err(failure)
}

fn verified(set: &Rrset, rrsig: &Rrsig<'_>, wall_secs: u32) -> Verified {
    let labels = usize::from(rrsig.labels);
    let is_expanded = labels < signed_label_count(set.owner.as_name());
    Verified {
        ttl_max: rrsig.original_ttl.min(rrsig.expiration.wrapping_sub(wall_secs)),
        wildcard_labels: is_expanded.then_some(labels),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use dns_wire::{NameBuf, Rtype};

    use super::*;
    use crate::dnssec::{Security, keys};
    use crate::message::{Proof, Rdatas};

    const ED25519: u8 = 15;

    /// A budget that counts what is taken from it.
    struct Counted(Cell<u16>);

    impl Budget for Counted {
        fn take_signature(&self) -> bool {
            let left = self.0.get();
            self.0.set(left.saturating_sub(1));
            left > 0
        }

        fn take_hash(&self) -> bool {
            true
        }
    }

    /// Keys that all have one tag: what one of their words gains, another loses.
    fn colliding_keys() -> Rrset {
        let keys: Vec<Vec<u8>> = (0..100u8)
            .map(|number| {
                let mut key = vec![1, 0, 3, ED25519];
                key.extend([0, number, 0, 200 - number]);
                key.extend([7; 28]);
                key
            })
            .collect();
        let rdatas = Rdatas::pack(keys.iter().map(|key| &key[..]));
        Rrset::unsigned(NameBuf::root(), Rtype::DNSKEY, 60, rdatas)
    }

    /// A set with a hundred signatures, none of which is right.
    fn signed(key_tag: u16) -> Rrset {
        let sigs: Vec<Vec<u8>> = (0..100u8)
            .map(|number| {
                let mut sig = vec![0, 1, ED25519, 0];
                sig.extend([60u32, 2000, 1000].map(u32::to_be_bytes).concat());
                sig.extend(key_tag.to_be_bytes());
                sig.push(0);
                sig.extend([number; 64]);
                sig
            })
            .collect();
        let sigs = Rdatas::pack(sigs.iter().map(|sig| &sig[..]));
        let proof = Some(std::sync::Arc::new(Proof { sigs, absence: Vec::new() }));
        let set = Rrset::unsigned(NameBuf::root(), Rtype::A, 60, Rdatas::pack([&[192, 0, 2, 1][..]]));
        Rrset { security: Security::Unchecked, proof, ..set }
    }

    #[test]
    fn keytrap_costs_no_more_than_the_bounds() {
        let (keys, options) = (colliding_keys(), Dnssec::default());
        let keys = keys::keys(&keys);
        assert!(keys.iter().all(|key| key.tag() == keys[0].tag()), "they collide");
        let set = signed(keys[0].tag());
        let most = u16::from(options.signatures_max) * u16::from(options.colliding_keys_max);
        let check = |budget: &Counted| verify(&set, Name::ROOT, &keys, 1500, &options, budget);
        let ample = Counted(Cell::new(1000));
        assert_eq!(check(&ample), Err(Ede::BOGUS));
        assert_eq!(1000 - ample.0.get(), most * u16::from(FAILURE_COST), "for 10 000 pairs");
        let short = Counted(Cell::new(5));
        assert_eq!(check(&short), Err(Ede::BOGUS));
        assert_eq!(short.0.get(), 0);
    }

    #[test]
    fn time_is_compared_as_serial_numbers() {
        let set = signed(0);
        let sigs: Vec<Rrsig<'_>> = set.sigs().filter_map(Rrsig::parse).collect();
        let rrsig = Rrsig { inception: u32::MAX - 100, expiration: 100, ..sigs[0] };
        assert_eq!(rrsig.check_time(u32::MAX - 101), Err(Ede::SIGNATURE_NOT_YET_VALID));
        assert_eq!(rrsig.check_time(u32::MAX - 100), Ok(()));
        assert_eq!(rrsig.check_time(100), Ok(()), "in 2106");
        assert_eq!(rrsig.check_time(101), Err(Ede::SIGNATURE_EXPIRED));
    }
}
