//! Random networks between recovery and a model of a receiver; random acknowledgements.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// What the network does to packets, in percent, and what the ends can do.
#[derive(Clone, Copy, Debug)]
struct Network {
    seed: u64,
    loss: u64,
    reordering: u64,
    duplication: u64,
    ack_loss: u64,
    sack: bool,
    timestamps: bool,
    /// Octets that the application writes.
    octets: u32,
    /// Largest write.
    write_max: u32,
    /// After so many packets the path takes only 600 octets.
    shrinks_at: u64,
}

fn networks() -> impl Strategy<Value = Network> {
    let rates = (0..30u64, 0..40u64, 0..20u64, 0..30u64);
    let ends = (any::<bool>(), any::<bool>(), 1..60_000u32, 100..3000u32, 0..200u64);
    (any::<u64>(), rates, ends).prop_map(|(seed, rates, ends)| {
        let (loss, reordering, duplication, ack_loss) = rates;
        let (sack, timestamps, octets, write_max, shrinks_at) = ends;
        Network {
            seed,
            loss,
            reordering,
            duplication,
            ack_loss,
            sack,
            timestamps,
            octets,
            write_max,
            shrinks_at,
        }
    })
}

/// Numbers that look random (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % bound.max(1)
    }
}

/// A receiver that acknowledges each segment at once (RFC 2018, 4; RFC 2883, 4; RFC 7323, 4.3). Octets are counted from the
/// first.
#[derive(Default)]
struct Receiver {
    next: u32,
    /// Out of order, in the order in which they grew last, without overlap.
    runs: Vec<(u32, u32)>,
    recent_timestamp: u32,
}

#[derive(Clone, Debug)]
struct Ack {
    ack: u32,
    sack: Vec<(u32, u32)>,
    echo: u32,
}

impl Receiver {
    fn receive(&mut self, start: u32, end: u32, timestamp: u32) -> Ack {
        if start <= self.next {
            self.recent_timestamp = self.recent_timestamp.max(timestamp);
        }
        let has_it = |&&(from, to): &&(u32, u32)| from <= start && end <= to;
        let known = self.runs.iter().find(has_it).copied();
        let mut sack = Vec::new();
        if end <= self.next || known.is_some() {
            sack.push((start, end));
        }
        self.merge(start, end);
        sack.extend(self.runs.iter().take(3));
        Ack { ack: self.next, sack, echo: self.recent_timestamp }
    }

    fn merge(&mut self, mut start: u32, mut end: u32) {
        self.runs.retain(|&(from, to)| {
            let touches = from <= end && start <= to;
            if touches {
                (start, end) = (start.min(from), end.max(to));
            }
            !touches
        });
        if start <= self.next {
            self.next = self.next.max(end);
        } else {
            self.runs.insert(0, (start, end));
        }
    }
}

enum Packet {
    Data(u32, u32, u32),
    Ack(Ack),
}

struct World {
    network: Network,
    dice: Dice,
    sender: Sender,
    receiver: Receiver,
    packets: BTreeMap<(Instant, u64), Packet>,
    sent: u64,
    /// Octets acknowledged and sent.
    una: u32,
    nxt: u32,
    /// What was selectively acknowledged, octet by octet.
    sacked: Vec<bool>,
    /// There were so many small segments that blocks may have been ignored.
    was_crowded: bool,
}

const ORIGIN: u32 = 40_000;

fn seq_at(octet: u32) -> SeqNum {
    SeqNum(0) - ORIGIN + octet
}

fn octet_of(seq: SeqNum) -> u32 {
    (seq + ORIGIN).0
}

impl World {
    fn new(network: Network) -> World {
        let mut sender = Sender::new();
        sender.recovery = Recovery::new(seq_at(0) - 1);
        sender.sack = network.sack;
        World {
            network,
            dice: Dice(network.seed | 1),
            sender,
            receiver: Receiver::default(),
            packets: BTreeMap::new(),
            sent: 0,
            una: 0,
            nxt: 0,
            sacked: vec![false; network.octets as usize],
            was_crowded: false,
        }
    }

    fn run(&mut self) {
        for _ in 0..200_000 {
            self.transmit();
            self.check();
            if self.una == self.network.octets {
                return;
            }
            let arrival = self.packets.first_key_value().map(|((at, _), _)| *at);
            let deadline = self.sender.recovery.deadline();
            match (arrival, deadline) {
                (Some(at), deadline) if deadline.is_none_or(|deadline| at <= deadline) => self.deliver(),
                (_, Some(deadline)) => self.expire(deadline),
                _ => panic!("nothing will ever happen"),
            }
        }
        panic!("no end in sight: {} of {} octets", self.una, self.network.octets);
    }

    fn transmit(&mut self) {
        loop {
            let room = self.sender.recovery.allowance(self.sender.controller.cwnd);
            match self.sender.recovery.next_retransmission(self.sender.mss) {
                Some(range) if range.len() <= room => self.resend(range),
                None if self.next_write() > 0 && self.next_write() <= room => self.send_new(),
                _ => return,
            }
        }
    }

    /// Octets of the next segment of new data, limited by a window of 30 000.
    fn next_write(&self) -> u32 {
        let write = 1 + self.nxt.wrapping_mul(2_654_435_761) % self.network.write_max;
        let window = (self.una + 30_000).min(self.network.octets) - self.nxt;
        write.min(self.sender.mss).min(window)
    }

    fn transmission(&self, range: SeqRange) -> Transmission {
        Transmission { range, timestamp_value: self.sender.timestamp(), has_control_octet: false }
    }

    fn send_new(&mut self) {
        let range = SeqRange::new(seq_at(self.nxt), seq_at(self.nxt + self.next_write()));
        let sent = self.transmission(range);
        self.sender.with(|recovery, cx| recovery.on_sent(&sent, cx));
        self.nxt = octet_of(range.end);
        self.launch_data(range);
    }

    fn resend(&mut self, range: SeqRange) {
        let sent = self.transmission(range);
        self.sender.with(|recovery, cx| recovery.on_retransmitted(&sent, cx));
        self.launch_data(range);
    }

    fn launch_data(&mut self, range: SeqRange) {
        self.sent += 1;
        if self.sent == self.network.shrinks_at {
            self.sender.mss = 600;
            self.sender.with(|recovery, cx| recovery.on_mss_reduced(cx));
        }
        let timestamp = self.sender.timestamp();
        let (start, end) = (octet_of(range.start), octet_of(range.end));
        self.launch(self.network.loss, || Packet::Data(start, end, timestamp));
    }

    fn launch(&mut self, loss: u64, packet: impl Fn() -> Packet) {
        let copies = 1 + u64::from(self.dice.below(100) < self.network.duplication);
        for copy in 0..copies {
            if self.dice.below(100) < loss {
                continue;
            }
            let late = if self.dice.below(100) < self.network.reordering { self.dice.below(60) } else { 0 };
            let at = self.sender.now + Duration::from_millis(25 + late);
            self.packets.insert((at, 2 * self.sent + copy), packet());
        }
    }

    fn deliver(&mut self) {
        let ((at, _), packet) = self.packets.pop_first().expect("looked at before");
        self.sender.now = self.sender.now.max(at);
        match packet {
            Packet::Data(start, end, timestamp) => {
                let ack = self.receiver.receive(start, end, timestamp);
                self.sent += 1;
                self.launch(self.network.ack_loss, || Packet::Ack(ack.clone()));
            }
            Packet::Ack(ack) => self.acknowledge(&ack),
        }
    }

    fn acknowledge(&mut self, ack: &Ack) {
        let sack: Vec<_> =
            ack.sack.iter().map(|&(start, end)| SeqRange::new(seq_at(start), seq_at(end))).collect();
        let elapsed = u64::from(self.sender.timestamp() - ack.echo.min(self.sender.timestamp()));
        let segment = AckSegment {
            ack: seq_at(ack.ack),
            snd_una: seq_at(self.una),
            snd_nxt: seq_at(self.nxt),
            sack: if self.network.sack { &sack } else { &[] },
            echoed: self.network.timestamps.then_some(ack.echo),
            timestamp_rtt: self.network.timestamps.then_some(Duration::from_millis(elapsed)),
            has_unsent: self.next_write() > 0,
            ..ack_of(0, 0, 0)
        };
        let before = self.una;
        let outcome = self.sender.with(|recovery, cx| recovery.on_ack(&segment, cx));
        self.una = self.una.max(ack.ack);
        assert_eq!(outcome.cumulative, self.una - before);
        for &(start, end) in &ack.sack {
            self.sacked[start as usize..end as usize].fill(true);
        }
    }

    fn expire(&mut self, deadline: Instant) {
        self.sender.now = self.sender.now.max(deadline);
        let outcome = self.sender.with(|recovery, cx| recovery.on_timeout(cx));
        match outcome.action {
            TimeoutAction::SendProbe { last } => {
                let probe = if self.next_write() > 0 {
                    self.send_new();
                    Probe::NewData
                } else {
                    self.resend(last);
                    Probe::Retransmission
                };
                let nxt = seq_at(self.nxt);
                self.sender.recovery.on_probe_sent(probe, nxt);
            }
            TimeoutAction::Rto => {
                let room = self.sender.recovery.allowance(self.sender.controller.cwnd);
                assert!(self.sender.recovery.next_retransmission(self.sender.mss).unwrap().len() <= room);
            }
            TimeoutAction::LossFound | TimeoutAction::None => {}
        }
    }

    fn check(&mut self) {
        self.sender.check();
        self.was_crowded |= entries(&self.sender) >= 64;
        let recovery = &self.sender.recovery;
        assert_eq!(recovery.is_idle(), self.una == self.nxt);
        assert_eq!(recovery.is_idle(), recovery.deadline().is_none());
        if let Some(flight) = recovery.flight.as_deref().filter(|_| self.network.sack) {
            let told = (self.una..self.nxt).filter(|&octet| self.sacked[octet as usize]).count() as u32;
            let marked = flight.scoreboard.sacked();
            assert!(marked <= told && (marked == told || self.was_crowded), "{marked} of {told}");
            let delivered = u64::from(self.una + marked);
            assert_eq!(recovery.delivered(), delivered);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Send(u32),
    Ack { ack: i32, sack: Vec<(i32, i32)>, echo: Option<u32>, flags: (bool, bool, bool) },
    Resend,
    ResendAnything(u32, u32),
    Expire,
    Probe(bool),
    Wait(u64),
    Shrink(u32),
    AppLimited,
}

fn steps() -> impl Strategy<Value = Step> {
    let offset = || prop_oneof![9 => -2000..20_000i32, 1 => any::<i32>()];
    let ack = prop_oneof![3 => Just(0), 2 => 0..3000, 1 => offset()];
    let sack = prop::collection::vec((offset(), offset()), 0..5);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    prop_oneof![
        4 => (1..2500u32).prop_map(Step::Send),
        6 => (ack, sack, any::<Option<u32>>(), flags)
            .prop_map(|(ack, sack, echo, flags)| Step::Ack { ack, sack, echo, flags }),
        4 => Just(Step::Resend),
        1 => (0..20_000u32, 1..3000u32).prop_map(|(at, len)| Step::ResendAnything(at, len)),
        3 => Just(Step::Expire),
        1 => any::<bool>().prop_map(Step::Probe),
        2 => (0..400u64).prop_map(Step::Wait),
        1 => (1..1500u32).prop_map(Step::Shrink),
        1 => Just(Step::AppLimited),
    ]
}

/// Applies `step`; SND.UNA and SND.NXT are in `edges`.
fn apply(sender: &mut Sender, edges: &mut SeqRange, step: &Step) {
    let at = |offset: i32| SeqNum(edges.start.0.wrapping_add_signed(offset));
    let transmission =
        |range| Transmission { range, timestamp_value: 7, has_control_octet: range.len() % 3 == 0 };
    match step {
        Step::Send(octets) => {
            let range = SeqRange::new(edges.end, edges.end + *octets);
            sender.with(|recovery, cx| recovery.on_sent(&transmission(range), cx));
            edges.end = range.end;
        }
        Step::Ack { ack, sack, echo, flags } => {
            let sack: Vec<_> = sack.iter().map(|&(a, b)| SeqRange::new(at(a), at(b))).collect();
            let ack = AckSegment {
                ack: at(*ack),
                snd_una: edges.start,
                snd_nxt: edges.end,
                sack: &sack,
                ece: flags.0,
                echoed: *echo,
                timestamp_rtt: echo.map(|echo| Duration::from_millis(u64::from(echo) % 1000)),
                has_payload: flags.1,
                has_unsent: flags.2,
                window_changed: false,
            };
            sender.with(|recovery, cx| recovery.on_ack(&ack, cx));
            if ack.ack.is_at_or_before(edges.end) {
                edges.start = edges.start.max(ack.ack);
            }
        }
        Step::Resend => {
            if let Some(range) = sender.recovery.next_retransmission(sender.mss) {
                assert!(edges.contains(range) && !range.is_empty(), "{range:?} {edges:?}");
                sender.with(|recovery, cx| recovery.on_retransmitted(&transmission(range), cx));
            }
        }
        Step::ResendAnything(start, len) => {
            let start = at(*start as i32).min(edges.end);
            let range = SeqRange::new(start, (start + *len).min(edges.end));
            sender.with(|recovery, cx| recovery.on_retransmitted(&transmission(range), cx));
        }
        Step::Expire if !sender.recovery.is_idle() => {
            sender.expire();
        }
        Step::Expire => {}
        Step::Probe(is_new) => {
            let probe = if *is_new { Probe::NewData } else { Probe::Retransmission };
            sender.recovery.on_probe_sent(probe, edges.end);
        }
        Step::Wait(ms) => sender.wait(*ms),
        Step::Shrink(mss) => {
            sender.mss = *mss;
            sender.with(|recovery, cx| recovery.on_mss_reduced(cx));
        }
        Step::AppLimited => sender.recovery.mark_app_limited(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn everything_arrives_over_any_network(network in networks()) {
        World::new(network).run();
    }

    #[test]
    fn no_acknowledgement_upsets_the_accounts(
        sack in any::<bool>(),
        steps in prop::collection::vec(steps(), 1..200),
    ) {
        let mut sender = Sender { sack, ..Sender::new() };
        let mut edges = SeqRange::new(seq(0), seq(0));
        for step in &steps {
            apply(&mut sender, &mut edges, step);
            sender.check();
            prop_assert_eq!(sender.recovery.is_idle(), edges.is_empty());
            let _ = (sender.recovery.allowance(sender.controller.cwnd), sender.recovery.deadline());
        }
    }
}
