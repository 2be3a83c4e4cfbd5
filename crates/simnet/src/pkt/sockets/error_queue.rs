//! The error queue of a connection (`MSG_ERRQUEUE`): writes with `MSG_ZEROCOPY` that are complete.
//!
//! The stack copies what is written, so each is complete when the call returns, and says so as Linux does where it had to copy.

use super::Result;
use super::arguments::field;
use super::blocking::Progress;
use super::message::Transfer;
use crate::pkt::ast::{Expression, ExpressionKind};
use crate::pkt::errno::Errno;
use crate::pkt::symbols as sym;
use crate::pkt::trouble::Trouble;
use crate::pkt::world::World;

/// Numbers of the writes that are complete.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Completions {
    next: u32,
    untold: u32,
}

impl Completions {
    pub(crate) fn is_due(&self) -> bool {
        self.next != self.untold
    }

    /// The first and the last that were not told of.
    fn take(&mut self) -> Option<(u32, u32)> {
        let range = self.is_due().then(|| (self.untold, self.next - 1));
        self.untold = self.next;
        range
    }
}

/// A write with `MSG_ZEROCOPY` is complete; without `SO_ZEROCOPY` the flag means nothing.
pub(super) fn note_zero_copy(world: &mut World, fd: i32) -> Result<()> {
    let socket = world.socket(fd)?;
    if socket.kept(sym::SOL_SOCKET, sym::SO_ZEROCOPY) == 0 {
        return Ok(());
    }
    socket.completions.next += 1;
    world.arm(fd, sym::POLLERR);
    Ok(())
}

/// recvmsg() with `MSG_ERRQUEUE`.
pub(super) fn receive(world: &mut World, transfer: &Transfer<'_>) -> Result<Progress> {
    let socket = world.socket(transfer.fd)?;
    if socket.is_udp {
        return Err(Trouble::unsupported("the error queue of a UDP socket"));
    }
    let Some((first, last)) = socket.completions.take() else {
        return match socket.kept(sym::SOL_SOCKET, sym::SO_TIMESTAMPING) {
            0 => Ok(Progress::failed(Errno::EAGAIN)),
            _ => Err(Trouble::unsupported("times in the error queue of a socket")),
        };
    };
    let came = [
        ("ee_errno", 0),
        ("ee_origin", sym::SO_EE_ORIGIN_ZEROCOPY),
        ("ee_type", 0),
        ("ee_code", sym::SO_EE_CODE_ZEROCOPY_COPIED),
        ("ee_info", first.into()),
        ("ee_data", last.into()),
    ];
    if let Some(message) = transfer.message {
        check(message, &came)?;
    }
    Ok(Progress::done(0))
}

fn check(message: &Expression, came: &[(&str, i64)]) -> Result<()> {
    let flags = field(message, "msg_flags")?.unwrap_or(0);
    if flags != sym::MSG_ERRQUEUE {
        return Err(Trouble::differs(format!(
            "msg_flags: expected {flags:#x}, came {:#x}",
            sym::MSG_ERRQUEUE
        )));
    }
    let control = match message.field("msg_control").map(|control| &control.kind) {
        Some(ExpressionKind::Array(items)) if items.len() == 1 => &items[0],
        _ => return Err(Trouble::differs("msg_control: came one message, and not one was expected")),
    };
    let kind = (field(control, "cmsg_level")?, field(control, "cmsg_type")?);
    let usual = [(sym::SOL_IP, sym::IP_RECVERR), (sym::SOL_IPV6, sym::IPV6_RECVERR)];
    if !usual.iter().any(|(level, name)| kind == (Some(*level), Some(*name))) {
        return Err(Trouble::differs("msg_control: expected another message, came CMSG_TYPE_RECVERR"));
    }
    let data =
        control.field("cmsg_data").ok_or_else(|| Trouble::differs("the control message has no cmsg_data"))?;
    for (name, came) in came {
        let expected = field(data, name)?.unwrap_or(0);
        if expected != *came {
            return Err(Trouble::differs(format!("{name}: expected {expected}, came {came}")));
        }
    }
    Ok(())
}
