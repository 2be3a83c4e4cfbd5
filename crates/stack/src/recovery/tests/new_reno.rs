//! Recovery where SACK is missing (RFC 5681, 3.2; RFC 6582).

use super::*;

fn duplicates(sender: &mut Sender, count: u32) -> Vec<u32> {
    let mut sent = Vec::new();
    for _ in 0..count {
        sender.ack(sender.una, &[]);
        sent.extend(sender.transmit());
    }
    sent
}

/// Segments 0, 3 and 6 of ten are lost, so that seven duplicates come, then partial acknowledgements.
#[test]
fn several_losses_in_a_window_are_repaired_one_a_round_trip_rfc6582_3_2() {
    let mut sender = Sender::without_sack();
    sender.send(10);
    sender.wait(100);
    assert_eq!(duplicates(&mut sender, 2), []);
    let outcome = sender.ack(0, &[]);
    assert!(outcome.events.contains(Event::RenoRecovery));
    assert_eq!((outcome.lost, sender.recovery.state(), sender.cwnd()), (1000, State::Recovery, 5));
    assert_eq!(sender.transmit(), [0]);
    assert_eq!(duplicates(&mut sender, 4), []);
    assert_eq!(sender.in_flight(), 3); // the retransmission, and two that are lost
    for (ack, resent) in [(3, 3), (6, 6)] {
        sender.wait(100);
        assert_eq!(sender.ack(ack, &[]).lost, 1000);
        assert_eq!(sender.transmit(), [resent]);
    }
    sender.wait(100);
    let outcome = sender.ack(10, &[]);
    assert!(outcome.recovered);
    assert_eq!((sender.cwnd(), sender.controller.calls.len()), (5, 2));
    assert_eq!(sender.recovery.delivered(), 10_000);
}

#[test]
fn more_duplicates_than_segments_open_no_window() {
    let mut sender = Sender::without_sack();
    sender.unsent = 100;
    sender.transmit();
    sender.wait(100);
    let sent = duplicates(&mut sender, 500);
    assert!(sent.len() < 14, "{sent:?}");
}

#[test]
fn payload_or_another_window_make_no_duplicate_rfc5681_2() {
    for (has_payload, window_changed) in [(true, false), (false, true)] {
        let mut sender = Sender::without_sack();
        sender.send(10);
        for _ in 0..5 {
            sender.receive(AckSegment { has_payload, window_changed, ..ack_of(0, 0, 10) }, &[]);
        }
        assert_eq!(sender.recovery.state(), State::Open);
    }
}

/// After a timeout, duplicates come because segments were sent again that had arrived. RFC 6582, 3.2, step 2 and 4.1.
#[test]
fn duplicates_that_needless_retransmissions_cause_start_no_recovery_rfc6582_4_1() {
    let mut sender = Sender::without_sack();
    sender.send(10);
    sender.expire();
    assert_eq!(sender.transmit(), [0]);
    sender.ack(10, &[]); // acknowledges up to the recovery point, and no further
    sender.send(4);
    assert_eq!(sender.recovery.state(), State::Open);
    duplicates(&mut sender, 3);
    assert_eq!((sender.recovery.state(), sender.recovery.lost()), (State::Disorder, 0));
    sender.wait(100);
    sender.ack(14, &[]);
    sender.send(4);
    duplicates(&mut sender, 3);
    assert_eq!(sender.recovery.state(), State::Recovery);
}

#[test]
fn a_partial_acknowledgement_resends_at_once_however_much_is_in_flight_rfc6582_3_2() {
    let mut sender = Sender::without_sack();
    sender.controller.cwnd = 40 * MSS;
    sender.unsent = 60;
    sender.transmit();
    sender.wait(100);
    assert_eq!(duplicates(&mut sender, 4), [40, 41, 0]);
    sender.ack(1, &[]);
    assert_eq!(sender.transmit()[0], 1);
}

#[test]
fn duplicates_stand_for_nothing_once_the_hole_is_filled() {
    let mut sender = Sender::without_sack();
    sender.send(10);
    sender.wait(100);
    duplicates(&mut sender, 2);
    assert_eq!((sender.in_flight(), sender.recovery.state()), (8, State::Disorder));
    sender.ack(1, &[]);
    assert_eq!((sender.in_flight(), sender.recovery.state()), (9, State::Open));
}
