//! What a query costs each stage on this machine, what the model of docs/scaling.md predicts from that, and what is measured.
//!
//! Usage: `scaling`, or `scaling NAME=VALUE...` for what the model says of costs and a card of one's own, without measuring.
//!
//! The queries are in memory and the answers go nowhere, so the figures are of what comes behind a device. With real ones `io` is larger.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bench::record::{Figure, Run};
use bench::report::median;
use bench::scaling::{
    Bound, Card, Costs, FRAME_OCTETS, Mode, Needs, RECORD, best, best_of, given, needs, rate, shared,
};
use bench::source::{Source, packets, responder};
use device::{BURST, Burst, Device};
use dispatch::{Dispatcher, Scatter, Worker, share};
use dns_server::DnsResponder;
use engine::{Config, DeviceId, Engine, EngineHandle, Role};
use lab::{Conditions, generator_core, server_core};

/// Cores whose rates are shown.
const CORES: [u32; 10] = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96];
const NOW: clock::Instant = clock::Instant::ZERO;
const NAMES: usize = 10_000;
const SPAN: Duration = Duration::from_millis(500);
const ROUNDS: usize = 5;
/// Bursts that go to a worker and back before it is the other side's turn.
const BATCH: usize = 6;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.is_empty() {
        return measure();
    }
    match given(words.iter().map(String::as_str)) {
        Ok((costs, card, octets)) => {
            print_ways(&costs, &card, octets);
            println!();
            print_needs(&costs, &card, octets);
        }
        Err(why) => {
            eprintln!("scaling: {why}");
            std::process::exit(2);
        }
    }
}

fn measure() {
    let conditions =
        Conditions::here("make bench FIGURES=scaling", "none", "as many queries as there is room for");
    println!("# From stages to cores\n\n{conditions}\n");
    let here = Here {
        packets: packets(NAMES),
        responder: Box::new(responder(NAMES)),
        cores: [server_core(), generator_core()],
        is_dry: Arc::default(),
    };
    let rounds: Vec<[f64; 7]> = (0..ROUNDS).map(|_| here.round()).collect();
    let column = |at: usize| rounds.iter().map(|round| round[at]).collect::<Vec<f64>>();
    let names = [
        ("stage: device", "ns a query"),
        ("stage: answer", "ns a query"),
        ("stage: hand over", "ns a query"),
        ("stage: take", "ns a query"),
        ("one engine", "million answers/s"),
        ("two engines", "million answers/s"),
        ("a dispatcher and a worker", "million answers/s"),
    ];
    let figures = names.iter().enumerate();
    let figures: Vec<Figure> =
        figures.filter_map(|(at, (name, unit))| Figure::of(name, "measured", unit, &column(at))).collect();
    let stage = |at: usize| median(&mut column(at));
    let costs = Costs { io: stage(0), answer: stage(1), hand_over: stage(2), take: stage(3) };
    print_costs(&costs);
    print_points(&costs, [stage(4), stage(5), stage(6)]);
    print_fleet(&costs);
    println!("\nBy the published machine's costs:\n");
    print_ways(&RECORD.0, &RECORD.1, FRAME_OCTETS);
    println!();
    print_needs(&RECORD.0, &RECORD.1, FRAME_OCTETS);
    Run { name: "scaling", conditions: &conditions, figures, against: &[] }
        .keep()
        .expect("the page of figures");
}

fn print_costs(costs: &Costs) {
    let Costs { io, answer, hand_over, take } = costs;
    println!("| stage | ns a query |\n| --- | --- |");
    println!("| device (memory) | {io:.1} |\n| answer | {answer:.1} |");
    println!("| hand over, both ways | {hand_over:.1} |\n| take, both ways | {take:.1} |\n");
}

/// A device that is never the bound.
const NO_CARD: Card = Card { packet: 0.0, queues: u32::MAX, further_queue: 0.0, link: f64::INFINITY };

fn print_points(costs: &Costs, measured: [f64; 3]) {
    println!("| cores | predicted, M/s | measured, M/s |\n| --- | --- | --- |");
    let pipeline = Mode::Shared { dispatchers: 1, workers: 1, own: 0.0 };
    let points =
        [("one", Mode::RunToCompletion(1)), ("two", Mode::RunToCompletion(2)), ("two, pipeline", pipeline)];
    for ((name, mode), measured) in points.into_iter().zip(measured) {
        let predicted = rate(costs, &NO_CARD, mode, FRAME_OCTETS).0 / 1e6;
        println!("| {name} | {predicted:.2} | {measured:.2} |");
    }
    println!();
}

/// Rates by cores, with the card of the published record.
fn print_fleet(here: &Costs) {
    println!(
        "\"These costs\" are those measured above, whose device is memory: no NIC, driver or kernel is in them. \
         With a real device each packet costs more, so these columns are an upper bound.\n"
    );
    println!(
        "| cores | published machine, M/s | by | these costs (upper bound), M/s | by |\n| --- | --- | --- | --- | --- |"
    );
    for cores in CORES {
        let published = best(&RECORD.0, &RECORD.1, cores, FRAME_OCTETS);
        let ours = best(here, &RECORD.1, cores, FRAME_OCTETS);
        println!("| {cores} | {} | {} |", in_words(published), in_words(ours));
    }
}

/// Rates by cores for each way of working.
fn print_ways(costs: &Costs, card: &Card, octets: f64) {
    println!("| cores | run to completion, M/s | pipeline, M/s | by | hybrid, M/s | by |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for cores in CORES {
        let alone = rate(costs, card, Mode::RunToCompletion(cores), octets).0 / 1e6;
        let [pipeline, hybrid] = [0..1, 1..100].map(|own| {
            let best = best_of(costs, card, shared(cores, own), octets);
            best.map_or("|".to_owned(), |(mode, rate, _)| format!("{:.1} | {}", rate / 1e6, way(mode)))
        });
        println!("| {cores} | {alone:.1} | {pipeline} | {hybrid} |");
    }
}

/// What rates need by these costs.
fn print_needs(costs: &Costs, card: &Card, octets: f64) {
    println!("| queries a second | cards | cores with each | way |\n| --- | --- | --- | --- |");
    for millions in [10, 50, 100, 200, 400] {
        match needs(costs, card, octets, f64::from(millions) * 1e6) {
            Some(Needs { cards, cores, mode }) => {
                println!("| {millions} million | {cards} | {cores} | {} |", way(mode));
            }
            None => println!("| {millions} million | more than are tried | | |"),
        }
    }
}

fn in_words((mode, rate, bound): (Mode, f64, Bound)) -> String {
    let how = way(mode);
    let bound = match bound {
        Bound::Queues | Bound::Workers => "cores",
        Bound::Card => "card",
        Bound::Link => "link",
    };
    format!("{:.1} | {how}; bound: {bound}", rate / 1e6)
}

fn way(mode: Mode) -> String {
    match mode {
        Mode::RunToCompletion(_) => "run to completion".to_owned(),
        Mode::Shared { dispatchers, workers, own } => {
            format!("{dispatchers} + {workers}, {:.0} % own", own * 100.0)
        }
    }
}

/// What is asked, and who answers.
struct Here {
    packets: Arc<[Vec<u8>]>,
    responder: Box<dyn Fn() -> DnsResponder + Sync>,
    /// Asked for once: a thread that is kept on one of them sees no other.
    cores: [usize; 2],
    /// The sources have no more queries.
    is_dry: Arc<AtomicBool>,
}

impl Here {
    fn round(&self) -> [f64; 7] {
        let io = self.io();
        let one = self.answers(&self.cores[..1]);
        let [dispatching, working] = self.stages();
        let answer = 1e9 / one - io;
        let two = self.answers(&self.cores);
        [io, answer, dispatching - io, working - answer, one / 1e6, two / 1e6, self.pipeline() / 1e6]
    }

    fn source(&self) -> Box<Source> {
        self.is_dry.store(false, Ordering::Relaxed);
        Box::new(Source::new(&self.packets, &self.is_dry))
    }

    /// Nanoseconds of a packet in and out.
    fn io(&self) -> f64 {
        lab::stay_on(self.cores[0]);
        let (mut source, mut burst) = (self.source(), Burst::new());
        let (start, mut moved) = (Instant::now(), 0);
        while start.elapsed() < SPAN {
            for _ in 0..64 {
                moved += source.rx_burst(&mut burst, NOW);
                source.tx_burst(&mut burst, NOW);
            }
        }
        start.elapsed().as_nanos() as f64 / moved as f64
    }

    fn shared(&self) -> (Dispatcher, Worker) {
        let (dispatcher, mut workers) =
            share(self.source(), 1, Scatter::new(1, 0, 1)).expect("descriptors for two bells");
        (dispatcher, workers.remove(0))
    }

    /// Nanoseconds of a query for a dispatcher and for its worker, which take turns on their cores: neither ever waits for the other
    /// within a turn, and what one has written is in its own cache when the other begins.
    fn stages(&self) -> [f64; 2] {
        let (dispatcher, worker) = self.shared();
        let (mut engine, handle) = Engine::new(Config::default(), (self.responder)()).expect("descriptors");
        handle.add_device(DeviceId(0), Role::Primary, Box::new(worker));
        engine.poll(NOW);
        let turn = AtomicU32::new(0);
        let (mut dispatched, mut worked) = (Stage::default(), Stage::default());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                lab::stay_on(self.cores[0]);
                while await_turn(&turn, 1) {
                    worked.time(|| std::iter::from_fn(|| Some(engine.poll(NOW)).filter(|&n| n > 0)).sum());
                    pass_on(&turn, 2);
                }
            });
            lab::stay_on(self.cores[1]);
            let (start, mut dispatcher, mut burst) = (Instant::now(), dispatcher, Burst::new());
            while start.elapsed() < SPAN {
                dispatched.time(|| {
                    for _ in 0..BATCH {
                        dispatcher.rx_burst(&mut burst, NOW);
                    }
                    BATCH * BURST
                });
                pass_on(&turn, 1);
                await_turn(&turn, 2);
            }
            pass_on(&turn, OVER);
        });
        [dispatched.each(), worked.each()]
    }

    /// Answers a second of engines on these cores, each with a source of its own.
    fn answers(&self, cores: &[usize]) -> f64 {
        let devices = cores.iter().map(|&core| (core, self.source() as Box<dyn Device>));
        self.run(devices.collect())
    }

    /// Answers a second of a dispatcher and a worker that run at the same time.
    fn pipeline(&self) -> f64 {
        let (dispatcher, worker) = self.shared();
        self.run(vec![(self.cores[0], Box::new(worker)), (self.cores[1], Box::new(dispatcher))])
    }

    fn run(&self, devices: Vec<(usize, Box<dyn Device>)>) -> f64 {
        let start = |(core, device)| {
            let config = Config { core: Some(core), never_sleep: true, ..Config::default() };
            let (engine, handle) =
                Engine::new(config, (self.responder)()).expect("descriptors for an engine");
            handle.add_device(DeviceId(0), Role::Primary, device);
            (std::thread::spawn(move || drop(engine.run())), handle)
        };
        let engines: Vec<_> = devices.into_iter().map(start).collect();
        std::thread::sleep(SPAN / 5); // Caches and the branch predictor.
        let all = || engines.iter().map(|(_, handle)| replies(handle)).sum::<u64>();
        let (began, before) = (Instant::now(), all());
        std::thread::sleep(SPAN);
        let rate = (all() - before) as f64 / began.elapsed().as_secs_f64();
        self.is_dry.store(true, Ordering::Relaxed);
        for (thread, handle) in engines {
            handle.stop();
            thread.join().expect("an engine that ends in good order");
        }
        rate
    }
}

fn replies(handle: &EngineHandle) -> u64 {
    let counts = handle.counters().named();
    counts.iter().find(|(name, _)| name == "replies").map_or(0, |(_, count)| *count)
}

/// Time that passed with work of one kind.
#[derive(Default)]
struct Stage {
    elapsed: Duration,
    packets: usize,
}

impl Stage {
    /// Times `work`, which returns the number of packets.
    fn time(&mut self, work: impl FnOnce() -> usize) {
        let start = Instant::now();
        self.packets += work();
        self.elapsed += start.elapsed();
    }

    fn each(&self) -> f64 {
        self.elapsed.as_nanos() as f64 / self.packets as f64
    }
}

/// The value of a turn that ends the game.
const OVER: u32 = 3;

/// Waits until it is `own`'s turn; false when all is over.
fn await_turn(turn: &AtomicU32, own: u32) -> bool {
    loop {
        match turn.load(Ordering::Acquire) {
            OVER => return false,
            now if now == own => return true,
            _ => std::hint::spin_loop(),
        }
    }
}

fn pass_on(turn: &AtomicU32, to: u32) {
    turn.store(to, Ordering::Release);
}
