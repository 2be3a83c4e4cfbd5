//! close(2) of a connection, lingering, resets, the ends of processes.

use std::time::Instant;

use libc::{POLLIN, SHUT_WR, SO_ERROR, SO_LINGER, SOL_SOCKET};

use super::shutdown::{events, state};
use crate::pair::Pair;
use crate::scene::{SOON_MS, Scene};
use crate::show::{pattern, pattern_from, poll_names};
use crate::sys::{self, Errno};
use crate::table::{Done, checks};

checks! {
    alone "shutdown":
    PAIRS [
        close_is_an_end, close_with_unread_data_resets, close_with_unsent_data_delivers,
        linger_of_nothing_resets, reset_after_data, reset_is_told_once, reset_while_full,
    ],
    WAYS [
        then_close, after_the_peer_reset, linger_waits_for_the_peer, linger_gives_up,
        reset_by_unspecified_connect, close_after_reading_the_end, exit_is_an_end, exit_delivers,
        killed_is_an_end, reset_after_shutdown, data_after_close_resets, events_of_a_reset_after_shutdown,
    ],
}

fn set_linger(fd: i32, seconds: i32) -> Result<(), Errno> {
    let value = [1, seconds].map(i32::to_ne_bytes).concat();
    sys::setsockopt(fd, SOL_SOCKET, SO_LINGER, &value)
}

fn close_is_an_end(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::write(pair.fd, b"good bye")?;
    s.see("close", sys::close(pair.fd));
    s.see("peer", pair.hear(100));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn close_with_unread_data_resets(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"never read")?;
    s.see("close", sys::close(pair.fd));
    s.see("peer", pair.hear(100));
    Ok(())
}

/// Closes with as much as fits into the buffers; gives its length.
fn fill_and(pair: &Pair, end: impl FnOnce(i32) -> Result<(), Errno>) -> Result<usize, Errno> {
    let mut sent = 0;
    while let Ok(len) = sys::send(pair.fd, &pattern_from(sent, 20_000), libc::MSG_DONTWAIT) {
        sent += len;
    }
    end(pair.fd)?;
    Ok(sent)
}

fn close_with_unsent_data_delivers(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let sent = fill_and(&pair, sys::close)?;
    let other = pair.other;
    let came = pair.peer.recv_pattern(other, usize::MAX >> 1)?;
    s.see("peer got all", came == (sent, true));
    s.see("peer", pair.peer.recv(other, 10));
    Ok(())
}

fn linger_of_nothing_resets(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    set_linger(pair.fd, 0)?;
    s.see("close", sys::close(pair.fd));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn linger_waits_for_the_peer(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    set_linger(pair.fd, 3)?;
    let other = pair.other;
    pair.peer.later(1000).drain(other, usize::MAX >> 1)?;
    pair.fill()?;
    let start = Instant::now();
    s.see("close", sys::close(pair.fd));
    s.see_time("took", start, 100..2500);
    Ok(())
}

fn linger_gives_up(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    set_linger(pair.fd, 1)?;
    pair.fill()?;
    let start = Instant::now();
    s.see("close", sys::close(pair.fd));
    s.see_time("took", start, 900..2500);
    Ok(())
}

fn reset_after_data(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"before the reset")?;
    pair.peer_resets()?;
    events(s, "events", pair.fd);
    s.see("FIONREAD", sys::ioctl(pair.fd, libc::FIONREAD, 0));
    s.see("read", sys::read(pair.fd, 100));
    s.see("read", sys::read(pair.fd, 100));
    s.see("read", sys::read(pair.fd, 100));
    Ok(())
}

fn reset_is_told_once(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.peer_resets()?;
    events(s, "events", pair.fd);
    let error = |error| Errno(error).to_string();
    s.see("SO_ERROR", sys::getsockopt_int(pair.fd, SOL_SOCKET, SO_ERROR).map(error));
    s.see("SO_ERROR", sys::getsockopt_int(pair.fd, SOL_SOCKET, SO_ERROR));
    events(s, "events", pair.fd);
    s.see("read", sys::read(pair.fd, 10));
    s.see("write", sys::send(pair.fd, b"x", libc::MSG_NOSIGNAL));
    state(s, "state", pair.fd);
    Ok(())
}

fn reset_while_full(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    fill_and(&pair, |_| Ok(()))?;
    pair.peer_resets()?;
    events(s, "events", pair.fd);
    s.see("write", sys::send(pair.fd, b"x", libc::MSG_NOSIGNAL));
    s.see("write", sys::send(pair.fd, b"x", libc::MSG_NOSIGNAL));
    Ok(())
}

fn then_close(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::shutdown(pair.fd, SHUT_WR)?;
    s.see("close", sys::close(pair.fd));
    s.see("peer", pair.hear(10));
    let other = pair.other;
    // Nobody is there to read it.
    s.see("peer sends", pair.peer.send(other, b"x"));
    let reset = pair.peer.events(other, 0, 2000).map(poll_names);
    s.see("peer", reset);
    Ok(())
}

fn after_the_peer_reset(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.peer_resets()?;
    s.see("shutdown", sys::shutdown(pair.fd, SHUT_WR));
    s.see("close", sys::close(pair.fd));
    Ok(())
}

fn reset_by_unspecified_connect(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("connect", sys::connect(pair.fd, &[0; 16]));
    s.see("peer", pair.hear(10));
    events(s, "events", pair.fd);
    s.see("read", sys::read(pair.fd, 10));
    state(s, "state", pair.fd);
    Ok(())
}

fn close_after_reading_the_end(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"data")?;
    pair.peer_ends()?;
    s.see("read", sys::read(pair.fd, 100));
    s.see("read", sys::read(pair.fd, 100));
    s.see("close", sys::close(pair.fd));
    s.see("peer", pair.hear(10));
    Ok(())
}

/// Has a child accept or connect, which ends by `end`; the peer tells how it sees that.
fn child_ends(s: &mut Scene, octets: usize, end: fn() -> i32) -> Done {
    let (listener, port) = s.listener()?;
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    peer.connect_start(other, port)?;
    let child = sys::fork_to(|| {
        let sent = sys::poll_one(listener, POLLIN, SOON_MS)
            .and_then(|_| sys::accept(listener))
            .and_then(|fd| sys::write(fd, &pattern(octets)));
        if sent == Ok(octets) { end() } else { 1 }
    })?;
    s.see("peer", peer.recv_pattern(other, octets));
    s.see("peer", peer.recv(other, 10));
    let _ = sys::wait_for(child)?; // How it ended is not the matter here.
    Ok(())
}

fn exit_is_an_end(s: &mut Scene) -> Done {
    child_ends(s, 10, || sys::exit(0))
}

fn exit_delivers(s: &mut Scene) -> Done {
    child_ends(s, 60_000, || sys::exit_now(0))
}

fn killed_is_an_end(s: &mut Scene) -> Done {
    child_ends(s, 10, || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        sys::abort()
    })
}

fn reset_after_shutdown(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::shutdown(pair.fd, SHUT_WR)?;
    pair.hear(10)?;
    pair.peer_resets()?;
    s.see("read", sys::read(pair.fd, 10));
    s.see("read", sys::read(pair.fd, 10));
    Ok(())
}

fn events_of_a_reset_after_shutdown(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::shutdown(pair.fd, SHUT_WR)?;
    pair.hear(10)?;
    pair.peer_resets()?;
    events(s, "events", pair.fd);
    Ok(())
}

fn data_after_close_resets(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("close", sys::close(pair.fd));
    s.see("peer", pair.hear(10));
    let other = pair.other;
    s.see("peer sends", pair.peer.send(other, b"x"));
    let seen = pair.peer.events(other, 0, 2000).map(poll_names);
    s.see("peer", seen);
    Ok(())
}
