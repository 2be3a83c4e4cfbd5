//! poll(2), select(2), epoll(7).

use std::os::fd::RawFd;
use std::time::Duration;

use libc::{c_int, sigset_t, timespec, timeval};

use super::{Result, checked, done};

pub(super) fn timespec_of(time: Duration) -> timespec {
    timespec { tv_sec: time.as_secs() as _, tv_nsec: time.subsec_nanos().into() }
}

/// A descriptor and the events that are wanted.
pub(crate) type Wanted = (RawFd, i16);

/// poll(2), with -1 for no end; gives how many have events, and those of each.
pub(crate) fn poll(wanted: &[Wanted], timeout_ms: c_int) -> Result<(c_int, Vec<i16>)> {
    let mut fds = poll_fds(wanted);
    // SAFETY: pointer and length are those of a vector.
    let ready = checked(unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as _, timeout_ms) })?;
    Ok((ready, fds.iter().map(|fd| fd.revents).collect()))
}

/// ppoll(2), with the signals that are blocked meanwhile.
pub(crate) fn ppoll(
    wanted: &[Wanted],
    timeout: Option<Duration>,
    mask: Option<&sigset_t>,
) -> Result<(c_int, Vec<i16>)> {
    let mut fds = poll_fds(wanted);
    let time = timeout.map(timespec_of);
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let mask = mask.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: pointer and length are those of a vector; time and mask are null or references'.
    let ready = checked(unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as _, time, mask) })?;
    Ok((ready, fds.iter().map(|fd| fd.revents).collect()))
}

fn poll_fds(wanted: &[Wanted]) -> Vec<libc::pollfd> {
    // What the system does not write must show.
    wanted.iter().map(|&(fd, events)| libc::pollfd { fd, events, revents: 0x4000 }).collect()
}

/// The events of one descriptor within `timeout_ms`, none if the time is over.
pub(crate) fn poll_one(fd: RawFd, events: i16, timeout_ms: c_int) -> Result<i16> {
    Ok(poll(&[(fd, events)], timeout_ms)?.1[0])
}

/// The three sets of select(2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sets {
    /// Readable.
    pub(crate) read: Vec<RawFd>,
    /// Writable.
    pub(crate) write: Vec<RawFd>,
    /// With something exceptional.
    pub(crate) except: Vec<RawFd>,
}

/// Which function of the two.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SelectBy<'a> {
    /// select(2).
    Select,
    /// pselect(2) with this mask.
    Pselect(Option<&'a sigset_t>),
}

/// select(2) or pselect(2); gives its result, what is left in the sets, and what select left of the time.
pub(crate) fn select(
    by: SelectBy<'_>,
    nfds: c_int,
    sets: &Sets,
    timeout: Option<Duration>,
) -> Result<(c_int, Sets, Option<Duration>)> {
    let mut raw = [raw_set(&sets.read), raw_set(&sets.write), raw_set(&sets.except)];
    let at = |index: usize, set: &mut libc::fd_set| {
        let empty = [&sets.read, &sets.write, &sets.except][index].is_empty();
        if empty { std::ptr::null_mut() } else { std::ptr::from_mut(set) }
    };
    let [read, write, except] = &mut raw;
    let (read, write, except) = (at(0, read), at(1, write), at(2, except));
    let mut left = timeval { tv_sec: 0, tv_usec: 0 };
    let result = match by {
        SelectBy::Select => {
            let time = timeout
                .map(|time| timeval { tv_sec: time.as_secs() as _, tv_usec: time.subsec_micros() as _ });
            left = time.unwrap_or(left);
            let time = if time.is_some() { &raw mut left } else { std::ptr::null_mut() };
            // SAFETY: sets and time are null or exclusively ours.
            unsafe { libc::select(nfds, read, write, except, time) }
        }
        SelectBy::Pselect(mask) => {
            let time = timeout.map(timespec_of);
            let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            let mask = mask.map_or(std::ptr::null(), std::ptr::from_ref);
            // SAFETY: sets are null or exclusively ours, time and mask null or references'.
            unsafe { libc::pselect(nfds, read, write, except, time, mask) }
        }
    };
    let ready = checked(result)?;
    let of = |fds: &[RawFd], set: &libc::fd_set| {
        // SAFETY: all numbers are below FD_SETSIZE, see `raw_set`.
        fds.iter().copied().filter(|&fd| unsafe { libc::FD_ISSET(fd, set) }).collect()
    };
    let left = Duration::from_secs(left.tv_sec as u64) + Duration::from_micros(left.tv_usec as u64);
    let sets = Sets {
        read: of(&sets.read, &raw[0]),
        write: of(&sets.write, &raw[1]),
        except: of(&sets.except, &raw[2]),
    };
    Ok((ready, sets, timeout.map(|_| left)))
}

fn raw_set(fds: &[RawFd]) -> libc::fd_set {
    // SAFETY: zeros are the empty set.
    let mut set: libc::fd_set = unsafe { std::mem::zeroed() };
    for &fd in fds {
        assert!((0..libc::FD_SETSIZE as RawFd).contains(&fd), "{fd} fits no set");
        // SAFETY: the number fits the set.
        unsafe { libc::FD_SET(fd, &mut set) };
    }
    set
}

/// epoll_create1(2).
pub(crate) fn epoll_create(flags: c_int) -> Result<RawFd> {
    // SAFETY: no pointers.
    checked(unsafe { libc::epoll_create1(flags) })
}

/// epoll_create(2), the old one.
pub(crate) fn epoll_create_sized(size: c_int) -> Result<RawFd> {
    // SAFETY: no pointers.
    checked(unsafe { libc::epoll_create(size) })
}

/// epoll_ctl(2).
pub(crate) fn epoll_ctl(epfd: RawFd, op: c_int, fd: RawFd, events: u32, data: u64) -> Result<()> {
    let mut event = libc::epoll_event { events, u64: data };
    // SAFETY: `event` is exclusively ours.
    done(unsafe { libc::epoll_ctl(epfd, op, fd, &mut event) })
}

/// epoll_ctl(2) with `EPOLL_CTL_ADD`.
pub(crate) fn epoll_add(epfd: RawFd, fd: RawFd, events: i32, data: u64) -> Result<()> {
    epoll_ctl(epfd, libc::EPOLL_CTL_ADD, fd, events as u32, data)
}

/// epoll_ctl(2) with `EPOLL_CTL_MOD`.
pub(crate) fn epoll_mod(epfd: RawFd, fd: RawFd, events: i32, data: u64) -> Result<()> {
    epoll_ctl(epfd, libc::EPOLL_CTL_MOD, fd, events as u32, data)
}

/// epoll_ctl(2) with `EPOLL_CTL_DEL` and a null event.
pub(crate) fn epoll_del(epfd: RawFd, fd: RawFd) -> Result<()> {
    epoll_ctl_without_event(epfd, libc::EPOLL_CTL_DEL, fd)
}

/// epoll_ctl(2) with a null event.
pub(crate) fn epoll_ctl_without_event(epfd: RawFd, op: c_int, fd: RawFd) -> Result<()> {
    // SAFETY: the kernel says EFAULT where it needs one.
    done(unsafe { libc::epoll_ctl(epfd, op, fd, std::ptr::null_mut()) })
}

/// Which function waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitBy<'a> {
    /// epoll_wait(2).
    Wait,
    /// epoll_pwait(2) with this mask.
    Pwait(Option<&'a sigset_t>),
    /// epoll_pwait2(2) with this mask.
    Pwait2(Option<&'a sigset_t>),
}

/// epoll_wait(2) and its kin; -1 for no end. Events and data, in the order in which they came.
pub(crate) fn epoll_wait_by(
    by: WaitBy<'_>,
    epfd: RawFd,
    max: c_int,
    timeout_ms: c_int,
) -> Result<Vec<(u32, u64)>> {
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; max.clamp(1, 1024) as usize];
    let at = events.as_mut_ptr();
    let pointer = |mask: Option<&sigset_t>| mask.map_or(std::ptr::null(), std::ptr::from_ref);
    let time = u64::try_from(timeout_ms).ok().map(|time| timespec_of(Duration::from_millis(time)));
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: there is room for `max` events, at least one; mask and time are null or references'.
    let ready = checked(unsafe {
        match by {
            WaitBy::Wait => libc::epoll_wait(epfd, at, max, timeout_ms),
            WaitBy::Pwait(mask) => libc::epoll_pwait(epfd, at, max, timeout_ms, pointer(mask)),
            WaitBy::Pwait2(mask) => epoll_pwait2(epfd, at, max, time, pointer(mask)),
        }
    })?;
    Ok(events[..ready as usize].iter().map(|event| (event.events, event.u64)).collect())
}

unsafe extern "C" {
    // Since glibc 2.35.
    fn epoll_pwait2(
        epfd: c_int,
        events: *mut libc::epoll_event,
        max: c_int,
        timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int;
}

/// epoll_wait(2).
pub(crate) fn epoll_wait(epfd: RawFd, max: c_int, timeout_ms: c_int) -> Result<Vec<(u32, u64)>> {
    epoll_wait_by(WaitBy::Wait, epfd, max, timeout_ms)
}
