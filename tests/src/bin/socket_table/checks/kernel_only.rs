//! Options that decide what is let in at all: signatures, filters, a least hop limit. What does not pass must not be answered.

use libc::{IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, POLLIN, SOL_SOCKET};

use crate::pair::Pair;
use crate::peer::Peer;
use crate::scene::{SOON_MS, Scene};
use crate::sys::{self, Result};
use crate::table::{Done, checks};

/// Time in which what is let in has come.
const MOMENT_MS: i32 = 200;

checks! {
    "kernel_only":
    BOTH [
        signed_listener, signed_before_listening, least_hop_limit_of_a_listener, filter_of_a_listener,
        filter_of_datagrams, who_waits_is_accepted, no_key,
    ],
    CALLS [signed_connect, filter_before_connecting],
    PAIRS [
        least_hop_limit, filter_of_a_connection, refused_protocol, looked_at_from_an_offset,
        asynchronous_read, asynchronous_write, list_of_operations,
    ],
}

/// `TCP_MD5SIG` with a key for the peer: `struct tcp_md5sig`.
fn sign(s: &Scene, fd: i32, key: &[u8]) -> Result<()> {
    let mut value = s.remote(0);
    value.resize(128, 0);
    value.extend([0, 0]);
    value.extend((key.len() as u16).to_ne_bytes());
    value.extend([0; 4]);
    value.extend(key);
    value.resize(216, 0);
    sys::setsockopt(fd, IPPROTO_TCP, libc::TCP_MD5SIG, &value)
}

/// `IP_MINTTL` or `IPV6_MINHOPCOUNT`.
fn limit(s: &Scene, fd: i32, least: i32) -> Result<()> {
    const IPV6_MINHOPCOUNT: i32 = 73;
    match s.is_v6() {
        true => sys::setsockopt_int(fd, IPPROTO_IPV6, IPV6_MINHOPCOUNT, least),
        false => sys::setsockopt_int(fd, IPPROTO_IP, libc::IP_MINTTL, least),
    }
}

/// Says whether the listener hears of somebody who connects, and who asks on as long as the result lives.
fn knock(s: &mut Scene, listener: i32, port: u16) -> Result<Peer> {
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    peer.connect_start(other, port)?;
    s.see_poll("listener", sys::poll_one(listener, POLLIN, MOMENT_MS));
    Ok(peer)
}

fn signed_listener(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    s.see("set", sign(s, listener, b"secret"));
    knock(s, listener, port)?;
    Ok(())
}

fn signed_before_listening(s: &mut Scene) -> Done {
    let (listener, port) = s.listener_with(4, |fd| sign(s, fd, b"secret"))?;
    knock(s, listener, port)?;
    Ok(())
}

fn least_hop_limit_of_a_listener(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    s.see("set", limit(s, listener, 255));
    knock(s, listener, port)?;
    Ok(())
}

fn filter_of_a_listener(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    s.see("set", sys::attach_filter_of_nothing(listener));
    let _peer = knock(s, listener, port)?;
    s.see("detach", sys::setsockopt_int(listener, SOL_SOCKET, libc::SO_DETACH_FILTER, 0));
    s.see_poll("when the peer asks again", sys::poll_one(listener, POLLIN, SOON_MS));
    s.see("accept", sys::accept(listener).map(drop));
    Ok(())
}

fn no_key(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    s.see("set", sign(s, listener, b""));
    s.see("too short", sys::setsockopt(listener, IPPROTO_TCP, libc::TCP_MD5SIG, &[0; 4]));
    let pair = s.accept_from_peer(listener, port)?;
    exchange(s, pair)
}

fn filter_of_datagrams(s: &mut Scene) -> Done {
    let (fd, port) = s.udp_bound()?;
    s.see("set", sys::attach_filter_of_nothing(fd));
    let mut peer = s.peer()?;
    let (other, _) = peer.udp()?;
    peer.sendto(other, port, b"datagram")?;
    s.see_poll("with a filter", sys::poll_one(fd, POLLIN, MOMENT_MS));
    s.see("detach", sys::setsockopt_int(fd, SOL_SOCKET, libc::SO_DETACH_FILTER, 0));
    peer.sendto(other, port, b"another")?;
    s.see_poll("without", sys::poll_one(fd, POLLIN, SOON_MS));
    s.see("recv", sys::recv(fd, 100, 0));
    Ok(())
}

/// Connections from before, accepted or not, and from after.
fn who_waits_is_accepted(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let before = s.accept_from_peer(listener, port)?;
    s.say_where(before.fd);
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    peer.connect(other, port)?;
    sys::poll_one(listener, POLLIN, SOON_MS)?;
    s.see("set", limit(s, listener, 1));
    s.see_poll("one waits", sys::poll_one(listener, POLLIN, 0));
    let fd = sys::accept(listener)?;
    exchange(s, Pair { fd, peer, other })?;
    exchange(s, before)?;
    let after = s.accept_from_peer(listener, port)?;
    exchange(s, after)
}

fn exchange(s: &mut Scene, mut pair: Pair) -> Done {
    pair.tell(b"question")?;
    s.see("read", sys::read(pair.fd, 20));
    s.see("write", sys::write(pair.fd, b"answer"));
    s.see("peer", pair.hear(20));
    Ok(())
}

/// Connects, and gives up soon.
fn try_to_connect(s: &mut Scene, prepare: impl FnOnce(&Scene, i32) -> Result<()>) -> Done {
    let mut peer = s.peer()?;
    let (_, port) = peer.tcp_listener(4)?;
    let fd = s.tcp()?;
    prepare(s, fd)?;
    sys::set_timeout(fd, libc::SO_SNDTIMEO, MOMENT_MS as u64)?;
    s.see("connect", sys::connect(fd, &s.remote(port)));
    Ok(())
}

fn signed_connect(s: &mut Scene) -> Done {
    try_to_connect(s, |s, fd| sign(s, fd, b"secret"))
}

fn filter_before_connecting(s: &mut Scene) -> Done {
    try_to_connect(s, |_, fd| sys::attach_filter_of_nothing(fd))
}

fn least_hop_limit(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("set", limit(s, pair.fd, 255));
    pair.peer.send(pair.other, b"from not so near")?;
    s.see_poll("with a limit", sys::poll_one(pair.fd, POLLIN, MOMENT_MS));
    s.see("set back", limit(s, pair.fd, 0));
    s.see_poll("without", sys::poll_one(pair.fd, POLLIN, SOON_MS));
    s.see("read", sys::read(pair.fd, 20));
    Ok(())
}

fn filter_of_a_connection(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("set", sys::attach_filter_of_nothing(pair.fd));
    pair.peer.send(pair.other, b"data")?;
    s.see_poll("with a filter", sys::poll_one(pair.fd, POLLIN, MOMENT_MS));
    s.see("detach", sys::setsockopt_int(pair.fd, SOL_SOCKET, libc::SO_DETACH_FILTER, 0));
    s.see_poll("without", sys::poll_one(pair.fd, POLLIN, SOON_MS));
    s.see("read", sys::read(pair.fd, 20));
    Ok(())
}

/// What the kernel refuses, the connection does not notice.
fn refused_protocol(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("set", sys::setsockopt(pair.fd, IPPROTO_TCP, libc::TCP_ULP, b"nonesuch"));
    s.say_where(pair.fd);
    exchange(s, pair)
}

fn looked_at_from_an_offset(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("setsockopt", sys::setsockopt_int(pair.fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF, 0));
    pair.tell(b"abcdef")?;
    s.see_poll("poll", sys::poll_one(pair.fd, libc::POLLIN, SOON_MS));
    s.see("first", sys::recv(pair.fd, 3, libc::MSG_PEEK));
    s.see("next", sys::recv(pair.fd, 3, libc::MSG_PEEK));
    s.see("read", sys::recv(pair.fd, 10, 0));
    Ok(())
}

/// In both orders: data that is there already, and data that comes.
fn asynchronous_read(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"first")?;
    s.see_poll("poll", sys::poll_one(pair.fd, libc::POLLIN, SOON_MS));
    s.see("aio_read", sys::aio_read(pair.fd, 10, 0));
    s.see("send", sys::send(pair.fd, b"sent", 0));
    s.see("peer", pair.hear(10));
    pair.tell(b"second")?;
    s.see("another aio_read", sys::aio_read(pair.fd, 10, 0));
    Ok(())
}

fn asynchronous_write(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("send", sys::send(pair.fd, b"sent, ", 0));
    s.see("aio_write", sys::aio_write(pair.fd, b"written"));
    s.see("peer", pair.hear(20));
    Ok(())
}

fn list_of_operations(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("lio_listio", sys::aio_write_in_a_list(pair.fd, b"of a list"));
    s.see("peer", pair.hear(20));
    s.see("aio_read", sys::aio_read(-1, 10, 0));
    Ok(())
}
