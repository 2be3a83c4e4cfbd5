//! Zone files to served zones.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use dns_auth::compile::compile;
use dns_auth::{Catalog, ServedZone};
use dns_wire::Rtype;
use dns_zone::ZoneBuilder;
use dns_zone::text::{Files, Limits, read_zone};

use super::config::ZoneSpec;

/// A zone that cannot be served: every problem on a line of its own, with its place.
#[derive(Debug)]
pub(crate) struct LoadError(String);

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads files where they lie.
struct Disk;

impl Files for Disk {
    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }
}

/// Reads, checks and compiles one zone.
pub(crate) fn load(spec: &ZoneSpec) -> Result<ServedZone, LoadError> {
    let mut builder: Option<ZoneBuilder> = None;
    let seed = random_seed();
    let origin = spec.origin.as_ref().map(|origin| origin.as_name());
    let read = read_zone(&mut Disk, &spec.file, origin, &Limits::default(), |record| {
        // The reader hands the SOA on first: its owner is the origin.
        let builder = builder.get_or_insert_with(|| ZoneBuilder::new(record.owner, seed));
        builder.add(record.owner, record.ttl, record.rtype, record.rdata)
    });
    read.map_err(|errors| LoadError(errors.to_string()))?;
    let in_file = |problem: &dyn fmt::Display| LoadError(format!("{}: {problem}", spec.file.display()));
    let builder = builder.ok_or_else(|| in_file(&Empty))?;
    Ok(compile(builder.finish().map_err(|error| in_file(&error))?))
}

/// A file without a single record.
struct Empty;

impl fmt::Display for Empty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the zone is empty, expected a SOA record")
    }
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
            Ok(served) => zones.push((spec.clone(), Arc::new(served))),
            Err(error) => {
                failed += 1;
                eprintln!("{error}");
                let kept = current.and_then(|loaded| loaded.zone(spec));
                let origin = kept.as_ref().map(|served| served.zone.origin().to_string());
                match origin {
                    Some(origin) => eprintln!("sidestep dns: zone {origin} keeps its last good version"),
                    None => eprintln!("sidestep dns: {} is not served", spec.file.display()),
                }
                zones.extend(kept.map(|served| (spec.clone(), served)));
            }
        }
    }
    let catalog = Arc::new(Catalog::new(zones.iter().map(|(_, served)| Arc::clone(served)), random_seed()));
    Loaded { zones, catalog, failed }
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
    fn zone(&self, spec: &ZoneSpec) -> Option<Arc<ServedZone>> {
        self.zones.iter().find(|(own, _)| own == spec).map(|(_, served)| Arc::clone(served))
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
