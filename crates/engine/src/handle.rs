//! How other threads talk to an engine.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use device::Device;

use crate::Role;
use crate::counters::{DeviceReport, EngineCounters};
use crate::sleeper::Waker;

/// Names a device of an engine; chosen by whoever adds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(pub u32);

/// What an engine can be asked to do between two turns.
pub(crate) enum Command {
    Add(DeviceId, Role, Box<dyn Device>),
    Remove(DeviceId),
    Report(Sender<Vec<DeviceReport>>),
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

    /// Gives the engine a device to serve.
    pub fn add_device(&self, id: DeviceId, role: Role, device: Box<dyn Device>) {
        self.send(Command::Add(id, role, device));
    }

    /// Has the engine answer what waits in a device and then drop it.
    pub fn remove_device(&self, id: DeviceId) {
        self.send(Command::Remove(id));
    }

    /// Ends the engine once no packet is waiting.
    pub fn stop(&self) {
        self.send(Command::Stop);
    }

    /// What the engine's devices counted; empty if the engine ended or does not answer within a second.
    pub fn device_reports(&self) -> Vec<DeviceReport> {
        let (sender, receiver) = channel();
        self.send(Command::Report(sender));
        receiver.recv_timeout(Duration::from_secs(1)).unwrap_or_default()
    }

    /// What the engine itself counted.
    pub fn counters(&self) -> &EngineCounters {
        &self.counters
    }

    fn send(&self, command: Command) {
        // An engine that ended has no devices and counts nothing: there is nobody to tell.
        if self.commands.send(command).is_ok() {
            self.waker.wake();
        }
    }
}
