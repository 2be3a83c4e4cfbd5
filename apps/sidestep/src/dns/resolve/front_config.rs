//! `allow`, `[cookies]` and `[rate]`: how clients are treated.

use std::path::Path;

use clock::Duration;

use super::config_file::{ClientSubnetTable, ConfigFile};
use super::front::FrontConfig;
use crate::dns::config::{ConfigError, in_range};
use crate::dns::guard_config::{beyond, networks, rate, read_secrets};

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
        access: networks("allow", Some(allow).filter(|texts| !texts.is_empty()))?,
        cookies: file.cookies.enabled.unwrap_or(true),
        secrets,
        require_cookie: file.cookies.require.unwrap_or(false),
        rate: rate(&file.rate)?,
        beyond: beyond(&file.rate)?,
        exempt: networks("rate.exempt", file.rate.exempt.as_deref())?,
        keepalive,
        subnet_bits: subnet_bits(&file.client_subnet)?,
    })
}

/// How much of addresses servers learn, if any do. RFC 7871, 11.1 recommends no more than these.
fn subnet_bits(table: &ClientSubnetTable) -> Result<Option<[u8; 2]>, ConfigError> {
    let v4 = in_range("client-subnet.ipv4-prefix", table.ipv4_prefix.unwrap_or(24), 1, 24)?;
    let v6 = in_range("client-subnet.ipv6-prefix", table.ipv6_prefix.unwrap_or(56), 1, 56)?;
    Ok((!table.zones.is_empty()).then_some([v4 as u8, v6 as u8]))
}

#[cfg(test)]
mod tests {
    use dns_guard::{Beyond, Rate, RateOptions};

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
    fn servers_learn_where_clients_are_if_zones_are_named() {
        assert_eq!(read("").unwrap().subnet_bits, None);
        assert_eq!(read("[client-subnet]\nzones = [\"a.\"]\n").unwrap().subnet_bits, Some([24, 56]));
        let wide = read("[client-subnet]\nzones = [\"a.\"]\nipv4-prefix = 32\n");
        assert_eq!(wide.unwrap_err(), "client-subnet.ipv4-prefix: 32 is out of range, expected 1 to 24");
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
        assert!(read("[rate]\nbeyond = \"ignore\"\n").unwrap_err().contains("slip, refuse or drop"));
        assert!(read("[rate]\nexempt = [\"x\"]\n").unwrap_err().starts_with("rate.exempt: \"x\" is not"));
    }
}
