//! bind(2), and the names of sockets in every state.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use libc::{IPPROTO_IP, SO_REUSEADDR, SOCK_DGRAM, SOCK_STREAM, SOL_SOCKET};

use crate::pair::Pair;
use crate::scene::{Scene, port_of};
use crate::sys::{self, End, FULL};
use crate::table::{Done, checks};

checks! {
    alone "bind":
    BOTH [
        to_a_foreign_address, twice, with_a_short_address, to_a_used_udp_port, after_connect, to_nobody_s_port_as_nobody,
    ],
    ONCE [
        of_the_other_family, with_an_unknown_family, of_a_closed_descriptor, of_a_pipe, freebind, to_a_port_of_udp_and_tcp,
        of_a_connected_socket, no_port_until_connect, to_a_used_port_with_reuseaddr,
    ],
}

fn to_a_foreign_address(s: &mut Scene) -> Done {
    for kind in [SOCK_STREAM, SOCK_DGRAM] {
        let fd = sys::socket(s.domain(), kind, 0)?;
        let foreign: IpAddr = if s.is_v6() { "2001:db8::77".parse() } else { "192.0.2.77".parse() }
            .unwrap_or(IpAddr::V4(Ipv4Addr::BROADCAST));
        s.see("bind", sys::bind(fd, &sys::name_of(SocketAddr::new(foreign, 0))));
    }
    Ok(())
}

fn twice(s: &mut Scene) -> Done {
    for kind in [SOCK_STREAM, SOCK_DGRAM] {
        let fd = sys::socket(s.domain(), kind, 0)?;
        s.see("bind", sys::bind(fd, &s.local(0)));
        s.see("again", sys::bind(fd, &s.local(0)));
    }
    Ok(())
}

fn with_a_short_address(s: &mut Scene) -> Done {
    for kind in [SOCK_STREAM, SOCK_DGRAM] {
        let fd = sys::socket(s.domain(), kind, 0)?;
        let name = s.local(0);
        for len in [0, 2, 8, 15] {
            s.see(&format!("{len} octets"), sys::bind(fd, &name[..len]));
        }
    }
    Ok(())
}

fn to_a_used_udp_port(s: &mut Scene) -> Done {
    let (_, port) = s.udp_bound()?;
    let second = s.udp()?;
    s.see("bind", sys::bind(second, &s.local(port)));
    s.see("bind to all", sys::bind(second, &s.any(port)));
    sys::setsockopt_int(second, SOL_SOCKET, SO_REUSEADDR, 1)?;
    s.see("bind with SO_REUSEADDR of one", sys::bind(second, &s.local(port)));
    Ok(())
}

fn after_connect(s: &mut Scene) -> Done {
    let mut peer = s.peer()?;
    let (_, port) = peer.tcp_listener(4)?;
    let fd = s.tcp()?;
    sys::connect(fd, &s.remote(port))?;
    s.see("tcp", sys::bind(fd, &s.local(0)));
    let (_, port) = peer.udp()?;
    let fd = s.udp()?;
    sys::connect(fd, &s.remote(port))?;
    s.see("udp", sys::bind(fd, &s.local(0)));
    Ok(())
}

fn to_nobody_s_port_as_nobody(s: &mut Scene) -> Done {
    let child = sys::fork_to(|| {
        if sys::become_nobody().is_err() {
            return 1;
        }
        for kind in [SOCK_STREAM, SOCK_DGRAM] {
            let bound = sys::socket(s.domain(), kind, 0).and_then(|fd| sys::bind(fd, &s.local(79)));
            s.see("port 79", bound);
            let fd = sys::socket(s.domain(), kind, 0);
            s.see("any port", fd.and_then(|fd| sys::bind(fd, &s.local(0))));
        }
        0
    })?;
    s.see("ended well", sys::wait_for(child).map(|end| end == End::Exited(0)));
    Ok(())
}

fn of_the_other_family(s: &mut Scene) -> Done {
    let v6 = sys::name_of("[::1]:0".parse().unwrap_or_else(|_| unreachable!("it is an address")));
    let v4 = s.local(0);
    for kind in [SOCK_STREAM, SOCK_DGRAM] {
        s.see("IPv6 to a socket of IPv4", sys::bind(sys::socket(libc::AF_INET, kind, 0)?, &v6));
        s.see("IPv4 to a socket of IPv6", sys::bind(sys::socket(libc::AF_INET6, kind, 0)?, &v4));
    }
    Ok(())
}

fn with_an_unknown_family(s: &mut Scene) -> Done {
    let mut name = s.local(0);
    name[0] = 99;
    s.see("99", sys::bind(s.tcp()?, &name));
    name[0] = 0;
    s.see("AF_UNSPEC and an address", sys::bind(s.tcp()?, &name));
    let mut name = s.any(0);
    name[0] = 0;
    s.see("AF_UNSPEC and no address", sys::bind(s.tcp()?, &name));
    Ok(())
}

fn of_a_closed_descriptor(s: &mut Scene) -> Done {
    s.see("bind", sys::bind(999, &s.local(0)));
    Ok(())
}

fn of_a_pipe(s: &mut Scene) -> Done {
    let [reader, _] = sys::pipe(0)?;
    s.see("bind", sys::bind(reader, &s.local(0)));
    Ok(())
}

fn freebind(s: &mut Scene) -> Done {
    let fd = s.tcp()?;
    s.see("IP_FREEBIND", sys::setsockopt_int(fd, IPPROTO_IP, libc::IP_FREEBIND, 1));
    let foreign = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 77)), 0);
    s.see("bind", sys::bind(fd, &sys::name_of(foreign)));
    s.see("listen", sys::listen(fd, 4));
    s.see_poll("events", sys::poll_one(fd, libc::POLLIN, 0));
    s.see("getsockname", sys::getsockname(fd, FULL).map(|name| s.whose(name.address())));
    Ok(())
}

fn to_a_port_of_udp_and_tcp(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let datagrams = s.udp()?;
    s.see("bind", sys::bind(datagrams, &s.local(port)));
    s.settle(datagrams)?;
    let mut pair = s.accept_from_peer(listener, port)?;
    s.say_where(pair.fd);
    let (other, _) = pair.peer.udp()?;
    pair.peer.sendto(other, port, b"a datagram")?;
    pair.tell(b"a stream")?;
    s.see("datagrams", sys::recv(datagrams, 100, 0));
    s.see("stream", sys::recv(pair.fd, 100, 0));
    Ok(())
}

fn of_a_connected_socket(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("bind", sys::bind(pair.fd, &s.local(0)));
    Ok(())
}

fn no_port_until_connect(s: &mut Scene) -> Done {
    const IP_BIND_ADDRESS_NO_PORT: i32 = 24;
    let fd = s.tcp()?;
    s.see("option", sys::setsockopt_int(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1));
    sys::bind(fd, &s.local(0))?;
    s.see("bound", sys::getsockname(fd, FULL).map(|name| s.whose(name.address())));
    let mut peer = s.peer()?;
    let (listener, port) = peer.tcp_listener(4)?;
    s.see("connect", sys::connect(fd, &s.remote(port)));
    s.say_where(fd);
    s.see("connected", sys::getsockname(fd, FULL).map(|name| s.whose(name.address())));
    let (other, from) = peer.accept(listener)?;
    s.see("port is the peer's view", port_of(fd).map(|port| port == from));
    let mut pair = Pair { fd, peer, other };
    pair.tell(b"here")?;
    s.see("read", sys::read(fd, 100));
    Ok(())
}

fn to_a_used_port_with_reuseaddr(s: &mut Scene) -> Done {
    let first = s.tcp()?;
    let second = s.tcp()?;
    for fd in [first, second] {
        sys::setsockopt_int(fd, SOL_SOCKET, SO_REUSEADDR, 1)?;
    }
    sys::bind(first, &s.local(0))?;
    s.see("bind", sys::bind(second, &s.local(port_of(first)?)));
    s.see("listen", sys::listen(first, 4));
    s.see("listen too", sys::listen(second, 4));
    Ok(())
}
