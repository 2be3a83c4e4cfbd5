//! fork(2): what two processes share, and what ends with one of them.

use std::time::Duration;

use libc::O_NONBLOCK;

use super::fork::{child, see_alive, see_end};
use crate::pair::Pair;
use crate::scene::{SOON_MS, Scene};
use crate::show::file_names;
use crate::sys::{self, Errno, Result};
use crate::table::{Done, checks};

checks! {
    alone "fork":
    WAYS [
        shutdown_by_the_child, flags_are_shared, snapshot_child, grandchild, options_are_shared,
        parent_ends_first, child_sees_names,
    ],
    ONCE [thread_in_the_parent, epoll_made_by_the_parent, epoll_that_the_parent_watches_no_more, epoll_that_has_told_the_parent_once, epoll_used_late_by_the_child, epoll_of_the_parent_within_another, epoll_when_the_number_is_another_file],
}

fn shutdown_by_the_child(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let fd = pair.fd;
    let pid = child(|| sys::shutdown(fd, libc::SHUT_WR))?;
    see_end(s, pid)?;
    s.see("peer", pair.hear(10));
    s.see("write", sys::send(pair.fd, b"x", libc::MSG_NOSIGNAL));
    Ok(())
}

fn flags_are_shared(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let fd = pair.fd;
    let pid = child(|| {
        sys::fcntl(fd, libc::F_SETFL, O_NONBLOCK.into())?;
        sys::fcntl(fd, libc::F_SETFD, 1).map(drop)
    })?;
    see_end(s, pid)?;
    s.see("of the open file", sys::fcntl(pair.fd, libc::F_GETFL, 0).map(file_names));
    s.see("of the descriptor", sys::fcntl(pair.fd, libc::F_GETFD, 0));
    Ok(())
}

fn snapshot_child(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let [reader, writer] = sys::pipe(0)?;
    // The child does not touch the connection, as one that writes a snapshot; the parent serves on meanwhile.
    let pid = child(|| {
        sys::close(writer)?;
        sys::read(reader, 1).map(drop)
    })?;
    for _ in 0..3 {
        see_alive(s, &mut pair)?;
    }
    sys::close(writer)?;
    see_end(s, pid)?;
    see_alive(s, &mut pair)
}

fn grandchild(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let fd = pair.fd;
    let pid = child(|| {
        let grandchild = child(|| sys::write(fd, b"grandchild").map(drop))?;
        sys::wait_for(grandchild).map(drop)
    })?;
    see_end(s, pid)?;
    s.see("peer", pair.hear(100));
    see_alive(s, &mut pair)
}

fn options_are_shared(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let fd = pair.fd;
    let pid = child(|| sys::setsockopt_int(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1))?;
    see_end(s, pid)?;
    s.see("TCP_NODELAY", sys::getsockopt_int(pair.fd, libc::IPPROTO_TCP, libc::TCP_NODELAY));
    Ok(())
}

fn parent_ends_first(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let fd = pair.fd;
    // The one in the middle ends at once, its child goes on with the connection.
    let pid = child(|| {
        child(|| {
            std::thread::sleep(Duration::from_millis(100));
            sys::write(fd, b"orphan").map(drop)
        })
        .map(drop)
    })?;
    see_end(s, pid)?;
    sys::close(pair.fd)?;
    s.see("peer", pair.hear(100));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn child_sees_names(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let fd = pair.fd;
    let pid = child(|| {
        s.see("own", sys::getsockname(fd, sys::FULL).map(|name| s.whose(name.address())));
        s.see("peer's", sys::getpeername(fd, sys::FULL).map(|name| s.whose(name.address())));
        Ok(())
    })?;
    see_end(s, pid)
}

fn thread_in_the_parent(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let fd = pair.fd;
    let reader = std::thread::spawn(move || sys::read(fd, 100));
    std::thread::sleep(Duration::from_millis(50));
    let pid = sys::fork_to(|| 0)?;
    see_end(s, pid)?;
    pair.tell(b"to the thread")?;
    s.see("thread", reader.join().unwrap_or(Err(Errno(libc::EIO))));
    Ok(())
}

/// A child uses the connection, and nothing of the parent's instance.
fn read_in_child(
    s: &mut Scene,
    pair: &mut Pair,
    epfd: i32,
    meanwhile: impl FnOnce(&Pair) -> Result<()>,
) -> Done {
    let [reader, writer] = sys::pipe(0)?;
    let fd = pair.fd;
    let pid = child(|| {
        sys::close(writer)?;
        sys::read(reader, 1)?;
        s.see("child", sys::read(fd, 3));
        Ok(())
    })?;
    meanwhile(pair)?;
    pair.tell(b"abcdef")?;
    sys::close(writer)?;
    see_end(s, pid)?;
    s.see_epoll("parent", sys::epoll_wait(epfd, 8, 100));
    Ok(())
}

fn epoll_that_the_parent_watches_no_more(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let epfd = sys::epoll_create(0)?;
    sys::epoll_add(epfd, pair.fd, libc::EPOLLIN, 1)?;
    read_in_child(s, &mut pair, epfd, |pair| sys::epoll_del(epfd, pair.fd))
}

fn epoll_that_has_told_the_parent_once(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let epfd = sys::epoll_create(0)?;
    sys::epoll_add(epfd, pair.fd, libc::EPOLLIN | libc::EPOLLONESHOT, 1)?;
    let mut told = None;
    read_in_child(s, &mut pair, epfd, |pair| {
        sys::epoll_mod(epfd, pair.fd, libc::EPOLLOUT | libc::EPOLLONESHOT, 2)?;
        told = Some(sys::epoll_wait(epfd, 8, SOON_MS));
        Ok(())
    })?;
    told.into_iter().for_each(|told| s.see_epoll("before", told));
    Ok(())
}

/// A child has used the connection, which its parent's instance watches, and goes on with both: the instance, and the connection's number.
fn after_use_in_child(s: &mut Scene, go_on: impl FnOnce(&mut Scene, i32, i32) -> Result<()>) -> Done {
    let mut pair = s.pair()?;
    let epfd = sys::epoll_create(0)?;
    sys::epoll_add(epfd, pair.fd, libc::EPOLLIN, 1)?;
    pair.tell(b"abcdef")?;
    let pid = child(|| {
        s.see("child", sys::read(pair.fd, 3));
        go_on(s, epfd, pair.fd)
    })?;
    see_end(s, pid)
}

fn epoll_used_late_by_the_child(s: &mut Scene) -> Done {
    after_use_in_child(s, |s, epfd, _| {
        s.see_epoll("child", sys::epoll_wait(epfd, 8, SOON_MS));
        Ok(())
    })
}

fn epoll_of_the_parent_within_another(s: &mut Scene) -> Done {
    after_use_in_child(s, |s, epfd, _| {
        let outer = sys::epoll_create(0)?;
        sys::epoll_add(outer, epfd, libc::EPOLLIN, 2)?;
        s.see_epoll("outer", sys::epoll_wait(outer, 8, SOON_MS));
        s.see_epoll("inner", sys::epoll_wait(epfd, 8, SOON_MS));
        Ok(())
    })
}

/// What the child opens at the number of the connection is not watched, and can be.
fn epoll_when_the_number_is_another_file(s: &mut Scene) -> Done {
    after_use_in_child(s, |s, epfd, fd| {
        sys::read(fd, 3)?;
        let [reader, writer] = sys::pipe(0)?;
        sys::write(writer, b"x")?;
        sys::dup2(reader, fd)?;
        s.see("add", sys::epoll_add(epfd, fd, libc::EPOLLIN, 2));
        s.see_epoll("child", sys::epoll_wait(epfd, 8, SOON_MS));
        Ok(())
    })
}

fn epoll_made_by_the_parent(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let epfd = sys::epoll_create(0)?;
    sys::epoll_add(epfd, pair.fd, libc::EPOLLIN, 1)?;
    let pid = child(|| {
        s.see_epoll("child", sys::epoll_wait(epfd, 8, SOON_MS));
        Ok(())
    })?;
    pair.tell(b"data")?;
    see_end(s, pid)?;
    s.see_epoll("parent", sys::epoll_wait(epfd, 8, SOON_MS));
    Ok(())
}
