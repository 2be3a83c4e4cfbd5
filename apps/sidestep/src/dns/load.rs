//! Zone files to served zones.

use std::io;
use std::path::Path;
use std::sync::Arc;

use dns_auth::compile::compile;
use dns_auth::{Catalog, ServedZone};
use dns_wire::Rtype;
use dns_zone::load_zone;
use dns_zone::text::{Files, Limits, TextFile, ZoneTextErrors, origin_from_path};

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
pub(crate) fn load(spec: &ZoneSpec) -> Result<ServedZone, ZoneTextErrors> {
    let origin = spec.origin.as_ref().map(|origin| origin.as_name());
    let zone = load_zone(&mut Disk, &spec.file, origin, &Limits::default(), random_seed())?;
    Ok(compile(zone))
}

/// One line about a zone that was loaded, and one for each thing that looks wrong but does no harm here.
pub(crate) fn describe(spec: &ZoneSpec, served: &ServedZone) -> String {
    let zone = &served.zone;
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

/// Loads every zone of `specs`. One that cannot be loaded is reported on stderr and keeps its version in `current`, if it has
/// one there.
pub(crate) fn load_catalog(specs: &[ZoneSpec], current: Option<&Loaded>) -> Loaded {
    let mut zones = Vec::new();
    let mut failed = 0;
    for spec in specs {
        match load(spec) {
            Ok(served) => {
                warn_of_second(&zones, spec, &served);
                zones.push((spec.clone(), Arc::new(served)));
            }
            Err(error) => {
                failed += 1;
                complain!("{error}");
                let kept = current.and_then(|loaded| loaded.zone(spec, specs));
                let origin = kept.as_ref().map(|served| served.zone.origin().to_string());
                match origin {
                    Some(origin) => complain!("sidestep dns: zone {origin} keeps its last good version"),
                    None => complain!("sidestep dns: {} is not served", spec.file.display()),
                }
                zones.extend(kept.map(|served| (spec.clone(), served)));
            }
        }
    }
    let catalog = Arc::new(Catalog::new(zones.iter().map(|(_, served)| Arc::clone(served)), random_seed()));
    Loaded { zones, catalog, failed }
}

/// Two files for one zone are a mistake that nothing else would show.
fn warn_of_second(zones: &[(ZoneSpec, Arc<ServedZone>)], spec: &ZoneSpec, served: &ServedZone) {
    let origin = served.zone.origin();
    if let Some((first, _)) = zones.iter().find(|(_, other)| other.zone.origin() == origin) {
        let (first, second) = (first.file.display(), spec.file.display());
        complain!("sidestep dns: zone {origin} is in {first} and in {second}; the second is served");
    }
}

/// What is served, and from which files.
pub(crate) struct Loaded {
    zones: Vec<(ZoneSpec, Arc<ServedZone>)>,
    /// All zones together.
    pub(crate) catalog: Arc<Catalog>,
    /// Zones that could not be loaded this time.
    pub(crate) failed: usize,
}

impl Loaded {
    /// The zone that `spec` named before, or, if its file is another one by now, the zone that it should have: one that none of `specs`,
    /// all there are now, names itself.
    fn zone(&self, spec: &ZoneSpec, specs: &[ZoneSpec]) -> Option<Arc<ServedZone>> {
        let origin = spec.origin.clone().or_else(|| origin_from_path(&spec.file));
        let is_of_origin = |served: &ServedZone| {
            origin.as_ref().is_some_and(|origin| origin.as_name() == served.zone.origin())
        };
        let same = self.zones.iter().find(|(own, _)| own == spec);
        let is_moved = |own: &ZoneSpec, served: &ServedZone| is_of_origin(served) && !specs.contains(own);
        let found = same.or_else(|| self.zones.iter().find(|(own, served)| is_moved(own, served)));
        found.map(|(_, served)| Arc::clone(served))
    }

    /// Number of zones served.
    pub(crate) fn zone_count(&self) -> usize {
        self.catalog.zones().len()
    }

    /// Number of records served.
    pub(crate) fn record_count(&self) -> usize {
        self.catalog.zones().iter().map(|served| served.zone.record_count()).sum()
    }
}

/// A number that nobody outside can guess.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}
