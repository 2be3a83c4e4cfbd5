//! Proofs by NSEC3 records (RFC 5155, 8).

use dns_wire::{Name, Rtype};
use nsec3::{Hash, OPT_OUT, Parameters};

use super::nsec::wildcard_below;
use super::{Claim, Proven, Types};
use crate::dnssec::Budget;
use crate::iterator::last_labels;
use crate::message::Rrset;
use crate::options::Dnssec;

/// The hash of a name of the zone, and the next in order.
#[derive(Clone, Copy, Debug)]
struct Nsec3<'a> {
    parameters: Parameters<'a>,
    is_opt_out: bool,
    owner: Hash,
    next: Hash,
    types: Types<'a>,
}

impl<'a> Nsec3<'a> {
    /// The record of a set, if we know its hash and its flags (RFC 5155, 8.1 and 8.2).
    fn parse(set: &'a Rrset) -> Option<Nsec3<'a>> {
        let (parameters, flags, rest) = Parameters::split_from(set.rdatas.iter().next()?)?;
        let (hash_len, rest) = rest.split_first()?;
        let (next, types) = rest.split_at_checked(usize::from(*hash_len))?;
        let is_known = set.rtype == Rtype::NSEC3 && flags & !OPT_OUT == 0;
        is_known.then_some(Nsec3 {
            parameters,
            is_opt_out: flags == OPT_OUT,
            owner: nsec3::from_base32hex(set.owner.as_name().labels().next()?)?,
            next: next.try_into().ok()?,
            types: Types(types),
        })
    }

    fn covers(&self, hash: &Hash) -> bool {
        if self.owner < self.next {
            self.owner < *hash && *hash < self.next
        } else {
            self.owner < *hash || *hash < self.next // The last one.
        }
    }
}

/// The records of a zone that share their parameters with the first one.
struct Chain<'a> {
    zone: Name<'a>,
    parameters: Parameters<'a>,
    records: Vec<Nsec3<'a>>,
    budget: &'a dyn Budget,
}

pub(super) fn prove(
    claim: Claim<'_>,
    zone: Name<'_>,
    sets: &[Rrset],
    options: &Dnssec,
    budget: &dyn Budget,
) -> Option<Proven> {
    let own = sets.iter().filter(|set| set.owner.as_name().parent() == Some(zone));
    let mut records: Vec<Nsec3<'_>> = own.filter_map(Nsec3::parse).collect();
    let parameters = records.first()?.parameters;
    if parameters.iterations > options.nsec3_iterations_max {
        return Some(Proven::TooManyIterations);
    }
    records.retain(|record| record.parameters == parameters);
    let chain = Chain { zone, parameters, records, budget };
    match claim {
        Claim::NoData(name, rtype) => chain.no_data(name, rtype),
        Claim::NoName(name) => chain.no_name(name),
        Claim::NoCloser(name, labels) => {
            let next_closer = chain.hash(last_labels(name, labels + 1))?;
            chain.covering(&next_closer).map(how)
        }
    }
}

/// The types at `name`, by a record that was part of a proof: the number of its iterations was found good.
pub(super) fn types_at<'a>(name: Name<'_>, sets: &'a [Rrset]) -> Option<Types<'a>> {
    let records: Vec<Nsec3<'_>> = sets.iter().filter_map(Nsec3::parse).collect();
    let hash = records.first()?.parameters.hash(name);
    records.iter().find(|record| record.owner == hash).map(|record| record.types)
}

fn how(next_closer: &Nsec3<'_>) -> Proven {
    if next_closer.is_opt_out { Proven::OptOut } else { Proven::Surely }
}

impl<'a> Chain<'a> {
    /// RFC 5155, 8.5 to 8.7; for types other than DS, opt-out also where a name exists only for an unsigned delegation below it
    /// (RFC 5155, erratum 3441).
    fn no_data(&self, name: Name<'_>, rtype: Rtype) -> Option<Proven> {
        let own = self.hash(name)?;
        if let Some(record) = self.matching(&own) {
            return record.types.deny(name, rtype).then_some(Proven::Surely);
        }
        let (encloser, next_closer) = self.closest_encloser(name)?;
        if next_closer.is_opt_out {
            return Some(Proven::OptOut);
        }
        let wildcard = self.hash(wildcard_below(encloser)?.as_name())?;
        let record = self.matching(&wildcard)?;
        record.types.deny(name, rtype).then_some(Proven::Surely)
    }

    /// RFC 5155, 8.4.
    fn no_name(&self, name: Name<'_>) -> Option<Proven> {
        let (encloser, next_closer) = self.closest_encloser(name)?;
        let wildcard = self.hash(wildcard_below(encloser)?.as_name())?;
        self.covering(&wildcard)?;
        Some(how(next_closer))
    }

    /// The closest name above `name` that exists, and the record that covers the name below it on the way (RFC 5155, 8.3).
    fn closest_encloser<'n>(&self, name: Name<'n>) -> Option<(Name<'n>, &Nsec3<'a>)> {
        let mut below = self.hash(name)?;
        let mut above = name.parent();
        while let Some(encloser) = above.filter(|name| name.ends_with(self.zone)) {
            let hash = self.hash(encloser)?;
            if let Some(record) = self.matching(&hash) {
                let next_closer = self.covering(&below)?;
                return (!record.types.hides_what_is_below()).then_some((encloser, next_closer));
            }
            (below, above) = (hash, encloser.parent());
        }
        None
    }

    fn matching(&self, hash: &Hash) -> Option<&Nsec3<'a>> {
        self.records.iter().find(|record| record.owner == *hash)
    }

    fn covering(&self, hash: &Hash) -> Option<&Nsec3<'a>> {
        self.records.iter().find(|record| record.covers(hash))
    }

    fn hash(&self, name: Name<'_>) -> Option<Hash> {
        if !self.budget.take_hash() {
            return None;
        }
        Some(self.parameters.hash(name))
    }
}
