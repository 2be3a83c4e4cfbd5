//! [`Message`]: the records of a message, one after the other.

use dns_wire::header::HEADER_LEN;
use dns_wire::name::NAME_LEN_MAX;
use dns_wire::{Class, Name, NameBuf, Rtype};

use crate::layout::{Part, has_rest, layout};

/// Pointers that one name may go through. Each leads to at least one label, and a name has at most 127 and the root's.
const POINTERS_MAX: usize = 128;

/// The message is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message is malformed")]
pub struct Malformed;

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
        self.read_record(false).ok_or(Malformed)
    }

    /// Reads the next record of an update, which names a set by a record without data, whatever its type (RFC 2136, 2.4 and 2.5).
    pub fn next_update_record(&mut self) -> Result<Record, Malformed> {
        self.read_record(true).ok_or(Malformed)
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

    fn read_record(&mut self, may_name: bool) -> Option<Record> {
        let owner = self.read_name()?;
        let rtype = Rtype(self.read_u16()?);
        let class = Class(self.read_u16()?);
        let ttl = u32::from(self.read_u16()?) << 16 | u32::from(self.read_u16()?);
        let end = usize::from(self.read_u16()?) + self.at;
        let is_name_only = may_name && end == self.at && matches!(class, Class::ANY | Class::NONE);
        let rdata = if is_name_only { Vec::new() } else { self.read_rdata(rtype, end)? };
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
        if !has_rest(rtype) && !rest.is_empty() {
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
        let (mut at, mut len) = (self.at, 0);
        let (mut end, mut lowest, mut pointers) = (None, self.at, 0);
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
        // The array has the root label behind the others.
        Name::from_wire(wire.get(..=len)?).ok().map(NameBuf::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::question_message;

    fn name(text: &str) -> NameBuf {
        NameBuf::from_text(text.as_bytes(), None).unwrap()
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
        let read = |octets: &[u8]| {
            let mut message = Message::parse(octets).unwrap();
            message.next_record().and_then(|_| message.next_record())
        };
        assert!(read(&with_pointers(128)).is_ok());
        assert_eq!(read(&with_pointers(129)), Err(Malformed));
    }

    #[test]
    fn a_record_without_data_names_a_set_in_updates_only() {
        let named = b"\0\0\x28\0\0\0\0\x01\0\0\0\0\0\0\x01\0\xff\0\0\0\0\0\0";
        let mut message = Message::parse(named).unwrap();
        assert_eq!(message.clone().next_record(), Err(Malformed));
        assert!(message.next_update_record().unwrap().rdata.is_empty());
    }

    #[test]
    fn an_address_of_another_length_is_refused() {
        let short = b"\0\0\x84\0\0\0\0\x01\0\0\0\0\0\0\x01\0\x01\0\0\0\0\0\x03abc";
        assert_eq!(Message::parse(short).unwrap().next_record(), Err(Malformed));
    }
}
