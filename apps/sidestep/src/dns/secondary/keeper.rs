//! The timers of all secondary zones, and the zones that catalogs bring and take away (RFC 9432).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use clock::{Duration, Instant};
use dns_transfer::catalog::Members;
use dns_transfer::{Due, Secondary, SoaTimers, catalog};
use dns_wire::NameBuf;
use engine::Clock;

use super::super::orders::SharedStates;
use super::super::store;
use super::super::transfers::{SecondarySpec, random_number, unix_time};
use super::super::version::Version;
use super::claims::Claims;
use super::notices::{Heard, Notices, Wanted};
use super::queue::Queue;
use super::{Acceptance, Change, Job, Outcome, Prepared, Publish, placeholder};

/// What tools are told of a zone that has expired.
const EXPIRED: &str = "it has expired, and no primary has it";
/// The same of one that could not be written.
const UNKEPT: &str = "its file does not have what is served: the log says why";
/// The same of a catalog.
const LOST_ALL: &str = "it has lost all of its zones at once: they are kept until it has others";

/// A zone with its timers.
struct Followed {
    spec: Arc<SecondarySpec>,
    /// The last version that came; kept when it expires, so that differences suffice later.
    held: Option<Version>,
    /// Whether file and journal have it: else the next version is written as a whole.
    is_kept: bool,
    is_expired: bool,
    is_asking: bool,
    /// An operator wants all of it, whatever serial the primaries have.
    is_wanted_anew: bool,
    /// Primaries that have told of a change since they were asked last.
    told_by: BTreeSet<IpAddr>,
    /// Its catalog has it no longer, and a primary is still being asked for it.
    has_left: bool,
    /// It left because it is configured by itself: its files are no longer the catalog's.
    keeps_files: bool,
    timers: Secondary,
    /// Where it stands among the deadlines.
    deadline: Option<Instant>,
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
        Followed {
            spec: zone.spec,
            held,
            is_kept,
            is_expired: false,
            is_asking: false,
            is_wanted_anew: false,
            told_by: BTreeSet::new(),
            has_left: false,
            keeps_files: false,
            timers,
            deadline: None,
        }
    }

    /// What is to be asked now.
    fn job(&mut self, number: usize) -> Job {
        self.is_asking = true;
        let acceptance = match (std::mem::take(&mut self.is_wanted_anew), self.is_expired) {
            (true, _) => Acceptance::Anew,
            (false, true) => Acceptance::Any,
            (false, false) => Acceptance::Newer,
        };
        Job {
            number,
            spec: Arc::clone(&self.spec),
            held: self.held.clone(),
            is_kept: self.is_kept,
            acceptance,
            told_by: std::mem::take(&mut self.told_by),
        }
    }

    /// The label of a zone that `catalog` has brought.
    fn label_in(&self, catalog: &NameBuf) -> Option<&[u8]> {
        let membership = self.spec.membership.as_ref()?;
        (membership.catalog == *catalog).then_some(&*membership.label)
    }
}

/// Keeps the timers of all secondary zones.
pub(super) struct Keeper {
    /// By numbers that are not used again.
    zones: BTreeMap<usize, Followed>,
    next_number: usize,
    /// When each zone wants to be looked at.
    deadlines: BTreeSet<(Instant, usize)>,
    /// Names of zones that no catalog may bring: they are configured.
    taken: BTreeSet<NameBuf>,
    /// Catalogs that may bring zones that another one had, or that were configured.
    unsettled: BTreeSet<usize>,
    clock: Clock,
    jobs: Arc<Queue<Job>>,
    publish: Publish,
    states: SharedStates,
    claims: Arc<Claims>,
    /// Zones that never came, and that nobody has been asked for yet.
    unasked: BTreeSet<usize>,
    /// For so long the server is not ready because of those; `None` once it is.
    patience: Option<Instant>,
}

/// A primary that does not answer keeps the server from being ready for so long at most: it may never answer.
const READY_PATIENCE: Duration = Duration::from_secs(60);

impl Keeper {
    pub(super) fn new(
        zones: Vec<Prepared>,
        taken: BTreeSet<NameBuf>,
        jobs: Arc<Queue<Job>>,
        (publish, states): (Publish, SharedStates),
        claims: Arc<Claims>,
    ) -> Keeper {
        let (zones_by_number, deadlines, clock) = (BTreeMap::new(), BTreeSet::new(), Clock::start());
        let now = clock.now();
        let unsettled = BTreeSet::new();
        let mut keeper = Keeper {
            zones: zones_by_number,
            next_number: 0,
            deadlines,
            taken,
            unsettled,
            clock,
            jobs,
            publish,
            states,
            claims,
            unasked: BTreeSet::new(),
            patience: Some(now + READY_PATIENCE),
        };
        zones.into_iter().for_each(|zone| keeper.follow(zone, now));
        keeper.take_secondaries();
        keeper
    }

    pub(super) fn run(mut self, notices: &Notices) {
        const IDLE: Duration = Duration::from_secs(3600);
        loop {
            let now = self.clock.now();
            while let Some(&(deadline, number)) = self.deadlines.first().filter(|(at, _)| *at <= now) {
                self.deadlines.remove(&(deadline, number));
                self.poll(number, now);
            }
            while let Some(number) = self.unsettled.pop_first() {
                self.follow_catalog(number, now);
            }
            self.look_whether_ready(now);
            let next = self.deadlines.first().map(|(deadline, _)| *deadline).into_iter().chain(self.patience);
            let wait = next.min().map_or(IDLE, |deadline| deadline.since(now));
            let Heard { wanted, taken, refreshed } = notices.wait(wait.into());
            refreshed.into_iter().for_each(|(number, outcome)| self.on_refreshed(number, outcome));
            taken.into_iter().for_each(|names| self.take(names));
            self.ask_for(&wanted);
        }
    }

    fn follow(&mut self, zone: Prepared, now: Instant) {
        let number = self.next_number;
        self.next_number += 1;
        let zone = Followed::new(zone, now);
        if zone.held.is_none() && self.patience.is_some() {
            self.unasked.insert(number);
        }
        self.zones.insert(number, zone);
        self.tell(number, None, now);
        self.schedule(number);
    }

    /// The server is ready when primaries have been asked for all that never came, whatever they said.
    fn look_whether_ready(&mut self, now: Instant) {
        if self.patience.is_some_and(|until| self.unasked.is_empty() || until <= now) {
            self.patience = None;
            self.unasked.clear();
            self.states.with(|states| states.awaits_primaries = false);
        }
    }

    /// Has tools know how a zone is, and when it expires.
    fn tell(&self, number: usize, problem: Option<String>, now: Instant) {
        let Some(zone) = self.zones.get(&number) else { return };
        let left = zone.timers.expires().map(|at| at.since(now).as_nanos() / 1_000_000_000);
        self.states.with(|states| {
            let told = states.secondaries.entry(zone.spec.origin.clone()).or_default();
            told.problem = problem;
            // What has expired keeps the time.
            told.expires_at = left.map(|left| unix_time() + left).or(told.expires_at);
        });
    }

    /// Puts a zone where its timers want it.
    fn schedule(&mut self, number: usize) {
        let Some(zone) = self.zones.get_mut(&number) else { return };
        if let Some(before) = zone.deadline.take() {
            self.deadlines.remove(&(before, number));
        }
        zone.deadline = zone.timers.deadline().filter(|_| !zone.has_left);
        self.deadlines.extend(zone.deadline.map(|deadline| (deadline, number)));
    }

    fn poll(&mut self, number: usize, now: Instant) {
        let Some(zone) = self.zones.get_mut(&number) else { return };
        while let Some(due) = zone.timers.poll(now) {
            match due {
                Due::Refresh => {
                    let job = zone.job(number);
                    self.jobs.push(zone.spec.addresses(), job);
                }
                Due::Expire => {
                    let origin = &zone.spec.origin;
                    log::error!(
                        "zone {origin} has expired, and is answered with SERVFAIL until a primary has it"
                    );
                    zone.is_expired = true;
                    (self.publish)(Change::Version(placeholder(&zone.spec)));
                    self.states.with(|states| {
                        let told = states.secondaries.entry(zone.spec.origin.clone()).or_default();
                        told.problem = Some(EXPIRED.to_owned());
                        told.expires_at = told.expires_at.map(|at| at.min(unix_time()));
                    });
                }
            }
        }
        self.schedule(number);
    }

    /// Asks for these zones at once, all with one look at the zones that there are.
    fn ask_for(&mut self, wanted: &BTreeMap<NameBuf, Wanted>) {
        if wanted.is_empty() {
            return;
        }
        for (zone, Wanted { told_by, .. }) in wanted {
            told_by.iter().for_each(|from| log::debug!("zone {zone}: NOTIFY from {from}"));
        }
        let telling: BTreeSet<IpAddr> = wanted.values().flat_map(|wanted| &wanted.told_by).copied().collect();
        telling.into_iter().for_each(|primary| self.jobs.on_sign_of_life(primary));
        let (now, mut numbers) = (self.clock.now(), Vec::new());
        for (number, zone) in &mut self.zones {
            let Some(wanted) = wanted.get(&zone.spec.origin) else { continue };
            zone.told_by.extend(&wanted.told_by);
            zone.is_wanted_anew |= wanted.is_wanted_anew;
            if wanted.is_sure {
                zone.timers.on_notify(now);
            } else {
                zone.timers.on_unsigned_notify(now);
            }
            numbers.push(*number);
        }
        numbers.into_iter().for_each(|number| self.schedule(number));
    }

    fn on_refreshed(&mut self, number: usize, outcome: Outcome) {
        let now = self.clock.now();
        let Some(zone) = self.zones.get_mut(&number) else { return };
        zone.is_asking = false;
        self.unasked.remove(&number);
        if zone.has_left {
            return self.forget(number);
        }
        let mut is_unheard = false;
        let new = match outcome {
            Outcome::Failed(acceptance, why) => {
                zone.is_wanted_anew |= acceptance == Acceptance::Anew;
                zone.timers.on_failed(random_number(), now);
                let what = if zone.is_expired { EXPIRED } else { "its primaries give nothing" };
                self.tell(number, Some(format!("{what}: {why}")), now);
                return self.schedule(number);
            }
            Outcome::Confirmed(unheard) => {
                is_unheard = !unheard.is_empty();
                zone.told_by.extend(unheard);
                zone.held.clone().filter(|_| zone.is_expired)
            }
            Outcome::New(new, is_kept) => {
                zone.is_kept = is_kept;
                Some(new)
            }
        };
        if let Some(held) = new.as_ref().or(zone.held.as_ref()).and_then(Version::tree) {
            let mut timers = SoaTimers::of(held);
            if is_unheard {
                timers.refresh = timers.refresh.min(timers.retry); // Who has told of a change is asked again soon.
            }
            zone.timers.on_confirmed(timers, random_number(), now);
        }
        let is_unkept = !zone.is_kept && zone.spec.file.is_some();
        if let Some(new) = new {
            zone.held = Some(new.clone());
            if std::mem::take(&mut zone.is_expired) {
                log::info!("zone {} is served again after it had expired", zone.spec.origin);
            }
            (self.publish)(Change::Version(new));
            self.follow_catalog(number, now);
        }
        let problem = match self.catalog_problem(number) {
            // Such a catalog is not written either, on purpose.
            Some(problem) => problem,
            None => is_unkept.then(|| UNKEPT.to_owned()),
        };
        self.tell(number, problem, now);
        self.schedule(number);
    }

    /// Other zones are configured: they are no catalog's from now on, and those that were may be one's.
    fn take(&mut self, names: BTreeSet<NameBuf>) {
        self.taken = names;
        self.take_secondaries();
        let is_taken =
            |zone: &Followed| zone.spec.membership.is_some() && self.taken.contains(&zone.spec.origin);
        let mut zones = self.zones.iter().filter(|(_, zone)| !zone.has_left && is_taken(zone));
        let taken: Vec<usize> = zones.by_ref().map(|(number, _)| *number).collect();
        taken.into_iter().for_each(|number| self.give_away(number));
        self.unsettle_catalogs();
    }

    /// Configured secondaries are no catalog's.
    fn take_secondaries(&mut self) {
        let own = self.zones.values().filter(|zone| zone.spec.membership.is_none());
        self.taken.extend(own.map(|zone| zone.spec.origin.clone()));
    }

    fn unsettle_catalogs(&mut self) {
        let catalogs = self.zones.iter().filter(|(_, zone)| zone.spec.is_catalog);
        self.unsettled.extend(catalogs.map(|(number, _)| *number));
    }

    /// Takes what a catalog names, and leaves what it names no longer.
    fn follow_catalog(&mut self, number: usize, now: Instant) {
        let Some(catalog) = self.zones.get(&number) else { return };
        let Some(tree) = catalog.held.as_ref().and_then(Version::tree).filter(|_| catalog.spec.is_catalog)
        else {
            return;
        };
        let spec = Arc::clone(&catalog.spec);
        let members = match catalog::members(tree) {
            Ok(members) => members,
            Err(error) => return log::error!("catalog {}: its zones stay as they are: {error}", spec.origin),
        };
        let gone = self.gone(&spec.origin, &members);
        if members.is_empty() && !gone.is_empty() {
            return log::error!(
                "catalog {} has lost all of its zones at once: the {} zones that it had are kept until it has others{}",
                spec.origin,
                gone.len(),
                if spec.file.is_some() { "" } else { ", or the server is started again" }
            );
        }
        gone.into_iter().for_each(|number| self.leave(number));
        let present: BTreeSet<NameBuf> = self.zones.values().map(|zone| zone.spec.origin.clone()).collect();
        let elsewhere = |zone: &&Followed| {
            members.contains_key(&zone.spec.origin) && zone.label_in(&spec.origin).is_none() && !zone.has_left
        };
        for zone in self.zones.values().filter(elsewhere).filter(|zone| zone.spec.membership.is_some()) {
            log::error!(
                "catalog {}: zone {} is another catalog's, and stays there",
                spec.origin,
                zone.spec.origin
            );
        }
        let is_new = |origin: &NameBuf| !present.contains(origin) && !self.taken.contains(origin);
        let new: Vec<_> = members.into_iter().filter(|(origin, _)| is_new(origin)).collect();
        for (origin, label) in new {
            log::info!("catalog {}: zone {origin} joins", spec.origin);
            let member = Arc::new(spec.member(origin, label));
            let version = placeholder(&member);
            (self.publish)(Change::Joined(Arc::clone(&member), version.clone()));
            self.follow(Prepared { spec: member, version, age: Duration::ZERO }, now);
        }
    }

    /// What is wrong with a catalog that cannot be followed or names no zones, if something is; `None` for all others.
    fn catalog_problem(&self, number: usize) -> Option<Option<String>> {
        let Followed { spec, held, .. } = self.zones.get(&number)?;
        let tree = held.as_ref().and_then(Version::tree).filter(|_| spec.is_catalog)?;
        match catalog::members(tree) {
            Err(error) => Some(Some(format!("its zones stay as they are: {error}"))),
            Ok(members) if members.is_empty() => {
                let has_lost_all = !self.gone(&spec.origin, &members).is_empty();
                Some(has_lost_all.then(|| LOST_ALL.to_owned()))
            }
            Ok(_) => None,
        }
    }

    /// The numbers of zones that the catalog of this name has brought, and has no longer under the same label.
    fn gone(&self, catalog: &NameBuf, members: &Members) -> Vec<usize> {
        let is_gone = |zone: &Followed| {
            let label = zone.label_in(catalog);
            label.is_some() && members.get(&zone.spec.origin).map(|label| &**label) != label
        };
        self.zones
            .iter()
            .filter(|(_, zone)| !zone.has_left && is_gone(zone))
            .map(|(number, _)| *number)
            .collect()
    }

    /// The zone is configured by itself now, perhaps with the file that it had here.
    fn give_away(&mut self, number: usize) {
        if let Some(zone) = self.zones.get_mut(&number) {
            zone.keeps_files = true;
        }
        self.leave(number);
    }

    fn leave(&mut self, number: usize) {
        let Some(zone) = self.zones.get_mut(&number) else { return };
        log::info!("zone {} has left its catalog, and is served no longer", zone.spec.origin);
        zone.has_left = true;
        (self.publish)(Change::Left(Box::new(zone.spec.origin.clone())));
        if zone.is_asking {
            self.schedule(number); // The answer has yet to come, which could write the zone's file again.
        } else {
            self.forget(number);
        }
    }

    /// Forgets a zone, and its files. Its catalog, or another one, may have it again meanwhile: it joins as a new one then.
    fn forget(&mut self, number: usize) {
        let Some(zone) = self.zones.remove(&number) else { return };
        if let Some(deadline) = zone.deadline {
            self.deadlines.remove(&(deadline, number));
        }
        if let Some(file) = zone.spec.file.as_ref().filter(|_| !zone.keeps_files) {
            self.claims.change(file, || store::remove(file));
        }
        self.unasked.remove(&number);
        self.states.with(|states| states.secondaries.remove(&zone.spec.origin));
        self.unsettle_catalogs();
    }
}
