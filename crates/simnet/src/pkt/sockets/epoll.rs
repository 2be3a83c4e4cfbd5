//! epoll: level- and edge-triggered, one-shot.

use super::Result;
use super::arguments::{Arguments, field};
use super::blocking::{Progress, Running};
use super::file::{Epoll, File, Interest};
use super::open::add_file;
use super::poll::{show, timeout};
use crate::pkt::ast::{Expression, ExpressionKind};
use crate::pkt::errno::Errno;
use crate::pkt::symbols as sym;
use crate::pkt::trouble::Trouble;
use crate::pkt::world::World;

pub(super) fn create(world: &mut World, running: &Running<'_>) -> Result<Progress> {
    let size = Arguments::of(running.call, 1..=1)?.int(0)?;
    if running.call.name == "epoll_create" && size <= 0 {
        return Ok(Progress::failed(Errno::EINVAL));
    }
    add_file(world, running, File::Epoll(Epoll::default()))
}

fn instance(world: &mut World, fd: i32) -> Result<&mut Epoll> {
    match world.files.get_mut(&fd) {
        Some(File::Epoll(epoll)) => Ok(epoll),
        _ => Err(Trouble::differs(format!("descriptor {fd} is no epoll instance"))),
    }
}

pub(super) fn control(world: &mut World, running: &Running<'_>) -> Result<Progress> {
    let arguments = Arguments::of(running.call, 4..=4)?;
    let (epfd, operation, fd) = (arguments.fd(0)?, arguments.int(1)?, arguments.fd(2)?);
    if !world.files.contains_key(&fd) {
        return Ok(Progress::failed(Errno::EBADF));
    }
    let epoll = instance(world, epfd)?;
    let known = epoll.interests.iter().position(|interest| interest.fd == fd);
    let errno = match (operation, known) {
        (sym::EPOLL_CTL_ADD, Some(_)) => Some(Errno::EEXIST),
        (sym::EPOLL_CTL_MOD | sym::EPOLL_CTL_DEL, None) => Some(Errno::ENOENT),
        (sym::EPOLL_CTL_ADD | sym::EPOLL_CTL_MOD | sym::EPOLL_CTL_DEL, _) => None,
        _ => Some(Errno::EINVAL),
    };
    if let Some(errno) = errno {
        return Ok(Progress::failed(errno));
    }
    if let Some(known) = known {
        epoll.interests.remove(known);
    }
    if operation != sym::EPOLL_CTL_DEL {
        let (events, data) = event(arguments.get(3))?;
        // What is ready already counts as news.
        epoll.interests.push(Interest { fd, events, data, armed: true, spent: false });
    }
    Ok(Progress::done(0))
}

/// Events and data of `{events=EPOLLIN, fd=4}`; the data may be called fd, ptr, u32 or u64.
fn event(expression: &Expression) -> Result<(i64, i64)> {
    let events = field(expression, "events")?;
    let events = events.ok_or_else(|| Trouble::unsupported("an epoll event without `events`"))?;
    for name in ["fd", "ptr", "u32", "u64", "data"] {
        if let Some(data) = field(expression, name)? {
            return Ok((events, data));
        }
    }
    Ok((events, 0))
}

pub(super) fn wait(world: &mut World, running: &Running<'_>) -> Result<Progress> {
    let arguments = Arguments::of(running.call, 4..=6)?;
    let epfd = arguments.fd(0)?;
    let most = arguments.count(2)?;
    if most == 0 {
        return Ok(Progress::failed(Errno::EINVAL));
    }
    let came = collect(world, epfd, most)?;
    let deadline = running.deadline(timeout(arguments.int(3)?));
    if came.is_empty() && deadline.is_none_or(|deadline| world.now < deadline) {
        return Ok(Progress::Blocked(deadline));
    }
    check(arguments.get(1), &came)?;
    Ok(Progress::done(came.len() as i64))
}

/// What there is to tell: events and data of at most `most` interests. Those that are edge-triggered are silent until
/// something happens again.
fn collect(world: &mut World, epfd: i32, most: usize) -> Result<Vec<(i64, i64)>> {
    let interests = std::mem::take(&mut instance(world, epfd)?.interests);
    let mut told = Vec::new();
    let mut kept = Vec::new();
    for mut interest in interests {
        let mask = world.interest_mask(&interest);
        let is_edge = interest.events & sym::EPOLLET != 0;
        if mask != 0 && (interest.armed || !is_edge) && told.len() < most {
            told.push((mask, interest.data));
            interest.armed = false;
            interest.spent = interest.events & sym::EPOLLONESHOT != 0;
        }
        kept.push(interest);
    }
    instance(world, epfd)?.interests = kept;
    Ok(told)
}

/// Compares with what the script writes: one event, or an array of them. Nothing is compared if none came.
fn check(expected: &Expression, came: &[(i64, i64)]) -> Result<()> {
    let expected = match &expected.kind {
        ExpressionKind::Array(events) => &events[..],
        ExpressionKind::Ellipsis => return Ok(()),
        _ => std::slice::from_ref(expected),
    };
    for (index, (expected, came)) in expected.iter().zip(came).enumerate() {
        let expected = event(expected)?;
        if expected.0 != came.0 {
            let (expected, came) = (show(expected.0), show(came.0));
            return Err(Trouble::differs(format!(
                "events of entry {index}: expected {expected}, came {came}"
            )));
        }
        if expected.1 != came.1 {
            return Err(Trouble::differs(format!(
                "data of entry {index}: expected {}, came {}",
                expected.1, came.1
            )));
        }
    }
    Ok(())
}
