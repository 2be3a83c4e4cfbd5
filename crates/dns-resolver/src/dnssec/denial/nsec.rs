//! Proofs by NSEC records (RFC 4034, 4; RFC 4035, 5.4).

use dns_wire::{Name, NameBuf, Rtype};

use super::{Claim, Types};
use crate::iterator::last_labels;
use crate::message::Rrset;

/// A name of the zone, and the one that follows it in canonical order.
#[derive(Clone, Copy, Debug)]
struct Nsec<'a> {
    owner: Name<'a>,
    next: Name<'a>,
    types: Types<'a>,
}

/// The NSEC records of `zone` among `sets`.
fn records<'a>(sets: &'a [Rrset]) -> impl Iterator<Item = Nsec<'a>> {
    sets.iter().filter(|set| set.rtype == Rtype::NSEC).filter_map(|set| {
        let (next, types) = Name::split_from(set.rdatas.iter().next()?).ok()?;
        Some(Nsec { owner: set.owner.as_name(), next, types: Types(types) })
    })
}

pub(super) fn types_at<'a>(name: Name<'_>, sets: &'a [Rrset]) -> Option<Types<'a>> {
    records(sets).find(|nsec| nsec.owner == name).map(|nsec| nsec.types)
}

pub(super) fn wildcard_for(name: Name<'_>, before: &Rrset) -> Option<NameBuf> {
    let nsec = records(std::slice::from_ref(before)).next()?;
    wildcard_below(nsec.closest_encloser(name))
}

pub(super) fn proves(claim: Claim<'_>, zone: Name<'_>, sets: &[Rrset]) -> bool {
    match claim {
        Claim::NoData(name, rtype) => no_data(name, rtype, zone, sets),
        Claim::NoName(name) => no_name(name, zone, sets),
        Claim::NoCloser(name, labels) => {
            covering(name, zone, sets).is_some_and(|nsec| nsec.closest_encloser(name).label_count() == labels)
        }
    }
}

fn no_data(name: Name<'_>, rtype: Rtype, zone: Name<'_>, sets: &[Rrset]) -> bool {
    if let Some(types) = types_at(name, sets) {
        return types.deny(name, rtype);
    }
    let Some(nsec) = covering(name, zone, sets) else { return false };
    if nsec.next.ends_with(name) {
        return true; // A name without records that has names below it.
    }
    // The wildcard that would answer has no such records (RFC 4035, 3.1.3.4).
    let wildcard = wildcard_below(nsec.closest_encloser(name));
    wildcard
        .and_then(|wildcard| types_at(wildcard.as_name(), sets).map(|types| types.deny(name, rtype)))
        .unwrap_or(false)
}

fn no_name(name: Name<'_>, zone: Name<'_>, sets: &[Rrset]) -> bool {
    let Some(nsec) = covering(name, zone, sets).filter(|nsec| !nsec.next.ends_with(name)) else {
        return false;
    };
    let wildcard = wildcard_below(nsec.closest_encloser(name));
    wildcard.is_some_and(|wildcard| covering(wildcard.as_name(), zone, sets).is_some())
}

/// The record that says that there is no set at `name`.
fn covering<'a>(name: Name<'_>, zone: Name<'_>, sets: &'a [Rrset]) -> Option<Nsec<'a>> {
    records(sets).find(|nsec| nsec.covers(name, zone))
}

impl Nsec<'_> {
    /// The last record of a zone has the zone itself as its next name.
    fn covers(&self, name: Name<'_>, zone: Name<'_>) -> bool {
        let is_between = self.owner < name && (name < self.next || self.next == zone);
        let is_hidden = name.ends_with(self.owner) && self.types.hides_what_is_below();
        is_between && !is_hidden && self.owner.ends_with(zone) && self.next.ends_with(zone)
    }

    /// The closest name above `name`, which this record covers, that exists: both its ends do.
    fn closest_encloser<'n>(&self, name: Name<'n>) -> Name<'n> {
        let with_owner = common_labels(name, self.owner);
        last_labels(name, with_owner.max(common_labels(name, self.next)))
    }
}

/// How many labels two names have in common, from the right.
fn common_labels(name: Name<'_>, other: Name<'_>) -> usize {
    let most = name.label_count().min(other.label_count());
    (0..=most).rev().find(|count| last_labels(name, *count) == last_labels(other, *count)).unwrap_or(0)
}

pub(super) fn wildcard_below(name: Name<'_>) -> Option<NameBuf> {
    let mut wildcard = NameBuf::from(name);
    wildcard.prepend(b"*").ok().map(|()| wildcard)
}
