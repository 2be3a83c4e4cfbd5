//! Drives the engine from the program's own calls: turns, and sleeping when there is nothing to do.
//!
//! One of the sleeping threads is the *driver*: it sleeps on the devices and the broker for all of them. When it leaves, another
//! one takes its place. A thread that makes a turn wakes the threads whose sockets became ready. If it is always the same one, that one
//! drives from then on, and the others sleep while it works, until something comes for one of them.

use std::sync::MutexGuard;

use clock::Instant;
use syscall::PollFd;

use crate::inside;
use crate::process::{Process, State};
use crate::wait::driver::POLL_EVERY;
use crate::wait::on::{On, Stop, Waiting};
use crate::waiter::{Waiter, readable};

/// Turns that one call makes while there is more and more work, before it looks at its own.
const TURNS_MAX: usize = 4;

impl Process {
    /// Drives the engine until `attempt` has a result.
    pub(crate) fn wait<'p, T>(
        &'p self,
        mut state: MutexGuard<'p, State>,
        waiting: &Waiting<'_>,
        attempt: &mut dyn FnMut(&mut State, Instant) -> Option<T>,
    ) -> Result<T, Stop> {
        let mut interrupted = false;
        let mut spin_until = None;
        // Others can close what this call uses once it gives the lock up; and a connection may move in the first turn already.
        let is_socket = matches!(waiting.on, On::Socket(..));
        let mut call = is_socket.then(|| state.begin_call(waiting.on)).flatten();
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
                state.queue.send_the_rest(now);
            }
            if interrupted || waiting.deadline.is_some_and(|deadline| deadline <= now) {
                state.end_call(waiting.on, call.as_ref(), now);
                state.pass_driving_on(now);
                return Err(if interrupted { Stop::Interrupted } else { Stop::TimedOut });
            }
            call = call.or_else(|| state.begin_call(waiting.on));
            if inside::has_deferred() {
                // A handler does not wait until there is nothing more to do.
                drop(state);
                interrupted = is_end(inside::outside(|| Ok(())), waiting);
                state = self.lock();
                continue;
            }
            let spin_until = *spin_until.get_or_insert(now + state.spin);
            if worked > 0 || now < spin_until {
                if worked == 0 {
                    state.queue.note_spinning();
                }
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
        let mut fds = state.kernel_descriptors(waiting.on);
        let Some(waiter) = Waiter::of_this_thread() else {
            // At its end no thread can wake us: check again soon.
            drop(state);
            let slept = inside::sleep(Some(POLL_EVERY.into()), |time| {
                syscall::ppoll_within(&mut fds, time, waiting.mask)
            });
            return (self.lock(), is_end(slept, waiting));
        };
        if state.has_incident() {
            state.hear(now);
            return (state, false);
        }
        // It may have left its last sleep by longjmp(3), and be listed still.
        state.strike_off(waiting.on, &waiter);
        waiter.settle(&mut state.spare);
        let own = fds.len();
        fds.push(readable(-1));
        let Some(timer) = state.prepare_to_drive(&waiter, waiting.on.is_nothing(), now, &mut fds) else {
            return (state, false);
        };
        state.enlist(waiting.on, &waiter);
        let needs_descriptor = waiting.mask.is_some() || fds.iter().any(|it| it.fd >= 0);
        fds[own].fd = match needs_descriptor {
            true => waiter.descriptor(&mut state.spare, self.table).unwrap_or(-1),
            false => -1,
        };
        // Without a descriptor no thread can wake us: check again soon.
        let look_again = (needs_descriptor && fds[own].fd < 0).then(|| now + POLL_EVERY);
        let end = [timer, waiting.deadline, look_again].into_iter().flatten().min();
        let timeout = end.map(|end| end.since(now).into());
        drop(state);
        let slept = inside::sleep(timeout, |time| match needs_descriptor {
            true => syscall::ppoll_within(&mut fds, time, waiting.mask).map(drop),
            false => waiter.sleep(time),
        });
        let mut state = self.lock();
        state.strike_off(waiting.on, &waiter);
        let by_other = waiter.settle(&mut state.spare);
        state.note_slept(waiting.on, &waiter, by_other);
        if fds[own + 1..].last().is_some_and(|broker| broker.revents != 0) || state.attachment.is_none() {
            let now = self.now();
            state.hear(now);
        }
        if state.kinship.descriptors().next().is_some() {
            state.read_notes();
        }
        (state, is_end(slept, waiting))
    }
}

impl State {
    /// The kernel's descriptors of what a call waits for, with room for what wakes it besides.
    fn kernel_descriptors(&self, on: On<'_>) -> Vec<PollFd> {
        let mut fds = Vec::with_capacity(8);
        match on {
            On::Socket(id, shadow) => {
                let fd = self.sockets.get(id).map_or(-1, |socket| socket.fd());
                fds.extend(shadow.map(|events| PollFd { fd, events, revents: 0 }));
            }
            On::Epoll(id) => fds.push(readable(self.epolls.get(id).map_or(-1, |epoll| epoll.fd()))),
            On::Many(several) => fds.extend_from_slice(several.kernel),
        }
        fds
    }
}

/// Whether what ended a sleep ends the call.
fn is_end<T>(slept: Option<std::io::Result<T>>, waiting: &Waiting<'_>) -> bool {
    let by_signal = match slept {
        Some(Err(error)) => error.kind() == std::io::ErrorKind::Interrupted,
        // Something else may have ended the sleep just before the handler ran, also what the call has no use for; or it ran instead
        // of the sleep. What the call's own mask blocks was handled before or after the call, and is not to end it.
        Some(Ok(_)) | None => inside::has_handled(waiting.mask.unwrap_or(0)),
    };
    by_signal && (!waiting.restarts || inside::interrupted())
}
