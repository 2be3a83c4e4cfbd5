//! Datagrams and their addresses: IP_PKTINFO and the like.

use std::net::{IpAddr, SocketAddr};

use libc::{IPPROTO_IP, IPPROTO_IPV6, POLLIN};

use super::udp_control::{ends, hop_limit_kinds, kinds, receive, send_with, traffic_class_kinds};
use crate::scene::{SOON_MS, Scene};
use crate::show::message_names;
use crate::sys::{self, Control};
use crate::table::{Done, Family, checks};

checks! {
    "udp_control":
    BOTH [
        packet_information, packet_information_chooses_the_source, original_destination_comes, all_at_once,
        not_enough_room_for_control, no_control_unless_asked, source_of_nobody,
    ],
    ONCE [packet_information_on_ipv6_by_ipv4],
}

fn packet_information_kinds(s: &Scene) -> (i32, i32, i32) {
    kinds(s, (libc::IP_PKTINFO, libc::IP_PKTINFO), (libc::IPV6_RECVPKTINFO, libc::IPV6_PKTINFO))
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
