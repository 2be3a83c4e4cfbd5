//! Sending on TCP: what is refused, and what is unusual.

use libc::{MSG_DONTWAIT, MSG_EOR, MSG_NOSIGNAL, O_NONBLOCK, SHUT_WR, SO_SNDTIMEO, SOL_SOCKET};

use crate::scene::{SOON_MS, Scene};
use crate::show::pattern;
use crate::sys::{self, Control, Outgoing};
use crate::table::{Done, checks};

checks! {
    alone "write":
    PAIRS [after_shutdown, after_the_peer_ended, after_the_peer_closed],
    WAYS [
        after_shutdown_without_signal, sendto_with_a_name, with_flags_that_mean_nothing, too_many_vectors,
        most_vectors, sendmsg_with_unknown_control, sendmsg_with_broken_control, sendmmsg, sendmmsg_in_part, from_nowhere,
        after_close, unix_flag_oob, zero_vectors, sendmsg_with_tos_control, dontwait_when_full,
    ],
}

fn zero_vectors(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("writev of none", sys::writev(pair.fd, &[]));
    s.see("writev of an empty one", sys::writev(pair.fd, &[b""]));
    s.see("sendmsg of none", sys::sendmsg(pair.fd, &Outgoing::default(), 0));
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

/// There is no room for all of the first message in time, and when there is some, the second one is not to follow it.
fn sendmmsg_in_part(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::set_timeout(pair.fd, SO_SNDTIMEO, 200)?;
    pair.peer.later(300).drain(pair.other, 1_000_000)?;
    let first = pattern(30_000_000);
    let message = |octets| Outgoing { buffers: vec![octets], ..Outgoing::default() };
    let messages = [message(first.as_slice()), message(b"behind")];
    s.see("sendmmsg", sys::sendmmsg(pair.fd, &messages, 0).map(|(sent, _)| sent));
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
