//! epoll_wait(2): level, edge, one-shot, order, nesting, time, signals.

use std::time::{Duration, Instant};

use libc::{EPOLLET, EPOLLEXCLUSIVE, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLPRI, EPOLLRDHUP, POLLIN, SIGALRM};

use crate::scene::{Pair, SOON_MS, Scene};
use crate::sys::{self, Errno, WaitBy};
use crate::table::{Done, checks};

checks! {
    "epoll.wait":
    PAIRS [
        level_tells_until_read, edge_tells_once, edge_tells_of_each_arrival, edge_after_a_part_is_read, one_shot,
        one_shot_again, end_of_the_peer, end_without_asking_for_rdhup, reset, own_shutdown, writable_again,
        waits_for_data, times_out, nested,
    ],
    WAYS [
        edge_of_writable, edge_of_end_after_data, both_directions_in_one_event, order_of_arrival, one_at_a_time,
        more_than_fit, nested_edge, polled_itself, selected_itself, in_a_thread_that_waits, added_while_waiting,
        removed_while_waiting, changed_while_waiting, with_pipe_and_timer, by_pwait_with_a_mask, by_pwait2,
        is_interrupted, data_and_end_together, edge_with_both_wanted, urgent_data, edge_reads_until_eagain,
        edge_one_shot, drained_between_event_and_wait, edge_of_a_reset, level_of_writable_when_full,
    ],
    BOTH [listener, listener_by_edge, listener_exclusive, datagrams, datagrams_by_edge],
    ONCE [no_events_wanted, null_timeout_of_an_empty_one, after_fork, epoll_closed_while_waiting, two_threads_wait],
}

/// A pair in an epoll of its own, with data 1.
fn watched(s: &mut Scene, events: i32) -> Result<(Pair, i32), crate::table::Failure> {
    let pair = s.pair()?;
    let epfd = sys::epoll_create(0)?;
    sys::epoll_add(epfd, pair.fd, events, 1)?;
    Ok((pair, epfd))
}

fn see(s: &mut Scene, what: &str, epfd: i32) {
    s.see_epoll(what, sys::epoll_wait(epfd, 8, 30));
}

fn see_soon(s: &mut Scene, what: &str, epfd: i32) {
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

fn edge_tells_once(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLIN | EPOLLET)?;
    pair.tell(b"data")?;
    see_soon(s, "with data", epfd);
    see(s, "again", epfd);
    s.see("read", sys::read(pair.fd, 100));
    see(s, "read", epfd);
    Ok(())
}

fn edge_tells_of_each_arrival(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLIN | EPOLLET)?;
    pair.tell(b"one")?;
    see_soon(s, "first", epfd);
    // Nothing was read, and yet there is news.
    pair.tell(b"two")?;
    see_soon(s, "second", epfd);
    see(s, "again", epfd);
    s.see("read", sys::read(pair.fd, 100));
    Ok(())
}

fn edge_after_a_part_is_read(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLIN | EPOLLET)?;
    pair.tell(b"data")?;
    see_soon(s, "with data", epfd);
    sys::read(pair.fd, 2)?;
    see(s, "half read", epfd);
    pair.tell(b"more")?;
    see_soon(s, "with more", epfd);
    s.see("read", sys::read(pair.fd, 100));
    Ok(())
}

fn edge_reads_until_eagain(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLIN | EPOLLET)?;
    for _ in 0..3 {
        pair.tell(b"data")?;
        see_soon(s, "wait", epfd);
        while let Ok(octets) = sys::recv(pair.fd, 3, libc::MSG_DONTWAIT) {
            s.see("read", octets);
        }
        see(s, "again", epfd);
    }
    Ok(())
}

fn one_shot(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLIN | EPOLLONESHOT)?;
    pair.tell(b"one")?;
    see_soon(s, "first", epfd);
    see(s, "again", epfd);
    pair.tell(b"two")?;
    see(s, "with more", epfd);
    pair.peer_ends()?;
    see(s, "with the end", epfd);
    Ok(())
}

fn one_shot_again(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLIN | EPOLLONESHOT)?;
    pair.tell(b"data")?;
    see_soon(s, "first", epfd);
    sys::epoll_mod(epfd, pair.fd, EPOLLIN | EPOLLONESHOT, 2)?;
    see(s, "armed with data", epfd);
    sys::read(pair.fd, 100)?;
    sys::epoll_mod(epfd, pair.fd, EPOLLIN | EPOLLONESHOT, 3)?;
    see(s, "armed without", epfd);
    pair.tell(b"more")?;
    see_soon(s, "with more", epfd);
    Ok(())
}

fn edge_one_shot(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLIN | EPOLLET | EPOLLONESHOT)?;
    pair.tell(b"one")?;
    see_soon(s, "first", epfd);
    pair.tell(b"two")?;
    see(s, "more", epfd);
    sys::epoll_mod(epfd, pair.fd, EPOLLIN | EPOLLET | EPOLLONESHOT, 2)?;
    see(s, "armed", epfd);
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

fn edge_of_end_after_data(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLIN | EPOLLRDHUP | EPOLLET)?;
    pair.tell(b"data")?;
    see_soon(s, "data", epfd);
    pair.peer_ends()?;
    see_soon(s, "end", epfd);
    see(s, "again", epfd);
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

fn edge_of_a_reset(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLIN | EPOLLET)?;
    pair.peer_resets()?;
    see_soon(s, "reset", epfd);
    see(s, "again", epfd);
    Ok(())
}

fn own_shutdown(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLIN | EPOLLRDHUP | EPOLLET)?;
    sys::shutdown(pair.fd, libc::SHUT_WR)?;
    see(s, "of writing", epfd);
    sys::shutdown(pair.fd, libc::SHUT_RD)?;
    see(s, "of reading", epfd);
    pair.peer_ends()?;
    see_soon(s, "end", epfd);
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

fn edge_of_writable(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLOUT | EPOLLET)?;
    see(s, "at first", epfd);
    see(s, "again", epfd);
    s.see("write", sys::write(pair.fd, b"data"));
    s.see("peer", pair.hear(10));
    see(s, "written", epfd);
    Ok(())
}

fn both_directions_in_one_event(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLIN | EPOLLOUT)?;
    pair.tell(b"data")?;
    see_soon(s, "both", epfd);
    Ok(())
}

fn edge_with_both_wanted(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET)?;
    see(s, "at first", epfd);
    pair.tell(b"data")?;
    see_soon(s, "with data", epfd);
    sys::read(pair.fd, 100)?;
    see(s, "read", epfd);
    pair.peer_ends()?;
    see_soon(s, "with the end", epfd);
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

fn times_out(s: &mut Scene) -> Done {
    let (_pair, epfd) = watched(s, EPOLLIN)?;
    let start = Instant::now();
    s.see_epoll("wait", sys::epoll_wait(epfd, 8, 120));
    s.see_time("took", start, 120..800);
    let start = Instant::now();
    s.see_epoll("at once", sys::epoll_wait(epfd, 8, 0));
    s.see_time("took", start, 0..100);
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

fn nested(s: &mut Scene) -> Done {
    let (mut pair, inner) = watched(s, EPOLLIN)?;
    let outer = sys::epoll_create(0)?;
    sys::epoll_add(outer, inner, EPOLLIN, 2)?;
    see(s, "empty", outer);
    pair.tell(b"data")?;
    see_soon(s, "outer", outer);
    see(s, "outer again", outer);
    see_soon(s, "inner", inner);
    sys::read(pair.fd, 100)?;
    see(s, "outer when read", outer);
    Ok(())
}

fn nested_edge(s: &mut Scene) -> Done {
    let (mut pair, inner) = watched(s, EPOLLIN)?;
    let outer = sys::epoll_create(0)?;
    sys::epoll_add(outer, inner, EPOLLIN | EPOLLET, 2)?;
    pair.tell(b"data")?;
    see_soon(s, "outer", outer);
    see(s, "outer again", outer);
    pair.tell(b"more")?;
    see_soon(s, "outer with more", outer);
    Ok(())
}

fn polled_itself(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLIN)?;
    s.see_poll("empty", sys::poll_one(epfd, POLLIN, 30));
    pair.tell(b"data")?;
    s.see_poll("with data", sys::poll_one(epfd, POLLIN, SOON_MS));
    sys::read(pair.fd, 100)?;
    s.see_poll("read", sys::poll_one(epfd, POLLIN, 30));
    let other = pair.other;
    pair.peer.later(100).send(other, b"late")?;
    s.see_poll("waited for", sys::poll_one(epfd, POLLIN, SOON_MS));
    Ok(())
}

fn selected_itself(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLIN)?;
    let sets = sys::Sets { read: vec![epfd], ..sys::Sets::default() };
    let select = |ms| sys::select(sys::SelectBy::Select, epfd + 1, &sets, Some(Duration::from_millis(ms)));
    s.see("empty", select(30).map(|(ready, ..)| ready));
    pair.tell(b"data")?;
    s.see("with data", select(2000).map(|(ready, ..)| ready));
    Ok(())
}

/// What a thread sees that waits, while `action` is done 50 ms later.
fn while_waiting(s: &mut Scene, epfd: i32, action: impl FnOnce() -> Result<(), Errno>) -> Done {
    let waiting = std::thread::spawn(move || sys::epoll_wait(epfd, 8, 600));
    std::thread::sleep(Duration::from_millis(50));
    action()?;
    let seen = waiting.join().unwrap_or(Err(Errno(libc::EIO)));
    s.see_epoll("other thread", seen);
    Ok(())
}

fn in_a_thread_that_waits(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLIN)?;
    while_waiting(s, epfd, || pair.tell(b"data"))
}

fn added_while_waiting(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let epfd = sys::epoll_create(0)?;
    while_waiting(s, epfd, || sys::epoll_add(epfd, pair.fd, EPOLLOUT, 7))
}

fn removed_while_waiting(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLIN)?;
    let fd = pair.fd;
    while_waiting(s, epfd, || {
        sys::epoll_del(epfd, fd)?;
        pair.tell(b"data")
    })
}

fn changed_while_waiting(s: &mut Scene) -> Done {
    let (pair, epfd) = watched(s, EPOLLIN)?;
    while_waiting(s, epfd, || sys::epoll_mod(epfd, pair.fd, EPOLLIN | EPOLLOUT, 2))
}

fn epoll_closed_while_waiting(s: &mut Scene) -> Done {
    let (_pair, epfd) = watched(s, EPOLLIN)?;
    while_waiting(s, epfd, || sys::close(epfd))
}

fn two_threads_wait(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLIN | EPOLLET)?;
    let wait = || std::thread::spawn(move || sys::epoll_wait(epfd, 8, 300).map_or(0, |events| events.len()));
    let waiting = [wait(), wait()];
    std::thread::sleep(Duration::from_millis(50));
    pair.tell(b"data")?;
    let events: usize = waiting.into_iter().map(|thread| thread.join().unwrap_or(99)).sum();
    s.see("events in both", events);
    Ok(())
}

fn with_pipe_and_timer(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLIN)?;
    let [reader, writer] = sys::pipe(0)?;
    sys::epoll_add(epfd, reader, EPOLLIN, 2)?;
    let timer = sys::timerfd(Duration::from_millis(60))?;
    sys::epoll_add(epfd, timer, EPOLLIN, 3)?;
    see_soon(s, "timer", epfd);
    s.see("expirations", sys::read(timer, 8).map(|octets| octets[0]));
    sys::write(writer, b"x")?;
    see_soon(s, "pipe", epfd);
    pair.tell(b"data")?;
    sys::poll_one(pair.fd, POLLIN, SOON_MS)?;
    let mut both = sys::epoll_wait(epfd, 8, SOON_MS)?;
    both.sort_unstable_by_key(|event| event.1);
    s.see_epoll("both", Ok(both));
    Ok(())
}

fn by_pwait_with_a_mask(s: &mut Scene) -> Done {
    let (_pair, epfd) = watched(s, EPOLLIN)?;
    sys::handle(SIGALRM, 0)?;
    sys::mask_signals(libc::SIG_BLOCK, &[SIGALRM])?;
    sys::alarms(Duration::from_millis(50))?;
    let (open, closed) = (sys::signal_set(&[]), sys::signal_set(&[SIGALRM]));
    s.see_epoll("closed", sys::epoll_wait_by(WaitBy::Pwait(Some(&closed)), epfd, 8, 120));
    s.see("signals", sys::signals(SIGALRM));
    s.see_epoll("open", sys::epoll_wait_by(WaitBy::Pwait(Some(&open)), epfd, 8, SOON_MS));
    s.see("signals", sys::signals(SIGALRM));
    s.see_epoll("without a mask", sys::epoll_wait_by(WaitBy::Pwait(None), epfd, 8, 120));
    Ok(())
}

fn by_pwait2(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLIN)?;
    let start = Instant::now();
    s.see_epoll("wait", sys::epoll_wait_by(WaitBy::Pwait2(None), epfd, 8, 100));
    s.see_time("took", start, 100..800);
    let other = pair.other;
    pair.peer.later(50).send(other, b"data")?;
    s.see_epoll("without end", sys::epoll_wait_by(WaitBy::Pwait2(None), epfd, 8, -1));
    Ok(())
}

fn is_interrupted(s: &mut Scene) -> Done {
    let (_pair, epfd) = watched(s, EPOLLIN)?;
    sys::handle(SIGALRM, libc::SA_RESTART)?;
    sys::alarms(Duration::from_millis(60))?;
    s.see_epoll("wait", sys::epoll_wait(epfd, 8, SOON_MS));
    s.see_epoll("without end", sys::epoll_wait(epfd, 8, -1));
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

fn drained_between_event_and_wait(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLIN | EPOLLET)?;
    pair.tell(b"data")?;
    s.see("read", sys::read(pair.fd, 100));
    see(s, "wait", epfd);
    Ok(())
}

fn listener(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let epfd = sys::epoll_create(0)?;
    sys::epoll_add(epfd, listener, EPOLLIN, 1)?;
    see(s, "empty", epfd);
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    peer.connect_start(other, port)?;
    see_soon(s, "with a connection", epfd);
    see(s, "again", epfd);
    s.see("accept", sys::accept(listener).map(drop));
    see(s, "accepted", epfd);
    Ok(())
}

fn listener_by_edge(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let epfd = sys::epoll_create(0)?;
    sys::epoll_add(epfd, listener, EPOLLIN | EPOLLET, 1)?;
    let mut peer = s.peer()?;
    let first = peer.tcp()?;
    peer.connect(first, port)?;
    see_soon(s, "first", epfd);
    see(s, "again", epfd);
    let second = peer.tcp()?;
    peer.connect(second, port)?;
    see_soon(s, "second", epfd);
    s.see("accept", sys::accept(listener).map(drop));
    see(s, "one left", epfd);
    s.see("accept", sys::accept(listener).map(drop));
    Ok(())
}

fn listener_exclusive(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let epfds = [sys::epoll_create(0)?, sys::epoll_create(0)?];
    for epfd in epfds {
        sys::epoll_add(epfd, listener, EPOLLIN | EPOLLEXCLUSIVE, 1)?;
    }
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    peer.connect(other, port)?;
    // Nobody waited: exclusive only says who is woken.
    for epfd in epfds {
        see_soon(s, "wait", epfd);
    }
    s.see("accept", sys::accept(listener).map(drop));
    for epfd in epfds {
        see(s, "accepted", epfd);
    }
    Ok(())
}

fn datagrams(s: &mut Scene) -> Done {
    let (fd, port) = s.udp_bound()?;
    let epfd = sys::epoll_create(0)?;
    sys::epoll_add(epfd, fd, EPOLLIN, 1)?;
    let mut peer = s.peer()?;
    let (other, _) = peer.udp()?;
    peer.sendto(other, port, b"datagram")?;
    see_soon(s, "wait", epfd);
    see(s, "again", epfd);
    s.see("recv", sys::recv(fd, 100, 0));
    see(s, "read", epfd);
    Ok(())
}

fn datagrams_by_edge(s: &mut Scene) -> Done {
    let (fd, port) = s.udp_bound()?;
    let epfd = sys::epoll_create(0)?;
    sys::epoll_add(epfd, fd, EPOLLIN | EPOLLET, 1)?;
    let mut peer = s.peer()?;
    let (other, _) = peer.udp()?;
    peer.sendto(other, port, b"one")?;
    see_soon(s, "wait", epfd);
    see(s, "again", epfd);
    peer.sendto(other, port, b"two")?;
    see_soon(s, "another", epfd);
    s.see("recv", sys::recv(fd, 100, 0));
    see(s, "one left", epfd);
    s.see("recv", sys::recv(fd, 100, 0));
    Ok(())
}

fn no_events_wanted(s: &mut Scene) -> Done {
    let epfd = sys::epoll_create(0)?;
    s.see("max 0", sys::epoll_wait(epfd, 0, 0).map(drop));
    s.see("max -1", sys::epoll_wait(epfd, -1, 0).map(drop));
    Ok(())
}

fn null_timeout_of_an_empty_one(s: &mut Scene) -> Done {
    let epfd = sys::epoll_create(0)?;
    let start = Instant::now();
    s.see_epoll("wait", sys::epoll_wait(epfd, 8, 50));
    s.see_time("took", start, 50..500);
    Ok(())
}

fn after_fork(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let epfd = sys::epoll_create(0)?;
    sys::epoll_add(epfd, listener, EPOLLIN, 1)?;
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    peer.connect_start(other, port)?;
    let child = sys::fork_to(|| {
        see_soon(s, "child", epfd);
        s.see("accept", sys::accept(listener).map(drop));
        0
    })?;
    sys::wait_for(child)?;
    see(s, "parent", epfd);
    Ok(())
}
