//! epoll_wait(2) by edge and once.

use libc::{EPOLLET, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLRDHUP};

use super::epoll_wait::{see, see_soon, watched};
use crate::scene::Scene;
use crate::sys::{self};
use crate::table::{Done, checks};

checks! {
    "epoll.wait":
    PAIRS [
        edge_tells_once, edge_tells_of_each_arrival, edge_after_a_part_is_read, one_shot, one_shot_again,
        own_shutdown,
    ],
    WAYS [
        edge_of_writable, edge_of_end_after_data, edge_with_both_wanted, edge_reads_until_eagain,
        edge_one_shot, drained_between_event_and_wait, edge_of_a_reset,
    ],
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

fn edge_of_end_after_data(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLIN | EPOLLRDHUP | EPOLLET)?;
    pair.tell(b"data")?;
    see_soon(s, "data", epfd);
    pair.peer_ends()?;
    see_soon(s, "end", epfd);
    see(s, "again", epfd);
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

fn edge_of_writable(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLOUT | EPOLLET)?;
    see(s, "at first", epfd);
    see(s, "again", epfd);
    s.see("write", sys::write(pair.fd, b"data"));
    s.see("peer", pair.hear(10));
    see(s, "written", epfd);
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

fn drained_between_event_and_wait(s: &mut Scene) -> Done {
    let (mut pair, epfd) = watched(s, EPOLLIN | EPOLLET)?;
    pair.tell(b"data")?;
    s.see("read", sys::read(pair.fd, 100));
    see(s, "wait", epfd);
    Ok(())
}
