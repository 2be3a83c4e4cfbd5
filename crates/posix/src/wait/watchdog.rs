//! A thread that drives the engine while the program does not, because it computes or sleeps in a call that is not ours.
//!
//! Every millisecond it checks whether a thread has made a turn. If not, and no driver sleeps, it makes one. After some
//! time without events it sleeps on the devices itself, as the driver.

use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU32, Ordering};
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
/// It is woken to end at once, so waiting for it is safe.
const RELIEF_MAX: clock::Duration = clock::Duration::from_millis(500);

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
        own_thread::start("sidestep", 64 << 10, || process.look_after());
    }

    fn look_after(&self) {
        let mut seen = self.turns.load(Ordering::Relaxed);
        let mut patience = PATIENCE;
        let mut looks = 0;
        loop {
            self.rest(patience, seen);
            let turns = self.turns.load(Ordering::Relaxed);
            let is_driven = std::mem::replace(&mut seen, turns) != turns;
            if is_driven {
                (patience, looks) = (PATIENCE, 0);
                continue;
            }
            let mut state = self.lock();
            if state.is_left() {
                drop(state);
                sleep_for_ever();
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

    /// Waits until it does not sleep on anything of ours any more.
    pub(crate) fn relieve_watchdog(&self) {
        let until = self.now() + RELIEF_MAX;
        while self.lock().queue.is_stood_in_for() && self.now() < until {
            syscall::futex_wait(&AtomicU32::new(0), 0, Some(PATIENCE));
        }
    }

    /// Sleeps; if it dozes, until the count of turns is another.
    fn rest(&self, patience: Duration, turns: u32) {
        if patience < DOZE {
            return syscall::futex_wait(&AtomicU32::new(0), 0, Some(patience));
        }
        self.dozes.store(true, Ordering::Relaxed);
        syscall::futex_wait(&self.turns, turns, Some(patience));
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
            (self.turns.load(Ordering::Relaxed) != turns || state.is_left()).then_some(())
        });
    }
}

/// There will be nothing to look after any more. To end would take system calls, which the program may have forbidden.
fn sleep_for_ever() -> ! {
    loop {
        syscall::futex_wait(&AtomicU32::new(0), 0, None);
    }
}
