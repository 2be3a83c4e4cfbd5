//! One socket in several threads.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use libc::{MSG_DONTWAIT, POLLIN, POLLOUT, SHUT_RD, SHUT_RDWR, SO_RCVTIMEO};

use crate::scene::{SOON_MS, Scene};
use crate::show::pattern;
use crate::sys::{self, Errno, Result};
use crate::table::{Done, checks};

checks! {
    "threads":
    PAIRS [reader_and_writer, shutdown_wakes_the_reader, peer_reset_wakes_the_reader],
    WAYS [
        shutdown_wakes_poll, close_does_not_wake_the_reader, data_for_one_of_two_readers, many_writers,
        writer_waits_while_reader_reads, timeout_in_each_thread, errno_in_each_thread, shutdown_wakes_the_writer,
        poll_in_many_threads, epoll_for_each_thread, option_set_by_another, dup_in_another, thread_ends_and_it_stays,
    ],
    BOTH [accept_in_two_threads, shutdown_wakes_accept, listener_for_each_thread],
    ONCE [datagrams_in_two_threads, connections_of_many_threads],
}

const A_LITTLE: Duration = Duration::from_millis(60);

fn joined<T>(thread: JoinHandle<Result<T>>) -> Result<T> {
    thread.join().unwrap_or(Err(Errno(libc::EIO)))
}

fn reader_and_writer(s: &mut Scene) -> Done {
    const LEN: usize = 300_000;
    let mut pair = s.pair()?;
    let (fd, other) = (pair.fd, pair.other);
    pair.peer.later(1).send_pattern(other, LEN)?;
    let hearing = pair.hear_meanwhile(LEN);
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        while all.len() < LEN {
            all.extend(sys::read(fd, 10_000)?);
        }
        Ok(all)
    });
    let writer = thread::spawn(move || {
        let octets = pattern(LEN);
        octets.chunks(7000).try_for_each(|piece| sys::write(fd, piece).map(drop))
    });
    s.see("writer", joined(writer));
    s.see("reader", joined(reader));
    s.see("peer", hearing.wait());
    Ok(())
}

fn shutdown_wakes_the_reader(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let fd = pair.fd;
    let reader = thread::spawn(move || sys::read(fd, 10));
    thread::sleep(A_LITTLE);
    s.see("shutdown", sys::shutdown(fd, SHUT_RD));
    s.see("reader", joined(reader));
    Ok(())
}

fn peer_reset_wakes_the_reader(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let fd = pair.fd;
    let reader = thread::spawn(move || sys::read(fd, 10));
    thread::sleep(A_LITTLE);
    let other = pair.other;
    pair.peer.reset(other)?;
    s.see("reader", joined(reader));
    Ok(())
}

fn shutdown_wakes_poll(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let fd = pair.fd;
    let poller = thread::spawn(move || sys::poll_one(fd, POLLIN | libc::POLLRDHUP, SOON_MS));
    thread::sleep(A_LITTLE);
    s.see("shutdown", sys::shutdown(fd, SHUT_RDWR));
    let seen = joined(poller);
    s.see_poll("poll", seen);
    Ok(())
}

fn shutdown_wakes_the_writer(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let fd = pair.fd;
    pair.fill()?;
    let writer = thread::spawn(move || sys::send(fd, b"x", libc::MSG_NOSIGNAL));
    thread::sleep(A_LITTLE);
    s.see("shutdown", sys::shutdown(fd, SHUT_RDWR));
    s.see("writer", joined(writer));
    Ok(())
}

fn close_does_not_wake_the_reader(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let fd = pair.fd;
    let start = Instant::now();
    let reader = thread::spawn(move || sys::read(fd, 10));
    thread::sleep(A_LITTLE);
    s.see("close", sys::close(fd));
    let other = pair.other;
    // The call under way holds the connection.
    s.see("peer", pair.peer.recv_within(other, 10, 100));
    pair.peer.send(other, b"late")?;
    s.see("reader", joined(reader));
    s.see_time("took", start, 100..2000);
    s.see("read", sys::read(fd, 10));
    Ok(())
}

fn data_for_one_of_two_readers(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let fd = pair.fd;
    let readers = [(); 2].map(|()| thread::spawn(move || sys::read(fd, 10)));
    thread::sleep(A_LITTLE);
    pair.tell(b"one")?;
    thread::sleep(A_LITTLE);
    pair.tell(b"two")?;
    let mut seen = readers.map(|reader| joined(reader).unwrap_or_default());
    seen.sort();
    for octets in seen {
        s.see("a reader", octets);
    }
    Ok(())
}

fn many_writers(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let fd = pair.fd;
    let writer = |octet: u8| thread::spawn(move || sys::write(fd, &[octet; 100]));
    let sent: usize =
        (0..8).map(writer).collect::<Vec<_>>().into_iter().map(|w| joined(w).unwrap_or(0)).sum();
    s.see("sent", sent);
    let mut all = Vec::new();
    while all.len() < 800 {
        all.extend(pair.hear(1000)?);
    }
    // Each write is in one piece, whatever their order.
    s.see("in one piece", all.chunks(100).all(|piece| piece.iter().all(|octet| *octet == piece[0])));
    Ok(())
}

fn writer_waits_while_reader_reads(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let fd = pair.fd;
    pair.fill()?;
    let writer = thread::spawn(move || sys::write(fd, b"at last"));
    thread::sleep(A_LITTLE);
    pair.tell(b"meanwhile")?;
    s.see("read", sys::read(fd, 100));
    let other = pair.other;
    pair.peer.later(1).drain(other, usize::MAX >> 1)?;
    s.see("writer", joined(writer));
    Ok(())
}

fn timeout_in_each_thread(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let fd = pair.fd;
    sys::set_timeout(fd, SO_RCVTIMEO, 150)?;
    let start = Instant::now();
    let readers = [(); 3].map(|()| thread::spawn(move || sys::read(fd, 10)));
    for reader in readers {
        s.see("reader", joined(reader));
    }
    s.see_time("took", start, 150..1000);
    Ok(())
}

fn errno_in_each_thread(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let fd = pair.fd;
    let first = sys::recv(fd, 1, MSG_DONTWAIT);
    let other = thread::spawn(move || sys::read(999, 1));
    s.see("other", joined(other));
    s.see("own", first);
    s.see("last of this thread", Errno::last());
    Ok(())
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

fn option_set_by_another(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let fd = pair.fd;
    let setter = thread::spawn(move || sys::set_timeout(fd, SO_RCVTIMEO, 100));
    s.see("set", joined(setter));
    s.see("read", sys::read(fd, 10));
    Ok(())
}

fn dup_in_another(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let fd = pair.fd;
    let twin = joined(thread::spawn(move || sys::dup(fd)))?;
    sys::close(fd)?;
    s.see("write", sys::write(twin, b"by the twin"));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn thread_ends_and_it_stays(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let fd = pair.fd;
    s.see("write", joined(thread::spawn(move || sys::write(fd, b"from a thread"))));
    s.see("peer", pair.hear(100));
    pair.tell(b"data")?;
    s.see("read", sys::read(fd, 100));
    s.see_poll("events", sys::poll_one(fd, POLLOUT, 0));
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
