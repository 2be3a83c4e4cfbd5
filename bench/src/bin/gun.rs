//! What the generator of `sidestep gun dns` takes for a question and its answer, on one core, over a wire in memory.
//!
//! Usage: `gun [QUESTIONS]`. Only the generator's turns are measured, not those of the server, which sends each question back as its answer.

use std::time::{Duration, Instant};

use clock::Instant as Moment;
use device::memory::{self, MemoryDevice};
use device::{Burst, Device};
use dns_wire::Rtype;
use gun::questions::Manner;
use gun::{Gun, Order, Questions, Schedule, Setup};
use wire::{ChecksumPolicy, Endpoints, Envelope, parse_udp, turn_around};

const NAMES: &str = "host{0-9999}.example.org";
const PORTS: u16 = 64;
/// More than it can send, so that there is always something due.
const RATE: u32 = 100_000_000;

fn main() {
    let count: u64 =
        std::env::args().nth(1).map_or(20_000_000, |word| word.parse().expect("a count of questions"));
    println!(
        "sidestep gun dns over a wire in memory, {count} questions of 10000 names by {PORTS} ports, one core"
    );
    for (offload, what) in [(true, "checksums left to the device"), (false, "checksums in software")] {
        let mut times: Vec<f64> = (0..3).map(|_| run(count, offload).as_secs_f64()).collect();
        times.sort_by(f64::total_cmp);
        let each = times[1] / count as f64;
        println!("  {what}: {:.1} ns a question and its answer, {:.1} M a second", each * 1e9, 1e-6 / each);
    }
}

/// How long the generator's turns take.
fn run(count: u64, offload: bool) -> Duration {
    let wire = memory::Config { checksum_offload: offload, ..memory::Config::default() };
    let (mut left, mut right) = memory::pair(&wire);
    let (client, mut far) = (left.remove(0), right.remove(0));
    let way = |port: u16| {
        let ends = (([192, 0, 2, 1], 4000 + port).into(), ([192, 0, 2, 2], 53).into());
        Envelope::untagged(Endpoints::new(ends.0, ends.1).expect("one version"))
    };
    let questions = Questions::read(NAMES, Rtype::A).expect("they are right");
    let length = clock::Duration::from_nanos(count * 1_000_000_000 / u64::from(RATE));
    let began = Instant::now();
    let now = || Moment::from_nanos(began.elapsed().as_nanos() as u64);
    let setup = Setup {
        ways: (0..PORTS).map(way).collect(),
        questions: questions.in_order(Order::Random, 1).in_manner(&Manner::default()),
        sockets: None,
        queues: 1,
        run: 16,
        sent: 0,
        timeout: clock::Duration::MAX,
        within: clock::Duration::MAX,
    };
    let mut gun = Gun::new(client, setup, now());
    gun.begin(Schedule::new(now(), RATE, length), now());
    let mut took = Duration::ZERO;
    while gun.next_due().is_some() || gun.under_way() > 0 {
        let before = Instant::now();
        gun.turn(now());
        took += before.elapsed();
        send_back(&mut far, now());
    }
    let (summary, ..) = gun.finish(RATE, length);
    assert_eq!((summary.counts.answered, summary.lost), (count, 0), "{:?}", summary.counts);
    took
}

fn send_back(device: &mut MemoryDevice, now: Moment) {
    const TRUSTING: ChecksumPolicy = ChecksumPolicy { verified: true, accept_partial: true };
    let offload = device.capabilities().tx_checksum_offload;
    let mut burst = Burst::new();
    device.rx_burst(&mut burst, now);
    for frame in &mut burst {
        let headers = parse_udp(frame.bytes(), TRUSTING).expect("whole packets");
        frame.bytes_mut()[headers.payload_offset() + 2] |= 0x80;
        let len = headers.payload_range().len();
        let octets = frame.bytes_and_tailroom_mut();
        let _ = turn_around(octets, &headers, len, offload);
    }
    device.tx_burst(&mut burst, now);
}
