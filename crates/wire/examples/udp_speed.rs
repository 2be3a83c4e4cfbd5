//! Nanoseconds for parsing a request and turning it around, checksums included: `cargo run --release --example udp_speed`.

use std::hint::black_box;
use std::time::Instant;

use wire::{ChecksumPolicy, Endpoints, Envelope, parse_udp, turn_around, write_udp};

const QUERY: [u8; 40] = [0x5a; 40];
const REPLY_LEN: usize = 56;
const BURST: usize = 64;
const ROUNDS: u32 = 200_000;

type Frame = [u8; 128];

fn main() {
    measure("IPv4", "192.0.2.1:40000", "192.0.2.53:53");
    measure("IPv6", "[2001:db8::1]:40000", "[2001:db8::53]:53");
}

fn measure(name: &str, source: &str, destination: &str) {
    let endpoints = Endpoints::new(source.parse().unwrap(), destination.parse().unwrap()).unwrap();
    let mut request = [0; 128];
    let len = write_udp(&mut request, &Envelope::untagged(endpoints), &QUERY).unwrap();
    let parse = |frame: &mut Frame| parse_udp(&frame[..len], ChecksumPolicy::default()).unwrap();
    let copying = nanos_per_frame(&request, |_| ());
    let parsing = nanos_per_frame(&request, |frame| {
        black_box(parse(frame));
    });
    let both = nanos_per_frame(&request, |frame| {
        let headers = parse(frame);
        black_box(turn_around(frame, &headers, REPLY_LEN, false));
    });
    let (parsing, both) = (parsing - copying, both - copying);
    println!("{name}: parse {parsing:.1} ns, parse and turn around {both:.1} ns");
}

/// Fills a burst with copies of `request`, then handles each: a frame is not touched right after it was written.
///
/// Best of nine runs: the machine is shared, and interruptions only ever add.
fn nanos_per_frame(request: &Frame, mut handle: impl FnMut(&mut Frame)) -> f64 {
    let mut burst = [*request; BURST];
    let mut run = || {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            burst.fill(*black_box(request));
            black_box(&mut burst).iter_mut().for_each(&mut handle);
        }
        start.elapsed().as_nanos() as f64 / f64::from(ROUNDS) / BURST as f64
    };
    (0..9).map(|_| run()).fold(f64::INFINITY, f64::min)
}
