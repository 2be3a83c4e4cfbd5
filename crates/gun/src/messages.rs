//! What is sent over UDP: questions, or any datagrams that are answered by their first two octets.

use crate::answer::AnswerHeader;
use crate::questions::Questions;

/// Messages that a server answers one by one.
pub trait Messages {
    /// Which message is sent after `number` others.
    fn pick(&self, number: u64) -> u32;

    /// Writes it into the front of `room`; returns its octets, or `None` if it does not fit.
    fn write(&self, message: u32, number: u64, id: u16, room: &mut [u8]) -> Option<usize>;

    /// What an answer says of itself; `None` if this is no answer.
    fn read(&self, answer: &[u8]) -> Option<Said>;

    /// Whether this answers that message, as far as can be told.
    fn is_repeated(&self, message: u32, number: u64, answer: &[u8]) -> bool;
}

/// What an answer says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// Of the message that it answers.
    pub id: u16,
    /// The response code, where there are such.
    pub code: Option<u16>,
    /// It is not whole.
    pub is_cut: bool,
}

impl Messages for Questions {
    fn pick(&self, number: u64) -> u32 {
        Questions::pick(self, number)
    }

    fn write(&self, message: u32, number: u64, id: u16, room: &mut [u8]) -> Option<usize> {
        Questions::write(self, message, number, id, room)
    }

    fn read(&self, answer: &[u8]) -> Option<Said> {
        let header = AnswerHeader::read(answer)?;
        Some(Said { id: header.id, code: Some(header.rcode()), is_cut: header.is_cut() })
    }

    fn is_repeated(&self, message: u32, number: u64, answer: &[u8]) -> bool {
        Questions::is_repeated(self, message, number, answer)
    }
}

/// Octets of a datagram's ID, in network byte order.
const ID_LEN: usize = 2;
/// Octets of the number behind it, in a datagram that is to come back.
const NUMBER_LEN: usize = 8;

/// Datagrams whose answers begin with the ID that they began with themselves, as those of memcached do, and all of an echo server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagrams {
    /// The datagram, with room for an ID in front.
    octets: Vec<u8>,
    /// It has a number, and has to come back as it is.
    is_echo: bool,
}

impl Datagrams {
    /// Datagrams of so many octets that have to come back as they are; `None` if that is less than [`Datagrams::LEAST`].
    pub fn echoed(len: usize) -> Option<Datagrams> {
        let pattern = (0..len).map(|at| at as u8);
        (len >= Self::LEAST).then(|| Datagrams { octets: pattern.collect(), is_echo: true })
    }

    /// Octets of the shortest datagram that is to come back.
    pub const LEAST: usize = ID_LEN + NUMBER_LEN;

    /// This datagram, with the ID in place of its first two octets; `None` if it has no two. What follows the ID in an answer does not matter.
    pub fn of(octets: Vec<u8>) -> Option<Datagrams> {
        (octets.len() >= ID_LEN).then_some(Datagrams { octets, is_echo: false })
    }
}

impl Messages for Datagrams {
    fn pick(&self, _: u64) -> u32 {
        0
    }

    fn write(&self, _: u32, number: u64, id: u16, room: &mut [u8]) -> Option<usize> {
        let datagram = room.get_mut(..self.octets.len())?;
        datagram.copy_from_slice(&self.octets);
        datagram[..ID_LEN].copy_from_slice(&id.to_be_bytes());
        if self.is_echo {
            datagram[ID_LEN..Self::LEAST].copy_from_slice(&number.to_be_bytes());
        }
        Some(datagram.len())
    }

    fn read(&self, answer: &[u8]) -> Option<Said> {
        let id = u16::from_be_bytes(*answer.first_chunk::<ID_LEN>()?);
        Some(Said { id, code: None, is_cut: false })
    }

    fn is_repeated(&self, _: u32, number: u64, answer: &[u8]) -> bool {
        !self.is_echo
            || answer.len() == self.octets.len()
                && answer[ID_LEN..Self::LEAST] == number.to_be_bytes()
                && answer[Self::LEAST..] == self.octets[Self::LEAST..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(datagrams: &Datagrams, number: u64, id: u16) -> Vec<u8> {
        let mut room = [0; 64];
        let len = datagrams.write(0, number, id, &mut room).unwrap();
        room[..len].to_vec()
    }

    #[test]
    fn a_datagram_that_is_to_come_back_is_compared_whole() {
        let datagrams = Datagrams::echoed(24).unwrap();
        let sent = written(&datagrams, 7, 0x1234);
        assert_eq!(sent.len(), 24);
        assert_eq!(datagrams.read(&sent), Some(Said { id: 0x1234, code: None, is_cut: false }));
        assert!(datagrams.is_repeated(0, 7, &sent));
        assert!(!datagrams.is_repeated(0, 8, &sent), "the number of another one");
        assert!(!datagrams.is_repeated(0, 7, &sent[..23]) && !datagrams.is_repeated(0, 7, &[]));
        let mut changed = sent;
        changed[20] ^= 1;
        assert!(!datagrams.is_repeated(0, 7, &changed));
    }

    #[test]
    fn of_any_other_datagram_the_first_two_octets_are_the_id() {
        let datagrams = Datagrams::of(b"..get key".to_vec()).unwrap();
        assert_eq!(written(&datagrams, 7, 0x4142), b"ABget key");
        assert_eq!(datagrams.read(b"ABvalue").map(|said| said.id), Some(0x4142));
        assert!(datagrams.is_repeated(0, 7, b"ABvalue"), "it may say anything");
        assert_eq!(datagrams.read(b"A"), None);
    }

    #[test]
    fn what_is_too_short_or_does_not_fit_is_none() {
        assert_eq!((Datagrams::echoed(9), Datagrams::of(vec![0])), (None, None));
        assert_eq!(Datagrams::echoed(24).unwrap().write(0, 0, 0, &mut [0; 23]), None);
    }
}
