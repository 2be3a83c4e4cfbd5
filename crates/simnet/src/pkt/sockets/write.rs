//! Calls that write.

use super::Result;
use super::address::{address, connect_address};
use super::blocking::{Progress, Running};
use super::message::{Transfer, transfer};
use super::open::start_connecting;
use super::read::take_over_handshake;
use crate::pkt::ast::{Expression, ExpressionKind};
use crate::pkt::errno::Errno;
use crate::pkt::host::ConnectionId;
use crate::pkt::payload;
use crate::pkt::symbols as sym;
use crate::pkt::trouble::Trouble;
use crate::pkt::world::World;

/// Flags of which the stack knows nothing.
const UNSUPPORTED: &[(i64, &str)] =
    &[(sym::MSG_OOB, "MSG_OOB"), (sym::MSG_EOR, "MSG_EOR"), (sym::MSG_ZEROCOPY, "MSG_ZEROCOPY")];

pub(super) fn write(world: &mut World, running: &mut Running<'_>) -> Result<Progress> {
    let transfer = transfer(running.call)?;
    if let Some((_, name)) = UNSUPPORTED.iter().find(|(flag, _)| transfer.flags & flag != 0) {
        return Err(Trouble::unsupported(*name));
    }
    if transfer.message.is_some_and(has_control) {
        return Err(Trouble::unsupported("a control message to send"));
    }
    if transfer.is_null && transfer.len > 0 {
        return Ok(Progress::failed(Errno::EFAULT));
    }
    take_over_handshake(world, transfer.fd)?;
    let socket = world.tcp_socket(transfer.fd)?;
    match socket.connection() {
        Some(id) => send(world, running, &transfer, id),
        None if transfer.flags & sym::MSG_FASTOPEN != 0 => connect_with_data(world, running, &transfer),
        None => Ok(Progress::failed(Errno::EPIPE)),
    }
}

fn has_control(message: &Expression) -> bool {
    let control = message.field("msg_control");
    control.is_some_and(|control| !matches!(&control.kind, ExpressionKind::Array(items) if items.is_empty()))
}

/// `MSG_FASTOPEN` on a socket that is not connected: data with the SYN.
fn connect_with_data(
    world: &mut World,
    running: &mut Running<'_>,
    transfer: &Transfer<'_>,
) -> Result<Progress> {
    let usual = connect_address(&world.settings);
    let remote = transfer.address.map_or(Ok(usual), |expression| address(expression, usual))?;
    let socket = world.tcp_socket(transfer.fd)?;
    let flow = socket.flow;
    socket.options.fast_open_connect = true;
    let data = data_of(world, transfer, flow, running.moved);
    if let Err(errno) = start_connecting(world, transfer.fd, remote, &data)? {
        return Ok(Progress::failed(errno));
    }
    world.flows[flow].written.extend(&data);
    Ok(Progress::done(data.len() as i64))
}

fn send(
    world: &mut World,
    running: &mut Running<'_>,
    transfer: &Transfer<'_>,
    id: ConnectionId,
) -> Result<Progress> {
    let socket = world.tcp_socket(transfer.fd)?;
    let (flow, timeout) = (socket.flow, socket.send_timeout);
    let may_block = !socket.nonblocking && transfer.flags & sym::MSG_DONTWAIT == 0;
    if !running.begun {
        running.begun = true;
        cork(world, transfer, id)?;
    }
    let data = data_of(world, transfer, flow, running.moved);
    let result = if data.is_empty() { Ok(0) } else { world.host.send(id, &data, world.now) };
    if let Ok(count) = result {
        world.flows[flow].written.extend(&data[..count]);
        running.moved += count;
        if running.moved == transfer.len {
            return Ok(Progress::done(running.moved as i64));
        }
    }
    let progress = match result {
        Ok(_) | Err(Errno::EAGAIN) => Progress::wait(may_block, running.deadline(timeout), world.now),
        Err(errno) => Progress::failed(errno),
    };
    Ok(match progress {
        Progress::Done(Err(_)) if running.moved > 0 => Progress::done(running.moved as i64),
        progress => progress,
    })
}

/// `MSG_MORE` holds back what does not fill a segment until something is written without it.
fn cork(world: &mut World, transfer: &Transfer<'_>, id: ConnectionId) -> Result<()> {
    let more = transfer.flags & sym::MSG_MORE != 0;
    let now = world.now;
    let mut options = world.host.options(id);
    let socket = world.tcp_socket(transfer.fd)?;
    if more == options.cork || options.cork && !socket.corked_by_more {
        return Ok(());
    }
    socket.corked_by_more = more;
    options.cork = more;
    world.host.set_options(id, options, now);
    Ok(())
}

/// What is left to write: the script's own string, or the pattern of the stream.
fn data_of(world: &World, transfer: &Transfer<'_>, flow: usize, moved: usize) -> Vec<u8> {
    match transfer.text {
        Some(text) => text[moved..transfer.len].to_vec(),
        None => payload::pattern(world.flows[flow].written.len() as u32, transfer.len - moved),
    }
}
