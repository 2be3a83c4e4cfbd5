//! What the first octets of a DNS answer say (RFC 1035, 4.1.1).

use dns_wire::header::{HEADER_LEN, flag};

/// One answer in so many is compared with its question.
const LOOKED_AT: u64 = 64;

/// The part of an answer's header that matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AnswerHeader {
    pub(crate) id: u16,
    flags: u16,
}

impl AnswerHeader {
    /// `None` if this is no answer.
    pub(crate) fn read(message: &[u8]) -> Option<AnswerHeader> {
        let &[id_high, id_low, flags_high, flags_low] = message.first_chunk::<4>()?;
        let header = AnswerHeader {
            id: u16::from_be_bytes([id_high, id_low]),
            flags: u16::from_be_bytes([flags_high, flags_low]),
        };
        (header.flags & flag::QR != 0 && message.len() >= HEADER_LEN).then_some(header)
    }

    /// RCODE.
    pub(crate) fn rcode(self) -> u16 {
        self.flags & 0xf
    }

    /// TC.
    pub(crate) fn is_cut(self) -> bool {
        self.flags & flag::TC != 0
    }
}

/// Whether the answer to this question is compared with it.
pub(crate) fn is_looked_at(number: u64) -> bool {
    number.is_multiple_of(LOOKED_AT)
}
