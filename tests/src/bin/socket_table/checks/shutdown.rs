//! shutdown(2), close(2), resets: how connections end, seen from both sides.

use libc::{IPPROTO_TCP, POLLIN, POLLOUT, POLLRDHUP, SHUT_RD, SHUT_RDWR, SHUT_WR, TCP_INFO};

use crate::scene::Scene;
use crate::show::tcp_state_name;
use crate::sys::{self};
use crate::table::{Done, checks};

checks! {
    "shutdown":
    PAIRS [
        of_writing_is_an_end, of_writing_twice, of_both, half_close_answers, peer_first,
        states_of_an_active_close, states_of_a_passive_close, events_of_each, simultaneous,
    ],
    WAYS [
        with_an_unknown_how, of_reading_then_writing, of_reading_then_poll, with_data_to_read,
        of_reading_then_close,
    ],
    ONCE [
        of_a_fresh_socket, of_a_bound_socket, of_udp, of_a_pipe, of_a_closed_descriptor, of_a_unix_socket,
    ],
}

const ALL: i16 = POLLIN | POLLOUT | POLLRDHUP;

pub(super) fn events(s: &mut Scene, what: &str, fd: i32) {
    s.see_poll(what, sys::poll_one(fd, ALL, 0));
}

pub(super) fn state(s: &mut Scene, what: &str, fd: i32) {
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

fn of_reading_then_close(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("shutdown", sys::shutdown(pair.fd, SHUT_RD));
    pair.tell(b"unread")?;
    events(s, "events", pair.fd);
    s.see("close", sys::close(pair.fd));
    s.see("peer", pair.hear(10));
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
