//! The command line.

use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use clock::Duration;
use dns_client::Trust;
use dns_wire::Rtype;
use gun::flights::PORTS_MAX;
use gun::questions::Manner;
use gun::{Datagrams, Order, Questions};
use ipnet::IpNet;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;

use crate::port::PortOptions;

/// Questions a second at most.
const RATE_MAX: f64 = 100e6;

/// Octets of the longest datagram that an MTU of 1500 takes behind an IPv6 header.
const DATAGRAM_MAX: usize = 1452;
/// Octets of a file of names at most: tens of millions of them.
const NAMES_MAX: usize = 1 << 30;

/// Octets of a file of certificates at most: ten times what a system trusts.
const CERTIFICATES_MAX: usize = 1 << 22;

/// For how long, and whether the rate is searched.
#[derive(Args, Clone, Debug)]
pub(crate) struct Search {
    /// How long to send.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    pub(crate) duration: Duration,

    /// Search the largest rate of which the server answers 98 %.
    #[arg(long)]
    pub(crate) find_knee: bool,

    /// How long each step of the search takes; longer, up to 10 s, if it has less than 1000 questions.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = time)]
    pub(crate) step: Duration,

    /// In the search, an answer that takes longer from when its question was due counts as none.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = time)]
    within: Duration,
}

impl Search {
    /// What an answer may take to count.
    pub(crate) fn within(&self) -> Duration {
        if self.find_knee { self.within } else { Duration::MAX }
    }
}

/// What a source holds. It may have no end, as devices and pipes.
fn at_most(source: impl Read, most: usize) -> anyhow::Result<Vec<u8>> {
    let mut octets = Vec::new();
    source.take(most as u64 + 1).read_to_end(&mut octets)?;
    ensure!(octets.len() <= most, "there are more than {most} octets");
    Ok(octets)
}

/// The same of a file.
pub(crate) fn read_at_most(path: &Path, most: usize) -> anyhow::Result<Vec<u8>> {
    at_most(File::open(path)?, most)
}

/// Where reports go, and whether the server may be loaded.
#[derive(Args, Clone, Debug)]
pub(crate) struct Reports {
    /// Write the report as JSON. `-` is stdout.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Write the report as a page that needs nothing else.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// The server is yours, though its address is a public one.
    #[arg(long)]
    pub(crate) yes_i_own_it: bool,
}

impl Reports {
    /// Where they go.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        [&self.json, &self.html].into_iter().flatten().map(PathBuf::as_path)
    }

    /// Whether they can be written, before hours of a search are lost. What is there stays until then.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if self.files().filter(|path| *path == Path::new("-")).count() > 1 {
            anyhow::bail!("--json and --html cannot both go to standard output");
        }
        let mut known = None;
        // Who reads a pipe would have its end as soon as it is opened here and closed.
        let is_pipe = |path: &Path| path.metadata().is_ok_and(|it| it.file_type().is_fifo());
        for path in self.files().filter(|path| *path != Path::new("-") && !is_pipe(path)) {
            let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
            let metadata = opened.and_then(|file| file.metadata());
            let metadata = metadata.with_context(|| format!("writing {}", path.display()))?;
            let file = metadata.is_file().then(|| (metadata.dev(), metadata.ino()));
            if file.is_some() && file == known {
                anyhow::bail!("--json and --html cannot both go to {}: they are one file", path.display());
            }
            known = file;
        }
        Ok(())
    }
}

/// Where questions and datagrams come from.
#[derive(Args, Clone, Debug)]
pub(crate) struct Origin {
    /// Ports to ask from, which is connections where there are such: servers spread clients over their threads by them.
    #[arg(long, value_name = "COUNT", default_value = "64", value_parser = clap::value_parser!(u16).range(1..=PORTS_MAX as i64))]
    pub(crate) ports: u16,

    /// Ask from the addresses of this network, one for each port, in turn: so many clients the server sees. They have to be this host's, with --device
    /// the interface's; over UDP alone.
    #[arg(long, value_name = "PREFIX")]
    pub(crate) source: Option<IpNet>,

    /// Ask by AF_XDP on this interface, or by a port of DPDK, such as `dpdk:0000:03:00.0` or `dpdk:net_memif0,role=client`; both take root, and are
    /// for UDP alone. Without it, by kernel sockets.
    #[arg(long, value_name = "IF|dpdk:PORT")]
    pub(crate) device: Option<String>,

    #[command(flatten)]
    pub(crate) port: PortOptions,
}

/// Whose certificates are good.
#[derive(Args, Clone, Debug)]
pub(crate) struct Certificates {
    /// With TLS: trust the certificates of this file (PEM) alone, and those that they have signed [default: whom the system trusts].
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca: Option<PathBuf>,

    /// With TLS: take any certificate.
    #[arg(long)]
    insecure: bool,

    /// With TLS: the name that the certificate has to have [default: the server's as it was given].
    #[arg(long, value_name = "NAME", value_parser = server_name)]
    pub(crate) tls_host: Option<ServerName<'static>>,
}

impl Certificates {
    /// TLS for a protocol in ALPN's words.
    pub(crate) fn config(&self, protocol: &[u8]) -> anyhow::Result<Arc<ClientConfig>> {
        let trust = match &self.ca {
            Some(path) => {
                // It may be a device, which has no end.
                read_at_most(path, CERTIFICATES_MAX).with_context(|| path.display().to_string())?;
                Trust::File(path.clone())
            }
            None if self.insecure => Trust::Anybody,
            None => Trust::System,
        };
        let mut config = trust.config(protocol)?;
        config.resumption = Resumption::disabled(); // A connection is to cost what it costs a new client.
        Ok(Arc::new(config))
    }
}

/// What carries questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    Udp,
    Tcp,
    /// DNS over TLS.
    Tls,
    /// DNS over HTTPS.
    Https,
    /// DNS over QUIC.
    Quic,
}

impl Transport {
    fn default_port(self) -> u16 {
        match self {
            Transport::Udp | Transport::Tcp => 53,
            Transport::Tls | Transport::Quic => 853,
            Transport::Https => 443,
        }
    }
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Dns {
    /// Where to: an address, with a port if that is not 53 (TLS and QUIC: 853, HTTPS: 443).
    #[arg(value_name = "SERVER", value_parser = server)]
    server: SocketAddr,

    /// What carries the questions.
    #[arg(long, value_enum, value_name = "PROTOCOL", default_value = "udp")]
    pub(crate) transport: Transport,

    /// What to ask: a file with a name and a type in each line, as dnsperf reads it. `-` is stdin.
    #[arg(long, value_name = "FILE", conflicts_with = "name")]
    names: Option<PathBuf>,

    /// What to ask: a name. `{random}` in it stands for twelve letters and digits that are others each time, `{0-9999}` for each of these numbers.
    #[arg(long, value_name = "NAME", default_value = "example.org")]
    name: String,

    /// The type of what has none.
    #[arg(long = "type", value_name = "TYPE", default_value = "A", value_parser = rtype)]
    rtype: Rtype,

    /// In which order to ask: `turn`, `random`, or `zipf`, `zipf=POWER`, the first ones most often.
    #[arg(long, value_name = "ORDER", default_value = "turn", value_parser = order)]
    order: Order,

    /// Questions a second: 1000, 250k, 1.5M. With --find-knee those to begin with.
    #[arg(long, value_name = "RATE", default_value = "1000", value_parser = rate)]
    pub(crate) rate: u32,

    #[command(flatten)]
    pub(crate) search: Search,

    /// How long to wait for an answer: later ones count as none.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
    pub(crate) timeout: Duration,

    #[command(flatten)]
    pub(crate) origin: Origin,

    /// Questions under way on one connection at most.
    #[arg(long, value_name = "COUNT", default_value = "64", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) pipeline: u16,

    /// With HTTPS: the path that questions are sent to.
    #[arg(long, value_name = "PATH", default_value = "/dns-query", value_parser = request_path)]
    pub(crate) path: String,

    #[command(flatten)]
    pub(crate) certificates: Certificates,

    /// Tell a network of this prefix as the client's (RFC 7871), another one with each question. May be given several times.
    #[arg(long = "subnet", value_name = "PREFIX")]
    subnets: Vec<IpNet>,

    /// Send this cookie with each question (RFC 7873), in hexadecimal digits: a client's of 8 octets, alone or with the server's of 8 to 32.
    /// What the server returns is not sent back.
    #[arg(long, value_name = "HEX", value_parser = cookie)]
    cookie: Option<Cookie>,

    /// Set DO: ask for signatures.
    #[arg(long)]
    dnssec: bool,

    /// Set RD: ask for recursion.
    #[arg(long)]
    recursion: bool,

    /// Take answers of so many octets (EDNS) [default: no EDNS; 1232 with --dnssec, --subnet or --cookie].
    #[arg(long, value_name = "OCTETS", value_parser = clap::value_parser!(u16).range(512..))]
    payload: Option<u16>,

    /// Repeat chance: the same seed asks the same questions in the same order [default: another one each time; the report has it].
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    #[command(flatten)]
    pub(crate) reports: Reports,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Udp {
    /// Where to: an address with a port.
    #[arg(value_name = "ADDR:PORT", value_parser = endpoint)]
    pub(crate) server: SocketAddr,

    /// Octets of each datagram. It has to come back as it is.
    #[arg(long, value_name = "OCTETS", default_value = "64", value_parser = clap::value_parser!(u16).range(Datagrams::LEAST as i64..=DATAGRAM_MAX as i64))]
    size: u16,

    /// Send the contents of this file instead, with an ID in place of its first two octets. The answer may be another one, and begins with the ID.
    #[arg(long, value_name = "FILE", conflicts_with = "size")]
    payload: Option<PathBuf>,

    /// Datagrams a second: 1000, 250k, 1.5M. With --find-knee those to begin with.
    #[arg(long, value_name = "RATE", default_value = "1000", value_parser = rate)]
    pub(crate) rate: u32,

    #[command(flatten)]
    pub(crate) search: Search,

    /// How long to wait for an answer: later ones count as none.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
    pub(crate) timeout: Duration,

    #[command(flatten)]
    pub(crate) origin: Origin,

    #[command(flatten)]
    pub(crate) reports: Reports,
}

impl Udp {
    pub(crate) fn datagrams(&self) -> anyhow::Result<Datagrams> {
        let Some(path) = &self.payload else {
            return Datagrams::echoed(self.size.into()).context("--size is too small");
        };
        let unfit = || format!("{} has not 2 to {DATAGRAM_MAX} octets, as a datagram", path.display());
        let octets = read_at_most(path, DATAGRAM_MAX).with_context(|| path.display().to_string())?;
        Datagrams::of(octets).with_context(unfit)
    }

    /// What is sent, for people.
    pub(crate) fn subject(&self) -> String {
        match &self.payload {
            Some(path) => path.display().to_string(),
            None => format!("{} octets", self.size),
        }
    }
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Http {
    /// What to ask for, such as http://192.0.2.1/index.html.
    #[arg(value_name = "URL")]
    pub(crate) url: String,

    /// Requests a second: 1000, 250k, 1.5M, whatever the server does. Without it, each connection sends the next request when it has an answer.
    /// With --find-knee those to begin with [default: 1000].
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) rate: Option<u32>,

    /// Connections.
    #[arg(long, short, value_name = "COUNT", default_value = "64", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) connections: u16,

    /// Open a connection for each request.
    #[arg(long)]
    pub(crate) close: bool,

    /// Requests under way on one connection at most.
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=1024), conflicts_with = "close")]
    pub(crate) pipeline: u16,

    /// Speak HTTP/2: with https by ALPN, with http by prior knowledge.
    #[arg(long)]
    pub(crate) http2: bool,

    /// Speak HTTP/3, over QUIC. The URL begins with https.
    #[arg(long, conflicts_with = "http2")]
    pub(crate) http3: bool,

    /// The method [default: GET; POST with a body].
    #[arg(long, short = 'X', value_name = "METHOD")]
    pub(crate) method: Option<String>,

    /// A file to send as the body, or so many octets: 100, 64k, 1M.
    #[arg(long, value_name = "FILE|SIZE")]
    pub(crate) body: Option<String>,

    /// A field of the request's head: "Name: value". Once for each field.
    #[arg(long = "header", short = 'H', value_name = "FIELD")]
    pub(crate) headers: Vec<String>,

    #[command(flatten)]
    pub(crate) search: Search,

    /// How long a request waits for a connection, and then for its answer.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time)]
    pub(crate) timeout: Duration,

    #[command(flatten)]
    pub(crate) certificates: Certificates,

    #[command(flatten)]
    pub(crate) reports: Reports,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Connect {
    /// Where to: an address with a port.
    #[arg(value_name = "ADDR:PORT", value_parser = endpoint)]
    pub(crate) server: SocketAddr,

    /// Connections to open.
    #[arg(long, short, value_name = "COUNT", default_value = "1000", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) connections: u32,

    /// Connections that are opened in a second.
    #[arg(long, value_name = "RATE", default_value = "1000", value_parser = rate)]
    pub(crate) rate: u32,

    /// How long to hold them once they are open.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    pub(crate) duration: Duration,

    /// How long to wait for a connection.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time)]
    pub(crate) timeout: Duration,

    #[command(flatten)]
    pub(crate) reports: Reports,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Compare {
    /// A report as JSON.
    #[arg(value_name = "FIRST")]
    pub(crate) first: PathBuf,

    /// Another one.
    #[arg(value_name = "SECOND")]
    pub(crate) second: PathBuf,

    /// Write both as a page that needs nothing else.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

impl Dns {
    /// The seed that was given, or a new one.
    pub(crate) fn seed(&self) -> u64 {
        // By the hash of nothing with the system's random keys. Half of it is enough, and short to type.
        let random = || std::hash::RandomState::new().build_hasher().finish() >> 32;
        self.seed.unwrap_or_else(random)
    }

    pub(crate) fn questions(&self, seed: u64) -> anyhow::Result<Questions> {
        let (text, origin) = match &self.names {
            None => (Ok(self.name.clone().into_bytes()), "--name".to_owned()),
            Some(path) if path.as_os_str() == "-" => {
                (at_most(std::io::stdin(), NAMES_MAX), "stdin".to_owned())
            }
            Some(path) => (read_at_most(path, NAMES_MAX), path.display().to_string()),
        };
        let text = text.and_then(|text| Ok(String::from_utf8(text)?)).with_context(|| origin.clone())?;
        let (payload, dnssec, recursion) = (self.payload, self.dnssec, self.recursion);
        let cookie = self.cookie.as_ref().map_or_else(Vec::new, |cookie| cookie.0.clone());
        let manner = Manner { payload, dnssec, recursion, subnets: self.subnets.clone(), cookie };
        let questions = Questions::read(&text, self.rtype).context(origin)?;
        Ok(questions.in_order(self.order, seed).in_manner(&manner))
    }

    /// What is asked, for people.
    pub(crate) fn subject(&self) -> String {
        match &self.names {
            Some(path) => path.display().to_string(),
            None => format!("{} {}", self.name, self.rtype),
        }
    }

    /// Octets of the longest answer that a server may send over UDP; 0 if it is not told.
    pub(crate) fn payload(&self) -> u16 {
        self.payload.unwrap_or(0)
    }

    pub(crate) fn server(&self) -> SocketAddr {
        let mut server = self.server;
        if server.port() == 0 {
            server.set_port(self.transport.default_port());
        }
        server
    }
}

fn request_path(text: &str) -> Result<String, String> {
    if text.starts_with('/') { Ok(text.to_owned()) } else { Err("a path begins with /".to_owned()) }
}

fn server_name(text: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(text.to_owned()).map_err(|_| "no name of a host".to_owned())
}

/// Port 0: none was given.
fn server(text: &str) -> Result<SocketAddr, String> {
    let numbered = with_zone_number(text)?;
    let bare = || text.parse().map(|ip: IpAddr| SocketAddr::new(ip, 0)).ok();
    let scoped = || format!("[{numbered}]:0").parse().ok();
    let with_port = || numbered.parse().ok().filter(|address: &SocketAddr| address.port() != 0);
    let address = bare().or_else(scoped).or_else(with_port);
    let address = address.ok_or("no address such as 192.0.2.1, 192.0.2.1:53 or [2001:db8::1]:53")?;
    with_zone(canonical(address))
}

/// An address with its port.
fn endpoint(text: &str) -> Result<SocketAddr, String> {
    let address = with_zone_number(text)?.parse().ok().filter(|address: &SocketAddr| address.port() != 0);
    with_zone(canonical(address.ok_or("no address with a port such as 192.0.2.1:7 or [2001:db8::1]:7")?))
}

/// The zone of a link-local address (RFC 4007) as a number, which addresses are read with: the interface's, if it was named.
fn with_zone_number(text: &str) -> Result<String, String> {
    let Some((address, behind)) = text.split_once('%') else { return Ok(text.to_owned()) };
    let (zone, rest) = behind.split_at(behind.find(']').unwrap_or(behind.len()));
    let index = zone.parse::<u32>().or_else(|_| {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None);
        let index = socket.and_then(|socket| name_to_index(socket, zone));
        index.map_err(|_| format!("there is no interface {zone}"))
    })?;
    Ok(format!("{address}%{index}{rest}"))
}

/// An address whose zone is given, if it needs one.
fn with_zone(address: SocketAddr) -> Result<SocketAddr, String> {
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0 => Err(format!(
            "a link-local address is one of an interface: add its name, as in [{}%eth0]:53",
            v6.ip()
        )),
        _ => Ok(address),
    }
}

/// An IPv4 address that is written as one of IPv6 is reached over IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

fn rtype(text: &str) -> Result<Rtype, String> {
    Rtype::from_text(text.as_bytes()).ok_or_else(|| "no type of records".to_owned())
}

/// A cookie of RFC 7873, section 4: 8 octets, or 16 to 40.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cookie(Vec<u8>);

fn cookie(text: &str) -> Result<Cookie, String> {
    let octet = |pair: &[u8]| Some((digit(pair[0])? << 4 | digit(*pair.get(1)?)?) as u8);
    let octets: Option<Vec<u8>> = text.as_bytes().chunks(2).map(octet).collect();
    match octets {
        Some(octets) if matches!(octets.len(), 8 | 16..=40) => Ok(Cookie(octets)),
        _ => Err("a cookie has 16 hexadecimal digits, or 32 to 80".to_owned()),
    }
}

fn digit(letter: u8) -> Option<u32> {
    char::from(letter).to_digit(16)
}

fn order(text: &str) -> Result<Order, String> {
    match text.split_once('=') {
        None if text == "turn" => Ok(Order::InTurn),
        None if text == "random" => Ok(Order::Random),
        None if text == "zipf" => Ok(Order::Zipf(1.0)),
        Some(("zipf", power)) => match power.parse() {
            Ok(power) if (0.0..=10.0).contains(&power) => Ok(Order::Zipf(power)),
            _ => Err("the power is a number from 0 to 10".to_owned()),
        },
        _ => Err("none of turn, random, zipf and zipf=POWER".to_owned()),
    }
}

fn rate(text: &str) -> Result<u32, String> {
    read_rate(text).map_err(|error| error.to_string())
}

fn read_rate(text: &str) -> anyhow::Result<u32> {
    let (number, factor) = match text.as_bytes().last() {
        Some(b'k') => (&text[..text.len() - 1], 1e3),
        Some(b'M') => (&text[..text.len() - 1], 1e6),
        _ => (text, 1.0),
    };
    let rate = number.parse::<f64>().context("no rate such as 1000, 250k or 1.5M")? * factor;
    if !(1.0..=RATE_MAX).contains(&rate) {
        bail!("a rate is 1 to 100M questions a second");
    }
    Ok(rate as u32)
}

fn time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let nanos = u64::try_from(time.as_nanos()).map_err(|_| "that is too long".to_owned())?;
    if nanos == 0 { Err("a time above zero".to_owned()) } else { Ok(Duration::from_nanos(nanos)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_judged_while_it_is_read() {
        assert_eq!(at_most(&b"12345"[..], 5).unwrap(), b"12345");
        let mut source = std::io::repeat(b'x').take(1 << 20);
        let error = at_most(&mut source, 5).unwrap_err().to_string();
        assert_eq!((&error[..], source.limit()), ("there are more than 5 octets", (1 << 20) - 6));
    }

    #[test]
    fn both_reports_do_not_go_to_one_file() {
        let directory = std::env::temp_dir().join(format!("sidestep-reports-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let check = |json: &Path, html: &Path| {
            Reports { json: Some(json.to_owned()), html: Some(html.to_owned()), yes_i_own_it: false }.check()
        };
        let (report, page) = (directory.join("report"), directory.join("page"));
        assert!(check(&report, &page).is_ok());
        let error = check(&report, &directory.join("./report")).unwrap_err().to_string();
        assert!(error.starts_with("--json and --html cannot both go to "), "{error}");
        let nowhere = Path::new("/dev/null");
        assert!(check(nowhere, nowhere).is_ok(), "nothing is lost there that was wanted");
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn rates_have_suffixes_and_bounds() {
        assert_eq!(
            ["1", "250k", "1.5M", "100M"].map(|text| rate(text).unwrap()),
            [1, 250_000, 1_500_000, 100_000_000]
        );
        for text in ["", "k", "0", "-5", "101M", "many", "nan", "1K"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn servers_have_a_port_or_not() {
        let read = |text| server(text).unwrap().to_string();
        assert_eq!(read("192.0.2.1"), "192.0.2.1:0");
        assert_eq!(read("2001:db8::1"), "[2001:db8::1]:0");
        assert_eq!(read("192.0.2.1:5300"), "192.0.2.1:5300");
        assert_eq!(
            (read("fe80::1%3"), read("[fe80::1%3]:53")),
            ("[fe80::1%3]:0".into(), "[fe80::1%3]:53".into())
        );
        assert_eq!(
            (read("::ffff:192.0.2.1"), read("[::ffff:192.0.2.1]:53")),
            ("192.0.2.1:0".into(), "192.0.2.1:53".into())
        );
        assert_eq!(read("fe80::1%lo"), "[fe80::1%1]:0");
        assert_eq!(endpoint("[fe80::1%lo]:7").unwrap().to_string(), "[fe80::1%1]:7");
        let error = endpoint("[fe80::1%no-such-if]:7").unwrap_err();
        assert_eq!(error, "there is no interface no-such-if");
        for text in ["fe80::1", "[fe80::1]:53"] {
            assert!(server(text).unwrap_err().ends_with("as in [fe80::1%eth0]:53"), "{text}");
        }
        assert!(["ns1.example", "192.0.2.1:0", "[2001:db8::1]:0"].map(server).iter().all(Result::is_err));
        assert!(["192.0.2.1", "192.0.2.1:0"].map(endpoint).iter().all(Result::is_err));
    }

    #[test]
    fn cookies_have_the_lengths_of_rfc_7873() {
        assert_eq!(cookie("0102030405060aFF"), Ok(Cookie(vec![1, 2, 3, 4, 5, 6, 10, 255])));
        for octets in [8, 16, 24, 40] {
            assert_eq!(cookie(&"5a".repeat(octets)), Ok(Cookie(vec![0x5a; octets])));
        }
        for text in ["", "010203040506070", "010203040506070g", "01020304050607é"] {
            assert!(cookie(text).is_err(), "{text}");
        }
        assert!([7, 9, 15, 41].into_iter().all(|octets| cookie(&"5a".repeat(octets)).is_err()));
    }

    #[test]
    fn a_path_begins_with_a_slash() {
        assert_eq!(request_path("/dns-query").as_deref(), Ok("/dns-query"));
        assert!(["", "dns-query"].into_iter().all(|text| request_path(text).is_err()));
    }

    #[test]
    fn orders_are_named() {
        assert_eq!(order("zipf=1.2"), Ok(Order::Zipf(1.2)));
        assert!(["", "sorted", "zipf=x", "zipf=-1", "turn=1"].into_iter().all(|text| order(text).is_err()));
    }
}
