//! `sidestep dns audit authority`: the audit zone over UDP, on an engine, and over TCP, on kernel sockets.

mod lines;
mod responder;
mod service;
mod tcp;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail, ensure};
use clap::Args;
use device_kernel::KernelSockets;
use dns_audit::authority::{Condition, Zone};
use dns_guard::{Rate, RateLimiter, RateOptions};
use dns_sign::{Algorithm, KeySet, Role, Times};
use dns_wire::{Name, NameBuf};
use engine::{DeviceId, Engine, EngineHandle};
use log::LevelFilter;
use native::Interface;
use rustix::thread::CapabilitySet;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::dns::config::{Link, parse_domain, parse_listen};
use crate::dns::guard_config::random_key;
use crate::dns::{key_files, privileges, resolve, tcp as kernel_tcp};
use crate::logging::LogOptions;
use crate::{output, systemd};
use responder::Responder;
use service::Service;

/// Labels of the audit zone take up to 64 octets, and names below them some more.
const ORIGIN_MAX: usize = 150;

/// The options of `audit authority`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Authority {
    /// The audit zone, such as probe.example.net.
    #[arg(long, value_name = "NAME")]
    zone: String,

    /// Address to serve, with or without a port (default 5300), and how this server differs from the others while the probe `selection`
    /// looks how resolvers choose: delay=MS, loss=PERCENT, outage=SECONDS-SECONDS (up to 60, since the start of the probe). The zone's
    /// servers in their order; if none has a condition, the last one is the fastest and has an outage.
    #[arg(
        long = "listen",
        visible_alias = "server",
        value_name = "ADDR[:PORT][,delay=..][,loss=..][,outage=..]",
        default_value = "127.0.0.1"
    )]
    listen: Vec<String>,

    /// The servers' addresses as resolvers reach them, in the same order [default: those of --listen].
    #[arg(long = "address", value_name = "ADDR")]
    addresses: Vec<IpAddr>,

    /// Interface whose packets are taken over AF_XDP, for UDP at the addresses of --listen. Needs root.
    #[arg(long, value_name = "INTERFACE")]
    device: Option<String>,

    /// Sign the zone with the key in this directory; one is made if there is none.
    #[arg(long, value_name = "DIRECTORY")]
    keys: Option<PathBuf>,

    /// File to which a line of JSON is added for each query for a name that says how it behaves. --user has to be able to write its
    /// directory.
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,

    /// Mebibytes of that file. When it is full, it is renamed to FILE.1 in place of the one before, and a new one begins.
    #[arg(long, value_name = "MIB", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    log_file_size: u64,

    /// Queries that are remembered for probes, some 400 octets each.
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    log_entries: usize,

    /// Answers a second to one address. Over UDP every second one beyond it is cut, and the others are dropped; over TCP they wait.
    /// UDP and TCP count by themselves. 0 is no limit.
    #[arg(long, value_name = "COUNT", default_value_t = 200)]
    rate_per_address: u32,

    /// The same over UDP for all addresses of a network: /24 of IPv4, /56 of IPv6.
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    rate_per_prefix: u32,

    /// User to become after binding, if root starts it [default: sidestep if there is such a user, else root].
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    #[command(flatten)]
    log: LogOptions,
}

/// Serves until SIGTERM or SIGINT.
pub(crate) fn serve(options: &Authority) -> anyhow::Result<ExitCode> {
    options.log.start(LevelFilter::Info);
    let mut signals = Signals::new([SIGTERM, SIGINT]).context("handling signals")?;
    let origin = checked_zone(&options.zone)?;
    let keys = keys(origin.as_name(), options.keys.as_deref())?;
    let (listen, conditions) = options.servers()?;
    let bound = kernel_tcp::on_free_ports(&listen, || Bound::open(&listen, options.device.is_some()))?;
    let addresses = bound.addresses(&listen);
    let public = options.public(&addresses)?;
    let zone = Zone::new(origin, public.clone(), keys).with_conditions(conditions);
    explain(&zone, &public);
    let open = |path| lines::Lines::open(path, options.log_file_size << 20);
    let lines = options.log_file.as_deref().map(open).transpose()?;
    let service = Arc::new(Service::new(zone, addresses.clone(), options.log_entries, lines));
    privileges::give_up_as(options.user.as_deref(), needed(options, &listen))?;
    let (handle, interface) = start(bound, &service, options, &listen)?;
    let shown: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    log::info!("ready: audit zone {} on {}", options.zone, shown.join(" "));
    systemd::notify_ready();
    signals.forever().next();
    handle.stop();
    if let Some(interface) = interface {
        interface.stop();
    }
    Ok(ExitCode::SUCCESS)
}

/// What it may do later: attach to its interface again.
fn needed(options: &Authority, listen: &[SocketAddr]) -> CapabilitySet {
    let Some(name) = &options.device else { return CapabilitySet::empty() };
    privileges::needed_by(&Link::Xdp(name.clone()), listen.iter().map(SocketAddr::port))
}

/// The keys of a directory, or a new one.
fn keys(origin: Name<'_>, directory: Option<&Path>) -> anyhow::Result<KeySet> {
    let Some(directory) = directory else { return Ok(KeySet::default()) };
    let keys = key_files::read(origin, directory)?;
    if !keys.keys().is_empty() {
        return Ok(keys);
    }
    key_files::generate(origin, directory, Algorithm::default(), Role::KeySigning, Times::default())?;
    key_files::read(origin, directory)
}

/// The records that the parent needs.
fn explain(zone: &Zone, addresses: &[IpAddr]) {
    let origin = zone.origin();
    for (number, address) in (1..).zip(addresses) {
        let rtype = if address.is_ipv4() { "A" } else { "AAAA" };
        log::info!("parent: {origin} NS ns{number}.{origin}");
        log::info!("parent: ns{number}.{origin} {rtype} {address}");
    }
    for (number, condition) in (1..).zip(zone.conditions()) {
        log::info!("server {number} in the probe selection: {condition}");
    }
    if let Some(key) = zone.key() {
        let ds = key.ds(origin);
        let digest = ds[4..].iter().map(|octet| format!("{octet:02X}")).collect::<String>();
        log::info!("parent: {origin} DS {} {} {} {digest}", key.tag(), ds[2], ds[3]);
    }
}

impl Authority {
    /// Where to listen, and the condition of each server.
    fn servers(&self) -> anyhow::Result<(Vec<SocketAddr>, Vec<Condition>)> {
        let mut servers = Vec::new();
        for text in &self.listen {
            let (address, rest) = text.split_once(',').unwrap_or((text, ""));
            let condition: Condition = rest.parse().map_err(|error| anyhow!("listen: {text}: {error}"))?;
            servers.push((parse_listen(address, 5300)?, condition));
        }
        if !self.listen.iter().any(|text| text.contains(',')) {
            let own = Condition::of_servers(servers.len());
            return Ok((servers.into_iter().map(|(address, _)| address).collect(), own));
        }
        Ok(servers.into_iter().unzip())
    }

    /// The servers' addresses as the parent has them.
    fn public(&self, listen: &[SocketAddr]) -> anyhow::Result<Vec<IpAddr>> {
        let own = || listen.iter().map(SocketAddr::ip).collect();
        let public: Vec<IpAddr> = if self.addresses.is_empty() { own() } else { self.addresses.clone() };
        let (given, wanted) = (public.len(), listen.len());
        ensure!(
            given == wanted,
            "address: there are {given} for {wanted} servers: name one for each --listen"
        );
        match public.iter().find(|address| address.is_unspecified()) {
            Some(any) => bail!("listen: nobody reaches {any}: name the servers' addresses by --address"),
            None => Ok(public),
        }
    }

    /// What strangers may ask for.
    fn rates(&self) -> RateOptions {
        let rate = |per_second: u32| (per_second > 0).then_some(Rate { per_second, burst: per_second });
        RateOptions {
            per_address: rate(self.rate_per_address),
            per_prefix: rate(self.rate_per_prefix),
            ..RateOptions::default()
        }
    }
}

/// Sockets that are opened while the process has all its privileges.
struct Bound {
    udp: Option<KernelSockets>,
    tcp: Vec<std::net::TcpListener>,
}

impl Bound {
    fn open(listen: &[SocketAddr], has_device: bool) -> anyhow::Result<Bound> {
        let config = device_kernel::Config { listen: listen.to_vec(), ..Default::default() };
        let udp = (!has_device).then(|| KernelSockets::open(config)).transpose().context("binding UDP")?;
        let addresses =
            udp.as_ref().map_or_else(|| listen.to_vec(), |sockets| sockets.local_addrs().collect());
        let open = |address: &SocketAddr| {
            kernel_tcp::listen(*address, false).with_context(|| format!("TCP at {address}"))
        };
        let tcp = addresses.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Bound { udp, tcp })
    }

    /// Port 0 has become a number.
    fn addresses(&self, listen: &[SocketAddr]) -> Vec<SocketAddr> {
        self.udp.as_ref().map_or_else(|| listen.to_vec(), |sockets| sockets.local_addrs().collect())
    }
}

/// Starts the engine, what makes answers late, and TCP.
fn start(
    bound: Bound,
    service: &Arc<Service>,
    options: &Authority,
    listen: &[SocketAddr],
) -> anyhow::Result<(EngineHandle, Option<Interface>)> {
    let limiter = || anyhow::Ok(RateLimiter::new(options.rates(), random_key()?));
    let (responder, late) = Responder::new(Arc::clone(service), limiter()?);
    let (engine, handle) = Engine::new(engine::Config::default(), responder).context("making an engine")?;
    late.start(handle.clone()).context("starting a thread")?;
    std::thread::Builder::new()
        .name("engine".to_owned())
        .spawn(move || drop(engine.run()))
        .context("starting an engine")?;
    tcp::start(bound.tcp, Arc::clone(service), limiter()?).context("starting TCP")?;
    if let Some(sockets) = bound.udp {
        handle.add_device(DeviceId(0), engine::Role::Primary, Box::new(sockets));
    }
    let device = options.device.as_deref();
    let interface = device.map(|name| resolve::open_interface(name, listen, handle.clone())).transpose()?;
    Ok((handle, interface))
}

/// A name that a user gave, checked as that of an audit zone.
pub(super) fn checked_zone(text: &str) -> anyhow::Result<NameBuf> {
    let origin = parse_domain("zone", text)?;
    ensure!(!origin.as_name().is_root(), "zone: the root cannot be an audit zone: name one below it");
    ensure!(origin.as_name().len() <= ORIGIN_MAX, "zone: {origin} is too long: {ORIGIN_MAX} octets at most");
    Ok(origin)
}

/// A line of the log could not be written.
fn complain_once(path: &Path, error: &std::io::Error) {
    output::complain!("{}: {error}; no more queries are logged there", path.display());
}
