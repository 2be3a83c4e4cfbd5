//! Has helpers work on requests, and answers what they have finished.

use clock::{Duration, Instant};

use super::broker::Broker;
use super::connection::Fault;
use super::outcome::Outcome;
use super::under_way::{BrokerThread, Said};
use crate::registry::ClientId;

/// How long a client waits for what is done in microseconds if nobody is in the way; then it is disconnected. Its library gives up a
/// second later.
const PATIENCE: Duration = Duration::from_secs(2);
/// The same for what copies up to 64 MiB, for which libraries wait a minute.
pub(super) const PATIENCE_TO_MOVE: Duration = Duration::from_secs(50);

impl Broker {
    /// Has a helper work on what a client asks for; what `then` makes of the result is the answer to the request `id`.
    pub(super) fn set_aside<T: Send + 'static>(
        &mut self,
        (client, id): (ClientId, u64),
        work: impl FnOnce(&BrokerThread<Broker>) -> T + Send + 'static,
        then: impl FnOnce(&mut Broker, T, Instant) -> Outcome + Send + 'static,
        now: Instant,
    ) -> Outcome {
        self.under_way.set_deadline(client, now + PATIENCE);
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
        while let Some((client, said)) = self.under_way.next() {
            match said {
                _ if client.is_some_and(|client| !self.under_way.has(client)) => {}
                Said::Asks(step) => step(self, now),
                Said::Finished(id, then) => {
                    let Some(client) = client else { continue };
                    self.under_way.forget(client);
                    let outcome = then(self, now);
                    let outcome = self.conclude(client, id, outcome, now);
                    self.note(client, outcome, now);
                    self.read_the_rest(client, now);
                }
            }
        }
    }

    /// Disconnects clients whose requests helpers did not get done. Those who wait for others of their user, of whose some are done, wait on.
    pub(super) fn end_what_is_overdue(&mut self, now: Instant) {
        for client in self.under_way.overdue(now) {
            match self.helpers.has_progress(self.user_of(client)) {
                true => self.under_way.set_deadline(client, now + PATIENCE),
                false => self.disconnect(client, &Fault::HoldsUp, now),
            }
        }
    }
}
