//! Opening one UDP socket.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::sockopt;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::Config;
use crate::option::{dropped_datagrams, request_packet_info};

/// Why the sockets could not be opened. Each variant names the address.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another program, or another user's, serves this address. Stop it, or listen elsewhere.
    #[error("{address}: in use by another program")]
    AddressInUse {
        /// The address asked for.
        address: SocketAddr,
    },
    /// The process may not open this port.
    #[error(
        "{address}: permission denied; ports below 1024 need root or the capability CAP_NET_BIND_SERVICE"
    )]
    PermissionDenied {
        /// The address asked for.
        address: SocketAddr,
    },
    /// No interface has this address (yet): see [`Config::free_bind`].
    #[error("{address}: no interface has this address")]
    AddressNotAvailable {
        /// The address asked for.
        address: SocketAddr,
    },
    /// [`Config::interface`] names none.
    #[error("{address}: no interface is called {interface}")]
    NoSuchInterface {
        /// The address asked for.
        address: SocketAddr,
        /// The name.
        interface: String,
    },
    /// A system call failed for another reason.
    #[error("{address}: cannot {step}")]
    System {
        /// The address asked for.
        address: SocketAddr,
        /// What was being done.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// Memory for the frames could not be mapped: ask for fewer.
    #[error("cannot map {octets} octets for frames")]
    Memory {
        /// The size asked for.
        octets: usize,
        /// What the kernel said.
        source: io::Error,
    },
    /// The descriptor that reports ready sockets could not be made.
    #[error("cannot watch the sockets")]
    Watch(#[source] io::Error),
}

/// One open socket and its settings.
pub(crate) struct UdpSocket {
    socket: Socket,
    local: SocketAddr,
}

impl UdpSocket {
    pub(crate) fn open(address: SocketAddr, config: &Config) -> Result<UdpSocket, OpenError> {
        let failed = |step| move |source| OpenError::System { address, step, source };
        let socket =
            Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking(), Some(Protocol::UDP))
                .map_err(failed("open a socket"))?;
        socket.set_reuse_port(config.share_port).map_err(failed("share the port between engines"))?;
        set_path_options(&socket, address).map_err(failed("set IP options"))?;
        if address.ip().is_unspecified() {
            request_packet_info(socket.as_fd(), address.is_ipv6())
                .map_err(failed("ask for destination addresses"))?;
        }
        if let Some(interface) = &config.interface {
            socket.bind_device(Some(interface.as_bytes())).map_err(|source| match source.raw_os_error() {
                Some(libc::ENODEV) => OpenError::NoSuchInterface { address, interface: interface.clone() },
                _ => OpenError::System { address, step: "bind to an interface", source },
            })?;
        }
        if config.free_bind {
            set_free_bind(&socket, address).map_err(failed("allow addresses that no interface has"))?;
        }
        set_buffers(&socket, config).map_err(failed("set buffer sizes"))?;
        if config.busy_poll_us > 0 {
            socket.set_busy_poll(config.busy_poll_us).map_err(failed("set SO_BUSY_POLL"))?;
        }
        socket.bind(&SockAddr::from(address)).map_err(|source| bind_error(address, source))?;
        let local = socket.local_addr().map_err(failed("read its address"))?;
        let local = local.as_socket().expect("an IP socket has an IP address");
        Ok(UdpSocket { socket, local })
    }

    /// The address that it is bound to, with the port that the kernel chose if none was asked for.
    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    /// Whether it serves every address, so that each datagram reports its destination address.
    pub(crate) fn is_wildcard(&self) -> bool {
        self.local.ip().is_unspecified()
    }

    /// Whether this socket may send a datagram with the source address `source`.
    pub(crate) fn can_send_from(&self, source: SocketAddr) -> bool {
        self.local.port() == source.port()
            && self.local.is_ipv4() == source.is_ipv4()
            && (self.is_wildcard() || self.local.ip() == source.ip())
    }

    /// Datagrams that the kernel dropped because the receive buffer was full.
    pub(crate) fn dropped_datagrams(&self) -> u64 {
        dropped_datagrams(self.socket.as_fd())
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Lets the kernel fragment long answers by the interface's MTU, and ignores what ICMP reports about the path's MTU: a forged
/// "packet too big" must not shrink our fragments. Restricts IPv6 sockets to IPv6.
fn set_path_options(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    use sockopt::{Ipv4PathMtuDiscovery as V4, Ipv6PathMtuDiscovery as V6};
    match address.ip() {
        IpAddr::V4(_) => sockopt::set_ip_mtu_discover(socket, V4::OMIT)
            .or_else(|_| sockopt::set_ip_mtu_discover(socket, V4::DONT))?,
        IpAddr::V6(_) => {
            socket.set_only_v6(true)?;
            sockopt::set_ipv6_mtu_discover(socket, V6::OMIT)
                .or_else(|_| sockopt::set_ipv6_mtu_discover(socket, V6::DONT))?;
        }
    }
    Ok(())
}

fn set_free_bind(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    match address {
        SocketAddr::V4(_) => socket.set_freebind_v4(true),
        SocketAddr::V6(_) => socket.set_freebind_v6(true),
    }
}

/// Sets the requested sizes: beyond the system's limits if the process may exceed them, else up to those limits.
fn set_buffers(socket: &Socket, config: &Config) -> io::Result<()> {
    sockopt::set_socket_recv_buffer_size_force(socket, config.receive_buffer)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, config.receive_buffer))?;
    sockopt::set_socket_send_buffer_size_force(socket, config.send_buffer)
        .or_else(|_| sockopt::set_socket_send_buffer_size(socket, config.send_buffer))?;
    Ok(())
}

fn bind_error(address: SocketAddr, source: io::Error) -> OpenError {
    match source.raw_os_error() {
        Some(libc::EADDRINUSE) => OpenError::AddressInUse { address },
        Some(libc::EACCES | libc::EPERM) => OpenError::PermissionDenied { address },
        Some(libc::EADDRNOTAVAIL) => OpenError::AddressNotAvailable { address },
        _ => OpenError::System { address, step: "bind", source },
    }
}
