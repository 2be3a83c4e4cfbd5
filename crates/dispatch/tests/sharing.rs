//! A device that several engines share: every frame is answered once or counted, and finds its way home.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use clock::Instant;
use device::memory::{self, MemoryDevice};
use device::{Burst, Device, DeviceCounters};
use dispatch::{Dispatcher, OUTSTANDING_MAX, Place, STOCK, Scatter, Worker, share};
use engine::{Config, DeviceId, Echo, Engine, EngineHandle, Role};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wire::{ChecksumPolicy, Endpoints, Envelope, parse_udp, write_udp};

const NOW: Instant = Instant::ZERO;
const KEY: u64 = 0x0123_4567_89ab_cdef;
const FRAMES: usize = 2048;

fn question(port: u16, payload: &[u8]) -> Vec<u8> {
    let source = SocketAddr::new([192, 0, 2, 1].into(), port);
    let endpoints = Endpoints::new(source, "192.0.2.53:53".parse().unwrap()).unwrap();
    let mut frame = vec![0; 256];
    let len = write_udp(&mut frame, &Envelope::untagged(endpoints), payload).unwrap();
    frame.truncate(len);
    frame
}

fn send(generator: &mut MemoryDevice, packet: &[u8]) {
    let mut frame = generator.alloc().expect("the generator has a frame left");
    frame.copy_from(packet);
    assert_eq!(generator.tx_burst(&mut Burst::from_iter([frame]), NOW), 1);
}

/// Client port and payload of what has come back.
fn received(generator: &mut MemoryDevice) -> Vec<(u16, Vec<u8>)> {
    let mut all = Vec::new();
    let mut burst = Burst::new();
    while generator.rx_burst(&mut burst, NOW) > 0 {
        for frame in burst.drain(..) {
            let headers = parse_udp(frame.bytes(), ChecksumPolicy::default()).unwrap();
            let port = headers.destination(frame.bytes()).port();
            all.push((port, frame.bytes()[headers.payload_range()].to_vec()));
            generator.release(frame);
        }
    }
    all
}

fn wire() -> (MemoryDevice, MemoryDevice) {
    let config = memory::Config { frames: FRAMES, ring: FRAMES, ..memory::Config::default() };
    let (mut left, mut right) = memory::pair(&config);
    (left.remove(0), right.remove(0))
}

fn shared(workers: usize, own_percent: u8) -> (MemoryDevice, Dispatcher, Vec<Worker>) {
    let (generator, device) = wire();
    let (dispatcher, made) =
        share(Box::new(device), workers, Scatter::new(workers, own_percent, KEY)).unwrap();
    (generator, dispatcher, made)
}

/// Engines that echo: the dispatcher's first, then the workers'.
struct Engines(Vec<(Engine<Echo>, EngineHandle)>);

impl Engines {
    fn new(dispatcher: Dispatcher, workers: Vec<Worker>) -> Engines {
        let devices = std::iter::once(Box::new(dispatcher) as Box<dyn Device>)
            .chain(workers.into_iter().map(|worker| Box::new(worker) as Box<dyn Device>));
        Engines(devices.map(Engines::engine).collect())
    }

    fn engine(device: Box<dyn Device>) -> (Engine<Echo>, EngineHandle) {
        let (engine, handle) = Engine::new(Config::default(), Echo).unwrap();
        handle.add_device(DeviceId(0), Role::Primary, device);
        (engine, handle)
    }

    /// Drives those that `runs` names until none of them has anything to do.
    fn settle(&mut self, runs: impl Fn(usize) -> bool) {
        loop {
            let driven = self.0.iter_mut().enumerate().filter(|(number, _)| runs(*number));
            if driven.map(|(_, (engine, _))| engine.poll(NOW)).sum::<usize>() == 0 {
                return;
            }
        }
    }

    fn counters(&self) -> impl Iterator<Item = DeviceCounters> {
        self.0.iter().map(|(engine, _)| engine.device_reports().present[0].counters)
    }

    /// Frames that each was brought, and those that it dropped.
    fn counts(&self) -> Vec<(u64, u64)> {
        self.counters().map(|counters| (counters.rx_frames, counters.rx_dropped_full)).collect()
    }

    /// Frames that all were brought, and that all sent.
    fn sums(&self) -> (u64, u64) {
        let both = self.counters().map(|counters| (counters.rx_frames, counters.tx_frames));
        both.fold((0, 0), |sums, it| (sums.0 + it.0, sums.1 + it.1))
    }
}

#[test]
fn each_question_is_answered_once_by_workers_that_share_them_evenly() {
    let (mut generator, dispatcher, workers) = shared(3, 0);
    let mut engines = Engines::new(dispatcher, workers);
    let mut answers = BTreeMap::new();
    for port in 1000..4000u16 {
        send(&mut generator, &question(port, &port.to_be_bytes()));
        if port % 50 == 0 {
            engines.settle(|_| true);
            answers.extend(received(&mut generator));
        }
    }
    engines.settle(|_| true);
    answers.extend(received(&mut generator));
    let expected: BTreeMap<u16, Vec<u8>> =
        (1000..4000u16).map(|port| (port, port.to_be_bytes().to_vec())).collect();
    assert!(answers == expected, "{} answers to 3000 questions", answers.len());
    for (brought, _) in &engines.counts()[1..] {
        assert!((850..1150).contains(brought), "{:?}", engines.counts());
    }
    assert_eq!(engines.counts()[0].0, 0, "the dispatcher's engine has none");
    assert_eq!(engines.sums(), (3000, 3000), "each frame counts once");
    drop(engines);
    assert_eq!(generator.available(), FRAMES, "all frames are back");
}

#[test]
fn the_own_engine_answers_its_share() {
    let (mut generator, dispatcher, workers) = shared(1, 30);
    let mut engines = Engines::new(dispatcher, workers);
    for port in 1000..3000u16 {
        send(&mut generator, &question(port, b"?"));
        if port % 50 == 0 {
            engines.settle(|_| true);
        }
    }
    engines.settle(|_| true);
    assert_eq!(received(&mut generator).len(), 2000);
    let by_worker = engines.counts()[1].0;
    assert!((1300..1500).contains(&by_worker), "{by_worker} of 2000 by the worker, expected about 1400");
    assert_eq!(engines.sums(), (2000, 2000), "each frame counts once");
}

#[test]
fn packets_of_a_flow_stay_in_order() {
    let (mut generator, dispatcher, workers) = shared(4, 20);
    let mut engines = Engines::new(dispatcher, workers);
    for number in 0..900u16 {
        send(&mut generator, &question(5000 + number % 9, &number.to_be_bytes()));
        if number % 64 == 0 {
            engines.settle(|engine| engine != usize::from(number / 64) % 5);
        }
    }
    engines.settle(|_| true);
    let mut last = BTreeMap::new();
    let answers = received(&mut generator);
    assert_eq!(answers.len(), 900);
    for (port, payload) in answers {
        let number = u16::from_be_bytes([payload[0], payload[1]]);
        assert!(last.insert(port, number).is_none_or(|before| before < number), "port {port}");
    }
}

#[test]
fn a_worker_that_stands_still_loses_what_is_beyond_its_bound_and_nobody_else_does() {
    let (mut generator, dispatcher, workers) = shared(2, 0);
    let mut engines = Engines::new(dispatcher, workers);
    engines.settle(|_| true); // All have their stock.
    for round in 0..60u16 {
        (0..40).for_each(|number| send(&mut generator, &question(1000 + round * 40 + number, b"?")));
        engines.settle(|engine| engine != 1);
    }
    let healthy = engines.counts()[2].0 as usize;
    let before = received(&mut generator).len();
    assert_eq!(before, healthy, "all questions of the worker that runs are answered");
    let dropped = engines.counts()[0].1 as usize;
    assert_eq!(healthy + dropped + OUTSTANDING_MAX - STOCK, 2400, "all else waits or was counted");
    assert_eq!(engines.counts()[0].0, 0, "what was dropped was brought to nobody");

    engines.settle(|_| true);
    assert_eq!(received(&mut generator).len(), OUTSTANDING_MAX - STOCK, "what waited is answered");
    drop(engines);
    assert_eq!(generator.available(), FRAMES);
}

#[test]
fn a_worker_has_fresh_frames_and_gets_more_when_it_has_used_them() {
    let (mut generator, mut dispatcher, mut workers) = shared(1, 0);
    let worker = &mut workers[0];
    let mut nothing = Burst::new();
    for number in 0..1000u16 {
        worker.rx_burst(&mut nothing, NOW);
        let mut frame = worker.alloc().expect("a frame after each turn of the dispatcher");
        frame.copy_from(&question(53, &number.to_be_bytes()));
        worker.tx_burst(&mut Burst::from_iter([frame]), NOW);
        dispatcher.rx_burst(&mut nothing, NOW);
        assert!(nothing.is_empty());
        if number % 100 == 0 {
            received(&mut generator);
        }
    }
    assert_eq!(worker.counters().tx_frames, 1000);
    assert_eq!((worker.counters().frames_held, dispatcher.counters().frames_held), (0, 0));
}

fn is_readable(device: &dyn Device) -> bool {
    let mut fds = Vec::new();
    device.wait_fds(&mut fds);
    let mut fds: Vec<_> = fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
}

#[test]
fn who_sleeps_is_woken_by_the_other() {
    let (mut generator, mut dispatcher, mut workers) = shared(1, 0);
    let worker = &mut workers[0];
    let (mut mine, mut burst) = (Burst::new(), Burst::new());
    worker.rx_burst(&mut burst, NOW); // Its stock.
    assert!(worker.prepare_wait() && !is_readable(worker));

    send(&mut generator, &question(1000, b"?"));
    dispatcher.rx_burst(&mut mine, NOW);
    assert!(is_readable(worker) && !worker.prepare_wait());
    worker.rx_burst(&mut burst, NOW);
    assert_eq!(burst.len(), 1);
    assert!(worker.prepare_wait() && !is_readable(worker), "it may sleep again");

    assert!(dispatcher.prepare_wait());
    worker.tx_burst(&mut burst, NOW);
    assert!(!dispatcher.prepare_wait(), "an answer waits");
    dispatcher.rx_burst(&mut mine, NOW);
    assert!(dispatcher.prepare_wait());
}

#[test]
fn frames_of_a_worker_that_ended_come_home_and_its_flows_are_dropped() {
    let (mut generator, mut dispatcher, mut workers) = shared(2, 0);
    let scatter = Scatter::new(2, 0, KEY);
    let for_first = |port: &u16| scatter.place(&question(*port, b"?")) == Place::Worker(0);
    let ports: Vec<u16> = (1000..).filter(for_first).take(20).collect();
    let mut mine = Burst::new();
    ports[..10].iter().for_each(|port| send(&mut generator, &question(*port, b"?")));
    dispatcher.rx_burst(&mut mine, NOW);
    drop(workers.remove(0));
    ports[10..].iter().for_each(|port| send(&mut generator, &question(*port, b"?")));
    dispatcher.rx_burst(&mut mine, NOW);
    assert_eq!(dispatcher.counters().rx_dropped_full, 10, "those that came afterwards");
    drop((workers, dispatcher));
    assert_eq!(generator.available(), FRAMES);
}

/// On threads that sleep whenever they may: a lost wake-up would end in the time limit.
#[test]
fn no_wake_up_is_lost_between_threads() {
    let (mut generator, dispatcher, workers) = shared(2, 0);
    let sleepy = Config { spin: clock::Duration::ZERO, ..Config::default() };
    let devices = std::iter::once(Box::new(dispatcher) as Box<dyn Device>)
        .chain(workers.into_iter().map(|worker| Box::new(worker) as Box<dyn Device>));
    let start = |device| {
        let (engine, handle) = Engine::new(sleepy.clone(), Echo).unwrap();
        handle.add_device(DeviceId(0), Role::Primary, device);
        (std::thread::spawn(move || engine.run()), handle)
    };
    let threads: Vec<_> = devices.map(start).collect();
    for number in 0..500u16 {
        let give_up = std::time::Instant::now() + std::time::Duration::from_secs(30);
        send(&mut generator, &question(1000 + number, b"?"));
        while received(&mut generator).is_empty() {
            assert!(std::time::Instant::now() < give_up, "no answer to question {number}");
            std::thread::yield_now();
        }
    }
    for (thread, handle) in threads.into_iter().rev() {
        handle.stop();
        thread.join().unwrap();
    }
    assert_eq!(generator.available(), FRAMES);
}
