//! Kernel sockets at the addresses and ports that are claimed: what the steering program leaves to the kernel arrives there.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType};
use socket2::{Domain, Protocol, Socket, Type};
use steering::{LocalAddress, VlanTags};

use crate::follower::Notice;

/// The program for which an interface is open. It keeps the shadows of TCP, and hears what happens.
///
/// Shadows of UDP are kernel sockets that the engines serve with the same responder.
pub trait Owner: Send + 'static {
    /// TCP to `address`, which may not be there yet or any more, is ours: bind the kernel's socket, and serve what it
    /// accepts if anything. The error leaves the address without a shadow.
    fn open_shadow(&mut self, address: SocketAddr) -> io::Result<()>;

    /// TCP to `address` is no longer ours.
    fn close_shadow(&mut self, address: SocketAddr);

    /// Something happened at the interface.
    fn on_notice(&mut self, notice: &Notice);
}

/// Keeps others from the ports, serves nothing there: who reaches the kernel's socket is refused. Prints notices.
#[derive(Debug)]
pub struct Reserved {
    name: String,
    sockets: BTreeMap<SocketAddr, Socket>,
}

impl Reserved {
    /// For the program `name`, which stands in front of the notices on stderr.
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

/// A TCP socket bound to `address`, port 0 standing for one that is free; also where no interface has it yet (IP_FREEBIND in ip(7)).
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

/// The address that a shadow is bound to. A link-local one needs its interface; behind VLAN tags that is another interface,
/// which is not known here: such an address has no shadow.
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
