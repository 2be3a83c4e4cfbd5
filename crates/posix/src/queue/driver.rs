//! The thread that sleeps on the devices for all others.

use std::sync::Arc;

use clock::Instant;

use crate::waiter::Waiter;

/// How often in a row a thread is woken by the driver before it drives itself.
const TAKES_OVER: u32 = 8;

/// The thread that sleeps for all.
pub(crate) struct Driver {
    pub(crate) waiter: Arc<Waiter>,
    /// When its sleep ends though nothing comes; `None`: never.
    pub(crate) until: Option<Instant>,
    /// It is the watchdog, until a thread of the program sleeps.
    pub(crate) stands_in: bool,
}

/// The thread that others told last that something had come, and how often in a row it was the same.
#[derive(Default)]
pub(crate) struct Wakes(Option<(Arc<Waiter>, u32)>);

impl Wakes {
    pub(crate) fn note(&mut self, waiter: &Arc<Waiter>) {
        let before = self.0.take().filter(|(last, _)| Arc::ptr_eq(last, waiter));
        self.0 = Some((Arc::clone(waiter), before.map_or(0, |(_, count)| count).saturating_add(1)));
    }

    /// The same for the calling thread.
    pub(crate) fn are_for_caller(&self) -> bool {
        self.0.as_ref().is_some_and(|(last, count)| *count >= TAKES_OVER && last.is_own())
    }

    /// Whether all packets are for this thread, so that who sleeps for it is only in its way.
    pub(crate) fn are_all_for(&self, waiter: &Arc<Waiter>) -> bool {
        self.0.as_ref().is_some_and(|(last, count)| *count >= TAKES_OVER && Arc::ptr_eq(last, waiter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_alone_is_woken_is_told_from_one_among_others() {
        let own = Waiter::of_this_thread().expect("it has not ended");
        let other = std::thread::spawn(Waiter::of_this_thread).join().unwrap();
        let other = other.expect("it has not ended");
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
