//! Sockets to servers: one for each query, at a random port (RFC 5452, 9.2), connected, so that the kernel drops what comes from elsewhere.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use dns_resolver::{QueryId, Random, Transmit, Transport};
use mio::net::{TcpStream, UdpSocket};
use mio::{Interest, Registry};
use socket2::{Domain, Protocol, SockAddr, Type};

use super::server::{Kind, token};

/// Random ports that are tried before the kernel chooses one.
const PORT_TRIES: u32 = 8;
/// Ports below need a privilege, and belong to services.
const FIRST_PORT: u64 = 1024;
const PORTS: u64 = 65_536 - FIRST_PORT;

enum Socket {
    Udp(UdpSocket),
    Tcp(TcpQuery),
}

struct TcpQuery {
    stream: TcpStream,
    output: Vec<u8>,
    input: Vec<u8>,
}

/// What came from a server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// Nothing, for now.
    Nothing,
    /// A message, in the buffer's first octets.
    Message(usize),
    /// None will come.
    Failed,
}

/// The sockets of the queries in flight.
pub(super) struct Upstreams {
    open: BTreeMap<QueryId, (SocketAddr, Socket)>,
    /// Addresses that queries leave from; for a family of which none is named, the kernel chooses.
    sources: Vec<IpAddr>,
    random: Random,
}

impl Upstreams {
    /// An error means that an address of `sources` is not one of this host.
    pub(super) fn new(sources: &[IpAddr], random: Random) -> io::Result<Upstreams> {
        for source in sources {
            UdpSocket::bind(SocketAddr::new(*source, 0)).map_err(|error| {
                io::Error::new(error.kind(), format!("source-addresses: {source}: {error}"))
            })?;
        }
        Ok(Upstreams { open: BTreeMap::new(), sources: sources.to_vec(), random })
    }

    /// Sends a query. An error means that it cannot arrive.
    pub(super) fn send(&mut self, transmit: Transmit, registry: &Registry) -> io::Result<()> {
        let Transmit { query, server, transport, octets } = transmit;
        let place = token(Kind::Upstream, query.0);
        let socket = match transport {
            Transport::Udp => {
                let mut socket = self.bind(server)?;
                socket.connect(server)?;
                socket.send(&octets)?;
                registry.register(&mut socket, place, Interest::READABLE)?;
                Socket::Udp(socket)
            }
            Transport::Tcp => {
                let mut stream = self.connect(server)?;
                registry.register(&mut stream, place, Interest::READABLE | Interest::WRITABLE)?;
                let output = [&(octets.len() as u16).to_be_bytes()[..], &octets].concat(); // Queries are short.
                Socket::Tcp(TcpQuery { stream, output, input: Vec::new() })
            }
        };
        self.open.insert(query, (server, socket));
        Ok(())
    }

    fn bind(&mut self, server: SocketAddr) -> io::Result<UdpSocket> {
        let any =
            || if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let source = self.source(server).unwrap_or_else(any);
        for _ in 0..PORT_TRIES {
            let port = FIRST_PORT + self.random.below(PORTS);
            match UdpSocket::bind(SocketAddr::new(source, port as u16)) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                outcome => return outcome,
            }
        }
        UdpSocket::bind(SocketAddr::new(source, 0))
    }

    /// A connection to a server that is under way.
    fn connect(&mut self, server: SocketAddr) -> io::Result<TcpStream> {
        let Some(source) = self.source(server) else { return TcpStream::connect(server) };
        let socket = socket2::Socket::new(Domain::for_address(server), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.bind(&SockAddr::from(SocketAddr::new(source, 0)))?;
        match socket.connect(&SockAddr::from(server)) {
            Err(error) if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {
                Err(error)
            }
            _ => Ok(TcpStream::from_std(socket.into())),
        }
    }

    /// One of the named addresses of the server's family.
    fn source(&mut self, server: SocketAddr) -> Option<IpAddr> {
        let of_family = |source: &&IpAddr| source.is_ipv4() == server.is_ipv4();
        let count = self.sources.iter().filter(of_family).count();
        let number = if count < 2 { 0 } else { self.random.below(count as u64) as usize };
        self.sources.iter().filter(of_family).nth(number).copied()
    }

    /// Reads what has come for a query into `buffer`.
    pub(super) fn receive(&mut self, query: QueryId, buffer: &mut [u8]) -> (SocketAddr, Received) {
        let nobody = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let Some((server, socket)) = self.open.get_mut(&query) else { return (nobody, Received::Nothing) };
        let received = match socket {
            Socket::Udp(socket) => socket.recv(buffer).map(Some),
            Socket::Tcp(tcp) => tcp.drive(buffer),
        };
        let received = match received {
            Ok(Some(len)) => Received::Message(len),
            Ok(None) => Received::Nothing,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::NotConnected
                ) =>
            {
                Received::Nothing
            }
            Err(_) => Received::Failed,
        };
        (*server, received)
    }

    /// Nothing more is wanted of a query.
    pub(super) fn close(&mut self, query: QueryId) {
        self.open.remove(&query);
    }
}

impl TcpQuery {
    /// Sends the query as far as possible, then reads; the length of the message, once it is whole in `buffer`.
    fn drive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        while !self.output.is_empty() {
            let count = self.stream.write(&self.output)?;
            self.output.drain(..count);
        }
        loop {
            if let Some((prefix, rest)) = self.input.split_first_chunk::<2>() {
                let len = usize::from(u16::from_be_bytes(*prefix));
                if let Some(message) = rest.get(..len) {
                    buffer[..len].copy_from_slice(message);
                    self.input.drain(..2 + len);
                    return Ok(Some(len));
                }
            }
            match self.stream.read(buffer)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.input.extend_from_slice(&buffer[..count]),
            }
        }
    }
}
