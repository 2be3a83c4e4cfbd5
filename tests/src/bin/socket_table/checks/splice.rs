//! splice(2), tee(2): octets between a connection and a pipe.

use std::time::Instant;

use libc::{O_NONBLOCK, POLLIN, SPLICE_F_MORE, SPLICE_F_MOVE, SPLICE_F_NONBLOCK};

use crate::scene::{SOON_MS, Scene};
use crate::sys;
use crate::table::{Done, checks};

checks! {
    alone "files":
    PAIRS [splice_in, splice_out],
    WAYS [
        splice_in_without_data, splice_in_after_the_end, splice_in_waits, splice_between_connections,
        splice_without_a_pipe, splice_of_nothing, splice_large, splice_out_of_a_closed_pipe,
        splice_with_timeout, splice_to_a_full_pipe, tee_of_a_connection, copy_file_range_of_a_connection,
        splice_by_nonblock_socket,
    ],
    ONCE [splice_between_pipes],
}

fn splice_in(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let [reader, writer] = sys::pipe(0)?;
    pair.tell(b"from the wire")?;
    s.see("splice", sys::splice(pair.fd, writer, 100, 0));
    s.see("pipe", sys::read(reader, 100));
    pair.tell(b"abcdef")?;
    s.see("a part", sys::splice(pair.fd, writer, 2, SPLICE_F_MOVE));
    s.see("rest", sys::splice(pair.fd, writer, 100, SPLICE_F_MOVE));
    s.see("pipe", sys::read(reader, 100));
    Ok(())
}

fn splice_out(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let [reader, writer] = sys::pipe(0)?;
    sys::write(writer, b"to the wire")?;
    s.see("splice", sys::splice(reader, pair.fd, 100, 0));
    s.see("peer", pair.hear(100));
    sys::write(writer, b"held")?;
    s.see("more", sys::splice(reader, pair.fd, 100, SPLICE_F_MORE));
    s.see("write", sys::write(pair.fd, b", sent"));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn splice_in_without_data(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let [_reader, writer] = sys::pipe(0)?;
    // The flag is about the pipe; the connection is asked for its own.
    sys::set_timeout(pair.fd, libc::SO_RCVTIMEO, 150)?;
    let start = Instant::now();
    s.see("splice", sys::splice(pair.fd, writer, 100, SPLICE_F_NONBLOCK));
    s.see_time("took", start, 150..1000);
    Ok(())
}

fn splice_by_nonblock_socket(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    sys::fcntl(pair.fd, libc::F_SETFL, O_NONBLOCK.into())?;
    let [reader, writer] = sys::pipe(0)?;
    s.see("in", sys::splice(pair.fd, writer, 100, 0));
    pair.fill()?;
    sys::write(writer, b"data")?;
    s.see("out", sys::splice(reader, pair.fd, 100, 0));
    s.see("left", sys::read(reader, 10));
    Ok(())
}

fn splice_in_after_the_end(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let [reader, writer] = sys::pipe(0)?;
    pair.tell(b"last")?;
    pair.peer_ends()?;
    s.see("splice", sys::splice(pair.fd, writer, 100, 0));
    s.see("splice", sys::splice(pair.fd, writer, 100, 0));
    s.see("pipe", sys::read(reader, 100));
    Ok(())
}

fn splice_in_waits(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let [reader, writer] = sys::pipe(0)?;
    let other = pair.other;
    let start = Instant::now();
    pair.peer.later(150).send(other, b"late")?;
    s.see("splice", sys::splice(pair.fd, writer, 100, 0));
    s.see_time("took", start, 100..2000);
    s.see("pipe", sys::read(reader, 100));
    Ok(())
}

fn splice_with_timeout(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let [_reader, writer] = sys::pipe(0)?;
    sys::set_timeout(pair.fd, libc::SO_RCVTIMEO, 150)?;
    let start = Instant::now();
    s.see("splice", sys::splice(pair.fd, writer, 100, 0));
    s.see_time("took", start, 150..1000);
    Ok(())
}

fn splice_between_connections(s: &mut Scene) -> Done {
    let mut one = s.pair()?;
    let mut two = s.pair()?;
    let [reader, writer] = sys::pipe(0)?;
    one.tell(b"passed on")?;
    s.see("in", sys::splice(one.fd, writer, 100, SPLICE_F_MOVE));
    s.see("out", sys::splice(reader, two.fd, 100, SPLICE_F_MOVE));
    s.see("peer", two.hear(100));
    Ok(())
}

fn splice_without_a_pipe(s: &mut Scene) -> Done {
    let mut one = s.pair()?;
    let two = s.pair()?;
    one.tell(b"data")?;
    s.see("between connections", sys::splice(one.fd, two.fd, 100, 0));
    s.see("to a file", sys::splice(one.fd, sys::file(b"")?, 100, 0));
    Ok(())
}

fn splice_of_nothing(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let [reader, writer] = sys::pipe(0)?;
    pair.tell(b"data")?;
    s.see("in", sys::splice(pair.fd, writer, 0, 0));
    s.see("out", sys::splice(reader, pair.fd, 0, 0));
    Ok(())
}

fn splice_large(s: &mut Scene) -> Done {
    const LEN: usize = 300_000;
    let mut pair = s.pair()?;
    let [reader, writer] = sys::pipe(0)?;
    let other = pair.other;
    pair.peer.later(1).send_pattern(other, LEN)?;
    let mut all = Vec::new();
    while all.len() < LEN {
        let came = sys::splice(pair.fd, writer, 60_000, SPLICE_F_MOVE)?;
        let mut left = came;
        while left > 0 {
            let piece = sys::read(reader, left)?;
            left -= piece.len();
            all.extend(piece);
        }
        if came == 0 {
            break;
        }
    }
    s.see("all", all);
    Ok(())
}

fn splice_to_a_full_pipe(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let [_reader, writer] = sys::pipe(O_NONBLOCK)?;
    while sys::write(writer, &[0; 4096]).is_ok() {}
    pair.tell(b"data")?;
    s.see("splice", sys::splice(pair.fd, writer, 100, SPLICE_F_NONBLOCK));
    s.see("read", sys::recv(pair.fd, 100, libc::MSG_DONTWAIT));
    Ok(())
}

fn splice_out_of_a_closed_pipe(s: &mut Scene) -> Done {
    sys::handle(libc::SIGPIPE, 0)?;
    let mut pair = s.pair()?;
    let [reader, writer] = sys::pipe(0)?;
    sys::close(writer)?;
    s.see("out of an ended pipe", sys::splice(reader, pair.fd, 100, 0));
    let [reader, writer] = sys::pipe(0)?;
    sys::close(reader)?;
    pair.tell(b"data")?;
    sys::poll_one(pair.fd, POLLIN, SOON_MS)?;
    s.see("into a pipe without a reader", sys::splice(pair.fd, writer, 100, 0));
    s.see("SIGPIPE", sys::signals(libc::SIGPIPE));
    Ok(())
}

fn tee_of_a_connection(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let [_reader, writer] = sys::pipe(0)?;
    s.see("tee", sys::tee(pair.fd, writer, 10));
    Ok(())
}

fn copy_file_range_of_a_connection(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let file = sys::file(b"data")?;
    s.see("to a connection", sys::copy_file_range(file, pair.fd, 4));
    s.see("from a connection", sys::copy_file_range(pair.fd, file, 4));
    Ok(())
}

fn splice_between_pipes(s: &mut Scene) -> Done {
    let [one, into] = sys::pipe(0)?;
    let [two, out] = sys::pipe(0)?;
    sys::write(into, b"data")?;
    s.see("splice", sys::splice(one, out, 10, 0));
    s.see("read", sys::read(two, 10));
    Ok(())
}
