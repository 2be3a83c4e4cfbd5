//! `[encrypted]`: DNS over TLS, HTTPS and QUIC, of the server and of the resolver.

use std::net::SocketAddr;
use std::path::Path;

use clock::Duration;
use dns_front::{Options, Via};
use dns_server::TcpLimits;

use super::config::{ConfigError, in_range, parse_listen};
use super::config_file::EncryptedTable;
use super::keys::show_time;

/// RFC 7858, 3.1; RFC 8484, 3; RFC 9250, 4.1.1.
const TLS_PORT: u16 = 853;
const HTTPS_PORT: u16 = 443;
const QUIC_PORT: u16 = 853;
/// Questions that wait to be answered; beyond it clients wait.
const QUEUE: usize = 1024;

/// Checks the table; relative paths start at `directory`.
pub(crate) fn encrypted(table: &EncryptedTable, directory: &Path) -> Result<Options, ConfigError> {
    let addresses = |option, texts: &[String], port| -> Result<Vec<SocketAddr>, ConfigError> {
        let expected = "an address with or without a port";
        let form = |text: &String| ConfigError::Form { option, value: text.clone(), expected };
        texts.iter().map(|text| parse_listen(text, port).map_err(|_| form(text))).collect()
    };
    let number =
        |option, value: Option<u64>, default, max| in_range(option, value.unwrap_or(default), 1, max);
    let path = table.path.clone().unwrap_or_else(|| "/dns-query".to_owned());
    if !path.starts_with('/') || path.contains('?') {
        let expected = "a path such as /dns-query";
        return Err(ConfigError::Form { option: "encrypted.path", value: path, expected });
    }
    let (all, each) = (table.connections_max, table.connections_per_client_max);
    let idle = number("encrypted.idle-timeout-s", table.idle_timeout_s, 10, 3600)?;
    Ok(Options {
        dot: addresses("encrypted.tls", &table.tls, TLS_PORT)?,
        doh: addresses("encrypted.https", &table.https, HTTPS_PORT)?,
        doq: addresses("encrypted.quic", &table.quic, QUIC_PORT)?,
        certificate: directory.join(&table.certificate),
        key: directory.join(&table.key),
        path,
        limits: TcpLimits {
            idle_timeout: Duration::from_secs(idle),
            connections_max: number("encrypted.connections-max", all, 1000, 1_000_000)? as usize,
            connections_per_client_max: number("encrypted.connections-per-client-max", each, 100, 1_000_000)?
                as usize,
        },
        streams_max: number("encrypted.streams-max", table.streams_max, 100, 1000)? as u32,
        queue: QUEUE,
    })
}

/// What to say of a certificate that has ended `now`, or will soon.
pub(crate) fn ending(at: u64, now: u64) -> Option<String> {
    const SOON_S: u64 = 7 * 86_400;
    match at {
        at if at < now => Some(format!("the certificate ended at {}: clients refuse it", show_time(at))),
        at if at < now + SOON_S => Some(format!("the certificate ends soon, at {}", show_time(at))),
        _ => None,
    }
}

/// An address as the ready line shows it.
pub(crate) fn show((via, address): &(Via, SocketAddr)) -> String {
    let protocol = match via {
        Via::Tls => "tls",
        Via::Https => "https",
        Via::Quic => "quic",
    };
    format!("{protocol}://{address}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_has_ended_or_will_soon_is_told_with_its_end() {
        let now = 1_795_908_605;
        assert_eq!(ending(now + 8 * 86_400, now), None);
        assert_eq!(ending(now + 60, now).unwrap(), "the certificate ends soon, at 2026-11-28T23:31:05Z");
        assert!(ending(now - 1, now).unwrap().starts_with("the certificate ended at 2026-11-28T23:30:04Z"));
    }
}
