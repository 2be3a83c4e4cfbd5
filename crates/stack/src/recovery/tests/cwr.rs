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
