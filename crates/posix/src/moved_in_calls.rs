//! Connections that have become the kernel's while a call used them. The call goes on with the kernel's socket, as it would have on Linux: not
//! with the number that it was given. Another thread may have closed that meanwhile, and what was opened since has it.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use crate::descriptors::internal::Hidden;
use crate::ids::SocketId;
use crate::waiter::{self, Callers, Waiter};

/// Those whose calls are not over.
#[derive(Default)]
pub(crate) struct MovedInCalls(Vec<Moved>);

struct Moved {
    id: SocketId,
    callers: Callers,
    kernel: Hidden,
}

impl MovedInCalls {
    /// A connection has moved, and these calls use it.
    pub(crate) fn enter(&mut self, id: SocketId, callers: Callers, kernel: Hidden) {
        if !callers.is_empty() {
            self.0.push(Moved { id, callers, kernel });
        }
    }

    /// The kernel's socket of a connection that has moved since a call of this thread began to use it; it is there until
    /// [`MovedInCalls::end_call`] of this call, too.
    pub(crate) fn hold(&mut self, id: SocketId) -> Option<RawFd> {
        let moved = self.0.iter_mut().find(|moved| moved.id == id)?;
        let own = moved.callers.0.iter().find(|waiter| waiter.is_own()).map(Arc::clone)?;
        moved.callers.0.push(own);
        Some(moved.kernel.get().as_raw_fd())
    }

    /// Whether a connection has moved since a call of this thread began to use it.
    pub(crate) fn is_used(&self, id: SocketId) -> bool {
        let moved = self.0.iter().find(|moved| moved.id == id);
        moved.is_some_and(|moved| moved.callers.0.iter().any(|waiter| waiter.is_own()))
    }

    /// A call is over.
    pub(crate) fn end_call(&mut self, id: SocketId, is_it: impl Fn(&Waiter) -> bool) {
        let Some(moved) = self.0.iter_mut().find(|moved| moved.id == id) else { return };
        waiter::remove_one(&mut moved.callers.0, is_it);
        self.end_over();
    }

    /// Lets go of those that no call uses any more. A thread may have been cancelled in its call.
    pub(crate) fn end_over(&mut self) {
        self.0.retain(|moved| !moved.callers.is_empty());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In a child, which has none of the calls: the descriptors go with all that are our own.
    pub(crate) fn forget(&mut self) {
        std::mem::forget(std::mem::take(&mut self.0));
    }
}
