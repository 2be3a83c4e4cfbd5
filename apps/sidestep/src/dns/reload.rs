//! SIGHUP: zones and the choices about answers anew, while the server answers from what it has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use std::{io, mem};

use anyhow::Context;
use arc_swap::ArcSwap;
use dns_auth::ServedZone;
use dns_log::dnstap::Role;
use dns_server::Published;
use dns_wire::{NameBuf, Rcode};
use dns_zone::Zone;
use engine::EngineHandle;
use observe::protocol::ZoneAction;
use signal_hook::consts::SIGHUP;

use super::answer_log::QueryLog;
use super::config::Config;
use super::encrypted_server::EncryptedServer;
use super::etcd::{self, Follower};
use super::events::{Event, Events};
use super::health::{Checker, Health};
use super::load::{Choice, Loaded, Looks, NewVersion};
use super::notify::{Announcement, Notifier};
use super::options::Serve;
use super::orders::{Order, SharedStates};
use super::parents::{self, Parents};
use super::pools::Pools;
use super::rebuild::{Rebuilds, Rebuilt};
use super::secondary::Change;
use super::service::{Shared, counted, next_publication, origin_of, publication, taken, what_is_served};
use super::transfers::unix_time;
use super::updates::{self, Failure, Outcome, Pending};
use super::version::Version;
use super::{signing, source, store};

/// What is served, and how it is replaced.
pub(crate) struct Reloads<'s> {
    pub(crate) options: &'s Serve,
    pub(crate) events: &'s Events,
    pub(crate) published: &'s ArcSwap<Published>,
    /// What stays from version to version.
    pub(crate) shared: Shared,
    /// The configuration of what is served.
    pub(crate) current: Config,
    /// What cannot change while the server runs.
    pub(crate) running: Config,
    pub(crate) loaded: Arc<Loaded>,
    pub(crate) notifier: Notifier,
    /// Its certificate is read again, too.
    pub(crate) encrypted: Option<&'s EncryptedServer>,
    pub(crate) is_loading: bool,
    /// Updates that came while zones were loading: what is being read does not have them.
    pub(crate) updates: Vec<Pending>,
    /// Engines have answers to updates to send.
    pub(crate) engines: &'s [EngineHandle],
    /// A SIGHUP came while zones were loading: they may have changed since.
    pub(crate) again: bool,
    /// When signatures are looked at.
    pub(crate) renewal: Instant,
    pub(crate) looks: Looks,
    /// The zones that are being read are those that could not be signed before.
    pub(crate) is_signing_again: bool,
    /// What came behind changes of secondary zones, which are published together.
    pub(crate) set_aside: Option<Event>,
    /// What tools may know of zones.
    pub(crate) states: SharedStates,
    /// What is done with a zone that is being read.
    pub(crate) ordered: Option<Order>,
    /// How hosts are, and who checks them.
    pub(crate) health: Health,
    pub(crate) checker: Checker,
    /// Asks the servers of parents.
    pub(crate) parents: Parents,
    /// Follows etcd, if zones come from there.
    pub(crate) follower: Option<Follower>,
    /// Zones have other addresses than their pools.
    pub(crate) pools_are_behind: bool,
    /// The zone that is built anew.
    pub(crate) rebuilds: Rebuilds,
}

impl Reloads<'_> {
    /// Does what signals, updates, other zones and the time demand, until a signal ends the server.
    pub(crate) fn run(&mut self) {
        loop {
            self.do_what_is_due(); // Also while events follow each other without a pause.
            let until = self.parents.deadline().map_or(self.renewal, |asking| asking.min(self.renewal));
            let Some(event) = self.set_aside.take().or_else(|| self.events.next_until(until)) else {
                continue;
            };
            match event {
                Event::Signal(SIGHUP) => self.begin(),
                Event::Secondary(change) => self.change_secondaries(change),
                Event::Etcd(changes) => self.change_from_etcd(changes.take()),
                Event::Update(update) => self.update(update),
                Event::Order(order) => self.carry_out(order),
                Event::Health => self.follow_health(),
                Event::Parents(parents::Outcome::KeyChanged(origin)) => self.look_at_keys(Some(&origin)),
                Event::Parents(parents::Outcome::Done(round)) => self.parents.end(round),
                Event::Rebuilt(rebuilt) => self.finish_rebuild(*rebuilt),
                Event::Signal(_) => break, // A load that is under way ends with the process.
                Event::Loaded(replacement) => {
                    let (config, loaded) = *replacement;
                    self.finish(&config, loaded);
                }
            }
        }
        self.keep_at_end();
    }

    /// Tries to write what could not be written before. Zones that are being read are written by another thread.
    fn keep_at_end(&self) {
        if !self.is_loading {
            self.loaded.versions().for_each(signing::keep_at_end);
        }
    }

    fn do_what_is_due(&mut self) {
        let now = Instant::now();
        if self.parents.deadline().is_some_and(|asking| asking <= now) {
            self.parents.begin(self.loaded.specs());
        }
        if self.renewal <= now {
            self.renew();
        }
    }

    /// Begins a reload; if one is under way, another one follows it.
    fn begin(&mut self) {
        if let Some(encrypted) = self.encrypted {
            encrypted.reload_certificate();
        }
        if self.is_loading {
            self.again = true;
            return;
        }
        match self.try_begin() {
            Ok(()) => self.is_loading = true,
            Err(error) => self.fail(&format!("{error:#}")),
        }
    }

    /// Says that a reload changed nothing.
    fn fail(&self, why: &str) {
        log::error!("reload failed, and nothing changed: {why}");
        self.states.with(|states| states.bad_reload = Some(why.to_owned()));
    }

    fn try_begin(&self) -> anyhow::Result<()> {
        dns_token::forget_failures();
        let config = Config::resolve(self.options)?;
        config.warnings().iter().for_each(|(_, warning)| log::warn!("{warning}"));
        config.transfers.source_problems().iter().for_each(|problem| log::error!("{problem}"));
        self.name_what_stays(&config);
        // Before they are read: what is written behind that would be neither read nor the owner's.
        self.claim_files(&[&self.current, &config]);
        self.events
            .load(config, Some(Arc::clone(&self.loaded)), self.choice(None), self.health.clone())
            .context("starting a thread")
    }

    /// Has refreshes of secondary zones leave the files of these zones alone.
    fn claim_files(&self, configs: &[&Config]) {
        let files = configs.iter().flat_map(|config| &config.zones).map(|zone| &*zone.file);
        self.shared.claims.claim(files);
    }

    /// Has secondaries trust what the files of certificates have now.
    fn renew_trust(&self, config: &Config) {
        for held in &self.running.transfers.secondaries {
            let read = config.transfers.secondaries.iter().find(|read| read.origin == held.origin);
            read.into_iter().for_each(|read| held.renew_trust(read));
        }
    }

    fn name_what_stays(&self, config: &Config) {
        let running = &self.running;
        let fixed = [
            ("device or listen", config.device != running.device),
            ("cores", config.cores != running.cores),
            ("dispatchers or dispatcher-share", config.sharing != running.sharing),
            ("spin-us", config.spin != running.spin),
            ("busy-poll", config.busy_poll != running.busy_poll),
            ("xdp-mode", config.xdp_mode != running.xdp_mode),
            ("mss-clamp", config.mss_clamp != running.mss_clamp),
            ("control", config.control != running.control),
            ("tcp", config.tcp != running.tcp || config.tcp_linger != running.tcp_linger),
            ("encrypted", config.encrypted != running.encrypted),
            ("secondary", config.transfers.secondaries != running.transfers.secondaries),
            ("etcd", config.transfers.etcd != running.transfers.etcd),
            (source::OPTION, config.transfers.sources != running.transfers.sources),
            ("transfers-max", config.transfers.max != running.transfers.max),
            ("user", config.user != running.user),
        ];
        for (name, _) in fixed.iter().filter(|(_, changed)| *changed) {
            log::warn!("{name} changed in the configuration: takes effect after a restart");
        }
    }

    /// Serves what was loaded, unless that is nothing.
    fn finish(&mut self, config: &Config, replacement: Loaded) {
        self.is_loading = false;
        let was_signing_again = mem::take(&mut self.is_signing_again);
        // Who names no files may have all zones from elsewhere.
        let is_meant = config.zones.is_empty() && self.running.transfers.can_bring_zones();
        if replacement.zone_count() == 0 && self.loaded.zone_count() > 0 && !is_meant {
            self.fail("no zone would be left to serve");
        } else {
            if self.ordered.is_none() && !was_signing_again {
                self.states.with(|states| states.bad_reload = None);
            }
            self.publish(config, replacement);
        }
        self.claim_files(&[&self.current]);
        let of = self.ordered.as_ref().map(|order| NameBuf::clone(&order.origin));
        if let Some(order) = self.ordered.take() {
            self.finish_order(order);
        }
        let waiting = mem::take(&mut self.updates);
        self.carry_out_updates(waiting);
        if !was_signing_again {
            self.look_at_keys(of.as_ref()); // Whoever changes keys says so by SIGHUP.
            self.parents.ask_again();
            self.follower.iter().for_each(Follower::look_at_keys);
        }
        if mem::take(&mut self.again) {
            self.begin();
        }
    }

    /// Carries an update out, and those that wait behind it: a journal is written once for all of them.
    fn update(&mut self, first: Pending) {
        const TOGETHER_MAX: usize = 256;
        if self.is_loading {
            return self.updates.push(first);
        }
        let mut updates = vec![first];
        while updates.len() < TOGETHER_MAX {
            match self.events.next_waiting() {
                Some(Event::Update(update)) => updates.push(update),
                other => {
                    self.set_aside = other;
                    break;
                }
            }
        }
        self.carry_out_updates(updates);
    }

    /// Carries updates out, those of a zone in their order, and answers them.
    fn carry_out_updates(&mut self, updates: Vec<Pending>) {
        let mut by_zone = BTreeMap::<NameBuf, Vec<Pending>>::new();
        for update in updates {
            by_zone.entry(NameBuf::from(update.request.origin())).or_default().push(update);
        }
        let (mut answers, mut versions) = (Vec::new(), Vec::new());
        for (origin, updates) in by_zone {
            let (codes, version) = self.carry_out_in(&origin, &updates);
            versions.extend(version);
            answers.extend(updates.into_iter().zip(codes));
        }
        let unsaved = versions.iter().filter(|(_, version)| signing::why_unsaved(version).is_some());
        let unsaved: Vec<NameBuf> = unsaved.map(|(_, version)| origin_of(version)).collect();
        self.replace_versions(versions);
        unsaved.iter().for_each(|origin| self.look_at_keys(Some(origin)));
        for (update, code) in answers {
            self.log_update(&update, code);
            update.answer(code);
        }
        self.engines.iter().for_each(EngineHandle::wake);
    }

    fn log_update(&self, update: &Pending, code: Rcode) {
        let (origin, client) = (update.request.origin(), update.request.client());
        let line = format!("zone {origin}: update of {client}: {}", code.name());
        self.shared.requests.done(&line);
    }

    /// The codes of the answers to updates of one zone, and its next version with its number.
    fn carry_out_in(
        &mut self,
        origin: &NameBuf,
        updates: &[Pending],
    ) -> (Vec<Rcode>, Option<(usize, Version)>) {
        let all = |code| (vec![code; updates.len()], None);
        if self.states.with(|states| states.frozen.contains(origin)) {
            let line = format_args!("zone {origin} is frozen: updates are refused");
            self.shared.requests.failed(log::Level::Info, &line);
            return all(Rcode::Refused);
        }
        if self.loaded.is_held_back(origin.as_name()) {
            let line = format_args!("zone {origin} cannot be signed: updates are refused until it can be");
            self.shared.requests.failed(log::Level::Warn, &line);
            return all(Rcode::Refused);
        }
        let Some((number, file, held)) = self.loaded.find(origin.as_name()) else {
            return all(Rcode::NotAuth);
        };
        let requests = updates.iter().map(|update| &*update.request);
        let (codes, outcome) = updates::carry_out(requests, held, file, &self.shared.requests);
        let (version, differences) = match outcome {
            Outcome::Next(version, differences) => (*version, differences),
            Outcome::Same => return (codes, None),
            Outcome::Failed(failure) => {
                self.note_failure(origin, Some(failure));
                return (codes, None);
            }
        };
        if version.signing.is_none() {
            let (zones, sender) = ((&held.served, &version.served), self.events.sender());
            self.rebuilds.follow(zones, &differences, &sender);
        }
        self.note_failure(origin, None);
        (codes, Some((number, version)))
    }

    /// Notes why the updates of a zone are not carried out, or that they are.
    fn note_failure(&mut self, origin: &NameBuf, failure: Option<Failure>) {
        let has_changed = match failure {
            Some(failure) => {
                let again = self.looks.note_failure(origin, failure, Instant::now());
                self.renewal = self.renewal.min(again);
                true
            }
            None => self.looks.end_failure(origin),
        };
        if has_changed {
            self.states.with(|states| states.not_renewed = self.looks.problems());
        }
    }

    /// Serves a zone that was built anew in place of the same one.
    fn finish_rebuild(&mut self, rebuilt: Rebuilt) {
        let found = self.loaded.find(rebuilt.origin.as_name());
        let (number, held) = found.map(|(number, _, version)| (number, version.clone())).unzip();
        let version = self.rebuilds.finish(rebuilt, held.as_ref(), &self.events.sender());
        let (Some(number), Some(version)) = (number, version) else { return };
        self.replace_versions(vec![(number, version)]);
        // To free a large zone takes a while, and updates wait.
        let _ = thread::Builder::new().name("free".to_owned()).spawn(move || drop(held));
    }

    /// Renews signatures that end soon, and looks what keys have come or gone.
    fn renew(&mut self) {
        const WHILE_LOADING: Duration = Duration::from_secs(1);
        if self.is_loading {
            self.renewal = Instant::now() + WHILE_LOADING;
            return;
        }
        let began = Instant::now();
        let renewed = self.loaded.renewed(&mut self.looks, began);
        self.replace_versions(renewed);
        self.states.with(|states| states.not_renewed = self.looks.problems());
        self.renewal = Instant::now() + self.looks.pause(Instant::now());
        if self.pools_are_behind {
            self.follow_health();
        }
        self.sign_again();
    }

    /// Reads the zones again that could not be signed, but for those that are being changed by hand.
    fn sign_again(&mut self) {
        let mut origins = self.looks.take_unsigned();
        self.states.with(|states| origins.retain(|origin| !states.frozen.contains(origin)));
        if origins.is_empty() {
            return;
        }
        match self.read_only(origins) {
            Ok(()) => self.is_signing_again = true,
            Err(error) => log::error!("zones that are not signed are not read: starting a thread: {error}"),
        }
    }

    /// Begins to read these zones, as the configuration was when it was read last.
    fn read_only(&mut self, origins: BTreeSet<NameBuf>) -> io::Result<()> {
        let (config, current) = (self.current.clone(), Some(Arc::clone(&self.loaded)));
        self.events.load(config, current, self.choice(Some(origins)), self.health.clone())?;
        self.is_loading = true;
        Ok(())
    }

    /// Looks at the keys of one zone, or of all.
    fn look_at_keys(&mut self, of: Option<&NameBuf>) {
        self.renewal = Instant::now();
        match of {
            Some(origin) => self.looks.forget(origin),
            None => self.looks.want_all(&self.loaded, self.renewal),
        }
    }

    /// Carries out a change of secondary zones, and those that wait behind it: of ten thousand zones of a catalog each would cost as much as all.
    fn change_secondaries(&mut self, first: Change) {
        let (mut next, mut new, mut old) = (Some(first), Vec::new(), Vec::new());
        // Versions of zones that stay; without a list there are other zones, too.
        let mut changes = Some(Vec::new());
        while let Some(change) = next.take() {
            match change {
                Change::Version(version) => {
                    let origin = origin_of(&version);
                    if version.tree().is_some() {
                        self.states.with(|states| states.transfers.insert(origin.clone(), unix_time()));
                        new.push(origin.clone());
                    }
                    let before = self.shared.secondaries.insert(origin, version.clone());
                    note_change(&mut changes, before.as_ref(), version);
                    old.extend(before);
                }
                Change::Joined(spec, version) => {
                    changes = None;
                    old.extend(self.shared.secondaries.insert(spec.origin.clone(), version));
                    self.shared.members.insert(spec.origin.clone(), spec);
                }
                Change::Left(origin) => {
                    changes = None;
                    old.extend(self.shared.secondaries.remove(&origin));
                    self.states.with(|states| states.transfers.remove(&origin));
                    self.shared.members.remove(&origin);
                }
            }
            match self.events.next_waiting() {
                Some(Event::Secondary(change)) => next = Some(change),
                other => self.set_aside = other,
            }
        }
        let old_publication = match &changes {
            Some(changes) => self.swap_versions(&self.loaded, changes),
            None => {
                self.states.with(|states| {
                    states.note_hidden(&self.shared.etcd, &self.shared.served_from_etcd(&self.loaded))
                });
                self.swap_publication()
            }
        };
        let zones = new.iter().filter_map(|origin| self.shared.secondaries.get(origin)?.tree());
        let (transfers, members) = (&self.current.transfers, &self.shared.members);
        let announcements = zones.flat_map(|zone| transfers.announcements_of_secondary(zone, members));
        self.notifier.start(announcements.collect());
        wait_until_unused(&old_publication);
        drop((old_publication, old, changes));
    }

    /// Publishes what became of zones from etcd.
    fn change_from_etcd(&mut self, changes: etcd::Changes) {
        let (mut new, mut old, mut versions) = (BTreeSet::new(), Vec::new(), Some(Vec::new()));
        for (origin, version) in changes {
            match version {
                Some(version) => {
                    new.insert(origin.clone());
                    let before = self.shared.etcd.insert(origin, version.clone());
                    note_change(&mut versions, before.as_ref(), version);
                    old.extend(before);
                }
                None => {
                    versions = None;
                    old.extend(self.shared.etcd.remove(&origin));
                }
            }
        }
        let next = versions.as_ref().and_then(|versions| self.next_publication(versions));
        let (old_publication, served) = match next {
            Some(next) => {
                let served = new.iter().filter_map(|origin| self.shared.etcd.get(origin)).collect();
                (self.published.swap(Arc::new(next)), served)
            }
            None => (self.swap_publication(), self.new_from_etcd(new)),
        };
        let trees = served.iter().filter_map(|version| version.tree());
        let announcements = trees.flat_map(|zone| self.current.transfers.announcements_from_etcd(zone));
        self.notifier.start(announcements.collect());
        wait_until_unused(&old_publication);
        drop((old_publication, old, versions));
    }

    /// Those of the `new` versions from etcd that are served, while there may be other zones.
    fn new_from_etcd(&self, mut new: BTreeSet<NameBuf>) -> Vec<&Version> {
        let mut served = self.shared.served_from_etcd(&self.loaded);
        self.states.with(|states| states.note_hidden(&self.shared.etcd, &served));
        served.retain(|version| new.remove(&origin_of(version)));
        for origin in new {
            log::error!("zone {origin} from etcd is not served: there is another zone of that name here");
        }
        served
    }

    /// Publishes what there is now; what was published before.
    fn swap_publication(&self) -> Arc<Published> {
        self.published.swap(Arc::new(publication(&self.current, &self.loaded, &self.shared)))
    }

    /// Leaves out addresses of hosts that are down, and gives those that are up.
    fn follow_health(&mut self) {
        let (versions, are_behind) = self.loaded.versions_with_pools(&self.pools());
        self.note_pools(are_behind);
        for (number, after) in &versions {
            if let Some((_, before)) = self.loaded.numbered(*number) {
                let zones = (&before.served, &after.served);
                self.rebuilds.follow(zones, &[], &self.events.sender());
            }
        }
        self.replace_versions(versions);
    }

    /// Whether zones have other addresses than pools, as they cannot be signed: a token may be away. That is tried again.
    fn note_pools(&mut self, are_behind: bool) {
        self.pools_are_behind = are_behind;
        if are_behind {
            self.renewal = self.renewal.min(Instant::now() + signing::LOOK_AFTER_ERROR);
        }
    }

    /// Has tools know which lines and pools there are.
    pub(crate) fn tell_configuration(&self) {
        let (lines, pools) = (Arc::new(self.current.lines.clone()), Arc::clone(&self.current.pools));
        self.states.with(|states| {
            (states.lines, states.pools) = (lines, pools);
            states.catalog = self.current.transfers.catalog.as_ref().map(|spec| spec.origin.clone());
            states.problems = self.loaded.problems();
            states.lines_problem.clone_from(&self.loaded.lines_problem);
            states.zone_metrics_max = self.current.zone_metrics_max;
        });
    }

    fn pools(&self) -> Pools {
        Pools { specs: Arc::clone(&self.current.pools), health: self.health.clone() }
    }

    /// Has the addresses checked that pools have now.
    pub(crate) fn check_hosts(&mut self) {
        let targets = self.loaded.targets(&self.pools());
        self.checker.check(targets);
    }

    fn publish(&mut self, config: &Config, replacement: Loaded) {
        self.renew_trust(config);
        self.current = config.clone();
        // Pools may be others, and hosts may have changed while zones were read.
        let (with_pools, are_behind) = replacement.versions_with_pools(&self.pools());
        self.note_pools(are_behind);
        let (replacement, _) = replacement.with(with_pools);
        self.current.transfers.secondaries.clone_from(&self.running.transfers.secondaries);
        self.current.transfers.etcd.clone_from(&self.running.transfers.etcd);
        // Secondary zones stay until a restart, also one whose key the configuration has no longer: it never asks without a signature.
        self.shared.keys.rcu(|held| held.with(&config.transfers.keys));
        let announcements = self.replace_catalog(&replacement);
        let spec = config.query_log.as_ref();
        let old_log = QueryLog::follow(&mut self.shared.query_log, spec, Role::Authority)
            .inspect_err(|error| log::error!("the query log stays as it was: {error:#}"));
        let [before, names] = [&*self.loaded, &replacement].map(names_of);
        self.replace(replacement);
        self.tell_configuration();
        drop(old_log); // Nobody notes anything there any more.
        self.notifier.start(announcements);
        self.states.with(|states| states.frozen.retain(|zone| self.loaded.find(zone.as_name()).is_some()));
        self.shared.notices.take(taken(config, &self.loaded));
        log_changes("zones that this reload brings", names.difference(&before));
        log_changes("zones that this reload takes away", before.difference(&names));
        let loaded = &self.loaded;
        let failed = counted(loaded.failed, "zone file");
        let (served, read) = (what_is_served(loaded), loaded.read);
        log::info!("reloaded: {served}, {failed} with errors, {read} read because of changes");
    }

    /// Serves other versions of zones of these numbers: costs as much as those, however many zones there are.
    fn replace_versions(&mut self, versions: Vec<(usize, Version)>) {
        if versions.is_empty() {
            return;
        }
        let before = Arc::clone(&self.loaded);
        let numbers: Vec<usize> = versions.iter().map(|(number, _)| *number).collect();
        let (replacement, changes) = before.with(versions);
        let old_publication = self.swap_versions(&replacement, &changes);
        self.loaded = Arc::new(replacement);
        let versions = numbers.into_iter().zip(&changes);
        let announcements = versions.filter_map(|(number, NewVersion { before, after })| {
            let (spec, _) = self.loaded.numbered(number)?;
            let serial = before.tree().ok().map(Zone::serial);
            Some(self.current.transfers.announcements_of(spec, serial, after.tree()))
        });
        self.notifier.start(announcements.flatten().collect());
        let has_pools = |zone: &ServedZone| zone.lines().is_some();
        if changes.iter().any(|change| has_pools(&change.before) || has_pools(&change.after.served)) {
            self.check_hosts();
        }
        wait_until_unused(&old_publication);
        drop((old_publication, before, changes));
    }

    /// Publishes other versions of zones that are served, and all anew if they are not served as they were. What was published before.
    fn swap_versions(&self, loaded: &Loaded, changes: &[NewVersion]) -> Arc<Published> {
        let next = self.next_publication(changes);
        let next = next.unwrap_or_else(|| publication(&self.current, loaded, &self.shared));
        self.published.swap(Arc::new(next))
    }

    /// The publication with other versions of some zones; `None` if one of them is not served as it was.
    fn next_publication(&self, changes: &[NewVersion]) -> Option<Published> {
        next_publication(&self.published.load(), &self.shared, changes)
    }

    fn replace(&mut self, replacement: Loaded) {
        let from_etcd = self.shared.served_from_etcd(&replacement);
        self.states.with(|states| states.note_hidden(&self.shared.etcd, &from_etcd));
        let old_publication =
            self.published.swap(Arc::new(publication(&self.current, &replacement, &self.shared)));
        self.notifier.start(self.current.transfers.announcements(&self.loaded, &replacement));
        let old_zones = mem::replace(&mut self.loaded, Arc::new(replacement));
        self.check_hosts();
        wait_until_unused(&old_publication);
        drop((old_publication, old_zones));
    }
}

impl Reloads<'_> {
    /// Makes the catalog anew if there are other zones; what is to be said of that.
    fn replace_catalog(&mut self, replacement: &Loaded) -> Vec<Announcement> {
        let Some(spec) = &self.current.transfers.catalog else {
            self.shared.catalog = None;
            return Vec::new();
        };
        let Some(next) = spec.next(replacement, self.shared.catalog.as_ref()) else { return Vec::new() };
        let announcements =
            next.tree().map(|zone| self.current.transfers.announcements_of_catalog(spec, zone));
        self.shared.catalog = Some(next);
        announcements.unwrap_or_default()
    }
}

impl Reloads<'_> {
    /// Which zones are read: these `only`, or those that are not frozen.
    fn choice(&self, only: Option<BTreeSet<NameBuf>>) -> Choice {
        Choice { only, frozen: self.states.with(|states| states.frozen.clone()) }
    }

    /// Does what an operator wants of a zone, or begins it.
    fn carry_out(&mut self, order: Order) {
        match self.try_to_carry_out(&order) {
            Ok(None) => self.ordered = Some(order),
            Ok(Some(done)) => order.answer(Ok(done)),
            Err(error) => order.answer(Err(error)),
        }
    }

    /// `None` if the zone is being read for it.
    fn try_to_carry_out(&mut self, order: &Order) -> Result<Option<String>, String> {
        let origin = &order.origin;
        if order.action == ZoneAction::Reload && self.shared.secondaries.contains_key(origin) {
            self.shared.notices.refresh(NameBuf::clone(origin));
            return Ok(Some(format!("zone {origin}: its primaries are asked")));
        }
        let Some((_, file, held)) = self.loaded.find(origin.as_name()) else {
            return Err(format!(
                "there is no zone {origin} from a file here: one that is new in the configuration comes with SIGHUP"
            ));
        };
        if self.is_loading {
            return Err("zones are being read already: try again when the log says that they are".to_owned());
        }
        if order.action != ZoneAction::Freeze {
            dns_token::forget_failures();
            let begun = self.read_only(BTreeSet::from([NameBuf::clone(origin)]));
            begun.map_err(|error| format!("starting a thread: {error}"))?;
            return Ok(None);
        }
        let not_frozen = |why: &dyn std::fmt::Display| format!("zone {origin} is not frozen: {why}");
        if self.loaded.has_failed(origin.as_name()) {
            return Err(not_frozen(
                &"its file or its keys cannot be used, so what is served is not what they say",
            ));
        }
        let source = held.source().ok_or_else(|| not_frozen(&"it has no version"))?;
        store::settle(file, source).map_err(|error| not_frozen(&format!("{error:#}")))?;
        self.states.with(|states| states.frozen.insert(NameBuf::clone(origin)));
        Ok(Some(format!("zone {origin} is frozen: {} has all updates, and may be changed", file.display())))
    }

    /// A zone was read because of an order.
    fn finish_order(&mut self, order: Order) {
        let origin = &order.origin;
        let outcome = match self.loaded.serial(origin.as_name()) {
            Some(serial) if !self.loaded.has_failed(origin.as_name()) => {
                let thawed = order.action == ZoneAction::Thaw
                    && self.states.with(|states| states.frozen.remove(origin));
                let what = if thawed { "read and thawed" } else { "read" };
                let warnings = self.loaded.warnings(origin.as_name());
                let warnings: String =
                    warnings.iter().map(|warning| format!("\nwarning: {warning}")).collect();
                Ok(format!("zone {origin} is {what}: serial {serial}{warnings}"))
            }
            _ => {
                let problems = self.loaded.problems();
                let why = problems.get(origin).map_or("the log says why", String::as_str);
                Err(format!("zone {origin} cannot be read, and is served as it was: {why}"))
            }
        };
        order.answer(outcome);
    }
}

/// Notes another version of a zone, unless there are other zones, too.
fn note_change(changes: &mut Option<Vec<NewVersion>>, before: Option<&Version>, after: Version) {
    let Some((list, before)) = changes.as_mut().zip(before) else {
        *changes = None;
        return;
    };
    list.push(NewVersion { before: Arc::clone(&before.served), after });
}

fn names_of(loaded: &Loaded) -> BTreeSet<NameBuf> {
    loaded.specs().map(|(_, origin)| NameBuf::from(origin)).collect()
}

/// Names zones, as many as a line takes.
pub(super) fn log_changes<'z>(what: &str, zones: impl Iterator<Item = &'z NameBuf>) {
    const NAMES_MAX: usize = 20;
    let mut names: Vec<String> = zones.map(ToString::to_string).collect();
    let more = names.len().saturating_sub(NAMES_MAX);
    names.truncate(NAMES_MAX);
    let and_more = if more > 0 { format!(" and {more} more") } else { String::new() };
    if !names.is_empty() {
        log::info!("{what}: {}{and_more}", names.join(", "));
    }
}

/// Waits until no responder answers from what was replaced: whoever frees it is kept from answering for as long as that takes.
fn wait_until_unused(old: &Arc<Published>) {
    const BATCH_MAX: Duration = Duration::from_secs(1);
    let began = Instant::now();
    while Arc::strong_count(old) > 1 && began.elapsed() < BATCH_MAX {
        thread::sleep(Duration::from_millis(1));
    }
}
