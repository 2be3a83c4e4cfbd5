//! fork(2): listeners of several processes.

use libc::{MSG_DONTWAIT, O_NONBLOCK, POLLIN, SIGKILL};

use super::fork::{child, see_alive, see_end};
use crate::pair::Pair;
use crate::scene::{SOON_MS, Scene};
use crate::sys::{self};
use crate::table::{Done, checks};

checks! {
    alone "fork":
    BOTH [
        child_accepts, accept_then_fork, two_workers, parent_closes_the_listener, child_binds_for_itself,
        datagrams_by_the_child, worker_that_is_killed,
    ],
    ONCE [
        by_daemon, child_accepts_what_waited, connect_in_the_child, deep_family,
        listener_of_a_child_that_exits,
    ],
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
    let heard = peer.recv(other, 100);
    see_end(s, pid)?;
    s.see("peer", heard);
    Ok(())
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
