//! The search for the owners of strays.

use std::net::SocketAddr;

use clock::Instant;
use steering::Transport;

use super::broker::Broker;
use super::outcome::{Outcome, done};
use super::strays::Asker;
use crate::protocol::{Answer, DATAGRAM_MAX, News, Refusal};
use crate::registry::ClientId;

impl Broker {
    pub(super) fn look_for_owner(
        &mut self,
        (client, id): Asker,
        (local, remote): (SocketAddr, SocketAddr),
        octets: &[u8],
        now: Instant,
    ) -> Outcome {
        if octets.len() > DATAGRAM_MAX {
            return Err(Refusal::TooMany);
        }
        if !self.registry.covers(client, Transport::Tcp, local) {
            return Err(Refusal::NoSuchClaim);
        }
        if self.handshakes.was_told(client, (local, remote), now) {
            return done(Ok(())); // It learns of it by a message that it has not read yet, and the peer goes on when nothing answers.
        }
        let marks = self.registry.marks(local.port());
        if self.ports.iter().any(|port| port.is_kernel_flow(local, remote, marks)) {
            // It came before the connection moved, to a process that has not run since. Its sender tries again.
            return done(Ok(()));
        }
        let asked = self.registry.siblings(client, local);
        let others_are_away = self.registry.has_clients_away(local);
        if asked.is_empty() && !others_are_away {
            return Err(Refusal::Alone);
        }
        let patient: Vec<ClientId> = asked.iter().copied().filter(|it| self.is_patient(*it)).collect();
        // Who has not come back cannot be asked, so that nobody can say that it is nobody's. Its sender tries again.
        let token = match others_are_away {
            true => Some(self.strays.next_token()),
            false => self.strays.ask((client, id), (local, remote), asked, now),
        };
        let Some(token) = token else { return Err(Refusal::TooMany) };
        // Who has much to read already is not told: this must not be what it is disconnected for. It counts as one that has not answered.
        for sibling in patient {
            let octets = octets.to_vec();
            self.tell(sibling, News::Strayed { token, local, remote, octets }, Vec::new(), now);
        }
        if others_are_away { done(Ok(())) } else { Ok(None) }
    }

    pub(super) fn on_unknown(&mut self, client: ClientId, token: u64, now: Instant) -> Outcome {
        let asker = self.strays.on_unknown(client, token);
        self.settle_strays(asker, Err(Refusal::Nobody), now);
        done(Ok(()))
    }

    /// Answers those who asked for the owner of a connection.
    pub(super) fn settle_strays(
        &mut self,
        askers: impl IntoIterator<Item = Asker>,
        answer: Result<(), Refusal>,
        now: Instant,
    ) {
        for (asker, id) in askers {
            let outcome = self.answer(asker, id, answer.clone().map(|()| Answer::Done), Vec::new());
            self.note(asker, outcome, now);
        }
    }
}
