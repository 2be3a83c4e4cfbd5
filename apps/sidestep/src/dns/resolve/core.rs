//! What judges questions and answers them, whatever way they came.

use std::net::SocketAddr;

use clock::Instant;
use dns_log::{Entry, Transport, Writer};
use dns_resolver::{ClientId, KnownAnswer, Resolver};

use super::front::{Front, Verdict, Way};
use crate::dns::encrypted_server;

pub(super) struct Core {
    pub(super) front: Front,
    pub(super) resolver: Resolver,
    /// Where answers are noted, if they are.
    pub(super) log: Option<Writer>,
    /// As of the start of this turn.
    pub(super) unix_secs: u64,
}

/// A question, until it is answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) client: SocketAddr,
    pub(super) way: Way,
    pub(super) at: Instant,
}

/// What happens to a question.
pub(super) enum Judged<'r> {
    /// Its answer is known.
    Known(KnownAnswer<'r>),
    Open(Verdict),
}

impl Core {
    /// Judges the question in `octets`, and answers it if that takes no more than a look.
    pub(super) fn judge(&mut self, asked: Asked, octets: &[u8]) -> Judged<'_> {
        let verdict = self.judge_open(asked, octets);
        if matches!(&verdict, Verdict::Ask(terms) if terms.are_plain())
            && let Some(known) = self.resolver.recall(octets, asked.at)
        {
            return Judged::Known(known);
        }
        Judged::Open(verdict)
    }

    /// Judges the question in `octets`, which may be anything.
    pub(super) fn judge_open(&mut self, asked: Asked, octets: &[u8]) -> Verdict {
        self.front.judge(asked.client.ip(), asked.way, octets, asked.at, self.unix_secs)
    }

    /// Takes in a question that is to be answered.
    pub(super) fn hand_in(&mut self, client: ClientId, verdict: Verdict, octets: &[u8], now: Instant) {
        match verdict {
            Verdict::Ask(terms) => self.resolver.on_query(client, terms, octets, now),
            Verdict::Refuse(terms, refusal) => self.resolver.refuse(client, terms, octets, refusal),
            Verdict::Drop => {}
        }
    }

    /// Notes an answer in the log, if there is one.
    pub(super) fn log(&mut self, asked: Asked, message: &[u8], now: Instant) {
        let Some(log) = self.log.as_mut().filter(|_| !message.is_empty()) else { return };
        log.note(&Entry {
            time_ns: log.now(),
            took_ns: Some(now.since(asked.at).as_nanos()),
            transport: transport(asked.way),
            client: asked.client,
            server: None,
            message,
        });
    }
}

fn transport(way: Way) -> Transport {
    match way {
        Way::Udp => Transport::Udp,
        Way::Tcp => Transport::Tcp,
        Way::Encrypted(via) => encrypted_server::transport(via),
    }
}
