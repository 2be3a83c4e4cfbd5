//! listen(2): backlog, addresses, sharing, the end of a listener.

use libc::{POLLIN, POLLOUT, SO_ACCEPTCONN, SOL_SOCKET};

use super::connect::unspecified;
use crate::scene::{SOON_MS, Scene, port_of};
use crate::show::poll_names;
use crate::sys;
use crate::table::{Done, checks};

checks! {
    alone "listen":
    BOTH [
        close_resets_what_waits, close_refuses_what_comes, close_leaves_what_was_accepted,
        backlog_of_nothing, backlog_of_one, backlog_of_three, accepting_makes_room,
    ],
    ONCE [
        on_an_unbound_socket, twice, on_a_connected_socket, on_udp, on_a_pipe, negative_backlog,
        says_so_in_an_option, events_of_a_listener, reading_from_a_listener, connect_on_a_listener,
        on_a_closed_descriptor, fionread_of_a_listener, tcp_info_of_a_listener, peer_of_a_listener,
        shutdown_of_reading, shutdown_of_writing, send_on_a_listener,
        connect_to_nobody_ends_listening,
    ],
}

fn close_resets_what_waits(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    peer.connect(other, port)?;
    s.see_poll("listener", sys::poll_one(listener, POLLIN, SOON_MS));
    s.see("close", sys::close(listener));
    s.see("peer", peer.recv(other, 100));
    Ok(())
}

fn close_refuses_what_comes(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    s.see("close", sys::close(listener));
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    s.see("peer", peer.connect(other, port));
    Ok(())
}

fn close_leaves_what_was_accepted(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let mut pair = s.accept_from_peer(listener, port)?;
    s.say_where(pair.fd);
    s.see("close", sys::close(listener));
    pair.tell(b"still here")?;
    s.see("read", sys::read(pair.fd, 100));
    s.see("write", sys::write(pair.fd, b"so am I"));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn backlog(s: &mut Scene, backlog: i32) -> Done {
    let (listener, port) = s.listener_with(backlog, |_| Ok(()))?;
    let mut peer = s.peer()?;
    s.see("of six connections stand", peer.connect_many(port, 6, 300));
    sys::fcntl(listener, libc::F_SETFL, libc::O_NONBLOCK.into())?;
    let accepted = std::iter::from_fn(|| sys::accept(listener).ok()).count();
    s.see("to accept", accepted);
    Ok(())
}

fn backlog_of_nothing(s: &mut Scene) -> Done {
    backlog(s, 0)
}

fn backlog_of_one(s: &mut Scene) -> Done {
    backlog(s, 1)
}

fn backlog_of_three(s: &mut Scene) -> Done {
    backlog(s, 3)
}

fn accepting_makes_room(s: &mut Scene) -> Done {
    let (listener, port) = s.listener_with(0, |_| Ok(()))?;
    let mut peer = s.peer()?;
    let first = peer.tcp()?;
    peer.connect(first, port)?;
    let second = peer.tcp()?;
    peer.connect_start(second, port)?;
    s.see("second at once", peer.connected_within(second, 200));
    s.see("accept", sys::accept(listener).map(drop));
    // The peer tries again a second after its first try.
    s.see("second afterwards", peer.connected(second));
    s.see("accept", sys::accept(listener).map(drop));
    Ok(())
}

fn on_an_unbound_socket(s: &mut Scene) -> Done {
    let fd = s.tcp()?;
    s.see("listen", sys::listen(fd, 4));
    s.see("getsockname", sys::getsockname(fd, sys::FULL).map(|name| s.whose(name.address())));
    s.settle(fd)?;
    let port = port_of(fd)?;
    let mut pair = s.accept_from_peer(fd, port)?;
    s.say_where(pair.fd);
    pair.tell(b"found you")?;
    s.see("read", sys::read(pair.fd, 100));
    Ok(())
}

fn twice(s: &mut Scene) -> Done {
    let (listener, port) = s.listener_with(0, |_| Ok(()))?;
    s.see("listen", sys::listen(listener, 3));
    let mut peer = s.peer()?;
    s.see("of six connections stand", peer.connect_many(port, 6, 300));
    Ok(())
}

fn on_a_connected_socket(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("listen", sys::listen(pair.fd, 4));
    Ok(())
}

fn on_udp(s: &mut Scene) -> Done {
    let (fd, _) = s.udp_bound()?;
    s.see("listen", sys::listen(fd, 4));
    Ok(())
}

fn on_a_pipe(s: &mut Scene) -> Done {
    let [reader, _] = sys::pipe(0)?;
    s.see("listen", sys::listen(reader, 4));
    Ok(())
}

fn on_a_closed_descriptor(s: &mut Scene) -> Done {
    s.see("listen", sys::listen(999, 4));
    Ok(())
}

fn negative_backlog(s: &mut Scene) -> Done {
    let (_, port) = s.listener_with(-1, |_| Ok(()))?;
    let mut peer = s.peer()?;
    s.see("of six connections stand", peer.connect_many(port, 6, 300));
    Ok(())
}

fn says_so_in_an_option(s: &mut Scene) -> Done {
    let fd = s.tcp()?;
    s.see("fresh", sys::getsockopt_int(fd, SOL_SOCKET, SO_ACCEPTCONN));
    let (listener, port) = s.listener()?;
    s.see("listening", sys::getsockopt_int(listener, SOL_SOCKET, SO_ACCEPTCONN));
    let pair = s.accept_from_peer(listener, port)?;
    s.see("accepted", sys::getsockopt_int(pair.fd, SOL_SOCKET, SO_ACCEPTCONN));
    s.see("set", sys::setsockopt_int(listener, SOL_SOCKET, SO_ACCEPTCONN, 0));
    Ok(())
}

fn events_of_a_listener(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let all = POLLIN | POLLOUT | libc::POLLPRI | libc::POLLRDHUP | libc::POLLRDNORM | libc::POLLWRNORM;
    s.see_poll("empty", sys::poll_one(listener, all, 0));
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    peer.connect(other, port)?;
    s.see_poll("with a connection", sys::poll_one(listener, all, SOON_MS));
    s.see_poll("for writing", sys::poll_one(listener, POLLOUT, 0));
    sys::accept(listener)?;
    s.see_poll("empty again", sys::poll_one(listener, all, 0));
    Ok(())
}

fn reading_from_a_listener(s: &mut Scene) -> Done {
    let (listener, _) = s.listener()?;
    s.see("read", sys::read(listener, 10));
    s.see("recv", sys::recv(listener, 10, libc::MSG_DONTWAIT));
    s.see("recvmsg", sys::recvmsg(listener, &[10], 0, 0).map(drop));
    s.see("of errors", sys::recvmsg(listener, &[10], 100, libc::MSG_ERRQUEUE).map(drop));
    Ok(())
}

fn send_on_a_listener(s: &mut Scene) -> Done {
    sys::handle(libc::SIGPIPE, 0)?;
    let (listener, _) = s.listener()?;
    s.see("write", sys::write(listener, b"x"));
    s.see("send", sys::send(listener, b"x", libc::MSG_NOSIGNAL));
    s.see("SIGPIPE", sys::signals(libc::SIGPIPE));
    Ok(())
}

fn connect_on_a_listener(s: &mut Scene) -> Done {
    let (listener, _) = s.listener()?;
    let (_peer, port) = s.silent_port()?;
    s.see("connect", sys::connect(listener, &s.remote(port)));
    Ok(())
}

fn fionread_of_a_listener(s: &mut Scene) -> Done {
    let (listener, _) = s.listener()?;
    s.see("FIONREAD", sys::ioctl(listener, libc::FIONREAD, 7).map(|(result, _)| result));
    s.see("SIOCOUTQ", sys::ioctl(listener, libc::TIOCOUTQ, 7).map(|(result, _)| result));
    Ok(())
}

fn tcp_info_of_a_listener(s: &mut Scene) -> Done {
    let (listener, port) = s.listener_with(5, |_| Ok(()))?;
    let state = |info: Vec<u8>| crate::show::tcp_state_name(info[0]);
    s.see("state", sys::getsockopt(listener, libc::IPPROTO_TCP, libc::TCP_INFO, 1).map(state));
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    peer.connect(other, port)?;
    // Of a listener tcpi_unacked is what waits, and tcpi_sacked the backlog.
    let word = |info: &[u8], at: usize| u32::from_ne_bytes(info[at..at + 4].try_into().unwrap_or_default());
    let info = sys::getsockopt(listener, libc::IPPROTO_TCP, libc::TCP_INFO, 104)?;
    s.see("waiting", word(&info, 24));
    s.see("backlog", word(&info, 28));
    Ok(())
}

fn peer_of_a_listener(s: &mut Scene) -> Done {
    let (listener, _) = s.listener()?;
    s.see("getpeername", sys::getpeername(listener, sys::FULL).map(drop));
    s.see("SO_ERROR", sys::getsockopt_int(listener, SOL_SOCKET, libc::SO_ERROR));
    Ok(())
}

fn shutdown_of_reading(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    s.see("shutdown", sys::shutdown(listener, libc::SHUT_RD));
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    s.see("peer", peer.connect(other, port));
    s.see("accept", sys::accept4(listener, 0));
    Ok(())
}

/// As haproxy pauses a frontend, and resumes it.
fn connect_to_nobody_ends_listening(s: &mut Scene) -> Done {
    let (listener, port) = s.listener_at_free_port()?;
    s.see("connect", sys::connect(listener, &unspecified()));
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    s.see("peer", peer.connect(other, port));
    s.see("accept", sys::accept4(listener, 0));
    s.see("listen", sys::listen(listener, 16));
    let other = peer.tcp()?;
    s.see("peer", peer.connect(other, port));
    s.see_poll("listener", sys::poll_one(listener, POLLIN, SOON_MS));
    s.see("accept", sys::accept4(listener, 0).map(drop));
    Ok(())
}

fn shutdown_of_writing(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    s.see("shutdown", sys::shutdown(listener, libc::SHUT_WR));
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    peer.connect_start(other, port)?;
    s.see("listener", sys::poll_one(listener, POLLIN, 500).map(poll_names));
    s.see("peer", peer.connected(other));
    Ok(())
}
