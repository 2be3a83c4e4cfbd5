//! The options that `probe` and `watch` share, and what they lead to.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail, ensure};
use clap::Args;
use dns_audit::plan::{self, Given};
use dns_audit::probes::{self, Probe};
use dns_client::{Transport, Trust};
use dns_guard::{NETWORK_FORM, Network, Networks};
use dns_wire::NameBuf;

use super::authority::checked_zone;
use super::exchange::{Askers, Ports};
use super::mmdb::Mmdb;
use crate::dns::config::{parse_address, parse_domain};
use crate::output;

/// Resolvers, the audit zone, and how hard to ask.
#[derive(Args, Clone, Debug)]
pub(super) struct Probing {
    /// Resolvers: addresses, with or without a port (default 53), and behind a # the name in their certificates.
    #[arg(value_name = "RESOLVER")]
    resolvers: Vec<String>,

    /// File with resolvers, one a line; # at the start of a line, or behind a space, begins a comment.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// The audit zone.
    #[arg(long, value_name = "NAME")]
    zone: String,

    /// Address of one of the audit zone's servers, with or without a port (default 53); of several the first one that answers is used.
    /// Without it their clock is read by way of each resolver, and what needs their log is unknown.
    #[arg(long = "authority", value_name = "ADDR[:PORT]")]
    authorities: Vec<String>,

    /// Run all probes: the default. Overrides --only.
    #[arg(long)]
    all: bool,

    /// Probes to run: stale, flush, ttl, who, selection, identity, integrity, latency.
    #[arg(long, value_name = "PROBE", value_delimiter = ',')]
    only: Vec<String>,

    /// Questions a second to one resolver at most.
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rate: u32,

    /// Questions a second to all resolvers at most: so many are audited at a time as this allows.
    #[arg(long, value_name = "COUNT", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    total_rate: u32,

    /// Run all probes of a resolver at the same time, which is faster and blurs times: give a rate of 100 or more.
    #[arg(long)]
    together: bool,

    /// Seconds that the names of the probes of time are good for.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=60))]
    ttl: u32,

    /// Questions of the probes that count.
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(4..=1000))]
    samples: u32,

    /// The parent of the audit zone has a DS record for it: test validation.
    #[arg(long)]
    signed: bool,

    /// This host is not among the clients of the resolvers: they should answer nothing.
    #[arg(long)]
    outside: bool,

    /// Names whose answers may be made by the resolver, to be shown and compared.
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,

    /// File with names whose addresses are known, one a line: the name, then addresses or networks; # at the start of a line begins a comment.
    #[arg(long, value_name = "FILE")]
    name_list: Option<PathBuf>,

    /// Addresses of this host to ask from.
    #[arg(long = "source", value_name = "ADDR")]
    sources: Vec<IpAddr>,

    /// Databases of networks or countries (MMDB).
    #[arg(long, value_name = "FILE")]
    mmdb: Vec<PathBuf>,

    /// Country of the users, two letters, to be compared with what authorities see.
    #[arg(long, value_name = "CC")]
    country: Option<String>,

    /// File with certificates to trust (PEM) [default: those of this system].
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,

    /// Do not try TLS, HTTPS and QUIC.
    #[arg(long)]
    plain: bool,

    /// Port of DNS over TLS.
    #[arg(long, value_name = "PORT", default_value_t = Transport::Tls.port())]
    tls_port: u16,

    /// Port of DNS over HTTPS.
    #[arg(long, value_name = "PORT", default_value_t = Transport::Https.port())]
    https_port: u16,

    /// Port of DNS over QUIC.
    #[arg(long, value_name = "PORT", default_value_t = Transport::Quic.port())]
    quic_port: u16,
}

/// A resolver to audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    /// What its certificate has to have.
    pub(super) name: Option<String>,
}

/// The same, checked.
pub(super) struct Settings {
    pub(super) targets: Vec<Target>,
    pub(super) zone: NameBuf,
    pub(super) authorities: Vec<SocketAddr>,
    pub(super) probes: Vec<&'static Probe>,
    pub(super) rate: u32,
    pub(super) total_rate: u32,
    pub(super) is_together: bool,
    pub(super) plan: plan::Options,
    pub(super) askers: Askers,
    pub(super) networks: Mmdb,
}

impl Probing {
    pub(super) fn settings(&self) -> anyhow::Result<Settings> {
        let mut targets =
            self.resolvers.iter().map(|text| target(text)).collect::<anyhow::Result<Vec<_>>>()?;
        if let Some(path) = &self.file {
            targets.extend(read_lines(path, |line| target(without_comment(line)))?);
        }
        ensure!(!targets.is_empty(), "no resolver is given: name some, or a --file with them");
        let targets = once_each(targets);
        let authorities = self
            .authorities
            .iter()
            .map(|text| one_host("authority", parse_address("authority", text, 53)?))
            .collect::<anyhow::Result<Vec<_>>>()?;
        ensure!(
            self.total_rate >= self.rate,
            "total-rate: {} is less than rate, {}",
            self.total_rate,
            self.rate
        );
        let trust = match &self.tls_ca {
            Some(path) => Trust::File(path.clone()).load().context("tls-ca")?,
            // A system without certificates has those questions fail that need them.
            None => Trust::System.load().unwrap_or_default(),
        };
        self.sources.iter().try_for_each(|source| can_ask_from(*source))?;
        Ok(Settings {
            targets,
            zone: checked_zone(&self.zone)?,
            probes: self.probes()?,
            rate: self.rate,
            total_rate: self.total_rate,
            is_together: self.together,
            plan: self.plan()?,
            askers: Askers::new(&trust, &self.sources, self.ports()),
            networks: Mmdb::open(&self.mmdb)?,
            authorities,
        })
    }

    fn probes(&self) -> anyhow::Result<Vec<&'static Probe>> {
        if self.all || self.only.is_empty() {
            return Ok(probes::ALL.iter().collect());
        }
        let known = || probes::ALL.map(|probe| probe.name).join(", ");
        let find = |name: &String| match probes::by_name(name) {
            Some(probe) => Ok(probe),
            None => bail!("only: {name} is not a probe, there are {}", known()),
        };
        let mut seen = BTreeSet::new();
        self.only.iter().filter(|name| seen.insert(*name)).map(find).collect()
    }

    fn ports(&self) -> Ports {
        Ports { tls: self.tls_port, https: self.https_port, quic: self.quic_port }
    }

    fn plan(&self) -> anyhow::Result<plan::Options> {
        Ok(plan::Options {
            ttl_s: self.ttl,
            names: self.given()?,
            samples: self.samples,
            conditions: Vec::new(),
            is_signed: self.signed,
            sources: self.sources.len(),
            encrypted: !self.plain,
            is_outside: self.outside,
            country: self.country.as_deref().map(country).transpose()?,
        })
    }

    /// The names that were given, by themselves and in a list.
    fn given(&self) -> anyhow::Result<Vec<Given>> {
        let mut given = Vec::new();
        for name in &self.names {
            given.push(Given { name: parse_domain("name", name)?, expected: None });
        }
        if let Some(path) = &self.name_list {
            given.extend(read_lines(path, expectation)?);
        }
        Ok(given)
    }
}

/// Nobody listens at port 0, and who is asked is one host.
fn one_host(option: &str, address: SocketAddr) -> anyhow::Result<SocketAddr> {
    let ip = address.ip();
    let is_many = ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    ensure!(!is_many, "{option}: {ip} is not the address of one host");
    ensure!(address.port() != 0, "{option}: {address}: nobody listens at port 0");
    Ok(address)
}

/// ISO 3166-1, as databases have it.
fn country(text: &str) -> anyhow::Result<String> {
    let is_code = text.len() == 2 && text.bytes().all(|octet| octet.is_ascii_alphabetic());
    ensure!(is_code, "country: {text:?} is not two letters, such as DE");
    Ok(text.to_ascii_uppercase())
}

/// Whether this host has the address: otherwise each question fails by itself, and the resolvers seem to be silent.
fn can_ask_from(source: IpAddr) -> anyhow::Result<()> {
    let bound = std::net::UdpSocket::bind((source, 0));
    bound.map(drop).with_context(|| format!("source: cannot ask from {source}"))
}

/// What the lines of a file say that are neither empty nor comments. Some editors begin a file with a byte order mark.
fn read_lines<T>(path: &Path, read: impl Fn(&str) -> anyhow::Result<T>) -> anyhow::Result<Vec<T>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let lines = text.strip_prefix('\u{feff}').unwrap_or(&text).lines().map(str::trim);
    let lines = (1..).zip(lines).filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let read = |(number, line): (usize, &str)| {
        read(line).with_context(|| format!("{}, line {number}", path.display()))
    };
    lines.map(read).collect()
}

/// A line up to a # that stands behind a space; one behind an address begins the name of a certificate.
fn without_comment(line: &str) -> &str {
    let is_comment = |(at, _): &(usize, &str)| line[..*at].ends_with(char::is_whitespace);
    let end = line.match_indices('#').find(is_comment).map_or(line.len(), |(at, _)| at);
    line[..end].trim_end()
}

/// A line of a list of names: the name, and where its addresses lie.
fn expectation(line: &str) -> anyhow::Result<Given> {
    let mut words = line.split_whitespace();
    let name = parse_domain("name", words.next().unwrap_or_default())?;
    let network =
        |text: &str| text.parse::<Network>().map_err(|()| anyhow!("{name}: {text:?} is not {NETWORK_FORM}"));
    let networks = words.map(network).collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(!networks.is_empty(), "{name}: no address is expected: name some");
    Ok(Given { name, expected: Some(Networks::new(networks)) })
}

/// Each address once: a resolver that is in the list twice would be asked at twice the rate. The first one counts.
fn once_each(targets: Vec<Target>) -> Vec<Target> {
    let mut seen = BTreeSet::new();
    let is_new = |target: &Target| {
        let is_new = seen.insert(target.address);
        if !is_new {
            output::complain!(
                "resolver {}: it is in the list more than once, and is asked once",
                target.show()
            );
        }
        is_new
    };
    targets.into_iter().filter(is_new).collect()
}

impl Target {
    /// For people.
    pub(super) fn show(&self) -> String {
        match &self.name {
            Some(name) => format!("{}#{}", self.address, name.escape_default()),
            None => self.address.to_string(),
        }
    }
}

fn target(text: &str) -> anyhow::Result<Target> {
    let (address, name) = match text.split_once('#') {
        Some((address, name)) => (address.trim(), Some(name.trim().to_owned())),
        None => (text.trim(), None),
    };
    ensure!(
        name.as_deref() != Some(""),
        "resolver: {text}: the name of the certificate is missing behind the #"
    );
    let address = one_host("resolver", parse_address("resolver", address, 53)?)?;
    // An IPv4 address in one of IPv6 is the same host, and is asked once.
    let address = SocketAddr::new(address.ip().to_canonical(), address.port());
    let is_name = |name: &String| name.chars().all(|letter| letter.is_ascii_graphic());
    ensure!(name.as_ref().is_none_or(is_name), "resolver: {text}: no certificate has such a name");
    Ok(Target { address, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_behind_an_address_is_no_name_of_a_certificate() {
        let of = |line: &str| target(without_comment(line)).map(|target| target.show());
        assert_eq!(of("10.9.2.1 # my resolver").unwrap(), "10.9.2.1:53");
        assert_eq!(of("10.9.2.1#dns.example # mine").unwrap(), "10.9.2.1:53#dns.example");
        assert!(target("10.9.2.1#my resolver").is_err());
    }

    #[test]
    fn one_address_in_two_spellings_is_asked_once() {
        let targets = ["10.9.2.1", "[::ffff:10.9.2.1]:53", "10.9.2.1:54"].map(|text| target(text).unwrap());
        assert_eq!(once_each(targets.to_vec()).len(), 2);
    }

    #[test]
    fn a_bad_line_is_named_and_a_byte_order_mark_is_none() {
        let path = std::env::temp_dir().join(format!("sidestep-audit-lines-{}", std::process::id()));
        std::fs::write(&path, "\u{feff}# resolvers\n\n10.9.2.1\n10.9.2.x\n").unwrap();
        let error = format!("{:#}", read_lines(&path, target).unwrap_err());
        std::fs::write(&path, "\u{feff}10.9.2.1\n").unwrap();
        let targets = read_lines(&path, target).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(error.contains(", line 4: ") && targets.len() == 1, "{error}");
    }
}
