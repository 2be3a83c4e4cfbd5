//! The engine over the memory device, end to end: one core for the engine, one for the generator.
//!
//! Usage: `memory [NAMES]`   (default 10 000)
//!
//! The generator writes whole Ethernet frames with IPv4 and UDP around random queries, keeps a window of them under way, and
//! looks at every reply. Checksums are computed and checked on both sides, as on a wire.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bench::load::{queries, zone};
use bench::record::{Figure, Run};
use bench::report::median;
use device::{BURST, Burst, Device, memory};
use dns_auth::{Catalog, Counters};
use dns_server::{DnsResponder, Published};
use engine::{Config, DeviceId, Engine, Role};
use lab::Conditions;
use wire::{Endpoints, Envelope, write_udp};

/// Queries under way.
const WINDOW: usize = 512;

fn main() {
    let names = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(10_000);
    let offered = format!("{WINDOW} queries under way, one core each for engine and generator");
    let conditions = Conditions::here("make bench FIGURES=memory", "memory device", &offered);
    println!("# The engine over the memory device\n\n{conditions}\n");
    let mut rates: Vec<f64> = (0..5).map(|_| run(names, Duration::from_secs(2)) / 1e6).collect();
    println!("{names} names: {:.2} million queries a second answered (median of 5)", median(&mut rates));
    let figures = Figure::of(&format!("{names} names"), "engine", "million answers/s", &rates);
    let figures = figures.into_iter().collect();
    Run { name: "memory", conditions: &conditions, figures, against: &[] }
        .keep()
        .expect("the page of figures");
}

fn run(names: usize, span: Duration) -> f64 {
    let (mut left, mut right) =
        memory::pair(&memory::Config { ring: 2 * WINDOW, ..memory::Config::default() });
    let catalog = Arc::new(Catalog::new([Arc::new(zone(names))], 7));
    let published =
        Published { catalog, settings: Arc::default(), transfers: Arc::default(), guard: None, log: None };
    let published = Arc::new(ArcSwap::from_pointee(published));
    let responder = DnsResponder::new(&published, Arc::new(Counters::default()));
    let config = Config { core: Some(1), never_sleep: true, ..Config::default() };
    let (engine, handle) = Engine::new(config, responder).expect("descriptors for an engine");
    handle.add_device(DeviceId(0), Role::Primary, Box::new(right.remove(0)));
    let thread = std::thread::spawn(move || drop(engine.run()));
    let rate = Generator::new(left.remove(0), names).run(span);
    handle.stop();
    thread.join().expect("an engine that ends in good order");
    rate
}

struct Generator {
    device: memory::MemoryDevice,
    packets: Vec<Vec<u8>>,
    next: usize,
}

impl Generator {
    fn new(device: memory::MemoryDevice, names: usize) -> Generator {
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let endpoints = Endpoints::new(address("192.0.2.2:4000"), address("192.0.2.1:53"));
        let envelope = Envelope::untagged(endpoints.expect("two IPv4 addresses"));
        let packet = |query: Vec<u8>| {
            let mut frame = vec![0; 512];
            let len = write_udp(&mut frame, &envelope, &query).expect("room for a query");
            frame.truncate(len);
            frame
        };
        Generator {
            device,
            packets: queries(1 << 16, names, true, 5).into_iter().map(packet).collect(),
            next: 0,
        }
    }

    /// Sends and receives for `span`; returns answers a second.
    fn run(&mut self, span: Duration) -> f64 {
        let start = Instant::now();
        let (mut under_way, mut answered) = (0, 0u64);
        while start.elapsed() < span {
            for _ in 0..64 {
                under_way += self.send(WINDOW - under_way);
                let received = self.receive();
                under_way -= received;
                answered += received as u64;
            }
        }
        answered as f64 / start.elapsed().as_secs_f64()
    }

    fn send(&mut self, most: usize) -> usize {
        let mut burst = Burst::new();
        while burst.len() < most.min(BURST) {
            let Some(mut frame) = self.device.alloc() else { break };
            frame.copy_from(&self.packets[self.next]);
            self.next = (self.next + 1) % self.packets.len();
            burst.push(frame);
        }
        let sent = self.device.tx_burst(&mut burst, clock::Instant::ZERO);
        burst.into_iter().for_each(|frame| self.device.release(frame));
        sent
    }

    fn receive(&mut self) -> usize {
        let mut burst = Burst::new();
        let received = self.device.rx_burst(&mut burst, clock::Instant::ZERO);
        for frame in burst {
            // Flags of the DNS header behind Ethernet, IPv4 and UDP: a response with NOERROR, and one answer.
            let reply = &frame.bytes()[42..];
            assert!(reply[2] & 0x80 != 0 && reply[3] & 0xf == 0 && reply[7] == 1, "an answer");
            self.device.release(frame);
        }
        received
    }
}
