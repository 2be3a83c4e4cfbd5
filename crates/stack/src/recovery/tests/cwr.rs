//! ECN-echo (RFC 3168, 6.1.2).

use super::*;

fn echo(sender: &mut Sender, ack: u32) -> Option<Congestion> {
    sender.receive(AckSegment { ece: true, ..ack_of(ack, sender.una, sender.nxt) }, &[]).congestion
}

#[test]
fn the_window_shrinks_once_for_what_was_in_flight_rfc3168_6_1_2() {
    let mut sender = Sender::new();
    sender.unsent = 30;
    sender.transmit();
    sender.wait(100);
    assert_eq!(echo(&mut sender, 1), Some(Congestion::Ecn));
    assert_eq!((sender.recovery.state(), sender.cwnd()), (State::Cwr, 5));
    let mut sent = Vec::new();
    for ack in 2..10 {
        assert_eq!(echo(&mut sender, ack), None);
        sent.extend(sender.transmit());
    }
    assert_eq!(sent, [10, 11, 12, 13]); // half of what leaves
    assert_eq!(echo(&mut sender, 10), None); // the end of the window that was marked
    assert_eq!(sender.recovery.state(), State::Open);
    assert_eq!(echo(&mut sender, 11), Some(Congestion::Ecn));
}

#[test]
fn losses_during_a_reduction_reduce_no_further_rfc3168_6_1_2() {
    let mut sender = Sender::new();
    sender.send(10);
    sender.wait(100);
    assert_eq!(echo(&mut sender, 1), Some(Congestion::Ecn));
    let outcome = sender.ack(1, &[(2, 6)]);
    assert_eq!((outcome.lost, outcome.congestion), (1000, None));
    assert_eq!((sender.recovery.state(), sender.transmit()[0]), (State::Recovery, 1));
    assert_eq!(sender.controller.calls, ["ecn"]);
}

#[test]
fn an_echo_that_ends_the_flight_is_over_at_once() {
    let mut sender = Sender::new();
    sender.send(2);
    sender.wait(100);
    assert_eq!(echo(&mut sender, 2), Some(Congestion::Ecn));
    assert_eq!(sender.recovery.state(), State::Open);
    assert_eq!(sender.controller.calls, ["ecn", "recovered"]);
}

#[test]
fn a_loss_during_a_reduction_is_recovered_when_all_sent_until_then_is_acknowledged() {
    let mut sender = Sender::new();
    sender.send(10);
    sender.wait(100);
    echo(&mut sender, 1);
    sender.send(1);
    sender.ack(1, &[(2, 6)]);
    sender.transmit();
    sender.wait(100);
    assert!(!sender.ack(10, &[]).recovered);
    assert!(sender.ack(11, &[]).recovered);
}

#[test]
fn echoes_are_heard_more_than_half_the_sequence_space_after_the_last_reduction() {
    let mut sender = Sender::new();
    sender.controller.cwnd = u32::MAX;
    let (mut una, megabyte) = (seq(0), 1 << 20);
    for round in 0..3000 {
        let range = SeqRange::new(una, una + megabyte);
        let sent = Transmission { range, timestamp_value: 0, has_control_octet: false };
        sender.with(|recovery, cx| recovery.on_sent(&sent, cx));
        una = range.end;
        let ack = AckSegment { ack: una, snd_una: range.start, snd_nxt: una, ..ack_of(0, 0, 0) };
        let ack = AckSegment { ece: round == 2999, ..ack };
        let outcome = sender.with(|recovery, cx| recovery.on_ack(&ack, cx));
        assert_eq!(outcome.congestion.is_some(), round == 2999);
    }
}
