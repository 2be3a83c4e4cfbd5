//! The authority of the audit zone: one function from a query, its source and the time to an answer and a line of the log.
//!
//! | file | what it does |
//! | --- | --- |
//! | `spec.rs` | what a label says about its answers |
//! | `conditions.rs` | delay, loss and outage of each server |
//! | `stamp.rs` | the time in the data of an answer |
//! | `data.rs` | data of records |
//! | `log.rs` | who asked, by nonce |
//! | `reply.rs` | the message that answers |
//! | `signing.rs` | signatures and denials, made for each answer |
//!
//! Names of a zone `probe.example.net.`:
//!
//! | name | what it has |
//! | --- | --- |
//! | `SPEC`, and all names below it | A, AAAA, TXT with the time; what the label says happens to them |
//! | `SPEC.uN` | the same in a zone `uN` whose DS record is of algorithm N, which validators do not support: it is not signed |
//! | `nsN` | addresses of the servers |
//! | `servers` | TXT: the condition of each server |
//! | `log-NONCE-FROM` | TXT over TCP: the entries of a run from a number on, each in JSON |

mod conditions;
mod data;
mod log;
mod reply;
mod signing;
mod spec;
mod stamp;

use std::net::{IpAddr, SocketAddr};

use dns_sign::{Key, KeySet};
use dns_wire::{Name, NameBuf, Query, QueryError, Rcode, Rtype};

pub use conditions::Condition;
use conditions::DELAY_MAX_MS;
use data::{conditions_texts, entry, page, text, unknown_ds};
pub use log::{Entry, Log, Subnet, Via};
use reply::{Reply, Section, Set};
use signing::Pen;
pub use spec::{Behaviour, Nonce, Phase, Servers, Signature, Spec};
pub use stamp::made_ms;

use crate::edns;

/// TTL of what does not change.
const STEADY_TTL: u32 = 3600;
/// Labels of zones that are not signed as far as anybody can tell, and the algorithms of their DS records: RSA/MD5, which nobody may validate
/// (RFC 8624, 3.1); GOST R 34.10-2001, which has been withdrawn (RFC 9558); one that nobody has assigned; and one for private use.
pub(crate) const UNKNOWN: [(&str, u8); 4] = [("u1", 1), ("u12", 12), ("u200", 200), ("u253", 253)];

/// The zone, and who serves it.
pub struct Zone {
    origin: NameBuf,
    /// The addresses of `ns1` and on.
    servers: Vec<IpAddr>,
    /// One for each of them.
    conditions: Vec<Condition>,
    /// The first one signs all.
    keys: KeySet,
}

/// A query.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'m> {
    /// Its octets.
    pub message: &'m [u8],
    /// Who asked.
    pub source: SocketAddr,
    /// Which of the servers was asked; 0 is the first.
    pub server: usize,
    /// How.
    pub via: Via,
}

/// What becomes of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The answer; `None` is silence.
    pub message: Option<Vec<u8>>,
    /// How long it is to wait.
    pub delay_ms: u16,
    /// What was logged.
    pub entry: Option<Entry>,
}

/// A zone of unknown algorithm: its label, and the algorithm.
type Unsigned = (&'static str, u8);

/// What a name is.
enum Place {
    Apex,
    /// The apex of a zone of unknown algorithm.
    Unknown(Unsigned),
    Server(IpAddr),
    /// What is said of the servers' conditions.
    Conditions,
    /// A label with a behaviour, in a zone of unknown algorithm or not.
    Spec(Spec, Option<Unsigned>),
    Log(Nonce, usize),
    /// Nothing there; the label below the apex.
    Nothing(Vec<u8>),
}

impl Zone {
    /// A zone with these servers. With a key it is signed, by the first one.
    #[must_use]
    pub fn new(origin: NameBuf, servers: Vec<IpAddr>, keys: KeySet) -> Zone {
        let conditions = Condition::of_servers(servers.len());
        Zone { origin, servers, conditions, keys }
    }

    /// The same with other conditions than those where nothing is said; one for each server, in their order.
    #[must_use]
    pub fn with_conditions(self, conditions: Vec<Condition>) -> Zone {
        Zone { conditions, ..self }
    }

    /// How each server differs from the others.
    #[must_use]
    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// Its name.
    #[must_use]
    pub fn origin(&self) -> Name<'_> {
        self.origin.as_name()
    }

    /// What it is signed with.
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        self.keys.keys().first()
    }

    /// Answers a query that came at `now_ms`, milliseconds since 1970.
    pub fn answer(&self, asked: &Asked<'_>, log: &mut Log, now_ms: u64) -> Answer {
        let query = match Query::parse(asked.message) {
            Ok(query) => query,
            Err(error) => return Answer { message: refuse(asked.message, error), ..Answer::default() },
        };
        let now_s = (now_ms / 1000) as u32; // As signatures count: modulo 2^32.
        let pen = self.key().map(|key| Pen { key, origin: self.origin(), now_s });
        let mut reply = Reply::new(asked, query, pen);
        let Some(place) = self.place(query.qname(asked.message)) else {
            reply.set_rcode(Rcode::Refused);
            return Answer { message: Some(reply.finish()), ..Answer::default() };
        };
        if let Place::Spec(spec, _) = &place {
            let entry = entry(asked, &query, spec.number, now_ms);
            log.push(spec.nonce, entry.clone());
            return self.answer_spec(reply, asked, &query, &place, spec, now_ms).logged(entry);
        }
        self.answer_steady(&mut reply, asked, &query, &place, log);
        Answer { message: Some(reply.finish()), ..Answer::default() }
    }

    /// What answers a query of a client that asks for too much: cut, so that a client whose address is not forged comes over TCP.
    #[must_use]
    pub fn cut(asked: &Asked<'_>) -> Option<Vec<u8>> {
        let query = Query::parse(asked.message).ok()?;
        let mut reply = Reply::new(asked, query, None);
        reply.cut();
        Some(reply.finish())
    }

    /// Where a name lies; `None` outside of the zone.
    fn place(&self, qname: Name<'_>) -> Option<Place> {
        let depth = qname.label_count().checked_sub(self.origin().label_count())?;
        if !qname.ends_with(self.origin()) {
            return None;
        }
        let labels: Vec<&[u8]> = qname.labels().take(depth).collect();
        let Some((top, below)) = labels.split_last() else { return Some(Place::Apex) };
        if let Some(spec) = Spec::parse(top) {
            return Some(Place::Spec(spec, None));
        }
        let unsigned = UNKNOWN.into_iter().find(|(label, _)| top.eq_ignore_ascii_case(label.as_bytes()));
        if let Some(unsigned) = unsigned {
            let Some(label) = below.last() else { return Some(Place::Unknown(unsigned)) };
            let spec = Spec::parse(label);
            return Some(spec.map_or(Place::Nothing(top.to_vec()), |spec| Place::Spec(spec, Some(unsigned))));
        }
        let single = below.is_empty().then(|| self.single(top)).flatten();
        Some(single.unwrap_or_else(|| Place::Nothing(top.to_vec())))
    }

    /// A label of its own below the apex.
    fn single(&self, label: &[u8]) -> Option<Place> {
        let text = std::str::from_utf8(label).ok()?.to_ascii_lowercase();
        if let Some(rest) = text.strip_prefix("log-") {
            let (nonce, from) = rest.split_once('-')?;
            return Some(Place::Log(Nonce::parse(nonce)?, from.parse().ok()?));
        }
        if text == "servers" {
            return Some(Place::Conditions);
        }
        let number: usize = text.strip_prefix("ns")?.parse().ok()?;
        self.servers.get(number.checked_sub(1)?).map(|address| Place::Server(*address))
    }

    /// What is the same for everybody.
    fn answer_steady(
        &self,
        reply: &mut Reply<'_>,
        asked: &Asked<'_>,
        query: &Query,
        place: &Place,
        log: &Log,
    ) {
        let owner = query.qname(asked.message);
        let (rdatas, ttl, types): (Vec<Vec<u8>>, u32, &[Rtype]) = match (place, query.qtype) {
            (Place::Apex, qtype) => (
                self.apex(qtype),
                STEADY_TTL,
                &[Rtype::NS, Rtype::SOA, Rtype::RRSIG, Rtype::NSEC, Rtype::DNSKEY],
            ),
            (Place::Unknown((_, algorithm)), Rtype::DS) => (vec![unknown_ds(*algorithm)], STEADY_TTL, &[]),
            (Place::Unknown((label, _)), qtype) => {
                reply.leave_signed_zone(label);
                (if qtype == Rtype::DNSKEY { Vec::new() } else { self.apex(qtype) }, STEADY_TTL, &[])
            }
            (Place::Server(IpAddr::V4(address)), Rtype::A) => {
                (vec![address.octets().to_vec()], STEADY_TTL, &[])
            }
            (Place::Server(IpAddr::V6(address)), Rtype::AAAA) => {
                (vec![address.octets().to_vec()], STEADY_TTL, &[])
            }
            (Place::Server(IpAddr::V4(_)), _) => {
                (Vec::new(), STEADY_TTL, &[Rtype::A, Rtype::RRSIG, Rtype::NSEC])
            }
            (Place::Server(IpAddr::V6(_)), _) => {
                (Vec::new(), STEADY_TTL, &[Rtype::AAAA, Rtype::RRSIG, Rtype::NSEC])
            }
            (Place::Conditions, Rtype::TXT) => (conditions_texts(&self.conditions), 0, &[]),
            // Over UDP it is cut: nobody gets it under the address of somebody else.
            (Place::Log(nonce, from), Rtype::TXT) if asked.via != Via::Udp => {
                (page(log, *nonce, *from), 0, &[])
            }
            (Place::Log(..), Rtype::TXT) => (vec![vec![0; 5 << 10]], 0, &[]),
            (Place::Log(..) | Place::Conditions, _) => {
                (Vec::new(), 0, &[Rtype::TXT, Rtype::RRSIG, Rtype::NSEC])
            }
            (Place::Nothing(label), _) => return self.deny_name(reply, label, STEADY_TTL),
            (Place::Spec(..), _) => (Vec::new(), 0, &[]), // Answered elsewhere.
        };
        if rdatas.is_empty() {
            return self.deny_type(reply, owner, types, if ttl == 0 { 0 } else { 60 });
        }
        reply.push(Section::Answer, &Set { owner, rtype: query.qtype, ttl, rdatas }, Signature::Good);
    }

    fn answer_spec(
        &self,
        mut reply: Reply<'_>,
        asked: &Asked<'_>,
        query: &Query,
        place: &Place,
        spec: &Spec,
        now_ms: u64,
    ) -> Answer {
        let owner = query.qname(asked.message);
        reply.scope = spec.scope;
        if let Place::Spec(_, Some((label, _))) = place {
            reply.leave_signed_zone(label);
        }
        let mut delay_ms = 0;
        match self.behaviour(spec, asked, now_ms) {
            Some(Behaviour::Silent) => return Answer::default(),
            Some(Behaviour::ServFail) => reply.set_rcode(Rcode::ServFail),
            Some(Behaviour::Refused) => reply.set_rcode(Rcode::Refused),
            Some(Behaviour::NxDomain) => {
                let label = owner.labels().nth(owner.label_count() - self.origin().label_count() - 1);
                self.deny_name(&mut reply, label.unwrap_or_default(), spec.ttl);
            }
            Some(Behaviour::NoData) => {
                self.deny_type(&mut reply, owner, &[Rtype::RRSIG, Rtype::NSEC], spec.ttl)
            }
            behaviour => {
                if let Some(Behaviour::Slow(ms)) = behaviour {
                    delay_ms = ms.min(DELAY_MAX_MS);
                }
                // A slow answer is as old as it is when it leaves.
                self.answer_with_time(&mut reply, asked, query, spec, now_ms + u64::from(delay_ms));
            }
        }
        Answer { message: Some(reply.finish()), delay_ms, entry: None }
    }

    /// What a server does by itself comes first only where it is silent.
    fn behaviour(&self, spec: &Spec, asked: &Asked<'_>, now_ms: u64) -> Option<Behaviour> {
        let condition = self.conditions.get(asked.server).copied().unwrap_or_default();
        let by_server = condition.behaviour(spec.servers, chance(asked), spec.tenths(now_ms));
        match by_server {
            Some(Behaviour::Silent) => by_server,
            _ => spec.behaviour(now_ms).or(by_server),
        }
    }

    fn answer_with_time(
        &self,
        reply: &mut Reply<'_>,
        asked: &Asked<'_>,
        query: &Query,
        spec: &Spec,
        made_ms: u64,
    ) {
        let owner = query.qname(asked.message);
        let rdata = match query.qtype {
            Rtype::A if spec.is_private => stamp::PRIVATE.octets().to_vec(),
            Rtype::A => stamp::a(spec, made_ms).to_vec(),
            Rtype::AAAA => stamp::aaaa(spec, made_ms).to_vec(),
            Rtype::TXT => text(asked, query, spec, made_ms),
            _ => {
                let types = [Rtype::A, Rtype::TXT, Rtype::AAAA, Rtype::RRSIG, Rtype::NSEC];
                return self.deny_type(reply, owner, &types, spec.ttl);
            }
        };
        let set = Set { owner, rtype: query.qtype, ttl: spec.ttl, rdatas: vec![rdata] };
        reply.push(Section::Answer, &set, spec.signature);
    }

    /// The records at the apex.
    fn apex(&self, qtype: Rtype) -> Vec<Vec<u8>> {
        match qtype {
            Rtype::SOA => vec![self.soa(60)],
            Rtype::NS => (1..=self.servers.len())
                .map(|number| self.server(number).as_name().as_bytes().to_vec())
                .collect(),
            Rtype::DNSKEY => self.key().iter().map(|key| key.dnskey().to_vec()).collect(),
            _ => Vec::new(),
        }
    }

    fn server(&self, number: usize) -> NameBuf {
        let mut name = self.origin.clone();
        let _ = name.prepend(format!("ns{number}").as_bytes()); // Too long for a zone that could hold probes.
        name
    }

    /// RFC 1035, 3.3.13. `minimum` is the TTL of what does not exist (RFC 2308, 4).
    fn soa(&self, minimum: u32) -> Vec<u8> {
        let mut rdata = self.server(1).as_name().as_bytes().to_vec();
        let mut mailbox = self.origin.clone();
        let _ = mailbox.prepend(b"hostmaster");
        rdata.extend(mailbox.as_name().as_bytes());
        for number in [1, 3600, 600, 86_400, minimum] {
            rdata.extend(u32::to_be_bytes(number));
        }
        rdata
    }

    fn push_soa(&self, reply: &mut Reply<'_>, ttl: u32) {
        let mut owner = self.origin.clone();
        if let Some(label) = reply.unsigned {
            let _ = owner.prepend(label.as_bytes()); // As short as that of a probe.
        }
        let set = Set { owner: owner.as_name(), rtype: Rtype::SOA, ttl, rdatas: vec![self.soa(ttl)] };
        reply.push(Section::Authority, &set, Signature::Good);
    }

    /// The name exists, and has these types.
    fn deny_type(&self, reply: &mut Reply<'_>, owner: Name<'_>, types: &[Rtype], ttl: u32) {
        self.push_soa(reply, ttl);
        if reply.pen.is_some() {
            let rdatas = vec![signing::nsec_at(owner, types)];
            reply.push(Section::Authority, &Set { owner, rtype: Rtype::NSEC, ttl, rdatas }, Signature::Good);
        }
    }

    /// There is no such label below the apex, nor a wildcard.
    fn deny_name(&self, reply: &mut Reply<'_>, label: &[u8], ttl: u32) {
        reply.set_rcode(Rcode::NxDomain);
        self.push_soa(reply, ttl);
        if reply.pen.is_none() {
            return;
        }
        for label in [label, b"*"] {
            let Some((owner, rdata)) = signing::nsec_over(self.origin(), label) else { continue };
            let set = Set { owner: owner.as_name(), rtype: Rtype::NSEC, ttl, rdatas: vec![rdata] };
            reply.push(Section::Authority, &set, Signature::Good);
        }
    }
}

impl Answer {
    fn logged(self, entry: Entry) -> Answer {
        Answer { entry: Some(entry), ..self }
    }
}

/// A number below 100 that a query and its repetition do not share.
fn chance(asked: &Asked<'_>) -> u8 {
    let seed = u64::from(asked.source.port()) << 16 | asked.server as u64;
    (dns_wire::fold::hash_name(&asked.message[..asked.message.len().min(64)], seed) % 100) as u8
}

/// What answers a message that is no query.
fn refuse(message: &[u8], error: QueryError) -> Option<Vec<u8>> {
    let rcode = match error {
        QueryError::Short | QueryError::Response => return None,
        QueryError::Opcode => Rcode::NotImp,
        QueryError::Format => Rcode::FormErr,
    };
    let mut reply = vec![0; 12];
    reply[..3].copy_from_slice(message.get(..3)?);
    reply[2] = reply[2] & 0x79 | 0x80;
    reply[3] = rcode.low() as u8;
    Some(reply)
}

fn asked_subnet(query: &Query, message: &[u8]) -> Option<Subnet> {
    query.option(message, edns::CLIENT_SUBNET).and_then(Subnet::parse)
}

#[cfg(test)]
mod tests;
