//! Messages of transfers: read record by record, and written with compressed names (RFC 1035, 4.1).

use dns_wire::header::HEADER_LEN;
use dns_wire::name::NAME_LEN_MAX;
use dns_wire::{Class, Name, NameBuf, Rtype};

/// The message is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message is malformed")]
pub struct Malformed;

/// Opcode and flags, see [`Message::flags`].
pub mod flag {
    /// The opcode NOTIFY in its place (RFC 1996, 3.1).
    pub const NOTIFY: u16 = 4 << 11;
    /// Every response code that fits the header.
    pub const RCODE: u16 = 0xf;
}

/// The question of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// QNAME in its spelling.
    pub name: NameBuf,
    /// QTYPE.
    pub qtype: Rtype,
    /// QCLASS.
    pub qclass: Class,
}

/// A record, its data without compression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its owner.
    pub owner: NameBuf,
    /// Its type.
    pub rtype: Rtype,
    /// Its class.
    pub class: Class,
    /// Seconds.
    pub ttl: u32,
    /// Names in it are not compressed.
    pub rdata: Vec<u8>,
}

/// Reads a message from its first octet to its last.
#[derive(Clone, Debug)]
pub struct Message<'m> {
    octets: &'m [u8],
    at: usize,
    /// Whether `at` is behind the question.
    question: Option<Question>,
}

impl<'m> Message<'m> {
    /// Reads header and question; there is at most one (RFC 9619).
    pub fn parse(octets: &'m [u8]) -> Result<Message<'m>, Malformed> {
        if octets.len() < HEADER_LEN {
            return Err(Malformed);
        }
        let mut message = Message { octets, at: HEADER_LEN, question: None };
        match message.word(4) {
            0 => {}
            1 => message.question = Some(message.read_question().ok_or(Malformed)?),
            _ => return Err(Malformed),
        }
        Ok(message)
    }

    /// The ID.
    pub fn id(&self) -> u16 {
        self.word(0)
    }

    /// The second word of the header: QR, opcode, flags, RCODE.
    pub fn flags(&self) -> u16 {
        self.word(2)
    }

    /// Numbers of records in the answer, authority and additional section.
    pub fn counts(&self) -> [u16; 3] {
        [self.word(6), self.word(8), self.word(10)]
    }

    /// The question, if there is one.
    pub fn question(&self) -> Option<&Question> {
        self.question.as_ref()
    }

    /// Offset of what is read next.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Whether all octets are read.
    pub fn is_at_end(&self) -> bool {
        self.at == self.octets.len()
    }

    /// Reads the next record.
    pub fn next_record(&mut self) -> Result<Record, Malformed> {
        self.read_record().ok_or(Malformed)
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.octets[at], self.octets[at + 1]]) // The header is there.
    }

    fn read_question(&mut self) -> Option<Question> {
        let name = self.read_name()?;
        Some(Question { name, qtype: Rtype(self.read_u16()?), qclass: Class(self.read_u16()?) })
    }

    fn read_u16(&mut self) -> Option<u16> {
        let value = self.octets.get(self.at..)?.first_chunk::<2>()?;
        self.at += 2;
        Some(u16::from_be_bytes(*value))
    }

    fn read_record(&mut self) -> Option<Record> {
        let owner = self.read_name()?;
        let rtype = Rtype(self.read_u16()?);
        let class = Class(self.read_u16()?);
        let ttl = u32::from(self.read_u16()?) << 16 | u32::from(self.read_u16()?);
        let end = usize::from(self.read_u16()?) + self.at;
        let rdata = self.read_rdata(rtype, end)?;
        Some(Record { owner, rtype, class, ttl, rdata })
    }

    /// The data up to `end`; names are decompressed where the type may compress them (RFC 3597, 4).
    fn read_rdata(&mut self, rtype: Rtype, end: usize) -> Option<Vec<u8>> {
        if end > self.octets.len() {
            return None;
        }
        let mut rdata = Vec::new();
        for part in layout(rtype) {
            match part {
                Part::Octets(count) => self.copy(*count, end, &mut rdata)?,
                Part::String => {
                    let len = usize::from(*self.octets.get(self.at)?);
                    self.copy(1 + len, end, &mut rdata)?;
                }
                Part::Name => rdata.extend_from_slice(self.read_name()?.as_name().as_bytes()),
            }
        }
        let rest = self.octets.get(self.at..end)?;
        if !layout(rtype).is_empty() && !rest.is_empty() {
            return None;
        }
        rdata.extend_from_slice(rest);
        self.at = end;
        let is_whole = match rtype {
            Rtype::A => rdata.len() == 4,
            Rtype::AAAA => rdata.len() == 16,
            _ => rdata.len() <= usize::from(u16::MAX),
        };
        is_whole.then_some(rdata)
    }

    fn copy(&mut self, count: usize, end: usize, into: &mut Vec<u8>) -> Option<()> {
        let stop = self.at + count;
        into.extend_from_slice(self.octets.get(self.at..stop).filter(|_| stop <= end)?);
        self.at = stop;
        Some(())
    }

    /// A name. Its pointers go strictly backwards, so that reading ends.
    fn read_name(&mut self) -> Option<NameBuf> {
        let mut wire = [0; NAME_LEN_MAX];
        let (mut at, mut len, mut end, mut lowest) = (self.at, 0, None, self.at);
        loop {
            match *self.octets.get(at)? {
                0 => break,
                octet @ 1..=63 => {
                    let label = self.octets.get(at..at + 1 + usize::from(octet))?;
                    wire.get_mut(len..len + label.len())?.copy_from_slice(label);
                    (at, len) = (at + label.len(), len + label.len());
                }
                octet @ 0xc0.. => {
                    let target = usize::from(u16::from_be_bytes([octet & 0x3f, *self.octets.get(at + 1)?]));
                    if target >= lowest {
                        return None;
                    }
                    end.get_or_insert(at + 2);
                    (at, lowest) = (target, target);
                }
                _ => return None,
            }
        }
        self.at = end.unwrap_or(at + 1);
        // The array has the root label behind the others.
        Name::from_wire(wire.get(..=len)?).ok().map(NameBuf::from)
    }
}

enum Part {
    Octets(usize),
    String,
    Name,
}

/// The data of the types whose names a sender may compress; nothing for others, which are copied.
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
        _ => &[],
    }
}

/// The SERIAL in the data of a SOA record.
pub fn serial_of(rdata: &[u8]) -> Option<u32> {
    soa_numbers(rdata).map(|[serial, ..]| serial)
}

/// SERIAL, REFRESH, RETRY, EXPIRE and MINIMUM in the data of a SOA record.
pub fn soa_numbers(rdata: &[u8]) -> Option<[u32; 5]> {
    let octets = rdata.last_chunk::<20>()?;
    Some(std::array::from_fn(|at| {
        u32::from_be_bytes([octets[4 * at], octets[4 * at + 1], octets[4 * at + 2], octets[4 * at + 3]])
    }))
}

/// Whether `serial` comes before `other` (RFC 1982, 3.2).
pub fn is_older(serial: u32, other: u32) -> bool {
    (1..1 << 31).contains(&other.wrapping_sub(serial))
}

/// A header without records, and one question.
pub fn question_message(id: u16, flags: u16, name: Name<'_>, qtype: Rtype) -> Vec<u8> {
    let mut message = Vec::with_capacity(512);
    for word in [id, flags, 1, 0, 0, 0] {
        message.extend_from_slice(&word.to_be_bytes());
    }
    message.extend_from_slice(name.as_bytes());
    message.extend_from_slice(&qtype.0.to_be_bytes());
    message.extend_from_slice(&Class::IN.0.to_be_bytes());
    message
}

/// Adds `more` to the count of a section, 0 for the answer section to 2 for the additional one.
pub(crate) fn add_to_count(message: &mut [u8], section: usize, more: i32) {
    let at = 6 + 2 * section;
    let count = i32::from(u16::from_be_bytes([message[at], message[at + 1]])) + more;
    message[at..at + 2].copy_from_slice(&(count as u16).to_be_bytes()); // A message holds no more records.
}

/// Appends a record; names in `rdata` are not compressed, nor is the owner.
pub(crate) fn push_record(
    message: &mut Vec<u8>,
    owner: Name<'_>,
    rtype: Rtype,
    class: Class,
    ttl: u32,
    rdata: &[u8],
) {
    message.extend_from_slice(owner.as_bytes());
    message.extend_from_slice(&rtype.0.to_be_bytes());
    message.extend_from_slice(&class.0.to_be_bytes());
    message.extend_from_slice(&ttl.to_be_bytes());
    message.extend_from_slice(&(rdata.len() as u16).to_be_bytes()); // Data has at most 65535 octets.
    message.extend_from_slice(rdata);
}

/// Slots of the table of names. One slot per hash: a name that loses its slot is spelled out again.
const SLOTS: usize = 2048;
/// A pointer has 14 bits (RFC 1035, 4.1.4).
const POINTER_MAX: usize = 0x3fff;

/// Remembers where names stand in a message, so that later ones point there. Octets are compared with their case, so every name
/// arrives as it was written (RFC 5936, 3.4).
pub struct Compressor {
    /// Offsets of names by their hash; 0, where no name is, for none.
    slots: Box<[u16; SLOTS]>,
}

impl Default for Compressor {
    fn default() -> Compressor {
        Compressor { slots: Box::new([0; SLOTS]) }
    }
}

impl Compressor {
    /// Forgets everything: a new message begins.
    pub(crate) fn clear(&mut self) {
        self.slots.fill(0);
    }

    /// Appends a record with compressed names; `message` is one whole message so far.
    pub(crate) fn push_record(
        &mut self,
        message: &mut Vec<u8>,
        owner: &[u8],
        rtype: Rtype,
        ttl: u32,
        rdata: &[u8],
    ) {
        self.push_name(message, owner);
        message.extend_from_slice(&rtype.0.to_be_bytes());
        message.extend_from_slice(&Class::IN.0.to_be_bytes());
        message.extend_from_slice(&ttl.to_be_bytes());
        message.extend_from_slice(&[0, 0]);
        let start = message.len();
        self.push_rdata(message, rtype, rdata);
        let len = (message.len() - start) as u16; // Not longer than `rdata`.
        message[start - 2..start].copy_from_slice(&len.to_be_bytes());
    }

    /// RFC 3597, 4: only names in the data of the types of RFC 1035 are compressed.
    fn push_rdata(&mut self, message: &mut Vec<u8>, rtype: Rtype, rdata: &[u8]) {
        let (before, names, behind) = match rtype {
            Rtype::NS | Rtype::CNAME | Rtype::PTR => (0, 1, 0),
            Rtype::MX => (2, 1, 0),
            Rtype::SOA => (0, 2, 20),
            _ => (rdata.len(), 0, 0),
        };
        message.extend_from_slice(&rdata[..before]);
        let mut rest = &rdata[before..];
        for _ in 0..names {
            let Ok((name, tail)) = Name::split_from(rest) else { break }; // The builder of the zone checked it.
            self.push_name(message, name.as_bytes());
            rest = tail;
        }
        debug_assert!(names == 0 || rest.len() == behind, "names fill the data");
        message.extend_from_slice(rest);
    }

    /// Appends a name in wire format, as far as no part of it stands before.
    pub(crate) fn push_name(&mut self, message: &mut Vec<u8>, name: &[u8]) {
        let (hashes, starts, labels) = hash_suffixes(name);
        for label in 0..labels {
            let slot = usize::from(hashes[label]) % SLOTS;
            let offset = usize::from(self.slots[slot]);
            if offset != 0 && is_at(message, offset, &name[usize::from(starts[label])..]) {
                message.extend_from_slice(&(0xc000 | offset as u16).to_be_bytes());
                return;
            }
            if message.len() <= POINTER_MAX {
                self.slots[slot] = message.len() as u16;
            }
            let start = usize::from(starts[label]);
            message.extend_from_slice(&name[start..=start + usize::from(name[start])]);
        }
        message.push(0);
    }
}

/// For each label of a name, from the left, a hash of it and all behind it, and where it starts.
fn hash_suffixes(name: &[u8]) -> ([u16; 128], [u8; 128], usize) {
    let (mut hashes, mut starts, mut count, mut at) = ([0; 128], [0; 128], 0, 0);
    while name[at] != 0 {
        starts[count] = at as u8; // A name has at most 255 octets.
        at += 1 + usize::from(name[at]);
        count += 1;
    }
    let mut hash: u32 = 0x811c_9dc5;
    for label in (0..count).rev() {
        let start = usize::from(starts[label]);
        for octet in &name[start..=start + usize::from(name[start])] {
            hash = (hash ^ u32::from(*octet)).wrapping_mul(0x0100_0193);
        }
        hashes[label] = (hash >> 16) as u16 ^ hash as u16;
    }
    (hashes, starts, count)
}

/// Whether the name at `offset` of a message that we wrote has the octets of `name`.
fn is_at(message: &[u8], mut offset: usize, mut name: &[u8]) -> bool {
    loop {
        let Some(&len) = message.get(offset) else { return false };
        if len >= 0xc0 {
            let Some(&low) = message.get(offset + 1) else { return false };
            offset = usize::from(u16::from_be_bytes([len & 0x3f, low]));
            continue;
        }
        let label = 1 + usize::from(len);
        if message.get(offset..offset + label).is_none_or(|written| !name.starts_with(written)) {
            return false;
        }
        if len == 0 {
            return true;
        }
        (offset, name) = (offset + label, &name[label..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> NameBuf {
        NameBuf::from_text(text.as_bytes(), None).unwrap()
    }

    #[test]
    fn names_are_compressed_and_read_back_with_their_case() {
        let mut compressor = Compressor::default();
        let mut message = question_message(1, 0, name("example.com.").as_name(), Rtype::AXFR);
        let owners = ["a.Example.com.", "b.Example.com.", "c.example.com.", "b.Example.com.", "."];
        for owner in owners {
            let target = name(owner);
            let target = target.as_name().as_bytes();
            compressor.push_record(&mut message, target, Rtype::NS, 60, target);
            add_to_count(&mut message, 0, 1);
        }
        assert!(message.len() < 29 + 5 * 14 + 60, "{} octets", message.len());
        let mut read = Message::parse(&message).unwrap();
        for owner in owners {
            let record = read.next_record().unwrap();
            assert_eq!(record.owner.to_string(), owner);
            assert_eq!(record.rdata, name(owner).as_name().as_bytes());
        }
        assert!(read.is_at_end());
    }

    #[test]
    fn a_pointer_that_does_not_go_back_is_malformed() {
        let mut message = question_message(1, 0, Name::ROOT, Rtype::SOA);
        message.extend_from_slice(b"\xc0\x11\0\x01\0\x01\0\0\0\0\0\x04\x01\x02\x03\x04");
        assert_eq!(Message::parse(&message).unwrap().next_record(), Err(Malformed));
    }

    #[test]
    fn no_message_that_is_cut_anywhere_is_read_whole() {
        let mut message = question_message(1, 0, name("example.").as_name(), Rtype::SOA);
        let soa = [&b"\xc0\x0c\0"[..], &[0; 20]].concat();
        message.extend_from_slice(b"\xc0\x0c\0\x06\0\x01\0\0\0\x3c");
        message.extend_from_slice(&(soa.len() as u16).to_be_bytes());
        message.extend_from_slice(&soa);
        let read = |octets: &[u8]| Message::parse(octets).and_then(|mut message| message.next_record());
        assert_eq!(read(&message).unwrap().rdata.len(), 9 + 1 + 20);
        for len in 0..message.len() {
            assert_eq!(read(&message[..len]), Err(Malformed), "{len}");
        }
    }

    #[test]
    fn serials_are_ordered_on_a_circle() {
        assert!(is_older(1, 2) && !is_older(2, 1) && !is_older(7, 7));
        assert!(is_older(u32::MAX, 0) && !is_older(0, u32::MAX));
    }
}
