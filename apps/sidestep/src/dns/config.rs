//! What the program runs on: checked, resolved, nothing left to decide.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use clock::Duration;
use device_dpdk::{DpdkOptions, PortName};
use dns_auth::Settings;
use dns_lines::PrefixError;
use dns_server::TcpLimits;
use dns_sign::{Algorithm, DenialBy};
use dns_token::{KeyUri, UriError};
use dns_wire::NameBuf;
use rustix::io::Errno;
use steering::ListenAddress;
use thiserror::Error;

use super::answer_log::QueryLogSpec;
use super::config_file::{AnswersTable, ConfigFile, DpdkTable, TcpTable, ZoneTable};
use super::encrypted::encrypted;
use super::guard_config::GuardConfig;
use super::journal;
use super::lines::{LineSpecs, ZoneLine};
use super::options::{BusyPoll, ResponderKind, Serve};
use super::pools::{PoolSpec, pools};
use super::privileges::{self, explain_denial};
use super::secondary;
use super::sharing::Sharing;
use super::transfers::Transfers;
use crate::xdp_mode::XdpMode;

/// A wrong value; the message names the option, the value, and what it may be.
#[derive(Debug, Error)]
pub(crate) enum ConfigError {
    /// A number out of its range.
    #[error("{option}: {value} is out of range, expected {min} to {max}")]
    Range { option: &'static str, value: u64, min: u64, max: u64 },
    /// A text longer than its place in a message.
    #[error("{option}: {len} octets are too many, expected at most {max}")]
    TooLong { option: &'static str, len: usize, max: usize },
    /// A text that is not of the form.
    #[error("{option}: {value:?} is not {expected}")]
    Form { option: &'static str, value: String, expected: &'static str },
    /// Keys for a zone that is not to be signed.
    #[error(
        "keys, new-keys, key-uri, algorithm, parent, csync, denial and nsec3 have no use without dnssec = true"
    )]
    KeysUnused,
    /// Two words on how a zone is denied.
    #[error("denial = \"{denial}\" and nsec3 = {nsec3} contradict each other: leave nsec3 out")]
    TwoDenials { denial: &'static str, nsec3: bool },
    /// A private key that is somewhere else.
    #[error(
        "denial = \"compact\" and key-uri do not go together: who answers needs the key, and a token is too slow for that"
    )]
    CompactToken,
    /// Secondaries without keys.
    #[error(
        "{0} has no use with denial = \"compact\": secondary servers could not deny names, so such a zone is not transferred"
    )]
    CompactTransfer(&'static str),
    /// A URI of a key that is none.
    #[error("key-uri: {0}")]
    KeyUri(UriError),
    /// Two ways to come to keys.
    #[error("algorithm and key-uri do not go together: keys in tokens are made there")]
    AlgorithmOfToken,
    /// A name that two pools have.
    #[error("pool.names: {value} is in pool {} and in pool {}: remove it from one of them", pools[0], pools[1])]
    InTwoPools { value: String, pools: [String; 2] },
    /// A pool that changes nothing.
    #[error("pool {0}: it says nothing: give it weights, answers or a check")]
    IdlePool(String),
    /// A check by several ways, or by none.
    #[error("pool.check: one of tcp, http and ping = true has to be there, and no other one")]
    OneCheck,
    /// An option of HTTP in another check.
    #[error("{0}: only checks by http have it")]
    OnlyForHttp(&'static str),
    /// A place of lines that no file is about.
    #[error("{option}: {value:?} needs {file}, which is not configured")]
    NoGeo { option: &'static str, value: String, file: &'static str },
    /// A place that two lines have.
    #[error("{option}: {value:?} is in line {} and in line {}: remove it from one of them", lines[0], lines[1])]
    InTwoLines { option: &'static str, value: String, lines: [String; 2] },
    /// A prefix that is none.
    #[error("{option}: {error}")]
    Prefix { option: &'static str, error: PrefixError },
    /// A core that the machine has not, or that we may not use.
    #[error("cores: core {core} is not available, expected some of {available}")]
    NoCore { core: usize, available: String },
    /// Dispatchers without queues, or without engines.
    #[error("{0}")]
    NoDispatchers(&'static str),
    /// Options of DPDK without one of its ports.
    #[error(
        "{option} is for a port of DPDK, and the device is {device}: name a port with --device dpdk:PORT, or leave {option} out"
    )]
    NoPort { option: &'static str, device: String },
    /// Nothing to serve.
    #[error("no zone to serve: name one with --zone FILE, or in a configuration file with [[zone]]")]
    NoZone,
}

/// Where packets come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeviceChoice {
    /// Kernel sockets on these addresses.
    Kernel(Vec<SocketAddr>),
    /// An interface, and what to claim there.
    Interface(Link, Vec<ListenAddress>),
}

/// By which way the packets of an interface come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// AF_XDP on the interface of this name.
    Xdp(String),
    /// A port of DPDK. Its TAP interface is the interface.
    Dpdk(PortName, DpdkOptions),
}

impl Link {
    /// The kernel's interface.
    pub(crate) fn interface(&self) -> &str {
        match self {
            Link::Xdp(name) => name,
            Link::Dpdk(_, options) => &options.tap,
        }
    }
}

/// One zone to load.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ZoneSpec {
    /// Its file.
    pub(crate) file: PathBuf,
    /// Its origin, if the user named it.
    pub(crate) origin: Option<NameBuf>,
    /// Where its keys are, if it is to be signed.
    pub(crate) keys: Option<PathBuf>,
    /// Whether a key is made if there is none.
    pub(crate) makes_keys: bool,
    /// The key in a token that is its first one, or the next one of a roll-over.
    pub(crate) key_uri: Option<KeyUri>,
    /// The algorithm that its keys are to have; `None` if that of the keys that are there is right.
    pub(crate) algorithm: Option<Algorithm>,
    /// Whether the parent is to copy its name servers and their addresses.
    pub(crate) has_csync: bool,
    /// The servers of the parent, which are asked for its DS records.
    pub(crate) parent: Vec<SocketAddr>,
    /// What it is denied by then.
    pub(crate) denial: DenialBy,
    /// What lines have in it.
    pub(crate) lines: Vec<ZoneLine>,
}

impl ZoneSpec {
    /// A zone of this file, as whoever says no more wants it.
    pub(crate) fn of(file: PathBuf) -> ZoneSpec {
        ZoneSpec {
            file,
            origin: None,
            keys: None,
            makes_keys: true,
            key_uri: None,
            algorithm: None,
            has_csync: false,
            parent: Vec::new(),
            denial: DenialBy::default(),
            lines: Vec::new(),
        }
    }

    /// Its file, and those of lines in it.
    fn files(&self) -> impl Iterator<Item = &Path> {
        let of_lines = self.lines.iter().flat_map(|line| &line.files);
        [&self.file].into_iter().chain(of_lines).map(|file| &**file)
    }
}

/// Everything, resolved.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) zones: Vec<ZoneSpec>,
    /// Classes of clients.
    pub(crate) lines: LineSpecs,
    /// Names whose addresses are given by weight and health.
    pub(crate) pools: Arc<[PoolSpec]>,
    pub(crate) device: DeviceChoice,
    /// `None`: as many engines as the device has queues.
    pub(crate) cores: Option<Vec<usize>>,
    /// Who serves the queues.
    pub(crate) sharing: Sharing,
    pub(crate) spin: Duration,
    pub(crate) busy_poll: BusyPoll,
    pub(crate) xdp_mode: Option<XdpMode>,
    pub(crate) mss_clamp: Option<u16>,
    pub(crate) responder: ResponderKind,
    pub(crate) control: Option<PathBuf>,
    /// Whom root's server becomes, if the user named somebody.
    pub(crate) user: Option<String>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) transfers: Transfers,
    pub(crate) tcp: TcpLimits,
    /// Cookies and limits of rate.
    pub(crate) guard: GuardConfig,
    /// Where answers are noted.
    pub(crate) query_log: Option<QueryLogSpec>,
    /// Zones that have metrics of their own, at most.
    pub(crate) zone_metrics_max: usize,
    /// DNS over TLS, HTTPS and QUIC.
    pub(crate) encrypted: Option<dns_front::Options>,
    /// How long a stop waits for clients to acknowledge answers over TCP.
    pub(crate) tcp_linger: Duration,
    /// What root reads at the start, and a reload reads again as another user.
    read_again: Vec<PathBuf>,
}

/// Without a port: 53 as the standard says, and without privilege one that anybody may bind.
const DEVICE_PORT: u16 = 53;
const KERNEL_PORT: u16 = 5300;

impl Config {
    /// Reads the configuration file, if there is one, lets the command line override it, and checks everything.
    pub(crate) fn resolve(options: &Serve) -> anyhow::Result<Config> {
        let path = options.sources.config.as_deref();
        let (file, directory) = read_file(path)?;
        let read_again: Vec<PathBuf> =
            path.map(Path::to_owned).into_iter().chain(files_of(&file, &directory)).collect();
        let query_log = file.query_log.as_ref().map(|option| option.resolve(&directory)).transpose()?;
        let mut transfers = Transfers::resolve(&file, &directory)?;
        let device = options.device.clone().or(file.device).unwrap_or_else(|| "kernel".to_owned());
        let listen = if options.listen.is_empty() { &file.listen } else { &options.listen };
        let responder = options.responder.unwrap_or_default();
        let lines = LineSpecs::new(&file.lines, &file.geo, &directory)?;
        let mut zones = Vec::new();
        for table in &file.zones {
            // Of a thousand zones the message has to say which one.
            let of_zone = || format!("zone \"{}\"", table.file.display());
            let spec = zone_spec(table, &lines, &directory).with_context(of_zone)?;
            transfers.add_zone(&spec, table).with_context(of_zone)?;
            zones.push(spec);
        }
        for text in &options.sources.zones {
            zones.push(parse_zone(text)?);
        }
        if let Some(log) = query_log.as_ref().and_then(QueryLogSpec::file) {
            let of_zones = zones.iter().flat_map(ZoneSpec::files);
            let of_secondaries = transfers.secondaries.iter().filter_map(|spec| spec.file.as_deref());
            let others = lines.files().chain(read_again.iter().map(|file| &**file));
            secondary::refuse_query_log(log, of_zones.chain(of_secondaries).chain(others))?;
        }
        let is_written = |zone: &ZoneSpec| {
            zone.keys.is_some() || transfers.has_updates(zone) || journal::time(&zone.file).is_some()
        };
        secondary::refuse_shared_files(&transfers.secondaries, &zones, is_written)?;
        if let Some(etcd) = &transfers.etcd {
            let of_secondaries = transfers.secondaries.iter().filter_map(|spec| spec.file.as_deref());
            etcd.refuse_files_of_others(zones.iter().map(|spec| &*spec.file).chain(of_secondaries))?;
        }
        let has_others = !transfers.secondaries.is_empty() || transfers.etcd.is_some();
        if zones.is_empty() && !has_others && responder == ResponderKind::Dns {
            return Err(ConfigError::NoZone.into());
        }
        let spin_us = options.spin_us.or(file.spin_us).unwrap_or(20);
        let device = parse_device(&device, listen, dpdk_options(options, file.dpdk, &device)?)?;
        transfers.leave_from_served(&device);
        let sharing = Sharing::new(
            options.dispatchers.or(file.dispatchers),
            options.dispatcher_share.or(file.dispatcher_share),
            &device,
        )?;
        let cores = options.cores.as_ref().or(file.cores.as_ref());
        Ok(Config {
            read_again,
            zones,
            lines,
            pools: pools(&file.pools)?,
            device,
            sharing,
            cores: cores.map(|text| parse_cores(text)).transpose()?,
            spin: Duration::from_micros(in_range("spin-us", spin_us, 0, 1_000_000)?),
            busy_poll: options.busy_poll.or(file.busy_poll).unwrap_or_default(),
            xdp_mode: options.xdp_mode.or(file.xdp_mode),
            mss_clamp: file.mss_clamp.map(mss_clamp).transpose()?,
            responder,
            control: options.control.clone().or(file.control),
            user: options.user.clone().or(file.user),
            settings: Arc::new(settings(file.answers)?),
            transfers,
            tcp: tcp_limits(&file.tcp)?,
            guard: GuardConfig::new(&file.cookies, &file.rate, &directory)?,
            query_log,
            zone_metrics_max: zone_metrics_max(file.zone_metrics_max)?,
            encrypted: file.encrypted.as_ref().map(|table| encrypted(table, &directory)).transpose()?,
            tcp_linger: Duration::from_secs(in_range("tcp.linger-s", file.tcp.linger_s.unwrap_or(3), 0, 60)?),
        })
    }
}

impl Config {
    /// What is allowed, and rarely meant: what it is about, and what it is. To be asked for by the user that the server runs as.
    pub(crate) fn warnings(&self) -> Vec<(&'static str, String)> {
        let exposed = |path: &PathBuf| {
            let what = format!("{}: everybody on this host may read this secret: chmod o-r", path.display());
            ("secret", what)
        };
        let denied = self.read_again.iter().filter_map(|path| privileges::denial(path));
        self.transfers.exposed.iter().map(exposed).chain(denied.map(|what| ("user", what))).collect()
    }

    /// The port of a server of this configuration, for who names its address alone.
    pub(crate) fn port(&self) -> u16 {
        match &self.device {
            DeviceChoice::Kernel(addresses) => addresses.first().map_or(KERNEL_PORT, SocketAddr::port),
            DeviceChoice::Interface(_, listens) => listens.first().map_or(DEVICE_PORT, |listen| listen.port),
        }
    }
}

fn read_file(path: Option<&Path>) -> anyhow::Result<(ConfigFile, PathBuf)> {
    let Some(path) = path else { return Ok((ConfigFile::default(), PathBuf::new())) };
    let text = std::fs::read_to_string(path).map_err(explain_denial);
    let text = text.with_context(|| format!("reading {}", path.display()))?;
    let in_file = || format!("in {}{}", path.display(), hint(&text, path));
    let file = toml::from_str(&text).with_context(in_file)?;
    Ok((file, path.parent().unwrap_or(Path::new("")).to_owned()))
}

/// What the author of a file that cannot be read may have meant.
fn hint(text: &str, path: &Path) -> String {
    let line_with = |is_meant: &dyn Fn(&str) -> bool| text.lines().map(str::trim).find(|line| is_meant(line));
    let is_of_bind =
        |line: &str| (line.starts_with("zone \"") || line.starts_with("options")) && line.contains('{');
    let is_single = |line: &str| ["[zone]", "[secondary]", "[key]", "[line]", "[pool]"].contains(&line);
    if line_with(&is_of_bind).is_some() {
        return format!(
            ", which looks like a file of BIND (sidestep dns import bind {} prints ours)",
            path.display()
        );
    }
    line_with(&is_single).map_or_else(String::new, |table| format!(", where {table} has to be [{table}]"))
}

/// Files that the configuration names, and that are read with it.
fn files_of(file: &ConfigFile, directory: &Path) -> Vec<PathBuf> {
    let secrets = file.keys.iter().filter_map(|key| key.secret_file.as_ref());
    let encrypted = file.encrypted.iter().flat_map(|table| [&table.certificate, &table.key]);
    let all = secrets.chain(&file.cookies.secrets_file).chain(encrypted);
    all.map(|file| directory.join(file)).collect()
}

/// What the command line says of DPDK, else the file, else the defaults. On the command line these options are for a port only; a file may
/// keep its table while another device is tried.
fn dpdk_options(options: &Serve, file: DpdkTable, device: &str) -> Result<DpdkOptions, ConfigError> {
    let defaults = DpdkOptions::default();
    let given = Some(&options.eal_args).filter(|arguments| !arguments.is_empty()).cloned();
    let named = [("--tap", options.tap.is_some()), ("--eal-args", given.is_some())];
    if let Some((option, _)) = named.into_iter().find(|(_, given)| *given && !device.starts_with("dpdk:")) {
        return Err(ConfigError::NoPort { option, device: device.to_owned() });
    }
    Ok(DpdkOptions {
        tap: options.tap.clone().or(file.tap).unwrap_or(defaults.tap),
        eal_arguments: given.unwrap_or(file.eal_args),
        ..defaults
    })
}

fn parse_device(device: &str, listen: &[String], dpdk: DpdkOptions) -> anyhow::Result<DeviceChoice> {
    if device != "kernel" {
        let any = [ListenAddress { address: None, port: DEVICE_PORT }];
        let named = listen.iter().map(|text| {
            let address = parse_listen(text, DEVICE_PORT)?;
            Ok(ListenAddress { address: Some(address.ip()), port: address.port() })
        });
        let listens: Vec<_> = named.collect::<Result<_, ConfigError>>()?;
        let listens = if listens.is_empty() { any.to_vec() } else { listens };
        let link = match device.strip_prefix("dpdk:") {
            Some(port) => Link::Dpdk(port.parse().context("device")?, dpdk),
            None => Link::Xdp(control::kernel_name(device)),
        };
        return Ok(DeviceChoice::Interface(link, listens));
    }
    let addresses: Vec<_> =
        listen.iter().map(|text| parse_listen(text, KERNEL_PORT)).collect::<Result<_, _>>()?;
    if !addresses.is_empty() {
        return Ok(DeviceChoice::Kernel(addresses));
    }
    Ok(DeviceChoice::Kernel(this_host(KERNEL_PORT)))
}

/// A port of this host, at those of its two addresses that there are: a host may be without IPv6. Both if it seems to have none, so that an error names them.
pub(crate) fn this_host(port: u16) -> Vec<SocketAddr> {
    let both = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    let is_absent = |error: &std::io::Error| {
        let errno = Errno::from_io_error(error);
        matches!(errno, Some(Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT))
    };
    let has = |address: &IpAddr| !UdpSocket::bind((*address, 0)).is_err_and(|error| is_absent(&error));
    let (there, absent): (Vec<IpAddr>, Vec<IpAddr>) = both.into_iter().partition(has);
    let addresses = if there.is_empty() { absent } else { there };
    addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect()
}

/// An address to serve.
pub(crate) fn parse_listen(text: &str, port: u16) -> Result<SocketAddr, ConfigError> {
    parse_address("listen", text, port)
}

/// `192.0.2.1`, `192.0.2.1:53`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:53`.
pub(crate) fn parse_address(option: &'static str, text: &str, port: u16) -> Result<SocketAddr, ConfigError> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().map(|address: IpAddr| SocketAddr::new(address, port));
    address.or_else(|_| text.parse()).map_err(|_| ConfigError::Form {
        option,
        value: text.to_owned(),
        expected: "an address with or without a port, such as 192.0.2.1, 192.0.2.1:53 or [2001:db8::1]:53",
    })
}

fn zone_metrics_max(value: Option<u64>) -> Result<usize, ConfigError> {
    Ok(in_range("zone-metrics-max", value.unwrap_or(100), 0, 10_000)? as usize)
}

/// Whether a zone has options that only signing makes sense of.
fn is_about_signing(table: &ZoneTable) -> bool {
    table.nsec3 == Some(true)
        || table.denial.is_some()
        || table.csync
        || table.new_keys.is_some()
        || table.algorithm.is_some()
        || table.key_uri.is_some()
        || !table.parent.is_empty()
}

fn parse_algorithm(text: &str) -> Result<Algorithm, ConfigError> {
    Algorithm::of_name(text).ok_or_else(|| ConfigError::Form {
        option: "algorithm",
        value: text.to_owned(),
        expected: "ECDSAP256SHA256, ECDSAP384SHA384 or ED25519",
    })
}

/// How a zone that is signed is denied.
fn denial(table: &ZoneTable) -> Result<DenialBy, ConfigError> {
    let (name, denial) = match table.denial.as_deref() {
        None if table.nsec3 == Some(true) => return Ok(DenialBy::Nsec3),
        None => return Ok(DenialBy::Nsec),
        Some("nsec") => ("nsec", DenialBy::Nsec),
        Some("nsec3") => ("nsec3", DenialBy::Nsec3),
        Some("compact") => ("compact", DenialBy::Compact),
        Some(other) => {
            let (option, value) = ("denial", other.to_owned());
            return Err(ConfigError::Form { option, value, expected: "nsec, nsec3 or compact" });
        }
    };
    match table.nsec3 {
        Some(nsec3) if nsec3 != (denial == DenialBy::Nsec3) => {
            Err(ConfigError::TwoDenials { denial: name, nsec3 })
        }
        _ if denial == DenialBy::Compact => check_compact(table).map(|()| denial),
        _ => Ok(denial),
    }
}

/// RFC 9824: who answers signs.
fn check_compact(table: &ZoneTable) -> Result<(), ConfigError> {
    let is_some = |list: &Option<Vec<String>>| list.as_ref().is_some_and(|list| !list.is_empty());
    match () {
        () if table.key_uri.is_some() => Err(ConfigError::CompactToken),
        () if is_some(&table.allow_transfer) => Err(ConfigError::CompactTransfer("allow-transfer")),
        () if is_some(&table.notify) => Err(ConfigError::CompactTransfer("notify")),
        () => Ok(()),
    }
}

/// What a table says of a zone, apart from its transfers.
fn zone_spec(table: &ZoneTable, lines: &LineSpecs, directory: &Path) -> Result<ZoneSpec, ConfigError> {
    let file = directory.join(&table.file);
    let algorithm = table.algorithm.as_deref().map(parse_algorithm).transpose()?;
    let key_uri = table.key_uri.as_deref().map(KeyUri::parse).transpose().map_err(ConfigError::KeyUri)?;
    if algorithm.is_some() && key_uri.is_some() {
        return Err(ConfigError::AlgorithmOfToken);
    }
    Ok(ZoneSpec {
        origin: table.origin.as_deref().map(parse_origin).transpose()?,
        keys: keys_directory(table, &file, directory)?,
        makes_keys: table.new_keys.unwrap_or(true),
        key_uri,
        algorithm,
        has_csync: table.csync,
        parent: servers_of_parent(&table.parent)?,
        denial: denial(table)?,
        lines: lines.of_zone(table, directory)?,
        file,
    })
}

/// The servers of a zone's parent.
fn servers_of_parent(texts: &[String]) -> Result<Vec<SocketAddr>, ConfigError> {
    const OPTION: &str = "parent";
    in_range(OPTION, texts.len() as u64, 0, 16)?;
    let mut servers = Vec::new();
    for text in texts {
        let server = parse_address(OPTION, text, DEVICE_PORT)?;
        if !servers.contains(&server) {
            servers.push(server);
        }
    }
    Ok(servers)
}

/// Where the keys of a zone are, if it is to be signed: beside its file, unless the user says otherwise.
fn keys_directory(table: &ZoneTable, file: &Path, directory: &Path) -> Result<Option<PathBuf>, ConfigError> {
    let beside = || file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (table.dnssec, &table.keys) {
        (false, None) if !is_about_signing(table) => Ok(None),
        (false, _) => Err(ConfigError::KeysUnused),
        (true, keys) => {
            Ok(Some(keys.as_ref().map_or_else(|| beside().to_owned(), |keys| directory.join(keys))))
        }
    }
}

/// `[ORIGIN=]FILE`. A file whose name has a `=` needs its origin, or `./` in front.
fn parse_zone(text: &str) -> Result<ZoneSpec, ConfigError> {
    match text.split_once('=') {
        Some((origin, file)) if !origin.contains('/') => {
            Ok(ZoneSpec { origin: Some(parse_origin(origin)?), ..ZoneSpec::of(file.into()) })
        }
        _ => Ok(ZoneSpec::of(text.into())),
    }
}

pub(super) fn parse_origin(text: &str) -> Result<NameBuf, ConfigError> {
    parse_domain("zone", text)
}

/// A domain name, which may lack the dot at its end.
pub(crate) fn parse_domain(option: &'static str, text: &str) -> Result<NameBuf, ConfigError> {
    let root = NameBuf::root();
    NameBuf::from_text(text.as_bytes(), Some(root.as_name())).map_err(|_| ConfigError::Form {
        option,
        value: text.to_owned(),
        expected: "a domain name",
    })
}

/// `0-3,6` as numbers, each once, in the order written.
fn parse_cores(text: &str) -> Result<Vec<usize>, ConfigError> {
    let form = || ConfigError::Form {
        option: "cores",
        value: text.to_owned(),
        expected: "a list of cores such as 0-3,6",
    };
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.trim().parse().map_err(|_| form())?;
        let last: usize = last.trim().parse().map_err(|_| form())?;
        if first > last || last >= rustix::thread::CpuSet::MAX_CPU {
            return Err(form());
        }
        cores.extend(first..=last);
    }
    let available = available_cores();
    if let Some(&core) = cores.iter().find(|core| !available.contains(core)) {
        let available = available.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        return Err(ConfigError::NoCore { core, available });
    }
    let mut seen = std::collections::BTreeSet::new();
    cores.retain(|core| seen.insert(*core));
    Ok(cores)
}

/// The cores that this process may use.
pub(crate) fn available_cores() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).unwrap_or_default();
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect()
}

fn settings(answers: AnswersTable) -> Result<Settings, ConfigError> {
    let payload = answers.udp_payload_max.unwrap_or(1232);
    in_range("answers.udp-payload-max", payload.into(), 512, 4096)?;
    let signing = answers.online_signing_percent.unwrap_or(Settings::default().online_signing_percent);
    in_range("answers.online-signing-percent", signing.into(), 1, 50)?;
    let text = |option, text: Option<String>, otherwise: Option<String>| match text.or(otherwise) {
        Some(text) if text.len() > 255 => Err(ConfigError::TooLong { option, len: text.len(), max: 255 }),
        text => Ok(text.filter(|text| !text.is_empty())),
    };
    let version = concat!("sidestep ", env!("CARGO_PKG_VERSION")).to_owned();
    Ok(Settings {
        udp_payload_max: payload,
        rotate: answers.rotate.unwrap_or(false),
        version: text("answers.version", answers.version, Some(version))?,
        // Naming the host tells strangers about the inside; so it takes a decision.
        hostname: text("answers.hostname", answers.hostname, None)?,
        nsid: text("answers.nsid", answers.nsid, None)?.map(String::into_bytes),
        online_signing_percent: signing,
    })
}

pub(crate) fn tcp_limits(tcp: &TcpTable) -> Result<TcpLimits, ConfigError> {
    let idle = in_range("tcp.idle-timeout-s", tcp.idle_timeout_s.unwrap_or(10), 1, 3600)?;
    let connections = tcp.connections_max.unwrap_or(1024);
    in_range("tcp.connections-max", connections as u64, 1, 1_000_000)?;
    let per_client = tcp.connections_per_client_max.unwrap_or(128);
    in_range("tcp.connections-per-client-max", per_client as u64, 1, 1_000_000)?;
    Ok(TcpLimits {
        idle_timeout: Duration::from_secs(idle),
        connections_max: connections,
        connections_per_client_max: per_client,
    })
}

/// Octets that a segment may have at least and at most: what Linux takes for `TCP_MAXSEG`, and what an option of a SYN can say.
fn mss_clamp(octets: u64) -> Result<u16, ConfigError> {
    Ok(in_range("mss-clamp", octets, 88, u16::MAX.into())? as u16) // In range.
}

pub(crate) fn in_range(option: &'static str, value: u64, min: u64, max: u64) -> Result<u64, ConfigError> {
    if (min..=max).contains(&value) { Ok(value) } else { Err(ConfigError::Range { option, value, min, max }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &[&str]) -> Serve {
        use clap::Parser;
        #[derive(Parser)]
        struct Only {
            #[command(flatten)]
            serve: Serve,
        }
        Only::parse_from(std::iter::once("serve").chain(words.iter().copied())).serve
    }

    fn error(words: &[&str]) -> String {
        Config::resolve(&options(words)).unwrap_err().to_string()
    }

    /// What `config` warns of on a thread that may read nothing that is not everybody's.
    fn warnings_of_another_user(config: &Config) -> Vec<(&'static str, String)> {
        let become_other = || {
            let nobody = rustix::process::Uid::from_raw(65_534);
            if rustix::process::geteuid().is_root() {
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap(); // Of this thread alone.
            }
            config.warnings()
        };
        std::thread::scope(|scope| scope.spawn(become_other).join().unwrap())
    }

    #[test]
    fn files_that_a_reload_could_not_read_any_more_are_named_with_the_user() {
        use std::fs::{Permissions, set_permissions};
        use std::os::unix::fs::PermissionsExt;
        let directory = std::env::temp_dir().join(format!("sidestep-denied-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let text = "[[key]]\nname = \"k\"\nsecret-file = \"secret\"\n[[zone]]\nfile = \"a.zone\"\n[cookies]\nsecrets-file = \"cookies\"\n\
                    [encrypted]\ncertificate = \"pem\"\nkey = \"key\"\ntls = [\"127.0.0.1\"]\n";
        let cookies = "00112233445566778899aabbccddeeff";
        let files =
            [("dns.toml", text), ("secret", "c2VjcmV0"), ("cookies", cookies), ("pem", ""), ("key", "")];
        let set =
            |name: &str, mode| set_permissions(directory.join(name), Permissions::from_mode(mode)).unwrap();
        for (name, content) in files {
            std::fs::write(directory.join(name), content).unwrap();
            set(name, 0o640);
        }
        let config = Config::resolve(&options(&["--config", directory.join("dns.toml").to_str().unwrap()]));
        let config = config.unwrap();
        assert_eq!(config.warnings(), []);
        files.iter().for_each(|(name, _)| set(name, 0));
        let warnings = warnings_of_another_user(&config);
        for ((name, _), (place, what)) in files.iter().zip(&warnings) {
            let path = directory.join(name).display().to_string();
            assert!(*place == "user" && what.starts_with(&format!("{path}: user ")), "{what}");
            assert!(what.contains("is not allowed to read it") && what.contains("chmod 640"), "{what}");
        }
        assert_eq!(warnings.len(), files.len());
        set("", 0o600);
        let warnings = warnings_of_another_user(&config);
        let enter = format!("is not allowed to enter {}, ", directory.display());
        assert!(
            warnings.iter().all(|(_, what)| what.contains(&enter) && what.contains("chmod 750")),
            "{warnings:?}"
        );
        set("", 0o700);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn without_a_device_loopback_is_served_on_port_5300() {
        let config = Config::resolve(&options(&["--zone", "a.zone"])).unwrap();
        let addresses = ["127.0.0.1:5300".parse().unwrap(), "[::1]:5300".parse().unwrap()];
        assert_eq!(config.device, DeviceChoice::Kernel(addresses.to_vec()));
    }

    #[test]
    fn with_a_device_port_53_of_every_address_is_served() {
        let config = Config::resolve(&options(&["--zone", "a.zone", "--device", "eth0"])).unwrap();
        let any = ListenAddress { address: None, port: 53 };
        assert_eq!(config.device, DeviceChoice::Interface(Link::Xdp("eth0".into()), vec![any]));
    }

    #[test]
    fn a_port_of_dpdk_is_named_as_eal_names_it() {
        let memif = "dpdk:net_memif0,role=client";
        let words = ["--zone", "a.zone", "--device", memif, "--tap", "dns0", "--eal-args=-n 1 --no-huge"];
        let DeviceChoice::Interface(link, _) = Config::resolve(&options(&words)).unwrap().device else {
            panic!("a port has an interface")
        };
        assert_eq!(link.interface(), "dns0");
        let Link::Dpdk(port, options) = link else { panic!("{link:?}") };
        assert_eq!(port.to_string(), "net_memif0,role=client");
        assert_eq!(options.eal_arguments, ["-n", "1", "--no-huge"]);
        assert!(error(&["--zone", "a.zone", "--device", "dpdk:"]).contains("device"));
        for words in [["--tap", "dns0"], ["--eal-args", "--no-huge"]] {
            let words = [&["--zone", "a.zone", "--device", "eth0"][..], &words].concat();
            assert!(error(&words).contains("is for a port of DPDK"), "{words:?}");
        }
    }

    #[test]
    fn with_a_device_an_unspecified_address_stays_one_of_its_family() {
        let words = ["--zone", "a.zone", "--device", "eth0", "--listen", "0.0.0.0", "--listen", "[::]:54"];
        let listens = [("0.0.0.0", 53), ("::", 54)]
            .map(|(address, port)| ListenAddress { address: Some(address.parse().unwrap()), port });
        let config = Config::resolve(&options(&words)).unwrap();
        assert_eq!(config.device, DeviceChoice::Interface(Link::Xdp("eth0".into()), listens.to_vec()));
    }

    #[test]
    fn addresses_are_taken_with_and_without_brackets_and_ports() {
        let spelled = [
            ("192.0.2.1", "192.0.2.1:53"),
            ("192.0.2.1:54", "192.0.2.1:54"),
            ("2001:db8::1", "[2001:db8::1]:53"),
            ("[2001:db8::1]", "[2001:db8::1]:53"),
            ("[2001:db8::1]:54", "[2001:db8::1]:54"),
        ];
        for (text, meant) in spelled {
            assert_eq!(parse_listen(text, 53).unwrap(), meant.parse().unwrap());
        }
    }

    #[test]
    fn errors_name_the_option_the_value_and_what_was_expected() {
        assert_eq!(
            error(&["--zone", "a", "--spin-us", "2000000"]),
            "spin-us: 2000000 is out of range, expected 0 to 1000000"
        );
        assert!(error(&["--zone", "a", "--listen", "x"]).starts_with("listen: \"x\" is not an address"));
        assert!(error(&["--zone", "a", "--cores", "1-"]).starts_with("cores: \"1-\" is not a list"));
        assert!(error(&["--zone", "a", "--cores", "1000"]).starts_with("cores: core 1000 is not available"));
        assert!(error(&["--zone", "a..b=f"]).starts_with("zone: \"a..b\" is not a domain name"));
        assert!(error(&[]).starts_with("no zone to serve"));
    }

    #[test]
    fn a_zone_may_name_its_origin() {
        let spec = parse_zone("example.com=db/ex=1.zone").unwrap();
        assert_eq!(spec.origin.unwrap().to_string(), "example.com.");
        assert_eq!(parse_zone("./a=b.zone").unwrap().file, PathBuf::from("./a=b.zone"));
    }

    #[test]
    fn the_largest_segment_has_a_range() {
        assert_eq!(mss_clamp(1300).unwrap(), 1300);
        assert_eq!(
            mss_clamp(87).unwrap_err().to_string(),
            "mss-clamp: 87 is out of range, expected 88 to 65535"
        );
        let file: ConfigFile = toml::from_str("mss-clamp = 1300\n").unwrap();
        assert_eq!(file.mss_clamp, Some(1300));
    }

    #[test]
    fn the_message_about_a_file_says_what_its_author_may_have_meant() {
        let said = |text| hint(text, Path::new("named.conf"));
        let of_bind = ", which looks like a file of BIND (sidestep dns import bind named.conf prints ours)";
        assert_eq!(said("// ours\noptions {\n"), of_bind);
        assert_eq!(said(" zone \"a\" { type primary; };\n"), of_bind);
        assert_eq!(said("listen = []\n[zone]\nfile = \"a\"\n"), ", where [zone] has to be [[zone]]");
        assert_eq!(said("[[zone]]\nlines = { a = \"b\" }\n"), "");
    }

    #[test]
    fn unknown_options_in_the_file_are_errors_with_their_place() {
        let error = toml::from_str::<ConfigFile>("liste = [\"192.0.2.1\"]\n").unwrap_err().to_string();
        assert!(error.contains("line 1") && error.contains("liste"), "{error}");
    }
}
