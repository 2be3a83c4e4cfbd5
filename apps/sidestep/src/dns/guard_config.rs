//! `[cookies]` and `[rate]`, of the server and of the resolver.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use dns_guard::{
    Beyond, NETWORK_FORM, Network, Networks, Prefixes, Rate, RateOptions, Secret, ServerCookies,
};
use dns_server::GuardOptions;
use rustix::rand::{GetRandomFlags, getrandom};

use super::config::{ConfigError, in_range};
use super::config_file::{CookiesTable, RateTable};
use super::privileges::explain_denial;

/// Cookies and limits of rate of the authoritative server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GuardConfig {
    rate: RateOptions,
    beyond: Beyond,
    exempt: Networks,
    /// `None` for no cookies; without secrets there is one of our own.
    cookies: Option<Vec<Secret>>,
}

impl GuardConfig {
    /// Checks the tables; paths start at `directory`.
    pub(crate) fn new(
        cookies: &CookiesTable,
        table: &RateTable,
        directory: &Path,
    ) -> anyhow::Result<GuardConfig> {
        if cookies.require.is_some() {
            bail!("cookies.require: only the resolver has it");
        }
        let file = cookies.secrets_file.as_ref().map(|path| directory.join(path));
        let secrets = file.map(|path| read_secrets(&path)).transpose()?.unwrap_or_default();
        Ok(GuardConfig {
            rate: rate(table)?,
            beyond: beyond(table)?,
            exempt: networks("rate.exempt", table.exempt.as_deref())?,
            cookies: cookies.enabled.unwrap_or(false).then_some(secrets),
        })
    }

    /// What responders need of it. `chance` stays as long as the process lives.
    pub(crate) fn options(&self, chance: &Chance) -> Option<Arc<GuardOptions>> {
        let GuardConfig { rate, beyond, exempt, cookies } = self;
        let make = |secrets: &Vec<Secret>| match secrets.split_first() {
            Some((current, others)) => ServerCookies::new(*current, others.to_vec()),
            None => ServerCookies::new(Secret(chance.secret), Vec::new()),
        };
        let cookies = cookies.as_ref().map(make);
        let options =
            GuardOptions { rate: *rate, beyond: *beyond, exempt: exempt.clone(), cookies, key: chance.key };
        options.is_needed().then(|| Arc::new(options))
    }
}

/// What nobody else knows.
#[derive(Clone)]
pub(crate) struct Chance {
    key: [u8; 16],
    secret: [u8; 16],
}

impl Chance {
    /// Drawn by the operating system.
    pub(crate) fn draw() -> anyhow::Result<Chance> {
        Ok(Chance { key: random_key()?, secret: random_key()? })
    }
}

/// 128 bits of the operating system's: getrandom(2).
pub(crate) fn random_key() -> anyhow::Result<[u8; 16]> {
    let mut key = [0; 16];
    let mut filled = 0;
    while filled < key.len() {
        filled += getrandom(&mut key[filled..], GetRandomFlags::empty()).context("drawing a random key")?;
    }
    Ok(key)
}

/// Networks; this host where nothing is said.
pub(crate) fn networks(option: &'static str, texts: Option<&[String]>) -> Result<Networks, ConfigError> {
    let Some(texts) = texts else { return Ok(Networks::default()) };
    let parse = |text: &String| {
        let form = |()| ConfigError::Form { option, value: text.clone(), expected: NETWORK_FORM };
        let network: Network = text.parse().map_err(form)?;
        let expected = "a network without bits beyond its length";
        let odd = || ConfigError::Form { option, value: text.clone(), expected };
        if network.has_rest() { Err(odd()) } else { Ok(network) }
    };
    texts.iter().map(parse).collect::<Result<_, _>>().map(Networks::new)
}

/// Checks `[rate]`.
pub(crate) fn rate(table: &RateTable) -> Result<RateOptions, ConfigError> {
    const RATE_MAX: u64 = 1_000_000;
    let default = RateOptions::default();
    let burst_ms = in_range("rate.burst-ms", table.burst_ms.unwrap_or(1000), 1, 10_000)?;
    let one = |option, value: Option<u64>| -> Result<Option<Rate>, ConfigError> {
        let per_second = in_range(option, value.unwrap_or(0), 0, RATE_MAX)? as u32;
        let burst = (u64::from(per_second) * burst_ms / 1000).clamp(1, RATE_MAX) as u32;
        Ok((per_second > 0).then_some(Rate { per_second, burst }))
    };
    let prefix = |option, value: Option<u64>, default: u8, max| {
        in_range(option, value.unwrap_or(default.into()), 1, max).map(|bits| bits as u8)
    };
    let buckets = in_range("rate.buckets", table.buckets.unwrap_or(default.buckets as u64), 64, 1 << 24)?;
    Ok(RateOptions {
        per_address: one("rate.per-address", table.per_address)?,
        per_prefix: one("rate.per-prefix", table.per_prefix)?,
        prefixes: Prefixes {
            v4: prefix("rate.ipv4-prefix", table.ipv4_prefix, default.prefixes.v4, 32)?,
            v6: prefix("rate.ipv6-prefix", table.ipv6_prefix, default.prefixes.v6, 128)?,
        },
        slip: in_range("rate.slip", table.slip.unwrap_or(default.slip.into()), 0, 100)? as u32,
        buckets: buckets as usize,
    })
}

/// Reads a file with secrets of cookies.
pub(crate) fn read_secrets(path: &Path) -> anyhow::Result<Vec<Secret>> {
    let text = std::fs::read_to_string(path).map_err(explain_denial);
    let text = text.with_context(|| format!("reading {}", path.display()))?;
    parse_secrets(&text).map_err(|line| {
        anyhow!(
            "{}:{line}: a secret is 32 hexadecimal digits, one a line, and there is at least one",
            path.display()
        )
    })
}

/// Secrets, one a line, the one that makes cookies first. The error is the number of the line.
fn parse_secrets(text: &str) -> Result<Vec<Secret>, usize> {
    let mut secrets = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let is_hex = line.len() == 32 && line.bytes().all(|octet| octet.is_ascii_hexdigit());
        let value = u128::from_str_radix(line, 16).ok().filter(|_| is_hex).ok_or(number + 1)?;
        secrets.push(Secret(value.to_be_bytes()));
    }
    if secrets.is_empty() { Err(1) } else { Ok(secrets) }
}

/// What happens beyond a limit.
pub(crate) fn beyond(table: &RateTable) -> Result<Beyond, ConfigError> {
    match table.beyond.as_deref() {
        None => Ok(Beyond::default()),
        Some("slip") => Ok(Beyond::Slip),
        Some("refuse") => Ok(Beyond::Refuse),
        Some("drop") => Ok(Beyond::Drop),
        Some(other) => Err(ConfigError::Form {
            option: "rate.beyond",
            value: other.to_owned(),
            expected: "slip, refuse or drop",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_exempt_unless_something_is_said_and_an_empty_list_exempts_nobody() {
        let exempts = |table: &str| {
            let table: RateTable = toml::from_str(table).unwrap();
            let config = GuardConfig::new(&CookiesTable::default(), &table, Path::new(".")).unwrap();
            ["127.0.0.1", "192.0.2.1"].map(|client| config.exempt.contain(client.parse().unwrap()))
        };
        assert_eq!(exempts(""), [true, false]);
        assert_eq!(exempts("exempt = []"), [false, false]);
        assert_eq!(exempts("exempt = [\"192.0.2.0/24\"]"), [false, true]);
        let refused = networks("rate.exempt", Some(&["192.0.2.1/24".to_owned()])).unwrap_err().to_string();
        assert!(refused.contains("bits beyond its length"), "{refused}");
    }

    #[test]
    fn secrets_are_hexadecimal_and_the_error_names_the_line() {
        let secrets =
            parse_secrets("# new\n000102030405060708090a0b0c0d0e0f\n\nE5e973e5a6b2a43f48e7dc849e37bfcf\n");
        let secrets = secrets.unwrap();
        assert_eq!((secrets.len(), secrets[0].0[15], secrets[1].0[0]), (2, 15, 0xe5));
        assert_eq!(parse_secrets(""), Err(1));
        assert_eq!(parse_secrets("000102030405060708090a0b0c0d0e0f\n0001\n"), Err(2));
        assert_eq!(parse_secrets("+00102030405060708090a0b0c0d0e0f\n"), Err(1));
    }
}
