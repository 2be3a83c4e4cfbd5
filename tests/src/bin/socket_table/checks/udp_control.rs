//! Datagrams and what comes with them: addresses, marks, segments, times, errors.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use libc::{
    IPPROTO_IP, IPPROTO_IPV6, IPPROTO_UDP, MSG_DONTWAIT, MSG_ERRQUEUE, POLLIN, POLLOUT, SOL_SOCKET, UDP_GRO,
    UDP_SEGMENT,
};

use crate::peer::{Datagram, Peer, Slot};
use crate::scene::{SOON_MS, Scene};
use crate::show::{message_names, pattern, pattern_from};
use crate::sys::{self, Control, Errno, Message, Outgoing, Result};
use crate::table::{Done, Family, checks};

checks! {
    "udp_control":
    BOTH [
        packet_information, packet_information_chooses_the_source, hop_limit_comes, hop_limit_by_option,
        hop_limit_by_control, traffic_class_comes, traffic_class_by_option, traffic_class_by_control, ecn_bits_come,
        original_destination_comes, all_at_once, not_enough_room_for_control, no_control_unless_asked,
        segments_by_option, segments_by_control, segments_with_a_rest, too_many_segments, segments_larger_than_the_mtu,
        coalesced_or_not_all_comes, one_segment_only, timestamp_comes, timestamp_in_nanoseconds,
        timestamping_of_receipt, timestamping_of_sending, refused_is_told, refused_is_told_in_poll,
        refused_in_the_error_queue, refused_is_not_told_to_the_unconnected, never_fragment, may_fragment,
        source_of_nobody, drops_are_counted, timestamping_with_a_key, error_queue_is_polled,
    ],
    ONCE [
        unknown_control, broken_control, socket_mark_by_control, hop_limit_of_zero, gro_option_is_kept,
        segments_on_tcp, packet_information_on_ipv6_by_ipv4, priority_by_control, transmit_time, control_of_both_levels,
    ],
}

fn ends(s: &mut Scene) -> Result<(i32, u16, Peer, Slot, u16)> {
    let (fd, port) = s.udp_bound()?;
    let mut peer = s.peer()?;
    let (other, from) = peer.udp()?;
    Ok((fd, port, peer, other, from))
}

/// Receives one datagram with what comes with it.
fn receive(fd: i32) -> Result<Message> {
    sys::poll_one(fd, POLLIN, SOON_MS)?;
    sys::recvmsg(fd, &[70_000], 512, MSG_DONTWAIT)
}

/// The option that asks for it, and the kind of what comes, of IPv4 or IPv6.
fn kinds(s: &Scene, v4: (i32, i32), v6: (i32, i32)) -> (i32, i32, i32) {
    let (ask, kind) = if s.is_v6() { v6 } else { v4 };
    (s.ip_level(), ask, kind)
}

fn packet_information_kinds(s: &Scene) -> (i32, i32, i32) {
    kinds(s, (libc::IP_PKTINFO, libc::IP_PKTINFO), (libc::IPV6_RECVPKTINFO, libc::IPV6_PKTINFO))
}

fn hop_limit_kinds(s: &Scene) -> (i32, i32, i32) {
    kinds(s, (libc::IP_RECVTTL, libc::IP_TTL), (libc::IPV6_RECVHOPLIMIT, libc::IPV6_HOPLIMIT))
}

fn traffic_class_kinds(s: &Scene) -> (i32, i32, i32) {
    kinds(s, (libc::IP_RECVTOS, libc::IP_TOS), (libc::IPV6_RECVTCLASS, libc::IPV6_TCLASS))
}

/// The value of a control message, which is one octet or an int.
fn number(message: &Message, level: i32, kind: i32) -> Option<i32> {
    let control = message.control(level, kind)?;
    control.as_int().or_else(|| control.data.first().map(|&octet| octet.into()))
}

/// Sends by sendmsg(2) with control messages.
fn send_with(s: &Scene, fd: i32, port: u16, octets: &[u8], control: &[Control]) -> Result<usize> {
    let control = sys::control_octets(control);
    sys::sendmsg(fd, &Outgoing { buffers: vec![octets], name: s.remote(port), control }, 0)
}

/// The addresses in `struct in_pktinfo` (where it came to, and what its header said) or `in6_pktinfo`.
fn information_of(s: &Scene, control: Option<&Control>) -> String {
    let Some(control) = control else { return "none".to_owned() };
    let data = &control.data;
    let ip = |at: usize, len: usize| -> Option<IpAddr> {
        let octets = data.get(at..at + len)?;
        match len {
            4 => <[u8; 4]>::try_from(octets).ok().map(IpAddr::from),
            _ => <[u8; 16]>::try_from(octets).ok().map(IpAddr::from),
        }
    };
    let whose = |ip: Option<IpAddr>| s.whose(ip.map(|ip| SocketAddr::new(ip, 1)));
    let (addresses, index_at) = if data.len() == 12 {
        (format!("{} and {}", whose(ip(4, 4)), whose(ip(8, 4))), 0)
    } else {
        (whose(ip(0, 16)), 16)
    };
    let has_interface = data.get(index_at..index_at + 4).is_some_and(|index| index != [0; 4]);
    format!("{addresses}, {}", if has_interface { "by an interface" } else { "by none" })
}

fn packet_information(s: &mut Scene) -> Done {
    let fd = s.udp()?;
    sys::bind(fd, &s.any(0))?;
    let (level, ask, kind) = packet_information_kinds(s);
    sys::setsockopt_int(fd, level, ask, 1)?;
    s.settle(fd)?;
    let port = crate::scene::port_of(fd)?;
    let mut peer = s.peer()?;
    let (other, _) = peer.udp()?;
    peer.sendto(other, port, b"datagram")?;
    let message = receive(fd)?;
    s.see("came", message.octets.clone());
    s.see("information", information_of(s, message.control(level, kind)));
    s.see("flags", message_names(message.flags));
    Ok(())
}

/// `struct in_pktinfo` or `in6_pktinfo` that says which source to use.
fn source(s: &Scene, ip: IpAddr) -> Control {
    match ip {
        IpAddr::V4(ip) => {
            let data = [[0; 4], ip.octets(), [0; 4]].concat();
            Control { level: IPPROTO_IP, kind: libc::IP_PKTINFO, data }
        }
        IpAddr::V6(ip) => {
            debug_assert!(s.is_v6());
            let data = [ip.octets().to_vec(), vec![0; 4]].concat();
            Control { level: IPPROTO_IPV6, kind: libc::IPV6_PKTINFO, data }
        }
    }
}

fn packet_information_chooses_the_source(s: &mut Scene) -> Done {
    let fd = s.udp()?;
    sys::bind(fd, &s.any(0))?;
    s.settle(fd)?;
    let mut peer = s.peer()?;
    let (other, from) = peer.udp()?;
    s.see("sendmsg", send_with(s, fd, from, b"datagram", &[source(s, s.local_ip())]));
    let came = peer.recvfrom(other)?;
    s.see("peer", came.octets);
    s.see("from", s.whose(Some(SocketAddr::new(came.from, came.port))));
    // As a server with many addresses does: it answers from where it was asked.
    let port = crate::scene::port_of(fd)?;
    peer.sendto(other, port, b"question")?;
    s.see("came", receive(fd)?.octets);
    s.see("sendmsg", send_with(s, fd, from, b"answer", &[source(s, s.local_ip())]));
    let came = peer.recvfrom(other)?;
    s.see("from", s.whose(Some(SocketAddr::new(came.from, came.port))));
    Ok(())
}

fn source_of_nobody(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, from) = ends(s)?;
    peer.sendto(other, port, b"question")?;
    receive(fd)?;
    let nobody = if s.is_v6() { "2001:db8::77" } else { "192.0.2.77" };
    let nobody: IpAddr = nobody.parse().unwrap_or(s.local_ip());
    s.see("sendmsg", send_with(s, fd, from, b"datagram", &[source(s, nobody)]));
    Ok(())
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

fn original_destination_comes(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, _) = ends(s)?;
    let level = s.ip_level();
    let option = if s.is_v6() { 74 } else { libc::IP_RECVORIGDSTADDR };
    s.see("option", sys::setsockopt_int(fd, level, option, 1));
    peer.sendto(other, port, b"datagram")?;
    let message = receive(fd)?;
    let control = message.control(level, option).cloned();
    let address = control.as_ref().and_then(|control| sys::parse_name(&control.data));
    s.see("whose", s.whose(address));
    s.see("port", address.map(|address| address.port()) == Some(port));
    Ok(())
}

fn all_at_once(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, _) = ends(s)?;
    for (level, ask, _) in [packet_information_kinds(s), hop_limit_kinds(s), traffic_class_kinds(s)] {
        sys::setsockopt_int(fd, level, ask, 1)?;
    }
    peer.sendto(other, port, b"datagram")?;
    let message = receive(fd)?;
    let kinds: Vec<i32> = message.control.iter().map(|control| control.kind).collect();
    s.see("kinds in their order", kinds);
    s.see("flags", message_names(message.flags));
    Ok(())
}

fn not_enough_room_for_control(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, _) = ends(s)?;
    let (level, ask, _) = packet_information_kinds(s);
    sys::setsockopt_int(fd, level, ask, 1)?;
    for room in [0, 8, 16, 20, 64] {
        peer.sendto(other, port, b"datagram")?;
        sys::poll_one(fd, POLLIN, SOON_MS)?;
        let message = sys::recvmsg(fd, &[100], room, 0)?;
        s.see(
            &format!("with room for {room}"),
            message.control.iter().map(|control| control.data.len()).collect::<Vec<_>>(),
        );
        s.see("flags", message_names(message.flags));
    }
    Ok(())
}

fn no_control_unless_asked(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, _) = ends(s)?;
    peer.sendto(other, port, b"datagram")?;
    let message = receive(fd)?;
    s.see("control", message.control.len());
    s.see("flags", message_names(message.flags));
    Ok(())
}

/// What the peer gets, until nothing comes for a while.
fn lengths(peer: &mut Peer, other: Slot) -> Vec<usize> {
    std::iter::from_fn(|| peer.recvfrom_within(other, 150).ok()).map(|came| came.octets.len()).collect()
}

fn segments_by_option(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, from) = ends(s)?;
    s.see("option", sys::setsockopt_int(fd, IPPROTO_UDP, UDP_SEGMENT, 400));
    for _ in 0..2 {
        s.see("sendto", sys::sendto(fd, &pattern(1200), 0, &s.remote(from)));
        s.see("peer", lengths(&mut peer, other));
        peer.sendto(other, port, b"hello")?;
        receive(fd)?;
    }
    s.see("smaller than a segment", sys::sendto(fd, &pattern(100), 0, &s.remote(from)));
    s.see("peer", lengths(&mut peer, other));
    Ok(())
}

/// `UDP_SEGMENT` as a control message, which is two octets.
fn segment(len: u16) -> Control {
    Control { level: IPPROTO_UDP, kind: UDP_SEGMENT, data: len.to_ne_bytes().to_vec() }
}

fn segments_by_control(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, from) = ends(s)?;
    for _ in 0..2 {
        s.see("sendmsg", send_with(s, fd, from, &pattern(3000), &[segment(1000)]));
        s.see("peer", lengths(&mut peer, other));
        peer.sendto(other, port, b"hello")?;
        receive(fd)?;
    }
    s.see(
        "as an int",
        send_with(s, fd, from, &pattern(3000), &[Control::int(IPPROTO_UDP, UDP_SEGMENT, 1000)]),
    );
    Ok(())
}

fn segments_with_a_rest(s: &mut Scene) -> Done {
    let (fd, _, mut peer, other, from) = ends(s)?;
    s.see("sendmsg", send_with(s, fd, from, &pattern(2500), &[segment(1000)]));
    s.see("peer", lengths(&mut peer, other));
    Ok(())
}

fn one_segment_only(s: &mut Scene) -> Done {
    let (fd, _, mut peer, other, from) = ends(s)?;
    s.see("exactly", send_with(s, fd, from, &pattern(1000), &[segment(1000)]));
    s.see("empty", send_with(s, fd, from, b"", &[segment(1000)]));
    s.see("none", send_with(s, fd, from, &pattern(1000), &[segment(0)]));
    s.see("peer", lengths(&mut peer, other));
    Ok(())
}

fn too_many_segments(s: &mut Scene) -> Done {
    let (fd, _, mut peer, other, from) = ends(s)?;
    s.see("128", send_with(s, fd, from, &pattern(1280), &[segment(10)]));
    s.see("peer", lengths(&mut peer, other).len());
    s.see("129", send_with(s, fd, from, &pattern(1290), &[segment(10)]));
    Ok(())
}

fn segments_larger_than_the_mtu(s: &mut Scene) -> Done {
    let (fd, _, _peer, _, from) = ends(s)?;
    s.see("sendmsg", send_with(s, fd, from, &pattern(6000), &[segment(3000)]));
    s.see("sendmsg", send_with(s, fd, from, &pattern(2000), &[segment(3000)]));
    Ok(())
}

fn coalesced_or_not_all_comes(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, _) = ends(s)?;
    s.see("option", sys::setsockopt_int(fd, IPPROTO_UDP, UDP_GRO, 1));
    peer.set(other, IPPROTO_UDP, UDP_SEGMENT, 1000)?;
    peer.sendto_pattern(other, port, 4500)?;
    let mut all = Vec::new();
    while all.len() < 4500 {
        let message = receive(fd)?;
        // Several datagrams may come as one, with the length of each.
        let each = number(&message, IPPROTO_UDP, UDP_GRO).unwrap_or(message.len as i32);
        s.see("each has at most 1000 octets", each <= 1000);
        all.extend(message.octets);
        if all.len() < 4500 && each != 1000 {
            break;
        }
        // How many come at once is chance.
        if all.len() >= 1000 {
            break;
        }
    }
    while all.len() < 4500 {
        let message = receive(fd)?;
        all.extend(message.octets);
    }
    s.see("all", all == pattern_from(0, 4500));
    Ok(())
}

fn gro_option_is_kept(s: &mut Scene) -> Done {
    let (fd, _) = s.udp_bound()?;
    s.see("set", sys::setsockopt_int(fd, IPPROTO_UDP, UDP_GRO, 1));
    s.see("get", sys::getsockopt_int(fd, IPPROTO_UDP, UDP_GRO));
    s.see("segment", sys::getsockopt_int(fd, IPPROTO_UDP, UDP_SEGMENT));
    Ok(())
}

/// The kernel begins to take the time of packets somewhat after the first socket wants it.
fn settle_time() {
    std::thread::sleep(Duration::from_millis(100));
}

fn timestamp(s: &mut Scene, option: i32, kind: i32, unit_per_second: i64) -> Done {
    let (fd, port, mut peer, other, _) = ends(s)?;
    s.see("option", sys::setsockopt_int(fd, SOL_SOCKET, option, 1));
    settle_time();
    peer.sendto(other, port, b"datagram")?;
    let message = receive(fd)?;
    let control = message.control(SOL_SOCKET, kind).cloned();
    s.see("length", control.as_ref().map(|control| control.data.len()));
    let long = |at: usize| {
        let octets = control.as_ref().and_then(|control| control.data.get(at..at + 8));
        octets.map_or(0, |octets| i64::from_ne_bytes(octets.try_into().expect("eight octets")))
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    s.see("seconds are about now", (now.as_secs() as i64 - long(0)).abs() < 5);
    s.see("fraction is one", (0..unit_per_second).contains(&long(8)));
    Ok(())
}

fn timestamp_comes(s: &mut Scene) -> Done {
    timestamp(s, libc::SO_TIMESTAMP, libc::SCM_TIMESTAMP, 1_000_000)
}

fn timestamp_in_nanoseconds(s: &mut Scene) -> Done {
    timestamp(s, libc::SO_TIMESTAMPNS, libc::SCM_TIMESTAMPNS, 1_000_000_000)
}

const TX_SOFTWARE: i32 = 1 << 1;
const RX_SOFTWARE: i32 = 1 << 3;
const SOFTWARE: i32 = 1 << 4;
const OPT_ID: i32 = 1 << 7;
const OPT_TSONLY: i32 = 1 << 11;

fn timestamping_of_receipt(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, _) = ends(s)?;
    s.see("option", sys::setsockopt_int(fd, SOL_SOCKET, libc::SO_TIMESTAMPING, RX_SOFTWARE | SOFTWARE));
    s.see("get", sys::getsockopt_int(fd, SOL_SOCKET, libc::SO_TIMESTAMPING));
    settle_time();
    peer.sendto(other, port, b"datagram")?;
    let message = receive(fd)?;
    let control = message.control(SOL_SOCKET, libc::SCM_TIMESTAMPING);
    s.see("length", control.map(|control| control.data.len()));
    s.see("software time", control.is_some_and(|control| control.data[..8] != [0; 8]));
    s.see("hardware time", control.is_some_and(|control| control.data[32..40] != [0; 8]));
    Ok(())
}

/// What the error queue has, in the order in which it comes.
fn see_error_queue(s: &mut Scene, fd: i32) -> Done {
    sys::poll_one(fd, 0, SOON_MS)?;
    while let Ok(message) = sys::recvmsg(fd, &[100], 512, MSG_ERRQUEUE | MSG_DONTWAIT) {
        s.see("octets", message.len > 0);
        s.see("flags", message_names(message.flags));
        for control in &message.control {
            match (control.level, control.kind) {
                (SOL_SOCKET, libc::SCM_TIMESTAMPING) => s.see("time", control.data[..8] != [0; 8]),
                (IPPROTO_IP, libc::IP_RECVERR) | (IPPROTO_IPV6, libc::IPV6_RECVERR) => {
                    let word = |at: usize| {
                        u32::from_ne_bytes(control.data[at..at + 4].try_into().expect("four octets"))
                    };
                    s.see("errno", Errno(word(0) as i32));
                    let [origin, kind, code] = [4, 5, 6].map(|at| control.data[at]);
                    s.see("origin, type, code", (origin, kind, code));
                    s.see("info, data", (word(8), word(12)));
                    let offender = sys::parse_name(control.data.get(16..).unwrap_or_default());
                    s.see("offender", s.whose(offender));
                }
                (level, kind) => s.see("another", (level, kind)),
            }
        }
    }
    Ok(())
}

fn timestamping_of_sending(s: &mut Scene) -> Done {
    let (fd, _, mut peer, other, from) = ends(s)?;
    let flags = TX_SOFTWARE | SOFTWARE | OPT_TSONLY;
    s.see("option", sys::setsockopt_int(fd, SOL_SOCKET, libc::SO_TIMESTAMPING, flags));
    s.see("sendto", sys::sendto(fd, b"datagram", 0, &s.remote(from)));
    s.see("peer", peer.recvfrom(other).map(|came| came.octets));
    see_error_queue(s, fd)
}

fn timestamping_with_a_key(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, from) = ends(s)?;
    peer.sendto(other, port, b"hello")?;
    receive(fd)?;
    let flags = TX_SOFTWARE | SOFTWARE | OPT_TSONLY | OPT_ID;
    s.see("option", sys::setsockopt_int(fd, SOL_SOCKET, libc::SO_TIMESTAMPING, flags));
    for octets in [b"one", b"two"] {
        s.see("sendto", sys::sendto(fd, octets, 0, &s.remote(from)));
        s.see("peer", peer.recvfrom(other).map(|came| came.octets));
    }
    see_error_queue(s, fd)
}

fn error_queue_is_polled(s: &mut Scene) -> Done {
    let (fd, _, mut peer, other, from) = ends(s)?;
    let flags = TX_SOFTWARE | SOFTWARE | OPT_TSONLY;
    sys::setsockopt_int(fd, SOL_SOCKET, libc::SO_TIMESTAMPING, flags)?;
    sys::sendto(fd, b"datagram", 0, &s.remote(from))?;
    peer.recvfrom(other)?;
    s.see_poll("events", sys::poll_one(fd, POLLIN | libc::POLLPRI, SOON_MS));
    let epfd = sys::epoll_create(0)?;
    sys::epoll_add(epfd, fd, libc::EPOLLIN, 1)?;
    s.see_epoll("events", sys::epoll_wait(epfd, 8, SOON_MS));
    s.see("recv", sys::recv(fd, 10, MSG_DONTWAIT));
    Ok(())
}

/// A port of the peer's at which nobody hears any more.
fn closed_port(peer: &mut Peer) -> Result<u16> {
    let (slot, port) = peer.udp()?;
    peer.close(slot)?;
    Ok(port)
}

fn refused_is_told(s: &mut Scene) -> Done {
    let (fd, _, mut peer, _, _) = ends(s)?;
    let port = closed_port(&mut peer)?;
    sys::connect(fd, &s.remote(port))?;
    s.see("send", sys::send(fd, b"anybody?", 0));
    sys::poll_one(fd, 0, SOON_MS)?;
    s.see("send", sys::send(fd, b"anybody?", 0));
    s.see("send", sys::send(fd, b"anybody?", 0));
    sys::poll_one(fd, 0, SOON_MS)?;
    s.see("recv", sys::recv(fd, 10, MSG_DONTWAIT));
    s.see("recv", sys::recv(fd, 10, MSG_DONTWAIT));
    Ok(())
}

fn refused_is_told_in_poll(s: &mut Scene) -> Done {
    let (fd, _, mut peer, _, _) = ends(s)?;
    let port = closed_port(&mut peer)?;
    sys::connect(fd, &s.remote(port))?;
    sys::send(fd, b"anybody?", 0)?;
    s.see_poll("events", sys::poll_one(fd, 0, SOON_MS));
    s.see_poll("all events", sys::poll_one(fd, POLLIN | POLLOUT, 0));
    let error = sys::getsockopt_int(fd, SOL_SOCKET, libc::SO_ERROR).map(|errno| Errno(errno).to_string());
    s.see("SO_ERROR", error);
    s.see_poll("events", sys::poll_one(fd, POLLIN | POLLOUT, 0));
    Ok(())
}

fn refused_in_the_error_queue(s: &mut Scene) -> Done {
    let (fd, _, mut peer, _, _) = ends(s)?;
    let port = closed_port(&mut peer)?;
    let option = if s.is_v6() { libc::IPV6_RECVERR } else { libc::IP_RECVERR };
    s.see("option", sys::setsockopt_int(fd, s.ip_level(), option, 1));
    s.see("sendto", sys::sendto(fd, b"anybody?", 0, &s.remote(port)));
    see_error_queue(s, fd)?;
    s.see("sendto", sys::sendto(fd, b"anybody?", 0, &s.remote(port)));
    Ok(())
}

fn refused_is_not_told_to_the_unconnected(s: &mut Scene) -> Done {
    let (fd, _, mut peer, other, from) = ends(s)?;
    let port = closed_port(&mut peer)?;
    s.see("sendto", sys::sendto(fd, b"anybody?", 0, &s.remote(port)));
    s.see_poll("events", sys::poll_one(fd, POLLIN, 50));
    s.see("sendto", sys::sendto(fd, b"hello", 0, &s.remote(from)));
    s.see("peer", peer.recvfrom(other).map(|came| came.octets));
    Ok(())
}

fn never_fragment(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, from) = ends(s)?;
    let (option, value) = if s.is_v6() {
        (libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO)
    } else {
        (libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)
    };
    s.see("option", sys::setsockopt_int(fd, s.ip_level(), option, value));
    let fits = if s.is_v6() { 1452 } else { 1472 };
    for _ in 0..2 {
        s.see("fits", sys::sendto(fd, &pattern(fits), 0, &s.remote(from)));
        s.see("does not", sys::sendto(fd, &pattern(fits + 1), 0, &s.remote(from)));
        s.see("peer", lengths(&mut peer, other));
        peer.sendto(other, port, b"hello")?;
        receive(fd)?;
    }
    Ok(())
}

fn may_fragment(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, from) = ends(s)?;
    let (option, value) = if s.is_v6() {
        (libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT)
    } else {
        (libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT)
    };
    s.see("option", sys::setsockopt_int(fd, s.ip_level(), option, value));
    for _ in 0..2 {
        s.see("sendto", sys::sendto(fd, &pattern(5000), 0, &s.remote(from)));
        s.see("peer", lengths(&mut peer, other));
        peer.sendto(other, port, b"hello")?;
        receive(fd)?;
    }
    Ok(())
}

fn drops_are_counted(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, _) = ends(s)?;
    s.see("option", sys::setsockopt_int(fd, SOL_SOCKET, libc::SO_RXQ_OVFL, 1));
    peer.sendto(other, port, b"datagram")?;
    let message = receive(fd)?;
    s.see("drops", message.control(SOL_SOCKET, libc::SO_RXQ_OVFL).and_then(Control::as_int));
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

fn transmit_time(s: &mut Scene) -> Done {
    let (fd, _, _peer, _, from) = ends(s)?;
    let control = Control { level: SOL_SOCKET, kind: libc::SCM_TXTIME, data: vec![0; 8] };
    s.see("without the option", send_with(s, fd, from, b"x", &[control]));
    Ok(())
}

fn control_of_both_levels(s: &mut Scene) -> Done {
    let (fd, _, mut peer, other, from) = ends(s)?;
    let controls =
        [segment(100), Control::int(IPPROTO_IP, libc::IP_TOS, 8), Control::int(IPPROTO_IP, libc::IP_TTL, 7)];
    s.see("sendmsg", send_with(s, fd, from, &pattern(200), &controls));
    for _ in 0..2 {
        s.see("peer", peer.recvfrom(other).map(|came| (came.octets.len(), came.tos, came.ttl)));
    }
    Ok(())
}

fn segments_on_tcp(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let control = sys::control_octets(&[segment(100)]);
    s.see(
        "sendmsg",
        sys::sendmsg(pair.fd, &Outgoing { buffers: vec![b"data"], control, ..Outgoing::default() }, 0),
    );
    let other = pair.other;
    s.see("peer", pair.peer.recv_within(other, 10, 100));
    Ok(())
}

fn packet_information_on_ipv6_by_ipv4(s: &mut Scene) -> Done {
    s.variant.family = Family::V6;
    let fd = s.udp()?;
    sys::setsockopt_int(fd, IPPROTO_IPV6, libc::IPV6_V6ONLY, 0)?;
    sys::setsockopt_int(fd, IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
    sys::bind(fd, &s.any(0))?;
    s.settle(fd)?;
    let port = crate::scene::port_of(fd)?;
    let mut peer = s.peer_of(Family::V4)?;
    let (other, _) = peer.udp()?;
    peer.sendto(other, port, b"by IPv4")?;
    let message = receive(fd)?;
    s.see("came", message.octets.clone());
    s.see("from", s.whose(message.from()));
    s.see("information", information_of(s, message.control(IPPROTO_IPV6, libc::IPV6_PKTINFO)));
    Ok(())
}
