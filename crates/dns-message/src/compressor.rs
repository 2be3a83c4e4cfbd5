//! [`Compressor`]: names that point to what stands before (RFC 1035, 4.1.4).

use dns_wire::{Class, Name, Rtype};

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
    pub fn clear(&mut self) {
        self.slots.fill(0);
    }

    /// Appends a record with compressed names; `message` is one whole message so far.
    pub fn push_record(&mut self, message: &mut Vec<u8>, owner: &[u8], rtype: Rtype, ttl: u32, rdata: &[u8]) {
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
    pub fn push_name(&mut self, message: &mut Vec<u8>, name: &[u8]) {
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
    use crate::{Message, add_to_count, question_message};
    use dns_wire::NameBuf;

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
}
