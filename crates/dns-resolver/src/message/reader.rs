//! A response of a server, read whole: records in their sections (RFC 1035, 4.1). Anything malformed refuses the whole message.

use std::sync::Arc;

use dns_guard::COOKIE;
use dns_message::{Message as Reader, Record};
use dns_wire::{Class, Name, NameBuf, Rtype};

use super::rrset::{Proof, Rdatas};
use super::{CLIENT_SUBNET, Rrset};
use crate::dnssec::Security;
use crate::subnet::Subnet;

/// Records that one message may have. More are no answer to anything, and cost time in proportion to their square.
const RECORDS_MAX: u32 = 1000;

/// One question.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Question {
    pub(crate) name: NameBuf,
    pub(crate) rtype: Rtype,
    /// The answer is not validated: the client does it (CD), or it is the address of a name server.
    pub(crate) is_unchecked: bool,
    /// Where those who ask are; none if that does not count.
    pub(crate) subnet: Option<Subnet>,
}

impl Question {
    /// A question for `name`, in lower case, whose answer is validated.
    pub(crate) fn new(name: Name<'_>, rtype: Rtype) -> Question {
        let mut name = NameBuf::from(name);
        name.make_lowercase();
        Question { name, rtype, is_unchecked: false, subnet: None }
    }
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
    /// The data of the option of RFC 7871.
    pub(crate) subnet: Option<Vec<u8>>,
}

impl Message {
    /// Reads a message; `None` if it is malformed. Records of other classes than IN are left out.
    pub(crate) fn parse(octets: &[u8]) -> Option<Message> {
        let mut reader = Reader::parse(octets).ok()?;
        // Only IN is ever asked, and the name and type are compared.
        let question = reader.question().map(|asked| Question {
            name: asked.name.clone(),
            rtype: asked.qtype,
            is_unchecked: false,
            subnet: None,
        });
        let mut message = Message {
            flags: reader.flags(),
            rcode: reader.flags() & 0xf,
            question,
            answer: Vec::new(),
            authority: Vec::new(),
            additional: Vec::new(),
            has_opt: false,
            cookie: None,
            subnet: None,
        };
        let counts = reader.counts();
        if counts.iter().map(|&count| u32::from(count)).sum::<u32>() > RECORDS_MAX {
            return None;
        }
        for (section, count) in counts.into_iter().enumerate() {
            for _ in 0..count {
                message.take(section, reader.next_record().ok()?);
            }
        }
        Some(message)
    }

    /// Puts a record into its section, or reads it if it is the OPT record.
    fn take(&mut self, section: usize, mut record: Record) {
        if record.rtype == Rtype::OPT {
            self.has_opt = true;
            let option = |code| options(&record.rdata).find(|(own, _)| *own == code);
            self.cookie = option(COOKIE).map(|(_, data)| data.to_vec());
            self.subnet = option(CLIENT_SUBNET).map(|(_, data)| data.to_vec());
            self.rcode = (self.flags & 0xf) | ((record.ttl >> 24) as u16) << 4;
        } else if record.class == Class::IN {
            // One with the top bit is zero (RFC 2181, 8).
            record.ttl = if record.ttl >> 31 == 0 { record.ttl } else { 0 };
            [&mut self.answer, &mut self.authority, &mut self.additional][section].push(record);
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
}
