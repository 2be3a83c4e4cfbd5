//! Names that are not there, by NSEC and NSEC3 records that were seen before (RFC 8198).
//!
//! A zone that is flooded with questions for names that nobody has costs its servers one query for each gap between its names, not one for
//! each question. A gap with opt-out proves nothing of the kind (RFC 8198, 5.2).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use clock::Instant;
use dns_wire::{Name, NameBuf, Rtype};
use nsec3::Parameters;

use super::denial::{self, Claim, Proven};
use super::{Budget, Security};
use crate::cache::whole_secs;
use crate::message::{Proof, Rrset};
use crate::options::Dnssec;

/// NSEC3 records with more iterations are not used: RFC 9276, 3.1 has zones do with none, and a question that no server is asked for has to
/// cost little.
const ITERATIONS_MAX: u16 = 10;
/// Names that are hashed to find the sets that may prove a denial, and again to see whether they do: deeper names are asked for.
const HASHES_MAX: u8 = 10;
/// NSEC and NSEC3 sets of all zones that are kept; beyond it they are forgotten. Each takes about 700 octets.
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
    /// Its NSEC sets.
    plain: Ring,
    /// Its NSEC3 sets, which share their parameters.
    hashed: Ring,
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
        let is_gap = |set: &&Rrset| matches!(set.rtype, Rtype::NSEC | Rtype::NSEC3);
        let gaps: Vec<&Rrset> = soa.absence().iter().filter(is_gap).filter(is_short).collect();
        if gaps.is_empty() || octets(soa) > GAP_OCTETS_MAX {
            return;
        }
        if self.count + gaps.len() > GAPS_MAX {
            *self = Gaps::default();
        }
        let kept = |set: &Rrset| Kept { set: set.clone(), until };
        let mut zone_soa = kept(soa);
        if let Some(proof) = &mut zone_soa.set.proof {
            Arc::make_mut(proof).absence.clear();
        }
        let zone = self.zones.entry(soa.owner.clone());
        let zone = zone.or_insert_with(|| Zone {
            soa: kept(&zone_soa.set),
            plain: Ring::default(),
            hashed: Ring::default(),
        });
        zone.soa = zone_soa;
        for set in gaps {
            if set.rtype == Rtype::NSEC3 && zone.hashed.parameters() != parameters(set) {
                self.count -= zone.hashed.0.len(); // The zone has another salt.
                zone.hashed.0.clear();
            }
            let ring = if set.rtype == Rtype::NSEC { &mut zone.plain } else { &mut zone.hashed };
            self.count += usize::from(ring.0.insert(set.owner.clone(), kept(set)).is_none());
        }
    }

    /// What the gaps say about a question.
    pub(crate) fn deny(
        &self,
        name: Name<'_>,
        rtype: Rtype,
        options: &Dnssec,
        now: Instant,
    ) -> Option<Denied> {
        if self.zones.is_empty() {
            return None;
        }
        // A DS set belongs to the zone above.
        let mut above = if rtype == Rtype::DS { name.parent() } else { Some(name) };
        while let Some(apex) = above {
            if let Some(zone) = self.zones.get(&NameBuf::from(apex)).filter(|zone| zone.soa.until > now) {
                return zone.deny(name, rtype, options, now);
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
    fn deny(&self, name: Name<'_>, rtype: Rtype, options: &Dnssec, now: Instant) -> Option<Denied> {
        let found = self.by_name(name, now).or_else(|| self.by_hash(name, options, now))?;
        let until = found.iter().map(|kept| kept.until).min()?.min(self.soa.until);
        let sets: Vec<Rrset> = found.into_iter().map(|kept| kept.set.clone()).collect();
        let apex = self.soa.set.owner.as_name();
        let is_proven =
            |claim| denial::prove(claim, apex, &sets, options, &Hashes::default()) == Ok(Proven::Surely);
        let is_no_name = is_proven(Claim::NoName(name));
        if !is_no_name && !is_proven(Claim::NoData(name, rtype)) {
            return None;
        }
        let ttl = whole_secs(until.since(now));
        let proof = self.soa.set.proof.as_ref()?;
        let proof = Some(Arc::new(Proof { sigs: proof.sigs.clone(), absence: sets }));
        let soa = Arc::new(Rrset { ttl, proof, ..self.soa.set.clone() });
        Some(if is_no_name { Denied::NoName(soa) } else { Denied::NoData(soa) })
    }

    /// The NSEC sets that may deny `name`: that at or before it, and that at or before its wildcard.
    fn by_name(&self, name: Name<'_>, now: Instant) -> Option<Vec<&Kept>> {
        let own = self.plain.at_or_before(name, now)?;
        let mut found = vec![own];
        let wildcard = denial::wildcard_for(name, &own.set)?;
        found.extend(self.plain.at_or_before(wildcard.as_name(), now));
        found.dedup_by(|one, other| one.set.owner == other.set.owner);
        Some(found)
    }

    /// The NSEC3 sets that may: that of the closest name above that exists, that of the name below it on the way, and that of the wildcard
    /// (RFC 5155, 8.3).
    fn by_hash(&self, name: Name<'_>, options: &Dnssec, now: Instant) -> Option<Vec<&Kept>> {
        let apex = self.soa.set.owner.as_name();
        let parameters = self.hashed.parameters()?;
        if parameters.iterations > ITERATIONS_MAX.min(options.nsec3_iterations_max) {
            return None;
        }
        let hashes = Hashes::default();
        let find = |name: Name<'_>| {
            let owner = hashes.take_hash().then(|| hashed_owner(parameters, name, apex))??;
            let kept = self.hashed.at_or_before(owner.as_name(), now)?;
            Some((kept, kept.set.owner == owner))
        };
        let (own, is_own) = find(name)?;
        if is_own {
            return Some(vec![own]);
        }
        let (mut below, mut above) = (own, name.parent());
        while let Some(encloser) = above.filter(|above| above.ends_with(apex)) {
            let (kept, is_encloser) = find(encloser)?;
            if is_encloser {
                let (wildcard, _) = find(denial::wildcard_below(encloser)?.as_name())?;
                return Some(vec![kept, below, wildcard]);
            }
            (below, above) = (kept, encloser.parent());
        }
        None
    }
}

/// The owner of the NSEC3 record of `name`, if it has one.
fn hashed_owner(parameters: Parameters<'_>, name: Name<'_>, apex: Name<'_>) -> Option<NameBuf> {
    let mut owner = NameBuf::from(apex);
    owner.prepend(&nsec3::to_base32hex(&parameters.hash(name))).ok()?;
    Some(owner)
}

/// Names that may be hashed for one look-up.
#[derive(Debug)]
struct Hashes(Cell<u8>);

impl Default for Hashes {
    fn default() -> Hashes {
        Hashes(Cell::new(HASHES_MAX))
    }
}

impl Budget for Hashes {
    fn take_signature(&self) -> bool {
        false // None is looked at.
    }

    fn take_hash(&self) -> bool {
        let left = self.0.get().checked_sub(1);
        self.0.set(left.unwrap_or(0));
        left.is_some()
    }
}

/// Sets by owner, in canonical order: that of names, and that of hashes.
#[derive(Debug, Default)]
struct Ring(BTreeMap<NameBuf, Kept>);

impl Ring {
    /// The last one comes before the first one.
    fn at_or_before(&self, name: Name<'_>, now: Instant) -> Option<&Kept> {
        let (_, kept) =
            self.0.range(..=NameBuf::from(name)).next_back().or_else(|| self.0.last_key_value())?;
        (kept.until > now).then_some(kept)
    }

    /// Those of its first NSEC3 set.
    fn parameters(&self) -> Option<Parameters<'_>> {
        parameters(&self.0.first_key_value()?.1.set)
    }
}

fn parameters(set: &Rrset) -> Option<Parameters<'_>> {
    Parameters::split_from(set.rdatas.iter().next()?).map(|(parameters, _, _)| parameters)
}
