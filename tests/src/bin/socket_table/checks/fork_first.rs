//! fork(2): what a child does first of all with a connection that its parent had.

use std::time::Duration;

use libc::{IPPROTO_TCP, SO_DOMAIN, SO_KEEPALIVE, SOL_SOCKET, TCP_INFO, TCP_NODELAY};

use super::fork::{child, see_end};
use crate::scene::{SOON_MS, Scene};
use crate::sys;
use crate::table::{Done, checks};

checks! {
    alone "fork":
    WAYS [sendfile_first, splice_in_first, splice_out_first, options_first, parent_closes_the_rest],
    BOTH [datagrams_that_wait_are_the_childs],
}

fn sendfile_first(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let (fd, file) = (pair.fd, sys::file(b"out of a file")?);
    let pid = child(|| {
        s.see("sendfile", sys::sendfile(fd, file, None, 100));
        Ok(())
    })?;
    see_end(s, pid)?;
    s.see("peer", pair.hear(100));
    Ok(())
}

fn splice_in_first(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let fd = pair.fd;
    let [reader, writer] = sys::pipe(0)?;
    sys::write(writer, b"out of a pipe")?;
    let pid = child(|| {
        s.see("splice", sys::splice(reader, fd, 100, 0));
        Ok(())
    })?;
    see_end(s, pid)?;
    s.see("peer", pair.hear(100));
    Ok(())
}

fn splice_out_first(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"into a pipe")?;
    let fd = pair.fd;
    let pid = child(|| {
        let [reader, writer] = sys::pipe(0)?;
        s.see("splice", sys::splice(fd, writer, 100, 0));
        s.see("pipe", sys::read(reader, 100));
        Ok(())
    })?;
    see_end(s, pid)
}

fn options_first(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let fd = pair.fd;
    sys::setsockopt_int(fd, IPPROTO_TCP, TCP_NODELAY, 1)?;
    sys::setsockopt_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1)?;
    let pid = child(|| {
        for (option, name) in [
            (libc::SO_TYPE, "SO_TYPE"),
            (libc::SO_PROTOCOL, "SO_PROTOCOL"),
            (libc::SO_ACCEPTCONN, "SO_ACCEPTCONN"),
        ] {
            s.see(name, sys::getsockopt_int(fd, SOL_SOCKET, option));
        }
        for (option, name) in [(TCP_NODELAY, "TCP_NODELAY"), (TCP_INFO, "TCP_INFO")] {
            s.see(name, sys::getsockopt(fd, IPPROTO_TCP, option, 1));
        }
        s.see("SO_KEEPALIVE", sys::getsockopt_int(fd, SOL_SOCKET, SO_KEEPALIVE));
        let domain = sys::getsockopt_int(fd, SOL_SOCKET, SO_DOMAIN);
        s.see("SO_DOMAIN is that of the socket", domain == Ok(s.domain()));
        Ok(())
    })?;
    see_end(s, pid)
}

/// As a daemon does that leaves a connection to its child: it closes all but what it knows.
fn parent_closes_the_rest(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let (fd, other) = (sys::dup2(pair.fd, 500)?, pair.other);
    sys::close(pair.fd)?;
    let pid = child(|| {
        std::thread::sleep(Duration::from_millis(100));
        let question = sys::read(fd, 100)?;
        sys::write(fd, &question).map(drop)
    })?;
    s.see("close_range", sys::close_range(fd as u32, u32::MAX, 0));
    pair.peer.send(other, b"to the child")?;
    s.see("peer", pair.hear(100));
    see_end(s, pid)
}

fn datagrams_that_wait_are_the_childs(s: &mut Scene) -> Done {
    let (fd, port) = s.udp_bound()?;
    let mut peer = s.peer()?;
    let (other, _) = peer.udp()?;
    peer.sendto(other, port, b"waits")?;
    s.see_poll("waits", sys::poll_one(fd, libc::POLLIN, SOON_MS));
    let pid = child(|| {
        std::thread::sleep(Duration::from_millis(100));
        s.see_poll("waits still", sys::poll_one(fd, libc::POLLIN, SOON_MS));
        s.see("recv", sys::recv(fd, 100, libc::MSG_DONTWAIT));
        Ok(())
    })?;
    sys::close(fd)?;
    see_end(s, pid)
}
