//! Datagrams: sending, receiving, connecting.

use std::net::SocketAddr;
use std::time::Instant;

use libc::{MSG_DONTWAIT, MSG_PEEK, MSG_TRUNC, POLLIN};

use crate::peer::{Peer, Slot};
use crate::scene::{SOON_MS, Scene};
use crate::show::message_names;
use crate::sys::{self, Result};
use crate::table::{Done, checks};

checks! {
    "udp":
    BOTH [
        echo, address_of_the_sender, empty_datagram, truncated, truncated_with_the_real_length, peek,
        order, bound_to_all, blocks_until_one_comes, poll_of_many, read_and_write,
        peeked_comes_next, counted_comes_next,
    ],
    ONCE [large_burst, connect_refuses_a_wrong_family, sendto_while_receiving_from_two],
}

/// A socket of the program's and one of the peer's, and their ports.
pub(super) fn ends(s: &mut Scene) -> Result<(i32, u16, Peer, Slot, u16)> {
    let (fd, port) = s.udp_bound()?;
    let mut peer = s.peer()?;
    let (other, from) = peer.udp()?;
    Ok((fd, port, peer, other, from))
}

/// Receives once, patiently.
pub(super) fn recv(fd: i32) -> Result<Vec<u8>> {
    sys::poll_one(fd, POLLIN, SOON_MS)?;
    sys::recv(fd, 70_000, MSG_DONTWAIT)
}

fn echo(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, _) = ends(s)?;
    for octets in [b"one".as_slice(), b"two"] {
        peer.sendto(other, port, octets)?;
        let (came, name) = sys::recvfrom(fd, 100, 0, sys::FULL)?;
        s.see("came", came.clone());
        s.see("sendto", sys::sendto(fd, &came, 0, &name.octets));
        s.see("peer", peer.recv(other, 100));
    }
    Ok(())
}

fn address_of_the_sender(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, from) = ends(s)?;
    peer.sendto(other, port, b"datagram")?;
    let (_, name) = sys::recvfrom(fd, 100, 0, sys::FULL)?;
    s.see("length", name.len);
    s.see("whose", s.whose(name.address()));
    s.see("port is the peer's", name.address().map(|address| address.port()) == Some(from));
    Ok(())
}

fn empty_datagram(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, _) = ends(s)?;
    peer.sendto(other, port, b"")?;
    s.see_poll("events", sys::poll_one(fd, POLLIN, SOON_MS));
    s.see("FIONREAD", sys::ioctl(fd, libc::FIONREAD, 7));
    let (came, name) = sys::recvfrom(fd, 100, MSG_DONTWAIT, sys::FULL)?;
    s.see("came", came);
    s.see("sendto", sys::sendto(fd, b"", 0, &name.octets));
    s.see("peer", peer.recvfrom(other).map(|datagram| datagram.octets));
    Ok(())
}

fn truncated(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, _) = ends(s)?;
    peer.sendto(other, port, b"longer than the room")?;
    peer.sendto(other, port, b"next")?;
    sys::poll_one(fd, POLLIN, SOON_MS)?;
    let message = sys::recvmsg(fd, &[6], 0, 0)?;
    s.see("came", message.octets);
    s.see("result", message.len);
    s.see("flags", message_names(message.flags));
    s.see("next", recv(fd));
    Ok(())
}

fn truncated_with_the_real_length(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, _) = ends(s)?;
    peer.sendto(other, port, b"longer than the room")?;
    sys::poll_one(fd, POLLIN, SOON_MS)?;
    let mut room = [0; 6];
    s.see("peek", sys::recv_into(fd, &mut room, MSG_PEEK | MSG_TRUNC));
    s.see("recv", sys::recv_into(fd, &mut room, MSG_TRUNC));
    s.see("came", room.to_vec());
    s.see("none left", sys::recv(fd, 10, MSG_DONTWAIT));
    Ok(())
}

fn peek(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, _) = ends(s)?;
    peer.sendto(other, port, b"one")?;
    peer.sendto(other, port, b"two")?;
    sys::poll_one(fd, POLLIN, SOON_MS)?;
    s.see("peek", sys::recv(fd, 100, MSG_PEEK));
    s.see("peek", sys::recv(fd, 2, MSG_PEEK));
    s.see("recv", recv(fd));
    s.see("recv", recv(fd));
    s.see("peek", sys::recv(fd, 100, MSG_PEEK | MSG_DONTWAIT));
    Ok(())
}

fn order(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, _) = ends(s)?;
    for index in 0..20 {
        peer.sendto(other, port, &[index])?;
    }
    let mut came = Vec::new();
    for _ in 0..20 {
        came.extend(recv(fd)?);
    }
    s.see("in order", came == (0..20).collect::<Vec<u8>>());
    Ok(())
}

fn sendto_while_receiving_from_two(s: &mut Scene) -> Done {
    let (fd, port, mut peer, one, _) = ends(s)?;
    let (two, _) = peer.udp()?;
    peer.sendto(one, port, b"one")?;
    peer.sendto(two, port, b"two")?;
    let first = sys::recvfrom(fd, 100, 0, sys::FULL)?;
    let second = sys::recvfrom(fd, 100, 0, sys::FULL)?;
    for (came, name) in [second, first] {
        s.see("sendto", sys::sendto(fd, &came, 0, &name.octets));
    }
    s.see("one", peer.recv(one, 100));
    s.see("two", peer.recv(two, 100));
    Ok(())
}

fn bound_to_all(s: &mut Scene) -> Done {
    let fd = s.udp()?;
    sys::bind(fd, &s.any(0))?;
    s.settle(fd)?;
    let port = crate::scene::port_of(fd)?;
    let mut peer = s.peer()?;
    let (other, _) = peer.udp()?;
    peer.sendto(other, port, b"by the wire")?;
    let (came, name) = sys::recvfrom(fd, 100, 0, sys::FULL)?;
    s.see("came", came);
    s.see("from", s.whose(name.address()));
    s.see("sendto", sys::sendto(fd, b"back", 0, &name.octets));
    s.see("peer", peer.recv(other, 100));
    let own = s.udp()?;
    sys::sendto(own, b"at home", 0, &s.loopback(port))?;
    s.see("came", recv(fd));
    Ok(())
}

fn blocks_until_one_comes(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, _) = ends(s)?;
    let start = Instant::now();
    peer.later(150).sendto(other, port, b"late")?;
    s.see("recv", sys::recv(fd, 100, 0));
    s.see_time("took", start, 100..2000);
    Ok(())
}

fn poll_of_many(s: &mut Scene) -> Done {
    let mut wanted = Vec::new();
    let mut ports = Vec::new();
    for _ in 0..5 {
        let (fd, port) = s.udp_bound()?;
        wanted.push((fd, POLLIN));
        ports.push(port);
    }
    let mut peer = s.peer()?;
    let (other, _) = peer.udp()?;
    peer.sendto(other, ports[3], b"for the fourth")?;
    let (ready, events) = sys::poll(&wanted, SOON_MS)?;
    s.see("ready", ready);
    s.see("which", events.iter().position(|events| *events != 0));
    s.see("recv", recv(wanted[3].0));
    Ok(())
}

fn read_and_write(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, from) = ends(s)?;
    sys::connect(fd, &s.remote(from))?;
    s.see("write", sys::write(fd, b"written"));
    s.see("peer", peer.recv(other, 100));
    s.see("writev", sys::writev(fd, &[b"one", b"two"]));
    s.see("peer", peer.recv(other, 100));
    s.see("write of nothing", sys::write(fd, b""));
    s.see("peer", peer.recv(other, 100));
    peer.sendto(other, port, b"to read")?;
    s.see("read", sys::read(fd, 100));
    Ok(())
}

fn large_burst(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, _) = ends(s)?;
    for index in 0..100_u8 {
        peer.sendto(other, port, &[index; 500])?;
    }
    let mut came = 0;
    while sys::poll_one(fd, POLLIN, 200)? != 0 {
        came += usize::from(sys::recv(fd, 1000, MSG_DONTWAIT)?.len() == 500);
    }
    s.see("came", came);
    Ok(())
}

fn connect_refuses_a_wrong_family(s: &mut Scene) -> Done {
    let fd = s.udp()?;
    let v6 = sys::name_of(SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, 9)));
    s.see("IPv6", sys::connect(fd, &v6));
    s.see("short", sys::connect(fd, &s.remote(9)[..8]));
    s.see("too short", sys::connect(fd, &s.remote(9)[..1]));
    Ok(())
}

fn peeked_comes_next(s: &mut Scene) -> Done {
    see_next(s, |fd| sys::recv(fd, 0, libc::MSG_PEEK | libc::MSG_TRUNC).map(drop))
}

fn counted_comes_next(s: &mut Scene) -> Done {
    see_next(s, |fd| sys::ioctl(fd, libc::FIONREAD as _, 0).map(drop))
}

/// What the program has looked at is what it takes next, whatever comes from elsewhere meanwhile.
fn see_next(s: &mut Scene, look: impl FnOnce(i32) -> Result<()>) -> Done {
    let (fd, port, mut peer, other, _) = ends(s)?;
    let near = s.udp()?;
    s.see("near", sys::sendto(near, b"near", 0, &s.local(port)));
    s.see_poll("poll", sys::poll_one(fd, libc::POLLIN, SOON_MS));
    s.see("look", look(fd));
    peer.sendto(other, port, b"from far away")?;
    std::thread::sleep(std::time::Duration::from_millis(100));
    s.see_poll("poll", sys::poll_one(fd, libc::POLLIN, SOON_MS));
    for room in [4, 100] {
        s.see("recv", sys::recv(fd, room, libc::MSG_DONTWAIT));
    }
    Ok(())
}
