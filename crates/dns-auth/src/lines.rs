//! What of a zone depends on the line of the client, and on weights and health.
//!
//! Such a zone has *views*: one for each line that has records of its own there, and where there are pools one for everybody else. A view is a tree
//! that shares with the plain one what both have, and a table of the answers that differ. Where an answer gives some of several addresses, a view has
//! *choices*: trees and tables, each for a range of draws. Which one answers is decided behind the look-up in the plain table, and only where that
//! says that it matters.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug, Display, Formatter};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use dns_lines::{Found, LineId, Lines};
use dns_wire::{NameBuf, Rtype};
use dns_zone::overlay::{Overlay, OverlaySet};
use dns_zone::text::ZoneTextError;
use dns_zone::{Changed, Marks, Node, NodeId, Zone, ZoneEditor};

use crate::catalog::Catalog;
use crate::pools::{ADDRESS_TYPES, Pool};
use crate::view::View;

/// Makes the signatures of record sets that views have in place of a signed zone's.
pub trait SignSets: Debug + Send + Sync {
    /// The data of the RRSIG records of a set; none if it cannot be signed.
    fn sign(&self, owner: &NameBuf, rtype: Rtype, ttl: u32, records: &[Vec<u8>]) -> Vec<Vec<u8>>;

    /// What went wrong since this was asked last. Views with a set that has no signatures are not to be served: validators refuse it.
    fn take_failure(&self) -> Option<SignFailure>;
}

/// Sets could not be signed anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignFailure {
    /// Why not.
    pub why: String,
    /// Whether one of them has no signatures; else all have those of before, which are still good.
    pub is_unsigned: bool,
}

/// The records that lines have in a zone, and which of its addresses are given by weight and health.
#[derive(Clone, Debug, Default)]
pub struct LineData {
    lines: Vec<LineOverlays>,
    pools: BTreeMap<NameBuf, Arc<Pool>>,
    /// If who serves the zone signs it.
    signer: Option<Arc<dyn SignSets>>,
}

/// What a line has.
#[derive(Clone, Debug)]
pub struct LineOverlays {
    /// The line's name.
    pub line: Arc<str>,
    /// Its overlay, behind those of the lines that it falls back on, the nearest last.
    pub overlays: Vec<Arc<Overlay>>,
}

impl LineOverlays {
    /// Whether it has records at a name.
    pub(crate) fn has(&self, name: &NameBuf) -> bool {
        self.overlays.iter().any(|overlay| !overlay.at(name).is_empty())
    }
}

impl LineData {
    /// Of these lines, each once.
    pub fn new(lines: Vec<LineOverlays>) -> LineData {
        LineData { lines, ..LineData::default() }
    }

    /// The same with pools, by the names whose addresses they are about.
    #[must_use]
    pub fn with_pools(&self, pools: BTreeMap<NameBuf, Arc<Pool>>) -> LineData {
        LineData { pools, ..self.clone() }
    }

    /// The same for a zone that is signed here.
    #[must_use]
    pub fn signed_by(&self, signer: Arc<dyn SignSets>) -> LineData {
        LineData { signer: Some(signer), ..self.clone() }
    }

    /// What each line has.
    pub fn lines(&self) -> &[LineOverlays] {
        &self.lines
    }

    /// The pools, by the names whose addresses they are about.
    pub fn pools(&self) -> &BTreeMap<NameBuf, Arc<Pool>> {
        &self.pools
    }

    /// Who makes signatures.
    pub fn signer(&self) -> Option<&Arc<dyn SignSets>> {
        self.signer.as_ref()
    }

    /// Whether nothing depends on it.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.pools.is_empty()
    }

    /// Whether lines have the same records, and the same signer.
    pub(crate) fn has_same_lines(&self, other: &LineData) -> bool {
        let is_same = |(one, other): (&LineOverlays, &LineOverlays)| {
            let mut overlays = one.overlays.iter().zip(&other.overlays);
            one.line == other.line
                && one.overlays.len() == other.overlays.len()
                && overlays.all(|(one, other)| Arc::ptr_eq(one, other))
        };
        let has_same_signer = match (&self.signer, &other.signer) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        let mut lines = self.lines.iter().zip(&other.lines);
        self.lines.len() == other.lines.len() && lines.all(is_same) && has_same_signer
    }

    /// The names whose pools are others than those of `other`.
    pub(crate) fn differing_pools(&self, other: &LineData) -> BTreeSet<NameBuf> {
        let names = self.pools.keys().chain(other.pools.keys());
        names.filter(|name| self.pools.get(*name) != other.pools.get(*name)).cloned().collect()
    }

    /// Each overlay once.
    fn overlays(&self) -> Vec<&Overlay> {
        let mut all: Vec<&Arc<Overlay>> = Vec::new();
        for overlay in self.lines.iter().flat_map(|line| &line.overlays) {
            if !all.iter().any(|other| Arc::ptr_eq(other, overlay)) {
                all.push(overlay);
            }
        }
        all.into_iter().map(|overlay| &**overlay).collect()
    }

    /// What of it has no place in a zone. `signed_here` says that whoever serves the zone signs it.
    pub fn misfits(&self, zone: &Zone, signed_here: bool) -> Vec<ZoneTextError> {
        self.overlays().into_iter().flat_map(|overlay| overlay.misfits(zone, signed_here)).collect()
    }

    /// Those sets at these names, and below those that are delegated or have a DNAME, that have a place in `before` and none in `zone`.
    pub fn newly_misfit<'n>(
        &self,
        before: &Zone,
        zone: &Zone,
        names: impl IntoIterator<Item = &'n NameBuf>,
    ) -> Vec<ZoneTextError> {
        let signed_here = self.signer.is_some();
        let mut misfits = Vec::new();
        for name in names {
            let with_all_below = hides(zone, name);
            let overlays = self.overlays().into_iter();
            let sets = overlays.flat_map(|overlay| {
                overlay.at_and_below(name).take_while(|set| with_all_below || set.owner == *name)
            });
            let fitted = sets.filter(|set| set.fits(before, signed_here));
            misfits.extend(fitted.filter_map(|set| set.misfit(zone, signed_here)));
        }
        misfits
    }

    /// The names about which it may have a say.
    pub(crate) fn names(&self) -> BTreeSet<&NameBuf> {
        let overlays = self.overlays().into_iter();
        overlays.flat_map(Overlay::sets).map(|set| &set.owner).chain(self.pools.keys()).collect()
    }

    /// Those of them that are at or below a name.
    fn names_below<'s>(&'s self, name: &'s NameBuf) -> impl Iterator<Item = &'s NameBuf> {
        let overlays = self.overlays().into_iter();
        let is_below = |(other, _): &(&NameBuf, _)| other.as_name().ends_with(name.as_name());
        let pools = self.pools.range(name..).take_while(is_below).map(|(name, _)| name);
        overlays.flat_map(|overlay| overlay.at_and_below(name)).map(|set| &set.owner).chain(pools)
    }

    /// What answers about a name depend on.
    fn marks(&self, zone: &Zone, name: &NameBuf) -> Marks {
        let signed_here = self.signer.is_some();
        let sets = self.overlays().into_iter().flat_map(|overlay| overlay.at(name));
        let fitting: Vec<&OverlaySet> = sets.filter(|set| set.fits(zone, signed_here)).collect();
        let has_addresses = |node: Node<'_>| {
            let is_own = !node.is_occluded() && !node.is_cut() && !node.is_hashed();
            is_own && ADDRESS_TYPES.iter().any(|rtype| node.rrset(*rtype).is_some())
        };
        // Without keys it is not for us to give another set than the one that was signed.
        let is_pooled = self.pools.contains_key(name) && (signed_here || !zone.is_signed());
        let of_lines = || fitting.iter().any(|set| ADDRESS_TYPES.contains(&set.rtype));
        let of_zone = || zone.find(name.as_name().as_bytes()).is_some_and(has_addresses);
        Marks { varied: !fitting.is_empty(), chosen: is_pooled && (of_zone() || of_lines()) }
    }

    /// A zone with the marks that these names are to have.
    fn mark_names<'n>(&self, zone: &Zone, names: impl Iterator<Item = &'n NameBuf>) -> Changed {
        let mut editor = ZoneEditor::new(zone);
        for name in names {
            // Names that are too many for their numbers are left out.
            let _ = editor.mark(name.as_name(), self.marks(zone, name));
        }
        editor.finish().expect("marks leave the SOA where it is")
    }

    /// A zone with marks at all names that have some, or had some by `before`.
    pub(crate) fn mark_all(&self, zone: &Zone, before: Option<&LineData>) -> Changed {
        let old = before.into_iter().flat_map(LineData::names);
        self.mark_names(zone, self.names().into_iter().chain(old))
    }

    /// The next version of a zone with its marks, where only those of changed names may be others. Then, the names that may be others in views.
    pub(crate) fn mark_changed(&self, old: &Zone, changed: Changed) -> (Changed, BTreeSet<NameBuf>) {
        let Some(ids) = changed.names else {
            // Built anew: nothing is known of any name, marked or not.
            return (Changed { names: None, ..self.mark_all(&changed.zone, None) }, BTreeSet::new());
        };
        let zone = changed.zone;
        let mut names: BTreeSet<NameBuf> = ids.iter().map(|id| NameBuf::from(zone.name(*id))).collect();
        let unhidden = names.iter().filter(|name| hides(old, name) != hides(&zone, name));
        let below: Vec<NameBuf> = unhidden.flat_map(|name| self.names_below(name)).cloned().collect();
        names.extend(below);
        let marked = self.mark_names(&zone, names.iter());
        let names_of = |marked: &Changed| {
            let ids = marked.names.iter().flatten();
            ids.map(|id| NameBuf::from(marked.zone.name(*id))).collect::<Vec<_>>()
        };
        names.extend(names_of(&marked));
        let ids = marked.names.map(|more| {
            let mut all: Vec<NodeId> = [ids, more].concat();
            all.sort_unstable();
            all.dedup();
            all
        });
        (Changed { zone: marked.zone, names: ids }, names)
    }
}

/// Whether what is below a name is not the zone's to answer.
fn hides(zone: &Zone, name: &NameBuf) -> bool {
    zone.find(name.as_name().as_bytes()).is_some_and(|node| node.is_cut() || node.has_dname())
}

/// What lines have for a zone and it has no place for. All else is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The first one, and why.
    pub first: ZoneTextError,
    /// How many record sets.
    pub count: usize,
}

impl LeftOut {
    /// `None` if there are none.
    pub fn of(misfits: Vec<ZoneTextError>) -> Option<LeftOut> {
        let count = misfits.len();
        misfits.into_iter().next().map(|first| LeftOut { first, count })
    }
}

impl Display for LeftOut {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let what = if self.count == 1 { "set of a line is" } else { "sets of lines are" };
        write!(f, "{} {what} left out: {}", self.count, self.first)
    }
}

/// The views of a zone.
#[derive(Debug)]
pub struct ZoneLines {
    /// What of `data` has no place, once somebody wants to know.
    pub(crate) left_out: OnceLock<Option<LeftOut>>,
    /// What they are made of.
    pub(crate) data: Arc<LineData>,
    /// That for everybody else in front, if there are pools.
    pub(crate) views: Vec<View>,
    /// Plain answers that depend on other names than their own, at which views differ; those of a table that was changed are not known.
    pub(crate) varying: Arc<[Varying]>,
}

/// A plain answer that depends on other names, at which views differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Varying {
    pub(crate) node: NodeId,
    pub(crate) rtype: Rtype,
    /// Whether on a choice among their addresses, too.
    pub(crate) chosen: bool,
}

impl ZoneLines {
    /// What the views are made of.
    pub fn data(&self) -> &Arc<LineData> {
        &self.data
    }

    /// What of it has no place in the zone that the views are of.
    pub(crate) fn left_out(&self, zone: &Zone) -> Option<&LeftOut> {
        let find = || LeftOut::of(self.data.misfits(zone, self.data.signer.is_some()));
        self.left_out.get_or_init(find).as_ref()
    }

    /// The number of the view that clients of no line get, or of one that has nothing here.
    pub(crate) fn everybody(&self) -> u16 {
        u16::from(self.views.first().is_some_and(|view| view.line.is_none()))
    }

    /// For each line, the number of the view that its clients get, from 1; 0 is the plain zone.
    pub(crate) fn by_line(&self, lines: &Lines) -> Box<[u16]> {
        let view_of = |line: &str| self.views.iter().position(|view| view.line.as_deref() == Some(line));
        let ids = (0..lines.lines().len()).map(|number| LineId(number as u16)); // Lines are numbered in 16 bits.
        let number = |id| {
            let own = lines.chain(id).find_map(|(_, line)| view_of(&line.name));
            own.map_or(self.everybody(), |place| place as u16 + 1)
        };
        ids.map(number).collect()
    }

    /// The view of this number; `None` for the plain zone.
    #[inline(always)]
    pub(crate) fn view(&self, number: u16) -> Option<&View> {
        self.views.get(usize::from(number).wrapping_sub(1))
    }

    /// The record sets that views have at names which depend on them, with the signatures that cover each: type, and data of the RRSIG records.
    pub fn signatures(&self) -> impl Iterator<Item = (Rtype, Vec<&[u8]>)> {
        self.views.iter().flat_map(move |view| view.signatures(&self.data))
    }

    /// Octets of memory, without what trees have.
    pub fn memory(&self) -> usize {
        self.views.iter().map(View::memory).sum()
    }
}

/// Who asks, as far as answers depend on that. The line is looked up when the first zone wants to know it.
pub struct Asker {
    /// `None` where there are no lines.
    address: Option<IpAddr>,
    found: OnceCell<Found>,
    /// Chooses among addresses that are given by weight.
    pub(crate) draw: u32,
}

impl Asker {
    /// A client at this address; `None` if nothing depends on it.
    pub(crate) fn new(address: Option<IpAddr>, draw: u32) -> Asker {
        Asker { address, found: OnceCell::new(), draw }
    }

    /// Its line.
    pub(crate) fn find(&self, catalog: &Catalog) -> Found {
        let find = || {
            catalog.lines().zip(self.address).map_or(Found::NOTHING, |(lines, address)| lines.find(address))
        };
        *self.found.get_or_init(find)
    }
}
