//! Padding of messages that nobody may read on their way, so that their length tells little (RFC 7830, RFC 8467).

use dns_wire::Rtype;

use crate::Message;

/// The option (RFC 7830, 3).
const PADDING: [u8; 2] = [0, 12];
/// Code and length of an option.
const OPTION_HEAD: usize = 4;
/// From the end of an OPT record's owner to its data: type, payload size, extended RCODE and flags, length.
const OPT_HEAD: usize = 10;
/// The longest message.
const MESSAGE_MAX: usize = 65_535;

/// Pads a message to the next multiple of `block` octets, if its last record is an OPT record: one with a signature behind it is left as it is.
pub fn pad(message: &mut Vec<u8>, block: usize) {
    let Some(start) = opt_at_end(message) else { return };
    let bare = message.len() + OPTION_HEAD;
    let whole = bare.next_multiple_of(block.max(1));
    if whole > MESSAGE_MAX {
        return;
    }
    let more = whole - bare;
    message.extend(PADDING);
    message.extend((more as u16).to_be_bytes());
    message.resize(whole, 0);
    let len = (message.len() - start - 1 - OPT_HEAD) as u16;
    let at = start + 1 + OPT_HEAD - 2;
    message[at..at + 2].copy_from_slice(&len.to_be_bytes());
}

/// Where the OPT record starts that ends the message.
fn opt_at_end(octets: &[u8]) -> Option<usize> {
    let mut message = Message::parse(octets).ok()?;
    let count: u32 = message.counts().into_iter().map(u32::from).sum();
    let mut last = None;
    for _ in 0..count {
        let start = message.position();
        last = Some((start, message.next_record().ok()?.rtype));
    }
    last.filter(|(_, rtype)| *rtype == Rtype::OPT && message.is_at_end()).map(|(start, _)| start)
}

#[cfg(test)]
mod tests {
    use dns_wire::{Class, Name, NameBuf};

    use super::*;
    use crate::{add_to_count, push_record, question_message};

    fn message(types: &[Rtype]) -> Vec<u8> {
        let name = NameBuf::from_text(b"www.example.", None).unwrap();
        let mut message = question_message(7, 0x8400, name.as_name(), Rtype::A);
        for rtype in types {
            push_record(&mut message, Name::ROOT, *rtype, Class(1232), 0, &[0, 3, 0, 2, b'i', b'd']);
            add_to_count(&mut message, 2, 1);
        }
        message
    }

    #[test]
    fn a_message_with_an_opt_record_at_its_end_fills_whole_blocks() {
        let mut padded = message(&[Rtype::OPT]);
        pad(&mut padded, 468);
        assert_eq!(padded.len(), 468);
        let mut read = Message::parse(&padded).unwrap();
        let opt = read.next_record().unwrap();
        assert!(read.is_at_end() && opt.rdata.starts_with(&[0, 3, 0, 2, b'i', b'd', 0, 12]));
    }

    #[test]
    fn other_messages_stay_as_they_are() {
        for types in [&[][..], &[Rtype::OPT, Rtype::TSIG], &[Rtype::A]] {
            let mut padded = message(types);
            pad(&mut padded, 468);
            assert_eq!(padded, message(types));
        }
        for mut broken in [vec![], vec![0; 11], message(&[Rtype::OPT])[..40].to_vec()] {
            let before = broken.clone();
            pad(&mut broken, 468);
            assert_eq!(broken, before);
        }
    }
}
