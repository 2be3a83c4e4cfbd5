//! Calls on UDP sockets.

use std::net::SocketAddr;

use super::Result;
use super::address::{address, bind_address, connect_address};
use super::blocking::{Progress, Running};
use super::file::SocketState;
use super::message::Transfer;
use crate::pkt::errno::Errno;
use crate::pkt::flow::Stage;
use crate::pkt::host::UdpId;
use crate::pkt::payload;
use crate::pkt::symbols as sym;
use crate::pkt::trouble::Trouble;
use crate::pkt::world::World;

type Outcome<T> = Result<std::result::Result<T, Errno>>;

/// The socket with an address; one without gets a port of ours.
pub(super) fn bound(world: &mut World, fd: i32) -> Outcome<(UdpId, SocketAddr)> {
    let (usual, port) = (bind_address(&world.settings).ip(), world.free_port());
    let socket = world.socket(fd)?;
    let local = *socket.local.get_or_insert(SocketAddr::new(usual, port));
    let (state, flow, options) = (socket.state, socket.flow, socket.udp_options);
    let reuse_port = socket.kept(sym::SOL_SOCKET, sym::SO_REUSEPORT) != 0;
    if let SocketState::Datagram(id) = state {
        return Ok(Ok((id, local)));
    }
    let id = match world.host.udp_bind(local, options, reuse_port) {
        Ok(id) => id,
        Err(errno) => return Ok(Err(errno)),
    };
    world.socket(fd)?.state = SocketState::Datagram(id);
    let ip = if local.ip().is_unspecified() { usual } else { local.ip() };
    let peer = connect_address(&world.settings);
    let flow = &mut world.flows[flow];
    (flow.local, flow.remote, flow.stage) = (SocketAddr::new(ip, local.port()), peer, Stage::Known);
    Ok(Ok((id, local)))
}

pub(super) fn connect(world: &mut World, fd: i32, remote: Option<SocketAddr>) -> Result<Progress> {
    let (id, _) = match bound(world, fd)? {
        Ok(bound) => bound,
        Err(errno) => return Ok(Progress::failed(errno)),
    };
    let number = world.socket(fd)?.flow;
    let local = world.flows[number].local;
    let result = match remote {
        Some(remote) => {
            world.flows[number].remote = remote;
            world.host.udp_connect(id, local, remote)
        }
        None => world.host.udp_disconnect(id),
    };
    Ok(result.map_or_else(Progress::failed, |()| Progress::done(0)))
}

pub(super) fn send(world: &mut World, running: &Running<'_>, transfer: &Transfer<'_>) -> Result<Progress> {
    let usual = connect_address(&world.settings);
    let id = match bound(world, transfer.fd)? {
        Ok((id, _)) => id,
        Err(errno) => return Ok(Progress::failed(errno)),
    };
    let is_connected = world.host.udp_endpoints(id).is_some_and(|(_, peer)| peer.is_some());
    let named = transfer.address.filter(|address| !address.is_ellipsis() || !is_connected);
    let remote = named.map(|expression| address(expression, usual)).transpose()?;
    let socket = world.socket(transfer.fd)?;
    let may_block = !socket.nonblocking && transfer.flags & sym::MSG_DONTWAIT == 0;
    let deadline = running.deadline(socket.send_timeout);
    let number = socket.flow;
    let flow = &mut world.flows[number];
    if let Some(remote) = remote {
        flow.remote = remote;
    }
    let data =
        transfer.text.map_or_else(|| payload::pattern(0, transfer.len), |text| text[..transfer.len].to_vec());
    let local = flow.local;
    Ok(match world.host.udp_send(id, (local, remote), &data, world.now) {
        Ok(()) => Progress::done(transfer.len as i64),
        Err(Errno::EAGAIN) => Progress::wait(may_block, deadline, world.now),
        Err(errno) => Progress::failed(errno),
    })
}

pub(super) fn receive(world: &mut World, running: &Running<'_>, transfer: &Transfer<'_>) -> Result<Progress> {
    let socket = world.socket(transfer.fd)?;
    let may_block = !socket.nonblocking && transfer.flags & sym::MSG_DONTWAIT == 0;
    let deadline = running.deadline(socket.receive_timeout);
    let state = socket.state;
    let mut buffer = vec![0; transfer.len];
    let result = match state {
        SocketState::Datagram(id) => {
            world.host.udp_receive(id, &mut buffer, transfer.flags & sym::MSG_PEEK != 0)
        }
        _ => Err(Errno::EAGAIN),
    };
    match result {
        Ok((len, full_len)) => {
            if let Some(at) = payload::first_difference(0, &buffer[..len]) {
                return Err(Trouble::differs(format!("octet {at} of the datagram is not what was sent")));
            }
            let told = if transfer.flags & sym::MSG_TRUNC != 0 { full_len } else { len };
            Ok(Progress::done(told as i64))
        }
        Err(Errno::EAGAIN) => Ok(Progress::wait(may_block, deadline, world.now)),
        Err(errno) => Ok(Progress::failed(errno)),
    }
}
