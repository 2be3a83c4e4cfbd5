//! Listeners and datagrams in several threads.

use std::thread::{self};

use libc::{POLLIN, SHUT_RDWR};

use super::threads::{A_LITTLE, joined};
use crate::scene::{SOON_MS, Scene};
use crate::sys::{self};
use crate::table::{Done, checks};

checks! {
    alone "threads":
    WAYS [poll_in_many_threads, epoll_for_each_thread],
    BOTH [accept_in_two_threads, shutdown_wakes_accept, listener_for_each_thread],
    ONCE [datagrams_in_two_threads, connections_of_many_threads],
}

fn poll_in_many_threads(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let fd = pair.fd;
    let pollers = [(); 4].map(|()| thread::spawn(move || sys::poll_one(fd, POLLIN, SOON_MS)));
    thread::sleep(A_LITTLE);
    pair.tell(b"data")?;
    for poller in pollers {
        let seen = joined(poller);
        s.see_poll("a poller", seen);
    }
    Ok(())
}

fn epoll_for_each_thread(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let fd = pair.fd;
    let wait = move || {
        let epfd = sys::epoll_create(0)?;
        sys::epoll_add(epfd, fd, libc::EPOLLIN, 1)?;
        sys::epoll_wait(epfd, 8, SOON_MS)
    };
    let waiters = [thread::spawn(wait), thread::spawn(wait)];
    thread::sleep(A_LITTLE);
    pair.tell(b"data")?;
    for waiter in waiters {
        let seen = joined(waiter);
        s.see_epoll("a waiter", seen);
    }
    Ok(())
}

fn accept_in_two_threads(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let accept = move || sys::accept(listener).and_then(|fd| sys::write(fd, b"welcome"));
    let threads = [thread::spawn(accept), thread::spawn(accept)];
    let mut peer = s.peer()?;
    for _ in 0..2 {
        let other = peer.tcp()?;
        peer.connect(other, port)?;
        s.see("peer", peer.recv(other, 100));
    }
    for thread in threads {
        s.see("a thread", joined(thread));
    }
    Ok(())
}

fn shutdown_wakes_accept(s: &mut Scene) -> Done {
    let (listener, _) = s.listener()?;
    let acceptor = thread::spawn(move || sys::accept(listener));
    thread::sleep(A_LITTLE);
    s.see("shutdown", sys::shutdown(listener, SHUT_RDWR));
    s.see("accept", joined(acceptor));
    Ok(())
}

fn listener_for_each_thread(s: &mut Scene) -> Done {
    let share = |fd| sys::setsockopt_int(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1);
    let (first, port) = s.listener_with(16, share)?;
    let second = s.tcp()?;
    share(second)?;
    sys::bind(second, &s.local(port))?;
    sys::listen(second, 16)?;
    let serve = |listener: i32| {
        thread::spawn(move || {
            let epfd = sys::epoll_create(0)?;
            sys::epoll_add(epfd, listener, libc::EPOLLIN, 1)?;
            let mut served = 0;
            while !sys::epoll_wait(epfd, 8, 700)?.is_empty() {
                let fd = sys::accept(listener)?;
                sys::write(fd, b"served")?;
                sys::close(fd)?;
                served += 1;
            }
            Ok(served)
        })
    };
    let threads = [serve(first), serve(second)];
    thread::sleep(A_LITTLE);
    let mut peer = s.peer()?;
    for _ in 0..8 {
        let other = peer.tcp()?;
        peer.connect(other, port)?;
        s.see("peer", peer.recv(other, 100));
    }
    let served: i32 = threads.into_iter().map(|thread| joined(thread).unwrap_or(-99)).sum();
    s.see("served", served);
    Ok(())
}

fn datagrams_in_two_threads(s: &mut Scene) -> Done {
    let (fd, port) = s.udp_bound()?;
    let readers = [(); 2].map(|()| thread::spawn(move || sys::recv(fd, 100, 0)));
    thread::sleep(A_LITTLE);
    let mut peer = s.peer()?;
    let (other, _) = peer.udp()?;
    peer.sendto(other, port, b"one")?;
    peer.sendto(other, port, b"two")?;
    let mut seen = readers.map(|reader| joined(reader).unwrap_or_default());
    seen.sort();
    for octets in seen {
        s.see("a reader", octets);
    }
    Ok(())
}

fn connections_of_many_threads(s: &mut Scene) -> Done {
    let mut peer = s.peer()?;
    let (listener, port) = peer.tcp_listener(16)?;
    let (domain, name) = (s.domain(), s.remote(port));
    let connect = |index: u8| {
        let name = name.clone();
        thread::spawn(move || {
            let fd = sys::socket(domain, libc::SOCK_STREAM, 0)?;
            sys::connect(fd, &name)?;
            sys::write(fd, &[index])?;
            sys::read(fd, 1)
        })
    };
    let threads: Vec<_> = (0..6).map(connect).collect();
    for _ in 0..6 {
        let (other, _) = peer.accept(listener)?;
        let octets = peer.recv(other, 1)?;
        peer.send(other, &octets)?;
    }
    for thread in threads {
        s.see("a thread", joined(thread));
    }
    Ok(())
}
