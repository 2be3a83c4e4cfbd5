//! fork(2): connections and listeners of two processes.

use std::time::Duration;

use libc::{MSG_DONTWAIT, O_NONBLOCK, POLLIN, SIGKILL};

use crate::scene::{Pair, SOON_MS, Scene};
use crate::show::file_names;
use crate::sys::{self, End, Errno, Result};
use crate::table::{Done, checks};

checks! {
    "fork":
    PAIRS [
        child_uses_the_connection, both_read, end_only_when_both_closed, child_that_exits_leaves_it,
        child_that_is_killed_leaves_it, child_closes_and_parent_goes_on, parent_closes_and_child_goes_on,
        unread_data_go_to_the_child,
    ],
    WAYS [
        shutdown_by_the_child, flags_are_shared, snapshot_child, grandchild, options_are_shared, parent_ends_first,
        half_read_message, unsent_data_of_the_parent, child_polls, child_sees_names,
    ],
    BOTH [
        child_accepts, accept_then_fork, two_workers, parent_closes_the_listener, child_binds_for_itself,
        datagrams_by_the_child, worker_that_is_killed,
    ],
    ONCE [
        by_daemon, child_accepts_what_waited, thread_in_the_parent, connect_in_the_child, deep_family,
        listener_of_a_child_that_exits, epoll_made_by_the_parent,
    ],
}

/// Runs `action` in a child; 0 if it went well, else its errno.
fn child(action: impl FnOnce() -> Result<()>) -> Result<libc::pid_t> {
    sys::fork_to(|| action().map_or_else(|errno| errno.0, |()| 0))
}

fn see_end(s: &mut Scene, pid: libc::pid_t) -> Done {
    let end = match sys::wait_for(pid)? {
        End::Exited(0) => "well".to_owned(),
        End::Exited(errno) => Errno(errno).to_string(),
        End::Signalled(signal) => format!("signal {signal}"),
    };
    s.see("child ended", end);
    Ok(())
}

fn see_alive(s: &mut Scene, pair: &mut Pair) -> Done {
    s.see("write", sys::write(pair.fd, b"parent"));
    s.see("peer", pair.hear(100));
    pair.tell(b"to the parent")?;
    s.see("read", sys::read(pair.fd, 100));
    Ok(())
}

fn child_uses_the_connection(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"question")?;
    let fd = pair.fd;
    let pid = child(|| {
        s.see("read", sys::read(fd, 100));
        s.see("write", sys::write(fd, b"answer"));
        Ok(())
    })?;
    see_end(s, pid)?;
    s.see("peer", pair.hear(100));
    see_alive(s, &mut pair)
}

fn both_read(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"abcdef")?;
    let fd = pair.fd;
    let pid = child(|| {
        s.see("child", sys::read(fd, 3));
        Ok(())
    })?;
    see_end(s, pid)?;
    s.see("parent", sys::read(pair.fd, 100));
    Ok(())
}

fn end_only_when_both_closed(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let fd = pair.fd;
    let [reader, writer] = sys::pipe(0)?;
    let pid = child(|| {
        sys::close(writer)?;
        sys::read(reader, 1)?;
        sys::close(fd)
    })?;
    s.see("close", sys::close(pair.fd));
    let other = pair.other;
    s.see("peer", pair.peer.recv_within(other, 10, 100));
    sys::close(writer)?;
    see_end(s, pid)?;
    s.see("peer", pair.hear(10));
    Ok(())
}

fn child_that_exits_leaves_it(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let pid = sys::fork_to(|| sys::exit(0))?;
    see_end(s, pid)?;
    see_alive(s, &mut pair)
}

fn child_that_is_killed_leaves_it(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let pid = child(|| {
        std::thread::sleep(Duration::from_secs(4));
        Ok(())
    })?;
    sys::kill(pid, SIGKILL)?;
    see_end(s, pid)?;
    see_alive(s, &mut pair)
}

fn child_closes_and_parent_goes_on(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let fd = pair.fd;
    let pid = child(|| sys::close(fd))?;
    see_end(s, pid)?;
    see_alive(s, &mut pair)
}

fn parent_closes_and_child_goes_on(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let fd = pair.fd;
    let pid = child(|| {
        sys::poll_one(fd, POLLIN, SOON_MS)?;
        s.see("child", sys::read(fd, 100));
        sys::write(fd, b"from the child").map(drop)
    })?;
    sys::close(pair.fd)?;
    // Its acknowledgement comes from whoever has it now.
    pair.tell(b"to the child")?;
    s.see("peer", pair.hear(100));
    see_end(s, pid)?;
    s.see("peer", pair.hear(100));
    Ok(())
}

fn unread_data_go_to_the_child(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"first, ")?;
    pair.tell(b"second")?;
    s.see("parent", sys::recv(pair.fd, 3, 0));
    let fd = pair.fd;
    let pid = child(|| {
        s.see("child", sys::read(fd, 100));
        Ok(())
    })?;
    see_end(s, pid)?;
    s.see("parent", sys::recv(pair.fd, 100, MSG_DONTWAIT));
    Ok(())
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

fn deep_family(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let pid = child(|| {
        let inner = child(|| {
            sys::poll_one(listener, POLLIN, SOON_MS)?;
            let fd = sys::accept(listener)?;
            sys::write(fd, b"from below").map(drop)
        })?;
        sys::wait_for(inner).map(drop)
    })?;
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    s.see("connect", peer.connect(other, port));
    s.see("peer", peer.recv(other, 100));
    see_end(s, pid)
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

fn half_read_message(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let fd = pair.fd;
    let other = pair.other;
    let pid = child(|| {
        let octets = sys::recv(fd, 8, libc::MSG_WAITALL)?;
        sys::write(fd, &octets).map(drop)
    })?;
    for piece in [b"half".as_slice(), b"more"] {
        pair.peer.send(other, piece)?;
    }
    s.see("peer", pair.hear(100));
    see_end(s, pid)
}

fn unsent_data_of_the_parent(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let sent = pair.fill()?;
    let pid = sys::fork_to(|| sys::exit(0))?;
    see_end(s, pid)?;
    let other = pair.other;
    s.see("peer got all", pair.peer.recv_pattern(other, sent)? == (sent, true));
    see_alive(s, &mut pair)
}

fn child_polls(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let fd = pair.fd;
    let pid = child(|| {
        s.see_poll("child", sys::poll_one(fd, POLLIN, SOON_MS));
        s.see("read", sys::read(fd, 100));
        Ok(())
    })?;
    std::thread::sleep(Duration::from_millis(50));
    pair.tell(b"data")?;
    see_end(s, pid)
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

fn child_accepts(s: &mut Scene) -> Done {
    // As servers with workers do: nothing but listening happens before the fork.
    let listener = s.tcp()?;
    sys::bind(listener, &s.local(0))?;
    sys::listen(listener, 16)?;
    let port = crate::scene::port_of(listener)?;
    let [reader, writer] = sys::pipe(0)?;
    let pid = child(|| {
        s.settle(listener)?;
        sys::write(writer, b"x")?;
        sys::poll_one(listener, POLLIN, SOON_MS)?;
        let fd = sys::accept(listener)?;
        s.say_where(fd);
        s.see("read", sys::read(fd, 100));
        s.see("write", sys::write(fd, b"from a worker"));
        sys::close(fd)
    })?;
    sys::read(reader, 1)?;
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    s.see("connect", peer.connect(other, port));
    peer.send(other, b"hello")?;
    s.see("peer", peer.recv(other, 100));
    see_end(s, pid)
}

fn accept_then_fork(s: &mut Scene) -> Done {
    // As servers with a process for each connection do.
    let (listener, port) = s.listener()?;
    for _ in 0..2 {
        let mut pair = s.accept_from_peer(listener, port)?;
        let fd = pair.fd;
        let pid = child(|| {
            sys::close(listener)?;
            let octets = sys::read(fd, 100)?;
            sys::write(fd, &octets)?;
            sys::close(fd)
        })?;
        sys::close(pair.fd)?;
        let other = pair.other;
        pair.peer.send(other, b"echo this")?;
        s.see("peer", pair.hear(100));
        s.see("peer", pair.hear(100));
        see_end(s, pid)?;
    }
    Ok(())
}

fn two_workers(s: &mut Scene) -> Done {
    let listener = s.tcp()?;
    sys::bind(listener, &s.local(0))?;
    sys::listen(listener, 16)?;
    sys::fcntl(listener, libc::F_SETFL, O_NONBLOCK.into())?;
    let port = crate::scene::port_of(listener)?;
    let [reader, writer] = sys::pipe(0)?;
    let worker = || {
        s.settle(listener)?;
        sys::write(writer, b"x")?;
        loop {
            sys::poll_one(listener, POLLIN, SOON_MS)?;
            if let Ok(fd) = sys::accept(listener) {
                sys::fcntl(fd, libc::F_SETFL, 0)?;
                let octets = sys::read(fd, 100)?;
                sys::write(fd, &octets)?;
                sys::close(fd)?;
            }
        }
    };
    let pids = [child(worker)?, child(worker)?];
    sys::read(reader, 1)?;
    sys::read(reader, 1)?;
    let mut peer = s.peer()?;
    let mut served = 0;
    for _ in 0..10 {
        let other = peer.tcp()?;
        peer.connect(other, port)?;
        peer.send(other, b"work")?;
        served += usize::from(peer.recv(other, 100)? == b"work");
    }
    s.see("served", served);
    for pid in pids {
        sys::kill(pid, SIGKILL)?;
        see_end(s, pid)?;
    }
    Ok(())
}

fn worker_that_is_killed(s: &mut Scene) -> Done {
    let listener = s.tcp()?;
    sys::bind(listener, &s.local(0))?;
    sys::listen(listener, 16)?;
    let port = crate::scene::port_of(listener)?;
    let mut peer = s.peer()?;
    for _ in 0..2 {
        let [reader, writer] = sys::pipe(0)?;
        let pid = child(|| {
            s.settle(listener)?;
            sys::write(writer, b"x")?;
            loop {
                let fd = sys::accept(listener)?;
                sys::write(fd, b"served")?;
                sys::close(fd)?;
            }
        })?;
        sys::read(reader, 1)?;
        let other = peer.tcp()?;
        s.see("connect", peer.connect(other, port));
        s.see("peer", peer.recv(other, 100));
        sys::kill(pid, SIGKILL)?;
        see_end(s, pid)?;
    }
    // Nobody accepts now, but the listener is still there.
    let other = peer.tcp()?;
    s.see("connect", peer.connect(other, port));
    s.see("accept", sys::accept(listener).map(drop));
    Ok(())
}

fn parent_closes_the_listener(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let [reader, writer] = sys::pipe(0)?;
    let pid = child(|| {
        s.settle(listener)?;
        sys::write(writer, b"x")?;
        let fd = sys::accept(listener)?;
        sys::write(fd, b"child").map(drop)
    })?;
    sys::read(reader, 1)?;
    sys::close(listener)?;
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    s.see("connect", peer.connect(other, port));
    s.see("peer", peer.recv(other, 100));
    see_end(s, pid)?;
    let other = peer.tcp()?;
    s.see("connect", peer.connect(other, port));
    Ok(())
}

fn listener_of_a_child_that_exits(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let pid = child(|| {
        s.settle(listener)?;
        sys::close(listener)
    })?;
    see_end(s, pid)?;
    let mut pair = s.accept_from_peer(listener, port)?;
    pair.tell(b"data")?;
    s.see("read", sys::read(pair.fd, 100));
    Ok(())
}

fn child_binds_for_itself(s: &mut Scene) -> Done {
    let [reader, writer] = sys::pipe(0)?;
    let pid = child(|| {
        let (listener, port) = s.listener()?;
        sys::write(writer, &port.to_ne_bytes())?;
        let fd = sys::accept(listener)?;
        s.say_where(fd);
        sys::write(fd, b"child").map(drop)
    })?;
    let port = sys::read(reader, 2)?;
    let port = u16::from_ne_bytes([port[0], port[1]]);
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    s.see("connect", peer.connect(other, port));
    s.see("peer", peer.recv(other, 100));
    see_end(s, pid)
}

fn datagrams_by_the_child(s: &mut Scene) -> Done {
    let (fd, port) = s.udp_bound()?;
    let pid = child(|| {
        sys::poll_one(fd, POLLIN, SOON_MS)?;
        let (octets, name) = sys::recvfrom(fd, 100, 0, sys::FULL)?;
        sys::sendto(fd, &octets, 0, &name.octets).map(drop)
    })?;
    let mut peer = s.peer()?;
    let (other, _) = peer.udp()?;
    peer.sendto(other, port, b"datagram")?;
    s.see("peer", peer.recv(other, 100));
    see_end(s, pid)?;
    peer.sendto(other, port, b"another")?;
    s.see_poll("parent", sys::poll_one(fd, POLLIN, SOON_MS));
    s.see("read", sys::recv(fd, 100, MSG_DONTWAIT));
    Ok(())
}

fn by_daemon(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let pid = child(|| {
        sys::daemon()?;
        let fd = sys::accept(listener)?;
        sys::write(fd, b"daemon").map(drop)
    })?;
    see_end(s, pid)?;
    sys::close(listener)?;
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    s.see("connect", peer.connect(other, port));
    s.see("peer", peer.recv(other, 100));
    Ok(())
}

fn child_accepts_what_waited(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    peer.connect(other, port)?;
    peer.send(other, b"early")?;
    peer.wait_acked(other)?;
    let pid = child(|| {
        sys::poll_one(listener, POLLIN, SOON_MS)?;
        let fd = sys::accept(listener)?;
        s.see("read", sys::read(fd, 100));
        sys::write(fd, b"child").map(drop)
    })?;
    s.see("peer", peer.recv(other, 100));
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

fn connect_in_the_child(s: &mut Scene) -> Done {
    let mut peer = s.peer()?;
    let (listener, port) = peer.tcp_listener(4)?;
    let fd = s.tcp()?;
    let name = s.remote(port);
    let pid = child(|| sys::connect(fd, &name))?;
    see_end(s, pid)?;
    let (other, _) = peer.accept(listener)?;
    let mut pair = Pair { fd, peer, other };
    see_alive(s, &mut pair)
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
