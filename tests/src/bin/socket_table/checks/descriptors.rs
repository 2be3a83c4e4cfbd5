//! dup(2) and its kin, close(2), close_range(2): numbers of a connection.

use libc::{
    F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_GETFL, F_SETFD, F_SETFL, FD_CLOEXEC, MSG_DONTWAIT, O_CLOEXEC,
    O_NONBLOCK, POLLIN,
};

use crate::pair::Pair;
use crate::scene::Scene;
use crate::show::file_names;
use crate::sys;
use crate::table::{Done, checks};

checks! {
    alone "descriptors":
    PAIRS [dup_is_the_same, dup2_over_a_pipe, dup2_over_a_connection, dup_shares_nonblock],
    WAYS [
        dup_takes_the_lowest, dup2_to_itself, dup3_to_itself, dup3_flags, dup_without_cloexec, fcntl_dup,
        fcntl_dup_to_high_numbers, fcntl_dup_beyond_the_limit, dup_at_the_limit, dup2_beyond_the_limit,
        dup2_from_a_closed_one, is_a_socket, listing_shows_sockets, redirected_standard_output,
        copied_to_standard_output, dup_of_a_dup,
    ],
    ONCE [dup_of_a_closed_one, udp_dup, listener_dup],
}

/// Whether octets go both ways.
pub(super) fn see_alive(s: &mut Scene, what: &str, fd: i32, pair: &mut Pair) -> Done {
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

fn dup_takes_the_lowest(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let [reader, writer] = sys::pipe(0)?;
    sys::close(reader)?;
    s.see("lowest", sys::dup(pair.fd) == Ok(reader));
    sys::close(writer)?;
    s.see("next", sys::dup(pair.fd) == Ok(writer));
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

/// The C library's own stream writes past all hooks.
fn copied_to_standard_output(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    for what in ["dup", "fcntl"] {
        let saved = sys::dup(1)?;
        sys::close(1)?;
        let copied = if what == "dup" { sys::dup(pair.fd) } else { sys::fcntl(pair.fd, F_DUPFD, 1) };
        s.see(what, copied);
        s.see("print", sys::print(c"a line"));
        s.see("peer", pair.hear(100));
        s.see("back", sys::dup2(saved, 1));
        sys::close(saved)?;
    }
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
