//! Shadows: kernel sockets at the claimed addresses and ports. Packets that the steering program leaves to the kernel arrive there.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType};
use socket2::{Domain, Protocol, Socket, Type};
use steering::{LocalAddress, VlanTags};

use crate::follower::Notice;

/// The owner of an open interface. It keeps the TCP shadows and receives notices.
///
/// The engines serve UDP shadows with the same responder.
pub trait Owner: Send + 'static {
    /// TCP to `address` is claimed from now on; the address may not exist yet or any more. Bind the kernel's socket, and serve what it
    /// accepts if anything. After an error the address has no shadow.
    fn open_shadow(&mut self, address: SocketAddr) -> io::Result<()>;

    /// TCP to `address` is no longer claimed.
    fn close_shadow(&mut self, address: SocketAddr);

    /// Something happened at the interface.
    fn on_notice(&mut self, notice: &Notice);
}

/// Reserves the TCP ports and serves nothing there: the kernel refuses connections that reach it. Prints notices.
#[derive(Debug)]
pub struct Reserved {
    name: String,
    sockets: BTreeMap<SocketAddr, Socket>,
}

impl Reserved {
    /// For the program `name`, which begins the notices on stderr.
    pub fn for_program(name: &str) -> Reserved {
        Reserved { name: name.to_owned(), sockets: BTreeMap::new() }
    }
}

impl Owner for Reserved {
    fn open_shadow(&mut self, address: SocketAddr) -> io::Result<()> {
        self.sockets.insert(address, bind_tcp(address)?);
        Ok(())
    }

    fn close_shadow(&mut self, address: SocketAddr) {
        self.sockets.remove(&address);
    }

    fn on_notice(&mut self, notice: &Notice) {
        let _ = writeln!(io::stderr(), "{}: {notice}", self.name); // The reader may have gone, the disk be full.
    }
}

/// A TCP socket bound to `address` (port 0: any free port), even if no interface has the address yet (IP_FREEBIND in ip(7)).
pub(crate) fn bind_tcp(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?; // A restart must not wait for TIME_WAIT.
    match address {
        SocketAddr::V4(_) => socket.set_freebind_v4(true)?,
        SocketAddr::V6(_) => {
            socket.set_only_v6(true)?;
            socket.set_freebind_v6(true)?;
        }
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// The address that a shadow is bound to. A link-local address needs its interface. Behind VLAN tags that is another interface,
/// which is not known here, so such an address has no shadow.
pub(crate) fn socket_address(interface: &str, local: &LocalAddress, port: u16) -> Option<SocketAddr> {
    match local.address {
        IpAddr::V6(address) if address.is_unicast_link_local() => {
            if local.vlan != VlanTags::default() {
                return None;
            }
            let any = rustix::net::socket(AddressFamily::INET6, SocketType::DGRAM, None).ok()?;
            let index = name_to_index(any, interface).ok()?;
            Some(SocketAddrV6::new(address, port, 0, index).into())
        }
        address => Some(SocketAddr::new(address, port)),
    }
}
