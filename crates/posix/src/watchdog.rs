//! A thread that drives the engine while the program does not: it computes, or sleeps in a call that is not ours.
//!
//! It looks every millisecond whether somebody made a turn. If nobody did, and nobody sleeps for all, it makes one. After some
//! time in which nothing happened it sleeps on the devices itself, as the driver that is there when no other is.

use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::drive::{On, Waiting};
use crate::own_thread;
use crate::process::{Process, State};

/// How long the program may compute until somebody else looks after its connections.
const PATIENCE: Duration = Duration::from_millis(1);
/// With somebody asleep for all, there is no hurry.
const IDLE: Duration = Duration::from_millis(20);

/// How often it only looks before it makes a turn though there is a driver, which may have left its sleep by siglongjmp(3).
const LOOKS_A_TURN: u32 = 16;

impl Process {
    /// Starts the thread, once there is something to look after.
    pub(crate) fn start_watchdog(&self, state: &mut MutexGuard<'_, State>) {
        if state.watchdog || state.runtime.is_none() {
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
        let never = AtomicU32::new(0);
        let mut seen = self.turns.load(Ordering::Relaxed);
        let mut patience = PATIENCE;
        let mut looks = 0;
        loop {
            syscall::futex_wait(&never, 0, Some(patience));
            let turns = self.turns.load(Ordering::Relaxed);
            let is_driven = std::mem::replace(&mut seen, turns) != turns;
            if is_driven {
                patience = PATIENCE;
                continue;
            }
            let mut state = self.lock();
            if state.has_incident() {
                // The driver sleeps on a descriptor that will not tell.
                state.hear(self.now());
            }
            if state.runtime.is_none() || state.has_driver() {
                // What a thread left behind that wants to come back, and is held up somewhere.
                let now = self.now();
                state.flush_what_is_due(now);
                state.hurry_driver(now);
                looks = (looks + 1) % LOOKS_A_TURN;
                if looks == 0 {
                    state.turn(now);
                }
                patience = IDLE;
                continue;
            }
            patience = PATIENCE;
            self.stand_in(state);
            seen = self.turns.load(Ordering::Relaxed);
        }
    }

    /// Drives until somebody of the program does again, or for a while.
    fn stand_in(&self, state: MutexGuard<'_, State>) {
        const WHILE: clock::Duration = clock::Duration::from_millis(100);
        let now = self.now();
        let sleeping = [];
        let waiting = Waiting {
            on: On::Many(&[], &sleeping),
            deadline: Some(now + WHILE),
            mask: Some(own_thread::BLOCKED),
            restarts: true,
        };
        let mut turns = self.turns.load(Ordering::Relaxed);
        // It ends by time, or after the turn of another.
        let _ = self.wait(state, &waiting, &mut |_, _| {
            turns = turns.wrapping_add(1);
            (self.turns.load(Ordering::Relaxed) != turns).then_some(())
        });
    }
}
