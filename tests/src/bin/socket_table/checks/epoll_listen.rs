//! epoll_wait(2) of listeners and datagrams, and of several kinds at once.

use std::time::{Duration, Instant};

use libc::{EPOLLET, EPOLLEXCLUSIVE, EPOLLIN, EPOLLOUT, POLLIN};

use super::epoll_wait::{see, see_soon, watched};
use crate::scene::{SOON_MS, Scene};
use crate::sys::{self};
use crate::table::{Done, checks};

checks! {
    alone "epoll.wait":
    WAYS [with_pipe_and_timer, same_data],
    BOTH [listener, listener_by_edge, listener_exclusive, datagrams, datagrams_by_edge],
    ONCE [no_events_wanted, null_timeout_of_an_empty_one, after_fork],
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

fn same_data(s: &mut Scene) -> Done {
    let (pair, epfd) = watched(s, EPOLLOUT)?;
    let [reader, writer] = sys::pipe(0)?;
    sys::epoll_add(epfd, reader, EPOLLIN, 1)?;
    see(s, "one is ready", epfd);
    sys::write(writer, b"x")?;
    // Whoever asks without a pause, need not be told of everything each time.
    std::thread::sleep(Duration::from_millis(1));
    let mut both = sys::epoll_wait(epfd, 8, SOON_MS)?;
    both.sort_unstable();
    s.see_epoll("both", Ok(both));
    sys::read(reader, 1)?;
    see(s, "one again", epfd);
    drop(pair);
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
