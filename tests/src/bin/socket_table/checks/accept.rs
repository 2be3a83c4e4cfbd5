//! accept(2) and accept4(2).

use libc::{F_GETFD, F_GETFL, POLLIN, SOCK_CLOEXEC, SOCK_NONBLOCK};

use crate::scene::{SOON_MS, Scene};
use crate::show::file_names;
use crate::sys::{self, Errno};
use crate::table::{Done, checks};

checks! {
    "accept":
    BOTH [
        takes_a_connection, gives_the_address_of_the_peer, cuts_a_long_address,
        is_in_the_order_of_connections, takes_one_that_has_data, takes_one_that_has_ended,
        takes_one_that_was_reset, does_not_inherit_nonblock, gives_a_concrete_local_address,
    ],
    ONCE [
        sets_nonblock_and_cloexec, without_flags_sets_none, gives_the_lowest_number,
        blocks_until_a_connection_comes,
    ],
}

fn takes_a_connection(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let mut pair = s.accept_from_peer(listener, port)?;
    s.say_where(pair.fd);
    pair.tell(b"hello")?;
    s.see("read", sys::read(pair.fd, 100));
    s.see("write", sys::write(pair.fd, b"good day"));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn gives_the_address_of_the_peer(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    let bound = peer.bind(other, 0)?;
    peer.connect(other, port)?;
    let (fd, name) = sys::accept_name(listener, sys::FULL)?;
    s.say_where(fd);
    s.see("length", name.len);
    s.see("whose", s.whose(name.address()));
    s.see("port is the peer's", name.address().map(|address| address.port()) == Some(bound));
    let again = sys::getpeername(fd, sys::FULL)?;
    s.see("getpeername is the same", again == name);
    Ok(())
}

fn cuts_a_long_address(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    for room in [0, 2, 8] {
        let mut peer = s.peer()?;
        let other = peer.tcp()?;
        peer.connect(other, port)?;
        let (_, name) = sys::accept_name(listener, room)?;
        s.see(&format!("with room for {room}"), (name.len, name.octets.len()));
        s.see("family", name.octets.get(..2).map(<[u8]>::to_vec));
    }
    Ok(())
}

fn is_in_the_order_of_connections(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let mut peer = s.peer()?;
    let mut ports = Vec::new();
    for _ in 0..4 {
        let other = peer.tcp()?;
        ports.push(peer.bind(other, 0)?);
        peer.connect(other, port)?;
    }
    for (index, port) in ports.iter().enumerate() {
        let (_, name) = sys::accept_name(listener, sys::FULL)?;
        s.see(&format!("connection {index}"), name.address().map(|address| address.port()) == Some(*port));
    }
    Ok(())
}

fn takes_one_that_has_data(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    peer.connect(other, port)?;
    peer.send(other, b"early")?;
    peer.wait_acked(other)?;
    let fd = sys::accept(listener)?;
    s.see("recv", sys::recv(fd, 100, libc::MSG_DONTWAIT));
    s.see("recv", sys::recv(fd, 100, libc::MSG_DONTWAIT));
    Ok(())
}

fn takes_one_that_has_ended(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    peer.connect(other, port)?;
    peer.send(other, b"all")?;
    peer.shutdown(other, libc::SHUT_WR)?;
    peer.wait_acked(other)?;
    let fd = sys::accept(listener)?;
    s.see("read", sys::read(fd, 100));
    s.see("read", sys::read(fd, 100));
    s.see("write", sys::write(fd, b"answer"));
    s.see("peer", peer.recv(other, 100));
    Ok(())
}

fn takes_one_that_was_reset(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    peer.connect(other, port)?;
    s.see_poll("listener", sys::poll_one(listener, POLLIN, SOON_MS));
    peer.reset(other)?;
    peer.greet()?;
    let fd = sys::accept(listener)?;
    s.see_poll("events", sys::poll_one(fd, POLLIN, SOON_MS));
    s.see("getpeername", sys::getpeername(fd, sys::FULL).map(drop));
    s.see("read", sys::read(fd, 100));
    s.see("read", sys::read(fd, 100));
    Ok(())
}

fn does_not_inherit_nonblock(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    sys::fcntl(listener, libc::F_SETFL, libc::O_NONBLOCK.into())?;
    let pair = s.accept_from_peer(listener, port)?;
    s.say_where(pair.fd);
    s.see("flags", sys::fcntl(pair.fd, F_GETFL, 0).map(file_names));
    Ok(())
}

fn gives_a_concrete_local_address(s: &mut Scene) -> Done {
    let listener = s.tcp()?;
    sys::bind(listener, &s.any(0))?;
    sys::listen(listener, 4)?;
    s.settle(listener)?;
    let port = crate::scene::port_of(listener)?;
    let pair = s.accept_from_peer(listener, port)?;
    s.say_where(pair.fd);
    let own = sys::getsockname(pair.fd, sys::FULL)?.address();
    s.see("getsockname", s.whose(own));
    s.see("same port", own.map(|address| address.port()) == Some(port));
    let of_listener = sys::getsockname(listener, sys::FULL)?.address();
    s.see("getsockname of the listener", s.whose(of_listener));
    Ok(())
}

fn flags_of(s: &mut Scene, fd: i32) -> Done {
    s.see("open file", sys::fcntl(fd, F_GETFL, 0).map(file_names));
    s.see("descriptor", sys::fcntl(fd, F_GETFD, 0));
    Ok(())
}

fn sets_nonblock_and_cloexec(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    for flags in [SOCK_NONBLOCK, SOCK_CLOEXEC, SOCK_NONBLOCK | SOCK_CLOEXEC] {
        let mut peer = s.peer()?;
        let other = peer.tcp()?;
        peer.connect(other, port)?;
        let fd = sys::accept4(listener, flags)?;
        flags_of(s, fd)?;
    }
    Ok(())
}

fn without_flags_sets_none(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    peer.connect(other, port)?;
    let fd = sys::accept4(listener, 0)?;
    flags_of(s, fd)
}

fn gives_the_lowest_number(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let mut peer = s.peer()?;
    for _ in 0..3 {
        let other = peer.tcp()?;
        peer.connect(other, port)?;
    }
    let lowest = sys::dup(0)?;
    sys::close(lowest)?;
    let first = sys::accept(listener)?;
    s.see("first", first == lowest);
    let second = sys::accept(listener)?;
    s.see("second is above", second > first);
    sys::close(first)?;
    s.see("third takes the place of the first", sys::accept(listener).map(|third| third == first));
    Ok(())
}

fn blocks_until_a_connection_comes(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    let start = std::time::Instant::now();
    peer.later(200).connect_start(other, port)?;
    let fd = sys::accept(listener)?;
    s.say_where(fd);
    s.see_time("took", start, 150..2000);
    let missing: Result<(), Errno> = sys::write(fd, b"welcome").map(drop);
    s.see("write", missing);
    s.see("peer", peer.recv(other, 100));
    Ok(())
}
