//! Processes, threads and their limits.

use std::io;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use crate::check;
use crate::poll::Timeout;
use crate::raw::raw;

/// getpid(2).
pub fn process_id() -> i32 {
    // SAFETY: no memory is involved.
    unsafe { raw!(libc::SYS_getpid) as i32 }
}

/// geteuid(2), of this thread.
pub fn effective_user() -> u32 {
    // SAFETY: no memory is involved.
    unsafe { raw!(libc::SYS_geteuid) as u32 }
}

/// gettid(2).
pub fn thread_id() -> i32 {
    // SAFETY: no memory is involved.
    unsafe { raw!(libc::SYS_gettid) as i32 }
}

/// Whether the process has a thread of this number: for a moment also one that pthread_join(3) has waited for.
pub fn has_thread(thread: i32) -> bool {
    // SAFETY: no memory is involved; there is no signal 0.
    unsafe { raw!(libc::SYS_tgkill, process_id(), thread, 0) == 0 }
}

/// Octets of the thread-local variables of all that is loaded, which the C library takes out of the stack of a new thread.
pub fn thread_local_len() -> usize {
    extern "C" fn add(info: *mut libc::dl_phdr_info, _: libc::size_t, sum: *mut libc::c_void) -> i32 {
        // SAFETY: dl_iterate_phdr(3) calls this with a record of its own, whose headers are as many as it says, and with what it was given
        // below: a `usize` that nobody else has.
        let (headers, sum) = unsafe {
            let info = &*info;
            let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
            (headers, &mut *sum.cast::<usize>())
        };
        let own = headers.iter().filter(|header| header.p_type == libc::PT_TLS);
        *sum += own.map(|header| header.p_memsz as usize + header.p_align as usize).sum::<usize>();
        0
    }
    let mut sum = 0usize;
    // SAFETY: `add` is called before the call returns only, with a pointer to `sum`, which lives until then.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut sum).cast()) };
    sum
}

/// How many descriptors the process may have: the soft limit of `RLIMIT_NOFILE`.
pub fn descriptor_limit() -> u64 {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let none = std::ptr::null::<libc::rlimit64>();
    // SAFETY: the kernel writes one `rlimit64` into `limit`.
    let result = unsafe { raw!(libc::SYS_prlimit64, 0, libc::RLIMIT_NOFILE, none, &raw mut limit) };
    if result == 0 { limit.rlim_cur } else { 1024 }
}

/// futex(2), `FUTEX_WAIT_PRIVATE`: sleeps until woken if `word` still is `expected`, at most for `timeout`. Wakes early at
/// times.
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    let time = timeout.map(|span| libc::timespec {
        tv_sec: libc::time_t::try_from(span.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: span.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(std::ptr::null(), |time| &raw const *time);
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: `word` lives until the call returns, and so does the time, if any.
    unsafe { raw!(libc::SYS_futex, word.as_ptr(), operation, expected, time) };
}

/// The same for a time that may end before the call begins. Any signal handler ends it, as it ends poll(2), also one with `SA_RESTART`: the
/// kernel restarts such a call only if it has no time.
pub fn futex_wait_within(word: &AtomicU32, expected: u32, timeout: &Timeout) -> io::Result<()> {
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let time = std::ptr::from_ref(timeout);
    // SAFETY: `word` lives until the call returns, and so does the time, which has the layout of a `struct timespec` and is only read.
    let slept = check(unsafe { raw!(libc::SYS_futex, word.as_ptr(), operation, expected, time) });
    match slept.map_err(|error| (error.raw_os_error(), error)) {
        Ok(_) | Err((Some(libc::EAGAIN | libc::ETIMEDOUT), _)) => Ok(()),
        Err((_, error)) => Err(error),
    }
}

/// futex(2), `FUTEX_WAKE_PRIVATE`: wakes one that sleeps on `word`.
pub fn futex_wake(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: `word` is a reference, thus alive.
    unsafe { raw!(libc::SYS_futex, word.as_ptr(), operation, 1) };
}

/// rt_sigprocmask(2), `SIG_SETMASK`: the signals blocked in this thread, as the kernel's `sigset_t`; returns those that were.
pub fn set_signal_mask(mask: u64) -> u64 {
    let mut before = 0u64;
    // SAFETY: both sets have the 8 octets that are told, and live until the call returns.
    unsafe {
        let (new, old) = (&raw const mask, &raw mut before);
        raw!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, new, old, 8usize)
    };
    before
}

/// getppid(2).
pub fn parent_id() -> i32 {
    // SAFETY: no memory is involved.
    unsafe { raw!(libc::SYS_getppid) as i32 }
}

/// The processor that this thread runs on.
pub fn processor() -> i32 {
    let mut processor = 0u32;
    let none = std::ptr::null::<u32>();
    // SAFETY: the kernel writes one word into `processor`; it wants neither a node nor the third argument, which it has forgotten.
    unsafe { raw!(libc::SYS_getcpu, &raw mut processor, none, none) };
    processor as i32
}

/// The time that this process has used of processors (getrusage(2)).
pub fn processor_time() -> Duration {
    // SAFETY: integers alone, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one `rusage` into `usage`.
    unsafe { raw!(libc::SYS_getrusage, libc::RUSAGE_SELF, &raw mut usage) };
    let of = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    of(usage.ru_utime) + of(usage.ru_stime)
}

/// kill(2).
pub fn kill(process: i32, signal: i32) -> io::Result<()> {
    // SAFETY: no memory is involved.
    check(unsafe { raw!(libc::SYS_kill, process, signal) }).map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::sync::mpsc;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn forever() -> Timeout {
        let timeout = Timeout::zero();
        timeout.set(None);
        timeout
    }

    #[test]
    fn who_was_woken_or_has_no_time_left_does_not_sleep() {
        let (done, is_done) = mpsc::channel();
        std::thread::spawn(move || {
            let woken = futex_wait_within(&AtomicU32::new(1), 0, &forever());
            let timeout = forever();
            timeout.expire();
            let over = futex_wait_within(&AtomicU32::new(0), 0, &timeout);
            let _ = done.send((woken.is_ok(), over.is_ok()));
        });
        assert_eq!(is_done.recv_timeout(PATIENCE), Ok((true, true)));
    }

    #[test]
    fn who_sleeps_is_woken() {
        let word = Arc::new(AtomicU32::new(0));
        let (done, is_done) = mpsc::channel();
        let asleep = Arc::clone(&word);
        std::thread::spawn(move || {
            while asleep.load(Ordering::Relaxed) == 0 {
                futex_wait_within(&asleep, 0, &forever()).unwrap();
            }
            let _ = done.send(());
        });
        word.store(1, Ordering::Relaxed);
        futex_wake(&word);
        assert_eq!(is_done.recv_timeout(PATIENCE), Ok(()));
    }

    #[test]
    fn a_handler_ends_the_sleep_though_calls_are_restarted() {
        extern "C" fn handle(_: i32) {}
        // SAFETY: a handler that does nothing, for a signal that nobody else here uses; all other members are zero, which is valid.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            assert_eq!(libc::sigaction(libc::SIGURG, &raw const action, std::ptr::null_mut()), 0);
        }
        let (says, said) = mpsc::channel();
        let (done, is_done) = mpsc::channel();
        std::thread::spawn(move || {
            let _ = says.send(thread_id());
            let slept = futex_wait_within(&AtomicU32::new(0), 0, &forever());
            let _ = done.send(slept.map_err(|error| error.kind()));
        });
        let thread = said.recv_timeout(PATIENCE).unwrap();
        // One that comes before it sleeps does not count.
        let ended = (0..60_000).find_map(|_| {
            // SAFETY: no memory is involved.
            unsafe { raw!(libc::SYS_tgkill, process_id(), thread, libc::SIGURG) };
            is_done.recv_timeout(Duration::from_millis(1)).ok()
        });
        assert_eq!(ended, Some(Err(io::ErrorKind::Interrupted)));
    }
}
