//! Segments that are late, not lost (RFC 8985, 6.2).

use super::*;

#[test]
fn one_late_segment_is_given_a_quarter_of_the_round_trip_rfc8985_6_2() {
    let mut sender = Sender::new();
    sender.send(3);
    sender.wait(100);
    sender.ack(0, &[(1, 2)]);
    assert_eq!(sender.deadline_ms(), Some(25));
    sender.wait(10);
    let outcome = sender.ack(2, &[]);
    assert_eq!((outcome.delivered, outcome.lost, sender.recovery.state()), (1000, 0, State::Open));
}

#[test]
fn what_does_not_come_in_that_time_is_lost_rfc8985_6_2() {
    let mut sender = Sender::new();
    sender.send(3);
    sender.wait(100);
    sender.ack(0, &[(1, 3)]);
    let outcome = sender.expire();
    assert_eq!((outcome.action, outcome.lost), (TimeoutAction::LossFound, 1000));
    assert_eq!((outcome.congestion, sender.recovery.state()), (Some(Congestion::Loss), State::Recovery));
    assert_eq!(sender.transmit(), [0]);
}

/// One flight after the other in which the first segment arrives after the next six, 20 ms late.
fn reordered_flight(sender: &mut Sender) -> u32 {
    let start = sender.nxt;
    sender.send(8);
    sender.wait(100);
    let mut lost = 0;
    for end in 2..8 {
        lost += sender.ack(start, &[(start + 1, start + end)]).lost;
    }
    sender.transmit();
    sender.wait(20);
    lost += sender.ack(start + 8, &[]).lost;
    lost
}

#[test]
fn once_reordering_was_seen_three_segments_beyond_are_not_a_loss_rfc8985_6_2() {
    let mut sender = Sender::new();
    sender.send(2);
    sender.wait(100);
    sender.ack(0, &[(1, 2)]);
    sender.wait(5);
    sender.ack(2, &[]); // never sent again, and arrived after what was sent later
    for _ in 0..5 {
        assert_eq!(reordered_flight(&mut sender), 0);
    }
    assert_eq!(sender.controller.calls, [""; 0]);
}

#[test]
fn duplicates_widen_the_window_by_a_quarter_each_round_for_sixteen_recoveries_rfc8985_6_2() {
    let mut window = ReorderingWindow::default();
    let (rtt, srtt) = (Duration::from_millis(100), Duration::from_millis(110));
    window.on_spurious_recovery();
    let mut spans = Vec::new();
    for round in 0..5 {
        spans.push(window.span(true, rtt, srtt).as_millis());
        window.on_ack(seq(round), seq(round + 1), true);
        window.on_ack(seq(round), seq(round + 1), true); // the same round
    }
    assert_eq!(spans, [25, 50, 75, 100, 110]);
    for _ in 0..15 {
        window.on_recovered();
    }
    assert_eq!(window.span(true, rtt, srtt).as_millis(), 110);
    window.on_recovered();
    assert_eq!(window.span(true, rtt, srtt).as_millis(), 25);
}

#[test]
fn reordering_wider_than_the_window_stops_causing_retransmissions_once_duplicates_told_of_it() {
    let mut sender = Sender::new();
    let mut lost = Vec::new();
    for _ in 0..6 {
        let start = sender.nxt;
        sender.send(8);
        sender.wait(100);
        let mut in_flight = sender.ack(start, &[(start + 1, start + 7)]).lost;
        let late = sender.now + Duration::from_millis(60);
        while sender.recovery.deadline().is_some_and(|at| at <= late) {
            in_flight += sender.expire().lost;
            sender.transmit();
        }
        sender.now = late;
        sender.transmit();
        sender.ack(start + 8, &[]);
        sender.wait(40);
        if in_flight > 0 {
            sender.ack(start + 8, &[(start, start + 1)]);
        }
        lost.push(in_flight / MSS);
    }
    assert_eq!(lost, [1, 1, 0, 0, 0, 0]);
}

#[test]
fn a_retransmission_acknowledged_too_soon_tells_nothing_of_time_rfc8985_6_2() {
    let mut sender = Sender::new();
    sender.send(10);
    sender.wait(100);
    sender.ack(0, &[(1, 4)]);
    assert_eq!(sender.transmit(), [0]);
    sender.wait(2);
    // The original of 0 was late. Were its arrival taken for that of the retransmission, 4 to 10 would be lost.
    let outcome = sender.ack(4, &[]);
    assert_eq!(outcome.lost, 0);
}

#[test]
fn the_wait_ends_when_the_last_segment_that_is_still_late_is_lost_rfc8985_6_2() {
    let mut sender = Sender::new();
    sender.send(1);
    sender.wait(10);
    sender.send(2);
    sender.wait(90);
    sender.ack(0, &[(2, 3)]);
    // The newest delivered segment took 90 ms: 0 is lost 25 ms later than that, and so is 1, 10 ms later.
    assert_eq!(sender.deadline_ms(), Some(22));
    sender.wait(5);
    sender.ack(0, &[(1, 3)]);
    assert_eq!(sender.deadline_ms(), Some(12));
}

#[test]
fn sixteen_recoveries_without_a_duplicate_narrow_the_window_rfc8985_6_2() {
    let mut sender = Sender::new();
    sender.send(1);
    sender.wait(100);
    sender.ack(1, &[(0, 1)]);
    sender.recovery.reordering.on_spurious_recovery();
    let span = |sender: &Sender| {
        sender.recovery.reordering.span(true, Duration::from_millis(100), Duration::MAX).as_millis()
    };
    for _ in 0..16 {
        assert_eq!(span(&sender), 50);
        let start = sender.nxt;
        sender.send(5);
        sender.wait(200);
        sender.ack(start, &[(start + 4, start + 5)]);
        sender.expire();
        assert_eq!(sender.recovery.state(), State::Recovery);
        sender.transmit();
        sender.wait(100);
        assert!(sender.ack(start + 5, &[]).recovered);
    }
    assert_eq!(span(&sender), 25);
}
