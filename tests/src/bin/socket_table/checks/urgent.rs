//! Urgent data.

use libc::{MSG_DONTWAIT, MSG_OOB, POLLIN, POLLPRI, SOL_SOCKET};

use crate::scene::{SOON_MS, Scene};
use crate::sys::{self};
use crate::table::{Done, checks};

checks! {
    "tcp_features":
    PAIRS [urgent_is_apart, urgent_inline],
    WAYS [urgent_mark, urgent_without_reading, urgent_sent, urgent_peek, urgent_twice],
}

fn urgent_is_apart(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let other = pair.other;
    pair.peer.send(other, b"normal")?;
    pair.peer.send_urgent(other, b"!")?;
    pair.peer.wait_acked(other)?;
    s.see_poll("events", sys::poll_one(pair.fd, POLLIN | POLLPRI, SOON_MS));
    s.see("urgent", sys::recv(pair.fd, 10, MSG_OOB | MSG_DONTWAIT));
    s.see("again", sys::recv(pair.fd, 10, MSG_OOB | MSG_DONTWAIT));
    s.see("normal", sys::recv(pair.fd, 10, MSG_DONTWAIT));
    s.see("nothing", sys::recv(pair.fd, 10, MSG_DONTWAIT));
    Ok(())
}

fn urgent_inline(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::setsockopt_int(pair.fd, SOL_SOCKET, libc::SO_OOBINLINE, 1)?;
    let other = pair.other;
    pair.peer.send(other, b"normal")?;
    pair.peer.send_urgent(other, b"!")?;
    pair.peer.send(other, b"after")?;
    pair.peer.wait_acked(other)?;
    s.see_poll("events", sys::poll_one(pair.fd, POLLIN | POLLPRI, SOON_MS));
    s.see("apart", sys::recv(pair.fd, 10, MSG_OOB | MSG_DONTWAIT));
    s.see("read to the mark", sys::recv(pair.fd, 100, MSG_DONTWAIT));
    s.see("and on", sys::recv(pair.fd, 100, MSG_DONTWAIT));
    Ok(())
}

fn urgent_mark(s: &mut Scene) -> Done {
    const SIOCATMARK: libc::c_ulong = 0x8905;
    let mut pair = s.pair()?;
    let other = pair.other;
    pair.peer.send(other, b"before")?;
    pair.peer.send_urgent(other, b"!")?;
    pair.peer.send(other, b"after")?;
    pair.peer.wait_acked(other)?;
    s.see("at the mark", sys::ioctl(pair.fd, SIOCATMARK, 7));
    s.see("read", sys::recv(pair.fd, 100, MSG_DONTWAIT));
    s.see("at the mark", sys::ioctl(pair.fd, SIOCATMARK, 7));
    s.see("read", sys::recv(pair.fd, 100, MSG_DONTWAIT));
    s.see("at the mark", sys::ioctl(pair.fd, SIOCATMARK, 7));
    Ok(())
}

fn urgent_without_reading(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let other = pair.other;
    pair.peer.send_urgent(other, b"!")?;
    pair.peer.send(other, b"after")?;
    pair.peer.wait_acked(other)?;
    s.see("read", sys::recv(pair.fd, 100, MSG_DONTWAIT));
    s.see("urgent", sys::recv(pair.fd, 10, MSG_OOB | MSG_DONTWAIT));
    Ok(())
}

fn urgent_twice(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let other = pair.other;
    pair.peer.send_urgent(other, b"1")?;
    pair.peer.wait_acked(other)?;
    pair.peer.send_urgent(other, b"2")?;
    pair.peer.wait_acked(other)?;
    s.see("urgent", sys::recv(pair.fd, 10, MSG_OOB | MSG_DONTWAIT));
    s.see("read", sys::recv(pair.fd, 100, MSG_DONTWAIT));
    Ok(())
}

fn urgent_peek(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let other = pair.other;
    pair.peer.send_urgent(other, b"!")?;
    pair.peer.wait_acked(other)?;
    s.see("peek", sys::recv(pair.fd, 10, MSG_OOB | libc::MSG_PEEK));
    let message = sys::recvmsg(pair.fd, &[10], 0, MSG_OOB)?;
    s.see("urgent", message.octets);
    s.see("flags", crate::show::message_names(message.flags));
    Ok(())
}

fn urgent_sent(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("send", sys::send(pair.fd, b"!", MSG_OOB));
    let other = pair.other;
    let events = pair.peer.events(other, POLLPRI, 200).map(|events| events & POLLPRI != 0);
    s.see("peer has it", events);
    s.see("normal", sys::send(pair.fd, b"normal", 0));
    s.see("peer", pair.hear(100));
    Ok(())
}
