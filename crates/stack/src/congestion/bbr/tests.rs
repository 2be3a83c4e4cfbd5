//! BBR over a simulated bottleneck.

use super::super::bottleneck::{Bottleneck, Flow};
use super::super::initial_window;
use super::super::tests::{MSS, ack};
use super::*;

/// 10 Mbit/s, 40 ms, a buffer of two bandwidth-delay products.
const PATH: Bottleneck = Bottleneck { rate: 1_250_000, rtt: Duration::from_millis(40), buffer: 100_000 };

fn flow(path: Bottleneck) -> Flow<Bbr> {
    Flow::new(path, Bbr::new(MSS, 0x5eed, Instant::ZERO))
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

/// Octets that `flow` delivers in the next `millis`.
fn goodput(flow: &mut Flow<Bbr>, millis: u64) -> u64 {
    let before = flow.delivered;
    let end = flow.now + Duration::from_millis(millis);
    flow.run_until(end, |_| {});
    flow.delivered - before
}

fn run_until_state(flow: &mut Flow<Bbr>, state: State) {
    while flow.controller.state != state {
        assert!(flow.now < at(60_000), "{state:?} is not reached");
        let next = flow.now + Duration::from_micros(100);
        flow.run_until(next, |_| {});
    }
}

fn within_percent(value: u64, expected: u64, tolerance: u64) -> bool {
    value.abs_diff(expected) * 100 <= expected * tolerance
}

/// 5.3.1 and 5.6.2.
#[test]
fn the_bandwidth_is_found_within_a_tenth_and_used() {
    for rate in [125_000, 1_250_000, 125_000_000] {
        let path = Bottleneck { rate, buffer: 2 * PATH.bdp() * rate / PATH.rate + 10_000, ..PATH };
        let mut flow = flow(path);
        flow.run_until(at(2_000), |_| {});
        assert!(
            within_percent(flow.controller.path.max_bw(), rate, 10),
            "{:?}",
            flow.controller.path.max_bw()
        );
        let delivered = goodput(&mut flow, 2_000);
        assert!(delivered >= rate * 2 * 9 / 10, "{delivered} at {rate}");
    }
}

/// 5.3.2: normally in about a round.
#[test]
fn drain_empties_the_queue_that_startup_built() {
    let mut flow = flow(PATH);
    run_until_state(&mut flow, State::Drain);
    let (drain_start, queue) = (flow.now, flow.queue());
    assert!(queue > PATH.bdp() / 2, "startup queued {queue}");
    run_until_state(&mut flow, State::ProbeBwCruise);
    assert!(flow.queue() <= u64::from(2 * MSS), "{} were left", flow.queue());
    assert!(flow.now - drain_start < 3 * PATH.rtt, "{:?}", flow.now - drain_start);
}

/// 3.4: cruising keeps the queue short, where a loss-based controller would fill the buffer.
#[test]
fn the_round_trip_time_stays_near_the_least() {
    let mut flow = flow(Bottleneck { buffer: 10 * PATH.bdp(), ..PATH });
    flow.run_until(at(2_000), |_| {});
    let (mut sum, mut count) = (0, 0);
    flow.run_until(at(8_000), |flow| {
        sum += flow.queue();
        count += 1;
    });
    assert!(sum / count < PATH.bdp() / 4, "{} octets queued on average", sum / count);
}

/// 5.3.4: every five seconds (MUST), for 200 ms, with half a bandwidth-delay product in flight.
#[test]
fn probe_rtt_is_visited_every_five_seconds_and_empties_the_queue() {
    let mut flow = flow(PATH);
    let (mut visits, mut left, mut least_queue) = (Vec::new(), Vec::new(), u64::MAX);
    let mut state = State::Startup;
    flow.run_until(at(17_000), |flow| {
        let next = flow.controller.state;
        match (state, next) {
            (State::ProbeRtt, State::ProbeRtt) => least_queue = least_queue.min(flow.queue()),
            (_, State::ProbeRtt) => visits.push(flow.now),
            (State::ProbeRtt, _) => left.push(flow.now),
            _ => {}
        }
        state = next;
    });
    assert_eq!(visits.len(), 3, "{visits:?}");
    for (entered, left) in visits.iter().zip(&left) {
        let stay = *left - *entered;
        assert!((200..400).contains(&stay.as_millis()), "{stay:?}");
    }
    let interval = Duration::from_secs(5)..Duration::from_millis(5_500);
    assert!(visits.windows(2).all(|pair| interval.contains(&(pair[1] - pair[0]))), "{visits:?}");
    assert!(least_queue <= u64::from(MSS));
    assert_eq!(flow.controller.path.min_rtt(), Some(PATH.rtt + Duration::from_micros(800)));
}

/// 5.5.6: old bandwidth is forgotten after two cycles.
#[test]
fn a_path_that_gets_slower_is_followed() {
    let mut flow = flow(PATH);
    flow.run_until(at(4_000), |_| {});
    flow.path.rate /= 2;
    flow.run_until(at(20_000), |_| {});
    assert!(
        within_percent(flow.controller.path.max_bw(), PATH.rate / 2, 10),
        "{}",
        flow.controller.path.max_bw()
    );
}

/// 5.3.3.4.
#[test]
fn a_path_that_gets_faster_is_found_by_probing() {
    let mut flow = flow(PATH);
    flow.run_until(at(4_000), |_| {});
    flow.path = Bottleneck { rate: PATH.rate * 2, buffer: PATH.buffer * 2, ..PATH };
    flow.run_until(at(24_000), |_| {});
    assert!(
        within_percent(flow.controller.path.max_bw(), PATH.rate * 2, 10),
        "{}",
        flow.controller.path.max_bw()
    );
}

/// 5.5.10.2: a buffer of a fifth of the product drops what probing adds; the bound keeps loss about the threshold.
#[test]
fn a_shallow_buffer_is_filled_without_much_loss() {
    let mut flow = flow(Bottleneck { buffer: PATH.bdp() / 5, ..PATH });
    flow.run_until(at(2_000), |_| {});
    let lost = flow.lost;
    let delivered = goodput(&mut flow, 20_000);
    assert!(flow.controller.bounds.inflight_longterm < 2 * PATH.bdp() as u32);
    assert!(delivered >= PATH.rate * 20 * 8 / 10, "{delivered}");
    assert!((flow.lost - lost) * 100 <= delivered * 2, "{} lost", flow.lost - lost);
}

/// Equal seeds behave alike, different ones probe at different times (5.3.3.5.2).
#[test]
fn the_seed_alone_sets_the_times_of_probing() {
    let waits = |seed| {
        let mut bbr = Bbr::new(MSS, seed, Instant::ZERO);
        let mut wait = || {
            bbr.start_probe_bw_down(Instant::ZERO);
            bbr.bw_probe_wait
        };
        [wait(), wait(), wait()]
    };
    assert_eq!(waits(1234), waits(1234));
    assert_ne!(waits(1234), waits(4321));
    assert!(waits(0).iter().all(|wait| (2_000..3_000).contains(&wait.as_millis())));
}

/// 5.6.4.4: one segment after a timeout; what was before when it proves spurious (5.5.11).
#[test]
fn a_spurious_timeout_is_undone() {
    let mut flow = flow(PATH);
    flow.run_until(at(1_500), |_| {});
    let bbr = &mut flow.controller;
    let before =
        (bbr.cwnd, bbr.pacing_rate, bbr.state, bbr.bounds.inflight_longterm, bbr.bounds.bw_shortterm);
    bbr.on_congestion(Congestion::Timeout, bbr.cwnd, at(1_500));
    assert_eq!(bbr.cwnd, MSS);
    bbr.on_congestion(Congestion::Timeout, MSS, at(2_500));
    bbr.on_undo(at(2_600));
    let after = (bbr.cwnd, bbr.pacing_rate, bbr.state, bbr.bounds.inflight_longterm, bbr.bounds.bw_shortterm);
    assert_eq!(after, before);
}

/// 5.5.10.2: (1000 + x) / (58000 + x) is 2 % at x = 163; and 5.5.11.2.
#[test]
fn loss_in_a_probe_bounds_the_flight_once_and_is_undone_if_spurious() {
    let mut flow = flow(PATH);
    run_until_state(&mut flow, State::ProbeBwUp);
    let bbr = &mut flow.controller;
    let lossy = Sample { tx_in_flight: 60_000, lost: 3_000, newly_lost: 2_000, ..bbr.path.sample(&ack(0)) };
    let lossy = Sample { app_limited: false, ..lossy };
    bbr.on_congestion(Congestion::Loss, 60_000, flow.now);
    bbr.check_probe_too_high(&lossy);
    assert_eq!((bbr.state, bbr.bounds.inflight_longterm), (State::ProbeBwDown, 58_163));
    bbr.check_probe_too_high(&Sample { tx_in_flight: 40_000, ..lossy });
    assert_eq!(bbr.bounds.inflight_longterm, 58_163);
    bbr.on_undo(flow.now);
    assert_eq!((bbr.state, bbr.bounds.inflight_longterm), (State::ProbeBwUp, u32::MAX));
}

/// 5.3.3.6 and 5.6.4.7: cruising leaves 15 % of the long-term bound to others.
#[test]
fn cruising_leaves_headroom_below_the_bound() {
    let mut flow = flow(PATH);
    run_until_state(&mut flow, State::ProbeBwCruise);
    let bbr = &mut flow.controller;
    bbr.bounds.inflight_longterm = 40_000;
    bbr.bound_cwnd_for_model();
    assert_eq!(bbr.cwnd, 34_000);
}

/// 5.6.4.5, also where the pipe was never full and nothing else lowers the window.
#[test]
fn probe_rtt_halves_the_flight() {
    let mut flow = flow(PATH);
    run_until_state(&mut flow, State::ProbeBwCruise);
    let bbr = &mut flow.controller;
    (bbr.state, bbr.full_pipe) = (State::ProbeRtt, FullPipe::default());
    bbr.on_acked(&Acked { now: flow.now, in_flight: u32::MAX, ..ack(MSS) });
    assert!(within_percent(u64::from(bbr.cwnd), PATH.bdp() / 2, 10), "{}", bbr.cwnd);
}

/// 5.5.10.3: loss while cruising bounds the model by what was delivered, by three tenths at most.
#[test]
fn loss_while_cruising_slows_down_until_the_next_probe() {
    let mut flow = flow(PATH);
    run_until_state(&mut flow, State::ProbeBwCruise);
    flow.controller.on_congestion(Congestion::Ecn, flow.in_flight(), flow.now);
    let end = flow.now + Duration::from_millis(90);
    let mut bounded = false;
    flow.run_until(end, |flow| bounded |= flow.controller.bounds.bw_shortterm < u64::MAX);
    assert!(bounded);
    let end = flow.now + Duration::from_secs(4);
    flow.run_until(end, |flow| bounded &= flow.controller.state != State::ProbeBwUp);
    assert!(!bounded && flow.controller.bounds.bw_shortterm == u64::MAX);
}

/// RFC 3168, 6.1.2.
#[test]
fn an_ecn_echo_ends_startup() {
    let mut bbr = Bbr::new(MSS, 1, Instant::ZERO);
    bbr.on_congestion(Congestion::Ecn, 10 * MSS, Instant::ZERO);
    bbr.on_acked(&ack(MSS));
    assert_ne!(bbr.state, State::Startup);
    assert_eq!(bbr.bounds.inflight_longterm, 10 * MSS);
}

/// 5.4.1.
#[test]
fn idleness_keeps_the_window_and_paces_at_the_bandwidth() {
    let mut flow = flow(PATH);
    flow.run_until(at(4_000), |_| {});
    let bbr = &mut flow.controller;
    let cwnd = bbr.cwnd;
    assert!(bbr.state.is_probe_bw());
    bbr.on_restart_after_idle(Duration::from_secs(60), Duration::from_secs(1), at(64_000));
    assert_eq!(bbr.cwnd, cwnd);
    assert!(within_percent(bbr.pacing_rate, PATH.rate, 10));
    assert!(cwnd > initial_window(MSS));
}
