//! Datagrams of connected sockets, and who hears what.

use std::net::SocketAddr;

use libc::{MSG_DONTWAIT, POLLIN, POLLOUT, SO_REUSEPORT, SOL_SOCKET};

use super::threads::A_LITTLE;
use super::udp::{ends, recv};
use crate::scene::{SOON_MS, Scene};
use crate::sys::{self};
use crate::table::{Done, Family, checks};

checks! {
    alone "udp":
    BOTH [
        connected_sends_and_receives, connected_hears_only_its_peer, dissolved, unconnected_answers_many,
        to_another_address_when_connected, reuseport_both_hear_something, peer_s_view_of_the_port,
        shutdown_when_connected, second_connect, connected_while_others_wait, dissolved_while_others_wait,
    ],
    ONCE [
        broadcast_needs_permission, to_loopback, to_itself, v6_socket_hears_v4, v6only_does_not_hear_v4,
        send_before_bind, connected_and_unconnected_share_a_port, bound_again_after_close,
    ],
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

/// What waits when a socket is connected is to be read, whoever sent it.
fn read_what_waited(s: &mut Scene, connect: impl FnOnce(&Scene, i32, u16) -> sys::Result<()>) -> Done {
    let (fd, port, mut peer, _, from) = ends(s)?;
    let (stranger, _) = peer.udp()?;
    for octets in [b"one".as_slice(), b"two"] {
        peer.sendto(stranger, port, octets)?;
    }
    sys::poll_one(fd, POLLIN, SOON_MS)?;
    std::thread::sleep(A_LITTLE);
    s.see("connect", connect(s, fd, from));
    s.see("recv", recv(fd));
    s.see("recv", recv(fd));
    Ok(())
}

fn connected_while_others_wait(s: &mut Scene) -> Done {
    read_what_waited(s, |s, fd, from| sys::connect(fd, &s.remote(from)))
}

fn dissolved_while_others_wait(s: &mut Scene) -> Done {
    read_what_waited(s, |_, fd, _| sys::connect(fd, &[0; 16]))
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
