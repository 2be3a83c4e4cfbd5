//! One loop per core: receive a burst, classify it, let the responder answer in place, transmit, and sleep when idle.
//!
//! An engine owns its devices and everything that came by them; it shares nothing on the fast path. Others talk to it
//! through an [`EngineHandle`]: devices come and go while it runs, and it tells what it counted when asked. This is the
//! only crate on the data path that reads a clock.
//!
//! Start reading at [`Engine::run`].
#![forbid(unsafe_code)]

mod burst;
mod counters;
mod handle;
mod responder;
mod sleeper;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use clock::{Duration, Instant};
use device::Device;

use burst::Port;
pub use counters::{DeviceReport, EngineCounters};
use handle::Command;
pub use handle::{DeviceId, EngineHandle};
pub use responder::{Datagram, Echo, UdpResponder};
use sleeper::Sleeper;

/// How an engine spends its core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How long to look for packets before sleeping, after the last one came. Longer saves the wake-up, some
    /// microseconds, to clients that pause no longer than this, and burns the core meanwhile. Zero sleeps at once.
    pub spin: Duration,
    /// Never sleeps: burns the core for the lowest latency.
    pub never_sleep: bool,
    /// The core to run on; `None` leaves it to the scheduler.
    pub core: Option<usize>,
}

impl Default for Config {
    fn default() -> Config {
        Config { spin: Duration::from_micros(20), never_sleep: false, core: None }
    }
}

/// What a device is to an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Brings the bulk of the traffic: looked at in every turn.
    Primary,
    /// Brings what the primary ones leave to the kernel: looked at every now and then, and before sleeping.
    Shadow,
}

/// Turns between two looks at the shadows while there is work; at full load some tens of microseconds.
const SHADOW_EVERY: u32 = 32;
/// How long a stopping engine goes on at most while packets keep coming.
const DRAIN_MAX: Duration = Duration::from_secs(1);
/// Sleep while frames wait for room in a transmit ring, about which no descriptor tells.
const RETRY_AFTER: Duration = Duration::from_millis(1);

/// One core's loop. Made by [`Engine::new`], runs in [`Engine::run`] on a thread of its own.
pub struct Engine<R> {
    config: Config,
    responder: R,
    ports: Vec<(DeviceId, Role, Port)>,
    commands: Receiver<Command>,
    sleeper: Sleeper,
    counters: Arc<EngineCounters>,
    turns: u32,
}

impl<R: UdpResponder> Engine<R> {
    /// An engine without devices, and the handle that gives it some. The error is the system's, for want of descriptors.
    pub fn new(config: Config, responder: R) -> io::Result<(Engine<R>, EngineHandle)> {
        let (sleeper, waker) = Sleeper::new()?;
        let counters = Arc::new(EngineCounters::default());
        let (handle, commands) = EngineHandle::new(waker, Arc::clone(&counters));
        let engine = Engine { config, responder, ports: Vec::new(), commands, sleeper, counters, turns: 0 };
        Ok((engine, handle))
    }

    /// Serves until [`EngineHandle::stop`], then until no packet is waiting, and returns the responder.
    pub fn run(mut self) -> R {
        if let Some(core) = self.config.core {
            pin_to(core);
        }
        let clock = Clock::start();
        let mut last_work = clock.now();
        let mut stopping: Option<Instant> = None;
        loop {
            let now = clock.now();
            if self.obey_commands() {
                stopping.get_or_insert(now);
            }
            let idle_long = now.since(last_work) >= self.config.spin;
            let worked = self.turn(now, idle_long || stopping.is_some());
            if worked > 0 {
                last_work = now;
            }
            match stopping {
                Some(since) if worked == 0 || now.since(since) > DRAIN_MAX => return self.responder,
                Some(_) => {}
                None if worked == 0 && idle_long && !self.config.never_sleep => self.sleep(now),
                None => {}
            }
        }
    }

    /// One turn over all devices, the shadows only if their turn has come or `all` are wanted. Returns the number of
    /// frames that moved.
    pub fn turn(&mut self, now: Instant, all: bool) -> usize {
        self.turns = self.turns.wrapping_add(1);
        let shadows = all || self.turns.is_multiple_of(SHADOW_EVERY);
        let mut worked = 0;
        for (_, role, port) in &mut self.ports {
            if *role == Role::Primary || shadows {
                worked += port.serve(&mut self.responder, &self.counters, now);
            }
        }
        worked
    }

    /// Carries out what the handle asked for; true when the engine is to stop.
    fn obey_commands(&mut self) -> bool {
        let mut stop = false;
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Add(id, role, device) => self.add(id, role, device),
                Command::Remove(id) => self.remove(id),
                Command::Report(answer) => {
                    let reports = self.ports.iter().map(|(id, _, port)| port.report(*id)).collect();
                    let _ = answer.send(reports); // Whoever asked may have gone; then nobody is missing it.
                }
                Command::Stop => stop = true,
            }
        }
        stop
    }

    fn add(&mut self, id: DeviceId, role: Role, device: Box<dyn Device>) {
        self.ports.push((id, role, Port::new(device)));
    }

    fn remove(&mut self, id: DeviceId) {
        for (_, _, port) in self.ports.iter_mut().filter(|(own, _, _)| *own == id) {
            port.close(&mut self.responder, &self.counters);
        }
        self.ports.retain(|(own, _, _)| *own != id);
    }

    fn sleep(&mut self, now: Instant) {
        // All are prepared, even if one says no: each must have its wake-up armed next time round.
        let ready = self.ports.iter_mut().fold(true, |ready, (_, _, port)| port.prepare_wait() && ready);
        if !ready {
            return;
        }
        let deadlines = self.ports.iter().filter_map(|(_, _, port)| port.poll_timeout(now, RETRY_AFTER));
        let timeout = deadlines.min().map(|deadline| deadline.since(now));
        let mut fds = Vec::new();
        for (_, _, port) in &self.ports {
            let before = fds.len();
            port.wait_fds(&mut fds);
            if fds.len() == before {
                return; // No descriptor tells of its frames: it must be polled.
            }
        }
        self.counters.on_sleep();
        self.sleeper.sleep(&fds, timeout);
    }
}

/// The monotonic clock of the machine as [`Instant`]s.
#[derive(Clone, Copy, Debug)]
pub struct Clock(std::time::Instant);

impl Clock {
    /// A clock that shows zero now.
    pub fn start() -> Clock {
        Clock(std::time::Instant::now())
    }

    /// Time since the start.
    pub fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Keeps the calling thread on `core`. One that does not exist, or is not allowed, leaves the thread where it is: the
/// command checks the list of cores before.
fn pin_to(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    if core < rustix::thread::CpuSet::MAX_CPU {
        set.set(core);
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}
