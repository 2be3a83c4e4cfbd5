//! shutdown(2), close(2), resets: how connections end, seen from both sides.

use std::time::Instant;

use libc::{
    IPPROTO_TCP, POLLIN, POLLOUT, POLLRDHUP, SHUT_RD, SHUT_RDWR, SHUT_WR, SO_ERROR, SO_LINGER, SOL_SOCKET,
    TCP_INFO,
};

use crate::scene::{Pair, SOON_MS, Scene};
use crate::show::{pattern, pattern_from, poll_names, tcp_state_name};
use crate::sys::{self, Errno};
use crate::table::{Done, checks};

checks! {
    "shutdown":
    PAIRS [
        of_writing_is_an_end, of_writing_twice, of_both, half_close_answers, peer_first, states_of_an_active_close,
        states_of_a_passive_close, events_of_each, close_is_an_end, close_with_unread_data_resets,
        close_with_unsent_data_delivers, linger_of_nothing_resets, reset_after_data, reset_is_told_once,
        reset_while_full, simultaneous,
    ],
    WAYS [
        with_an_unknown_how, of_reading_then_writing, of_reading_then_poll, then_close, after_the_peer_reset,
        linger_waits_for_the_peer, linger_gives_up, reset_by_unspecified_connect, close_after_reading_the_end,
        exit_is_an_end, exit_delivers, killed_is_an_end, reset_after_shutdown, data_after_close_resets,
        with_data_to_read, events_of_a_reset_after_shutdown,
    ],
    ONCE [of_a_fresh_socket, of_a_bound_socket, of_udp, of_a_pipe, of_a_closed_descriptor, of_a_unix_socket],
}

const ALL: i16 = POLLIN | POLLOUT | POLLRDHUP;

fn events(s: &mut Scene, what: &str, fd: i32) {
    s.see_poll(what, sys::poll_one(fd, ALL, 0));
}

fn state(s: &mut Scene, what: &str, fd: i32) {
    let state = sys::getsockopt(fd, IPPROTO_TCP, TCP_INFO, 1).map(|info| tcp_state_name(info[0]));
    s.see(what, state);
}

/// States that the peer's acknowledgement brings are waited for.
fn state_soon(s: &mut Scene, what: &str, fd: i32, wanted: u8) {
    for _ in 0..200 {
        if sys::getsockopt(fd, IPPROTO_TCP, TCP_INFO, 1) == Ok(vec![wanted]) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    state(s, what, fd);
}

fn set_linger(fd: i32, seconds: i32) -> Result<(), Errno> {
    let value = [1, seconds].map(i32::to_ne_bytes).concat();
    sys::setsockopt(fd, SOL_SOCKET, SO_LINGER, &value)
}

fn of_writing_is_an_end(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::write(pair.fd, b"last")?;
    s.see("shutdown", sys::shutdown(pair.fd, SHUT_WR));
    s.see("peer", pair.hear(100));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn of_writing_twice(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("shutdown", sys::shutdown(pair.fd, SHUT_WR));
    s.see("again", sys::shutdown(pair.fd, SHUT_WR));
    s.see("both", sys::shutdown(pair.fd, SHUT_RDWR));
    Ok(())
}

fn of_both(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("shutdown", sys::shutdown(pair.fd, SHUT_RDWR));
    s.see("read", sys::read(pair.fd, 10));
    s.see("write", sys::send(pair.fd, b"x", libc::MSG_NOSIGNAL));
    s.see("peer", pair.hear(10));
    events(s, "events", pair.fd);
    Ok(())
}

fn half_close_answers(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("shutdown", sys::shutdown(pair.fd, SHUT_WR));
    s.see("peer", pair.hear(10));
    pair.tell(b"the answer")?;
    s.see("read", sys::read(pair.fd, 100));
    pair.peer_ends()?;
    s.see("read", sys::read(pair.fd, 100));
    events(s, "events", pair.fd);
    Ok(())
}

fn peer_first(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.peer_ends()?;
    s.see("read", sys::read(pair.fd, 10));
    s.see("write", sys::write(pair.fd, b"the answer"));
    s.see("shutdown", sys::shutdown(pair.fd, SHUT_WR));
    s.see("peer", pair.hear(100));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn states_of_an_active_close(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    state(s, "at first", pair.fd);
    sys::shutdown(pair.fd, SHUT_WR)?;
    state_soon(s, "after shutdown", pair.fd, 5);
    let other = pair.other;
    // FIN, the answer to it, and all is over here; the kernel keeps TIME_WAIT apart from the socket.
    pair.peer.shutdown(other, SHUT_WR)?;
    state_soon(s, "after the peer's end", pair.fd, 7);
    Ok(())
}

fn states_of_a_passive_close(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.peer_ends()?;
    state(s, "after the peer's end", pair.fd);
    sys::shutdown(pair.fd, SHUT_WR)?;
    state_soon(s, "after shutdown", pair.fd, 7);
    events(s, "events", pair.fd);
    Ok(())
}

fn events_of_each(s: &mut Scene) -> Done {
    for how in [SHUT_RD, SHUT_WR, SHUT_RDWR] {
        let mut pair = s.pair()?;
        events(s, "open", pair.fd);
        sys::shutdown(pair.fd, how)?;
        events(s, "shut", pair.fd);
        pair.peer_ends()?;
        s.see_poll("and ended", sys::poll_one(pair.fd, ALL, 0));
    }
    Ok(())
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
    pair.peer.later(300).drain(other, usize::MAX >> 1)?;
    let start = Instant::now();
    let mut closed = Ok(());
    fill_and(&pair, |fd| {
        closed = sys::close(fd);
        Ok(())
    })?;
    s.see("close", closed);
    s.see_time("took", start, 100..2500);
    Ok(())
}

fn linger_gives_up(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    set_linger(pair.fd, 1)?;
    let mut start = Instant::now();
    let mut closed = Ok(());
    fill_and(&pair, |fd| {
        start = Instant::now();
        closed = sys::close(fd);
        Ok(())
    })?;
    s.see("close", closed);
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

fn simultaneous(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let other = pair.other;
    s.see("shutdown", sys::shutdown(pair.fd, SHUT_WR));
    pair.peer.shutdown(other, SHUT_WR)?;
    s.see("read", sys::read(pair.fd, 10));
    s.see("peer", pair.hear(10));
    s.see("close", sys::close(pair.fd));
    Ok(())
}

fn with_an_unknown_how(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("3", sys::shutdown(pair.fd, 3));
    s.see("-1", sys::shutdown(pair.fd, -1));
    events(s, "events", pair.fd);
    Ok(())
}

fn of_reading_then_writing(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("reading", sys::shutdown(pair.fd, SHUT_RD));
    let other = pair.other;
    // Nothing of it goes over the wire.
    s.see("peer", pair.peer.recv_within(other, 10, 50));
    s.see("writing", sys::shutdown(pair.fd, SHUT_WR));
    s.see("peer", pair.hear(10));
    Ok(())
}

fn of_reading_then_poll(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::shutdown(pair.fd, SHUT_RD)?;
    events(s, "events", pair.fd);
    pair.tell(b"data")?;
    events(s, "with data", pair.fd);
    s.see("recv", sys::recv(pair.fd, 10, 0));
    events(s, "without", pair.fd);
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
    let reset = pair.peer.events(other, 2000).map(poll_names);
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
    let seen = pair.peer.events(other, 2000).map(poll_names);
    s.see("peer", seen);
    Ok(())
}

fn with_data_to_read(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"data")?;
    s.see("shutdown", sys::shutdown(pair.fd, SHUT_RDWR));
    s.see("read", sys::read(pair.fd, 100));
    s.see("read", sys::read(pair.fd, 100));
    Ok(())
}

fn of_a_fresh_socket(s: &mut Scene) -> Done {
    let fd = s.tcp()?;
    for how in [SHUT_RD, SHUT_WR, SHUT_RDWR] {
        s.see("shutdown", sys::shutdown(fd, how));
    }
    Ok(())
}

fn of_a_bound_socket(s: &mut Scene) -> Done {
    let fd = s.tcp()?;
    sys::bind(fd, &s.local(0))?;
    s.see("shutdown", sys::shutdown(fd, SHUT_RDWR));
    Ok(())
}

fn of_udp(s: &mut Scene) -> Done {
    let (fd, _) = s.udp_bound()?;
    s.see("unconnected", sys::shutdown(fd, SHUT_RDWR));
    s.see("read", sys::recv(fd, 10, libc::MSG_DONTWAIT));
    Ok(())
}

fn of_a_pipe(s: &mut Scene) -> Done {
    let [reader, _] = sys::pipe(0)?;
    s.see("shutdown", sys::shutdown(reader, SHUT_WR));
    Ok(())
}

fn of_a_closed_descriptor(s: &mut Scene) -> Done {
    s.see("shutdown", sys::shutdown(999, SHUT_WR));
    Ok(())
}

fn of_a_unix_socket(s: &mut Scene) -> Done {
    let [one, two] = sys::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0)?;
    s.see("shutdown", sys::shutdown(one, SHUT_WR));
    s.see("read", sys::read(two, 10));
    Ok(())
}
