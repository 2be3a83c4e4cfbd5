//! epoll_wait(2): level, edge, one-shot, order, nesting, time, signals.

use std::time::Instant;

use libc::{EPOLLET, EPOLLIN, EPOLLOUT, EPOLLPRI, EPOLLRDHUP};

use crate::pair::Pair;
use crate::scene::{SOON_MS, Scene};
use crate::sys::{self};
use crate::table::{Done, checks};

checks! {
    "epoll.wait":
    PAIRS [
        level_tells_until_read, end_of_the_peer, end_without_asking_for_rdhup, reset, writable_again,
        waits_for_data,
    ],
    WAYS [
        both_directions_in_one_event, order_of_arrival, one_at_a_time, more_than_fit,
        data_and_end_together, urgent_data, level_of_writable_when_full,
    ],
}

/// A pair in an epoll of its own, with data 1.
pub(super) fn watched(s: &mut Scene, events: i32) -> Result<(Pair, i32), crate::table::Failure> {
    let pair = s.pair()?;
    let epfd = sys::epoll_create(0)?;
    sys::epoll_add(epfd, pair.fd, events, 1)?;
    Ok((pair, epfd))
}

pub(super) fn see(s: &mut Scene, what: &str, epfd: i32) {
    s.see_epoll(what, sys::epoll_wait(epfd, 8, 30));
}

pub(super) fn see_soon(s: &mut Scene, what: &str, epfd: i32) {
    s.see_epoll(what, sys::epoll_wait(epfd, 8, SOON_MS));
}

fn level_tells_until_read(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLIN)?;
    see(s, "empty", epfd);
    pair.tell(b"data")?;
    see_soon(s, "with data", epfd);
    see(s, "again", epfd);
    sys::read(pair.fd, 2)?;
    see(s, "half read", epfd);
    sys::read(pair.fd, 2)?;
    see(s, "read", epfd);
    Ok(())
}

fn end_of_the_peer(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLIN | EPOLLRDHUP)?;
    pair.peer_ends()?;
    see_soon(s, "end", epfd);
    s.see("read", sys::read(pair.fd, 1));
    see(s, "read", epfd);
    Ok(())
}

fn end_without_asking_for_rdhup(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLIN)?;
    pair.peer_ends()?;
    see_soon(s, "end", epfd);
    Ok(())
}

fn data_and_end_together(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLIN | EPOLLRDHUP)?;
    pair.tell(b"data")?;
    pair.peer_ends()?;
    see_soon(s, "both", epfd);
    s.see("read", sys::read(pair.fd, 100));
    see(s, "read", epfd);
    s.see("read", sys::read(pair.fd, 100));
    Ok(())
}

fn reset(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLIN | EPOLLOUT | EPOLLRDHUP)?;
    pair.peer_resets()?;
    see_soon(s, "reset", epfd);
    see(s, "again", epfd);
    s.see("read", sys::read(pair.fd, 1));
    see(s, "read", epfd);
    Ok(())
}

fn writable_again(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLOUT | EPOLLET)?;
    see(s, "at first", epfd);
    let sent = pair.fill()?;
    let _ = sys::epoll_wait(epfd, 8, 0)?; // What the filling has brought.
    see(s, "full", epfd);
    let other = pair.other;
    pair.peer.drain(other, sent)?;
    see_soon(s, "drained", epfd);
    s.see("send", sys::send(pair.fd, b"x", libc::MSG_DONTWAIT));
    Ok(())
}

fn level_of_writable_when_full(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLOUT)?;
    see(s, "at first", epfd);
    see(s, "again", epfd);
    let sent = pair.fill()?;
    see(s, "full", epfd);
    let other = pair.other;
    pair.peer.drain(other, sent)?;
    see_soon(s, "drained", epfd);
    Ok(())
}

fn both_directions_in_one_event(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLIN | EPOLLOUT)?;
    pair.tell(b"data")?;
    see_soon(s, "both", epfd);
    Ok(())
}

fn waits_for_data(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLIN)?;
    let other = pair.other;
    let start = Instant::now();
    pair.peer.later(150).send(other, b"late")?;
    see_soon(s, "wait", epfd);
    s.see_time("took", start, 100..1500);
    Ok(())
}

/// Three pairs in one epoll, with data 1, 2, 3.
fn three(s: &mut Scene, events: i32) -> Result<(Vec<Pair>, i32), crate::table::Failure> {
    let epfd = sys::epoll_create(0)?;
    let mut pairs = Vec::new();
    for data in 1..4 {
        let pair = s.pair()?;
        sys::epoll_add(epfd, pair.fd, events, data)?;
        pairs.push(pair);
    }
    Ok((pairs, epfd))
}

fn order_of_arrival(s: &mut Scene) -> Done {
    let (mut pairs, epfd) = three(s, EPOLLIN | EPOLLET)?;
    for index in [1, 2, 0] {
        pairs[index].tell(b"data")?;
    }
    see_soon(s, "wait", epfd);
    Ok(())
}

fn one_at_a_time(s: &mut Scene) -> Done {
    let (mut pairs, epfd) = three(s, EPOLLIN)?;
    for pair in &mut pairs {
        pair.tell(b"data")?;
    }
    // Level-triggered ones take turns.
    for _ in 0..6 {
        s.see_epoll("wait", sys::epoll_wait(epfd, 1, SOON_MS));
    }
    Ok(())
}

fn more_than_fit(s: &mut Scene) -> Done {
    let (mut pairs, epfd) = three(s, EPOLLIN | EPOLLET)?;
    for pair in &mut pairs {
        pair.tell(b"data")?;
    }
    s.see_epoll("two", sys::epoll_wait(epfd, 2, SOON_MS));
    s.see_epoll("rest", sys::epoll_wait(epfd, 2, SOON_MS));
    s.see_epoll("none", sys::epoll_wait(epfd, 2, 0));
    Ok(())
}

fn urgent_data(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLIN | EPOLLPRI)?;
    let other = pair.other;
    pair.peer.send_urgent(other, b"!")?;
    pair.peer.wait_acked(other)?;
    see_soon(s, "wait", epfd);
    Ok(())
}
