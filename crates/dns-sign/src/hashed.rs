//! Which NSEC3 records of a signed zone change when its source does (RFC 5155, 7.1): without opt-out, salt, and further iterations (RFC 9276, 3.1).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use dns_wire::name::NameError;
use dns_wire::{Name, NameBuf, Rtype};
use dns_zone::{Denial, Node, Nsec3, Zone};
use nsec3::{Hash, Parameters, SHA1, to_base32hex};

use crate::wanted::is_linked;

/// How names are hashed.
pub(crate) const PARAMETERS: Parameters<'static> = Parameters { iterations: 0, salt: &[] };
/// The same as NSEC3PARAM record, and at the start of an NSEC3 record without opt-out.
pub(crate) const PARAMETERS_DATA: [u8; 5] = [SHA1, 0, 0, 0, 0];
/// Octets of an NSEC3 record in front of its type bit maps.
const FIXED_LEN: usize = PARAMETERS_DATA.len() + 1 + size_of::<Hash>();

/// What an NSEC3 record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) next: Hash,
    /// Of the name that is hashed.
    pub(crate) types: Vec<u8>,
}

impl Link {
    /// RFC 5155, 3.2.
    pub(crate) fn data(&self) -> Vec<u8> {
        [&PARAMETERS_DATA[..], &[size_of::<Hash>() as u8], &self.next, &self.types].concat()
    }

    fn of(node: Node<'_>) -> Option<Link> {
        let rdata = node.rrset(Rtype::NSEC3)?.records().next()?;
        let (fixed, types) = rdata.split_at_checked(FIXED_LEN)?;
        let next = fixed[FIXED_LEN - size_of::<Hash>()..].try_into().ok()?;
        Some(Link { next, types: types.to_vec() })
    }
}

/// Whether a name of a source has an NSEC3 record: it has data, or names below it have, and it is not hidden by a cut or DNAME.
pub(crate) fn is_hashed(node: Node<'_>) -> bool {
    is_linked(node) || (!node.is_occluded() && node.below().any(is_linked))
}

/// The owner of a hash's record.
pub(crate) fn owner_of(hash: &Hash, origin: Name<'_>) -> Result<NameBuf, NameError> {
    let mut owner = NameBuf::from(origin);
    owner.prepend(&to_base32hex(hash))?;
    Ok(owner)
}

/// The hashes whose records are to be others, each with what its record is to say; `None` if it goes. Only at `names` may `source` differ from
/// what `held` was made of. `types` gives the bit maps of a name of the source.
pub(crate) fn relinked(
    held: &Zone,
    source: &Zone,
    names: &BTreeSet<NameBuf>,
    types: impl Fn(Node<'_>) -> Vec<u8>,
) -> BTreeMap<Hash, Option<Link>> {
    let relinking = Relinking::new(ring_of(held), source, names);
    let mut links: BTreeMap<Hash, Option<Link>> = relinking.left.iter().map(|hash| (*hash, None)).collect();
    for owner in relinking.owners() {
        let of_source =
            relinking.affected.get(&owner).and_then(|name| source.find(name.as_name().as_bytes()));
        let of_held = || relinking.held(&owner).map(|link| link.types);
        let types = of_source.map(&types).or_else(of_held).unwrap_or_default();
        links.insert(owner, Some(Link { next: relinking.behind(&owner), types }));
    }
    links
}

/// The records of a zone that is signed so.
pub(crate) fn ring_of(zone: &Zone) -> Option<Nsec3<'_>> {
    match zone.denial() {
        Some(Denial::Nsec3(ring)) if ring.parameters() == PARAMETERS => Some(ring),
        _ => None,
    }
}

struct Relinking<'z> {
    /// The records so far, if there are any.
    ring: Option<Nsec3<'z>>,
    /// The names at which something may have changed, and those above them, which may be there for them alone.
    affected: BTreeMap<Hash, NameBuf>,
    came: BTreeSet<Hash>,
    left: BTreeSet<Hash>,
    /// Hashes that have a record now and will have one, and whose names may have other types.
    stay: BTreeSet<Hash>,
}

impl<'z> Relinking<'z> {
    fn new(ring: Option<Nsec3<'z>>, source: &Zone, names: &BTreeSet<NameBuf>) -> Relinking<'z> {
        let mut affected = BTreeMap::new();
        for name in names {
            let mut next = Some(name.as_name()).filter(|name| name.ends_with(source.origin()));
            while let Some(name) = next {
                affected.insert(PARAMETERS.hash(name), NameBuf::from(name));
                next = name.parent().filter(|parent| parent.ends_with(source.origin()));
            }
        }
        let (mut came, mut left, mut stay) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for (hash, name) in &affected {
            let was = ring.is_some_and(|ring| ring.find(hash).is_some());
            let is = source.find(name.as_name().as_bytes()).is_some_and(is_hashed);
            let _ = match (was, is) {
                (false, true) => came.insert(*hash),
                (true, false) => left.insert(*hash),
                (true, true) => stay.insert(*hash),
                (false, false) => false,
            };
        }
        Relinking { ring, affected, came, left, stay }
    }

    /// Hashes whose records are to be written: new ones, those in front of what came and left, and those whose types may be others.
    fn owners(&self) -> BTreeSet<Hash> {
        let changed = self.came.iter().chain(&self.left);
        changed
            .filter_map(|hash| self.before(hash))
            .chain(self.came.iter().chain(&self.stay).copied())
            .collect()
    }

    fn held(&self, hash: &Hash) -> Option<Link> {
        self.ring.and_then(|ring| ring.find(hash)).and_then(Link::of)
    }

    /// The first of the hashes that `step` leads to and that stays. Somebody may have broken the ring: it is not followed for ever.
    fn staying(&self, mut at: Option<Hash>, step: impl Fn(&Hash) -> Option<Hash>) -> Option<Hash> {
        for _ in 0..=self.left.len() {
            match at {
                Some(hash) if self.left.contains(&hash) => at = step(&hash),
                _ => break,
            }
        }
        at.filter(|hash| !self.left.contains(hash))
    }

    /// The hash in front of `hash` in the new ring; in front of the first one is the last one.
    fn before(&self, hash: &Hash) -> Option<Hash> {
        let step = |hash: &Hash| self.ring?.before(hash);
        let held = self.staying(step(hash), step);
        let came = self.came.range(..*hash).next_back().or_else(|| self.came.iter().next_back()).copied();
        let found = held.into_iter().chain(came).filter(|other| other != hash);
        found.max_by_key(|other| (other < hash, *other))
    }

    /// The hash behind `hash` in the new ring; behind the last one is the first one.
    fn behind(&self, hash: &Hash) -> Hash {
        let next = |hash: &Hash| Link::of(self.ring?.at_or_before(hash)?).map(|link| link.next);
        let held = self.staying(next(hash), next);
        let behind = self.came.range((Bound::Excluded(*hash), Bound::Unbounded)).next();
        let came = behind.or_else(|| self.came.iter().next()).copied();
        let found = held.into_iter().chain(came).filter(|other| other != hash);
        found.min_by_key(|other| (other < hash, *other)).unwrap_or(*hash)
    }
}
