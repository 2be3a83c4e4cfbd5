//! epoll_create(2) and epoll_ctl(2): what may be added, and what adding does.

use libc::{EPOLLET, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLRDHUP, EPOLLWAKEUP};

use crate::scene::{SOON_MS, Scene};
use crate::sys::{self};
use crate::table::{Done, checks};

checks! {
    "epoll.control":
    PAIRS [
        adds_once, changes_what_is_there, removes_once, keeps_data_of_64_bits, close_removes, dup_keeps,
        twins_are_two, adds_what_is_ready, change_tells_again,
    ],
    WAYS [
        in_two_epolls, descriptor_used_again, with_no_events, errors_come_unasked, removes_then_adds,
        data_of_a_change, dup2_over_it, events_of_a_deaf_one,
    ],
    ONCE [wakeup_flag, of_a_pipe],
}

fn adds_once(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let epfd = sys::epoll_create(0)?;
    s.see("add", sys::epoll_add(epfd, pair.fd, EPOLLIN, 1));
    s.see("again", sys::epoll_add(epfd, pair.fd, EPOLLOUT, 2));
    Ok(())
}

fn changes_what_is_there(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let epfd = sys::epoll_create(0)?;
    s.see("before", sys::epoll_mod(epfd, pair.fd, EPOLLIN, 1));
    sys::epoll_add(epfd, pair.fd, EPOLLIN, 1)?;
    s.see_epoll("readable", sys::epoll_wait(epfd, 8, 0));
    s.see("change", sys::epoll_mod(epfd, pair.fd, EPOLLOUT, 2));
    s.see_epoll("writable", sys::epoll_wait(epfd, 8, 0));
    Ok(())
}

fn removes_once(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let epfd = sys::epoll_create(0)?;
    s.see("before", sys::epoll_del(epfd, pair.fd));
    sys::epoll_add(epfd, pair.fd, EPOLLOUT, 1)?;
    s.see_epoll("there", sys::epoll_wait(epfd, 8, 0));
    s.see("remove", sys::epoll_del(epfd, pair.fd));
    s.see("again", sys::epoll_del(epfd, pair.fd));
    s.see_epoll("gone", sys::epoll_wait(epfd, 8, 0));
    Ok(())
}

fn removes_then_adds(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let epfd = sys::epoll_create(0)?;
    for data in 1..4 {
        s.see("add", sys::epoll_add(epfd, pair.fd, EPOLLOUT | EPOLLET, data));
        s.see_epoll("wait", sys::epoll_wait(epfd, 8, 0));
        s.see_epoll("wait", sys::epoll_wait(epfd, 8, 0));
        s.see("remove", sys::epoll_del(epfd, pair.fd));
    }
    Ok(())
}

fn keeps_data_of_64_bits(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let epfd = sys::epoll_create(0)?;
    sys::epoll_add(epfd, pair.fd, EPOLLOUT, 0xFEDC_BA98_7654_3210)?;
    s.see_epoll("wait", sys::epoll_wait(epfd, 8, 0));
    sys::epoll_mod(epfd, pair.fd, EPOLLOUT, u64::MAX)?;
    s.see_epoll("wait", sys::epoll_wait(epfd, 8, 0));
    Ok(())
}

fn data_of_a_change(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let epfd = sys::epoll_create(0)?;
    sys::epoll_add(epfd, pair.fd, EPOLLIN, 1)?;
    pair.tell(b"data")?;
    sys::epoll_mod(epfd, pair.fd, EPOLLIN | EPOLLOUT, 2)?;
    s.see_epoll("wait", sys::epoll_wait(epfd, 8, SOON_MS));
    Ok(())
}

fn close_removes(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let epfd = sys::epoll_create(0)?;
    sys::epoll_add(epfd, pair.fd, EPOLLOUT, 1)?;
    sys::close(pair.fd)?;
    s.see_epoll("wait", sys::epoll_wait(epfd, 8, 0));
    s.see("remove", sys::epoll_del(epfd, pair.fd));
    Ok(())
}

fn dup_keeps(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let epfd = sys::epoll_create(0)?;
    sys::epoll_add(epfd, pair.fd, EPOLLOUT, 1)?;
    let twin = sys::dup(pair.fd)?;
    sys::close(pair.fd)?;
    // What was added is the open file, which is still open: epoll(7), questions and answers.
    s.see_epoll("wait", sys::epoll_wait(epfd, 8, 0));
    s.see("remove", sys::epoll_del(epfd, pair.fd));
    s.see("remove the twin", sys::epoll_del(epfd, twin));
    sys::close(twin)?;
    s.see_epoll("wait", sys::epoll_wait(epfd, 8, 0));
    Ok(())
}

fn twins_are_two(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let epfd = sys::epoll_create(0)?;
    let twin = sys::dup(pair.fd)?;
    s.see("add", sys::epoll_add(epfd, pair.fd, EPOLLOUT, 1));
    s.see("add the twin", sys::epoll_add(epfd, twin, EPOLLOUT, 2));
    let mut seen = sys::epoll_wait(epfd, 8, 0)?;
    seen.sort_unstable();
    s.see_epoll("wait", Ok(seen));
    s.see("remove", sys::epoll_del(epfd, pair.fd));
    s.see_epoll("wait", sys::epoll_wait(epfd, 8, 0));
    Ok(())
}

fn adds_what_is_ready(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"data")?;
    for events in [EPOLLIN, EPOLLIN | EPOLLET, EPOLLIN | EPOLLONESHOT] {
        let epfd = sys::epoll_create(0)?;
        sys::epoll_add(epfd, pair.fd, events, 1)?;
        s.see_epoll("wait", sys::epoll_wait(epfd, 8, SOON_MS));
        s.see_epoll("again", sys::epoll_wait(epfd, 8, 0));
    }
    Ok(())
}

fn change_tells_again(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let epfd = sys::epoll_create(0)?;
    sys::epoll_add(epfd, pair.fd, EPOLLIN | EPOLLET, 1)?;
    pair.tell(b"data")?;
    s.see_epoll("wait", sys::epoll_wait(epfd, 8, SOON_MS));
    s.see_epoll("again", sys::epoll_wait(epfd, 8, 0));
    sys::epoll_mod(epfd, pair.fd, EPOLLIN | EPOLLET, 2)?;
    s.see_epoll("after the change", sys::epoll_wait(epfd, 8, 0));
    Ok(())
}

fn in_two_epolls(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let (one, two) = (sys::epoll_create(0)?, sys::epoll_create(0)?);
    sys::epoll_add(one, pair.fd, EPOLLIN, 1)?;
    sys::epoll_add(two, pair.fd, EPOLLIN | EPOLLET, 2)?;
    pair.tell(b"data")?;
    s.see_epoll("one", sys::epoll_wait(one, 8, SOON_MS));
    s.see_epoll("two", sys::epoll_wait(two, 8, SOON_MS));
    s.see_epoll("one again", sys::epoll_wait(one, 8, 0));
    s.see_epoll("two again", sys::epoll_wait(two, 8, 0));
    Ok(())
}

fn descriptor_used_again(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let epfd = sys::epoll_create(0)?;
    sys::epoll_add(epfd, pair.fd, EPOLLOUT, 1)?;
    sys::close(pair.fd)?;
    let [reader, writer] = sys::pipe(0)?;
    s.see("same number", reader == pair.fd);
    s.see_epoll("wait", sys::epoll_wait(epfd, 8, 0));
    s.see("add", sys::epoll_add(epfd, reader, EPOLLIN, 2));
    sys::write(writer, b"x")?;
    s.see_epoll("wait", sys::epoll_wait(epfd, 8, 0));
    Ok(())
}

fn dup2_over_it(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let epfd = sys::epoll_create(0)?;
    sys::epoll_add(epfd, pair.fd, EPOLLOUT, 1)?;
    let [reader, _writer] = sys::pipe(0)?;
    s.see("dup2", sys::dup2(reader, pair.fd) == Ok(pair.fd));
    s.see_epoll("wait", sys::epoll_wait(epfd, 8, 0));
    s.see("peer", pair.hear(10));
    Ok(())
}

fn with_no_events(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let epfd = sys::epoll_create(0)?;
    sys::epoll_add(epfd, pair.fd, 0, 1)?;
    pair.tell(b"data")?;
    s.see_epoll("with data", sys::epoll_wait(epfd, 8, 50));
    pair.peer_resets()?;
    s.see_epoll("reset", sys::epoll_wait(epfd, 8, SOON_MS));
    Ok(())
}

fn errors_come_unasked(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let epfd = sys::epoll_create(0)?;
    sys::epoll_add(epfd, pair.fd, EPOLLIN, 1)?;
    pair.peer_resets()?;
    s.see_epoll("reset", sys::epoll_wait(epfd, 8, SOON_MS));
    s.see("read", sys::read(pair.fd, 1));
    s.see_epoll("read", sys::epoll_wait(epfd, 8, 0));
    Ok(())
}

fn events_of_a_deaf_one(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let epfd = sys::epoll_create(0)?;
    sys::epoll_add(epfd, pair.fd, EPOLLRDHUP, 1)?;
    pair.tell(b"data")?;
    s.see_epoll("with data", sys::epoll_wait(epfd, 8, 50));
    pair.peer_ends()?;
    s.see_epoll("with the end", sys::epoll_wait(epfd, 8, SOON_MS));
    Ok(())
}

fn wakeup_flag(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let epfd = sys::epoll_create(0)?;
    s.see("add", sys::epoll_add(epfd, pair.fd, EPOLLOUT | EPOLLWAKEUP, 1));
    s.see_epoll("wait", sys::epoll_wait(epfd, 8, 0));
    Ok(())
}

fn of_a_pipe(s: &mut Scene) -> Done {
    let [reader, writer] = sys::pipe(0)?;
    let epfd = sys::epoll_create(0)?;
    s.see("add", sys::epoll_add(epfd, reader, EPOLLIN, 1));
    sys::write(writer, b"x")?;
    s.see_epoll("wait", sys::epoll_wait(epfd, 8, 0));
    sys::close(writer)?;
    sys::read(reader, 10)?;
    s.see_epoll("wait", sys::epoll_wait(epfd, 8, 0));
    Ok(())
}
