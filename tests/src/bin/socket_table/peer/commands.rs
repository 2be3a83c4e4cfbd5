//! What the peer can do.

use std::os::fd::RawFd;
use std::thread;
use std::time::{Duration, Instant};

use libc::{POLLIN, POLLOUT, SOL_SOCKET};

use super::client::{hex, unhex};
use super::session::{Session, parse};
use crate::scene::SOON_MS;
use crate::show::pattern_from;
use crate::sys::{self, Errno, Result};

/// How often a condition is looked at that nobody tells of.
const GLANCE: Duration = Duration::from_millis(1);

/// Does what `words` say; gives the words of the answer.
pub(super) fn obey(session: &Session, words: &[&str]) -> Result<String> {
    let nothing = |()| String::new();
    match *words {
        ["nothing"] => Ok(String::new()),
        ["socket", domain, kind] => {
            let fd = sys::socket(parse(domain)? as i32, parse(kind)? as i32, 0)?;
            Ok(session.keep(fd).to_string())
        }
        ["bind", slot, port] => bind(session, session.fd(slot)?, parse(port)? as u16),
        ["listen", slot, backlog] => sys::listen(session.fd(slot)?, parse(backlog)? as i32).map(nothing),
        ["accept", slot] => accept(session, session.fd(slot)?),
        ["connect_start", slot, port] => {
            connect_start(session, session.fd(slot)?, parse(port)? as u16).map(nothing)
        }
        ["connected", slot, ms] => connected(session.fd(slot)?, parse(ms)? as i32).map(nothing),
        ["connect_many", domain, port, count, ms] => {
            let (port, count) = (parse(port)? as u16, parse(count)? as usize);
            connect_many(session, parse(domain)? as i32, port, count, parse(ms)? as u64)
        }
        ["silent_port", domain] => silent_port(session, parse(domain)? as i32),
        ["send", slot, octets] => send_all(session.fd(slot)?, &unhex(octets), 0).map(nothing),
        ["send_urgent", slot, octets] => {
            send_all(session.fd(slot)?, &unhex(octets), libc::MSG_OOB).map(nothing)
        }
        ["send_pattern", slot, len] => send_pattern(session.fd(slot)?, parse(len)? as usize).map(nothing),
        ["recv", slot, room, ms] => {
            let fd = session.fd(slot)?;
            recv(fd, parse(room)? as usize, parse(ms)? as i32).map(|octets| hex(&octets))
        }
        ["recv_pattern", slot, len] => recv_pattern(session.fd(slot)?, parse(len)? as usize),
        ["recvfrom", slot, ms] => recvfrom(session.fd(slot)?, parse(ms)? as i32),
        ["sendto", slot, port] => sendto(session, session.fd(slot)?, port, &[]).map(nothing),
        ["sendto", slot, port, octets] => {
            sendto(session, session.fd(slot)?, port, &unhex(octets)).map(nothing)
        }
        ["sendto_pattern", slot, port, len] => {
            let octets = pattern_from(0, parse(len)? as usize);
            sendto(session, session.fd(slot)?, port, &octets).map(nothing)
        }
        ["wait_acked", slot] => wait_acked(session.fd(slot)?).map(nothing),
        ["shutdown", slot, how] => sys::shutdown(session.fd(slot)?, parse(how)? as i32).map(nothing),
        ["close", slot] => sys::close(session.fd(slot)?).map(nothing),
        ["reset", slot] => reset(session.fd(slot)?).map(nothing),
        ["set", slot, level, option, value] => {
            let (level, option) = (parse(level)? as i32, parse(option)? as i32);
            sys::setsockopt_int(session.fd(slot)?, level, option, parse(value)? as i32).map(nothing)
        }
        ["get", slot, level, option] => {
            let (level, option) = (parse(level)? as i32, parse(option)? as i32);
            sys::getsockopt_int(session.fd(slot)?, level, option).map(|value| value.to_string())
        }
        ["deafen", slot] => sys::attach_filter_of_nothing(session.fd(slot)?).map(nothing),
        ["events", slot, wanted, ms] => events(session.fd(slot)?, parse(wanted)? as i16, parse(ms)? as i32),
        _ => Err(Errno(libc::ENOSYS)),
    }
}

fn bind(session: &Session, fd: RawFd, port: u16) -> Result<String> {
    sys::bind(fd, &session.own_name(port))?;
    let name = sys::getsockname(fd, sys::FULL)?;
    Ok(name.address().map_or(0, |address| address.port()).to_string())
}

fn accept(session: &Session, fd: RawFd) -> Result<String> {
    wait(fd, POLLIN, SOON_MS)?;
    let (accepted, name) = sys::accept_name(fd, sys::FULL)?;
    let port = name.address().map_or(0, |address| address.port());
    Ok(format!("{} {port}", session.keep(accepted)))
}

/// Waits for an event, also for those that come unasked.
fn wait(fd: RawFd, events: i16, ms: i32) -> Result<()> {
    match sys::poll_one(fd, events, ms)? {
        0 => Err(Errno(libc::EAGAIN)),
        _ => Ok(()),
    }
}

fn connect_start(session: &Session, fd: RawFd, port: u16) -> Result<()> {
    let flags = sys::fcntl(fd, libc::F_GETFL, 0)?;
    sys::fcntl(fd, libc::F_SETFL, (flags | libc::O_NONBLOCK).into())?;
    let begun = sys::connect(fd, &session.other_name(port));
    sys::fcntl(fd, libc::F_SETFL, flags.into())?;
    match begun {
        Err(Errno(libc::EINPROGRESS)) => Ok(()),
        other => other,
    }
}

fn connected(fd: RawFd, ms: i32) -> Result<()> {
    wait(fd, POLLOUT, ms)?;
    match sys::getsockopt_int(fd, SOL_SOCKET, libc::SO_ERROR)? {
        0 => Ok(()),
        errno => Err(Errno(errno)),
    }
}

fn connect_many(session: &Session, domain: i32, port: u16, count: usize, ms: u64) -> Result<String> {
    let mut fds = Vec::new();
    for _ in 0..count {
        let fd = sys::socket(domain, libc::SOCK_STREAM, 0)?;
        session.keep(fd);
        connect_start(session, fd, port)?;
        fds.push((fd, POLLOUT));
    }
    thread::sleep(Duration::from_millis(ms));
    let (_, events) = sys::poll(&fds, 0)?;
    Ok(events.iter().filter(|&&events| events == POLLOUT).count().to_string())
}

/// With a backlog of nothing there is room for one connection; it is the peer's own.
fn silent_port(session: &Session, domain: i32) -> Result<String> {
    let listener = sys::socket(domain, libc::SOCK_STREAM, 0)?;
    let port = bind(session, listener, 0)?;
    sys::listen(listener, 0)?;
    let filler = sys::socket(domain, libc::SOCK_STREAM, 0)?;
    let name = sys::getsockname(listener, sys::FULL)?;
    sys::connect(filler, &name.octets)?;
    session.keep(listener);
    session.keep(filler);
    Ok(port)
}

fn send_all(fd: RawFd, octets: &[u8], flags: i32) -> Result<()> {
    let mut sent = 0;
    while sent < octets.len() {
        wait(fd, POLLOUT, SOON_MS)?;
        match sys::send(fd, &octets[sent..], flags | libc::MSG_DONTWAIT) {
            Ok(len) => sent += len,
            Err(Errno(libc::EAGAIN)) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn send_pattern(fd: RawFd, len: usize) -> Result<()> {
    const PIECE: usize = 1 << 16;
    for start in (0..len).step_by(PIECE) {
        send_all(fd, &pattern_from(start, PIECE.min(len - start)), 0)?;
    }
    Ok(())
}

fn recv(fd: RawFd, room: usize, ms: i32) -> Result<Vec<u8>> {
    wait(fd, POLLIN, ms)?;
    sys::recv(fd, room, libc::MSG_DONTWAIT)
}

fn recv_pattern(fd: RawFd, len: usize) -> Result<String> {
    let (mut came, mut good) = (0, true);
    while came < len {
        let octets = recv(fd, (len - came).min(1 << 16), SOON_MS)?;
        if octets.is_empty() {
            break;
        }
        good &= octets == pattern_from(came, octets.len());
        came += octets.len();
    }
    Ok(format!("{came} {good}"))
}

fn recvfrom(fd: RawFd, ms: i32) -> Result<String> {
    let v6 = sys::getsockopt_int(fd, SOL_SOCKET, libc::SO_DOMAIN)? == libc::AF_INET6;
    let (level, ask, kinds) = if v6 {
        let ask = [libc::IPV6_RECVTCLASS, libc::IPV6_RECVHOPLIMIT];
        (libc::IPPROTO_IPV6, ask, [libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT])
    } else {
        (libc::IPPROTO_IP, [libc::IP_RECVTOS, libc::IP_RECVTTL], [libc::IP_TOS, libc::IP_TTL])
    };
    for option in ask {
        sys::setsockopt_int(fd, level, option, 1)?;
    }
    wait(fd, POLLIN, ms)?;
    let message = sys::recvmsg(fd, &[1 << 16], 256, libc::MSG_DONTWAIT)?;
    // IP_TOS comes as one octet, all others as an int.
    let value = |kind: i32| {
        let control = message.control(level, kind);
        control
            .and_then(|control| control.as_int().or_else(|| control.data.first().map(|&octet| octet.into())))
    };
    let [tos, ttl] = kinds.map(|kind| value(kind).unwrap_or(-1));
    let from = message.from().ok_or(Errno(libc::EBADMSG))?;
    let octets = if message.octets.is_empty() { "-".to_owned() } else { hex(&message.octets) };
    Ok(format!("{octets} {} {tos} {ttl} {}", from.port(), from.ip()))
}

fn sendto(session: &Session, fd: RawFd, port: &str, octets: &[u8]) -> Result<()> {
    sys::sendto(fd, octets, 0, &session.other_name(parse(port)? as u16)).map(drop)
}

fn until(mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + Duration::from_millis(SOON_MS as u64);
    while !condition()? {
        if Instant::now() > deadline {
            return Err(Errno(libc::ETIMEDOUT));
        }
        thread::sleep(GLANCE);
    }
    Ok(())
}

fn wait_acked(fd: RawFd) -> Result<()> {
    until(|| Ok(sys::ioctl(fd, libc::TIOCOUTQ, 0)?.1 == 0))
}

fn reset(fd: RawFd) -> Result<()> {
    let linger = [1_i32, 0].map(i32::to_ne_bytes).concat();
    sys::setsockopt(fd, SOL_SOCKET, libc::SO_LINGER, &linger)?;
    sys::close(fd)
}

fn events(fd: RawFd, wanted: i16, ms: i32) -> Result<String> {
    sys::poll_one(fd, wanted, ms)?;
    let all = POLLIN | libc::POLLPRI | POLLOUT | libc::POLLRDHUP;
    Ok(sys::poll_one(fd, all, 0)?.to_string())
}
