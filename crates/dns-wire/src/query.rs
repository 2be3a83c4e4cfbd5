//! From the octets of a message to a question that can be answered.

use crate::header::{Counts, HEADER_LEN, flag};
use crate::{Class, LabelStarts, Name, Rtype};

/// A well-formed query of opcode QUERY with one question. It holds lengths, not the name: that stays in the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Octets of the question's name, with the root label.
    pub qname_len: u8,
    /// QTYPE.
    pub qtype: Rtype,
    /// QCLASS.
    pub qclass: Class,
    /// The header's flags as they came.
    pub flags: u16,
    /// What the OPT record said, if there was one.
    pub edns: Option<Edns>,
    /// The last record is a signature (TSIG, RFC 8945). Whether it is right is not looked at.
    pub is_signed: bool,
}

/// The parts of an OPT record that change an answer (RFC 6891).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edns {
    /// Largest UDP payload that the requester takes, in octets, as written.
    pub payload_size: u16,
    /// EDNS version; only 0 is defined.
    pub version: u8,
    /// The DO bit (RFC 3225).
    pub dnssec_ok: bool,
    /// The CO bit: with compact denial the requester takes NXDOMAIN for names that do not exist (RFC 9824, 5.1). Never set of a message with an error.
    pub compact_ok: bool,
    /// The requester asks for a name server identifier (RFC 5001).
    pub nsid: bool,
    /// The requester says where its client is (RFC 7871). Whether the option is right is not looked at.
    pub subnet: bool,
    /// What else it asks for.
    pub more: MoreOptions,
}

/// What few requesters ask for: in one octet, so that a query has sixteen and is copied at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoreOptions(u8);

impl MoreOptions {
    const ZONE_VERSION: u8 = 1;
    const KEEPALIVE: u8 = 2;

    /// The requester asks for the version of the zone that answers (RFC 9660).
    pub fn zone_version(self) -> bool {
        self.0 & MoreOptions::ZONE_VERSION != 0
    }

    /// The requester asks how long its connection may be idle (RFC 7828).
    pub fn keepalive(self) -> bool {
        self.0 & MoreOptions::KEEPALIVE != 0
    }

    /// Notes an option of this code.
    fn note(&mut self, code: u16) {
        self.0 |= match code {
            Edns::ZONE_VERSION => MoreOptions::ZONE_VERSION,
            Edns::KEEPALIVE => MoreOptions::KEEPALIVE,
            _ => 0,
        };
    }
}

const _: () = assert!(size_of::<Query>() == 16);

/// Why a message gets no ordinary answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryError {
    /// Shorter than a header: no answer can be addressed to it. Dropped.
    Short,
    /// QR is set. Dropped: answering responses lets two servers be played off against each other.
    Response,
    /// An opcode other than QUERY. Answered with NOTIMP.
    Opcode,
    /// Anything else that is against RFC 1035, 4.1, RFC 6891 or RFC 9619. Answered with FORMERR.
    Format,
}

impl Query {
    /// Reads a whole message.
    pub fn parse(message: &[u8]) -> Result<Query, QueryError> {
        Query::parse_noting(message, &mut LabelStarts::default())
    }

    /// Reads a whole message. `labels` are then those of the question's name.
    #[inline(always)]
    pub fn parse_noting(message: &[u8], labels: &mut LabelStarts) -> Result<Query, QueryError> {
        let header: &[u8; HEADER_LEN] = message.first_chunk().ok_or(QueryError::Short)?;
        let flags = be16(header, 2);
        if flags & flag::QR != 0 {
            return Err(QueryError::Response);
        }
        if flags & flag::OPCODE != 0 {
            return Err(QueryError::Opcode);
        }
        let counts = read_counts(header);
        let mut query = Query::read_question(message, flags, counts, labels).ok_or(QueryError::Format)?;
        let rest = &message[query.question_end()..];
        if !(rest.is_empty() && counts == (Counts { question: 1, ..Counts::default() })) {
            (query.edns, query.is_signed) = read_records(rest, counts)?;
        }
        Ok(query)
    }

    /// Reads what the answer to a format error repeats (RFC 6891, 7): the question of a message that is malformed behind it, and the
    /// fixed part of its OPT record, if that can be found. `None` if there is not one question that can be read.
    #[cold]
    pub fn parse_malformed(message: &[u8]) -> Option<Query> {
        let header: &[u8; HEADER_LEN] = message.first_chunk()?;
        let counts = read_counts(header);
        let mut query = Query::read_question(message, be16(header, 2), counts, &mut LabelStarts::default())?;
        query.edns = find_opt(&message[query.question_end()..], counts);
        Some(query)
    }

    /// The OPT record of a query that is well-formed but for having no question: by that clients ask for a cookie (RFC 7873, 5.4). `None` of other
    /// messages.
    #[cold]
    pub fn parse_unasked(message: &[u8]) -> Option<Edns> {
        let header: &[u8; HEADER_LEN] = message.first_chunk()?;
        let counts = read_counts(header);
        let is_query = be16(header, 2) & (flag::QR | flag::OPCODE) == 0;
        let (edns, is_signed) = read_records(&message[HEADER_LEN..], counts).ok()?;
        edns.filter(|_| is_query && counts.question == 0 && !is_signed)
    }

    /// The data of the first EDNS option of that code in `message`, a query without a question.
    pub fn option_unasked(message: &[u8], code: u16) -> Option<&[u8]> {
        find_option(message.get(HEADER_LEN..)?, code)
    }

    /// Reads the question; RFC 9619: at most one, and none asks nothing.
    #[inline(always)]
    fn read_question(message: &[u8], flags: u16, counts: Counts, labels: &mut LabelStarts) -> Option<Query> {
        if counts.question != 1 {
            return None;
        }
        let qname_len = labels.scan(&message[HEADER_LEN..])?;
        let fixed = message[HEADER_LEN + usize::from(qname_len)..].first_chunk::<4>()?;
        let (qtype, qclass) = (Rtype(be16(fixed, 0)), Class(be16(fixed, 2)));
        Some(Query { qname_len, qtype, qclass, flags, edns: None, is_signed: false })
    }

    /// Offset of the first octet behind the question.
    #[inline(always)]
    pub fn question_end(&self) -> usize {
        HEADER_LEN + usize::from(self.qname_len) + 4
    }

    /// The data of the first EDNS option of that code in `message`, the one that was parsed.
    pub fn option<'a>(&self, message: &'a [u8], code: u16) -> Option<&'a [u8]> {
        self.edns?;
        find_option(&message[self.question_end()..], code)
    }

    /// The question's name within `message`, the one that was parsed.
    #[inline(always)]
    pub fn qname<'a>(&self, message: &'a [u8]) -> Name<'a> {
        Name::checked(&message[HEADER_LEN..HEADER_LEN + usize::from(self.qname_len)])
    }
}

/// Walks the records behind the question; all must be whole, and nothing may follow them.
fn read_records(mut rest: &[u8], counts: Counts) -> Result<(Option<Edns>, bool), QueryError> {
    let (mut edns, mut is_signed) = (None, false);
    for _ in 0..u32::from(counts.answer) + u32::from(counts.authority) {
        rest = Record::split(rest).ok_or(QueryError::Format)?.1;
    }
    for _ in 0..counts.additional {
        let (record, tail) = Record::split(rest).ok_or(QueryError::Format)?;
        rest = tail;
        is_signed = record.rtype == Rtype::TSIG;
        if record.rtype != Rtype::OPT {
            continue;
        }
        // RFC 6891, 6.1.1: a second OPT is a format error; 6.1.2: the owner is the root.
        if edns.is_some() || !record.owner_is_root {
            return Err(QueryError::Format);
        }
        edns = Some(Edns::from_record(&record).ok_or(QueryError::Format)?);
    }
    if rest.is_empty() { Ok((edns, is_signed)) } else { Err(QueryError::Format) }
}

/// The data of the first option of that code in the first OPT record.
fn find_option(mut records: &[u8], code: u16) -> Option<&[u8]> {
    loop {
        let (record, tail) = Record::split(records)?;
        records = tail;
        if record.rtype == Rtype::OPT && record.owner_is_root {
            return Options(record.rdata).find(|(own, _)| *own == code).map(|(_, data)| data);
        }
    }
}

/// The first OPT record of the additional section whose fixed part can be read. Its data, and what follows, may be malformed.
fn find_opt(mut rest: &[u8], counts: Counts) -> Option<Edns> {
    let before = u32::from(counts.answer) + u32::from(counts.authority);
    for number in 0..before + u32::from(counts.additional) {
        let fixed = rest[skip_name(rest)?..].first_chunk::<10>()?;
        if number >= before && be16(fixed, 0) == Rtype::OPT.0 {
            return Some(Edns::from_fixed(be16(fixed, 2), be32(fixed, 4)));
        }
        rest = Record::split(rest)?.1;
    }
    None
}

/// One record behind the question, as far as a server of queries cares.
struct Record<'a> {
    owner_is_root: bool,
    rtype: Rtype,
    class: u16,
    ttl: u32,
    rdata: &'a [u8],
}

impl<'a> Record<'a> {
    /// Takes a whole record off the front of `octets`.
    fn split(octets: &'a [u8]) -> Option<(Record<'a>, &'a [u8])> {
        let owner_len = skip_name(octets)?;
        let fixed = octets[owner_len..].first_chunk::<10>()?;
        let (rdata, tail) = octets[owner_len + 10..].split_at_checked(usize::from(be16(fixed, 8)))?;
        let record = Record {
            owner_is_root: octets[0] == 0,
            rtype: Rtype(be16(fixed, 0)),
            class: be16(fixed, 2),
            ttl: be32(fixed, 4),
            rdata,
        };
        Some((record, tail))
    }
}

/// Octets that a name takes where it stands. A pointer ends it and is not followed: only its place matters here.
fn skip_name(octets: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match *octets.get(at)? {
            0 => return Some(at + 1),
            len @ 1..=63 => at += 1 + usize::from(len),
            0xc0..=0xff => return (at + 2 <= octets.len()).then_some(at + 2),
            _ => return None,
        }
        if at > 254 {
            return None;
        }
    }
}

impl Edns {
    /// The option code of the name server identifier (RFC 5001, 2.3).
    pub const NSID: u16 = 3;
    /// The option code of a client's network (RFC 7871, 6).
    pub const CLIENT_SUBNET: u16 = 8;
    /// The option code of the time for which a connection may be idle (RFC 7828, 3.1).
    pub const KEEPALIVE: u16 = 11;
    /// The option code of the version of a zone (RFC 9660, 2).
    pub const ZONE_VERSION: u16 = 19;
    /// The option code of an extended DNS error (RFC 8914, 2).
    pub const EXTENDED_ERROR: u16 = 15;

    /// What an OPT record says without its options (RFC 6891, 6.1.3).
    #[inline(always)]
    fn from_fixed(class: u16, ttl: u32) -> Edns {
        let (version, dnssec_ok) = ((ttl >> 16) as u8, ttl & 0x8000 != 0);
        let (compact_ok, nsid, subnet, more) = Default::default();
        Edns { payload_size: class, version, dnssec_ok, compact_ok, nsid, subnet, more }
    }

    /// Reads an OPT record; `None` if its options do not fill its data exactly.
    #[inline(always)]
    fn from_record(record: &Record<'_>) -> Option<Edns> {
        let mut edns = Edns::from_fixed(record.class, record.ttl);
        edns.compact_ok = record.ttl & 0x4000 != 0;
        let mut options = Options(record.rdata);
        for (code, _) in &mut options {
            edns.nsid |= code == Edns::NSID;
            edns.subnet |= code == Edns::CLIENT_SUBNET;
            edns.more.note(code);
        }
        options.0.is_empty().then_some(edns)
    }
}

/// The options in the data of an OPT record, code and data of each. What is left after the last is no whole option.
struct Options<'a>(&'a [u8]);

impl<'a> Iterator for Options<'a> {
    type Item = (u16, &'a [u8]);

    #[inline(always)]
    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let (fixed, tail) = self.0.split_first_chunk::<4>()?;
        let (data, rest) = tail.split_at_checked(usize::from(be16(fixed, 2)))?;
        self.0 = rest;
        Some((be16(fixed, 0), data))
    }
}

fn read_counts(header: &[u8; HEADER_LEN]) -> Counts {
    Counts {
        question: be16(header, 4),
        answer: be16(header, 6),
        authority: be16(header, 8),
        additional: be16(header, 10),
    }
}

#[inline(always)]
fn be16(octets: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([octets[at], octets[at + 1]])
}

#[inline(always)]
fn be32(octets: &[u8], at: usize) -> u32 {
    u32::from(be16(octets, at)) << 16 | u32::from(be16(octets, at + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A query for `www.example.` A IN with RD, and `tail` behind the question.
    fn message(counts: [u16; 4], tail: &[u8]) -> Vec<u8> {
        let mut message = vec![0x12, 0x34, 0x01, 0x00];
        message.extend(counts.iter().flat_map(|count| count.to_be_bytes()));
        message.extend_from_slice(b"\x03www\x07example\x00\x00\x01\x00\x01");
        message.extend_from_slice(tail);
        message
    }

    /// What [`OPT`] says.
    const PLAIN: Edns = Edns {
        payload_size: 1232,
        version: 0,
        dnssec_ok: true,
        compact_ok: false,
        nsid: false,
        subnet: false,
        more: MoreOptions(0),
    };
    const OPT: &[u8] = b"\x00\x00\x29\x04\xd0\x00\x00\x80\x00\x00\x00";

    #[test]
    fn a_plain_query_is_read() {
        let query = Query::parse(&message([1, 0, 0, 0], b"")).unwrap();
        assert_eq!(query.qname_len, 13);
        assert_eq!((query.qtype, query.qclass), (Rtype::A, Class::IN));
        assert_eq!((query.flags, query.edns), (flag::RD, None));
    }

    #[test]
    fn an_opt_record_is_read() {
        let edns = Query::parse(&message([1, 0, 0, 1], OPT)).unwrap().edns.unwrap();
        assert_eq!(edns, PLAIN);
    }

    #[test]
    fn the_flag_of_compact_answers_is_read_beside_that_of_dnssec() {
        let opt = b"\x00\x00\x29\x04\xd0\x00\x00\xc0\x00\x00\x00";
        let edns = Query::parse(&message([1, 0, 0, 1], opt)).unwrap().edns.unwrap();
        assert_eq!(edns, Edns { compact_ok: true, ..PLAIN });
    }

    #[test]
    fn an_nsid_request_is_seen_among_other_options() {
        let opt = b"\x00\x00\x29\x10\x00\x00\x00\x00\x00\x00\x0c\x00\x0a\x00\x04abcd\x00\x03\x00\x00";
        assert!(Query::parse(&message([1, 0, 0, 1], opt)).unwrap().edns.unwrap().nsid);
    }

    #[test]
    fn a_network_of_a_client_is_seen() {
        let opt = b"\x00\x00\x29\x10\x00\x00\x00\x00\x00\x00\x0b\x00\x08\x00\x07\x00\x01\x18\x00\xc0\x00\x02";
        let message = message([1, 0, 0, 1], opt);
        let query = Query::parse(&message).unwrap();
        assert!(query.edns.unwrap().subnet);
        let option = query.option(&message, Edns::CLIENT_SUBNET).unwrap();
        assert_eq!(crate::Subnet::read(option), Some((crate::Subnet::new([192, 0, 2, 0].into(), 24), 0)));
    }

    #[test]
    fn an_option_is_found_by_its_code() {
        let opt = b"\x00\x00\x29\x10\x00\x00\x00\x00\x00\x00\x0c\x00\x0a\x00\x04abcd\x00\x03\x00\x00";
        let message = message([1, 0, 0, 1], opt);
        let query = Query::parse(&message).unwrap();
        assert_eq!(query.option(&message, 10), Some(&b"abcd"[..]));
        assert_eq!(query.option(&message, Edns::NSID), Some(&b""[..]));
        assert_eq!(query.option(&message, 11), None);
    }

    #[test]
    fn two_opt_records_are_a_format_error() {
        let twice = [OPT, OPT].concat();
        assert_eq!(Query::parse(&message([1, 0, 0, 2], &twice)), Err(QueryError::Format));
    }

    #[test]
    fn an_opt_record_below_the_root_is_a_format_error() {
        let opt = b"\x01a\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00";
        assert_eq!(Query::parse(&message([1, 0, 0, 1], opt)), Err(QueryError::Format));
    }

    #[test]
    fn no_question_and_two_questions_are_format_errors() {
        for count in [0, 2] {
            assert_eq!(Query::parse(&message([count, 0, 0, 0], b"")), Err(QueryError::Format));
        }
    }

    #[test]
    fn a_query_without_a_question_shows_its_opt_record_and_the_options_in_it() {
        let message = |counts: [u16; 4], tail: &[u8]| {
            let head = [&[0x12, 0x34, 0, 0][..], &counts.map(u16::to_be_bytes).concat()].concat();
            [&head, tail].concat()
        };
        let cookie = b"\x00\x00\x29\x04\xd0\x00\x00\x80\x00\x00\x0c\x00\x0a\x00\x08abcdefgh";
        let asks = message([0, 0, 0, 1], cookie);
        assert_eq!(Query::parse(&asks), Err(QueryError::Format));
        assert_eq!(Query::parse_unasked(&asks), Some(PLAIN));
        assert_eq!(Query::option_unasked(&asks, 10), Some(&b"abcdefgh"[..]));
        let mut notify = asks.clone();
        notify[2] = 4 << 3;
        let others = [message([0; 4], b""), message([0, 0, 0, 2], OPT), message([0, 0, 0, 1], b"x"), notify];
        assert!(others.iter().all(|other| Query::parse_unasked(other).is_none()));
        for len in 0..asks.len() {
            assert_eq!(Query::parse_unasked(&asks[..len]), None, "{len} octets");
        }
    }

    #[test]
    fn a_malformed_message_shows_its_question_and_the_fixed_part_of_its_opt_record() {
        let malformed = |counts, tail: &[u8]| Query::parse_malformed(&message(counts, tail));
        let edns = Some(PLAIN);
        let options_cut_short = [&OPT[..9], &[0, 5, 0, 3, 0]].concat();
        for tail in [&[OPT, OPT].concat(), &options_cut_short, &[OPT, b"x"].concat()] {
            let query = malformed([1, 0, 0, 1], tail).unwrap();
            assert_eq!((query.qname_len, query.qtype, query.edns), (13, Rtype::A, edns));
        }
        assert_eq!(malformed([1, 0, 0, 0], OPT).unwrap().edns, None, "a record that no count counts");
        assert_eq!(malformed([1, 1, 0, 1], OPT).unwrap().edns, None, "in another section it is no OPT");
        assert!(malformed([2, 0, 0, 0], b"").is_none() && malformed([0, 0, 0, 1], OPT).is_none());
    }

    #[test]
    fn octets_behind_the_last_record_are_a_format_error() {
        assert_eq!(Query::parse(&message([1, 0, 0, 0], b"x")), Err(QueryError::Format));
    }

    #[test]
    fn responses_and_fragments_of_headers_get_no_answer() {
        let mut response = message([1, 0, 0, 0], b"");
        response[2] |= 0x80;
        assert_eq!(Query::parse(&response), Err(QueryError::Response));
        assert_eq!(Query::parse(&response[..11]), Err(QueryError::Short));
    }

    #[test]
    fn other_opcodes_are_told_apart_whatever_follows() {
        let mut notify = message([9, 9, 9, 9], b"");
        notify[2] |= 4 << 3;
        assert_eq!(Query::parse(&notify), Err(QueryError::Opcode));
    }

    #[test]
    fn a_message_cut_anywhere_is_a_format_error() {
        let whole = message([1, 0, 0, 1], OPT);
        for len in HEADER_LEN..whole.len() {
            assert_eq!(Query::parse(&whole[..len]), Err(QueryError::Format), "{len} octets");
        }
    }

    #[test]
    fn a_compression_pointer_in_the_question_is_a_format_error() {
        let mut looped = message([1, 0, 0, 0], b"");
        looped[12] = 0xc0;
        looped[13] = 0x0c;
        assert_eq!(Query::parse(&looped), Err(QueryError::Format));
    }

    #[test]
    fn names_of_255_octets_are_taken_and_longer_ones_refused() {
        let query = |labels: &[usize]| {
            let mut message = vec![0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
            for &len in labels {
                message.push(len as u8);
                message.extend(std::iter::repeat_n(b'x', len));
            }
            message.extend_from_slice(&[0, 0, 1, 0, 1]);
            Query::parse(&message)
        };
        assert_eq!(query(&[63, 63, 63, 61]).unwrap().qname_len, 255);
        assert_eq!(query(&[63, 63, 63, 62]), Err(QueryError::Format));
        assert_eq!(query(&[64]), Err(QueryError::Format));
    }
}
