//! poll().

use clock::Duration;

use super::Result;
use super::arguments::{Arguments, field, kind_name};
use super::blocking::{Progress, Running};
use crate::pkt::ast::{Expression, ExpressionKind};
use crate::pkt::symbols as sym;
use crate::pkt::trouble::Trouble;
use crate::pkt::world::World;

pub(super) fn poll(world: &mut World, running: &Running<'_>) -> Result<Progress> {
    let arguments = Arguments::of(running.call, 3..=3)?;
    let entries = match &arguments.get(0).kind {
        ExpressionKind::Array(entries) => entries,
        other => {
            return Err(Trouble::unsupported(format!("{} for the descriptors of poll()", kind_name(other))));
        }
    };
    if arguments.count(1)? != entries.len() {
        return Err(Trouble::differs(format!(
            "the array has {} descriptors, not the stated number",
            entries.len()
        )));
    }
    let masks = entries.iter().map(|entry| ready(world, entry)).collect::<Result<Vec<i64>>>()?;
    let count = masks.iter().filter(|mask| **mask != 0).count();
    let deadline = running.deadline(timeout(arguments.int(2)?));
    if count == 0 && deadline.is_none_or(|deadline| world.now < deadline) {
        return Ok(Progress::Blocked(deadline));
    }
    for (index, (entry, came)) in entries.iter().zip(masks).enumerate() {
        let expected = field(entry, "revents")?.unwrap_or(0);
        if expected != came {
            let (expected, came) = (show(expected), show(came));
            return Err(Trouble::differs(format!(
                "revents of entry {index}: expected {expected}, came {came}"
            )));
        }
    }
    Ok(Progress::done(count as i64))
}

fn ready(world: &World, entry: &Expression) -> Result<i64> {
    let fd = field(entry, "fd")?.ok_or_else(|| Trouble::differs("an entry of poll() has no fd"))?;
    let events = field(entry, "events")?.unwrap_or(0);
    if fd < 0 {
        return Ok(0);
    }
    let always = sym::POLLERR | sym::POLLHUP | sym::POLLNVAL;
    Ok(world.readiness(fd as i32) & (events | always))
}

/// Milliseconds as poll() and epoll_wait() take them: a negative number is without end.
pub(super) fn timeout(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// A mask in names; those of epoll are the same.
pub(super) fn show(mask: i64) -> String {
    const NAMES: &[(i64, &str)] = &[
        (sym::POLLIN, "POLLIN"),
        (sym::POLLPRI, "POLLPRI"),
        (sym::POLLOUT, "POLLOUT"),
        (sym::POLLERR, "POLLERR"),
        (sym::POLLHUP, "POLLHUP"),
        (sym::POLLNVAL, "POLLNVAL"),
        (sym::POLLRDNORM, "POLLRDNORM"),
        (sym::POLLWRNORM, "POLLWRNORM"),
        (sym::POLLRDHUP, "POLLRDHUP"),
    ];
    let names: Vec<&str> = NAMES.iter().filter(|(bit, _)| mask & bit != 0).map(|(_, name)| *name).collect();
    if names.is_empty() { mask.to_string() } else { names.join("|") }
}
