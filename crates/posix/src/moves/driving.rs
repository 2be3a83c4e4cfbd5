//! Waits for the broker while peers are served: who comes is answered, and does not try elsewhere.

use clock::{Duration, Instant};

use crate::process::State;
use crate::waiter::readable;

/// How long a broker that is stopped is waited for.
const WAITED_WITHIN: Duration = Duration::from_secs(60);
/// Between two looks at what has come of it.
const PAUSE: Duration = Duration::from_millis(5);

impl State {
    /// Drives the engine until something is done. False if the broker has not answered for a minute: then it is tried once and not waited for, until it says
    /// something.
    pub(crate) fn drive_until(&mut self, mut is_done: impl FnMut(&mut State) -> bool) -> bool {
        let until = self.clock.now() + WAITED_WITHIN;
        while !is_done(self) {
            let now = self.clock.now();
            let Some(attachment) = self.attachment().filter(|_| now < until) else {
                self.attachment().into_iter().for_each(|attachment| attachment.give_up());
                return false;
            };
            if attachment.has_given_up() {
                return false;
            }
            if attachment.has_returned() {
                self.claim_all_again();
            }
            self.take_in(now);
            self.pass_on_late();
            self.queue.send_the_rest(now);
            self.await_packets(now, PAUSE);
        }
        true
    }

    /// Sleeps a moment while holding all locks.
    pub(super) fn await_packets(&mut self, now: Instant, most: Duration) {
        let mut devices = Vec::new();
        let sleep = self.queue.runtime.as_mut().map(|it| it.engine.prepare_sleep(now, &mut devices));
        let most = match sleep {
            Some(engine::Sleep::Busy) => return,
            Some(engine::Sleep::Until(at)) => most.min(at.since(now)),
            Some(engine::Sleep::Descriptors | engine::Sleep::Unknown) | None => most,
        };
        let mut fds: Vec<_> = devices.into_iter().map(readable).collect();
        // A signal ends it early, which does no harm.
        let _ = syscall::ppoll(&mut fds, Some(most.into()), None);
    }
}
