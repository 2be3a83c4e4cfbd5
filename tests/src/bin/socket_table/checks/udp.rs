//! Datagrams: sending, receiving, connecting.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use libc::{
    IPPROTO_UDP, MSG_DONTWAIT, MSG_MORE, MSG_PEEK, MSG_TRUNC, MSG_WAITALL, POLLIN, POLLOUT, SO_RCVTIMEO,
    SO_REUSEPORT, SOL_SOCKET, UDP_CORK,
};

use crate::peer::{Peer, Slot};
use crate::scene::{SOON_MS, Scene};
use crate::show::{message_names, pattern};
use crate::sys::{self, Outgoing, Result};
use crate::table::{Done, Family, checks};

checks! {
    "udp":
    BOTH [
        echo, address_of_the_sender, connected_sends_and_receives, connected_hears_only_its_peer, dissolved, empty_datagram,
        truncated, truncated_with_the_real_length, peek, order, largest, too_large, fragments, without_a_destination,
        unconnected_answers_many, to_another_address_when_connected, bound_to_all, recvmmsg, sendmmsg,
        recvmmsg_with_a_time_limit, recvmmsg_wait_for_one, vectors, blocks_until_one_comes, receive_timeout,
        corked, more, reuseport_both_hear_something, peer_s_view_of_the_port, shutdown_when_connected,
        second_connect, to_port_zero, poll_of_many, read_and_write, cut_address, waitall_is_one_datagram,
    ],
    ONCE [
        broadcast_needs_permission, to_loopback, to_itself, v6_socket_hears_v4, v6only_does_not_hear_v4, large_burst,
        send_before_bind, name_with_a_wrong_family, too_many_vectors, out_of_band, from_nowhere, closed_while_reading,
        connected_and_unconnected_share_a_port, connect_refuses_a_wrong_family, zero_room, to_no_host,
        bound_again_after_close, sendto_while_receiving_from_two,
    ],
}

/// A socket of the program's and one of the peer's, and their ports.
fn ends(s: &mut Scene) -> Result<(i32, u16, Peer, Slot, u16)> {
    let (fd, port) = s.udp_bound()?;
    let mut peer = s.peer()?;
    let (other, from) = peer.udp()?;
    Ok((fd, port, peer, other, from))
}

/// Receives once, patiently.
fn recv(fd: i32) -> Result<Vec<u8>> {
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

fn cut_address(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, _) = ends(s)?;
    for room in [0, 4, 15] {
        peer.sendto(other, port, b"datagram")?;
        let (_, name) = sys::recvfrom(fd, 100, 0, room)?;
        s.see(&format!("with room for {room}"), (name.len, name.octets.len()));
    }
    Ok(())
}

fn connected_sends_and_receives(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, from) = ends(s)?;
    s.see("connect", sys::connect(fd, &s.remote(from)));
    s.see("send", sys::send(fd, b"to the peer", 0));
    let came = peer.recvfrom(other)?;
    s.see("peer", came.octets);
    s.see("from the bound port", came.port == port);
    peer.sendto(other, port, b"back")?;
    s.see("recv", recv(fd));
    Ok(())
}

fn connected_hears_only_its_peer(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, from) = ends(s)?;
    let (stranger, _) = peer.udp()?;
    sys::connect(fd, &s.remote(from))?;
    peer.sendto(stranger, port, b"from a stranger")?;
    peer.sendto(other, port, b"from the peer")?;
    s.see("recv", recv(fd));
    s.see("recv", sys::recv(fd, 100, MSG_DONTWAIT));
    Ok(())
}

fn dissolved(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, from) = ends(s)?;
    let (stranger, _) = peer.udp()?;
    sys::connect(fd, &s.remote(from))?;
    s.see("dissolve", sys::connect(fd, &[0; 16]));
    s.see("send", sys::send(fd, b"x", 0));
    s.settle(fd)?;
    // Its port went with it: it was the system that chose it.
    peer.sendto(stranger, port, b"from a stranger")?;
    s.see("recv", recv(fd));
    peer.sendto(other, port, b"from the peer")?;
    s.see("recv", recv(fd));
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

fn zero_room(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, _) = ends(s)?;
    peer.sendto(other, port, b"lost")?;
    sys::poll_one(fd, POLLIN, SOON_MS)?;
    s.see("recv", sys::recv(fd, 0, MSG_DONTWAIT));
    s.see("again", sys::recv(fd, 100, MSG_DONTWAIT));
    peer.sendto(other, port, b"kept")?;
    sys::poll_one(fd, POLLIN, SOON_MS)?;
    // read(2) of nothing asks nobody.
    s.see("read", sys::read(fd, 0));
    s.see("again", sys::recv(fd, 100, MSG_DONTWAIT));
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

fn largest(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, from) = ends(s)?;
    let len = if s.is_v6() { 65_487 } else { 65_507 };
    s.see("sendto", sys::sendto(fd, &pattern(len), 0, &s.remote(from)));
    s.see("peer", peer.recvfrom(other).map(|datagram| datagram.octets));
    peer.sendto_pattern(other, port, len)?;
    s.see("recv", recv(fd));
    Ok(())
}

fn too_large(s: &mut Scene) -> Done {
    let (fd, _, _peer, _, from) = ends(s)?;
    s.see("65508", sys::sendto(fd, &pattern(65_508), 0, &s.remote(from)));
    s.see("70000", sys::sendto(fd, &pattern(70_000), 0, &s.remote(from)));
    sys::connect(fd, &s.remote(from))?;
    s.see("connected", sys::send(fd, &pattern(70_000), 0));
    Ok(())
}

fn fragments(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, from) = ends(s)?;
    for len in [1472, 1473, 4000, 20_000] {
        peer.sendto_pattern(other, port, len)?;
        s.see("recv", recv(fd));
        s.see("sendto", sys::sendto(fd, &pattern(len), 0, &s.remote(from)));
        s.see("peer", peer.recvfrom(other).map(|datagram| datagram.octets));
    }
    Ok(())
}

fn without_a_destination(s: &mut Scene) -> Done {
    let (fd, _) = s.udp_bound()?;
    s.see("send", sys::send(fd, b"x", 0));
    s.see("write", sys::write(fd, b"x"));
    s.see("sendmsg", sys::sendmsg(fd, &Outgoing { buffers: vec![b"x"], ..Outgoing::default() }, 0));
    Ok(())
}

fn unconnected_answers_many(s: &mut Scene) -> Done {
    let (fd, port, mut peer, one, _) = ends(s)?;
    let (two, _) = peer.udp()?;
    for (slot, octets) in [(one, b"from one".as_slice()), (two, b"from two"), (one, b"again")] {
        peer.sendto(slot, port, octets)?;
        let (came, name) = sys::recvfrom(fd, 100, 0, sys::FULL)?;
        sys::sendto(fd, &came, 0, &name.octets)?;
        s.see("peer", peer.recv(slot, 100));
    }
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

fn to_another_address_when_connected(s: &mut Scene) -> Done {
    let (fd, _, mut peer, other, from) = ends(s)?;
    let (stranger, elsewhere) = peer.udp()?;
    sys::connect(fd, &s.remote(from))?;
    s.see("sendto", sys::sendto(fd, b"elsewhere", 0, &s.remote(elsewhere)));
    s.see("stranger", peer.recvfrom(stranger).map(|datagram| datagram.octets));
    s.see("send", sys::send(fd, b"to the peer", 0));
    s.see("peer", peer.recvfrom(other).map(|datagram| datagram.octets));
    Ok(())
}

fn second_connect(s: &mut Scene) -> Done {
    let (fd, port, mut peer, _, from) = ends(s)?;
    let (second, elsewhere) = peer.udp()?;
    s.see("connect", sys::connect(fd, &s.remote(from)));
    s.see("again", sys::connect(fd, &s.remote(elsewhere)));
    s.see("send", sys::send(fd, b"to the second", 0));
    s.see("second", peer.recvfrom(second).map(|datagram| datagram.octets));
    peer.sendto(second, port, b"back")?;
    s.see("recv", recv(fd));
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

fn recvmmsg(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, _) = ends(s)?;
    for octets in [b"one".as_slice(), b"second", b"3"] {
        peer.sendto(other, port, octets)?;
    }
    sys::poll_one(fd, POLLIN, SOON_MS)?;
    let came = sys::recvmmsg(fd, 8, 4, MSG_DONTWAIT, None)?;
    for message in came {
        s.see("came", (message.octets.clone(), message.len));
        s.see("flags", message_names(message.flags));
        s.see("from", s.whose(message.from()));
    }
    s.see("none", sys::recvmmsg(fd, 8, 4, MSG_DONTWAIT, None).map(|came| came.len()));
    Ok(())
}

fn recvmmsg_with_a_time_limit(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, _) = ends(s)?;
    peer.sendto(other, port, b"one")?;
    // The limit is looked at when a datagram comes, recvmmsg(2), BUGS.
    peer.later(150).sendto(other, port, b"two")?;
    let came = sys::recvmmsg(fd, 8, 10, 0, Some(Duration::from_millis(50)))?;
    s.see("came", came.len());
    Ok(())
}

fn recvmmsg_wait_for_one(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, _) = ends(s)?;
    peer.later(100).sendto(other, port, b"one")?;
    let came = sys::recvmmsg(fd, 8, 10, libc::MSG_WAITFORONE, None)?;
    s.see("came", came.len());
    Ok(())
}

fn sendmmsg(s: &mut Scene) -> Done {
    let (fd, _, mut peer, other, from) = ends(s)?;
    let name = s.remote(from);
    let message = |octets| Outgoing { buffers: vec![octets], name: name.clone(), ..Outgoing::default() };
    let messages = [message(b"one".as_slice()), message(b""), message(b"three")];
    s.see("sendmmsg", sys::sendmmsg(fd, &messages, 0));
    for _ in 0..3 {
        s.see("peer", peer.recvfrom(other).map(|datagram| datagram.octets));
    }
    let large = pattern(70_000);
    let messages = [message(b"good".as_slice()), message(&large), message(b"never")];
    s.see("with one too large", sys::sendmmsg(fd, &messages, 0));
    s.see("peer", peer.recvfrom(other).map(|datagram| datagram.octets));
    Ok(())
}

fn vectors(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, from) = ends(s)?;
    let message =
        Outgoing { buffers: vec![b"one, ", b"", b"two"], name: s.remote(from), ..Outgoing::default() };
    s.see("sendmsg", sys::sendmsg(fd, &message, 0));
    s.see("peer", peer.recvfrom(other).map(|datagram| datagram.octets));
    peer.sendto(other, port, b"abcdefgh")?;
    sys::poll_one(fd, POLLIN, SOON_MS)?;
    s.see("readv", sys::readv(fd, &[2, 0, 3]));
    s.see("none left", sys::recv(fd, 10, MSG_DONTWAIT));
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

fn receive_timeout(s: &mut Scene) -> Done {
    let (fd, _) = s.udp_bound()?;
    sys::set_timeout(fd, SO_RCVTIMEO, 150)?;
    let start = Instant::now();
    s.see("recv", sys::recv(fd, 100, 0));
    s.see_time("took", start, 150..1000);
    Ok(())
}

fn corked(s: &mut Scene) -> Done {
    let (fd, _, mut peer, other, from) = ends(s)?;
    sys::connect(fd, &s.remote(from))?;
    s.see("cork", sys::setsockopt_int(fd, IPPROTO_UDP, UDP_CORK, 1));
    s.see("send", sys::send(fd, b"one, ", 0));
    s.see("send", sys::send(fd, b"two", 0));
    s.see("peer", peer.recvfrom_within(other, 50).map(|datagram| datagram.octets));
    s.see("uncork", sys::setsockopt_int(fd, IPPROTO_UDP, UDP_CORK, 0));
    s.see("peer", peer.recvfrom(other).map(|datagram| datagram.octets));
    Ok(())
}

fn more(s: &mut Scene) -> Done {
    let (fd, _, mut peer, other, from) = ends(s)?;
    let name = s.remote(from);
    s.see("sendto", sys::sendto(fd, b"one, ", MSG_MORE, &name));
    s.see("sendto", sys::sendto(fd, b"two", 0, &name));
    s.see("peer", peer.recvfrom(other).map(|datagram| datagram.octets));
    Ok(())
}

fn reuseport_both_hear_something(s: &mut Scene) -> Done {
    let first = s.udp()?;
    sys::setsockopt_int(first, SOL_SOCKET, SO_REUSEPORT, 1)?;
    sys::bind(first, &s.local(0))?;
    let port = crate::scene::port_of(first)?;
    let second = s.udp()?;
    sys::setsockopt_int(second, SOL_SOCKET, SO_REUSEPORT, 1)?;
    s.see("bind", sys::bind(second, &s.local(port)));
    s.settle(first)?;
    s.settle(second)?;
    let mut peer = s.peer()?;
    let mut heard = 0;
    for _ in 0..32 {
        let (other, _) = peer.udp()?;
        peer.sendto(other, port, b"datagram")?;
        let (_, events) = sys::poll(&[(first, POLLIN), (second, POLLIN)], SOON_MS)?;
        let fd = if events[0] != 0 { first } else { second };
        heard += usize::from(sys::recv(fd, 100, MSG_DONTWAIT).is_ok());
    }
    s.see("heard", heard);
    Ok(())
}

fn peer_s_view_of_the_port(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, from) = ends(s)?;
    s.see("sendto", sys::sendto(fd, b"datagram", 0, &s.remote(from)));
    let came = peer.recvfrom(other)?;
    s.see("port", came.port == port);
    s.see("address", s.whose(Some(SocketAddr::new(came.from, came.port))));
    s.see("TTL", came.ttl);
    s.see("TOS", came.tos);
    // Once it has heard from there, it may send by another way: the peer must not see a difference.
    peer.sendto(other, port, b"hello")?;
    s.see("recv", recv(fd));
    s.see("sendto", sys::sendto(fd, b"datagram", 0, &s.remote(from)));
    let came = peer.recvfrom(other)?;
    s.see("port", came.port == port);
    s.see("address", s.whose(Some(SocketAddr::new(came.from, came.port))));
    s.see("TTL", came.ttl);
    s.see("TOS", came.tos);
    Ok(())
}

fn shutdown_when_connected(s: &mut Scene) -> Done {
    sys::handle(libc::SIGPIPE, 0)?;
    let (fd, port, mut peer, other, from) = ends(s)?;
    sys::connect(fd, &s.remote(from))?;
    s.see("writing", sys::shutdown(fd, libc::SHUT_WR));
    s.see("send", sys::send(fd, b"x", 0));
    s.see("SIGPIPE", sys::signals(libc::SIGPIPE));
    peer.sendto(other, port, b"still heard")?;
    s.see("recv", recv(fd));
    s.see("reading", sys::shutdown(fd, libc::SHUT_RD));
    s.see("recv", sys::recv(fd, 100, 0));
    s.see_poll("events", sys::poll_one(fd, POLLIN | POLLOUT | libc::POLLRDHUP, 0));
    Ok(())
}

fn to_port_zero(s: &mut Scene) -> Done {
    let (fd, _) = s.udp_bound()?;
    s.see("sendto", sys::sendto(fd, b"x", 0, &s.remote(0)));
    s.see("connect", sys::connect(fd, &s.remote(0)));
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

fn waitall_is_one_datagram(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, _) = ends(s)?;
    peer.sendto(other, port, b"one")?;
    peer.sendto(other, port, b"two")?;
    sys::poll_one(fd, POLLIN, SOON_MS)?;
    s.see("recv", sys::recv(fd, 100, MSG_WAITALL));
    s.see("recv", sys::recv(fd, 100, MSG_WAITALL));
    Ok(())
}

fn broadcast_needs_permission(s: &mut Scene) -> Done {
    let fd = s.udp()?;
    let all = sys::name_of(SocketAddr::from(([255, 255, 255, 255], 9)));
    let subnet = sys::name_of(SocketAddr::from(([10, 53, 0, 255], 9)));
    s.see("to the subnet", sys::sendto(fd, b"x", 0, &subnet));
    s.see("connect", sys::connect(fd, &subnet));
    s.see("permission", sys::setsockopt_int(fd, SOL_SOCKET, libc::SO_BROADCAST, 1));
    s.see("to the subnet", sys::sendto(fd, b"x", 0, &subnet));
    s.see("to all", sys::sendto(fd, b"x", 0, &all));
    Ok(())
}

fn to_loopback(s: &mut Scene) -> Done {
    let server = s.udp()?;
    sys::bind(server, &s.loopback(0))?;
    let client = s.udp()?;
    sys::connect(client, &s.loopback(crate::scene::port_of(server)?))?;
    s.see("send", sys::send(client, b"at home", 0));
    let (came, name) = sys::recvfrom(server, 100, 0, sys::FULL)?;
    s.see("came", came);
    s.see("sendto", sys::sendto(server, b"back", 0, &name.octets));
    s.see("recv", sys::recv(client, 100, 0));
    Ok(())
}

fn to_itself(s: &mut Scene) -> Done {
    let (fd, port) = s.udp_bound()?;
    s.see("sendto", sys::sendto(fd, b"to myself", 0, &s.local(port)));
    let (came, name) = sys::recvfrom(fd, 100, 0, sys::FULL)?;
    s.see("came", came);
    s.see("from", s.whose(name.address()));
    Ok(())
}

fn dual(s: &mut Scene, only: bool) -> Done {
    s.variant.family = Family::V6;
    let fd = s.udp()?;
    sys::setsockopt_int(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, only.into())?;
    sys::bind(fd, &s.any(0))?;
    s.settle(fd)?;
    let port = crate::scene::port_of(fd)?;
    let mut peer = s.peer_of(Family::V4)?;
    let (other, _) = peer.udp()?;
    peer.sendto(other, port, b"by IPv4")?;
    s.see_poll("events", sys::poll_one(fd, POLLIN, 200));
    let came = sys::recvfrom(fd, 100, MSG_DONTWAIT, sys::FULL);
    s.see("came", came.clone().map(|(octets, name)| (octets, name.len, s.whose(name.address()))));
    if let Ok((octets, name)) = came {
        s.see("sendto", sys::sendto(fd, &octets, 0, &name.octets));
        s.see("peer", peer.recv(other, 100));
    }
    Ok(())
}

fn v6_socket_hears_v4(s: &mut Scene) -> Done {
    dual(s, false)
}

fn v6only_does_not_hear_v4(s: &mut Scene) -> Done {
    dual(s, true)
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

fn send_before_bind(s: &mut Scene) -> Done {
    let mut peer = s.peer()?;
    let (other, from) = peer.udp()?;
    let fd = s.udp()?;
    s.see("sendto", sys::sendto(fd, b"question", 0, &s.remote(from)));
    let came = peer.recvfrom(other)?;
    s.see("peer", came.octets);
    peer.sendto(other, came.port, b"answer")?;
    s.see("recv", recv(fd));
    s.see("bind", sys::bind(fd, &s.local(0)));
    Ok(())
}

fn name_with_a_wrong_family(s: &mut Scene) -> Done {
    let (fd, _, mut peer, other, from) = ends(s)?;
    let mut name = s.remote(from);
    name[0] = 99;
    s.see("unknown", sys::sendto(fd, b"x", 0, &name));
    name[0] = libc::AF_INET6 as u8;
    s.see("IPv6", sys::sendto(fd, b"x", 0, &name));
    name[0] = 0;
    s.see("AF_UNSPEC", sys::sendto(fd, b"by AF_UNSPEC", 0, &name));
    s.see("peer", peer.recvfrom_within(other, 100).map(|datagram| datagram.octets));
    s.see("short", sys::sendto(fd, b"x", 0, &s.remote(from)[..8]));
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

fn too_many_vectors(s: &mut Scene) -> Done {
    let (fd, _, _peer, _, from) = ends(s)?;
    let many: Vec<&[u8]> = vec![b"x"; 1025];
    s.see(
        "sendmsg",
        sys::sendmsg(fd, &Outgoing { buffers: many, name: s.remote(from), control: Vec::new() }, 0),
    );
    s.see("recvmsg", sys::recvmsg(fd, &[1; 1025], 0, MSG_DONTWAIT).map(drop));
    Ok(())
}

fn out_of_band(s: &mut Scene) -> Done {
    let (fd, _, _peer, _, from) = ends(s)?;
    s.see("send", sys::sendto(fd, b"x", libc::MSG_OOB, &s.remote(from)));
    s.see("recv", sys::recv(fd, 10, libc::MSG_OOB | MSG_DONTWAIT));
    Ok(())
}

fn from_nowhere(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, from) = ends(s)?;
    sys::connect(fd, &s.remote(from))?;
    s.see("send", sys::send_from_nowhere(fd, 10));
    peer.sendto(other, port, b"datagram")?;
    sys::poll_one(fd, POLLIN, SOON_MS)?;
    s.see("recv", sys::recv_to_nowhere(fd, 10));
    s.see("still there", sys::recv(fd, 100, MSG_DONTWAIT));
    Ok(())
}

fn closed_while_reading(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, _) = ends(s)?;
    let reader = std::thread::spawn(move || sys::recv(fd, 100, 0));
    std::thread::sleep(Duration::from_millis(60));
    s.see("close", sys::close(fd));
    peer.sendto(other, port, b"late")?;
    s.see("reader", reader.join().unwrap_or(Err(sys::Errno(libc::EIO))));
    s.see("recv", sys::recv(fd, 100, MSG_DONTWAIT));
    Ok(())
}

fn connected_and_unconnected_share_a_port(s: &mut Scene) -> Done {
    let share = |fd| sys::setsockopt_int(fd, SOL_SOCKET, libc::SO_REUSEADDR, 1);
    let all = s.udp()?;
    share(all)?;
    sys::bind(all, &s.local(0))?;
    let port = crate::scene::port_of(all)?;
    s.settle(all)?;
    let mut peer = s.peer()?;
    let (other, from) = peer.udp()?;
    let (stranger, _) = peer.udp()?;
    let one = s.udp()?;
    share(one)?;
    s.see("bind", sys::bind(one, &s.local(port)));
    s.see("connect", sys::connect(one, &s.remote(from)));
    s.settle(one)?;
    peer.sendto(other, port, b"from the peer")?;
    peer.sendto(stranger, port, b"from a stranger")?;
    s.see("connected one", recv(one));
    s.see("other one", recv(all));
    Ok(())
}

fn to_no_host(s: &mut Scene) -> Done {
    let (fd, _) = s.udp_bound()?;
    let nobody = sys::name_of(SocketAddr::from(([10, 53, 0, 77], 9)));
    s.see("sendto", sys::sendto(fd, b"x", 0, &nobody));
    let far = sys::name_of(SocketAddr::from(([198, 51, 100, 1], 9)));
    s.see("without a route", sys::sendto(fd, b"x", 0, &far));
    s.see("connect without a route", sys::connect(fd, &far));
    Ok(())
}

fn bound_again_after_close(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, _) = ends(s)?;
    peer.sendto(other, port, b"first")?;
    s.see("recv", recv(fd));
    s.see("close", sys::close(fd));
    let fd = s.udp()?;
    s.see("bind", sys::bind(fd, &s.local(port)));
    s.settle(fd)?;
    peer.sendto(other, port, b"second")?;
    s.see("recv", recv(fd));
    Ok(())
}
