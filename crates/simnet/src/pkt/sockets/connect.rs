//! connect(), and the handshake that writing may begin.

use std::net::SocketAddr;

use super::address::{address, bind_address, connect_address};
use super::arguments::{Arguments, integer};
use super::blocking::{Progress, Running};
use super::file::SocketState;
use super::{Result, udp};
use crate::pkt::errno::Errno;
use crate::pkt::flow::Stage;
use crate::pkt::symbols as sym;
use crate::pkt::world::World;

pub(super) fn connect(world: &mut World, running: &mut Running<'_>) -> Result<Progress> {
    let arguments = Arguments::of(running.call, 3..=3)?;
    let fd = arguments.fd(0)?;
    let is_udp = world.socket(fd)?.is_udp;
    if integer(arguments.get(1)).is_ok_and(|family| family == sym::AF_UNSPEC) {
        return if is_udp { udp::connect(world, fd, None) } else { disconnect(world, fd) };
    }
    let remote = address(arguments.get(1), connect_address(&world.settings))?;
    if is_udp {
        return udp::connect(world, fd, Some(remote));
    }
    let has_cookie = world.cookies.has_of(remote.ip());
    let socket = world.socket(fd)?;
    match socket.state {
        SocketState::Idle if !running.begun && has_cookie && socket.options.fast_open_connect => {
            world.socket(fd)?.state = SocketState::Deferred(remote);
            Ok(Progress::done(0))
        }
        SocketState::Idle if !running.begun => {
            running.begun = true;
            if let Err(errno) = start(world, fd, remote, &[])? {
                return Ok(Progress::failed(errno));
            }
            wait_for_handshake(world, running, fd, Errno::EINPROGRESS)
        }
        SocketState::Connecting(_) => {
            let errno = if running.begun { Errno::EINPROGRESS } else { Errno::EALREADY };
            wait_for_handshake(world, running, fd, errno)
        }
        SocketState::Deferred(_) => Ok(Progress::failed(Errno::EALREADY)),
        SocketState::Idle => Ok(Progress::failed(Errno::ECONNABORTED)),
        _ => Ok(Progress::failed(Errno::EISCONN)),
    }
}

/// Sends the SYN, with `data` if Fast Open allows it.
pub(super) fn start(
    world: &mut World,
    fd: i32,
    remote: SocketAddr,
    data: &[u8],
) -> Result<std::result::Result<(), Errno>> {
    let (usual, port, now) = (bind_address(&world.settings).ip(), world.free_port(), world.now);
    let socket = world.socket(fd)?;
    let is_bound = socket.local.is_some();
    let range = ports(socket.kept(sym::SOL_IP, sym::IP_LOCAL_PORT_RANGE), port);
    let of_range = range.map(|port| SocketAddr::new(usual, port)).collect();
    let locals = socket.local.map_or(of_range, |local| vec![local]);
    let (options, flow) = (socket.options.clone(), socket.flow);
    if let Some(failed) = socket.failed.take() {
        world.host.close(failed, now);
    }
    let mut begun = Err(Errno::EADDRNOTAVAIL);
    let begin = |local: &SocketAddr| {
        begun = world.host.connect((*local, remote), is_bound, &options, data, now);
        begun != Err(Errno::EADDRNOTAVAIL)
    };
    let local = locals.into_iter().find(begin);
    let (local, id) = match (local, begun) {
        (Some(local), Ok(id)) => (local, id),
        (_, begun) => return Ok(Err(begun.err().unwrap_or(Errno::EADDRNOTAVAIL))),
    };
    let socket = world.socket(fd)?;
    socket.local = Some(local);
    socket.state = SocketState::Connecting(id);
    let flow = &mut world.flows[flow];
    flow.stage = Stage::Connecting;
    (flow.local, flow.remote) = (local, remote);
    Ok(Ok(()))
}

/// The ports that `IP_LOCAL_PORT_RANGE` allows: from its low half to its high half. Without it, `usual` alone.
fn ports(range: i64, usual: u16) -> std::ops::RangeInclusive<u16> {
    let (low, high) = (range as u16, (range >> 16) as u16);
    if range == 0 { usual..=usual } else { low.max(1)..=high }
}

/// Whether the handshake is over, well or not; `errno` is for a socket that does not wait.
pub(super) fn wait_for_handshake(
    world: &mut World,
    running: &Running<'_>,
    fd: i32,
    errno: Errno,
) -> Result<Progress> {
    let now = world.now;
    let socket = world.socket(fd)?;
    let (may_block, timeout) = (!socket.nonblocking, socket.send_timeout);
    let SocketState::Connecting(id) = socket.state else { return Ok(Progress::failed(Errno::EISCONN)) };
    match world.host.linux_state(id, now) {
        sym::TCP_SYN_SENT | sym::TCP_SYN_RECV => {
            let wait = Progress::wait(may_block, running.deadline(timeout), now);
            Ok(if wait == Progress::failed(Errno::EAGAIN) { Progress::failed(errno) } else { wait })
        }
        sym::TCP_CLOSE => {
            let error = world.host.take_error(id).unwrap_or(Errno::ECONNABORTED);
            let socket = world.socket(fd)?;
            socket.state = SocketState::Idle;
            socket.failed = Some(id);
            Ok(Progress::failed(error))
        }
        _ => {
            world.socket(fd)?.state = SocketState::Connected(id);
            Ok(Progress::done(0))
        }
    }
}

/// connect(AF_UNSPEC): the connection is reset and the socket as new.
fn disconnect(world: &mut World, fd: i32) -> Result<Progress> {
    let now = world.now;
    let socket = world.socket(fd)?;
    let (state, flow) = (socket.state, socket.flow);
    match state {
        SocketState::Listening(id) => world.host.close_listener(id, now),
        SocketState::Connecting(id) | SocketState::Connected(id) => world.host.abort(id, now),
        _ => {}
    }
    let socket = world.socket(fd)?;
    socket.state = SocketState::Idle;
    socket.local = None;
    // Packets of the old connection may still come; they belong to the flow as it was.
    world.flows[flow].stage = Stage::New;
    Ok(Progress::done(0))
}
