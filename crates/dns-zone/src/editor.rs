//! From one version of a zone to the next.

use dns_wire::{Name, Rtype};

use crate::builder::{RecordError, ZoneBuilder, ZoneError, flags_for, is_same};
use crate::tree::{Marks, NONE, Node, NodeId, Rrset, Zone, node_flag, record, type_covered};

impl Zone {
    /// Whether editors have left much behind since the zone was built, so that it should be built anew.
    pub fn has_much_left(&self) -> bool {
        self.has_left(1)
    }

    /// Whether it is so much that the next editor builds it anew in any case, however long that takes.
    fn has_too_much_left(&self) -> bool {
        self.has_left(3)
    }

    fn has_left(&self, times: usize) -> bool {
        const OWN_MIN: usize = 256 << 10;
        let changes_max = (self.nodes.len() / 8).clamp(1000, 100_000);
        let own_max = |base_len: usize| times * base_len.max(OWN_MIN);
        self.changes > times * changes_max
            || self.records.own_len() > own_max(self.records.base_len())
            || self.names.own_len() > own_max(self.names.base_len())
    }

    /// The same zone, built of its records.
    #[must_use]
    pub fn rebuilt(&self) -> Zone {
        rebuilt(self)
    }
}

impl Changed {
    /// The same, built anew if that is due: for those who need not be quick.
    #[must_use]
    pub fn built_anew_if_due(self) -> Changed {
        let is_due = self.names.is_some() && self.zone.has_much_left();
        if is_due { Changed { zone: self.zone.rebuilt(), names: None } } else { self }
    }
}

/// Removes and adds records of a zone: a new version, which costs as much as what changes, however large the zone is.
pub struct ZoneEditor {
    builder: ZoneBuilder,
    before: Zone,
    /// Names that were changed, some of them several times.
    touched: Vec<NodeId>,
}

/// What came of an edit.
#[derive(Debug)]
pub struct Changed {
    /// The new version.
    pub zone: Zone,
    /// The names about which it may say something else than the version before: those that changed, and those below a cut or DNAME that came or
    /// went. `None`: all of them, as the zone was built anew.
    pub names: Option<Vec<NodeId>>,
}

impl ZoneEditor {
    /// Starts with what `before` has.
    pub fn new(before: &Zone) -> ZoneEditor {
        let builder = ZoneBuilder { zone: before.clone(), last: NodeId(0) };
        ZoneEditor { builder, before: before.clone(), touched: Vec::new() }
    }

    /// The zone as it is by now. Names may be there that have lost all of their records.
    pub fn zone(&self) -> &Zone {
        &self.builder.zone
    }

    /// Adds a record, see [`ZoneBuilder::add`].
    pub fn add(&mut self, owner: Name<'_>, ttl: u32, rtype: Rtype, rdata: &[u8]) -> Result<(), RecordError> {
        let added = self.builder.add(owner, ttl, rtype, rdata);
        self.touched.push(self.builder.last); // It may be new, and without records if this one is refused.
        added
    }

    /// Says what answers about a name depend on besides the zone, and nothing else. A name that depends on the line of the client exists from then
    /// on, with records or without.
    pub fn mark(&mut self, owner: Name<'_>, marks: Marks) -> Result<(), RecordError> {
        let held = self.builder.zone.find(owner.as_bytes()).map(Node::marks);
        if held.unwrap_or_default() != marks {
            let node = self.builder.mark(owner, marks)?;
            self.touched.push(node);
        }
        Ok(())
    }

    /// Removes a record; false if it is not there.
    pub fn remove(&mut self, owner: Name<'_>, rtype: Rtype, rdata: &[u8]) -> Result<bool, RecordError> {
        let Some(node) = self.builder.zone.find(owner.as_bytes()).map(Node::id) else { return Ok(false) };
        let set = self.builder.find_rrset(node, rtype, type_covered(rtype, rdata));
        let Some((set, place)) = set.and_then(|set| Some((set, self.place_in(set, rdata)?))) else {
            return Ok(false);
        };
        self.touched.push(node);
        match self.builder.zone.rrsets.get(set) {
            Some(entry) if entry.count > 1 => self.builder.copy_records(set, place).map(|_| true),
            _ => {
                self.unlink(node, set);
                Ok(true)
            }
        }
    }

    /// Removes the record sets of a name that are wanted.
    pub fn remove_sets(&mut self, owner: Name<'_>, is_wanted: impl Fn(Rrset<'_>) -> bool) {
        let Some(node) = self.builder.zone.find(owner.as_bytes()).map(Node::id) else { return };
        let mut at = self.builder.zone.node(node).first_rrset();
        while let Some(entry) = self.builder.zone.rrsets.get(at as usize).copied() {
            if is_wanted(Rrset { zone: &self.builder.zone, entry: &entry }) {
                self.touched.push(node);
                self.unlink(node, at as usize);
            }
            at = entry.next;
        }
    }

    /// Gives all records of a name and type another TTL.
    pub fn set_ttl(&mut self, owner: Name<'_>, rtype: Rtype, ttl: u32) {
        let node = self.builder.zone.find(owner.as_bytes()).map(Node::id);
        let set = node.and_then(|node| Some((node, self.builder.find_rrset(node, rtype, None)?)));
        let Some((node, set)) = set else { return };
        self.touched.push(node);
        self.builder.zone.rrsets.get_mut(set).ttl = ttl;
    }

    /// Which record of a set has this data.
    fn place_in(&self, set: usize, rdata: &[u8]) -> Option<usize> {
        let zone = &self.builder.zone;
        let entry = zone.rrsets.get(set)?;
        let mut at = entry.first_record;
        (0..).take(usize::from(entry.count)).find(|_| {
            let (next, data) = record(&zone.records, at);
            at = next;
            is_same(entry.rtype, data, rdata)
        })
    }

    /// Takes a set away, with all records that it has.
    fn unlink(&mut self, node: NodeId, set: usize) {
        let zone = &mut self.builder.zone;
        let (after, count) = zone.rrsets.get(set).map_or((NONE, 0), |entry| (entry.next, entry.count));
        zone.record_count -= usize::from(count);
        let first = zone.node(node).first_rrset();
        if first as usize == set {
            zone.nodes.get_mut(node.0 as usize).first_rrset = after;
        } else {
            let mut at = first as usize;
            while let Some(entry) = zone.rrsets.get(at).filter(|entry| entry.next as usize != set) {
                at = entry.next as usize;
            }
            zone.rrsets.get_mut(at).next = after;
        }
        let types = zone.node(node).rrsets().map(|rrset| flags_for(rrset.rtype(), node));
        let flags = types.fold(0, |flags, more| flags | more);
        let entry = zone.nodes.get_mut(node.0 as usize);
        entry.flags &= !(node_flag::CUT | node_flag::DNAME | node_flag::CNAME);
        entry.flags |= flags;
    }

    /// Ends the version.
    pub fn finish(mut self) -> Result<Changed, ZoneError> {
        if self.builder.find_rrset(NodeId(0), Rtype::SOA, None).is_none() {
            return Err(ZoneError::NoSoa);
        }
        self.settle();
        self.prune();
        let ZoneEditor { builder: ZoneBuilder { mut zone, .. }, before, touched } = self;
        zone.changes += touched.len();
        let is_kept = !zone.has_too_much_left() && zone.is_signed == before.is_signed;
        if is_kept && let Some(chain) = before.chain.after(&zone, &touched) {
            zone.chain = chain;
            return Ok(Changed { zone, names: Some(touched) });
        }
        Ok(Changed { zone: rebuilt(&zone), names: None })
    }

    /// Lists each touched name once, and with them those below a cut or DNAME that came or went.
    fn settle(&mut self) {
        let boundary = |node: Option<Node<'_>>| node.is_some_and(|node| node.is_cut() || node.has_dname());
        sort_once(&mut self.touched);
        let mut all = self.touched.clone();
        for &id in &self.touched {
            let now = self.builder.zone.live_node(id);
            if boundary(now) != boundary(self.before.live_node(id)) {
                all.extend(now.into_iter().flat_map(Node::below).map(Node::id));
            }
        }
        sort_once(&mut all);
        self.touched = all;
    }

    /// Removes names without records, unless there are names below, and settles those that remain.
    fn prune(&mut self) {
        let mut last = self.touched.len();
        while let Some(at) = last.checked_sub(1) {
            last = at;
            self.prune_upwards(self.touched[at]);
        }
        if self.builder.zone.is_signed || self.builder.zone.is_hashed {
            // Whether a name is a mere hash depends on its children, too.
            let zone = &self.builder.zone;
            let parents = self.touched.iter().filter_map(|id| Some(zone.node(*id).parent()?.id()));
            let mut concerned: Vec<NodeId> = self.touched.iter().copied().chain(parents).collect();
            concerned.retain(|id| self.builder.settle_signed(*id));
            self.touched.extend(concerned);
            sort_once(&mut self.touched);
        }
    }

    fn prune_upwards(&mut self, id: NodeId) {
        let node = self.builder.zone.node(id);
        let has_child = || node.children().any(|child| !child.is_removed());
        let is_needed = node.is_varied() || node.rrsets().next().is_some() || has_child();
        if is_needed || node.is_removed() {
            return;
        }
        let Some(above) = node.parent().map(Node::id) else { return };
        self.builder.entry_mut(id).flags |= node_flag::REMOVED;
        self.builder.zone.removed += 1;
        self.prune_upwards(above);
    }
}

fn sort_once(nodes: &mut Vec<NodeId>) {
    nodes.sort_unstable_by_key(|id| id.0);
    nodes.dedup();
}

/// The same zone, built of its records.
fn rebuilt(zone: &Zone) -> Zone {
    let mut builder = ZoneBuilder::new(zone.origin(), zone.seed);
    for node in zone.nodes() {
        let owner = Name::from_wire(node.name()).expect("the tree holds valid names");
        if node.marks() != Marks::default() {
            builder.mark(owner, node.marks()).expect("it was there before");
        }
        for rrset in node.rrsets() {
            for rdata in rrset.records() {
                builder.add(owner, rrset.ttl(), rrset.rtype(), rdata).expect("they were together before");
            }
        }
    }
    builder.finish().expect("it has its SOA")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::tests::{SOA, builder, name};

    /// A zone with these texts at one name.
    fn zone(texts: &[Vec<u8>]) -> Zone {
        let mut builder = builder();
        for text in texts {
            builder.add(name("a.example.").as_name(), 60, Rtype::TXT, text).unwrap();
        }
        builder.finish().unwrap()
    }

    fn change(zone: &Zone, old: &[u8], new: &[u8]) -> Changed {
        let (mut editor, owner) = (ZoneEditor::new(zone), name("a.example."));
        assert_eq!(editor.remove(owner.as_name(), Rtype::TXT, old), Ok(true));
        editor.add(owner.as_name(), 60, Rtype::TXT, new).unwrap();
        editor.finish().unwrap()
    }

    /// What `changes` changes of one record among `count` leave: most memory ever, and how often the zone was built anew.
    fn memory_over(count: u8, changes: u16) -> (usize, usize) {
        let text = |number: u16| [&[250][..], &number.to_be_bytes(), &[b'x'; 248]].concat();
        let others = (0..count).map(|number| text(u16::from(number) + 40_000));
        let mut zone = zone(&std::iter::once(text(0)).chain(others).collect::<Vec<_>>());
        let (mut most, mut rebuilt) = (0, 0);
        for number in 0..changes {
            let changed = change(&zone, &text(number), &text(number + 1));
            rebuilt += usize::from(changed.names.is_none());
            zone = changed.zone;
            most = most.max(zone.memory());
        }
        assert_eq!(zone.record_count(), usize::from(count) + 2);
        (most, rebuilt)
    }

    #[test]
    fn a_zone_that_changes_for_ever_keeps_its_size() {
        let (most, rebuilt) = memory_over(1, 10_000);
        assert!(most < 2_000_000 && (2..20).contains(&rebuilt), "{most} octets, {rebuilt} times");
    }

    #[test]
    fn so_does_one_whose_changes_are_copies_of_a_long_set() {
        let (most, rebuilt) = memory_over(200, 500);
        assert!(most < 1_300_000 && (5..100).contains(&rebuilt), "{most} octets, {rebuilt} times");
    }

    #[test]
    fn whoever_has_the_time_builds_a_zone_anew_before_an_editor_has_to() {
        let text = |number: u16| [&[2][..], &number.to_be_bytes()].concat();
        let (mut zone, mut number) = (zone(&[text(0)]), 0);
        while !zone.has_much_left() {
            let changed = change(&zone, &text(number), &text(number + 1));
            assert!(changed.names.is_some(), "an editor did it");
            (zone, number) = (changed.zone, number + 1);
        }
        let changed = change(&zone, &text(number), &text(number + 1));
        assert!(changed.names.is_some(), "an editor did it");
        let anew = changed.built_anew_if_due();
        assert!(anew.names.is_none() && !anew.zone.has_much_left());
        assert!(change(&anew.zone, &text(number + 1), &text(0)).built_anew_if_due().names.is_some());
    }

    #[test]
    fn what_is_not_there_is_not_removed() {
        let zone = zone(&[b"\x01t".to_vec()]);
        let mut editor = ZoneEditor::new(&zone);
        for (owner, rtype, rdata) in [
            ("a.example.", Rtype::TXT, &b"\x01u"[..]),
            ("a.example.", Rtype::A, b"\x01t"),
            ("b.example.", Rtype::TXT, b"\x01t"),
        ] {
            assert_eq!(editor.remove(name(owner).as_name(), rtype, rdata), Ok(false));
        }
        assert_eq!(editor.finish().unwrap().names, Some(Vec::new()));
    }

    #[test]
    fn a_zone_does_not_lose_its_soa() {
        let zone = zone(&[]);
        let mut editor = ZoneEditor::new(&zone);
        assert_eq!(editor.remove(name("example.").as_name(), Rtype::SOA, SOA), Ok(true));
        assert_eq!(editor.finish().unwrap_err(), ZoneError::NoSoa);
    }

    #[test]
    fn a_name_that_loses_all_takes_the_names_along_that_only_led_to_it() {
        let mut editor = ZoneEditor::new(&zone(&[]));
        editor.add(name("a.b.c.example.").as_name(), 60, Rtype::A, &[192, 0, 2, 1]).unwrap();
        editor.add(name("d.c.example.").as_name(), 60, Rtype::A, &[192, 0, 2, 1]).unwrap();
        let with = editor.finish().unwrap().zone;
        let mut editor = ZoneEditor::new(&with);
        editor.remove(name("a.b.c.example.").as_name(), Rtype::A, &[192, 0, 2, 1]).unwrap();
        let without = editor.finish().unwrap().zone;
        let there = |zone: &Zone, text| zone.find(name(text).as_name().as_bytes()).is_some();
        for (text, is_left) in [("a.b.c.example.", false), ("b.c.example.", false), ("c.example.", true)] {
            assert_eq!((there(&with, text), there(&without, text)), (true, is_left), "{text}");
        }
        let mut editor = ZoneEditor::new(&without);
        editor.add(name("a.b.c.example.").as_name(), 60, Rtype::A, &[192, 0, 2, 1]).unwrap();
        let again = editor.finish().unwrap().zone;
        let counts = [&with, &without, &again].map(|zone| (zone.name_count(), zone.nodes().count()));
        let all = with.node_count();
        assert_eq!(counts, [(all, all), (all - 2, all - 2), (all, all)]);
    }
}
