//! Calls that read.

use super::blocking::{Progress, Running};
use super::file::SocketState;
use super::message::{Transfer, check_received, transfer};
use super::{Result, error_queue, udp};
use crate::pkt::errno::Errno;
use crate::pkt::host::ConnectionId;
use crate::pkt::payload;
use crate::pkt::symbols as sym;
use crate::pkt::trouble::Trouble;
use crate::pkt::world::World;

pub(super) fn read(world: &mut World, running: &mut Running<'_>) -> Result<Progress> {
    let transfer = transfer(running.call)?;
    if transfer.flags & sym::MSG_ERRQUEUE != 0 {
        return error_queue::receive(world, &transfer);
    }
    let is_urgent = transfer.flags & sym::MSG_OOB != 0;
    let socket = world.socket(transfer.fd)?;
    if socket.is_udp && !is_urgent {
        return udp::receive(world, running, &transfer);
    }
    let Some(id) = socket.connection() else {
        return Ok(Progress::failed(if is_urgent { Errno::EINVAL } else { Errno::ENOTCONN }));
    };
    if is_urgent {
        let result = world.host.recv_urgent(id, transfer.flags & sym::MSG_PEEK != 0);
        return Ok(result.map_or_else(Progress::failed, |found| Progress::done(found.into())));
    }
    let timeout = socket.receive_timeout;
    let may_block = !socket.nonblocking && transfer.flags & sym::MSG_DONTWAIT == 0;
    take_over_handshake(world, transfer.fd)?;
    let wanted = transfer.len - running.moved;
    let result = take(world, &transfer, id, wanted)?;
    let progress = match result {
        Ok(count) if count > 0 && waits_for_all(&transfer, may_block) && count < wanted => {
            running.moved += count;
            Progress::wait(true, running.deadline(timeout), world.now)
        }
        Ok(count) => Progress::done((running.moved + count) as i64),
        Err(Errno::EAGAIN) => Progress::wait(may_block, running.deadline(timeout), world.now),
        Err(errno) => Progress::failed(errno),
    };
    let progress = match progress {
        Progress::Done(Err(_)) if running.moved > 0 => Progress::done(running.moved as i64),
        progress => progress,
    };
    if let (Progress::Done(Ok(_)), Some(message)) = (progress, transfer.message) {
        let tells_unread = world.socket(transfer.fd)?.kept(sym::SOL_TCP, sym::TCP_INQ) == 1;
        let (unread, ..) = world.host.queued(id, world.now);
        // The end of the stream counts as an octet, so that programs come for it.
        let unread = if world.host.readiness(id).read_closed { unread.max(1) } else { unread };
        check_received(message, unread, tells_unread)?;
    }
    Ok(progress)
}

fn waits_for_all(transfer: &Transfer<'_>, may_block: bool) -> bool {
    may_block && transfer.flags & sym::MSG_WAITALL != 0 && transfer.flags & sym::MSG_PEEK == 0
}

/// A program that found out without connect() that its socket is connected may read at once.
pub(super) fn take_over_handshake(world: &mut World, fd: i32) -> Result<()> {
    let now = world.now;
    let SocketState::Connecting(id) = world.socket(fd)?.state else { return Ok(()) };
    let state = world.host.linux_state(id, now);
    if !matches!(state, sym::TCP_SYN_SENT | sym::TCP_SYN_RECV | sym::TCP_CLOSE) {
        world.socket(fd)?.state = SocketState::Connected(id);
    }
    Ok(())
}

/// Reads once, and compares the data with what the script sent.
fn take(
    world: &mut World,
    transfer: &Transfer<'_>,
    id: ConnectionId,
    wanted: usize,
) -> Result<std::result::Result<usize, Errno>> {
    let mut buffer = vec![0; wanted];
    if transfer.is_null && transfer.flags & sym::MSG_TRUNC == 0 {
        // What cannot be written anywhere stays where it is.
        let found = world.host.peek(id, &mut buffer);
        return Ok(found.and_then(|count| if count > 0 { Err(Errno::EFAULT) } else { Ok(count) }));
    }
    let peeks = transfer.flags & sym::MSG_PEEK != 0;
    let skipped = usize::from(world.host.skips_urgent(id, world.now));
    let result = match peeks {
        true => world.host.peek(id, &mut buffer),
        false => world.host.recv(id, &mut buffer, world.now),
    };
    let number = world.socket(transfer.fd)?.flow;
    let flow = &mut world.flows[number];
    if !peeks && skipped > 0 && matches!(result, Ok(_) | Err(Errno::EAGAIN)) {
        flow.read += skipped;
    }
    let Ok(count) = result else { return Ok(result) };
    let start = flow.read + if peeks { skipped } else { 0 };
    if let Some(at) = payload::first_difference(start as u32, &buffer[..count]) {
        let offset = start + at;
        return Err(Trouble::differs(format!(
            "the data read is not what was sent, from octet {offset} of the stream on"
        )));
    }
    if !peeks {
        flow.read += count;
    }
    Ok(Ok(count))
}
