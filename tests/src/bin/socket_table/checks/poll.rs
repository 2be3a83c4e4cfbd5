//! poll(2) and ppoll(2).

use std::time::Instant;

use libc::{
    POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, POLLRDHUP, POLLRDNORM, POLLWRBAND, POLLWRNORM,
};

use crate::scene::{SOON_MS, Scene};
use crate::show::{Show, poll_names};
use crate::sys;
use crate::table::{Done, checks};

checks! {
    "poll":
    PAIRS [
        of_a_connection, with_data, after_the_end, after_a_reset, after_both_ends, nothing_wanted,
        waits_for_data, of_a_full_connection,
    ],
    WAYS [
        all_kinds_of_readable, for_the_end_only, twice_in_a_set, negative_ones_are_ignored,
        order_is_that_of_the_set, of_a_listener_and_a_connection, priority_of_urgent_data,
        after_reading_a_part, where_there_is_no_memory,
    ],
    BOTH [of_fresh_sockets, of_a_bound_udp_socket],
}

fn where_there_is_no_memory(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"data")?;
    let epfd = sys::epoll_create(0)?;
    sys::epoll_add(epfd, pair.fd, libc::EPOLLIN, 1)?;
    for address in [8, usize::MAX / 2 + 1] {
        for (what, said) in sys::wait_for_events_at(address, pair.fd, epfd) {
            s.see(what, said);
        }
    }
    s.see("read", sys::read(pair.fd, 10));
    Ok(())
}

const ALL: i16 = POLLIN | POLLPRI | POLLOUT | POLLRDHUP;

pub(super) fn see_all(s: &mut Scene, what: &str, seen: sys::Result<(i32, Vec<i16>)>) {
    let show = |(ready, events): (i32, Vec<i16>)| {
        (ready, events.into_iter().map(poll_names).collect::<Vec<String>>()).show()
    };
    s.see(what, seen.map(show));
}

fn of_a_connection(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see_poll("all", sys::poll_one(pair.fd, ALL, 0));
    s.see_poll("readable", sys::poll_one(pair.fd, POLLIN, 0));
    Ok(())
}

fn with_data(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"data")?;
    s.see_poll("all", sys::poll_one(pair.fd, ALL, SOON_MS));
    sys::read(pair.fd, 100)?;
    s.see_poll("when read", sys::poll_one(pair.fd, ALL, 0));
    Ok(())
}

fn after_reading_a_part(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"data")?;
    sys::read(pair.fd, 1)?;
    s.see_poll("rest", sys::poll_one(pair.fd, POLLIN, 0));
    Ok(())
}

fn after_the_end(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.peer_ends()?;
    s.see_poll("all", sys::poll_one(pair.fd, ALL, SOON_MS));
    s.see_poll("readable", sys::poll_one(pair.fd, POLLIN, 0));
    sys::read(pair.fd, 100)?;
    s.see_poll("when read", sys::poll_one(pair.fd, ALL, 0));
    Ok(())
}

fn after_a_reset(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.peer_resets()?;
    s.see_poll("all", sys::poll_one(pair.fd, ALL, 0));
    s.see_poll("nothing wanted", sys::poll_one(pair.fd, 0, 0));
    s.see("read", sys::read(pair.fd, 1));
    s.see_poll("when read", sys::poll_one(pair.fd, ALL, 0));
    Ok(())
}

fn after_both_ends(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.peer_ends()?;
    sys::shutdown(pair.fd, libc::SHUT_WR)?;
    s.see_poll("all", sys::poll_one(pair.fd, ALL, 0));
    s.see_poll("nothing wanted", sys::poll_one(pair.fd, 0, 0));
    Ok(())
}

fn nothing_wanted(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"data")?;
    s.see_poll("with data", sys::poll_one(pair.fd, 0, 0));
    s.see_poll("errors", sys::poll_one(pair.fd, POLLERR | POLLHUP | POLLNVAL, 0));
    Ok(())
}

fn waits_for_data(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let other = pair.other;
    let start = Instant::now();
    pair.peer.later(150).send(other, b"late")?;
    s.see_poll("readable", sys::poll_one(pair.fd, POLLIN, SOON_MS));
    s.see_time("took", start, 100..1500);
    Ok(())
}

fn of_a_full_connection(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    pair.fill()?;
    s.see_poll("all", sys::poll_one(pair.fd, ALL, 0));
    Ok(())
}

fn all_kinds_of_readable(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"data")?;
    for events in [POLLIN, POLLRDNORM, libc::POLLRDBAND, POLLOUT, POLLWRNORM, POLLWRBAND] {
        s.see_poll(&poll_names(events), sys::poll_one(pair.fd, events, 0));
    }
    Ok(())
}

fn for_the_end_only(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"data")?;
    s.see_poll("with data", sys::poll_one(pair.fd, POLLRDHUP, 0));
    pair.peer_ends()?;
    s.see_poll("with the end", sys::poll_one(pair.fd, POLLRDHUP, SOON_MS));
    Ok(())
}

fn twice_in_a_set(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"data")?;
    see_all(s, "both", sys::poll(&[(pair.fd, POLLIN), (pair.fd, POLLOUT)], 0));
    Ok(())
}

fn negative_ones_are_ignored(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    see_all(s, "three", sys::poll(&[(-1, POLLIN), (pair.fd, POLLOUT), (-77, POLLIN)], 0));
    Ok(())
}

fn order_is_that_of_the_set(s: &mut Scene) -> Done {
    let mut one = s.pair()?;
    let mut two = s.pair()?;
    two.tell(b"data")?;
    one.tell(b"data")?;
    see_all(s, "both", sys::poll(&[(one.fd, POLLIN), (two.fd, POLLIN | POLLOUT)], SOON_MS));
    Ok(())
}

fn of_a_listener_and_a_connection(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let mut pair = s.accept_from_peer(listener, port)?;
    s.say_where(pair.fd);
    let both = [(listener, POLLIN), (pair.fd, POLLIN)];
    see_all(s, "none", sys::poll(&both, 0));
    let other = pair.peer.tcp()?;
    pair.peer.connect(other, port)?;
    see_all(s, "listener", sys::poll(&both, SOON_MS));
    pair.tell(b"data")?;
    see_all(s, "both", sys::poll(&both, SOON_MS));
    Ok(())
}

fn priority_of_urgent_data(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let other = pair.other;
    pair.peer.send_urgent(other, b"!")?;
    pair.peer.wait_acked(other)?;
    s.see_poll("all", sys::poll_one(pair.fd, ALL, SOON_MS));
    s.see("urgent", sys::recv(pair.fd, 1, libc::MSG_OOB));
    s.see_poll("all", sys::poll_one(pair.fd, ALL, 0));
    Ok(())
}

fn of_fresh_sockets(s: &mut Scene) -> Done {
    let fd = s.tcp()?;
    s.see_poll("tcp", sys::poll_one(fd, ALL, 0));
    sys::bind(fd, &s.local(0))?;
    s.see_poll("bound tcp", sys::poll_one(fd, ALL, 0));
    s.see_poll("udp", sys::poll_one(s.udp()?, ALL, 0));
    Ok(())
}

fn of_a_bound_udp_socket(s: &mut Scene) -> Done {
    let (fd, port) = s.udp_bound()?;
    s.see_poll("empty", sys::poll_one(fd, ALL, 0));
    let mut peer = s.peer()?;
    let (other, _) = peer.udp()?;
    peer.sendto(other, port, b"datagram")?;
    s.see_poll("readable", sys::poll_one(fd, POLLIN, SOON_MS));
    s.see_poll("all", sys::poll_one(fd, ALL, 0));
    sys::recv(fd, 100, 0)?;
    s.see_poll("empty", sys::poll_one(fd, ALL, 0));
    Ok(())
}
