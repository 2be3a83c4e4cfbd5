//! What became of a plan's questions, and how a judge reads it.

use std::net::{IpAddr, SocketAddr};

use dns_message::{Malformed, Message, Question, Record};
use dns_wire::header::flag;
use dns_wire::{Rcode, Rtype};

use crate::authority::{Entry, Spec, made_ms};
use crate::checks::shortened;
use crate::edns;
use crate::plan::{Options, Step};
use crate::presence::Presence;

/// What a resolver says of itself, in octets.
pub(crate) const TEXT_MAX: usize = 200;

/// By how much the authority's clock may be misread.
pub(crate) const CLOCK_SLACK_MS: u64 = 1000;

/// What became of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A message.
    Answer(Vec<u8>),
    /// Nothing in time.
    Silence,
    /// The connection failed, or what came was no answer.
    Failed(String),
    /// An error of this host: the resolver was not asked. Judges never see such an exchange.
    Unsent(String),
}

/// A question, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The step of the plan.
    pub step: Step,
    /// When it was sent for the first time, by the authority's clock: milliseconds since 1970.
    pub sent_ms: u64,
    /// How long it took since then, in microseconds: as long as a client waits.
    pub took_us: u64,
    /// How often it was sent.
    pub sends: u32,
    /// What came.
    pub outcome: Outcome,
}

/// All of a probe's exchanges with one resolver.
pub struct Transcript<'a> {
    /// Who was asked.
    pub target: SocketAddr,
    /// The address of this host that asked, as far as it is known. Others may see another one, where addresses are translated.
    pub client: Option<IpAddr>,
    /// When the plan began, by the authority's clock.
    pub start_ms: u64,
    /// In the order in which they were sent.
    pub exchanges: Vec<Exchange>,
    /// What the authority logged, or why that is not known.
    pub log: Result<Vec<Entry>, String>,
    /// When the authority was there, as others than this resolver saw it.
    pub presence: Presence,
    /// What the plan was made with.
    pub options: &'a Options,
    /// Where addresses are looked up.
    pub networks: &'a dyn crate::networks::Networks,
}

/// An answer, read.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The header's flags.
    pub flags: u16,
    /// With the upper bits of the OPT record.
    pub rcode: u16,
    /// As it came back.
    pub question: Option<Question>,
    /// The answer section.
    pub answers: Vec<Record>,
    /// The authority section.
    pub authority: Vec<Record>,
    /// The largest answer that the server takes, by its OPT record.
    pub payload: Option<u16>,
    /// Options of EDNS.
    pub options: Vec<(u16, Vec<u8>)>,
    /// Octets of the message.
    pub len: usize,
}

/// AD in an answer: the data is authentic (RFC 4035, 3.2.3).
const AD: u16 = 0x0020;

impl Reply {
    /// Reads a message.
    pub fn read(octets: &[u8]) -> Result<Reply, Malformed> {
        let mut message = Message::parse(octets)?;
        let mut reply = Reply {
            flags: message.flags(),
            rcode: message.flags() & 0xf,
            question: message.question().cloned(),
            answers: Vec::new(),
            authority: Vec::new(),
            payload: None,
            options: Vec::new(),
            len: octets.len(),
        };
        let [answers, authority, additional] = message.counts();
        for _ in 0..answers {
            reply.answers.push(message.next_record()?);
        }
        for _ in 0..authority {
            reply.authority.push(message.next_record()?);
        }
        for _ in 0..additional {
            let record = message.next_record()?;
            if record.rtype == Rtype::OPT {
                reply.rcode |= ((record.ttl >> 24) as u16) << 4;
                reply.payload = Some(record.class.0);
                reply.options = edns::options(&record.rdata);
            }
        }
        Ok(reply)
    }

    /// Whether the RCODE is this one.
    #[must_use]
    pub fn is(&self, rcode: Rcode) -> bool {
        self.rcode == rcode as u16
    }

    /// Whether the answer was cut.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.flags & flag::TC != 0
    }

    /// Whether the resolver says that it has validated the data.
    #[must_use]
    pub fn is_authentic(&self) -> bool {
        self.flags & AD != 0
    }

    /// The first record of that type in the answer section.
    #[must_use]
    pub fn record(&self, rtype: Rtype) -> Option<&Record> {
        self.answers.iter().find(|record| record.rtype == rtype)
    }

    /// The addresses in the answer section.
    pub fn addresses(&self) -> impl Iterator<Item = &Record> {
        self.answers.iter().filter(|record| matches!(record.rtype, Rtype::A | Rtype::AAAA))
    }

    /// The data of an option.
    #[must_use]
    pub fn option(&self, code: u16) -> Option<&[u8]> {
        self.options.iter().find(|(own, _)| *own == code).map(|(_, data)| &data[..])
    }

    /// Info codes of extended errors (RFC 8914, 2).
    #[must_use]
    pub fn extended_errors(&self) -> Vec<u16> {
        let own = self.options.iter().filter(|(code, _)| *code == edns::EXTENDED_ERROR);
        own.filter_map(|(_, data)| data.first_chunk().map(|code| u16::from_be_bytes(*code))).collect()
    }

    /// The strings of the first TXT record, as text; a long one is cut.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        self.record(Rtype::TXT).map(|record| shortened(strings(&record.rdata).concat(), TEXT_MAX))
    }

    /// The RCODE's name.
    #[must_use]
    pub fn rcode_name(&self) -> String {
        let known = Rcode::ALL.into_iter().find(|rcode| self.is(*rcode));
        known.map_or_else(|| format!("RCODE {}", self.rcode), |rcode| rcode.name().to_owned())
    }
}

/// The strings of a TXT record, escaped: nothing of them commands a terminal.
#[must_use]
pub fn strings(mut rdata: &[u8]) -> Vec<String> {
    let mut texts = Vec::new();
    while let Some((len, rest)) = rdata.split_first() {
        let (own, tail) = rest.split_at(usize::from(*len).min(rest.len()));
        texts.push(own.escape_ascii().to_string());
        rdata = tail;
    }
    texts
}

impl Exchange {
    /// The answer, if there is one that can be read.
    #[must_use]
    pub fn reply(&self) -> Option<Reply> {
        match &self.outcome {
            Outcome::Answer(octets) => Reply::read(octets).ok(),
            Outcome::Silence | Outcome::Failed(_) | Outcome::Unsent(_) => None,
        }
    }

    /// When the answer came.
    #[must_use]
    pub fn came_ms(&self) -> u64 {
        self.sent_ms + self.took_us / 1000
    }

    /// Whether it was asked so long after the answer to another question had come. Before that the resolver may have had no data yet.
    #[must_use]
    pub fn follows(&self, first: &Exchange, wait_ms: u64) -> bool {
        self.sent_ms >= first.came_ms() + wait_ms
    }

    /// How long the answer took, in milliseconds.
    #[must_use]
    pub fn took_ms(&self) -> u64 {
        self.took_us / 1000
    }

    /// The behaviour that the name asks for.
    #[must_use]
    pub fn spec(&self) -> Option<Spec> {
        self.step.question.name.as_name().labels().find_map(Spec::parse)
    }

    /// The address that was answered: when it was made, and its TTL. `None` if the authority did not make all addresses of the answer.
    #[must_use]
    pub fn dated(&self) -> Option<Dated> {
        let reply = self.reply().filter(|reply| reply.is(Rcode::NoError))?;
        let record = reply.record(self.step.question.qtype)?;
        let spec = self.spec()?;
        let made = reply.addresses().map(|record| made_ms(&record.rdata, &spec, self.came_ms()));
        let made_ms = made.collect::<Option<Vec<u64>>>()?.into_iter().min()?;
        Some(Dated { age_ms: self.sent_ms.saturating_sub(made_ms), made_ms, ttl: record.ttl })
    }

    /// When the authority made an address for this question: a sign that it was there, and that the resolver reached it. `None` for what the
    /// resolver had before.
    #[must_use]
    pub fn authority_seen_ms(&self) -> Option<u64> {
        let dated = self.dated()?;
        (dated.age_ms <= CLOCK_SLACK_MS && dated.made_ms <= self.came_ms() + CLOCK_SLACK_MS)
            .then_some(dated.made_ms)
    }

    /// The addresses of the answer that the authority did not make for this name.
    #[must_use]
    pub fn forged(&self) -> Vec<Record> {
        let Some((reply, spec)) = self.reply().zip(self.spec()) else { return Vec::new() };
        let is_forged = |record: &&Record| made_ms(&record.rdata, &spec, self.came_ms()).is_none();
        reply.addresses().filter(is_forged).cloned().collect()
    }

    /// What came, in few words.
    #[must_use]
    pub fn said(&self) -> String {
        match (&self.outcome, self.reply()) {
            (Outcome::Silence, _) => "no answer".to_owned(),
            (Outcome::Failed(reason) | Outcome::Unsent(reason), _) => reason.clone(),
            (Outcome::Answer(_), None) => "a malformed answer".to_owned(),
            (Outcome::Answer(_), Some(reply)) => match self.dated() {
                Some(dated) => format!("{dated}"),
                None if reply.answers.is_empty() => reply.rcode_name(),
                None => format!("{} with {} records", reply.rcode_name(), reply.answers.len()),
            },
        }
    }
}

/// An address with the time in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dated {
    /// When it was made.
    pub made_ms: u64,
    /// How old it was when it was asked for: what was made after that is fresh, however long its way is.
    pub age_ms: u64,
    /// The TTL that came with it.
    pub ttl: u32,
}

impl std::fmt::Display for Dated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "data {} old, TTL {}", seconds(self.age_ms), self.ttl)
    }
}

/// Milliseconds as seconds with one digit behind the point.
#[must_use]
pub fn seconds(ms: u64) -> String {
    format!("{}.{} s", ms / 1000, ms % 1000 / 100)
}

impl Transcript<'_> {
    /// The exchanges of a group.
    pub fn group<'t>(&'t self, group: &'t str) -> impl Iterator<Item = &'t Exchange> {
        self.exchanges.iter().filter(move |exchange| exchange.step.group == group)
    }

    /// The first exchange of a group.
    #[must_use]
    pub fn one(&self, group: &str) -> Option<&Exchange> {
        self.exchanges.iter().find(|exchange| exchange.step.group == group)
    }

    /// What the authority logged for a name.
    pub fn logged(&self, number: u32) -> impl Iterator<Item = &Entry> {
        self.log.iter().flatten().filter(move |entry| entry.number == number)
    }

    /// What the authority logged for the names of a group.
    #[must_use]
    pub fn logged_for(&self, group: &str) -> Vec<&Entry> {
        let numbers: std::collections::BTreeSet<u32> =
            self.group(group).filter_map(Exchange::spec).map(|spec| spec.number).collect();
        self.log.iter().flatten().filter(|entry| numbers.contains(&entry.number)).collect()
    }

    /// A line of evidence about an exchange: when, what was asked, what came.
    #[must_use]
    pub fn line(&self, exchange: &Exchange) -> String {
        let at = exchange.sent_ms.saturating_sub(self.start_ms);
        let took = exchange.took_ms();
        let again = match exchange.sends {
            0 | 1 => String::new(),
            sends => format!(", asked {sends} times"),
        };
        format!("at {}: {} (after {took} ms{again})", seconds(at), exchange.said())
    }
}
