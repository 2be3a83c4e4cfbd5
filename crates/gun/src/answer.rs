//! What the first octets of a DNS answer say (RFC 1035, 4.1.1).

use dns_wire::Rtype;
use dns_wire::header::{HEADER_LEN, flag};

use crate::questions::mix;

/// One answer in so many is compared with its question at least: a power of two.
const EVERY_MAX: u64 = 64;
/// So many a second are compared at least, if there are so many.
const COMPARED: u64 = 1000;

/// The part of an answer's header that matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AnswerHeader {
    pub(crate) id: u16,
    flags: u16,
    /// What an OPT record adds to the RCODE.
    extended: u16,
}

impl AnswerHeader {
    /// `None` if this is no answer.
    pub(crate) fn read(message: &[u8]) -> Option<AnswerHeader> {
        let &[id_high, id_low, flags_high, flags_low] = message.first_chunk::<4>()?;
        let header = AnswerHeader {
            id: u16::from_be_bytes([id_high, id_low]),
            flags: u16::from_be_bytes([flags_high, flags_low]),
            extended: extended_rcode(message).unwrap_or(0),
        };
        (header.flags & flag::QR != 0 && message.len() >= HEADER_LEN).then_some(header)
    }

    /// RCODE, with the bits that OPT adds.
    pub(crate) fn rcode(self) -> u16 {
        self.extended << 4 | self.flags & 0xf
    }

    /// TC.
    pub(crate) fn is_cut(self) -> bool {
        self.flags & flag::TC != 0
    }
}

/// The upper bits of the RCODE (RFC 6891, 6.1.3), of an answer that has no record but OPT: those that need them, BADVERS and BADCOOKIE, say nothing else.
fn extended_rcode(message: &[u8]) -> Option<u16> {
    const ROOT_OPT: [u8; 3] = [0, 0, Rtype::OPT.0 as u8];
    let counts = message.get(4..HEADER_LEN)?;
    let (questions, others) = (&counts[..2], &counts[2..6]);
    if others != [0; 4] || questions[0] != 0 || questions[1] > 1 {
        return None;
    }
    let mut rest = &message[HEADER_LEN..];
    if questions[1] == 1 {
        while *rest.first()? != 0 {
            rest = rest.get(1 + usize::from(rest[0])..)?;
        }
        rest = rest.get(5..)?; // The root label, type and class.
    }
    (rest.get(..3)? == ROOT_OPT).then(|| rest.get(5).copied().map(u16::from))?
}

/// Which answers are compared with their questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Bits that are 0 in the numbers of those.
    mask: u64,
}

impl Sample {
    /// Of a load of so many questions a second: all of up to twice what is compared at least, and of a large one 1 in 64, so that it costs little.
    pub(crate) fn of_rate(rate: u64) -> Sample {
        Sample { mask: (1 << (rate.saturating_sub(1) / COMPARED).clamp(1, EVERY_MAX).ilog2()) - 1 }
    }

    /// Of a load without a rate.
    pub(crate) fn of_any() -> Sample {
        Sample { mask: EVERY_MAX - 1 }
    }

    /// Whether the answer to the question with this number is compared. Names and ports have their turns by the number: the sample follows none of them.
    pub(crate) fn has(self, number: u64) -> bool {
        mix(number) & self.mask == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_opt_record_has_the_upper_bits_of_the_rcode() {
        let answer = |rcode: u8, answers: u8, ext: u8| {
            let head = [1, 2, 0x80, rcode, 0, 1, 0, answers, 0, 0, 0, 1];
            let opt = [0, 0, 41, 4, 208, ext, 0, 0, 0, 0, 0];
            [&head[..], b"\x03www\0\0\x01\0\x01", &opt].concat()
        };
        let rcode = |message: &[u8]| AnswerHeader::read(message).unwrap().rcode();
        assert_eq!((rcode(&answer(7, 0, 1)), rcode(&answer(0, 0, 1))), (23, 16), "BADCOOKIE, BADVERS");
        assert_eq!((rcode(&answer(2, 0, 0)), rcode(&answer(0, 1, 1))), (2, 0));
        let whole = answer(7, 0, 1);
        for len in HEADER_LEN..whole.len() {
            let _ = rcode(&whole[..len]);
        }
        assert_eq!(rcode(&[1, 2, 0x80, 5, 0, 0, 0, 0, 0, 0, 0, 0]), 5, "without a question");
    }

    #[test]
    fn all_answers_to_few_questions_are_compared_and_some_of_many() {
        let compared = |sample: Sample| (0..6400).filter(|number| sample.has(*number)).count();
        assert_eq!([0, 1, 1000, 2000].map(|rate| compared(Sample::of_rate(rate))), [6400; 4]);
        assert!((3000..3400).contains(&compared(Sample::of_rate(2001))), "about one in 2");
        assert!((700..900).contains(&compared(Sample::of_rate(10_000))), "about one in 8");
        for few in [Sample::of_rate(64_001), Sample::of_rate(10_000_000), Sample::of_any()] {
            assert!((70..130).contains(&compared(few)), "about one in 64");
            let is_of = |name: u64| (0..6400).any(|number| few.has(number) && number % 16 == name);
            assert!((0..16).all(is_of), "each of 16 names that take turns");
        }
    }
}
