//! Queries to engines: one piece in each turn.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use clock::Instant;
use engine::EngineHandle;
use stack::Stack;

/// How long an engine may take for one piece. A turn takes microseconds. An engine inside an unmodified program runs only during the
/// program's calls.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why an engine does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// It has no stack, or has ended.
    NoStack,
    /// It does not answer in time.
    NoAnswer,
}

impl Silence {
    /// For people.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Silence::NoStack => "it has no stack",
            Silence::NoAnswer => "it does not answer",
        }
    }
}

/// The result of `look` on the engine's stack. It is called between two turns, and must be short.
pub(super) fn ask<T: Send + 'static>(
    engine: &EngineHandle,
    look: impl FnOnce(&Stack, Instant) -> T + Send + 'static,
) -> Result<T, Silence> {
    let (sender, receiver) = sync_channel(1);
    engine.with_stack(move |stack, now| {
        let _ = sender.send(look(stack, now)); // Whoever asked may have lost patience.
    });
    receiver.recv_timeout(PATIENCE).map_err(|error| match error {
        RecvTimeoutError::Disconnected => Silence::NoStack,
        RecvTimeoutError::Timeout => Silence::NoAnswer,
    })
}
