//! Messages written without compression.

use dns_wire::{Class, Name, Rtype};

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
pub fn add_to_count(message: &mut [u8], section: usize, more: i32) {
    let at = 6 + 2 * section;
    let count = i32::from(u16::from_be_bytes([message[at], message[at + 1]])) + more;
    message[at..at + 2].copy_from_slice(&(count as u16).to_be_bytes()); // A message holds no more records.
}

/// Appends a record; names in `rdata` are not compressed, nor is the owner.
pub fn push_record(
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
