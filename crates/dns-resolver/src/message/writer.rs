//! Queries to servers and answers to clients.

use std::ops::Range;

use dns_wire::header::{Counts, HEADER_LEN, flag, write_header};
use dns_wire::name::NAME_LEN_MAX;
use dns_wire::{Class, Name, Query, Rcode, Rtype, fold};

use super::Rrset;
use crate::dnssec::Security;

/// Why an answer is as it is (RFC 8914, 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ede(pub(crate) u16);

impl Ede {
    /// No algorithm of the zone's keys is one that we know.
    pub(crate) const UNSUPPORTED_ALGORITHM: Ede = Ede(1);
    /// No digest of the zone's DS records is one that we know.
    pub(crate) const UNSUPPORTED_DIGEST: Ede = Ede(2);
    /// Signatures or proofs are wrong.
    pub(crate) const BOGUS: Ede = Ede(6);
    /// Signatures have expired.
    pub(crate) const SIGNATURE_EXPIRED: Ede = Ede(7);
    /// Signatures are not valid yet.
    pub(crate) const SIGNATURE_NOT_YET_VALID: Ede = Ede(8);
    /// No key of the zone is the one that its parent, or a signature, speaks of.
    pub(crate) const DNSKEY_MISSING: Ede = Ede(9);
    /// The zone is signed, and the data is not.
    pub(crate) const RRSIGS_MISSING: Ede = Ede(10);
    /// The zone is signed, and does not prove its denial.
    pub(crate) const NSEC_MISSING: Ede = Ede(12);
    /// NSEC3 records with more iterations than are computed (RFC 9276, 3.2).
    pub(crate) const UNSUPPORTED_ITERATIONS: Ede = Ede(27);
    /// The data has expired (RFC 8767).
    pub(crate) const STALE_ANSWER: Ede = Ede(3);
    /// The failure was met before and is remembered (RFC 9520).
    pub(crate) const CACHED_ERROR: Ede = Ede(13);
    /// The client is not allowed to ask.
    pub(crate) const PROHIBITED: Ede = Ede(18);
    /// The denial has expired.
    pub(crate) const STALE_NXDOMAIN: Ede = Ede(19);
    /// The client does not want recursion, and there is no zone here.
    pub(crate) const NOT_AUTHORITATIVE: Ede = Ede(20);
    /// What is asked is not done here.
    pub(crate) const NOT_SUPPORTED: Ede = Ede(21);
    /// Servers are silent, or refuse.
    pub(crate) const NO_REACHABLE_AUTHORITY: Ede = Ede(22);
    /// Servers answer, and no answer makes sense.
    pub(crate) const INVALID_DATA: Ede = Ede(24);
    /// Something else; here, a bound that was reached.
    pub(crate) const OTHER: Ede = Ede(0);

    /// Whether validation failed: expired data must not take the place of what is false.
    pub(crate) fn is_bogus(self) -> bool {
        (Ede::BOGUS.0..=Ede::NSEC_MISSING.0).contains(&self.0)
    }
}

/// A query to a server.
pub(crate) struct UpstreamQuery<'a> {
    pub(crate) id: u16,
    pub(crate) name: &'a [u8],
    pub(crate) rtype: Rtype,
    /// Only forwarders are asked for recursion.
    pub(crate) recursion: bool,
    /// The payload that an OPT record offers; `None` for servers that do not take one.
    pub(crate) payload: Option<u16>,
    /// Signatures are wanted. A forwarder is told not to validate, since we do (RFC 6840, 5.9).
    pub(crate) dnssec_ok: bool,
    /// Options of the OPT record, in wire form.
    pub(crate) options: &'a [u8],
}

/// Writes `query`.
pub(crate) fn write_query(query: &UpstreamQuery<'_>) -> Vec<u8> {
    let mut message = vec![0; HEADER_LEN];
    let flags = match (query.recursion, query.dnssec_ok) {
        (true, true) => flag::RD | flag::CD,
        (true, false) => flag::RD,
        (false, _) => 0,
    };
    let additional = u16::from(query.payload.is_some());
    write_header(&mut message, flags, Counts { question: 1, additional, ..Counts::default() });
    message[..2].copy_from_slice(&query.id.to_be_bytes());
    message.extend_from_slice(query.name);
    message.extend_from_slice(&query.rtype.0.to_be_bytes());
    message.extend_from_slice(&Class::IN.0.to_be_bytes());
    if let Some(payload) = query.payload {
        write_opt(&mut message, payload, 0, query.dnssec_ok, query.options);
    }
    message
}

fn write_opt(message: &mut Vec<u8>, payload: u16, high_rcode: u8, dnssec_ok: bool, options: &[u8]) {
    message.push(0);
    message.extend_from_slice(&Rtype::OPT.0.to_be_bytes());
    message.extend_from_slice(&payload.to_be_bytes());
    message.extend_from_slice(&[high_rcode, 0, if dnssec_ok { 0x80 } else { 0 }, 0]);
    message.extend_from_slice(&(options.len() as u16).to_be_bytes()); // They are ours, and short.
    message.extend_from_slice(options);
}

/// An EDNS option (RFC 6891, 6.1.2). The data is shorter than 2^16 octets.
pub(crate) fn option(code: u16, data: &[u8]) -> Vec<u8> {
    [&code.to_be_bytes()[..], &(data.len() as u16).to_be_bytes(), data].concat()
}

/// What an answer takes from its query.
#[derive(Clone, Debug)]
pub(crate) struct AnswerHead {
    pub(crate) id: u16,
    /// Name, type and class as the client wrote them; empty if they could not be read.
    pub(crate) question: Vec<u8>,
    /// RD and CD are repeated.
    pub(crate) flags: u16,
    /// The DO bit, if the client sent an OPT record.
    pub(crate) edns: Option<bool>,
    /// The client wants to know whether the data is authentic (RFC 6840, 5.7).
    pub(crate) wants_ad: bool,
    /// The payload that we take.
    pub(crate) payload: u16,
    /// Octets that the answer may have.
    pub(crate) limit: usize,
    /// Options of the answer's OPT record, in wire form.
    pub(crate) options: Vec<u8>,
    /// Octets that the answer's length is a multiple of, as far as `limit` allows; 0 for any.
    pub(crate) block: usize,
}

impl AnswerHead {
    /// Of a query that was read, or of what could be read of it.
    pub(crate) fn new(message: &[u8], query: Option<&Query>, limit: usize, payload: u16) -> AnswerHead {
        let id = message.first_chunk::<2>().map_or(0, |id| u16::from_be_bytes(*id));
        let flags = message.get(2..4).map_or(0, |flags| u16::from_be_bytes([flags[0], flags[1]]));
        AnswerHead {
            id,
            question: query.map_or(Vec::new(), |q| message[HEADER_LEN..q.question_end()].to_vec()),
            flags: flags & (flag::RD | flag::CD | flag::OPCODE),
            edns: query.and_then(|query| query.edns).map(|edns| edns.dnssec_ok),
            wants_ad: flags & super::flag::AD != 0,
            payload,
            limit,
            options: Vec::new(),
            block: 0,
        }
    }

    /// The client validates itself, or forwards to one that does.
    pub(crate) fn checking_disabled(&self) -> bool {
        self.flags & flag::CD != 0
    }

    fn wants_signatures(&self) -> bool {
        self.edns == Some(true)
    }

    /// The name of the question, in the client's spelling.
    pub(crate) fn qname(&self) -> &[u8] {
        &self.question[..self.question.len().saturating_sub(4)]
    }
}

/// Where a set stands in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Answer,
    Authority,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) octets: Vec<u8>,
    /// The TTLs of its records, of those of truncated answers, too.
    pub(crate) ttls: Vec<TtlAt>,
    pub(crate) is_truncated: bool,
}

/// Where a TTL stands, and the number of the set that it is of, or whose absence it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TtlAt {
    pub(crate) at: u16,
    pub(crate) set: u16,
}

/// Writes an answer without records.
pub(crate) fn write_error(head: &AnswerHead, rcode: Rcode, ede: Option<Ede>) -> Vec<u8> {
    write_answer(head, rcode, &[], false, ede).octets
}

/// Writes an answer with `sets`, which are in the order of their sections, and with their signatures and proofs if the client wants them.
/// If they have no room, TC is set and none is written. AD is set where all sets are secure and `was_validated` says so of what no set stands for.
pub(crate) fn write_answer(
    head: &AnswerHead,
    rcode: Rcode,
    sets: &[(Section, &Rrset)],
    was_validated: bool,
    ede: Option<Ede>,
) -> Written {
    let mut writer = Writer::new(head);
    let reserve = if head.edns.is_some() { 11 + 6 + head.options.len() } else { 0 };
    let behind_question = writer.message.len();
    writer.room = head.limit.saturating_sub(reserve);
    for (number, (section, set)) in sets.iter().enumerate() {
        writer.number = number as u16; // Aliases have a bound that is far less.
        writer.set(*section, set, set.ttl, head.wants_signatures());
    }
    if head.wants_signatures() {
        for (number, (_, set)) in sets.iter().enumerate() {
            writer.number = number as u16;
            let absence = set.absence().iter();
            absence.for_each(|proof| writer.set(Section::Authority, proof, set.ttl, true));
        }
    }
    let (mut counts, room) = (writer.counts, writer.room);
    counts.question = u16::from(!head.question.is_empty());
    let (mut message, ttls) = (writer.message, writer.ttls);
    let is_truncated = message.len() > room;
    let mut flags = head.flags | flag::QR | super::flag::RA | rcode.low();
    let is_secure =
        was_validated && !sets.is_empty() && sets.iter().all(|(_, set)| set.security == Security::Secure);
    if is_secure && (head.wants_ad || head.wants_signatures()) {
        flags |= super::flag::AD;
    }
    if is_truncated {
        message.truncate(behind_question);
        flags = flags & !super::flag::AD | flag::TC;
        (counts.answer, counts.authority) = (0, 0);
    }
    if let Some(dnssec_ok) = head.edns {
        counts.additional = 1;
        let mut options = head.options.clone();
        options.extend(ede.into_iter().flat_map(|Ede(code)| option(EXTENDED_ERROR, &code.to_be_bytes())));
        pad(&mut options, message.len() + OPT_LEN, head);
        write_opt(&mut message, head.payload, rcode.high(), dnssec_ok, &options);
    }
    write_header(&mut message, flags, counts);
    message[..2].copy_from_slice(&head.id.to_be_bytes());
    Written { octets: message, ttls, is_truncated }
}

/// Adds the option of zeros that fills the message's last block (RFC 7830, 3; RFC 8467, 4.1). `len` is its length without options.
fn pad(options: &mut Vec<u8>, len: usize, head: &AnswerHead) {
    let bare = len + options.len() + 4;
    if head.block > 0 && bare <= head.limit {
        let whole = bare.next_multiple_of(head.block).min(head.limit);
        options.extend(option(PADDING, &vec![0; whole - bare]));
    }
}

/// Octets of an OPT record without options.
const OPT_LEN: usize = 11;
/// Codes of options (RFC 8914, 2; RFC 7830, 3).
const EXTENDED_ERROR: u16 = 15;
const PADDING: u16 = 12;

/// Octets that an answer seldom exceeds.
const ROOM_USUAL: usize = 512;
/// Names that later ones can point to, at most. More would cost more to search than they save.
const POINTS_MAX: usize = 32;

struct Writer {
    message: Vec<u8>,
    counts: Counts,
    /// Octets that the records may reach; what comes behind them is not written.
    room: usize,
    /// The names that later ones may point to, one after the other.
    spelled: Vec<u8>,
    /// Where each suffix of these starts and ends, and where it stands in the message.
    points: Vec<(Range<usize>, u16)>,
    ttls: Vec<TtlAt>,
    /// The set that is written, or whose absence.
    number: u16,
}

impl Writer {
    fn new(head: &AnswerHead) -> Writer {
        let mut message = Vec::with_capacity(ROOM_USUAL);
        message.resize(HEADER_LEN, 0);
        message.extend_from_slice(&head.question);
        let mut writer = Writer {
            message,
            counts: Counts::default(),
            room: 0,
            spelled: Vec::with_capacity(NAME_LEN_MAX),
            points: Vec::with_capacity(POINTS_MAX),
            ttls: Vec::new(),
            number: 0,
        };
        writer.remember(head.qname(), head.qname().len(), HEADER_LEN);
        writer
    }

    /// Writes a set, and its signatures, as far as there is room.
    fn set(&mut self, section: Section, set: &Rrset, ttl: u32, with_signatures: bool) {
        let records = set.rdatas.iter().map(|rdata| (set.rtype, rdata));
        let sigs = set.sigs().filter(|_| with_signatures).map(|rdata| (Rtype::RRSIG, rdata));
        for (rtype, rdata) in records.chain(sigs) {
            if self.message.len() > self.room {
                return;
            }
            self.record(set.owner.as_name(), rtype, ttl, rdata);
            let count = match section {
                Section::Answer => &mut self.counts.answer,
                Section::Authority => &mut self.counts.authority,
            };
            *count = count.saturating_add(1);
        }
    }

    fn record(&mut self, owner: Name<'_>, rtype: Rtype, ttl: u32, rdata: &[u8]) {
        self.name(owner.as_bytes());
        self.message.extend_from_slice(&rtype.0.to_be_bytes());
        self.message.extend_from_slice(&Class::IN.0.to_be_bytes());
        self.ttls.push(TtlAt { at: self.message.len() as u16, set: self.number }); // No message is longer.
        self.message.extend_from_slice(&ttl.to_be_bytes());
        let start = self.message.len() + 2;
        self.message.extend_from_slice(&[0, 0]);
        self.rdata(rtype, rdata);
        let len = (self.message.len() - start) as u16; // Compression makes the data only shorter.
        self.message[start - 2..start].copy_from_slice(&len.to_be_bytes());
    }

    /// RFC 3597, 4: only names in the data of the types of RFC 1035 are compressed.
    fn rdata(&mut self, rtype: Rtype, rdata: &[u8]) {
        let names = match rtype {
            Rtype::NS | Rtype::CNAME | Rtype::PTR => 1,
            Rtype::SOA => 2,
            _ => 0,
        };
        let mut rest = rdata;
        if let (Rtype::MX, Some((preference, name))) = (rtype, rdata.split_at_checked(2)) {
            self.message.extend_from_slice(preference);
            rest = name;
        }
        for _ in 0..if rtype == Rtype::MX { 1 } else { names } {
            let Ok((name, tail)) = Name::split_from(rest) else { break };
            self.name(name.as_bytes());
            rest = tail;
        }
        self.message.extend_from_slice(rest);
    }

    fn name(&mut self, name: &[u8]) {
        let start = self.message.len();
        let mut at = 0;
        while name[at] != 0 {
            let known =
                self.points.iter().find(|(point, _)| fold::equal(&self.spelled[point.clone()], &name[at..]));
            if let Some((_, offset)) = known {
                self.message.extend_from_slice(&name[..at]);
                self.message.extend_from_slice(&(0xc000 | *offset).to_be_bytes());
                return self.remember(name, at, start);
            }
            at += 1 + usize::from(name[at]);
        }
        self.message.extend_from_slice(name);
        self.remember(name, at, start);
    }

    /// Notes the suffixes of `name` that start among its first `spelled` octets, which stand at `start`.
    fn remember(&mut self, name: &[u8], spelled: usize, start: usize) {
        if self.points.len() >= POINTS_MAX {
            return;
        }
        let mut at = 0;
        let first = self.spelled.len();
        self.spelled.extend_from_slice(name);
        // RFC 1035, 4.1.4: a pointer has 14 bits.
        while at < spelled && name[at] != 0 && self.points.len() < POINTS_MAX && start + at < 0x4000 {
            self.points.push((first + at..first + name.len(), (start + at) as u16));
            at += 1 + usize::from(name[at]);
        }
    }
}

#[cfg(test)]
mod tests {
    use dns_wire::NameBuf;

    use super::super::{Message, Rdatas};
    use super::*;

    fn name(text: &str) -> NameBuf {
        NameBuf::from_text(text.as_bytes(), None).unwrap()
    }

    fn head(limit: usize) -> AnswerHead {
        let query = UpstreamQuery {
            id: 7,
            name: b"\x03wWw\0",
            rtype: Rtype::A,
            recursion: true,
            payload: Some(1232),
            dnssec_ok: false,
            options: &[],
        };
        let message = write_query(&query);
        AnswerHead::new(&message, Some(&Query::parse(&message).unwrap()), limit, 1232)
    }

    fn addresses(count: u8) -> Rrset {
        let data: Vec<[u8; 4]> = (0..count).map(|number| [192, 0, 2, number]).collect();
        let rdatas = Rdatas::pack(data.iter().map(|data| &data[..]));
        Rrset::unsigned(name("www."), Rtype::A, 60, rdatas)
    }

    #[test]
    fn an_answer_reads_back_with_the_spelling_of_the_client() {
        let octets =
            write_answer(&head(512), Rcode::NoError, &[(Section::Answer, &addresses(2))], true, None).octets;
        let message = Message::parse(&octets).unwrap();
        assert_eq!((&octets[..2], message.answer.len(), message.has_opt), (&[0, 7][..], 2, true));
        assert_eq!(message.question.unwrap().name.as_name().as_bytes(), b"\x03wWw\0");
        assert_eq!(message.flags & (flag::QR | super::super::flag::RA | flag::RD), 0x8180);
    }

    #[test]
    fn an_answer_without_room_is_empty_and_truncated() {
        let octets =
            write_answer(&head(512), Rcode::NoError, &[(Section::Answer, &addresses(40))], true, None).octets;
        let message = Message::parse(&octets).unwrap();
        assert_eq!((message.flags & flag::TC, message.answer.len()), (flag::TC, 0));
        let octets =
            write_answer(&head(1232), Rcode::NoError, &[(Section::Answer, &addresses(40))], true, None)
                .octets;
        assert_eq!(Message::parse(&octets).unwrap().answer.len(), 40);
    }

    #[test]
    fn names_in_data_are_compressed_and_read_back() {
        let rdata = [&b"\0\x0a\x04mail"[..], b"\x03www\0"].concat();
        let rdatas = Rdatas::pack([&rdata[..]]);
        let mx = Rrset::unsigned(name("www."), Rtype::MX, 60, rdatas);
        let octets = write_answer(&head(512), Rcode::NoError, &[(Section::Answer, &mx)], true, None).octets;
        assert_eq!(octets.len(), 12 + 9 + 2 + 10 + 2 + 5 + 2 + 11);
        assert!(fold::equal(&Message::parse(&octets).unwrap().answer[0].rdata, &rdata));
    }

    #[test]
    fn an_answer_is_padded_to_whole_blocks_behind_its_other_options() {
        let head = AnswerHead { options: option(10, b"12345678"), block: 468, ..head(65_535) };
        let octets = write_error(&head, Rcode::ServFail, Some(Ede::NO_REACHABLE_AUTHORITY));
        assert_eq!(octets.len(), 468);
        let many =
            write_answer(&head, Rcode::NoError, &[(Section::Answer, &addresses(40))], true, None).octets;
        assert_eq!(many.len(), 2 * 468);
        let unpadded = AnswerHead { block: 0, ..head };
        let octets = write_error(&unpadded, Rcode::ServFail, None);
        assert!(octets.ends_with(b"\0\x0c\0\x0a\0\x0812345678"));
    }

    #[test]
    fn options_leave_the_answer_no_longer_than_it_may_be() {
        for limit in 512..1232 {
            let head = AnswerHead { options: option(10, &[7; 40]), block: 468, ..head(limit) };
            for count in 0..40 {
                let sets = [(Section::Answer, &addresses(count))];
                let octets = write_answer(&head, Rcode::NoError, &sets, true, Some(Ede::OTHER)).octets;
                assert!(octets.len() <= limit, "{} of {limit}", octets.len());
            }
        }
    }

    #[test]
    fn an_error_says_why() {
        let octets = write_error(&head(512), Rcode::ServFail, Some(Ede::NO_REACHABLE_AUTHORITY));
        assert!(octets.ends_with(&[0, 6, 0, 15, 0, 2, 0, 22]));
    }
}
