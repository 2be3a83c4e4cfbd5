//! What options of TCP listeners do.

use libc::{EPOLLIN, IPPROTO_TCP, MSG_DONTWAIT, POLLIN, SOL_SOCKET, TCP_DEFER_ACCEPT, TCP_FASTOPEN};

use crate::scene::{SOON_MS, Scene};
use crate::sys::{self};
use crate::table::{Done, checks};

checks! {
    "tcp_features":
    WAYS [reuse_of_the_same_port_pair],
    BOTH [
        defer_accept, defer_accept_in_epoll, fast_open_listener, maxseg_of_a_listener,
        incoming_cpu_is_known, short_connections, hop_limit_of_connections,
    ],
}

fn reuse_of_the_same_port_pair(s: &mut Scene) -> Done {
    // The peer's port connects a second time as soon as the first connection is over.
    let reuse = |fd| sys::setsockopt_int(fd, SOL_SOCKET, libc::SO_REUSEADDR, 1);
    let (listener, port) = s.listener_with(4, reuse)?;
    let mut peer = s.peer()?;
    let first = peer.tcp()?;
    let from = peer.bind(first, 0)?;
    peer.connect(first, port)?;
    let fd = sys::accept(listener)?;
    s.say_where(fd);
    // This side closes first, and has to remember.
    sys::close(fd)?;
    s.see("peer", peer.recv(first, 10));
    peer.close(first)?;
    let second = peer.tcp()?;
    peer.set(second, SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    s.see("bind", peer.bind(second, from).map(|port| port == from));
    s.see("connect", peer.connect(second, port));
    let fd = sys::accept(listener)?;
    s.see("write", sys::write(fd, b"again"));
    s.see("peer", peer.recv(second, 10));
    Ok(())
}

fn defer_accept(s: &mut Scene) -> Done {
    let (listener, port) =
        s.listener_with(4, |fd| sys::setsockopt_int(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, 5))?;
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    s.see("peer", peer.connect(other, port));
    s.see_poll("without data", sys::poll_one(listener, POLLIN, 150));
    peer.send(other, b"data")?;
    s.see_poll("with data", sys::poll_one(listener, POLLIN, SOON_MS));
    let fd = sys::accept(listener)?;
    s.say_where(fd);
    s.see("read", sys::recv(fd, 10, MSG_DONTWAIT));
    Ok(())
}

fn defer_accept_in_epoll(s: &mut Scene) -> Done {
    let (listener, port) =
        s.listener_with(4, |fd| sys::setsockopt_int(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, 5))?;
    let epfd = sys::epoll_create(0)?;
    sys::epoll_add(epfd, listener, EPOLLIN, 1)?;
    let mut peer = s.peer()?;
    let quiet = peer.tcp()?;
    peer.connect(quiet, port)?;
    let talking = peer.tcp()?;
    peer.connect(talking, port)?;
    peer.send(talking, b"me first")?;
    s.see_epoll("events", sys::epoll_wait(epfd, 8, SOON_MS));
    let fd = sys::accept(listener)?;
    s.see("read", sys::recv(fd, 10, MSG_DONTWAIT));
    s.see_epoll("events", sys::epoll_wait(epfd, 8, 50));
    Ok(())
}

fn fast_open_listener(s: &mut Scene) -> Done {
    let (listener, port) = s.listener_with(4, |fd| sys::setsockopt_int(fd, IPPROTO_TCP, TCP_FASTOPEN, 5))?;
    s.see("option", sys::getsockopt_int(listener, IPPROTO_TCP, TCP_FASTOPEN));
    let mut pair = s.accept_from_peer(listener, port)?;
    s.say_where(pair.fd);
    pair.tell(b"data")?;
    s.see("read", sys::read(pair.fd, 10));
    Ok(())
}

fn maxseg_of_a_listener(s: &mut Scene) -> Done {
    let (listener, port) =
        s.listener_with(4, |fd| sys::setsockopt_int(fd, IPPROTO_TCP, libc::TCP_MAXSEG, 600))?;
    let mut pair = s.accept_from_peer(listener, port)?;
    s.say_where(pair.fd);
    let other = pair.other;
    s.see("peer sends at most", pair.peer.get(other, IPPROTO_TCP, libc::TCP_MAXSEG));
    s.see("this sends at most", sys::getsockopt_int(pair.fd, IPPROTO_TCP, libc::TCP_MAXSEG));
    s.see("write", sys::write(pair.fd, &crate::show::pattern(3000)));
    s.see("peer", pair.peer.recv_pattern(other, 3000));
    Ok(())
}

fn incoming_cpu_is_known(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let mut pair = s.accept_from_peer(listener, port)?;
    pair.tell(b"data")?;
    let cpu = sys::getsockopt_int(pair.fd, SOL_SOCKET, libc::SO_INCOMING_CPU)?;
    s.see("a processor", (0..1024).contains(&cpu));
    s.see("own one is a processor", sys::processor().map(|cpu| cpu >= 0));
    Ok(())
}

fn short_connections(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let mut peer = s.peer()?;
    let mut good = 0;
    for _ in 0..40 {
        let other = peer.tcp()?;
        peer.connect_start(other, port)?;
        let fd = sys::accept(listener)?;
        peer.connected(other)?;
        peer.send(other, b"question")?;
        let octets = sys::read(fd, 100)?;
        sys::write(fd, &octets)?;
        sys::close(fd)?;
        good += usize::from(peer.recv(other, 100)? == b"question" && peer.recv(other, 100)?.is_empty());
        peer.close(other)?;
    }
    s.see("good", good);
    Ok(())
}

fn hop_limit_of_connections(s: &mut Scene) -> Done {
    let (option, level) =
        if s.is_v6() { (libc::IPV6_UNICAST_HOPS, s.ip_level()) } else { (libc::IP_TTL, s.ip_level()) };
    let (listener, port) = s.listener()?;
    let mut pair = s.accept_from_peer(listener, port)?;
    s.see("set", sys::setsockopt_int(pair.fd, level, option, 9));
    s.see("write", sys::write(pair.fd, b"data"));
    s.see("peer", pair.hear(10));
    Ok(())
}
