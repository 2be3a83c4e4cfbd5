//! Connections that a child has from its parent, and wants: the processes that may have them are asked, one after the other.

use std::net::SocketAddr;

use clock::Instant;

use super::broker::Broker;
use super::helpers::Theirs;
use super::outcome::Outcome;
use super::questions::Question;
use crate::protocol::{Answer, FromBroker, KEYS_MAX, Key, News, Refusal};
use crate::registry::ClientId;

impl Broker {
    /// Asks for a connection that a client has from one of the processes with these keys.
    pub(super) fn inherit(
        &mut self,
        (client, id): (ClientId, u64),
        keys: &[Key],
        ends: (SocketAddr, SocketAddr),
        now: Instant,
    ) -> Outcome {
        let holders = self.holders(client, keys);
        if holders.is_empty() && self.awaits_returns() {
            let keys = keys.iter().take(KEYS_MAX).copied().collect();
            let is_kept = self.questions.ask_early((client, id), keys, ends, now);
            return is_kept.then_some(None).ok_or(Refusal::NoParent);
        }
        let question = self.questions.ask((client, id), holders, ends, now);
        self.tell_holder(question.ok_or(Refusal::NoParent)?, now);
        Ok(None)
    }

    /// Whether programs have queues of a killed broker, and have not come back to this one yet.
    fn awaits_returns(&self) -> bool {
        self.ports.iter().any(|port| !self.registry.queues_left(port.link).is_empty())
    }

    /// Asks what children wanted before their parents were back, if these are by now, or have not come in time.
    pub(super) fn ask_what_was_early(&mut self, now: Instant) {
        if !self.questions.has_early() {
            return;
        }
        let keys: Vec<Key> = self.connections.values().map(|connection| connection.key).collect();
        let due = self.questions.take_early(now, |early| early.keys.iter().any(|key| keys.contains(key)));
        for early in due {
            let ((client, id), holders) = (early.asker, self.holders(early.asker.0, &early.keys));
            match self.questions.ask((client, id), holders, early.ends, now) {
                Some(question) => self.tell_holder(question, now),
                None => {
                    let outcome = self.answer(client, id, Err(Refusal::NoParent), Vec::new());
                    self.note(client, outcome, now);
                }
            }
        }
    }

    /// The clients with these keys. A client that does not read its messages is not asked.
    fn holders(&self, asker: ClientId, keys: &[Key]) -> Vec<ClientId> {
        let holder = |key: &Key| {
            let mut others = self.connections.iter().filter(|(other, _)| **other != asker);
            others.find(|(_, connection)| connection.key == *key && connection.is_patient())
        };
        keys.iter().take(KEYS_MAX).filter_map(holder).map(|(holder, _)| *holder).collect()
    }

    fn tell_holder(&mut self, question: Question, now: Instant) {
        let Question { token, holder, local, remote, .. } = question;
        self.tell(holder, News::ChildAsks { token, local, remote }, Vec::new(), now);
    }

    /// Passes the holder's answer to the client that asked, or asks the next one; returns whether a client had asked.
    pub(super) fn answer_question(
        &mut self,
        holder: ClientId,
        token: u64,
        socket: Option<Theirs>,
        now: Instant,
    ) -> bool {
        let Some(question) = self.questions.close(token, holder) else { return false };
        let (asker, id) = (question.asker, question.id);
        match socket {
            Some(socket) => {
                self.send_and_close((asker, FromBroker::Ahead { id }), socket, move |broker, unsent, now| {
                    let outcome = broker.answer(asker, id, Ok(Answer::Moved), unsent);
                    broker.note(asker, outcome, now);
                })
            }
            None => self.ask_on(question, now),
        }
        true
    }

    /// Asks the next client that may have the connection, if there is one.
    pub(super) fn ask_on(&mut self, question: Question, now: Instant) {
        let (asker, id) = (question.asker, question.id);
        match self.questions.ask_next(question, now) {
            Some(next) if self.is_patient(next.holder) => self.tell_holder(next, now),
            Some(next) => {
                // A client with many unread questions is not asked more; otherwise any client could have it disconnected.
                self.questions.close(next.token, next.holder);
                self.ask_on(next, now);
            }
            None => {
                let outcome = self.answer(asker, id, Err(Refusal::NoParent), Vec::new());
                self.note(asker, outcome, now);
            }
        }
    }
}
