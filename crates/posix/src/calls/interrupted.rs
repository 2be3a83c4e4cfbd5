//! Signals that come while a call finds out that it is the kernel's.
//!
//! For the program the call has begun, and a handler ends a call that sleeps (signal(7)). To find out may take milliseconds: others have the
//! lock, or the broker is asked. A handler that runs behind that and before the kernel's own call ends nothing, and who waits there without a
//! time waits for ever. So what the handler would have ended ends here.

use std::os::fd::RawFd;
use std::time::Duration;

use syscall::PollFd;

use crate::errno::fail;
use crate::inside;
use crate::request::{SignalMask, Verdict};

/// Of a call that any handler ends, however it was set, but those of signals that are blocked while it sleeps.
pub(crate) fn unless_handled<T>(
    verdict: Verdict<T>,
    timeout: Option<Duration>,
    mask: Option<SignalMask>,
) -> Verdict<T> {
    let sleeps = matches!(verdict, Verdict::Kernel) && timeout != Some(Duration::ZERO);
    if sleeps && inside::has_deferred() {
        inside::outside(|| ());
        if inside::has_handled(mask.unwrap_or(0)) {
            return Verdict::Done(fail(libc::EINTR));
        }
    }
    verdict
}

/// Of a call at one descriptor that sleeps until one of these poll(2) events, and that a handler with `SA_RESTART` does not end.
pub(crate) fn unless_interrupted<T>(verdict: Verdict<T>, fd: RawFd, events: i16, flags: i32) -> Verdict<T> {
    const NEVER_SLEEP: i32 = libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE | libc::MSG_OOB;
    if matches!(verdict, Verdict::Kernel) && flags & NEVER_SLEEP == 0 && inside::has_deferred() {
        inside::outside(|| ());
        if inside::interrupted() && would_sleep(fd, events) {
            return Verdict::Done(fail(libc::EINTR));
        }
    }
    verdict
}

fn would_sleep(fd: RawFd, events: i16) -> bool {
    let blocks = syscall::fcntl(fd, libc::F_GETFL, 0).is_ok_and(|flags| flags & libc::O_NONBLOCK == 0);
    let ready = syscall::ppoll(&mut [PollFd { fd, events, revents: 0 }], Some(Duration::ZERO), None);
    blocks && matches!(ready, Ok(0))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::errno::Errno;
    use crate::inside::{Inside, defer, on_handler};

    const EINTR: Result<(), Errno> = Err(Errno(libc::EINTR));

    /// What becomes of a call that is the kernel's, when a signal came meanwhile: none if the kernel is to make it.
    fn becomes(restart: bool, end: impl FnOnce(Verdict<()>) -> Verdict<()>) -> Option<Result<(), Errno>> {
        let _inside = Inside::enter();
        let handle =
            if restart { |_| on_handler(libc::SIGUSR1, true) } else { |_| on_handler(libc::SIGUSR1, false) };
        defer(0, handle);
        match end(Verdict::Kernel) {
            Verdict::Kernel => None,
            Verdict::Done(result) => Some(result),
        }
    }

    #[test]
    fn a_call_that_would_sleep_ends_and_one_that_would_not_is_the_kernels() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let fd = far.as_raw_fd();
        let receive =
            |restart, flags| becomes(restart, |call| unless_interrupted(call, fd, libc::POLLIN, flags));
        assert_eq!(receive(false, 0), Some(EINTR));
        assert_eq!(receive(true, 0), None, "the kernel restarts it");
        assert_eq!(receive(false, libc::MSG_DONTWAIT), None);
        far.set_nonblocking(true).unwrap();
        assert_eq!(receive(false, 0), None);
        far.set_nonblocking(false).unwrap();
        near.write_all(b"x").unwrap();
        assert_eq!(receive(false, 0), None, "there is something to receive");
    }

    #[test]
    fn any_handler_ends_a_wait_but_those_of_signals_that_it_blocks() {
        let wait = |restart, timeout, mask| becomes(restart, |call| unless_handled(call, timeout, mask));
        assert_eq!(wait(false, None, None), Some(EINTR));
        assert_eq!(wait(true, Some(Duration::from_secs(5)), None), Some(EINTR));
        assert_eq!(wait(false, None, Some(1 << (libc::SIGUSR1 - 1))), None);
        assert_eq!(wait(false, Some(Duration::ZERO), None), None, "it does not sleep");
    }

    #[test]
    fn without_a_signal_nothing_ends() {
        let _inside = Inside::enter();
        let call = || Verdict::<()>::Kernel;
        assert!(matches!(unless_handled(call(), None, None), Verdict::Kernel));
        assert!(matches!(unless_interrupted(call(), -1, libc::POLLIN, 0), Verdict::Kernel));
    }
}
