//! One loop per core: receive a burst, classify it, answer, let timers expire, transmit, and sleep when idle.
//!
//! ```text
//!   device ──▶ UDP requests ──▶ UdpResponder, in place ──▶ the same frames ──▶ device
//!          └─▶ all else ──▶ Stack ──▶ events ──▶ Application ──▶ Stack ──▶ fresh frames ──▶ device
//! ```
//!
//! An engine owns its devices and their frames, and shares nothing on the fast path. Other threads use an
//! [`EngineHandle`]: devices come and go while the engine runs, and it reports its counters on request. This is the
//! only crate on the data path that reads a clock.
//!
//! Start reading at [`Engine::run`].
#![forbid(unsafe_code)]

mod application;
mod burst;
mod counters;
mod devices;
mod driven;
mod gathering;
mod handle;
mod host;
mod link_layer;
mod phase;
mod responder;
mod sampling;
mod sleeper;
mod tap;
mod tcp;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use clock::{Duration, Instant};
use stack::Stack;

pub use application::{Application, NoApplication};
pub use counters::{DeviceReport, DeviceReports, EngineCounters};
use devices::Devices;
pub use driven::Sleep;
use handle::Command;
pub use handle::{DeviceId, EngineHandle};
use host::Host;
use phase::{Phase, Phases};
pub use responder::{Datagram, Echo, ReturnPath, Sender, UdpResponder};
pub use sampling::Sampling;
use sleeper::{Sleeper, Waker};
pub use tap::{Direction, Tap};
pub use tcp::{Connection, TcpHandler, TcpServer};

/// How an engine spends its core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How long to look for packets before sleeping, after the last one came. Longer saves the wake-up, some
    /// microseconds, to clients that pause no longer than this, and burns the core meanwhile. Zero sleeps at once.
    pub spin: Duration,
    /// How long packets may gather, while the engine leaves its devices alone, if that saves wake-ups and does not slow them down:
    /// processor time for latency, at medium loads. Zero is never. A thread's timer slack, usually 50 microseconds, adds to it.
    pub gather: Duration,
    /// Never sleeps: burns the core for the lowest latency.
    pub never_sleep: bool,
    /// How long an engine that stops waits for peers to acknowledge what its connections were given to send. Longer suits paths
    /// that lose packets; shorter ends sooner when a peer is gone. With zero it sends what it may send now, and waits for nothing.
    pub linger: Duration,
    /// The core to run on; `None` leaves it to the scheduler.
    pub core: Option<usize>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            spin: Duration::from_micros(20),
            gather: Duration::ZERO,
            never_sleep: false,
            linger: Duration::from_secs(3),
            core: None,
        }
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
/// How long an engine that stops goes on at most when packets keep coming and every peer has acknowledged everything.
const DRAIN_MAX: Duration = Duration::from_secs(1);

/// What an engine does after one round of its loop; see [`Engine::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The next round, at once.
    Again,
    /// It sleeps until packets come, or until [`Engine::poll_timeout`].
    Sleep,
    /// It was stopped, and has done what was left to do.
    Over,
}

/// One core's loop. Made by [`Engine::new`] or [`Engine::with_stack`], runs in [`Engine::run`] on a thread of its own.
pub struct Engine<R, A = NoApplication> {
    config: Config,
    responder: R,
    host: Option<Host<A>>,
    devices: Devices,
    commands: Receiver<Command>,
    sleeper: Sleeper,
    counters: Arc<EngineCounters>,
    turns: u32,
    started: bool,
    phases: Phases,
    /// When a turn last had something to do.
    last_work: Instant,
    /// When it was told to stop.
    stopping: Option<Instant>,
}

impl<R: UdpResponder> Engine<R> {
    /// An engine for UDP alone, without devices, and the handle that gives it some. The error is the system's, for want of
    /// descriptors.
    pub fn new(config: Config, responder: R) -> io::Result<(Engine<R>, EngineHandle)> {
        Engine::make(config, responder, None)
    }
}

impl<R: UdpResponder, A: Application> Engine<R, A> {
    /// An engine with a stack for `application`; `responder` answers UDP requests beside it.
    pub fn with_stack(
        config: Config,
        responder: R,
        stack: stack::Config,
        application: A,
    ) -> io::Result<(Engine<R, A>, EngineHandle)> {
        let stack = Stack::new(stack, random_secret()?, Instant::ZERO);
        Engine::make(config, responder, Some(Host::new(stack, application)))
    }

    fn make(config: Config, responder: R, host: Option<Host<A>>) -> io::Result<(Engine<R, A>, EngineHandle)> {
        let (sleeper, waker) = Sleeper::new()?;
        Ok(Engine::put_together(config, responder, host, sleeper, waker))
    }

    fn put_together(
        config: Config,
        responder: R,
        host: Option<Host<A>>,
        sleeper: Sleeper,
        waker: Waker,
    ) -> (Engine<R, A>, EngineHandle) {
        let counters = Arc::new(EngineCounters::default());
        let (handle, commands) = EngineHandle::new(waker, Arc::clone(&counters));
        let devices = Devices::new(config.gather);
        let engine = Engine {
            config,
            responder,
            host,
            devices,
            commands,
            sleeper,
            counters,
            turns: 0,
            started: false,
            phases: Phases::default(),
            last_work: Instant::ZERO,
            stopping: None,
        };
        (engine, handle)
    }

    /// Serves until [`EngineHandle::stop`], then until no packet waits and peers have acknowledged what was sent, or
    /// [`Config::linger`] is over. Returns the responder.
    ///
    /// Keep the interface until this returns: without it, neither data nor acknowledgements pass.
    pub fn run(mut self) -> R {
        if let Some(core) = self.config.core {
            pin_to(core);
        }
        let clock = Clock::start();
        self.devices.time_answers(clock);
        loop {
            let now = clock.now();
            match self.step(now) {
                Step::Again => {}
                Step::Sleep => self.sleep(now),
                Step::Over => return self.responder,
            }
        }
    }

    /// One round of [`Engine::run`], which is this in a loop: for simulations, which have a clock of their own. `now` must not
    /// go back from call to call.
    pub fn step(&mut self, now: Instant) -> Step {
        self.begin_round(now);
        if self.obey_commands(now) && self.stopping.is_none() {
            self.stopping = Some(now);
            self.host.iter_mut().for_each(|host| host.stop(now));
        }
        let idle_long = now.since(self.last_work) >= self.config.spin;
        let worked = self.turn(now, idle_long || self.stopping.is_some());
        self.phases.set(if worked > 0 { Phase::Busy } else { Phase::Spinning });
        if worked > 0 {
            self.last_work = now;
        }
        match self.stopping {
            Some(since) if self.is_over(now.since(since), worked) => Step::Over,
            _ if worked == 0 && idle_long && !self.config.never_sleep => Step::Sleep,
            _ => Step::Again,
        }
    }

    /// Whether an engine has nothing left to do that was told to stop `elapsed` ago, and did `worked` in this turn.
    fn is_over(&self, elapsed: Duration, worked: usize) -> bool {
        let linger = self.config.linger;
        let waits =
            elapsed < linger && self.host.as_ref().is_some_and(|host| host.stack.has_unacknowledged());
        !waits && (worked == 0 || elapsed > linger.max(DRAIN_MAX))
    }

    /// For whoever drives an engine without a thread for it: carries out what the handle asked for, and one turn over all
    /// devices. Returns how much was done. `now` must not go back from call to call.
    ///
    /// What follows counts as work, until [`Engine::look_again`], [`Engine::rest`] or [`Engine::prepare_sleep`] says otherwise.
    pub fn poll(&mut self, now: Instant) -> usize {
        self.begin_round(now);
        self.phases.set(Phase::Busy);
        self.obey_commands(now);
        self.turn(now, true)
    }

    /// The time until `now` is counted, and the engine starts if it has not yet.
    fn begin_round(&mut self, now: Instant) {
        self.start_once(now);
        self.phases.advance(now, self.counters.times());
    }

    fn start_once(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.started, true) {
            self.phases.start(now);
            self.host.iter_mut().for_each(|host| host.start(now));
        }
    }

    /// One turn over all devices, the shadows only if their turn has come or `all` are wanted. Returns how much was done:
    /// frames that moved and events that were told.
    fn turn(&mut self, now: Instant, all: bool) -> usize {
        self.turns = self.turns.wrapping_add(1);
        let shadows = all || self.turns.is_multiple_of(SHADOW_EVERY);
        let stack = self.host.as_mut().map(|host| &mut host.stack);
        let moved = self.devices.serve(&mut self.responder, stack, &self.counters, now, shadows)
            + self.devices.answer_late(&mut self.responder, &self.counters, now);
        let Some(host) = &mut self.host else { return moved };
        let told = host.act(now);
        moved + told + self.devices.transmit(&mut host.stack, &self.counters, now)
    }

    /// Carries out what the handle asked for; true when the engine is to stop.
    fn obey_commands(&mut self, now: Instant) -> bool {
        let mut stop = false;
        while let Ok(command) = self.commands.try_recv() {
            let stack = self.host.as_mut().map(|host| &mut host.stack);
            match command {
                Command::Add(id, role, link, device) => self.devices.add(id, role, link, device, stack, now),
                Command::Remove(id) => self.devices.remove(id, &mut self.responder, &self.counters),
                Command::SetMtu(link, mtu) => self.devices.set_mtu(link, mtu, stack, now),
                Command::Report(answer) => {
                    let _ = answer.send(self.devices.reports()); // Whoever asked may have gone; nobody is missing it.
                }
                Command::WithStack(act) => {
                    if let Some(stack) = stack {
                        act(stack, now);
                    }
                }
                Command::Tap(tap) => self.devices.taps.add(tap, now),
                Command::Stop => stop = true,
            }
        }
        stop
    }

    fn sleep(&mut self, now: Instant) {
        let timers = self.poll_timeout();
        let mut fds = Vec::new();
        let timeout = match self.devices.prepare_sleep(&self.counters, timers, now, &mut fds) {
            Sleep::Busy | Sleep::Unknown => return,
            Sleep::Descriptors => None,
            Sleep::Until(at) => Some(at.since(now)),
        };
        self.phases.set(Phase::Asleep);
        self.sleeper.sleep(&fds, timeout);
    }
}

/// What keys the stack's hashes, sequence numbers and cookies: getrandom(2).
fn random_secret() -> io::Result<[u8; 32]> {
    let mut secret = [0; 32];
    let mut filled = 0;
    while filled < secret.len() {
        filled += rustix::rand::getrandom(&mut secret[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(secret)
}

/// The monotonic clock of the machine as [`Instant`]s.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: std::time::Instant,
    shown: Instant,
}

impl Clock {
    /// A clock that shows zero now.
    pub fn start() -> Clock {
        Clock::start_at(Instant::ZERO)
    }

    /// A clock that shows `shown` now, so that there is time before it.
    pub fn start_at(shown: Instant) -> Clock {
        Clock { start: std::time::Instant::now(), shown }
    }

    /// Time since the start.
    pub fn now(&self) -> Instant {
        self.shown + self.start.elapsed().into()
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
