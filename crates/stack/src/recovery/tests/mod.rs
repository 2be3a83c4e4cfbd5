//! Segments and acknowledgements, and what follows. Positions are in thousands of octets from the first, a segment has a
//! thousand; position 15 is where sequence numbers wrap.

mod cwr;
mod fast_recovery;
mod model;
mod new_reno;
mod probes;
mod reordering;
mod timeouts;
mod undoing;

use clock::{Duration, Instant};

use super::*;
use crate::congestion::{Acked, Congestion, CongestionControl, RateSample};
use crate::rtt::RttEstimator;

const MSS: u32 = 1000;

/// Octets `start` to `end` in thousands, near the end of the sequence space.
pub(super) fn seq_range(start: u32, end: u32) -> SeqRange {
    SeqRange::new(seq(start), seq(end))
}

fn seq(thousands: u32) -> SeqNum {
    SeqNum(0) - 15_000 + 1000 * thousands
}

fn position(seq: SeqNum) -> u32 {
    (seq + 15_000).0 / 1000
}

/// An acknowledgement of `ack` with nothing else, for a sender with `una` and `nxt`, in thousands.
pub(super) fn ack_of(ack: u32, una: u32, nxt: u32) -> AckSegment<'static> {
    AckSegment {
        ack: seq(ack),
        snd_una: seq(una),
        snd_nxt: seq(nxt),
        sack: &[],
        ece: false,
        echoed: None,
        timestamp_rtt: None,
        has_payload: false,
        window_changed: false,
        has_unsent: false,
    }
}

/// Halves its window and takes it back; grows in slow start only.
#[derive(Debug)]
struct HalvingController {
    cwnd: u32,
    ssthresh: u32,
    before: Option<(u32, u32)>,
    calls: Vec<&'static str>,
    rates: Vec<RateSample>,
}

impl CongestionControl for HalvingController {
    fn name(&self) -> &'static str {
        "halving"
    }

    fn cwnd(&self) -> u32 {
        self.cwnd
    }

    fn ssthresh(&self) -> u32 {
        self.ssthresh
    }

    fn pacing_rate(&self) -> Option<u64> {
        None
    }

    fn on_sent(&mut self, _now: Instant, _in_flight: u32) {}

    fn on_acked(&mut self, acked: &Acked) {
        self.rates.extend(acked.rate);
        if acked.cwnd_limited && self.cwnd < self.ssthresh && self.calls.last() != Some(&"loss") {
            self.cwnd += acked.delivered.min(MSS);
        }
    }

    fn on_congestion(&mut self, congestion: Congestion, flight_size: u32, _now: Instant) {
        self.before = Some((self.cwnd, self.ssthresh));
        self.ssthresh = (flight_size.min(self.cwnd) / 2).max(2 * MSS);
        self.cwnd = if congestion == Congestion::Timeout { MSS } else { self.ssthresh };
        self.calls.push(match congestion {
            Congestion::Loss => "loss",
            Congestion::Ecn => "ecn",
            Congestion::Timeout => "timeout",
        });
    }

    fn on_recovered(&mut self, _now: Instant) {
        self.before = None;
        self.calls.push("recovered");
    }

    fn on_undo(&mut self, _now: Instant) {
        (self.cwnd, self.ssthresh) = self.before.take().unwrap_or((self.cwnd, self.ssthresh));
        self.calls.push("undo");
    }

    fn on_restart_after_idle(&mut self, _idle: Duration, _rto: Duration, _now: Instant) {
        self.calls.push("idle");
    }

    fn on_handshake_loss(&mut self) {}

    fn resume(&mut self, _cwnd: u32, _ssthresh: u32) {}

    fn set_mss(&mut self, _mss: u32) {}
}

/// A connection's sending side.
struct Sender {
    recovery: Recovery,
    controller: HalvingController,
    rtt: RttEstimator,
    pool: FlightPool,
    now: Instant,
    una: u32,
    nxt: u32,
    /// Segments that the application has written and that were not sent.
    unsent: u32,
    sack: bool,
    /// Whether acknowledgements echo timestamps; the clock ticks in milliseconds.
    echo: Option<u32>,
    mss: u32,
}

impl Sender {
    /// With SACK, a window of ten segments and a round-trip time of 100 ms.
    fn new() -> Sender {
        let mut sender = Sender {
            recovery: Recovery::new(seq(0) - 1),
            controller: HalvingController {
                cwnd: 10 * MSS,
                ssthresh: u32::MAX,
                before: None,
                calls: Vec::new(),
                rates: Vec::new(),
            },
            rtt: RttEstimator::default(),
            pool: FlightPool::new(4),
            now: Instant::from_nanos(1_000_000_000),
            una: 0,
            nxt: 0,
            unsent: 0,
            sack: true,
            echo: None,
            mss: MSS,
        };
        sender.rtt.on_sample(Duration::from_millis(100), sender.now);
        sender
    }

    fn without_sack() -> Sender {
        Sender { sack: false, ..Sender::new() }
    }

    fn wait(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    /// Calls `act` with the parts that recovery works on.
    fn with<T>(&mut self, act: impl FnOnce(&mut Recovery, &mut Context<'_>) -> T) -> T {
        let mut cx = Context {
            controller: &mut self.controller,
            rtt: &mut self.rtt,
            pool: &mut self.pool,
            mss: self.mss,
            sack: self.sack,
            now: self.now,
        };
        act(&mut self.recovery, &mut cx)
    }

    fn timestamp(&self) -> u32 {
        (self.now.as_nanos() / 1_000_000) as u32
    }

    /// Sends `segments` of new data, whatever the window is.
    fn send(&mut self, segments: u32) {
        for _ in 0..segments {
            let range = seq_range(self.nxt, self.nxt + 1);
            let sent = Transmission { range, timestamp_value: self.timestamp(), has_control_octet: false };
            self.with(|recovery, cx| recovery.on_sent(&sent, cx));
            self.nxt += 1;
        }
    }

    fn resend(&mut self, range: SeqRange) -> Retransmission {
        let sent = Transmission { range, timestamp_value: self.timestamp(), has_control_octet: false };
        self.with(|recovery, cx| recovery.on_retransmitted(&sent, cx))
    }

    /// Sends all that may go out, lost segments first; the positions of what was sent.
    fn transmit(&mut self) -> Vec<u32> {
        let mut sent = Vec::new();
        loop {
            let room = self.recovery.allowance(self.controller.cwnd);
            match self.recovery.next_retransmission(self.mss) {
                Some(range) if range.len() <= room => {
                    sent.extend(position(range.start)..position(range.end));
                    self.resend(range);
                }
                None if room >= MSS && self.unsent > 0 => {
                    self.unsent -= 1;
                    sent.push(self.nxt);
                    self.send(1);
                }
                _ => return sent,
            }
        }
    }

    /// Receives an acknowledgement of all before `ack` and of `sack`.
    fn ack(&mut self, ack: u32, sack: &[(u32, u32)]) -> AckOutcome {
        self.receive(AckSegment { ..ack_of(ack, self.una, self.nxt) }, sack)
    }

    fn receive(&mut self, ack: AckSegment<'_>, sack: &[(u32, u32)]) -> AckOutcome {
        let sack: Vec<_> = sack.iter().map(|&(start, end)| seq_range(start, end)).collect();
        let ack = AckSegment { sack: &sack, echoed: self.echo, has_unsent: self.unsent > 0, ..ack };
        let outcome = self.with(|recovery, cx| recovery.on_ack(&ack, cx));
        if ack.ack.is_at_or_before(seq(self.nxt)) {
            self.una = self.una.max(position(ack.ack));
        }
        self.check();
        outcome
    }

    /// Jumps to the deadline, or some ms into the future if it is over already, and lets it pass.
    fn expire(&mut self) -> TimeoutOutcome {
        self.now = self.now.max(self.recovery.deadline().expect("something is in flight"));
        let outcome = self.with(|recovery, cx| recovery.on_timeout(cx));
        self.check();
        outcome
    }

    /// Time until the deadline in ms.
    fn deadline_ms(&self) -> Option<u64> {
        self.recovery.deadline().map(|at| at.since(self.now).as_millis())
    }

    /// The pipe must be what its segments say.
    fn check(&self) {
        if let Some(flight) = &self.recovery.flight {
            assert_eq!(flight.scoreboard.recount(), flight.scoreboard.pipe());
            assert!(!flight.scoreboard.is_empty());
        }
    }

    fn in_flight(&self) -> u32 {
        self.recovery.in_flight() / MSS
    }

    fn cwnd(&self) -> u32 {
        self.controller.cwnd / MSS
    }
}

#[test]
fn an_idle_connection_holds_little() {
    assert!(size_of::<Recovery>() <= 96, "{}", size_of::<Recovery>());
    let mut sender = Sender::new();
    sender.send(3);
    sender.wait(100);
    sender.ack(3, &[]);
    assert!(sender.recovery.is_idle());
    assert_eq!(sender.recovery.deadline(), None);
    assert_eq!(sender.recovery.allowance(7), 7);
}

#[test]
fn requests_and_responses_use_the_same_flight_again() {
    let mut sender = Sender::new();
    let mut addresses = Vec::new();
    for _ in 0..5 {
        sender.send(2);
        addresses.push(&raw const **sender.recovery.flight.as_ref().unwrap());
        sender.wait(100);
        sender.ack(sender.nxt, &[]);
    }
    assert!(addresses.windows(2).all(|pair| core::ptr::eq(pair[0], pair[1])));
}

#[test]
fn acknowledgements_of_the_future_do_nothing() {
    let mut sender = Sender::new();
    sender.send(3);
    let outcome = sender.receive(ack_of(9, 0, 3), &[(4, 5)]);
    assert_eq!((outcome.cumulative, outcome.delivered, sender.in_flight()), (0, 0, 3));
}

fn send_octet(sender: &mut Sender, octet: u32) -> SeqRange {
    let range = SeqRange::new(seq(0) + octet, seq(0) + octet + 1);
    let sent = Transmission { range, timestamp_value: 0, has_control_octet: false };
    sender.with(|recovery, cx| recovery.on_sent(&sent, cx));
    range
}

fn entries(sender: &Sender) -> usize {
    sender.recovery.flight.as_ref().map_or(0, |flight| flight.scoreboard.iter().count())
}

#[test]
fn one_octet_writes_do_not_take_memory_for_each() {
    let mut sender = Sender::new();
    for octet in 0..100_000 {
        send_octet(&mut sender, octet);
    }
    assert!(entries(&sender) < 64 + 5 * 100, "{}", entries(&sender));
    sender.check();
}

#[test]
fn blocks_that_cut_segments_do_not_take_memory_for_each() {
    let mut sender = Sender::new();
    sender.send(20);
    let nxt = sender.nxt;
    for octet in (0..20_000).step_by(4) {
        let block = SeqRange::new(seq(0) + octet + 1, seq(0) + octet + 2);
        let ack = AckSegment { sack: &[block], ..ack_of(0, 0, nxt) };
        sender.with(|recovery, cx| recovery.on_ack(&ack, cx));
    }
    assert!(entries(&sender) < 64 + 4 * 20 + 2, "{}", entries(&sender));
    sender.check();
}

#[test]
fn a_peer_that_acknowledges_all_octets_but_the_first_stops_new_data_before_it_takes_memory() {
    let mut sender = Sender::new();
    for octet in 0..100_000 {
        let range = send_octet(&mut sender, octet);
        if octet > 0 {
            let ack = AckSegment { sack: &[range], snd_nxt: range.end, ..ack_of(0, 0, 0) };
            sender.with(|recovery, cx| recovery.on_ack(&ack, cx));
            while let Some(range) = sender.recovery.next_retransmission(MSS) {
                sender.resend(range);
            }
            if sender.recovery.flight.as_ref().unwrap().scoreboard.is_full(MSS) {
                assert_eq!(sender.recovery.allowance(u32::MAX), 0);
                assert!((1000..2000).contains(&entries(&sender)), "{}", entries(&sender));
                return;
            }
        }
    }
    panic!("never full");
}

#[test]
fn an_application_that_pauses_is_told_of_and_marked() {
    let mut sender = Sender::new();
    sender.with(|recovery, cx| recovery.restart_after_idle(true, cx));
    sender.send(1);
    sender.wait(100);
    sender.ack(1, &[]);
    sender.recovery.mark_app_limited();
    sender.with(|recovery, cx| recovery.restart_after_idle(true, cx));
    assert_eq!(sender.controller.calls, ["idle"]);
    assert_eq!(sender.recovery.delivered(), 1000);
}
