//! `[[pool]]`: names whose addresses are given by weight and health.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use clock::Duration;
use dns_auth::Pool;
use dns_wire::{Name, NameBuf};

use super::config::{ConfigError, in_range, parse_domain};
use super::config_file::{CheckTable, PoolTable};
use super::health::Health;

/// All pools, checked, and how the hosts are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pools {
    pub(crate) specs: Arc<[PoolSpec]>,
    pub(crate) health: Health,
}

/// Names whose addresses are given in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolSpec {
    pub(crate) name: Arc<str>,
    pub(crate) names: BTreeSet<NameBuf>,
    pub(crate) answers: Option<usize>,
    pub(crate) weights: BTreeMap<IpAddr, u32>,
    pub(crate) check: Option<CheckSpec>,
}

/// How hosts are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckSpec {
    pub(crate) kind: CheckKind,
    pub(crate) interval: Duration,
    pub(crate) timeout: Duration,
    pub(crate) rise: u32,
    pub(crate) fall: u32,
}

/// What a host has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CheckKind {
    /// Take a connection.
    Tcp { port: u16 },
    /// Answer a request with one of these codes.
    Http { port: u16, path: String, host: String, status: Vec<u16> },
    /// Answer an echo request (ICMP).
    Ping,
}

impl std::fmt::Display for CheckKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CheckKind::Tcp { port } => write!(f, "tcp {port}"),
            CheckKind::Http { port, path, .. } => write!(f, "http {port} {path}"),
            CheckKind::Ping => f.write_str("ping"),
        }
    }
}

const NAME_LEN_MAX: usize = 63;
const NAMES_MAX: u64 = 10_000;
const WEIGHT_MAX: u64 = 1_000_000;

/// Checks the tables.
pub(crate) fn pools(tables: &[PoolTable]) -> Result<Arc<[PoolSpec]>, ConfigError> {
    let (mut names, mut owners) = (BTreeSet::new(), HashMap::new());
    let specs: Arc<[PoolSpec]> = tables.iter().map(pool).collect::<Result<_, _>>()?;
    for spec in specs.iter() {
        if !names.insert(&spec.name) {
            return Err(form("pool.name", spec.name.to_string(), "a name that no other pool has"));
        }
        for owner in &spec.names {
            if let Some(first) = owners.insert(owner, &spec.name) {
                let pools = [first.to_string(), spec.name.to_string()];
                return Err(ConfigError::InTwoPools { value: owner.to_string(), pools });
            }
        }
    }
    Ok(specs)
}

fn pool(table: &PoolTable) -> Result<PoolSpec, ConfigError> {
    let is_name = |octet: u8| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_' | b'.');
    let name = table.name.as_str();
    if name.is_empty() || name.len() > NAME_LEN_MAX || !name.bytes().all(is_name) {
        let expected = "a name of 1 to 63 letters, digits, hyphens, underscores and dots";
        return Err(form("pool.name", name.to_owned(), expected));
    }
    in_range("pool.names", table.names.len() as u64, 1, NAMES_MAX)?;
    let names = table.names.iter().map(|name| parse_domain("pool.names", name)).collect::<Result<_, _>>()?;
    let weight = |(text, weight): (&String, &u64)| {
        let address: IpAddr =
            text.parse().map_err(|_| form("pool.weights", text.clone(), "an address such as 192.0.2.1"))?;
        Ok((address, in_range("pool.weights", *weight, 0, WEIGHT_MAX)? as u32))
    };
    let weights: BTreeMap<IpAddr, u32> = table.weights.iter().map(weight).collect::<Result<_, _>>()?;
    // With all addresses in each answer weights would say nothing.
    let by_weight = weights.values().any(|weight| *weight > 0).then_some(1);
    let answers = table.answers.map(|answers| in_range("pool.answers", answers, 1, 255)).transpose()?;
    let first = table.names.first().map(|name| name.trim_end_matches('.').to_owned()).unwrap_or_default();
    let check = table.check.as_ref().map(|table| check(table, &first)).transpose()?;
    if answers.is_none() && weights.is_empty() && check.is_none() {
        return Err(ConfigError::IdlePool(name.to_owned()));
    }
    let answers = answers.map(|answers| answers as usize).or(by_weight);
    Ok(PoolSpec { name: name.into(), names, answers, weights, check })
}

fn check(table: &CheckTable, first_name: &str) -> Result<CheckSpec, ConfigError> {
    let port = |option, value| Ok::<u16, ConfigError>(in_range(option, value, 1, u16::MAX.into())? as u16);
    let only_for_http = [
        ("check.port", table.port.is_some()),
        ("check.host", table.host.is_some()),
        ("check.status", table.status.is_some()),
    ];
    if let Some((option, _)) = only_for_http.iter().find(|(_, given)| *given && table.http.is_none()) {
        return Err(ConfigError::OnlyForHttp(option));
    }
    let kind = match (table.tcp, &table.http, table.ping) {
        (Some(number), None, None) => CheckKind::Tcp { port: port("check.tcp", number)? },
        (None, Some(path), None) => CheckKind::Http {
            port: port("check.port", table.port.unwrap_or(80))?,
            path: printable("check.http", path, |path| path.starts_with('/'), "a path that begins with /")?,
            host: printable(
                "check.host",
                table.host.as_deref().unwrap_or(first_name),
                |host| !host.is_empty(),
                "the name of a host",
            )?,
            status: status(table.status.as_deref().unwrap_or(&[200]))?,
        },
        (None, None, Some(true)) => CheckKind::Ping,
        _ => return Err(ConfigError::OneCheck),
    };
    let interval = in_range("check.interval-ms", table.interval_ms.unwrap_or(5000), 100, 3_600_000)?;
    let timeout = in_range("check.timeout-ms", table.timeout_ms.unwrap_or(interval.min(2000)), 10, interval)?;
    Ok(CheckSpec {
        kind,
        interval: Duration::from_millis(interval),
        timeout: Duration::from_millis(timeout),
        rise: in_range("check.rise", table.rise.unwrap_or(2), 1, 100)? as u32,
        fall: in_range("check.fall", table.fall.unwrap_or(3), 1, 100)? as u32,
    })
}

/// What stands in a request must not be able to end its line.
fn printable(
    option: &'static str,
    text: &str,
    is_good: impl Fn(&str) -> bool,
    expected: &'static str,
) -> Result<String, ConfigError> {
    let is_printable = text.len() <= 255 && text.bytes().all(|octet| octet.is_ascii_graphic());
    (is_printable && is_good(text))
        .then(|| text.to_owned())
        .ok_or_else(|| form(option, text.to_owned(), expected))
}

fn status(codes: &[u64]) -> Result<Vec<u16>, ConfigError> {
    in_range("check.status", codes.len() as u64, 1, 100)?;
    codes.iter().map(|code| Ok(in_range("check.status", *code, 100, 599)? as u16)).collect()
}

fn form(option: &'static str, value: String, expected: &'static str) -> ConfigError {
    ConfigError::Form { option, value, expected }
}

impl Pools {
    /// What is to be done at the names of a zone now.
    pub(crate) fn of_zone(&self, origin: Name<'_>) -> BTreeMap<NameBuf, Arc<Pool>> {
        let mut pools = BTreeMap::new();
        for spec in self.specs.iter() {
            let mut inside = spec.names.iter().filter(|name| name.as_name().ends_with(origin)).peekable();
            if inside.peek().is_none() {
                continue;
            }
            let (answers, weights) = (spec.answers, spec.weights.clone());
            let pool = Arc::new(Pool { answers, weights, down: self.health.down_of(&spec.name) });
            pools.extend(inside.map(|name| (name.clone(), Arc::clone(&pool))));
        }
        pools
    }

    /// The pool that a name is in.
    pub(crate) fn of_name(&self, name: &NameBuf) -> Option<&PoolSpec> {
        self.specs.iter().find(|spec| spec.names.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::config_file::ConfigFile;

    fn read(text: &str) -> Result<Arc<[PoolSpec]>, String> {
        let file: ConfigFile = toml::from_str(text).map_err(|error| error.to_string())?;
        pools(&file.pools).map_err(|error| error.to_string())
    }

    #[test]
    fn a_pool_is_read_with_defaults() {
        let text = "[[pool]]\nname = \"web\"\nnames = [\"www.example.com\"]\nweights = { \"192.0.2.1\" = 3 }\n\
            check = { http = \"/health\" }\n";
        let pools = read(text).unwrap();
        let check = pools[0].check.clone().unwrap();
        let (path, host) = ("/health".to_owned(), "www.example.com".to_owned());
        assert_eq!(check.kind, CheckKind::Http { port: 80, path, host, status: vec![200] });
        assert_eq!(
            (check.interval, check.timeout),
            (Duration::from_millis(5000), Duration::from_millis(2000))
        );
        assert_eq!((pools[0].answers, check.rise, check.fall), (Some(1), 2, 3));
    }

    #[test]
    fn what_is_wrong_is_said_with_option_and_value() {
        let pool = |rest: &str| format!("[[pool]]\nname = \"p\"\nnames = [\"a.test\"]\n{rest}\n");
        for (text, expected) in [
            (pool(""), "pool p: it says nothing: give it weights, answers or a check"),
            (pool("weights = { x = 1 }"), "pool.weights: \"x\" is not an address"),
            (pool("weights = { \"192.0.2.1\" = 2000000 }"), "pool.weights: 2000000 is out of range"),
            (pool("answers = 0"), "pool.answers: 0 is out of range"),
            (pool("check = { tcp = 80, ping = true }"), "pool.check: one of tcp, http and ping"),
            (pool("check = { ping = false }"), "pool.check: one of tcp, http and ping"),
            (pool("check = { tcp = 0 }"), "check.tcp: 0 is out of range"),
            (pool("check = { tcp = 80, port = 8080 }"), "check.port: only checks by http have it"),
            (pool("check = { http = \"health\" }"), "check.http: \"health\" is not a path"),
            (
                pool("check = { http = \"/\", host = \"a b\" }"),
                "check.host: \"a b\" is not the name of a host",
            ),
            (pool("check = { http = \"/\", status = [99] }"), "check.status: 99 is out of range"),
            (
                pool("check = { ping = true, interval-ms = 100, timeout-ms = 200 }"),
                "check.timeout-ms: 200 is out of range",
            ),
            (pool("checks = 1"), "unknown field"),
            (
                format!("{}{}", pool("answers = 1"), pool("answers = 1")),
                "pool.name: \"p\" is not a name that no other pool has",
            ),
            (
                format!("{}{}", pool("answers = 1"), pool("answers = 1").replace("\"p\"", "\"q\"")),
                "pool.names: a.test. is in pool p and in pool q",
            ),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
