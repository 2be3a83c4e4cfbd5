//! Socket options that are options of the stack's sockets, with Linux's ranges, units and errors.

use clock::Duration;
use stack::TcpOptions;
use stack::congestion::Algorithm;

use crate::pkt::errno::Errno;
use crate::pkt::symbols as sym;

/// The value of a socket option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OptionValue {
    /// A number.
    Int(i64),
    /// A name, as `TCP_CONGESTION` has it.
    Text(Vec<u8>),
    /// `struct linger`: whether, and seconds.
    Linger(bool, i64),
}

/// Why an option was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OptionsError {
    /// What setsockopt(2) fails with.
    Errno(Errno),
    /// The option, or this value of it, is not to be had.
    Unsupported,
}

impl From<Errno> for OptionsError {
    fn from(errno: Errno) -> OptionsError {
        OptionsError::Errno(errno)
    }
}

/// Sets the option `name` of `level`. `Ok(false)` if it is none of the stack's.
pub(crate) fn set_option(
    options: &mut TcpOptions,
    level: i64,
    name: i64,
    value: &OptionValue,
) -> Result<bool, OptionsError> {
    match (level, name, value) {
        (sym::SOL_SOCKET, sym::SO_LINGER, OptionValue::Linger(on, seconds)) => {
            options.linger = on.then_some(Duration::from_secs(seconds.unsigned_abs()));
        }
        (sym::SOL_TCP, sym::TCP_CONGESTION, OptionValue::Text(text)) => {
            let name = String::from_utf8_lossy(text);
            let name = name.trim_end_matches('\0');
            options.congestion = Algorithm::from_name(name).ok_or(OptionsError::Unsupported)?;
        }
        (sym::SOL_SOCKET, _, OptionValue::Int(value)) => return set_socket(options, name, *value),
        (sym::SOL_TCP, _, OptionValue::Int(value)) => return set_tcp(options, name, *value),
        (sym::SOL_IP | sym::SOL_IPV6, _, OptionValue::Int(value)) => {
            return set_ip(options, level, name, *value);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn set_socket(options: &mut TcpOptions, name: i64, value: i64) -> Result<bool, OptionsError> {
    match name {
        sym::SO_KEEPALIVE => options.keepalive = value != 0,
        sym::SO_OOBINLINE => options.urgent_inline = value != 0,
        // A negative number is as many as there can be.
        sym::SO_RCVLOWAT => {
            options.receive_low_water = u32::try_from(value).unwrap_or(i32::MAX as u32).max(1)
        }
        sym::SO_RCVBUF => options.receive_buffer = Some(octets(value)),
        // As on Linux, where half of it is for overhead, most of which segments in a row do not have.
        sym::SO_SNDBUF => options.send_buffer = Some(octets(value).saturating_mul(2)),
        sym::SO_MAX_PACING_RATE => {
            options.pacing_rate_max = u64::try_from(value).ok().filter(|rate| *rate > 0)
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn set_tcp(options: &mut TcpOptions, name: i64, value: i64) -> Result<bool, OptionsError> {
    match name {
        sym::TCP_NODELAY => options.no_delay = value != 0,
        sym::TCP_CORK => options.cork = value != 0,
        sym::TCP_MAXSEG if value == 0 => options.mss_max = None,
        sym::TCP_MAXSEG => options.mss_max = Some(within(value, 88, 32767)? as u16),
        sym::TCP_KEEPIDLE => options.keepalive_idle = seconds(within(value, 1, 32767)?),
        sym::TCP_KEEPINTVL => options.keepalive_interval = seconds(within(value, 1, 32767)?),
        sym::TCP_KEEPCNT => options.keepalive_probes = within(value, 1, 127)? as u8,
        sym::TCP_SYNCNT => options.syn_retries = Some(within(value, 1, 127)? as u8),
        sym::TCP_USER_TIMEOUT => {
            let time = within(value, 0, i64::from(i32::MAX))?;
            options.user_timeout = (time > 0).then(|| Duration::from_millis(time.unsigned_abs()));
        }
        sym::TCP_LINGER2 => {
            options.no_fin_wait_2 = value < 0;
            options.fin_timeout = (value > 0).then(|| seconds(value.min(120)));
        }
        sym::TCP_DEFER_ACCEPT => options.defer_accept = (value > 0).then(|| syn_acks_of(value)),
        sym::TCP_WINDOW_CLAMP => options.window_clamp = (value > 0).then(|| octets(value)),
        sym::TCP_NOTSENT_LOWAT => {
            options.not_sent_low_water = if value == 0 { u32::MAX } else { value as u32 }
        }
        sym::TCP_FASTOPEN => options.fast_open_queue = within(value, 0, i64::from(u16::MAX))? as u16,
        sym::TCP_FASTOPEN_CONNECT => options.fast_open_connect = within(value, 0, 1)? == 1,
        _ => return Ok(false),
    }
    Ok(true)
}

fn set_ip(options: &mut TcpOptions, level: i64, name: i64, value: i64) -> Result<bool, OptionsError> {
    const NOT_ECN: i64 = 0xfc;
    match (level, name) {
        (sym::SOL_IP, sym::IP_TOS) | (sym::SOL_IPV6, sym::IPV6_TCLASS) => {
            // Linux keeps the ECN bits of TCP sockets to itself.
            options.traffic_class = (within(value, -1, 255)?.max(0) & NOT_ECN) as u8;
        }
        (sym::SOL_IP, sym::IP_TTL) => options.hop_limit = within(value, 1, 255)? as u8,
        (sym::SOL_IPV6, sym::IPV6_UNICAST_HOPS) => options.hop_limit = within(value, 1, 255)? as u8,
        (sym::SOL_IP, sym::IP_MTU_DISCOVER) | (sym::SOL_IPV6, sym::IPV6_MTU_DISCOVER) => {
            // Not to set "do not fragment" changes nothing that a script compares.
            let usual = matches!(value, sym::IP_PMTUDISC_DONT | sym::IP_PMTUDISC_WANT | sym::IP_PMTUDISC_DO);
            return if usual { Ok(true) } else { Err(OptionsError::Unsupported) };
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// The option `name` of `level`; `None` if it is none of the stack's.
pub(crate) fn get_option(options: &TcpOptions, level: i64, name: i64) -> Option<OptionValue> {
    let value = match (level, name) {
        (sym::SOL_SOCKET, sym::SO_LINGER) => {
            let seconds = options.linger.map_or(0, whole_seconds);
            return Some(OptionValue::Linger(options.linger.is_some(), seconds));
        }
        (sym::SOL_TCP, sym::TCP_CONGESTION) => {
            return Some(OptionValue::Text(options.congestion.name().as_bytes().to_vec()));
        }
        (sym::SOL_SOCKET, sym::SO_KEEPALIVE) => options.keepalive.into(),
        (sym::SOL_SOCKET, sym::SO_OOBINLINE) => options.urgent_inline.into(),
        (sym::SOL_SOCKET, sym::SO_RCVLOWAT) => options.receive_low_water.into(),
        // Linux reports twice the value that was set, for its own overhead.
        (sym::SOL_SOCKET, sym::SO_RCVBUF) => i64::from(options.receive_buffer?) * 2,
        (sym::SOL_SOCKET, sym::SO_SNDBUF) => options.send_buffer?.into(),
        (sym::SOL_SOCKET, sym::SO_MAX_PACING_RATE) => options.pacing_rate_max.map_or(-1, |rate| rate as i64),
        (sym::SOL_TCP, sym::TCP_NODELAY) => options.no_delay.into(),
        (sym::SOL_TCP, sym::TCP_CORK) => options.cork.into(),
        (sym::SOL_TCP, sym::TCP_KEEPIDLE) => whole_seconds(options.keepalive_idle),
        (sym::SOL_TCP, sym::TCP_KEEPINTVL) => whole_seconds(options.keepalive_interval),
        (sym::SOL_TCP, sym::TCP_KEEPCNT) => options.keepalive_probes.into(),
        (sym::SOL_TCP, sym::TCP_SYNCNT) => options.syn_retries?.into(),
        (sym::SOL_TCP, sym::TCP_USER_TIMEOUT) => {
            options.user_timeout.map_or(0, |time| time.as_millis() as i64)
        }
        (sym::SOL_TCP, sym::TCP_LINGER2) if options.no_fin_wait_2 => -1,
        (sym::SOL_TCP, sym::TCP_LINGER2) => whole_seconds(options.fin_timeout?),
        (sym::SOL_TCP, sym::TCP_DEFER_ACCEPT) => options.defer_accept.map_or(0, seconds_of_syn_acks),
        (sym::SOL_TCP, sym::TCP_WINDOW_CLAMP) => options.window_clamp?.into(),
        (sym::SOL_TCP, sym::TCP_FASTOPEN) => options.fast_open_queue.into(),
        (sym::SOL_TCP, sym::TCP_FASTOPEN_CONNECT) => options.fast_open_connect.into(),
        (sym::SOL_IP, sym::IP_TOS) | (sym::SOL_IPV6, sym::IPV6_TCLASS) => options.traffic_class.into(),
        (sym::SOL_IP, sym::IP_TTL) | (sym::SOL_IPV6, sym::IPV6_UNICAST_HOPS) => options.hop_limit.into(),
        (sym::SOL_IP, sym::IP_MTU_DISCOVER) | (sym::SOL_IPV6, sym::IPV6_MTU_DISCOVER) => {
            sym::IP_PMTUDISC_WANT
        }
        _ => return None,
    };
    Some(OptionValue::Int(value))
}

fn within(value: i64, least: i64, most: i64) -> Result<i64, OptionsError> {
    if (least..=most).contains(&value) { Ok(value) } else { Err(Errno::EINVAL.into()) }
}

fn octets(value: i64) -> u32 {
    u32::try_from(value.max(0)).unwrap_or(u32::MAX)
}

fn seconds(value: i64) -> Duration {
    Duration::from_secs(value.unsigned_abs())
}

fn whole_seconds(time: Duration) -> i64 {
    time.as_secs() as i64
}

/// How many SYN-ACKs are sent within `seconds`: the first after one second, the next after two more, and so on.
fn syn_acks_of(seconds: i64) -> u8 {
    let (mut count, mut period, mut timeout) = (1_u8, 1, 1);
    while seconds > period && count < u8::MAX {
        count += 1;
        timeout = (timeout * 2).min(120);
        period += timeout;
    }
    count
}

fn seconds_of_syn_acks(count: u8) -> i64 {
    let (mut period, mut timeout) = (1, 1);
    for _ in 1..count {
        timeout = (timeout * 2).min(120);
        period += timeout;
    }
    period
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: i64, value: i64) -> Result<Option<OptionValue>, OptionsError> {
        let mut options = TcpOptions::default();
        set_option(&mut options, sym::SOL_TCP, name, &OptionValue::Int(value))?;
        Ok(get_option(&options, sym::SOL_TCP, name))
    }

    #[test]
    fn options_read_back_as_they_were_set() {
        for (name, value) in [(sym::TCP_NODELAY, 1), (sym::TCP_KEEPIDLE, 3), (sym::TCP_USER_TIMEOUT, 5000)] {
            assert_eq!(set(name, value), Ok(Some(OptionValue::Int(value))));
        }
    }

    #[test]
    fn values_outside_linuxs_ranges_are_invalid() {
        for (name, value) in [(sym::TCP_KEEPCNT, 0), (sym::TCP_MAXSEG, 87), (sym::TCP_SYNCNT, 128)] {
            assert_eq!(set(name, value), Err(OptionsError::Errno(Errno::EINVAL)));
        }
    }

    #[test]
    fn deferring_accept_counts_syn_acks() {
        assert_eq!(set(sym::TCP_DEFER_ACCEPT, 5), Ok(Some(OptionValue::Int(7))), "1 + 2 + 4 seconds");
    }
}
