//! What authorities said, for as long as they allow, within a bound of octets.
//!
//! - A record set is kept for its TTL, at most `ttl_max` (RFC 2181, 5.2 and 8), and then as *expired* for another `keep`, for
//!   serve-stale (RFC 8767).
//! - A denial is kept for the smaller of the TTL and the last field of its SOA (RFC 2308, 5): NODATA by name and type, NXDOMAIN by name.
//!   Newer data of one kind replaces the other kind, also where that has expired.
//! - A failure is kept by name and type for seconds; the time doubles while it goes on (RFC 9520).
//! - Data that an authority gave as its answer is not replaced, while it lasts, by data without the authority bit (RFC 2181, 5.4.1). Glue
//!   and the records of referrals never become answers: they live in the [`Delegation`], apart from all else.
//! - SIEVE chooses what leaves when the octets are used up.

mod saved;
mod sieve;

use std::sync::Arc;

use clock::{Duration, Instant};
use dns_wire::{Name, NameBuf, Rtype, fold};
use hashbrown::HashTable;

use crate::delegation::Delegation;
use crate::dnssec::Security;
use crate::message::{Ede, Proof, Rdatas, Rrset};
use crate::options::CacheOptions;
pub use saved::NotRestored;
pub(crate) use saved::Occasion;
use sieve::{Sieve, SlotId};

/// How far data is believed (RFC 2181, 5.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// From anybody, and not validated where it could be.
    Unchecked,
    /// From the answer section of a response without the authority bit.
    Plain,
    /// From the answer of an authority, or of a forwarder that the user named.
    Authority,
}

/// What an entry is about, beside its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The records of a type, or that there are none.
    Type(Rtype),
    /// That the name does not exist.
    NoName,
    /// That the question failed.
    Failure(Rtype),
    /// The name servers of the zone, from its parent.
    Zone,
}

impl Kind {
    fn code(self) -> u32 {
        match self {
            Kind::Type(Rtype(rtype)) => rtype.into(),
            Kind::NoName => 0x1_0000,
            Kind::Failure(Rtype(rtype)) => 0x2_0000 | u32::from(rtype),
            Kind::Zone => 0x3_0000,
        }
    }
}

/// Which names are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The name alone.
    Name,
    /// The name and all below it.
    Subtree,
}

/// A question that failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// Why.
    pub(crate) ede: Ede,
    /// The zone whose servers did not answer.
    pub(crate) zone: NameBuf,
    /// How often in a row.
    pub(crate) times: u32,
}

/// What is known.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// Records, what they are worth, and their signatures.
    Records(Rdatas, Security, Option<Arc<Proof>>),
    /// There is nothing, says this SOA record; without one the denial was not to be kept for long.
    Denial(Arc<Rrset>),
    Failure(Arc<Failure>),
    Zone(Arc<Delegation>),
}

impl Content {
    /// Whether it is of no use where validation is wanted.
    pub(crate) fn is_unchecked(&self) -> bool {
        match self {
            Content::Records(_, security, _) => *security == Security::Unchecked,
            Content::Denial(soa) => soa.security == Security::Unchecked,
            Content::Failure(_) | Content::Zone(_) => false,
        }
    }

    fn octets(&self) -> usize {
        const RRSET: usize = size_of::<Rrset>();
        match self {
            Content::Records(rdatas, _, proof) => {
                rdatas.octets() + ALLOCATION + proof_octets(proof.as_deref())
            }
            Content::Denial(soa) => {
                RRSET + soa.rdatas.octets() + 2 * ALLOCATION + proof_octets(soa.proof.as_deref())
            }
            Content::Failure(_) => size_of::<Failure>() + ALLOCATION,
            Content::Zone(delegation) => delegation.octets() + ALLOCATION,
        }
    }
}

/// Octets of signatures, and of the sets that prove a denial.
fn proof_octets(proof: Option<&Proof>) -> usize {
    proof.map_or(0, |proof| {
        let set = |set: &Rrset| {
            size_of::<Rrset>() + set.rdatas.octets() + ALLOCATION + proof_octets(set.proof.as_deref())
        };
        size_of::<Proof>()
            + 2 * ALLOCATION
            + proof.sigs.octets()
            + proof.absence.iter().map(set).sum::<usize>()
    })
}

/// Octets that the allocator and the counts of an `Arc` add to an allocation, about.
const ALLOCATION: usize = 32;

#[derive(Debug)]
struct Entry {
    /// In the case of the zone.
    name: Box<[u8]>,
    kind: Kind,
    rank: Rank,
    stored: Instant,
    expires: Instant,
    content: Content,
}

impl Entry {
    fn octets(&self) -> usize {
        Sieve::<Entry>::slot_octets() + INDEX_OCTETS + self.name.len() + ALLOCATION + self.content.octets()
    }
}

/// A place in the index, at its usual load.
const INDEX_OCTETS: usize = 8;

/// An entry that was found.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    slot: SlotId,
    pub(crate) content: Content,
    pub(crate) stored: Instant,
    pub(crate) expires: Instant,
}

impl Found {
    /// Whether it has expired, and is only there for serve-stale.
    pub(crate) fn is_stale(&self, now: Instant) -> bool {
        self.expires <= now
    }

    /// Whole seconds that are left.
    pub(crate) fn ttl(&self, now: Instant) -> u32 {
        whole_secs(self.expires.since(now))
    }
}

/// An entry that an answer was made of, as it was then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    slot: SlotId,
    version: Version,
    stored: Instant,
    expires: Instant,
}

impl Source {
    /// Whole seconds that are left.
    pub(crate) fn ttl(&self, now: Instant) -> u32 {
        whole_secs(self.expires.since(now))
    }

    /// When it ends, or is to be fetched anew: when one part in `prefetch_part` of its time is left.
    pub(crate) fn use_until(&self, prefetch_part: u32) -> Instant {
        let time = self.expires.since(self.stored);
        let rest = whole_secs(time).checked_div(prefetch_part).unwrap_or(0);
        self.stored + (time - Duration::from_secs(rest.into()))
    }
}

/// A time as TTLs have it.
pub(crate) fn whole_secs(span: Duration) -> u32 {
    u32::try_from(span.as_secs()).unwrap_or(u32::MAX)
}

/// What has happened to the entries of a name, and of those that share its place: another number each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    place: u16,
    number: u32,
}

/// Places of versions: a change of one name makes one answer in as many be made anew.
const VERSIONS: usize = 1 << 14;

/// The cache.
#[derive(Debug)]
pub(crate) struct Cache {
    options: CacheOptions,
    /// How long expired entries stay.
    keep: Duration,
    seed: u64,
    index: HashTable<u32>,
    entries: Sieve<Entry>,
    octets: usize,
    evictions: u64,
    versions: Box<[u32]>,
}

impl Cache {
    pub(crate) fn new(options: CacheOptions, keep: Duration, seed: u64) -> Cache {
        let (index, entries) = (HashTable::new(), Sieve::new());
        let versions = vec![0; VERSIONS].into();
        Cache { options, keep, seed, index, entries, octets: 0, evictions: 0, versions }
    }

    /// What is known about `name`, which may have expired.
    pub(crate) fn get(&mut self, name: Name<'_>, kind: Kind, now: Instant) -> Option<Found> {
        let id = self.find(name, kind)?;
        let entry = self.entries.use_mut(id);
        let keep = if matches!(kind, Kind::Type(_) | Kind::NoName) { self.keep } else { Duration::ZERO };
        if entry.expires + keep <= now && !matches!(kind, Kind::Failure(_)) {
            self.remove(id);
            return None;
        }
        let (stored, expires) = (entry.stored, entry.expires);
        Some(Found { slot: id, content: entry.content.clone(), stored, expires })
    }

    /// What to remember of an entry of `name` that was just found.
    pub(crate) fn source(&self, name: Name<'_>, found: &Found) -> Source {
        let place = self.version_place(name.as_bytes());
        let version = Version { place: place as u16, number: self.versions[place] };
        Source { slot: found.slot, version, stored: found.stored, expires: found.expires }
    }

    /// Whether nothing has happened to the entries of the name since. Then the entry counts as used again.
    pub(crate) fn use_again(&mut self, source: &Source) -> bool {
        let is_same = self.versions[usize::from(source.version.place)] == source.version.number;
        if is_same {
            self.entries.use_mut(source.slot);
        }
        is_same
    }

    fn version_place(&self, name: &[u8]) -> usize {
        fold::hash_name(name, self.seed) as usize % VERSIONS
    }

    /// Something about a name is no longer as it was for what was made of its entries.
    pub(crate) fn note_change(&mut self, name: &[u8]) {
        let place = self.version_place(name);
        self.versions[place] = self.versions[place].wrapping_add(1);
    }

    /// As [`Cache::get`], but only what has not expired.
    pub(crate) fn get_fresh(&mut self, name: Name<'_>, kind: Kind, now: Instant) -> Option<Found> {
        self.get(name, kind, now).filter(|found| !found.is_stale(now))
    }

    /// The spelling of the name of an entry.
    pub(crate) fn spelling(&self, name: Name<'_>, kind: Kind) -> Option<NameBuf> {
        let id = self.find(name, kind)?;
        Name::from_wire(&self.entries.get(id).name).ok().map(NameBuf::from)
    }

    /// Keeps a record set. A TTL of zero is not kept.
    pub(crate) fn put_records(&mut self, set: &Rrset, rank: Rank, now: Instant) {
        let ttl = Duration::from_secs(set.ttl.into()).min(self.options.ttl_max);
        let name = set.owner.as_name();
        let rank = checked(rank, set.security);
        let content = Content::Records(set.rdatas.clone(), set.security, set.proof.clone());
        if self.put(name, Kind::Type(set.rtype), rank, content, ttl, now) && rank != Rank::Unchecked {
            self.forget(name, Kind::NoName);
            self.forget(name, Kind::Failure(set.rtype));
        }
    }

    /// Keeps that there is nothing: `kind` is the type, or the name itself. The time comes from the SOA (RFC 2308, 5).
    pub(crate) fn put_denial(&mut self, name: Name<'_>, kind: Kind, soa: &Arc<Rrset>, now: Instant) {
        let ttl = Duration::from_secs(negative_ttl(soa).into()).min(self.options.negative_ttl_max);
        let rank = checked(Rank::Authority, soa.security);
        self.put(name, kind, rank, Content::Denial(Arc::clone(soa)), ttl, now);
    }

    /// Keeps that a question failed, longer each time.
    pub(crate) fn put_failure(
        &mut self,
        name: Name<'_>,
        rtype: Rtype,
        ede: Ede,
        zone: &NameBuf,
        now: Instant,
    ) {
        let before = match self
            .get(name, Kind::Failure(rtype), now)
            .map(|found| (found.content, found.expires))
        {
            // A failure that ended long ago is another one.
            Some((Content::Failure(failure), expires)) if expires + self.options.failure_ttl_max > now => {
                failure.times
            }
            _ => 0,
        };
        let ttl = self.options.failure_ttl * (1 << before.min(16));
        let ttl = ttl.min(self.options.failure_ttl_max);
        let failure = Failure { ede, zone: zone.clone(), times: before + 1 };
        let content = Content::Failure(Arc::new(failure));
        self.put(name, Kind::Failure(rtype), Rank::Authority, content, ttl, now);
    }

    /// Keeps the name servers of a zone.
    pub(crate) fn put_zone(&mut self, delegation: Delegation, ttl: u32, now: Instant) {
        let ttl = Duration::from_secs(ttl.into()).min(self.options.ttl_max);
        let name = delegation.zone.clone();
        self.put(name.as_name(), Kind::Zone, Rank::Authority, Content::Zone(Arc::new(delegation)), ttl, now);
    }

    /// Drops an entry.
    pub(crate) fn forget(&mut self, name: Name<'_>, kind: Kind) {
        if let Some(id) = self.find(name, kind) {
            self.remove(id);
        }
    }

    /// Drops what is known about names; returns how many entries that were.
    pub(crate) fn flush(&mut self, name: Name<'_>, scope: Scope) -> usize {
        let is_meant = |entry: &Entry| match scope {
            Scope::Name => fold::equal(&entry.name, name.as_bytes()),
            Scope::Subtree => Name::from_wire(&entry.name).is_ok_and(|own| own.ends_with(name)),
        };
        let ids: Vec<SlotId> =
            self.entries.iter().filter(|(_, entry)| is_meant(entry)).map(|(id, _)| id).collect();
        ids.iter().for_each(|id| self.remove(*id));
        ids.len()
    }

    /// Entries, their octets, and how many left for want of room.
    pub(crate) fn usage(&self) -> (usize, usize, u64) {
        (self.index.len(), self.octets, self.evictions)
    }

    /// Puts an entry in the place of the one there is, unless that is believed more. Says whether it did.
    fn put(
        &mut self,
        name: Name<'_>,
        kind: Kind,
        rank: Rank,
        content: Content,
        ttl: Duration,
        now: Instant,
    ) -> bool {
        if let Some(id) = self.find(name, kind) {
            let old = self.entries.get(id);
            if old.rank > rank && old.expires > now {
                return false;
            }
            self.remove(id); // Also for a TTL of zero: what it replaces is no longer true.
        }
        if ttl.is_zero() {
            return true;
        }
        let name = name.as_bytes().into();
        self.add(Entry { name, kind, rank, stored: now, expires: now + ttl, content });
        true
    }

    /// Takes in an entry of an earlier run, unless there is a newer one.
    fn insert(&mut self, entry: Entry) -> Option<()> {
        let name = Name::from_wire(&entry.name).ok()?;
        self.find(name, entry.kind).is_none().then(|| self.add(entry))
    }

    /// Adds an entry for which there is none.
    fn add(&mut self, entry: Entry) {
        self.octets += entry.octets();
        self.note_change(&entry.name);
        let hash = self.hash(&entry.name, entry.kind);
        let SlotId(id) = self.entries.insert(entry);
        let (entries, seed) = (&self.entries, self.seed);
        self.index.insert_unique(hash, id, |id| {
            let entry = entries.get(SlotId(*id));
            hash_key(&entry.name, entry.kind, seed)
        });
        self.make_room();
    }

    fn make_room(&mut self) {
        while self.octets > self.options.octets_max {
            let Some(victim) = self.entries.victim() else { return };
            self.remove(victim);
            self.evictions += 1;
        }
    }

    fn remove(&mut self, id: SlotId) {
        let entry = self.entries.remove(id);
        self.octets -= entry.octets();
        self.note_change(&entry.name);
        let hash = self.hash(&entry.name, entry.kind);
        if let Ok(found) = self.index.find_entry(hash, |other| *other == id.0) {
            found.remove();
        }
    }

    fn find(&self, name: Name<'_>, kind: Kind) -> Option<SlotId> {
        let equal = |id: &u32| {
            let entry = self.entries.get(SlotId(*id));
            entry.kind == kind && fold::equal(&entry.name, name.as_bytes())
        };
        self.index.find(self.hash(name.as_bytes(), kind), equal).map(|id| SlotId(*id))
    }

    fn hash(&self, name: &[u8], kind: Kind) -> u64 {
        hash_key(name, kind, self.seed)
    }
}

fn hash_key(name: &[u8], kind: Kind, seed: u64) -> u64 {
    fold::hash_name(name, seed ^ u64::from(kind.code()).rotate_left(32))
}

/// What was not validated replaces nothing that was.
fn checked(rank: Rank, security: Security) -> Rank {
    if security == Security::Unchecked { Rank::Unchecked } else { rank }
}

/// The smaller of the TTL of an SOA record and its last field (RFC 2308, 5).
pub(crate) fn negative_ttl(soa: &Rrset) -> u32 {
    let minimum = soa.rdatas.iter().next().and_then(|rdata| rdata.last_chunk::<4>());
    minimum.map_or(0, |minimum| u32::from_be_bytes(*minimum)).min(soa.ttl)
}

#[cfg(test)]
mod tests;
