//! What belongs to one queue. A process has one; an engine for each thread would have one each, with a lock of its own.

use std::sync::Arc;

use clock::Instant;
use stack::Stack;

use super::awaited_routes::AwaitedRoutes;
use super::begun::Begun;
use super::driver::{Driver, Wakes};
use super::ended::{self, Ended, Leaving};
use super::ports::{self, KeptPort};
use super::resting_ports::RestingPorts;
use super::runtime::Runtime;
use super::source_ports::HomePortTables;
use super::spare_sockets::SpareSockets;
use super::stalls::Stalls;
use crate::batch;
use crate::ids::SocketId;
use crate::waiter::Waiter;

/// A queue's engine, who waits for it, and when it has something to do.
#[derive(Default)]
pub(crate) struct Queue {
    /// `None` without a queue: nothing is on the stack.
    pub(crate) runtime: Option<Runtime>,
    /// The thread that sleeps for all: on the devices and the broker.
    pub(crate) driver: Option<Driver>,
    pub(crate) wakes: Wakes,
    /// Threads that sleep, the driver among them.
    pub(crate) sleepers: Vec<Arc<Waiter>>,
    /// Ports of closed connections that the stack is not done with.
    pub(crate) kept_ports: Vec<KeptPort>,
    /// Ports that the next connections leave from.
    pub(crate) resting_ports: RestingPorts,
    pub(crate) ports_looked_at: Instant,
    /// What the next connections have behind their descriptors.
    pub(crate) spare_sockets: SpareSockets,
    /// Ports to connect from where only some of an interface's queues are ours.
    pub(crate) home_ports: HomePortTables,
    /// Connections that wait for their way.
    pub(crate) awaited_routes: AwaitedRoutes,
    /// Connections of which the program wants to know when octets left or were acknowledged that have not yet.
    pub(crate) stamped: Vec<SocketId>,
    /// Sockets at which something waits.
    pub(crate) stalls: Stalls,
    /// Connections that the broker has begun to move.
    pub(crate) begun: Vec<Begun>,
    /// Closed listeners whose claims their connections still need.
    pub(crate) ended: Vec<Ended>,
    /// Listeners that are about to leave the stack.
    pub(crate) leaving: Vec<Leaving>,
}

impl Queue {
    /// Whether this listener is about to leave.
    pub(crate) fn is_leaving(&self, id: SocketId) -> bool {
        self.leaving.iter().any(|leaving| leaving.id == id)
    }

    /// One that is about to leave goes another way from here on.
    pub(crate) fn take_leaving(&mut self, id: SocketId) -> Option<Leaving> {
        self.leaving.extract_if(.., |leaving| leaving.id == id).next()
    }

    /// The stack, if there is one.
    pub(crate) fn stack(&mut self) -> Option<&mut Stack> {
        self.runtime.as_mut().map(Runtime::stack)
    }

    /// There is no engine any more, and with it no turns in which what is kept for a while is given up.
    pub(crate) fn drop_runtime(&mut self) {
        self.runtime = None;
        self.spare_sockets.clear();
    }

    /// A call waits, has found nothing, and looks again at once.
    pub(crate) fn note_spinning(&mut self) {
        if let Some(runtime) = &mut self.runtime {
            runtime.engine.look_again();
        }
    }

    /// A call sleeps while another thread watches the devices.
    pub(crate) fn note_resting(&mut self) {
        if let Some(runtime) = &mut self.runtime {
            runtime.engine.rest();
        }
    }

    /// A turn is over that a thread has made while the driver sleeps: the engine sleeps on.
    pub(crate) fn rest_with_driver(&mut self) {
        if self.has_driver() {
            self.note_resting();
        }
    }

    /// Sends what is queued, without looking for more work.
    pub(crate) fn flush(&mut self, now: Instant) {
        if let Some(runtime) = &mut self.runtime {
            runtime.engine.flush(now);
        }
        self.hurry_driver(now);
    }

    /// What was queued leaves: at once, or with the rest if the thread has more to do before it comes back.
    pub(crate) fn leave(&mut self, now: Instant) {
        if !batch::is_open(now) {
            self.flush(now);
        }
    }

    /// The same for callers that have queued nothing themselves, but may have caused something, for instance by reading.
    pub(crate) fn flush_what_is_due(&mut self, now: Instant) {
        if self.stack().is_some_and(|stack| stack.may_transmit()) {
            self.flush(now);
        }
    }

    /// Sends what was to ride on answers of the program, which has none for now, and what a call has left behind.
    pub(crate) fn send_the_rest(&mut self, now: Instant) {
        if let Some(stack) = self.stack() {
            stack.send_held_acks(now);
        }
        self.flush_what_is_due(now);
    }

    /// Whether a driver sleeps. A thread that was cancelled in its sleep does not.
    pub(crate) fn has_driver(&self) -> bool {
        self.driver.as_ref().is_some_and(|driver| !driver.waiter.is_gone())
    }

    /// Whether the watchdog sleeps on the devices, because no thread of the program does.
    pub(crate) fn is_stood_in_for(&self) -> bool {
        self.driver.as_ref().is_some_and(|driver| driver.stands_in && !driver.waiter.is_gone())
    }

    /// Wakes who sleeps for all if another thread has brought about something that is due before its sleep ends: a segment that was
    /// sent meanwhile may have to be sent again.
    pub(crate) fn hurry_driver(&self, now: Instant) {
        if let Some(driver) = &self.driver
            && !driver.stands_in
            && let Some(due) = self.due_at(now)
            && driver.until.is_none_or(|until| due < until)
        {
            driver.waiter.wake();
        }
    }

    /// There is more to sleep on than the driver knows.
    pub(crate) fn wake_driver(&self) {
        if let Some(driver) = &self.driver {
            driver.waiter.wake();
        }
    }

    /// When a turn is due though nothing comes.
    fn due_at(&self, now: Instant) -> Option<Instant> {
        let engine = &self.runtime.as_ref()?.engine;
        let times = [engine.poll_timeout(), engine.retry_timeout(now), self.own_due_at()];
        times.into_iter().flatten().min()
    }

    /// The same, but for the engine. Without one there is nothing that a turn would look after.
    pub(crate) fn own_due_at(&self) -> Option<Instant> {
        self.runtime.as_ref()?;
        let ports = ports::due(&self.resting_ports, &self.kept_ports, self.ports_looked_at);
        let (unanswered, untold) = (self.home_ports.due(), self.awaited_routes.due());
        let spare = self.spare_sockets.expiry();
        let times =
            [self.stalls.look_at, ended::due(&self.ended, &self.leaving), ports, unanswered, untold, spare];
        times.into_iter().flatten().min()
    }
}
