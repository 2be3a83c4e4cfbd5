//! A thread that drives the engine while the program does not, because it computes or sleeps in a call that is not ours.
//!
//! Every millisecond it checks whether a thread has made a turn. If not, and no driver sleeps, it makes one. After some
//! time without events it sleeps on the devices itself, as the driver.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::own_thread;
use crate::process::{Process, State};
use crate::wait::on::{On, Several, Waiting};

/// How long the program may compute until the watchdog serves its connections.
const PATIENCE: Duration = Duration::from_millis(1);
/// While a driver sleeps, there is no hurry.
const IDLE: Duration = Duration::from_millis(20);

/// After so many looks in which nobody made a turn it sleeps until somebody does, or for a while. Then it makes one itself though
/// there is a driver, which may have left its sleep by siglongjmp(3).
const LOOKS: u32 = 16;
const DOZE: Duration = Duration::from_millis(320);

impl Process {
    /// Starts the thread, once there is something to look after.
    pub(crate) fn start_watchdog(&self, state: &mut MutexGuard<'_, State>) {
        if state.watchdog || state.queue.runtime.is_none() {
            return;
        }
        let Some(process) = crate::global::process().filter(|process| std::ptr::eq(*process, self)) else {
            return; // A test drives its processes itself.
        };
        state.watchdog = true;
        // Without a thread the program's own calls do all: it only may be late.
        state.watchdog_thread = own_thread::start("sidestep", || process.look_after());
    }

    fn look_after(&self) {
        let mut seen = self.turns.load(Ordering::Relaxed);
        let mut patience = PATIENCE;
        let mut looks = 0;
        loop {
            self.rest(patience, seen);
            if self.is_dismissed() {
                return;
            }
            let turns = self.turns.load(Ordering::Relaxed);
            let is_driven = std::mem::replace(&mut seen, turns) != turns;
            if is_driven {
                (patience, looks) = (PATIENCE, 0);
                continue;
            }
            let mut state = self.lock();
            if state.is_left() {
                drop(state);
                return self.await_dismissal();
            }
            if state.has_incident() {
                // The driver sleeps on a descriptor that will not tell.
                state.hear(self.now());
            }
            if state.queue.runtime.is_none() || state.queue.has_driver() {
                // What a thread left behind that wants to come back, and is held up somewhere.
                let now = self.now();
                state.queue.flush_what_is_due(now);
                state.queue.hurry_driver(now);
                if patience == DOZE {
                    state.turn(now);
                    state.queue.rest_with_driver();
                }
                looks = (looks + 1).min(LOOKS);
                patience = if looks == LOOKS { DOZE } else { IDLE };
                continue;
            }
            patience = PATIENCE;
            self.stand_in(state);
            seen = self.turns.load(Ordering::Relaxed);
        }
    }

    /// Ends the thread, until the program next uses a socket of ours.
    pub(crate) fn dismiss_watchdog(&self) {
        let Some(thread) = self.lock().watchdog_thread.take() else { return };
        self.dismissed.store(1, Ordering::SeqCst);
        syscall::futex_wake(&self.dismissed);
        // It may doze, or be about to.
        self.turns.fetch_add(1, Ordering::SeqCst);
        syscall::futex_wake(&self.turns);
        self.lock().queue.wake_driver();
        thread.join();
        self.dismissed.store(0, Ordering::SeqCst);
        self.lock().watchdog = false;
        self.lacks_watchdog.store(true, Ordering::Relaxed);
    }

    /// Ends the thread for good: the program's own calls do all.
    pub(crate) fn end_watchdog(&self) {
        self.dismiss_watchdog();
        self.lacks_watchdog.store(false, Ordering::Relaxed);
        self.lock().watchdog = true; // As if there could be none.
    }

    /// The program uses a socket: if the thread was dismissed, that is over.
    #[inline]
    pub(crate) fn recall_watchdog(&self) {
        if self.lacks_watchdog.load(Ordering::Relaxed) {
            self.lacks_watchdog.store(false, Ordering::Relaxed);
            self.start_watchdog(&mut self.lock());
        }
    }

    fn is_dismissed(&self) -> bool {
        self.dismissed.load(Ordering::SeqCst) != 0
    }

    /// There will be nothing to look after any more. It does not end by itself: who dismisses it waits for the number that it has.
    fn await_dismissal(&self) {
        while !self.is_dismissed() {
            syscall::futex_wait(&self.dismissed, 0, None);
        }
    }

    /// Sleeps; if it dozes, until the count of turns is another.
    fn rest(&self, patience: Duration, turns: u32) {
        if patience < DOZE {
            return syscall::futex_wait(&self.dismissed, 0, Some(patience));
        }
        self.dozes.store(true, Ordering::Relaxed);
        if !self.is_dismissed() {
            syscall::futex_wait(&self.turns, turns, Some(patience));
        }
        self.dozes.store(false, Ordering::Relaxed);
    }

    /// Drives until a thread of the program does again, or for a while.
    fn stand_in(&self, state: MutexGuard<'_, State>) {
        const WHILE: clock::Duration = clock::Duration::from_millis(100);
        let now = self.now();
        let waiting = Waiting {
            on: On::Many(Several::default()),
            deadline: Some(now + WHILE),
            mask: Some(own_thread::BLOCKED),
            restarts: true,
        };
        let mut turns = self.turns.load(Ordering::Relaxed);
        // It ends by time, or after the turn of another.
        let _ = self.wait(state, &waiting, &mut |state, _| {
            turns = turns.wrapping_add(1);
            (self.turns.load(Ordering::Relaxed) != turns || state.is_left() || self.is_dismissed())
                .then_some(())
        });
    }
}
