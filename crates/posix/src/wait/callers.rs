//! Threads whose calls use a socket or an epoll instance: it lives until they are over.

use std::sync::Arc;

use clock::Instant;

use crate::process::State;
use crate::wait::on::On;
use crate::waiter;
use crate::waiter::{Callers, Waiter};

impl State {
    /// A call of this thread gives the lock up, and is to find what it waits on when it comes back. Returns what
    /// [`State::end_call`] wants.
    pub(crate) fn begin_call(&mut self, on: On<'_>) -> Option<Arc<Waiter>> {
        let callers = self.callers(on)?;
        let waiter = Waiter::of_this_thread()?;
        callers.0.retain(|other| !other.is_gone());
        callers.0.push(Arc::clone(&waiter));
        Some(waiter)
    }

    /// The call is over.
    pub(crate) fn end_call(&mut self, on: On<'_>, waiter: Option<&Arc<Waiter>>, now: Instant) {
        let Some(waiter) = waiter else { return };
        if let Some(callers) = self.callers(on) {
            waiter::remove(&mut callers.0, waiter);
        } else if let On::Socket(id, _) = on {
            self.moved_in_calls.end_call(id, Waiter::is_own);
        }
        if !self.closing.is_empty() {
            self.end_closed(now);
        }
    }

    fn callers(&mut self, on: On<'_>) -> Option<&mut Callers> {
        match on {
            On::Socket(id, _) => self.sockets.get_mut(id).map(|socket| &mut socket.callers),
            On::Epoll(id) => self.epolls.get_mut(id).map(|epoll| &mut epoll.callers),
            On::Many(..) => None,
        }
    }
}
