//! One check of a host.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;

use dns_health::{http, ping};
use mio::net::TcpStream;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, Socket, Type};

use super::super::pools::CheckKind;
use super::super::transfers::random_number;

/// What came of a check, in words.
pub(super) enum Outcome {
    Good(String),
    Failed(String),
    /// It is this host that could not check.
    Impossible(String),
}

/// A check under way.
pub(super) enum Probe {
    Tcp(TcpStream),
    Http {
        stream: TcpStream,
        /// What is still to be sent.
        request: Vec<u8>,
        answer: Vec<u8>,
        expected: Vec<u16>,
    },
    Ping {
        socket: Socket,
        to: IpAddr,
        token: u64,
    },
}

impl Probe {
    /// Begins a check; an outcome if it has ended already.
    pub(super) fn begin(
        kind: &CheckKind,
        to: IpAddr,
        token: usize,
        registry: &Registry,
    ) -> Result<Probe, Outcome> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        let connect = |port: u16| {
            let mut stream = TcpStream::connect((to, port).into()).map_err(of_start)?;
            registry.register(&mut stream, Token(token), interest).map_err(impossible)?;
            Ok(stream)
        };
        match kind {
            CheckKind::Tcp { port } => connect(*port).map(Probe::Tcp),
            CheckKind::Http { port, path, host, status } => {
                let (request, expected) = (http::request(host, path), status.clone());
                Ok(Probe::Http { stream: connect(*port)?, request, answer: Vec::new(), expected })
            }
            CheckKind::Ping => {
                let socket = ping_socket(to).map_err(|error| Outcome::Impossible(explain_ping(&error)))?;
                socket.connect(&SocketAddr::from((to, 0)).into()).map_err(of_start)?;
                registry
                    .register(&mut SourceFd(&socket.as_raw_fd()), Token(token), Interest::READABLE)
                    .map_err(impossible)?;
                let token = u64::from(random_number()) << 32 | u64::from(random_number());
                socket.send(&ping::request(to, token)).map_err(of_start)?;
                Ok(Probe::Ping { socket, to, token })
            }
        }
    }

    /// Does what is possible now; what came of it if that is the end.
    pub(super) fn go_on(&mut self) -> Option<Outcome> {
        let outcome = match self {
            Probe::Tcp(stream) => {
                is_connected(stream).map(|is| is.then(|| Outcome::Good("connected".to_owned())))
            }
            Probe::Http { stream, request, answer, expected } => exchange(stream, request, answer, expected),
            Probe::Ping { socket, to, token } => receive_reply(socket, *to, *token),
        };
        match outcome {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => Some(of_connection(error)),
            Ok(outcome) => outcome,
        }
    }

    /// Forgets it.
    pub(super) fn end(&mut self, registry: &Registry) {
        // What is closed is forgotten in any case.
        let _ = match self {
            Probe::Tcp(stream) | Probe::Http { stream, .. } => registry.deregister(stream),
            Probe::Ping { socket, .. } => registry.deregister(&mut SourceFd(&socket.as_raw_fd())),
        };
    }
}

/// What an error says that comes before anything was sent.
fn of_start(error: io::Error) -> Outcome {
    match error.kind() {
        // It is this host that has no route. What routers on the way say of the other one comes later.
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => impossible(error),
        _ => of_connection(error),
    }
}

/// What an error of a connection says: that of the host, unless this one lacks something.
fn of_connection(error: io::Error) -> Outcome {
    let is_own = matches!(
        error.kind(),
        io::ErrorKind::AddrNotAvailable | io::ErrorKind::OutOfMemory | io::ErrorKind::PermissionDenied
    ) || error.raw_os_error().is_some_and(|code| {
        let code = rustix::io::Errno::from_raw_os_error(code);
        [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE, rustix::io::Errno::NOBUFS].contains(&code)
    });
    if is_own { impossible(error) } else { Outcome::Failed(plain(&error)) }
}

fn impossible(error: io::Error) -> Outcome {
    Outcome::Impossible(plain(&error))
}

/// Without the number of the error.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error").map_or(text.as_str(), |(words, _)| words).to_lowercase()
}

fn is_connected(stream: &TcpStream) -> io::Result<bool> {
    if let Some(error) = stream.take_error()? {
        return Err(error);
    }
    match stream.peer_addr() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(error),
    }
}

fn exchange(
    stream: &mut TcpStream,
    request: &mut Vec<u8>,
    answer: &mut Vec<u8>,
    expected: &[u16],
) -> io::Result<Option<Outcome>> {
    if !is_connected(stream)? {
        return Ok(None);
    }
    while !request.is_empty() {
        let sent = stream.write(request)?;
        request.drain(..sent);
    }
    loop {
        let mut octets = [0; http::HEAD_MAX];
        let count = stream.read(&mut octets)?;
        answer.extend_from_slice(&octets[..count]);
        let failed = |what: &str| Ok(Some(Outcome::Failed(what.to_owned())));
        match http::answer(answer) {
            http::Answer::Status(status) if expected.contains(&status) => {
                return Ok(Some(Outcome::Good(format!("status {status}"))));
            }
            http::Answer::Status(status) => return failed(&format!("status {status}")),
            http::Answer::Malformed => return failed("the answer is not HTTP"),
            http::Answer::Incomplete if count == 0 => {
                return failed("the connection ended without an answer");
            }
            http::Answer::Incomplete => {}
        }
    }
}

fn receive_reply(socket: &Socket, to: IpAddr, token: u64) -> io::Result<Option<Outcome>> {
    let mut octets = [0; 2 * ping::REQUEST_LEN];
    loop {
        let count = (&mut &*socket).read(&mut octets)?;
        if ping::is_reply(&octets[..count], to, token) {
            return Ok(Some(Outcome::Good("echo".to_owned())));
        }
    }
}

fn ping_socket(to: IpAddr) -> io::Result<Socket> {
    let (domain, protocol) =
        if to.is_ipv4() { (Domain::IPV4, Protocol::ICMPV4) } else { (Domain::IPV6, Protocol::ICMPV6) };
    let socket = Socket::new(domain, Type::DGRAM, Some(protocol))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Why hosts cannot be pinged from here, if they cannot.
pub(crate) fn ping_problem() -> Option<String> {
    let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let error = any.into_iter().find_map(|any| ping_socket(any).err())?;
    Some(explain_ping(&error))
}

fn explain_ping(error: &io::Error) -> String {
    let group = nix::unistd::getegid();
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "group {group} may not ping: have the sysctl net.ipv4.ping_group_range include it, or check by tcp or http"
        ),
        _ => plain(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_route_it_is_this_host_that_cannot_check() {
        let poll = mio::Poll::new().unwrap();
        // Linux has no route for TCP there, whatever else it has.
        let nowhere = Ipv4Addr::new(224, 0, 0, 1).into();
        let Err(outcome) = Probe::begin(&CheckKind::Tcp { port: 9 }, nowhere, 0, poll.registry()) else {
            panic!("a connection to a group of hosts")
        };
        assert!(matches!(&outcome, Outcome::Impossible(why) if why == "network is unreachable"));
        // A router said so, or the host's own network.
        let later = of_connection(io::Error::from_raw_os_error(rustix::io::Errno::NETUNREACH.raw_os_error()));
        assert!(matches!(later, Outcome::Failed(_)));
    }
}
