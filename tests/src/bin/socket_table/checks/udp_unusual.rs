//! Datagrams: limits, errors, many at once.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use libc::{IPPROTO_UDP, MSG_DONTWAIT, MSG_MORE, MSG_WAITALL, POLLIN, SO_RCVTIMEO, UDP_CORK};

use super::udp::{ends, recv};
use crate::scene::{SOON_MS, Scene};
use crate::show::{message_names, pattern};
use crate::sys::{self, Outgoing};
use crate::table::{Done, checks};

checks! {
    alone "udp":
    BOTH [
        largest, too_large, fragments, without_a_destination, recvmmsg, sendmmsg,
        recvmmsg_with_a_time_limit, recvmmsg_wait_for_one, vectors, receive_timeout, corked, more,
        to_port_zero, cut_address, waitall_is_one_datagram,
    ],
    ONCE [
        name_with_a_wrong_family, too_many_vectors, out_of_band, from_nowhere, closed_while_reading,
        zero_room, to_no_host,
    ],
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

fn to_port_zero(s: &mut Scene) -> Done {
    let (fd, _) = s.udp_bound()?;
    s.see("sendto", sys::sendto(fd, b"x", 0, &s.remote(0)));
    s.see("connect", sys::connect(fd, &s.remote(0)));
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

fn to_no_host(s: &mut Scene) -> Done {
    let (fd, _) = s.udp_bound()?;
    let nobody = sys::name_of(SocketAddr::from(([10, 53, 0, 77], 9)));
    s.see("sendto", sys::sendto(fd, b"x", 0, &nobody));
    let far = sys::name_of(SocketAddr::from(([198, 51, 100, 1], 9)));
    s.see("without a route", sys::sendto(fd, b"x", 0, &far));
    s.see("connect without a route", sys::connect(fd, &far));
    Ok(())
}
