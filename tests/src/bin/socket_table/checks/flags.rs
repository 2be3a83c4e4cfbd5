//! fcntl(2) and ioctl(2) of sockets.

use libc::{
    F_GETFD, F_GETFL, F_GETOWN, F_SETFD, F_SETFL, F_SETOWN, FIOASYNC, FIONBIO, FIONREAD, MSG_DONTWAIT,
    O_APPEND, O_ASYNC, O_NONBLOCK, O_RDWR, SOCK_CLOEXEC, SOCK_DGRAM, SOCK_NONBLOCK, SOCK_STREAM, TIOCOUTQ,
};

use crate::scene::{SOON_MS, Scene};
use crate::show::file_names;
use crate::sys;
use crate::table::{Done, checks};

checks! {
    alone "flags":
    PAIRS [nonblock_by_fcntl, descriptor_flags],
    WAYS [
        access_mode_is_kept, append_is_kept, async_and_owner, sigio_of_data, sigio_for_a_thread, signal_that_says_why, unknown_commands, pipe_size,
        locks, seals, lease,
    ],
    BOTH [of_datagrams, socket_flags, socket_errors],
    ONCE [kind_of_sockets, of_a_listener],
}

pub(super) const SIOCATMARK: libc::c_ulong = 0x8905;

pub(super) fn see_flags(s: &mut Scene, what: &str, fd: i32) {
    s.see(what, sys::fcntl(fd, F_GETFL, 0).map(file_names));
}

fn nonblock_by_fcntl(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    see_flags(s, "at first", pair.fd);
    s.see("set", sys::fcntl(pair.fd, F_SETFL, O_NONBLOCK.into()));
    see_flags(s, "afterwards", pair.fd);
    s.see("read", sys::read(pair.fd, 1));
    s.see("clear", sys::fcntl(pair.fd, F_SETFL, 0));
    see_flags(s, "in the end", pair.fd);
    Ok(())
}

fn descriptor_flags(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("at first", sys::fcntl(pair.fd, F_GETFD, 0));
    s.see("set", sys::fcntl(pair.fd, F_SETFD, 1));
    s.see("afterwards", sys::fcntl(pair.fd, F_GETFD, 0));
    s.see("clear", sys::fcntl(pair.fd, F_SETFD, 0));
    s.see("in the end", sys::fcntl(pair.fd, F_GETFD, 0));
    Ok(())
}

fn access_mode_is_kept(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("set", sys::fcntl(pair.fd, F_SETFL, libc::O_RDONLY.into()));
    see_flags(s, "flags", pair.fd);
    s.see("set", sys::fcntl(pair.fd, F_SETFL, (O_RDWR | libc::O_TRUNC | libc::O_CREAT).into()));
    see_flags(s, "flags", pair.fd);
    Ok(())
}

fn append_is_kept(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("set", sys::fcntl(pair.fd, F_SETFL, O_APPEND.into()));
    see_flags(s, "flags", pair.fd);
    s.see("write", sys::write(pair.fd, b"x"));
    s.see("peer", pair.hear(10));
    Ok(())
}

fn async_and_owner(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("owner", sys::fcntl(pair.fd, F_GETOWN, 0));
    s.see("set", sys::fcntl(pair.fd, F_SETOWN, std::process::id().into()));
    let own = std::process::id() as i32;
    s.see("is this", sys::fcntl(pair.fd, F_GETOWN, 0).map(|owner| owner == own));
    s.see("async", sys::fcntl(pair.fd, F_SETFL, O_ASYNC.into()));
    see_flags(s, "flags", pair.fd);
    s.see("FIOASYNC off", sys::ioctl(pair.fd, FIOASYNC, 0).map(|(result, _)| result));
    see_flags(s, "flags", pair.fd);
    Ok(())
}

fn sigio_of_data(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::handle(libc::SIGIO, libc::SA_RESTART)?;
    sys::fcntl(pair.fd, F_SETOWN, std::process::id().into())?;
    sys::fcntl(pair.fd, F_SETFL, O_ASYNC.into())?;
    pair.tell(b"data")?;
    s.see_poll("events", sys::poll_one(pair.fd, libc::POLLIN, SOON_MS));
    s.see("at least one SIGIO", sys::signals(libc::SIGIO) > 0);
    Ok(())
}

fn sigio_for_a_thread(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::handle(libc::SIGIO, libc::SA_RESTART)?;
    s.see("F_SETOWN_EX", sys::own_by_this_thread(pair.fd));
    sys::fcntl(pair.fd, F_SETFL, O_ASYNC.into())?;
    pair.tell(b"data")?;
    s.see_poll("events", sys::poll_one(pair.fd, libc::POLLIN, SOON_MS));
    s.see("at least one SIGIO", sys::signals(libc::SIGIO) > 0);
    s.see("read", sys::read(pair.fd, 10));
    Ok(())
}

/// fcntl(2), "F_SETSIG": with a signal of the program's choice `siginfo_t` has the descriptor and the events.
fn signal_that_says_why(s: &mut Scene) -> Done {
    const F_SETSIG: i32 = 10;
    const F_GETSIG: i32 = 11;
    let mut pair = s.pair()?;
    let signal = libc::SIGRTMIN() + 2;
    sys::mask_signals(libc::SIG_BLOCK, &[signal])?;
    let signals = sys::signalfd(&[signal], 0)?;
    sys::fcntl(pair.fd, F_SETOWN, std::process::id().into())?;
    s.see("no signal", sys::fcntl(pair.fd, F_SETSIG, 65));
    s.see("F_SETSIG", sys::fcntl(pair.fd, F_SETSIG, signal.into()));
    s.see("F_GETSIG", sys::fcntl(pair.fd, F_GETSIG, 0));
    sys::fcntl(pair.fd, F_SETFL, O_ASYNC.into())?;
    pair.tell(b"data")?;
    s.see_poll("events", sys::poll_one(signals, libc::POLLIN, SOON_MS));
    let came = sys::read(signals, 128)?;
    let word = |at: usize| i32::from_ne_bytes([came[at], came[at + 1], came[at + 2], came[at + 3]]);
    s.see("signal", word(0) == signal);
    s.see("why", word(8));
    s.see("is this descriptor", word(20) == pair.fd);
    s.see("read", sys::read(pair.fd, 10));
    Ok(())
}

fn unknown_commands(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("9999", sys::fcntl(pair.fd, 9999, 0));
    s.see("-1", sys::fcntl(pair.fd, -1, 0));
    Ok(())
}

fn pipe_size(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("F_GETPIPE_SZ", sys::fcntl(pair.fd, libc::F_GETPIPE_SZ, 0));
    s.see("F_SETPIPE_SZ", sys::fcntl(pair.fd, libc::F_SETPIPE_SZ, 4096));
    Ok(())
}

fn locks(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("LOCK_EX", sys::flock(pair.fd, libc::LOCK_EX | libc::LOCK_NB));
    s.see("LOCK_UN", sys::flock(pair.fd, libc::LOCK_UN));
    Ok(())
}

fn seals(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("F_GET_SEALS", sys::fcntl(pair.fd, libc::F_GET_SEALS, 0));
    s.see("F_GETSIG", sys::fcntl(pair.fd, 11, 0));
    Ok(())
}

fn lease(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("F_GETLEASE", sys::fcntl(pair.fd, libc::F_GETLEASE, 0));
    s.see("F_SETLEASE", sys::fcntl(pair.fd, libc::F_SETLEASE, libc::F_RDLCK.into()));
    Ok(())
}

fn of_datagrams(s: &mut Scene) -> Done {
    let (fd, port) = s.udp_bound()?;
    see_flags(s, "flags", fd);
    s.see("empty", sys::ioctl(fd, FIONREAD, 7));
    let mut peer = s.peer()?;
    let (other, _) = peer.udp()?;
    for octets in [b"four".as_slice(), b"seven77"] {
        peer.sendto(other, port, octets)?;
    }
    sys::poll_one(fd, libc::POLLIN, SOON_MS)?;
    s.see("the first", sys::ioctl(fd, FIONREAD, 7));
    sys::recv(fd, 10, 0)?;
    sys::poll_one(fd, libc::POLLIN, SOON_MS)?;
    s.see("the second", sys::ioctl(fd, FIONREAD, 7));
    sys::recv(fd, 10, 0)?;
    s.see("none", sys::ioctl(fd, FIONREAD, 7));
    s.see("SIOCOUTQ", sys::ioctl(fd, TIOCOUTQ, 7));
    s.see("SIOCATMARK", sys::ioctl(fd, SIOCATMARK, 7));
    s.see("nonblock", sys::ioctl(fd, FIONBIO, 1).map(|(result, _)| result));
    s.see("recv", sys::recv(fd, 10, 0));
    Ok(())
}

fn socket_flags(s: &mut Scene) -> Done {
    for kind in [SOCK_STREAM, SOCK_DGRAM] {
        for flags in [0, SOCK_NONBLOCK, SOCK_CLOEXEC, SOCK_NONBLOCK | SOCK_CLOEXEC] {
            let fd = sys::socket(s.domain(), kind | flags, 0)?;
            see_flags(s, "flags", fd);
            s.see("descriptor", sys::fcntl(fd, F_GETFD, 0));
        }
    }
    Ok(())
}

fn socket_errors(s: &mut Scene) -> Done {
    let domain = s.domain();
    s.see("unknown type", sys::socket(domain, 77, 0));
    s.see("unknown flag", sys::socket(domain, SOCK_STREAM | 0x10, 0));
    s.see("TCP as datagrams", sys::socket(domain, SOCK_DGRAM, libc::IPPROTO_TCP));
    s.see("UDP as a stream", sys::socket(domain, SOCK_STREAM, libc::IPPROTO_UDP));
    s.see("unknown protocol", sys::socket(domain, SOCK_STREAM, 254));
    s.see("protocol beyond all", sys::socket(domain, SOCK_STREAM, 1000));
    s.see("unknown family", sys::socket(200, SOCK_STREAM, 0));
    s.see("TCP by its number", sys::socket(domain, SOCK_STREAM, libc::IPPROTO_TCP).map(drop));
    s.see("UDP by its number", sys::socket(domain, SOCK_DGRAM, libc::IPPROTO_UDP).map(drop));
    Ok(())
}

fn kind_of_sockets(s: &mut Scene) -> Done {
    for kind in [SOCK_STREAM, SOCK_DGRAM] {
        for domain in [libc::AF_INET, libc::AF_INET6] {
            let fd = sys::socket(domain, kind, 0)?;
            for option in [libc::SO_TYPE, libc::SO_DOMAIN, libc::SO_PROTOCOL] {
                s.see("option", sys::getsockopt_int(fd, libc::SOL_SOCKET, option));
            }
        }
    }
    Ok(())
}

fn of_a_listener(s: &mut Scene) -> Done {
    let (listener, _) = s.listener()?;
    see_flags(s, "flags", listener);
    s.see("nonblock", sys::ioctl(listener, FIONBIO, 1).map(|(result, _)| result));
    see_flags(s, "flags", listener);
    s.see("accept", sys::accept(listener));
    s.see("SIOCATMARK", sys::ioctl(listener, SIOCATMARK, 7).map(|(result, _)| result));
    let _ = sys::recv(listener, 1, MSG_DONTWAIT); // Changes nothing.
    s.see("accept", sys::accept(listener));
    Ok(())
}
