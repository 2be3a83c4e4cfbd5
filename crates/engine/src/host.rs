//! The stack of an engine and the application on it.

use clock::Instant;
use stack::Stack;

use crate::application::Application;

/// Events told in one turn. Those behind them have the next one, so that packets are never waiting long.
const EVENTS_MAX: usize = 256;

pub(crate) struct Host<A> {
    pub(crate) stack: Stack,
    pub(crate) application: A,
}

impl<A: Application> Host<A> {
    pub(crate) fn new(stack: Stack, application: A) -> Host<A> {
        Host { stack, application }
    }

    pub(crate) fn start(&mut self, now: Instant) {
        self.application.on_start(&mut self.stack, now);
    }

    pub(crate) fn stop(&mut self, now: Instant) {
        self.application.on_stop(&mut self.stack, now);
    }

    /// Lets timers expire and the application act; returns the number of events.
    pub(crate) fn act(&mut self, now: Instant) -> usize {
        self.stack.on_timeout(now);
        self.application.on_timeout(&mut self.stack, now);
        let mut told = 0;
        while told < EVENTS_MAX
            && let Some(event) = self.stack.poll_event()
        {
            self.application.on_event(event, &mut self.stack, now);
            told += 1;
        }
        told
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        [self.stack.poll_timeout(), self.application.poll_timeout()].into_iter().flatten().min()
    }
}
