//! Sending on TCP: write(2), send(2) and their flags.

use std::time::Instant;

use libc::{
    IPPROTO_TCP, MSG_DONTWAIT, MSG_EOR, MSG_MORE, MSG_NOSIGNAL, O_NONBLOCK, POLLOUT, SHUT_WR, SO_SNDBUF,
    SO_SNDTIMEO, SOL_SOCKET, TCP_CORK, TCP_NODELAY,
};

use crate::scene::{SOON_MS, Scene};
use crate::show::{pattern, pattern_from};
use crate::sys::{self, Control, Outgoing};
use crate::table::{Done, checks};

checks! {
    "write":
    PAIRS [
        arrives, vectors, of_no_octets, after_shutdown, until_full_and_on, blocks_until_all_is_taken, large,
        after_the_peer_ended, after_the_peer_closed, more_is_held_back, cork_is_held_back, so_sndtimeo,
    ],
    WAYS [
        after_shutdown_without_signal, cork_and_pull_by_nodelay, more_and_close, cork_and_close, sendto_with_a_name,
        with_flags_that_mean_nothing, too_many_vectors, most_vectors, sendmsg_with_unknown_control,
        sendmsg_with_broken_control, sendmmsg, from_nowhere, after_close, unix_flag_oob, to_a_peer_that_does_not_read,
        with_a_small_buffer, small_pieces, nodelay_small_pieces, zero_vectors, sendmsg_with_tos_control,
        large_by_writev, dontwait_when_full, both_directions_at_once,
    ],
}

fn arrives(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("write", sys::write(pair.fd, b"by write"));
    s.see("peer", pair.hear(100));
    s.see("send", sys::send(pair.fd, b"by send", 0));
    s.see("peer", pair.hear(100));
    s.see("sendto", sys::sendto(pair.fd, b"by sendto", 0, &[]));
    s.see("peer", pair.hear(100));
    let message = Outgoing { buffers: vec![b"by ", b"sendmsg"], ..Outgoing::default() };
    s.see("sendmsg", sys::sendmsg(pair.fd, &message, 0));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn vectors(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("writev", sys::writev(pair.fd, &[b"one, ", b"", b"two, ", b"three"]));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn zero_vectors(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("writev of none", sys::writev(pair.fd, &[]));
    s.see("writev of an empty one", sys::writev(pair.fd, &[b""]));
    s.see("sendmsg of none", sys::sendmsg(pair.fd, &Outgoing::default(), 0));
    Ok(())
}

fn of_no_octets(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("write", sys::write(pair.fd, b""));
    s.see("send", sys::send(pair.fd, b"", 0));
    let other = pair.other;
    s.see("peer", pair.peer.recv_within(other, 10, 50));
    Ok(())
}

fn after_shutdown(s: &mut Scene) -> Done {
    sys::handle(libc::SIGPIPE, 0)?;
    let mut pair = s.pair()?;
    s.see("shutdown", sys::shutdown(pair.fd, SHUT_WR));
    s.see("write", sys::write(pair.fd, b"x"));
    s.see("SIGPIPE", sys::signals(libc::SIGPIPE));
    s.see("send", sys::send(pair.fd, b"x", 0));
    s.see("writev", sys::writev(pair.fd, &[b"x"]));
    s.see("SIGPIPE", sys::signals(libc::SIGPIPE));
    s.see("of no octets", sys::write(pair.fd, b""));
    s.see("peer", pair.hear(10));
    Ok(())
}

fn after_shutdown_without_signal(s: &mut Scene) -> Done {
    sys::handle(libc::SIGPIPE, 0)?;
    let pair = s.pair()?;
    sys::shutdown(pair.fd, SHUT_WR)?;
    s.see("send", sys::send(pair.fd, b"x", MSG_NOSIGNAL));
    let message = Outgoing { buffers: vec![b"x"], ..Outgoing::default() };
    s.see("sendmsg", sys::sendmsg(pair.fd, &message, MSG_NOSIGNAL));
    s.see("SIGPIPE", sys::signals(libc::SIGPIPE));
    sys::ignore(libc::SIGPIPE)?;
    s.see("write when ignored", sys::write(pair.fd, b"x"));
    Ok(())
}

fn until_full_and_on(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let sent = pair.fill()?;
    s.see("more than the smallest buffer", sent > 4096);
    s.see("one more", sys::send(pair.fd, b"x", MSG_DONTWAIT));
    s.see_poll("full", sys::poll_one(pair.fd, POLLOUT, 0));
    let other = pair.other;
    let came = pair.peer.recv_pattern(other, sent)?;
    s.see("peer got all", came == (sent, true));
    s.see_poll("empty", sys::poll_one(pair.fd, POLLOUT, SOON_MS));
    s.see("write", sys::write(pair.fd, b"again"));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn dontwait_when_full(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    pair.fill()?;
    s.see("send", sys::send(pair.fd, b"x", MSG_DONTWAIT));
    sys::fcntl(pair.fd, libc::F_SETFL, O_NONBLOCK.into())?;
    s.see("write", sys::write(pair.fd, b"x"));
    s.see("writev", sys::writev(pair.fd, &[b"x", b"y"]));
    let message = Outgoing { buffers: vec![b"x"], ..Outgoing::default() };
    s.see("sendmsg", sys::sendmsg(pair.fd, &message, 0));
    Ok(())
}

fn to_a_peer_that_does_not_read(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let first = pair.fill()?;
    s.see("something went", first > 0);
    s.see_poll("readable", sys::poll_one(pair.fd, libc::POLLIN, 0));
    Ok(())
}

fn blocks_until_all_is_taken(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let sent = pair.fill()?;
    let (other, len) = (pair.other, 500_000);
    pair.peer.later(150).drain(other, sent + len)?;
    let start = Instant::now();
    s.see("write", sys::write(pair.fd, &pattern_from(sent, len)));
    s.see_time("took", start, 50..4000);
    Ok(())
}

fn so_sndtimeo(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    pair.fill()?;
    sys::set_timeout(pair.fd, SO_SNDTIMEO, 150)?;
    let start = Instant::now();
    s.see("write", sys::write(pair.fd, b"x"));
    s.see_time("took", start, 150..1000);
    Ok(())
}

fn large(s: &mut Scene) -> Done {
    const LEN: usize = 1_000_000;
    let pair = s.pair()?;
    let fd = pair.fd;
    let hearing = pair.hear_meanwhile(LEN);
    let octets = pattern(LEN);
    let mut sent = 0;
    while sent < LEN {
        sent += sys::write(fd, &octets[sent..])?;
    }
    s.see("sent", sent);
    s.see("peer", hearing.wait());
    Ok(())
}

fn large_by_writev(s: &mut Scene) -> Done {
    const LEN: usize = 300_000;
    let pair = s.pair()?;
    let fd = pair.fd;
    let hearing = pair.hear_meanwhile(LEN);
    let octets = pattern(LEN);
    let (one, rest) = octets.split_at(7);
    let (two, three) = rest.split_at(100_000);
    s.see("writev", sys::writev(fd, &[one, two, b"", three]));
    s.see("peer", hearing.wait());
    Ok(())
}

fn both_directions_at_once(s: &mut Scene) -> Done {
    const LEN: usize = 400_000;
    let mut pair = s.pair()?;
    let (fd, other) = (pair.fd, pair.other);
    pair.peer.later(1).send_pattern(other, LEN)?;
    let hearing = pair.hear_meanwhile(LEN);
    let octets = pattern(LEN);
    sys::fcntl(fd, libc::F_SETFL, O_NONBLOCK.into())?;
    let (mut sent, mut came) = (0, Vec::new());
    while sent < LEN || came.len() < LEN {
        let wanted = if sent < LEN { POLLOUT } else { 0 } | if came.len() < LEN { libc::POLLIN } else { 0 };
        let events = sys::poll_one(fd, wanted, SOON_MS)?;
        if events & POLLOUT != 0 {
            sent += sys::write(fd, &octets[sent..(sent + 30_000).min(LEN)]).unwrap_or(0);
        }
        if events & libc::POLLIN != 0 {
            came.extend(sys::read(fd, 30_000).unwrap_or_default());
        }
    }
    s.see("came", came);
    s.see("peer", hearing.wait());
    Ok(())
}

fn after_the_peer_ended(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.peer_ends()?;
    s.see("write", sys::write(pair.fd, b"still open"));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn after_the_peer_closed(s: &mut Scene) -> Done {
    sys::handle(libc::SIGPIPE, 0)?;
    let mut pair = s.pair()?;
    pair.peer_closes()?;
    s.see("first", sys::write(pair.fd, b"x"));
    // The answer is a reset.
    s.see_poll("events", sys::poll_one(pair.fd, 0, SOON_MS));
    s.see("second", sys::write(pair.fd, b"x"));
    s.see("third", sys::write(pair.fd, b"x"));
    s.see("SIGPIPE", sys::signals(libc::SIGPIPE));
    s.see("read", sys::read(pair.fd, 10));
    Ok(())
}

fn more_is_held_back(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("send", sys::send(pair.fd, b"first, ", MSG_MORE));
    let other = pair.other;
    s.see("peer", pair.peer.recv_within(other, 100, 60));
    s.see("send", sys::send(pair.fd, b"second", 0));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn cork_is_held_back(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("cork", sys::setsockopt_int(pair.fd, IPPROTO_TCP, TCP_CORK, 1));
    s.see("write", sys::write(pair.fd, b"one, "));
    s.see("write", sys::write(pair.fd, b"two"));
    let other = pair.other;
    s.see("peer", pair.peer.recv_within(other, 100, 60));
    s.see("uncork", sys::setsockopt_int(pair.fd, IPPROTO_TCP, TCP_CORK, 0));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn cork_and_pull_by_nodelay(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::setsockopt_int(pair.fd, IPPROTO_TCP, TCP_CORK, 1)?;
    s.see("write", sys::write(pair.fd, b"held"));
    s.see("nodelay", sys::setsockopt_int(pair.fd, IPPROTO_TCP, TCP_NODELAY, 1));
    let other = pair.other;
    s.see("peer", pair.peer.recv_within(other, 100, 60));
    Ok(())
}

fn more_and_close(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("send", sys::send(pair.fd, b"held", MSG_MORE));
    s.see("close", sys::close(pair.fd));
    s.see("peer", pair.hear(100));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn cork_and_close(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::setsockopt_int(pair.fd, IPPROTO_TCP, TCP_CORK, 1)?;
    s.see("write", sys::write(pair.fd, b"held"));
    s.see("shutdown", sys::shutdown(pair.fd, SHUT_WR));
    s.see("peer", pair.hear(100));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn sendto_with_a_name(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("sendto", sys::sendto(pair.fd, b"to somebody", 0, &s.remote(9)));
    s.see("peer", pair.hear(100));
    s.see("with a short name", sys::sendto(pair.fd, b"to somebody", 0, &[1]));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn with_flags_that_mean_nothing(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    for (name, flags) in [
        ("EOR", MSG_EOR),
        ("CONFIRM", libc::MSG_CONFIRM),
        ("DONTROUTE", libc::MSG_DONTROUTE),
        ("WAITALL", libc::MSG_WAITALL),
        ("TRUNC", libc::MSG_TRUNC),
        ("ERRQUEUE", libc::MSG_ERRQUEUE),
        ("PEEK", libc::MSG_PEEK),
        ("unknown", 0x0080_0000),
    ] {
        s.see(name, sys::send(pair.fd, b"x", flags));
        s.see("peer", pair.hear(100));
    }
    Ok(())
}

fn too_many_vectors(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let many: Vec<&[u8]> = vec![b"x"; 1025];
    s.see("writev", sys::writev(pair.fd, &many));
    s.see("sendmsg", sys::sendmsg(pair.fd, &Outgoing { buffers: many, ..Outgoing::default() }, 0));
    Ok(())
}

fn most_vectors(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let octets = pattern(1024);
    let many: Vec<&[u8]> = octets.chunks(1).collect();
    s.see("writev", sys::writev(pair.fd, &many));
    let other = pair.other;
    s.see("peer", pair.peer.recv_pattern(other, 1024));
    Ok(())
}

fn sendmsg_with(s: &mut Scene, control: Vec<u8>) -> Done {
    let mut pair = s.pair()?;
    let message = Outgoing { buffers: vec![b"data"], control, ..Outgoing::default() };
    s.see("sendmsg", sys::sendmsg(pair.fd, &message, 0));
    let other = pair.other;
    s.see("peer", pair.peer.recv_within(other, 100, 100));
    Ok(())
}

fn sendmsg_with_unknown_control(s: &mut Scene) -> Done {
    sendmsg_with(s, sys::control_octets(&[Control::int(SOL_SOCKET, 99, 1)]))?;
    sendmsg_with(s, sys::control_octets(&[Control::int(77, 1, 1)]))
}

fn sendmsg_with_broken_control(s: &mut Scene) -> Done {
    let mut control = sys::control_octets(&[Control::int(SOL_SOCKET, 99, 1)]);
    control[0] = 3;
    sendmsg_with(s, control)
}

fn sendmsg_with_tos_control(s: &mut Scene) -> Done {
    sendmsg_with(s, sys::control_octets(&[Control::int(libc::IPPROTO_IP, libc::IP_TOS, 8)]))
}

fn sendmmsg(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let message = |octets| Outgoing { buffers: vec![octets], ..Outgoing::default() };
    let messages = [message(b"one, ".as_slice()), message(b"two, "), message(b"three")];
    s.see("sendmmsg", sys::sendmmsg(pair.fd, &messages, 0));
    let mut came = Vec::new();
    while came.len() < 15 {
        came.extend(pair.hear(100)?);
    }
    s.see("peer", came);
    s.see("sendmmsg of none", sys::sendmmsg(pair.fd, &[], 0));
    Ok(())
}

fn from_nowhere(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("send", sys::send_from_nowhere(pair.fd, 10));
    s.see("write", sys::write(pair.fd, b"good"));
    Ok(())
}

fn after_close(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    sys::close(pair.fd)?;
    s.see("write", sys::write(pair.fd, b"x"));
    s.see("send", sys::send(pair.fd, b"x", 0));
    s.see("sendmsg", sys::sendmsg(pair.fd, &Outgoing { buffers: vec![b"x"], ..Outgoing::default() }, 0));
    s.see("shutdown", sys::shutdown(pair.fd, SHUT_WR));
    Ok(())
}

fn unix_flag_oob(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("send", sys::send(pair.fd, b"urgent!", libc::MSG_OOB));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn with_a_small_buffer(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("SO_SNDBUF", sys::setsockopt_int(pair.fd, SOL_SOCKET, SO_SNDBUF, 5000));
    let sent = pair.fill()?;
    let other = pair.other;
    s.see("peer got all", pair.peer.recv_pattern(other, sent)? == (sent, true));
    Ok(())
}

/// Ten small writes that arrive whole, whatever is held back meanwhile.
fn pieces(s: &mut Scene, nodelay: bool) -> Done {
    let mut pair = s.pair()?;
    s.see("option", sys::setsockopt_int(pair.fd, IPPROTO_TCP, TCP_NODELAY, nodelay.into()));
    for start in (0..1000).step_by(100) {
        sys::write(pair.fd, &pattern_from(start, 100))?;
    }
    let other = pair.other;
    s.see("peer", pair.peer.recv_pattern(other, 1000));
    Ok(())
}

fn small_pieces(s: &mut Scene) -> Done {
    pieces(s, false)
}

fn nodelay_small_pieces(s: &mut Scene) -> Done {
    pieces(s, true)
}
