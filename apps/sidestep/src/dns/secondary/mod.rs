//! Secondary zones: one thread that keeps the timers, and a few that ask primaries and may wait for them.
//!
//! | file | what it does |
//! | --- | --- |
//! | `exchange.rs` | the questions to a primary, and transfers from it |

mod exchange;

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::SystemTime;

use clock::{Duration, Instant};
use dns_auth::compile::{compile, compile_changed};
use dns_auth::{ServedZone, Unavailable};
use dns_message::is_older;
use dns_transfer::{Difference, Due, IncomingError, Key, Keys, Received, Secondary, SoaTimers};
use dns_wire::NameBuf;
use dns_zone::Changed;
use engine::Clock;

use self::exchange::{ExchangeError, Primary};
use super::config::ZoneSpec;
use super::store;
use super::transfers::{SecondarySpec, random_number};
use super::version::Version;

/// Threads that ask primaries. More zones than that wait for one another.
const WORKERS: usize = 4;

/// A zone as it is to be served from now on.
pub(crate) type Publish = Box<dyn Fn(Version) + Send>;

/// What the thread with the timers hears.
pub(crate) enum Notice {
    /// A primary says that a zone changed.
    Notify(Box<NameBuf>, IpAddr),
    /// What came of a refresh of the zone of this number.
    Refreshed(usize, Outcome),
}

/// What came of asking all primaries.
pub(crate) enum Outcome {
    /// We have the version that a primary has.
    Confirmed,
    /// There is a new one, and whether its file and journal have it.
    New(Version, bool),
    /// None gave anything that can be used; the log says why.
    Failed,
}

/// A secondary zone that was made ready before the server starts.
pub(crate) struct Prepared {
    spec: Arc<SecondarySpec>,
    key: Option<Arc<Key>>,
    /// From its file; else a placeholder.
    pub(crate) version: Version,
    /// How old the file is.
    age: Duration,
}

/// Reads the files of all secondary zones. One that cannot be read is transferred.
pub(crate) fn prepare(specs: &[Arc<SecondarySpec>], keys: &Keys) -> Vec<Prepared> {
    let prepare = |spec: &Arc<SecondarySpec>| {
        let (version, age) = read_file(spec).unzip();
        let version = version.unwrap_or_else(|| placeholder(spec));
        let key = spec.key.as_ref().and_then(|name| keys.get(name.as_name())).cloned();
        Prepared { spec: Arc::clone(spec), key, version, age: age.unwrap_or_default() }
    };
    specs.iter().map(prepare).collect()
}

fn placeholder(spec: &SecondarySpec) -> Version {
    Version::first(ServedZone::unavailable(spec.origin.clone(), Unavailable::NotReady))
}

fn read_file(spec: &SecondarySpec) -> Option<(Version, Duration)> {
    let path = spec.file.as_ref()?;
    let modified = std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()?;
    let age = SystemTime::now().duration_since(modified).unwrap_or_default();
    match store::read(&ZoneSpec { origin: Some(spec.origin.clone()), ..ZoneSpec::of(path.clone()) }) {
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

/// Notices that wait at most. Whoever forges a primary's address sends as many as it likes.
pub(crate) const NOTICES_MAX: usize = 1024;

/// Starts the threads. New versions go to `publish`; notices come by the channel.
pub(crate) fn start(
    zones: Vec<Prepared>,
    publish: Publish,
    (sender, receiver): (SyncSender<Notice>, Receiver<Notice>),
) -> std::io::Result<()> {
    let (jobs, queue) = channel::<Job>();
    let queue = Arc::new(Mutex::new(queue));
    for number in 0..WORKERS.min(zones.len()) {
        let (queue, sender) = (Arc::clone(&queue), sender.clone());
        thread::Builder::new().name(format!("secondary-{number}")).spawn(move || work(&queue, &sender))?;
    }
    let clock = Clock::start();
    let now = clock.now();
    let zones = zones.into_iter().map(|zone| Followed::new(zone, now)).collect();
    let keeper = Keeper { zones, clock, jobs, publish };
    thread::Builder::new().name("secondaries".to_owned()).spawn(move || keeper.run(&receiver))?;
    Ok(())
}

/// A zone with its timers.
struct Followed {
    spec: Arc<SecondarySpec>,
    key: Option<Arc<Key>>,
    /// The last version that came; kept when it expires, so that differences suffice later.
    held: Option<Version>,
    /// Whether file and journal have it: else the next version is written as a whole.
    is_kept: bool,
    is_expired: bool,
    timers: Secondary,
}

impl Followed {
    fn new(zone: Prepared, now: Instant) -> Followed {
        let held = Some(zone.version).filter(|version| version.tree().is_some());
        let timers = held.as_ref().and_then(Version::tree).map(SoaTimers::of);
        let timers = match timers {
            Some(timers) => Secondary::resumed(timers, zone.age, now),
            None => Secondary::empty(now),
        };
        let is_kept = held.is_some();
        Followed { spec: zone.spec, key: zone.key, held, is_kept, is_expired: false, timers }
    }
}

/// One refresh.
struct Job {
    number: usize,
    spec: Arc<SecondarySpec>,
    key: Option<Arc<Key>>,
    held: Option<Version>,
    is_kept: bool,
}

/// Keeps the timers of all secondary zones.
struct Keeper {
    zones: Vec<Followed>,
    clock: Clock,
    jobs: Sender<Job>,
    publish: Publish,
}

impl Keeper {
    fn run(mut self, receiver: &Receiver<Notice>) {
        const IDLE: Duration = Duration::from_secs(3600);
        loop {
            let now = self.clock.now();
            (0..self.zones.len()).for_each(|number| self.poll(number, now));
            let deadline = self.zones.iter().filter_map(|zone| zone.timers.deadline()).min();
            let wait = deadline.map_or(IDLE, |deadline| deadline.since(now));
            match receiver.recv_timeout(wait.into()) {
                Ok(Notice::Notify(zone, from)) => self.on_notify(&zone, from),
                Ok(Notice::Refreshed(number, outcome)) => self.on_refreshed(number, outcome),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn poll(&mut self, number: usize, now: Instant) {
        let zone = &mut self.zones[number];
        while let Some(due) = zone.timers.poll(now) {
            match due {
                Due::Refresh => {
                    let (spec, key) = (Arc::clone(&zone.spec), zone.key.clone());
                    let (held, is_kept) = (zone.held.clone(), zone.is_kept);
                    let job = Job { number, spec, key, held, is_kept };
                    let _ = self.jobs.send(job); // The workers live as long as this thread.
                }
                Due::Expire => {
                    let origin = &zone.spec.origin;
                    log::error!(
                        "zone {origin} has expired, and is answered with SERVFAIL until a primary has it"
                    );
                    zone.is_expired = true;
                    (self.publish)(placeholder(&zone.spec));
                }
            }
        }
    }

    fn on_notify(&mut self, origin: &NameBuf, from: IpAddr) {
        log::debug!("zone {origin}: NOTIFY from {from}");
        let now = self.clock.now();
        let zones = self.zones.iter_mut().filter(|zone| zone.spec.origin == *origin);
        zones.for_each(|zone| zone.timers.on_notify(now));
    }

    fn on_refreshed(&mut self, number: usize, outcome: Outcome) {
        let now = self.clock.now();
        let zone = &mut self.zones[number];
        let new = match outcome {
            Outcome::Failed => return zone.timers.on_failed(random_number(), now),
            Outcome::Confirmed => zone.held.clone().filter(|_| zone.is_expired),
            Outcome::New(new, is_kept) => {
                zone.is_kept = is_kept;
                Some(new)
            }
        };
        if let Some(new) = new {
            zone.held = Some(new.clone());
            zone.is_expired = false;
            (self.publish)(new);
        }
        if let Some(held) = zone.held.as_ref().and_then(Version::tree) {
            zone.timers.on_confirmed(SoaTimers::of(held), random_number(), now);
        }
    }
}

fn work(queue: &Mutex<Receiver<Job>>, sender: &SyncSender<Notice>) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        let outcome = refresh(&job);
        if sender.send(Notice::Refreshed(job.number, outcome)).is_err() {
            return;
        }
    }
}

/// Asks the primaries in their order.
fn refresh(job: &Job) -> Outcome {
    let origin = &job.spec.origin;
    for &address in &job.spec.primaries {
        match refresh_from(job, address) {
            Ok(Received::Current) => {
                if let Some(error) = job.spec.file.as_ref().and_then(|file| store::touch(file).err()) {
                    log::debug!("zone {origin}: noting the time in its file: {error}");
                }
                return Outcome::Confirmed;
            }
            Ok(Received::New(changed, differences)) => {
                let zone = &changed.zone;
                log::info!(
                    "zone {origin}: serial {} from {address}, {} records",
                    zone.serial(),
                    zone.record_count()
                );
                let kept = job.spec.file.as_ref().map(|file| match &differences[..] {
                    differences @ [_, ..] if job.is_kept => {
                        store::add(file, differences, zone).and_then(|()| Ok(store::touch(file)?))
                    }
                    _ => store::save(file, zone),
                });
                let error = kept.and_then(Result::err);
                if let Some(error) = &error {
                    log::error!("zone {origin} is served, and its file stays old: {error:#}");
                }
                let version = next_version(job.held.as_ref(), *changed, &differences);
                return Outcome::New(version, error.is_none());
            }
            Err(error) => log::warn!("zone {origin} from {address}: {error}"),
        }
    }
    Outcome::Failed
}

/// Only what changed since the held version is compiled.
fn next_version(held: Option<&Version>, changed: Changed, differences: &[Arc<Difference>]) -> Version {
    match held {
        Some(held) => held.next(compile_changed(&held.served, changed), differences),
        None => Version::first(compile(changed.zone)),
    }
}

fn refresh_from(job: &Job, address: SocketAddr) -> Result<Received, ExchangeError> {
    let primary = Primary { address, origin: job.spec.origin.as_name(), key: job.key.as_ref() };
    let ours = job.held.as_ref().and_then(Version::tree).map(dns_zone::Zone::serial);
    let Some(ours) = ours else { return primary.transfer(None, None) };
    let theirs = primary.serial()?;
    if ours == theirs {
        return Ok(Received::Current);
    }
    if !is_older(ours, theirs) {
        return Err(IncomingError::WentBack { ours, theirs }.into());
    }
    match primary.transfer(job.held.as_ref().map(|held| &held.served), Some(ours)) {
        Err(ExchangeError::Incoming(error)) => {
            log::info!("zone {} from {address}: not by differences ({error}), so all of it", job.spec.origin);
            primary.transfer(None, Some(ours))
        }
        outcome => outcome,
    }
}
