//! connect(2) of TCP that does not come to a connection.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use libc::{O_NONBLOCK, POLLIN, POLLOUT, SO_SNDTIMEO};

use super::connect::{elsewhere, error_of, nonblock, unspecified};
use crate::scene::{SOON_MS, Scene};
use crate::sys::{self, Result};
use crate::table::{Done, checks};

checks! {
    alone "connect":
    CALLS [
        to_a_closed_port, nonblocking_refused, in_progress_again, in_progress_transfer,
        times_out_after_so_sndtimeo, without_a_route, to_no_host, with_a_short_address,
    ],
    ONE_CALL [
        after_refusal, of_the_other_family, to_port_zero, to_the_broadcast_address, to_a_multicast_address,
        of_a_closed_descriptor, of_a_pipe, unspecified_when_fresh, close_while_in_progress,
        shutdown_while_in_progress, interrupted, to_all_zeros, so_error_is_told_once, refused_in_epoll,
    ],
}

/// A port of the peer's where nobody listens.
fn closed_port(s: &Scene) -> Result<u16> {
    let mut peer = s.peer()?;
    let (listener, port) = peer.tcp_listener(1)?;
    peer.close(listener)?;
    Ok(port)
}

fn to_a_closed_port(s: &mut Scene) -> Done {
    let port = closed_port(s)?;
    let fd = s.tcp()?;
    s.see("connect", sys::connect(fd, &s.remote(port)));
    error_of(s, fd);
    s.see_poll("events", sys::poll_one(fd, POLLIN | POLLOUT, 0));
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

fn with_a_short_address(s: &mut Scene) -> Done {
    let name = s.remote(80);
    for len in [0, 1, 2, 15] {
        let fd = s.tcp()?;
        s.see(&format!("{len} octets"), sys::connect(fd, &name[..len]));
    }
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
