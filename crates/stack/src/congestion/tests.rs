//! Tests of all controllers, and helpers for their own tests.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use clock::{Duration, Instant};

use super::bottleneck::{Bottleneck, Flow};
use super::*;

pub(super) const MSS: u32 = 1000;

/// An acknowledgement of `octets` to a sender that its window limits.
pub(super) fn ack(octets: u32) -> Acked {
    Acked {
        now: Instant::ZERO,
        delivered: octets,
        cumulative: octets,
        prior_in_flight: octets,
        in_flight: 0,
        rtt: None,
        srtt: Duration::ZERO,
        min_rtt: Duration::ZERO,
        rate: None,
        cwnd_limited: true,
        in_recovery: false,
        snd_una: SeqNum(0),
        snd_nxt: SeqNum(1),
        lost: 0,
    }
}

/// The same during a recovery.
pub(super) fn ack_in_recovery(octets: u32) -> Acked {
    Acked { in_recovery: true, ..ack(octets) }
}

/// Acknowledges a whole window, `segments` with each acknowledgement.
pub(super) fn acknowledge_window(controller: &mut dyn CongestionControl, segments: u32) {
    let mut left = controller.cwnd();
    while left > 0 {
        let octets = left.min(segments * MSS);
        controller.on_acked(&ack(octets));
        left -= octets;
    }
}

#[derive(Clone, Debug)]
enum Call {
    Sent { in_flight: u32 },
    Acked(Box<Acked>),
    Congestion(Congestion, u32),
    Recovered,
    Undo,
    Restart { idle: Duration, rto: Duration },
    HandshakeLoss,
    Mss(u32),
}

fn apply(controller: &mut Controller, call: &Call, now: Instant) {
    match call {
        Call::Sent { in_flight } => controller.on_sent(now, *in_flight),
        Call::Acked(acked) => controller.on_acked(&Acked { now, ..**acked }),
        Call::Congestion(congestion, flight) => controller.on_congestion(*congestion, *flight, now),
        Call::Recovered => controller.on_recovered(now),
        Call::Undo => controller.on_undo(now),
        Call::Restart { idle, rto } => controller.on_restart_after_idle(*idle, *rto, now),
        Call::HandshakeLoss => controller.on_handshake_loss(),
        Call::Mss(mss) => controller.set_mss(*mss),
    }
}

/// Small and large values, and the edges.
fn octets() -> impl Strategy<Value = u32> {
    prop_oneof![0..20_000u32, any::<u32>(), Just(0), Just(u32::MAX)]
}

fn span() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (0..2_000_000_000u64).prop_map(Duration::from_nanos),
        any::<u64>().prop_map(Duration::from_nanos),
        Just(Duration::ZERO),
        Just(Duration::MAX),
    ]
}

prop_compose! {
    fn rate()(delivered in any::<u64>(), small in 0..1_000_000u64, interval in span(),
              prior_delivered in any::<u64>(), use_small in any::<bool>(), app_limited in any::<bool>()) -> RateSample {
        let delivered = if use_small { small } else { delivered };
        let prior_delivered = if use_small { small * 3 } else { prior_delivered };
        RateSample { delivered, interval, prior_delivered, app_limited }
    }
}

prop_compose! {
    fn acked()(octets in prop::array::uniform5(octets()), rtt in prop::option::of(span()), srtt in span(),
               min_rtt in span(), rate in prop::option::of(rate()), flags in any::<(bool, bool)>(),
               seq in any::<(u32, u32)>()) -> Acked {
        let [delivered, cumulative, prior_in_flight, in_flight, lost] = octets;
        Acked {
            now: Instant::ZERO, delivered, cumulative, prior_in_flight, in_flight, rtt, srtt, min_rtt, rate,
            cwnd_limited: flags.0, in_recovery: flags.1, snd_una: SeqNum(seq.0), snd_nxt: SeqNum(seq.1), lost,
        }
    }
}

fn congestion() -> impl Strategy<Value = Congestion> {
    prop_oneof![Just(Congestion::Loss), Just(Congestion::Ecn), Just(Congestion::Timeout)]
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        4 => octets().prop_map(|in_flight| Call::Sent { in_flight }),
        8 => acked().prop_map(|acked| Call::Acked(Box::new(acked))),
        2 => (congestion(), octets()).prop_map(|(congestion, flight)| Call::Congestion(congestion, flight)),
        1 => Just(Call::Recovered),
        1 => Just(Call::Undo),
        1 => (span(), span()).prop_map(|(idle, rto)| Call::Restart { idle, rto }),
        1 => Just(Call::HandshakeLoss),
        1 => prop_oneof![1..70_000u32, any::<u32>()].prop_map(Call::Mss),
    ]
}

fn algorithm() -> impl Strategy<Value = Algorithm> {
    prop_oneof![Just(Algorithm::NewReno), Just(Algorithm::Cubic), Just(Algorithm::Bbr)]
}

/// 10 Mbit/s, 40 ms and a buffer of one bandwidth-delay product, for half a minute.
#[test]
fn every_controller_fills_a_path_and_loses_little() {
    let path = Bottleneck { rate: 1_250_000, rtt: Duration::from_millis(40), buffer: 50_000 };
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Bbr] {
        let mut flow = Flow::new(path, Controller::new(algorithm, MSS, 1, Instant::ZERO));
        flow.run_until(Instant::ZERO + Duration::from_secs(30), |_| {});
        let used_percent = flow.delivered * 100 / (path.rate * 30);
        assert!(used_percent >= 93, "{algorithm:?} uses {used_percent} % of the path");
        assert!(flow.lost * 100 <= flow.delivered, "{algorithm:?} lost {} octets", flow.lost);
    }
}

/// RFC 9406 for the first slow start: the five conservative rounds triple a window of twice the path's; slow start would
/// have gone on until this buffer of six times the path overflows.
#[test]
fn cubic_leaves_slow_start_before_the_buffer_overflows() {
    let path = Bottleneck { rate: 12_500_000, rtt: Duration::from_millis(40), buffer: 3_000_000 };
    let mut flow = Flow::new(path, Cubic::new(MSS));
    flow.run_until(Instant::ZERO + Duration::from_secs(2), |_| {});
    assert_eq!(flow.lost, 0);
    assert!(flow.controller.ssthresh() < u32::MAX);
    assert!(flow.delivered >= path.rate * 2 * 8 / 10);
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    /// The window is a segment at least (after loss that acknowledgements found, ssthresh is two) and never overflows,
    /// whatever is told in whatever order.
    #[test]
    fn no_sequence_of_calls_panics_or_leaves_the_bounds_of_a_window(
        algorithm in algorithm(), seed in any::<u32>(), mss in 1..70_000u32,
        calls in prop::collection::vec((call(), span()), 1..200),
    ) {
        let (mut now, mut mss) = (Instant::ZERO, valid_mss(mss));
        let mut controller = Controller::new(algorithm, mss, seed, now);
        for (call, pause) in &calls {
            now += *pause;
            apply(&mut controller, call, now);
            if let Call::Mss(changed) = call {
                mss = valid_mss(*changed);
            }
            prop_assert!(controller.cwnd() >= mss, "{} after {call:?}", controller.cwnd());
            prop_assert!(controller.cwnd() <= MAX_WINDOW, "{} after {call:?}", controller.cwnd());
            prop_assert!(controller.pacing_rate() != Some(0));
            if let Call::Congestion(Congestion::Loss, _) = call {
                prop_assert!(controller.cwnd() >= 2 * mss || algorithm == Algorithm::Bbr);
                prop_assert!(controller.ssthresh() >= 2 * mss);
            }
        }
    }

    /// RFC 9438, 4.9, and draft-ietf-ccwg-bbr, 5.5.11: what a spurious event took is given back, also when the timer
    /// expires again and again.
    #[test]
    fn undo_at_once_gives_back_the_window_exactly(
        algorithm in algorithm(), calls in prop::collection::vec(acked(), 0..40),
        congestion in prop_oneof![Just(Congestion::Loss), Just(Congestion::Timeout)], timeouts in 0..3usize,
    ) {
        let mut controller = Controller::new(algorithm, MSS, 7, Instant::ZERO);
        for acked in &calls {
            controller.on_acked(&Acked { in_recovery: false, lost: 0, ..*acked });
        }
        let before = (controller.cwnd(), controller.ssthresh());
        controller.on_congestion(congestion, controller.cwnd(), Instant::ZERO);
        for _ in 0..if congestion == Congestion::Timeout { timeouts } else { 0 } {
            controller.on_congestion(congestion, MSS, Instant::ZERO);
        }
        controller.on_undo(Instant::ZERO);
        prop_assert_eq!((controller.cwnd(), controller.ssthresh()), before);
    }
}

/// RFC 3465, 2.3, is about the slow start that follows the timeout.
#[test]
fn a_slow_start_after_a_rest_is_not_bound_by_a_timeout_before() {
    let rto = Duration::from_millis(200);
    for algorithm in [Algorithm::Cubic, Algorithm::NewReno] {
        let mut controller = Controller::new(algorithm, MSS, 1, Instant::ZERO);
        let growth = |controller: &mut Controller| {
            let before = controller.cwnd();
            controller.on_acked(&ack(2 * MSS));
            controller.cwnd() - before
        };
        for _ in 0..4 {
            acknowledge_window(&mut controller, 1);
        }
        let flight_size = controller.cwnd();
        controller.on_congestion(Congestion::Timeout, flight_size, Instant::ZERO);
        assert_eq!(growth(&mut controller), MSS, "{algorithm:?}");
        controller.on_restart_after_idle(rto + rto, rto, Instant::ZERO);
        assert_eq!(growth(&mut controller), 2 * MSS, "{algorithm:?}");
    }
}
