//! A zone signed from nothing, and the next version of one that is signed.

use std::collections::{BTreeMap, BTreeSet};

use dns_message::is_older;
use dns_wire::{Name, NameBuf, Rtype};
use dns_zone::{Changed, Denial, Node, RecordError, Rrset, Zone, ZoneBuilder, ZoneEditor, next_name};

use nsec3::Hash;

use crate::chain::{name_of, next_of, relinked};
use crate::hashed::{self, Link, PARAMETERS, is_hashed, owner_of};
use crate::key_set::Active;
use crate::signature::{Lifetimes, Pen};
use crate::wanted::{Linked, Set, csync_serial, hashed_types, is_linked, may_be_signed, sets_at};

/// Why a zone cannot be signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// With its signatures, or beside the signer's records, a record has no place.
    #[error("{owner} {rtype}: {error}")]
    Record {
        /// Its owner.
        owner: Box<NameBuf>,
        /// Its type.
        rtype: Rtype,
        /// What is wrong with it.
        error: RecordError,
    },
    /// The hashes of names are longer than their zone's name leaves room for.
    #[error("the name of the zone is too long for NSEC3 records")]
    Origin,
    /// A key could not sign.
    #[error("the cryptographic library or a token could not sign")]
    Crypto,
}

/// The next version of a signed zone.
#[derive(Debug)]
pub struct Signed {
    /// The version.
    pub changed: Changed,
    /// The names at which it differs from the one before, each once.
    pub names: Vec<NameBuf>,
}

/// Signatures that are to be made anew.
#[derive(Debug, PartialEq, Eq)]
pub struct Due {
    /// Their owners.
    pub names: Vec<NameBuf>,
    /// Whether these are all that is due now.
    pub is_all: bool,
}

/// The records that deny what a zone does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DenialBy {
    /// NSEC: whoever asks often learns all names (RFC 4034, 4).
    #[default]
    Nsec,
    /// NSEC3: by hashes of names, each record at a name of its own (RFC 5155).
    Nsec3,
    /// NSEC records that each deny types at one name. Names are denied by records that are signed for one answer (RFC 9824): see
    /// [`OnlineKeys`](crate::OnlineKeys).
    Compact,
}

/// Signs a zone with keys, at some time.
#[derive(Clone, Copy, Debug)]
pub struct Signer<'k> {
    pen: Pen<'k>,
    denial: DenialBy,
    has_csync: bool,
    /// The last serial that somebody may have the zone of.
    told: Option<u32>,
}

impl<'k> Signer<'k> {
    /// `now` is in seconds since 1970.
    pub fn new(
        origin: Name<'k>,
        keys: &'k Active<'k>,
        now: u64,
        lifetimes: Lifetimes,
        denial: DenialBy,
    ) -> Signer<'k> {
        Signer { pen: Pen { keys, origin, now: now as u32, lifetimes }, denial, has_csync: false, told: None }
    }

    /// The same that has a CSYNC record in the zone or not: with it the parent copies name servers and their addresses (RFC 7477).
    #[must_use]
    pub fn with_csync(self, has_csync: bool) -> Signer<'k> {
        Signer { has_csync, ..self }
    }

    /// The same whose versions come behind this serial, too: somebody may have the zone of it, which is lost here.
    #[must_use]
    pub fn behind(self, told: Option<u32>) -> Signer<'k> {
        Signer { told, ..self }
    }

    /// Signs a zone that was not signed before. `seed` keys the hashes of the result.
    ///
    /// # Errors
    /// See [`SignError`].
    pub fn sign(&self, source: &Zone, serial: u32, seed: u64) -> Result<Zone, SignError> {
        let mut builder = ZoneBuilder::new(source.origin(), seed);
        let mut add = |owner: Name<'_>, set: &Set| {
            let signatures =
                if set.is_signed { self.pen.sign(owner, set).ok_or(SignError::Crypto)? } else { Vec::new() };
            let records = set.records.iter().map(|record| (set.rtype, record));
            let mut records = records.chain(signatures.iter().map(|record| (Rtype::RRSIG, record)));
            records.try_for_each(|(rtype, rdata)| {
                builder.add(owner, set.ttl, rtype, rdata).map_err(|error| explain(owner, rtype, error))
            })
        };
        if self.denial != DenialBy::Nsec3 {
            let mut linked = source.in_canonical_order(is_linked).peekable();
            while let Some(node) = linked.next() {
                let next = match self.denial {
                    DenialBy::Compact => compact_next(source, node),
                    _ => NameBuf::from(linked.peek().map_or(source.origin(), |next| name_of(*next))),
                };
                let sets = self.wanted(source, node, Some(Linked::Nsec(next.as_name())), (serial, serial));
                sets.iter().try_for_each(|set| add(name_of(node), set))?;
            }
        }
        let mut hashes = BTreeMap::new();
        for node in source.nodes().filter(|node| self.denial == DenialBy::Nsec3 || !is_linked(*node)) {
            let linked = Some(Linked::Nsec3).filter(|_| is_linked(node));
            let sets = self.wanted(source, node, linked, (serial, serial));
            sets.iter().try_for_each(|set| add(name_of(node), set))?;
            if self.denial == DenialBy::Nsec3 && is_hashed(node) {
                hashes.insert(PARAMETERS.hash(name_of(node)), hashed_types(&sets));
            }
        }
        let nexts: Vec<Hash> = hashes.keys().skip(1).chain(hashes.keys().take(1)).copied().collect();
        for ((hash, types), next) in hashes.into_iter().zip(nexts) {
            let owner = owner_of(&hash, source.origin()).map_err(|_| SignError::Origin)?;
            let set = Set::denial(Rtype::NSEC3, Link { next, types }.data(), source);
            add(owner.as_name(), &set)?;
        }
        Ok(builder.finish().expect("the source has a SOA"))
    }

    /// The version behind `held` that has at `names` what `source` has, and good signatures there. At other names both have the same. `None` if
    /// it is as it should be.
    ///
    /// # Errors
    /// See [`SignError`].
    pub fn follow(&self, held: &Zone, source: &Zone, names: &[NameBuf]) -> Result<Option<Signed>, SignError> {
        let names = self.widened(held, source, names);
        let links = self.relinked(held, source, &names)?;
        let mut edit = Edit { pen: &self.pen, held, editor: ZoneEditor::new(held), touched: Vec::new() };
        for name in names.iter().chain(links.names().filter(|owner| !names.contains(owner))) {
            if name.as_name() != held.origin() {
                edit.settle(name, &self.wanted_at(held, source, name, &links, held.serial()))?;
            }
        }
        let origin = NameBuf::from(held.origin());
        let at_apex = |serial| self.wanted_at(held, source, &origin, &links, serial);
        let last = self.told.filter(|told| is_older(held.serial(), *told)).unwrap_or(held.serial());
        let is_raised = last != held.serial() || is_older(held.serial(), source.serial());
        if edit.touched.is_empty() && !is_raised && edit.is_settled(&origin, &at_apex(held.serial())) {
            return Ok(None);
        }
        edit.settle(&origin, &at_apex(next_serial(last, source)))?;
        let Edit { editor, touched, .. } = edit;
        Ok(Some(Signed { changed: editor.finish().expect("it has its SOA"), names: touched }))
    }

    /// The data of the signatures of a set that some clients get in place of a zone's own; `None` if a key cannot sign.
    pub fn sign_set(
        &self,
        owner: Name<'_>,
        rtype: Rtype,
        ttl: u32,
        records: &[Vec<u8>],
    ) -> Option<Vec<Vec<u8>>> {
        self.pen.sign(owner, &Set { rtype, ttl, records: records.to_vec(), is_signed: true })
    }

    /// Whether these are the signatures of all keys for such a set, and good for long enough.
    pub fn are_good<'s>(&self, rtype: Rtype, signatures: impl ExactSizeIterator<Item = &'s [u8]>) -> bool {
        self.pen.are_good(rtype, signatures)
    }

    /// What is due of the signatures of `held`, of so many names at most: those to be made anew, and those that have no place where they are.
    pub fn due(&self, held: &Zone, source: &Zone, names_max: usize) -> Due {
        let mut due = Due { names: Vec::new(), is_all: true };
        let links = self.no_links(held);
        for node in held.nodes() {
            let mut signatures = node.rrsets().filter_map(|set| Some((set.covered()?, set)));
            let is_good =
                |covered, set| may_be_signed(node, covered) && self.pen.are_good_in(covered, Some(set));
            if signatures.all(|(covered, set)| is_good(covered, set)) {
                continue;
            }
            let name = NameBuf::from(name_of(node));
            // What stays as it is would come first again the next time, and others would wait for ever.
            if is_settled(&self.pen, Some(node), &self.wanted_at(held, source, &name, &links, held.serial()))
            {
                continue;
            }
            if due.names.len() >= names_max {
                return Due { is_all: false, ..due };
            }
            due.names.push(name);
        }
        due
    }

    /// Of records that deny, none that is to be another one.
    fn no_links(&self, held: &Zone) -> Links {
        match self.denial {
            DenialBy::Nsec => Links::Nsec(BTreeMap::new()),
            DenialBy::Compact => Links::Compact,
            DenialBy::Nsec3 => {
                Links::Nsec3 { records: BTreeMap::new(), goes_on: hashed::ring_of(held).is_some() }
            }
        }
    }

    /// The names at which something may be to do: all, if their records that deny get another TTL, or are others.
    fn widened(&self, held: &Zone, source: &Zone, names: &[NameBuf]) -> BTreeSet<NameBuf> {
        let ttl = match self.denial {
            DenialBy::Nsec | DenialBy::Compact => {
                let is_compact = matches!(held.denial(), Some(Denial::Compact));
                let is_alike = is_compact == (self.denial == DenialBy::Compact);
                held.apex().rrset(Rtype::NSEC).filter(|_| is_alike && hashed::ring_of(held).is_none())
            }
            DenialBy::Nsec3 => {
                let ring = hashed::ring_of(held).filter(|_| held.apex().rrset(Rtype::NSEC).is_none());
                ring.and_then(|ring| ring.find(&PARAMETERS.hash(held.origin())))
                    .and_then(|node| node.rrset(Rtype::NSEC3))
            }
        };
        if ttl.is_some_and(|set| set.ttl() == source.negative_ttl()) {
            return widened(held, source, names);
        }
        let all = held.nodes().chain(source.nodes());
        all.map(|node| NameBuf::from(name_of(node))).collect()
    }

    fn relinked(&self, held: &Zone, source: &Zone, names: &BTreeSet<NameBuf>) -> Result<Links, SignError> {
        match self.denial {
            DenialBy::Nsec => return Ok(Links::Nsec(relinked(held, source, names))),
            DenialBy::Compact => return Ok(Links::Compact),
            DenialBy::Nsec3 => {}
        }
        let types = |node: Node<'_>| {
            let linked = Some(Linked::Nsec3).filter(|_| is_linked(node));
            hashed_types(&self.wanted(source, node, linked, (0, 0)))
        };
        let links = hashed::relinked(held, source, names, types).into_iter().map(|(hash, link)| {
            let owner = owner_of(&hash, source.origin()).map_err(|_| SignError::Origin)?;
            Ok((owner, link.map(|link| Set::denial(Rtype::NSEC3, link.data(), source))))
        });
        Ok(Links::Nsec3 {
            records: links.collect::<Result<_, _>>()?,
            goes_on: hashed::ring_of(held).is_some(),
        })
    }

    fn wanted_at(&self, held: &Zone, source: &Zone, name: &NameBuf, links: &Links, serial: u32) -> Vec<Set> {
        let find = |zone| Zone::find(zone, name.as_name().as_bytes());
        let node = find(source);
        let next = |links: &BTreeMap<NameBuf, NameBuf>| {
            links.get(name).cloned().or_else(|| find(held).and_then(next_of).map(NameBuf::from))
        };
        let next = match links {
            Links::Nsec(links) => next(links),
            Links::Compact => node.map(|node| compact_next(source, node)),
            Links::Nsec3 { .. } => None,
        };
        let linked = match links {
            Links::Nsec(_) | Links::Compact => next.as_ref().map(|next| Linked::Nsec(next.as_name())),
            Links::Nsec3 { .. } => Some(Linked::Nsec3),
        };
        let is_apex = self.has_csync && name.as_name() == held.origin();
        let csync = is_apex.then(|| csync_serial(held, source)).flatten();
        let serials = (serial, csync.unwrap_or(serial));
        let of_source = |node| self.wanted(source, node, linked.filter(|_| is_linked(node)), serials);
        let mut sets = node.map(of_source).unwrap_or_default();
        if let Links::Nsec3 { records, goes_on } = links {
            let held = || find(held).and_then(Set::held_nsec3).filter(|_| *goes_on);
            sets.extend(records.get(name).cloned().unwrap_or_else(held));
        }
        sets
    }

    /// What a name is to have. The serials are those of the SOA and of the CSYNC record.
    fn wanted(
        &self,
        source: &Zone,
        node: Node<'_>,
        linked: Option<Linked<'_>>,
        (serial, csync): (u32, u32),
    ) -> Vec<Set> {
        let csync = Some(csync).filter(|_| self.has_csync);
        let mut sets = sets_at(node, linked, source, self.pen.keys, csync);
        for set in sets.iter_mut().filter(|set| set.rtype == Rtype::SOA) {
            for record in &mut set.records {
                let at = record.len() - 20; // Five numbers end a SOA, and the serial is the first.
                record[at..at + 4].copy_from_slice(&serial.to_be_bytes());
            }
        }
        sets
    }
}

/// Where the NSEC record of a name leads in a zone that is denied compactly.
fn compact_next(source: &Zone, node: Node<'_>) -> NameBuf {
    next_name(name_of(node), source.origin(), node.is_cut())
}

/// The names at which a signed zone does not have what its source has; the origin may be another one that is not told.
pub fn differing(held: &Zone, source: &Zone) -> Vec<NameBuf> {
    let missing = |zone: &Zone, other: &Zone| -> Vec<NameBuf> {
        let below = zone.nodes().filter(|node| node.parent().is_some());
        let differs = below.filter(|node| !has_all(other.find(node.name()), *node));
        differs.map(|node| NameBuf::from(name_of(node))).collect()
    };
    [missing(source, held), missing(held, source)].concat()
}

/// Whether a node has all sets of another one that are not the signer's.
fn has_all(node: Option<Node<'_>>, other: Node<'_>) -> bool {
    let mut sets = other.rrsets().filter(|set| !set.rtype().is_made_by_signing());
    sets.all(|set| {
        let own = node.and_then(|node| node.rrset(set.rtype()));
        own.is_some_and(|own| is_same(own, set))
    })
}

fn is_same(one: Rrset<'_>, other: Rrset<'_>) -> bool {
    let is_alike = (one.ttl(), one.count()) == (other.ttl(), other.count());
    is_alike && one.records().all(|rdata| other.records().any(|own| own == rdata))
}

/// Records that deny which are to be others.
enum Links {
    /// Owners of NSEC records, and where they lead.
    Nsec(BTreeMap<NameBuf, NameBuf>),
    /// None: where they lead depends on their owner alone.
    Compact,
    Nsec3 {
        /// Owners of NSEC3 records, and the record; `None` if it goes.
        records: BTreeMap<NameBuf, Option<Set>>,
        /// Whether the other NSEC3 records stay: the zone was signed with such ones.
        goes_on: bool,
    },
}

impl Links {
    fn names(&self) -> Box<dyn Iterator<Item = &NameBuf> + '_> {
        match self {
            Links::Nsec(links) => Box::new(links.keys()),
            Links::Compact => Box::new(std::iter::empty()),
            Links::Nsec3 { records, .. } => Box::new(records.keys()),
        }
    }
}

/// Those names, the origin, and all below a cut or DNAME that came or went there.
fn widened(held: &Zone, source: &Zone, names: &[NameBuf]) -> BTreeSet<NameBuf> {
    let hides = |node: Option<Node<'_>>| node.is_some_and(|node| node.is_cut() || node.has_dname());
    let mut all: BTreeSet<NameBuf> = names.iter().cloned().chain([NameBuf::from(held.origin())]).collect();
    for name in names {
        let [old, new] = [held, source].map(|zone| zone.find(name.as_name().as_bytes()));
        if hides(old) != hides(new) {
            let below = old.into_iter().chain(new).flat_map(Node::below);
            all.extend(below.map(|node| NameBuf::from(name_of(node))));
        }
    }
    all
}

/// The serial of the next version: that of the source, if it is ahead. 0 is passed over: it means "unset" to some.
fn next_serial(last: u32, source: &Zone) -> u32 {
    if is_older(last, source.serial()) { source.serial() } else { last.wrapping_add(1).max(1) }
}

fn explain(owner: Name<'_>, rtype: Rtype, error: RecordError) -> SignError {
    SignError::Record { owner: Box::new(NameBuf::from(owner)), rtype, error }
}

/// The next version in the making.
struct Edit<'e> {
    pen: &'e Pen<'e>,
    held: &'e Zone,
    editor: ZoneEditor,
    /// Names that are others than in `held`.
    touched: Vec<NameBuf>,
}

impl Edit<'_> {
    fn is_settled(&self, name: &NameBuf, wanted: &[Set]) -> bool {
        is_settled(self.pen, self.held.find(name.as_name().as_bytes()), wanted)
    }

    /// Gives a name these sets, and signatures. Each name is settled once.
    fn settle(&mut self, name: &NameBuf, wanted: &[Set]) -> Result<(), SignError> {
        if self.is_settled(name, wanted) {
            return Ok(());
        }
        self.touched.push(name.clone());
        let (owner, node) = (name.as_name(), self.held.find(name.as_name().as_bytes()));
        let is_kept = |rtype, covered: Option<Rtype>| {
            let mut wanted = wanted.iter().filter(|set| set.rtype == covered.unwrap_or(rtype));
            wanted.any(|set| {
                if covered.is_some() {
                    set.is_signed && has_signatures(self.pen, node, set)
                } else {
                    has(node, set)
                }
            })
        };
        let gone: Vec<_> = node
            .into_iter()
            .flat_map(Node::rrsets)
            .map(|set| (set.rtype(), set.covered()))
            .filter(|(rtype, covered)| !is_kept(*rtype, *covered))
            .collect();
        let unsigned: Vec<&Set> =
            wanted.iter().filter(|set| set.is_signed && !has_signatures(self.pen, node, set)).collect();
        self.editor.remove_sets(owner, |set| gone.contains(&(set.rtype(), set.covered())));
        let mut add = |rtype, ttl, rdata: &[u8]| {
            self.editor.add(owner, ttl, rtype, rdata).map_err(|error| explain(owner, rtype, error))
        };
        for set in wanted.iter().filter(|set| !has(node, set)) {
            set.records.iter().try_for_each(|rdata| add(set.rtype, set.ttl, rdata))?;
        }
        for set in unsigned {
            let signatures = self.pen.sign(owner, set).ok_or(SignError::Crypto)?;
            signatures.iter().try_for_each(|rdata| add(Rtype::RRSIG, set.ttl, rdata))?;
        }
        Ok(())
    }
}

/// Whether a node of a signed zone has these sets, good signatures for those that are to have some, and no other ones: glue may be left with those of a
/// time when no cut was above it.
fn is_settled(pen: &Pen<'_>, node: Option<Node<'_>>, wanted: &[Set]) -> bool {
    let sets = || node.into_iter().flat_map(Node::rrsets);
    let count = sets().filter(|set| set.covered().is_none()).count();
    let is_signed = |set: &Set| !set.is_signed || has_signatures(pen, node, set);
    let is_to_be_signed = |rtype| wanted.iter().any(|set| set.rtype == rtype && set.is_signed);
    count == wanted.len()
        && wanted.iter().all(|set| has(node, set) && is_signed(set))
        && sets().filter_map(Rrset::covered).all(is_to_be_signed)
}

/// Whether a node of a signed zone has good signatures for this set.
fn has_signatures(pen: &Pen<'_>, node: Option<Node<'_>>, set: &Set) -> bool {
    has(node, set) && pen.are_good_in(set.rtype, node.and_then(|node| node.signatures(set.rtype)))
}

/// Whether a node has this set, record by record.
fn has(node: Option<Node<'_>>, set: &Set) -> bool {
    node.and_then(|node| node.rrset(set.rtype)).is_some_and(|own| set.is(own))
}

#[cfg(test)]
#[path = "sign_tests.rs"]
mod tests;
