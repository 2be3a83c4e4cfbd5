//! connect(2) of TCP.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use libc::{AF_UNSPEC, O_NONBLOCK, POLLIN, POLLOUT, SO_ERROR, SO_REUSEADDR, SOL_SOCKET};

use crate::pair::Pair;
use crate::scene::{SOON_MS, Scene, port_of};
use crate::sys::{self, Result};
use crate::table::{Done, checks};

checks! {
    "connect":
    CALLS [
        to_a_listener, nonblocking, from_a_bound_port, to_an_own_address, to_loopback, by_fast_open_option,
        by_fast_open_flag, dissolved_and_anew, after_the_peer_closed, sharing_a_port, sharing_a_bound_port,
        between_the_ends_of_another,
    ],
    ONE_CALL [
        when_connected, mapped_by_ipv6, many_at_once, select_tells_of_it, poll_waits_for_it,
        epoll_waits_for_it,
    ],
}

/// A non-blocking TCP socket.
pub(super) fn nonblock(s: &Scene) -> Result<i32> {
    let fd = s.tcp()?;
    sys::fcntl(fd, libc::F_SETFL, O_NONBLOCK.into())?;
    Ok(fd)
}

pub(super) fn error_of(s: &mut Scene, fd: i32) {
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

pub(super) fn elsewhere(s: &Scene, v4: &str, v6: &str, port: u16) -> Vec<u8> {
    let ip: IpAddr = if s.is_v6() { v6 } else { v4 }.parse().unwrap_or(s.remote_ip());
    sys::name_of(SocketAddr::new(ip, port))
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

/// A socket whose port others may have, too.
fn sharing(s: &Scene) -> Result<i32> {
    let fd = s.tcp()?;
    sys::setsockopt_int(fd, SOL_SOCKET, SO_REUSEADDR, 1)?;
    Ok(fd)
}

/// Connects `fd`; the peer's first answer arrives.
fn see_connected(s: &mut Scene, fd: i32) -> Done {
    let mut peer = s.peer()?;
    let (listener, port) = peer.tcp_listener(4)?;
    s.see("connect", sys::connect(fd, &s.remote(port)));
    let (other, _) = peer.accept(listener)?;
    s.see("segments sent again", super::tcp_info::sent_again(fd));
    s.see("still shares it", sys::getsockopt_int(fd, SOL_SOCKET, SO_REUSEADDR));
    let mut pair = Pair { fd, peer, other };
    pair.tell(b"good day")?;
    s.see("read", sys::read(fd, 100));
    Ok(())
}

fn sharing_a_port(s: &mut Scene) -> Done {
    let fd = sharing(s)?;
    see_connected(s, fd)
}

fn sharing_a_bound_port(s: &mut Scene) -> Done {
    let fd = sharing(s)?;
    sys::bind(fd, &s.local(0))?;
    see_connected(s, fd)
}

fn between_the_ends_of_another(s: &mut Scene) -> Done {
    let mut peer = s.peer()?;
    let (listener, port) = peer.tcp_listener(4)?;
    let [first, second] = [sharing(s)?, sharing(s)?];
    sys::bind(first, &s.local(0))?;
    let bound = port_of(first)?;
    sys::bind(second, &s.local(bound))?;
    s.see("first", sys::connect(first, &s.remote(port)));
    let (other, _) = peer.accept(listener)?;
    s.see("second", sys::connect(second, &s.remote(port)));
    let mut pair = Pair { fd: first, peer, other };
    pair.tell(b"good day")?;
    s.see("the first goes on", sys::read(first, 100));
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

pub(super) fn unspecified() -> Vec<u8> {
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
