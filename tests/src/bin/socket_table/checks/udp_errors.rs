//! Times of datagrams and the error queue.

use std::time::Duration;

use libc::{IPPROTO_IP, IPPROTO_IPV6, MSG_DONTWAIT, MSG_ERRQUEUE, POLLIN, POLLOUT, SOL_SOCKET};

use super::udp_control::{ends, receive, send_with};
use crate::peer::Peer;
use crate::scene::{SOON_MS, Scene};
use crate::show::message_names;
use crate::sys::{self, Control, Errno, Result};
use crate::table::{Done, checks};

checks! {
    "udp_control":
    BOTH [
        timestamp_comes, timestamp_in_nanoseconds, timestamping_of_receipt, timestamping_of_sending,
        refused_is_told, refused_is_told_in_poll, refused_in_the_error_queue,
        refused_is_not_told_to_the_unconnected, drops_are_counted, timestamping_with_a_key,
        error_queue_is_polled,
    ],
    ONCE [transmit_time],
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
    s.see_poll("events", sys::poll_one(fd, 0, SOON_MS));
    s.see_poll("all events", sys::poll_one(fd, POLLIN | POLLOUT, 0));
    see_error_queue(s, fd)?;
    s.see_poll("all events", sys::poll_one(fd, POLLIN | POLLOUT, 0));
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

fn drops_are_counted(s: &mut Scene) -> Done {
    let (fd, port, mut peer, other, _) = ends(s)?;
    s.see("option", sys::setsockopt_int(fd, SOL_SOCKET, libc::SO_RXQ_OVFL, 1));
    peer.sendto(other, port, b"datagram")?;
    let message = receive(fd)?;
    s.see("drops", message.control(SOL_SOCKET, libc::SO_RXQ_OVFL).and_then(Control::as_int));
    Ok(())
}

fn transmit_time(s: &mut Scene) -> Done {
    let (fd, _, _peer, _, from) = ends(s)?;
    let control = Control { level: SOL_SOCKET, kind: libc::SCM_TXTIME, data: vec![0; 8] };
    s.see("without the option", send_with(s, fd, from, b"x", &[control]));
    Ok(())
}
