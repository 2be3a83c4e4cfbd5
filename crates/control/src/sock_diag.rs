//! The kernel's TCP and UDP sockets: sock_diag(7).

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST};
use netlink_sys::{Socket, SocketAddr as NetlinkAddress, protocols::NETLINK_SOCK_DIAG};
use steering::Transport;

use crate::monitor::split_message;

/// SOCK_DIAG_BY_FAMILY, SOCK_DESTROY (linux/sock_diag.h), NLMSG_ERROR and NLMSG_DONE (linux/netlink.h).
const BY_FAMILY: u16 = 20;
const DESTROY: u16 = 21;
const ERROR: u16 = 2;
const DONE: u16 = 3;

/// AF_INET and AF_INET6.
const FAMILIES: [u8; 2] = [2, 10];

/// States as bits (net/tcp_states.h). Sockets of UDP are in ESTABLISHED or CLOSE.
const TIME_WAIT: u32 = 1 << 6;
const CLOSE: u32 = 1 << 7;
const LISTEN: u32 = 1 << 10;
const ALL: u32 = 0x1ffe;

const HEADER_LEN: usize = 16;
/// `struct inet_diag_req_v2`, and the first part of `struct inet_diag_msg` (linux/inet_diag.h).
const REQUEST_LEN: usize = 56;
const ANSWER_LEN: usize = 52;
/// All of the latter; attributes follow. And where the request says which: INET_DIAG_INFO.
const MESSAGE_LEN: usize = 72;
const EXTENSIONS_AT: usize = 18;
const INFO: u8 = 2;
/// Where an answer has the socket's user.
const OWNER_AT: usize = 64;

/// The kernel's answers come in parts of at most this many octets.
const PART_MAX: usize = 1 << 16;

/// A socket of this network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSocket {
    /// Its own end; IPv4 addresses are never mapped ones.
    pub local: SocketAddr,
    /// Its peer's; zero without a peer.
    pub remote: SocketAddr,
    /// The interface that it is bound to, by the kernel's number; 0 for none.
    pub interface: u32,
    /// The kernel's number for it, which is never reused: SO_COOKIE in socket(7).
    pub cookie: u64,
}

/// The kernel's TCP connections with one of these local ports, including half-open ones; not those in TIME-WAIT, whose addresses and
/// ports may belong to another connection by now. The kernel searches all its connections once, however many ports there are: some
/// milliseconds on a large machine.
pub fn tcp_connections(local_ports: &[u16]) -> io::Result<Vec<KernelSocket>> {
    let states = ALL & !LISTEN & !CLOSE & !TIME_WAIT;
    match local_ports {
        [] => Ok(Vec::new()),
        // The kernel filters by one port or by none.
        [port] => dump(Transport::Tcp, states, *port),
        several => {
            let wanted: BTreeSet<u16> = several.iter().copied().collect();
            let mut found = dump(Transport::Tcp, states, 0)?;
            found.retain(|socket| wanted.contains(&socket.local.port()));
            Ok(found)
        }
    }
}

/// The kernel's TCP sockets that listen.
pub fn tcp_listeners() -> io::Result<Vec<KernelSocket>> {
    dump(Transport::Tcp, LISTEN, 0)
}

/// Those of one port.
pub fn tcp_listeners_at(port: u16) -> io::Result<Vec<KernelSocket>> {
    dump(Transport::Tcp, LISTEN, port)
}

/// How many sequence numbers of the peer's the kernel has received on a connection of TCP, of which the FIN is one; `None` if it has no such connection. It looks
/// nowhere but there.
pub fn tcp_received(local: SocketAddr, remote: SocketAddr) -> io::Result<Option<u64>> {
    let mut request = of_connection(local, remote);
    request[EXTENSIONS_AT] = 1 << (INFO - 1);
    let Some(answer) = look_up(request)? else { return Ok(None) };
    // If there is none, the kernel tells of the listener.
    let is_it = read(&answer).is_some_and(|socket| socket.remote == remote);
    Ok(if is_it { bytes_received(&answer) } else { None })
}

/// Ends the TIME-WAIT of a connection of TCP that the kernel has had between these ends; returns whether it had one. A connection that there is, or a listener,
/// is left alone. Needs `CAP_NET_ADMIN`, and a kernel with `CONFIG_INET_DIAG_DESTROY`.
pub fn end_time_wait(local: SocketAddr, remote: SocketAddr) -> io::Result<bool> {
    const TIME_WAIT: u8 = 6;
    const STATE_AT: usize = 1;
    const COOKIE: std::ops::Range<usize> = 44..52;
    let asked = of_connection(local, remote);
    let Some(answer) = look_up(asked)? else { return Ok(false) };
    let is_it = answer[STATE_AT] == TIME_WAIT && read(&answer).is_some_and(|socket| socket.remote == remote);
    if !is_it {
        return Ok(false);
    }
    // With its cookie, so that nothing else is ended that has come to be there.
    let mut request = asked;
    request[4..6].copy_from_slice(&DESTROY.to_ne_bytes());
    request[6..8].copy_from_slice(&(NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
    request[64..72].copy_from_slice(&answer[COOKIE]);
    let ended = exchange(&request)?;
    Ok(ended.is_some())
}

/// `tcpi_bytes_received` of the `struct tcp_info` (linux/tcp.h) among the attributes of an answer.
fn bytes_received(answer: &[u8]) -> Option<u64> {
    const RECEIVED_AT: usize = 128;
    let mut attributes = answer.get(MESSAGE_LEN..)?;
    while let Some((head, _)) = attributes.split_first_chunk::<4>() {
        let (len, kind) = (u16::from_ne_bytes([head[0], head[1]]), u16::from_ne_bytes([head[2], head[3]]));
        let attribute = attributes.get(4..usize::from(len))?;
        if kind == u16::from(INFO) {
            return Some(u64::from_ne_bytes(*attribute.get(RECEIVED_AT..)?.first_chunk()?));
        }
        attributes = attributes.get(usize::from(len).next_multiple_of(4)..)?;
    }
    None
}

/// The user whose socket the kernel gives a datagram for `local` from `remote` that comes by the interface of this number, if there is one. Both have
/// addresses of one family, and none is a mapped one.
pub fn udp_owner_for(local: SocketAddr, remote: SocketAddr, interface: u32) -> io::Result<Option<u32>> {
    let family = FAMILIES[usize::from(local.is_ipv6())];
    // The datagram's ends in the order in which it has them: `udp_dump_one` (net/ipv4/udp_diag.c).
    let mut request = request(family, Transport::Udp.number(), ALL, remote.port());
    request[26..28].copy_from_slice(&local.port().to_be_bytes());
    write_address(remote.ip(), &mut request[28..44]);
    write_address(local.ip(), &mut request[44..60]);
    request[60..64].copy_from_slice(&interface.to_ne_bytes());
    let owner = |answer: Vec<u8>| Some(u32::from_ne_bytes(*answer.get(OWNER_AT..)?.first_chunk()?));
    Ok(look_up(request)?.and_then(owner))
}

fn write_address(address: IpAddr, room: &mut [u8]) {
    match address {
        IpAddr::V4(address) => room[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => room.copy_from_slice(&address.octets()),
    }
}

/// A request for a connection of TCP.
fn of_connection(local: SocketAddr, remote: SocketAddr) -> [u8; HEADER_LEN + REQUEST_LEN] {
    let family = FAMILIES[usize::from(local.is_ipv6())];
    let mut request = request(family, Transport::Tcp.number(), ALL, local.port());
    request[26..28].copy_from_slice(&remote.port().to_be_bytes());
    write_address(local.ip(), &mut request[28..44]);
    write_address(remote.ip(), &mut request[44..60]);
    request
}

/// Asks for one socket: the kernel's `struct inet_diag_msg` of it.
fn look_up(mut request: [u8; HEADER_LEN + REQUEST_LEN]) -> io::Result<Option<Vec<u8>>> {
    request[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    request[64..72].copy_from_slice(&[0xff; 8]); // Whatever its cookie: INET_DIAG_NOCOOKIE.
    exchange(&request)
}

/// What the kernel says to a request for one socket; `None` if it has none. If it has only to be done, that is nothing.
fn exchange(request: &[u8]) -> io::Result<Option<Vec<u8>>> {
    const NOT_FOUND: i32 = 2; // ENOENT
    const SUCCESS: i32 = 0;
    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    socket.send_to(request, &NetlinkAddress::new(0, 0), 0)?;
    let mut answer = Vec::with_capacity(PART_MAX);
    socket.recv(&mut answer, 0)?;
    let Some((message, _)) = split_message(&answer) else { return Ok(None) };
    match u16::from_ne_bytes([message[4], message[5]]) {
        ERROR => match error(message) {
            error if error.raw_os_error() == Some(NOT_FOUND) => Ok(None),
            error if error.raw_os_error() == Some(SUCCESS) => Ok(Some(Vec::new())),
            error => Err(error),
        },
        _ => Ok(Some(message[HEADER_LEN..].to_vec())),
    }
}

/// The kernel's UDP sockets that have a port.
pub fn udp_sockets() -> io::Result<Vec<KernelSocket>> {
    dump(Transport::Udp, ALL, 0)
}

/// Those of one port.
pub fn udp_sockets_at(port: u16) -> io::Result<Vec<KernelSocket>> {
    dump(Transport::Udp, ALL, port)
}

/// Port 0 matches every port.
fn dump(transport: Transport, states: u32, local_port: u16) -> io::Result<Vec<KernelSocket>> {
    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    let mut found = Vec::new();
    for family in FAMILIES {
        let request = request(family, transport.number(), states, local_port);
        socket.send_to(&request, &NetlinkAddress::new(0, 0), 0)?;
        receive(&socket, &mut found)?;
    }
    Ok(found)
}

fn request(family: u8, protocol: u8, states: u32, local_port: u16) -> [u8; HEADER_LEN + REQUEST_LEN] {
    let mut octets = [0; HEADER_LEN + REQUEST_LEN];
    let len = octets.len() as u32;
    octets[..4].copy_from_slice(&len.to_ne_bytes());
    octets[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    octets[6..8].copy_from_slice(&(NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    octets[16] = family;
    octets[17] = protocol;
    octets[20..24].copy_from_slice(&states.to_ne_bytes());
    octets[24..26].copy_from_slice(&local_port.to_be_bytes());
    octets
}

/// Reads to the end of a dump.
fn receive(socket: &Socket, found: &mut Vec<KernelSocket>) -> io::Result<()> {
    let mut part = Vec::with_capacity(PART_MAX);
    loop {
        part.clear();
        socket.recv(&mut part, 0)?;
        let mut rest = &part[..];
        while let Some((message, behind)) = split_message(rest) {
            rest = behind;
            match u16::from_ne_bytes([message[4], message[5]]) {
                DONE => return Ok(()),
                ERROR => return Err(error(message)),
                BY_FAMILY => found.extend(read(&message[HEADER_LEN..])),
                _ => {}
            }
        }
    }
}

fn error(message: &[u8]) -> io::Error {
    let code = message.get(HEADER_LEN..).and_then(|code| code.first_chunk());
    let code = code.map_or(0, |code| i32::from_ne_bytes(*code));
    io::Error::from_raw_os_error(code.checked_neg().unwrap_or(0))
}

/// Reads a `struct inet_diag_msg`.
fn read(octets: &[u8]) -> Option<KernelSocket> {
    let octets: &[u8; ANSWER_LEN] = octets.first_chunk()?;
    let end = |port: usize, address: usize| {
        let port = u16::from_be_bytes([octets[port], octets[port + 1]]);
        SocketAddr::new(read_address(octets[0], &octets[address..address + 16]), port)
    };
    let cookie = |at: usize| {
        u64::from(u32::from_ne_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]]))
    };
    let interface = u32::from_ne_bytes([octets[40], octets[41], octets[42], octets[43]]);
    let cookie = cookie(44) | cookie(48) << 32;
    Some(KernelSocket { local: end(4, 8), remote: end(6, 24), interface, cookie })
}

fn read_address(family: u8, octets: &[u8]) -> IpAddr {
    if family == FAMILIES[0] {
        IpAddr::from(*octets.first_chunk::<4>().expect("an address has room for sixteen"))
    } else {
        let address = *octets.first_chunk::<16>().expect("an address has room for sixteen");
        IpAddr::from(address).to_canonical()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use rustix::net::sockopt::socket_cookie;

    use super::*;

    #[test]
    fn a_listener_is_found_by_its_cookie_and_its_connections_by_its_port() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let local = listener.local_addr().unwrap();
            let listens = KernelSocket {
                local,
                remote: SocketAddr::new(if local.is_ipv4() { [0; 4].into() } else { [0; 16].into() }, 0),
                interface: 0,
                cookie: socket_cookie(&listener).unwrap(),
            };
            assert!(tcp_listeners().unwrap().contains(&listens));
            assert_eq!(tcp_listeners_at(local.port()).unwrap(), [listens]);
            assert_eq!(tcp_connections(&[local.port()]).unwrap(), []);

            let client = TcpStream::connect(local).unwrap();
            let (accepted, _) = listener.accept().unwrap();
            let found = tcp_connections(&[local.port()]).unwrap();
            let expected = KernelSocket {
                local,
                remote: client.local_addr().unwrap(),
                interface: 0,
                cookie: socket_cookie(&accepted).unwrap(),
            };
            assert_eq!(found, [expected]);
            drop(listener);
            assert!(!tcp_listeners().unwrap().contains(&listens));
        }
    }

    #[test]
    fn what_a_connection_has_received_is_told_with_the_fin() {
        use std::io::Write;
        for (bound, address) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("[::]:0", "127.0.0.1")] {
            let listener = TcpListener::bind(bound).unwrap();
            let local = SocketAddr::new(address.parse().unwrap(), listener.local_addr().unwrap().port());
            let mut client = TcpStream::connect(local).unwrap();
            let remote = client.local_addr().unwrap();
            assert_eq!(tcp_received(local, remote).unwrap(), Some(0), "{bound}");
            client.write_all(b"hello").unwrap();
            assert_eq!(tcp_received(local, remote).unwrap(), Some(5), "{bound}");
            client.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(tcp_received(local, remote).unwrap(), Some(6), "{bound}");
            let nobody = SocketAddr::new(remote.ip(), 1);
            assert_eq!(tcp_received(local, nobody).unwrap(), None, "{bound}: only its listener is there");
        }
    }

    #[test]
    fn a_time_wait_is_ended_and_nothing_else() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut accepted, remote) = listener.accept().unwrap();
        let local = listener.local_addr().unwrap();
        assert!(!end_time_wait(local, remote).unwrap(), "there is a connection");
        std::io::Write::write_all(&mut &peer, b"alive").unwrap();
        std::io::Read::read_exact(&mut accepted, &mut [0; 5]).unwrap();
        drop(accepted);
        drop(peer);
        // Who closes first is in TIME-WAIT when the other one has closed, too.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while !end_time_wait(local, remote).unwrap() {
            assert!(std::time::Instant::now() < deadline, "there is none");
        }
        assert!(!end_time_wait(local, remote).unwrap(), "the listener is not it");
        TcpStream::connect(local).expect("it is still there");
    }

    #[test]
    fn connections_of_several_ports_are_found_at_once_and_no_others() {
        let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let locals = listeners.each_ref().map(|listener| listener.local_addr().unwrap());
        let _clients = locals.map(|local| TcpStream::connect(local).unwrap());
        let found = tcp_connections(&[locals[0].port(), locals[2].port()]).unwrap();
        let found: BTreeSet<SocketAddr> = found.iter().map(|socket| socket.local).collect();
        assert_eq!(found, BTreeSet::from([locals[0], locals[2]]));
        assert_eq!(tcp_connections(&[]).unwrap(), []);
    }

    #[test]
    fn a_connection_over_a_mapped_address_is_one_over_ipv4() {
        let listener = TcpListener::bind("[::]:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let found = tcp_connections(&[port]).unwrap();
        assert_eq!(found[0].remote, client.local_addr().unwrap());
    }

    #[test]
    fn the_owner_of_a_datagram_is_whose_socket_would_get_it() {
        for address in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let bound = UdpSocket::bind(address).unwrap();
            let at = if address == "[::1]:0" { "[::1]:1" } else { "127.0.0.1:1" };
            let mut local: SocketAddr = at.parse().unwrap();
            local.set_port(bound.local_addr().unwrap().port());
            let peer: SocketAddr =
                if at == "[::1]:1" { "[2001:db8::9]:53" } else { "192.0.2.9:53" }.parse().unwrap();
            let owner = rustix::fs::fstat(&bound).unwrap().st_uid;
            assert_eq!(udp_owner_for(local, peer, 1).unwrap(), Some(owner), "{address}");
            bound.connect(local).unwrap();
            assert_eq!(udp_owner_for(local, peer, 1).unwrap(), None, "{address}: it has another peer");
            drop(bound);
            assert_eq!(udp_owner_for(local, peer, 1).unwrap(), None, "{address}");
        }
    }

    #[test]
    fn udp_sockets_are_found_bound_or_connected() {
        let bound = UdpSocket::bind("127.0.0.1:0").unwrap();
        let connected = UdpSocket::bind("127.0.0.1:0").unwrap();
        connected.connect(bound.local_addr().unwrap()).unwrap();
        let found = udp_sockets().unwrap();
        for socket in [bound, connected] {
            let cookie = socket_cookie(&socket).unwrap();
            let found = found.iter().find(|found| found.cookie == cookie).unwrap();
            assert_eq!(found.local, socket.local_addr().unwrap());
        }
    }
}
