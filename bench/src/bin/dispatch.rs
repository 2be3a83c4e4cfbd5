//! What it costs to hand packets from the core that receives them to another one and back.
//!
//! Usage: `dispatch`
//!
//! The source is a device that always has 64 queries and sends nothing, so that the figures are of the hand-over. The memory of a
//! packet crosses from core to core twice: see the distance of the cores in the conditions.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bench::load::{queries, zone};
use bench::record::{Figure, Run};
use bench::report::median;
use device::{Burst, Capabilities, Device, DeviceCounters};
use dispatch::{Scatter, Worker, share};
use dns_auth::{Catalog, Counters};
use dns_server::{DnsResponder, Published};
use engine::{Config, DeviceId, Engine, EngineHandle, Role};
use frame::{Frame, Pool, Region};
use lab::{Conditions, generator_core, server_core};
use wire::{Endpoints, Envelope, write_udp};

const NOW: clock::Instant = clock::Instant::ZERO;
const NAMES: usize = 10_000;
const SPAN: Duration = Duration::from_secs(1);
const ROUNDS: usize = 5;
const SLOT: u16 = 2048;

fn main() {
    let conditions =
        Conditions::here("make bench FIGURES=dispatch", "memory", "as many queries as one core takes");
    println!("# From core to core and back\n\n{conditions}\n");
    let rounds = || (0..ROUNDS).map(|_| round());
    let all: Vec<[f64; 5]> = rounds().collect();
    let names = [
        ("a hop and back, one core", "ns a packet"),
        ("handed over, two cores", "million packets/s"),
        ("one engine, run to completion", "million answers/s"),
        ("a dispatcher and a worker", "million answers/s"),
        ("the same with half of the flows", "million answers/s"),
    ];
    let mut figures = Vec::new();
    for (at, (name, unit)) in names.into_iter().enumerate() {
        let mut values: Vec<f64> = all.iter().map(|round| round[at]).collect();
        figures.extend(Figure::of(name, "dispatch", unit, &values));
        println!("{name}: {:.2} {unit} (median of {ROUNDS})", median(&mut values));
    }
    Run { name: "dispatch", conditions: &conditions, figures, against: &[] }
        .keep()
        .expect("the page of figures");
}

fn round() -> [f64; 5] {
    let rate = |share| answers(share) / 1e6;
    [hop(), handed_over() / 1e6, rate(None), rate(Some(0)), rate(Some(50))]
}

/// Nanoseconds that a hop adds to a packet's way where nothing crosses cores.
fn hop() -> f64 {
    lab::stay_on(server_core());
    let direct = {
        let mut source = Source::new();
        per_packet(move |burst| source.rx_burst(burst, NOW) + source.tx_burst(burst, NOW))
    };
    let (mut dispatcher, mut workers) = share(Box::new(Source::new()), 1, Scatter::new(1, 0, 1)).unwrap();
    let shared = per_packet(move |burst| {
        dispatcher.rx_burst(burst, NOW);
        workers[0].rx_burst(burst, NOW) + workers[0].tx_burst(burst, NOW)
    });
    shared - direct
}

/// Nanoseconds a packet of a step that says how often it moved packets in and out.
fn per_packet(mut step: impl FnMut(&mut Burst) -> usize) -> f64 {
    let mut burst = Burst::new();
    let (start, mut moved) = (Instant::now(), 0);
    while start.elapsed() < SPAN / 4 {
        (0..64).for_each(|_| moved += step(&mut burst));
    }
    start.elapsed().as_nanos() as f64 / (moved as f64 / 2.0)
}

/// Packets a second that a worker on another core gets and gives back.
fn handed_over() -> f64 {
    let (mut dispatcher, mut workers) = share(Box::new(Source::new()), 1, Scatter::new(1, 0, 1)).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&over);
    let worker = std::thread::spawn(move || {
        lab::stay_on(server_core());
        bounce(workers.remove(0), &until)
    });
    lab::stay_on(generator_core());
    let (start, mut burst) = (Instant::now(), Burst::new());
    while start.elapsed() < SPAN {
        (0..64).for_each(|_| drop(dispatcher.rx_burst(&mut burst, NOW)));
    }
    let elapsed = start.elapsed();
    over.store(true, Ordering::Relaxed);
    worker.join().expect("a worker that ends in good order") as f64 / elapsed.as_secs_f64()
}

fn bounce(mut worker: Worker, over: &AtomicBool) -> u64 {
    let mut burst = Burst::new();
    while !over.load(Ordering::Relaxed) {
        worker.rx_burst(&mut burst, NOW);
        worker.tx_burst(&mut burst, NOW);
    }
    worker.counters().tx_frames
}

/// Answers a second by one engine that runs to completion, or by two of which one dispatches and answers `own_percent` itself.
fn answers(own_percent: Option<u8>) -> f64 {
    let source = Source::new();
    let mut devices: Vec<(usize, Box<dyn Device>)> = Vec::new();
    match own_percent {
        None => devices.push((server_core(), Box::new(source))),
        Some(own) => {
            let (dispatcher, workers) = share(Box::new(source), 1, Scatter::new(1, own, 1)).unwrap();
            devices.extend(workers.into_iter().map(|device| (server_core(), Box::new(device) as _)));
            devices.push((generator_core(), Box::new(dispatcher)));
        }
    }
    let catalog = Arc::new(Catalog::new([Arc::new(zone(NAMES))], 7));
    let published =
        Published { catalog, settings: Arc::default(), transfers: Arc::default(), guard: None, log: None };
    let published = Arc::new(ArcSwap::from_pointee(published));
    let start = Instant::now();
    let start_engine = |(core, device)| {
        let responder = DnsResponder::new(&published, Arc::new(Counters::default()));
        let config = Config { core: Some(core), never_sleep: true, ..Config::default() };
        let (engine, handle) = Engine::new(config, responder).expect("descriptors for an engine");
        handle.add_device(DeviceId(0), Role::Primary, device);
        (std::thread::spawn(move || drop(engine.run())), handle)
    };
    let engines: Vec<_> = devices.into_iter().map(start_engine).collect();
    std::thread::sleep(SPAN);
    let replies = |handle: &EngineHandle| {
        let counts = handle.counters().named();
        counts.iter().find(|(name, _)| name == "replies").map_or(0, |(_, count)| *count)
    };
    let answered: u64 = engines.iter().map(|(_, handle)| replies(handle)).sum();
    let elapsed = start.elapsed();
    for (thread, handle) in engines {
        handle.stop();
        thread.join().expect("an engine that ends in good order");
    }
    answered as f64 / elapsed.as_secs_f64()
}

/// A device that has as many queries as it has free frames, and lets go of what it is to send.
struct Source {
    pool: Pool,
    packets: Vec<Vec<u8>>,
    next: usize,
    counters: DeviceCounters,
}

impl Source {
    fn new() -> Source {
        const FRAMES: usize = 4096;
        let region = Region::anonymous(FRAMES * usize::from(SLOT)).expect("memory for the frames");
        let packets = queries(1 << 14, NAMES, true, 5).into_iter().enumerate().map(packet).collect();
        Source { pool: Pool::new(region, SLOT, 0), packets, next: 0, counters: DeviceCounters::default() }
    }
}

/// A query from one of many clients' ports.
fn packet((number, query): (usize, Vec<u8>)) -> Vec<u8> {
    let client = std::net::SocketAddr::from(([192, 0, 2, 2], 1024 + number as u16));
    let endpoints = Endpoints::new(client, ([192, 0, 2, 1], 53).into()).expect("two IPv4 addresses");
    let mut frame = vec![0; 512];
    let len = write_udp(&mut frame, &Envelope::untagged(endpoints), &query).expect("room for a query");
    frame.truncate(len);
    frame
}

impl Device for Source {
    fn capabilities(&self) -> Capabilities {
        Capabilities { mtu: 1500, queues: 1, ..Capabilities::default() }
    }

    fn rx_burst(&mut self, burst: &mut Burst, _: clock::Instant) -> usize {
        let before = burst.len();
        while !burst.is_full()
            && let Some(mut frame) = self.pool.alloc()
        {
            frame.copy_from(&self.packets[self.next]);
            self.next = (self.next + 1) % self.packets.len();
            burst.push(frame);
        }
        burst.len() - before
    }

    fn tx_burst(&mut self, burst: &mut Burst, _: clock::Instant) -> usize {
        let sent = burst.len();
        burst.drain(..).for_each(|frame| self.pool.release(frame));
        self.counters.tx_frames += sent as u64;
        sent
    }

    fn alloc(&mut self) -> Option<Frame> {
        self.pool.alloc()
    }

    fn release(&mut self, frame: Frame) {
        self.pool.release(frame);
    }

    fn wait_fds<'a>(&'a self, _: &mut Vec<BorrowedFd<'a>>) {}

    fn prepare_wait(&mut self) -> bool {
        false
    }

    fn counters(&self) -> DeviceCounters {
        self.counters
    }
}
