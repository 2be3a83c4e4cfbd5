//! `sidestep dns serve`: the parts put together.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::{Context, bail};
use arc_swap::ArcSwap;
use dns_auth::Counters;
use dns_log::dnstap::Role;
use dns_server::{Admission, DnsResponder, Published};
use dns_transfer::Slots;
use dns_wire::NameBuf;
use engine::EngineHandle;
use log::LevelFilter;
use observe::ControlSocket;
use signal_hook::consts::SIGHUP;

use super::answer_log::QueryLog;
use super::config::Config;
use super::devices::{Bound, Devices};
use super::encrypted_server::EncryptedServer;
use super::engines::{EngineThread, engine_cores, start_engines};
use super::etcd::{self, Follower};
use super::events::{Event, Events};
use super::guard_config::Chance;
use super::health::{Checker, Health};
use super::load::{Choice, Loaded, Looks, NewVersion, catalog_replacing};
use super::notify::Notifier;
use super::options::{ResponderKind, Serve};
use super::orders::SharedStates;
use super::parents::Parents;
use super::rebuild::Rebuilds;
use super::reload::Reloads;
use super::request_log::RequestLog;
use super::secondary::{Claims, Notices, Prepared, SharedKeys};
use super::stats;
use super::tcp::{self, TcpHandle};
use super::transfers::SecondarySpec;
use super::updates::Queue;
use super::version::Version;
use super::zone_numbers::ZoneNumbers;
use super::{descriptors, encrypted, privileges, secondary, transfers};
use crate::systemd;

/// Serves until SIGTERM or SIGINT.
pub(crate) fn serve(options: &Serve) -> anyhow::Result<ExitCode> {
    allocator::map_large_blocks(); // The arrays of zones that change are built anew now and then, and updates leave small pages between them.
    options.log.start(LevelFilter::Info);
    let config = Config::resolve(options)?;
    let cores = engine_cores(&config)?;
    let bound = Bound::open(&config, config.sharing.with_queues(cores.len()))?;
    let over_tls = config.encrypted.as_ref().map(EncryptedServer::open).transpose()?;
    let descriptors = descriptors::raise_limit();
    privileges::give_up(&config)?; // Before there are threads, whose privileges are their own.
    // Zones may take long to load: signals are heard from here on.
    let events = Events::start().context("handling signals")?;
    events.load(config, None, Choice::default(), Health::default()).context("starting a thread")?;
    let Some((config, loaded)) = wait_for_zones(&events) else { return Ok(ExitCode::SUCCESS) };
    if has_nothing_to_serve(&config, &loaded) {
        bail!("none of the zones could be loaded");
    }
    let taken = taken(&config, &loaded);
    let prepared = secondary::prepare(&config.transfers.secondaries, &taken);
    let from_etcd = config.transfers.etcd.as_deref().map(etcd::prepare).unwrap_or_default();
    let mut shared = Shared::new(&config, &loaded, &prepared, events.updates())?;
    shared.etcd = from_etcd.iter().map(|zone| (origin_of(&zone.version), zone.version.clone())).collect();
    let published = Arc::new(ArcSwap::from_pointee(publication(&config, &loaded, &shared)));

    let admission = Admission::new(descriptors::fit(config.tcp, &config.device, descriptors));
    let engines = start_engines(&config, cores, &published, &admission)?;
    let with_queues = config.sharing.with_queues(engines.len());
    let handles: Vec<EngineHandle> = engines.iter().map(|engine| engine.handle.clone()).collect();
    let tcp = start_tcp(&config, &published, &admission)?;
    let over_tls = start_encrypted(over_tls, &published)?;
    let devices = Devices::open(&config, bound, &handles, tcp.as_ref().map(|tcp| &tcp.handle))?;
    config.warnings().iter().for_each(|(_, warning)| log::warn!("{warning}"));
    config.transfers.source_problems().iter().for_each(|problem| log::error!("{problem}"));
    let (states, health) = (SharedStates::default(), Health::default());
    let confirmed = prepared.iter().filter_map(Prepared::confirmed_at);
    states.with(|states| states.transfers.extend(confirmed));
    let of_engines = engines.iter().flat_map(|engine| &engine.counters);
    let of_others = tcp.iter().map(|tcp| &tcp.counters).chain(over_tls.iter().map(|(_, counters)| counters));
    let sources = stats::Sources {
        responders: of_engines.chain(of_others).cloned().collect(),
        encrypted: over_tls.as_ref().map(|(server, _)| server.admission()),
        certificate: over_tls.as_ref().map(|(server, _)| server.certificate()),
        admission: tcp.as_ref().map(|_| Arc::clone(&admission)),
        engines: handles.clone(),
        steering: devices.steering(),
        published: Arc::clone(&published),
        states: states.clone(),
        signed_until: stats::SignedUntil::default(),
        health: health.clone(),
        orders: events.orders(),
        notices: shared.notices.clone(),
    };
    let control_socket = open_control_socket(&config, sources);

    if !prepared.is_empty() {
        states.with(|states| states.awaits_primaries = true);
        shared.claims.claim(config.zones.iter().map(|zone| &*zone.file));
        secondary::start(
            prepared,
            (taken, &shared.keys),
            (events.publisher(), states.clone()),
            (&shared.notices, &shared.claims),
        )
        .context("starting threads for secondary zones")?;
    }
    states.with(|states| states.note_hidden(&shared.etcd, &shared.served_from_etcd(&loaded)));
    let follower = start_etcd(&config, from_etcd, (&events, &states))?;
    let ready = ready_line(&config, (&loaded, &shared), &devices, engines.len());
    log::info!("{ready}{}", over_tls.as_ref().map(|(server, _)| addresses_of(server)).unwrap_or_default());
    systemd::notify_ready();
    let notifier = Notifier::new(config.transfers.sources);
    let mut reloads = Reloads {
        options,
        events: &events,
        published: &published,
        shared,
        current: config.clone(),
        running: config,
        loaded: Arc::new(loaded),
        notifier,
        encrypted: over_tls.as_ref().map(|(server, _)| server),
        is_loading: false,
        updates: Vec::new(),
        engines: &handles,
        again: false,
        renewal: Instant::now(),
        pools_are_behind: false,
        looks: Looks::default(),
        is_signing_again: false,
        set_aside: None,
        states,
        ordered: None,
        checker: Checker::new(health.clone(), events.sender()),
        parents: Parents::new(events.sender()),
        follower,
        health,
        rebuilds: Rebuilds::default(),
    };
    reloads.tell_configuration();
    reloads.check_hosts();
    reloads.states.with(|states| states.has_started = true);
    reloads.run();
    reloads.states.with(|states| states.has_started = false);
    let log = reloads.shared.query_log;
    drop(control_socket);
    if let Some((server, _)) = over_tls {
        server.stop();
    }
    drain(devices, engines, with_queues, tcp);
    drop(log); // It has the last answers now.
    Ok(ExitCode::SUCCESS)
}

/// Whether no zone is there, and none can come.
fn has_nothing_to_serve(config: &Config, loaded: &Loaded) -> bool {
    loaded.zone_count() == 0 && !config.transfers.can_bring_zones() && config.responder == ResponderKind::Dns
}

/// A server that nobody can look at serves all the same.
fn open_control_socket(config: &Config, sources: stats::Sources) -> Option<ControlSocket> {
    let opened = stats::serve(config.control.as_deref(), sources);
    let told = opened.inspect_err(|error| {
        log::warn!("control socket unavailable, so tools cannot find this server: {error:#}");
    });
    told.ok()
}

/// What is served at first; `None` if the server is to end before it has it.
fn wait_for_zones(events: &Events) -> Option<(Config, Loaded)> {
    let mut again = false;
    loop {
        match events.next() {
            Event::Signal(SIGHUP) => again = true,
            Event::Signal(_) => return None,
            Event::Secondary(_) | Event::Etcd(_) | Event::Update(_) => {} // They begin later.
            Event::Health | Event::Parents(_) | Event::Rebuilt(_) => {}
            Event::Order(order) => order.answer(Err("the server is starting".to_owned())),
            Event::Loaded(loaded) => {
                if again {
                    events.repeat(SIGHUP); // What was read first may have changed since.
                }
                return Some(*loaded);
            }
        }
    }
}

/// The names that no catalog may bring, besides those of configured secondaries.
pub(crate) fn taken(config: &Config, loaded: &Loaded) -> BTreeSet<NameBuf> {
    let catalog = config.transfers.catalog.as_ref().map(|spec| spec.origin.clone());
    loaded.specs().map(|(_, origin)| NameBuf::from(origin)).chain(catalog).collect()
}

/// What responders answer from.
pub(crate) fn publication(config: &Config, loaded: &Loaded, shared: &Shared) -> Published {
    let from_etcd = shared.served_from_etcd(loaded);
    let others = shared.secondaries.values().chain(&shared.catalog).chain(from_etcd.iter().copied());
    let catalog = loaded.catalog_with(others.map(|version| &version.served));
    let catalog = Arc::new(shared.zone_numbers.borrow_mut().count(&catalog, config.zone_metrics_max));
    let policy = config.transfers.policy(loaded, shared, (&from_etcd, &catalog));
    let transfers = Arc::new(transfers::service(policy, shared));
    let guard = config.guard.options(&shared.chance);
    let log = shared.query_log.as_ref().map(|log| Arc::clone(&log.answers));
    Published { catalog, settings: Arc::clone(&config.settings), transfers, guard, log }
}

/// The same with other versions of some zones: costs as much as those, however many zones there are. `None` if they are not served as they were.
pub(crate) fn next_publication(
    now: &Published,
    shared: &Shared,
    versions: &[NewVersion],
) -> Option<Published> {
    let catalog = catalog_replacing(&now.catalog, versions)?;
    let mut policy = now.transfers.policy.clone();
    versions.iter().for_each(|version| transfers::set_history(&mut policy, &catalog, &version.after));
    let transfers = Arc::new(transfers::service(policy, shared));
    let (settings, guard, log) = (Arc::clone(&now.settings), now.guard.clone(), now.log.clone());
    Some(Published { catalog, settings, transfers, guard, log })
}

/// What stays from version to version.
pub(crate) struct Shared {
    /// Of all outgoing transfers, whatever version they began with.
    pub(crate) slots: Arc<Slots>,
    /// The secondary zones, as they are now.
    pub(crate) secondaries: BTreeMap<NameBuf, Version>,
    /// What the refreshes of secondary zones sign with.
    pub(crate) keys: SharedKeys,
    /// The catalog that is made of the zones, if one is.
    pub(crate) catalog: Option<Version>,
    /// Those of the secondary zones that catalogs have brought.
    pub(crate) members: BTreeMap<NameBuf, Arc<SecondarySpec>>,
    /// The zones from etcd, as they are now.
    pub(crate) etcd: BTreeMap<NameBuf, Version>,
    /// Where answers are noted, if they are.
    pub(crate) query_log: Option<QueryLog>,
    /// Where requests of others are logged.
    pub(crate) requests: Arc<RequestLog>,
    /// Where updates go.
    pub(crate) updates: Queue,
    /// Where notices of primaries go.
    pub(crate) notices: Notices,
    /// Which files are of configured zones, so that refreshes of others write none of them.
    pub(crate) claims: Arc<Claims>,
    /// For cookies, and for the tables of rates.
    pub(crate) chance: Chance,
    /// Which zones are counted alone.
    zone_numbers: RefCell<ZoneNumbers>,
}

impl Shared {
    /// What a server begins with; its query log is open then.
    fn new(
        config: &Config,
        loaded: &Loaded,
        secondaries: &[Prepared],
        updates: Queue,
    ) -> anyhow::Result<Shared> {
        let mut query_log = None;
        QueryLog::follow(&mut query_log, config.query_log.as_ref(), Role::Authority)?;
        let version = |zone: &Prepared| (origin_of(&zone.version), zone.version.clone());
        Ok(Shared {
            slots: Slots::new(config.transfers.max),
            secondaries: secondaries.iter().map(version).collect(),
            keys: Arc::new(ArcSwap::from_pointee(config.transfers.keys.clone())),
            catalog: config.transfers.catalog.as_ref().and_then(|spec| spec.next(loaded, None)),
            members: secondary::members(secondaries),
            etcd: BTreeMap::new(),
            query_log,
            requests: Arc::default(),
            updates,
            notices: Notices::default(),
            claims: Arc::default(),
            chance: Chance::draw()?,
            zone_numbers: RefCell::default(),
        })
    }
}

impl Shared {
    /// The zones from etcd that are served: those of whose names there is no other zone here.
    pub(crate) fn served_from_etcd(&self, loaded: &Loaded) -> Vec<&Version> {
        if self.etcd.is_empty() {
            return Vec::new();
        }
        let mut others: BTreeSet<NameBuf> = loaded.specs().map(|(_, origin)| NameBuf::from(origin)).collect();
        others.extend(self.catalog.iter().map(origin_of));
        let is_other = |origin: &NameBuf| others.contains(origin) || self.secondaries.contains_key(origin);
        self.etcd.iter().filter(|(origin, _)| !is_other(origin)).map(|(_, version)| version).collect()
    }
}

/// Follows etcd, if zones come from there.
fn start_etcd(
    config: &Config,
    prepared: Vec<etcd::Prepared>,
    (events, states): (&Events, &SharedStates),
) -> anyhow::Result<Option<Follower>> {
    let Some(spec) = &config.transfers.etcd else { return Ok(None) };
    let started = etcd::start(spec, prepared, events.sender(), states.clone());
    started.map(Some).context("starting threads for zones from etcd")
}

/// The name of a zone.
pub(crate) fn origin_of(version: &Version) -> NameBuf {
    NameBuf::from(version.served.origin())
}

struct Tcp {
    handle: TcpHandle,
    counters: Arc<Counters>,
    thread: JoinHandle<()>,
}

fn start_tcp(
    config: &Config,
    published: &Arc<ArcSwap<Published>>,
    admission: &Arc<Admission>,
) -> anyhow::Result<Option<Tcp>> {
    if matches!(config.responder, ResponderKind::Echo(_)) {
        return Ok(None);
    }
    let counters = Arc::new(Counters::default());
    let responder = DnsResponder::new(published, Arc::clone(&counters));
    let (handle, thread) =
        tcp::start(responder, Arc::clone(admission), config.tcp_linger).context("starting DNS over TCP")?;
    Ok(Some(Tcp { handle, counters, thread }))
}

/// Starts DNS over TLS, HTTPS and QUIC, if it was opened; what counts its answers is beside it.
fn start_encrypted(
    opened: Option<EncryptedServer>,
    published: &Arc<ArcSwap<Published>>,
) -> anyhow::Result<Option<(EncryptedServer, Arc<Counters>)>> {
    let Some(mut server) = opened else { return Ok(None) };
    let counters = Arc::new(Counters::default());
    let responder = DnsResponder::new(published, Arc::clone(&counters));
    server.start(responder).context("starting DNS over TLS, HTTPS and QUIC")?;
    Ok(Some((server, counters)))
}

/// The addresses of encrypted transports, to be put behind others.
fn addresses_of(server: &EncryptedServer) -> String {
    server.addresses().iter().map(|address| format!(", {}", encrypted::show(address))).collect()
}

fn ready_line(
    config: &Config,
    (loaded, shared): (&Loaded, &Shared),
    devices: &Devices,
    engines: usize,
) -> String {
    let what = match config.responder {
        ResponderKind::Dns => {
            let mut what = what_is_served(loaded);
            let (secondaries, kept) = (shared.secondaries.len(), shared.etcd.len());
            if secondaries > 0 {
                what += &format!(", {}", counted(secondaries, "secondary zone"));
            }
            if kept > 0 {
                what += &format!(", {} kept from etcd", counted(kept, "zone"));
            }
            what
        }
        ResponderKind::Echo(_) => "an echo responder".to_owned(),
    };
    format!("ready: {what}, {}, {}", devices.describe(), counted(engines, "engine"))
}

/// Zones and records in words.
pub(crate) fn what_is_served(loaded: &Loaded) -> String {
    format!("{}, {}", counted(loaded.zone_count(), "zone"), counted(loaded.record_count(), "record"))
}

/// `count` of something in words.
pub(crate) fn counted(count: usize, what: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {what}{ending}")
}

/// Answers what has come, ends every thread, then gives the interface back: until then answers over TCP need it.
/// Engines behind the first `with_queues` are workers: they end first, for what they have to say leaves by the others.
fn drain(devices: Devices, mut engines: Vec<EngineThread>, with_queues: usize, tcp: Option<Tcp>) {
    if let Some(tcp) = &tcp {
        tcp.handle.stop();
    }
    for engines in [engines.split_off(with_queues), engines] {
        engines.iter().for_each(|engine| engine.handle.stop());
        engines.into_iter().for_each(|engine| join(engine.thread));
    }
    tcp.into_iter().for_each(|tcp| join(tcp.thread));
    devices.stop();
}

/// A thread that panicked has said so on stderr; the others are to end all the same.
fn join(thread: JoinHandle<()>) {
    let _ = thread.join();
}
