//! getsockname(2) and getpeername(2) in every state.

use libc::{O_NONBLOCK, SHUT_RDWR, SHUT_WR};

use crate::scene::Scene;
use crate::sys::{self, Errno, FULL, Name};
use crate::table::{Done, checks};

checks! {
    "names":
    PAIRS [of_a_connection, after_the_peer_closed, after_the_peer_reset, after_shutdown, cut],
    BOTH [of_a_fresh_socket, of_a_bound_socket, while_connecting, after_refusal, of_connected_udp, of_sending_udp],
    ONCE [of_a_pipe, of_a_closed_descriptor, of_a_unix_socket, with_a_negative_length],
}

fn see_names(s: &mut Scene, fd: i32) {
    let show = |s: &Scene, name: Result<Name, Errno>| name.map(|name| (name.len, s.whose(name.address())));
    let own = show(s, sys::getsockname(fd, FULL));
    s.see("getsockname", own);
    let other = show(s, sys::getpeername(fd, FULL));
    s.see("getpeername", other);
}

fn of_a_connection(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    see_names(s, pair.fd);
    Ok(())
}

fn after_the_peer_closed(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.peer_closes()?;
    see_names(s, pair.fd);
    s.see("read", sys::read(pair.fd, 10));
    see_names(s, pair.fd);
    Ok(())
}

fn after_the_peer_reset(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.peer_resets()?;
    see_names(s, pair.fd);
    s.see("read", sys::read(pair.fd, 10));
    see_names(s, pair.fd);
    Ok(())
}

fn after_shutdown(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    sys::shutdown(pair.fd, SHUT_WR)?;
    see_names(s, pair.fd);
    sys::shutdown(pair.fd, SHUT_RDWR)?;
    see_names(s, pair.fd);
    Ok(())
}

fn cut(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    for room in [0, 1, 4, 15] {
        let seen = |name: Name| (name.len, name.octets.len());
        s.see(&format!("getsockname with {room}"), sys::getsockname(pair.fd, room).map(seen));
        s.see(&format!("getpeername with {room}"), sys::getpeername(pair.fd, room).map(seen));
    }
    Ok(())
}

fn of_a_fresh_socket(s: &mut Scene) -> Done {
    for fd in [s.tcp()?, s.udp()?] {
        see_names(s, fd);
    }
    Ok(())
}

fn of_a_bound_socket(s: &mut Scene) -> Done {
    for fd in [s.tcp()?, s.udp()?] {
        sys::bind(fd, &s.local(0))?;
        see_names(s, fd);
    }
    for fd in [s.tcp()?, s.udp()?] {
        sys::bind(fd, &s.any(0))?;
        see_names(s, fd);
    }
    Ok(())
}

fn while_connecting(s: &mut Scene) -> Done {
    let (_peer, port) = s.silent_port()?;
    let fd = s.tcp()?;
    sys::fcntl(fd, libc::F_SETFL, O_NONBLOCK.into())?;
    s.see("connect", sys::connect(fd, &s.remote(port)));
    see_names(s, fd);
    Ok(())
}

fn after_refusal(s: &mut Scene) -> Done {
    let mut peer = s.peer()?;
    let (listener, port) = peer.tcp_listener(4)?;
    peer.close(listener)?;
    let fd = s.tcp()?;
    s.see("connect", sys::connect(fd, &s.remote(port)));
    see_names(s, fd);
    Ok(())
}

fn of_connected_udp(s: &mut Scene) -> Done {
    let mut peer = s.peer()?;
    let (_, port) = peer.udp()?;
    let fd = s.udp()?;
    s.see("connect", sys::connect(fd, &s.remote(port)));
    see_names(s, fd);
    s.see("dissolve", sys::connect(fd, &[0; 16]));
    see_names(s, fd);
    Ok(())
}

fn of_sending_udp(s: &mut Scene) -> Done {
    let mut peer = s.peer()?;
    let (_, port) = peer.udp()?;
    let fd = s.udp()?;
    s.see("sendto", sys::sendto(fd, b"x", 0, &s.remote(port)));
    see_names(s, fd);
    Ok(())
}

fn of_a_pipe(s: &mut Scene) -> Done {
    let [reader, _] = sys::pipe(0)?;
    see_names(s, reader);
    Ok(())
}

fn of_a_closed_descriptor(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    sys::close(pair.fd)?;
    see_names(s, pair.fd);
    Ok(())
}

fn of_a_unix_socket(s: &mut Scene) -> Done {
    let [one, _] = sys::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0)?;
    see_names(s, one);
    Ok(())
}

fn with_a_negative_length(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let negative = u32::MAX as usize;
    s.see("getsockname", sys::getsockname(pair.fd, negative).map(drop));
    s.see("getpeername", sys::getpeername(pair.fd, negative).map(drop));
    Ok(())
}
