//! Zone files to served zones.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::mem;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use dns_auth::compile::{compile, compile_with_lines};
use dns_auth::pools::{ADDRESS_TYPES, address_in};
use dns_auth::{Catalog, LineData, LineOverlays, ServedZone, Unavailable};
use dns_wire::{Name, NameBuf};
use dns_zone::text::{Files, Limits, TextFile, ZoneTextError, ZoneTextErrors, origin_from_path};
use dns_zone::versioned::Pages;
use dns_zone::{Overlay, Zone, load_overlay, load_source, load_zone};

use super::config::ZoneSpec;
use super::health::Target;
use super::line_table::LoadedLines;
use super::pools::{CheckSpec, Pools};
use super::privileges::explain_denial;
use super::serial::{stayed, went_back};
use super::updates::Failure;
use super::version::Version;
use super::{key_files, signing, store};
use dns_message::is_older;
use dns_transfer::{Difference, History};

/// Reads files where they lie, and notes which.
#[derive(Default)]
struct Disk {
    files: Vec<(PathBuf, Option<Stamp>)>,
}

impl Files for Disk {
    fn open(&mut self, path: &Path) -> io::Result<TextFile> {
        let file = std::fs::File::open(path).map_err(explain_denial)?;
        let metadata = file.metadata()?;
        self.files.push((path.to_owned(), Stamp::of_settled(&metadata)));
        Ok(TextFile { text: Box::new(file), len: metadata.len() })
    }
}

/// What changes when a file does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    /// When its content changed, as far as that is true: whoever writes a file may set it.
    modified: (i64, i64),
    /// When anything about it changed, by the kernel's account: content, times, owner, permissions.
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &std::fs::Metadata) -> Stamp {
        Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// `None` if the file may change once more without a new time of change: file systems tell times apart by two seconds at worst.
    pub(super) fn of_settled(metadata: &std::fs::Metadata) -> Option<Stamp> {
        const GRANULARITY: Duration = Duration::from_secs(2);
        let age = SystemTime::now().duration_since(metadata.modified().ok()?).ok()?;
        (age > GRANULARITY).then(|| Stamp::of(metadata))
    }

    pub(super) fn is_current(&self, path: &Path) -> bool {
        std::fs::metadata(path).is_ok_and(|metadata| Stamp::of(&metadata) == *self)
    }
}

/// Reads and checks one zone.
pub(crate) fn read(spec: &ZoneSpec) -> Result<Zone, ZoneTextErrors> {
    read_and_count(spec).map(|(zone, _)| zone)
}

/// The same, and how many records are left out, as the zone is signed here.
pub(crate) fn read_and_count(spec: &ZoneSpec) -> Result<(Zone, usize), ZoneTextErrors> {
    read_from(&mut Disk::default(), spec)
}

fn read_from(disk: &mut Disk, spec: &ZoneSpec) -> Result<(Zone, usize), ZoneTextErrors> {
    let origin = spec.origin.as_ref().map(|origin| origin.as_name());
    let (limits, seed) = (Limits::default(), random_seed());
    match &spec.keys {
        Some(_) => load_source(disk, &spec.file, origin, &limits, seed),
        None => Ok((load_zone(disk, &spec.file, origin, &limits, seed)?, 0)),
    }
}

/// Whether what lines have in a zone can be read; what there is of it, and what has no place there.
pub(crate) fn check_lines(
    spec: &ZoneSpec,
    zone: &Zone,
) -> Result<(LineData, Vec<ZoneTextError>), ZoneTextErrors> {
    let data = line_data(&mut Disk::default(), spec, zone, &Pools::default())?;
    let misfits = data.misfits(zone, spec.keys.is_some());
    Ok((data, misfits))
}

/// Reads what lines have in a zone, also what has no place there: an update may have taken that, or give it. `pools` are those of all zones.
fn line_data(
    disk: &mut Disk,
    spec: &ZoneSpec,
    zone: &Zone,
    pools: &Pools,
) -> Result<LineData, ZoneTextErrors> {
    let mut overlays: HashMap<&Path, Arc<Overlay>> = HashMap::new();
    let of_zone = (zone.origin(), zone.negative_ttl());
    for file in spec.lines.iter().flat_map(|line| &line.files) {
        if !overlays.contains_key(file.as_path()) {
            let overlay = load_overlay(disk, file, of_zone, &Limits::default())?;
            overlays.insert(file, Arc::new(overlay));
        }
    }
    let lines = spec.lines.iter().map(|line| {
        let layers = line.files.iter().map(|file| Arc::clone(&overlays[file.as_path()]));
        LineOverlays { line: Arc::clone(&line.line), overlays: layers.collect() }
    });
    let data = LineData::new(lines.collect());
    Ok(data.with_pools(pools.of_zone(zone.origin())))
}

/// What clients get is decided by that, besides zones.
#[derive(Clone, Default)]
pub(crate) struct Clients {
    /// Their lines.
    pub(crate) lines: Option<LoadedLines>,
    /// Why these are not as they are configured.
    pub(crate) lines_problem: Option<String>,
    /// Addresses that are given by weight and health.
    pub(crate) pools: Pools,
}

/// The addresses that a name has in its zone and in lines.
pub(crate) fn addresses_at(zone: Option<&Zone>, data: &LineData, name: &NameBuf) -> BTreeSet<IpAddr> {
    let node = zone.and_then(|zone| zone.find(name.as_name().as_bytes())).into_iter();
    let own = node.flat_map(|node| node.rrsets()).filter(|set| ADDRESS_TYPES.contains(&set.rtype()));
    let overlays = data.lines().iter().flat_map(|line| &line.overlays).flat_map(|layer| layer.at(name));
    let of_lines = overlays.filter(|set| ADDRESS_TYPES.contains(&set.rtype)).flat_map(|set| &set.records);
    let own = own.flat_map(|set| set.records()).filter_map(address_in);
    own.chain(of_lines.filter_map(|rdata| address_in(rdata))).collect()
}

/// Whether lines have records of their own in a zone.
pub(crate) fn varies_by_line(zone: &ServedZone) -> bool {
    zone.lines().is_some_and(|lines| !lines.data().lines().is_empty())
}

/// One line about a zone that was loaded.
pub(crate) fn describe(spec: &ZoneSpec, zone: &Zone) -> String {
    format!(
        "{}: zone {} serial {}: {} records, {} names",
        spec.file.display(),
        zone.origin(),
        zone.serial(),
        zone.record_count(),
        zone.name_count(),
    )
}

/// Loads every zone of `specs` whose files are others than those of `current`. One that cannot be loaded is reported in the log and keeps its
/// version in `current`; without one there a placeholder takes its place, so that no zone above it answers for it. With `histories` it is
/// found out what changed, which takes as long as it takes to look up all names. `choice` says which zones may be read at all.
pub(crate) fn load_catalog(
    specs: &[ZoneSpec],
    current: Option<&Loaded>,
    choice: &Choice,
    histories: bool,
    Clients { lines, lines_problem, pools }: Clients,
) -> Loaded {
    let earlier = Earlier::new(specs, current, choice, histories);
    let mut loading = Loading { pools, ..Loading::default() };
    key_files::list_once(|| specs.iter().for_each(|spec| loading.add(spec, &earlier)));
    Loaded { lines_problem, ..Loaded::of(loading.zones, lines, (loading.failed, loading.read)) }
}

fn catalog_by(zones: impl Iterator<Item = Arc<ServedZone>>, lines: Option<&LoadedLines>) -> Arc<Catalog> {
    let catalog = Catalog::new(zones, random_seed());
    Arc::new(match lines {
        Some(lines) => catalog.by_lines(&lines.lines),
        None => catalog,
    })
}

/// Zones are renewed for so long before whoever has updates, orders or other versions gets a turn.
const ROUND_MAX: Duration = Duration::from_millis(50);

/// What is served, and from which files. Other versions of some zones cost as much as those: the rest is shared.
pub(crate) struct Loaded {
    /// By number; there is one for each.
    zones: Pages<Option<Arc<Entry>>>,
    /// The numbers of zones by their names. Of two for one name the later counts.
    numbers: Arc<HashMap<NameBuf, usize>>,
    /// The lines of clients.
    pub(crate) lines: Option<LoadedLines>,
    /// Why they are not as they are configured.
    pub(crate) lines_problem: Option<String>,
    /// All zones together.
    pub(crate) catalog: Arc<Catalog>,
    /// Zones that could not be loaded this time.
    pub(crate) failed: usize,
    /// Zones that were read this time, with or without success.
    pub(crate) read: usize,
}

/// A zone of the configuration; a placeholder if it has no data.
#[derive(Clone)]
struct Entry {
    spec: ZoneSpec,
    version: Version,
    /// The files that it was read from. Empty if they are to be read again in any case.
    files: Vec<(PathBuf, Option<Stamp>)>,
    /// Why the version is not what files and keys say, if that is so.
    problem: Option<String>,
    /// What whoever had it read should know.
    warning: Option<String>,
    /// It could not be signed, which is tried again: keys may come later than the server, or their token.
    is_unsigned: bool,
    /// Its version is as it was signed last, before it could not be any more: it gets no other keys (`signing::load`).
    was_signed: bool,
}

impl Entry {
    /// A zone that was read from these files.
    fn read(spec: &ZoneSpec, version: Version, files: Vec<(PathBuf, Option<Stamp>)>) -> Entry {
        let (problem, warning) = (None, None);
        let spec = spec.clone();
        Entry { spec, version, files, problem, warning, is_unsigned: false, was_signed: false }
    }

    /// Renews its signatures that end soon, if there are any.
    fn look(&self, now: Instant) -> (Option<Version>, Look) {
        match signing::renew(&self.version) {
            Ok((version, wait)) => {
                let problem = signing::trouble(version.as_ref().unwrap_or(&self.version));
                let problem = problem.map(str::to_owned);
                (version, Look { problem, ..Look::after(now, wait) })
            }
            Err(error) => {
                let problem = format!("its signatures are not renewed: {error:#}");
                log::error!("zone {}: {problem}", self.version.served.origin());
                (None, Look { problem: Some(problem), ..Look::after(now, signing::LOOK_AFTER_ERROR) })
            }
        }
    }

    /// A zone whose files or keys cannot be used.
    fn failed(spec: &ZoneSpec, version: Version, problem: String) -> Entry {
        Entry { problem: Some(problem), ..Entry::read(spec, version, Vec::new()) }
    }
}

/// Another version of a zone.
pub(crate) struct NewVersion {
    /// What was served.
    pub(crate) before: Arc<ServedZone>,
    /// What is served from now on.
    pub(crate) after: Version,
}

/// The same zones in other versions; `None` if `catalog` does not have all of those before.
pub(crate) fn catalog_replacing(catalog: &Catalog, versions: &[NewVersion]) -> Option<Arc<Catalog>> {
    catalog.replacing(versions.iter().map(|version| (&version.before, &version.after.served))).map(Arc::new)
}

impl Loaded {
    fn of(zones: Vec<Entry>, lines: Option<LoadedLines>, (failed, read): (usize, usize)) -> Loaded {
        let origins = zones.iter().map(|entry| origin_of_version(&entry.version));
        let numbers = Arc::new(origins.enumerate().map(|(number, origin)| (origin, number)).collect());
        let catalog = catalog_by(zones.iter().map(|entry| Arc::clone(&entry.version.served)), lines.as_ref());
        let zones = zones.into_iter().map(|entry| Some(Arc::new(entry))).collect();
        Loaded { zones, numbers, lines, lines_problem: None, catalog, failed, read }
    }

    /// The zones by their numbers.
    fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.zones.iter().flatten()
    }

    /// All zones together, `others` among them.
    pub(crate) fn catalog_with<'a>(&self, others: impl Iterator<Item = &'a Arc<ServedZone>>) -> Arc<Catalog> {
        let mut others = others.peekable();
        if others.peek().is_none() {
            return Arc::clone(&self.catalog);
        }
        catalog_by(self.catalog.zones().cloned().chain(others.cloned()), self.lines.as_ref())
    }

    /// The number of the zone whose origin is `origin`, its file and what is served. Of two for one name the later counts.
    pub(crate) fn find(&self, origin: Name<'_>) -> Option<(usize, &Path, &Version)> {
        let number = *self.numbers.get(&NameBuf::from(origin))?;
        let entry = self.zones[number].as_ref()?;
        Some((number, &entry.spec.file, &entry.version))
    }

    fn entry(&self, origin: Name<'_>) -> Option<&Entry> {
        self.zones[*self.numbers.get(&NameBuf::from(origin))?].as_deref()
    }

    /// What the configuration says of the zone of this number, and what is served of it.
    pub(crate) fn numbered(&self, number: usize) -> Option<(&ZoneSpec, &Version)> {
        self.zones.get(number)?.as_deref().map(|entry| (&entry.spec, &entry.version))
    }

    /// Whether a zone is not what its files and keys say, as they could not be read or used.
    pub(crate) fn has_failed(&self, origin: Name<'_>) -> bool {
        self.entry(origin).is_none_or(|entry| entry.problem.is_some())
    }

    /// Whether a zone waits to be signed, and is served as it was meanwhile: updates would be kept for a source that its file may not have.
    pub(crate) fn is_held_back(&self, origin: Name<'_>) -> bool {
        self.entry(origin).is_some_and(|entry| entry.is_unsigned && entry.version.tree().is_some())
    }

    /// What whoever had a zone read should know.
    pub(crate) fn warnings(&self, origin: Name<'_>) -> Vec<&str> {
        let Some(entry) = self.entry(origin) else { return Vec::new() };
        let of_lines = self.lines_problem.as_deref().filter(|_| varies_by_line(&entry.version.served));
        entry.warning.as_deref().into_iter().chain(of_lines).collect()
    }

    /// Why zones are not what their files and keys say.
    pub(crate) fn problems(&self) -> BTreeMap<NameBuf, String> {
        let problem = |entry: &Arc<Entry>| Some((origin_of_version(&entry.version), entry.problem.clone()?));
        self.entries().filter_map(problem).collect()
    }

    /// The same zones, but for those of these numbers; and those that have changed thereby.
    pub(crate) fn with(
        &self,
        versions: impl IntoIterator<Item = (usize, Version)>,
    ) -> (Loaded, Vec<NewVersion>) {
        let (mut zones, mut changes) = (self.zones.clone(), Vec::new());
        for (number, after) in versions {
            let Some(entry) = &zones[number] else { continue };
            let before = Arc::clone(&entry.version.served);
            let next = Entry { version: after.clone(), ..Entry::clone(entry) };
            zones.set(number, Some(Arc::new(next)));
            changes.push(NewVersion { before, after });
        }
        let lines = self.lines.clone();
        let served = || zones.iter().flatten().map(|entry| Arc::clone(&entry.version.served));
        let catalog = catalog_replacing(&self.catalog, &changes)
            .unwrap_or_else(|| catalog_by(served(), lines.as_ref()));
        let (numbers, lines_problem) = (Arc::clone(&self.numbers), self.lines_problem.clone());
        let (failed, read) = (self.failed, self.read);
        (Loaded { zones, numbers, lines, lines_problem, catalog, failed, read }, changes)
    }

    /// Versions with what pools say now, by the numbers of their zones: of those for which that is something else. And whether some zone has not, as it
    /// cannot be signed so.
    pub(crate) fn versions_with_pools(&self, pools: &Pools) -> (Vec<(usize, Version)>, bool) {
        let (mut versions, mut is_behind) = (Vec::new(), false);
        for (number, entry) in self.entries().enumerate() {
            let version = &entry.version;
            let wanted = pools.of_zone(version.served.origin());
            let held = version.served.lines().map(|lines| &**lines.data());
            let is_same = held.map_or(wanted.is_empty(), |held| *held.pools() == wanted);
            if version.tree().is_some() && !is_same {
                let data = held.cloned().unwrap_or_default().with_pools(wanted);
                match signing::with_views(version, &data) {
                    Ok(version) => versions.push((number, version)),
                    Err(error) => {
                        let origin = version.served.origin();
                        log::error!("zone {origin}: its addresses stay as they are: {error:#}");
                        is_behind = true;
                    }
                }
            }
        }
        (versions, is_behind)
    }

    /// The addresses that are checked, and how.
    pub(crate) fn targets(&self, pools: &Pools) -> BTreeMap<Target, CheckSpec> {
        let mut targets = BTreeMap::new();
        for version in self.versions() {
            let Some(data) = version.served.lines().map(|lines| lines.data()) else { continue };
            for name in data.pools().keys() {
                let Some(spec) = pools.of_name(name) else { continue };
                let Some(check) = &spec.check else { continue };
                let target = |address| Target { pool: Arc::clone(&spec.name), address };
                let addresses = addresses_at(version.tree(), data, name);
                targets.extend(addresses.into_iter().map(|address| (target(address), check.clone())));
            }
        }
        targets
    }

    /// Renews the signatures that end soon of zones that are to be looked at: new versions, by the numbers of their zones. Those that there is
    /// no time for now come next.
    pub(crate) fn renewed(&self, looks: &mut Looks, now: Instant) -> Vec<(usize, Version)> {
        let (due, began) = (self.due(looks, now), Instant::now());
        looks.has_more = false;
        let mut renewed = Vec::new();
        for (count, (_, number)) in due.into_iter().enumerate() {
            // One zone in each round at least, however slow the machine is.
            looks.has_more = count > 0 && began.elapsed() > ROUND_MAX;
            if looks.has_more {
                break;
            }
            let Some(entry) = &self.zones[number] else { continue };
            let origin = origin_of_version(&entry.version);
            let look = if entry.is_unsigned {
                looks.unsigned.extend(looks.zones.contains_key(&origin).then(|| origin.clone()));
                Look::after(now, signing::LOOK_AFTER_ERROR)
            } else {
                let (version, look) = entry.look(now);
                let look = looks.look_at_failure(&origin, &entry.version, look, now);
                renewed.extend(version.map(|version| (number, version)));
                look
            };
            looks.zones.insert(origin, look);
        }
        renewed
    }

    /// The numbers of the zones to look at, those first that were looked at longest ago.
    fn due(&self, looks: &Looks, now: Instant) -> Vec<(Option<Instant>, usize)> {
        let signed = self.entries().enumerate().filter(|(_, entry)| entry.spec.keys.is_some());
        let due = signed.filter_map(|(number, entry)| {
            let Some(look) = looks.zones.get(&origin_of_version(&entry.version)) else {
                return Some((None, number));
            };
            // Those that are not signed were read again by whoever wants all looked at.
            let is_wanted = !entry.is_unsigned && looks.wanted.is_some_and(|wanted| look.at < wanted);
            (look.again <= now || is_wanted).then_some((Some(look.at), number))
        });
        let mut due: Vec<(Option<Instant>, usize)> = due.collect();
        due.sort();
        due
    }

    /// The zones that have data.
    fn trees(&self) -> impl Iterator<Item = &Zone> {
        self.catalog.zones().filter_map(|served| served.tree().ok())
    }

    /// The data of a zone, if it has some.
    pub(crate) fn tree(&self, origin: Name<'_>) -> Option<&Zone> {
        let zone = self.catalog.find(origin).filter(|zone| zone.origin() == origin)?;
        zone.tree().ok()
    }

    /// The serial of a zone; `None` if it has no data.
    pub(crate) fn serial(&self, origin: Name<'_>) -> Option<u32> {
        self.tree(origin).map(Zone::serial)
    }

    /// What is served of each zone. Of two for one name the later counts.
    pub(crate) fn versions(&self) -> impl Iterator<Item = &Version> {
        self.entries().map(|entry| &entry.version)
    }

    /// What the configuration says of each zone, and its origin.
    pub(crate) fn specs(&self) -> impl Iterator<Item = (&ZoneSpec, Name<'_>)> {
        self.entries().map(|entry| (&entry.spec, entry.version.served.origin()))
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

/// When the signatures of zones are looked at, and what came of it last.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    zones: BTreeMap<NameBuf, Look>,
    /// Zones that were not looked at since then are to be, whatever came of it.
    wanted: Option<Instant>,
    /// There was no time for all.
    has_more: bool,
    /// Zones that could not be signed when they were read, and should be read again.
    unsigned: BTreeSet<NameBuf>,
    /// Why the last updates of zones were not carried out.
    failures: BTreeMap<NameBuf, Failure>,
}

#[derive(Debug)]
struct Look {
    at: Instant,
    again: Instant,
    /// Why they are not renewed.
    problem: Option<String>,
}

impl Look {
    /// One that has ended, or that is said to be at `now` if that is later.
    fn after(now: Instant, wait: Duration) -> Look {
        let at = now.max(Instant::now());
        Look { at, again: at + wait, problem: None }
    }
}

impl Looks {
    /// How long nothing needs to be looked at.
    pub(crate) fn pause(&self, now: Instant) -> Duration {
        let next = self.zones.values().map(|look| look.again).min();
        let pause = next.map_or(signing::LOOK_MAX, |next| next.saturating_duration_since(now));
        if self.has_more { Duration::ZERO } else { pause.min(signing::LOOK_MAX) }
    }

    /// Why the signatures of some zones are not renewed.
    pub(crate) fn problems(&self) -> BTreeMap<NameBuf, String> {
        let of_updates = self.failures.iter().map(|(origin, failure)| {
            (origin.clone(), format!("its updates are not carried out: {}", failure.why))
        });
        let problems = self.zones.iter().filter_map(|(origin, look)| Some((origin, look.problem.as_ref()?)));
        of_updates.chain(problems.map(|(origin, problem)| (origin.clone(), problem.clone()))).collect()
    }

    /// Notes why updates of a zone are not carried out. When its keys are looked at again.
    pub(crate) fn note_failure(&mut self, origin: &NameBuf, failure: Failure, now: Instant) -> Instant {
        let mut again = now + signing::LOOK_AFTER_ERROR;
        self.failures.insert(origin.clone(), failure);
        if let Some(look) = self.zones.get_mut(origin) {
            look.again = look.again.min(again);
            again = look.again;
        }
        again
    }

    /// Updates of a zone are carried out. Whether that is news.
    pub(crate) fn end_failure(&mut self, origin: &NameBuf) -> bool {
        self.failures.remove(origin).is_some()
    }

    /// Looks whether keys that would not sign updates do: nothing else of a zone may have to be signed for days.
    fn look_at_failure(&mut self, origin: &NameBuf, version: &Version, look: Look, now: Instant) -> Look {
        if !self.failures.get(origin).is_some_and(|failure| failure.is_of_keys) {
            return look;
        }
        if look.problem.is_none() && signing::do_keys_sign(version) {
            log::info!("zone {origin}: its keys sign again");
            self.failures.remove(origin);
            return look;
        }
        Look { again: look.again.min(now + signing::LOOK_AFTER_ERROR), ..look }
    }

    /// Zones that should be read again now.
    pub(crate) fn take_unsigned(&mut self) -> BTreeSet<NameBuf> {
        mem::take(&mut self.unsigned)
    }

    /// A zone is looked at in any case.
    pub(crate) fn forget(&mut self, origin: &NameBuf) {
        self.zones.remove(origin);
        self.failures.retain(|other, failure| failure.is_of_keys || other != origin);
    }

    /// All zones are looked at in any case, in the order that they would be looked at anyway. Those that have left are forgotten.
    pub(crate) fn want_all(&mut self, loaded: &Loaded, now: Instant) {
        let origins: BTreeSet<NameBuf> = loaded.versions().map(origin_of_version).collect();
        self.zones.retain(|origin, _| origins.contains(origin));
        // The next update says whether one can be written; whether keys sign is seen without.
        self.failures.retain(|origin, failure| failure.is_of_keys && origins.contains(origin));
        self.wanted = Some(now);
    }
}

fn origin_of_version(version: &Version) -> NameBuf {
    NameBuf::from(version.served.origin())
}

/// Which zones are read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
    /// These in any case, and no other ones.
    pub(crate) only: Option<BTreeSet<NameBuf>>,
    /// Zones that are being changed by hand: they are read when they are thawed.
    pub(crate) frozen: BTreeSet<NameBuf>,
}

impl Choice {
    /// Whether a zone is read, whatever its files are; `None` if they decide.
    fn is_read(&self, origin: &NameBuf) -> Option<bool> {
        match &self.only {
            Some(only) => Some(only.contains(origin)),
            None => self.frozen.contains(origin).then_some(false),
        }
    }
}

/// What was loaded before and has data.
struct Earlier<'a> {
    by_spec: HashMap<&'a ZoneSpec, &'a Entry>,
    /// Zones whose files the configuration does not name any more.
    moved: HashMap<NameBuf, &'a Entry>,
    /// Whether somebody may want to know what changed.
    histories: bool,
    /// All that was there before, with data or without.
    all: HashMap<&'a ZoneSpec, &'a Entry>,
    choice: &'a Choice,
}

impl<'a> Earlier<'a> {
    fn new(
        specs: &[ZoneSpec],
        current: Option<&'a Loaded>,
        choice: &'a Choice,
        histories: bool,
    ) -> Earlier<'a> {
        let entries = || current.into_iter().flat_map(Loaded::entries).map(|entry| &**entry);
        let loaded = || entries().filter(|entry| entry.version.tree().is_some());
        let specs: HashSet<&ZoneSpec> = specs.iter().collect();
        let moved = loaded().filter(|entry| !specs.contains(&entry.spec));
        Earlier {
            by_spec: loaded().map(|entry| (&entry.spec, entry)).collect(),
            moved: moved.map(|entry| (NameBuf::from(entry.version.served.origin()), entry)).collect(),
            histories,
            all: entries().map(|entry| (&entry.spec, entry)).collect(),
            choice,
        }
    }

    /// The zone of `spec` if it is not to be read: its files are those that it was read from, or it was not chosen.
    fn unchanged(&self, spec: &ZoneSpec) -> Option<&'a Entry> {
        let is_current = |(path, stamp): &(PathBuf, Option<Stamp>)| {
            stamp.as_ref().is_some_and(|stamp| stamp.is_current(path))
        };
        if let Some(entry) = self.all.get(spec)
            && let Some(is_read) = self.choice.is_read(&NameBuf::from(entry.version.served.origin()))
        {
            return (!is_read).then_some(*entry);
        }
        if let Some(entry) = self.frozen_with_other_options(spec) {
            return Some(entry);
        }
        let entry = *self.by_spec.get(spec)?;
        (!entry.files.is_empty() && entry.files.iter().all(is_current)).then_some(entry)
    }

    /// The zone of this file and name that is being changed by hand, as it was: its other options take effect when it is read.
    fn frozen_with_other_options(&self, spec: &ZoneSpec) -> Option<&'a Entry> {
        let is_frozen = |entry: &&&Entry| {
            (&entry.spec.file, &entry.spec.origin) == (&spec.file, &spec.origin)
                && self.choice.is_read(&NameBuf::from(entry.version.served.origin())) == Some(false)
        };
        let is_any = self.choice.only.is_none() && !self.choice.frozen.is_empty();
        let entry = *self.all.values().filter(|_| is_any).find(is_frozen)?;
        log::warn!(
            "zone {} is frozen: what changed in its options takes effect when it is thawed",
            entry.version.served.origin()
        );
        Some(entry)
    }

    /// The version that was read, with what differs from the one before, and what whoever had it read should know.
    fn next_version(&self, spec: &ZoneSpec, read: Version) -> (Version, Option<String>) {
        let before = self.last(spec, &origin_of_version(&read)).map(|entry| &entry.version);
        let before = before.and_then(|version| Some((version, version.tree()?, read.tree()?)));
        let Some((before, old, zone)) = before.filter(|(_, old, zone)| old.origin() == zone.origin()) else {
            return (read, None);
        };
        let (old_serial, serial) = (old.serial(), zone.serial());
        // Nothing else would show why secondary servers ignore a new version.
        let warning = is_older(serial, old_serial).then(|| went_back(old_serial, serial));
        let has_stayed = old_serial == serial;
        // Others than secondaries of ours may look at the serial, too.
        let is_compared = self.histories || has_stayed;
        let difference = is_compared.then(|| Difference::between(old, zone, History::OCTETS_MAX)).flatten();
        let history = match difference {
            Some(difference) if difference.is_nothing() => Arc::clone(&before.history),
            _ if has_stayed => return (read, Some(stayed(serial))),
            Some(difference) if is_older(old_serial, serial) => {
                Arc::new(before.history.with(&[Arc::new(difference)]))
            }
            _ => return (read, warning),
        };
        (Version { history, ..read }, warning)
    }

    /// That a version that is not signed follows one that was signed here, or has one beside its file.
    fn signing_ended(&self, spec: &ZoneSpec, version: &Version) -> Option<String> {
        let last = self.last(spec, &origin_of_version(version));
        let was_signed = last.is_some_and(|entry| entry.was_signed || entry.version.signing.is_some());
        signing::ended(version.tree()?, spec, was_signed)
    }

    /// That the serial of a version is behind that of the one before, whatever the configuration said of that.
    fn serial_went_back(&self, spec: &ZoneSpec, version: &Version) -> Option<String> {
        let last = self.last(spec, &origin_of_version(version))?;
        let (before, now) = (last.version.tree()?.serial(), version.tree()?.serial());
        is_older(now, before).then(|| went_back(before, now))
    }

    /// The data that `spec` named before, or, if its file is another one by now, that of the zone that it should have.
    fn last_good(&self, spec: &ZoneSpec) -> Option<&'a Entry> {
        let origin = spec.origin.clone().or_else(|| origin_from_path(&spec.file));
        match origin {
            Some(origin) => self.last(spec, &origin),
            None => self.by_spec.get(spec).copied(),
        }
    }

    /// What was loaded of `spec`, or, if the configuration says something else of its zone by now, of that zone.
    fn last(&self, spec: &ZoneSpec, origin: &NameBuf) -> Option<&'a Entry> {
        self.by_spec.get(spec).or_else(|| self.moved.get(origin)).copied()
    }
}

#[derive(Default)]
struct Loading {
    zones: Vec<Entry>,
    /// Of each zone that has data, the file.
    files: HashMap<NameBuf, PathBuf>,
    failed: usize,
    read: usize,
    pools: Pools,
}

impl Loading {
    fn add(&mut self, spec: &ZoneSpec, earlier: &Earlier<'_>) {
        if let Some(entry) = earlier.unchanged(spec) {
            return self.push(Entry { warning: None, ..entry.clone() });
        }
        self.read += 1;
        let mut disk = Disk::default();
        let time = store::file_time(&spec.file);
        match read_from(&mut disk, spec) {
            Ok((zone, _)) => {
                let data = match line_data(&mut disk, spec, &zone, &self.pools) {
                    Ok(data) => data,
                    Err(errors) => return self.add_failed(spec, &errors, earlier.last_good(spec)),
                };
                if spec.keys.is_some() {
                    return self.add_signed(spec, (zone, time), &data, earlier, disk.files);
                }
                let served = match data.is_empty() {
                    true => compile(zone),
                    false => compile_with_lines(zone, &Arc::new(data)),
                };
                let (read, unfit) = match store::with_journal(Version::first(served), &spec.file, time) {
                    Ok(read) => read,
                    Err(errors) => return self.add_failed(spec, &errors, earlier.last_good(spec)),
                };
                let (version, warning) = earlier.next_version(spec, read);
                let ended = earlier.signing_ended(spec, &version);
                if let (Some(_), Some(zone)) = (&ended, version.tree()) {
                    signing::note_unsigned(&spec.file, zone);
                }
                let news: Vec<String> = warning.into_iter().chain(ended).collect();
                news.iter().for_each(|news| log::warn!("zone {}: {news}", version.served.origin()));
                let warnings = unfit.into_iter().chain(news).chain(left_out(&version));
                let warning = joined(warnings);
                self.push(Entry { warning, ..Entry::read(spec, version, disk.files) });
            }
            Err(errors) => self.add_failed(spec, &errors, earlier.last_good(spec)),
        }
    }

    fn add_signed(
        &mut self,
        spec: &ZoneSpec,
        (zone, time): (Zone, Option<SystemTime>),
        data: &LineData,
        earlier: &Earlier<'_>,
        files: Vec<(PathBuf, Option<Stamp>)>,
    ) {
        let origin = NameBuf::from(zone.origin());
        let (same, last) = (earlier.by_spec.get(spec), earlier.last(spec, &origin));
        let before = signing::Before {
            version: same.map(|entry| &entry.version),
            was_signed: same.is_some_and(|entry| entry.was_signed),
            signing: last.and_then(|entry| entry.version.signing.as_deref()),
        };
        let source = store::zone_with_journal(zone, &spec.file, time).map_err(anyhow::Error::from);
        let signed = source.and_then(|(source, unfit)| {
            signing::load(source, spec, before, data).map(|version| (version, unfit))
        });
        let entry = match signed {
            Ok((version, unfit)) => {
                let from_memory = signing::why_from_memory(&version).map(str::to_owned);
                let went_back = earlier.serial_went_back(spec, &version);
                went_back.iter().for_each(|what| log::warn!("zone {origin}: {what}"));
                let warnings = unfit.into_iter().chain(from_memory).chain(went_back);
                let warning = joined(warnings.chain(left_out(&version)));
                Entry { warning, ..Entry::read(spec, version, files) }
            }
            Err(error) => self.unsigned(spec, origin, &error, earlier),
        };
        self.push(entry);
    }

    /// A zone that cannot be signed: it stays as it was, without signatures only if it had none.
    fn unsigned(
        &mut self,
        spec: &ZoneSpec,
        origin: NameBuf,
        error: &anyhow::Error,
        earlier: &Earlier<'_>,
    ) -> Entry {
        self.failed += 1;
        log::error!("zone {origin} cannot be signed: {error:#}");
        // Its source may be another one by now than the file has.
        let as_it_was = |entry: &Entry| {
            let was_signed = entry.was_signed || entry.version.signing.is_some();
            (Version { signing: None, ..entry.version.clone() }, was_signed)
        };
        let on_disk = || Some((signing::last_signed(&spec.file, origin.as_name())?, true));
        let last = earlier.last(spec, &origin).map(as_it_was).or_else(on_disk);
        match last {
            Some((_, true)) => log::warn!("zone {origin} is served as it was signed last"),
            Some((_, false)) => {
                log::warn!("zone {origin} is served as before, not signed here, and takes no updates")
            }
            None => log::error!("zone {origin} is answered with SERVFAIL until it can be signed"),
        }
        let placeholder = || ServedZone::unavailable(origin, Unavailable::NotReady);
        let (version, was_signed) = last.unwrap_or_else(|| (Version::first(placeholder()), false));
        let problem = format!("it cannot be signed: {error:#}");
        Entry { is_unsigned: true, was_signed, ..Entry::failed(spec, version, problem) }
    }

    fn push(&mut self, entry: Entry) {
        let (origin, file) = (NameBuf::from(entry.version.served.origin()), entry.spec.file.clone());
        let second = file.display().to_string();
        if let Some(first) = self.files.insert(origin.clone(), file) {
            // A mistake that nothing else would show.
            let first = first.display();
            log::warn!("zone {origin} is in {first} and in {second}; the second is served");
        }
        self.zones.push(entry);
    }

    fn add_failed(&mut self, spec: &ZoneSpec, errors: &ZoneTextErrors, last_good: Option<&Entry>) {
        self.failed += 1;
        log::error!("{errors}");
        match last_good {
            Some(kept) => log::warn!("zone {} keeps its last good version", kept.version.served.origin()),
            None => log::error!("{}", without_version(spec, errors)),
        }
        let was_signed = last_good.is_some_and(|entry| entry.was_signed);
        let version = last_good.map(|entry| entry.version.clone());
        if let Some(version) = version.or_else(|| placeholder(spec, errors)) {
            let problem = errors.errors.first().map_or_else(|| errors.to_string(), ToString::to_string);
            self.zones.push(Entry { was_signed, ..Entry::failed(spec, version, problem) });
        }
    }
}

/// What lines have and a version has no place for, which the log is told, too.
fn left_out(version: &Version) -> Option<String> {
    let left_out = version.served.left_out()?.to_string();
    log::warn!("zone {}: {left_out}", version.served.origin());
    Some(left_out)
}

/// `None` if there is nothing to say.
fn joined(warnings: impl Iterator<Item = String>) -> Option<String> {
    let warnings: Vec<String> = warnings.collect();
    (!warnings.is_empty()).then(|| warnings.join("; "))
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

fn placeholder(spec: &ZoneSpec, errors: &ZoneTextErrors) -> Option<Version> {
    let reason = if errors.is_unreadable() { Unavailable::NotReady } else { Unavailable::InvalidData };
    origin_of(spec, errors).map(|origin| Version::first(ServedZone::unavailable(origin, reason)))
}

/// The zone that a file is about which could not be loaded.
fn origin_of(spec: &ZoneSpec, errors: &ZoneTextErrors) -> Option<NameBuf> {
    let read = errors.origin.as_deref().cloned();
    spec.origin.clone().or(read).or_else(|| origin_from_path(&spec.file))
}

/// A number that nobody outside can guess.
pub(crate) fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    /// Files of a test, in a directory that goes with them.
    struct Zones {
        directory: PathBuf,
    }

    impl Zones {
        fn new(name: &str) -> Zones {
            let directory = std::env::temp_dir().join(format!("sidestep-{name}-{}", std::process::id()));
            fs::create_dir_all(&directory).unwrap();
            Zones { directory }
        }

        /// Writes a file that has not changed for a minute and `age` more seconds.
        fn write(&self, file: &str, age: u64, text: &str) -> ZoneSpec {
            let path = self.directory.join(file);
            fs::write(&path, text).unwrap();
            let modified = SystemTime::now() - Duration::from_secs(60 + age);
            File::options().append(true).open(&path).unwrap().set_modified(modified).unwrap();
            ZoneSpec::of(path)
        }
    }

    impl Drop for Zones {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }

    const ZONE: &str = "@ 60 SOA ns h 1 2 3 4 5\n";

    fn read_again(specs: &[ZoneSpec], current: &mut Loaded) -> usize {
        *current = load_catalog(specs, Some(current), &Choice::default(), true, Clients::default());
        current.read
    }

    /// However little time there is: with none at all, each has its turn.
    #[test]
    fn zones_are_looked_at_in_turns_those_first_that_were_looked_at_longest_ago() {
        let zones = Zones::new("turns");
        let specs = ["a", "b", "c"].map(|name| {
            let text = format!("$ORIGIN {name}.test.\n@ 60 SOA . . 1 1 1 1 1\n 60 NS ns.b.test.\n");
            let keys = Some(zones.directory.join("keys"));
            ZoneSpec { keys, makes_keys: true, ..zones.write(&format!("{name}.test.zone"), 0, &text) }
        });
        let loaded = load_catalog(&specs, None, &Choice::default(), true, Clients::default());
        assert_eq!(loaded.failed, 0);
        let (mut looks, mut now) = (Looks::default(), Instant::now());
        let in_turn = |looks: &Looks, now| {
            loaded.due(looks, now).into_iter().map(|(_, number)| number).collect::<Vec<_>>()
        };
        assert_eq!(in_turn(&looks, now), [0, 1, 2]);
        while !in_turn(&looks, now).is_empty() {
            loaded.renewed(&mut looks, now); // A busy machine needs several rounds.
        }
        looks.forget(&origin_of_version(loaded.numbered(1).unwrap().1));
        now = Instant::now();
        looks.want_all(&loaded, now);
        assert_eq!(in_turn(&looks, now), [1, 0, 2]);
    }

    #[test]
    fn a_zone_that_could_not_be_signed_is_read_again_after_a_while() {
        let zones = Zones::new("unsigned");
        let spec = ZoneSpec {
            keys: Some(zones.directory.join("keys")),
            makes_keys: false,
            ..zones.write("a.test.zone", 0, "$ORIGIN a.test.\n@ 60 SOA . . 1 1 1 1 1\n 60 NS ns.b.test.\n")
        };
        let loaded = load_catalog(&[spec], None, &Choice::default(), true, Clients::default());
        assert_eq!(loaded.failed, 1);
        let (mut looks, now) = (Looks::default(), Instant::now());
        for (after, count) in [
            (Duration::ZERO, 0),
            (Duration::from_secs(119), 0),
            (signing::LOOK_AFTER_ERROR + Duration::from_secs(1), 1),
        ] {
            assert!(loaded.renewed(&mut looks, now + after).is_empty());
            assert_eq!(looks.take_unsigned().len(), count, "{after:?}");
        }
        assert!(looks.pause(now) > 2 * signing::LOOK_AFTER_ERROR, "again and again");
    }

    /// `keys` is a directory below a file, which nobody can make, while `is_able` is false.
    fn signed_spec(zones: &Zones, age: u64, serial: u32, is_able: bool) -> ZoneSpec {
        let text = format!("$ORIGIN a.test.\n@ 60 SOA . . {serial} 1 1 1 1\n 60 NS ns.b.test.\n");
        let keys = if is_able { "keys" } else { "file/keys" };
        fs::write(zones.directory.join("file"), "").unwrap();
        ZoneSpec {
            keys: Some(zones.directory.join(keys)),
            makes_keys: true,
            ..zones.write("a.test.zone", age, &text)
        }
    }

    /// Serial, and whether there are signatures, of the one zone; and its problem.
    fn state(loaded: &Loaded) -> (Option<(u32, bool)>, Option<String>) {
        let (origin, version) =
            loaded.versions().map(|version| (origin_of_version(version), version)).next().unwrap();
        let served = version.tree().map(|zone| (zone.serial(), zone.is_signed()));
        (served, loaded.problems().remove(&origin))
    }

    #[test]
    fn a_served_zone_that_is_to_be_signed_and_cannot_be_is_served_as_before_until_it_can_be() {
        let zones = Zones::new("newly-signed");
        let to_sign = signed_spec(&zones, 0, 5, false);
        let plain = ZoneSpec { keys: None, ..to_sign.clone() };
        let mut loaded = load_catalog(&[plain], None, &Choice::default(), true, Clients::default());
        assert_eq!(state(&loaded), (Some((5, false)), None));
        for round in 0..3 {
            read_again(std::slice::from_ref(&to_sign), &mut loaded);
            let (served, problem) = state(&loaded);
            assert_eq!((served, loaded.failed), (Some((5, false)), 1), "{round}");
            assert!(problem.unwrap().starts_with("it cannot be signed: "));
            assert!(loaded.is_held_back(origin_of_version(loaded.versions().next().unwrap()).as_name()));
        }
        // Somebody makes room: it is signed as if it never had been, with a key of its own.
        fs::remove_file(zones.directory.join("file")).unwrap();
        read_again(&[to_sign], &mut loaded);
        assert_eq!(state(&loaded), (Some((6, true)), None));
        assert!(!loaded.is_held_back(origin_of_version(loaded.versions().next().unwrap()).as_name()));
    }

    #[test]
    fn a_signed_zone_whose_settings_change_and_that_cannot_be_signed_by_them_keeps_its_signatures() {
        let zones = Zones::new("still-signed");
        let able = signed_spec(&zones, 0, 5, true);
        let mut loaded =
            load_catalog(std::slice::from_ref(&able), None, &Choice::default(), true, Clients::default());
        assert_eq!(state(&loaded), (Some((6, true)), None));
        fs::remove_file(zones.directory.join("a.test.zone.signed")).unwrap();
        let unable = signed_spec(&zones, 9, 9, false);
        for round in 0..2 {
            read_again(std::slice::from_ref(&unable), &mut loaded);
            assert_eq!((state(&loaded).0, loaded.failed), (Some((6, true)), 1), "{round}");
        }
        zones.write("a.test.zone", 3, "nonsense\n");
        read_again(std::slice::from_ref(&unable), &mut loaded);
        assert_eq!((state(&loaded).0, loaded.failed), (Some((6, true)), 1), "it cannot be read either");
        signed_spec(&zones, 9, 9, true);
        fs::rename(zones.directory.join("keys"), zones.directory.join("away")).unwrap();
        read_again(std::slice::from_ref(&unable), &mut loaded);
        fs::remove_file(zones.directory.join("file")).unwrap();
        read_again(std::slice::from_ref(&unable), &mut loaded);
        assert_eq!((state(&loaded).0, loaded.failed), (Some((6, true)), 1), "it gets no other key");
        fs::rename(zones.directory.join("away"), zones.directory.join("keys")).unwrap();
        read_again(&[able], &mut loaded);
        assert_eq!(state(&loaded).1, None);
        assert!(state(&loaded).0.unwrap().1);
    }

    /// What whoever has these zones read is told of the one that is there.
    fn told(specs: &[ZoneSpec], loaded: &mut Loaded) -> String {
        read_again(specs, loaded);
        let origin = origin_of_version(loaded.versions().next().unwrap());
        loaded.warnings(origin.as_name()).join("; ")
    }

    #[test]
    fn a_reload_that_ends_signing_says_so_and_that_the_serial_goes_back() {
        let zones = Zones::new("signing-ended");
        let signed = signed_spec(&zones, 0, 5, true);
        let plain = ZoneSpec { keys: None, ..signed.clone() };
        let mut loaded = load_catalog(&[signed], None, &Choice::default(), true, Clients::default());
        let said = told(std::slice::from_ref(&plain), &mut loaded);
        assert!(said.contains("the serial goes back from 6 to 5, so secondary servers keep"), "{said}");
        assert!(
            said.contains("it was signed here, and is not any more: it is bogus for validators"),
            "{said}"
        );
        assert!(said.contains("remove ") && said.contains("a.test.zone.signed"), "{said}");
        assert!(loaded.versions().next().unwrap().history.between(6, 5).is_none());
        signed_spec(&zones, 3, 7, true);
        let said = told(std::slice::from_ref(&plain), &mut loaded);
        assert!(
            said.contains("is not any more") && !said.contains("serial"),
            "its signed version is there: {said}"
        );
        fs::remove_file(zones.directory.join("a.test.zone.signed")).unwrap();
        signed_spec(&zones, 6, 8, true);
        assert_eq!(told(&[plain], &mut loaded), "");
    }

    #[test]
    fn a_zone_that_is_signed_again_has_a_serial_behind_that_without_signatures() {
        for is_restart in [false, true] {
            let zones = Zones::new("signed-again");
            let signed = signed_spec(&zones, 0, 10, true);
            let plain = ZoneSpec { keys: None, ..signed.clone() };
            let load = |spec: &ZoneSpec| {
                load_catalog(std::slice::from_ref(spec), None, &Choice::default(), true, Clients::default())
            };
            let serial = |loaded: &Loaded| loaded.versions().next().unwrap().tree().unwrap().serial();
            let mut loaded = load(&signed);
            assert_eq!(serial(&loaded), 11);
            signed_spec(&zones, 3, 20, true);
            told(std::slice::from_ref(&plain), &mut loaded);
            assert_eq!(serial(&loaded), 20);
            if is_restart {
                loaded = load(&signed);
            } else {
                assert_eq!(told(&[signed], &mut loaded), "");
            }
            assert_eq!(serial(&loaded), 21);
        }
    }

    #[test]
    fn a_tool_says_of_a_zone_whose_signed_version_is_there_that_it_is_not_signed() {
        let zones = Zones::new("signing-ended-check");
        let signed = signed_spec(&zones, 0, 5, true);
        load_catalog(std::slice::from_ref(&signed), None, &Choice::default(), true, Clients::default());
        let plain = ZoneSpec { keys: None, ..signed };
        let look = |serial| {
            let zone = read(&signed_spec(&zones, 0, serial, true)).unwrap();
            signing::look(&zone, &plain).unwrap().unwrap()
        };
        let said = look(5);
        assert!(
            said.contains("is not any more") && said.contains("the serial goes back from 6 to 5"),
            "{said}"
        );
        assert!(look(6).contains("the same serial 6"));
        assert!(!look(7).contains("serial"));
    }

    #[test]
    fn a_zone_that_gets_another_file_has_a_history_and_a_serial_that_may_go_back() {
        let zones = Zones::new("other-file");
        let text =
            |serial: u32| format!("$ORIGIN a.test.\n@ 60 SOA . . {serial} 1 1 1 1\n 60 NS ns.b.test.\n");
        let specs =
            [("one", 10), ("two", 5), ("three", 6)].map(|(file, serial)| zones.write(file, 0, &text(serial)));
        let mut loaded = load_catalog(&specs[..1], None, &Choice::default(), true, Clients::default());
        let said = told(&specs[1..2], &mut loaded);
        assert!(said.contains("the serial goes back from 10 to 5"), "{said}");
        assert_eq!(told(&specs[2..], &mut loaded), "");
        assert!(loaded.versions().next().unwrap().history.between(5, 6).is_some());
        let signed = |name: &str| {
            let keys = Some(zones.directory.join("keys"));
            ZoneSpec { keys, ..ZoneSpec::of(zones.directory.join(name)) }
        };
        assert_eq!(told(&[signed("one")], &mut loaded), "");
        let said = told(&[signed("two")], &mut loaded);
        assert!(said.contains("the serial goes back from 11 to 6"), "{said}");
    }

    #[test]
    fn only_zones_whose_files_changed_are_read_again() {
        let zones = Zones::new("changed");
        let included = format!("{ZONE}$INCLUDE hosts\n");
        let specs = [zones.write("a.zone", 0, ZONE), zones.write("b.zone", 0, &included)];
        zones.write("hosts", 0, "x A 192.0.2.1\n");
        let mut loaded = load_catalog(&specs, None, &Choice::default(), true, Clients::default());
        assert_eq!((loaded.read, loaded.record_count()), (2, 3));
        assert_eq!(read_again(&specs, &mut loaded), 0);
        zones.write("hosts", 0, "x A 192.0.2.1\ny A 192.0.2.1\n");
        assert_eq!((read_again(&specs, &mut loaded), loaded.record_count()), (1, 4));
        zones.write("a.zone", 5, ZONE);
        assert_eq!(read_again(&specs, &mut loaded), 1, "another time");
        fs::rename(zones.write("new", 5, ZONE).file, &specs[0].file).unwrap();
        assert_eq!(read_again(&specs, &mut loaded), 1, "another file");
        assert_eq!((read_again(&specs, &mut loaded), loaded.zone_count()), (0, 2));
    }

    #[test]
    fn another_version_of_one_zone_shares_with_the_one_before_what_others_have() {
        let zones = Zones::new("shared");
        let specs: Vec<ZoneSpec> =
            (0..300).map(|number| zones.write(&format!("z{number}.zone"), 0, ZONE)).collect();
        let loaded = load_catalog(&specs, None, &Choice::default(), true, Clients::default());
        let origin = NameBuf::from_text(b"z200.", None).unwrap();
        let (number, _, version) = loaded.find(origin.as_name()).unwrap();
        let next = Version { served: Arc::new(compile(version.tree().unwrap().clone())), ..version.clone() };
        let (after, changes) = loaded.with([(number, next)]);
        assert_eq!((after.zones.len(), after.zones.pages_unlike(&loaded.zones)), (300, 1));
        assert!(Arc::ptr_eq(&after.numbers, &loaded.numbers));
        let served = |loaded: &Loaded| {
            let number = loaded.catalog.number_of(origin.as_name()).unwrap();
            Arc::clone(loaded.catalog.zone(number))
        };
        assert!(Arc::ptr_eq(&served(&after), &changes[0].after.served));
        assert!(Arc::ptr_eq(&served(&loaded), &changes[0].before));
    }

    #[test]
    fn reloads_note_what_changed_while_serials_grow() {
        let zones = Zones::new("history");
        let zone = |serial: u32, host: u8| format!("@ 60 SOA ns h {serial} 2 3 4 5\nx A 192.0.2.{host}\n");
        let specs = [zones.write("a.zone", 0, &zone(1, 1))];
        let mut loaded = load_catalog(&specs, None, &Choice::default(), true, Clients::default());
        let mut reload = |serial, host, age, histories| {
            zones.write("a.zone", age, &zone(serial, host));
            loaded = load_catalog(&specs, Some(&loaded), &Choice::default(), histories, Clients::default());
            let history = &loaded.versions().next().unwrap().history;
            (1..=serial).filter(|from| history.between(*from, serial).is_some()).collect::<Vec<u32>>()
        };
        assert_eq!(reload(2, 2, 1, true), [1]);
        assert_eq!(reload(3, 3, 2, true), [1, 2]);
        assert_eq!(reload(3, 3, 3, true), [1, 2], "the file was only touched");
        assert_eq!(reload(4, 4, 4, true), [1, 2, 3]);
        assert_eq!(reload(4, 5, 5, true).len(), 0, "another content with the same serial");
        assert_eq!(reload(5, 6, 6, true), [4]);
        assert_eq!(reload(6, 7, 7, false).len(), 0, "nobody wants to know");
    }

    #[test]
    fn a_zone_is_its_file_and_the_updates_in_its_journal() {
        let zones = Zones::new("updates");
        let zone = |serial: u32| format!("@ 60 SOA ns h {serial} 2 3 4 5\nx A 192.0.2.{serial}\n");
        let versions = [1, 2, 3].map(|serial| read(&zones.write("b.zone", 0, &zone(serial))).unwrap());
        let pair = |pair: &[Zone]| Difference::between(&pair[0], &pair[1], 1000).unwrap();
        let specs = [zones.write("b.zone", 0, &zone(1))];
        let differences: Vec<_> = versions.windows(2).map(|two| Arc::new(pair(two))).collect();
        crate::dns::journal::append(&specs[0].file, &differences).unwrap();
        let mut loaded = load_catalog(&specs, None, &Choice::default(), true, Clients::default());
        let serial =
            |loaded: &Loaded| loaded.versions().next().and_then(|version| Some(version.tree()?.serial()));
        assert_eq!(serial(&loaded), Some(3));
        zones.write("b.zone", 5, &zone(1));
        assert_eq!((read_again(&specs, &mut loaded), serial(&loaded)), (1, Some(3)), "touched only");
        assert!(loaded.versions().all(|version| version.history.between(1, 3).is_some()));
        zones.write("b.zone", 6, &zone(3));
        assert_eq!((read_again(&specs, &mut loaded), serial(&loaded)), (1, Some(3)), "the file has it all");
        assert!(!zones.directory.join("b.zone.journal").exists(), "it has served its purpose");
        crate::dns::journal::append(&specs[0].file, &differences).unwrap();
        zones.write("b.zone", 7, &zone(9));
        assert_eq!((read_again(&specs, &mut loaded), serial(&loaded)), (1, Some(9)), "changed by hand");
        assert!(zones.directory.join("b.zone.journal.unfit").exists(), "what was updated is not lost");
        let warning = loaded.warnings(loaded.versions().next().unwrap().served.origin())[0];
        assert!(warning.contains("set aside as") && warning.contains("b.zone.journal.unfit"), "{warning}");
    }

    #[test]
    fn a_change_is_seen_that_keeps_size_and_time_of_content() {
        use std::os::unix::fs::PermissionsExt;
        const TICK: Duration = Duration::from_millis(50); // The kernel's clock of changes may be as coarse.
        let zones = Zones::new("kept");
        let specs = [zones.write("a.zone", 0, &format!("{ZONE}x A 192.0.2.1\n"))];
        let modified = fs::metadata(&specs[0].file).unwrap().modified().unwrap();
        let mut loaded = load_catalog(&specs, None, &Choice::default(), true, Clients::default());
        std::thread::sleep(TICK);
        fs::write(&specs[0].file, format!("{ZONE}x A 192.0.2.2\n")).unwrap();
        File::options().append(true).open(&specs[0].file).unwrap().set_modified(modified).unwrap();
        assert_eq!(read_again(&specs, &mut loaded), 1, "another content");
        std::thread::sleep(TICK);
        fs::set_permissions(&specs[0].file, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read_again(&specs, &mut loaded), 1, "other permissions");
        assert_eq!(read_again(&specs, &mut loaded), 0);
    }

    #[test]
    fn a_file_that_changed_a_moment_ago_may_change_again_unseen() {
        let zones = Zones::new("moment");
        let specs = [zones.write("a.zone", 0, ZONE)];
        File::options().append(true).open(&specs[0].file).unwrap().set_modified(SystemTime::now()).unwrap();
        let mut loaded = load_catalog(&specs, None, &Choice::default(), true, Clients::default());
        assert_eq!(read_again(&specs, &mut loaded), 1);
    }

    #[test]
    fn a_zone_that_failed_is_read_again_and_keeps_its_version() {
        let zones = Zones::new("failed");
        let specs = [zones.write("a.zone", 0, ZONE)];
        let mut loaded = load_catalog(&specs, None, &Choice::default(), true, Clients::default());
        zones.write("a.zone", 9, "nonsense\n");
        for _ in 0..2 {
            assert_eq!((read_again(&specs, &mut loaded), loaded.failed, loaded.zone_count()), (1, 1, 1));
        }
    }

    #[test]
    fn a_placeholder_takes_the_place_of_a_zone_without_a_version() {
        let zones = Zones::new("placeholder");
        let by_soa = zones.write("db", 0, "example. 60 SOA . . 1 2 3 4 5\nexample. 60 A x\n");
        let by_name = ZoneSpec::of(zones.directory.join("missing.zone"));
        let unknown = zones.write("db2", 0, "nonsense\n");
        let loaded =
            load_catalog(&[by_soa, by_name, unknown], None, &Choice::default(), true, Clients::default());
        let placeholders: Vec<(String, Option<Unavailable>)> =
            loaded.catalog.zones().map(|zone| (zone.origin().to_string(), zone.tree().err())).collect();
        let expected = [("example.", Unavailable::InvalidData), ("missing.", Unavailable::NotReady)];
        assert_eq!(placeholders, expected.map(|(origin, reason)| (origin.to_owned(), Some(reason))));
        assert_eq!((loaded.failed, loaded.zone_count()), (3, 0));
    }
}
