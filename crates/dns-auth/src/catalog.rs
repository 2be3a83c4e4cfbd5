//! The zones served: longest match from a question's name to a zone.

use std::sync::{Arc, LazyLock, OnceLock};

use dns_lines::{LineId, Lines};
use dns_wire::fold::{self, Folded};
use dns_wire::{LabelStarts, Name, NameBuf};
use dns_zone::Zone;
use dns_zone::index::Index;
use dns_zone::versioned::Pages;

use crate::lines::{Asker, LeftOut, ZoneLines};
use crate::online::SignOnline;
use crate::table::Tables;

/// A zone that the server is configured for: loaded, with its precompiled answers, or unavailable.
#[derive(Debug)]
pub struct ServedZone {
    origin: NameBuf,
    tree: Result<Zone, Unavailable>,
    tables: Tables,
    /// What depends on the line of the client, and on weights and health.
    lines: Option<ZoneLines>,
    /// Who signs for one answer, of a zone that is denied compactly.
    signer: OnceLock<Arc<dyn SignOnline>>,
}

/// Why a zone that the server is configured for has no data. Its queries are answered with SERVFAIL; without it, a zone above
/// would deny its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// The zone could not be read.
    NotReady,
    /// The zone was read, and its data is wrong.
    InvalidData,
}

impl Unavailable {
    /// The INFO-CODE of the extended DNS error (RFC 8914, 4.15 and 4.25).
    pub const fn info_code(self) -> u16 {
        match self {
            Unavailable::NotReady => 14,
            Unavailable::InvalidData => 24,
        }
    }
}

impl ServedZone {
    /// A loaded zone. `tables` hold answers that depend on nothing but this zone.
    pub fn new(zone: Zone, tables: Tables) -> ServedZone {
        let (lines, signer) = Default::default();
        ServedZone { origin: NameBuf::from(zone.origin()), tree: Ok(zone), tables, lines, signer }
    }

    /// Has answers signed that need it; of several signers the first counts. It is for whoever has just made the version, or has found its keys again.
    pub fn sign_online_by(&self, signer: Arc<dyn SignOnline>) {
        let _ = self.signer.set(signer); // One that is there is of this version, too.
    }

    /// Who signs for one answer.
    pub fn signer(&self) -> Option<&dyn SignOnline> {
        self.signer.get().map(|signer| &**signer)
    }

    /// The same zone, signed by whoever signs `before`, which has the same records.
    pub(crate) fn signed_as(self, before: &ServedZone) -> ServedZone {
        ServedZone { signer: before.signer.clone(), ..self }
    }

    /// The same zone with views.
    pub(crate) fn with_lines(self, lines: ZoneLines) -> ServedZone {
        ServedZone { lines: Some(lines), ..self }
    }

    /// The same zone without views.
    pub(crate) fn without_lines(&self) -> ServedZone {
        ServedZone {
            origin: self.origin.clone(),
            tree: self.tree.clone(),
            tables: self.tables.clone(),
            lines: None,
            signer: self.signer.clone(),
        }
    }

    /// The views of it, if it has some.
    pub fn lines(&self) -> Option<&ZoneLines> {
        self.lines.as_ref()
    }

    /// What lines have for it and it has no place for. To find that out the first time takes as long as to look up all that lines have.
    pub fn left_out(&self) -> Option<&LeftOut> {
        self.lines.as_ref()?.left_out(self.tree.as_ref().ok()?)
    }

    /// The placeholder of a zone that has no data.
    pub fn unavailable(origin: NameBuf, reason: Unavailable) -> ServedZone {
        let (tables, lines, signer) = Default::default();
        ServedZone { origin, tree: Err(reason), tables, lines, signer }
    }

    /// The name of the apex.
    pub fn origin(&self) -> Name<'_> {
        self.origin.as_name()
    }

    /// The zone's data, or why there is none.
    pub fn tree(&self) -> Result<&Zone, Unavailable> {
        self.tree.as_ref().map_err(|reason| *reason)
    }

    /// Precompiled answers; none while the zone is unavailable.
    #[inline(always)]
    pub fn tables(&self) -> &Tables {
        &self.tables
    }
}

/// An immutable set of zones. A reload makes a new catalog that shares the zones which did not change; see [`Catalog::replacing`] for other versions
/// of the same zones.
#[derive(Clone, Debug)]
pub struct Catalog {
    zones: Pages<Slot>,
    origins: Arc<Origins>,
    lines: Option<CatalogLines>,
    /// Whether a zone is signed for one answer: aliases lead there from others.
    has_signers: bool,
}

/// The place of a zone.
#[derive(Clone, Debug)]
struct Slot {
    served: Arc<ServedZone>,
    /// Under which number its queries are counted.
    counter: u16,
}

impl Default for Slot {
    /// A place that no number leads to.
    fn default() -> Slot {
        static NO_ZONE: LazyLock<Arc<ServedZone>> =
            LazyLock::new(|| Arc::new(ServedZone::unavailable(NameBuf::root(), Unavailable::NotReady)));
        Slot { served: Arc::clone(&NO_ZONE), counter: 0 }
    }
}

/// The names of zones: the same for all versions of the same zones.
#[derive(Debug)]
struct Origins {
    /// For each zone, its origin in lower case: compared without a look at the zone itself.
    names: Vec<Box<[u8]>>,
    /// For each zone, whether another one lies below it.
    zones_below: Vec<bool>,
    index: Index,
    /// Labels of the shortest and of the longest origin: no other suffix of a name needs to be looked up.
    depths: (u8, u8),
    seed: u64,
}

/// Which views of zones the clients of lines get.
#[derive(Clone, Debug)]
struct CatalogLines {
    lines: Arc<Lines>,
    /// For each zone with views, by line.
    views: Pages<Box<[u16]>>,
}

impl Catalog {
    /// A catalog of `zones`. Of two zones with one origin the later counts, unless it is unavailable.
    pub fn new(zones: impl IntoIterator<Item = Arc<ServedZone>>, seed: u64) -> Catalog {
        let mut origins = Origins {
            names: Vec::new(),
            zones_below: Vec::new(),
            index: Index::default(),
            depths: (u8::MAX, 0),
            seed,
        };
        let mut kept = Vec::<Slot>::new();
        for served in zones {
            match origins.insert(served.origin()) {
                None => kept.push(Slot { served, counter: 0 }),
                Some(number) if served.tree().is_ok() => kept[number as usize].served = served,
                Some(_) => {}
            }
        }
        origins.mark_zones_below();
        let has_signers = kept.iter().any(|slot| slot.served.signer().is_some());
        Catalog { zones: kept.into_iter().collect(), origins: Arc::new(origins), lines: None, has_signers }
    }

    /// The same zones for clients of these lines.
    #[must_use]
    pub fn by_lines(self, lines: &Arc<Lines>) -> Catalog {
        let of = |zone: &Arc<ServedZone>| views_of(zone, lines);
        let views = self.zones().map(of).collect();
        Catalog { lines: Some(CatalogLines { lines: Arc::clone(lines), views }), ..self }
    }

    /// The same with other versions of some zones, each behind the one whose place it takes: costs as much as those, however many there are besides. `None`
    /// if one of them is not served here as it was, or has no data by now.
    pub fn replacing<'z>(
        &self,
        versions: impl IntoIterator<Item = (&'z Arc<ServedZone>, &'z Arc<ServedZone>)>,
    ) -> Option<Catalog> {
        let mut next = self.clone();
        for (before, after) in versions {
            let number = next.number_of(before.origin())?;
            if !Arc::ptr_eq(next.zone(number), before) || after.tree().is_err() {
                return None;
            }
            next.has_signers |= after.signer().is_some();
            let counter = next.counter(number);
            next.zones.set(number as usize, Slot { served: Arc::clone(after), counter });
            if let Some(CatalogLines { lines, views }) = &mut next.lines {
                views.set(number as usize, views_of(after, lines));
            }
        }
        Some(next)
    }

    /// The same, in which the queries of each zone are counted under the number that `of` gives its name: one below
    /// [`ZONE_COUNTERS`](crate::ZONE_COUNTERS).
    #[must_use]
    pub fn counted_by(&self, mut of: impl FnMut(Name<'_>) -> u16) -> Catalog {
        let counted =
            |slot: &Slot| Slot { served: Arc::clone(&slot.served), counter: of(slot.served.origin()) };
        Catalog { zones: self.zones.iter().map(counted).collect(), ..self.clone() }
    }

    /// Under which number the queries of a zone are counted.
    pub fn counter(&self, number: u32) -> u16 {
        self.counted_zone(number).1
    }

    /// The zone of a number, and under which number its queries are counted: looked up once for both.
    #[inline(always)]
    pub(crate) fn counted_zone(&self, number: u32) -> (&ServedZone, u16) {
        let slot = &self.zones[number as usize];
        (&slot.served, slot.counter)
    }

    /// The lines of clients, if there are any.
    #[inline(always)]
    pub fn lines(&self) -> Option<&Arc<Lines>> {
        self.lines.as_ref().map(|lines| &lines.lines)
    }

    /// The number of the view of a zone that clients of a line get; 0 is the plain zone.
    #[inline(always)]
    pub(crate) fn view(&self, zone: u32, line: Option<LineId>) -> u16 {
        let own = self.lines.as_ref().zip(line).and_then(|(lines, line)| {
            let views = &lines.views[zone as usize];
            views.get(usize::from(line.0)).copied()
        });
        own.unwrap_or_else(|| self.zone(zone).lines().map_or(0, ZoneLines::everybody))
    }

    /// The tree of the zone of this number for a client.
    pub(crate) fn tree_for(&self, zone: u32, asker: &Asker) -> Result<&Zone, Unavailable> {
        let served = self.zone(zone);
        let view = served.lines().and_then(|lines| {
            let number = self.view(zone, asker.find(self).line);
            lines.view(number)
        });
        view.map_or_else(|| served.tree(), |view| Ok(view.tree(asker.draw)))
    }

    /// What keys its hashes, drawn by chance.
    #[inline(always)]
    pub(crate) fn seed(&self) -> u64 {
        self.origins.seed
    }

    /// Whether the answer to a question in a zone may need a signature of its own.
    pub(crate) fn may_sign(&self, zone: u32) -> bool {
        // One that has found its keys again has a signer that no catalog was told of.
        self.has_signers || self.zone(zone).signer().is_some()
    }

    /// Whether another zone lies below the one of this number.
    pub fn has_zone_below(&self, number: u32) -> bool {
        self.origins.zones_below[number as usize]
    }

    /// All zones by their numbers: in the order in which they were given.
    pub fn zones(&self) -> impl DoubleEndedIterator<Item = &Arc<ServedZone>> {
        self.zones.iter().map(|slot| &slot.served)
    }

    /// How many zones there are.
    pub fn zone_count(&self) -> usize {
        self.zones.len()
    }

    /// The zone of a number that [`Catalog::find_number`] has given.
    #[inline(always)]
    pub fn zone(&self, number: u32) -> &Arc<ServedZone> {
        &self.zones[number as usize].served
    }

    /// The zone with the longest origin at or above `name`.
    pub fn find(&self, name: Name<'_>) -> Option<&ServedZone> {
        let folded = Folded::of(name.as_bytes());
        self.find_number(&folded, &LabelStarts::of(name)).map(|number| &**self.zone(number))
    }

    /// The number of the zone whose origin is `origin`.
    pub fn number_of(&self, origin: Name<'_>) -> Option<u32> {
        let number = self.find_number(&Folded::of(origin.as_bytes()), &LabelStarts::of(origin))?;
        Some(number).filter(|number| self.zone(*number).origin() == origin)
    }

    /// As [`Catalog::find`], but the zone's number. `labels` are those of `name`.
    #[inline(always)]
    pub fn find_number(&self, name: &Folded, labels: &LabelStarts) -> Option<u32> {
        self.origins.find(name, labels)
    }
}

fn views_of(zone: &ServedZone, lines: &Lines) -> Box<[u16]> {
    zone.lines().map(|views| views.by_line(lines)).unwrap_or_default()
}

impl Origins {
    /// Gives a zone the next number; the number that one of this name has already.
    fn insert(&mut self, origin: Name<'_>) -> Option<u32> {
        let name: Box<[u8]> = origin.as_bytes().to_ascii_lowercase().into();
        let (hash, depth) = (fold::hash_name(&name, self.seed), origin.label_count());
        let held = self.lookup(&name, hash);
        if held.is_none() {
            let depth = depth as u8; // A name has at most 127 labels.
            self.depths = (self.depths.0.min(depth), self.depths.1.max(depth));
            self.index.insert(hash, self.names.len() as u32);
            self.names.push(name);
        }
        held
    }

    /// Marks every zone above each zone.
    fn mark_zones_below(&mut self) {
        self.zones_below = vec![false; self.names.len()];
        for name in &self.names {
            let mut above = Name::from_wire(name).ok().and_then(Name::parent);
            while let Some(name) = above {
                let folded = Folded::of(name.as_bytes());
                let Some(number) = self.find(&folded, &LabelStarts::of(name)) else { break };
                self.zones_below[number as usize] = true;
                above = Name::from_wire(&self.names[number as usize]).ok().and_then(Name::parent);
            }
        }
    }

    #[inline(always)]
    fn find(&self, name: &Folded, labels: &LabelStarts) -> Option<u32> {
        let (shortest, longest) = self.depths;
        let mut depth = longest.min(labels.count()) + 1;
        while depth > shortest {
            depth -= 1;
            let from = labels.of_last(depth);
            let found = self.lookup(&name.name()[from..], name.hash_suffix(from, self.seed));
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// `origin` is in lower case.
    #[inline(always)]
    fn lookup(&self, origin: &[u8], hash: u64) -> Option<u32> {
        self.index.find(hash, |number| *self.names[number as usize] == *origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::compile;
    use crate::compile::tests::zone;
    use dns_wire::NameBuf;

    fn catalog(origins: &[&str]) -> Catalog {
        Catalog::new(origins.iter().map(|origin| Arc::new(compile(zone(origin, "")))), 3)
    }

    fn found(catalog: &Catalog, name: &str) -> Option<String> {
        let name = NameBuf::from_text(name.as_bytes(), None).unwrap();
        catalog.find(name.as_name()).map(|served| served.origin().to_string())
    }

    #[test]
    fn the_longest_origin_wins() {
        let catalog = catalog(&["example.", "sub.example.", "com."]);
        assert_eq!(found(&catalog, "a.SUB.example.").as_deref(), Some("sub.example."));
        assert_eq!(found(&catalog, "a.other.example.").as_deref(), Some("example."));
        assert_eq!(found(&catalog, "example.").as_deref(), Some("example."));
    }

    #[test]
    fn an_unavailable_zone_hides_the_zone_above_and_never_a_loaded_one() {
        let origin = NameBuf::from_text(b"sub.example.", None).unwrap();
        let placeholder = || Arc::new(ServedZone::unavailable(origin.clone(), Unavailable::NotReady));
        let loaded = |origin| Arc::new(compile(zone(origin, "")));
        let (above, below) = (Catalog::new([loaded("example."), placeholder()], 3), loaded("sub.example."));
        assert_eq!(found(&above, "a.sub.example.").as_deref(), Some("sub.example."));
        assert!(above.has_zone_below(0));
        for zones in [[placeholder(), Arc::clone(&below)], [below, placeholder()]] {
            let catalog = Catalog::new(zones, 3);
            assert!(catalog.zone_count() == 1 && catalog.zone(0).tree().is_ok());
        }
    }

    #[test]
    fn another_version_of_one_zone_among_thousands_costs_one_page() {
        let origins: Vec<String> = (0..3000).map(|number| format!("z{number}.")).collect();
        let before = catalog(&origins.iter().map(String::as_str).collect::<Vec<_>>());
        let new = Arc::new(compile(zone("z1500.", "x.z1500. A 192.0.2.1\n")));
        let old = Arc::clone(before.zone(1500));
        let after = before.replacing([(&old, &new)]).unwrap();
        assert!(Arc::ptr_eq(after.zone(1500), &new) && Arc::ptr_eq(before.zone(1500), &old));
        assert!(Arc::ptr_eq(&after.origins, &before.origins));
        assert_eq!((after.zones.pages_unlike(&before.zones), after.zone_count()), (1, 3000));
        assert_eq!(found(&after, "x.z1500.").as_deref(), Some("z1500."));
    }

    #[test]
    fn a_version_takes_only_the_place_of_the_one_that_it_follows() {
        let before = catalog(&["example."]);
        let version = || Arc::new(compile(zone("example.", "")));
        let none = Arc::new(ServedZone::unavailable(
            NameBuf::from_text(b"example.", None).unwrap(),
            Unavailable::NotReady,
        ));
        let (served, other) = (before.zone(0), Arc::new(compile(zone("other.", ""))));
        assert!(before.replacing([(served, &version())]).is_some());
        assert!(before.replacing([(&version(), &version())]).is_none(), "another one is served");
        assert!(before.replacing([(&other, &other)]).is_none(), "it is not there");
        assert!(before.replacing([(served, &none)]).is_none(), "a zone of the same name may have data");
    }

    #[test]
    fn queries_are_counted_by_zone_whatever_its_version() {
        let number = |origin: Name<'_>| if origin.to_string() == "b." { 7 } else { 0 };
        let before = catalog(&["a.", "b.", "c."]).counted_by(number);
        let after = before.replacing([(before.zone(1), &Arc::new(compile(zone("b.", ""))))]).unwrap();
        let counters = Arc::new(crate::Counters::default());
        let mut responder = crate::Responder::new(Arc::default(), Arc::clone(&counters));
        for (catalog, name) in [
            (&before, "b."),
            (&before, "x.b."),
            (&after, "b."),
            (&before, "a."),
            (&after, "c."),
            (&after, "d."),
        ] {
            let name = NameBuf::from_text(name.as_bytes(), None).unwrap();
            let head = [0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
            let query = [&head, name.as_name().as_bytes(), &[0, 1, 0, 1]].concat();
            let mut buffer = [0; 512];
            buffer[..query.len()].copy_from_slice(&query);
            let client = std::net::Ipv4Addr::LOCALHOST.into();
            responder.respond(catalog, &mut buffer, query.len(), crate::Transport::Udp, client);
        }
        assert_eq!((counters.of_zone(7), counters.of_zone(0), counters.of_zone(1)), (3, 2, 0));
    }

    #[test]
    fn names_outside_of_all_zones_find_none() {
        let catalog = catalog(&["example.", "a.b.c."]);
        assert_eq!(found(&catalog, "b.c."), None);
        assert_eq!(found(&catalog, "."), None);
        assert_eq!(found(&catalog, "xexample."), None);
    }

    #[test]
    fn a_root_zone_takes_whatever_no_other_takes() {
        let catalog = catalog(&[".", "example."]);
        assert_eq!(found(&catalog, "x.y.z.").as_deref(), Some("."));
        assert_eq!(found(&catalog, ".").as_deref(), Some("."));
        assert_eq!(found(&catalog, "x.example.").as_deref(), Some("example."));
    }
}
