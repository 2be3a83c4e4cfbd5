//! UDP of clients.

use std::io;
use std::net::SocketAddr;

use mio::net::UdpSocket;
use socket2::{Domain, Protocol, Socket, Type};

/// Octets that the kernel keeps for a socket while the loop is busy: some thousand queries.
const RECEIVE_BUFFER: usize = 1 << 20;

/// Opens a socket at one address.
pub(super) fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER); // A smaller one loses queries in a burst, and clients ask again.
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(UdpSocket::from_std(socket.into()))
}

/// Receives one datagram; `None` if there is none now. Errors of earlier sends are passed over.
pub(super) fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
    loop {
        match socket.recv_from(buffer) {
            Ok(received) => return Some(received),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            // An ICMP error about an answer, or a signal. Each is reported once, so this ends.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::Interrupted) => {}
            Err(_) => return None,
        }
    }
}
