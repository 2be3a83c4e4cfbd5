//! How other threads control an engine.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use clock::Instant;
use device::Device;
use stack::{Link, LinkId, RouteClamp, SourceFilter, Stack};
use wire::MacAddress;

use crate::Role;
use crate::counters::{DeviceReports, EngineCounters};
use crate::sleeper::Waker;
use crate::tap::Tap;

/// Names a device of an engine; the caller that adds the device chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(pub u32);

pub(crate) type StackCall = Box<dyn FnOnce(&mut Stack, Instant) + Send>;

/// What an engine can be asked to do between two turns.
pub(crate) enum Command {
    Add(DeviceId, Role, Option<LinkId>, Box<dyn Device>),
    Remove(DeviceId),
    SetMtu(LinkId, u16),
    Report(Sender<DeviceReports>),
    WithStack(StackCall),
    Tap(Box<dyn Tap>),
    Stop,
}

/// Reaches one engine from any thread. Requests are carried out in order; those to an engine that ended do nothing.
#[derive(Clone)]
pub struct EngineHandle {
    commands: Sender<Command>,
    waker: Waker,
    counters: Arc<EngineCounters>,
}

impl EngineHandle {
    pub(crate) fn new(waker: Waker, counters: Arc<EngineCounters>) -> (EngineHandle, Receiver<Command>) {
        let (commands, receiver) = channel();
        (EngineHandle { commands, waker, counters }, receiver)
    }

    /// The same engine, for who cannot rely on it being driven ([`crate::Engine::driven`]): `nudge` is called behind each request,
    /// on the thread that makes it, and is to bring about [`crate::Engine::obey`].
    pub fn nudging(&self, nudge: impl Fn() + Send + Sync + 'static) -> EngineHandle {
        EngineHandle { waker: Waker::Nudge(Arc::new(nudge)), ..self.clone() }
    }

    /// Gives the engine a device to serve, which its stack has nothing to do with.
    pub fn add_device(&self, id: DeviceId, role: Role, device: Box<dyn Device>) {
        self.send(Command::Add(id, role, None, device));
    }

    /// Gives the engine a device of an interface: the stack, if there is one, receives from it, and sends by it what
    /// leaves by `link`. A device that takes the place of one that was removed may have the same link, whose connections go on.
    pub fn add_link(&self, id: DeviceId, link: LinkId, device: Box<dyn Device>) {
        self.send(Command::Add(id, Role::Primary, Some(link), device));
    }

    /// Has the engine answer what waits in a device and then drop it.
    pub fn remove_device(&self, id: DeviceId) {
        self.send(Command::Remove(id));
    }

    /// Has the engine take a turn: its responder may have an answer that nothing else tells of.
    pub fn wake(&self) {
        self.with_stack(|_, _| {});
    }

    /// Runs `act` on the engine's stack between two turns, if it has one; does not wait for it.
    pub fn with_stack(&self, act: impl FnOnce(&mut Stack, Instant) + Send + 'static) {
        self.send(Command::WithStack(Box::new(act)));
    }

    /// Runs `ask` on the engine's stack and returns what it returns. `None` if there is no stack, the engine ended, or does
    /// not answer within a second.
    pub fn ask_stack<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut Stack, Instant) -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = channel();
        self.with_stack(move |stack, now| {
            let _ = sender.send(ask(stack, now)); // Whoever asked may have gone.
        });
        receiver.recv_timeout(Duration::from_secs(1)).ok()
    }

    /// A neighbour on `link` has another hardware address now: live connections by it follow.
    pub fn replace_neighbour(&self, link: LinkId, old: MacAddress, new: MacAddress) {
        self.with_stack(move |stack, _| {
            stack.replace_neighbour(link, old, new);
        });
    }

    /// A link takes IP packets of up to `mtu` octets now: its devices and live connections follow.
    pub fn set_mtu(&self, link: LinkId, mtu: u16) {
        self.send(Command::SetMtu(link, mtu));
    }

    /// Largest TCP segment to announce and to send by `link`, for paths through tunnels that do not say how narrow they are.
    pub fn set_mss_clamp(&self, link: LinkId, mss_clamp: Option<u16>) {
        self.with_stack(move |stack, now| {
            stack.set_link(link, Link { mss_clamp, ..stack.link(link) }, now);
        });
    }

    /// Largest TCP segments by route, in place of those told before: for new connections.
    pub fn set_route_clamps(&self, clamps: Vec<RouteClamp>) {
        self.with_stack(move |stack, _| stack.set_route_clamps(clamps));
    }

    /// Says from which addresses peers on `link` may open connections: see [`Stack::set_sources`].
    pub fn set_sources(&self, link: LinkId, filters: Vec<SourceFilter>) {
        self.with_stack(move |stack, _| stack.set_sources(link, filters));
    }

    /// Shows `tap` every frame from now on, until it says that it is over.
    pub fn add_tap(&self, tap: Box<dyn Tap>) {
        self.send(Command::Tap(tap));
    }

    /// Ends the engine once no packet waits, and peers have acknowledged what was sent: see [`crate::Engine::run`].
    pub fn stop(&self) {
        self.send(Command::Stop);
    }

    /// What the engine's devices counted; empty if the engine ended or does not answer within a second.
    pub fn device_reports(&self) -> DeviceReports {
        let (sender, receiver) = channel();
        self.send(Command::Report(sender));
        receiver.recv_timeout(Duration::from_secs(1)).unwrap_or_default()
    }

    /// What the engine itself counted.
    pub fn counters(&self) -> &EngineCounters {
        &self.counters
    }

    fn send(&self, command: Command) {
        // An engine that has ended has no devices and counts nothing.
        if self.commands.send(command).is_ok() {
            self.waker.wake();
        }
    }
}
