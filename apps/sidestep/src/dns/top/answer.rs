//! A DNS answer in a frame that a server sends.

use std::net::IpAddr;

use dns_message::Message;
use dns_wire::header::{HEADER_LEN, flag};
use dns_wire::{Name, Rtype};
use wire::ethernet::Ethernet;
use wire::ip::Ip;
use wire::protocol;
use wire::udp::Udp;

/// What counts of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) client: IpAddr,
    /// The name that was asked for, in wire format and lower case; empty if the answer repeats no question.
    pub(super) qname: Vec<u8>,
    pub(super) qtype: Option<Rtype>,
    /// The response code, with the bits of the OPT record (RFC 6891, 6.1.3).
    pub(super) rcode: u16,
}

impl Answer {
    /// The answer in an Ethernet frame, if there is one over UDP and the frame is whole.
    pub(super) fn in_frame(frame: &[u8]) -> Option<Answer> {
        let ethernet = Ethernet::parse(frame).ok()?;
        let packet = Ip::parse_quoted(ethernet.payload()).ok()?;
        if packet.protocol() != protocol::UDP || packet.is_fragment() {
            return None;
        }
        Answer::in_message(Udp::parse(packet.payload()).ok()?.payload(), packet.destination())
    }

    fn in_message(message: &[u8], client: IpAddr) -> Option<Answer> {
        let header = message.first_chunk::<HEADER_LEN>()?;
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let (flags, questions) = (word(2), word(4));
        if flags & flag::QR == 0 || questions > 1 {
            return None;
        }
        let mut answer = Answer { client, qname: Vec::new(), qtype: None, rcode: rcode(message, flags) };
        if questions == 1 {
            let (name, rest) = Name::split_from(&message[HEADER_LEN..]).ok()?;
            answer.qname = name.as_bytes().to_ascii_lowercase(); // Lengths of labels are below the letters.
            answer.qtype = Some(Rtype(u16::from_be_bytes(*rest.first_chunk()?)));
        }
        Some(answer)
    }
}

/// An OPT record has more bits of the code. Codes that need them come without answer and authority, so only then it is looked for.
fn rcode(message: &[u8], flags: u16) -> u16 {
    let low = flags & 0xf;
    let Ok(mut message) = Message::parse(message) else { return low };
    let [answers, authority, additional] = message.counts();
    if answers != 0 || authority != 0 {
        return low;
    }
    let mut records = (0..additional).map_while(|_| message.next_record().ok());
    let opt = records.find(|record| record.rtype == Rtype::OPT);
    opt.map_or(low, |opt| low | (opt.ttl >> 24 << 4) as u16)
}

#[cfg(test)]
mod tests {
    use wire::{Endpoints, Envelope, write_udp};

    use super::*;

    const CLIENT: &str = "192.0.2.2";

    fn frame(message: &[u8]) -> Vec<u8> {
        let ends = Endpoints::new("192.0.2.1:53".parse().unwrap(), format!("{CLIENT}:99").parse().unwrap());
        let mut frame = vec![0; 100 + message.len()];
        let len = write_udp(&mut frame, &Envelope::untagged(ends.unwrap()), message).unwrap();
        frame.truncate(len);
        frame
    }

    fn message(flags: u16, additional: u16, rest: &[u8]) -> Vec<u8> {
        let mut message = vec![0, 1];
        message.extend(flags.to_be_bytes());
        message.extend([0, 1, 0, 0, 0, 0]);
        message.extend(additional.to_be_bytes());
        message.extend(b"\x03WWW\x07example\x00\x00\x1c\x00\x01");
        message.extend(rest);
        message
    }

    #[test]
    fn an_answer_has_its_client_name_type_and_code() {
        let answer = Answer::in_frame(&frame(&message(0x8403, 0, &[]))).unwrap();
        let expected = Answer {
            client: CLIENT.parse().unwrap(),
            qname: b"\x03www\x07example\x00".to_vec(),
            qtype: Some(Rtype::AAAA),
            rcode: 3,
        };
        assert_eq!(answer, expected);
    }

    #[test]
    fn the_bits_of_the_opt_record_belong_to_the_code() {
        // BADCOOKIE is 23: 7 in the header, 1 in the OPT record (RFC 7873, 8).
        let opt = b"\x00\x00\x29\x04\xd0\x01\x00\x00\x00\x00\x00";
        assert_eq!(Answer::in_frame(&frame(&message(0x8007, 1, opt))).unwrap().rcode, 23);
    }

    #[test]
    fn a_query_is_no_answer_and_nothing_panics() {
        assert_eq!(Answer::in_frame(&frame(&message(0x0100, 0, &[]))), None);
        let whole = frame(&message(0x8000, 1, b"\x00\x00\x29\x04\xd0\x01\x00\x00\x00\x00\x00"));
        for len in 0..whole.len() {
            let _ = Answer::in_frame(&whole[..len]);
        }
        for len in 0..40 {
            let _ = Answer::in_message(&[0xff; 40][..len], CLIENT.parse().unwrap());
        }
    }
}
