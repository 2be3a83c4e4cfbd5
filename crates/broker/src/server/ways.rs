//! The ways to peers.

use std::net::IpAddr;

use clock::Instant;

use super::broker::Broker;
use super::outcome::Outcome;
use crate::protocol::Answer;
use crate::registry::ClientId;

impl Broker {
    pub(super) fn route(
        &mut self,
        client: ClientId,
        id: u64,
        remote: IpAddr,
        from: Option<IpAddr>,
        now: Instant,
    ) -> Outcome {
        let mirror = self.monitor.mirror();
        self.routes.begin((client, id), (remote, from), &self.ports, mirror, now)?;
        self.registry.on_connecting(client, now);
        self.settle_registry(now); // It has its queues before it has the way.
        self.answer_routes(now); // The neighbour is known more often than not.
        Ok(None)
    }

    /// Answers the requests whose route is known by now.
    pub(super) fn answer_routes(&mut self, now: Instant) {
        for mut found in self.routes.settle(&self.ports, self.monitor.mirror(), now) {
            if let Ok(route) = &mut found.outcome {
                route.all_queues_yours = self.registry.has_all_queues(found.client, route.link);
            }
            let answer = found.outcome.map(Answer::Route);
            let outcome = self.answer(found.client, found.id, answer, Vec::new());
            self.note(found.client, outcome, now);
        }
    }
}
