//! Two engines joined by a wire in memory: each on a thread and core of its own, or both on one thread in turns.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use device::{Device, memory};
use engine::{Application, Clock, Config, DeviceId, Echo, Engine, EngineHandle};
use rustix::time::{ClockId, clock_gettime};
use stack::LinkId;

use crate::clients::Clients;

/// What clients count. Written by their engine alone.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) open: AtomicU64,
    pub(crate) transactions: AtomicU64,
}

/// How the engines run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The server on core 1, its clients on core 0. Rates are by the clock.
    TwoCores,
    /// In turns on one thread. Rates are by the processor time of one end, taken as half of what both ends use: the same
    /// whatever else the machine does.
    InTurns,
}

pub(crate) struct Pair {
    counts: Arc<Counts>,
    server: EngineHandle,
    drive: Drive,
}

enum Drive {
    Threads(Vec<(EngineHandle, JoinHandle<()>)>),
    /// Polls both engines once.
    Turns(RefCell<Box<dyn FnMut()>>),
}

impl Pair {
    pub(crate) fn start(server: impl Application + 'static, clients: Clients, mode: Mode) -> Pair {
        let config = memory::Config { frames: 4096, ring: 2048, ..memory::Config::default() };
        let (mut left, mut right) = memory::pair(&config);
        let counts = clients.counts();
        let (mut server, server_handle) = engine(1, server, Box::new(right.remove(0)));
        let (mut clients, clients_handle) = engine(0, clients, Box::new(left.remove(0)));
        let drive = match mode {
            Mode::TwoCores => {
                let server = std::thread::spawn(move || _ = server.run());
                let clients = std::thread::spawn(move || _ = clients.run());
                Drive::Threads(vec![(clients_handle, clients), (server_handle.clone(), server)])
            }
            Mode::InTurns => {
                let clock = Clock::start();
                let turn = move || {
                    clients.poll(clock.now());
                    server.poll(clock.now());
                };
                Drive::Turns(RefCell::new(Box::new(turn)))
            }
        };
        Pair { counts, server: server_handle, drive }
    }

    /// Waits until so many connections are established.
    pub(crate) fn wait_until_open(&self, connections: u32) {
        while self.counts.open.load(Ordering::Relaxed) < u64::from(connections) {
            self.pass(Duration::from_millis(10));
        }
    }

    pub(crate) fn rate_of_transactions(&self, span: Duration) -> f64 {
        self.rate(span, || self.counts.transactions.load(Ordering::Relaxed))
    }

    /// Octets that arrive at the server a second.
    pub(crate) fn rate_of_octets(&self, span: Duration) -> f64 {
        self.rate(span, || self.octets_received())
    }

    fn octets_received(&self) -> u64 {
        let received = |stack: &mut stack::Stack, now| -> u64 {
            let ids: Vec<_> = stack.connections().collect();
            ids.into_iter().filter_map(|id| stack.info(id, now)).map(|info| info.bytes_received).sum()
        };
        let (sender, answer) = std::sync::mpsc::channel();
        self.server.with_stack(move |stack, now| _ = sender.send(received(stack, now)));
        loop {
            self.pass(Duration::from_micros(100));
            if let Ok(octets) = answer.try_recv() {
                return octets;
            }
        }
    }

    /// How fast a count grows, after a moment to get going.
    fn rate(&self, span: Duration, count: impl Fn() -> u64) -> f64 {
        self.pass(span / 4);
        let (start, before) = (self.time(), count());
        self.pass(span);
        (count() - before) as f64 / (self.time() - start).as_secs_f64()
    }

    /// Lets the engines run for a while.
    fn pass(&self, span: Duration) {
        match &self.drive {
            Drive::Threads(_) => std::thread::sleep(span),
            Drive::Turns(turn) => {
                let until = Instant::now() + span;
                while Instant::now() < until {
                    (0..64).for_each(|_| turn.borrow_mut()());
                }
            }
        }
    }

    /// What rates are measured by.
    fn time(&self) -> Duration {
        let of_clock = |clock| {
            let time = clock_gettime(clock);
            Duration::new(time.tv_sec as u64, time.tv_nsec as u32) // Neither is negative.
        };
        match self.drive {
            Drive::Threads(_) => of_clock(ClockId::Monotonic),
            Drive::Turns(_) => of_clock(ClockId::ThreadCPUTime) / 2,
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let Drive::Threads(engines) = &mut self.drive else { return };
        for (handle, thread) in engines.drain(..) {
            handle.stop();
            thread.join().expect("an engine ends in good order");
        }
    }
}

fn engine<A: Application>(
    core: usize,
    application: A,
    device: Box<dyn Device>,
) -> (Engine<Option<Echo>, A>, EngineHandle) {
    // The other end may be gone by then: nothing is worth waiting for.
    let config =
        Config { core: Some(core), never_sleep: true, linger: clock::Duration::ZERO, ..Config::default() };
    // Room for a million connections, and for some that are just over.
    let stack =
        stack::Config { connections_max: 1 << 20, half_open_max: 1 << 13, ..stack::Config::default() };
    let made = Engine::with_stack(config, None::<Echo>, stack, application);
    let (engine, handle) = made.expect("descriptors for an engine");
    handle.add_link(DeviceId(0), LinkId(0), device);
    (engine, handle)
}

/// Memory of this process that is in use now.
pub(crate) fn resident_octets() -> u64 {
    const PAGE: u64 = 4096;
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).map_or(0, |pages| pages * PAGE)
}
