//! What NSEC and NSEC3 records prove (RFC 4035, 5.4; RFC 5155, 8; RFC 6840, 4). The sets that come here have been validated.

mod nsec;
mod nsec3;

use dns_wire::{Name, NameBuf, Rtype};

use super::Budget;
use crate::message::{Ede, Rrset};
use crate::options::Dnssec;

/// What is to be proven.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::enum_variant_names, reason = "each denies something")]
pub(crate) enum Claim<'a> {
    /// The name has no records of the type.
    NoData(Name<'a>, Rtype),
    /// There is no such name, and no wildcard for it.
    NoName(Name<'a>),
    /// There is no such name, nor one between it and its last labels, so many of them: the answer may come from the wildcard there.
    NoCloser(Name<'a>, usize),
}

/// How it is proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proven {
    /// It is so.
    Surely,
    /// Unless an unsigned delegation is there (RFC 5155, 6): what is denied, or delegated, is insecure.
    OptOut,
    /// By more iterations than we compute; it is taken for insecure (RFC 9276, 3.2).
    TooManyIterations,
}

/// Proves `claim` about a name in `zone` by `sets`. An error says that they do not.
pub(crate) fn prove(
    claim: Claim<'_>,
    zone: Name<'_>,
    sets: &[Rrset],
    options: &Dnssec,
    budget: &dyn Budget,
) -> Result<Proven, Ede> {
    if nsec::proves(claim, zone, sets) {
        return Ok(Proven::Surely);
    }
    nsec3::prove(claim, zone, sets, options, budget).ok_or(Ede::NSEC_MISSING)
}

/// The wildcard that would answer for `name`, if the NSEC set `before`, at or before it, says that the name is not there.
pub(crate) fn wildcard_for(name: Name<'_>, before: &Rrset) -> Option<NameBuf> {
    nsec::wildcard_for(name, before)
}

/// The wildcard below a name, if that is not too long.
pub(crate) fn wildcard_below(name: Name<'_>) -> Option<NameBuf> {
    nsec::wildcard_below(name)
}

/// Whether `sets`, which prove that `name` has no DS record, say that it is delegated: then the zone there is insecure.
pub(crate) fn is_delegation(name: Name<'_>, sets: &[Rrset]) -> bool {
    let has_delegation = |types: Types<'_>| types.contains(Rtype::NS) && !types.contains(Rtype::SOA);
    nsec::types_at(name, sets).is_some_and(has_delegation)
        || nsec3::types_at(name, sets).is_some_and(has_delegation)
}

/// The types in an NSEC or NSEC3 record (RFC 4034, 4.1.2): blocks of a number, a length, and a bit for each type.
#[derive(Clone, Copy, Debug)]
struct Types<'a>(&'a [u8]);

impl Types<'_> {
    fn contains(self, Rtype(rtype): Rtype) -> bool {
        let [block, bit] = rtype.to_be_bytes();
        let mut rest = self.0;
        while let [number, len, tail @ ..] = rest {
            let Some((bits, tail)) = tail.split_at_checked(usize::from(*len)) else { return false };
            if *number == block {
                return bits.get(usize::from(bit / 8)).is_some_and(|octet| octet & (0x80 >> (bit % 8)) != 0);
            }
            rest = tail;
        }
        false
    }

    /// The record is the parent's, at a delegation: it says nothing about what is there or below, but for DS (RFC 6840, 4.1).
    fn is_of_parent(self) -> bool {
        self.contains(Rtype::NS) && !self.contains(Rtype::SOA)
    }

    /// What is below the name is not in this zone, or redirected.
    fn hides_what_is_below(self) -> bool {
        self.is_of_parent() || self.contains(Rtype::DNAME)
    }

    /// Whether the record of a name that exists proves that it has no `rtype` (RFC 4035, 5.4; RFC 6840, 4.3 and 4.4).
    fn deny(self, name: Name<'_>, rtype: Rtype) -> bool {
        if self.contains(rtype) || self.contains(Rtype::CNAME) {
            return false;
        }
        match rtype {
            Rtype::DS => !self.contains(Rtype::SOA) || name.is_root(),
            _ => !self.is_of_parent(),
        }
    }
}

#[cfg(test)]
mod tests;
