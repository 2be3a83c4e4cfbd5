//! fork(2): connections and listeners of two processes.

use std::time::Duration;

use libc::{MSG_DONTWAIT, POLLIN, SIGKILL};

use crate::pair::Pair;
use crate::scene::{SOON_MS, Scene};
use crate::sys::{self, End, Errno, Result};
use crate::table::{Done, checks};

checks! {
    alone "fork":
    PAIRS [
        child_uses_the_connection, both_read, end_only_when_both_closed, child_that_exits_leaves_it,
        child_that_is_killed_leaves_it, child_closes_and_parent_goes_on, parent_closes_and_child_goes_on,
        unread_data_go_to_the_child,
    ],
    WAYS [half_read_message, unsent_data_of_the_parent, child_polls],
}

/// Runs `action` in a child; 0 if it went well, else its errno.
pub(super) fn child(action: impl FnOnce() -> Result<()>) -> Result<libc::pid_t> {
    sys::fork_to(|| action().map_or_else(|errno| errno.0, |()| 0))
}

pub(super) fn see_end(s: &mut Scene, pid: libc::pid_t) -> Done {
    let end = match sys::wait_for(pid)? {
        End::Exited(0) => "well".to_owned(),
        End::Exited(errno) => Errno(errno).to_string(),
        End::Signalled(signal) => format!("signal {signal}"),
    };
    s.see("child ended", end);
    Ok(())
}

pub(super) fn see_alive(s: &mut Scene, pair: &mut Pair) -> Done {
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
