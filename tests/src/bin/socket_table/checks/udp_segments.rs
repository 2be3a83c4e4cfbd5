//! UDP_SEGMENT and UDP_GRO, fragments.

use libc::{IPPROTO_IP, IPPROTO_UDP, UDP_GRO, UDP_SEGMENT};

use super::udp_control::{ends, number, receive, send_with};
use crate::peer::{Peer, Slot};
use crate::scene::Scene;
use crate::show::{pattern, pattern_from};
use crate::sys::{self, Control, Outgoing};
use crate::table::{Done, checks};

checks! {
    "udp_control":
    BOTH [
        segments_by_option, segments_by_control, segments_with_a_rest, too_many_segments,
        segments_larger_than_the_mtu, coalesced_or_not_all_comes, one_segment_only, never_fragment,
        may_fragment,
    ],
    ONCE [gro_option_is_kept, segments_on_tcp, control_of_both_levels],
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
