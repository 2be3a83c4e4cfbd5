//! The interface of applications on an engine's stack.

use clock::Instant;
use stack::{Event, Stack};

/// A program on sockets of an engine's stack. It runs between two bursts of packets and must not block; what it cannot do
/// yet, an event tells when it can.
///
/// The order of calls: [`Application::on_start`] once, then in each turn [`Application::on_timeout`], and
/// [`Application::on_event`] for what the packets of the turn brought about. What it sends leaves at the end of the turn.
///
/// Most services want [`crate::TcpServer`], which is one of these.
pub trait Application: Send {
    /// The engine starts: the place to listen and to connect.
    fn on_start(&mut self, stack: &mut Stack, now: Instant);

    /// Something happened on a socket.
    fn on_event(&mut self, event: Event, stack: &mut Stack, now: Instant);

    /// When to call [`Application::on_timeout`] though no packet comes. Asked before the engine sleeps.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Does what is due. Called often when nothing is due, so it must find that out quickly.
    fn on_timeout(&mut self, _stack: &mut Stack, _now: Instant) {}

    /// The engine is to end: the place to close listeners, and to finish or close connections. It goes on until peers have
    /// acknowledged what was queued, or [`crate::Config::linger`] is over; events are still told meanwhile.
    fn on_stop(&mut self, _stack: &mut Stack, _now: Instant) {}
}

/// For engines without a stack. There is no value of this type.
#[derive(Clone, Copy, Debug)]
pub enum NoApplication {}

impl Application for NoApplication {
    fn on_start(&mut self, _: &mut Stack, _: Instant) {
        match *self {}
    }

    fn on_event(&mut self, _: Event, _: &mut Stack, _: Instant) {
        match *self {}
    }
}
