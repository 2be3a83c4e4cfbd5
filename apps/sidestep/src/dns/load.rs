//! Zone files to served zones.

use std::io;
use std::path::Path;
use std::sync::Arc;

use dns_auth::compile::compile;
use dns_auth::{Catalog, ServedZone, Unavailable};
use dns_wire::{NameBuf, Rtype};
use dns_zone::text::{Files, Limits, TextFile, ZoneTextErrors, origin_from_path};
use dns_zone::{Zone, load_zone};

use super::config::ZoneSpec;
use crate::output::complain;

/// Reads files where they lie.
struct Disk;

impl Files for Disk {
    fn open(&mut self, path: &Path) -> io::Result<TextFile> {
        let file = std::fs::File::open(path)?;
        let len = file.metadata()?.len();
        Ok(TextFile { text: Box::new(file), len })
    }
}

/// Reads, checks and compiles one zone.
fn load(spec: &ZoneSpec) -> Result<ServedZone, ZoneTextErrors> {
    read(spec).map(compile)
}

/// Reads and checks one zone.
pub(crate) fn read(spec: &ZoneSpec) -> Result<Zone, ZoneTextErrors> {
    let origin = spec.origin.as_ref().map(|origin| origin.as_name());
    load_zone(&mut Disk, &spec.file, origin, &Limits::default(), random_seed())
}

/// One line about a zone that was loaded, and one for each thing that looks wrong but does no harm here.
pub(crate) fn describe(spec: &ZoneSpec, zone: &Zone) -> String {
    let mut text = format!(
        "{}: zone {} serial {}: {} records, {} names",
        spec.file.display(),
        zone.origin(),
        zone.serial(),
        zone.record_count(),
        zone.node_count(),
    );
    if zone.apex().rrset(Rtype::NS).is_none() {
        text.push_str("\n  warning: no NS record at the origin; resolvers will not find this zone");
    }
    text
}

/// Loads every zone of `specs`. One that cannot be loaded is reported on stderr and keeps its version in `current`; without one
/// there a placeholder takes its place, so that no zone above it answers for it.
pub(crate) fn load_catalog(specs: &[ZoneSpec], current: Option<&Loaded>) -> Loaded {
    let mut zones = Vec::new();
    let mut failed = 0;
    for spec in specs {
        match load(spec) {
            Ok(served) => {
                warn_of_second(&zones, spec, &served);
                zones.push((spec.clone(), Arc::new(served)));
            }
            Err(errors) => {
                failed += 1;
                complain!("{errors}");
                let kept = current.and_then(|loaded| loaded.zone(spec, specs));
                match &kept {
                    Some(kept) => {
                        complain!("sidestep dns: zone {} keeps its last good version", kept.origin())
                    }
                    None => complain!("sidestep dns: {}", without_version(spec, &errors)),
                }
                zones
                    .extend(kept.or_else(|| placeholder(spec, &errors)).map(|served| (spec.clone(), served)));
            }
        }
    }
    let catalog = Arc::new(Catalog::new(zones.iter().map(|(_, served)| Arc::clone(served)), random_seed()));
    Loaded { zones, catalog, failed }
}

/// What becomes of a zone that could not be loaded and has no earlier version.
fn without_version(spec: &ZoneSpec, errors: &ZoneTextErrors) -> String {
    match origin_of(spec, errors) {
        Some(origin) => format!("zone {origin} is answered with SERVFAIL until it can be loaded"),
        None => format!(
            "{} is not served, and its zone is not known: name it, as in --zone ORIGIN=FILE, so that it is answered with SERVFAIL",
            spec.file.display()
        ),
    }
}

fn placeholder(spec: &ZoneSpec, errors: &ZoneTextErrors) -> Option<Arc<ServedZone>> {
    let reason = if errors.is_unreadable() { Unavailable::NotReady } else { Unavailable::InvalidData };
    origin_of(spec, errors).map(|origin| Arc::new(ServedZone::unavailable(origin, reason)))
}

/// The zone that a file is about which could not be loaded.
fn origin_of(spec: &ZoneSpec, errors: &ZoneTextErrors) -> Option<NameBuf> {
    let read = errors.origin.as_deref().cloned();
    spec.origin.clone().or(read).or_else(|| origin_from_path(&spec.file))
}

/// Two files for one zone are a mistake that nothing else would show.
fn warn_of_second(zones: &[(ZoneSpec, Arc<ServedZone>)], spec: &ZoneSpec, served: &ServedZone) {
    let origin = served.origin();
    let is_first = |other: &ServedZone| other.tree().is_ok() && other.origin() == origin;
    if let Some((first, _)) = zones.iter().find(|(_, other)| is_first(other)) {
        let (first, second) = (first.file.display(), spec.file.display());
        complain!("sidestep dns: zone {origin} is in {first} and in {second}; the second is served");
    }
}

/// What is served, and from which files.
pub(crate) struct Loaded {
    /// Placeholders included.
    zones: Vec<(ZoneSpec, Arc<ServedZone>)>,
    /// All zones together.
    pub(crate) catalog: Arc<Catalog>,
    /// Zones that could not be loaded this time.
    pub(crate) failed: usize,
}

impl Loaded {
    /// The data that `spec` named before, or, if its file is another one by now, that of the zone that it should have: one that none of
    /// `specs`, all there are now, names itself.
    fn zone(&self, spec: &ZoneSpec, specs: &[ZoneSpec]) -> Option<Arc<ServedZone>> {
        let origin = spec.origin.clone().or_else(|| origin_from_path(&spec.file));
        let is_of_origin =
            |served: &ServedZone| origin.as_ref().is_some_and(|origin| origin.as_name() == served.origin());
        let mut loaded = self.zones.iter().filter(|(_, served)| served.tree().is_ok());
        let same = loaded.clone().find(|(own, _)| own == spec);
        let is_moved = |own: &ZoneSpec, served: &ServedZone| is_of_origin(served) && !specs.contains(own);
        let found = same.or_else(|| loaded.find(|(own, served)| is_moved(own, served)));
        found.map(|(_, served)| Arc::clone(served))
    }

    /// The zones that have data.
    fn trees(&self) -> impl Iterator<Item = &Zone> {
        self.catalog.zones().iter().filter_map(|served| served.tree().ok())
    }

    /// Number of zones with data.
    pub(crate) fn zone_count(&self) -> usize {
        self.trees().count()
    }

    /// Number of records served.
    pub(crate) fn record_count(&self) -> usize {
        self.trees().map(Zone::record_count).sum()
    }
}

/// A number that nobody outside can guess.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}
