//! `sidestep dns resolve`: the parts put together.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Context;
use log::LevelFilter;
use native::Interface;
use observe::{ControlSocket, Program};
use rustix::thread::CapabilitySet;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::NAME;
use super::config::Config;
use super::control::{Command, Control};
use super::driver::Driver;
use super::options::Resolve;
use super::server::Server;
use crate::dns::config::Link;
use crate::dns::guard_config::random_key;
use crate::dns::{descriptors, encrypted, privileges};
use crate::systemd;

/// Resolves until SIGTERM or SIGINT.
pub(crate) fn resolve(options: &Resolve) -> anyhow::Result<ExitCode> {
    options.log.start(LevelFilter::Info);
    let mut config = Config::resolve(options)?;
    fit_descriptors(&mut config);
    let mut signals = Signals::new([SIGHUP, SIGTERM, SIGINT]).context("handling signals")?;
    let (mut server, control) = Server::bind(config.clone(), random_key()?).context("binding")?;
    // Before there are threads, whose privileges are their own. Sockets are bound; those to servers have high ports.
    privileges::give_up_as(config.user.as_deref(), needed(&config))?;
    server.restore_cache();
    server.open_query_log()?;
    let mut driver = Driver::new(server)?;
    let interface = driver.open_interface()?;
    let ready = ready_line(driver.server(), interface.as_ref());
    let thread = std::thread::Builder::new()
        .name("resolver".to_owned())
        .spawn(move || driver.run())
        .context("starting a thread")?;
    // A resolver that nobody can look at resolves all the same.
    let control_socket = open_control_socket(&config, &control)
        .inspect_err(|error| {
            log::warn!("control socket unavailable, so tools cannot find this resolver: {error:#}")
        })
        .ok();
    log::info!("{ready}");
    systemd::notify_ready();
    for signal in signals.forever() {
        if signal != SIGHUP {
            break;
        }
        reload(options, &mut config, &control);
    }
    drop(control_socket);
    control.send(Command::Stop);
    let _ = thread.join(); // A thread that panicked has said so on stderr.
    if let Some(interface) = interface {
        interface.stop();
    }
    Ok(ExitCode::SUCCESS)
}

/// What the resolver may do later: attach to its interface again.
fn needed(config: &Config) -> CapabilitySet {
    let Some(name) = &config.device else { return CapabilitySet::empty() };
    privileges::needed_by(&Link::Xdp(name.clone()), config.listen.iter().map(SocketAddr::port))
}

fn ready_line(server: &Server, interface: Option<&Interface>) -> String {
    let plain = server.addresses().into_iter().map(|address| address.to_string());
    let sockets: Vec<String> =
        plain.chain(server.encrypted_addresses().iter().map(encrypted::show)).collect();
    let sockets = (!sockets.is_empty()).then(|| format!("on {} over kernel sockets", sockets.join(" ")));
    let places: Vec<String> =
        interface.map(|interface| interface.describe().to_owned()).into_iter().chain(sockets).collect();
    format!("ready: resolving {}", places.join("; "))
}

/// Queries in flight and connections each take a descriptor.
fn fit_descriptors(config: &mut Config) {
    const RESERVE: usize = 128;
    let limit =
        descriptors::raise_limit().and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    let enough_for = limit.saturating_sub(RESERVE + 2 * config.listen.len()).max(2);
    let in_flight = &mut config.options.limits.in_flight_max;
    if in_flight.saturating_add(config.tcp.connections_max) > enough_for {
        *in_flight = (*in_flight).min(enough_for / 2).max(1);
        config.tcp.connections_max = config.tcp.connections_max.min(enough_for - *in_flight).max(1);
        let (connections, queries) = (config.tcp.connections_max, *in_flight);
        log::warn!(
            "{limit} descriptors are enough for {queries} queries in flight and {connections} TCP clients: \
             raise the limit (LimitNOFILE= in a unit, ulimit -Hn)"
        );
    }
}

fn open_control_socket(config: &Config, control: &Control) -> anyhow::Result<ControlSocket> {
    let program = Program::new(NAME, Vec::new()).telling(control.clone());
    match &config.control {
        Some(path) => {
            observe::serve_at(path, program).with_context(|| format!("control socket {}", path.display()))
        }
        None => observe::serve(program).context("control socket"),
    }
}

/// Reads the configuration again. What only a restart can change is left as it is, and said.
fn reload(options: &Resolve, running: &mut Config, control: &Control) {
    let mut config = match Config::resolve(options) {
        Ok(config) => config,
        Err(error) => return log::error!("not reloaded, the running configuration stays: {error:#}"),
    };
    fit_descriptors(&mut config);
    let kept = [
        ("listen", config.listen != running.listen),
        ("device", config.device != running.device),
        ("source-addresses", config.source_addresses != running.source_addresses),
        ("tcp", config.tcp != running.tcp),
        ("encrypted", config.encrypted != running.encrypted),
        (
            "cache",
            (&config.options.cache, &config.cache_file) != (&running.options.cache, &running.cache_file),
        ),
        ("user", config.user != running.user),
        ("control", config.control != running.control),
    ];
    for (option, _) in kept.iter().filter(|(_, has_changed)| *has_changed) {
        log::warn!("{option}: has changed, and takes effect after a restart");
    }
    *running = config.clone();
    control.send(Command::Reload(Box::new(config)));
    log::info!("reloaded: the cache stays");
}
