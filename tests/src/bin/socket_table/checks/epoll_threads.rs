//! epoll_wait(2) in threads, nested, polled, with signals and time limits.

use std::time::{Duration, Instant};

use libc::{EPOLLET, EPOLLIN, EPOLLOUT, POLLIN, SIGALRM};

use super::epoll_wait::{see, see_soon, watched};
use crate::scene::{SOON_MS, Scene};
use crate::sys::{self, Errno, WaitBy};
use crate::table::{Done, checks};

checks! {
    alone "epoll.wait":
    PAIRS [times_out, nested],
    WAYS [
        nested_edge, polled_itself, selected_itself, in_a_thread_that_waits, added_while_waiting,
        removed_while_waiting, changed_while_waiting, by_pwait_with_a_mask, by_pwait2, is_interrupted,
    ],
    ONCE [epoll_closed_while_waiting, two_threads_wait],
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
