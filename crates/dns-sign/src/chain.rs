//! Which NSEC records of a signed zone change when its source does.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use dns_wire::{Name, NameBuf, Rtype};
use dns_zone::{Denial, Node, Nsec, Zone};

use crate::wanted::is_linked;

/// If more names than these may be others, all are looked at.
const FEW: usize = 1000;

/// Owners of NSEC records that are to name another next owner, and that one. `held` has NSEC records; only `names` are linked now and were not
/// before, or the other way round.
pub(crate) fn relinked(held: &Zone, source: &Zone, names: &BTreeSet<NameBuf>) -> BTreeMap<NameBuf, NameBuf> {
    match held.denial() {
        Some(Denial::Nsec(nsec)) if names.len() <= FEW => Relinking::new(nsec, held, source, names).links(),
        _ => relinked_all(held, source),
    }
}

/// The same by a look at all names.
fn relinked_all(held: &Zone, source: &Zone) -> BTreeMap<NameBuf, NameBuf> {
    let mut names = source.in_canonical_order(is_linked).map(name_of).peekable();
    let mut links = BTreeMap::new();
    while let Some(name) = names.next() {
        let next = names.peek().copied().unwrap_or(source.origin());
        if held.find(name.as_bytes()).and_then(next_of) != Some(next) {
            links.insert(NameBuf::from(name), NameBuf::from(next));
        }
    }
    links
}

pub(crate) fn name_of(node: Node<'_>) -> Name<'_> {
    Name::from_wire(node.name()).expect("the tree holds valid names")
}

/// The name that the NSEC record of a node leads to.
pub(crate) fn next_of(node: Node<'_>) -> Option<Name<'_>> {
    let rdata = node.rrset(Rtype::NSEC)?.records().next()?;
    Name::split_from(rdata).ok().map(|(next, _)| next)
}

struct Relinking<'z> {
    nsec: Nsec<'z>,
    origin: Name<'z>,
    /// Names that are linked from now on.
    came: BTreeSet<NameBuf>,
    /// Names that were linked so far.
    left: BTreeSet<NameBuf>,
}

impl<'z> Relinking<'z> {
    fn new(nsec: Nsec<'z>, held: &'z Zone, source: &Zone, names: &BTreeSet<NameBuf>) -> Relinking<'z> {
        let was = |name: &NameBuf| held.find(name.as_name().as_bytes()).and_then(next_of).is_some();
        let is = |name: &NameBuf| source.find(name.as_name().as_bytes()).is_some_and(is_linked);
        let changed =
            |to: bool| names.iter().filter(move |name| is(name) == to && was(name) != to).cloned().collect();
        Relinking { nsec, origin: held.origin(), came: changed(true), left: changed(false) }
    }

    fn links(&self) -> BTreeMap<NameBuf, NameBuf> {
        let changed = self.came.iter().chain(&self.left);
        let owners: BTreeSet<NameBuf> =
            changed.map(|name| self.before(name)).chain(self.came.iter().cloned()).collect();
        owners
            .into_iter()
            .map(|owner| {
                let next = self.behind(&owner);
                (owner, next)
            })
            .collect()
    }

    /// The last name of the new chain in front of `name`, which is not the origin.
    fn before(&self, name: &NameBuf) -> NameBuf {
        let mut held = name_of(self.nsec.before(name.as_name()));
        while self.left.contains(&NameBuf::from(held)) {
            held = name_of(self.nsec.before(held));
        }
        let came = self.came.range(..name.clone()).next_back();
        came.filter(|came| came.as_name() > held).cloned().unwrap_or_else(|| NameBuf::from(held))
    }

    /// The first name of the chain so far behind `name`; the origin behind the last one, and where somebody has broken the chain.
    fn held_behind(&self, name: Name<'_>) -> Name<'z> {
        let next = next_of(self.nsec.at_or_before(name));
        next.filter(|next| *next > name).unwrap_or(self.origin)
    }

    /// The first name of the new chain behind `name`; the origin behind the last one.
    fn behind(&self, name: &NameBuf) -> NameBuf {
        let mut held = self.held_behind(name.as_name());
        while self.left.contains(&NameBuf::from(held)) {
            held = self.held_behind(held);
        }
        let came = self.came.range((Bound::Excluded(name), Bound::Unbounded)).next();
        let is_first = |came: &&NameBuf| held == self.origin || came.as_name() < held;
        came.filter(is_first).cloned().unwrap_or_else(|| NameBuf::from(held))
    }
}
