//! Calls that make and end sockets.

use std::net::SocketAddr;

use super::address::{address, bind_address};
use super::arguments::{Arguments, integer};
use super::blocking::{Progress, Running};
use super::file::{File, SocketFile, SocketState};
use super::{Epoll, Result, udp};
use crate::pkt::errno::Errno;
use crate::pkt::flow::Stage;
use crate::pkt::host::{ConnectionId, Shutdown, TcpOptions};
use crate::pkt::settings::IpVersion;
use crate::pkt::symbols as sym;
use crate::pkt::trouble::Trouble;
use crate::pkt::world::World;

const TYPE_FLAGS: i64 = sym::SOCK_NONBLOCK | sym::SOCK_CLOEXEC;

pub(super) fn socket(world: &mut World, running: &Running<'_>) -> Result<Progress> {
    let arguments = Arguments::of(running.call, 3..=3)?;
    let is_v6 = match arguments.get(0) {
        domain if domain.is_ellipsis() => world.settings.ip_version != IpVersion::V4,
        domain => match integer(domain)? {
            sym::AF_INET => false,
            sym::AF_INET6 => true,
            other => return Err(Trouble::unsupported(format!("address family {other}"))),
        },
    };
    let (kind, protocol) = (arguments.int(1)?, arguments.int(2)?);
    let is_udp = match (kind & !TYPE_FLAGS, protocol) {
        (sym::SOCK_STREAM, sym::IPPROTO_TCP | sym::IPPROTO_IP) => false,
        (sym::SOCK_DGRAM, sym::IPPROTO_UDP | sym::IPPROTO_IP) => true,
        (sym::SOCK_STREAM, sym::IPPROTO_MPTCP) => return Err(Trouble::unsupported("Multipath TCP")),
        _ => return Err(Trouble::unsupported(format!("socket type {kind} with protocol {protocol}"))),
    };
    let flow = world.new_flow(Stage::New, is_udp);
    let mut socket = SocketFile::new(is_udp, is_v6, world.host.default_options(), flow);
    socket.nonblocking = kind & sym::SOCK_NONBLOCK != 0;
    add_file(world, running, File::Socket(Box::new(socket)))
}

/// Gives a new file the descriptor that the script expects, as packetdrill does.
pub(super) fn add_file(world: &mut World, running: &Running<'_>, file: File) -> Result<Progress> {
    let expected = integer(&running.call.result)?;
    let fd = i32::try_from(expected).ok().filter(|fd| *fd >= 0);
    let fd = fd.unwrap_or_else(|| (3..).find(|fd| !world.files.contains_key(fd)).unwrap_or(i32::MAX));
    if world.files.contains_key(&fd) {
        return Err(Trouble::differs(format!("the script has descriptor {fd} already")));
    }
    world.files.insert(fd, file);
    Ok(Progress::done(fd.into()))
}

/// open(): of files only their data matters, and that is made up where it is sent.
pub(super) fn open(world: &mut World, running: &Running<'_>) -> Result<Progress> {
    Arguments::of(running.call, 2..=3)?;
    add_file(world, running, File::Plain)
}

pub(super) fn bind(world: &mut World, running: &Running<'_>) -> Result<Progress> {
    let arguments = Arguments::of(running.call, 3..=3)?;
    let fd = arguments.fd(0)?;
    let local = address(arguments.get(1), bind_address(&world.settings))?;
    let socket = world.socket(fd)?;
    if socket.local.is_some() {
        return Ok(Progress::failed(Errno::EINVAL));
    }
    if is_taken(world, fd, local)? {
        return Ok(Progress::failed(Errno::EADDRINUSE));
    }
    let port = if local.port() == 0 { world.free_port() } else { local.port() };
    let socket = world.socket(fd)?;
    socket.local = Some(SocketAddr::new(local.ip(), port));
    if socket.is_udp {
        return Ok(udp::bound(world, fd)?.map_or_else(Progress::failed, |_| Progress::done(0)));
    }
    Ok(Progress::done(0))
}

/// Whether another socket keeps this one from being bound to `local`: both may share it if both say so.
fn is_taken(world: &mut World, fd: i32, local: SocketAddr) -> Result<bool> {
    let says = |socket: &SocketFile, name| socket.kept(sym::SOL_SOCKET, name) != 0;
    let mine = world.socket(fd)?;
    let is_udp = mine.is_udp;
    let (reuse_address, reuse_port) = (says(mine, sym::SO_REUSEADDR), says(mine, sym::SO_REUSEPORT));
    Ok(world.files.values().any(|file| match file {
        File::Socket(other) if other.local == Some(local) && other.is_udp == is_udp => {
            let listens = matches!(other.state, SocketState::Listening(_));
            let share = reuse_port && says(other, sym::SO_REUSEPORT)
                || reuse_address && says(other, sym::SO_REUSEADDR) && !listens;
            !share
        }
        _ => false,
    }))
}

pub(super) fn listen(world: &mut World, running: &Running<'_>) -> Result<Progress> {
    let arguments = Arguments::of(running.call, 2..=2)?;
    let fd = arguments.fd(0)?;
    // A negative backlog is a very large one.
    let backlog = (arguments.int(1)? as u32).min(sym::SOMAXCONN as u32);
    let usual = bind_address(&world.settings).ip();
    let port = world.free_port();
    let socket = world.socket(fd)?;
    if socket.is_udp {
        return Ok(Progress::failed(Errno::EOPNOTSUPP));
    }
    match socket.state {
        SocketState::Listening(id) => {
            world.host.set_backlog(id, backlog);
            return Ok(Progress::done(0));
        }
        SocketState::Idle => {}
        _ => return Ok(Progress::failed(Errno::EINVAL)),
    }
    let local = *socket.local.get_or_insert(SocketAddr::new(usual, port));
    let (options, flow) = (socket.options.clone(), socket.flow);
    match world.host.listen(local, backlog, &options) {
        Ok(id) => world.socket(fd)?.state = SocketState::Listening(id),
        Err(errno) => return Ok(Progress::failed(errno)),
    }
    world.flows[flow].stage = Stage::Listening;
    world.flows[flow].local = local;
    Ok(Progress::done(0))
}

pub(super) fn accept(world: &mut World, running: &Running<'_>) -> Result<Progress> {
    let arguments = Arguments::of(running.call, 3..=4)?;
    let flags = if arguments.len() == 4 { arguments.int(3)? } else { 0 };
    let now = world.now;
    let socket = world.socket(arguments.fd(0)?)?;
    let SocketState::Listening(listener) = socket.state else {
        return Ok(Progress::failed(if socket.is_udp { Errno::EOPNOTSUPP } else { Errno::EINVAL }));
    };
    let wait = Progress::wait(!socket.nonblocking, running.deadline(socket.receive_timeout), now);
    let (is_v6, kept) = (socket.is_v6, socket.kept.clone());
    let Some(id) = world.host.accept(listener) else { return Ok(wait) };
    let flow = flow_of_accepted(world, id);
    let mut accepted = SocketFile::new(false, is_v6, TcpOptions::default(), flow);
    accepted.state = SocketState::Connected(id);
    accepted.nonblocking = flags & sym::SOCK_NONBLOCK != 0;
    accepted.kept = kept;
    add_file(world, running, File::Socket(Box::new(accepted)))
}

/// The flow that the script made of it; a new one if it never saw a packet of it.
fn flow_of_accepted(world: &mut World, id: ConnectionId) -> usize {
    let Some((local, remote)) = world.host.endpoints(id) else { return world.new_flow(Stage::Known, false) };
    world.flow_between(local, remote).unwrap_or_else(|| {
        let under_test = world.under_test;
        let flow = world.new_flow(Stage::Known, false);
        world.flows[flow].local = local;
        world.flows[flow].remote = remote;
        world.under_test = under_test;
        flow
    })
}

pub(super) fn close(world: &mut World, running: &mut Running<'_>) -> Result<Progress> {
    let fd = Arguments::of(running.call, 1..=1)?.fd(0)?;
    let now = world.now;
    if let Some(File::Socket(socket)) = world.files.get(&fd) {
        if let Some(failed) = socket.failed {
            world.host.close(failed, now);
        }
        match socket.state {
            SocketState::Listening(id) => world.host.close_listener(id, now),
            SocketState::Connecting(id) => world.host.close(id, now),
            SocketState::Connected(id) => {
                if let Some(until) = lingers(world, running, id) {
                    return Ok(Progress::Blocked(Some(until)));
                }
                world.host.close(id, now);
            }
            SocketState::Datagram(id) => world.host.udp_close(id),
            SocketState::Idle | SocketState::Deferred(_) => {}
        }
    }
    if world.files.remove(&fd).is_none() {
        return Ok(Progress::failed(Errno::EBADF));
    }
    forget_interests(world, fd);
    Ok(Progress::done(0))
}

/// Until when close() waits for the peer to have everything, as `SO_LINGER` says.
fn lingers(world: &mut World, running: &mut Running<'_>, id: ConnectionId) -> Option<clock::Instant> {
    let time = world.host.options(id).linger.filter(|time| !time.is_zero())?;
    let (unread, unacknowledged, _) = world.host.queued(id, world.now);
    if unread > 0 && !running.begun {
        return None; // It is reset.
    }
    if !running.begun {
        running.begun = true;
        world.host.shutdown(id, Shutdown::Write, world.now);
    }
    let state = world.host.linux_state(id, world.now);
    let waits_for_ack = matches!(state, sym::TCP_FIN_WAIT1 | sym::TCP_CLOSING | sym::TCP_LAST_ACK);
    let until = running.started + time;
    ((unacknowledged > 0 || waits_for_ack) && world.now < until).then_some(until)
}

fn forget_interests(world: &mut World, fd: i32) {
    for file in world.files.values_mut() {
        if let File::Epoll(Epoll { interests }) = file {
            interests.retain(|interest| interest.fd != fd);
        }
    }
}

pub(super) fn shutdown(world: &mut World, running: &Running<'_>) -> Result<Progress> {
    let arguments = Arguments::of(running.call, 2..=2)?;
    let (fd, now) = (arguments.fd(0)?, world.now);
    let how = match arguments.int(1)? {
        sym::SHUT_RD => Shutdown::Read,
        sym::SHUT_WR => Shutdown::Write,
        sym::SHUT_RDWR => Shutdown::Both,
        _ => return Ok(Progress::failed(Errno::EINVAL)),
    };
    match world.socket(fd)?.state {
        SocketState::Idle | SocketState::Deferred(_) | SocketState::Datagram(_) => {
            return Ok(Progress::failed(Errno::ENOTCONN));
        }
        SocketState::Listening(id) => {
            if how != Shutdown::Write {
                world.host.close_listener(id, now);
                world.socket(fd)?.state = SocketState::Idle;
            }
        }
        SocketState::Connecting(id) | SocketState::Connected(id) => match world.host.linux_state(id, now) {
            sym::TCP_SYN_SENT => {
                world.host.close(id, now);
                world.socket(fd)?.state = SocketState::Idle;
            }
            sym::TCP_CLOSE | sym::TCP_TIME_WAIT => return Ok(Progress::failed(Errno::ENOTCONN)),
            _ => world.host.shutdown(id, how, now),
        },
    }
    Ok(Progress::done(0))
}
