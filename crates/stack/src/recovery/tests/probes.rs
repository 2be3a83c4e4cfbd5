//! Tail loss probes (RFC 8985, 7).

use super::*;

/// Lets the probe timer expire and sends what it asks for.
fn probe(sender: &mut Sender) -> Vec<u32> {
    let TimeoutAction::SendProbe { last } = sender.expire().action else { panic!("no probe") };
    let (kind, sent) = if sender.unsent > 0 {
        sender.unsent -= 1;
        sender.send(1);
        (Probe::NewData, sender.nxt - 1)
    } else {
        assert_eq!(sender.resend(last), Retransmission::Other);
        (Probe::Retransmission, position(last.start))
    };
    let nxt = seq(sender.nxt);
    sender.recovery.on_probe_sent(kind, nxt);
    vec![sent]
}

#[test]
fn the_probe_comes_after_two_round_trips_and_only_once_rfc8985_7_2() {
    let mut sender = Sender::new();
    sender.send(3);
    assert_eq!(sender.deadline_ms(), Some(202));
    assert_eq!(probe(&mut sender), [2]);
    assert_eq!(sender.deadline_ms(), Some(300)); // RTO from now: RFC 8985, 7.3
    sender.send(1);
    assert_eq!(sender.deadline_ms(), Some(300));
    assert_eq!(sender.expire().action, TimeoutAction::Rto);
}

#[test]
fn a_lone_segment_waits_for_the_peers_delayed_acknowledgement_and_never_beyond_the_rto_rfc8985_7_2() {
    let mut sender = Sender::new();
    sender.send(1);
    assert_eq!(sender.deadline_ms(), Some(300));
    assert_eq!(probe(&mut sender), [0]);
}

#[test]
fn a_lost_tail_is_repaired_in_fast_recovery_rfc8985_7_3() {
    let mut sender = Sender::new();
    sender.send(10);
    sender.wait(100);
    sender.ack(7, &[]);
    // 7 and 8 and 9 are lost.
    assert_eq!(probe(&mut sender), [9]);
    sender.wait(100);
    let outcome = sender.ack(7, &[(9, 10)]);
    assert_eq!((outcome.lost, sender.recovery.state()), (2000, State::Recovery));
    assert_eq!(sender.transmit(), [7]); // one was delivered, one goes out
    sender.wait(100);
    sender.ack(8, &[(9, 10)]);
    assert_eq!(sender.transmit(), [8]);
    assert_eq!(sender.controller.calls, ["loss"]);
}

#[test]
fn new_data_is_the_better_probe_rfc8985_7_3() {
    let mut sender = Sender::new();
    sender.send(4);
    sender.unsent = 1;
    assert_eq!(probe(&mut sender), [4]);
    sender.wait(100);
    sender.ack(0, &[(4, 5)]);
    assert_eq!(sender.transmit()[0], 0);
}

/// RFC 8985, 7.4: the last segment alone was lost; the probe repaired it, and the window must shrink for it.
#[test]
fn a_probe_that_repaired_the_only_loss_reduces_the_window_rfc8985_7_4_2() {
    let mut sender = Sender::new();
    sender.send(4);
    sender.wait(100);
    sender.ack(3, &[]);
    assert_eq!(probe(&mut sender), [3]);
    sender.wait(100);
    let outcome = sender.ack(4, &[]);
    assert_eq!(outcome.congestion, None); // which copy arrived is not known yet
    assert!(sender.recovery.is_idle());
    sender.send(1);
    sender.wait(100);
    let outcome = sender.ack(5, &[]);
    assert!(outcome.events.contains(Event::LossProbeRecovery));
    assert_eq!(sender.controller.calls, ["loss", "recovered"]);
}

#[test]
fn a_probe_that_the_peer_got_twice_changes_nothing_rfc8985_7_4_2() {
    let mut sender = Sender::new();
    sender.send(4);
    assert_eq!(probe(&mut sender), [3]);
    sender.wait(10);
    sender.ack(4, &[]);
    let outcome = sender.ack(4, &[(3, 4)]);
    assert!(outcome.events.contains(Event::DsackReceived));
    sender.send(1);
    sender.wait(100);
    assert_eq!(sender.ack(5, &[]).congestion, None);
    assert_eq!(sender.controller.calls, [""; 0]);
}

#[test]
fn there_is_no_probe_without_sack_nor_in_disorder_rfc8985_7_2() {
    let mut sender = Sender::without_sack();
    sender.send(3);
    assert_eq!(sender.expire().action, TimeoutAction::Rto);
    let mut sender = Sender::new();
    sender.send(3);
    sender.wait(100);
    sender.ack(0, &[(2, 3)]);
    sender.expire();
    sender.transmit();
    assert_eq!(sender.deadline_ms(), Some(300));
}

#[test]
fn a_timeout_ends_the_wait_for_what_became_of_a_probe_rfc8985_7_3() {
    let mut sender = Sender::new();
    sender.send(4);
    let first = sender.timestamp();
    assert_eq!(probe(&mut sender), [3]);
    assert_eq!(sender.expire().action, TimeoutAction::Rto);
    assert_eq!(sender.transmit(), [0]);
    sender.echo = Some(first);
    assert!(sender.ack(1, &[]).undone);
    sender.send(1);
    assert_eq!(sender.ack(5, &[]).congestion, None);
}
