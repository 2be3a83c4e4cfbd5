//! Signals: handlers that count, masks, timers.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use libc::{c_int, itimerval, sigset_t, timeval};

use super::{Result, checked, done};

static COUNTS: [AtomicU32; 65] = [const { AtomicU32::new(0) }; 65];

extern "C" fn count_signal(signal: c_int) {
    COUNTS[signal as usize].fetch_add(1, Ordering::Relaxed);
}

/// How often `signal` came since [`handle`].
pub(crate) fn signals(signal: c_int) -> u32 {
    COUNTS[signal as usize].load(Ordering::Relaxed)
}

/// sigaction(2): counts `signal`, with these `SA_` flags.
pub(crate) fn handle(signal: c_int, flags: c_int) -> Result<()> {
    let handler: extern "C" fn(c_int) = count_signal;
    set_action(signal, handler as usize, flags)
}

/// sigaction(2): `SIG_IGN`.
pub(crate) fn ignore(signal: c_int) -> Result<()> {
    set_action(signal, libc::SIG_IGN, 0)
}

/// sigaction(2): `SIG_DFL`.
pub(crate) fn default_action(signal: c_int) -> Result<()> {
    set_action(signal, libc::SIG_DFL, 0)
}

fn set_action(signal: c_int, handler: usize, flags: c_int) -> Result<()> {
    // SAFETY: zeros are a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    // SAFETY: the handler only touches atomics, or there is none.
    done(unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) })
}

/// signal(2) of BSD, as older programs call it; means `SA_RESTART`.
pub(crate) fn handle_by_signal(signal: c_int) {
    let handler: extern "C" fn(c_int) = count_signal;
    // SAFETY: the handler only touches atomics.
    unsafe { libc::signal(signal, handler as usize) };
}

/// siginterrupt(3).
pub(crate) fn siginterrupt(signal: c_int, interrupt: bool) -> Result<()> {
    unsafe extern "C" {
        safe fn siginterrupt(signal: c_int, flag: c_int) -> c_int;
    }
    done(siginterrupt(signal, interrupt.into()))
}

/// A set with these signals.
pub(crate) fn signal_set(signals: &[c_int]) -> sigset_t {
    // SAFETY: zeros are overwritten by sigemptyset.
    let mut set: sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is exclusively ours.
    unsafe { libc::sigemptyset(&mut set) };
    for &signal in signals {
        // SAFETY: `set` is exclusively ours.
        unsafe { libc::sigaddset(&mut set, signal) };
    }
    set
}

/// sigprocmask(2): `how` is `SIG_BLOCK` or `SIG_UNBLOCK`.
pub(crate) fn mask_signals(how: c_int, signals: &[c_int]) -> Result<()> {
    let set = signal_set(signals);
    // SAFETY: `set` is valid, the old one is not wanted.
    done(unsafe { libc::sigprocmask(how, &set, std::ptr::null_mut()) })
}

/// Whether the calling thread blocks `signal`.
pub(crate) fn is_blocked(signal: c_int) -> bool {
    let mut set = signal_set(&[]);
    // SAFETY: `set` is exclusively ours; nothing is set.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), &mut set) };
    // SAFETY: `set` is valid.
    unsafe { libc::sigismember(&set, signal) == 1 }
}

/// setitimer(2): SIGALRM again and again. A signal that comes before the call that it is to interrupt does no harm, the next one
/// does it.
pub(crate) fn alarms(every: Duration) -> Result<()> {
    let time = timeval { tv_sec: every.as_secs() as _, tv_usec: every.subsec_micros() as _ };
    let timer = itimerval { it_interval: time, it_value: time };
    // SAFETY: `timer` is valid, the old one is not wanted.
    done(unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) })
}

/// kill(2).
pub(crate) fn kill(pid: libc::pid_t, signal: c_int) -> Result<()> {
    // SAFETY: no pointers.
    done(unsafe { libc::kill(pid, signal) })
}

/// signalfd(2).
pub(crate) fn signalfd(signals: &[c_int], flags: c_int) -> Result<c_int> {
    let set = signal_set(signals);
    // SAFETY: `set` is valid.
    checked(unsafe { libc::signalfd(-1, &set, flags) })
}

/// timerfd_create(2) and timerfd_settime(2): once after `after`.
pub(crate) fn timerfd(after: Duration) -> Result<c_int> {
    // SAFETY: no pointers.
    let fd = checked(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, 0) })?;
    let never = super::event::timespec_of(Duration::ZERO);
    let time = libc::itimerspec { it_interval: never, it_value: super::event::timespec_of(after) };
    // SAFETY: `time` is valid, the old one is not wanted.
    done(unsafe { libc::timerfd_settime(fd, 0, &time, std::ptr::null_mut()) })?;
    Ok(fd)
}
