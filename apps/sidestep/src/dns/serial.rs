//! Serial numbers of zones, and the one that a server has.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use dns_message::{Message, question_message, serial_of};
use dns_wire::header::flag;
use dns_wire::{Name, Rtype};

/// The socket is connected and its port random: a random ID would add nothing.
const ID: u16 = 0x51de;

/// What comes of a zone whose serial went from `before` back to `now`.
pub(crate) fn went_back(before: u32, now: u32) -> String {
    let next = before.wrapping_add(1);
    format!(
        "the serial goes back from {before} to {now}, so secondary servers keep what they have: raise it to {next} or more"
    )
}

/// What comes of a zone that has other records with the same serial.
pub(crate) fn stayed(serial: u32) -> String {
    format!(
        "it has other records, and the same serial {serial}, so secondary servers keep what they have: raise it"
    )
}

/// The serial of the zone `origin` that `server` has.
pub(crate) fn ask(server: SocketAddr, origin: Name<'_>) -> io::Result<u32> {
    const TRIES: usize = 3;
    const PATIENCE: Duration = Duration::from_secs(1);
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let query = question_message(ID, 0, origin, Rtype::SOA);
    let mut answer = [0; 512];
    let mut exchange = || {
        socket.send(&query)?;
        let len = socket.recv(&mut answer)?;
        serial_in(&answer[..len], origin).ok_or_else(|| io::Error::other("it has no such zone"))
    };
    (1..TRIES).find_map(|_| exchange().ok()).map_or_else(exchange, Ok)
}

/// The serial in an authoritative answer about `origin`.
fn serial_in(answer: &[u8], origin: Name<'_>) -> Option<u32> {
    let mut message = Message::parse(answer).ok()?;
    let wanted = flag::QR | flag::AA;
    let is_answer =
        message.id() == ID && message.flags() & (wanted | 0xf) == wanted && message.counts()[0] > 0;
    let is_ours = message.question().is_some_and(|asked| asked.name.as_name() == origin);
    let record =
        message.next_record().ok().filter(|record| is_answer && is_ours && record.rtype == Rtype::SOA)?;
    serial_of(&record.rdata)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_serial_is_read_from_an_answer_and_from_nothing_else() {
        let query = question_message(ID, 0, Name::ROOT, Rtype::SOA);
        let numbers = [9u32, 1, 2, 3, 4].map(u32::to_be_bytes).concat();
        let soa = [&b"\xc0\x0c\x00\x06\x00\x01\0\0\0\x05\x00\x16\0\0"[..], &numbers].concat();
        let mut answer = [&query[..], &soa].concat();
        assert_eq!(serial_in(&answer, Name::ROOT), None, "a query");
        answer[2] = 0x84;
        answer[7] = 1;
        assert_eq!(serial_in(&answer, Name::ROOT), Some(9));
        for len in 0..answer.len() {
            assert_eq!(serial_in(&answer[..len], Name::ROOT), None, "{len}");
        }
        answer[3] = 3;
        assert_eq!(serial_in(&answer, Name::ROOT), None, "NXDOMAIN");
    }
}
