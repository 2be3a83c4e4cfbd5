//! Requests in the hands of helpers, whose answer must wait for them.
//!
//! Meanwhile no further request of the client is read, so that its requests are carried out in order.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use clock::{Duration, Instant};
use rustix::event::{EventfdFlags, eventfd};

use super::broker::Broker;
use super::requests::Outcome;
use crate::registry::ClientId;

/// How long a client waits for what is done in microseconds if nobody is in the way; then it is disconnected. Its library gives up a
/// second later.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the broker does when a helper has done its part.
type Rest = Box<dyn FnOnce(&mut Broker, Instant) -> Outcome + Send>;

/// Clients whose requests helpers work on.
pub(super) struct UnderWay {
    until: BTreeMap<ClientId, Instant>,
    finished: Receiver<Finished>,
    sender: Sender<Finished>,
    /// Readable when a helper has finished something.
    wake: Arc<OwnedFd>,
}

/// A helper has done its part.
struct Finished {
    client: ClientId,
    /// The request's number.
    id: u64,
    then: Rest,
}

impl UnderWay {
    pub(super) fn new() -> io::Result<UnderWay> {
        let (sender, finished) = channel();
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok(UnderWay { until: BTreeMap::new(), finished, sender, wake })
    }

    /// Readable when there is something for [`Broker::finish_requests`].
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

    fn take(&mut self) -> Option<Finished> {
        loop {
            let finished = self.finished.try_recv().ok()?;
            if self.until.remove(&finished.client).is_some() {
                return Some(finished);
            }
        }
    }
}

impl Broker {
    /// Has a helper work on what a client asks for; what `then` makes of the result is the answer to the request `id`.
    pub(super) fn set_aside<T: Send + 'static>(
        &mut self,
        (client, id): (ClientId, u64),
        work: impl FnOnce() -> T + Send + 'static,
        then: impl FnOnce(&mut Broker, T, Instant) -> Outcome + Send + 'static,
        now: Instant,
    ) -> Outcome {
        self.under_way.until.insert(client, now + PATIENCE);
        let (sender, wake) = (self.under_way.sender.clone(), Arc::clone(&self.under_way.wake));
        self.helpers.have_done(self.user_of(client), move || {
            let result = work();
            let then = Box::new(move |broker: &mut Broker, now: Instant| then(broker, result, now));
            let _ = sender.send(Finished { client, id, then }); // The broker may have ended.
            let _ = rustix::io::write(&*wake, &1u64.to_ne_bytes()); // Only fails if it is to wake already.
        });
        Ok(None)
    }

    /// Answers what helpers have worked on.
    pub(super) fn finish_requests(&mut self, now: Instant) {
        let _ = rustix::io::read(self.under_way.fd(), &mut [0; 8]); // Never blocks; the count does not matter.
        while let Some(Finished { client, id, then }) = self.under_way.take() {
            let outcome = then(self, now);
            let outcome = self.conclude(client, id, outcome, now);
            self.note(client, outcome, now);
        }
    }
}
