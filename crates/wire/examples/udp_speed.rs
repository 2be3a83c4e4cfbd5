//! Nanoseconds for parsing a request and turning it around, checksums included: `cargo run --release --example udp_speed`.

use std::hint::black_box;
use std::time::Instant;

use wire::{ChecksumPolicy, Endpoints, Envelope, parse_udp, turn_around, write_udp};

const QUERY: [u8; 40] = [0x5a; 40];
const REPLY_LEN: usize = 56;
const ROUNDS: u32 = 10_000_000;

fn main() {
    measure("IPv4", "192.0.2.1:40000", "192.0.2.53:53");
    measure("IPv6", "[2001:db8::1]:40000", "[2001:db8::53]:53");
}

fn measure(name: &str, source: &str, destination: &str) {
    let endpoints = Endpoints::new(source.parse().unwrap(), destination.parse().unwrap()).unwrap();
    let mut request = [0; 128];
    let len = write_udp(&mut request, &Envelope::untagged(endpoints), &QUERY).unwrap();
    let whole = nanos_per_round(|| {
        let mut frame = request;
        let headers = parse_udp(&black_box(&mut frame)[..len], ChecksumPolicy::default()).unwrap();
        black_box(turn_around(black_box(&mut frame), &headers, REPLY_LEN, false));
    });
    let parse = nanos_per_round(|| {
        let mut frame = request;
        let _ = black_box(parse_udp(&black_box(&mut frame)[..len], ChecksumPolicy::default()));
    });
    let copy = nanos_per_round(|| {
        let mut frame = request;
        black_box(&mut frame);
    });
    println!(
        "{name}: parse {:.1} ns, parse and turn around {:.1} ns ({QUERY} to {REPLY_LEN} octets)",
        parse - copy,
        whole - copy,
        QUERY = QUERY.len()
    );
}

/// Best of five runs: the machine is shared, and interruptions only ever add.
fn nanos_per_round(mut round: impl FnMut()) -> f64 {
    let mut run = || {
        let start = Instant::now();
        (0..ROUNDS).for_each(|_| round());
        start.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
    };
    (0..5).map(|_| run()).fold(f64::INFINITY, f64::min)
}
