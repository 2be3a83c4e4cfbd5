//! The options that `probe` and `watch` share, and what they lead to.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use clap::Args;
use dns_audit::plan;
use dns_audit::probes::{self, Probe};
use dns_client::Trust;
use dns_wire::NameBuf;

use super::authority::checked_zone;
use super::exchange::Askers;
use super::mmdb::Mmdb;
use crate::dns::config::parse_address;

/// Resolvers, the audit zone, and how hard to ask.
#[derive(Args, Clone, Debug)]
pub(super) struct Probing {
    /// Resolvers: addresses, with or without a port (default 53), and behind a # the name in their certificates.
    #[arg(value_name = "RESOLVER")]
    resolvers: Vec<String>,

    /// File with resolvers, one a line; # at the start of a line begins a comment.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// The audit zone.
    #[arg(long, value_name = "NAME")]
    zone: String,

    /// Address of the audit zone's servers, with or without a port (default 53), in their order. Without it their clock is read by way of
    /// each resolver, and what needs their log is unknown.
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
        let mut texts = self.resolvers.clone();
        if let Some(path) = &self.file {
            let text =
                std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
            texts.extend(lines.map(str::to_owned));
        }
        ensure!(!texts.is_empty(), "no resolver is given: name some, or a --file with them");
        let targets = texts.iter().map(|text| target(text)).collect::<anyhow::Result<Vec<_>>>()?;
        let authorities = self.authorities.iter().map(|text| parse_address("authority", text, 53));
        let authorities = authorities.collect::<Result<Vec<_>, _>>()?;
        ensure!(
            self.total_rate >= self.rate,
            "total-rate: {} is less than rate, {}",
            self.total_rate,
            self.rate
        );
        let trust = self.tls_ca.clone().map_or(Trust::System, Trust::File);
        Ok(Settings {
            targets,
            zone: checked_zone(&self.zone)?,
            probes: self.probes()?,
            rate: self.rate,
            total_rate: self.total_rate,
            is_together: self.together,
            plan: self.plan(authorities.len()),
            askers: Askers::new(&trust, &self.sources),
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
        self.only.iter().map(find).collect()
    }

    fn plan(&self, servers: usize) -> plan::Options {
        plan::Options {
            ttl_s: self.ttl,
            names: self.names.clone(),
            samples: self.samples,
            servers,
            is_signed: self.signed,
            sources: self.sources.len(),
            encrypted: !self.plain,
            is_outside: self.outside,
            country: self.country.as_ref().map(|country| country.to_ascii_uppercase()),
        }
    }
}

fn target(text: &str) -> anyhow::Result<Target> {
    let (address, name) = match text.split_once('#') {
        Some((address, name)) => (address.trim(), Some(name.trim().to_owned())),
        None => (text.trim(), None),
    };
    let address = parse_address("resolver", address, 53)?;
    Ok(Target { address, name })
}
