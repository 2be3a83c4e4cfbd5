//! DNS messages: just enough to query and to check. It shares no code with the servers that it tests.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

/// Type A.
pub const A: u16 = 1;
/// Type SOA.
pub const SOA: u16 = 6;
/// Type TXT.
pub const TXT: u16 = 16;
/// Type AAAA.
pub const AAAA: u16 = 28;

/// A query for `name` and `rtype`, class IN, without EDNS.
pub fn query(id: u16, name: &str, rtype: u16) -> Vec<u8> {
    let [hi, lo] = id.to_be_bytes();
    let mut message = vec![hi, lo, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.').filter(|label| !label.is_empty()) {
        assert!(label.len() < 64, "a label has at most 63 octets: {label}");
        message.push(label.len() as u8);
        message.extend_from_slice(label.as_bytes());
    }
    message.push(0);
    message.extend_from_slice(&rtype.to_be_bytes());
    message.extend_from_slice(&1u16.to_be_bytes());
    message
}

/// `query` for a resolver: it wants recursion.
pub fn with_recursion(mut query: Vec<u8>) -> Vec<u8> {
    const RD: u8 = 0x01;
    query[2] |= RD;
    query
}

/// `query` with an OPT record: a payload size, and a padding option of `padding` octets (RFC 7830).
pub fn with_edns(mut query: Vec<u8>, payload: u16, padding: u16) -> Vec<u8> {
    const OPT: [u8; 3] = [0, 0, 41];
    const PADDING: u16 = 12;
    query[11] += 1; // ARCOUNT
    query.extend_from_slice(&OPT);
    query.extend_from_slice(&payload.to_be_bytes());
    query.extend_from_slice(&[0; 4]);
    query.extend_from_slice(&(padding + 4).to_be_bytes());
    query.extend_from_slice(&PADDING.to_be_bytes());
    query.extend_from_slice(&padding.to_be_bytes());
    query.resize(query.len() + usize::from(padding), 0);
    query
}

/// A received message and its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    octets: Vec<u8>,
}

impl Answer {
    /// `None` if there is no whole header.
    pub fn new(octets: &[u8]) -> Option<Answer> {
        (octets.len() >= 12).then(|| Answer { octets: octets.to_vec() })
    }

    /// The message as received.
    pub fn octets(&self) -> &[u8] {
        &self.octets
    }

    /// The query's id.
    pub fn id(&self) -> u16 {
        self.number(0)
    }

    /// QR: whether it is a response at all.
    pub fn is_response(&self) -> bool {
        self.octets[2] & 0x80 != 0
    }

    /// AA.
    pub fn is_authoritative(&self) -> bool {
        self.octets[2] & 0x04 != 0
    }

    /// TC.
    pub fn is_truncated(&self) -> bool {
        self.octets[2] & 0x02 != 0
    }

    /// RCODE, the four bits of the header.
    pub fn rcode(&self) -> u8 {
        self.octets[3] & 0x0f
    }

    /// Records in the answer section.
    pub fn answer_count(&self) -> u16 {
        self.number(6)
    }

    /// Whether `octets` occur anywhere in it; enough to recognise the data of a record.
    pub fn contains(&self, octets: &[u8]) -> bool {
        self.octets.windows(octets.len()).any(|window| window == octets)
    }

    fn number(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.octets[at], self.octets[at + 1]])
    }
}

/// Sends `query` to `server` once over UDP, from a new socket in the calling thread's namespace, and waits for the answer.
pub fn ask(server: SocketAddr, message: &[u8], timeout: Duration) -> io::Result<Answer> {
    let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.set_read_timeout(Some(timeout))?;
    socket.connect(server)?;
    socket.send(message)?;
    let mut octets = vec![0; 65_535];
    let len = socket.recv(&mut octets)?;
    Answer::new(&octets[..len]).ok_or_else(|| io::Error::other("an answer without a header"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_reads_as_rfc_1035_says() {
        let message = query(0x1234, "a.bc", A);
        assert_eq!(message[..2], [0x12, 0x34]);
        assert_eq!(message[12..], [1, b'a', 2, b'b', b'c', 0, 0, 1, 0, 1]);
        let padded = with_edns(message.clone(), 1232, 100);
        assert_eq!(padded.len(), message.len() + 11 + 4 + 100);
    }
}
