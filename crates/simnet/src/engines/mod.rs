//! Two whole engines, joined by wires in memory that lose, double, reorder and delay frames, under simulated time.
//!
//! [`crate::net`] joins stacks by packets; here the frames, their pools, the rings and the loop of the engine take part, too.
//! Everything follows from a seed. Start at [`EngineScenario::run`].

mod talker;
mod wire;

use std::sync::{Arc, Mutex};

use clock::{Duration, Instant};
use device::fault::Faults;
use device::{Device, Segmenter, memory};
use engine::{Config, DeviceId, Echo, Engine, EngineHandle, Sleep, Step, TcpServer};
use stack::{Connect, Hop, LinkId, Stack};

use crate::net::Random;
use talker::{Ledger, Plan, Talker, endpoints};
use wire::Wire;

/// By then everything has arrived, or never will: the longest back-off of a connection is part of it.
const TIME_MAX: Duration = Duration::from_secs(1800);

/// One run: what is sent over which wires.
#[derive(Clone, Debug)]
pub struct EngineScenario {
    seed: u64,
    wires: Vec<WireSettings>,
    plans: Vec<Plan>,
    spin: Duration,
}

/// One wire and its faults, the same both ways.
#[derive(Clone, Debug)]
struct WireSettings {
    memory: memory::Config,
    faults: Faults,
    /// The devices cut super-segments.
    tso: bool,
}

/// What came of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineReport {
    /// Connections that were made and ended in good order.
    pub connections: usize,
    /// Octets that arrived, both ways.
    pub octets: u64,
    /// Frames that the wires lost, doubled, reordered and delayed.
    pub faults: u64,
    /// Rounds of both engines.
    pub rounds: u64,
    /// How long it took, in simulated time.
    pub took: Duration,
}

type Host = Engine<Echo, TcpServer<Talker>>;

/// The engines while they run; number 0 is the server's.
struct Network {
    hosts: [Host; 2],
    handles: [EngineHandle; 2],
    wires: Vec<Wire>,
    ledger: Arc<Mutex<Ledger>>,
    random: Random,
    now: Instant,
    rounds: u64,
    /// Until when each engine sleeps if no frame comes; `None`: it does not.
    asleep: [Option<Instant>; 2],
    is_over: [bool; 2],
}

impl EngineScenario {
    /// The scenario of `seed`.
    pub fn new(seed: u64) -> EngineScenario {
        let mut random = Random::new(seed);
        let wires: Vec<WireSettings> =
            (0..random.between(1, 2)).map(|_| WireSettings::draw(&mut random)).collect();
        let count = random.between(1, 6) as u16;
        let plans = (0..count).map(|number| Plan::draw(number, wires.len() as u16, &mut random)).collect();
        let spin = random.pick(&[Duration::ZERO, Duration::from_micros(20)]);
        EngineScenario { seed, wires, plans, spin }
    }

    /// Runs it until every connection has ended, stops the engines, and counts the frames. The error says what was not as it is
    /// to be.
    pub fn run(&self) -> Result<EngineReport, String> {
        let mut network = self.build();
        network.run_until("not all connections end", |network| network.is_quiet())?;
        let took = network.now.since(Instant::ZERO);
        network.handles.iter().for_each(EngineHandle::stop);
        network.run_until("the engines do not stop", |network| network.is_over == [true; 2])?;
        let (rounds, ledger) = (network.rounds, Arc::clone(&network.ledger));
        let faults = network.give_frames_back()?;
        let ledger = ledger.lock().expect("nothing panicked while it was locked");
        ledger.check(&self.plans)?;
        let connections = self.plans.len();
        Ok(EngineReport { connections, octets: ledger.octets(), faults, rounds, took })
    }

    fn build(&self) -> Network {
        let mut random = Random::new(!self.seed);
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let plans = Arc::new(self.plans.clone());
        let mut host = |number: u8| {
            let talker = Talker::new(Arc::clone(&plans), Arc::clone(&ledger));
            let addresses = self.plans.iter().map(|plan| endpoints(plan).0);
            let server = TcpServer::new(talker);
            let server = if number == 0 { addresses.fold(server, TcpServer::listen) } else { server };
            let secret = std::array::from_fn(|_| random.bits() as u8);
            let stack = Stack::new(stack::Config::default(), secret, Instant::ZERO);
            Engine::simulated(Config { spin: self.spin, ..Config::default() }, Echo, stack, server)
        };
        let ((server, server_handle), (client, client_handle)) = (host(0), host(1));
        let mut hosts = [server, client];
        let mut wires = Vec::new();
        for (number, settings) in (0..).zip(&self.wires) {
            let wire = Wire::new(&settings.memory, settings.faults, random.bits());
            for (host, end) in hosts.iter_mut().zip(wire.ends()) {
                let device: Box<dyn Device> =
                    if settings.tso { Box::new(Segmenter::new(end)) } else { Box::new(end) };
                host.add_link(DeviceId(u32::from(number)), LinkId(number), device, Instant::ZERO);
            }
            wires.push(wire);
        }
        hosts[0].step(Instant::ZERO); // It listens from now on.
        for plan in &self.plans {
            let (remote, local) = endpoints(plan);
            let hop = Hop { link: plan.link, ..Hop::default() };
            let connect =
                Connect { local, remote, is_bound: false, hop, options: Default::default(), data: b"" };
            hosts[1].stack().tcp_connect(&connect, Instant::ZERO).expect("each flow is connected once");
        }
        Network {
            hosts,
            handles: [server_handle, client_handle],
            wires,
            ledger,
            random,
            now: Instant::ZERO,
            rounds: 0,
            asleep: [None; 2],
            is_over: [false; 2],
        }
    }
}

impl WireSettings {
    fn draw(random: &mut Random) -> WireSettings {
        let (mtu, slot_size) = random.pick(&[(1280, 2048), (1500, 2048), (1500, 4096), (3500, 4096)]);
        let memory = memory::Config {
            queues: [1, 1],
            frames: random.between(80, 1000) as usize,
            slot_size,
            headroom: random.pick(&[0, 64]),
            ring: random.magnitude(4, 512) as usize,
            mtu,
            checksum_offload: random.one_in(3),
        };
        let mut share = |most: u64| if random.one_in(2) { random.below(most) as f64 / 1000.0 } else { 0.0 };
        let faults = Faults {
            loss: share(100),
            duplication: share(50),
            reordering: share(150),
            delay: share(50),
            delay_min: Duration::from_micros(50),
            delay_max: Duration::from_millis(20),
            ..Faults::default()
        };
        WireSettings { memory, faults, tso: random.one_in(2) }
    }
}

impl Network {
    /// Lets time pass until `is_reached`.
    fn run_until(&mut self, failure: &str, is_reached: impl Fn(&mut Network) -> bool) -> Result<(), String> {
        let end = self.now + TIME_MAX;
        while !is_reached(self) {
            if self.now > end {
                return Err(format!("{failure}: {}", self.describe()));
            }
            let worked = [self.round(0), self.round(1)].contains(&true);
            // What an engine does takes some time, on a machine that does other things as well.
            let pause = self.random.magnitude(1, 200);
            self.now += Duration::from_micros(pause);
            if !worked && let Some(next) = self.next_event() {
                self.now = self.now.max(next);
            }
        }
        Ok(())
    }

    /// One round of an engine, unless it sleeps or has ended; tells whether there was one.
    fn round(&mut self, number: usize) -> bool {
        let has_frames = self.wires.iter().any(|wire| wire.has_frames(number));
        let is_due = self.asleep[number].is_none_or(|until| has_frames || self.now >= until);
        if self.is_over[number] || !is_due {
            return false;
        }
        self.rounds += 1;
        self.asleep[number] = None;
        let host = &mut self.hosts[number];
        match host.step(self.now) {
            Step::Again => {}
            Step::Over => self.is_over[number] = true,
            Step::Sleep => {
                self.asleep[number] = match host.prepare_sleep(self.now, &mut Vec::new()) {
                    Sleep::Busy | Sleep::Unknown => None,
                    Sleep::Until(at) => Some(at),
                    Sleep::Descriptors => Some(self.now + TIME_MAX),
                };
            }
        }
        true
    }

    /// When something happens next while both engines sleep.
    fn next_event(&self) -> Option<Instant> {
        self.asleep.iter().zip(self.is_over).filter(|(_, is_over)| !is_over).filter_map(|(at, _)| *at).min()
    }

    /// Whether all has been said, and no connection is left but in TIME-WAIT.
    fn is_quiet(&mut self) -> bool {
        let ended = self.ledger.lock().expect("nothing panicked while it was locked").ended();
        ended == 2 * self.plans_len() && self.hosts.iter_mut().all(|host| host.stack().population().0 == 0)
    }

    fn plans_len(&self) -> usize {
        self.ledger.lock().expect("nothing panicked while it was locked").expected
    }

    fn describe(&mut self) -> String {
        let populations = self.hosts.each_mut().map(|host| host.stack().population());
        let ledger = self.ledger.lock().expect("nothing panicked while it was locked");
        format!("{populations:?}, {ledger:?}")
    }

    /// Takes the devices from the engines, and sees that every frame is back in its pool. Returns how many faults there were.
    fn give_frames_back(mut self) -> Result<u64, String> {
        for (number, _) in self.wires.iter().enumerate() {
            for host in &mut self.hosts {
                host.remove_device(DeviceId(number as u32));
            }
        }
        drop(self.hosts);
        self.wires.into_iter().map(Wire::account).sum()
    }
}
