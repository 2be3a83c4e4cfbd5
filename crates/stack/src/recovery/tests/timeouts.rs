//! The retransmission timer (RFC 6298, 5), F-RTO (RFC 5682), reneging (RFC 2018, 8).

use super::*;

/// A sender whose timer expired with ten segments in flight.
fn timed_out(sack: bool) -> Sender {
    let mut sender = Sender { sack, ..Sender::new() };
    sender.unsent = 20;
    sender.transmit();
    if sack {
        assert!(matches!(sender.expire().action, TimeoutAction::SendProbe { .. })); // cannot be sent
    }
    let outcome = sender.expire();
    assert_eq!((outcome.action, outcome.congestion), (TimeoutAction::Rto, Some(Congestion::Timeout)));
    assert_eq!((outcome.lost, sender.recovery.state()), (10_000, State::Loss));
    assert!(outcome.events.contains(Event::Timeout));
    assert_eq!(sender.transmit(), [0]);
    sender
}

#[test]
fn the_timer_runs_while_something_is_in_flight_and_starts_anew_with_progress_rfc6298_5() {
    let mut sender = Sender::without_sack();
    assert_eq!(sender.deadline_ms(), None);
    sender.send(2);
    assert_eq!(sender.deadline_ms(), Some(300)); // 5.1
    sender.wait(50);
    sender.send(1);
    assert_eq!(sender.deadline_ms(), Some(250));
    sender.wait(50);
    sender.ack(1, &[]);
    assert!(sender.deadline_ms() >= Some(290)); // 5.3
    sender.ack(3, &[]);
    assert_eq!(sender.deadline_ms(), None); // 5.2
}

#[test]
fn each_expiry_doubles_the_timeout_and_is_counted_until_progress_rfc6298_5_5() {
    let mut sender = timed_out(false);
    assert_eq!(sender.resend(seq_range(0, 1)), Retransmission::SlowStart);
    for (timeouts, ms) in [(1, 600), (2, 1200), (3, 2400)] {
        assert_eq!((sender.recovery.timeouts(), sender.deadline_ms()), (timeouts, Some(ms)));
        assert_eq!(sender.expire().action, TimeoutAction::Rto);
        assert_eq!(sender.transmit(), [0]);
    }
    assert!(sender.recovery.retransmitting_since().is_some());
    assert_eq!(sender.recovery.first_unacked_sent_at(), Some(Instant::from_nanos(1_000_000_000)));
    sender.wait(100);
    sender.ack(1, &[]);
    assert_eq!((sender.recovery.timeouts(), sender.recovery.retransmitting_since()), (0, None));
    assert_eq!(sender.deadline_ms(), Some(4800)); // Karn: no sample ended the backoff
}

#[test]
fn slow_start_resends_the_whole_flight_after_a_timeout_rfc5681_3_1() {
    let mut sender = timed_out(false);
    sender.unsent = 0;
    let mut sent = Vec::new();
    while !sender.recovery.is_idle() {
        sender.wait(100);
        let next = sent.last().map_or(1, |last| last + 1);
        sender.ack(next, &[]);
        sent.extend(sender.transmit());
    }
    assert_eq!(sent, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(sender.controller.calls, ["timeout", "recovered"]);
}

#[test]
fn segments_sent_lately_are_not_lost_by_a_timeout_rfc8985_6_3() {
    let mut sender = Sender::new();
    sender.send(3);
    assert!(matches!(sender.expire().action, TimeoutAction::SendProbe { .. }));
    sender.wait(250);
    sender.send(1);
    sender.recovery.on_probe_sent(Probe::NewData, seq(4));
    assert_eq!(sender.expire().action, TimeoutAction::Rto);
    assert_eq!((sender.recovery.lost(), sender.in_flight()), (3000, 1));
    assert_eq!(sender.transmit(), [0]);
}

#[test]
fn a_timeout_is_spurious_if_what_was_not_sent_again_arrives_rfc5682_2_1() {
    for sack in [false, true] {
        let mut sender = timed_out(sack);
        assert_eq!((sender.cwnd(), sender.in_flight()), (1, 1));
        sender.ack(1, &[]); // of the original: nobody can tell yet
        assert_eq!(sender.recovery.state(), State::Loss);
        assert_eq!(sender.transmit(), [10, 11]);
        let outcome = sender.ack(2, &[]);
        assert!(outcome.undone && outcome.events.contains(Event::SpuriousTimeout));
        assert!(outcome.events.contains(Event::LossUndo));
        assert_eq!((sender.cwnd(), sender.recovery.lost()), (11, 0), "sack {sack}");
        assert_eq!(sender.recovery.next_retransmission(MSS), None);
        assert_eq!(sender.controller.calls, ["timeout", "undo"]);
    }
}

#[test]
fn a_timeout_is_genuine_if_the_second_acknowledgement_is_a_duplicate_rfc5682_2_1() {
    for sack in [false, true] {
        let mut sender = timed_out(sack);
        sender.wait(100);
        sender.ack(1, &[]);
        assert_eq!(sender.transmit(), [10, 11]);
        sender.wait(100);
        let outcome = sender.ack(1, &[(10, 11)][..usize::from(sack)]);
        assert!(!outcome.undone);
        assert_eq!(sender.recovery.state(), State::Loss);
        sender.ack(1, &[(10, 12)][..usize::from(sack)]);
        sender.expire();
        assert_eq!(sender.transmit()[0], 1, "sack {sack}");
    }
}

#[test]
fn with_nothing_new_to_send_lost_segments_follow_at_once_rfc5682_2_1() {
    let mut sender = timed_out(false);
    sender.unsent = 0;
    sender.wait(100);
    sender.ack(1, &[]);
    assert_eq!(sender.transmit(), [1, 2]);
}

#[test]
fn a_peer_that_reneges_is_found_out_and_gets_everything_again_rfc2018_8() {
    let mut sender = Sender::new();
    sender.send(10);
    sender.wait(100);
    sender.ack(0, &[(1, 10)]);
    assert_eq!(sender.transmit(), [0]);
    sender.wait(100);
    sender.ack(1, &[]); // and does not know of 1 to 10 any more
    assert_eq!(sender.deadline_ms(), Some(50));
    let outcome = sender.expire();
    assert!(outcome.events.contains(Event::SackReneging));
    assert_eq!((outcome.action, outcome.lost, sender.recovery.sacked()), (TimeoutAction::Rto, 9000, 0));
    assert_eq!(sender.transmit(), [1]);
    sender.wait(100);
    sender.ack(2, &[]);
    assert_eq!(sender.transmit(), [2, 3]);
}

#[test]
fn a_timeout_in_fast_recovery_forgets_no_selective_acknowledgement_rfc6675_5_1() {
    let mut sender = Sender::new();
    sender.send(10);
    sender.wait(100);
    sender.ack(0, &[(5, 10)]);
    while sender.recovery.state() != State::Loss {
        sender.expire();
        sender.transmit();
    }
    assert_eq!((sender.recovery.sacked(), sender.recovery.lost()), (5000, 5000));
    sender.wait(100);
    assert!(!sender.ack(10, &[]).undone);
    assert!(sender.recovery.is_idle());
}

#[test]
fn a_path_that_takes_less_gets_smaller_segments_and_no_congestion_response_rfc8201_5_4() {
    let mut sender = Sender::new();
    sender.send(3);
    sender.mss = 600;
    assert_eq!(sender.with(|recovery, cx| recovery.on_mss_reduced(cx)), 3000);
    assert_eq!((sender.recovery.state(), sender.cwnd(), sender.in_flight()), (State::Open, 10, 0));
    let mut lengths = Vec::new();
    while let Some(range) = sender.recovery.next_retransmission(600) {
        sender.resend(range);
        lengths.push(range.len());
    }
    assert_eq!(lengths, [600, 400, 600, 400, 600, 400]);
    sender.check();
    sender.wait(100);
    sender.ack(3, &[]);
    assert_eq!(sender.controller.calls, [""; 0]);
}

/// What filled the hole may have uncovered segments whose acknowledgements were lost. RFC 5682, 2.1, step 2; RFC 6298, 3.
#[test]
fn a_timeout_is_not_spurious_because_a_retransmission_acknowledges_more_than_itself() {
    for sack in [false, true] {
        let mut sender = timed_out(sack);
        sender.wait(100);
        let outcome = sender.ack(3, &[]);
        assert_eq!((outcome.undone, outcome.rtt, sender.recovery.state()), (false, None, State::Loss));
    }
}

#[test]
fn a_timeout_in_fast_recovery_is_not_asked_whether_it_was_spurious_rfc5682_2_1() {
    let mut sender = Sender::new();
    sender.send(10);
    sender.wait(100);
    sender.ack(0, &[(7, 10)]);
    assert_eq!(sender.transmit(), [0, 1, 2]);
    assert_eq!(sender.expire().action, TimeoutAction::Rto);
    assert_eq!(sender.transmit(), [0]);
    sender.unsent = 5;
    sender.wait(100);
    sender.ack(1, &[(7, 10)]);
    assert_eq!(sender.transmit(), [1, 2]);
}
