//! `allow`, `[cookies]` and `[rate]`: how clients are treated.

use std::path::Path;

use anyhow::{Context, anyhow};
use clock::Duration;
use dns_guard::{Prefixes, Rate, RateOptions, Secret};

use super::access::{Access, NETWORK_FORM};
use super::config_file::{ConfigFile, RateTable};
use super::front::{Beyond, FrontConfig};
use crate::dns::config::{ConfigError, in_range};
use crate::dns::privileges::explain_denial;

/// Checks it all. `allow` are the networks of the command line, or of the file; paths start at `directory`.
pub(super) fn front(
    allow: &[String],
    file: &ConfigFile,
    directory: &Path,
    keepalive: [Duration; 2],
) -> anyhow::Result<FrontConfig> {
    let secrets = match &file.cookies.secrets_file {
        Some(path) => read_secrets(&directory.join(path))?,
        None => Vec::new(),
    };
    Ok(FrontConfig {
        access: access("allow", allow)?,
        cookies: file.cookies.enabled.unwrap_or(true),
        secrets,
        require_cookie: file.cookies.require.unwrap_or(false),
        rate: rate(&file.rate)?,
        beyond: file.rate.beyond.unwrap_or(Beyond::Slip),
        exempt: access("rate.exempt", &file.rate.exempt)?,
        keepalive,
    })
}

/// Networks; this host where none is named.
fn access(option: &'static str, networks: &[String]) -> Result<Access, ConfigError> {
    if networks.is_empty() {
        return Ok(Access::default());
    }
    let parse = |text: &String| {
        let form = |()| ConfigError::Form { option, value: text.clone(), expected: NETWORK_FORM };
        text.parse().map_err(form)
    };
    networks.iter().map(parse).collect::<Result<_, _>>().map(Access::new)
}

fn rate(table: &RateTable) -> Result<RateOptions, ConfigError> {
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

fn read_secrets(path: &Path) -> anyhow::Result<Vec<Secret>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<FrontConfig, String> {
        let file: ConfigFile = toml::from_str(text).map_err(|error| error.to_string())?;
        front(&[], &file, Path::new(""), [Duration::ZERO; 2]).map_err(|error| error.to_string())
    }

    #[test]
    fn without_a_word_there_are_cookies_and_no_limits() {
        let config = read("").unwrap();
        assert!(config.cookies && !config.require_cookie && config.secrets.is_empty());
        assert_eq!(config.rate, RateOptions::default());
    }

    #[test]
    fn limits_have_ranges_and_names() {
        let config =
            read("[rate]\nper-address = 50\nburst-ms = 2000\nipv6-prefix = 48\nbeyond = \"refuse\"\n")
                .unwrap();
        assert_eq!(config.rate.per_address, Some(Rate { per_second: 50, burst: 100 }));
        assert_eq!((config.rate.prefixes.v6, config.beyond), (48, Beyond::Refuse));
        assert_eq!(
            read("[rate]\nipv4-prefix = 33\n").unwrap_err(),
            "rate.ipv4-prefix: 33 is out of range, expected 1 to 32"
        );
        assert!(read("[rate]\nbeyond = \"ignore\"\n").unwrap_err().contains("`slip`, `refuse`, `drop`"));
        assert!(read("[rate]\nexempt = [\"x\"]\n").unwrap_err().starts_with("rate.exempt: \"x\" is not"));
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
