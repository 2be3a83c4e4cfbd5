//! Ports of this host for servers of tests.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};

/// The first of the ports, and how many there are to choose from: below those that the kernel gives to clients, so no connection has one by chance, and a
/// server that was away finds its own free again.
const PORTS: (u16, u64) = (12_000, 20_000);

/// A port that nobody has at 127.0.0.1, for TCP and UDP.
pub fn quiet_port() -> u16 {
    let [port] = quiet_ports();
    port
}

/// Several of them.
///
/// # Panics
/// None is left.
pub fn quiet_ports<const COUNT: usize>() -> [u16; COUNT] {
    let held: [_; COUNT] = std::array::from_fn(|_| bound());
    held.map(|(port, ..)| port)
}

/// A socket and a listener at one of them. A test that serves itself binds no port twice: a child that another thread starts may have the first socket until
/// its exec.
///
/// # Panics
/// None is left.
pub fn quiet_sockets() -> (UdpSocket, TcpListener) {
    let (_, socket, listener) = bound();
    (socket, listener)
}

fn bound() -> (u16, UdpSocket, TcpListener) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Tests that run at the same time begin at different ones.
    let first = u64::from(std::process::id()) * 64;
    loop {
        let tried = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(tried < PORTS.1, "no ports are left");
        let port = PORTS.0 + ((first + tried) % PORTS.1) as u16; // Below the end of the range.
        let address = (Ipv4Addr::LOCALHOST, port);
        if let (Ok(socket), Ok(listener)) = (UdpSocket::bind(address), TcpListener::bind(address)) {
            return (port, socket, listener);
        }
    }
}
