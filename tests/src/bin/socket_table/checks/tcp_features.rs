//! What options of TCP do: deferred accept, fast open, time limits, keepalive, urgent data, marks on packets.

use std::time::{Duration, Instant};

use libc::{
    EPOLLIN, IPPROTO_TCP, MSG_DONTWAIT, MSG_OOB, POLLIN, POLLOUT, POLLPRI, SO_KEEPALIVE, SOL_SOCKET,
    TCP_DEFER_ACCEPT, TCP_FASTOPEN, TCP_KEEPCNT, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_USER_TIMEOUT,
};

use crate::scene::{SOON_MS, Scene};
use crate::sys::{self, Control, Outgoing};
use crate::table::{Done, checks};

checks! {
    "tcp_features":
    PAIRS [
        user_timeout_ends_it, keepalive_ends_it, keepalive_leaves_a_living_one, urgent_is_apart, urgent_inline,
        notsent_lowat_and_poll, inq_control,
    ],
    WAYS [
        urgent_mark, urgent_without_reading, urgent_sent, urgent_peek, urgent_twice, quickack_back_and_forth,
        small_receive_buffer, window_closes_and_opens, timestamps_of_received_data, nodelay_after_data, nagle,
        keepalive_option_after_connect, mtu_probing_option, reuse_of_the_same_port_pair, tos_of_connections,
        large_then_small, pktinfo_on_tcp,
    ],
    BOTH [
        defer_accept, defer_accept_in_epoll, fast_open_listener, maxseg_of_a_listener, incoming_cpu_is_known,
        short_connections, hop_limit_of_connections,
    ],
}

fn user_timeout_ends_it(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::setsockopt_int(pair.fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 500)?;
    let other = pair.other;
    pair.peer.deafen(other)?;
    let start = Instant::now();
    s.see("write", sys::write(pair.fd, b"never heard"));
    s.see_poll("events", sys::poll_one(pair.fd, POLLIN, 4000));
    s.see_time("took", start, 400..3000);
    s.see("read", sys::read(pair.fd, 10));
    s.see("write", sys::send(pair.fd, b"x", libc::MSG_NOSIGNAL));
    Ok(())
}

fn set_keepalive(fd: i32) -> sys::Result<()> {
    sys::setsockopt_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1)?;
    sys::setsockopt_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1)?;
    sys::setsockopt_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 1)?;
    sys::setsockopt_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1)
}

fn keepalive_ends_it(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let other = pair.other;
    pair.peer.deafen(other)?;
    set_keepalive(pair.fd)?;
    let start = Instant::now();
    s.see_poll("events", sys::poll_one(pair.fd, POLLIN, 4000));
    s.see_time("took", start, 1500..3900);
    s.see("read", sys::read(pair.fd, 10));
    Ok(())
}

fn keepalive_leaves_a_living_one(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    set_keepalive(pair.fd)?;
    s.see_poll("events", sys::poll_one(pair.fd, POLLIN, 2600));
    s.see("write", sys::write(pair.fd, b"alive"));
    s.see("peer", pair.hear(10));
    Ok(())
}

fn keepalive_option_after_connect(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("set", set_keepalive(pair.fd));
    s.see("off", sys::setsockopt_int(pair.fd, SOL_SOCKET, SO_KEEPALIVE, 0));
    let other = pair.other;
    pair.peer.deafen(other)?;
    s.see_poll("events", sys::poll_one(pair.fd, POLLIN, 2500));
    Ok(())
}

fn urgent_is_apart(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let other = pair.other;
    pair.peer.send(other, b"normal")?;
    pair.peer.send_urgent(other, b"!")?;
    pair.peer.wait_acked(other)?;
    s.see_poll("events", sys::poll_one(pair.fd, POLLIN | POLLPRI, SOON_MS));
    s.see("urgent", sys::recv(pair.fd, 10, MSG_OOB | MSG_DONTWAIT));
    s.see("again", sys::recv(pair.fd, 10, MSG_OOB | MSG_DONTWAIT));
    s.see("normal", sys::recv(pair.fd, 10, MSG_DONTWAIT));
    s.see("nothing", sys::recv(pair.fd, 10, MSG_DONTWAIT));
    Ok(())
}

fn urgent_inline(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::setsockopt_int(pair.fd, SOL_SOCKET, libc::SO_OOBINLINE, 1)?;
    let other = pair.other;
    pair.peer.send(other, b"normal")?;
    pair.peer.send_urgent(other, b"!")?;
    pair.peer.send(other, b"after")?;
    pair.peer.wait_acked(other)?;
    s.see_poll("events", sys::poll_one(pair.fd, POLLIN | POLLPRI, SOON_MS));
    s.see("apart", sys::recv(pair.fd, 10, MSG_OOB | MSG_DONTWAIT));
    s.see("read to the mark", sys::recv(pair.fd, 100, MSG_DONTWAIT));
    s.see("and on", sys::recv(pair.fd, 100, MSG_DONTWAIT));
    Ok(())
}

fn urgent_mark(s: &mut Scene) -> Done {
    const SIOCATMARK: libc::c_ulong = 0x8905;
    let mut pair = s.pair()?;
    let other = pair.other;
    pair.peer.send(other, b"before")?;
    pair.peer.send_urgent(other, b"!")?;
    pair.peer.send(other, b"after")?;
    pair.peer.wait_acked(other)?;
    s.see("at the mark", sys::ioctl(pair.fd, SIOCATMARK, 7));
    s.see("read", sys::recv(pair.fd, 100, MSG_DONTWAIT));
    s.see("at the mark", sys::ioctl(pair.fd, SIOCATMARK, 7));
    s.see("read", sys::recv(pair.fd, 100, MSG_DONTWAIT));
    s.see("at the mark", sys::ioctl(pair.fd, SIOCATMARK, 7));
    Ok(())
}

fn urgent_without_reading(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let other = pair.other;
    pair.peer.send_urgent(other, b"!")?;
    pair.peer.send(other, b"after")?;
    pair.peer.wait_acked(other)?;
    s.see("read", sys::recv(pair.fd, 100, MSG_DONTWAIT));
    s.see("urgent", sys::recv(pair.fd, 10, MSG_OOB | MSG_DONTWAIT));
    Ok(())
}

fn urgent_twice(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let other = pair.other;
    pair.peer.send_urgent(other, b"1")?;
    pair.peer.wait_acked(other)?;
    pair.peer.send_urgent(other, b"2")?;
    pair.peer.wait_acked(other)?;
    s.see("urgent", sys::recv(pair.fd, 10, MSG_OOB | MSG_DONTWAIT));
    s.see("read", sys::recv(pair.fd, 100, MSG_DONTWAIT));
    Ok(())
}

fn urgent_peek(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let other = pair.other;
    pair.peer.send_urgent(other, b"!")?;
    pair.peer.wait_acked(other)?;
    s.see("peek", sys::recv(pair.fd, 10, MSG_OOB | libc::MSG_PEEK));
    let message = sys::recvmsg(pair.fd, &[10], 0, MSG_OOB)?;
    s.see("urgent", message.octets);
    s.see("flags", crate::show::message_names(message.flags));
    Ok(())
}

fn urgent_sent(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("send", sys::send(pair.fd, b"!", MSG_OOB));
    let other = pair.other;
    let events = pair.peer.events(other, 200).map(|events| events & POLLPRI != 0);
    s.see("peer has it", events);
    s.see("normal", sys::send(pair.fd, b"normal", 0));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn notsent_lowat_and_poll(s: &mut Scene) -> Done {
    const TCP_NOTSENT_LOWAT: i32 = 25;
    let mut pair = s.pair()?;
    s.see("set", sys::setsockopt_int(pair.fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 1000));
    s.see_poll("empty", sys::poll_one(pair.fd, POLLOUT, 0));
    let sent = pair.fill()?;
    s.see_poll("full", sys::poll_one(pair.fd, POLLOUT, 0));
    let other = pair.other;
    s.see("peer got all", pair.peer.recv_pattern(other, sent)? == (sent, true));
    s.see_poll("empty", sys::poll_one(pair.fd, POLLOUT, SOON_MS));
    Ok(())
}

fn inq_control(s: &mut Scene) -> Done {
    const TCP_INQ: i32 = 36;
    let mut pair = s.pair()?;
    sys::setsockopt_int(pair.fd, IPPROTO_TCP, TCP_INQ, 1)?;
    pair.tell(b"0123456789")?;
    let message = sys::recvmsg(pair.fd, &[4], 100, 0)?;
    s.see("octets", message.octets.clone());
    s.see("left", message.control(IPPROTO_TCP, TCP_INQ).and_then(Control::as_int));
    let message = sys::recvmsg(pair.fd, &[100], 100, 0)?;
    s.see("left", message.control(IPPROTO_TCP, TCP_INQ).and_then(Control::as_int));
    Ok(())
}

fn quickack_back_and_forth(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    for value in [0, 1] {
        s.see("set", sys::setsockopt_int(pair.fd, IPPROTO_TCP, libc::TCP_QUICKACK, value));
        pair.tell(b"data")?;
        s.see("read", sys::read(pair.fd, 10));
    }
    Ok(())
}

fn small_receive_buffer(s: &mut Scene) -> Done {
    const LEN: usize = 100_000;
    let mut pair = s.pair_with(|fd| sys::setsockopt_int(fd, SOL_SOCKET, libc::SO_RCVBUF, 4000))?;
    let other = pair.other;
    pair.peer.later(1).send_pattern(other, LEN)?;
    s.see("all", sys::recv(pair.fd, LEN, libc::MSG_WAITALL));
    Ok(())
}

fn window_closes_and_opens(s: &mut Scene) -> Done {
    const LEN: usize = 8_000_000;
    let mut pair = s.pair()?;
    let other = pair.other;
    pair.peer.later(1).send_pattern(other, LEN)?;
    // Nothing is read for so long that the peer has to stop.
    std::thread::sleep(Duration::from_millis(400));
    s.see("all", sys::recv(pair.fd, LEN, libc::MSG_WAITALL));
    Ok(())
}

fn timestamps_of_received_data(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::setsockopt_int(pair.fd, SOL_SOCKET, libc::SO_TIMESTAMP, 1)?;
    // The kernel begins to take the time of packets somewhat later.
    std::thread::sleep(Duration::from_millis(100));
    pair.tell(b"data")?;
    let message = sys::recvmsg(pair.fd, &[100], 100, 0)?;
    s.see("octets", message.octets.clone());
    s.see(
        "SCM_TIMESTAMP",
        message.control(SOL_SOCKET, libc::SCM_TIMESTAMP).map(|control| control.data.len()),
    );
    Ok(())
}

fn nodelay_after_data(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("write", sys::write(pair.fd, b"one"));
    s.see("set", sys::setsockopt_int(pair.fd, IPPROTO_TCP, libc::TCP_NODELAY, 1));
    s.see("write", sys::write(pair.fd, b"two"));
    let other = pair.other;
    let mut all = Vec::new();
    while all.len() < 6 {
        all.extend(pair.peer.recv(other, 100)?);
    }
    s.see("peer", all);
    Ok(())
}

fn nagle(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let other = pair.other;
    for _ in 0..3 {
        sys::write(pair.fd, b"a")?;
        sys::write(pair.fd, b"b")?;
        let mut all = Vec::new();
        while all.len() < 2 {
            all.extend(pair.peer.recv(other, 100)?);
        }
        s.see("peer", all);
    }
    Ok(())
}

fn mtu_probing_option(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let value = libc::IP_PMTUDISC_DONT;
    s.see("set", sys::setsockopt_int(pair.fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, value));
    let fd = pair.fd;
    s.see("write", sys::write(fd, &crate::show::pattern(5000)));
    let other = pair.other;
    s.see("peer", pair.peer.recv_pattern(other, 5000));
    Ok(())
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

fn tos_of_connections(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("set", sys::setsockopt_int(pair.fd, libc::IPPROTO_IP, libc::IP_TOS, 0x28));
    s.see("write", sys::write(pair.fd, b"marked"));
    s.see("peer", pair.hear(100));
    s.see("TOS", sys::getsockopt_int(pair.fd, libc::IPPROTO_IP, libc::IP_TOS));
    s.see("priority", sys::getsockopt_int(pair.fd, SOL_SOCKET, libc::SO_PRIORITY));
    Ok(())
}

fn large_then_small(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let other = pair.other;
    let octets = crate::show::pattern(50_005);
    s.see("large", sys::write(pair.fd, &octets[..50_000]));
    s.see("small", sys::write(pair.fd, &octets[50_000..]));
    s.see("peer", pair.peer.recv_pattern(other, 50_005));
    Ok(())
}

fn pktinfo_on_tcp(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::setsockopt_int(pair.fd, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
    pair.tell(b"data")?;
    let message = sys::recvmsg(pair.fd, &[100], 100, 0)?;
    s.see("control", message.control.len());
    let message = Outgoing { buffers: vec![b"data"], ..Outgoing::default() };
    s.see("sendmsg", sys::sendmsg(pair.fd, &message, 0));
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
