//! Calls with addresses at which no program has memory.

use std::ptr::{null_mut, without_provenance_mut};

use libc::{POLLIN, c_int, epoll_event, pollfd, timespec};

use super::{Result, checked};

/// What waits for events of `fd`, which `epfd` watches, says if one of its arguments is at `address`. Timeouts are not among these: the C library itself reads
/// them. None is a wait that would not end.
pub(crate) fn wait_for_events_at(
    address: usize,
    fd: c_int,
    epfd: c_int,
) -> [(&'static str, Result<c_int>); 5] {
    const NOW: timespec = timespec { tv_sec: 0, tv_nsec: 0 };
    let mut polled = pollfd { fd, events: POLLIN, revents: 0 };
    let mut event = epoll_event { events: 0, u64: 0 };
    let nowhere = without_provenance_mut::<libc::c_void>(address);
    // SAFETY: everything has room but what is at `address`, for which the kernel returns EFAULT.
    unsafe {
        [
            ("fds of poll", checked(libc::poll(nowhere.cast(), 1, 0))),
            ("mask of ppoll", checked(libc::ppoll(&mut polled, 1, &NOW, nowhere.cast()))),
            (
                "set of select",
                checked(libc::select(fd + 1, nowhere.cast(), null_mut(), null_mut(), null_mut())),
            ),
            ("mask of epoll_pwait", checked(libc::epoll_pwait(epfd, &mut event, 1, 0, nowhere.cast()))),
            ("event of epoll_ctl", checked(libc::epoll_ctl(epfd, libc::EPOLL_CTL_MOD, fd, nowhere.cast()))),
        ]
    }
}
