//! What the cache says about a name and type, one alias at a time.

use std::sync::Arc;

use clock::Instant;
use dns_wire::{Name, NameBuf, Rtype};

use super::Resolver;
use crate::cache::{Content, Found, Kind, Source, whole_secs};
use crate::dnssec::Security;
use crate::dnssec::gaps::Denied;
use crate::iterator::classify::synthesise;
use crate::message::{Question, Rrset};
use crate::subnet::ForNetwork;

/// What is known.
#[derive(Clone, Debug)]
pub(crate) enum Known {
    /// The records.
    Records(Rrset),
    /// The name is an alias, by these sets.
    Alias(Vec<Rrset>, NameBuf),
    /// There are no records of the type.
    NoData(Arc<Rrset>),
    /// There is no such name.
    NoName(Arc<Rrset>),
}

impl Known {
    /// Whether it is of no use where validation is wanted.
    fn is_unchecked(&self) -> bool {
        let is_unchecked = |set: &Rrset| set.security == Security::Unchecked;
        match self {
            Known::Records(set) => is_unchecked(set),
            Known::Alias(sets, _) => sets.iter().any(is_unchecked),
            Known::NoData(soa) | Known::NoName(soa) => is_unchecked(soa),
        }
    }

    /// Octets of records, signatures and proofs.
    pub(crate) fn octets(&self) -> usize {
        let octets =
            |set: &Rrset| set.rdatas.octets() + set.proof.as_ref().map_or(0, |proof| proof.sigs.octets());
        match self {
            Known::Records(set) => octets(set),
            Known::Alias(sets, _) => sets.iter().map(octets).sum(),
            Known::NoData(soa) | Known::NoName(soa) => octets(soa),
        }
    }

    /// The same for so many seconds.
    pub(crate) fn with_ttl(&self, ttl: u32) -> Known {
        let set = |set: &Rrset| Rrset { ttl, ..set.clone() };
        match self {
            Known::Records(records) => Known::Records(set(records)),
            Known::Alias(sets, target) => Known::Alias(sets.iter().map(set).collect(), target.clone()),
            Known::NoData(soa) => Known::NoData(with_ttl(soa, ttl)),
            Known::NoName(soa) => Known::NoName(with_ttl(soa, ttl)),
        }
    }
}

/// What is known, and whether it has expired, and how long it lasts: seconds left, and seconds in all.
#[derive(Clone, Debug)]
pub(crate) struct Knowledge {
    pub(crate) known: Known,
    pub(crate) is_stale: bool,
    pub(crate) left: u32,
    pub(crate) whole: u32,
    /// The one entry that it comes from; none if it comes from several, or has expired.
    pub(crate) source: Option<Source>,
}

impl Resolver {
    /// What is known about `name`, which is that of a question or where its aliases lead: for the network of those who ask, or for all. See
    /// [`Resolver::look_up`].
    pub(crate) fn look_up_for(
        &mut self,
        question: &Question,
        name: Name<'_>,
        stale_too: bool,
        now: Instant,
    ) -> Option<Knowledge> {
        let by_network = &self.by_network;
        let found = question.subnet.and_then(|subnet| by_network.get(name, question.rtype, subnet, now));
        if let Some(ForNetwork { known, left, whole }) =
            found.filter(|found| question.is_unchecked || !found.known.is_unchecked())
        {
            return Some(Knowledge { known, is_stale: false, left, whole, source: None });
        }
        self.look_up(name, question.rtype, stale_too, question.is_unchecked, now)
    }

    /// What the cache knows about `name` and `rtype`. With `stale_too`, also what has expired, if nothing fresh is there; with
    /// `unchecked_too`, also what was not validated. Of several things, the newest.
    pub(crate) fn look_up(
        &mut self,
        name: Name<'_>,
        rtype: Rtype,
        stale_too: bool,
        unchecked_too: bool,
        now: Instant,
    ) -> Option<Knowledge> {
        let kinds = [Kind::Type(rtype), Kind::NoName, Kind::Type(Rtype::CNAME)];
        let kinds = &kinds[..if rtype == Rtype::CNAME { 2 } else { 3 }];
        let mut best: Option<(Kind, Found)> = None;
        for &kind in kinds {
            let Some(found) = self.cache.get(name, kind, now) else { continue };
            if found.content.is_unchecked() && !unchecked_too {
                continue;
            }
            let is_alias_denial =
                kind == Kind::Type(Rtype::CNAME) && matches!(found.content, Content::Denial(_));
            let key = |found: &Found| (!found.is_stale(now), found.stored);
            if !is_alias_denial && best.as_ref().is_none_or(|(_, other)| key(&found) > key(other)) {
                best = Some((kind, found));
            }
        }
        let is_fresh = best.as_ref().is_some_and(|(_, found)| !found.is_stale(now));
        if !is_fresh
            && let Some(knowledge) =
                self.look_above(name, best.as_ref().map(|best| best.1.stored), unchecked_too, now)
        {
            return Some(knowledge);
        }
        if !is_fresh && let Some(knowledge) = self.look_between(name, rtype, now) {
            return Some(knowledge);
        }
        let (kind, found) = best.filter(|_| is_fresh || stale_too)?;
        let source = is_fresh.then(|| self.cache.source(name, &found));
        Some(Knowledge { source, ..self.knowledge(name, kind, rtype, &found, now)? })
    }

    /// What denials of other names of the zone say (RFC 8198).
    fn look_between(&mut self, name: Name<'_>, rtype: Rtype, now: Instant) -> Option<Knowledge> {
        if self.directed(name).is_some() {
            return None;
        }
        let (known, ttl) = match self.gaps.deny(name, rtype, &self.options.dnssec, now)? {
            Denied::NoName(soa) => (Known::NoName(Arc::clone(&soa)), soa.ttl),
            Denied::NoData(soa) => (Known::NoData(Arc::clone(&soa)), soa.ttl),
        };
        self.counters.synthesised += 1;
        Some(Knowledge { known, is_stale: false, left: ttl, whole: ttl, source: None })
    }

    /// What fresh entries of the names above say: that nothing is below them (RFC 8020), or that they redirect what is (RFC 6672). Only
    /// what is newer than `than` counts, and nothing from above a zone that the user sends elsewhere.
    fn look_above(
        &mut self,
        name: Name<'_>,
        than: Option<Instant>,
        unchecked_too: bool,
        now: Instant,
    ) -> Option<Knowledge> {
        let floor = self.directed(name).map_or(1, |directed| directed.zone.as_name().label_count().max(1));
        let mut above = name.parent();
        while let Some(owner) = above.filter(|owner| owner.label_count() >= floor) {
            for kind in [Kind::NoName, Kind::Type(Rtype::DNAME)] {
                let Some(found) = self.cache.get_fresh(owner, kind, now) else { continue };
                let is_dname_denial = kind != Kind::NoName && matches!(found.content, Content::Denial(_));
                let is_useless = found.content.is_unchecked() && !unchecked_too;
                if is_dname_denial || is_useless || than.is_some_and(|than| found.stored <= than) {
                    continue;
                }
                if kind == Kind::NoName {
                    return self.knowledge(owner, kind, Rtype::CNAME, &found, now);
                }
                return self.redirect(name, owner, &found, now);
            }
            above = owner.parent();
        }
        None
    }

    fn redirect(
        &mut self,
        name: Name<'_>,
        owner: Name<'_>,
        found: &Found,
        now: Instant,
    ) -> Option<Knowledge> {
        let knowledge = self.knowledge(owner, Kind::Type(Rtype::DNAME), Rtype::DNAME, found, now)?;
        let Known::Records(dname) = &knowledge.known else { return None };
        let cname = synthesise(name, dname)?;
        let target = cname.target()?;
        Some(Knowledge { known: Known::Alias(vec![dname.clone(), cname], target), ..knowledge })
    }

    /// The entry `found` of `name` and `kind`, for a question for `asked`.
    fn knowledge(
        &self,
        name: Name<'_>,
        kind: Kind,
        asked: Rtype,
        found: &Found,
        now: Instant,
    ) -> Option<Knowledge> {
        let is_stale = found.is_stale(now);
        let ttl = if is_stale { self.options.stale.ttl } else { found.ttl(now) };
        let known = match (&found.content, kind) {
            (Content::Denial(soa), Kind::NoName) => Known::NoName(with_ttl(soa, ttl)),
            (Content::Denial(soa), _) => Known::NoData(with_ttl(soa, ttl)),
            (Content::Records(rdatas, security, proof), Kind::Type(rtype)) => {
                let owner = self.cache.spelling(name, kind)?;
                let (rdatas, proof) = (rdatas.clone(), proof.clone());
                let set = Rrset { owner, rtype, ttl, rdatas, security: *security, proof };
                match set.target().filter(|_| rtype == Rtype::CNAME && asked != Rtype::CNAME) {
                    Some(target) => Known::Alias(vec![set], target),
                    None => Known::Records(set),
                }
            }
            _ => return None,
        };
        let whole = whole_secs(found.expires.since(found.stored));
        Some(Knowledge { known, is_stale, left: ttl, whole, source: None })
    }
}

fn with_ttl(soa: &Rrset, ttl: u32) -> Arc<Rrset> {
    Arc::new(Rrset { ttl, ..soa.clone() })
}
