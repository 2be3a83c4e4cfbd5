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
use super::connection::Fault;
use super::requests::Outcome;
use crate::registry::ClientId;

/// How long a client waits for what is done in microseconds if nobody is in the way; then it is disconnected. Its library gives up a
/// second later.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the broker does when a helper has done its part, or a half of it.
type Rest = Box<dyn FnOnce(&mut Broker, Instant) -> Outcome + Send>;
type Step = Box<dyn FnOnce(&mut Broker, Instant) + Send>;

/// Clients whose requests helpers work on.
pub(super) struct UnderWay {
    until: BTreeMap<ClientId, Instant>,
    said: Receiver<(ClientId, Said)>,
    sender: Sender<(ClientId, Said)>,
    /// Readable when a helper has said something.
    wake: Arc<OwnedFd>,
}

/// What a helper says.
enum Said {
    /// It needs something of the broker, and waits for it.
    Asks(Step),
    /// It has done its part of the request with this number.
    Finished(u64, Rest),
}

/// A helper's line to the broker's thread, while it works for a client.
pub(super) struct BrokerThread {
    client: ClientId,
    sender: Sender<(ClientId, Said)>,
    wake: Arc<OwnedFd>,
}

impl BrokerThread {
    /// Has the broker do something, and waits for that: the broker itself waits for no helper. `None` if the client is gone, or the broker
    /// has ended.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Broker, Instant) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = channel();
        self.say(Said::Asks(Box::new(move |broker, now| {
            let _ = answer.send(question(broker, now)); // It waits.
        })));
        answered.recv().ok()
    }

    fn say(&self, what: Said) {
        let _ = self.sender.send((self.client, what)); // The broker may have ended.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes()); // Only fails if it is to wake already.
    }
}

impl UnderWay {
    pub(super) fn new() -> io::Result<UnderWay> {
        let (sender, said) = channel();
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok(UnderWay { until: BTreeMap::new(), said, sender, wake })
    }

    /// Readable when there is something for [`Broker::hear_helpers`].
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
    fn overdue(&self, now: Instant) -> Vec<ClientId> {
        self.until.iter().filter(|(_, until)| now >= **until).map(|(client, _)| *client).collect()
    }

    /// When the first request times out.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.until.values().copied().min()
    }

    fn line_for(&self, client: ClientId) -> BrokerThread {
        BrokerThread { client, sender: self.sender.clone(), wake: Arc::clone(&self.wake) }
    }
}

impl Broker {
    /// Has a helper work on what a client asks for; what `then` makes of the result is the answer to the request `id`.
    pub(super) fn set_aside<T: Send + 'static>(
        &mut self,
        (client, id): (ClientId, u64),
        work: impl FnOnce(&BrokerThread) -> T + Send + 'static,
        then: impl FnOnce(&mut Broker, T, Instant) -> Outcome + Send + 'static,
        now: Instant,
    ) -> Outcome {
        self.under_way.until.insert(client, now + PATIENCE);
        let line = self.under_way.line_for(client);
        self.helpers.have_done(self.user_of(client), move || {
            let result = work(&line);
            line.say(Said::Finished(id, Box::new(move |broker, now| then(broker, result, now))));
        });
        Ok(None)
    }

    /// Does what helpers need, and answers what they have finished. What was done for a client that is gone is for nothing.
    pub(super) fn hear_helpers(&mut self, now: Instant) {
        let _ = rustix::io::read(self.under_way.fd(), &mut [0; 8]); // Never blocks; the count does not matter.
        while let Ok((client, said)) = self.under_way.said.try_recv() {
            match said {
                _ if !self.under_way.has(client) => {}
                Said::Asks(step) => step(self, now),
                Said::Finished(id, then) => {
                    self.under_way.forget(client);
                    let outcome = then(self, now);
                    let outcome = self.conclude(client, id, outcome, now);
                    self.note(client, outcome, now);
                }
            }
        }
    }

    /// Disconnects clients whose requests helpers did not get done. Those who wait for others of their user, of whose some are done, wait on.
    pub(super) fn end_what_is_overdue(&mut self, now: Instant) {
        for client in self.under_way.overdue(now) {
            match self.helpers.has_progress(self.user_of(client)) {
                true => drop(self.under_way.until.insert(client, now + PATIENCE)),
                false => self.disconnect(client, &Fault::HoldsUp, now),
            }
        }
    }
}
