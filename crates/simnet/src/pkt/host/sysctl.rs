//! Settings of Linux's kernel and the stack's for the same thing.

use clock::Duration;
use stack::Config;
use stack::config::{EcnMode, PathMtuProbing, SynCookies};
use stack::congestion::Algorithm;

/// Settings whose usual value is what the stack does anyway, with that value.
const BUILT_IN: &[(&str, &[&str])] = &[
    ("tcp_frto", &["2", "1"]),
    ("tcp_dsack", &["1"]),
    ("tcp_fack", &["0"]),
    ("tcp_reordering", &["3"]),
    ("tcp_early_retrans", &["3", "4"]),
    ("tcp_recovery", &["1"]),
    ("tcp_moderate_rcvbuf", &["1"]),
    ("tcp_no_metrics_save", &["1"]),
];

/// What Linux's send buffers start with before they grow.
const SEND_INITIAL: u32 = 16 << 10;

/// Sets `name`, with or without `net.ipv4.` in front. `Ok(false)` if there is no such setting here.
pub(super) fn set(config: &mut Config, name: &str, value: &str) -> Result<bool, String> {
    let name = name.strip_prefix("net.ipv4.").unwrap_or(name);
    if let Some((_, values)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
        return Ok(values.contains(&value));
    }
    let wrong = || format!("sysctl {name}={value}");
    if name == "tcp_congestion_control" {
        config.tcp.congestion = Algorithm::from_name(value).ok_or_else(wrong)?;
        return Ok(true);
    }
    if matches!(name, "tcp_rmem" | "tcp_wmem") {
        return set_buffers(config, name, value).ok_or_else(wrong).map(|()| true);
    }
    let Some(number) = number(value) else { return Ok(false) };
    set_number(config, name, number).ok_or_else(wrong)
}

/// A number in decimal or hexadecimal.
fn number(value: &str) -> Option<u64> {
    match value.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => value.parse().ok(),
    }
}

/// `None` if the setting exists and has no such value.
fn set_number(config: &mut Config, name: &str, number: u64) -> Option<bool> {
    let small = u8::try_from(number).ok();
    match name {
        "tcp_timestamps" => config.timestamps = number != 0,
        "tcp_sack" => config.sack = number != 0,
        "tcp_window_scaling" => config.window_scaling = number != 0,
        "tcp_ecn" => config.ecn = ecn(number)?,
        "tcp_syncookies" => config.syn_cookies = syn_cookies(number)?,
        "tcp_mtu_probing" => config.path_mtu_probing = probing(number)?,
        "tcp_fastopen" => {
            config.fast_open_client = number & 1 != 0;
            config.fast_open_server = number & 2 != 0;
            return (number & !3 == 0).then_some(true); // Fast Open without cookies is not to be had.
        }
        "tcp_syn_retries" => config.syn_retries = small?,
        "tcp_synack_retries" => config.syn_ack_retries = small?,
        "tcp_retries1" => config.retries_suspect = small?,
        "tcp_retries2" => config.retries_max = small?,
        "tcp_orphan_retries" => config.orphan_retries = if number == 0 { 8 } else { small? },
        "tcp_fin_timeout" => config.fin_timeout = Duration::from_secs(number),
        "tcp_max_syn_backlog" => config.half_open_max = u32::try_from(number).ok()?,
        // 2 is for loopback alone.
        "tcp_tw_reuse" => {
            config.time_wait_reuse = (number == 1).then_some(Duration::from_secs(1));
        }
        // Behind the setting that it belongs to.
        "tcp_tw_reuse_delay" => *config.time_wait_reuse.as_mut()? = Duration::from_millis(number),
        "tcp_max_orphans" => config.orphans_max = u32::try_from(number).ok()?,
        "tcp_max_tw_buckets" => config.time_wait_max = u32::try_from(number).ok()?,
        "tcp_rfc1337" => config.time_wait_ignores_resets = number != 0,
        "tcp_invalid_ratelimit" => config.out_of_window_ack_interval = Duration::from_millis(number),
        "tcp_challenge_ack_limit" => config.challenge_acks_per_second = u32::try_from(number).ok()?,
        "tcp_keepalive_time" => config.tcp.keepalive_idle = Duration::from_secs(number),
        "tcp_keepalive_intvl" => config.tcp.keepalive_interval = Duration::from_secs(number),
        "tcp_keepalive_probes" => config.tcp.keepalive_probes = small?,
        "tcp_slow_start_after_idle" => config.slow_start_after_idle = number != 0,
        "tcp_notsent_lowat" => config.tcp.not_sent_low_water = u32::try_from(number).ok()?,
        "tcp_rto_min_us" => config.rto_min = Duration::from_micros(number),
        "ip_default_ttl" => config.tcp.hop_limit = small?,
        "route.min_pmtu" => config.path_mtu_min = u16::try_from(number).ok()?,
        _ => return Some(false),
    }
    Some(true)
}

fn ecn(number: u64) -> Option<EcnMode> {
    match number {
        0 => Some(EcnMode::Off),
        1 => Some(EcnMode::Active),
        2 => Some(EcnMode::Passive),
        _ => None, // Accurate ECN, RFC 9768.
    }
}

fn syn_cookies(number: u64) -> Option<SynCookies> {
    match number {
        0 => Some(SynCookies::Never),
        1 => Some(SynCookies::UnderPressure),
        2 => Some(SynCookies::Always),
        _ => None,
    }
}

fn probing(number: u64) -> Option<PathMtuProbing> {
    match number {
        0 => Some(PathMtuProbing::Off),
        1 => Some(PathMtuProbing::OnBlackHole),
        2 => Some(PathMtuProbing::Always),
        _ => None,
    }
}

/// Least, initial and largest buffer. Receive buffers grow by need up to the largest, from half of the initial one, as on Linux; the initial send buffer is taken as the size from the
/// start, because full buffers show it.
fn set_buffers(config: &mut Config, name: &str, value: &str) -> Option<()> {
    let numbers: Option<Vec<u64>> = value.split_whitespace().map(number).collect();
    let &[_, initial, largest] = &numbers?[..] else { return None };
    let (initial, largest) = (u32::try_from(initial).ok()?, u32::try_from(largest).ok()?);
    match name {
        "tcp_rmem" => {
            config.tcp.receive_buffer_initial = initial / 2;
            config.tcp.receive_buffer_max = largest;
        }
        _ => config.tcp.send_buffer = (initial != SEND_INITIAL).then_some(initial),
    }
    Some(())
}
