//! Peers that follow no rule. The reference model beside the stack says what may come of it; see `simnet::net::hostile`.

use std::panic::catch_unwind;

use clock::{Duration, Instant};
use simnet::net::hostile::{Forged, Victim, fuzz_segments};
use simnet::net::{Random, Sight};
use stack::config::SynCookies;
use stack::tcp::State;
use stack::{Config, TcpOptions};
use wire::tcp::flag;

/// Initial sequence numbers of the liar, of which the second and third wrap.
const IRS: [u32; 3] = [1000, u32::MAX - 5, u32::MAX];

#[test]
fn stories_made_of_chance_break_no_rule() {
    let fails = |seed: &u64| catch_unwind(|| fuzz_segments(&story(*seed))).is_err();
    let failed: Vec<u64> = (0..from_environment("SIMNET_STORIES").unwrap_or(20_000)).filter(fails).collect();
    assert!(
        failed.is_empty(),
        "{failed:?} fail; SIMNET_SEED=... cargo test -p simnet --test hostile -- --nocapture one_story plays one"
    );
}

#[test]
fn one_story() {
    if let Some(seed) = from_environment("SIMNET_SEED") {
        fuzz_segments(&story(seed));
    }
}

fn story(seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let len = random.magnitude(10, 3000);
    (0..len).map(|_| random.bits() as u8).collect()
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Few connections, so that limits are near.
fn config() -> Config {
    Config {
        connections_max: 64,
        half_open_max: 64,
        time_wait_max: 64,
        buffer_memory: 2 << 20,
        ..Config::default()
    }
}

fn victim(config: Config, options: TcpOptions) -> Victim {
    Victim::new(config, options, false, Instant::from_nanos(1_000_000_000))
}

/// A liar's segment that would be right: what is expected, acknowledging all.
fn right(victim: &Victim, flow: usize) -> Forged {
    let (seq, ack) = victim.numbers(flow);
    Forged { seq, ack, flags: flag::ACK, window: 0xffff, ..Forged::default() }
}

/// The connection of flow 0 in `state`; `None` stands for a half-open one.
fn victim_in(state: Option<State>, irs: u32) -> Victim {
    let mut victim = victim(config(), TcpOptions::default());
    let syn = Forged { seq: irs, flags: flag::SYN, window: 0xffff, ..Forged::default() };
    match state {
        None => victim.inject(0, &syn),
        Some(State::SynSent) => victim.connect(0),
        Some(State::SynReceived) => {
            victim.connect(0);
            victim.inject(0, &syn);
        }
        Some(_) => victim.open(0, irs, &[]),
    }
    if matches!(state, Some(State::FinWait1 | State::FinWait2 | State::Closing)) {
        victim.shutdown(0);
    }
    if state == Some(State::FinWait2) {
        let ack = right(&victim, 0);
        victim.inject(0, &ack);
    }
    if matches!(state, Some(State::CloseWait | State::LastAck | State::Closing)) {
        let (seq, ack) = victim.numbers(0);
        let unacknowledged = ack.wrapping_sub(u32::from(state == Some(State::Closing)));
        let fin = Forged {
            seq,
            ack: unacknowledged,
            flags: flag::ACK | flag::FIN,
            window: 0xffff,
            ..Forged::default()
        };
        victim.inject(0, &fin);
    }
    if state == Some(State::LastAck) {
        victim.shutdown(0);
    }
    assert_eq!(victim.state(0), state);
    victim
}

const STATES: [Option<State>; 9] = [
    None,
    Some(State::SynSent),
    Some(State::SynReceived),
    Some(State::Established),
    Some(State::FinWait1),
    Some(State::FinWait2),
    Some(State::CloseWait),
    Some(State::Closing),
    Some(State::LastAck),
];

#[test]
fn in_every_state_a_reset_counts_at_the_expected_octet_and_nowhere_else() {
    for (state, irs) in STATES.into_iter().skip(2).flat_map(|state| IRS.map(|irs| (state, irs))) {
        // At the peer's FIN it counts too.
        let has_fin = matches!(state, Some(State::CloseWait | State::LastAck | State::Closing));
        let below = if has_fin { -2 } else { -1 };
        for distance in [-70_000, below, 1, 1000, 65_000, 70_000, i32::MIN] {
            let mut victim = victim_in(state, irs);
            let (rcv_nxt, _) = victim.numbers(0);
            let seq = rcv_nxt.wrapping_add_signed(distance);
            victim.inject(0, &Forged { seq, flags: flag::RST, ..Forged::default() });
            assert_eq!(victim.state(0), state, "a reset {distance} from what is expected, in {state:?}");
            victim.inject(0, &Forged { seq: rcv_nxt, flags: flag::RST, ..Forged::default() });
            assert_eq!(victim.state(0), None, "a reset where it is expected, in {state:?}");
            victim.finish();
        }
    }
}

#[test]
fn in_every_state_syns_and_segments_without_ack_change_nothing() {
    for (state, irs) in STATES.into_iter().skip(3).flat_map(|state| IRS.map(|irs| (state, irs))) {
        let mut victim = victim_in(state, irs);
        let (rcv_nxt, snd_nxt) = victim.numbers(0);
        for flags in
            [0, flag::FIN, flag::PSH, flag::URG, flag::SYN, flag::SYN | flag::ACK, flag::SYN | flag::FIN]
        {
            for distance in [-1, 0, 1, 60_000, 100_000] {
                let seq = rcv_nxt.wrapping_add_signed(distance);
                victim
                    .inject(0, &Forged { seq, ack: snd_nxt, flags, len: 10, window: 1, ..Forged::default() });
                assert_eq!(victim.state(0), state, "{flags:#x} in {state:?}");
            }
        }
        assert_eq!(victim.numbers(0).0, rcv_nxt);
        victim.finish();
    }
}

#[test]
fn in_every_state_any_segment_near_the_edges_keeps_to_the_reference() {
    let edges = [-65_536, -1001, -1, 0, 1, 999, 65_534, 65_535, 65_536, 1 << 30, i32::MIN];
    for (state, irs) in STATES.into_iter().flat_map(|state| IRS.map(|irs| (state, irs))) {
        for (seq_edge, ack_edge) in edges.iter().flat_map(|seq| edges.iter().map(move |ack| (*seq, *ack))) {
            let mut victim = victim_in(state, irs);
            let (rcv_nxt, snd_nxt) = victim.numbers(0);
            for (variant, flags) in
                [flag::ACK, flag::ACK | flag::FIN, flag::RST, flag::SYN].into_iter().enumerate()
            {
                let seq = rcv_nxt.wrapping_add_signed(seq_edge);
                let ack = snd_nxt.wrapping_add_signed(ack_edge);
                let variant = variant as u8;
                victim.inject(
                    0,
                    &Forged { seq, ack, flags, window: 100, variant, len: 1000, ..Forged::default() },
                );
            }
            victim.finish();
        }
    }
}

#[test]
fn a_flood_of_syns_costs_bounded_memory_and_leaves_room_for_honest_peers() {
    for syn_cookies in [SynCookies::UnderPressure, SynCookies::Always] {
        let mut victim = victim(Config { syn_cookies, ..config() }, TcpOptions::default());
        let mut random = Random::new(1);
        for _ in 0..100_000 {
            victim.inject_octets(&syn_from_anywhere(&mut random));
            let (connections, half_open, _) = victim.stack().population();
            assert!(connections == 0 && half_open <= 64);
        }
        victim.take_sent();
        victim.open(0, 5, &[]);
        assert_eq!(victim.state(0), Some(State::Established), "with cookies {syn_cookies:?}");
        victim.finish();
    }
}

fn syn_from_anywhere(random: &mut Random) -> Vec<u8> {
    let [a, b, c, d, e, f, ..] = random.bits().to_be_bytes();
    let from = std::net::SocketAddr::from(([10, a, b, c], u16::from_be_bytes([d | 1, e])));
    let to = std::net::SocketAddr::from(([192, 0, 2, 1], 80));
    let seq = random.bits() as u32;
    Forged { seq, flags: flag::SYN, window: f.into(), ..Forged::default() }.packet(from, to)
}

#[test]
fn a_storm_of_acks_is_answered_twice_a_second() {
    // RFC 5961, 7: acknowledgements of what cannot be must not make two hosts throw them at each other.
    let mut victim = victim_in(Some(State::Established), 1);
    victim.take_sent();
    for distance in 0..10_000 {
        let mut ack = right(&victim, 0);
        ack.ack = ack.ack.wrapping_add(1 + distance);
        victim.inject(0, &ack);
        let mut old = right(&victim, 0);
        old.seq = old.seq.wrapping_sub(100 + distance);
        victim.inject(0, &old);
    }
    assert!(victim.take_sent().len() <= 2, "each storm is answered at once, and not again");
    victim.finish();
}

#[test]
fn a_window_of_single_octets_is_not_used_octet_by_octet() {
    // RFC 9293, 3.8.6.2.1.
    let mut victim = victim_in(Some(State::Established), 1);
    let mut closed = right(&victim, 0);
    closed.window = 0;
    victim.inject(0, &closed);
    victim.send(0, 10_000);
    victim.take_sent();
    for window in 1..200 {
        let mut tiny = right(&victim, 0);
        tiny.window = window % 3;
        victim.inject(0, &tiny);
    }
    let sent = victim.take_sent();
    let with_data =
        sent.iter().filter(|packet| Sight::of(packet).is_some_and(|sight| !sight.payload.is_empty()));
    assert!(with_data.count() <= 1, "the largest window was large: a piece of an octet is not worth sending");
    victim.finish();
}

#[test]
fn optimistic_acknowledgements_and_invented_sacks_move_nothing() {
    let sack_permitted = [4, 2, 1, 1];
    for irs in IRS {
        let mut victim = victim(config(), TcpOptions::default());
        victim.open(0, irs, &sack_permitted);
        victim.send(0, 30_000);
        let (_, snd_nxt) = victim.numbers(0);
        for (ack, start, end) in [
            (1, 1, 2),
            (1 << 30, 0, 1 << 31),
            (-40_000, 1000, 500),
            (-30_000, 0, 0),
            (-30_000, 1 << 31, 1),
            (-30_000, u32::MAX, 1),
        ] {
            let mut lie = right(&victim, 0);
            lie.ack = snd_nxt.wrapping_add_signed(ack);
            lie.options = vec![1, 1, 5, 10];
            lie.options.extend(snd_nxt.wrapping_add(start).to_be_bytes());
            lie.options.extend(snd_nxt.wrapping_add(end).to_be_bytes());
            victim.inject(0, &lie);
            assert_eq!(victim.numbers(0).1, snd_nxt, "nothing was acknowledged, so nothing more may leave");
        }
        victim.pass(Duration::from_secs(2));
        victim.finish();
    }
}

#[test]
fn octets_that_were_acknowledged_are_not_changed_by_others_in_their_place() {
    for irs in IRS {
        let mut victim = victim_in(Some(State::Established), irs);
        let start = victim.numbers(0).0;
        let mut random = Random::new(irs.into());
        for _ in 0..2000 {
            let mut piece = right(&victim, 0);
            piece.seq = start.wrapping_sub(300).wrapping_add(random.below(5300) as u32);
            piece.len = random.between(1, 900) as usize;
            piece.variant = random.below(4) as u8;
            victim.inject(0, &piece);
            if random.one_in(50) {
                victim.recv(0, 300);
            }
        }
        assert!(victim.numbers(0).0.wrapping_sub(start) >= 5000);
        victim.finish();
    }
}

#[test]
fn garbage_in_options_is_survived_in_every_state() {
    let mut random = Random::new(3);
    for state in STATES {
        let mut victim = victim_in(state, 77);
        for _ in 0..500 {
            let mut segment = right(&victim, 0);
            segment.options = (0..random.below(41)).map(|_| random.bits() as u8).collect();
            segment.flags |= random.pick(&[0, 0, 0, flag::SYN, flag::ECE, flag::CWR, flag::URG]);
            segment.len = random.below(3) as usize;
            victim.inject(0, &segment);
        }
        victim.finish();
    }
}

#[test]
fn a_hundred_thousand_connections_come_and_go_and_leave_nothing() {
    let mut victim = victim(config(), TcpOptions::default());
    let mut random = Random::new(4);
    for number in 0..140_000u32 {
        let flow = random.below(8) as usize;
        victim.open(flow, number.wrapping_mul(100_000), &[]); // Rising, so that it may replace one in TIME-WAIT.
        use_once(&mut victim, flow);
        match random.below(4) {
            0 => victim.close(flow, true),
            1 => inject_right(&mut victim, flow, flag::RST),
            2 => {
                inject_right(&mut victim, flow, flag::ACK | flag::FIN);
                victim.shutdown(flow);
                inject_right(&mut victim, flow, flag::ACK);
            }
            _ => {
                victim.shutdown(flow);
                inject_right(&mut victim, flow, flag::ACK | flag::FIN);
            }
        }
        victim.take_sent();
        if number % 8 == 0 {
            victim.pass(Duration::from_secs(61)); // Those in TIME-WAIT go.
        }
    }
    let counters = victim.stack().counters();
    let opened = (counters.passive_opens, counters.active_opens);
    assert!(opened.0 > 40_000 && opened.0 + opened.1 > 100_000, "{opened:?}");
    victim.finish();
}

/// A request and a response.
fn use_once(victim: &mut Victim, flow: usize) {
    victim.inject(flow, &Forged { len: 10, ..right(victim, flow) });
    victim.recv(flow, 10);
    victim.send(flow, 10);
    inject_right(victim, flow, flag::ACK);
}

fn inject_right(victim: &mut Victim, flow: usize, flags: u8) {
    let segment = Forged { flags, ..right(victim, flow) };
    victim.inject(flow, &segment);
}
