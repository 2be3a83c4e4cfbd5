//! `sidestep dns serve`: the parts put together.

use std::process::ExitCode;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use arc_swap::ArcSwap;
use dns_auth::Counters;
use dns_server::{Admission, DnsResponder, Published};
use engine::EngineHandle;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::config::Config;
use super::engines::{EngineThread, start_engines};
use super::load::{Loaded, load_catalog};
use super::options::{ResponderKind, Serve};
use super::ports::Ports;
use super::stats;
use super::tcp::{self, TcpHandle};
use crate::output::{complain, say};

/// Serves until SIGTERM or SIGINT.
pub(crate) fn serve(options: &Serve) -> anyhow::Result<ExitCode> {
    // From here on signals wait for us, so that none is missed while zones load.
    let mut signals = Signals::new([SIGHUP, SIGTERM, SIGINT]).context("handling signals")?;
    let config = Config::resolve(options)?;
    let mut loaded = load_catalog(&config.zones, None);
    if loaded.zone_count() == 0 && config.responder == ResponderKind::Dns {
        bail!("none of the zones could be loaded");
    }
    let published = Arc::new(ArcSwap::from_pointee(publication(&config, &loaded)));

    let admission = Admission::new(config.tcp);
    let engines = start_engines(&config, &published, &admission)?;
    let handles: Vec<EngineHandle> = engines.iter().map(|engine| engine.handle.clone()).collect();
    let tcp = start_tcp(&config, &published, &admission)?;
    let ports = Ports::open(&config, &handles, tcp.as_ref().map(|tcp| &tcp.handle))?;
    let sources = stats::Sources {
        responders: {
            let of_engines = engines.iter().flat_map(|engine| &engine.counters);
            of_engines.chain(tcp.iter().map(|tcp| &tcp.counters)).cloned().collect()
        },
        admission: tcp.as_ref().map(|_| Arc::clone(&admission)),
        engines: handles,
        steering: ports.steering(),
    };
    // A server that nobody can look at serves all the same.
    let control_socket = stats::serve(config.control.as_deref(), sources)
        .inspect_err(|error| complain!("sidestep dns: nobody can look at this server: {error:#}"))
        .ok();

    say!("{}", ready_line(&config, &loaded, &ports, engines.len()));
    for signal in signals.forever() {
        if signal != SIGHUP {
            break;
        }
        if let Err(error) = reload(options, &config, &mut loaded, &published) {
            complain!("sidestep dns: nothing was reloaded: {error:#}");
        }
    }
    drop(control_socket);
    drain(ports, engines, tcp);
    Ok(ExitCode::SUCCESS)
}

fn publication(config: &Config, loaded: &Loaded) -> Published {
    Published { catalog: Arc::clone(&loaded.catalog), settings: Arc::clone(&config.settings) }
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
    if config.responder == ResponderKind::Echo {
        return Ok(None);
    }
    let counters = Arc::new(Counters::default());
    let responder = DnsResponder::new(published, Arc::clone(&counters));
    let (handle, thread) = tcp::start(responder, Arc::clone(admission)).context("starting DNS over TCP")?;
    Ok(Some(Tcp { handle, counters, thread }))
}

fn ready_line(config: &Config, loaded: &Loaded, ports: &Ports, engines: usize) -> String {
    let what = match config.responder {
        ResponderKind::Dns => what_is_served(loaded),
        ResponderKind::Echo => "an echo responder".to_owned(),
    };
    format!("sidestep dns: ready: {what}, {}, {}", ports.describe(), counted(engines, "engine"))
}

fn what_is_served(loaded: &Loaded) -> String {
    format!("{}, {}", counted(loaded.zone_count(), "zone"), counted(loaded.record_count(), "record"))
}

fn counted(count: usize, what: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {what}{ending}")
}

/// SIGHUP: zones and the choices about answers anew; what cannot change while running is named and kept.
fn reload(
    options: &Serve,
    running: &Config,
    loaded: &mut Loaded,
    published: &ArcSwap<Published>,
) -> anyhow::Result<()> {
    let config = Config::resolve(options)?;
    let fixed = [
        ("device or listen", config.device != running.device),
        ("cores", config.cores != running.cores),
        ("spin-us", config.spin != running.spin),
        ("busy-poll", config.busy_poll != running.busy_poll),
        ("control", config.control != running.control),
        ("tcp", config.tcp != running.tcp),
    ];
    for (name, _) in fixed.iter().filter(|(_, changed)| *changed) {
        complain!("sidestep dns: {name} changed in the configuration: takes effect after a restart");
    }
    let replacement = load_catalog(&config.zones, Some(loaded));
    if replacement.zone_count() == 0 && loaded.zone_count() > 0 {
        bail!("there would be no zone left to serve");
    }
    let old_publication = published.swap(Arc::new(publication(&config, &replacement)));
    let old_zones = std::mem::replace(loaded, replacement);
    wait_until_unused(&old_publication);
    drop((old_publication, old_zones));
    let failed = counted(loaded.failed, "zone file");
    say!("sidestep dns: reloaded: {}, {failed} with errors", what_is_served(loaded));
    Ok(())
}

/// Waits until no responder answers from what was replaced: whoever frees it is kept from answering for as long as that takes.
fn wait_until_unused(old: &Arc<Published>) {
    const BATCH_MAX: Duration = Duration::from_secs(1);
    let began = Instant::now();
    while Arc::strong_count(old) > 1 && began.elapsed() < BATCH_MAX {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Answers what has come, then ends every thread.
fn drain(ports: Ports, engines: Vec<EngineThread>, tcp: Option<Tcp>) {
    if let Some(tcp) = &tcp {
        tcp.handle.stop();
    }
    ports.stop();
    engines.iter().for_each(|engine| engine.handle.stop());
    let threads = engines.into_iter().map(|engine| engine.thread).chain(tcp.map(|tcp| tcp.thread));
    for thread in threads {
        // A thread that panicked has said so on stderr; the others are to end all the same.
        let _ = thread.join();
    }
}
