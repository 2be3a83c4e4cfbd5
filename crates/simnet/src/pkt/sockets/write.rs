//! Calls that write.

use std::net::SocketAddr;

use super::address::{address, connect_address};
use super::blocking::{Progress, Running};
use super::file::SocketState;
use super::message::{Transfer, transfer};
use super::read::take_over_handshake;
use super::{Result, connect, error_queue, udp};
use crate::pkt::ast::{Expression, ExpressionKind};
use crate::pkt::errno::Errno;
use crate::pkt::host::ConnectionId;
use crate::pkt::payload;
use crate::pkt::symbols as sym;
use crate::pkt::trouble::Trouble;
use crate::pkt::world::World;

pub(super) fn write(world: &mut World, running: &mut Running<'_>) -> Result<Progress> {
    let transfer = transfer(running.call)?;
    if transfer.message.is_some_and(has_control) {
        return Err(Trouble::unsupported("a control message to send"));
    }
    if transfer.is_null && transfer.len > 0 {
        return Ok(Progress::failed(Errno::EFAULT));
    }
    if world.socket(transfer.fd)?.is_udp {
        return udp::send(world, running, &transfer);
    }
    if !running.is_opening {
        take_over_handshake(world, transfer.fd)?;
    }
    let progress = write_stream(world, running, &transfer)?;
    if transfer.flags & sym::MSG_ZEROCOPY != 0 && matches!(progress, Progress::Done(Ok(1..))) {
        error_queue::note_zero_copy(world, transfer.fd)?;
    }
    Ok(progress)
}

fn write_stream(world: &mut World, running: &mut Running<'_>, transfer: &Transfer<'_>) -> Result<Progress> {
    match world.socket(transfer.fd)?.state {
        SocketState::Connecting(_) if running.is_opening => open(world, running, transfer),
        SocketState::Connecting(id) | SocketState::Connected(id) => send(world, running, transfer, id),
        SocketState::Deferred(remote) => connect_with_data(world, running, transfer, remote),
        _ if transfer.flags & sym::MSG_FASTOPEN != 0 => {
            let usual = connect_address(&world.settings);
            let remote = transfer.address.map_or(Ok(usual), |expression| address(expression, usual))?;
            connect_with_data(world, running, transfer, remote)
        }
        _ => Ok(Progress::failed(Errno::EPIPE)),
    }
}

fn has_control(message: &Expression) -> bool {
    let control = message.field("msg_control");
    control.is_some_and(|control| !matches!(&control.kind, ExpressionKind::Array(items) if items.is_empty()))
}

/// Fast Open on a socket that is not connected: data goes with the SYN if the server gave a cookie, else after the
/// handshake, which a socket that does not wait leaves to the program.
fn connect_with_data(
    world: &mut World,
    running: &mut Running<'_>,
    transfer: &Transfer<'_>,
    remote: SocketAddr,
) -> Result<Progress> {
    let has_cookie = world.cookies.has_of(remote.ip());
    let socket = world.socket(transfer.fd)?;
    let flow = socket.flow;
    socket.options.fast_open_connect = true;
    socket.state = SocketState::Idle;
    let data = if has_cookie { data_of(world, transfer, flow, 0) } else { Vec::new() };
    if let Err(errno) = connect::start(world, transfer.fd, remote, &data)? {
        return Ok(Progress::failed(errno));
    }
    world.flows[flow].written.extend(&data);
    running.moved = data.len();
    running.is_opening = true;
    open(world, running, transfer)
}

/// Waits for the handshake that a write began, and writes what was not in the SYN.
fn open(world: &mut World, running: &mut Running<'_>, transfer: &Transfer<'_>) -> Result<Progress> {
    let may_block = !world.socket(transfer.fd)?.nonblocking && transfer.flags & sym::MSG_DONTWAIT == 0;
    if !may_block && running.moved > 0 {
        return Ok(Progress::done(running.moved as i64));
    }
    match connect::wait_for_handshake(world, running, transfer.fd, Errno::EINPROGRESS)? {
        Progress::Done(Ok(_)) => running.is_opening = false,
        other => return Ok(other),
    }
    match world.socket(transfer.fd)?.connection() {
        Some(_) if running.moved == transfer.len => Ok(Progress::done(running.moved as i64)),
        Some(id) => send(world, running, transfer, id),
        None => Ok(Progress::failed(Errno::EPIPE)),
    }
}

fn send(
    world: &mut World,
    running: &mut Running<'_>,
    transfer: &Transfer<'_>,
    id: ConnectionId,
) -> Result<Progress> {
    let socket = world.socket(transfer.fd)?;
    let (flow, timeout) = (socket.flow, socket.send_timeout);
    let may_block = !socket.nonblocking && transfer.flags & sym::MSG_DONTWAIT == 0;
    // A writer that waits is woken when a third of the buffer is free, as on Linux.
    if running.waited && !world.host.readiness(id).writable {
        return Ok(Progress::wait(may_block, running.deadline(timeout), world.now));
    }
    let data = data_of(world, transfer, flow, running.moved);
    let is_urgent = transfer.flags & sym::MSG_OOB != 0;
    let result = match data.is_empty() {
        true => Ok(0),
        false if is_urgent => world.host.send_urgent(id, &data, world.now),
        false => world.host.send(id, &data, world.now),
    };
    if let Ok(count) = result {
        world.flows[flow].written.extend(&data[..count]);
        running.moved += count;
        if running.moved == transfer.len {
            if transfer.flags & sym::MSG_EOR != 0 {
                world.host.end_record(id);
            }
            if transfer.flags & sym::MSG_MORE != 0 {
                world.host.expect_more(id);
            }
            return Ok(Progress::done(running.moved as i64));
        }
    }
    let progress = match result {
        Ok(_) | Err(Errno::EAGAIN) => Progress::wait(may_block, running.deadline(timeout), world.now),
        Err(errno) => Progress::failed(errno),
    };
    running.waited = matches!(progress, Progress::Blocked(_));
    Ok(match progress {
        Progress::Done(Err(_)) if running.moved > 0 => Progress::done(running.moved as i64),
        progress => progress,
    })
}

/// What is left to write: the script's own string, or the pattern of the stream.
fn data_of(world: &World, transfer: &Transfer<'_>, flow: usize, moved: usize) -> Vec<u8> {
    match transfer.text {
        Some(text) => text[moved..transfer.len].to_vec(),
        None => payload::pattern(world.flows[flow].written.len() as u32, transfer.len - moved),
    }
}
