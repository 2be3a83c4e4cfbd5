//! Tells the hooks whether a thread is within our own code. Then calls to the C library are not hooked, and the program's
//! signal handlers wait until the thread leaves our code.
//!
//! A handler may call any hooked function and may leave by `longjmp`; neither is possible while a lock is held. So handlers run only while
//! a thread is outside: in the program's own code, and in [`outside`], where a call sleeps without locks.
//!
//! # Handlers in the last moment
//! A handler that runs behind the last look at what has happened and before the kernel has the thread asleep is one that nobody sees until
//! something else ends the sleep. So calls that sleep for a time have that time in the thread's own memory (`sleep`), and each handler
//! ends it: the kernel finds that the time is over. That costs no system call.
//!
//! # Threads that are cancelled (pthread_cancel(3))
//! Many functions of the C library that our code calls are cancellation points: a thread that ended in one of them would keep our locks
//! for ever. So a thread that may be cancelled at all is *shielded* while it is inside: its cancellation is disabled. The C library asks a
//! hooked call for cancellation in two places, both outside: at its beginning ([`cancellation_point`]), and while it sleeps in
//! [`outside`], at any instruction.
//!
//! Disabling cancellation costs about as much as a short system call, and few programs cancel a thread. So threads are shielded only from
//! [`expect_cancellation`] on, which the first pthread_cancel(3) calls. A thread that was inside by then, and unshielded, is shielded when
//! it next takes the process's lock; the caller of pthread_cancel(3) waits for a thread that has the lock already.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use syscall::Timeout;

/// What is known of a thread; together, as each look at a thread's own memory costs a call in a shared library.
struct Thread {
    inside: Cell<bool>,
    deferred: Cell<Option<Deferred>>,
    handled: Cell<Handled>,
    /// How long the thread's next sleep lasts, or its present one.
    timeout: Timeout,
    /// Whether the program has the thread's cancellation enabled; `None` while the thread is not shielded.
    shielded: Cell<Option<bool>>,
    /// The program's cancellation type, while the thread sleeps: whether it is asynchronous.
    asleep: Cell<Option<bool>>,
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            inside: Cell::new(false),
            deferred: Cell::new(None),
            handled: Cell::new(Handled::NONE),
            timeout: Timeout::zero(),
            shielded: Cell::new(None),
            asleep: Cell::new(None),
        }
    };
}

/// Cancellation of the calling thread, by the C library.
#[derive(Clone, Copy, Debug)]
pub struct Cancellation {
    /// pthread_setcancelstate(3): enables or disables it; returns whether it was enabled.
    pub enable: fn(bool) -> bool,
    /// pthread_setcanceltype(3): whether it may happen at any instruction; returns whether it might before.
    pub set_asynchronous: fn(bool) -> bool,
    /// pthread_testcancel(3).
    pub test: fn(),
}

static CANCELLATION: OnceLock<Cancellation> = OnceLock::new();

/// Whether any thread may be cancelled from now on.
static CANCELS: AtomicBool = AtomicBool::new(false);

/// How threads are cancelled here. Without it none is.
pub fn cancel_by(cancellation: Cancellation) {
    CANCELLATION.get_or_init(|| cancellation);
}

/// A thread is about to be cancelled for the first time. The caller takes the process's lock afterwards, and before it cancels.
pub fn expect_cancellation() {
    CANCELS.store(true, Ordering::Release);
}

#[inline]
fn cancellation() -> Option<&'static Cancellation> {
    if CANCELS.load(Ordering::Relaxed) { CANCELLATION.get() } else { None }
}

/// The thread begins a call that POSIX lists as a cancellation point.
#[inline]
pub fn cancellation_point() {
    if let Some(cancellation) = cancellation()
        && !is_inside()
    {
        (cancellation.test)();
    }
}

/// The thread has taken the process's lock: it must not end with it.
#[inline]
pub(crate) fn shield() {
    if let Some(cancellation) = cancellation() {
        THREAD.with(|thread| thread.shield(cancellation));
    }
}

/// What tests have happen when a thread begins to sleep (true) and when it ends (false).
#[cfg(test)]
static ON_SLEEP: OnceLock<fn(bool)> = OnceLock::new();

/// Returns whether the process has one thread only.
static ALONE: OnceLock<fn() -> bool> = OnceLock::new();

/// Has `alone` asked whether the process has one thread only.
pub fn tell_alone_by(alone: fn() -> bool) {
    ALONE.get_or_init(|| alone);
}

/// Whether the process is known to have one thread only.
pub(crate) fn is_alone() -> bool {
    ALONE.get().is_some_and(|alone| alone())
}

/// Has `told` told of all sleep in [`outside`].
#[cfg(test)]
pub(crate) fn on_sleep(told: fn(bool)) {
    ON_SLEEP.get_or_init(|| told);
}

/// Which handlers ran since the thread began to sleep.
#[derive(Clone, Copy)]
struct Handled {
    /// Of these signals, as a signal mask.
    signals: u64,
    /// One at least without `SA_RESTART`.
    interrupting: bool,
}

impl Handled {
    const NONE: Handled = Handled { signals: 0, interrupting: false };
}

/// A signal came while the thread was inside: it is pending, and all signals are blocked.
#[derive(Clone, Copy)]
struct Deferred {
    /// The mask that was in force.
    mask: u64,
    restore: fn(u64),
}

/// This thread is within our code for as long as this lives.
#[derive(Debug)]
pub struct Inside(PhantomData<*const ()>);

impl Inside {
    /// Enters; `None` if the thread is inside already: the call comes from our own code.
    #[inline]
    pub fn enter() -> Option<Inside> {
        THREAD.with(|thread| {
            (!thread.inside.replace(true)).then(|| {
                if let Some(cancellation) = cancellation() {
                    thread.shield(cancellation);
                }
                Inside(PhantomData)
            })
        })
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        THREAD.with(|thread| {
            thread.inside.set(false);
            thread.unshield();
            thread.deliver_deferred();
        });
    }
}

/// Whether this thread is within our code.
#[inline]
pub fn is_inside() -> bool {
    THREAD.with(|thread| thread.inside.get())
}

/// Sleeps, with no lock held and no state of this thread borrowed: handlers run meanwhile, may call in here again and may never return, and
/// the thread may be cancelled.
///
/// `None`: a signal had come while the thread was inside, its handler ran now, and instead of sleeping the call is as good as interrupted.
/// After that as after `EINTR`, [`interrupted`] says whether the call has to fail.
pub fn outside<T>(sleep: impl FnOnce() -> T) -> Option<T> {
    let (was_inside, handled) = THREAD.with(|thread| {
        thread.handled.set(Handled::NONE);
        let was_inside = thread.inside.replace(false);
        thread.unshield();
        thread.let_cancel();
        thread.deliver_deferred();
        (was_inside, thread.handled.get())
    });
    let result = (handled.signals == 0).then(|| told_of(sleep));
    THREAD.with(|thread| {
        thread.let_cancel_no_more();
        thread.inside.set(was_inside);
        if let Some(cancellation) = cancellation().filter(|_| was_inside) {
            thread.shield(cancellation);
        }
    });
    result
}

/// A call of the kernel's that may sleep. A handler that ran instead of it does not end it unless it interrupts.
pub(crate) fn outside_until_done<T>(mut call: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    loop {
        match outside(&mut call) {
            Some(result) => return result,
            None if interrupted() => return Err(std::io::Error::from_raw_os_error(libc::EINTR)),
            None => {}
        }
    }
}

/// The same with a time for which the call sleeps at most, `None` for ever. If a handler runs in the last moment, the call ends as if the time
/// were over.
pub(crate) fn sleep<T>(time: Option<Duration>, sleep: impl FnOnce(&Timeout) -> T) -> Option<T> {
    THREAD.with(|thread| {
        thread.timeout.set(time);
        outside(|| sleep(&thread.timeout))
    })
}

#[cfg(not(test))]
fn told_of<T>(sleep: impl FnOnce() -> T) -> T {
    sleep()
}

#[cfg(test)]
fn told_of<T>(sleep: impl FnOnce() -> T) -> T {
    let told = ON_SLEEP.get().copied().unwrap_or(|_| ());
    told(true);
    let result = sleep();
    told(false);
    result
}

/// Calls a signal handler. It is not the sleep that it interrupts, and it may never return there: the program's cancellation type is in
/// force meanwhile.
pub fn awake(handler: impl FnOnce()) {
    let was_asleep = THREAD.with(Thread::let_cancel_no_more);
    handler();
    if was_asleep {
        THREAD.with(Thread::let_cancel);
    }
}

/// Whether a signal came while the thread was inside: its handler runs when the thread next gets out.
#[inline]
pub fn has_deferred() -> bool {
    THREAD.with(|thread| thread.deferred.get().is_some())
}

/// Whether a handler without `SA_RESTART` ran since [`outside`] was last called. With false, calls that signal(7) lists as restarted are
/// to go on.
pub fn interrupted() -> bool {
    THREAD.with(|thread| thread.handled.get()).interrupting
}

/// Whether a handler of a signal outside of `blocked` has run since the last call of [`outside`].
pub(crate) fn has_handled(blocked: u64) -> bool {
    THREAD.with(|thread| thread.handled.get()).signals & !blocked != 0
}

/// From here on [`has_handled`] and [`interrupted`] tell of handlers that are to come.
pub(crate) fn forget_handled() {
    THREAD.with(|thread| thread.handled.set(Handled::NONE));
}

/// A handler of `signal` ran on this thread.
pub fn on_handler(signal: i32, restart: bool) {
    THREAD.with(|thread| {
        let Handled { signals, interrupting } = thread.handled.get();
        let bit = 1u64.rotate_left(signal.wrapping_sub(1) as u32);
        thread.handled.set(Handled { signals: signals | bit, interrupting: interrupting || !restart });
        thread.timeout.expire();
    });
}

/// A signal that came while inside was made pending again, and all are blocked; `restore` puts `mask` in force, as it was before.
pub fn defer(mask: u64, restore: fn(u64)) {
    THREAD.with(|thread| {
        if thread.deferred.get().is_none() {
            thread.deferred.set(Some(Deferred { mask, restore }));
        }
    });
}

impl Thread {
    /// Disables cancellation while the thread is inside.
    #[cold]
    fn shield(&self, cancellation: &Cancellation) {
        if self.inside.get() && self.shielded.get().is_none() {
            self.shielded.set(Some((cancellation.enable)(false)));
        }
    }

    /// Ends what [`Thread::shield`] began. A thread of asynchronous type may end here.
    #[inline]
    fn unshield(&self) {
        if self.shielded.take() == Some(true)
            && let Some(cancellation) = CANCELLATION.get()
        {
            (cancellation.enable)(true);
        }
    }

    /// The thread may be cancelled at any instruction from now on, if the program has cancellation enabled. It may end here.
    fn let_cancel(&self) {
        if let Some(cancellation) = CANCELLATION.get() {
            self.asleep.set(Some(false)); // The type of most threads, for a handler that runs before the next line is done.
            self.asleep.set(Some((cancellation.set_asynchronous)(true)));
        }
    }

    /// Ends what [`Thread::let_cancel`] began; returns whether it was begun.
    fn let_cancel_no_more(&self) -> bool {
        let asleep = self.asleep.take();
        if let (Some(before), Some(cancellation)) = (asleep, CANCELLATION.get()) {
            (cancellation.set_asynchronous)(before);
        }
        asleep.is_some()
    }

    #[inline]
    fn deliver_deferred(&self) {
        if let Some(deferred) = self.deferred.take() {
            (deferred.restore)(deferred.mask);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_from_our_own_code_is_known() {
        let inside = Inside::enter();
        assert!(inside.is_some() && Inside::enter().is_none());
        assert!(is_inside(), "a call that is not let in does not let the first one out");
        drop(inside);
        assert!(!is_inside());
    }

    #[test]
    fn a_sleeping_thread_is_outside() {
        let _inside = Inside::enter();
        assert_eq!(outside(is_inside), Some(false));
        assert!(is_inside());
    }

    #[test]
    fn a_deferred_signal_interrupts_before_the_sleep() {
        let _inside = Inside::enter();
        defer(0, |_| on_handler(libc::SIGUSR1, false));
        assert_eq!(outside(|| unreachable!("it does not sleep")), None::<()>);
        assert!(interrupted());
        assert_eq!(outside(|| on_handler(libc::SIGUSR1, true)), Some(()));
        assert!(!interrupted());
        assert!(has_handled(0) && !has_handled(1 << (libc::SIGUSR1 - 1)));
    }

    #[test]
    fn a_handler_in_the_last_moment_ends_the_time() {
        let _inside = Inside::enter();
        for time in [None, Some(Duration::from_secs(5))] {
            assert_eq!(sleep(time, Timeout::is_over), Some(false));
            let slept = sleep(time, |timeout| {
                on_handler(libc::SIGUSR1, false);
                timeout.is_over()
            });
            assert_eq!(slept, Some(true));
            assert!(interrupted());
        }
    }

    #[test]
    fn the_first_mask_is_the_one_to_return_to() {
        let inside = Inside::enter();
        defer(1, |mask| assert_eq!(mask, 1));
        defer(2, |_| unreachable!("all were blocked"));
        drop(inside);
    }
}
