//! An engine without a thread of its own: its user drives it by [`Engine::poll`], and sleeps for it.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use clock::Instant;
use device::Device;
use stack::{LinkId, Stack};

use crate::host::Host;
use crate::phase::Phase;
use crate::sleeper::Sleeper;
use crate::{
    Application, Config, DeviceId, DeviceReports, Engine, EngineHandle, Role, UdpResponder, random_secret,
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
    /// An engine for a user that drives it by [`Engine::poll`]. It opens no descriptors, and its handle wakes no thread.
    pub fn driven(
        config: Config,
        responder: R,
        stack: stack::Config,
        application: A,
    ) -> io::Result<(Engine<R, A>, EngineHandle)> {
        Ok(Engine::simulated(
            config,
            responder,
            Stack::new(stack, random_secret()?, Instant::ZERO),
            application,
        ))
    }

    /// The same on a stack that is there already, such as one whose secret a simulation chose: nothing is left to chance.
    pub fn simulated(
        config: Config,
        responder: R,
        stack: Stack,
        application: A,
    ) -> (Engine<R, A>, EngineHandle) {
        let (sleeper, waker) = Sleeper::none();
        Engine::put_together(config, responder, Some(Host::new(stack, application)), sleeper, waker)
    }

    /// The stack, between two turns. What is queued there leaves in the next turn, or by [`Engine::flush`].
    ///
    /// # Panics
    /// If the engine has none: see [`Engine::new`]. So does [`Engine::application`].
    pub fn stack(&mut self) -> &mut Stack {
        &mut self.host.as_mut().expect("an engine that is driven has a stack").stack
    }

    /// The responder, between two turns.
    pub fn responder(&mut self) -> &mut R {
        &mut self.responder
    }

    /// The application, between two turns.
    pub fn application(&mut self) -> &mut A {
        &mut self.host.as_mut().expect("an engine that is driven has a stack").application
    }

    /// Adds the device of an interface, as [`EngineHandle::add_link`] does, at once.
    pub fn add_link(&mut self, id: DeviceId, link: LinkId, device: Box<dyn Device>, now: Instant) {
        let stack = self.host.as_mut().map(|host| &mut host.stack);
        self.devices.add(id, Role::Primary, Some(link), device, stack, now);
    }

    /// What the devices say of themselves, as [`EngineHandle::device_reports`] asks for it.
    pub fn device_reports(&self) -> DeviceReports {
        self.devices.reports()
    }

    /// Has what waits in a device answered, and drops it, at once.
    pub fn remove_device(&mut self, id: DeviceId) {
        self.devices.remove(id, &mut self.responder, &self.counters);
    }

    /// Carries out what the handle asked for, without a turn, and lets go of taps that are over.
    pub fn obey(&mut self, now: Instant) {
        self.start_once(now);
        self.phases.advance(now, self.counters.times());
        self.obey_commands(now); // Whoever drives it decides when it ends.
        self.devices.taps.forget_those_over();
    }

    /// Sends what the stack has to send now, without looking at what arrived. Returns the number of packets.
    pub fn flush(&mut self, now: Instant) -> usize {
        match &mut self.host {
            Some(host) => self.devices.transmit(&mut host.stack, &self.counters, now),
            None => 0,
        }
    }

    /// When to try again what a device did not take, if there is such.
    pub fn retry_timeout(&self, now: Instant) -> Option<Instant> {
        self.devices.poll_timeout(now)
    }

    /// When a turn is due though nothing arrives.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timers = self.host.as_ref().and_then(Host::poll_timeout);
        let linger = self.stopping.map(|since| since + self.config.linger);
        [timers, linger].into_iter().flatten().min()
    }

    /// Arms the wake-up of all devices for a sleep that begins now, and adds their descriptors to `fds`; neither if packets are to
    /// gather ([`Config::gather`]).
    pub fn prepare_sleep(&mut self, now: Instant, fds: &mut Vec<RawFd>) -> Sleep {
        let timers = self.poll_timeout();
        let mut borrowed = Vec::new();
        let sleep = self.devices.prepare_sleep(&self.counters, timers, now, &mut borrowed);
        fds.extend(borrowed.iter().map(AsRawFd::as_raw_fd));
        self.phases.set(if sleep == Sleep::Busy { Phase::Busy } else { Phase::Asleep });
        sleep
    }

    /// The driver sleeps by itself: another thread watches the devices.
    pub fn rest(&mut self) {
        self.phases.set(Phase::Asleep);
    }

    /// The driver has nothing else to do, and looks for packets again at once: until the next turn, the engine spins.
    pub fn look_again(&mut self) {
        self.phases.set(Phase::Spinning);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::{Direction, Echo, Tap};

    type Shared = Arc<Mutex<Engine<Echo, Idle>>>;

    struct Idle;

    impl Application for Idle {
        fn on_start(&mut self, _: &mut Stack, _: Instant) {}

        fn on_event(&mut self, _: stack::Event, _: &mut Stack, _: Instant) {}
    }

    /// An engine without a driver, its handle, and a second engine that carries out the handle's requests.
    fn engine() -> (Shared, EngineHandle, EngineHandle) {
        let (engine, handle) =
            Engine::driven(Config::default(), Echo, stack::Config::default(), Idle).unwrap();
        let engine = Arc::new(Mutex::new(engine));
        let nudged = Arc::clone(&engine);
        let nudging = handle.nudging(move || nudged.lock().unwrap().obey(Instant::ZERO));
        (engine, handle, nudging)
    }

    struct Ended(Arc<()>);

    impl Tap for Ended {
        fn on_start(&mut self, _: Instant) {}

        fn on_frame(&mut self, _: &[u8], _: DeviceId, _: Direction, _: Instant) {}

        fn is_over(&self) -> bool {
            Arc::strong_count(&self.0) == 1
        }
    }

    #[test]
    fn a_nudge_has_requests_carried_out_though_nobody_drives() {
        let (_engine, handle, nudging) = engine();
        handle.with_stack(|stack, _| stack.set_link(LinkId(3), stack::Link::default(), Instant::ZERO));
        assert_eq!(nudging.ask_stack(|stack, _| stack.listeners().count()), Some(0));
        assert!(nudging.device_reports().present.is_empty());
    }

    #[test]
    fn time_counts_as_work_until_the_driver_looks_again_or_sleeps() {
        let (engine, handle, _) = engine();
        let mut engine = engine.lock().unwrap();
        let at = |micros: u64| Instant::from_nanos(1000 * micros);
        engine.poll(at(1000));
        engine.poll(at(1010));
        engine.look_again();
        engine.poll(at(1030));
        assert_eq!(engine.prepare_sleep(at(1031), &mut Vec::new()), Sleep::Descriptors);
        engine.obey(at(1500));
        engine.poll(at(2030));
        engine.rest();
        engine.poll(at(2031));
        let counts = handle.counters().named();
        let time = |name: &str| counts.iter().find(|(it, _)| it == name).map(|(_, nanos)| *nanos);
        assert_eq!(time("busy_ns"), Some(10_000));
        assert_eq!(time("spinning_ns"), Some(20_000));
        assert_eq!(time("asleep_ns"), Some(1_001_000));
    }

    #[test]
    fn a_tap_that_is_over_goes_at_the_next_nudge() {
        let (_engine, _, nudging) = engine();
        let looking = Arc::new(());
        nudging.add_tap(Box::new(Ended(Arc::clone(&looking))));
        assert_eq!(Arc::strong_count(&looking), 2);
        let weak = Arc::downgrade(&looking);
        drop(looking);
        nudging.with_stack(|_, _| {});
        assert!(weak.upgrade().is_none());
    }
}
