//! Sending on TCP: write(2), send(2) and their flags.

use std::time::Instant;

use libc::{
    IPPROTO_TCP, MSG_DONTWAIT, MSG_MORE, O_NONBLOCK, POLLOUT, SHUT_WR, SO_SNDBUF, SO_SNDTIMEO, SOL_SOCKET,
    TCP_CORK, TCP_NODELAY,
};

use crate::scene::{SOON_MS, Scene};
use crate::show::{pattern, pattern_from};
use crate::sys::{self, Outgoing};
use crate::table::{Done, checks};

checks! {
    alone "write":
    PAIRS [
        arrives, vectors, of_no_octets, until_full_and_on, blocks_until_all_is_taken, large,
        more_is_held_back, cork_is_held_back, so_sndtimeo,
    ],
    WAYS [
        cork_and_pull_by_nodelay, more_and_pull_by_nodelay, more_and_pull_by_uncorking, more_is_not_cork, more_and_close, cork_and_close, to_a_peer_that_does_not_read,
        with_a_small_buffer, small_pieces, nodelay_small_pieces, large_by_writev, both_directions_at_once,
    ],
}

fn arrives(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("write", sys::write(pair.fd, b"by write"));
    s.see("peer", pair.hear(100));
    s.see("send", sys::send(pair.fd, b"by send", 0));
    s.see("peer", pair.hear(100));
    s.see("sendto", sys::sendto(pair.fd, b"by sendto", 0, &[]));
    s.see("peer", pair.hear(100));
    let message = Outgoing { buffers: vec![b"by ", b"sendmsg"], ..Outgoing::default() };
    s.see("sendmsg", sys::sendmsg(pair.fd, &message, 0));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn vectors(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("writev", sys::writev(pair.fd, &[b"one, ", b"", b"two, ", b"three"]));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn of_no_octets(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("write", sys::write(pair.fd, b""));
    s.see("send", sys::send(pair.fd, b"", 0));
    let other = pair.other;
    s.see("peer", pair.peer.recv_within(other, 10, 50));
    Ok(())
}

fn until_full_and_on(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let sent = pair.fill()?;
    s.see("more than the smallest buffer", sent > 4096);
    s.see("one more", sys::send(pair.fd, b"x", MSG_DONTWAIT));
    s.see_poll("full", sys::poll_one(pair.fd, POLLOUT, 0));
    let other = pair.other;
    let came = pair.peer.recv_pattern(other, sent)?;
    s.see("peer got all", came == (sent, true));
    s.see_poll("empty", sys::poll_one(pair.fd, POLLOUT, SOON_MS));
    s.see("write", sys::write(pair.fd, b"again"));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn to_a_peer_that_does_not_read(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let first = pair.fill()?;
    s.see("something went", first > 0);
    s.see_poll("readable", sys::poll_one(pair.fd, libc::POLLIN, 0));
    Ok(())
}

fn blocks_until_all_is_taken(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let sent = pair.fill()?;
    let (other, len) = (pair.other, 500_000);
    pair.peer.later(150).drain(other, sent + len)?;
    let start = Instant::now();
    s.see("write", sys::write(pair.fd, &pattern_from(sent, len)));
    s.see_time("took", start, 50..4000);
    Ok(())
}

fn so_sndtimeo(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    pair.fill()?;
    sys::set_timeout(pair.fd, SO_SNDTIMEO, 150)?;
    let start = Instant::now();
    s.see("write", sys::write(pair.fd, b"x"));
    s.see_time("took", start, 150..1000);
    Ok(())
}

fn large(s: &mut Scene) -> Done {
    const LEN: usize = 1_000_000;
    let pair = s.pair()?;
    let fd = pair.fd;
    let hearing = pair.hear_meanwhile(LEN);
    let octets = pattern(LEN);
    let mut sent = 0;
    while sent < LEN {
        sent += sys::write(fd, &octets[sent..])?;
    }
    s.see("sent", sent);
    s.see("peer", hearing.wait());
    Ok(())
}

fn large_by_writev(s: &mut Scene) -> Done {
    const LEN: usize = 300_000;
    let pair = s.pair()?;
    let fd = pair.fd;
    let hearing = pair.hear_meanwhile(LEN);
    let octets = pattern(LEN);
    let (one, rest) = octets.split_at(7);
    let (two, three) = rest.split_at(100_000);
    s.see("writev", sys::writev(fd, &[one, two, b"", three]));
    s.see("peer", hearing.wait());
    Ok(())
}

fn both_directions_at_once(s: &mut Scene) -> Done {
    const LEN: usize = 400_000;
    let mut pair = s.pair()?;
    let (fd, other) = (pair.fd, pair.other);
    pair.peer.later(1).send_pattern(other, LEN)?;
    let hearing = pair.hear_meanwhile(LEN);
    let octets = pattern(LEN);
    sys::fcntl(fd, libc::F_SETFL, O_NONBLOCK.into())?;
    let (mut sent, mut came) = (0, Vec::new());
    while sent < LEN || came.len() < LEN {
        let wanted = if sent < LEN { POLLOUT } else { 0 } | if came.len() < LEN { libc::POLLIN } else { 0 };
        let events = sys::poll_one(fd, wanted, SOON_MS)?;
        if events & POLLOUT != 0 {
            sent += sys::write(fd, &octets[sent..(sent + 30_000).min(LEN)]).unwrap_or(0);
        }
        if events & libc::POLLIN != 0 {
            came.extend(sys::read(fd, 30_000).unwrap_or_default());
        }
    }
    s.see("came", came);
    s.see("peer", hearing.wait());
    Ok(())
}

fn more_is_held_back(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("send", sys::send(pair.fd, b"first, ", MSG_MORE));
    let other = pair.other;
    s.see("peer", pair.peer.recv_within(other, 100, 60));
    s.see("send", sys::send(pair.fd, b"second", 0));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn cork_is_held_back(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("cork", sys::setsockopt_int(pair.fd, IPPROTO_TCP, TCP_CORK, 1));
    s.see("write", sys::write(pair.fd, b"one, "));
    s.see("write", sys::write(pair.fd, b"two"));
    let other = pair.other;
    s.see("peer", pair.peer.recv_within(other, 100, 60));
    s.see("uncork", sys::setsockopt_int(pair.fd, IPPROTO_TCP, TCP_CORK, 0));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn cork_and_pull_by_nodelay(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::setsockopt_int(pair.fd, IPPROTO_TCP, TCP_CORK, 1)?;
    s.see("write", sys::write(pair.fd, b"held"));
    s.see("nodelay", sys::setsockopt_int(pair.fd, IPPROTO_TCP, TCP_NODELAY, 1));
    let other = pair.other;
    s.see("peer", pair.peer.recv_within(other, 100, 60));
    Ok(())
}

/// TCP_NODELAY lets go what is held also if it was set before.
fn more_and_pull_by_nodelay(s: &mut Scene) -> Done {
    more_and_pull_by(s, TCP_NODELAY, 1)
}

fn more_and_pull_by_uncorking(s: &mut Scene) -> Done {
    more_and_pull_by(s, TCP_CORK, 0)
}

fn more_and_pull_by(s: &mut Scene, option: i32, value: i32) -> Done {
    let mut pair = s.pair()?;
    sys::setsockopt_int(pair.fd, IPPROTO_TCP, TCP_NODELAY, 1)?;
    s.see("send", sys::send(pair.fd, b"held", MSG_MORE));
    let other = pair.other;
    s.see("peer", pair.peer.recv_within(other, 100, 60));
    s.see("set", sys::setsockopt_int(pair.fd, IPPROTO_TCP, option, value));
    s.see("peer", pair.peer.recv_within(other, 100, 60));
    Ok(())
}

fn more_is_not_cork(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("send", sys::send(pair.fd, b"held, ", MSG_MORE));
    s.see("cork", sys::getsockopt_int(pair.fd, IPPROTO_TCP, TCP_CORK));
    s.see("send", sys::send(pair.fd, b"followed", 0));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn more_and_close(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("send", sys::send(pair.fd, b"held", MSG_MORE));
    s.see("close", sys::close(pair.fd));
    s.see("peer", pair.hear(100));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn cork_and_close(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::setsockopt_int(pair.fd, IPPROTO_TCP, TCP_CORK, 1)?;
    s.see("write", sys::write(pair.fd, b"held"));
    s.see("shutdown", sys::shutdown(pair.fd, SHUT_WR));
    s.see("peer", pair.hear(100));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn with_a_small_buffer(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("SO_SNDBUF", sys::setsockopt_int(pair.fd, SOL_SOCKET, SO_SNDBUF, 5000));
    let sent = pair.fill()?;
    let other = pair.other;
    s.see("peer got all", pair.peer.recv_pattern(other, sent)? == (sent, true));
    Ok(())
}

/// Ten small writes that arrive whole, whatever is held back meanwhile.
fn pieces(s: &mut Scene, nodelay: bool) -> Done {
    let mut pair = s.pair()?;
    s.see("option", sys::setsockopt_int(pair.fd, IPPROTO_TCP, TCP_NODELAY, nodelay.into()));
    for start in (0..1000).step_by(100) {
        sys::write(pair.fd, &pattern_from(start, 100))?;
    }
    let other = pair.other;
    s.see("peer", pair.peer.recv_pattern(other, 1000));
    Ok(())
}

fn small_pieces(s: &mut Scene) -> Done {
    pieces(s, false)
}

fn nodelay_small_pieces(s: &mut Scene) -> Done {
    pieces(s, true)
}
