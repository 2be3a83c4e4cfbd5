//! One answer in the log.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// How a query came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// By UDP.
    Udp,
    /// By TCP.
    Tcp,
    /// Over TLS (RFC 7858).
    Tls,
    /// Over HTTPS (RFC 8484).
    Https,
    /// Over QUIC (RFC 9250).
    Quic,
}

impl Transport {
    const ALL: [Transport; 5] =
        [Transport::Udp, Transport::Tcp, Transport::Tls, Transport::Https, Transport::Quic];

    /// Its name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
            Transport::Tls => "tls",
            Transport::Https => "https",
            Transport::Quic => "quic",
        }
    }

    /// Whether nobody on the way can read what is sent.
    pub const fn is_encrypted(self) -> bool {
        !matches!(self, Transport::Udp | Transport::Tcp)
    }
}

/// What was answered to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// When the answer left, in nanoseconds since 1970.
    pub time_ns: u64,
    /// How long the client waited for it, in nanoseconds, if that was measured.
    pub took_ns: Option<u64>,
    /// How the query came.
    pub transport: Transport,
    /// Who asked.
    pub client: SocketAddr,
    /// Which address was asked, if that is known.
    pub server: Option<SocketAddr>,
    /// The answer.
    pub message: &'a [u8],
}

/// Octets of an address and a port.
const ADDRESS_LEN: usize = 18;
/// Octets in front of the message. Numbers are little-endian; an IPv4 address is mapped (RFC 4291, 2.5.5.2), and port 0 is no address.
pub(crate) const HEADER_LEN: usize = 8 + 8 + 1 + 2 * ADDRESS_LEN + 2;
/// Octets of the longest message.
pub(crate) const MESSAGE_MAX: usize = u16::MAX as usize;

impl<'a> Entry<'a> {
    pub(crate) fn header(&self) -> [u8; HEADER_LEN] {
        let mut octets = [0; HEADER_LEN];
        octets[..8].copy_from_slice(&self.time_ns.to_le_bytes());
        octets[8..16].copy_from_slice(&self.took_ns.unwrap_or(u64::MAX).to_le_bytes());
        octets[16] = self.transport as u8;
        write_address(&mut octets[17..35], self.client);
        if let Some(server) = self.server {
            write_address(&mut octets[35..53], server);
        }
        octets[53..].copy_from_slice(&(self.message.len() as u16).to_le_bytes()); // At most `MESSAGE_MAX`.
        octets
    }

    /// Octets of the message behind a header.
    pub(crate) fn message_len(header: &[u8; HEADER_LEN]) -> usize {
        u16::from_le_bytes([header[53], header[54]]).into()
    }

    pub(crate) fn read(header: &[u8; HEADER_LEN], message: &'a [u8]) -> Entry<'a> {
        let number = |at: usize| u64::from_le_bytes(*header[at..].first_chunk().expect("is in the header"));
        Entry {
            time_ns: number(0),
            took_ns: Some(number(8)).filter(|took| *took != u64::MAX),
            transport: Transport::ALL[usize::from(header[16])],
            client: read_address(&header[17..35]),
            server: Some(read_address(&header[35..53])).filter(|address| address.port() != 0),
            message,
        }
    }
}

fn write_address(octets: &mut [u8], address: SocketAddr) {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    octets[..16].copy_from_slice(&ip.octets());
    octets[16..].copy_from_slice(&address.port().to_le_bytes());
}

fn read_address(octets: &[u8]) -> SocketAddr {
    let ip = Ipv6Addr::from(*octets.first_chunk::<16>().expect("an address has more"));
    SocketAddr::new(ip.to_canonical(), u16::from_le_bytes([octets[16], octets[17]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_survives_its_encoding() {
        let v4: SocketAddr = "192.0.2.1:53".parse().unwrap();
        let v6: SocketAddr = "[2001:db8::1]:40000".parse().unwrap();
        for (transport, took_ns) in Transport::ALL.into_iter().zip([None, Some(0), Some(7), None, Some(1)]) {
            for (client, server) in [(v4, Some(v6)), (v6, Some(v4)), (v6, None)] {
                let entry = Entry { time_ns: 1 << 60, took_ns, transport, client, server, message: b"m" };
                let header = entry.header();
                assert_eq!(Entry::message_len(&header), 1);
                assert_eq!(Entry::read(&header, b"m"), entry);
            }
        }
    }
}
