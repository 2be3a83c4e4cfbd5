//! A probe's questions, and when each is asked.

use std::net::SocketAddr;

use dns_guard::Networks;
use dns_message::{add_to_count, push_record, question_message};
use dns_wire::header::flag;
use dns_wire::{Class, Name, NameBuf, Rtype};

use crate::authority::{Condition, Nonce, Spec, Via};
use crate::edns;

/// AD in a query: the client wants to know whether data is authentic (RFC 6840, 5.7).
const AD: u16 = 0x0020;

/// The OPT record of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edns {
    /// The largest answer over UDP.
    pub payload: u16,
    /// DO.
    pub dnssec_ok: bool,
    /// Code and data of each option.
    pub options: Vec<(u16, Vec<u8>)>,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// QNAME in its spelling.
    pub name: NameBuf,
    /// QTYPE.
    pub qtype: Rtype,
    /// QCLASS.
    pub class: Class,
    /// RD, CD, AD.
    pub flags: u16,
    /// None: without an OPT record.
    pub edns: Option<Edns>,
    /// Which of the addresses of this host asks; the default one for those that it does not have.
    pub source: usize,
}

impl Question {
    /// One that desires recursion, with EDNS.
    #[must_use]
    pub fn new(name: NameBuf, qtype: Rtype) -> Question {
        let edns = Edns { payload: 1232, dnssec_ok: false, options: Vec::new() };
        Question { name, qtype, class: Class::IN, flags: flag::RD, edns: Some(edns), source: 0 }
    }

    /// The same with an option of EDNS.
    #[must_use]
    pub fn with_option(mut self, code: u16, data: Vec<u8>) -> Question {
        if let Some(edns) = &mut self.edns {
            edns.options.push((code, data));
        }
        self
    }

    /// The same with DO and AD set.
    #[must_use]
    pub fn with_dnssec(mut self) -> Question {
        if let Some(edns) = &mut self.edns {
            edns.dnssec_ok = true;
        }
        self.flags |= AD;
        self
    }

    /// The message.
    #[must_use]
    pub fn message(&self, id: u16) -> Vec<u8> {
        let mut message = question_message(id, self.flags, self.name.as_name(), self.qtype);
        let class = message.len() - 2;
        message[class..].copy_from_slice(&self.class.0.to_be_bytes());
        if let Some(edns) = &self.edns {
            let data: Vec<u8> =
                edns.options.iter().flat_map(|(code, data)| edns::option(*code, data)).collect();
            let ttl = if edns.dnssec_ok { edns::DO } else { 0 };
            push_record(&mut message, Name::ROOT, Rtype::OPT, Class(edns.payload), ttl, &data);
            add_to_count(&mut message, 2, 1);
        }
        message
    }
}

/// A question, and when it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Milliseconds since the start of the plan. A bound of rate may make it later.
    pub at_ms: u64,
    /// Which questions belong together: what the judge looks for.
    pub group: String,
    /// How.
    pub via: Via,
    /// What.
    pub question: Question,
    /// How often a question over UDP is sent at most, each time with a new ID and [`REPEAT_MS`] after the last: one lost datagram says nothing
    /// about a resolver.
    pub tries: u32,
    /// How long to wait for an answer, from the first time on.
    pub patience_ms: u64,
    /// Whether the certificate has to be good, where there is one.
    pub is_verified: bool,
}

/// A name that the user gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The name.
    pub name: NameBuf,
    /// Where its addresses lie, if the user said so.
    pub expected: Option<Networks>,
}

/// What a probe may be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Seconds that answers of the probes of time are good for.
    pub ttl_s: u32,
    /// Names that are asked for to see whether their answers are changed on the way.
    pub names: Vec<Given>,
    /// Questions of the probes that count.
    pub samples: u32,
    /// Of each server of the audit zone, as it says itself; none if it was not asked.
    pub conditions: Vec<Condition>,
    /// The zone's parent has a DS record for it.
    pub is_signed: bool,
    /// Addresses of this host to ask from.
    pub sources: usize,
    /// Ask over TLS, HTTPS and QUIC, too.
    pub encrypted: bool,
    /// This host is not among the resolver's clients, and should get no recursion.
    pub is_outside: bool,
    /// Where clients of this network are: ISO 3166-1, two letters.
    pub country: Option<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            ttl_s: 5,
            names: Vec::new(),
            samples: 20,
            conditions: Vec::new(),
            is_signed: false,
            sources: 1,
            encrypted: true,
            is_outside: false,
            country: None,
        }
    }
}

/// Makes a plan.
pub struct Planner<'a> {
    zone: Name<'a>,
    /// Who is asked, where that matters.
    pub target: SocketAddr,
    /// What the probe may be told.
    pub options: &'a Options,
    nonce: Nonce,
    start_ms: u64,
    next_number: u32,
    steps: Vec<Step>,
}

/// A question without an answer is sent again after so long.
pub const REPEAT_MS: u64 = 1500;
/// How often a question is sent, where nothing else is said: as often as there is time for.
const TRIES: u32 = (PATIENCE_MS / REPEAT_MS) as u32;
/// An answer is waited for so long, where nothing else is said: longer than the time after which most resolvers give up.
const PATIENCE_MS: u64 = 6000;

impl<'a> Planner<'a> {
    /// A plan that begins at `start_ms`, by the authority's clock, for names of the run `nonce`.
    #[must_use]
    pub fn new(
        zone: Name<'a>,
        target: SocketAddr,
        options: &'a Options,
        nonce: Nonce,
        start_ms: u64,
    ) -> Planner<'a> {
        Planner { zone, target, options, nonce, start_ms, next_number: 0, steps: Vec::new() }
    }

    /// TTL of the names of probes of time, in milliseconds.
    #[must_use]
    pub fn ttl_ms(&self) -> u64 {
        u64::from(self.options.ttl_s) * 1000
    }

    /// The next name's behaviour, with good answers so far. Each name has a number of its own.
    pub fn spec(&mut self, ttl_s: u32) -> Spec {
        self.next_number += 1;
        Spec::new(self.nonce, self.next_number, self.start_ms, ttl_s)
    }

    /// The name of a behaviour.
    #[must_use]
    pub fn name(&self, spec: &Spec) -> NameBuf {
        self.name_below(&[spec.to_string().as_bytes()])
    }

    /// A name of these labels, the first in front.
    #[must_use]
    pub fn name_below(&self, labels: &[&[u8]]) -> NameBuf {
        let mut name = NameBuf::from(self.zone);
        for label in labels.iter().rev() {
            let _ = name.prepend(label); // The zone is short enough: checked when it is given.
        }
        name
    }

    /// Asks the resolver for a name over UDP.
    pub fn ask(&mut self, group: &str, at_ms: u64, name: &NameBuf, qtype: Rtype) -> &mut Step {
        self.ask_question(group, at_ms, Question::new(name.clone(), qtype))
    }

    /// Asks the resolver a question over UDP.
    pub fn ask_question(&mut self, group: &str, at_ms: u64, question: Question) -> &mut Step {
        self.steps.push(Step {
            at_ms,
            group: group.to_owned(),
            via: Via::Udp,
            question,
            tries: TRIES,
            patience_ms: PATIENCE_MS,
            is_verified: true,
        });
        self.steps.last_mut().expect("one was pushed")
    }

    /// When the last question so far is asked.
    #[must_use]
    pub fn last_ms(&self) -> Option<u64> {
        self.steps.iter().map(|step| step.at_ms).max()
    }

    /// The questions in the order of their times.
    #[must_use]
    pub fn finish(mut self) -> Vec<Step> {
        self.steps.sort_by_key(|step| step.at_ms);
        self.steps
    }
}
