//! One socket in several threads.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use libc::{MSG_DONTWAIT, POLLIN, POLLOUT, SHUT_RD, SHUT_RDWR, SO_RCVTIMEO};

use crate::scene::{SOON_MS, Scene};
use crate::show::pattern;
use crate::sys::{self, Errno, Result};
use crate::table::{Done, checks};

checks! {
    alone "threads":
    PAIRS [reader_and_writer, shutdown_wakes_the_reader, peer_reset_wakes_the_reader],
    WAYS [
        shutdown_wakes_poll, close_does_not_wake_the_reader, data_for_one_of_two_readers, many_writers,
        writer_waits_while_reader_reads, timeout_in_each_thread, errno_in_each_thread,
        shutdown_wakes_the_writer, option_set_by_another, dup_in_another, thread_ends_and_it_stays,
    ],
}

pub(super) const A_LITTLE: Duration = Duration::from_millis(60);

pub(super) fn joined<T>(thread: JoinHandle<Result<T>>) -> Result<T> {
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
