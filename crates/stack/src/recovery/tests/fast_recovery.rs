//! Fast retransmission and recovery with SACK (RFC 6675, RFC 9937, RFC 3042).

use super::*;

#[test]
fn the_third_selectively_acknowledged_segment_starts_recovery_rfc6675_5() {
    let mut sender = Sender::new();
    sender.send(10);
    sender.wait(100);
    for sacked in 2..4 {
        let outcome = sender.ack(0, &[(1, sacked)]);
        assert_eq!((outcome.delivered, outcome.lost), (1000, 0));
        assert_eq!(sender.recovery.state(), State::Disorder);
        assert_eq!(sender.transmit(), []);
    }
    let outcome = sender.ack(0, &[(1, 4)]);
    assert_eq!((outcome.lost, outcome.congestion), (1000, Some(Congestion::Loss)));
    assert!(outcome.events.contains(Event::SackRecovery));
    assert_eq!((sender.recovery.state(), sender.cwnd(), sender.in_flight()), (State::Recovery, 5, 6));
    assert_eq!(sender.transmit(), [0]);
    assert_eq!((sender.recovery.lost(), sender.recovery.retransmitted()), (1000, 1000));
}

/// RFC 3042, 2 (new data for the first two duplicates); RFC 5681, 3.2, step 1 (cwnd MUST NOT change).
#[test]
fn limited_transmit_sends_new_data_for_the_first_two_duplicates() {
    for mut sender in [Sender::new(), Sender::without_sack()] {
        sender.unsent = 20;
        assert_eq!(sender.transmit().len(), 10);
        sender.wait(100);
        for duplicate in 1..3 {
            assert_eq!(sender.ack(0, &[(1, 1 + duplicate)][..usize::from(sender.sack)]).lost, 0);
            assert_eq!(sender.transmit(), [9 + duplicate]);
            assert_eq!(sender.cwnd(), 10);
        }
    }
}

/// Segments 0, 2 and 4 of twenty are lost.
#[test]
fn holes_are_filled_in_order_and_sending_slows_in_proportion_rfc9937() {
    let mut sender = Sender::new();
    sender.controller.cwnd = 20 * MSS;
    sender.unsent = 40;
    sender.transmit();
    sender.wait(100);
    sender.ack(0, &[(1, 2)]);
    sender.ack(0, &[(3, 4), (1, 2)]);
    assert_eq!(sender.transmit(), [20, 21]);
    let mut sent = Vec::new();
    for end in 6..=20 {
        sender.ack(0, &[(5, end), (3, 4), (1, 2)]);
        sent.extend(sender.transmit());
    }
    // RecoverFS is 20 (22 less the two that had arrived), ssthresh 10: one for two, and one more at once.
    assert_eq!(sent, [0, 2, 4, 22, 23, 24, 25, 26]);
    assert_eq!((sender.cwnd(), sender.controller.calls.len()), (10, 1));
    sender.wait(100);
    for ack in [2, 4, 20] {
        sender.ack(ack, &[(20, 22)]);
        sent.extend(sender.transmit());
    }
    assert_eq!((sender.recovery.state(), sender.recovery.lost()), (State::Recovery, 0));
    assert_eq!(sender.in_flight(), 10);
    let outcome = sender.ack(27, &[]);
    assert!(outcome.recovered);
    assert_eq!((sender.recovery.state(), sender.cwnd()), (State::Open, 10));
}

#[test]
fn a_retransmission_that_is_lost_is_sent_again_without_a_timeout_rfc8985_6_2() {
    let mut sender = Sender::new();
    sender.unsent = 20;
    sender.transmit();
    sender.wait(100);
    sender.ack(0, &[(1, 10)]);
    assert_eq!(sender.transmit()[..2], [0, 10]);
    sender.wait(100);
    let outcome = sender.ack(0, &[(1, 11)]);
    assert_eq!((outcome.lost, outcome.congestion), (1000, None));
    assert_eq!(sender.transmit()[0], 0);
}

/// A lost tail is found once the retransmission of the head, which was sent later, arrives.
#[test]
fn losses_at_the_end_of_a_flight_are_found_when_a_retransmission_arrives_rfc8985_6_2() {
    let mut sender = Sender::new();
    sender.send(10);
    sender.wait(100);
    sender.ack(0, &[(1, 8)]);
    assert_eq!(sender.transmit(), [0]);
    sender.wait(100);
    let outcome = sender.ack(8, &[]);
    assert_eq!(outcome.lost, 2000);
    assert_eq!(sender.transmit(), [8, 9]);
}

#[test]
fn the_rest_of_the_flight_that_was_not_covered_is_a_new_event() {
    let mut sender = Sender::new();
    sender.unsent = 20;
    sender.transmit();
    sender.wait(100);
    sender.ack(0, &[(1, 10)]);
    let sent = sender.transmit();
    assert_eq!(sent[..2], [0, 10]);
    sender.wait(100);
    // 10 is lost, 11 arrives: behind the recovery point.
    let nxt = sender.nxt;
    let outcome = sender.ack(10, &[(11, nxt)]);
    assert!(outcome.recovered && outcome.congestion == Some(Congestion::Loss));
    assert_eq!(sender.controller.calls, ["loss", "recovered", "loss"]);
}

#[test]
fn segments_are_cut_where_blocks_and_smaller_retransmissions_end() {
    let mut sender = Sender::new();
    sender.send(4);
    sender.wait(100);
    let block = SeqRange::new(seq(1) + 500, seq(4));
    let ack = AckSegment { sack: &[block], ..ack_of(0, 0, 4) };
    let outcome = sender.with(|recovery, cx| recovery.on_ack(&ack, cx));
    assert_eq!((outcome.delivered, outcome.lost), (2500, 1500));
    let range = sender.recovery.next_retransmission(600).unwrap();
    assert_eq!(range, SeqRange::new(seq(0), seq(0) + 600));
    sender.resend(range);
    let range = sender.recovery.next_retransmission(1000).unwrap();
    assert_eq!(range, SeqRange::new(seq(0) + 600, seq(1) + 500)); // neighbours that fit go together
    sender.resend(range);
    sender.check();
    assert_eq!((sender.recovery.next_retransmission(1000), sender.recovery.in_flight()), (None, 1500));
}

#[test]
fn a_full_segment_with_fin_is_sent_again_whole() {
    let mut sender = Sender::new();
    let range = SeqRange::new(seq(0), seq(1) + 1);
    let sent = Transmission { range, timestamp_value: 0, has_control_octet: true };
    sender.with(|recovery, cx| recovery.on_sent(&sent, cx));
    sender.expire();
    sender.expire();
    assert_eq!(sender.recovery.next_retransmission(MSS), Some(range));
    assert_eq!(sender.recovery.next_retransmission(600), Some(SeqRange::new(seq(0), seq(0) + 600)));
    assert_eq!(sender.recovery.allowance(sender.controller.cwnd), 1001);
}

#[test]
fn what_recovery_itself_sent_and_lost_starts_the_next_one() {
    let mut sender = Sender::new();
    sender.unsent = 20;
    sender.transmit();
    sender.wait(100);
    sender.ack(0, &[(1, 10)]);
    let sent = sender.transmit();
    assert_eq!(sent[..3], [0, 10, 11]);
    sender.wait(100);
    sender.ack(0, &[(1, 10), (11, 12)]);
    assert!(sender.recovery.lost() >= 2000);
    let outcome = sender.ack(10, &[(11, 12)]);
    assert_eq!((outcome.recovered, outcome.congestion), (true, Some(Congestion::Loss)));
    assert_eq!(sender.recovery.state(), State::Recovery);
}

#[test]
fn a_retransmission_sent_twice_counts_once_in_the_pipe_rfc6675_4() {
    let mut sender = Sender::new();
    sender.send(10);
    sender.wait(100);
    sender.ack(0, &[(1, 10)]);
    sender.resend(seq_range(0, 1));
    sender.resend(seq_range(0, 1));
    assert_eq!(sender.in_flight(), 1);
}

#[test]
fn rates_do_not_count_the_time_in_which_nothing_was_in_flight() {
    let mut sender = Sender::new();
    for _ in 0..2 {
        sender.send(2);
        sender.wait(100);
        sender.ack(sender.nxt, &[]);
        let rate = sender.controller.rates.pop().unwrap();
        assert_eq!((rate.delivered, rate.interval), (2000, Duration::from_millis(100)));
        sender.wait(10_000);
    }
}
