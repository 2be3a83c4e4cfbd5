//! dup(2) and its kin, close(2), close_range(2): numbers of a connection.

use libc::{
    CLOSE_RANGE_CLOEXEC, CLOSE_RANGE_UNSHARE, F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_GETFL, F_SETFD, F_SETFL,
    FD_CLOEXEC, MSG_DONTWAIT, O_CLOEXEC, O_NONBLOCK, POLLIN,
};

use crate::scene::{Pair, Scene};
use crate::show::file_names;
use crate::sys;
use crate::table::{Done, checks};

checks! {
    "descriptors":
    PAIRS [
        dup_is_the_same, close_of_one_of_two, dup2_over_a_pipe, dup2_over_a_connection, dup_shares_nonblock,
        close_range_closes, close_twice,
    ],
    WAYS [
        dup_takes_the_lowest, dup2_to_itself, dup3_to_itself, dup3_flags, dup_without_cloexec, fcntl_dup,
        fcntl_dup_to_high_numbers, fcntl_dup_beyond_the_limit, close_range_of_one, close_range_to_set_cloexec,
        close_range_unshare, close_range_backwards, closefrom, closing_all_by_hand, dup_at_the_limit,
        dup2_beyond_the_limit, dup2_from_a_closed_one, is_a_socket, listing_shows_sockets, close_in_a_twin_thread,
        redirected_standard_output, dup_of_a_dup, numbers_are_used_again,
    ],
    ONCE [
        close_of_a_closed_one, dup_of_a_closed_one, close_range_with_unknown_flags, udp_dup, listener_dup,
        many_open_and_closed, daemon_that_closes_all,
    ],
}

/// Whether octets go both ways.
fn see_alive(s: &mut Scene, what: &str, fd: i32, pair: &mut Pair) -> Done {
    s.see(what, sys::write(fd, b"ping"));
    s.see("peer", pair.hear(10));
    pair.tell(b"pong")?;
    s.see("read", sys::read(fd, 10));
    Ok(())
}

fn dup_is_the_same(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let twin = sys::dup(pair.fd)?;
    pair.tell(b"abcdef")?;
    s.see("one", sys::read(pair.fd, 3));
    s.see("other", sys::read(twin, 10));
    see_alive(s, "by the other", twin, &mut pair)
}

fn dup_of_a_dup(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let second = sys::dup(pair.fd)?;
    let third = sys::dup(second)?;
    sys::close(pair.fd)?;
    sys::close(second)?;
    see_alive(s, "by the third", third, &mut pair)?;
    s.see("close", sys::close(third));
    s.see("peer", pair.hear(10));
    Ok(())
}

fn close_of_one_of_two(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let twin = sys::dup(pair.fd)?;
    s.see("close", sys::close(pair.fd));
    see_alive(s, "by the other", twin, &mut pair)?;
    s.see("by the closed", sys::write(pair.fd, b"x"));
    s.see("close", sys::close(twin));
    s.see("peer", pair.hear(10));
    Ok(())
}

fn dup2_over_a_pipe(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let [reader, writer] = sys::pipe(0)?;
    s.see("dup2", sys::dup2(pair.fd, reader) == Ok(reader));
    s.see("write to the pipe", sys::send(writer, b"x", 0));
    see_alive(s, "by its number", reader, &mut pair)
}

fn dup2_over_a_connection(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let mut other = s.pair()?;
    s.see("dup2", sys::dup2(pair.fd, other.fd) == Ok(other.fd));
    s.see("peer of the one that was there", other.hear(10));
    see_alive(s, "by its number", other.fd, &mut pair)
}

fn dup_shares_nonblock(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let twin = sys::dup(pair.fd)?;
    sys::fcntl(pair.fd, F_SETFL, O_NONBLOCK.into())?;
    s.see("flags of the other", sys::fcntl(twin, F_GETFL, 0).map(file_names));
    s.see("read by the other", sys::read(twin, 10));
    sys::fcntl(pair.fd, F_SETFD, FD_CLOEXEC.into())?;
    s.see("descriptor flags of the other", sys::fcntl(twin, F_GETFD, 0));
    Ok(())
}

fn close_range_closes(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let mut other = s.pair()?;
    let (low, high) = (pair.fd.min(other.fd), pair.fd.max(other.fd));
    // Whatever is between the two is not needed any more, except for conversations with the peer.
    s.see("one", sys::close_range(low as u32, low as u32, 0));
    s.see("other", sys::close_range(high as u32, high as u32, 0));
    s.see("read", sys::read(pair.fd, 1));
    s.see("peer", pair.hear(10));
    s.see("peer", other.hear(10));
    Ok(())
}

fn close_twice(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("close", sys::close(pair.fd));
    s.see("again", sys::close(pair.fd));
    s.see("flags", sys::fcntl(pair.fd, F_GETFL, 0));
    Ok(())
}

fn dup_takes_the_lowest(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let [reader, writer] = sys::pipe(0)?;
    sys::close(reader)?;
    s.see("lowest", sys::dup(pair.fd) == Ok(reader));
    sys::close(writer)?;
    s.see("next", sys::dup(pair.fd) == Ok(writer));
    Ok(())
}

fn numbers_are_used_again(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    sys::close(pair.fd)?;
    let [reader, _] = sys::pipe(0)?;
    s.see("the pipe has its number", reader == pair.fd);
    s.see("read", sys::recv(reader, 1, MSG_DONTWAIT));
    s.see("flags", sys::fcntl(reader, F_GETFL, 0).map(file_names));
    Ok(())
}

fn dup2_to_itself(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("dup2", sys::dup2(pair.fd, pair.fd) == Ok(pair.fd));
    let fd = pair.fd;
    see_alive(s, "afterwards", fd, &mut pair)
}

fn dup3_to_itself(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("dup3", sys::dup3(pair.fd, pair.fd, 0));
    Ok(())
}

fn dup3_flags(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let [reader, _] = sys::pipe(0)?;
    s.see("dup3", sys::dup3(pair.fd, reader, O_CLOEXEC) == Ok(reader));
    s.see("flags", sys::fcntl(reader, F_GETFD, 0));
    s.see("unknown", sys::dup3(pair.fd, reader, O_NONBLOCK));
    see_alive(s, "afterwards", reader, &mut pair)
}

fn dup_without_cloexec(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    sys::fcntl(pair.fd, F_SETFD, FD_CLOEXEC.into())?;
    let twin = sys::dup(pair.fd)?;
    s.see("one", sys::fcntl(pair.fd, F_GETFD, 0));
    s.see("other", sys::fcntl(twin, F_GETFD, 0));
    let third = sys::dup2(pair.fd, twin)?;
    s.see("by dup2", sys::fcntl(third, F_GETFD, 0));
    Ok(())
}

fn fcntl_dup(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let twin = sys::fcntl(pair.fd, F_DUPFD_CLOEXEC, 0)?;
    s.see("flags", sys::fcntl(twin, F_GETFD, 0));
    let plain = sys::fcntl(pair.fd, F_DUPFD, 0)?;
    s.see("flags", sys::fcntl(plain, F_GETFD, 0));
    see_alive(s, "by the one", twin, &mut pair)?;
    see_alive(s, "by the other", plain, &mut pair)
}

fn fcntl_dup_to_high_numbers(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let twin = sys::fcntl(pair.fd, F_DUPFD, 200)?;
    s.see("number", twin);
    s.see("next", sys::fcntl(pair.fd, F_DUPFD, 200));
    see_alive(s, "afterwards", twin, &mut pair)
}

fn fcntl_dup_beyond_the_limit(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("beyond all", sys::fcntl(pair.fd, F_DUPFD, 100_000_000));
    s.see("negative", sys::fcntl(pair.fd, F_DUPFD, -1));
    Ok(())
}

fn close_range_of_one(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let twin = sys::fcntl(pair.fd, F_DUPFD, 100)?;
    s.see("close_range", sys::close_range(100, 110, 0));
    s.see("closed", sys::fcntl(twin, F_GETFD, 0));
    let fd = pair.fd;
    see_alive(s, "the other", fd, &mut pair)
}

fn close_range_to_set_cloexec(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let fd = pair.fd as u32;
    s.see("close_range", sys::close_range(fd, fd, CLOSE_RANGE_CLOEXEC));
    s.see("flags", sys::fcntl(pair.fd, F_GETFD, 0));
    let fd = pair.fd;
    see_alive(s, "still open", fd, &mut pair)
}

fn close_range_unshare(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let twin = sys::fcntl(pair.fd, F_DUPFD, 100)? as u32;
    s.see("close_range", sys::close_range(twin, twin, CLOSE_RANGE_UNSHARE));
    s.see("closed", sys::fcntl(twin as i32, F_GETFD, 0));
    let fd = pair.fd;
    see_alive(s, "the other", fd, &mut pair)
}

fn close_range_backwards(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("close_range", sys::close_range(pair.fd as u32 + 1, pair.fd as u32, 0));
    s.see("open", sys::fcntl(pair.fd, F_GETFD, 0));
    Ok(())
}

fn close_range_with_unknown_flags(s: &mut Scene) -> Done {
    s.see("close_range", sys::close_range(500, 600, 64));
    s.see("of nothing", sys::close_range(500, 600, 0));
    Ok(())
}

/// Has a child close everything from `first` on by `close_all`, keep one number, and serve another connection.
fn child_closes(s: &mut Scene, close_all: fn(i32)) -> Done {
    let mut pair = s.pair()?;
    // The child says nothing, since all it could say it with is closed.
    let child = sys::fork_to(|| {
        let kept = sys::dup2(pair.fd, 20);
        close_all(21);
        let seen = kept.and_then(|fd| sys::write(fd, b"kept"));
        if seen == Ok(4) { 0 } else { 1 }
    })?;
    s.see("child", sys::wait_for(child).map(|end| end == sys::End::Exited(0)));
    s.see("peer", pair.hear(10));
    s.see("write", sys::write(pair.fd, b"parent"));
    s.see("peer", pair.hear(10));
    Ok(())
}

fn closefrom(s: &mut Scene) -> Done {
    child_closes(s, sys::closefrom)
}

fn closing_all_by_hand(s: &mut Scene) -> Done {
    child_closes(s, |first| {
        for fd in first..2048 {
            let _ = sys::close(fd); // Most are not open.
        }
    })
}

fn dup_at_the_limit(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let lowest = sys::dup(0)?;
    sys::close(lowest)?;
    let before = sys::set_descriptors_max(lowest as u64)?;
    s.see("dup", sys::dup(pair.fd));
    s.see("F_DUPFD", sys::fcntl(pair.fd, F_DUPFD, 0));
    s.see("write", sys::write(pair.fd, b"x"));
    sys::set_descriptors_max(before)?;
    s.see("dup afterwards", sys::dup(pair.fd) == Ok(lowest));
    Ok(())
}

fn dup2_beyond_the_limit(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("negative", sys::dup2(pair.fd, -1));
    s.see("beyond all", sys::dup2(pair.fd, 100_000_000));
    s.see("write", sys::write(pair.fd, b"x"));
    Ok(())
}

fn dup2_from_a_closed_one(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("dup2", sys::dup2(999, pair.fd));
    let fd = pair.fd;
    see_alive(s, "what was there", fd, &mut pair)
}

fn is_a_socket(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("type", sys::file_type(pair.fd).map(|kind| kind == libc::S_IFSOCK));
    Ok(())
}

fn listing_shows_sockets(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("link", sys::link_of(pair.fd).map(|link| link.starts_with("socket:[")));
    Ok(())
}

fn close_in_a_twin_thread(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let twin = sys::dup(pair.fd)?;
    let closer = std::thread::spawn(move || sys::close(twin));
    s.see("close", closer.join().unwrap_or(Err(sys::Errno(libc::EIO))));
    let fd = pair.fd;
    see_alive(s, "the other", fd, &mut pair)
}

fn redirected_standard_output(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let saved = sys::dup(1)?;
    s.see("dup2", sys::dup2(pair.fd, 1));
    s.see("write", sys::write(1, b"to standard output"));
    s.see("peer", pair.hear(100));
    s.see("back", sys::dup2(saved, 1));
    let fd = pair.fd;
    see_alive(s, "afterwards", fd, &mut pair)
}

fn close_of_a_closed_one(s: &mut Scene) -> Done {
    s.see("999", sys::close(999));
    s.see("-1", sys::close(-1));
    Ok(())
}

fn dup_of_a_closed_one(s: &mut Scene) -> Done {
    s.see("dup", sys::dup(999));
    s.see("dup2", sys::dup2(999, 998));
    s.see("dup3", sys::dup3(999, 998, 0));
    s.see("fcntl", sys::fcntl(999, F_DUPFD, 0));
    Ok(())
}

fn udp_dup(s: &mut Scene) -> Done {
    let (fd, port) = s.udp_bound()?;
    let twin = sys::dup(fd)?;
    sys::close(fd)?;
    let mut peer = s.peer()?;
    let (other, _) = peer.udp()?;
    peer.sendto(other, port, b"datagram")?;
    s.see_poll("events", sys::poll_one(twin, POLLIN, 2000));
    s.see("recv", sys::recv(twin, 100, MSG_DONTWAIT));
    Ok(())
}

fn listener_dup(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let twin = sys::dup(listener)?;
    let pair = s.accept_from_peer(twin, port)?;
    s.say_where(pair.fd);
    sys::close(twin)?;
    let pair = s.accept_from_peer(listener, port)?;
    s.say_where(pair.fd);
    Ok(())
}

fn many_open_and_closed(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let mut good = 0;
    for _ in 0..50 {
        let mut pair = s.accept_from_peer(listener, port)?;
        sys::write(pair.fd, b"x")?;
        good += usize::from(pair.hear(10)? == b"x");
        sys::close(pair.fd)?;
    }
    s.see("good", good);
    Ok(())
}

fn daemon_that_closes_all(s: &mut Scene) -> Done {
    let mut peer = s.peer()?;
    let (listener, port) = peer.tcp_listener(4)?;
    let name = s.remote(port);
    let domain = s.domain();
    let child = sys::fork_to(|| {
        let done = sys::daemon().and_then(|()| {
            for fd in 0..1024 {
                let _ = sys::close(fd); // As daemons of old do.
            }
            let fd = sys::socket(domain, libc::SOCK_STREAM, 0)?;
            sys::connect(fd, &name)?;
            sys::write(fd, format!("daemon with {fd}").as_bytes())
        });
        i32::from(done.is_err())
    })?;
    let (other, _) = peer.accept(listener)?;
    s.see("peer", peer.recv(other, 100));
    s.see("peer", peer.recv(other, 100));
    let _ = sys::wait_for(child)?; // It ended when it became a daemon.
    Ok(())
}
