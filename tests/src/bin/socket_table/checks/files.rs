//! sendfile(2), splice(2) and others that move octets between a connection and something else.

use std::time::Instant;

use libc::O_NONBLOCK;

use crate::scene::Scene;
use crate::show::pattern;
use crate::sys;
use crate::table::{Done, checks};

checks! {
    alone "files":
    PAIRS [sendfile_moves_the_position, sendfile_at_an_offset],
    WAYS [
        sendfile_beyond_the_end, sendfile_of_nothing, sendfile_from_a_pipe, sendfile_from_a_connection,
        sendfile_with_a_negative_offset, sendfile_large, sendfile_when_full, sendfile_after_shutdown,
        sendfile_blocks, sendfile_of_a_closed_descriptor, sendfile_after_reset, sendfile64,
        sendfile_corked,
    ],
    ONCE [sendfile_between_files],
}

fn sendfile_moves_the_position(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let file = sys::file(b"the whole file")?;
    s.see("first", sys::sendfile(pair.fd, file, None, 4));
    s.see("peer", pair.hear(100));
    s.see("rest", sys::sendfile(pair.fd, file, None, 100));
    s.see("peer", pair.hear(100));
    s.see("at the end", sys::sendfile(pair.fd, file, None, 100));
    Ok(())
}

fn sendfile_at_an_offset(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let file = sys::file(b"the whole file")?;
    let mut offset = 4;
    s.see("sendfile", sys::sendfile(pair.fd, file, Some(&mut offset), 5));
    s.see("peer", pair.hear(100));
    s.see("offset", offset);
    s.see("position", sys::read(file, 3));
    Ok(())
}

fn sendfile_beyond_the_end(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let file = sys::file(b"short")?;
    let mut offset = 100;
    s.see("sendfile", sys::sendfile(pair.fd, file, Some(&mut offset), 5));
    s.see("offset", offset);
    Ok(())
}

fn sendfile_of_nothing(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let file = sys::file(b"short")?;
    s.see("sendfile", sys::sendfile(pair.fd, file, None, 0));
    Ok(())
}

fn sendfile_from_a_pipe(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let [reader, writer] = sys::pipe(0)?;
    sys::write(writer, b"data")?;
    s.see("sendfile", sys::sendfile(pair.fd, reader, None, 4));
    Ok(())
}

fn sendfile_from_a_connection(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"data")?;
    let file = sys::file(b"")?;
    s.see("to a file", sys::sendfile(file, pair.fd, None, 4));
    let other = s.pair()?;
    s.see("to a connection", sys::sendfile(other.fd, pair.fd, None, 4));
    let mut offset = 0;
    s.see("at an offset", sys::sendfile(file, pair.fd, Some(&mut offset), 4));
    Ok(())
}

fn sendfile_with_a_negative_offset(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let file = sys::file(b"short")?;
    let mut offset = -1;
    s.see("sendfile", sys::sendfile(pair.fd, file, Some(&mut offset), 5));
    Ok(())
}

fn sendfile_large(s: &mut Scene) -> Done {
    const LEN: usize = 700_000;
    let pair = s.pair()?;
    let fd = pair.fd;
    let file = sys::file(&pattern(LEN))?;
    let hearing = pair.hear_meanwhile(LEN);
    let mut sent = 0;
    while sent < LEN {
        sent += sys::sendfile(fd, file, None, LEN - sent)?;
    }
    s.see("peer", hearing.wait());
    Ok(())
}

fn sendfile_when_full(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    sys::fcntl(pair.fd, libc::F_SETFL, O_NONBLOCK.into())?;
    pair.fill()?;
    let file = sys::file(b"data")?;
    s.see("sendfile", sys::sendfile(pair.fd, file, None, 4));
    s.see("position", sys::read(file, 10));
    Ok(())
}

fn sendfile_blocks(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.fill()?;
    let file = sys::file(&pattern(50_000))?;
    let other = pair.other;
    pair.peer.later(150).drain(other, usize::MAX >> 1)?;
    let start = Instant::now();
    s.see("sendfile", sys::sendfile(pair.fd, file, None, 50_000));
    s.see_time("took", start, 50..3000);
    Ok(())
}

fn sendfile_after_shutdown(s: &mut Scene) -> Done {
    sys::handle(libc::SIGPIPE, 0)?;
    let pair = s.pair()?;
    sys::shutdown(pair.fd, libc::SHUT_WR)?;
    let file = sys::file(b"data")?;
    s.see("sendfile", sys::sendfile(pair.fd, file, None, 4));
    s.see("SIGPIPE", sys::signals(libc::SIGPIPE));
    s.see("position", sys::read(file, 10));
    Ok(())
}

fn sendfile_after_reset(s: &mut Scene) -> Done {
    sys::handle(libc::SIGPIPE, 0)?;
    let mut pair = s.pair()?;
    pair.peer_resets()?;
    let file = sys::file(b"data")?;
    s.see("sendfile", sys::sendfile(pair.fd, file, None, 4));
    s.see("again", sys::sendfile(pair.fd, file, None, 4));
    s.see("SIGPIPE", sys::signals(libc::SIGPIPE));
    Ok(())
}

fn sendfile_of_a_closed_descriptor(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("file", sys::sendfile(pair.fd, 999, None, 4));
    let file = sys::file(b"data")?;
    sys::close(pair.fd)?;
    s.see("connection", sys::sendfile(pair.fd, file, None, 4));
    Ok(())
}

fn sendfile_corked(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::setsockopt_int(pair.fd, libc::IPPROTO_TCP, libc::TCP_CORK, 1)?;
    sys::write(pair.fd, b"head, ")?;
    let file = sys::file(b"body")?;
    s.see("sendfile", sys::sendfile(pair.fd, file, None, 4));
    sys::setsockopt_int(pair.fd, libc::IPPROTO_TCP, libc::TCP_CORK, 0)?;
    s.see("peer", pair.hear(100));
    Ok(())
}

fn sendfile64(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let file = sys::file(b"data")?;
    s.see("sendfile64", sys::sendfile_64(pair.fd, file, 10));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn sendfile_between_files(s: &mut Scene) -> Done {
    let (from, to) = (sys::file(b"data")?, sys::file(b"")?);
    s.see("sendfile", sys::sendfile(to, from, None, 10));
    s.see("read", sys::pread(to, 10, 0));
    Ok(())
}
