//! From two looks to rates and shares. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use observe::report::{Count, CountersReport, SocketReport};

use super::cpu::TICK_MS;
use super::look::{Look, SOCKETS_MAX, Seen, SeenInterface};

/// Counters of a stack that count what was lost or refused, each packet once.
const STACK_DROPS: [&str; 10] = [
    "TcpInErrs",
    "TcpExtListenDrops",
    "TcpExtPAWSEstab",
    "TcpExtTCPRcvQDrop",
    "TcpExtTCPOFODrop",
    "TcpExtOfoPruned",
    "TcpExtTCPZeroWindowDrop",
    "UdpInErrors",
    "SidestepRepliesDropped",
    "SidestepUdpOutTooLong",
];
/// Those that say why something was lost that one of the others counts, too.
const REASONS: [&str; 7] = [
    "TcpInCsumErrors",
    "TcpExtListenOverflows",
    "TcpExtTCPReqQFullDrop",
    "SidestepMemoryRefused",
    "UdpInCsumErrors",
    "UdpRcvbufErrors",
    "UdpMemErrors",
];

/// All that is shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    pub(super) programs: Vec<Program>,
    pub(super) interfaces: Vec<Interface>,
    /// Brokers that run.
    pub(super) brokers: usize,
    pub(super) failures: Vec<String>,
    /// Somebody has looked.
    pub(super) has_looked: bool,
    /// Who did not answer may yet do so.
    pub(super) may_answer: bool,
}

/// A program.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Program {
    pub(super) pid: u32,
    pub(super) name: String,
    /// Where its packets come from: `native`, `eth0:0,2` or `kernel`.
    pub(super) place: String,
    /// Of one core, if the kernel tells it.
    pub(super) cpu: Option<f64>,
    /// Connections that are open, if it counts them.
    pub(super) connections: Option<u64>,
    /// Frames a second in and out.
    pub(super) packets_in: f64,
    pub(super) packets_out: f64,
    pub(super) drops: Vec<Drop>,
    pub(super) engines: Vec<Engine>,
    /// Of the selected program.
    pub(super) sockets: Option<Sockets>,
    /// Why it is not known how it is.
    pub(super) silent: Option<String>,
}

/// An engine, and the shares of its time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Engine {
    pub(super) busy: f64,
    pub(super) spinning: f64,
    pub(super) asleep: f64,
}

/// Something that was dropped.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Drop {
    /// The counter's name.
    pub(super) reason: String,
    /// How many a second.
    pub(super) rate: f64,
    /// How many since the start.
    pub(super) total: u64,
}

/// An interface under `sidestep run`, and what becomes of its packets, a second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) rates: Vec<(String, f64)>,
}

/// Sockets of a program, the busiest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sockets {
    pub(super) sockets: Vec<(SocketReport, f64)>,
    /// There are more than were read.
    pub(super) is_cut: bool,
}

impl Program {
    pub(super) fn drop_rate(&self) -> f64 {
        let counted_once = self.drops.iter().filter(|drop| !REASONS.contains(&drop.reason.as_str()));
        counted_once.map(|drop| drop.rate).sum()
    }
}

/// What happened between two looks. What is new in the second one has no rates yet. Each program has a span of its own: another one that
/// does not answer makes a look long, before or after this one was read.
pub(super) fn figures(old: Option<&Look>, new: &Look) -> Figures {
    let before = |pid: u32| old.and_then(|old| old.programs.iter().find(|seen| seen.pid == pid));
    let programs = new.programs.iter().map(|seen| program(before(seen.pid), seen)).collect();
    let interfaces = new.interfaces.iter().map(|seen| {
        let is_it = |it: &&SeenInterface| (it.broker, &it.name) == (seen.broker, &seen.name);
        let before = old.and_then(|old| old.interfaces.iter().find(is_it));
        let span = before.map_or(Duration::ZERO, |before| seen.at.saturating_duration_since(before.at));
        let rates = gains(before.map(|it| &it.counters[..]), &seen.counters, span);
        Interface { name: seen.name.clone(), rates: rates.filter(|(_, rate)| *rate > 0.0).collect() }
    });
    Figures {
        programs,
        interfaces: interfaces.collect(),
        brokers: new.brokers,
        failures: new.failures(None).map(str::to_owned).collect(),
        has_looked: true,
        may_answer: new.may_answer,
    }
}

fn program(old: Option<&Seen>, new: &Seen) -> Program {
    let span = match (old.and_then(|old| old.at), new.at) {
        (Some(old), Some(new)) => new.saturating_duration_since(old),
        _ => Duration::ZERO,
    };
    let counters = new.counters.as_ref();
    let before = old.and_then(|old| old.counters.as_ref());
    let frame_rate = |name: &str| {
        let old = before.map(|report| frames(report, name));
        per_second(old, counters.map_or(0, |report| frames(report, name)), span)
    };
    Program {
        pid: new.pid,
        name: new.name.clone(),
        place: place(new),
        cpu: cpu(old, new, span),
        connections: connections(new),
        packets_in: frame_rate("rx_frames"),
        packets_out: frame_rate("tx_frames"),
        drops: drops(before, counters, span),
        engines: engines(old, new, span),
        sockets: new.sockets.as_ref().map(|sockets| of_sockets(old, sockets, span)),
        silent: new.silent.clone(),
    }
}

fn place(seen: &Seen) -> String {
    if seen.broker.is_none() {
        return "native".to_owned();
    }
    let of = |(interface, queues): &(String, Vec<u16>)| {
        let numbers: Vec<String> = queues.iter().map(u16::to_string).collect();
        format!("{interface}:{}", numbers.join(","))
    };
    let places: Vec<String> = seen.queues.iter().map(of).collect();
    if places.is_empty() { "kernel".to_owned() } else { places.join(" ") }
}

fn cpu(old: Option<&Seen>, new: &Seen, span: Duration) -> Option<f64> {
    let used = new.cpu.as_ref()?.process.checked_sub(old?.cpu.as_ref()?.process)?;
    (!span.is_zero()).then(|| used.as_secs_f64() / span.as_secs_f64())
}

/// A server that admits connections knows them all, on its stacks and on kernel sockets; others have what is on their stacks.
fn connections(seen: &Seen) -> Option<u64> {
    let counters = seen.counters.as_ref()?;
    let is_open = |(name, _): &&Count| name.ends_with("_connections_open");
    let mut own = counters.own.iter().filter(is_open).map(|(_, value)| *value).peekable();
    if own.peek().is_some() {
        return Some(own.sum());
    }
    let has_stack = counters.engines.iter().any(|engine| !engine.stack.is_empty());
    has_stack.then(|| seen.engines.iter().map(|engine| u64::from(engine.connections)).sum())
}

/// Frames of all devices that the engines have or had.
fn frames(report: &CountersReport, name: &str) -> u64 {
    of_devices(report).filter(|(it, _)| it == name).map(|(_, value)| *value).sum()
}

fn of_devices(report: &CountersReport) -> impl Iterator<Item = &Count> {
    report.engines.iter().flat_map(|engine| {
        engine.devices.iter().flat_map(|device| &device.counters).chain(&engine.devices_gone)
    })
}

/// All that is lost, the busiest reason first, then the most frequent one.
fn drops(old: Option<&CountersReport>, new: Option<&CountersReport>, span: Duration) -> Vec<Drop> {
    let old = old.map(lost);
    let new = new.map(lost).unwrap_or_default();
    let of = |(reason, total): (&String, &u64)| {
        let before = old.as_ref().map(|old| old.get(reason).copied().unwrap_or(0));
        Drop { reason: reason.clone(), rate: per_second(before, *total, span), total: *total }
    };
    let mut drops: Vec<Drop> = new.iter().filter(|(_, total)| **total > 0).map(of).collect();
    drops.sort_by(|a, b| b.rate.total_cmp(&a.rate).then(b.total.cmp(&a.total)));
    drops
}

/// Counts of what is lost, by their names, over all engines and devices.
fn lost(report: &CountersReport) -> BTreeMap<String, u64> {
    let mut lost = BTreeMap::new();
    let mut add = |name: &str, value: u64| *lost.entry(name.to_owned()).or_default() += value;
    let is_lost = |name: &str| name.contains("dropped") || name == "replies_unsent";
    for (name, value) in report.own.iter().filter(|(name, _)| is_lost(name) || name == "query_log_lost") {
        add(name, *value);
    }
    for engine in &report.engines {
        let is_loss = |name: &str| STACK_DROPS.contains(&name) || REASONS.contains(&name);
        let stack = engine.stack.iter().filter(|(name, _)| is_loss(name));
        let own = engine.engine.iter().filter(|(name, _)| is_lost(name));
        own.chain(stack).for_each(|(name, value)| add(name, *value));
    }
    of_devices(report).filter(|(name, _)| is_lost(name)).for_each(|(name, value)| add(name, *value));
    lost
}

/// The shares of each engine's time. An engine counts by the clock; what the kernel counts for its thread is the bound of what it
/// worked and looked for packets: the rest of the time, others had the core.
fn engines(old: Option<&Seen>, new: &Seen, span: Duration) -> Vec<Engine> {
    let Some(counters) = &new.counters else { return Vec::new() };
    let before = old.and_then(|old| old.counters.as_ref());
    let each = counters.engines.iter().enumerate().map(|(number, engine)| {
        let Some(before) = before.and_then(|report| report.engines.get(number)) else {
            return Engine::default();
        };
        let spent = |name: &str| {
            let nanos = value(&engine.engine, name).saturating_sub(value(&before.engine, name));
            Duration::from_nanos(nanos)
        };
        let ran = ran(old, new, number).unwrap_or(Duration::MAX);
        shares(spent("busy_ns"), spent("spinning_ns"), spent("asleep_ns"), ran, span)
    });
    each.collect()
}

/// How long the thread of an engine, or its process, ran between two looks.
fn ran(old: Option<&Seen>, new: &Seen, number: usize) -> Option<Duration> {
    let (old, new) = (old?.cpu.as_ref()?, new.cpu.as_ref()?);
    new.of_engine(number).checked_sub(old.of_engine(number))
}

fn shares(busy: Duration, spinning: Duration, asleep: Duration, ran: Duration, span: Duration) -> Engine {
    let all = busy + spinning + asleep;
    // The engine and the tool read their clocks at different times, so the sum is the measure. Without one it was not driven.
    let measure = if all.is_zero() { span } else { all }.as_secs_f64();
    if measure == 0.0 {
        return Engine::default();
    }
    let (busy, spinning) = (busy.as_secs_f64(), spinning.as_secs_f64());
    let may_have_run = ran.saturating_add(Duration::from_millis(TICK_MS)).as_secs_f64();
    let part = if busy + spinning > may_have_run { may_have_run / (busy + spinning) } else { 1.0 };
    let (busy, spinning) = (busy * part / measure, spinning * part / measure);
    Engine { busy, spinning, asleep: (1.0 - busy - spinning).max(0.0) }
}

fn value(counts: &[Count], name: &str) -> u64 {
    counts.iter().find(|(it, _)| it == name).map_or(0, |(_, value)| *value)
}

/// The sockets, those that moved most octets since the last look first, then connections, then the others.
fn of_sockets(old: Option<&Seen>, new: &[SocketReport], span: Duration) -> Sockets {
    let old = old.and_then(|old| old.sockets.as_deref());
    let moved = |socket: &SocketReport| socket.tcp.as_ref().map(|tcp| tcp.bytes_acked + tcp.bytes_received);
    let key = |socket: &SocketReport| (socket.engine, socket.id.clone());
    let before: BTreeMap<_, u64> =
        old.unwrap_or_default().iter().filter_map(|socket| Some((key(socket), moved(socket)?))).collect();
    // A connection that was not there yet has moved all of its octets since, if all were read that were there.
    let of_new = old.filter(|old| old.len() < SOCKETS_MAX).map(|_| 0);
    let rate_of = |socket: &SocketReport| {
        let before = before.get(&key(socket)).copied().or(of_new);
        moved(socket).map_or(0.0, |now| per_second(before, now, span))
    };
    let mut sockets: Vec<(SocketReport, f64)> =
        new.iter().map(|socket| (socket.clone(), rate_of(socket))).collect();
    sockets.sort_by(|(a, rate_a), (b, rate_b)| {
        let is_listener = |socket: &SocketReport| socket.remote.is_none();
        rate_b.total_cmp(rate_a).then(is_listener(a).cmp(&is_listener(b)))
    });
    Sockets { sockets, is_cut: new.len() >= SOCKETS_MAX }
}

/// Counts and how much they gained a second.
fn gains<'c>(
    old: Option<&'c [Count]>,
    new: &'c [Count],
    span: Duration,
) -> impl Iterator<Item = (String, f64)> + 'c {
    new.iter()
        .map(move |(name, count)| (name.clone(), per_second(old.map(|old| value(old, name)), *count, span)))
}

/// A counter that began anew has no rate, nor has one that was not there before.
fn per_second(old: Option<u64>, new: u64, span: Duration) -> f64 {
    match old {
        Some(old) if !span.is_zero() => new.saturating_sub(old) as f64 / span.as_secs_f64(),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use observe::report::{DeviceCounters, EngineCounters, EngineReport, TcpReport};

    use super::super::cpu::CpuTimes;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn counts(counts: &[(&str, u64)]) -> Vec<Count> {
        counts.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    /// A program with one engine: its times in milliseconds, its received frames, and how long its process ran.
    fn seen([busy, spinning, asleep]: [u64; 3], frames: u64, ran_ms: u64) -> Seen {
        let times = [("busy_ns", busy), ("spinning_ns", spinning), ("asleep_ns", asleep)];
        let device = DeviceCounters {
            counters: counts(&[("rx_frames", frames), ("rx_dropped_full", frames / 10)]),
            ..DeviceCounters::default()
        };
        let engine = EngineCounters {
            engine: counts(&times.map(|(name, millis)| (name, 1_000_000 * millis))),
            devices: vec![device],
            devices_gone: counts(&[("rx_frames", 5)]),
            stack: counts(&[("TcpInErrs", 7)]),
        };
        Seen {
            pid: 7,
            name: "dns".to_owned(),
            counters: Some(CountersReport { own: Vec::new(), engines: vec![engine] }),
            engines: vec![EngineReport { connections: 3, ..EngineReport::default() }],
            cpu: Some(CpuTimes { process: Duration::from_millis(ran_ms), engines: vec![None] }),
            ..Seen::default()
        }
    }

    fn look(at: Instant, mut seen: Seen) -> Look {
        seen.at.get_or_insert(at);
        let (interfaces, failures) = (Vec::new(), Vec::new());
        Look { at, programs: vec![seen], interfaces, brokers: 0, failures, may_answer: false }
    }

    fn between(old: Seen, new: Seen) -> Program {
        let at = Instant::now();
        let (old, new) = (look(at, old), look(at + SECOND, new));
        figures(Some(&old), &new).programs.remove(0)
    }

    fn in_percent(engine: Engine) -> [u32; 3] {
        [engine.busy, engine.spinning, engine.asleep].map(|share| (share * 100.0).round() as u32)
    }

    #[test]
    fn what_was_counted_meanwhile_has_a_rate() {
        let program = between(seen([0; 3], 1000, 0), seen([100, 200, 700], 3000, 310));
        assert_eq!(program.packets_in, 2000.0);
        assert_eq!(program.connections, Some(3));
        assert_eq!(program.cpu, Some(0.31));
        assert_eq!(in_percent(program.engines[0]), [10, 20, 70]);
        let drop = |reason: &str, rate, total| Drop { reason: reason.to_owned(), rate, total };
        assert_eq!(program.drops, [drop("rx_dropped_full", 200.0, 300), drop("TcpInErrs", 0.0, 7)]);
    }

    #[test]
    fn what_was_lost_counts_once_though_its_reason_is_shown_too() {
        let drop = |reason: &str, rate| Drop { reason: reason.to_owned(), rate, total: 40 };
        let drops = vec![
            drop("UdpInErrors", 30.0),
            drop("UdpRcvbufErrors", 30.0),
            drop("TcpExtListenDrops", 5.0),
            drop("TcpExtListenOverflows", 5.0),
            drop("rx_dropped_full", 2.0),
        ];
        assert_eq!(Program { drops, ..Program::default() }.drop_rate(), 37.0);
    }

    #[test]
    fn a_program_has_the_span_between_its_own_counts() {
        // Another program answered late: the second look ended three seconds after the first one.
        let at = Instant::now();
        let old = look(at, seen([0; 3], 1000, 0));
        let counted = Seen { at: Some(at + SECOND), ..seen([100, 200, 700], 3000, 310) };
        let program = figures(Some(&old), &look(at + 3 * SECOND, counted)).programs.remove(0);
        assert_eq!((program.packets_in, program.cpu), (2000.0, Some(0.31)));
    }

    #[test]
    fn no_engine_looks_for_packets_for_longer_than_its_thread_ran() {
        // By the clock it looked all the time; another thread had the core for three quarters of it.
        let program = between(seen([0; 3], 0, 0), seen([200, 800, 0], 0, 240));
        assert_eq!(in_percent(program.engines[0]), [5, 20, 75]);
        let unknown = Seen { cpu: None, ..seen([200, 800, 0], 0, 0) };
        assert_eq!(in_percent(between(seen([0; 3], 0, 0), unknown).engines[0]), [20, 80, 0]);
    }

    #[test]
    fn what_is_new_or_began_anew_has_no_rate() {
        let new = figures(None, &look(Instant::now(), seen([1, 1, 1], 1000, 10))).programs.remove(0);
        assert_eq!((new.packets_in, new.cpu, new.engines[0]), (0.0, None, Engine::default()));
        let anew = between(seen([900, 0, 0], 1000, 500), seen([0, 0, 0], 3, 1));
        assert_eq!((anew.packets_in, anew.cpu), (0.0, None));
        assert_eq!(in_percent(anew.engines[0]), [0, 0, 100]);
    }

    #[test]
    fn a_server_that_admits_connections_knows_those_on_kernel_sockets_too() {
        let mut server = seen([0; 3], 0, 0);
        let own = counts(&[("tcp_connections_open", 4), ("encrypted_connections_open", 1)]);
        server.counters.as_mut().unwrap().own = own;
        assert_eq!(connections(&server), Some(5));
        server.counters.as_mut().unwrap().own.clear();
        server.counters.as_mut().unwrap().engines[0].stack.clear();
        assert_eq!(connections(&server), None, "an engine without a stack knows none");
    }

    #[test]
    fn places_are_queues_or_the_kernel() {
        let under = |queues: &[(&str, &[u16])]| Seen {
            broker: Some(1),
            queues: queues.iter().map(|(name, queues)| ((*name).to_owned(), queues.to_vec())).collect(),
            ..seen([0; 3], 0, 0)
        };
        assert_eq!(place(&under(&[("eth0", &[0, 2]), ("eth1", &[1])])), "eth0:0,2 eth1:1");
        assert_eq!(place(&under(&[])), "kernel");
        assert_eq!(place(&seen([0; 3], 0, 0)), "native");
    }

    #[test]
    fn the_socket_that_moves_most_is_first() {
        let socket = |id: &str, octets: u64| SocketReport {
            engine: 0,
            protocol: "tcp".to_owned(),
            state: "ESTAB".to_owned(),
            recv_q: 0,
            send_q: 0,
            local: "192.0.2.1:80".parse().unwrap(),
            remote: Some("192.0.2.2:1".parse().unwrap()),
            id: Some(id.to_owned()),
            half_open: None,
            drops: None,
            tcp: Some(TcpReport { bytes_received: octets, ..TcpReport::default() }),
        };
        let with = |sockets| Seen { sockets: Some(sockets), ..seen([0; 3], 0, 0) };
        let listener = SocketReport { id: None, remote: None, tcp: None, ..socket("", 0) };
        let old = with(vec![listener.clone(), socket("0.1", 1000), socket("1.1", 50)]);
        let new = with(vec![listener, socket("0.1", 1500), socket("1.1", 5050), socket("2.1", 9000)]);
        let sockets = between(old, new).sockets.unwrap();
        let ids: Vec<_> = sockets.sockets.iter().map(|(it, rate)| (it.id.as_deref(), *rate)).collect();
        let expected = [(Some("2.1"), 9000.0), (Some("1.1"), 5000.0), (Some("0.1"), 500.0), (None, 0.0)];
        assert_eq!(ids, expected);
        assert!(!sockets.is_cut);
    }
}
