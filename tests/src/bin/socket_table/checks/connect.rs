//! connect(2) of TCP.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use libc::{AF_UNSPEC, O_NONBLOCK, POLLIN, POLLOUT, SO_ERROR, SO_SNDTIMEO, SOL_SOCKET};

use crate::scene::{Pair, SOON_MS, Scene, port_of};
use crate::sys::{self, Result};
use crate::table::{Done, checks};

checks! {
    "connect":
    BOTH [
        to_a_listener, to_a_closed_port, nonblocking, nonblocking_refused, in_progress_again, in_progress_transfer,
        times_out_after_so_sndtimeo, without_a_route, to_no_host, from_a_bound_port, to_an_own_address, to_loopback,
        with_a_short_address, by_fast_open_option, by_fast_open_flag, dissolved_and_anew, after_the_peer_closed,
    ],
    ONCE [
        when_connected, after_refusal, of_the_other_family, to_port_zero, to_the_broadcast_address, to_a_multicast_address,
        of_a_closed_descriptor, of_a_pipe, unspecified_when_fresh, close_while_in_progress, shutdown_while_in_progress,
        interrupted, to_all_zeros, mapped_by_ipv6, so_error_is_told_once, many_at_once, select_tells_of_it,
        poll_waits_for_it, epoll_waits_for_it, refused_in_epoll,
    ],
}

/// A non-blocking TCP socket.
fn nonblock(s: &Scene) -> Result<i32> {
    let fd = s.tcp()?;
    sys::fcntl(fd, libc::F_SETFL, O_NONBLOCK.into())?;
    Ok(fd)
}

/// A port of the peer's where nobody listens.
fn closed_port(s: &Scene) -> Result<u16> {
    let mut peer = s.peer()?;
    let (listener, port) = peer.tcp_listener(1)?;
    peer.close(listener)?;
    Ok(port)
}

fn error_of(s: &mut Scene, fd: i32) {
    let error = sys::getsockopt_int(fd, SOL_SOCKET, SO_ERROR);
    let show = error.map(|error| if error == 0 { "none".to_owned() } else { sys::Errno(error).to_string() });
    s.see("SO_ERROR", show);
}

fn to_a_listener(s: &mut Scene) -> Done {
    let mut peer = s.peer()?;
    let (listener, port) = peer.tcp_listener(4)?;
    let fd = s.tcp()?;
    s.see("connect", sys::connect(fd, &s.remote(port)));
    s.say_where(fd);
    let (other, from) = peer.accept(listener)?;
    s.see("port is the peer's view", port_of(fd).map(|port| port == from));
    let mut pair = Pair { fd, peer, other };
    s.see("write", sys::write(fd, b"hello"));
    s.see("peer", pair.hear(100));
    pair.tell(b"good day")?;
    s.see("read", sys::read(fd, 100));
    Ok(())
}

fn to_a_closed_port(s: &mut Scene) -> Done {
    let port = closed_port(s)?;
    let fd = s.tcp()?;
    s.see("connect", sys::connect(fd, &s.remote(port)));
    error_of(s, fd);
    s.see_poll("events", sys::poll_one(fd, POLLIN | POLLOUT, 0));
    Ok(())
}

fn nonblocking(s: &mut Scene) -> Done {
    let mut peer = s.peer()?;
    let (listener, port) = peer.tcp_listener(4)?;
    let fd = nonblock(s)?;
    s.see("connect", sys::connect(fd, &s.remote(port)));
    s.see_poll("events", sys::poll_one(fd, POLLIN | POLLOUT, SOON_MS));
    error_of(s, fd);
    s.see("again", sys::connect(fd, &s.remote(port)));
    s.see("and again", sys::connect(fd, &s.remote(port)));
    s.say_where(fd);
    let (other, _) = peer.accept(listener)?;
    s.see("write", sys::write(fd, b"there"));
    s.see("peer", peer.recv(other, 100));
    Ok(())
}

fn nonblocking_refused(s: &mut Scene) -> Done {
    let port = closed_port(s)?;
    let fd = nonblock(s)?;
    s.see("connect", sys::connect(fd, &s.remote(port)));
    s.see_poll("events", sys::poll_one(fd, POLLIN | POLLOUT | libc::POLLRDHUP, SOON_MS));
    s.see("again", sys::connect(fd, &s.remote(port)));
    error_of(s, fd);
    s.see("read", sys::read(fd, 1));
    Ok(())
}

fn in_progress_again(s: &mut Scene) -> Done {
    let (_peer, port) = s.silent_port()?;
    let fd = nonblock(s)?;
    s.see("connect", sys::connect(fd, &s.remote(port)));
    s.see("again", sys::connect(fd, &s.remote(port)));
    s.see("elsewhere", sys::connect(fd, &s.local(port)));
    error_of(s, fd);
    Ok(())
}

fn in_progress_transfer(s: &mut Scene) -> Done {
    let (_peer, port) = s.silent_port()?;
    let fd = nonblock(s)?;
    s.see("connect", sys::connect(fd, &s.remote(port)));
    s.see_poll("events", sys::poll_one(fd, POLLIN | POLLOUT | libc::POLLRDHUP, 0));
    s.see("read", sys::read(fd, 10));
    s.see("write", sys::write(fd, b"early"));
    s.see("FIONREAD", sys::ioctl(fd, libc::FIONREAD, 7));
    s.see("SIOCOUTQ", sys::ioctl(fd, libc::TIOCOUTQ, 7));
    Ok(())
}

fn times_out_after_so_sndtimeo(s: &mut Scene) -> Done {
    let (_peer, port) = s.silent_port()?;
    let fd = s.tcp()?;
    sys::set_timeout(fd, SO_SNDTIMEO, 200)?;
    let start = Instant::now();
    s.see("connect", sys::connect(fd, &s.remote(port)));
    s.see_time("took", start, 200..1000);
    s.see("again", sys::connect(fd, &s.remote(port)));
    error_of(s, fd);
    Ok(())
}

fn elsewhere(s: &Scene, v4: &str, v6: &str, port: u16) -> Vec<u8> {
    let ip: IpAddr = if s.is_v6() { v6 } else { v4 }.parse().unwrap_or(s.remote_ip());
    sys::name_of(SocketAddr::new(ip, port))
}

fn without_a_route(s: &mut Scene) -> Done {
    let fd = s.tcp()?;
    s.see("connect", sys::connect(fd, &elsewhere(s, "198.51.100.1", "2001:db8::1", 80)));
    let fd = nonblock(s)?;
    s.see("non-blocking", sys::connect(fd, &elsewhere(s, "198.51.100.1", "2001:db8::1", 80)));
    error_of(s, fd);
    Ok(())
}

fn to_no_host(s: &mut Scene) -> Done {
    let fd = s.tcp()?;
    let start = Instant::now();
    s.see("connect", sys::connect(fd, &elsewhere(s, "10.53.0.77", "fd53::77", 80)));
    s.see_time("took", start, 500..4500);
    error_of(s, fd);
    Ok(())
}

fn from_a_bound_port(s: &mut Scene) -> Done {
    let mut peer = s.peer()?;
    let (listener, port) = peer.tcp_listener(4)?;
    let fd = s.tcp()?;
    sys::bind(fd, &s.local(0))?;
    let bound = port_of(fd)?;
    s.see("connect", sys::connect(fd, &s.remote(port)));
    s.say_where(fd);
    let (_, from) = peer.accept(listener)?;
    s.see("from the bound port", from == bound);
    s.see("still bound to it", port_of(fd).map(|port| port == bound));
    Ok(())
}

fn to_an_own_address(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let fd = s.tcp()?;
    s.see("connect", sys::connect(fd, &s.local(port)));
    let accepted = sys::accept(listener)?;
    s.see("write", sys::write(fd, b"to myself"));
    s.see("read", sys::read(accepted, 100));
    Ok(())
}

fn to_loopback(s: &mut Scene) -> Done {
    let listener = s.tcp()?;
    sys::bind(listener, &s.loopback(0))?;
    sys::listen(listener, 4)?;
    let fd = s.tcp()?;
    s.see("connect", sys::connect(fd, &s.loopback(port_of(listener)?)));
    let accepted = sys::accept(listener)?;
    s.see("write", sys::write(fd, b"to myself"));
    s.see("read", sys::read(accepted, 100));
    Ok(())
}

fn with_a_short_address(s: &mut Scene) -> Done {
    let name = s.remote(80);
    for len in [0, 1, 2, 15] {
        let fd = s.tcp()?;
        s.see(&format!("{len} octets"), sys::connect(fd, &name[..len]));
    }
    Ok(())
}

fn by_fast_open_option(s: &mut Scene) -> Done {
    let mut peer = s.peer()?;
    let (listener, port) = peer.tcp_listener(4)?;
    let fd = s.tcp()?;
    s.see("option", sys::setsockopt_int(fd, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 1));
    s.see("connect", sys::connect(fd, &s.remote(port)));
    s.see("write", sys::write(fd, b"first"));
    let (other, _) = peer.accept(listener)?;
    s.see("peer", peer.recv(other, 100));
    Ok(())
}

fn by_fast_open_flag(s: &mut Scene) -> Done {
    let mut peer = s.peer()?;
    let (listener, port) = peer.tcp_listener(4)?;
    let fd = s.tcp()?;
    s.see("sendto", sys::sendto(fd, b"first", libc::MSG_FASTOPEN, &s.remote(port)));
    let (other, _) = peer.accept(listener)?;
    s.see("peer", peer.recv(other, 100));
    s.see("again", sys::sendto(fd, b"second", libc::MSG_FASTOPEN, &s.remote(port)));
    Ok(())
}

fn unspecified() -> Vec<u8> {
    let mut name = vec![0; 16];
    name[..2].copy_from_slice(&(AF_UNSPEC as u16).to_ne_bytes());
    name
}

fn dissolved_and_anew(s: &mut Scene) -> Done {
    let mut peer = s.peer()?;
    let (listener, port) = peer.tcp_listener(4)?;
    let fd = s.tcp()?;
    sys::connect(fd, &s.remote(port))?;
    s.say_where(fd);
    let (first, _) = peer.accept(listener)?;
    s.see("dissolve", sys::connect(fd, &unspecified()));
    s.see("getpeername", sys::getpeername(fd, sys::FULL).map(drop));
    s.see("peer", peer.recv(first, 100));
    s.see("write", sys::send(fd, b"x", libc::MSG_NOSIGNAL));
    s.see("connect", sys::connect(fd, &s.remote(port)));
    let (second, _) = peer.accept(listener)?;
    s.see("write", sys::write(fd, b"anew"));
    s.see("peer", peer.recv(second, 100));
    Ok(())
}

fn after_the_peer_closed(s: &mut Scene) -> Done {
    let mut peer = s.peer()?;
    let (listener, port) = peer.tcp_listener(4)?;
    let fd = s.tcp()?;
    sys::connect(fd, &s.remote(port))?;
    let (other, _) = peer.accept(listener)?;
    let mut pair = Pair { fd, peer, other };
    pair.peer_closes()?;
    s.see("read", sys::read(fd, 10));
    s.see("connect", sys::connect(fd, &s.remote(port)));
    Ok(())
}

fn when_connected(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("accepted", sys::connect(pair.fd, &s.remote(80)));
    let mut peer = s.peer()?;
    let (_, port) = peer.tcp_listener(4)?;
    let fd = s.tcp()?;
    s.see("connect", sys::connect(fd, &s.remote(port)));
    s.see("same again", sys::connect(fd, &s.remote(port)));
    s.see("elsewhere", sys::connect(fd, &s.remote(80)));
    s.see("with a short address", sys::connect(fd, &s.remote(80)[..1]));
    Ok(())
}

fn after_refusal(s: &mut Scene) -> Done {
    let port = closed_port(s)?;
    let fd = s.tcp()?;
    s.see("connect", sys::connect(fd, &s.remote(port)));
    s.see("again", sys::connect(fd, &s.remote(port)));
    let mut peer = s.peer()?;
    let (listener, port) = peer.tcp_listener(4)?;
    s.see("elsewhere", sys::connect(fd, &s.remote(port)));
    s.see("peer", peer.accept(listener).map(drop));
    s.see("write", sys::write(fd, b"x"));
    Ok(())
}

fn of_the_other_family(s: &mut Scene) -> Done {
    let v6: SocketAddr = SocketAddr::new(IpAddr::from(std::net::Ipv6Addr::LOCALHOST), 80);
    s.see("IPv6 by a socket of IPv4", sys::connect(s.tcp()?, &sys::name_of(v6)));
    let six = sys::socket(libc::AF_INET6, libc::SOCK_STREAM, 0)?;
    s.see("IPv4 by a socket of IPv6", sys::connect(six, &s.remote(80)));
    let mut unix = vec![0; 16];
    unix[0] = libc::AF_UNIX as u8;
    s.see("Unix by a socket of IPv4", sys::connect(s.tcp()?, &unix));
    Ok(())
}

fn to_port_zero(s: &mut Scene) -> Done {
    s.see("connect", sys::connect(s.tcp()?, &s.remote(0)));
    Ok(())
}

fn to_the_broadcast_address(s: &mut Scene) -> Done {
    s.see("limited", sys::connect(s.tcp()?, &elsewhere(s, "255.255.255.255", "", 80)));
    s.see("of the subnet", sys::connect(s.tcp()?, &elsewhere(s, "10.53.0.255", "", 80)));
    Ok(())
}

fn to_a_multicast_address(s: &mut Scene) -> Done {
    s.see("IPv4", sys::connect(s.tcp()?, &elsewhere(s, "224.0.0.1", "", 80)));
    Ok(())
}

fn to_all_zeros(s: &mut Scene) -> Done {
    let (listener, port) = s.listener_with(4, |_| Ok(()))?;
    sys::close(listener)?;
    // It means this host, where nobody listens.
    s.see("connect", sys::connect(s.tcp()?, &s.any(port)));
    Ok(())
}

fn of_a_closed_descriptor(s: &mut Scene) -> Done {
    s.see("connect", sys::connect(999, &s.remote(80)));
    Ok(())
}

fn of_a_pipe(s: &mut Scene) -> Done {
    let [reader, _] = sys::pipe(0)?;
    s.see("connect", sys::connect(reader, &s.remote(80)));
    Ok(())
}

fn unspecified_when_fresh(s: &mut Scene) -> Done {
    s.see("tcp", sys::connect(s.tcp()?, &unspecified()));
    s.see("udp", sys::connect(s.udp()?, &unspecified()));
    Ok(())
}

fn close_while_in_progress(s: &mut Scene) -> Done {
    let (_peer, port) = s.silent_port()?;
    let fd = nonblock(s)?;
    s.see("connect", sys::connect(fd, &s.remote(port)));
    s.see("close", sys::close(fd));
    s.see("again", sys::connect(fd, &s.remote(port)));
    Ok(())
}

fn shutdown_while_in_progress(s: &mut Scene) -> Done {
    let (_peer, port) = s.silent_port()?;
    let fd = nonblock(s)?;
    s.see("connect", sys::connect(fd, &s.remote(port)));
    s.see("shutdown", sys::shutdown(fd, libc::SHUT_WR));
    s.see_poll("events", sys::poll_one(fd, POLLIN | POLLOUT, 0));
    error_of(s, fd);
    Ok(())
}

fn interrupted(s: &mut Scene) -> Done {
    let (_peer, port) = s.silent_port()?;
    sys::handle(libc::SIGALRM, 0)?;
    sys::alarms(std::time::Duration::from_millis(100))?;
    let fd = s.tcp()?;
    s.see("connect", sys::connect(fd, &s.remote(port)));
    sys::alarms(std::time::Duration::ZERO)?;
    sys::fcntl(fd, libc::F_SETFL, O_NONBLOCK.into())?;
    s.see("again", sys::connect(fd, &s.remote(port)));
    Ok(())
}

fn mapped_by_ipv6(s: &mut Scene) -> Done {
    let mut peer = s.peer()?;
    let (listener, port) = peer.tcp_listener(4)?;
    let fd = sys::socket(libc::AF_INET6, libc::SOCK_STREAM, 0)?;
    let IpAddr::V4(remote) = s.remote_ip() else { return Ok(()) };
    let name = sys::name_of(SocketAddr::new(IpAddr::V6(remote.to_ipv6_mapped()), port));
    s.see("connect", sys::connect(fd, &name));
    s.say_where(fd);
    s.see("getsockname", sys::getsockname(fd, sys::FULL).map(|name| s.whose(name.address())));
    s.see("getpeername", sys::getpeername(fd, sys::FULL).map(|name| s.whose(name.address())));
    let (other, _) = peer.accept(listener)?;
    s.see("write", sys::write(fd, b"by IPv4"));
    s.see("peer", peer.recv(other, 100));
    let only = sys::socket(libc::AF_INET6, libc::SOCK_STREAM, 0)?;
    sys::setsockopt_int(only, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
    s.see("with V6ONLY", sys::connect(only, &name));
    Ok(())
}

fn so_error_is_told_once(s: &mut Scene) -> Done {
    let port = closed_port(s)?;
    let fd = nonblock(s)?;
    s.see("connect", sys::connect(fd, &s.remote(port)));
    s.see_poll("events", sys::poll_one(fd, POLLOUT, SOON_MS));
    error_of(s, fd);
    error_of(s, fd);
    s.see_poll("events", sys::poll_one(fd, POLLIN | POLLOUT, 0));
    s.see("read", sys::read(fd, 1));
    s.see("write", sys::send(fd, b"x", libc::MSG_NOSIGNAL));
    Ok(())
}

fn many_at_once(s: &mut Scene) -> Done {
    let mut peer = s.peer()?;
    let (_, port) = peer.tcp_listener(64)?;
    let mut wanted = Vec::new();
    for _ in 0..32 {
        let fd = nonblock(s)?;
        let _ = sys::connect(fd, &s.remote(port)); // What came of it is looked at below.
        wanted.push((fd, POLLOUT));
    }
    let mut good = 0;
    for &(fd, _) in &wanted {
        sys::poll_one(fd, POLLOUT, SOON_MS)?;
        good += usize::from(sys::getsockopt_int(fd, SOL_SOCKET, SO_ERROR) == Ok(0));
    }
    s.see("connected", good);
    Ok(())
}

fn select_tells_of_it(s: &mut Scene) -> Done {
    let mut peer = s.peer()?;
    let (_, port) = peer.tcp_listener(4)?;
    let fd = nonblock(s)?;
    let _ = sys::connect(fd, &s.remote(port)); // What came of it is looked at below.
    let sets = sys::Sets { read: vec![fd], write: vec![fd], except: vec![fd] };
    let time = Some(std::time::Duration::from_secs(2));
    let (ready, sets, _) = sys::select(sys::SelectBy::Select, fd + 1, &sets, time)?;
    s.see("ready", (ready, sets.read.len(), sets.write.len()));
    error_of(s, fd);
    Ok(())
}

fn poll_waits_for_it(s: &mut Scene) -> Done {
    let (_peer, port) = s.silent_port()?;
    let fd = nonblock(s)?;
    let _ = sys::connect(fd, &s.remote(port)); // It is under way.
    let start = Instant::now();
    s.see_poll("events", sys::poll_one(fd, POLLIN | POLLOUT, 150));
    s.see_time("took", start, 150..1000);
    Ok(())
}

fn epoll_waits_for_it(s: &mut Scene) -> Done {
    let mut peer = s.peer()?;
    let (_, port) = peer.tcp_listener(4)?;
    let fd = nonblock(s)?;
    let epfd = sys::epoll_create(0)?;
    let _ = sys::connect(fd, &s.remote(port)); // What came of it is looked at below.
    sys::epoll_add(epfd, fd, libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET, 5)?;
    s.see_epoll("events", sys::epoll_wait(epfd, 8, SOON_MS));
    error_of(s, fd);
    s.see_epoll("events", sys::epoll_wait(epfd, 8, 50));
    Ok(())
}

fn refused_in_epoll(s: &mut Scene) -> Done {
    let port = closed_port(s)?;
    let fd = nonblock(s)?;
    let epfd = sys::epoll_create(0)?;
    let _ = sys::connect(fd, &s.remote(port)); // What came of it is looked at below.
    sys::epoll_add(epfd, fd, libc::EPOLLOUT, 5)?;
    s.see_epoll("events", sys::epoll_wait(epfd, 8, SOON_MS));
    error_of(s, fd);
    s.see_epoll("events", sys::epoll_wait(epfd, 8, 50));
    Ok(())
}
