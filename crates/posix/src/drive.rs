//! Drives the engine from the program's own calls: turns, and sleeping when there is nothing to do.
//!
//! One of the sleeping threads is the *driver*: it sleeps on the devices and the broker for all of them. When it leaves, another
//! one takes its place. A thread that makes a turn wakes the threads whose sockets became ready. If it is always the same one, that one
//! drives from then on, and the others sleep while it works, until something comes for one of them.

use std::os::fd::RawFd;
use std::sync::{Arc, MutexGuard};

use clock::{Duration, Instant};
use engine::Sleep;
use stack::tcp::Events;
use syscall::PollFd;

use crate::epoll::EpollId;
use crate::inside;
use crate::process::{Process, State};
use crate::socket::{READABLE, SocketId, WRITABLE};
use crate::waiter::{self, Waiter};

/// Between two looks at a device that has no descriptor.
const POLL_EVERY: Duration = Duration::from_micros(50);
/// How often a process that never sleeps listens to the broker.
const HEAR_EVERY: Duration = Duration::from_millis(10);
/// How often in a row a thread is woken by the driver before it drives itself.
const TAKES_OVER: u32 = 8;
/// Turns that one call makes while there is more and more work, before it looks at its own.
const TURNS_MAX: usize = 4;

/// The thread that sleeps for all.
pub(crate) struct Driver {
    waiter: Arc<Waiter>,
    /// When its sleep ends though nothing comes; `None`: never.
    until: Option<Instant>,
    /// It is the watchdog, until a thread of the program sleeps.
    stands_in: bool,
}

/// The thread that others told last that something had come, and how often in a row it was the same.
#[derive(Default)]
pub(crate) struct Wakes(Option<(Arc<Waiter>, u32)>);

impl Wakes {
    fn note(&mut self, waiter: &Arc<Waiter>) {
        let before = self.0.take().filter(|(last, _)| Arc::ptr_eq(last, waiter));
        self.0 = Some((Arc::clone(waiter), before.map_or(0, |(_, count)| count).saturating_add(1)));
    }

    /// The same for the calling thread.
    fn are_for_caller(&self) -> bool {
        self.0.as_ref().is_some_and(|(last, count)| *count >= TAKES_OVER && last.is_own())
    }

    /// Whether all packets are for this thread, so that who sleeps for it is only in its way.
    fn are_all_for(&self, waiter: &Arc<Waiter>) -> bool {
        self.0.as_ref().is_some_and(|(last, count)| *count >= TAKES_OVER && Arc::ptr_eq(last, waiter))
    }
}

/// What a call waits for.
#[derive(Clone, Copy)]
pub(crate) enum On<'a> {
    /// Something on one socket; and on its shadow, with these poll(2) bits.
    Socket(SocketId, Option<i16>),
    /// Something at an epoll instance, or its kernel's counterpart.
    Epoll(EpollId),
    /// Something on any of several.
    Many(Several<'a>),
}

/// What poll(2) waits for.
#[derive(Clone, Copy, Default)]
pub(crate) struct Several<'a> {
    pub(crate) sockets: &'a [SocketId],
    /// Something is ready there; its collector takes it.
    pub(crate) epolls: &'a [EpollId],
    /// What the kernel has of these descriptors.
    pub(crate) kernel: &'a [PollFd],
}

impl On<'_> {
    /// A caller that waits for nothing itself sleeps for others.
    fn is_nothing(self) -> bool {
        matches!(self, On::Many(Several { sockets: [], epolls: [], kernel: [] }))
    }
}

/// How a call waits.
#[derive(Clone, Copy)]
pub(crate) struct Waiting<'a> {
    pub(crate) on: On<'a>,
    /// `None`: for ever.
    pub(crate) deadline: Option<Instant>,
    /// Signals blocked while it sleeps.
    pub(crate) mask: Option<u64>,
    /// A handler with `SA_RESTART` does not end it.
    pub(crate) restarts: bool,
}

/// Why a call waited in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The time is over.
    TimedOut,
    /// A signal came (`EINTR`).
    Interrupted,
}

impl State {
    /// One turn of the engine; what it brought about is noted with the sockets. Returns how much was done.
    pub(crate) fn turn(&mut self, mut now: Instant) -> usize {
        if self.has_incident() {
            self.hear(now);
            // That may have taken milliseconds and turns of its own, which must not be followed by an earlier time.
            now = self.clock.now();
        }
        if self.runtime.is_none() {
            self.attend(now);
            return 0;
        }
        let done = self.take_in(now);
        self.pass_on_late();
        if !self.stamped.is_empty() {
            self.look_at_send_times(now);
        }
        self.release_ports(now);
        self.release_ended(now);
        self.look_after_children(now);
        self.look_at_stalls(now);
        self.attend(now);
        if !self.attached {
            self.drop_unused_stack();
        }
        done
    }

    /// Periodic work, with a queue or without.
    fn attend(&mut self, mut now: Instant) {
        if now >= self.heard_at + HEAR_EVERY {
            self.heard_at = now;
            self.hear(now);
            now = self.clock.now();
        }
        if !self.closing.is_empty() {
            self.end_closed(now);
        }
    }

    /// Takes in what has arrived, and no more; safe in the middle of other work.
    pub(crate) fn take_in(&mut self, now: Instant) -> usize {
        let Some(runtime) = &mut self.runtime else { return 0 };
        let done = runtime.engine.poll(now);
        let spare = std::mem::take(&mut runtime.spare);
        let mut events = std::mem::replace(&mut runtime.engine.application().0, spare);
        for event in events.drain(..) {
            if let Some((id, _)) =
                self.sockets.at(event.token as u32).filter(|it| it.0.to_bits() == event.token)
            {
                self.raise(id, key_of(event.events));
                self.note_arrival(id, now);
            }
        }
        if let Some(runtime) = &mut self.runtime {
            runtime.spare = events;
        }
        done
    }

    /// Sends what is queued, without looking for more work.
    pub(crate) fn flush(&mut self, now: Instant) {
        if let Some(runtime) = &mut self.runtime {
            runtime.engine.flush(now);
        }
        self.hurry_driver(now);
    }

    /// The same for callers that have queued nothing themselves, but may have caused something, for instance by reading.
    pub(crate) fn flush_what_is_due(&mut self, now: Instant) {
        if self.stack().is_some_and(|stack| stack.may_transmit()) {
            self.flush(now);
        }
    }

    /// Sends what was to ride on answers of the program, which has none for now, and what a call has left behind.
    fn send_the_rest(&mut self, now: Instant) {
        if let Some(stack) = self.stack() {
            stack.send_held_acks(now);
        }
        self.flush_what_is_due(now);
    }

    fn enlist(&mut self, on: On<'_>, waiter: &Arc<Waiter>) {
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
        self.sleepers.push(Arc::clone(waiter));
    }

    fn enlist_at(&mut self, id: SocketId, waiter: &Arc<Waiter>) {
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.waiters.push(Arc::clone(waiter));
        }
    }

    fn strike_off(&mut self, on: On<'_>, waiter: &Arc<Waiter>) {
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
        waiter::remove(&mut self.sleepers, waiter);
        if self.driver.as_ref().is_some_and(|driver| Arc::ptr_eq(&driver.waiter, waiter)) {
            self.driver = None;
        }
    }

    /// A call has slept, until another thread told it that something had come, or something else ended its sleep.
    fn note_slept(&mut self, on: On<'_>, waiter: &Arc<Waiter>, by_other: bool) {
        if by_other {
            self.wakes.note(waiter);
        }
        if let On::Socket(id, _) | On::Many(Several { sockets: &[id], .. }) = on
            && let Some(socket) = self.sockets.get_mut(id)
        {
            socket.note_sleep(by_other);
        }
    }

    /// A thread goes back to the program: if others sleep, one of them sleeps for all from now on.
    pub(crate) fn pass_driving_on(&mut self, now: Instant) {
        if self.is_stood_in_for() {
            // Its sleep is short.
        } else if self.has_driver() {
            // It may sleep for long: what this thread's answer is to take along would have nobody else.
            self.send_the_rest(now);
            self.hurry_driver(now);
        } else if self.wakes.are_for_caller() {
            // It comes back soon; if not, the watchdog stands in.
        } else if let Some(next) = self.sleepers.iter().find(|sleeper| !sleeper.is_gone()) {
            next.wake();
        }
    }

    /// Whether a driver sleeps. A thread that was cancelled in its sleep does not.
    pub(crate) fn has_driver(&self) -> bool {
        self.driver.as_ref().is_some_and(|driver| !driver.waiter.is_gone())
    }

    pub(crate) fn is_stood_in_for(&self) -> bool {
        self.driver.as_ref().is_some_and(|driver| driver.stands_in && !driver.waiter.is_gone())
    }

    /// Whether there is no stack, and no broker that could give us a queue for one.
    pub(crate) fn is_left(&self) -> bool {
        self.runtime.is_none() && self.attachment.is_none()
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

    /// When a turn is due though nothing comes.
    fn due_at(&self, now: Instant) -> Option<Instant> {
        let engine = &self.runtime.as_ref()?.engine;
        let times = [engine.poll_timeout(), engine.retry_timeout(now), self.own_due_at()];
        times.into_iter().flatten().min()
    }

    /// The same, but for the engine. Without one there is nothing that a turn would look after.
    fn own_due_at(&self) -> Option<Instant> {
        self.runtime.as_ref()?;
        [self.stalls.look_at, self.ended_due(), self.ports_due()].into_iter().flatten().min()
    }

    /// There is more to sleep on than the driver knows.
    pub(crate) fn wake_driver(&self) {
        if let Some(driver) = &self.driver {
            driver.waiter.wake();
        }
    }

    /// Becomes the driver if there is none, and says what to sleep on for that and how long; `None` if there is something to do.
    fn prepare_to_drive(
        &mut self,
        waiter: &Arc<Waiter>,
        stands_in: bool,
        now: Instant,
        fds: &mut Vec<PollFd>,
    ) -> Option<Option<Instant>> {
        if self.is_stood_in_for() && !stands_in {
            self.wake_driver(); // It has nothing to do any more, and leaves.
        } else if !stands_in && self.wakes.are_all_for(waiter) {
            self.wake_driver(); // If there is one, it sleeps on its own from now on.
        } else if self.has_driver() {
            self.hurry_driver(now);
            return Some(None);
        }
        let mut devices = Vec::new();
        let sleep = self.runtime.as_mut().map(|runtime| runtime.engine.prepare_sleep(now, &mut devices));
        let timer = match sleep {
            Some(Sleep::Busy) => return None,
            Some(Sleep::Until(at)) => Some(at),
            Some(Sleep::Unknown) => Some(now + POLL_EVERY),
            Some(Sleep::Descriptors) | None => None,
        };
        let until = [timer, self.own_due_at()].into_iter().flatten().min();
        devices.extend(self.kin_descriptors());
        devices.extend(self.attachment.as_ref().and_then(|attachment| attachment.descriptor()));
        fds.extend(devices.iter().map(|fd| readable(*fd)));
        self.driver = Some(Driver { waiter: Arc::clone(waiter), until, stands_in });
        Some(until)
    }
}

impl Process {
    /// A turn for a call that does not wait.
    pub(crate) fn turn_in_passing(&self, state: &mut State, now: Instant) {
        state.turn(now);
        self.note_turn();
        state.hurry_driver(now);
    }

    /// Drives the engine until `attempt` has a result.
    pub(crate) fn wait<'p, T>(
        &'p self,
        mut state: MutexGuard<'p, State>,
        waiting: &Waiting<'_>,
        attempt: &mut dyn FnMut(&mut State, Instant) -> Option<T>,
    ) -> Result<T, Stop> {
        let mut interrupted = false;
        let mut spin_until = None;
        let mut call = None;
        loop {
            let mut now = self.now();
            let mut worked = 0;
            for _ in 0..TURNS_MAX {
                let done = state.turn(now);
                self.note_turn();
                worked += done;
                if let Some(result) = attempt(&mut state, now) {
                    state.end_call(waiting.on, call.as_ref(), now);
                    state.pass_driving_on(now);
                    return Ok(result);
                }
                if done == 0 {
                    break;
                }
                now = self.now();
            }
            if worked == 0 {
                // The program asks for more events, and there are none: it has handled those that it got.
                state.send_the_rest(now);
            }
            if interrupted || waiting.deadline.is_some_and(|deadline| deadline <= now) {
                state.end_call(waiting.on, call.as_ref(), now);
                state.pass_driving_on(now);
                return Err(if interrupted { Stop::Interrupted } else { Stop::TimedOut });
            }
            // Others can close what this call uses from here on.
            call = call.or_else(|| state.begin_call(waiting.on));
            if inside::has_deferred() {
                // A handler does not wait until there is nothing more to do.
                drop(state);
                interrupted = is_end(inside::outside(|| Ok(0)), waiting);
                state = self.lock();
                continue;
            }
            let spin_until = *spin_until.get_or_insert(now + state.spin);
            if worked > 0 || now < spin_until {
                // Others may want the lock.
                drop(state);
                std::hint::spin_loop();
                state = self.lock();
                continue;
            }
            (state, interrupted) = self.sleep(state, waiting, now);
        }
    }

    /// Sleeps until an awaited event may have happened; returns whether a signal ended the call.
    fn sleep<'p>(
        &'p self,
        mut state: MutexGuard<'p, State>,
        waiting: &Waiting<'_>,
        now: Instant,
    ) -> (MutexGuard<'p, State>, bool) {
        let mut fds = Vec::with_capacity(8);
        match waiting.on {
            On::Socket(id, shadow) => {
                let fd = state.sockets.get(id).map_or(-1, |socket| socket.fd());
                fds.extend(shadow.map(|events| PollFd { fd, events, revents: 0 }));
            }
            On::Epoll(id) => fds.push(readable(state.epolls.get(id).map_or(-1, |epoll| epoll.fd()))),
            On::Many(several) => fds.extend_from_slice(several.kernel),
        }
        let Some(waiter) = Waiter::of_this_thread(self.table) else {
            // Without a descriptor no thread can wake us: check again soon.
            drop(state);
            let slept = inside::outside(|| syscall::ppoll(&mut fds, Some(POLL_EVERY.into()), waiting.mask));
            return (self.lock(), is_end(slept, waiting));
        };
        if state.has_incident() {
            state.hear(now);
            return (state, false);
        }
        // It may have left its last sleep by longjmp(3), and be listed still.
        state.strike_off(waiting.on, &waiter);
        let own = fds.len();
        fds.push(readable(waiter.descriptor()));
        let Some(timer) = state.prepare_to_drive(&waiter, waiting.on.is_nothing(), now, &mut fds) else {
            return (state, false);
        };
        state.enlist(waiting.on, &waiter);
        let end = [timer, waiting.deadline].into_iter().flatten().min();
        let timeout = end.map(|end| end.since(now).into());
        drop(state);
        let slept = inside::outside(|| syscall::ppoll(&mut fds, timeout, waiting.mask));
        let mut state = self.lock();
        state.strike_off(waiting.on, &waiter);
        let by_other = waiter.settle();
        state.note_slept(waiting.on, &waiter, by_other);
        if fds[own + 1..].last().is_some_and(|broker| broker.revents != 0) || state.attachment.is_none() {
            let now = self.now();
            state.hear(now);
        }
        if state.kin_descriptors().next().is_some() {
            state.read_notes();
        }
        (state, is_end(slept, waiting))
    }
}

/// Whether what ended a sleep ends the call.
fn is_end(slept: Option<std::io::Result<usize>>, waiting: &Waiting<'_>) -> bool {
    let by_signal = match slept {
        Some(Err(error)) => error.kind() == std::io::ErrorKind::Interrupted,
        // Something else may have ended the sleep just before the handler ran, also what the call has no use for; or it ran instead
        // of the sleep. What the call's own mask blocks was handled before or after the call, and is not to end it.
        Some(Ok(_)) | None => inside::has_handled(waiting.mask.unwrap_or(0)),
    };
    by_signal && (!waiting.restarts || inside::interrupted())
}

/// To be told when `fd` is readable.
pub(crate) fn readable(fd: RawFd) -> PollFd {
    PollFd { fd, events: libc::POLLIN, revents: 0 }
}

/// What the stack calls an event, as poll(2) bits.
fn key_of(events: Events) -> u32 {
    let parts = [
        (Events::READABLE, READABLE),
        (Events::WRITABLE, WRITABLE),
        (Events::READ_CLOSED, READABLE | libc::EPOLLRDHUP as u32),
        (Events::CLOSED, (libc::EPOLLHUP | libc::EPOLLRDHUP) as u32),
        (Events::ERROR, libc::EPOLLERR as u32),
        (Events::URGENT, libc::EPOLLPRI as u32),
    ];
    parts.into_iter().filter(|(event, _)| events.contains(*event)).fold(0, |all, (_, bits)| all | bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fd_table::FdTable;

    #[test]
    fn a_thread_that_alone_is_woken_is_told_from_one_among_others() {
        let table = FdTable::global();
        let own = Waiter::of_this_thread(table).expect("there are numbers");
        let other = std::thread::spawn(move || Waiter::of_this_thread(table)).join().unwrap();
        let other = other.expect("there are numbers");
        let mut wakes = Wakes::default();
        for _ in 0..100 {
            wakes.note(&own);
            wakes.note(&other);
        }
        assert!(!wakes.are_all_for(&own) && !wakes.are_all_for(&other));
        (0..TAKES_OVER).for_each(|_| wakes.note(&own));
        assert!(wakes.are_all_for(&own) && !wakes.are_all_for(&other));
    }
}
