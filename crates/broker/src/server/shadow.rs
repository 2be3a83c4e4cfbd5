//! The kernel's description of a socket that a client claims to be bound or connected.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use control::sock_diag::{KernelSocket, tcp_listeners_at, udp_sockets_at};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrAny, SocketFlags, SocketType, ipproto, sockopt};
use steering::Transport;

use crate::protocol::{Purpose, Refusal};
use crate::registry::{Bound, Scope, Shadow};

/// Options of socket(7) that rustix does not have (asm-generic/socket.h).
const SOL_SOCKET: i32 = 1;
const SO_BINDTOIFINDEX: i32 = 62;

/// The kernel's number for the network namespace of a socket.
pub(super) fn namespace_of(socket: impl AsFd) -> std::io::Result<u64> {
    syscall::network_namespace(socket.as_fd().as_raw_fd())
}

/// Looks at a socket. Whatever the descriptor is, this waits for nothing but the socket's lock: a helper's work.
pub(super) fn examine(
    socket: impl AsFd,
    transport: Transport,
    purpose: Purpose,
    namespace: u64,
) -> Result<Shadow, Refusal> {
    let socket = socket.as_fd();
    check_kind(socket, transport)?;
    if (purpose == Purpose::Udp) != (transport == Transport::Udp) {
        return Err(Refusal::NotThisTransport);
    }
    if namespace_of(socket).ok() != Some(namespace) {
        return Err(Refusal::OtherNamespace);
    }
    let local = net::getsockname(socket).ok().and_then(|name| SocketAddr::try_from(name).ok());
    let local = local.filter(|local| local.port() != 0).ok_or(Refusal::NotBound)?;
    // A port that the kernel chose is lost with a connection that does not come about, and the name still tells it. Who has one
    // cannot be bound.
    if matches!(net::bind(socket, &local), Ok(()) | Err(Errno::ADDRINUSE)) {
        return Err(Refusal::NotBound);
    }
    check_purpose(socket, purpose)?;
    Ok(Shadow {
        transport,
        purpose,
        bound: bound_at(socket, local),
        cookie: sockopt::socket_cookie(socket).map_err(|_| Refusal::NotThisTransport)?,
        owner: rustix::fs::fstat(socket).map_err(|_| Refusal::NoSocket)?.st_uid,
    })
}

/// Another socket at the port of one to connect from: a port that the kernel chose is lost with a connection of its socket that does not come about, which
/// nobody tells us, and would be the next one's whose packets the claim takes.
///
/// Two sockets that do not listen may have a port if both were bound with `SO_REUSEADDR`, or have it when the second one is bound. After that
/// nobody may have it besides them. `bound` is where it was bound when it was looked at: meanwhile its program may have bound it elsewhere.
pub(super) fn hold_port(socket: impl AsFd, bound: &Bound) -> Result<OwnedFd, Refusal> {
    let socket = socket.as_fd();
    sockopt::set_socket_reuseaddr(socket, true).map_err(|_| Refusal::NotBound)?;
    let holder = bind_beside(socket).map_err(|_| Refusal::NotBound);
    let _ = sockopt::set_socket_reuseaddr(socket, false); // It could be set just now.
    holder.and_then(|(holder, held)| if held == *bound { Ok(holder) } else { Err(Refusal::NotBound) })
}

fn bind_beside(socket: BorrowedFd<'_>) -> Result<(OwnedFd, Bound), Errno> {
    let local = SocketAddr::try_from(net::getsockname(socket)?)?;
    let domain = sockopt::socket_domain(socket)?;
    let holder = net::socket_with(domain, SocketType::STREAM, SocketFlags::CLOEXEC, Some(ipproto::TCP))?;
    if local.is_ipv6() {
        sockopt::set_ipv6_v6only(&holder, sockopt::ipv6_v6only(socket)?)?;
    }
    if let Some(index) = device_of(socket, local) {
        let index = index.to_ne_bytes();
        let set = syscall::setsockopt(holder.as_raw_fd(), SOL_SOCKET, SO_BINDTOIFINDEX, &index);
        set.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL))?;
    }
    sockopt::set_socket_reuseaddr(&holder, true)?;
    net::bind(&holder, &local)?;
    sockopt::set_socket_reuseaddr(&holder, false)?;
    let held = bound_at(holder.as_fd(), local);
    Ok((holder, held))
}

/// Where the kernel has sockets at the port of a claim that gets what begins. What the kernel does not tell is not known.
pub(super) fn look_around(shadow: &Shadow) -> Vec<(u64, Bound)> {
    let port = shadow.bound.port;
    let found = match shadow.transport {
        Transport::Udp => udp_sockets_at(port),
        Transport::Tcp => tcp_listeners_at(port),
    };
    found.into_iter().flatten().filter_map(|socket| bound_of(&socket)).collect()
}

/// Where a socket of the kernel's is bound that has no peer.
pub(super) fn bound_of(socket: &KernelSocket) -> Option<(u64, Bound)> {
    let scope = match socket.local.ip() {
        IpAddr::V4(address) if address.is_unspecified() => Scope::Any { v4: true, v6: false },
        IpAddr::V6(address) if address.is_unspecified() => Scope::Any { v4: true, v6: true },
        address => Scope::One(address),
    };
    let device = (socket.interface != 0).then_some(socket.interface);
    (socket.remote.port() == 0).then_some((socket.cookie, Bound { scope, port: socket.local.port(), device }))
}

/// Examines a connection that will move to another program; returns its ends, ours first. It may block as [`examine`] does.
pub(super) fn examine_connection(
    socket: impl AsFd,
    namespace: u64,
) -> Result<(SocketAddr, SocketAddr), Refusal> {
    let socket = socket.as_fd();
    check_kind(socket, Transport::Tcp)?;
    if namespace_of(socket).ok() != Some(namespace) {
        return Err(Refusal::OtherNamespace);
    }
    if sockopt::socket_acceptconn(socket).unwrap_or(true) {
        return Err(Refusal::InUse);
    }
    let local = net::getsockname(socket).ok().and_then(end).ok_or(Refusal::NotBound)?;
    let remote = net::getpeername(socket).ok().flatten().and_then(end).ok_or(Refusal::NotConnected)?;
    Ok((local, remote))
}

/// An end of a connection, its IPv4 address written as one; `None` if the socket is not one of IP.
fn end(name: SocketAddrAny) -> Option<SocketAddr> {
    let end = SocketAddr::try_from(name).ok()?;
    Some(SocketAddr::new(end.ip().to_canonical(), end.port()))
}

fn check_kind(socket: impl AsFd, transport: Transport) -> Result<(), Refusal> {
    let domain = sockopt::socket_domain(&socket).map_err(|_| Refusal::NoSocket)?;
    let wanted = match transport {
        Transport::Tcp => (SocketType::STREAM, ipproto::TCP),
        Transport::Udp => (SocketType::DGRAM, ipproto::UDP),
    };
    let kind = sockopt::socket_type(&socket).ok().zip(sockopt::socket_protocol(&socket).ok().flatten());
    let is_ip = [AddressFamily::INET, AddressFamily::INET6].contains(&domain);
    if is_ip && kind == Some(wanted) { Ok(()) } else { Err(Refusal::NotThisTransport) }
}

fn check_purpose(socket: BorrowedFd<'_>, purpose: Purpose) -> Result<(), Refusal> {
    let listens = || sockopt::socket_acceptconn(socket).unwrap_or(false);
    match purpose {
        Purpose::Udp => Ok(()),
        Purpose::Listener if listens() => Ok(()),
        Purpose::Listener => Err(Refusal::NotListening),
        Purpose::Outgoing if listens() || net::getpeername(socket).is_ok() => Err(Refusal::InUse),
        // Others may have connections from there.
        Purpose::Outgoing if shares_port(socket) => Err(Refusal::InUse),
        Purpose::Outgoing => Ok(()),
    }
}

/// Whether others may be bound to its port if they say so, too.
fn shares_port(socket: BorrowedFd<'_>) -> bool {
    sockopt::socket_reuseaddr(socket).unwrap_or(true) || sockopt::socket_reuseport(socket).unwrap_or(true)
}

fn bound_at(socket: BorrowedFd<'_>, local: SocketAddr) -> Bound {
    Bound { scope: scope_of(socket, local), port: local.port(), device: device_of(socket, local) }
}

fn scope_of(socket: BorrowedFd<'_>, local: SocketAddr) -> Scope {
    match local.ip().to_canonical() {
        IpAddr::V6(address) if address.is_unspecified() => {
            let only_v6 = sockopt::ipv6_v6only(socket).unwrap_or(true);
            Scope::Any { v4: !only_v6, v6: true }
        }
        // A socket of IPv6 that is bound to ::ffff:0.0.0.0 takes IPv4 only too.
        IpAddr::V4(address) if address.is_unspecified() => Scope::Any { v4: true, v6: false },
        address => Scope::One(address),
    }
}

/// The interface that the socket takes packets of only.
fn device_of(socket: BorrowedFd<'_>, local: SocketAddr) -> Option<u32> {
    let mut index = [0; 4];
    let bound = syscall::getsockopt(socket.as_raw_fd(), SOL_SOCKET, SO_BINDTOIFINDEX, &mut index);
    let bound = bound.map_or(0, |_| u32::from_ne_bytes(index));
    let scope = match local {
        SocketAddr::V6(local) if local.ip().is_unicast_link_local() => local.scope_id(),
        _ => 0,
    };
    [bound, scope].into_iter().find(|index| *index != 0)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn look(socket: impl Into<OwnedFd>, transport: Transport, purpose: Purpose) -> Result<Shadow, Refusal> {
        let socket = socket.into();
        let own: OwnedFd = UdpSocket::bind("127.0.0.1:0").unwrap().into();
        examine(&socket, transport, purpose, namespace_of(&own).unwrap())
    }

    fn scope(address: &str) -> Scope {
        let listener = TcpListener::bind(address).unwrap();
        look(listener, Transport::Tcp, Purpose::Listener).unwrap().bound.scope
    }

    #[test]
    fn a_listener_is_where_the_kernel_says() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shadow = look(listener, Transport::Tcp, Purpose::Listener).unwrap();
        let bound = Bound { scope: Scope::One([127, 0, 0, 1].into()), port, device: None };
        assert_eq!(shadow.bound, bound);
    }

    #[test]
    fn wildcards_have_the_families_that_the_kernel_gives_them() {
        assert_eq!(scope("0.0.0.0:0"), Scope::Any { v4: true, v6: false });
        assert_eq!(scope("[::]:0"), Scope::Any { v4: true, v6: true });
        assert_eq!(scope("[::ffff:127.0.0.1]:0"), Scope::One([127, 0, 0, 1].into()));
    }

    #[test]
    fn a_socket_that_is_something_else_is_refused() {
        let listener = || TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let tcp = |purpose| look(listener(), Transport::Tcp, purpose).err();
        assert_eq!(tcp(Purpose::Outgoing), Some(Refusal::InUse));
        assert_eq!(tcp(Purpose::Udp), Some(Refusal::NotThisTransport));
        assert_eq!(look(udp(), Transport::Tcp, Purpose::Listener), Err(Refusal::NotThisTransport));
        assert_eq!(look(listener(), Transport::Udp, Purpose::Udp), Err(Refusal::NotThisTransport));
        let (pair, _other) = UnixStream::pair().unwrap();
        assert_eq!(look(pair, Transport::Tcp, Purpose::Listener), Err(Refusal::NotThisTransport));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(look(file, Transport::Tcp, Purpose::Listener), Err(Refusal::NoSocket));
    }

    #[test]
    fn a_connection_is_no_outgoing_one_that_is_yet_to_be_made() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(look(client, Transport::Tcp, Purpose::Outgoing), Err(Refusal::InUse));
    }

    #[test]
    fn a_socket_without_a_port_is_not_bound() {
        let socket = net::socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        assert_eq!(look(socket, Transport::Udp, Purpose::Udp), Err(Refusal::NotBound));
    }

    #[test]
    fn a_port_that_was_lost_is_no_proof() {
        let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let look_again =
            |socket: &OwnedFd| look(socket.try_clone().unwrap(), Transport::Tcp, Purpose::Outgoing);
        assert!(look_again(&socket).is_ok());
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(net::connect(&socket, &silent), Err(Errno::CONNREFUSED));
        assert_eq!(look_again(&socket), Err(Refusal::NotBound), "another may have it by now");
    }

    #[test]
    fn a_socket_that_shares_its_port_is_none_to_connect_from() {
        for (address, port) in [(true, false), (false, true)] {
            let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            sockopt::set_socket_reuseaddr(&socket, address).unwrap();
            sockopt::set_socket_reuseport(&socket, port).unwrap();
            net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
            assert_eq!(look(socket, Transport::Tcp, Purpose::Outgoing), Err(Refusal::InUse));
        }
    }

    /// Holds the port of a socket, where it is bound.
    fn hold(socket: &OwnedFd) -> Result<OwnedFd, Refusal> {
        let local = SocketAddr::try_from(net::getsockname(socket).unwrap()).unwrap();
        hold_port(socket, &bound_at(socket.as_fd(), local))
    }

    #[test]
    fn a_port_that_its_socket_has_left_is_not_held() {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let bound = || {
            let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            net::bind(&socket, &at(0)).unwrap();
            socket
        };
        let [looked_at, elsewhere] = [bound(), bound()];
        let name = SocketAddr::try_from(net::getsockname(&looked_at).unwrap()).unwrap();
        let found = bound_at(looked_at.as_fd(), name);
        assert_eq!(hold_port(&elsewhere, &found).unwrap_err(), Refusal::NotBound);
    }

    #[test]
    fn a_held_port_stays_when_its_socket_loses_it_and_nobody_else_gets_it() {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let made = || net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let socket = made();
        net::bind(&socket, &at(0)).unwrap();
        let port = SocketAddr::try_from(net::getsockname(&socket).unwrap()).unwrap().port();
        let holder = hold(&socket).unwrap();
        assert_eq!(sockopt::socket_reuseaddr(&socket), Ok(false), "as before");
        assert_eq!(net::connect(&socket, &at(1)), Err(Errno::CONNREFUSED));
        let with = |shares| {
            let other = made();
            sockopt::set_socket_reuseaddr(&other, shares).unwrap();
            sockopt::set_socket_reuseport(&other, shares).unwrap();
            net::bind(&other, &at(port))
        };
        for shares in [false, true] {
            sockopt::set_socket_reuseaddr(&socket, shares).unwrap();
            assert_eq!(with(shares), Err(Errno::ADDRINUSE));
        }
        drop((holder, socket));
        assert_eq!(with(false), Ok(()), "it is given back");
    }

    #[test]
    fn a_port_is_held_where_it_is_bound() {
        for (domain, local) in [
            (AddressFamily::INET, "0.0.0.0:0"),
            (AddressFamily::INET6, "[::]:0"),
            (AddressFamily::INET6, "[::1]:0"),
            (AddressFamily::INET6, "[::ffff:127.0.0.1]:0"),
        ] {
            let socket = net::socket(domain, SocketType::STREAM, None).unwrap();
            net::bind(&socket, &local.parse::<SocketAddr>().unwrap()).unwrap();
            let holder = hold(&socket).unwrap();
            assert_eq!(net::getsockname(&holder), net::getsockname(&socket), "{local}");
        }
    }

    fn look_at_connection(socket: impl Into<OwnedFd>) -> Result<(SocketAddr, SocketAddr), Refusal> {
        let own: OwnedFd = UdpSocket::bind("127.0.0.1:0").unwrap().into();
        examine_connection(socket.into(), namespace_of(&own).unwrap())
    }

    #[test]
    fn a_connection_has_the_ends_that_the_kernel_says() {
        for (any, to) in [("127.0.0.1:0", "127.0.0.1"), ("[::]:0", "127.0.0.1"), ("[::1]:0", "::1")] {
            let listener = TcpListener::bind(any).unwrap();
            let local = SocketAddr::new(to.parse().unwrap(), listener.local_addr().unwrap().port());
            let peer = TcpStream::connect(local).unwrap();
            let accepted = listener.accept().unwrap().0;
            assert_eq!(look_at_connection(accepted), Ok((local, peer.local_addr().unwrap())), "{any}");
        }
    }

    #[test]
    fn what_is_no_connection_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(look_at_connection(udp), Err(Refusal::NotThisTransport));
        assert_eq!(look_at_connection(UnixStream::pair().unwrap().0), Err(Refusal::NotThisTransport));
        let raw = net::socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::MPTCP));
        raw.into_iter().for_each(|it| assert_eq!(look_at_connection(it), Err(Refusal::NotThisTransport)));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(look_at_connection(file), Err(Refusal::NoSocket));
        let bound = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        net::bind(&bound, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        assert_eq!(look_at_connection(bound), Err(Refusal::NotConnected));
        assert_eq!(look_at_connection(listener), Err(Refusal::InUse));
    }

    #[test]
    fn a_connection_of_another_namespace_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket: OwnedFd = TcpStream::connect(listener.local_addr().unwrap()).unwrap().into();
        let other = namespace_of(&socket).unwrap() + 1;
        assert_eq!(examine_connection(&socket, other), Err(Refusal::OtherNamespace));
    }

    #[test]
    fn a_socket_of_another_namespace_is_refused() {
        let socket: OwnedFd = UdpSocket::bind("127.0.0.1:0").unwrap().into();
        let other = namespace_of(&socket).unwrap() + 1;
        let refused = examine(&socket, Transport::Udp, Purpose::Udp, other);
        assert_eq!(refused, Err(Refusal::OtherNamespace));
    }
}
