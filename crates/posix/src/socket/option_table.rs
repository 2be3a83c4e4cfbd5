//! Socket options of connections that affect the stack: one line each.
//!
//! The kernel decides which values are valid. The value is first set on a kernel socket that the program does not see, and
//! what that socket reports is used. So ranges, lengths and errors are Linux's and are not repeated here.

use clock::Duration;
use stack::TcpOptions;
use stack::congestion::Algorithm;

/// Reads an option as the kernel has it, and gives it to the stack.
pub(crate) type Apply = fn(&mut TcpOptions, &[u8]);
/// An option of the stack as getsockopt(2) reports it; `None` if it is automatic: then the kernel's default is reported.
pub(crate) type Tell = fn(&TcpOptions) -> Option<Vec<u8>>;

/// One option.
pub(crate) struct Row {
    pub(crate) level: i32,
    pub(crate) option: i32,
    pub(crate) apply: Apply,
    pub(crate) tell: Tell,
    /// It is for listeners, or for sockets before connecting: a connection only stores it.
    pub(crate) is_of_the_beginning: bool,
}

impl Row {
    /// Whether the stack reports the value that the kernel has.
    pub(crate) fn tells(&self, options: &TcpOptions, value: &[u8]) -> bool {
        !self.is_of_the_beginning && (self.tell)(options).as_deref() == Some(value)
    }
}

const fn row(level: i32, option: i32, apply: Apply, tell: Tell) -> Row {
    Row { level, option, apply, tell, is_of_the_beginning: false }
}

/// An option that is too late once there is a connection.
const fn beginning(level: i32, option: i32, apply: Apply, tell: Tell) -> Row {
    Row { level, option, apply, tell, is_of_the_beginning: true }
}

const TCP_NOTSENT_LOWAT: i32 = 25;
const TCP_SAVE_SYN: i32 = 27;
const TCP_FASTOPEN_CONNECT: i32 = 30;

/// All of them.
pub(crate) const TABLE: &[Row] = &[
    row(libc::SOL_TCP, libc::TCP_NODELAY, |o, v| o.no_delay = int(v) != 0, |o| tell(o.no_delay)),
    row(libc::SOL_TCP, libc::TCP_CORK, |o, v| o.cork = int(v) != 0, |o| tell(o.cork)),
    row(libc::SOL_SOCKET, libc::SO_KEEPALIVE, |o, v| o.keepalive = int(v) != 0, |o| tell(o.keepalive)),
    row(
        libc::SOL_TCP,
        libc::TCP_KEEPIDLE,
        |o, v| o.keepalive_idle = seconds(v),
        |o| tell_seconds(o.keepalive_idle),
    ),
    row(
        libc::SOL_TCP,
        libc::TCP_KEEPINTVL,
        |o, v| o.keepalive_interval = seconds(v),
        |o| tell_seconds(o.keepalive_interval),
    ),
    row(
        libc::SOL_TCP,
        libc::TCP_KEEPCNT,
        |o, v| o.keepalive_probes = int(v) as u8,
        |o| tell(o.keepalive_probes),
    ),
    row(
        libc::SOL_TCP,
        libc::TCP_USER_TIMEOUT,
        |o, v| o.user_timeout = Some(millis(v)).filter(|time| !time.is_zero()),
        |o| tell(o.user_timeout.map_or(0, |time| time.as_nanos() / 1_000_000) as i32),
    ),
    row(libc::SOL_SOCKET, libc::SO_LINGER, |o, v| o.linger = linger(v), |o| Some(tell_linger(o.linger))),
    row(
        libc::SOL_TCP,
        libc::TCP_CONGESTION,
        |o, v| o.congestion = algorithm(v).unwrap_or(o.congestion),
        |o| Some(name_of(o.congestion)),
    ),
    beginning(
        libc::SOL_TCP,
        libc::TCP_DEFER_ACCEPT,
        |o, v| o.defer_accept = retransmissions_in(int(v)),
        |o| tell(o.defer_accept.map_or(0, seconds_of_retransmissions)),
    ),
    row(
        libc::SOL_TCP,
        TCP_NOTSENT_LOWAT,
        |o, v| o.not_sent_low_water = if int(v) == 0 { u32::MAX } else { int(v) as u32 },
        |o| tell(if o.not_sent_low_water == u32::MAX { 0 } else { o.not_sent_low_water as i32 }),
    ),
    row(
        libc::SOL_SOCKET,
        libc::SO_SNDBUF,
        |o, v| o.send_buffer = Some(int(v) as u32),
        |o| o.send_buffer.and_then(tell_octets),
    ),
    row(
        libc::SOL_SOCKET,
        libc::SO_RCVBUF,
        |o, v| o.receive_buffer = Some(int(v) as u32),
        |o| o.receive_buffer.and_then(tell_octets),
    ),
    row(
        libc::SOL_TCP,
        libc::TCP_WINDOW_CLAMP,
        |o, v| o.window_clamp = Some(int(v) as u32).filter(|clamp| *clamp != 0),
        |o| o.window_clamp.and_then(tell_octets),
    ),
    row(libc::SOL_IP, libc::IP_TTL, |o, v| o.hop_limit = int(v) as u8, |o| tell(o.hop_limit)),
    row(libc::SOL_IP, libc::IP_TOS, |o, v| o.traffic_class = octet(v) & !3, |o| tell(o.traffic_class)),
    row(libc::SOL_IPV6, libc::IPV6_UNICAST_HOPS, |o, v| o.hop_limit = int(v) as u8, |o| tell(o.hop_limit)),
    row(
        libc::SOL_IPV6,
        libc::IPV6_TCLASS,
        |o, v| o.traffic_class = int(v) as u8 & !3,
        |o| tell(o.traffic_class),
    ),
    row(
        libc::SOL_TCP,
        libc::TCP_SYNCNT,
        |o, v| o.syn_retries = Some(int(v) as u8),
        |o| o.syn_retries.and_then(tell),
    ),
    row(libc::SOL_TCP, libc::TCP_LINGER2, set_linger2, |o| match o.no_fin_wait_2 {
        true => tell(-1),
        false => o.fin_timeout.and_then(tell_seconds),
    }),
    row(
        libc::SOL_SOCKET,
        libc::SO_RCVLOWAT,
        |o, v| o.receive_low_water = int(v).max(1) as u32,
        |o| tell_octets(o.receive_low_water),
    ),
    row(
        libc::SOL_SOCKET,
        libc::SO_OOBINLINE,
        |o, v| o.urgent_inline = int(v) != 0,
        |o| tell(o.urgent_inline),
    ),
    // With 2 the link's header is wanted as well, which the stack does not see.
    beginning(libc::SOL_TCP, TCP_SAVE_SYN, |o, v| o.save_syn = int(v) == 1, |_| None),
    beginning(libc::SOL_TCP, libc::TCP_MAXSEG, |o, v| o.mss_max = Some(int(v) as u16), |_| None),
    row(
        libc::SOL_SOCKET,
        libc::SO_MAX_PACING_RATE,
        |o, v| o.pacing_rate_max = pacing_rate(v),
        |o| o.pacing_rate_max.map(|rate| rate.to_ne_bytes().to_vec()),
    ),
    beginning(
        libc::SOL_TCP,
        libc::TCP_FASTOPEN,
        |o, v| o.fast_open_queue = int(v) as u16,
        |o| tell(o.fast_open_queue),
    ),
    beginning(
        libc::SOL_TCP,
        TCP_FASTOPEN_CONNECT,
        |o, v| o.fast_open_connect = int(v) != 0,
        |o| tell(o.fast_open_connect),
    ),
];

/// The line of an option.
pub(crate) fn find(level: i32, option: i32) -> Option<&'static Row> {
    TABLE.iter().find(|row| (row.level, row.option) == (level, option))
}

/// Sets a socket of the kernel to what differs from the defaults.
pub(crate) fn set_at_kernel(fd: std::os::fd::RawFd, options: &TcpOptions) {
    let default = TcpOptions::default();
    for row in TABLE {
        let value = (row.tell)(options).filter(|value| (row.tell)(&default).as_ref() != Some(value));
        // What the kernel does not take, such as a level of the other IP version, it does not need.
        value.map(|value| syscall::setsockopt(fd, row.level, row.option, &value));
    }
}

/// Octets of the longest value.
pub(crate) const VALUE_MAX: usize = 16;

pub(crate) fn int(value: &[u8]) -> i32 {
    value.first_chunk().map_or_else(|| octet(value).into(), |octets| i32::from_ne_bytes(*octets))
}

fn octet(value: &[u8]) -> u8 {
    value.first().copied().unwrap_or(0)
}

fn seconds(value: &[u8]) -> Duration {
    Duration::from_secs(int(value).max(0) as u64)
}

fn millis(value: &[u8]) -> Duration {
    Duration::from_millis(int(value).max(0) as u64)
}

fn tell(value: impl Into<i32>) -> Option<Vec<u8>> {
    Some(value.into().to_ne_bytes().to_vec())
}

fn tell_octets(value: u32) -> Option<Vec<u8>> {
    tell(i32::try_from(value).unwrap_or(i32::MAX))
}

fn tell_seconds(span: Duration) -> Option<Vec<u8>> {
    tell(i32::try_from(span.as_secs()).unwrap_or(i32::MAX))
}

/// Below zero there is no FIN-WAIT-2.
fn set_linger2(options: &mut TcpOptions, value: &[u8]) {
    options.no_fin_wait_2 = int(value) < 0;
    options.fin_timeout = u64::try_from(int(value)).ok().map(Duration::from_secs);
}

/// `struct linger`: two ints.
fn linger(value: &[u8]) -> Option<Duration> {
    let on = int(value) != 0;
    on.then(|| seconds(value.get(4..8).unwrap_or_default()))
}

fn tell_linger(linger: Option<Duration>) -> Vec<u8> {
    let on = i32::from(linger.is_some());
    let time = linger.map_or(0, |time| time.as_secs() as i32);
    [on.to_ne_bytes(), time.to_ne_bytes()].concat()
}

fn algorithm(value: &[u8]) -> Option<Algorithm> {
    let name = value.split(|octet| *octet == 0).next().unwrap_or_default();
    Algorithm::from_name(std::str::from_utf8(name).ok()?)
}

fn name_of(algorithm: Algorithm) -> Vec<u8> {
    let mut name = algorithm.name().as_bytes().to_vec();
    name.resize(VALUE_MAX, 0);
    name
}

/// An unsigned long, or an int from old programs; the largest is none.
fn pacing_rate(value: &[u8]) -> Option<u64> {
    let rate = match value.first_chunk() {
        Some(octets) => u64::from_ne_bytes(*octets),
        None if int(value) == -1 => u64::MAX,
        None => int(value) as u32 as u64,
    };
    Some(rate).filter(|rate| *rate != u64::MAX)
}

/// `secs_to_retrans` of Linux with its timeouts of one second at first and 120 at most.
fn retransmissions_in(seconds: i32) -> Option<u8> {
    let (mut count, mut period, mut timeout) = (1, 1, 1);
    while seconds > period && count < u8::MAX {
        count += 1;
        timeout = (timeout * 2).min(120);
        period += timeout;
    }
    (seconds > 0).then_some(count)
}

/// `retrans_to_secs`, its inverse.
fn seconds_of_retransmissions(count: u8) -> i32 {
    let (mut period, mut timeout) = (i32::from(count > 0), 1);
    for _ in 1..count {
        timeout = (timeout * 2).min(120);
        period += timeout;
    }
    period
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_of_an_option_sets_it_again() {
        let set = TcpOptions {
            no_delay: true,
            keepalive: true,
            keepalive_probes: 3,
            user_timeout: Some(Duration::from_millis(1500)),
            linger: Some(Duration::from_secs(4)),
            congestion: Algorithm::Bbr,
            defer_accept: Some(4),
            not_sent_low_water: 4096,
            send_buffer: Some(9216),
            hop_limit: 9,
            no_fin_wait_2: true,
            receive_low_water: 7,
            urgent_inline: true,
            ..TcpOptions::default()
        };
        let mut copy = TcpOptions::default();
        for row in TABLE {
            if let Some(value) = (row.tell)(&set) {
                (row.apply)(&mut copy, &value);
            }
        }
        assert_eq!(copy, TcpOptions { ..set });
    }

    #[test]
    fn deferring_counts_as_on_linux() {
        for (seconds, count, told) in [(0, None, 0), (1, Some(1), 1), (2, Some(2), 3), (30, Some(5), 31)] {
            assert_eq!(retransmissions_in(seconds), count, "{seconds} s");
            assert_eq!(count.map_or(0, seconds_of_retransmissions), told);
        }
    }
}
