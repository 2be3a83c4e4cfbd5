//! fcntl(), ioctl(), getsockname(), getpeername().

use super::Result;
use super::address::{address, bind_address, connect_address};
use super::arguments::{Arguments, bracketed};
use super::blocking::{Progress, Running};
use super::file::{File, SocketState};
use crate::pkt::errno::Errno;
use crate::pkt::symbols as sym;
use crate::pkt::trouble::Trouble;
use crate::pkt::world::World;

pub(super) fn fcntl(world: &mut World, running: &Running<'_>) -> Result<Progress> {
    let arguments = Arguments::of(running.call, 2..=3)?;
    let argument = if arguments.len() == 3 { arguments.int(2)? } else { 0 };
    if let Some(File::Epoll(_) | File::Plain) = world.files.get(&arguments.fd(0)?) {
        return Ok(Progress::done(0));
    }
    let socket = world.socket(arguments.fd(0)?)?;
    match arguments.int(1)? {
        sym::F_GETFL => {
            let flags = if socket.nonblocking { sym::O_NONBLOCK } else { 0 };
            Ok(Progress::done(sym::O_RDWR | flags))
        }
        sym::F_SETFL => {
            socket.nonblocking = argument & sym::O_NONBLOCK != 0;
            Ok(Progress::done(0))
        }
        sym::F_GETFD | sym::F_SETFD => Ok(Progress::done(0)),
        other => Err(Trouble::unsupported(format!("fcntl() with command {other}"))),
    }
}

pub(super) fn ioctl(world: &mut World, running: &Running<'_>) -> Result<Progress> {
    let arguments = Arguments::of(running.call, 2..=3)?;
    let command = arguments.int(1)?;
    let now = world.now;
    let socket = world.socket(arguments.fd(0)?)?;
    let state = socket.state;
    if command == sym::FIONBIO && arguments.len() == 3 {
        socket.nonblocking = bracketed(arguments.get(2))? != 0;
        return Ok(Progress::done(0));
    }
    if matches!(state, SocketState::Listening(_)) {
        return Ok(Progress::failed(Errno::EINVAL));
    }
    let (unread, unacknowledged, unsent) = match state {
        SocketState::Connecting(id) | SocketState::Connected(id) => world.host.queued(id, now),
        SocketState::Datagram(id) => {
            let (unread, unsent) = world.host.udp_queued(id);
            (unread, unsent, unsent)
        }
        _ => (0, 0, 0),
    };
    let at_mark = match state {
        SocketState::Connected(id) => world.host.is_at_urgent_mark(id),
        _ => false,
    };
    let came = match command {
        sym::SIOCATMARK => usize::from(at_mark),
        sym::SIOCINQ => unread,
        sym::SIOCOUTQ => unacknowledged,
        sym::SIOCOUTQNSD => unsent,
        other => return Err(Trouble::unsupported(format!("ioctl() with request {other:#x}"))),
    };
    if arguments.len() == 3 && !arguments.get(2).is_ellipsis() {
        let expected = bracketed(arguments.get(2))?;
        if expected != came as i64 {
            return Err(Trouble::differs(format!("ioctl value: expected {expected}, came {came}")));
        }
    }
    Ok(Progress::done(0))
}

/// The address of one end, compared with the script's if that says one.
pub(super) fn name(world: &mut World, running: &Running<'_>) -> Result<Progress> {
    let arguments = Arguments::of(running.call, 3..=3)?;
    let is_peer = running.call.name == "getpeername";
    let usual = if is_peer { connect_address(&world.settings) } else { bind_address(&world.settings) };
    let socket = world.socket(arguments.fd(0)?)?;
    let (state, bound) = (socket.state, socket.local);
    let ends = match state {
        SocketState::Connecting(id) | SocketState::Connected(id) => world.host.endpoints(id),
        SocketState::Datagram(id) => {
            world.host.udp_endpoints(id).and_then(|(local, remote)| Some((local, remote?)))
        }
        _ => None,
    };
    let has_peer = match state {
        SocketState::Connecting(id) | SocketState::Connected(id) => !matches!(
            world.host.linux_state(id, world.now),
            sym::TCP_SYN_SENT | sym::TCP_CLOSE | sym::TCP_TIME_WAIT
        ),
        _ => true,
    };
    let came = match (is_peer, ends) {
        (true, Some((_, remote))) if has_peer => remote,
        (true, _) => return Ok(Progress::failed(Errno::ENOTCONN)),
        (false, Some((local, _))) => local,
        (false, None) => bound.unwrap_or(std::net::SocketAddr::from(([0, 0, 0, 0], 0))),
    };
    let expected = arguments.get(1);
    if !expected.is_ellipsis() && address(expected, usual)? != came {
        return Err(Trouble::differs(format!(
            "address: expected {}, came {came}",
            address(expected, usual)?
        )));
    }
    Ok(Progress::done(0))
}
