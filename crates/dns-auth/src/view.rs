//! A zone as clients of a line see it: made from the plain zone, and made anew where that changes.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dns_wire::{NameBuf, Rtype};
use dns_zone::overlay::{Overlay, PlacedSet, nearest, settle};
use dns_zone::{Node, Zone, ZoneEditor};

use crate::compile::{Compiler, has_signed_table};
use crate::lines::{LineData, LineOverlays, Varying};
use crate::pools::{ADDRESS_TYPES, Pool, address_in};
use crate::table::{AnswerTable, TableBuilder, Tables};

/// What clients of a line get.
#[derive(Debug)]
pub(crate) struct View {
    /// `None` for clients of no line.
    pub(crate) line: Option<Arc<str>>,
    /// The answers that are others than those of the plain zone, and the same for all draws.
    pub(crate) tables: Tables,
    /// Where the draws of each choice begin; the first is 0.
    bounds: Box<[u32]>,
    /// For each of these.
    choices: Box<[Choice]>,
    /// Names whose addresses are chosen, with what they have.
    chosen: BTreeMap<NameBuf, Arc<[Chosen]>>,
}

/// A view for a range of draws.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) tree: Zone,
    /// The answers at names whose addresses are chosen, and of names that lead there.
    pub(crate) tables: Tables,
}

/// A record set at a name whose addresses are chosen.
#[derive(Debug, PartialEq, Eq)]
struct Chosen {
    rtype: Rtype,
    ttl: u32,
    /// In the order of draws; the first begins with 0.
    shares: Vec<ChosenShare>,
}

#[derive(Debug, PartialEq, Eq)]
struct ChosenShare {
    from: u32,
    records: Vec<Vec<u8>>,
    signatures: Vec<Vec<u8>>,
}

/// Choices of a view at most. If weights ask for more, draws are rounded to as many parts.
const CHOICES_MAX: usize = 64;

/// What views are made from.
pub(crate) struct Making<'z> {
    /// The plain zone, with marks.
    pub(crate) plain: &'z Zone,
    pub(crate) data: &'z LineData,
    pub(crate) varying: &'z [Varying],
    /// Whether the plain table was changed, so that answers which depend on other names are not to be had from tables.
    pub(crate) is_changed: bool,
}

/// What changed since views were made.
pub(crate) struct Since<'b> {
    /// The plain zone of then.
    pub(crate) plain: &'b Zone,
    pub(crate) views: &'b [View],
    /// The names that may be others.
    pub(crate) names: &'b BTreeSet<NameBuf>,
}

impl Making<'_> {
    /// All views.
    pub(crate) fn views(&self, since: Option<&Since<'_>>) -> Vec<View> {
        let everybody = (!self.data.pools().is_empty()).then_some(None);
        let lines = everybody.into_iter().chain(self.data.lines().iter().map(Some));
        let view = |(number, line): (usize, Option<&LineOverlays>)| {
            let before = since.and_then(|since| Some((since, since.views.get(number)?)));
            LineMaking { of: self, line }.view(before)
        };
        lines.enumerate().map(view).collect()
    }
}

/// The making of one view.
struct LineMaking<'m, 'z> {
    of: &'m Making<'z>,
    line: Option<&'m LineOverlays>,
}

impl LineMaking<'_, '_> {
    fn view(&self, before: Option<(&Since<'_>, &View)>) -> View {
        let line = self.line.map(|line| Arc::clone(&line.line));
        let names = match &before {
            Some((since, _)) => since.names.clone(),
            None => self.names(),
        };
        let mut chosen = before.as_ref().map(|(_, view)| view.chosen.clone()).unwrap_or_default();
        for name in &names {
            match self.chosen(name) {
                Some(sets) => drop(chosen.insert(name.clone(), sets)),
                None => drop(chosen.remove(name)),
            }
        }
        let bounds = bounds(&chosen);
        let held =
            before.as_ref().map(|(since, view)| Held { since, view, has_same_bounds: view.bounds == bounds });
        let trees = self.trees(&chosen, &bounds, &names, held.as_ref());
        let tables = self.tables(&trees[0], &chosen, &names, held.as_ref());
        let choices = trees.into_iter().enumerate().map(|(number, tree)| {
            let tables = self.choice_tables(number, &tree, &chosen, &names, held.as_ref());
            Choice { tree, tables }
        });
        View { line, tables, choices: choices.collect(), bounds, chosen }
    }

    /// The names at which the view may differ from the plain zone.
    fn names(&self) -> BTreeSet<NameBuf> {
        let overlays = self.overlays().into_iter().flat_map(Overlay::sets).map(|set| &set.owner);
        overlays.chain(self.of.data.pools().keys()).cloned().collect()
    }

    fn overlays(&self) -> Vec<&Overlay> {
        self.line.into_iter().flat_map(|line| &line.overlays).map(|overlay| &**overlay).collect()
    }

    fn node(&self, name: &NameBuf) -> Option<Node<'_>> {
        self.of.plain.find(name.as_name().as_bytes())
    }

    /// What the line has at a name, whatever the draw.
    fn placed(&self, name: &NameBuf) -> Vec<PlacedSet<'_>> {
        let signer = self.of.data.signer();
        let sets = nearest(&self.overlays(), name, self.of.plain, signer.is_some());
        let placed = sets.into_iter().map(|set| {
            let own = PlacedSet::from(set);
            match signer {
                Some(signer) => {
                    let signatures = Cow::Owned(signer.sign(name, set.rtype, set.ttl, &set.records));
                    PlacedSet { signatures, ..own }
                }
                None => own,
            }
        });
        placed.collect()
    }

    /// The sets of a name whose addresses are chosen, all that are not those of the plain zone; `None` if they are not.
    fn chosen(&self, name: &NameBuf) -> Option<Arc<[Chosen]>> {
        self.node(name).filter(|node| node.marks().chosen)?;
        let pool = self.of.data.pools().get(name)?;
        let own = self.placed(name);
        let mut sets: Vec<Chosen> = Vec::new();
        let has_alias = own.iter().any(|set| set.rtype == Rtype::CNAME);
        for rtype in ADDRESS_TYPES.into_iter().filter(|_| !has_alias) {
            let candidates = self.candidates(name, rtype);
            sets.extend(self.choose(name, rtype, pool, &candidates));
        }
        let others = own.into_iter().filter(|set| !sets.iter().any(|other| other.rtype == set.rtype));
        let others: Vec<Chosen> = others.map(Chosen::always).collect();
        sets.extend(others);
        Some(sets.into())
    }

    /// The sets of one type that count for a name: that of the line, those of the lines that it falls back on, that of the zone.
    fn candidates(&self, name: &NameBuf, rtype: Rtype) -> Vec<(u32, Vec<Vec<u8>>)> {
        let signed_here = self.of.data.signer().is_some();
        let mut found = Vec::new();
        for overlay in self.overlays().into_iter().rev() {
            let mut fitting = overlay.at(name).iter().filter(|set| set.fits(self.of.plain, signed_here));
            match fitting.find(|set| set.rtype == rtype || set.rtype == Rtype::CNAME) {
                Some(set) if set.rtype == rtype => found.push((set.ttl, set.records.clone())),
                Some(_) => return found,
                None => {}
            }
        }
        let plain = self.node(name).and_then(|node| node.rrset(rtype));
        found.extend(plain.map(|set| (set.ttl(), set.records().map(<[u8]>::to_vec).collect())));
        found
    }

    /// The first of several sets of which some address is to be given; if none is, all of the first one.
    fn choose(
        &self,
        name: &NameBuf,
        rtype: Rtype,
        pool: &Pool,
        candidates: &[(u32, Vec<Vec<u8>>)],
    ) -> Option<Chosen> {
        let shares_of = |records: &[Vec<u8>]| pool.shares(records.iter().map(|rdata| address_in(rdata)));
        let mut all = candidates.iter().map(|(ttl, records)| (*ttl, records, shares_of(records)));
        let (ttl, records, shares) = all.find(|(.., shares)| !shares.is_empty()).or_else(|| {
            let (ttl, records) = candidates.first()?;
            Some((*ttl, records, Pool::default().shares(records.iter().map(|_| None))))
        })?;
        let shares = shares.into_iter().map(|share| {
            let records: Vec<Vec<u8>> = share.members.iter().map(|place| records[*place].clone()).collect();
            let signer = self.of.data.signer();
            let signatures = signer.map(|signer| signer.sign(name, rtype, ttl, &records)).unwrap_or_default();
            ChosenShare { from: share.from, records, signatures }
        });
        Some(Chosen { rtype, ttl, shares: shares.collect() })
    }

    /// The trees of all choices.
    fn trees(
        &self,
        chosen: &BTreeMap<NameBuf, Arc<[Chosen]>>,
        bounds: &[u32],
        names: &BTreeSet<NameBuf>,
        held: Option<&Held<'_>>,
    ) -> Vec<Zone> {
        let mut trees: Vec<Zone> = Vec::with_capacity(bounds.len());
        for number in 0..bounds.len() {
            let draw = sample(bounds, number);
            let same = held.filter(|held| held.has_same_bounds || number == 0);
            let (begin, is_whole) = match (same, trees.last()) {
                (Some(held), _) => (&held.view.choices[number].tree, held.has_same_bounds),
                (None, Some(last)) => (last, false),
                (None, None) => (self.of.plain, true),
            };
            let mut editor = ZoneEditor::new(begin);
            let of_first = names.iter().filter(|_| number == 0 || same.is_some());
            let moved = chosen.keys().filter(|_| !is_whole);
            for name in of_first.chain(moved) {
                let placed = match chosen.get(name) {
                    Some(sets) => sets.iter().map(|set| set.at(draw)).collect(),
                    None => self.placed(name),
                };
                settle(&mut editor, self.of.plain, name.as_name(), &placed);
            }
            trees.push(editor.finish().expect("nothing takes the SOA away").zone);
        }
        trees
    }

    /// The tables of answers that are the same for all draws.
    fn tables(
        &self,
        tree: &Zone,
        chosen: &BTreeMap<NameBuf, Arc<[Chosen]>>,
        names: &BTreeSet<NameBuf>,
        held: Option<&Held<'_>>,
    ) -> Tables {
        let is_own =
            |name: &NameBuf| !chosen.contains_key(name) && self.line.is_some_and(|line| line.has(name));
        let varying = self.of.varying.iter().filter(|varying| !varying.chosen);
        let before = held.map(|held| (&held.view.tables, held.since.plain, &held.view.choices[0].tree));
        self.tables_of((tree, true), before, (names.iter(), &is_own), varying)
    }

    /// The tables of a choice.
    fn choice_tables(
        &self,
        number: usize,
        tree: &Zone,
        chosen: &BTreeMap<NameBuf, Arc<[Chosen]>>,
        names: &BTreeSet<NameBuf>,
        held: Option<&Held<'_>>,
    ) -> Tables {
        let is_own = |name: &NameBuf| chosen.contains_key(name);
        let varying = self.of.varying.iter().filter(|varying| varying.chosen);
        match held.filter(|held| held.has_same_bounds) {
            Some(held) => {
                let choice = &held.view.choices[number];
                let before = Some((&choice.tables, held.since.plain, &choice.tree));
                self.tables_of((tree, false), before, (names.iter(), &is_own), varying)
            }
            None => self.tables_of((tree, false), None, (chosen.keys(), &is_own), varying),
        }
    }

    fn tables_of<'n>(
        &self,
        (tree, for_all_draws): (&Zone, bool),
        before: Option<(&Tables, &Zone, &Zone)>,
        (names, is_own): (impl Iterator<Item = &'n NameBuf> + Clone, &dyn Fn(&NameBuf) -> bool),
        varying: impl Iterator<Item = &'n Varying> + Clone,
    ) -> Tables {
        let table = |dnssec: bool, held: Option<&AnswerTable>| {
            let builder = match held {
                Some(held) => TableBuilder::after(held),
                None => TableBuilder::with_capacity(0, 0, tree.hash_seed()),
            };
            let old = before.filter(|_| held.is_some()).map(|(_, plain, tree)| (plain, tree));
            let compiler = Compiler::with(builder, tree, dnssec).for_all_draws(for_all_draws);
            compiler.view(self.of.plain, old, (names.clone(), is_own), varying.clone())
        };
        let plain = table(false, before.map(|(tables, ..)| &tables.plain));
        let signed = has_signed_table(tree)
            .then(|| table(true, before.and_then(|(tables, ..)| tables.signed.as_ref())));
        Tables { plain, signed, is_changed: self.of.is_changed }
    }
}

/// A view that is there already.
struct Held<'b> {
    since: &'b Since<'b>,
    view: &'b View,
    /// Whether its choices are for the same draws.
    has_same_bounds: bool,
}

impl Chosen {
    /// One that is the same for all draws.
    fn always(set: PlacedSet<'_>) -> Chosen {
        let share = ChosenShare {
            from: 0,
            records: set.records.into_owned(),
            signatures: set.signatures.into_owned(),
        };
        Chosen { rtype: set.rtype, ttl: set.ttl, shares: vec![share] }
    }

    fn at(&self, draw: u32) -> PlacedSet<'_> {
        let next = self.shares.partition_point(|share| share.from <= draw);
        let share = &self.shares[next - 1]; // The first one begins with 0.
        PlacedSet {
            rtype: self.rtype,
            ttl: self.ttl,
            records: Cow::from(&share.records),
            signatures: Cow::from(&share.signatures),
        }
    }
}

/// Where the draws of choices begin, so that all shares are the same within each.
fn bounds(chosen: &BTreeMap<NameBuf, Arc<[Chosen]>>) -> Box<[u32]> {
    let shares = chosen.values().flat_map(|sets| sets.iter()).flat_map(|set| &set.shares);
    let bounds: BTreeSet<u32> = shares.map(|share| share.from).chain([0]).collect();
    if bounds.len() <= CHOICES_MAX {
        return bounds.into_iter().collect();
    }
    (0..CHOICES_MAX as u32).map(|number| number * (u32::MAX / CHOICES_MAX as u32 + 1)).collect()
}

/// A draw in the middle of a choice's.
fn sample(bounds: &[u32], number: usize) -> u32 {
    let next = bounds.get(number + 1).copied().unwrap_or(u32::MAX);
    bounds[number] + (next - bounds[number]) / 2
}

impl View {
    /// What a draw chooses.
    #[inline(always)]
    pub(crate) fn choice(&self, draw: u32) -> &Choice {
        let next = self.bounds.partition_point(|from| *from <= draw);
        &self.choices[next - 1] // The first one begins with 0.
    }

    /// The tree for a draw.
    pub(crate) fn tree(&self, draw: u32) -> &Zone {
        &self.choice(draw).tree
    }

    /// Of each record set that stands in place of the plain zone's, its type and signatures.
    pub(crate) fn signatures(&self, data: &LineData) -> impl Iterator<Item = (Rtype, Vec<&[u8]>)> {
        let line = data.lines().iter().find(|line| Some(&line.line) == self.line.as_ref());
        let overlays = line.into_iter().flat_map(|line| &line.overlays);
        let names: BTreeSet<NameBuf> = overlays
            .flat_map(|overlay| overlay.sets())
            .map(|set| &set.owner)
            .chain(self.chosen.keys())
            .cloned()
            .collect();
        let nodes = self.choices.iter().flat_map(move |choice| {
            names.clone().into_iter().filter_map(|name| choice.tree.find(name.as_name().as_bytes()))
        });
        nodes.flat_map(Node::rrsets).filter_map(|set| Some((set.covered()?, set.records().collect())))
    }

    /// Octets of memory of its tables.
    pub(crate) fn memory(&self) -> usize {
        let choices = self.choices.iter().map(|choice| choice.tables.memory());
        self.tables.memory() + choices.sum::<usize>()
    }
}
