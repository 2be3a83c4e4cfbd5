//! Secondary zones: one thread that keeps the timers, and a few that ask primaries and may wait for them.
//!
//! | file | what it does |
//! | --- | --- |
//! | `claims.rs` | files that belong to configured zones, and files that two zones have |
//! | `keeper.rs` | the timers of all zones, and the zones that catalogs bring |
//! | `notices.rs` | what that thread hears of: NOTIFY, orders, and what came of refreshes |
//! | `queue.rs` | which zone is asked for next |
//! | `exchange.rs` | the questions to a primary, and transfers from it |

mod claims;
mod exchange;
mod keeper;
mod notices;
mod queue;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::SystemTime;

use anyhow::anyhow;
use arc_swap::ArcSwap;
use clock::Duration;
use dns_auth::compile::{compile, compile_changed};
use dns_auth::{ServedZone, Unavailable};
use dns_message::is_older;
use dns_transfer::{Difference, IncomingError, Keys, Received, catalog};
use dns_wire::{Name, NameBuf};
use dns_zone::{Changed, Zone};

pub(crate) use self::claims::{Claims, refuse_query_log, refuse_shared_files};
use self::exchange::{ExchangeError, Idle, Primary};
use self::keeper::Keeper;
pub(crate) use self::notices::Notices;
use self::queue::{PLACES, Queue};
use super::config::ZoneSpec;
use super::orders::SharedStates;
use super::peer::Peer;
use super::source::Sources;
use super::transfers::{SecondarySpec, unix_time};
use super::version::Version;
use super::{journal, store};

/// What becomes of the zones that are served.
pub(crate) enum Change {
    /// A zone is to be served so from now on.
    Version(Version),
    /// A catalog has another zone, which is to be served so.
    Joined(Arc<SecondarySpec>, Version),
    /// A catalog has that zone no longer.
    Left(Box<NameBuf>),
}

/// Takes changes, in their order.
pub(crate) type Publish = Box<dyn Fn(Change) + Send>;

/// What came of asking all primaries.
pub(crate) enum Outcome {
    /// We have the version that a primary has. Those primaries have told of a change, and gave nothing that can be used.
    Confirmed(BTreeSet<IpAddr>),
    /// There is a new one, and whether its file and journal have it.
    New(Version, bool),
    /// None gave anything that can be used, by what was acceptable, and why the last one did not.
    Failed(Acceptance, String),
}

/// Which versions of a primary are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acceptance {
    /// Those with a newer serial, by the arithmetic of serials (RFC 1982).
    Newer,
    /// Older ones too, if no primary has ours or a newer one: ours has expired, so any version is better than none.
    Any,
    /// All, even with our serial, and as a whole.
    Anew,
}

/// A secondary zone that was made ready before the server starts.
pub(crate) struct Prepared {
    spec: Arc<SecondarySpec>,
    /// From its file; else a placeholder.
    pub(crate) version: Version,
    /// How old the file is.
    age: Duration,
}

impl Prepared {
    /// When a primary has confirmed what its file has, in seconds since 1970; `None` if that has nothing.
    pub(crate) fn confirmed_at(&self) -> Option<(NameBuf, u64)> {
        let age = self.age.as_nanos() / 1_000_000_000;
        let held = self.version.tree()?;
        Some((NameBuf::from(held.origin()), unix_time().saturating_sub(age)))
    }
}

/// Reads the files of all secondary zones, and of the zones of their catalogs. One that cannot be read is transferred. Zones whose names are
/// `taken` are no catalog's.
pub(crate) fn prepare(specs: &[Arc<SecondarySpec>], taken: &BTreeSet<NameBuf>) -> Vec<Prepared> {
    let mut prepared: Vec<Prepared> = specs.iter().map(prepare_zone).collect();
    let mut taken = taken.clone();
    taken.extend(specs.iter().map(|spec| spec.origin.clone()));
    for number in 0..specs.len() {
        let Some(tree) = prepared[number].version.tree().filter(|_| specs[number].is_catalog) else {
            continue;
        };
        match catalog::members(tree) {
            Ok(members) => {
                let new = members.into_iter().filter(|(origin, _)| taken.insert(origin.clone()));
                let new = new.map(|(origin, label)| Arc::new(specs[number].member(origin, label)));
                prepared.extend(new.map(|spec| prepare_zone(&spec)));
            }
            Err(error) => log::error!("catalog {}: {error}", specs[number].origin),
        }
    }
    prepared
}

fn prepare_zone(spec: &Arc<SecondarySpec>) -> Prepared {
    let (version, age) = read_file(spec).unzip();
    let version = version.unwrap_or_else(|| placeholder(spec));
    Prepared { spec: Arc::clone(spec), version, age: age.unwrap_or_default() }
}

/// Those of the zones that catalogs have brought.
pub(crate) fn members(prepared: &[Prepared]) -> BTreeMap<NameBuf, Arc<SecondarySpec>> {
    let specs = prepared.iter().map(|zone| &zone.spec).filter(|spec| spec.membership.is_some());
    specs.map(|spec| (spec.origin.clone(), Arc::clone(spec))).collect()
}

fn placeholder(spec: &SecondarySpec) -> Version {
    Version::first(ServedZone::unavailable(spec.origin.clone(), Unavailable::NotReady))
}

fn read_file(spec: &SecondarySpec) -> Option<(Version, Duration)> {
    let path = spec.file.as_ref()?;
    let modified = std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()?;
    let age = SystemTime::now().duration_since(modified).unwrap_or_default();
    let zone_spec = ZoneSpec { origin: Some(spec.origin.clone()), ..ZoneSpec::of(path.clone()) };
    let read = store::read(&zone_spec).or_else(|errors| {
        let older = store::read_file_alone(&zone_spec).map_err(|_| errors.clone())?;
        log::warn!("zone {}: the version of its file alone is served: {errors}", spec.origin);
        Ok::<_, dns_zone::text::ZoneTextErrors>(older)
    });
    match read {
        Ok(version) if version.served.origin() == spec.origin.as_name() => {
            Some((version, Duration::from_secs(age.as_secs())))
        }
        Ok(_) => None,
        Err(errors) => {
            log::warn!("zone {}: its file is of no use, and it will be transferred: {errors}", spec.origin);
            None
        }
    }
}

/// The keys of transfers: each refresh takes those of now, as a reload may replace them.
pub(crate) type SharedKeys = Arc<ArcSwap<Keys>>;

/// Starts the threads. Changes go to `publish`, and `states` says how zones are. Zones whose names are `taken` are no catalog's.
pub(crate) fn start(
    zones: Vec<Prepared>,
    (taken, keys): (BTreeSet<NameBuf>, &SharedKeys),
    (publish, states): (Publish, SharedStates),
    (notices, claims): (&Notices, &Arc<Claims>),
) -> std::io::Result<()> {
    let queue = Arc::new(Queue::new());
    for number in 0..PLACES {
        let (queue, keys) = (Arc::clone(&queue), Arc::clone(keys));
        let (notices, claims) = (notices.clone(), Arc::clone(claims));
        let work = move || work(&queue, &keys, (&notices, &claims));
        thread::Builder::new().name(format!("secondary-{number}")).spawn(work)?;
    }
    let keeper = Keeper::new(zones, taken, queue, (publish, states), Arc::clone(claims));
    let notices = notices.clone();
    thread::Builder::new().name("secondaries".to_owned()).spawn(move || keeper.run(&notices))?;
    Ok(())
}

/// One refresh.
struct Job {
    number: usize,
    spec: Arc<SecondarySpec>,
    held: Option<Version>,
    is_kept: bool,
    acceptance: Acceptance,
    /// Primaries that have told of a change.
    told_by: BTreeSet<IpAddr>,
}

fn work(queue: &Queue<Job>, keys: &ArcSwap<Keys>, (notices, claims): (&Notices, &Claims)) {
    let mut idle = Idle::default();
    loop {
        // Nobody knows for how long there is no job, and primaries shall not wait for that.
        let place = queue.try_take().unwrap_or_else(|| {
            idle.close();
            queue.take()
        });
        let (job, place) = place.split();
        let outcome = refresh(&job, (queue, &keys.load_full(), claims), &mut idle);
        queue.end(place);
        notices.refreshed(job.number, outcome);
    }
}

/// Asks the primaries in their order: first those that have told of a change, last those that were silent. One that has our version ends that, but not
/// before all have been asked that have told. Only if none has our version or a newer one, what has expired gives way to an older one.
fn refresh(job: &Job, (queue, keys, claims): (&Queue<Job>, &Keys, &Claims), idle: &mut Idle) -> Outcome {
    let origin = &job.spec.origin;
    let has_told = |number: &usize| job.told_by.contains(&job.spec.primaries[*number].address.ip());
    let (mut is_confirmed, mut older, mut unheard) = (false, Vec::new(), BTreeSet::new());
    let mut why = String::new();
    for number in queue.in_order(&job.spec.addresses(), has_told) {
        if is_confirmed && !has_told(&number) {
            break;
        }
        let peer = &job.spec.primaries[number];
        let address = peer.address;
        let received = refresh_from(job, peer, keys, idle);
        queue.on_heard(address, !received.as_ref().is_err_and(ExchangeError::is_silence));
        match received {
            Ok(Received::Current) => is_confirmed = true,
            Ok(Received::New(changed, differences)) => {
                return take(job, claims, address, (*changed, &differences));
            }
            Err(error) => {
                why = format!("{address}: {error}");
                log::warn!("zone {origin} from {why}");
                let is_older = matches!(error, ExchangeError::Incoming(IncomingError::WentBack { .. }));
                older.extend(is_older.then_some(peer));
                unheard.extend((!is_older && has_told(&number)).then(|| address.ip()));
            }
        }
    }
    if is_confirmed {
        // A file that lacks the version that was confirmed is as old as it was.
        let file = job.spec.file.as_ref().filter(|_| job.is_kept);
        let touched = file.and_then(|file| claims.change(file, || store::touch(file)));
        if let Some(Err(error)) = touched {
            log::debug!("zone {origin}: noting the time in its file: {error}");
        }
        return Outcome::Confirmed(unheard);
    }
    for peer in older.into_iter().filter(|_| job.acceptance == Acceptance::Any) {
        let address = peer.address;
        match primary(job, peer, keys).transfer(None, None, idle) {
            Ok(Received::New(changed, _)) => {
                log::warn!(
                    "zone {origin}: the serial of {address} went back, and is taken: the zone had expired"
                );
                return take(job, claims, address, (*changed, &[]));
            }
            Ok(Received::Current) => {} // Of nothing held there is no current version.
            Err(error) => log::warn!("zone {origin} from {address}: {error}"),
        }
    }
    Outcome::Failed(job.acceptance, why)
}

/// Keeps a version that has come.
fn take(
    job: &Job,
    claims: &Claims,
    address: SocketAddr,
    (changed, differences): (Changed, &[Arc<Difference>]),
) -> Outcome {
    let (origin, zone) = (&job.spec.origin, &changed.zone);
    log::info!("zone {origin}: serial {} from {address}, {} records", zone.serial(), zone.record_count());
    // A catalog that names nothing is not kept: after a restart its zones would be gone.
    let names_zones = || catalog::members(zone).is_ok_and(|members| !members.is_empty());
    let is_good = !job.spec.is_catalog || names_zones();
    let held = job.held.as_ref().and_then(Version::tree);
    let is_newer = held.is_none_or(|held| is_older(held.serial(), zone.serial()));
    let keep = |file: &PathBuf| match differences {
        [_, ..] if job.is_kept => store::add(file, differences, zone).and_then(|()| Ok(store::touch(file)?)),
        _ if is_newer => store::save(file, zone),
        // A crash must not leave the journal beside a file whose serial it names, too.
        _ => Ok(journal::remove(file)?).and_then(|()| store::save(file, zone)),
    };
    let kept = job.spec.file.as_ref().filter(|_| is_good).map(|file| {
        let is_claimed = || Err(anyhow!("{} is the file of a configured zone", file.display()));
        claims.change(file, || keep(file)).unwrap_or_else(is_claimed)
    });
    let error = kept.and_then(Result::err);
    if let Some(error) = &error {
        log::error!("zone {origin} is served, and its file stays old: {error:#}");
    }
    let version = next_version(job.held.as_ref(), changed, differences);
    Outcome::New(version, is_good && error.is_none())
}

/// Only what changed since the held version is compiled.
fn next_version(held: Option<&Version>, changed: Changed, differences: &[Arc<Difference>]) -> Version {
    match held {
        Some(held) => held.next(compile_changed(&held.served, changed), differences),
        None => Version::first(compile(changed.zone)),
    }
}

/// The whole zone that a server has, if it gives it to whoever asks.
pub(crate) fn fetch(address: SocketAddr, origin: Name<'_>) -> Option<Zone> {
    let primary = Primary { address, sources: Sources::default(), origin, key: None, tls: None };
    match primary.transfer(None, None, &mut Idle::default()) {
        Ok(Received::New(changed, _)) => Some(changed.zone),
        _ => None,
    }
}

fn refresh_from(job: &Job, peer: &Peer, keys: &Keys, idle: &mut Idle) -> Result<Received, ExchangeError> {
    let (address, primary) = (peer.address, primary(job, peer, keys));
    let ours = job.held.as_ref().and_then(Version::tree).map(Zone::serial);
    let Some(ours) = ours.filter(|_| job.acceptance != Acceptance::Anew) else {
        return primary.transfer(None, None, idle);
    };
    let theirs = primary.serial(idle)?;
    if ours == theirs {
        return Ok(Received::Current);
    }
    if !is_older(ours, theirs) {
        return Err(IncomingError::WentBack { ours, theirs }.into());
    }
    match primary.transfer(job.held.as_ref().map(|held| &held.served), Some(ours), idle) {
        Err(error) if error.is_of_this_request() => {
            log::info!("zone {} from {address}: not by differences ({error}), so all of it", job.spec.origin);
            primary.transfer(None, Some(ours), idle)
        }
        outcome => outcome,
    }
}

fn primary<'j>(job: &'j Job, peer: &Peer, keys: &'j Keys) -> Primary<'j> {
    let key = peer.key.as_ref().and_then(|name| keys.get(name.as_name()));
    let (address, sources, tls) = (peer.address, job.spec.sources, job.spec.tls.as_ref());
    Primary { address, sources, origin: job.spec.origin.as_name(), key, tls }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::transfers::Transfers;
    use super::*;

    const TEXT: &str = "$ORIGIN example.\n@ 60 SOA ns host 1 1 1 1 1\n 60 NS ns\nns 60 A 192.0.2.1\n";

    /// A refresh of a zone whose file is in this directory.
    fn job(directory: &Path) -> Job {
        let text =
            "[[secondary]]\nzone = \"example\"\nprimaries = [\"192.0.2.1\"]\nfile = \"example.zone\"\n";
        let transfers = Transfers::resolve(&toml::from_str(text).unwrap(), directory).unwrap();
        let (spec, held, told_by) = (Arc::clone(&transfers.secondaries[0]), None, BTreeSet::new());
        Job { number: 0, spec, held, is_kept: false, acceptance: Acceptance::Newer, told_by }
    }

    #[test]
    fn a_refresh_that_is_under_way_does_not_write_the_file_that_a_configured_zone_has_now() {
        let directory = std::env::temp_dir().join(format!("sidestep-taken-over-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let [theirs, file] = ["theirs.zone", "example.zone"].map(|name| directory.join(name));
        std::fs::write(&theirs, TEXT.replace("host 1", "host 2")).unwrap();
        let zone = store::read(&ZoneSpec::of(theirs)).unwrap().tree().unwrap().clone();
        let changed = || Changed { zone: zone.clone(), names: None };
        std::fs::write(&file, TEXT).unwrap();
        let (job, claims) = (job(&directory), Claims::default());
        claims.claim([file.as_path()].into_iter());
        let address = SocketAddr::from(([192, 0, 2, 1], 53));
        let outcome = take(&job, &claims, address, (changed(), &[]));
        assert!(matches!(outcome, Outcome::New(_, false)), "it is served, and not kept");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), TEXT);
        claims.claim([].into_iter());
        assert!(matches!(take(&job, &claims, address, (changed(), &[])), Outcome::New(_, true)));
        assert!(std::fs::read_to_string(&file).unwrap() != TEXT);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
