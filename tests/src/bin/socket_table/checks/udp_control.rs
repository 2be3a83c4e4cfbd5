//! Datagrams and what comes with them: addresses, marks, segments, times, errors.

use libc::{IPPROTO_IP, IPPROTO_UDP, MSG_DONTWAIT, POLLIN, SOL_SOCKET};

use crate::peer::{Datagram, Peer, Slot};
use crate::scene::{SOON_MS, Scene};
use crate::sys::{self, Control, Message, Outgoing, Result};
use crate::table::{Done, checks};

checks! {
    "udp_control":
    BOTH [
        hop_limit_comes, hop_limit_by_option, hop_limit_by_control, traffic_class_comes,
        traffic_class_by_option, traffic_class_by_control, ecn_bits_come,
    ],
    ONCE [unknown_control, broken_control, socket_mark_by_control, hop_limit_of_zero, priority_by_control],
}

pub(super) fn ends(s: &mut Scene) -> Result<(i32, u16, Peer, Slot, u16)> {
    let (fd, port) = s.udp_bound()?;
    let mut peer = s.peer()?;
    let (other, from) = peer.udp()?;
    Ok((fd, port, peer, other, from))
}

/// Receives one datagram with what comes with it.
pub(super) fn receive(fd: i32) -> Result<Message> {
    sys::poll_one(fd, POLLIN, SOON_MS)?;
    sys::recvmsg(fd, &[70_000], 512, MSG_DONTWAIT)
}

/// The option that asks for it, and the kind of what comes, of IPv4 or IPv6.
pub(super) fn kinds(s: &Scene, v4: (i32, i32), v6: (i32, i32)) -> (i32, i32, i32) {
    let (ask, kind) = if s.is_v6() { v6 } else { v4 };
    (s.ip_level(), ask, kind)
}

pub(super) fn hop_limit_kinds(s: &Scene) -> (i32, i32, i32) {
    kinds(s, (libc::IP_RECVTTL, libc::IP_TTL), (libc::IPV6_RECVHOPLIMIT, libc::IPV6_HOPLIMIT))
}

pub(super) fn traffic_class_kinds(s: &Scene) -> (i32, i32, i32) {
    kinds(s, (libc::IP_RECVTOS, libc::IP_TOS), (libc::IPV6_RECVTCLASS, libc::IPV6_TCLASS))
}

/// The value of a control message, which is one octet or an int.
pub(super) fn number(message: &Message, level: i32, kind: i32) -> Option<i32> {
    let control = message.control(level, kind)?;
    control.as_int().or_else(|| control.data.first().map(|&octet| octet.into()))
}

/// Sends by sendmsg(2) with control messages.
pub(super) fn send_with(s: &Scene, fd: i32, port: u16, octets: &[u8], control: &[Control]) -> Result<usize> {
    let control = sys::control_octets(control);
    sys::sendmsg(fd, &Outgoing { buffers: vec![octets], name: s.remote(port), control }, 0)
}

fn hop_limit_comes(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, _) = ends(s)?;
    let (level, ask, kind) = hop_limit_kinds(s);
    sys::setsockopt_int(fd, level, ask, 1)?;
    let set = if s.is_v6() { libc::IPV6_UNICAST_HOPS } else { libc::IP_TTL };
    for limit in [64, 7] {
        peer.set(other, level, set, limit)?;
        peer.sendto(other, port, b"datagram")?;
        s.see("hop limit", number(&receive(fd)?, level, kind));
    }
    Ok(())
}

/// Sends before and after something has come from the peer: what is sent must look the same.
fn sent(
    s: &mut Scene,
    look: fn(&Datagram) -> i32,
    prepare: impl FnOnce(i32) -> Result<()>,
    control: &[Control],
) -> Done {
    let (fd, port, mut peer, other, from) = ends(s)?;
    prepare(fd)?;
    for _ in 0..2 {
        s.see("sendmsg", send_with(s, fd, from, b"datagram", control));
        s.see("peer", peer.recvfrom(other).map(|came| look(&came)));
        peer.sendto(other, port, b"hello")?;
        receive(fd)?;
    }
    Ok(())
}

fn hop_limit_by_option(s: &mut Scene) -> Done {
    let (level, option) = (s.ip_level(), if s.is_v6() { libc::IPV6_UNICAST_HOPS } else { libc::IP_TTL });
    sent(s, |came| came.ttl, |fd| sys::setsockopt_int(fd, level, option, 9), &[])
}

fn hop_limit_by_control(s: &mut Scene) -> Done {
    let (level, _, kind) = hop_limit_kinds(s);
    sent(s, |came| came.ttl, |_| Ok(()), &[Control::int(level, kind, 5)])
}

fn hop_limit_of_zero(s: &mut Scene) -> Done {
    let (fd, _, _peer, _, from) = ends(s)?;
    s.see("0", send_with(s, fd, from, b"x", &[Control::int(IPPROTO_IP, libc::IP_TTL, 0)]));
    s.see("256", send_with(s, fd, from, b"x", &[Control::int(IPPROTO_IP, libc::IP_TTL, 256)]));
    Ok(())
}

fn traffic_class_comes(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, _) = ends(s)?;
    let (level, ask, kind) = traffic_class_kinds(s);
    sys::setsockopt_int(fd, level, ask, 1)?;
    for class in [0, 0xB8] {
        peer.set(other, level, kind, class)?;
        peer.sendto(other, port, b"datagram")?;
        let message = receive(fd)?;
        s.see("class", number(&message, level, kind));
        s.see("length", message.control(level, kind).map(|control| control.data.len()));
    }
    Ok(())
}

fn traffic_class_by_option(s: &mut Scene) -> Done {
    let (level, _, kind) = traffic_class_kinds(s);
    sent(s, |came| came.tos, |fd| sys::setsockopt_int(fd, level, kind, 0x48), &[])
}

fn traffic_class_by_control(s: &mut Scene) -> Done {
    let (level, _, kind) = traffic_class_kinds(s);
    sent(s, |came| came.tos, |_| Ok(()), &[Control::int(level, kind, 0x2A)])
}

fn ecn_bits_come(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, _) = ends(s)?;
    let (level, ask, kind) = traffic_class_kinds(s);
    sys::setsockopt_int(fd, level, ask, 1)?;
    for bits in [1, 2, 3] {
        peer.set(other, level, kind, bits)?;
        peer.sendto(other, port, b"datagram")?;
        s.see("class", number(&receive(fd)?, level, kind));
    }
    Ok(())
}

fn unknown_control(s: &mut Scene) -> Done {
    let (fd, _, _peer, _, from) = ends(s)?;
    for (level, kind) in [(SOL_SOCKET, 999), (IPPROTO_IP, 999), (IPPROTO_UDP, 999), (777, 1)] {
        s.see("sendmsg", send_with(s, fd, from, b"x", &[Control::int(level, kind, 1)]));
    }
    Ok(())
}

fn broken_control(s: &mut Scene) -> Done {
    let (fd, _, _peer, _, from) = ends(s)?;
    let mut control = sys::control_octets(&[Control::int(IPPROTO_IP, libc::IP_TTL, 5)]);
    control[0] = 200;
    let message = Outgoing { buffers: vec![b"x"], name: s.remote(from), control };
    s.see("too long", sys::sendmsg(fd, &message, 0));
    let short = Control { level: IPPROTO_IP, kind: libc::IP_PKTINFO, data: vec![0; 4] };
    s.see("too short", send_with(s, fd, from, b"x", &[short]));
    Ok(())
}

fn socket_mark_by_control(s: &mut Scene) -> Done {
    let (fd, _, mut peer, other, from) = ends(s)?;
    s.see("sendmsg", send_with(s, fd, from, b"marked", &[Control::int(SOL_SOCKET, libc::SO_MARK, 0)]));
    s.see("peer", peer.recvfrom(other).map(|came| came.octets));
    Ok(())
}

fn priority_by_control(s: &mut Scene) -> Done {
    let (fd, _, mut peer, other, from) = ends(s)?;
    s.see("sendmsg", send_with(s, fd, from, b"x", &[Control::int(SOL_SOCKET, libc::SO_PRIORITY, 3)]));
    s.see("peer", peer.recvfrom_within(other, 100).map(|came| came.octets));
    Ok(())
}
