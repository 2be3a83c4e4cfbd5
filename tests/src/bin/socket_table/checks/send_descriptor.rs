//! Descriptors that are sent to other processes: SCM_RIGHTS.

use libc::{
    AF_UNIX, EPOLLIN, EPOLLONESHOT, MSG_DONTWAIT, POLLIN, SCM_RIGHTS, SOCK_DGRAM, SOCK_STREAM, SOL_SOCKET,
};

use super::epoll_wait::{see, see_soon, watched};
use super::exec::{echo, see_end};
use crate::pair::Pair;
use crate::scene::{SOON_MS, Scene};
use crate::sys::{self, Control, Errno, Outgoing, Result};
use crate::table::{Done, checks};

checks! {
    alone "exec":
    PAIRS [sent_to_another_process],
    WAYS [sent_and_closed, sent_to_itself, sent_with_unread_data, sent_twice, sent_before_it_is_connected,
        sent_and_announced, sent_and_announced_by_its_cookie, sent_while_connecting, sent_by_sendmmsg_and_plain, one_shot_sent_to_itself, one_shot_sent_and_deleted],
    BOTH [listener_sent_to_another_process, datagrams_sent_to_another_process, datagrams_that_wait_go_along],
    ONCE [pipe_is_sent, sent_over_a_socket_of_the_wire],
}

/// Sends a descriptor over a Unix socket.
fn give(over: i32, fd: i32) -> Result<usize> {
    let control = sys::control_octets(&[Control::int(SOL_SOCKET, SCM_RIGHTS, fd)]);
    let message = Outgoing { buffers: vec![b"x"], control, ..Outgoing::default() };
    sys::sendmsg(over, &message, 0)
}

/// Receives one.
fn take(over: i32) -> Result<i32> {
    let message = sys::recvmsg(over, &[1], 64, 0)?;
    let control = message.control(SOL_SOCKET, SCM_RIGHTS).and_then(Control::as_int);
    control.ok_or(Errno(libc::ENOMSG))
}

/// A child that has a Unix socket's other end; 0 if it went well, else its errno.
fn receiver(action: impl FnOnce(i32) -> Result<()>) -> Result<(libc::pid_t, i32)> {
    let [here, there] = sys::socketpair(AF_UNIX, SOCK_STREAM, 0)?;
    let pid = sys::fork_to(|| action(there).map_or_else(|errno| errno.0, |()| 0))?;
    sys::close(there)?;
    Ok((pid, here))
}

fn sent_to_another_process(s: &mut Scene) -> Done {
    let (pid, over) = receiver(|there| echo(take(there)?))?;
    let mut pair = s.pair()?;
    s.see("sendmsg", give(over, pair.fd));
    let other = pair.other;
    pair.peer.send(other, b"to the other process")?;
    s.see("peer", pair.hear(100));
    see_end(s, pid)?;
    s.see("write", sys::write(pair.fd, b"still here"));
    s.see("peer", pair.hear(100));
    Ok(())
}

/// Whether who receives a connection finds that it is the one that was announced, by what `identity` tells of it.
fn sent_as(s: &mut Scene, identity: fn(i32) -> Result<u64>) -> Done {
    let mut pair = s.pair()?;
    let [here, there] = sys::socketpair(AF_UNIX, SOCK_STREAM, 0)?;
    let announced = identity(pair.fd)?;
    s.see("write", sys::write(pair.fd, b"before"));
    s.see("peer", pair.hear(100));
    give(here, pair.fd)?;
    let received = take(there)?;
    s.see("received as announced", identity(received)? == announced);
    s.see("still", identity(pair.fd)? == announced);
    s.see("write", sys::write(received, b"after"));
    s.see("peer", pair.hear(100));
    let other = s.pair()?;
    s.see("another's", identity(other.fd)? == announced);
    Ok(())
}

fn sent_and_announced(s: &mut Scene) -> Done {
    sent_as(s, sys::inode)
}

fn sent_and_announced_by_its_cookie(s: &mut Scene) -> Done {
    sent_as(s, |fd| {
        let cookie = sys::getsockopt(fd, SOL_SOCKET, libc::SO_COOKIE, 8)?;
        Ok(cookie.try_into().map_or(0, u64::from_ne_bytes))
    })
}

fn sent_and_closed(s: &mut Scene) -> Done {
    let (pid, over) = receiver(|there| {
        let fd = take(there)?;
        sys::read(there, 1)?;
        echo(fd)
    })?;
    let mut pair = s.pair()?;
    give(over, pair.fd)?;
    s.see("close", sys::close(pair.fd));
    sys::write(over, b"y")?;
    let other = pair.other;
    pair.peer.send(other, b"to the other process")?;
    s.see("peer", pair.hear(100));
    s.see("peer", pair.hear(100));
    see_end(s, pid)
}

fn sent_with_unread_data(s: &mut Scene) -> Done {
    let (pid, over) = receiver(|there| echo(take(there)?))?;
    let mut pair = s.pair()?;
    pair.tell(b"unread")?;
    give(over, pair.fd)?;
    s.see("peer", pair.hear(100));
    see_end(s, pid)
}

fn sent_twice(s: &mut Scene) -> Done {
    let [here, there] = sys::socketpair(AF_UNIX, SOCK_STREAM, 0)?;
    let mut pair = s.pair()?;
    give(here, pair.fd)?;
    give(here, pair.fd)?;
    let (one, two) = (take(there)?, take(there)?);
    for fd in [one, two, pair.fd] {
        s.see("write", sys::write(fd, b"x"));
        s.see("peer", pair.hear(10));
    }
    Ok(())
}

/// An epoll instance that has told of a connection once, which is sent to the own process then.
fn told_and_sent(s: &mut Scene) -> std::result::Result<(Pair, i32), crate::table::Failure> {
    let (mut pair, epfd) = watched(s, EPOLLIN | EPOLLONESHOT)?;
    pair.tell(b"data")?;
    see_soon(s, "with data", epfd);
    let [here, there] = sys::socketpair(AF_UNIX, SOCK_STREAM, 0)?;
    give(here, pair.fd)?;
    s.see("take", take(there).map(drop));
    Ok((pair, epfd))
}

fn one_shot_sent_to_itself(s: &mut Scene) -> Done {
    let (mut pair, epfd) = told_and_sent(s)?;
    pair.peer_resets()?;
    see(s, "reset", epfd);
    s.see("add", sys::epoll_add(epfd, pair.fd, EPOLLIN | EPOLLONESHOT, 2));
    see(s, "not added", epfd);
    s.see("modify", sys::epoll_mod(epfd, pair.fd, EPOLLIN | EPOLLONESHOT, 3));
    see_soon(s, "armed", epfd);
    see(s, "again", epfd);
    s.see("delete", sys::epoll_del(epfd, pair.fd));
    s.see("delete again", sys::epoll_del(epfd, pair.fd));
    Ok(())
}

fn one_shot_sent_and_deleted(s: &mut Scene) -> Done {
    let (mut pair, epfd) = told_and_sent(s)?;
    s.see("delete", sys::epoll_del(epfd, pair.fd));
    s.see("modify", sys::epoll_mod(epfd, pair.fd, EPOLLIN, 2));
    s.see("add", sys::epoll_add(epfd, pair.fd, EPOLLIN, 3));
    pair.peer_resets()?;
    see_soon(s, "reset", epfd);
    Ok(())
}

fn sent_before_it_is_connected(s: &mut Scene) -> Done {
    see_sent(s, false)
}

fn sent_while_connecting(s: &mut Scene) -> Done {
    see_sent(s, true)
}

/// A socket that is sent before the handshake is over serves by both its descriptors.
fn see_sent(s: &mut Scene, after_connect: bool) -> Done {
    let [here, there] = sys::socketpair(AF_UNIX, SOCK_DGRAM, 0)?;
    let mut peer = s.peer()?;
    let (listener, port) = peer.tcp_listener(4)?;
    let fd = sys::socket(s.domain(), SOCK_STREAM | libc::SOCK_NONBLOCK, 0)?;
    sys::bind(fd, &s.local(0))?; // What is bound so keeps its kernel's socket.
    if after_connect {
        s.see("connect", sys::connect(fd, &s.remote(port)));
    }
    s.see("TCP_NODELAY", sys::setsockopt_int(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1));
    s.see("SO_KEEPALIVE", sys::setsockopt_int(fd, SOL_SOCKET, libc::SO_KEEPALIVE, 1));
    give(here, fd)?;
    let twin = take(there)?;
    if !after_connect {
        s.see("connect", sys::connect(fd, &s.remote(port)));
    }
    let (other, _) = peer.accept(listener)?;
    for fd in [twin, fd] {
        s.see("TCP_NODELAY", sys::getsockopt_int(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY));
        s.see("SO_KEEPALIVE", sys::getsockopt_int(fd, SOL_SOCKET, libc::SO_KEEPALIVE));
        s.see_poll("writable", sys::poll_one(fd, libc::POLLOUT, SOON_MS));
        s.see("write", sys::write(fd, b"x"));
        s.see("peer", peer.recv(other, 10));
    }
    Ok(())
}

fn datagrams_that_wait_go_along(s: &mut Scene) -> Done {
    let [here, there] = sys::socketpair(AF_UNIX, SOCK_DGRAM, 0)?;
    let (fd, port) = s.udp_bound()?;
    let mut peer = s.peer()?;
    let (other, _) = peer.udp()?;
    peer.sendto(other, port, b"waits")?;
    s.see_poll("waits", sys::poll_one(fd, libc::POLLIN, SOON_MS));
    give(here, fd)?;
    sys::close(fd)?;
    let fd = take(there)?;
    s.see_poll("waits still", sys::poll_one(fd, libc::POLLIN, SOON_MS));
    s.see("recv", sys::recv(fd, 100, libc::MSG_DONTWAIT));
    Ok(())
}

fn sent_to_itself(s: &mut Scene) -> Done {
    let [here, there] = sys::socketpair(AF_UNIX, SOCK_DGRAM, 0)?;
    let mut pair = s.pair()?;
    give(here, pair.fd)?;
    let fd = take(there)?;
    sys::close(pair.fd)?;
    s.see("write", sys::write(fd, b"by its new number"));
    s.see("peer", pair.hear(100));
    s.see("getpeername", sys::getpeername(fd, sys::FULL).map(|name| s.whose(name.address())));
    s.see("close", sys::close(fd));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn sent_by_sendmmsg_and_plain(s: &mut Scene) -> Done {
    let [here, there] = sys::socketpair(AF_UNIX, SOCK_STREAM, 0)?;
    let mut pair = s.pair()?;
    let control = sys::control_octets(&[Control::int(SOL_SOCKET, SCM_RIGHTS, pair.fd)]);
    let message = Outgoing { buffers: vec![b"x"], control, ..Outgoing::default() };
    s.see("sendmmsg", sys::sendmmsg(here, &[message], 0));
    let fd = take(there)?;
    s.see("write", sys::write(fd, b"x"));
    s.see("peer", pair.hear(10));
    Ok(())
}

fn pipe_is_sent(s: &mut Scene) -> Done {
    let [here, there] = sys::socketpair(AF_UNIX, SOCK_STREAM, 0)?;
    let [reader, writer] = sys::pipe(0)?;
    give(here, reader)?;
    let fd = take(there)?;
    sys::write(writer, b"data")?;
    s.see("read", sys::read(fd, 10));
    Ok(())
}

fn listener_sent_to_another_process(s: &mut Scene) -> Done {
    let (pid, over) = receiver(|there| {
        let listener = take(there)?;
        s.settle(listener)?;
        sys::write(there, b"x")?;
        let fd = sys::accept(listener)?;
        sys::write(fd, b"from the other process").map(drop)
    })?;
    let (listener, port) = s.listener()?;
    give(over, listener)?;
    sys::close(listener)?;
    sys::read(over, 1)?;
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    s.see("connect", peer.connect(other, port));
    s.see("peer", peer.recv(other, 100));
    see_end(s, pid)
}

fn datagrams_sent_to_another_process(s: &mut Scene) -> Done {
    let (pid, over) = receiver(|there| {
        let fd = take(there)?;
        sys::poll_one(fd, POLLIN, SOON_MS)?;
        let (octets, name) = sys::recvfrom(fd, 100, MSG_DONTWAIT, sys::FULL)?;
        sys::sendto(fd, &octets, 0, &name.octets).map(drop)
    })?;
    let (fd, port) = s.udp_bound()?;
    give(over, fd)?;
    sys::close(fd)?;
    let mut peer = s.peer()?;
    let (other, _) = peer.udp()?;
    peer.sendto(other, port, b"datagram")?;
    s.see("peer", peer.recv(other, 100));
    see_end(s, pid)
}

fn sent_over_a_socket_of_the_wire(s: &mut Scene) -> Done {
    let pair: Pair = s.pair()?;
    // Only Unix sockets carry descriptors.
    s.see("sendmsg", give(pair.fd, 1));
    Ok(())
}
