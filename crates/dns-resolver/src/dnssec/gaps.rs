//! Names that are not there, by NSEC records that were seen before (RFC 8198).
//!
//! A zone that is flooded with questions for names that nobody has costs its servers one query for each gap between its names, not one for
//! each question. NSEC3 records are not used: each look-up would cost hashes.

use std::collections::BTreeMap;
use std::sync::Arc;

use clock::Instant;
use dns_wire::{Name, NameBuf, Rtype};

use super::Security;
use super::denial::{self, Claim};
use crate::message::{Proof, Rrset};

/// NSEC sets of all zones that are kept; beyond it they are forgotten. Each takes about 700 octets.
const GAPS_MAX: usize = 20_000;
/// Octets of a set with its signatures, at most: longer ones are not kept.
const GAP_OCTETS_MAX: usize = 2048;

/// A set, and when it ends.
#[derive(Debug)]
struct Kept {
    set: Rrset,
    until: Instant,
}

#[derive(Debug)]
struct Zone {
    soa: Kept,
    /// By owner, in canonical order.
    gaps: BTreeMap<NameBuf, Kept>,
}

/// The gaps that are known.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    zones: BTreeMap<NameBuf, Zone>,
    count: usize,
}

/// A denial that follows from what was seen.
#[derive(Clone, Debug)]
pub(crate) enum Denied {
    /// There is no such name.
    NoName(Arc<Rrset>),
    /// There are no records of the type.
    NoData(Arc<Rrset>),
}

/// Octets of a set's records and signatures.
fn octets(set: &Rrset) -> usize {
    set.rdatas.octets() + set.proof.as_ref().map_or(0, |proof| proof.sigs.octets())
}

impl Gaps {
    /// Notes what proves a denial: `soa` is its SOA record.
    pub(crate) fn note(&mut self, soa: &Rrset, until: Instant) {
        if soa.security != Security::Secure {
            return;
        }
        let is_short = |set: &&Rrset| octets(set) <= GAP_OCTETS_MAX;
        let nsec: Vec<&Rrset> =
            soa.absence().iter().filter(|set| set.rtype == Rtype::NSEC).filter(is_short).collect();
        if nsec.is_empty() || octets(soa) > GAP_OCTETS_MAX {
            return;
        }
        if self.count + nsec.len() > GAPS_MAX {
            *self = Gaps::default();
        }
        let kept = |set: &Rrset| Kept { set: set.clone(), until };
        let mut zone_soa = kept(soa);
        if let Some(proof) = &mut zone_soa.set.proof {
            Arc::make_mut(proof).absence.clear();
        }
        let zone = self.zones.entry(soa.owner.clone());
        let zone = zone.or_insert_with(|| Zone { soa: kept(&zone_soa.set), gaps: BTreeMap::new() });
        zone.soa = zone_soa;
        for set in nsec {
            self.count += usize::from(zone.gaps.insert(set.owner.clone(), kept(set)).is_none());
        }
    }

    /// What the gaps say about a question.
    pub(crate) fn deny(&self, name: Name<'_>, rtype: Rtype, now: Instant) -> Option<Denied> {
        if self.zones.is_empty() {
            return None;
        }
        // A DS set belongs to the zone above.
        let mut above = if rtype == Rtype::DS { name.parent() } else { Some(name) };
        while let Some(apex) = above {
            if let Some(zone) = self.zones.get(&NameBuf::from(apex)).filter(|zone| zone.soa.until > now) {
                return zone.deny(name, rtype, now);
            }
            above = apex.parent();
        }
        None
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        *self = Gaps::default();
    }
}

impl Zone {
    fn deny(&self, name: Name<'_>, rtype: Rtype, now: Instant) -> Option<Denied> {
        let apex = self.soa.set.owner.as_name();
        let own = self.at_or_before(name, now)?;
        let mut sets = vec![own.set.clone()];
        let mut until = own.until.min(self.soa.until);
        let wildcard = denial::wildcard_for(name, &own.set)?;
        if let Some(other) =
            self.at_or_before(wildcard.as_name(), now).filter(|other| other.set.owner != own.set.owner)
        {
            sets.push(other.set.clone());
            until = until.min(other.until);
        }
        let is_proven = |claim| denial::proves_by_nsec(claim, apex, &sets);
        let is_no_name = is_proven(Claim::NoName(name));
        if !is_no_name && !is_proven(Claim::NoData(name, rtype)) {
            return None;
        }
        let ttl = u32::try_from(until.since(now).as_secs()).unwrap_or(u32::MAX);
        let proof = self.soa.set.proof.as_ref()?;
        let proof = Some(Arc::new(Proof { sigs: proof.sigs.clone(), absence: sets }));
        let soa = Arc::new(Rrset { ttl, proof, ..self.soa.set.clone() });
        Some(if is_no_name { Denied::NoName(soa) } else { Denied::NoData(soa) })
    }

    fn at_or_before(&self, name: Name<'_>, now: Instant) -> Option<&Kept> {
        let (_, kept) = self.gaps.range(..=NameBuf::from(name)).next_back()?;
        (kept.until > now).then_some(kept)
    }
}
