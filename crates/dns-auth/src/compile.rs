//! From a zone tree to its answer table.

use std::sync::{Arc, OnceLock};

use dns_wire::{LabelStarts, Name, NameBuf, Rcode, Rtype};
use dns_zone::builder::is_service_binding;
use dns_zone::{Changed, Marks, Node, NodeId, Rrset, Zone};

use crate::catalog::ServedZone;
use crate::lines::{LineData, Varying, ZoneLines};
use crate::online::Online;
use crate::resolve::{Resolution, Scratch, Wanted, Zones, resolve};
use crate::table::{AnswerTable, Entry, TableBuilder, Tables, flag};
use crate::view::{Making, Since};
use crate::writer::TO_QNAME;

/// Compiles the answers of `zone` that depend on no other zone: for each name with authoritative data each of its types,
/// and for a CNAME that leads to addresses in the zone, those addresses.
///
/// Everything else is left to the tree: delegations, wildcards, denials, chains that leave the zone.
pub fn compile(zone: Zone) -> ServedZone {
    let Compiled { tables, .. } = compile_all(&zone);
    ServedZone::new(zone, tables)
}

/// As [`compile`], for a zone with views. What of `data` has no place in the zone is left out: see [`LineData::misfits`].
pub fn compile_with_lines(zone: Zone, data: &Arc<LineData>) -> ServedZone {
    compile_marked(data.mark_all(&zone, None).zone, data)
}

fn compile_marked(zone: Zone, data: &Arc<LineData>) -> ServedZone {
    let Compiled { tables, varying } = compile_all(&zone);
    let made = Making { plain: &zone, data, varying: &varying, is_changed: false }.views(None);
    let lines =
        ZoneLines { left_out: OnceLock::new(), data: Arc::clone(data), views: made, varying: varying.into() };
    ServedZone::new(zone, tables).with_lines(lines)
}

/// Compiles what a [`ZoneEditor`](dns_zone::ZoneEditor) has made of `before`: only the answers of names that may have changed, also in views. Who signs online
/// is for the caller to say.
pub fn compile_changed(before: &ServedZone, changed: Changed) -> ServedZone {
    let Some((lines, old)) = before.lines().zip(before.tree().ok()) else {
        return compile_names(before, changed);
    };
    let data = lines.data();
    let (changed, names) = data.mark_changed(old, changed);
    if changed.names.is_none() || has_signed_table(&changed.zone) != before.tables().signed.is_some() {
        return compile_marked(changed.zone, data);
    }
    let since = Since { plain: old, views: &lines.views, names: &names };
    let plain = changed.zone.clone();
    let views = Making { plain: &plain, data, varying: &[], is_changed: true }.views(Some(&since));
    let lines = ZoneLines { left_out: OnceLock::new(), data: Arc::clone(data), views, varying: [].into() };
    compile_names(before, changed).with_lines(lines)
}

/// The same version of a zone, built anew of its records, without what changes have left behind: takes as long as for a new zone. `None` without data.
pub fn compile_anew(before: &ServedZone) -> Option<ServedZone> {
    let zone = before.tree().ok()?.rebuilt();
    let served = match before.lines() {
        Some(lines) => compile_with_lines(zone, lines.data()),
        None => compile(zone),
    };
    Some(served.signed_as(before))
}

/// The same version of a zone with views that are made of something else; without any if `data` is empty. Only what may be others is compiled.
pub fn compile_views(before: &ServedZone, data: &Arc<LineData>) -> ServedZone {
    let Ok(tree) = before.tree() else { return before.without_lines() };
    let held = before.lines();
    let marked = data.mark_all(tree, held.map(|lines| &**lines.data()));
    let is_marked = marked.names.as_ref().is_some_and(Vec::is_empty);
    match held.filter(|_| is_marked && !data.is_empty()) {
        None if data.is_empty() && is_marked => before.without_lines(),
        None if data.is_empty() => compile(marked.zone).signed_as(before),
        None => compile_marked(marked.zone, data).signed_as(before),
        Some(lines) => {
            let names = lines.data().differing_pools(data);
            let since = Since { plain: tree, views: &lines.views, names: &names };
            let is_changed = before.tables().is_changed;
            let making = Making { plain: tree, data, varying: &lines.varying, is_changed };
            let views = making.views(lines.data().has_same_lines(data).then_some(&since));
            let lines = ZoneLines {
                left_out: OnceLock::new(),
                data: Arc::clone(data),
                views,
                varying: Arc::clone(&lines.varying),
            };
            before.without_lines().with_lines(lines)
        }
    }
}

/// The plain zone behind `before`.
fn compile_names(before: &ServedZone, changed: Changed) -> ServedZone {
    let (Some(names), Ok(old)) = (&changed.names, before.tree()) else { return compile(changed.zone) };
    let zone = &changed.zone;
    if has_signed_table(zone) != before.tables().signed.is_some() {
        return compile(changed.zone);
    }
    let next = |table: &AnswerTable, dnssec| Compiler::after(table, zone, dnssec).some(old, names);
    let plain = next(&before.tables().plain, false);
    let signed = before.tables().signed.as_ref().map(|table| next(table, true));
    ServedZone::new(changed.zone, Tables { plain, signed, is_changed: true })
}

/// Tables, and what in them depends on views at other names than its own.
struct Compiled {
    tables: Tables,
    varying: Vec<Varying>,
}

fn compile_all(zone: &Zone) -> Compiled {
    let (plain, varying) = Compiler::new(zone, false).all();
    let signed = has_signed_table(zone).then(|| Compiler::new(zone, true).all().0);
    Compiled { tables: Tables { plain, signed, is_changed: false }, varying }
}

pub(crate) fn has_signed_table(zone: &Zone) -> bool {
    zone.is_signed() || zone.denial().is_some()
}

/// Whether the data at this name is authoritative and reached without a boundary in between.
fn is_plain(node: Node<'_>) -> bool {
    !node.is_occluded() && !node.is_cut() && !node.is_hashed()
}

pub(crate) struct Compiler<'z> {
    zone: &'z Zone,
    table: TableBuilder,
    scratch: Scratch,
    dnssec: bool,
    /// Whether the table is for all draws, so that it has no answers by choice.
    for_all_draws: bool,
    /// Answers so far that depend on views at other names than the question's.
    varying: Vec<Varying>,
    /// Types of the entries that the last node got.
    inserted: Vec<u16>,
    message: Box<[u8; 65_535]>,
    /// Without a signer: answers that need one are not compiled.
    online: Online,
}

impl<'z> Compiler<'z> {
    fn new(zone: &'z Zone, dnssec: bool) -> Compiler<'z> {
        let (mut rrsets, mut octets) = (0, 0);
        for node in zone.nodes() {
            for rrset in node.rrsets() {
                if rrset.rtype() == Rtype::RRSIG {
                    octets += if dnssec { rrset.records().map(|rdata| 12 + rdata.len()).sum() } else { 0 };
                    continue;
                }
                rrsets += 1;
                // A good estimate for address records, which large zones consist of.
                octets += (12 + node.name().len() + 16 * usize::from(rrset.count())).next_multiple_of(8);
            }
        }
        Compiler::with(TableBuilder::with_capacity(rrsets, octets, zone.hash_seed()), zone, dnssec)
    }

    /// For a version of a zone whose table begins as that of the version before.
    fn after(before: &AnswerTable, zone: &'z Zone, dnssec: bool) -> Compiler<'z> {
        Compiler::with(TableBuilder::after(before), zone, dnssec)
    }

    pub(crate) fn with(table: TableBuilder, zone: &'z Zone, dnssec: bool) -> Compiler<'z> {
        let (scratch, varying, inserted, for_all_draws) = Default::default();
        let message = Box::new([0; 65_535]);
        let online = Online::new(0);
        Compiler { zone, table, scratch, dnssec, for_all_draws, varying, inserted, message, online }
    }

    /// For a table that is the same for all draws.
    pub(crate) fn for_all_draws(self, for_all_draws: bool) -> Compiler<'z> {
        Compiler { for_all_draws, ..self }
    }

    /// The table of all names, and what varies in it besides the names that are marked.
    fn all(mut self) -> (AnswerTable, Vec<Varying>) {
        self.zone.nodes().filter(|node| is_plain(*node)).for_each(|node| self.node(node));
        (self.table.finish(), self.varying)
    }

    /// The table of a view of `plain`: with entries for those of `names` that are its own, and for those of `varying` that lead to other names. Of a
    /// table that began with entries, `old` are the zone and the view that it was made of.
    pub(crate) fn view<'n>(
        mut self,
        plain: &Zone,
        old: Option<(&Zone, &Zone)>,
        (names, is_own): (impl Iterator<Item = &'n NameBuf>, &dyn Fn(&NameBuf) -> bool),
        varying: impl Iterator<Item = &'n Varying>,
    ) -> AnswerTable {
        let find = |zone: &'z Zone, name: &NameBuf| {
            zone.find(name.as_name().as_bytes()).filter(|node| is_plain(*node))
        };
        for name in names {
            let trees = old.into_iter().flat_map(|(plain, view)| [plain, view]);
            trees.filter_map(|tree| tree.find(name.as_name().as_bytes())).for_each(|node| self.remove(node));
            let other = plain.find(name.as_name().as_bytes()).filter(|node| is_plain(*node));
            let both = find(self.zone, name).zip(other).filter(|_| is_own(name));
            if let Some((own, other)) = both {
                self.node(own);
                self.absent(own, other);
            }
        }
        for Varying { node, rtype, .. } in varying {
            let Some(node) = plain.live_node(*node).filter(|node| !is_own(&name_of(*node).into())) else {
                continue;
            };
            let mut octets = [0; 255];
            let name = lowercase(node.name(), &mut octets);
            if old.is_some() {
                self.table.remove(name, rtype.0);
            }
            self.composed((name, None), *rtype);
        }
        self.table.finish()
    }

    /// Says for types that `other` has an entry for, and `own` has none, that the tree answers. `own` has just been compiled: its answer may be
    /// none that can be, such as an alias that leaves the zone.
    fn absent(&mut self, own: Node<'_>, other: Node<'_>) {
        let mut octets = [0; 255];
        let name = lowercase(own.name(), &mut octets);
        for rtype in types_of(other).filter(|rtype| is_compiled(*rtype)) {
            if !self.inserted.contains(&rtype.0) {
                let flags = marked(other.marks()) | flag::ABSENT;
                self.table.insert(rtype.0, Entry { counts: [0; 3], flags, name, body: &[] });
            }
        }
    }

    /// The table in which the answers of these names are no more those of the version `old`.
    fn some(mut self, old: &Zone, names: &[NodeId]) -> AnswerTable {
        for &id in names {
            old.live_node(id).into_iter().for_each(|node| self.remove(node));
            let new = self.zone.live_node(id).filter(|node| is_plain(*node));
            new.into_iter().for_each(|node| self.node(node));
        }
        self.table.finish()
    }

    /// Removes all entries that the version before has for a name.
    fn remove(&mut self, node: Node<'_>) {
        let mut octets = [0; 255];
        let name = lowercase(node.name(), &mut octets);
        let types = types_of(node);
        types.for_each(|rtype| self.table.remove(name, rtype.0));
    }

    fn node(&mut self, node: Node<'z>) {
        self.inserted.clear();
        let mut octets = [0; 255];
        let name = lowercase(node.name(), &mut octets);
        for rrset in node.rrsets().filter(|rrset| is_compiled(rrset.rtype())) {
            match rrset.rtype() {
                rtype if has_names(rtype) => self.composed((name, Some(node.id())), rtype),
                _ => self.copied(name, node, rrset),
            }
        }
        if node.has_cname() {
            self.composed((name, Some(node.id())), Rtype::A);
            self.composed((name, Some(node.id())), Rtype::AAAA);
        }
    }

    /// The common case, without a search: records that hold no names and lead nowhere.
    fn copied(&mut self, name: &[u8], node: Node<'z>, rrset: Rrset<'z>) {
        let signatures = self.dnssec.then(|| node.signatures_of(rrset)).flatten();
        let records = |rrset: Rrset<'z>| rrset.records().map(move |rdata| (rrset.rtype(), rdata));
        let mut end = 0;
        for (rtype, rdata) in records(rrset).chain(signatures.into_iter().flat_map(records)) {
            if end + 12 + rdata.len() > self.message.len() {
                return; // A single record may be longer than any message: the tree says so.
            }
            let record = &mut self.message[end..end + 12 + rdata.len()];
            record[..2].copy_from_slice(&TO_QNAME);
            record[2..4].copy_from_slice(&rtype.0.to_be_bytes());
            record[4..6].copy_from_slice(&[0, 1]);
            record[6..10].copy_from_slice(&rrset.ttl().to_be_bytes());
            record[10..12].copy_from_slice(&(rdata.len() as u16).to_be_bytes());
            record[12..].copy_from_slice(rdata);
            end += record.len();
        }
        let entry = Entry {
            counts: [rrset.count() + signatures.map_or(0, Rrset::count), 0, 0],
            flags: marked(node.marks())
                | match (rrset.count(), signatures) {
                    (1, _) => 0,
                    (_, None) => flag::ROTATABLE,
                    (_, Some(_)) => flag::ORDERED,
                },
            name,
            body: &self.message[..end],
        };
        self.table.insert(rrset.rtype().0, entry);
        self.inserted.push(rrset.rtype().0);
    }

    /// All else: the tree's own answer, if it is whole and from this zone alone.
    fn composed(&mut self, (name, node): (&[u8], Option<NodeId>), rtype: Rtype) {
        let start = 12 + name.len() + 4;
        let qname = Name::from_wire(name).expect("the tree holds valid names");
        self.scratch.begin(qname, &LabelStarts::of(qname));
        let bounds = (start, self.message.len());
        let wanted = Wanted { qtype: rtype, dnssec: self.dnssec, compact_ok: false, rotation: 0 };
        let online = &mut self.online;
        let found =
            resolve(Zones::Only(self.zone), &self.scratch, online, wanted, &mut self.message[..], bounds);
        if !is_self_contained(&found) {
            return;
        }
        let chained = if found.hops > 1 { flag::CHAINED | flag::DEPENDENT } else { 0 };
        let ordered = if found.counts.answer > 1 { flag::ORDERED } else { 0 };
        let dependent = if has_targets(rtype) { flag::DEPENDENT } else { 0 };
        let marks = Marks { varied: found.varies, chosen: found.chosen };
        if marks != Marks::default() {
            self.varying.extend(node.map(|node| Varying { node, rtype, chosen: found.chosen }));
        }
        if found.chosen && self.for_all_draws {
            let flags = marked(marks) | flag::ABSENT;
            return self.table.insert(rtype.0, Entry { counts: [0; 3], flags, name, body: &[] });
        }
        let counts = [found.counts.answer, found.counts.authority, found.counts.additional];
        let body = &self.message[start..found.end];
        let flags = ordered | chained | dependent | marked(marks);
        self.table.insert(rtype.0, Entry { counts, flags, name, body });
        self.inserted.push(rtype.0);
    }
}

/// What an entry says of the marks of the names that its answer is from.
fn marked(marks: Marks) -> u8 {
    let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
    flag(marks.varied, flag::VARIES) | flag(marks.chosen, flag::CHOSEN)
}

/// Types that have entries at a node: those of its sets, and of a CNAME those that lead on.
fn types_of(node: Node<'_>) -> impl Iterator<Item = Rtype> {
    let chained = if node.has_cname() { &[Rtype::A, Rtype::AAAA][..] } else { &[] };
    node.rrsets().map(|rrset| rrset.rtype()).chain(chained.iter().copied())
}

/// DS is asked of the parent, if the parent is served too. Signatures are seldom asked for, and much of a signed zone.
fn is_compiled(rtype: Rtype) -> bool {
    !matches!(rtype, Rtype::DS | Rtype::RRSIG)
}

fn is_self_contained(found: &Resolution) -> bool {
    found.rcode == Rcode::NoError
        && found.authoritative
        && !found.truncated
        && !found.left_zones
        && found.counts.answer > 0
        && found.counts.authority == 0 // A chain that ends in a denial or a referral.
}

/// Whether records of this type hold names that are compressed, or lead to additional records.
fn has_names(rtype: Rtype) -> bool {
    matches!(rtype, Rtype::CNAME | Rtype::PTR | Rtype::SOA | Rtype::DNAME) || has_targets(rtype)
}

/// Whether records of this type lead to additional records.
fn has_targets(rtype: Rtype) -> bool {
    matches!(rtype, Rtype::NS | Rtype::MX | Rtype::SRV) || is_service_binding(rtype)
}

fn name_of(node: Node<'_>) -> Name<'_> {
    Name::from_wire(node.name()).expect("the tree holds valid names")
}

fn lowercase<'o>(name: &[u8], octets: &'o mut [u8; 255]) -> &'o [u8] {
    let lower = &mut octets[..name.len()];
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    lower
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use dns_wire::NameBuf;
    use dns_wire::fold::Folded;
    use dns_zone::ZoneBuilder;

    const SOA: &[u8] =
        b"\x00\x00\x00\x00\x00\x07\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00\x04\x00\x00\x00\x05";

    pub(crate) fn name(text: &str) -> NameBuf {
        NameBuf::from_text(text.as_bytes(), None).unwrap()
    }

    /// A zone with a SOA and the lines `owner type data`, where data is an address or a name.
    pub(crate) fn zone(origin: &str, lines: &str) -> Zone {
        let mut builder = ZoneBuilder::new(name(origin).as_name(), 11);
        builder.add(name(origin).as_name(), 300, Rtype::SOA, SOA).unwrap();
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            let mut words = line.split_whitespace();
            let (owner, rtype, data) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
            let rtype = Rtype::from_text(rtype.as_bytes()).unwrap();
            let rdata = match data.parse::<std::net::IpAddr>() {
                Ok(std::net::IpAddr::V4(address)) => address.octets().to_vec(),
                Ok(std::net::IpAddr::V6(address)) => address.octets().to_vec(),
                Err(_) if rtype == Rtype::MX => [&[0, 10], name(data).as_name().as_bytes()].concat(),
                Err(_) => name(data).as_name().as_bytes().to_vec(),
            };
            builder.add(name(owner).as_name(), 300, rtype, &rdata).unwrap();
        }
        builder.finish().unwrap()
    }

    fn has(served: &ServedZone, owner: &str, rtype: Rtype) -> bool {
        let owner = name(owner);
        let mut folded = Folded::default();
        folded.set(owner.as_name().as_bytes(), owner.as_name().len() as u8);
        let mut search = served.tables().plain.search(&folded, rtype.0);
        served.tables().plain.fetch(&mut search);
        served.tables().plain.find(&search, folded.name(), rtype.0).is_some()
    }

    #[test]
    fn authoritative_data_is_compiled_and_glue_and_delegations_are_not() {
        let served = compile(zone(
            "example.",
            "a.example. A 192.0.2.1\nsub.example. NS ns.sub.example.\nns.sub.example. A 192.0.2.2",
        ));
        assert!(has(&served, "A.example.", Rtype::A) && has(&served, "example.", Rtype::SOA));
        assert!(!has(&served, "sub.example.", Rtype::NS) && !has(&served, "ns.sub.example.", Rtype::A));
    }

    #[test]
    fn chains_are_compiled_as_long_as_they_stay_in_the_zone() {
        let served = compile(zone(
            "example.",
            "a.example. A 192.0.2.1\nin.example. CNAME a.example.\nout.example. CNAME a.other.\nloop.example. CNAME loop.example.",
        ));
        assert!(has(&served, "in.example.", Rtype::A) && !has(&served, "in.example.", Rtype::AAAA));
        assert!(!has(&served, "out.example.", Rtype::A) && has(&served, "out.example.", Rtype::CNAME));
    }
}
