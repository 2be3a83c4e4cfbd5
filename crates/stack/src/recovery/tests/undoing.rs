//! Unnecessary recoveries (RFC 3522, RFC 3708).

use super::*;

/// A sender of ten segments whose first is late: it was sent again, and the window halved.
fn in_recovery(echo: bool) -> Sender {
    let mut sender = Sender::new();
    sender.send(10);
    let first = sender.timestamp();
    sender.wait(100);
    sender.echo = echo.then_some(first);
    sender.ack(0, &[(1, 10)]);
    assert_eq!(sender.transmit(), [0]);
    assert_eq!((sender.recovery.state(), sender.cwnd()), (State::Recovery, 5));
    sender
}

#[test]
fn an_echo_of_the_original_restores_the_window_at_the_end_of_recovery_rfc3522_3_2() {
    let mut sender = in_recovery(true);
    sender.wait(10);
    let outcome = sender.ack(10, &[]);
    assert!(outcome.undone && outcome.events.contains(Event::FullUndo));
    assert_eq!((sender.cwnd(), sender.recovery.state()), (11, State::Open)); // slow start goes on
    assert_eq!(sender.controller.calls, ["loss", "undo"]);
}

#[test]
fn an_echo_of_the_retransmission_does_not_rfc3522_3_2() {
    let mut sender = in_recovery(true);
    sender.echo = Some(sender.timestamp());
    sender.wait(100);
    assert!(!sender.ack(10, &[]).undone);
    assert_eq!(sender.cwnd(), 5);
}

#[test]
fn recovery_may_prove_spurious_before_its_end_rfc3522_3_2() {
    let mut sender = Sender::new();
    sender.send(10);
    let first = sender.timestamp();
    sender.wait(100);
    sender.ack(0, &[(1, 5)]);
    assert_eq!(sender.transmit(), [0]);
    sender.echo = Some(first);
    sender.wait(10);
    let outcome = sender.ack(5, &[]);
    assert!(outcome.undone && outcome.events.contains(Event::PartialUndo));
    assert_eq!((sender.cwnd(), sender.recovery.state(), sender.in_flight()), (11, State::Open, 5));
}

#[test]
fn a_duplicate_of_every_retransmission_restores_the_window_after_recovery_rfc3708() {
    let mut sender = in_recovery(false);
    sender.wait(10);
    let outcome = sender.ack(10, &[]);
    assert!(outcome.recovered && !outcome.undone);
    assert_eq!(sender.cwnd(), 5);
    sender.wait(90);
    let outcome = sender.ack(10, &[(0, 1)]);
    assert!(outcome.undone && outcome.events.contains(Event::DsackUndo));
    assert_eq!((sender.cwnd(), sender.controller.calls.as_slice()), (10, &["loss", "undo"][..]));
}

#[test]
fn a_duplicate_comes_too_late_once_newer_data_is_acknowledged() {
    let mut sender = in_recovery(false);
    sender.ack(10, &[]);
    sender.send(1);
    sender.wait(100);
    sender.ack(11, &[]);
    assert_eq!(sender.controller.calls, ["loss", "recovered"]);
    assert!(!sender.ack(11, &[(0, 1)]).undone);
}

#[test]
fn a_congestion_mark_forbids_undoing_rfc3168_6_1_2() {
    let mut sender = in_recovery(true);
    let outcome = sender.receive(AckSegment { ece: true, ..ack_of(10, 0, 10) }, &[]);
    assert!(!outcome.undone && outcome.recovered);
    assert_eq!(sender.cwnd(), 5);
}

#[test]
fn a_spurious_timeout_is_told_by_the_first_echo_rfc3522_3_2() {
    let mut sender = Sender::without_sack();
    sender.send(10);
    let first = sender.timestamp();
    sender.expire();
    assert_eq!(sender.transmit(), [0]);
    assert_eq!(sender.rtt.backoff(), 1);
    sender.echo = Some(first);
    let outcome = sender.ack(1, &[]);
    assert!(outcome.undone && outcome.events.contains(Event::LossUndo));
    assert_eq!((sender.cwnd(), sender.recovery.lost(), sender.rtt.backoff()), (11, 0, 0));
}

/// Segment 0 is late, 1 and 6 are lost.
#[test]
fn what_was_taken_for_lost_gets_another_chance_and_is_found_lost_again() {
    let mut sender = Sender::new();
    sender.send(10);
    let first = sender.timestamp();
    sender.wait(100);
    sender.ack(0, &[(2, 6)]);
    assert_eq!(sender.transmit(), [0]);
    sender.resend(seq_range(1, 2));
    let outcome = sender.ack(0, &[(7, 10), (2, 6)]);
    assert_eq!(outcome.lost, 1000);
    sender.echo = Some(first);
    sender.wait(50);
    let outcome = sender.ack(1, &[(7, 10), (2, 6)]);
    assert!(outcome.events.contains(Event::PartialUndo));
    assert_eq!((outcome.lost, sender.recovery.lost(), sender.in_flight()), (0, 0, 3)); // 1 twice, 6
    assert_eq!(sender.recovery.state(), State::Disorder);
    sender.send(1);
    sender.wait(100);
    let outcome = sender.ack(1, &[(7, 11), (2, 6)]);
    assert_eq!((outcome.lost, sender.recovery.next_retransmission(MSS)), (2000, Some(seq_range(1, 2))));
}

#[test]
fn an_acknowledgement_before_anything_was_sent_again_undoes_a_timeout() {
    let mut sender = Sender::without_sack();
    sender.send(3);
    sender.expire();
    assert_eq!(sender.recovery.allowance(0), MSS);
    let outcome = sender.ack(2, &[]);
    assert!(outcome.undone && !outcome.events.contains(Event::SpuriousTimeout));
    assert_eq!((sender.recovery.allowance(0), sender.in_flight()), (0, 1));
}
