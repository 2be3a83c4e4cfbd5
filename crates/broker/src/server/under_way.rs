//! Requests in the hands of helpers, whose answer must wait for them.
//!
//! Meanwhile no further request of the client is read, so that its requests are carried out in order.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use clock::Instant;
use rustix::event::{EventfdFlags, eventfd};

use super::outcome::Outcome;
use crate::registry::ClientId;

/// What the broker does when a helper has done its part, or a half of it.
type Rest<B> = Box<dyn FnOnce(&mut B, Instant) -> Outcome + Send>;
type Step<B> = Box<dyn FnOnce(&mut B, Instant) + Send>;

/// Clients of a broker `B` whose requests helpers work on.
pub(super) struct UnderWay<B> {
    until: BTreeMap<ClientId, Instant>,
    said: Receiver<(Option<ClientId>, Said<B>)>,
    sender: Sender<(Option<ClientId>, Said<B>)>,
    /// Readable when a helper has said something.
    wake: Arc<OwnedFd>,
}

/// What a helper says.
pub(super) enum Said<B> {
    /// It needs something of the broker, and waits for it.
    Asks(Step<B>),
    /// It has done its part of the request with this number.
    Finished(u64, Rest<B>),
}

/// A helper's line to the broker's thread, while it works for a client.
pub(super) struct BrokerThread<B> {
    /// `None`: for nobody who waits.
    client: Option<ClientId>,
    sender: Sender<(Option<ClientId>, Said<B>)>,
    wake: Arc<OwnedFd>,
}

impl<B: 'static> BrokerThread<B> {
    /// Has the broker do something, and waits for that: the broker itself waits for no helper. `None` if the client is gone, or the broker
    /// has ended.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut B, Instant) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = channel();
        self.say(Said::Asks(Box::new(move |broker, now| {
            let _ = answer.send(question(broker, now)); // It waits.
        })));
        answered.recv().ok()
    }

    pub(super) fn say(&self, what: Said<B>) {
        let _ = self.sender.send((self.client, what)); // The broker may have ended.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes()); // Only fails if it is to wake already.
    }
}

impl<B> UnderWay<B> {
    pub(super) fn new() -> io::Result<UnderWay<B>> {
        let (sender, said) = channel();
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok(UnderWay { until: BTreeMap::new(), said, sender, wake })
    }

    /// Readable when there is something for [`UnderWay::next`].
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Whether a request of this client is worked on.
    pub(super) fn has(&self, client: ClientId) -> bool {
        self.until.contains_key(&client)
    }

    /// Whether a request of anybody's is worked on.
    pub(super) fn is_busy(&self) -> bool {
        !self.until.is_empty()
    }

    /// Helpers have so much time for a request of this client.
    pub(super) fn set_deadline(&mut self, client: ClientId, until: Instant) {
        self.until.insert(client, until);
    }

    /// What a helper has said, and for which client.
    pub(super) fn next(&mut self) -> Option<(Option<ClientId>, Said<B>)> {
        self.said.try_recv().ok()
    }

    /// A client is gone; what was done for it is for nothing.
    pub(super) fn forget(&mut self, client: ClientId) {
        self.until.remove(&client);
    }

    /// The requests that have waited too long.
    pub(super) fn overdue(&self, now: Instant) -> Vec<ClientId> {
        self.until.iter().filter(|(_, until)| now >= **until).map(|(client, _)| *client).collect()
    }

    /// When the first request times out.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.until.values().copied().min()
    }

    pub(super) fn line_for(&self, client: ClientId) -> BrokerThread<B> {
        BrokerThread { client: Some(client), ..self.line_for_nobody() }
    }

    /// For what is done whether a client waits for it or not.
    pub(super) fn line_for_nobody(&self) -> BrokerThread<B> {
        BrokerThread { client: None, sender: self.sender.clone(), wake: Arc::clone(&self.wake) }
    }
}
