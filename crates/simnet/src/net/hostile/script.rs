//! Octets read as a story: what the liar sends, what the victim's application does, and how time passes.

use clock::{Duration, Instant};
use stack::config::{EcnMode, SynCookies};
use stack::{Config, TcpOptions};
use wire::tcp::flag;

use super::forged::Forged;
use super::victim::{FLOWS, Victim};

/// What is left of the octets; behind the end all are zero.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn octet(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.octet(), self.octet()])
    }

    fn u32(&mut self) -> u32 {
        u32::from(self.u16()) << 16 | u32::from(self.u16())
    }

    /// A distance: up to 63 octets either way, or up to 63 hundreds.
    fn offset(&mut self) -> u32 {
        let octet = self.octet();
        let unit = if octet & 0x80 == 0 { 1 } else { 100 };
        let distance = u32::from(octet & 63) * unit;
        if octet & 0x40 == 0 { distance } else { distance.wrapping_neg() }
    }
}

/// Plays `data` as a story of a liar and a stack with live connections, beside a reference model.
///
/// # Panics
/// If the stack does what it must not: that is what fuzzers look for.
pub fn fuzz_segments(data: &[u8]) {
    let mut script = Script(data);
    let mut victim = make_victim(&mut script);
    for _ in 0..400 {
        if script.0.is_empty() {
            break;
        }
        act(&mut victim, &mut script);
    }
    victim.finish();
}

fn make_victim(script: &mut Script<'_>) -> Victim {
    let (first, second) = (script.octet(), script.octet());
    let bit = |octet: u8, bit: u8| octet >> bit & 1 != 0;
    let config = Config {
        connections_max: 32,
        half_open_max: 32,
        time_wait_max: 16,
        buffer_memory: 4 << 20,
        trace_records: 16,
        timestamps: !bit(first, 0),
        sack: !bit(first, 1),
        window_scaling: !bit(first, 2),
        ecn: if bit(first, 3) { EcnMode::Active } else { EcnMode::Passive },
        syn_cookies: if bit(first, 4) { SynCookies::Never } else { SynCookies::UnderPressure },
        ..Config::default()
    };
    let options = TcpOptions {
        no_delay: bit(second, 0),
        keepalive: bit(second, 1),
        receive_buffer: bit(second, 2).then_some(3000),
        send_buffer: bit(second, 3).then_some(5000),
        defer_accept: bit(second, 4).then_some(3),
        ..TcpOptions::default()
    };
    let start = Instant::ZERO + Duration::from_millis(u64::from(script.u32()) + 1);
    Victim::new(config, options, bit(first, 7), start)
}

fn act(victim: &mut Victim, script: &mut Script<'_>) {
    let what = script.octet();
    let flow = usize::from(what >> 5) % FLOWS;
    match what & 31 {
        0..=15 => {
            let segment = segment(victim, flow, script);
            victim.inject(flow, &segment);
        }
        16 => victim.open(flow, script.u32(), &syn_options(script.octet())),
        17 => victim.connect(flow),
        18 | 19 => victim.send(flow, script.u16().into()),
        20 | 21 => victim.recv(flow, script.u16().into()),
        22 => victim.shutdown(flow),
        23 => victim.close(flow, false),
        24 => victim.close(flow, true),
        25..=27 => victim.pass(Duration::from_millis(1 << (script.octet() % 18))),
        28 => {
            let (segment, at) = (segment(victim, flow, script), script.u16());
            let (from, to) = victim.ends(flow);
            let mut packet = segment.packet(from, to);
            let at = usize::from(at) % packet.len();
            packet[at] ^= script.octet();
            packet.truncate(packet.len() - usize::from(script.octet()) % packet.len());
            // With a right checksum it would be a segment that the reference does not know of.
            if crate::net::sight::Sight::of(&packet).is_none() {
                victim.inject_octets(&packet);
            }
        }
        29 => {
            let (from, to) = victim.ends(flow);
            let (_, seq) = victim.numbers(flow);
            let seq = seq.wrapping_add(script.offset());
            let quoted = Forged { seq, len: 8, ..Forged::default() }.packet(to, from);
            let mtu = script.u16();
            victim.inject_octets(&crate::net::too_big::too_big(&quoted, mtu).expect("it is a packet"));
        }
        _ => victim.pass(Duration::from_micros(script.octet().into())),
    }
}

/// A segment near what would be right, or far from it.
fn segment(victim: &Victim, flow: usize, script: &mut Script<'_>) -> Forged {
    let (rcv_nxt, snd_nxt) = victim.numbers(flow);
    let how = script.octet();
    let seq = match how & 3 {
        0 | 1 => rcv_nxt,
        2 => rcv_nxt.wrapping_add(script.offset()),
        _ => script.u32(),
    };
    let ack = match how >> 2 & 3 {
        0 | 1 => snd_nxt,
        2 => snd_nxt.wrapping_add(script.offset()),
        _ => script.u32(),
    };
    let flags = match how >> 4 & 7 {
        0..=3 => flag::ACK,
        4 => flag::ACK | flag::FIN,
        5 => flag::SYN,
        6 => flag::RST,
        _ => script.octet(),
    };
    let window = if how & 128 == 0 { 0xffff } else { script.u16() };
    let what = script.octet();
    let len = match what & 3 {
        0 => 0,
        1 => usize::from(script.octet()),
        _ => usize::from(script.u16()) % 1400,
    };
    let options = options(what >> 4, rcv_nxt, snd_nxt, script);
    Forged { seq, ack, flags, window, options, variant: what >> 2 & 3, len }
}

fn options(kind: u8, rcv_nxt: u32, snd_nxt: u32, script: &mut Script<'_>) -> Vec<u8> {
    match kind {
        0..=3 => Vec::new(),
        4..=9 => timestamps(script.u16().into(), script.u32()).to_vec(),
        10 | 11 => {
            let mut options = vec![1, 1, 5, 2 + 8 * 2];
            for _ in 0..2 {
                let start = snd_nxt.wrapping_add(script.offset());
                options.extend(start.to_be_bytes());
                options.extend(start.wrapping_add(script.offset()).to_be_bytes());
            }
            options
        }
        12 => syn_options(script.octet()),
        13 => vec![5, 10, 0, 0, 0, 0, rcv_nxt as u8, 0, 0, 1, 3],
        _ => (0..script.octet() % 41).map(|_| script.octet()).collect(),
    }
}

/// What a SYN may say: each bit of `which` is an option.
fn syn_options(which: u8) -> Vec<u8> {
    let mut options = Vec::new();
    if which & 1 != 0 {
        options.extend([2, 4, which, which]);
    }
    if which & 2 != 0 {
        options.extend([4, 2]);
    }
    if which & 4 != 0 {
        options.extend([3, 3, which >> 4]);
    }
    if which & 8 != 0 {
        options.extend(timestamps(1, 0));
    }
    options
}

/// The timestamps option, padded.
pub(super) fn timestamps(value: u32, echo: u32) -> [u8; 12] {
    let [a, b, c, d] = value.to_be_bytes();
    let [e, f, g, h] = echo.to_be_bytes();
    [1, 1, 8, 10, a, b, c, d, e, f, g, h]
}
