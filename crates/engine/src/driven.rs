//! An engine without a thread of its own: whoever needs it drives it by [`Engine::poll`], and sleeps for it.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use clock::Instant;
use device::Device;
use stack::{LinkId, Stack};

use crate::host::Host;
use crate::sleeper::Sleeper;
use crate::{
    Application, Config, DeviceId, DeviceReport, Engine, EngineHandle, Role, UdpResponder, random_secret,
};

/// How long there is nothing to do for an engine, as [`Engine::prepare_sleep`] found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// Frames are waiting: drive it again.
    Busy,
    /// Until one of the descriptors is readable, or for ever.
    Descriptors,
    /// Until one of the descriptors is readable, or this time has come.
    Until(Instant),
    /// There is a device without descriptor: it must be polled.
    Unknown,
}

impl<R: UdpResponder, A: Application> Engine<R, A> {
    /// An engine for whoever drives it by [`Engine::poll`]. It opens no descriptors, and its handle wakes nobody.
    pub fn driven(
        config: Config,
        responder: R,
        stack: stack::Config,
        application: A,
    ) -> io::Result<(Engine<R, A>, EngineHandle)> {
        let stack = Stack::new(stack, random_secret()?, Instant::ZERO);
        let (sleeper, waker) = Sleeper::none();
        Ok(Engine::put_together(config, responder, Some(Host::new(stack, application)), sleeper, waker))
    }

    /// The stack, between two turns. What is queued there leaves in the next turn, or by [`Engine::flush`].
    ///
    /// # Panics
    /// If the engine has none: see [`Engine::new`]. So does [`Engine::application`].
    pub fn stack(&mut self) -> &mut Stack {
        &mut self.host.as_mut().expect("an engine that is driven has a stack").stack
    }

    /// The application, between two turns.
    pub fn application(&mut self) -> &mut A {
        &mut self.host.as_mut().expect("an engine that is driven has a stack").application
    }

    /// Adds the device of an interface, as [`EngineHandle::add_link`] does, at once.
    pub fn add_link(&mut self, id: DeviceId, link: LinkId, device: Box<dyn Device>, now: Instant) {
        let stack = self.host.as_mut().map(|host| &mut host.stack);
        self.ports.add(id, Role::Primary, Some(link), device, stack, now);
    }

    /// What the devices say of themselves, as [`EngineHandle::device_reports`] asks for it.
    pub fn device_reports(&self) -> Vec<DeviceReport> {
        self.ports.reports()
    }

    /// Has what waits in a device answered, and drops it, at once.
    pub fn remove_device(&mut self, id: DeviceId) {
        self.ports.remove(id, &mut self.responder, &self.counters);
    }

    /// Sends what the stack has to send now, without looking at what arrived. Returns the number of packets.
    pub fn flush(&mut self, now: Instant) -> usize {
        match &mut self.host {
            Some(host) => self.ports.transmit(&mut host.stack, &self.counters, now),
            None => 0,
        }
    }

    /// Whether frames or packets wait for a turn, or a timer has come.
    pub fn is_due(&self, now: Instant) -> bool {
        self.host
            .as_ref()
            .is_some_and(|host| host.stack.may_transmit() || host.poll_timeout().is_some_and(|at| at <= now))
    }

    /// Arms the wake-up of all devices for a sleep that begins now, and adds their descriptors to `fds`; neither if packets are to
    /// gather ([`Config::gather`]).
    pub fn prepare_sleep(&mut self, now: Instant, fds: &mut Vec<RawFd>) -> Sleep {
        let timers = self.host.as_ref().and_then(Host::poll_timeout);
        let mut borrowed = Vec::new();
        let sleep = self.ports.prepare_sleep(&self.counters, timers, now, &mut borrowed);
        fds.extend(borrowed.iter().map(AsRawFd::as_raw_fd));
        sleep
    }
}
