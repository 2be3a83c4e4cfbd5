//! SIGPIPE, and signals that interrupt nothing.

use libc::{EPOLLIN, MSG_NOSIGNAL, POLLIN, SA_RESTART, SIG_BLOCK, SIGALRM, SIGPIPE, SIGURG, SIGUSR1};

use super::signals::{PERIOD, alarms};
use crate::scene::{SOON_MS, Scene};
use crate::sys::{self, End};
use crate::table::{Done, checks};

checks! {
    alone "signals":
    PAIRS [pipe_signal_ends_the_process],
    WAYS [
        pipe_signal_ignored, pipe_signal_blocked, pipe_signal_in_a_handler,
        ignored_signal_interrupts_nothing, blocked_signal_interrupts_nothing, data_and_signal,
        signalfd_beside_a_connection, sigurg_of_urgent_data, default_action_set_late,
    ],
    ONCE [sleeping_is_interrupted, alarm_is_not_ours],
}

fn data_and_signal(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"data")?;
    sys::handle(SIGUSR1, 0)?;
    sys::kill(std::process::id() as i32, SIGUSR1)?;
    // The signal has come and gone.
    s.see("read", sys::read(pair.fd, 10));
    s.see("signals", sys::signals(SIGUSR1));
    Ok(())
}

fn ignored_signal_interrupts_nothing(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let other = pair.other;
    sys::ignore(SIGALRM)?;
    sys::alarms(PERIOD)?;
    pair.peer.later(200).send(other, b"late")?;
    s.see("read", sys::read(pair.fd, 10));
    Ok(())
}

fn blocked_signal_interrupts_nothing(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let other = pair.other;
    alarms(0)?;
    sys::mask_signals(SIG_BLOCK, &[SIGALRM])?;
    pair.peer.later(200).send(other, b"late")?;
    s.see("read", sys::read(pair.fd, 10));
    Ok(())
}

fn pipe_signal_ends_the_process(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    sys::shutdown(pair.fd, libc::SHUT_WR)?;
    let fd = pair.fd;
    let pid = sys::fork_to(|| {
        let set = sys::default_action(SIGPIPE);
        let _ = sys::write(fd, b"x"); // Does not come back.
        i32::from(set.is_err()) + 1
    })?;
    s.see("by SIGPIPE", sys::wait_for(pid).map(|end| end == End::Signalled(SIGPIPE)));
    Ok(())
}

fn pipe_signal_ignored(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    sys::shutdown(pair.fd, libc::SHUT_WR)?;
    sys::ignore(SIGPIPE)?;
    s.see("write", sys::write(pair.fd, b"x"));
    Ok(())
}

fn pipe_signal_blocked(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    sys::handle(SIGPIPE, 0)?;
    sys::mask_signals(SIG_BLOCK, &[SIGPIPE])?;
    sys::shutdown(pair.fd, libc::SHUT_WR)?;
    s.see("write", sys::write(pair.fd, b"x"));
    s.see("signals", sys::signals(SIGPIPE));
    sys::mask_signals(libc::SIG_UNBLOCK, &[SIGPIPE])?;
    s.see("signals", sys::signals(SIGPIPE));
    Ok(())
}

fn pipe_signal_in_a_handler(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    sys::handle(SIGPIPE, 0)?;
    sys::shutdown(pair.fd, libc::SHUT_WR)?;
    s.see("write", sys::write(pair.fd, b"x"));
    s.see("send", sys::send(pair.fd, b"x", MSG_NOSIGNAL));
    s.see("writev", sys::writev(pair.fd, &[b"x"]));
    s.see("signals", sys::signals(SIGPIPE));
    Ok(())
}

fn default_action_set_late(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    alarms(0)?;
    s.see("read", sys::read(pair.fd, 10));
    sys::handle(SIGALRM, SA_RESTART)?;
    let other = pair.other;
    pair.peer.later(200).send(other, b"late")?;
    s.see("read", sys::read(pair.fd, 10));
    Ok(())
}

fn signalfd_beside_a_connection(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::mask_signals(SIG_BLOCK, &[SIGUSR1])?;
    let signals = sys::signalfd(&[SIGUSR1], 0)?;
    let epfd = sys::epoll_create(0)?;
    sys::epoll_add(epfd, pair.fd, EPOLLIN, 1)?;
    sys::epoll_add(epfd, signals, EPOLLIN, 2)?;
    sys::kill(std::process::id() as i32, SIGUSR1)?;
    s.see_epoll("signal", sys::epoll_wait(epfd, 8, SOON_MS));
    s.see("which", sys::read(signals, 128).map(|octets| octets[0]));
    pair.tell(b"data")?;
    s.see_epoll("data", sys::epoll_wait(epfd, 8, SOON_MS));
    Ok(())
}

fn sigurg_of_urgent_data(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::handle(SIGURG, SA_RESTART)?;
    s.see("owner", sys::fcntl(pair.fd, libc::F_SETOWN, std::process::id().into()));
    let other = pair.other;
    pair.peer.send_urgent(other, b"!")?;
    pair.peer.wait_acked(other)?;
    s.see_poll("events", sys::poll_one(pair.fd, POLLIN | libc::POLLPRI, SOON_MS));
    s.see("signals", sys::signals(SIGURG));
    Ok(())
}

fn sleeping_is_interrupted(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    alarms(SA_RESTART)?;
    s.see("poll", sys::poll(&[(pair.fd, POLLIN)], -1).map(drop));
    let epfd = sys::epoll_create(0)?;
    sys::epoll_add(epfd, pair.fd, EPOLLIN, 1)?;
    s.see("epoll_wait", sys::epoll_wait(epfd, 8, -1).map(drop));
    Ok(())
}

fn alarm_is_not_ours(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    sys::handle(SIGALRM, 0)?;
    s.see_poll("quiet", sys::poll_one(pair.fd, POLLIN, 300));
    s.see("signals", sys::signals(SIGALRM));
    Ok(())
}
