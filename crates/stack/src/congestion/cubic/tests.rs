//! CUBIC's window over simulated time.

use super::super::tests::{MSS, ack, ack_in_recovery, acknowledge_window};
use super::*;
use crate::seq::SeqNum;

const RTT: Duration = Duration::from_millis(100);

fn at(seconds: f64) -> Instant {
    Instant::ZERO + Duration::from_secs_f64(seconds)
}

/// Past a loss at `segments` and its recovery, at time zero, having just begun to avoid congestion.
fn after_loss_at(segments: u32) -> Cubic {
    let mut cubic = Cubic::new(MSS);
    cubic.state.cwnd = segments * MSS;
    cubic.on_congestion(Congestion::Loss, segments * MSS, Instant::ZERO);
    cubic.on_recovered(Instant::ZERO);
    cubic.on_acked(&Acked { cwnd_limited: false, ..ack(MSS) });
    cubic
}

/// Acknowledges a window each round trip from `start` until `end`, in seconds.
fn run(cubic: &mut Cubic, rtt: Duration, start: f64, end: f64, cwnd_limited: bool) {
    let rtt_s = rtt.as_secs_f64();
    for round in 0..((end - start) / rtt_s).round() as u32 {
        let octets = cubic.cwnd() / 10;
        for n in 0..10 {
            let now = at(start + (f64::from(round) + f64::from(n) / 10.0) * rtt_s);
            cubic.on_acked(&Acked { now, srtt: rtt, cwnd_limited, ..ack(octets) });
        }
    }
}

fn segments(cubic: &Cubic) -> f64 {
    f64::from(cubic.cwnd()) / f64::from(MSS)
}

/// RFC 9438, 4.6 (SHOULD be 0.7; ssthresh at least two segments).
#[test]
fn loss_leaves_seven_tenths_and_two_segments_at_least() {
    let cubic = after_loss_at(1000);
    assert_eq!((cubic.cwnd(), cubic.ssthresh()), (700 * MSS, 700 * MSS));
    assert_eq!(after_loss_at(2).cwnd(), 2 * MSS);
}

/// RFC 9438, 4.6 (MUST continue down to one segment).
#[test]
fn ecn_echoes_reduce_the_window_to_one_segment() {
    let mut cubic = after_loss_at(4);
    for _ in 0..5 {
        cubic.on_congestion(Congestion::Ecn, cubic.cwnd(), Instant::ZERO);
    }
    assert_eq!((cubic.cwnd(), cubic.ssthresh()), (MSS, 2 * MSS));
}

/// RFC 9438, 4.2, 4.4 and 4.5: W(t) = 0.4 (t - K)^3 + 1000 with K = (300 / 0.4)^(1/3) = 9.0856 s, which the window
/// leads by a round trip at most.
#[test]
fn the_window_follows_the_cubic_function() {
    for (t, now, next) in [
        (2.0, 857.705, 863.645),
        (5.0, 972.721, 974.675),
        (9.0, 999.9997, 1000.0),
        (12.0, 1009.902, 1010.956),
        (15.0, 1082.754, 1087.023),
    ] {
        let mut cubic = after_loss_at(1000);
        run(&mut cubic, RTT, 0.0, t, true);
        let window = segments(&cubic);
        assert!((now - 0.5..next + 0.1).contains(&window), "{window} not in {now} .. {next} at {t} s");
    }
}

/// RFC 9438, 4.2: the target is at most one and a half windows.
#[test]
fn a_round_grows_the_window_by_half_at_most() {
    let mut cubic = after_loss_at(1000);
    cubic.on_acked(&Acked { now: at(60.0), srtt: RTT, ..ack(700 * MSS) });
    assert_eq!(cubic.cwnd(), 1050 * MSS);
}

/// RFC 9438, 4.3 (SHOULD): alpha is 0.5294 segments each round trip until cwnd_prior is reached, then 1.
#[test]
fn on_short_paths_the_window_grows_as_reno_would() {
    let rtt = Duration::from_millis(10);
    let mut cubic = after_loss_at(20);
    run(&mut cubic, rtt, 0.0, 0.1, true);
    let expected = 14.0 + 10.0 * 0.5294;
    assert!((segments(&cubic) - expected).abs() < 0.3, "{} instead of {expected}", segments(&cubic));
    run(&mut cubic, rtt, 0.1, 0.13, true);
    let reached = segments(&cubic);
    assert!(reached > 20.0);
    run(&mut cubic, rtt, 0.13, 0.23, true);
    assert!((segments(&cubic) - reached - 10.0).abs() < 0.5, "{} after {reached}", segments(&cubic));
}

/// RFC 9438, 4.7 (SHOULD).
#[test]
fn fast_convergence_gives_up_more_when_the_window_is_below_the_last_maximum() {
    let mut cubic = after_loss_at(1000);
    assert_eq!(cubic.state.w_max, 1000 * MSS);
    cubic.on_congestion(Congestion::Loss, 700 * MSS, at(1.0));
    assert_eq!(cubic.state.w_max, 595 * MSS);
    assert_eq!(cubic.state.cwnd_prior, 700 * MSS);
}

/// RFC 9438, 4.8: slow start to 0.7 of the window, then K = 0 and W_max the window there.
#[test]
fn a_timeout_restarts_from_one_segment_and_then_from_the_plateau() {
    let mut cubic = after_loss_at(1000);
    cubic.on_congestion(Congestion::Timeout, 700 * MSS, at(1.0));
    assert_eq!((cubic.cwnd(), cubic.ssthresh()), (MSS, 490 * MSS));
    while cubic.cwnd() < cubic.ssthresh() {
        cubic.on_acked(&Acked { now: at(2.0), ..ack_in_recovery(MSS) });
    }
    cubic.on_recovered(at(2.0));
    cubic.on_acked(&Acked { now: at(2.0), ..ack(MSS) });
    assert_eq!((cubic.state.k, cubic.state.w_max), (0.0, 490 * MSS));
}

/// RFC 9438, 4.9.2.
#[test]
fn undo_gives_back_exactly_what_spurious_loss_took() {
    for congestion in [Congestion::Loss, Congestion::Timeout] {
        let mut cubic = after_loss_at(1000);
        run(&mut cubic, RTT, 0.0, 3.0, true);
        let before = cubic.state;
        cubic.on_congestion(congestion, cubic.cwnd(), at(3.0));
        cubic.on_acked(&Acked { now: at(3.1), ..ack_in_recovery(MSS) });
        cubic.on_undo(at(3.2));
        assert_eq!(cubic.state, before);
    }
}

/// RFC 9438, 4.9.2 (SHOULD keep the current values if the window has outgrown the old one).
#[test]
fn undo_changes_nothing_once_the_window_is_past_the_old_one() {
    let mut cubic = after_loss_at(10);
    cubic.on_congestion(Congestion::Loss, 7 * MSS, Instant::ZERO);
    run(&mut cubic, RTT, 0.0, 10.0, true);
    let grown = cubic.state;
    cubic.on_undo(at(10.0));
    assert_eq!(cubic.state, grown);
}

/// RFC 9438, 4.2 (MUST NOT count) and 5.8.
#[test]
fn time_in_which_the_application_leaves_the_window_unused_does_not_count() {
    let mut steady = after_loss_at(1000);
    run(&mut steady, RTT, 0.0, 10.0, true);
    let mut pausing = after_loss_at(1000);
    run(&mut pausing, RTT, 0.0, 5.0, true);
    let cwnd = pausing.cwnd();
    run(&mut pausing, RTT, 5.0, 35.0, false);
    assert_eq!(pausing.cwnd(), cwnd);
    run(&mut pausing, RTT, 35.0, 37.0, true);
    pausing.on_restart_after_idle(Duration::from_millis(900), Duration::from_secs(1), at(65.0));
    run(&mut pausing, RTT, 65.0, 68.0, true);
    assert!((segments(&pausing) - segments(&steady)).abs() < 1.0, "{}", segments(&pausing));
}

/// RFC 2861, 3.1, as on Linux; RFC 7661 keeps three quarters of the window in ssthresh.
#[test]
fn long_idleness_restarts_from_the_initial_window_and_begins_a_new_epoch() {
    let mut cubic = after_loss_at(1000);
    cubic.on_restart_after_idle(Duration::from_secs(20), Duration::from_secs(1), at(20.0));
    assert_eq!((cubic.cwnd(), cubic.ssthresh()), (10 * MSS, 700 * MSS));
    assert!(!cubic.state.in_epoch);
}

/// An acknowledgement of many segments grows the window by as many, as on Linux; RFC 9438, 4.10, for what follows.
#[test]
fn hystart_slows_and_then_ends_the_first_slow_start() {
    let mut cubic = Cubic::new(MSS);
    cubic.on_acked(&ack(28 * MSS));
    assert_eq!(cubic.cwnd(), 38 * MSS);
    let mut snd_nxt = SeqNum(u32::MAX) + 20 * MSS;
    for rtt_ms in [50, 100, 100, 100, 100, 100] {
        let flight = cubic.cwnd() / MSS;
        snd_nxt = acknowledge_round(&mut cubic, flight, snd_nxt, Duration::from_millis(rtt_ms));
    }
    let cwnd = cubic.cwnd();
    assert_eq!(cubic.ssthresh(), cwnd);
    // 38 doubled, then five times a quarter more, the first time after eight samples.
    assert!((240 * MSS..250 * MSS).contains(&cwnd), "{}", cwnd / MSS);
    acknowledge_window(&mut cubic, 1);
    assert!(cubic.cwnd() - cwnd <= 2 * MSS);
    assert_eq!(cubic.state.cwnd_prior, cwnd);
}

/// Acknowledges a flight segment by segment; returns `snd_nxt` after the next flight.
fn acknowledge_round(cubic: &mut Cubic, flight: u32, snd_nxt: SeqNum, rtt: Duration) -> SeqNum {
    for left in (1..flight).rev() {
        let snd_una = snd_nxt - left * MSS;
        cubic.on_acked(&Acked { rtt: Some(rtt), snd_una, snd_nxt, ..ack(MSS) });
    }
    let next = snd_nxt + cubic.cwnd();
    cubic.on_acked(&Acked { rtt: Some(rtt), snd_una: snd_nxt, snd_nxt: next, ..ack(MSS) });
    next
}
