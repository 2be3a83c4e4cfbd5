//! What a server of zones does with requests that are more than a question: AXFR, IXFR, NOTIFY, and anything that is signed.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use dns_auth::{Catalog, Transport};
use dns_wire::header::flag;
use dns_wire::{Class, Name, NameBuf, Query, Rcode, Rtype};
use dns_zone::versioned::Pages;
use dns_zone::{Denial, Zone};

use crate::access::{AccessList, Client};
use crate::difference::{Difference, History};
use crate::outgoing::{Content, OPT, Slots, Transfer};
use crate::tsig::{Keys, RequestSignature, Signer, verify_request};
use crate::update::Update;
use dns_message::{
    Compressor, Malformed, Message, NOTIFY, Question, UPDATE, add_to_count, is_older, serial_of,
};

/// Who may do what, and with which keys. A copy, with the history of another version of some zone, costs next to nothing.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// All keys.
    pub keys: Arc<Keys>,
    /// Who may transfer the zones that have no list of their own.
    pub allow_transfer: AccessList,
    /// Zones that are special.
    pub zones: Arc<BTreeMap<NameBuf, ZonePolicy>>,
    /// By the zones' numbers in the catalog, the last differences of those that have some, up to the versions that are served.
    pub histories: Pages<Option<Arc<History>>>,
    /// Transfers at once; none without.
    pub slots: Option<Arc<Slots>>,
}

/// What holds for one zone.
#[derive(Clone, Debug, Default)]
pub struct ZonePolicy {
    /// Who may transfer it, if that differs.
    pub allow_transfer: Option<AccessList>,
    /// Who may change it (RFC 2136).
    pub allow_update: AccessList,
    /// Whose NOTIFY counts: the primaries of a secondary zone, and the key that a primary signs with, if it signs.
    pub primaries: Vec<(IpAddr, Option<NameBuf>)>,
}

impl Policy {
    fn may_transfer(&self, zone: Name<'_>, client: Client, key: Option<Name<'_>>) -> bool {
        self.transfer_list(zone).allows(client, key)
    }

    fn transfer_list(&self, zone: Name<'_>) -> &AccessList {
        let own = self.zones.get(&NameBuf::from(zone)).and_then(|policy| policy.allow_transfer.as_ref());
        own.unwrap_or(&self.allow_transfer)
    }

    /// What a secondary needs that has the version `from` of the zone of this number; the whole zone if the differences are not known, are more,
    /// or would not be taken.
    fn content(&self, (number, zone): (u32, &Zone), from: Option<u32>) -> Content {
        let history = self.histories.get(number as usize).and_then(Option::as_ref);
        let found = history.and_then(|history| history.between(from?, zone.serial()));
        let octets =
            |all: &[Arc<Difference>]| all.iter().map(|difference| difference.octets()).sum::<usize>();
        match found {
            Some(differences) if octets(differences) <= zone.memory() && can_be_followed(differences) => {
                Content::Differences(differences.to_vec())
            }
            _ => Content::Whole,
        }
    }

    /// Whether a zone is to be had from a server at this address.
    pub fn has_primary_at(&self, zone: Name<'_>, client: IpAddr) -> bool {
        let client = client.to_canonical();
        let policy = self.zones.get(&NameBuf::from(zone));
        policy.is_some_and(|own| own.primaries.iter().any(|(address, _)| address.to_canonical() == client))
    }

    /// Whether a request that is more than a question comes from an address that may make it: a NOTIFY from a primary's, an UPDATE or a
    /// transfer, or anything that is signed, from one that the zone's access list names. The address proves nothing, and signatures are not
    /// looked at: whoever is allowed by a key alone is not known here, nor is anybody where all are allowed.
    pub fn knows_sender(&self, request: &[u8], client: IpAddr) -> bool {
        let Ok(message) = Message::parse(request) else { return false };
        let Some(question) = message.question() else { return false };
        let (zone, who) = (question.name.as_name(), Client::plain(client));
        match message.flags() & flag::OPCODE {
            NOTIFY => self.has_primary_at(zone, client),
            UPDATE => self.zones.get(&question.name).is_some_and(|own| own.allow_update.names(who)),
            0 => self.transfer_list(zone).names(who),
            _ => false,
        }
    }

    /// Whether a NOTIFY for `zone` comes from one of its primaries (RFC 1996, 3.10); `None` if the zone is not secondary here. Primaries that sign
    /// transfers need not sign notices, and a notice only has us ask. One that is signed has to be signed with the key of that primary.
    fn is_primary(&self, zone: Name<'_>, client: IpAddr, key: Option<Name<'_>>) -> Option<bool> {
        let policy = self.zones.get(&NameBuf::from(zone)).filter(|policy| !policy.primaries.is_empty())?;
        let client = client.to_canonical();
        Some(policy.primaries.iter().any(|(address, wanted)| {
            address.to_canonical() == client
                && (key.is_none() || wanted.is_none() || wanted.as_ref().map(NameBuf::as_name) == key)
        }))
    }
}

/// Whether all secondaries take these differences. NSD compares the serials within one transfer as numbers, and not on a circle (RFC 1982): it
/// refuses several differences that go past 2^32 - 1, and asks for the same ones again.
fn can_be_followed(differences: &[Arc<Difference>]) -> bool {
    differences.len() == 1 || differences.iter().all(|difference| difference.from() < difference.to())
}

/// What is to be done with a request.
#[derive(Debug)]
pub enum Handled {
    /// Send this.
    Reply(Vec<u8>),
    /// Send the messages of this, one after the other.
    Transfer(Box<Transfer>),
    /// Answer this query, which had a signature, and sign the answer.
    Query(Vec<u8>, Box<Signer>),
    /// Carry this update out, and send its answer then.
    Update(Box<UpdateRequest>),
    /// A primary says that the zone has changed: look, and send this.
    Notified(Box<Notice>, Vec<u8>),
    /// Answer the message like any other.
    Ordinary,
}

/// That a primary says that a zone has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The zone.
    pub zone: NameBuf,
    /// The address of the primary.
    pub from: IpAddr,
    /// Whether a signature proves who has sent it. Anybody can send datagrams from the address of a primary.
    pub is_signed: bool,
}

/// Largest UDP message for a client without EDNS (RFC 1035, 2.3.4).
const PLAIN_UDP_MAX: usize = 512;

/// An update whose sender may change the zone.
#[derive(Debug)]
pub struct UpdateRequest {
    client: IpAddr,
    request: Request,
    update: Update,
}

impl UpdateRequest {
    /// Who sends it.
    pub fn client(&self) -> IpAddr {
        self.client
    }

    /// The zone.
    pub fn origin(&self) -> Name<'_> {
        self.request.question.name.as_name()
    }

    /// What it demands, and what it changes.
    pub fn update(&self) -> &Update {
        &self.update
    }

    /// The answer (RFC 2136, 3.8).
    pub fn answer(self, rcode: Rcode) -> Vec<u8> {
        let answer = reply_to(&self.request.octets, rcode);
        self.request.reply(answer)
    }
}

/// A request that was read, up to its signature.
#[derive(Debug)]
struct Request {
    octets: Vec<u8>,
    question: Question,
    signer: Option<Box<Signer>>,
    now: u64,
}

/// Handles a request of `client`, at `now` in seconds since 1970.
pub fn handle(
    policy: &Policy,
    catalog: &Catalog,
    request: &[u8],
    client: Client,
    transport: Transport,
    now: u64,
) -> Handled {
    let opcode = request.get(2..4).map_or(0, |word| u16::from_be_bytes([word[0], word[1]]) & flag::OPCODE);
    if ![0, NOTIFY, UPDATE].contains(&opcode) {
        return Handled::Ordinary; // Whoever answers ordinary queries knows no others.
    }
    let mut octets = request.to_vec();
    let signature = match verify_request(&mut octets, &policy.keys, now) {
        Ok(signature) => signature,
        Err(Malformed) => return Handled::Reply(reply_to(request, Rcode::FormErr)),
    };
    let signer = match signature {
        RequestSignature::None => None,
        RequestSignature::Right(signer) => Some(Box::new(signer)),
        RequestSignature::Wrong(_, signer) => {
            let mut answer = reply_to(&octets, Rcode::NotAuth);
            signer.sign(&mut answer, now);
            return Handled::Reply(answer);
        }
    };
    let question = Message::parse(&octets).ok().and_then(|message| message.question().cloned());
    let Some(question) = question else { return Handled::Reply(reply_to(request, Rcode::FormErr)) };
    let request = Request { octets, question, signer, now };
    match (opcode, request.question.qtype) {
        (NOTIFY, _) => request.notified(policy, client.address),
        (UPDATE, _) => request.update(policy, catalog, client),
        (0, Rtype::AXFR | Rtype::IXFR) if request.question.qclass == Class::IN => {
            request.transfer(policy, catalog, client, transport)
        }
        _ => match request.signer {
            Some(signer) => Handled::Query(request.octets, signer),
            None => Handled::Ordinary,
        },
    }
}

impl Request {
    fn key(&self) -> Option<Name<'_>> {
        self.signer.as_ref().map(|signer| signer.key().name())
    }

    /// Octets by which the answer will grow.
    fn signature_len(&self) -> usize {
        self.signer.as_ref().map_or(0, |signer| signer.record_len())
    }

    fn reply(mut self, mut answer: Vec<u8>) -> Vec<u8> {
        if let Some(signer) = &mut self.signer {
            signer.sign(&mut answer, self.now);
        }
        answer
    }

    fn refuse(self, rcode: Rcode) -> Handled {
        let answer = reply_to(&self.octets, rcode);
        Handled::Reply(self.reply(answer))
    }

    /// RFC 1996, 3.11 and 3.12: a notice from a primary is answered, and starts a refresh.
    fn notified(self, policy: &Policy, client: IpAddr) -> Handled {
        let zone = self.question.name.clone();
        match policy.is_primary(zone.as_name(), client, self.key()) {
            None => self.refuse(Rcode::NotAuth),
            Some(true) if self.question.qtype == Rtype::SOA && self.question.qclass == Class::IN => {
                let answer = reply_to(&self.octets, Rcode::NoError);
                let notice = Notice { zone, from: client, is_signed: self.signer.is_some() };
                Handled::Notified(Box::new(notice), self.reply(answer))
            }
            Some(_) => self.refuse(Rcode::Refused),
        }
    }

    /// RFC 2136, 3.1 and 3.3: whoever may not change the zone learns nothing about it.
    fn update(self, policy: &Policy, catalog: &Catalog, client: Client) -> Handled {
        if self.question.qtype != Rtype::SOA || self.question.qclass != Class::IN {
            return self.refuse(Rcode::FormErr);
        }
        if catalog.number_of(self.question.name.as_name()).is_none() {
            return self.refuse(Rcode::NotAuth);
        }
        let own = policy.zones.get(&self.question.name);
        if !own.is_some_and(|own| own.allow_update.allows(client, self.key())) {
            return self.refuse(Rcode::Refused);
        }
        match Update::read(&self.octets) {
            Ok(update) => {
                let client = client.address;
                Handled::Update(Box::new(UpdateRequest { client, request: self, update }))
            }
            Err(Malformed) => self.refuse(Rcode::FormErr),
        }
    }

    /// RFC 5936, 2.2, and RFC 1995, 4: the whole zone, what differs from the client's version, or the SOA if the client has it or asks by UDP.
    fn transfer(self, policy: &Policy, catalog: &Catalog, client: Client, transport: Transport) -> Handled {
        let Some(number) = catalog.number_of(self.question.name.as_name()) else {
            return self.refuse(Rcode::NotAuth);
        };
        let zone = catalog.zone(number);
        if !client.takes_transfers || !policy.may_transfer(zone.origin(), client, self.key()) {
            return self.refuse(Rcode::Refused);
        }
        let Ok(tree) = zone.tree() else { return self.refuse(Rcode::ServFail) };
        if matches!(tree.denial(), Some(Denial::Compact)) {
            // A secondary could not deny a name: each denial takes the keys (RFC 9824).
            return self.refuse(Rcode::Refused);
        }
        let Ok(asked) = Asked::read(&self.octets) else { return self.refuse(Rcode::FormErr) };
        match (self.question.qtype, transport, asked.serial) {
            (Rtype::IXFR, _, None) | (Rtype::AXFR, Transport::Udp, _) => return self.refuse(Rcode::FormErr),
            (Rtype::IXFR, Transport::Udp, _) => {}
            (Rtype::IXFR, _, Some(serial)) if !is_older(serial, tree.serial()) => {}
            _ => {
                let Some(slot) = policy.slots.as_ref().and_then(Slots::take) else {
                    return self.refuse(Rcode::ServFail); // The client tries again later.
                };
                let head = authoritative_head(&self.octets);
                let from = asked.serial.filter(|_| self.question.qtype == Rtype::IXFR);
                let content = policy.content((number, tree), from);
                let (zone, signer) = (Arc::clone(zone), self.signer.map(|signer| *signer));
                let transfer = Transfer::new(zone, content, head, asked.has_edns, signer, slot);
                return Handled::Transfer(Box::new(transfer));
            }
        }
        let mut answer = authoritative_head(&self.octets);
        let soa = tree.soa();
        if let Some(rdata) = soa.records().next() {
            Compressor::default().push_record(
                &mut answer,
                zone.origin().as_bytes(),
                Rtype::SOA,
                soa.ttl(),
                rdata,
            );
            add_to_count(&mut answer, 0, 1);
        }
        if asked.has_edns {
            answer.extend_from_slice(OPT);
            add_to_count(&mut answer, 2, 1);
        } else if transport == Transport::Udp && answer.len() + self.signature_len() > PLAIN_UDP_MAX {
            answer = authoritative_head(&self.octets);
            answer[2] |= (flag::TC >> 8) as u8;
        }
        Handled::Reply(self.reply(answer))
    }
}

/// What a transfer's request has behind its question.
struct Asked {
    /// The SERIAL of the version that the client has (RFC 1995, 3).
    serial: Option<u32>,
    has_edns: bool,
}

impl Asked {
    fn read(octets: &[u8]) -> Result<Asked, Malformed> {
        let mut message = Message::parse(octets)?;
        let [answers, authorities, additionals] = message.counts().map(u32::from);
        let mut asked = Asked { serial: None, has_edns: false };
        for number in 0..answers + authorities + additionals {
            let record = message.next_record()?;
            if record.rtype == Rtype::SOA && (answers..answers + authorities).contains(&number) {
                asked.serial = serial_of(&record.rdata);
            }
            asked.has_edns |= record.rtype == Rtype::OPT;
        }
        if message.is_at_end() { Ok(asked) } else { Err(Malformed) }
    }
}

/// Header and question of an authoritative answer.
fn authoritative_head(request: &[u8]) -> Vec<u8> {
    let mut answer = answer_to(request, Rcode::NoError);
    answer[2] |= (flag::AA >> 8) as u8;
    answer
}

/// An answer without records but OPT, which it has if the request has one (RFC 6891, 6.1.1).
fn reply_to(request: &[u8], rcode: Rcode) -> Vec<u8> {
    let mut answer = answer_to(request, rcode);
    if Query::parse_malformed(request).is_some_and(|query| query.edns.is_some()) {
        answer.extend_from_slice(OPT);
        add_to_count(&mut answer, 2, 1);
    }
    answer
}

/// An answer without records: the request's ID, opcode, RD and, if it can be read, question.
fn answer_to(request: &[u8], rcode: Rcode) -> Vec<u8> {
    let header = request.first_chunk::<12>().copied().unwrap_or_default();
    let question = Message::parse(request).ok().filter(|message| message.question().is_some());
    let end = question.as_ref().map_or(12, Message::position);
    let kept = u16::from_be_bytes([header[2], header[3]]) & (flag::OPCODE | flag::RD);
    let mut answer = header.to_vec();
    answer.extend_from_slice(request.get(12..end).unwrap_or_default());
    answer[2..4].copy_from_slice(&(flag::QR | kept | rcode.low()).to_be_bytes());
    answer[4..12].copy_from_slice(&[0, u8::from(question.is_some()), 0, 0, 0, 0, 0, 0]);
    answer
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
