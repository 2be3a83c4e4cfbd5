//! Signals that come while a call waits: EINTR, SA_RESTART, SIGPIPE.

use std::time::{Duration, Instant};

use libc::{MSG_WAITALL, SA_RESTART, SIGALRM, SO_RCVTIMEO, SO_SNDTIMEO};

use crate::scene::Scene;
use crate::sys::{self};
use crate::table::{Done, checks};

checks! {
    alone "signals":
    PAIRS [read_is_interrupted, read_is_restarted, write_is_interrupted],
    WAYS [
        recv_with_timeout_is_interrupted, write_with_timeout_is_interrupted, part_of_a_write_counts,
        part_of_waitall_counts, write_is_restarted, recvmsg_is_interrupted, recvmmsg_is_interrupted,
        sendfile_is_interrupted, splice_is_interrupted, by_signal_is_restarted, siginterrupt_interrupts,
        interrupted_again_and_again, close_by_linger_is_not_interrupted,
    ],
    BOTH [
        accept_is_interrupted, accept_is_restarted, accept_with_timeout_is_interrupted,
        recvfrom_is_interrupted,
    ],
    ONCE [connect_is_restarted],
}

pub(super) const PERIOD: Duration = Duration::from_millis(60);

/// Alarms from now on, with a handler that was set with `flags`.
pub(super) fn alarms(flags: i32) -> Result<(), sys::Errno> {
    sys::handle(SIGALRM, flags)?;
    sys::alarms(PERIOD)
}

fn no_more_alarms() -> Result<(), sys::Errno> {
    sys::alarms(Duration::ZERO)
}

fn read_is_interrupted(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    alarms(0)?;
    s.see("read", sys::read(pair.fd, 10));
    s.see("recv", sys::recv(pair.fd, 10, 0));
    s.see("readv", sys::readv(pair.fd, &[10]));
    no_more_alarms()?;
    pair.tell(b"data")?;
    s.see("read", sys::read(pair.fd, 10));
    Ok(())
}

fn read_is_restarted(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let other = pair.other;
    pair.peer.later(250).send(other, b"late")?;
    alarms(SA_RESTART)?;
    s.see("read", sys::read(pair.fd, 10));
    s.see("at least one signal", sys::signals(SIGALRM) > 0);
    Ok(())
}

fn by_signal_is_restarted(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let other = pair.other;
    pair.peer.later(250).send(other, b"late")?;
    sys::handle_by_signal(SIGALRM);
    sys::alarms(PERIOD)?;
    s.see("read", sys::read(pair.fd, 10));
    Ok(())
}

fn siginterrupt_interrupts(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    sys::handle_by_signal(SIGALRM);
    s.see("siginterrupt", sys::siginterrupt(SIGALRM, true));
    sys::alarms(PERIOD)?;
    s.see("read", sys::read(pair.fd, 10));
    Ok(())
}

fn write_is_interrupted(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    pair.fill()?;
    alarms(0)?;
    s.see("write", sys::write(pair.fd, b"x"));
    s.see("send", sys::send(pair.fd, b"x", 0));
    s.see("writev", sys::writev(pair.fd, &[b"x"]));
    Ok(())
}

fn write_is_restarted(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.fill()?;
    let other = pair.other;
    pair.peer.later(250).drain(other, usize::MAX >> 1)?;
    alarms(SA_RESTART)?;
    s.see("write", sys::write(pair.fd, b"after signals"));
    Ok(())
}

fn part_of_a_write_counts(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    alarms(0)?;
    // More than all buffers hold: some of it goes, then the signal comes.
    let sent = sys::write(pair.fd, &vec![0; 64 << 20]);
    s.see("a part", sent.map(|sent| sent > 0 && sent < 64 << 20));
    Ok(())
}

fn part_of_waitall_counts(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"half")?;
    alarms(0)?;
    s.see("recv", sys::recv(pair.fd, 8, MSG_WAITALL));
    s.see("recv", sys::recv(pair.fd, 8, MSG_WAITALL));
    Ok(())
}

fn recv_with_timeout_is_interrupted(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    sys::set_timeout(pair.fd, SO_RCVTIMEO, 2000)?;
    // With a time limit there is no restart: signal(7).
    alarms(SA_RESTART)?;
    s.see("recv", sys::recv(pair.fd, 10, 0));
    Ok(())
}

fn write_with_timeout_is_interrupted(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    pair.fill()?;
    sys::set_timeout(pair.fd, SO_SNDTIMEO, 2000)?;
    alarms(SA_RESTART)?;
    s.see("write", sys::write(pair.fd, b"x"));
    Ok(())
}

fn recvmsg_is_interrupted(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    alarms(0)?;
    s.see("recvmsg", sys::recvmsg(pair.fd, &[10], 0, 0).map(drop));
    s.see("recvfrom", sys::recvfrom(pair.fd, 10, 0, 16).map(drop));
    Ok(())
}

fn recvmmsg_is_interrupted(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    alarms(0)?;
    s.see("recvmmsg", sys::recvmmsg(pair.fd, 2, 10, 0, None).map(drop));
    Ok(())
}

fn sendfile_is_interrupted(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    pair.fill()?;
    let file = sys::file(b"data")?;
    alarms(0)?;
    s.see("sendfile", sys::sendfile(pair.fd, file, None, 4));
    Ok(())
}

fn splice_is_interrupted(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let [_reader, writer] = sys::pipe(0)?;
    alarms(0)?;
    s.see("splice", sys::splice(pair.fd, writer, 10, 0));
    Ok(())
}

fn interrupted_again_and_again(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    alarms(0)?;
    for _ in 0..4 {
        s.see("read", sys::read(pair.fd, 10));
    }
    s.see("at least as many signals", sys::signals(SIGALRM) >= 4);
    Ok(())
}

fn close_by_linger_is_not_interrupted(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let value = [1, 1].map(i32::to_ne_bytes).concat();
    sys::setsockopt(pair.fd, libc::SOL_SOCKET, libc::SO_LINGER, &value)?;
    pair.fill()?;
    alarms(0)?;
    let start = Instant::now();
    s.see("close", sys::close(pair.fd));
    s.see_time("took", start, 0..900);
    s.see("again", sys::close(pair.fd));
    Ok(())
}

fn accept_is_interrupted(s: &mut Scene) -> Done {
    let (listener, _) = s.listener()?;
    alarms(0)?;
    s.see("accept", sys::accept(listener));
    s.see("accept4", sys::accept4(listener, 0));
    Ok(())
}

fn accept_is_restarted(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    peer.later(250).connect_start(other, port)?;
    alarms(SA_RESTART)?;
    s.see("accept", sys::accept(listener).map(drop));
    Ok(())
}

fn accept_with_timeout_is_interrupted(s: &mut Scene) -> Done {
    let (listener, _) = s.listener()?;
    sys::set_timeout(listener, SO_RCVTIMEO, 2000)?;
    alarms(SA_RESTART)?;
    s.see("accept", sys::accept(listener));
    Ok(())
}

fn recvfrom_is_interrupted(s: &mut Scene) -> Done {
    let (fd, port) = s.udp_bound()?;
    alarms(0)?;
    s.see("recvfrom", sys::recvfrom(fd, 10, 0, 28).map(drop));
    sys::handle(SIGALRM, SA_RESTART)?;
    let mut peer = s.peer()?;
    let (other, _) = peer.udp()?;
    peer.later(200).sendto(other, port, b"late")?;
    s.see("recvfrom", sys::recvfrom(fd, 10, 0, 28).map(|(octets, _)| octets));
    Ok(())
}

fn connect_is_restarted(s: &mut Scene) -> Done {
    let mut peer = s.peer()?;
    let port = peer.silent_port()?;
    let fd = s.tcp()?;
    sys::handle(SIGALRM, SA_RESTART)?;
    sys::alarms(PERIOD)?;
    sys::set_timeout(fd, SO_SNDTIMEO, 400)?;
    // The time limit makes an end of it, since signals do not.
    s.see("connect", sys::connect(fd, &s.remote(port)));
    Ok(())
}
