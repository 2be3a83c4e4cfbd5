//! Which thread sleeps for all, and who is woken for what.

use std::sync::Arc;

use clock::{Duration, Instant};
use engine::Sleep;
use syscall::PollFd;

use crate::ids::{EpollId, SocketId};
use crate::process::State;
use crate::queue::Driver;
use crate::wait::on::On;
use crate::waiter;
use crate::waiter::{Waiter, readable};

/// Between two looks at a device that has no descriptor.
pub(crate) const POLL_EVERY: Duration = Duration::from_micros(50);
/// Sockets that a call of poll(2) or select(2) has which waits for a connection or for both sides of a relay: with more it is an event loop.
const RELAY_MAX: usize = 4;

impl State {
    pub(crate) fn enlist(&mut self, on: On<'_>, waiter: &Arc<Waiter>) {
        match on {
            On::Socket(id, _) => self.enlist_at(id, waiter),
            On::Epoll(id) => {
                if let Some(epoll) = self.epolls.get_mut(id) {
                    epoll.waiters.push(Arc::clone(waiter));
                }
            }
            On::Many(several) => {
                several.sockets.iter().for_each(|id| self.enlist_at(*id, waiter));
                several.epolls.iter().for_each(|id| self.look_on(*id, waiter));
            }
        }
        self.queue.sleepers.push(Arc::clone(waiter));
    }

    fn enlist_at(&mut self, id: SocketId, waiter: &Arc<Waiter>) {
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.waiters.push(Arc::clone(waiter));
        }
    }

    pub(crate) fn strike_off(&mut self, on: On<'_>, waiter: &Arc<Waiter>) {
        let ids = match &on {
            On::Socket(id, _) => std::slice::from_ref(id),
            On::Epoll(id) => {
                self.stop_waiting_at(*id, waiter);
                &[]
            }
            On::Many(several) => {
                several.epolls.iter().for_each(|id| self.stop_looking_on(*id, waiter));
                several.sockets
            }
        };
        for id in ids {
            if let Some(socket) = self.sockets.get_mut(*id) {
                waiter::remove(&mut socket.waiters, waiter);
            }
        }
        waiter::remove(&mut self.queue.sleepers, waiter);
        if self.queue.driver.as_ref().is_some_and(|driver| Arc::ptr_eq(&driver.waiter, waiter)) {
            self.queue.driver = None;
        }
    }

    /// A call has slept, until another thread told it that something had come, or something else ended its sleep.
    pub(crate) fn note_slept(&mut self, on: On<'_>, waiter: &Arc<Waiter>, by_other: bool) {
        if by_other {
            self.queue.wakes.note(waiter);
        }
        let ids = match &on {
            On::Socket(id, _) => std::slice::from_ref(id),
            On::Many(several) if several.sockets.len() <= RELAY_MAX => several.sockets,
            On::Many(_) | On::Epoll(_) => &[],
        };
        for id in ids {
            if let Some(socket) = self.sockets.get_mut(*id) {
                socket.note_sleep(by_other);
            }
        }
    }

    /// A thread goes back to the program: if others sleep, one of them sleeps for all from now on.
    pub(crate) fn pass_driving_on(&mut self, now: Instant) {
        if self.queue.has_driver() {
            // It, or the watchdog in its place, may sleep for long: what this thread's answer is to take along would have nobody else.
            self.queue.send_the_rest(now);
            self.queue.hurry_driver(now);
            self.queue.rest_with_driver();
        } else if self.queue.wakes.are_for_caller() {
            // It comes back soon; if not, the watchdog stands in.
        } else if let Some(next) = self.queue.sleepers.iter().find(|sleeper| !sleeper.is_gone()) {
            next.wake();
        }
    }

    /// Becomes the driver if there is none, and says what to sleep on for that and how long; `None` if there is something to do.
    pub(crate) fn prepare_to_drive(
        &mut self,
        waiter: &Arc<Waiter>,
        stands_in: bool,
        now: Instant,
        fds: &mut Vec<PollFd>,
    ) -> Option<Option<Instant>> {
        if self.queue.is_stood_in_for() && !stands_in {
            self.queue.wake_driver(); // It has nothing to do any more, and leaves.
        } else if !stands_in && self.queue.wakes.are_all_for(waiter) {
            self.queue.wake_driver(); // If there is one, it sleeps on its own from now on.
        } else if self.queue.has_driver() {
            self.queue.hurry_driver(now);
            self.queue.note_resting();
            return Some(None);
        }
        let mut devices = Vec::new();
        let sleep =
            self.queue.runtime.as_mut().map(|runtime| runtime.engine.prepare_sleep(now, &mut devices));
        let timer = match sleep {
            Some(Sleep::Busy) => return None,
            Some(Sleep::Until(at)) => Some(at),
            Some(Sleep::Unknown) => Some(now + POLL_EVERY),
            Some(Sleep::Descriptors) | None => None,
        };
        let moves = self.moves_due_at().map(|due| due.max(now + POLL_EVERY));
        let until = [timer, self.queue.own_due_at(), moves].into_iter().flatten().min();
        devices.extend(self.kinship.descriptors());
        devices.extend(self.attachment.as_ref().and_then(|attachment| attachment.descriptor()));
        fds.extend(devices.iter().map(|fd| readable(*fd)));
        self.queue.driver = Some(Driver { waiter: Arc::clone(waiter), until, stands_in });
        Some(until)
    }

    /// A thread sleeps until there is something to be collected at an instance, by whomever.
    pub(crate) fn look_on(&mut self, id: EpollId, waiter: &Arc<Waiter>) {
        if let Some(epoll) = self.epolls.get_mut(id) {
            epoll.onlookers.push(Arc::clone(waiter));
        }
    }

    /// It does not any more.
    pub(crate) fn stop_looking_on(&mut self, id: EpollId, waiter: &Arc<Waiter>) {
        if let Some(epoll) = self.epolls.get_mut(id) {
            waiter::remove(&mut epoll.onlookers, waiter);
        }
    }

    /// A thread no longer waits at an instance.
    pub(crate) fn stop_waiting_at(&mut self, id: EpollId, waiter: &Arc<Waiter>) {
        if let Some(epoll) = self.epolls.get_mut(id) {
            waiter::remove(&mut epoll.waiters, waiter);
        }
    }
}
