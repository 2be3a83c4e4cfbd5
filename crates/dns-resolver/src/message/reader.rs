//! A response of a server, read whole: names decompressed, records in their sections (RFC 1035, 4.1).
//!
//! Anything malformed refuses the whole message. Every pointer must point before the name that it is in, so reading ends; a message
//! yields at most as many records as fit its octets.

use std::sync::Arc;

use dns_guard::COOKIE;
use dns_wire::header::HEADER_LEN;
use dns_wire::name::NAME_LEN_MAX;
use dns_wire::{Class, Name, NameBuf, Rtype};

use super::Rrset;
use super::rrset::{Proof, Rdatas};
use crate::dnssec::Security;

/// Pointers that one name may go through. Each names at least one label, and a name has at most 127 and the root's.
const POINTERS_MAX: usize = 128;
/// Records that one message may have. More are no answer to anything, and cost time in proportion to their square.
const RECORDS_MAX: u32 = 1000;

/// One question.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Question {
    pub(crate) name: NameBuf,
    pub(crate) rtype: Rtype,
    /// The answer is not validated: the client does it (CD), or it is the address of a name server.
    pub(crate) is_unchecked: bool,
}

impl Question {
    /// A question for `name`, in lower case, whose answer is validated.
    pub(crate) fn new(name: Name<'_>, rtype: Rtype) -> Question {
        let mut name = NameBuf::from(name);
        name.make_lowercase();
        Question { name, rtype, is_unchecked: false }
    }
}

/// One record, its data without compression.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) owner: NameBuf,
    pub(crate) rtype: Rtype,
    /// Seconds; a value with the top bit is zero (RFC 2181, 8).
    pub(crate) ttl: u32,
    pub(crate) rdata: Vec<u8>,
}

/// A message.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) flags: u16,
    /// With the upper bits of the OPT record.
    pub(crate) rcode: u16,
    pub(crate) question: Option<Question>,
    pub(crate) answer: Vec<Record>,
    pub(crate) authority: Vec<Record>,
    pub(crate) additional: Vec<Record>,
    pub(crate) has_opt: bool,
    /// The data of the COOKIE option (RFC 7873, 4).
    pub(crate) cookie: Option<Vec<u8>>,
}

impl Message {
    /// Reads a message; `None` if it is malformed. Records of other classes than IN are left out.
    pub(crate) fn parse(octets: &[u8]) -> Option<Message> {
        let header: &[u8; HEADER_LEN] = octets.first_chunk()?;
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let mut reader = Reader { octets, at: HEADER_LEN };
        let question = match word(4) {
            0 => None,
            1 => Some(reader.question()?),
            _ => return None, // RFC 9619.
        };
        let flags = word(2);
        let mut message = Message {
            flags,
            rcode: flags & 0xf,
            question,
            answer: Vec::new(),
            authority: Vec::new(),
            additional: Vec::new(),
            has_opt: false,
            cookie: None,
        };
        if [6, 8, 10].iter().map(|at| u32::from(word(*at))).sum::<u32>() > RECORDS_MAX {
            return None;
        }
        for (section, count) in [word(6), word(8), word(10)].into_iter().enumerate() {
            for _ in 0..count {
                message.take(section, reader.record()?);
            }
        }
        Some(message)
    }

    /// Puts a record into its section, or reads it if it is the OPT record.
    fn take(&mut self, section: usize, raw: RawRecord) {
        if raw.record.rtype == Rtype::OPT {
            self.has_opt = true;
            self.cookie =
                options(&raw.record.rdata).find(|(code, _)| *code == COOKIE).map(|(_, data)| data.to_vec());
            self.rcode = (self.flags & 0xf) | ((raw.ttl_field >> 24) as u16) << 4;
        } else if raw.class == Class::IN {
            [&mut self.answer, &mut self.authority, &mut self.additional][section].push(raw.record);
        }
    }
}

/// The options in the data of an OPT record, code and data of each, as far as they are whole.
fn options(mut rdata: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (fixed, tail) = rdata.split_first_chunk::<4>()?;
        let (data, rest) = tail.split_at_checked(usize::from(u16::from_be_bytes([fixed[2], fixed[3]])))?;
        rdata = rest;
        Some((u16::from_be_bytes([fixed[0], fixed[1]]), data))
    })
}

/// The set of `owner` and `rtype` among `records`, with its signatures and the smallest TTL of its records (RFC 2181, 5.2).
pub(super) fn collect(records: &[Record], owner: Name<'_>, rtype: Rtype) -> Option<Rrset> {
    let own = || records.iter().filter(|r| r.rtype == rtype && r.owner.as_name() == owner);
    let first = own().next()?;
    let ttl = own().map(|record| record.ttl).min()?;
    let rdatas = Rdatas::pack(own().map(|record| &record.rdata[..]));
    let covers = |r: &&Record| r.rtype == Rtype::RRSIG && r.rdata.starts_with(&rtype.0.to_be_bytes());
    let mut sigs = records.iter().filter(covers).filter(|r| r.owner.as_name() == owner).peekable();
    let proof = sigs.peek().is_some().then(|| {
        let sigs = Rdatas::pack(sigs.map(|record| &record.rdata[..]));
        Arc::new(Proof { sigs, absence: Vec::new() })
    });
    Some(Rrset { owner: first.owner.clone(), rtype, ttl, rdatas, security: Security::Unchecked, proof })
}

impl Message {
    /// The set of `owner` and `rtype` in the answer section.
    pub(crate) fn answer_set(&self, owner: Name<'_>, rtype: Rtype) -> Option<Rrset> {
        collect(&self.answer, owner, rtype)
    }

    /// The set of `owner` and `rtype` in the authority section.
    pub(crate) fn authority_set(&self, owner: Name<'_>, rtype: Rtype) -> Option<Rrset> {
        collect(&self.authority, owner, rtype)
    }

    /// The NSEC and NSEC3 sets of the authority section, at most `max`.
    pub(crate) fn absence(&self, max: usize) -> Vec<Rrset> {
        let mut sets: Vec<Rrset> = Vec::new();
        for record in self.authority.iter().filter(|r| matches!(r.rtype, Rtype::NSEC | Rtype::NSEC3)) {
            let is_there = sets.iter().any(|set| set.owner == record.owner && set.rtype == record.rtype);
            if sets.len() < max && !is_there {
                sets.extend(self.authority_set(record.owner.as_name(), record.rtype));
            }
        }
        sets
    }
}

struct RawRecord {
    record: Record,
    class: Class,
    ttl_field: u32,
}

struct Reader<'a> {
    octets: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn u16(&mut self) -> Option<u16> {
        let value = self.octets.get(self.at..)?.first_chunk::<2>()?;
        self.at += 2;
        Some(u16::from_be_bytes(*value))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from(self.u16()?) << 16 | u32::from(self.u16()?))
    }

    fn question(&mut self) -> Option<Question> {
        let name = self.name()?;
        let rtype = Rtype(self.u16()?);
        self.u16()?; // Only IN is ever asked, and the name and type are compared.
        Some(Question { name, rtype, is_unchecked: false })
    }

    /// A name with its pointers followed. They go strictly backwards.
    fn name(&mut self) -> Option<NameBuf> {
        let mut wire = [0; NAME_LEN_MAX];
        let mut len = 0;
        let (mut at, mut end, mut lowest, mut pointers) = (self.at, None, self.at, 0);
        loop {
            let octet = *self.octets.get(at)?;
            match octet {
                0 => break,
                1..=63 => {
                    let label = self.octets.get(at..at + 1 + usize::from(octet))?;
                    wire.get_mut(len..len + label.len())?.copy_from_slice(label);
                    (len, at) = (len + label.len(), at + label.len());
                }
                0xc0.. => {
                    let low = *self.octets.get(at + 1)?;
                    let target = usize::from(u16::from_be_bytes([octet & 0x3f, low]));
                    pointers += 1;
                    if target >= lowest || pointers > POINTERS_MAX {
                        return None;
                    }
                    end.get_or_insert(at + 2);
                    (at, lowest) = (target, target);
                }
                _ => return None,
            }
        }
        self.at = end.unwrap_or(at + 1);
        // The root label is there: the array is zero behind the labels.
        Name::from_wire(wire.get(..=len)?).ok().map(NameBuf::from)
    }

    fn record(&mut self) -> Option<RawRecord> {
        let owner = self.name()?;
        let rtype = Rtype(self.u16()?);
        let class = Class(self.u16()?);
        let ttl_field = self.u32()?;
        let end = usize::from(self.u16()?) + self.at;
        let rdata = self.rdata(rtype, end)?;
        let ttl = if ttl_field >> 31 == 0 { ttl_field } else { 0 };
        Some(RawRecord { record: Record { owner, rtype, ttl, rdata }, class, ttl_field })
    }

    /// The data up to `end`, names decompressed where the type may compress them (RFC 3597, 4).
    fn rdata(&mut self, rtype: Rtype, end: usize) -> Option<Vec<u8>> {
        if end > self.octets.len() {
            return None;
        }
        let (mut rdata, start) = (Vec::new(), self.at);
        for part in layout(rtype) {
            match part {
                Part::Octets(count) => self.copy(*count, end, &mut rdata)?,
                Part::String => {
                    let len = usize::from(*self.octets.get(self.at)?);
                    self.copy(1 + len, end, &mut rdata)?;
                }
                Part::Name => rdata.extend_from_slice(self.name()?.as_name().as_bytes()),
            }
        }
        let rest = self.octets.get(self.at..end)?;
        let is_fixed = !layout(rtype).is_empty() && !matches!(rtype, Rtype::SIG | Rtype::NXT);
        if is_fixed && !rest.is_empty() || !length_is_right(rtype, end - start) {
            return None;
        }
        rdata.extend_from_slice(rest);
        self.at = end;
        u16::try_from(rdata.len()).is_ok().then_some(rdata)
    }

    fn copy(&mut self, count: usize, end: usize, into: &mut Vec<u8>) -> Option<()> {
        let stop = self.at + count;
        if stop > end {
            return None;
        }
        into.extend_from_slice(self.octets.get(self.at..stop)?);
        self.at = stop;
        Some(())
    }
}

/// A part of a record's data.
enum Part {
    Octets(usize),
    String,
    Name,
}

/// The data of the types whose names may be compressed; of others, nothing: they are copied.
fn layout(rtype: Rtype) -> &'static [Part] {
    use Part::{Name, Octets, String};
    match rtype {
        Rtype::NS | Rtype::CNAME | Rtype::PTR | Rtype::DNAME => &[Name],
        Rtype::MD | Rtype::MF | Rtype::MB | Rtype::MG | Rtype::MR => &[Name],
        Rtype::SOA => &[Name, Name, Octets(20)],
        Rtype::MINFO | Rtype::RP => &[Name, Name],
        Rtype::MX | Rtype::AFSDB | Rtype::RT | Rtype::KX => &[Octets(2), Name],
        Rtype::PX => &[Octets(2), Name, Name],
        Rtype::SRV => &[Octets(6), Name],
        Rtype::NAPTR => &[Octets(4), String, String, String, Name],
        Rtype::SIG => &[Octets(18), Name],
        Rtype::NXT => &[Name],
        _ => &[],
    }
}

/// Turns the names in a record's data into lower case, where the canonical form has them so (RFC 4034, 6.2; RFC 6840, 5.1).
pub(crate) fn lowercase_names(rtype: Rtype, rdata: &mut [u8]) {
    let mut rest = rdata;
    for part in layout(rtype) {
        let len = match part {
            Part::Octets(count) => *count,
            Part::String => 1 + rest.first().map_or(0, |len| usize::from(*len)),
            Part::Name => Name::split_from(rest).map_or(0, |(name, _)| name.len()),
        };
        let Some((part_octets, tail)) = rest.split_at_mut_checked(len) else { return };
        if matches!(part, Part::Name) {
            part_octets.make_ascii_lowercase(); // Length octets are below 64 and so never letters.
        }
        rest = tail;
    }
}

/// Addresses have one length; everything that we read beyond names is one.
fn length_is_right(rtype: Rtype, len: usize) -> bool {
    match rtype {
        Rtype::A => len == 4,
        Rtype::AAAA => len == 16,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A response to example.com MX with one record, whose exchange ends in a pointer to the question.
    const MX: &[u8] = b"\x12\x34\x84\x00\0\x01\0\x01\0\0\0\0\x07example\x03com\0\0\x0f\0\x01\
        \xc0\x0c\0\x0f\0\x01\0\0\x0e\x10\0\x09\0\x0a\x04mail\xc0\x0c";

    #[test]
    fn names_are_decompressed_in_owners_and_data() {
        let message = Message::parse(MX).unwrap();
        assert_eq!((message.flags, message.rcode, message.has_opt), (0x8400, 0, false));
        let record = &message.answer[0];
        assert_eq!((record.owner.to_string(), record.ttl), ("example.com.".to_owned(), 3600));
        assert_eq!(record.rdata, b"\0\x0a\x04mail\x07example\x03com\0");
    }

    #[test]
    fn a_message_cut_anywhere_is_refused() {
        (0..MX.len()).for_each(|len| assert!(Message::parse(&MX[..len]).is_none(), "{len} octets"));
    }

    #[test]
    fn pointers_that_do_not_go_backwards_are_refused() {
        let mut looped = MX.to_vec();
        let last = looped.len() - 1;
        for target in [last as u8 - 1, last as u8 - 6, 0xff] {
            looped[last] = target;
            assert!(Message::parse(&looped).is_none(), "to {target}");
        }
    }

    #[test]
    fn a_name_of_many_pointers_is_refused() {
        let with_pointers = |count: u16| {
            let mut octets = b"\0\0\x84\0\0\0\0\x01\0\0\0\0\0\0\x10\0\x01\0\0\0\0\0\0".to_vec();
            octets[7] = 2;
            let rdata_len = 1 + 2 * (count - 1);
            let start = octets.len() as u16;
            octets[21..23].copy_from_slice(&rdata_len.to_be_bytes());
            octets.push(0);
            (0..count - 1).for_each(|index| {
                let target = if index == 0 { start } else { start + 1 + 2 * (index - 1) };
                octets.extend_from_slice(&(0xc000 | target).to_be_bytes());
            });
            let last = if count == 1 { start } else { start + 1 + 2 * (count - 2) };
            octets.extend_from_slice(&(0xc000 | last).to_be_bytes());
            octets.extend_from_slice(b"\0\x10\0\x01\0\0\0\0\0\0");
            octets
        };
        assert!(Message::parse(&with_pointers(128)).is_some());
        assert!(Message::parse(&with_pointers(129)).is_none());
    }

    #[test]
    fn a_message_of_many_records_is_refused() {
        let with_records = |count: u16| {
            let mut octets = b"\0\0\x84\0\0\0\0\0\0\0\0\0".to_vec();
            octets[6..8].copy_from_slice(&count.to_be_bytes());
            (0..count).for_each(|_| octets.extend_from_slice(b"\0\0\x10\0\x01\0\0\0\0\0\0"));
            octets
        };
        assert!(Message::parse(&with_records(1000)).is_some());
        assert!(Message::parse(&with_records(1001)).is_none());
    }

    #[test]
    fn the_opt_record_extends_the_rcode() {
        let badvers = b"\0\0\x84\0\0\0\0\0\0\0\0\x01\0\0\x29\x04\xd0\x01\0\0\0\0\0";
        let message = Message::parse(badvers).unwrap();
        assert_eq!((message.rcode, message.has_opt, message.question), (16, true, None));
    }

    #[test]
    fn an_address_of_another_length_is_refused() {
        let short = b"\0\0\x84\0\0\0\0\x01\0\0\0\0\0\0\x01\0\x01\0\0\0\0\0\x03abc";
        assert!(Message::parse(short).is_none());
    }
}
