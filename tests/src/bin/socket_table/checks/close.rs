//! close(2), close_range(2) and closing all.

use libc::{CLOSE_RANGE_CLOEXEC, CLOSE_RANGE_UNSHARE, F_DUPFD, F_GETFD, F_GETFL, MSG_DONTWAIT};

use super::descriptors::see_alive;
use crate::scene::Scene;
use crate::show::file_names;
use crate::sys;
use crate::table::{Done, checks};

checks! {
    alone "descriptors":
    PAIRS [close_of_one_of_two, close_range_closes, close_twice],
    WAYS [
        close_range_of_one, close_range_to_set_cloexec, close_range_unshare, close_range_backwards,
        closefrom, closing_all_by_hand, close_in_a_twin_thread, numbers_are_used_again,
    ],
    ONCE [
        close_of_a_closed_one, close_range_with_unknown_flags, many_open_and_closed,
        daemon_that_closes_all,
    ],
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

fn numbers_are_used_again(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    sys::close(pair.fd)?;
    let [reader, _] = sys::pipe(0)?;
    s.see("the pipe has its number", reader == pair.fd);
    s.see("read", sys::recv(reader, 1, MSG_DONTWAIT));
    s.see("flags", sys::fcntl(reader, F_GETFL, 0).map(file_names));
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

fn close_in_a_twin_thread(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let twin = sys::dup(pair.fd)?;
    let closer = std::thread::spawn(move || sys::close(twin));
    s.see("close", closer.join().unwrap_or(Err(sys::Errno(libc::EIO))));
    let fd = pair.fd;
    see_alive(s, "the other", fd, &mut pair)
}

fn close_of_a_closed_one(s: &mut Scene) -> Done {
    s.see("999", sys::close(999));
    s.see("-1", sys::close(-1));
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
