//! Serial numbers of zones: their order, and the one that a server has.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use dns_wire::{Name, Rtype};

/// Whether `serial` comes before `other` (RFC 1982, 3.2).
pub(crate) fn is_older(serial: u32, other: u32) -> bool {
    (1..1 << 31).contains(&other.wrapping_sub(serial))
}

/// What comes of a zone whose serial went from `before` back to `now`.
pub(crate) fn went_back(before: u32, now: u32) -> String {
    let next = before.wrapping_add(1);
    format!(
        "the serial goes back from {before} to {now}, so secondary servers keep what they have: raise it to {next} or more"
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
    let query = query(origin);
    let mut answer = [0; 512];
    let mut exchange = || {
        socket.send(&query)?;
        let len = socket.recv(&mut answer)?;
        serial_in(&answer[..len], &query).ok_or_else(|| io::Error::other("it has no such zone"))
    };
    (1..TRIES).find_map(|_| exchange().ok()).map_or_else(exchange, Ok)
}

fn query(origin: Name<'_>) -> Vec<u8> {
    // The socket is connected and its port random: the ID adds nothing.
    let header = [0x51, 0xde, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    [&header[..], origin.as_bytes(), &Rtype::SOA.0.to_be_bytes(), &[0, 1]].concat()
}

/// The serial in an authoritative answer to `query`.
fn serial_in(answer: &[u8], query: &[u8]) -> Option<u32> {
    let (header, rest) = answer.split_first_chunk::<12>()?;
    let is_answer = header[..2] == query[..2] && header[2] & 0x84 == 0x84 && header[3] & 0xf == 0;
    let record = rest.strip_prefix(&query[12..]).filter(|_| is_answer && header[6..8] != [0, 0])?;
    let (fixed, data) = behind_name(record)?.split_first_chunk::<10>()?;
    let rdata = data.get(..usize::from(u16::from_be_bytes([fixed[8], fixed[9]])))?;
    let numbers = rdata.last_chunk::<20>().filter(|_| fixed[..2] == Rtype::SOA.0.to_be_bytes())?;
    numbers.first_chunk().map(|serial| u32::from_be_bytes(*serial))
}

/// What follows the name that `octets` start with; a pointer ends it.
fn behind_name(mut octets: &[u8]) -> Option<&[u8]> {
    loop {
        match *octets.first()? {
            0 => return octets.get(1..),
            0xc0.. => return octets.get(2..),
            len => octets = octets.get(1 + usize::from(len)..)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serials_are_ordered_on_a_circle() {
        assert!(is_older(1, 2) && !is_older(2, 1) && !is_older(7, 7));
        assert!(is_older(u32::MAX, 0) && !is_older(0, u32::MAX));
    }

    #[test]
    fn the_serial_is_read_from_an_answer_and_from_nothing_else() {
        let query = query(Name::ROOT);
        let numbers = [9u32, 1, 2, 3, 4].map(u32::to_be_bytes).concat();
        let soa = [&b"\xc0\x0c\x00\x06\x00\x01\0\0\0\x05\x00\x16\0\0"[..], &numbers].concat();
        let mut answer = [&query[..], &soa].concat();
        assert_eq!(serial_in(&answer, &query), None, "a query");
        answer[2] = 0x84;
        answer[7] = 1;
        assert_eq!(serial_in(&answer, &query), Some(9));
        for len in 0..answer.len() {
            assert_eq!(serial_in(&answer[..len], &query), None, "{len}");
        }
        answer[3] = 3;
        assert_eq!(serial_in(&answer, &query), None, "NXDOMAIN");
    }
}
