//! Options that are names or structures, or of multicast.

use libc::{IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, SO_BINDTODEVICE, SOL_SOCKET, TCP_CONGESTION};

use super::option_values::words;
use crate::scene::Scene;
use crate::sys::{self};
use crate::table::{Done, checks};

checks! {
    "option_values":
    WAYS [
        congestion, congestion_unknown, congestion_cut, upper_layer_protocol, bound_device,
        cookie_is_the_same, memory_information, peer_credentials, tcp_information_cut,
        congestion_information, zerocopy_receive, saved_syn, saved_syn_wanted, multicast_on_tcp,
        congestion_of_the_peer_stays,
    ],
    BOTH [
        congestion_is_inherited, multicast_membership, multicast_interface,
        source_filter_without_membership,
    ],
}

fn text(octets: Vec<u8>) -> String {
    let end = octets.iter().position(|octet| *octet == 0).unwrap_or(octets.len());
    String::from_utf8_lossy(&octets[..end]).into_owned()
}

fn congestion(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let get = || sys::getsockopt(pair.fd, IPPROTO_TCP, TCP_CONGESTION, 16).map(text);
    s.see("at first", get());
    s.see("set reno", sys::setsockopt(pair.fd, IPPROTO_TCP, TCP_CONGESTION, b"reno"));
    s.see("now", get());
    s.see("set cubic", sys::setsockopt(pair.fd, IPPROTO_TCP, TCP_CONGESTION, b"cubic\0"));
    s.see("now", get());
    s.see("length", sys::getsockopt(pair.fd, IPPROTO_TCP, TCP_CONGESTION, 64).map(|value| value.len()));
    Ok(())
}

fn congestion_unknown(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("unknown", sys::setsockopt(pair.fd, IPPROTO_TCP, TCP_CONGESTION, b"nonesuch"));
    s.see("empty", sys::setsockopt(pair.fd, IPPROTO_TCP, TCP_CONGESTION, b""));
    s.see("too long", sys::setsockopt(pair.fd, IPPROTO_TCP, TCP_CONGESTION, &[b'x'; 40]));
    s.see("now", sys::getsockopt(pair.fd, IPPROTO_TCP, TCP_CONGESTION, 16).map(text));
    Ok(())
}

fn congestion_cut(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("three octets", sys::getsockopt(pair.fd, IPPROTO_TCP, TCP_CONGESTION, 3));
    s.see("none", sys::getsockopt(pair.fd, IPPROTO_TCP, TCP_CONGESTION, 0));
    Ok(())
}

fn congestion_is_inherited(s: &mut Scene) -> Done {
    let set = |fd| sys::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, b"reno");
    let (listener, port) = s.listener_with(4, set)?;
    let mut pair = s.accept_from_peer(listener, port)?;
    s.say_where(pair.fd);
    s.see("accepted", sys::getsockopt(pair.fd, IPPROTO_TCP, TCP_CONGESTION, 16).map(text));
    s.see("write", sys::write(pair.fd, b"data"));
    s.see("peer", pair.hear(10));
    Ok(())
}

fn congestion_of_the_peer_stays(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::setsockopt(pair.fd, IPPROTO_TCP, TCP_CONGESTION, b"reno")?;
    s.see("write", sys::write(pair.fd, b"data"));
    s.see("peer", pair.hear(10));
    pair.tell(b"answer")?;
    s.see("read", sys::read(pair.fd, 10));
    Ok(())
}

fn upper_layer_protocol(s: &mut Scene) -> Done {
    const TCP_ULP: i32 = 31;
    let pair = s.pair()?;
    s.see("at first", sys::getsockopt(pair.fd, IPPROTO_TCP, TCP_ULP, 16).map(|value| value.len()));
    s.see("unknown", sys::setsockopt(pair.fd, IPPROTO_TCP, TCP_ULP, b"nonesuch"));
    s.see("empty", sys::setsockopt(pair.fd, IPPROTO_TCP, TCP_ULP, b""));
    Ok(())
}

fn bound_device(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("at first", sys::getsockopt(pair.fd, SOL_SOCKET, SO_BINDTODEVICE, 16).map(text));
    s.see("unknown", sys::setsockopt(pair.fd, SOL_SOCKET, SO_BINDTODEVICE, b"nonesuch0\0"));
    s.see("none", sys::setsockopt(pair.fd, SOL_SOCKET, SO_BINDTODEVICE, b""));
    s.see("cut", sys::getsockopt(pair.fd, SOL_SOCKET, SO_BINDTODEVICE, 3).map(|value| value.len()));
    Ok(())
}

fn cookie_is_the_same(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let get = || sys::getsockopt(pair.fd, SOL_SOCKET, libc::SO_COOKIE, 8);
    let first = get()?;
    s.see("length", first.len());
    s.see("same", get()? == first);
    let other = s.pair()?;
    s.see("another's", sys::getsockopt(other.fd, SOL_SOCKET, libc::SO_COOKIE, 8)? == first);
    s.see("too short", sys::getsockopt(pair.fd, SOL_SOCKET, libc::SO_COOKIE, 4));
    Ok(())
}

fn memory_information(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("length", sys::getsockopt(pair.fd, SOL_SOCKET, libc::SO_MEMINFO, 64).map(|value| value.len()));
    s.see("set", sys::setsockopt(pair.fd, SOL_SOCKET, libc::SO_MEMINFO, &[0; 36]));
    Ok(())
}

fn peer_credentials(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("SO_PEERCRED", sys::getsockopt(pair.fd, SOL_SOCKET, libc::SO_PEERCRED, 12).map(words));
    s.see("SO_PEERSEC", sys::getsockopt(pair.fd, SOL_SOCKET, libc::SO_PEERSEC, 64).map(drop));
    s.see("SO_PEERNAME", sys::getsockopt(pair.fd, SOL_SOCKET, libc::SO_PEERNAME, 28).map(|name| name.len()));
    Ok(())
}

fn tcp_information_cut(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    for room in [0, 1, 7, 104] {
        let len = sys::getsockopt(pair.fd, IPPROTO_TCP, libc::TCP_INFO, room).map(|info| info.len());
        s.see(&format!("{room} octets"), len);
    }
    let whole = sys::getsockopt(pair.fd, IPPROTO_TCP, libc::TCP_INFO, 1000).map(|info| info.len());
    s.see("all", whole);
    s.see("set", sys::setsockopt(pair.fd, IPPROTO_TCP, libc::TCP_INFO, &[0; 104]));
    Ok(())
}

fn congestion_information(s: &mut Scene) -> Done {
    const TCP_CC_INFO: i32 = 26;
    let pair = s.pair()?;
    s.see("TCP_CC_INFO", sys::getsockopt(pair.fd, IPPROTO_TCP, TCP_CC_INFO, 64).map(|info| info.len()));
    Ok(())
}

fn zerocopy_receive(s: &mut Scene) -> Done {
    const TCP_ZEROCOPY_RECEIVE: i32 = 35;
    let pair = s.pair()?;
    s.see("get", sys::getsockopt(pair.fd, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, 16).map(|value| value.len()));
    s.see(
        "too short",
        sys::getsockopt(pair.fd, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, 4).map(|value| value.len()),
    );
    Ok(())
}

fn saved_syn(s: &mut Scene) -> Done {
    const TCP_SAVED_SYN: i32 = 28;
    let pair = s.pair()?;
    s.see("not wanted", sys::getsockopt(pair.fd, IPPROTO_TCP, TCP_SAVED_SYN, 200).map(|syn| syn.len()));
    s.see("set", sys::setsockopt(pair.fd, IPPROTO_TCP, TCP_SAVED_SYN, &[0; 4]));
    Ok(())
}

fn saved_syn_wanted(s: &mut Scene) -> Done {
    const TCP_SAVE_SYN: i32 = 27;
    const TCP_SAVED_SYN: i32 = 28;
    let pair = s.pair_with(|fd| sys::setsockopt_int(fd, IPPROTO_TCP, TCP_SAVE_SYN, 1))?;
    let saved = sys::getsockopt(pair.fd, IPPROTO_TCP, TCP_SAVED_SYN, 200)?;
    s.see("version", saved.first().map(|octet| octet >> 4));
    s.see("protocol", saved.get(9).copied());
    s.see("SYN", saved.get(33).map(|flags| flags & 0x12));
    s.see("again", sys::getsockopt(pair.fd, IPPROTO_TCP, TCP_SAVED_SYN, 200).map(|syn| syn.len()));
    Ok(())
}

fn multicast_on_tcp(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let request = [[224, 0, 0, 9], [0; 4]].concat();
    s.see("join", sys::setsockopt(pair.fd, IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, &request));
    s.see("leave", sys::setsockopt(pair.fd, IPPROTO_IP, libc::IP_DROP_MEMBERSHIP, &request));
    Ok(())
}

/// `struct ip_mreq` or `ipv6_mreq` of a group.
fn membership(s: &Scene, group: u8) -> (i32, i32, i32, Vec<u8>) {
    if s.is_v6() {
        let mut request = vec![0xFF, 0x05, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, group];
        request.extend([0; 4]);
        (IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP, libc::IPV6_DROP_MEMBERSHIP, request)
    } else {
        (IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, libc::IP_DROP_MEMBERSHIP, vec![239, 1, 1, group, 127, 0, 0, 1])
    }
}

fn multicast_membership(s: &mut Scene) -> Done {
    let (fd, _) = s.udp_bound()?;
    let (level, join, leave, request) = membership(s, 7);
    s.see("leave before", sys::setsockopt(fd, level, leave, &request));
    s.see("too short", sys::setsockopt(fd, level, join, &request[..4]));
    let mut unicast = request.clone();
    unicast[0] = 0x20;
    s.see("no group", sys::setsockopt(fd, level, join, &unicast));
    if !s.is_v6() {
        s.see("join", sys::setsockopt(fd, level, join, &request));
        s.see("again", sys::setsockopt(fd, level, join, &request));
        s.see("leave", sys::setsockopt(fd, level, leave, &request));
    }
    Ok(())
}

fn multicast_interface(s: &mut Scene) -> Done {
    let (fd, _) = s.udp_bound()?;
    if s.is_v6() {
        s.see("unknown", sys::setsockopt_int(fd, IPPROTO_IPV6, libc::IPV6_MULTICAST_IF, 9999));
        s.see("get", sys::getsockopt_int(fd, IPPROTO_IPV6, libc::IPV6_MULTICAST_IF));
    } else {
        s.see("unknown", sys::setsockopt(fd, IPPROTO_IP, libc::IP_MULTICAST_IF, &[192, 0, 2, 200]));
        s.see("get", sys::getsockopt(fd, IPPROTO_IP, libc::IP_MULTICAST_IF, 4));
    }
    Ok(())
}

fn source_filter_without_membership(s: &mut Scene) -> Done {
    let (fd, _) = s.udp_bound()?;
    let request = [[239, 1, 1, 7], [0; 4], [10, 0, 0, 1]].concat();
    s.see("leave a source", sys::setsockopt(fd, IPPROTO_IP, libc::IP_DROP_SOURCE_MEMBERSHIP, &request));
    Ok(())
}
