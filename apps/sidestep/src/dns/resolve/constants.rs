//! The tables of constants: each with its range, and the default of `dns_resolver` where the user wrote nothing.

use clock::Duration;
use dns_resolver::{CacheOptions, Dnssec, Limits, Selection, Stale};

use super::config_file::{CacheTable, DnssecTable, LimitsTable, SelectionTable, StaleTable};
use crate::dns::config::{ConfigError, in_range};

/// The value of an option, or its default.
fn number(
    option: &'static str,
    value: Option<u64>,
    (min, max): (u64, u64),
    otherwise: impl TryInto<u64>,
) -> Result<u64, ConfigError> {
    match value {
        Some(value) => in_range(option, value, min, max),
        None => Ok(otherwise.try_into().unwrap_or(max)),
    }
}

fn millis(
    option: &'static str,
    value: Option<u64>,
    range: (u64, u64),
    otherwise: Duration,
) -> Result<Duration, ConfigError> {
    number(option, value, range, otherwise.as_millis()).map(Duration::from_millis)
}

fn secs(
    option: &'static str,
    value: Option<u64>,
    range: (u64, u64),
    otherwise: Duration,
) -> Result<Duration, ConfigError> {
    number(option, value, range, otherwise.as_secs()).map(Duration::from_secs)
}

const MINUTE_MS: u64 = 60_000;
const DAY_S: u64 = 86_400;

/// `[selection]`. The ranges end where numbers stop to make sense, and always fit their types.
pub(super) fn selection(table: &SelectionTable) -> Result<Selection, ConfigError> {
    let default = Selection::default();
    let ms = |option, value, default| millis(option, value, (1, MINUTE_MS), default);
    Ok(Selection {
        band: millis("selection.band-ms", table.band_ms, (0, 1000), default.band)?,
        rate_max: number("selection.rate-max", table.rate_max, (1, 1_000_000), default.rate_max)? as u32,
        timeout_floor: ms("selection.timeout-floor-ms", table.timeout_floor_ms, default.timeout_floor)?,
        retry_floor: ms("selection.retry-floor-ms", table.retry_floor_ms, default.retry_floor)?,
        timeout_unknown: ms(
            "selection.timeout-unknown-ms",
            table.timeout_unknown_ms,
            default.timeout_unknown,
        )?,
        timeout_max: ms("selection.timeout-max-ms", table.timeout_max_ms, default.timeout_max)?,
        patience: ms("selection.patience-ms", table.patience_ms, default.patience)?,
        penalty: ms("selection.penalty-ms", table.penalty_ms, default.penalty)?,
        penalty_max: ms("selection.penalty-max-ms", table.penalty_max_ms, default.penalty_max)?,
        penalty_half_life: ms(
            "selection.penalty-half-life-ms",
            table.penalty_half_life_ms,
            default.penalty_half_life,
        )?,
        probe_interval: ms("selection.probe-interval-ms", table.probe_interval_ms, default.probe_interval)?,
        probe_follow_up: ms(
            "selection.probe-follow-up-ms",
            table.probe_follow_up_ms,
            default.probe_follow_up,
        )?,
        probe_silent_max: ms(
            "selection.probe-silent-max-ms",
            table.probe_silent_max_ms,
            default.probe_silent_max,
        )?,
        probe_outage_max: ms(
            "selection.probe-outage-max-ms",
            table.probe_outage_max_ms,
            default.probe_outage_max,
        )?,
        probe_rate_max: number(
            "selection.probe-rate-max",
            table.probe_rate_max,
            (1, 100_000),
            default.probe_rate_max,
        )? as u32,
        race: number("selection.race", table.race, (1, 8), default.race)? as u8,
        losses_to_hurry: number(
            "selection.losses-to-hurry",
            table.losses_to_hurry,
            (1, 100),
            default.losses_to_hurry,
        )? as u32,
        expiry: secs("selection.expiry-s", table.expiry_s, (1, DAY_S), default.expiry)?,
        servers_max: number("selection.servers-max", table.servers_max, (100, 10_000_000), {
            default.servers_max
        })? as usize,
    })
}

/// `[stale]`. Three days are the most that RFC 8767 suggests.
pub(super) fn stale(table: &StaleTable) -> Result<Stale, ConfigError> {
    let default = Stale::default();
    let timer = millis("stale.client-timer-ms", table.client_timer_ms, (1, 10_000), default.client_timer)?;
    Ok(Stale {
        enabled: table.enabled.unwrap_or(default.enabled),
        client_timer: timer,
        grace: millis("stale.grace-ms", table.grace_ms, (0, 10_000), default.grace)?,
        ttl: number("stale.ttl-s", table.ttl_s, (1, 3600), default.ttl)? as u32,
        keep: secs("stale.keep-s", table.keep_s, (0, 3 * DAY_S), default.keep)?,
    })
}

/// `[cache]`. RFC 9520, 3.2 has the range of failures.
pub(super) fn cache(table: &CacheTable) -> Result<CacheOptions, ConfigError> {
    let default = CacheOptions::default();
    let mib = number("cache.size-mib", table.size_mib, (1, 1 << 20), default.octets_max >> 20)?;
    Ok(CacheOptions {
        octets_max: usize::try_from(mib << 20).unwrap_or(usize::MAX),
        ttl_max: secs("cache.ttl-max-s", table.ttl_max_s, (1, 7 * DAY_S), default.ttl_max)?,
        negative_ttl_max: secs(
            "cache.negative-ttl-max-s",
            table.negative_ttl_max_s,
            (1, DAY_S),
            default.negative_ttl_max,
        )?,
        failure_ttl: secs("cache.failure-ttl-s", table.failure_ttl_s, (1, 300), default.failure_ttl)?,
        failure_ttl_max: secs(
            "cache.failure-ttl-max-s",
            table.failure_ttl_max_s,
            (1, 300),
            default.failure_ttl_max,
        )?,
        prefetch_part: number("cache.prefetch-part", table.prefetch_part, (0, 100), default.prefetch_part)?
            as u32,
    })
}

/// `[dnssec]`. RFC 9276, 3.2 lets a resolver accept up to 500 iterations and fewer.
pub(super) fn dnssec(table: &DnssecTable) -> Result<Dnssec, ConfigError> {
    let default = Dnssec::default();
    let small = |option, value, default: u8| number(option, value, (1, 32), default).map(|value| value as u8);
    let large =
        |option, value, default: u16| number(option, value, (8, 10_000), default).map(|value| value as u16);
    let iterations = number(
        "dnssec.nsec3-iterations-max",
        table.nsec3_iterations_max,
        (0, 500),
        default.nsec3_iterations_max,
    )?;
    Ok(Dnssec {
        sha1: table.sha1.unwrap_or(default.sha1),
        colliding_keys_max: small(
            "dnssec.colliding-keys-max",
            table.colliding_keys_max,
            default.colliding_keys_max,
        )?,
        signatures_max: small("dnssec.signatures-max", table.signatures_max, default.signatures_max)?,
        ds_max: small("dnssec.ds-max", table.ds_max, default.ds_max)?,
        signatures_per_question_max: large(
            "dnssec.signatures-per-question-max",
            table.signatures_per_question_max,
            default.signatures_per_question_max,
        )?,
        nsec3_iterations_max: iterations as u16,
        hashes_per_question_max: large(
            "dnssec.hashes-per-question-max",
            table.hashes_per_question_max,
            default.hashes_per_question_max,
        )?,
        bogus_max: small("dnssec.bogus-max", table.bogus_max, default.bogus_max)?,
    })
}

/// `[limits]`.
pub(super) fn limits(table: &LimitsTable) -> Result<Limits, ConfigError> {
    let default = Limits::default();
    let small =
        |option, value, default: u8| number(option, value, (1, 100), default).map(|value| value as u8);
    let large = |option, value, default: usize| {
        number(option, value, (1, 1_000_000), default).map(|value| value as usize)
    };
    let fetches = number(
        "limits.address-fetch-rate-max",
        table.address_fetch_rate_max,
        (1, 10_000),
        default.address_fetch_rate_max,
    )?;
    Ok(Limits {
        queries_max: number("limits.queries-max", table.queries_max, (4, 1000), default.queries_max)? as u16,
        tries_max: small("limits.tries-max", table.tries_max, default.tries_max)?,
        aliases_max: small("limits.aliases-max", table.aliases_max, default.aliases_max)?,
        referrals_max: small("limits.referrals-max", table.referrals_max, default.referrals_max)?,
        address_lookups_max: small(
            "limits.address-lookups-max",
            table.address_lookups_max,
            default.address_lookups_max,
        )?,
        depth_max: small("limits.depth-max", table.depth_max, default.depth_max)?,
        addresses_max: large("limits.addresses-max", table.addresses_max, default.addresses_max)?,
        resolution_max: millis(
            "limits.resolution-max-ms",
            table.resolution_max_ms,
            (100, MINUTE_MS),
            default.resolution_max,
        )?,
        tasks_max: large("limits.tasks-max", table.tasks_max, default.tasks_max)?,
        clients_max: large("limits.clients-max", table.clients_max, default.clients_max)?,
        clients_per_question_max: large(
            "limits.clients-per-question-max",
            table.clients_per_question_max,
            default.clients_per_question_max,
        )?,
        in_flight_max: large("limits.in-flight-max", table.in_flight_max, default.in_flight_max)?,
        in_flight_per_server_max: large(
            "limits.in-flight-per-server-max",
            table.in_flight_per_server_max,
            default.in_flight_per_server_max,
        )?,
        in_flight_to_silent_max: large(
            "limits.in-flight-to-silent-max",
            table.in_flight_to_silent_max,
            default.in_flight_to_silent_max,
        )?,
        forgeries_max: small("limits.forgeries-max", table.forgeries_max, default.forgeries_max)?,
        address_fetch_rate_max: fetches as u32,
    })
}
