//! `MSG_ZEROCOPY`: what is said of it afterwards.

use libc::{MSG_DONTWAIT, MSG_ERRQUEUE, POLLIN, POLLOUT, SOL_SOCKET};

use crate::scene::{SOON_MS, Scene};
use crate::show::{message_names, pattern};
use crate::sys::{self, Outgoing};
use crate::table::{Done, checks};

checks! {
    "zerocopy":
    WAYS [
        without_the_option, completion, completions_in_order, option_values, of_an_empty_send, by_sendmsg,
        completion_in_epoll, inherited_and_used,
    ],
    BOTH [of_datagrams],
}

const MSG_ZEROCOPY: i32 = 0x400_0000;

/// What the error queue says: ranges of sends, one after the other joined.
fn completions(s: &mut Scene, fd: i32, last: u32) -> Done {
    let mut seen: Option<(u32, u32)> = None;
    for _ in 0..200 {
        match sys::recvmsg(fd, &[0], 200, MSG_ERRQUEUE | MSG_DONTWAIT) {
            Ok(message) => {
                let Some(control) = message.control.first() else { continue };
                let word =
                    |at: usize| u32::from_ne_bytes(control.data[at..at + 4].try_into().expect("four octets"));
                let [origin, _, code] = [4, 5, 6].map(|at| control.data[at]);
                s.see("flags", message_names(message.flags));
                if seen.is_none() {
                    s.see("level and kind", (control.level, control.kind));
                    s.see("errno and origin", (word(0), origin));
                    s.see("copied", code & 1 != 0);
                }
                let (from, to) = (word(8), word(12));
                seen = Some((seen.map_or(from, |range| range.0), to));
                if to >= last {
                    break;
                }
            }
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(5)),
        }
    }
    s.see("sends", seen);
    Ok(())
}

fn enable(fd: i32) -> sys::Result<()> {
    sys::setsockopt_int(fd, SOL_SOCKET, libc::SO_ZEROCOPY, 1)
}

fn without_the_option(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("send", sys::send(pair.fd, b"plain", MSG_ZEROCOPY));
    s.see("peer", pair.hear(10));
    s.see("error queue", sys::recvmsg(pair.fd, &[0], 200, MSG_ERRQUEUE | MSG_DONTWAIT).map(drop));
    Ok(())
}

fn completion(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    enable(pair.fd)?;
    s.see("send", sys::send(pair.fd, &pattern(20_000), MSG_ZEROCOPY));
    let other = pair.other;
    s.see("peer", pair.peer.recv_pattern(other, 20_000));
    s.see_poll("events", sys::poll_one(pair.fd, POLLIN, SOON_MS));
    completions(s, pair.fd, 0)?;
    s.see_poll("events", sys::poll_one(pair.fd, POLLIN, 0));
    s.see("none left", sys::recvmsg(pair.fd, &[0], 200, MSG_ERRQUEUE | MSG_DONTWAIT).map(drop));
    Ok(())
}

fn completions_in_order(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    enable(pair.fd)?;
    let octets = pattern(30_000);
    for piece in octets.chunks(10_000) {
        s.see("send", sys::send(pair.fd, piece, MSG_ZEROCOPY));
    }
    // One without it is not counted.
    s.see("plain", sys::send(pair.fd, b"", 0));
    let other = pair.other;
    s.see("peer", pair.peer.recv_pattern(other, 30_000));
    let mut first = None;
    let mut last = None;
    for _ in 0..200 {
        if let Ok(message) = sys::recvmsg(pair.fd, &[0], 200, MSG_ERRQUEUE | MSG_DONTWAIT) {
            let word = |at: usize| {
                message.control.first().and_then(|control| control.data.get(at..at + 4)).map(|word| word[0])
            };
            first = first.or(word(8));
            last = word(12);
            if last == Some(2) {
                break;
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    s.see("first and last", (first, last));
    Ok(())
}

fn option_values(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    for value in [1, 0, -1, 2] {
        s.see("set", sys::setsockopt_int(pair.fd, SOL_SOCKET, libc::SO_ZEROCOPY, value));
        s.see("get", sys::getsockopt_int(pair.fd, SOL_SOCKET, libc::SO_ZEROCOPY));
    }
    Ok(())
}

fn of_an_empty_send(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    enable(pair.fd)?;
    s.see("send", sys::send(pair.fd, b"", MSG_ZEROCOPY));
    s.see("error queue", sys::recvmsg(pair.fd, &[0], 200, MSG_ERRQUEUE | MSG_DONTWAIT).map(drop));
    Ok(())
}

fn by_sendmsg(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    enable(pair.fd)?;
    let octets = pattern(9000);
    let (one, two) = octets.split_at(4000);
    let message = Outgoing { buffers: vec![one, two], ..Outgoing::default() };
    s.see("sendmsg", sys::sendmsg(pair.fd, &message, MSG_ZEROCOPY));
    let other = pair.other;
    s.see("peer", pair.peer.recv_pattern(other, 9000));
    completions(s, pair.fd, 0)
}

fn completion_in_epoll(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    enable(pair.fd)?;
    let epfd = sys::epoll_create(0)?;
    sys::epoll_add(epfd, pair.fd, libc::EPOLLIN, 1)?;
    s.see("send", sys::send(pair.fd, &pattern(5000), MSG_ZEROCOPY));
    let other = pair.other;
    s.see("peer", pair.peer.recv_pattern(other, 5000));
    s.see_epoll("events", sys::epoll_wait(epfd, 8, SOON_MS));
    s.see("SO_ERROR", sys::getsockopt_int(pair.fd, SOL_SOCKET, libc::SO_ERROR));
    s.see("recv", sys::recv(pair.fd, 10, MSG_DONTWAIT));
    s.see_poll("writable", sys::poll_one(pair.fd, POLLOUT, 0));
    Ok(())
}

fn inherited_and_used(s: &mut Scene) -> Done {
    let mut pair = s.pair_with(enable)?;
    s.see("option", sys::getsockopt_int(pair.fd, SOL_SOCKET, libc::SO_ZEROCOPY));
    s.see("send", sys::send(pair.fd, &pattern(5000), MSG_ZEROCOPY));
    let other = pair.other;
    s.see("peer", pair.peer.recv_pattern(other, 5000));
    completions(s, pair.fd, 0)
}

fn of_datagrams(s: &mut Scene) -> Done {
    let (fd, _) = s.udp_bound()?;
    let mut peer = s.peer()?;
    let (other, from) = peer.udp()?;
    sys::connect(fd, &s.remote(from))?;
    enable(fd)?;
    s.see("send", sys::send(fd, &pattern(1000), MSG_ZEROCOPY));
    s.see("peer", peer.recvfrom(other).map(|came| came.octets));
    completions(s, fd, 0)
}
