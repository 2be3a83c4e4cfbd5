//! Record sets that clients of one line get in place of a zone's own.
//!
//! An overlay is read from a file of its own, which looks like a zone file without a SOA. Each of its record sets takes the place of the zone's set of
//! the same name and type; a CNAME takes the place of all sets of its name, and a set that of a CNAME. All else is the zone's.
//!
//! What makes a zone one is the same for every line, so it cannot be varied: its SOA, its delegations, its keys, what denies. A name that only
//! an overlay has exists for all lines, so that no line denies a name that another one has (RFC 8020).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use dns_wire::{Name, NameBuf, Rtype};

use crate::editor::ZoneEditor;
use crate::text::{
    Files, Limits, Position, Problem, Receiver, Record, Summary, ZoneTextError, ZoneTextErrors,
    read_part_into,
};
use crate::tree::{Node, Rrset, Zone, type_covered};

/// The record sets of one line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlay {
    sets: Vec<OverlaySet>,
}

/// A record set that takes the place of the zone's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverlaySet {
    /// Its owner.
    pub owner: NameBuf,
    /// Its type.
    pub rtype: Rtype,
    /// Its TTL in seconds.
    pub ttl: u32,
    /// The data of its records.
    pub records: Vec<Vec<u8>>,
    /// The data of the RRSIG records that cover it.
    pub signatures: Vec<Vec<u8>>,
    /// The file that it is in, and where its first record stands there.
    pub place: (PathBuf, Position),
}

/// Whether records of a type are the same for all lines.
fn is_for_all(rtype: Rtype) -> bool {
    let is_of_zone =
        matches!(rtype, Rtype::SOA | Rtype::NS | Rtype::DS | Rtype::DNAME | Rtype::CSYNC | Rtype::ZONEMD);
    let is_key = matches!(rtype, Rtype::DNSKEY | Rtype::CDS | Rtype::CDNSKEY);
    is_of_zone || is_key || matches!(rtype, Rtype::NSEC | Rtype::NSEC3 | Rtype::NSEC3PARAM)
}

/// Reads the overlay in the file at `path`, for a zone with this origin, the minimum of whose SOA is the TTL of records without one.
///
/// # Errors
/// All that was found wrong, with its place.
pub fn load_overlay<F: Files + ?Sized>(
    files: &mut F,
    path: &Path,
    zone: (Name<'_>, u32),
    limits: &Limits,
) -> Result<Overlay, ZoneTextErrors> {
    let mut collector = Collector::default();
    let summary = read_part_into(files, path, zone, limits, &mut collector)?;
    collector.finish(&summary)
}

#[derive(Default)]
struct Collector {
    sets: BTreeMap<(NameBuf, u16), Collected>,
    /// By what they cover.
    signatures: BTreeMap<(NameBuf, u16), Collected>,
}

struct Collected {
    ttl: u32,
    records: Vec<Vec<u8>>,
    position: Position,
}

impl Receiver for &mut Collector {
    type Refusal = String;

    fn on_owner(&mut self, _owner: Name<'_>) {}

    fn on_progress(&mut self, _done: u64, _of: u64) {}

    fn on_record(&mut self, record: Record<'_>) -> Result<(), String> {
        let Record { rtype, ttl, rdata, position, .. } = record;
        if is_for_all(rtype) {
            return Err(format!(
                "{rtype} records are the same for all lines: have them in the zone's own file"
            ));
        }
        let covered = type_covered(rtype, rdata);
        let sets = if covered.is_some() { &mut self.signatures } else { &mut self.sets };
        let key = (NameBuf::from(record.owner), covered.unwrap_or(rtype).0);
        let set = sets.entry(key).or_insert(Collected { ttl, records: Vec::new(), position });
        set.ttl = set.ttl.min(ttl); // RFC 2181, 5.2.
        if set.records.iter().any(|own| own == rdata) {
            return Ok(());
        }
        if rtype == Rtype::CNAME && !set.records.is_empty() {
            return Err("a second CNAME record at the same name".to_owned());
        }
        set.records.push(rdata.to_vec());
        Ok(())
    }
}

impl Collector {
    fn finish(mut self, summary: &Summary) -> Result<Overlay, ZoneTextErrors> {
        let place = |position: Position| (summary.files[position.file.0 as usize].clone(), position);
        let mut errors = Vec::new();
        let mut error = |position, problem: &str| errors.push(refused(place(position), problem.to_owned()));
        let mut sets: Vec<OverlaySet> = Vec::new();
        for ((owner, rtype), set) in self.sets {
            let same_owner = sets.last().filter(|last| last.owner == owner);
            if same_owner.is_some_and(|last| Rtype::CNAME == last.rtype || rtype == Rtype::CNAME.0) {
                error(set.position, "a CNAME and other data at the same name");
            }
            let signatures = self.signatures.remove(&(owner.clone(), rtype));
            sets.push(OverlaySet {
                owner,
                rtype: Rtype(rtype),
                ttl: set.ttl,
                records: set.records,
                signatures: signatures.map_or_else(Vec::new, |signatures| signatures.records),
                place: place(set.position),
            });
        }
        for signatures in self.signatures.values() {
            error(signatures.position, "this signature covers no record set of this file");
        }
        if errors.is_empty() {
            return Ok(Overlay { sets });
        }
        let origin = Some(Box::new(summary.origin.clone()));
        Err(ZoneTextErrors { errors, origin, stopped_early: false })
    }
}

fn refused((path, position): (PathBuf, Position), problem: String) -> ZoneTextError {
    ZoneTextError { path, position, problem: Problem::Refused(problem) }
}

impl Overlay {
    /// Its record sets, by name and type.
    pub fn sets(&self) -> &[OverlaySet] {
        &self.sets
    }

    /// Its record sets at a name.
    pub fn at(&self, owner: &NameBuf) -> &[OverlaySet] {
        let first = self.sets.partition_point(|set| set.owner < *owner);
        let count = self.sets[first..].partition_point(|set| set.owner == *owner);
        &self.sets[first..first + count]
    }

    /// Its record sets at a name and at all names below.
    pub fn at_and_below(&self, name: &NameBuf) -> impl Iterator<Item = &OverlaySet> {
        // In canonical order what is below a name follows it (RFC 4034, 6.1).
        let first = self.sets.partition_point(|set| set.owner < *name);
        self.sets[first..].iter().take_while(|set| set.owner.as_name().ends_with(name.as_name()))
    }

    /// What of it has no place in a zone. `signed_here` says that whoever serves the zone signs it, and these sets.
    pub fn misfits(&self, zone: &Zone, signed_here: bool) -> Vec<ZoneTextError> {
        self.sets.iter().filter_map(|set| set.misfit(zone, signed_here)).collect()
    }
}

impl OverlaySet {
    /// Whether it has a place in a zone, see [`Overlay::misfits`].
    pub fn fits(&self, zone: &Zone, signed_here: bool) -> bool {
        self.why_misfit(zone, signed_here).is_none()
    }

    /// Why it has no place in a zone, and where it is from.
    pub fn misfit(&self, zone: &Zone, signed_here: bool) -> Option<ZoneTextError> {
        Some(refused(self.place.clone(), self.why_misfit(zone, signed_here)?))
    }

    fn why_misfit(&self, zone: &Zone, signed_here: bool) -> Option<String> {
        let (owner, rtype) = (&self.owner, self.rtype);
        let mut nearest = self.owner.as_name();
        let node = loop {
            if let Some(node) = zone.find(nearest.as_bytes()) {
                break node;
            }
            nearest = nearest.parent()?; // The reader has seen to it that the origin is above.
        };
        let is_own = nearest == self.owner.as_name();
        if let Some(boundary) = node
            .topmost_boundary()
            .filter(|boundary| boundary.is_cut() || !is_own || boundary.id() != node.id())
        {
            let (what, at) = (if boundary.is_cut() { "delegation" } else { "DNAME" }, name_of(boundary));
            return Some(format!("{owner} is at or below the {what} of {at}: lines have no say there"));
        }
        if !signed_here && !zone.is_signed() && zone.denial().is_none() {
            return None;
        }
        if !is_own || node.rrset(rtype).is_none() {
            return Some(format!(
                "the zone is signed and has no {rtype} records at {owner} for other lines, so it could not deny them there: \
                 give it some in its own file"
            ));
        }
        (self.signatures.is_empty() && !signed_here).then(|| {
            format!("the zone is signed and these {rtype} records are not: add their RRSIG records, or let the server sign with dnssec = true")
        })
    }
}

/// A record set that takes the place of a zone's at some name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedSet<'s> {
    /// Its type.
    pub rtype: Rtype,
    /// Its TTL in seconds.
    pub ttl: u32,
    /// The data of its records.
    pub records: Cow<'s, [Vec<u8>]>,
    /// The data of the RRSIG records that cover it.
    pub signatures: Cow<'s, [Vec<u8>]>,
}

impl<'s> From<&'s OverlaySet> for PlacedSet<'s> {
    fn from(set: &'s OverlaySet) -> PlacedSet<'s> {
        let (records, signatures) = (Cow::from(&set.records), Cow::from(&set.signatures));
        PlacedSet { rtype: set.rtype, ttl: set.ttl, records, signatures }
    }
}

/// Whether a set of one type makes that of another one at its name give way.
fn displaces(placed: Rtype, held: Rtype) -> bool {
    let either_leads = [placed, held].contains(&Rtype::CNAME);
    held == placed || (either_leads && held != Rtype::NSEC)
}

/// Those sets of overlays that count at a name. The later overlay that has a set counts, also where only one of two sets can be at a name, as beside
/// an alias. What has no place in the zone is left out.
pub fn nearest<'o>(
    overlays: &[&'o Overlay],
    owner: &NameBuf,
    zone: &Zone,
    signed_here: bool,
) -> Vec<&'o OverlaySet> {
    let mut taken: Vec<&OverlaySet> = Vec::new();
    let sets = overlays.iter().rev().flat_map(|overlay| overlay.at(owner));
    for set in sets.filter(|set| set.fits(zone, signed_here)) {
        if !taken.iter().any(|nearer| displaces(nearer.rtype, set.rtype)) {
            taken.push(set);
        }
    }
    taken
}

/// Gives a name what `plain` has there, with other sets in place of those that give way to them.
pub fn settle(editor: &mut ZoneEditor, plain: &Zone, owner: Name<'_>, placed: &[PlacedSet<'_>]) {
    editor.remove_sets(owner, |_| true);
    // A set that is too long for a message was refused where it was checked first.
    let mut add = |rtype, ttl, rdata: &[u8]| {
        let _ = editor.add(owner, ttl, rtype, rdata);
    };
    let node = plain.find(owner.as_bytes());
    let stays = |held: &Rrset<'_>| {
        let held = held.covered().unwrap_or(held.rtype());
        !placed.iter().any(|set| displaces(set.rtype, held))
    };
    for set in node.into_iter().flat_map(Node::rrsets).filter(stays) {
        set.records().for_each(|rdata| add(set.rtype(), set.ttl(), rdata));
    }
    for set in placed {
        set.records.iter().for_each(|rdata| add(set.rtype, set.ttl, rdata));
        set.signatures.iter().for_each(|rdata| add(Rtype::RRSIG, set.ttl, rdata));
    }
    let marks = node.map(Node::marks).unwrap_or_default();
    // A name without records and marks goes when the editor ends.
    let _ = editor.mark(owner, marks);
}

fn name_of(node: Node<'_>) -> Name<'_> {
    Name::from_wire(node.name()).expect("the tree holds valid names")
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::text::TextFile;
    use crate::{Marks, load_zone};

    struct Only(&'static str);

    impl Files for Only {
        fn open(&mut self, _: &Path) -> io::Result<TextFile> {
            Ok(self.0.as_bytes().to_vec().into())
        }
    }

    const ZONE: &str = "@ 60 SOA ns host 1 2 3 4 300\n@ NS ns\nns A 192.0.2.1\nwww A 192.0.2.2\nwww TXT plain\n\
        sub NS ns.sub\nns.sub A 192.0.2.3\nold DNAME new\nalias CNAME www\n";

    fn zone() -> Zone {
        load_zone(&mut Only(ZONE), Path::new("example.zone"), None, &Limits::default(), 1).unwrap()
    }

    fn overlay(text: &'static str) -> Result<Overlay, String> {
        let zone = zone();
        let of_zone = (zone.origin(), 300);
        let read = load_overlay(&mut Only(text), Path::new("line.zone"), of_zone, &Limits::default());
        let overlay = read.map_err(|errors| errors.to_string())?;
        match &overlay.misfits(&zone, false)[..] {
            [] => Ok(overlay),
            misfits => Err(misfits.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")),
        }
    }

    /// The zone in which these overlays have a say, and for clients that get all of them.
    fn views(overlays: &[&Overlay]) -> (Zone, Zone) {
        let owners = || overlays.iter().flat_map(|overlay| overlay.sets()).map(|set| &set.owner);
        let mut editor = ZoneEditor::new(&zone());
        let marks = Marks { varied: true, chosen: false };
        owners().for_each(|owner| editor.mark(owner.as_name(), marks).unwrap());
        let marked = editor.finish().unwrap().zone;
        let mut editor = ZoneEditor::new(&marked);
        for owner in owners() {
            let sets: Vec<_> =
                nearest(overlays, owner, &marked, false).into_iter().map(PlacedSet::from).collect();
            settle(&mut editor, &marked, owner.as_name(), &sets);
        }
        let view = editor.finish().unwrap().zone;
        (marked, view)
    }

    fn data(zone: &Zone, owner: &str, rtype: Rtype) -> Option<Vec<Vec<u8>>> {
        let owner = NameBuf::from_text(owner.as_bytes(), None).unwrap();
        let set = zone.find(owner.as_name().as_bytes())?.rrset(rtype)?;
        Some(set.records().map(<[u8]>::to_vec).collect())
    }

    #[test]
    fn the_nearest_of_several_overlays_counts_and_takes_nothing_of_the_zone_for_a_farther_one() {
        let far = overlay("www CNAME elsewhere.test.\nns A 198.51.100.9\n").unwrap();
        let near = overlay("www TXT near\n").unwrap();
        let (_, line) = views(&[&far, &near]);
        assert_eq!(data(&line, "www.example.", Rtype::A), data(&zone(), "www.example.", Rtype::A));
        assert_eq!(data(&line, "www.example.", Rtype::CNAME), None);
        assert_eq!(data(&line, "www.example.", Rtype::TXT), Some(vec![b"\x04near".to_vec()]));
        assert_eq!(data(&line, "ns.example.", Rtype::A), Some(vec![vec![198, 51, 100, 9]]));
    }

    #[test]
    fn a_set_takes_the_place_of_the_zones_and_all_else_stays() {
        let overlay = overlay("www A 198.51.100.1\nwww A 198.51.100.2\nnew 5 A 198.51.100.3\n").unwrap();
        let (marked, line) = views(&[&overlay]);
        let addresses = Some(vec![vec![198, 51, 100, 1], vec![198, 51, 100, 2]]);
        assert_eq!(data(&line, "www.example.", Rtype::A), addresses);
        assert_eq!(data(&line, "www.example.", Rtype::TXT), data(&zone(), "www.example.", Rtype::TXT));
        assert_eq!(data(&marked, "www.example.", Rtype::A), Some(vec![vec![192, 0, 2, 2]]));
        assert_eq!(line.serial(), 1);
        let new = NameBuf::from_text(b"new.example.", None).unwrap();
        let in_plain = marked.find(new.as_name().as_bytes()).expect("it exists for all");
        assert!(in_plain.is_varied() && in_plain.rrsets().next().is_none());
        assert_eq!(overlay.sets().iter().map(|set| set.ttl).collect::<Vec<_>>(), [5, 300]);
    }

    #[test]
    fn a_cname_takes_the_place_of_all_and_gives_way_to_all() {
        let overlay = overlay("www CNAME cdn.example.net.\nalias A 198.51.100.1\n").unwrap();
        let (_, line) = views(&[&overlay]);
        assert!(
            data(&line, "www.example.", Rtype::A).is_none()
                && data(&line, "www.example.", Rtype::TXT).is_none()
        );
        assert!(data(&line, "www.example.", Rtype::CNAME).is_some());
        assert!(data(&line, "alias.example.", Rtype::CNAME).is_none());
        assert_eq!(data(&line, "alias.example.", Rtype::A), Some(vec![vec![198, 51, 100, 1]]));
    }

    #[test]
    fn what_makes_the_zone_cannot_be_varied_and_the_error_has_its_place() {
        for (text, place, part) in [
            ("@ SOA ns host 2 2 3 4 5\n", "line.zone:1:1", "SOA records are the same for all lines"),
            ("www A 192.0.2.9\nx NS ns\n", "line.zone:2:1", "NS records are the same"),
            ("x DNAME www\n", "line.zone:1:1", "DNAME records are the same"),
            ("ns.sub A 192.0.2.9\n", "line.zone:1:1", "at or below the delegation of sub.example."),
            ("sub A 192.0.2.9\n", "line.zone:1:1", "at or below the delegation"),
            ("a.old A 192.0.2.9\n", "line.zone:1:1", "below the DNAME of old.example."),
            ("www A 192.0.2.9\nwww CNAME x\n", "line.zone:2:1", "a CNAME and other data"),
            ("www CNAME y\nwww CNAME x\n", "line.zone:2:1", "a second CNAME"),
            ("www.example.org. A 192.0.2.9\n", "line.zone:1:1", "outside of the zone"),
            (
                "www RRSIG A 13 2 60 20300101000000 20260101000000 1 example. AAAA\n",
                "line.zone:1:1",
                "covers no",
            ),
        ] {
            let error = overlay(text).unwrap_err();
            assert!(error.contains(place) && error.contains(part), "{text}: {error}");
        }
        assert!(overlay("old A 192.0.2.9\n").is_ok(), "a DNAME hides what is below it, not its own name");
    }
}
