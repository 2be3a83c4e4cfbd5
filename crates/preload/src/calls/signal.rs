//! Runs signal handlers only while a thread is outside of our code, as if each of our calls were a system call.
//!
//! [`on_signal`] replaces each handler that the program sets. It calls the handler, or, if the thread holds our locks, makes the
//! kernel keep the signal until the thread is outside (`posix::inside`). sigaction(2) shows the program its own handler.
//! Faults (`SIGSEGV` and the like) and `SIGABRT` cannot wait and are left alone.

use std::ffi::{c_int, c_long, c_ulong, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{sigaction, sighandler_t, siginfo_t, ucontext_t};
use posix::inside;

use crate::answer::{errno, set_errno, tell};
use crate::asked;
use crate::hooks::next;

const SIGNAL_COUNT: usize = 65;

/// Those that cannot be put off.
const AT_ONCE: [c_int; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS, libc::SIGABRT];

/// Those by which a process is asked to end.
const ASKING: [c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT, libc::SIGHUP];

/// What the program set for each signal: [`Handler`]s, in one word, as they are read while others are set.
static HANDLERS: [AtomicU64; SIGNAL_COUNT] = [const { AtomicU64::new(0) }; SIGNAL_COUNT];

// A handler may end its thread, which is then unwound: see `hooks` for the two kinds.
#[cfg(panic = "abort")]
type Function = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
#[cfg(not(panic = "abort"))]
type Function = extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void);

/// A function of the program, with those of its flags that [`on_signal`] has to know; packed, as addresses of programs have 48 bits.
#[derive(Clone, Copy)]
struct Handler(u64);

impl Handler {
    const ADDRESS: u64 = (1 << 48) - 1;
    /// Where our flags are, and which flag of sigaction(2) each stands for.
    const FLAGS: [(u64, c_int); 3] =
        [(1 << 48, libc::SA_SIGINFO), (1 << 49, libc::SA_RESTART), (1 << 50, libc::SA_RESETHAND)];

    /// `None` for the actions that are no functions, and for addresses that do not fit.
    fn of(action: &sigaction) -> Option<Handler> {
        let address = action.sa_sigaction as u64;
        let is_function = action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN;
        let flags = Handler::FLAGS.iter().filter(|(_, flag)| action.sa_flags & flag != 0);
        let packed = flags.fold(address, |packed, (bit, _)| packed | bit);
        (is_function && address <= Handler::ADDRESS).then_some(Handler(packed))
    }

    fn address(self) -> sighandler_t {
        (self.0 & Handler::ADDRESS) as sighandler_t
    }

    fn has(self, flag: c_int) -> bool {
        Handler::FLAGS.iter().any(|(bit, of)| *of == flag && self.0 & bit != 0)
    }

    /// The action as the program set it, where the kernel's is `action` with our function.
    fn restore(self, action: &mut sigaction) {
        action.sa_sigaction = self.address();
        for (bit, flag) in Handler::FLAGS {
            action.sa_flags =
                if self.0 & bit != 0 { action.sa_flags | flag } else { action.sa_flags & !flag };
        }
    }
}

/// Handlers that were set before there was a broker to serve.
pub(crate) fn adopt_handlers() {
    (1..SIGNAL_COUNT as c_int).for_each(wrap);
}

/// # Safety
/// As sigaction(2).
pub(crate) unsafe fn set_action(signal: c_int, new: *const sigaction, old: *mut sigaction) -> c_int {
    let known = handler_of(signal);
    // SAFETY: as the caller says.
    if unsafe { new.as_ref() }.is_some_and(|new| new.sa_sigaction == libc::SIG_DFL) {
        before_default(signal);
    }
    // SAFETY: as the caller says.
    let wrapped = unsafe { new.as_ref() }.and_then(|new| wrapped(signal, new));
    let new = wrapped.as_ref().map_or(new, |wrapped| &raw const *wrapped);
    // SAFETY: as the caller says.
    let result = unsafe { next::sigaction(signal, new, old) };
    if result != 0 {
        if let (Some(known), true) = (known, wrapped.is_some()) {
            HANDLERS[signal as usize].store(known.0, Ordering::Relaxed);
        }
        return result;
    }
    // SAFETY: as the caller says.
    if let (Some(old), Some(known)) = (unsafe { old.as_mut() }, known)
        && old.sa_sigaction == on_signal as *const () as usize
    {
        known.restore(old);
    }
    result
}

/// `struct sigaction` as rt_sigaction(2) has it.
#[repr(C)]
struct KernelAction {
    handler: sighandler_t,
    flags: c_ulong,
    restorer: usize,
    mask: u64,
}

/// rt_sigaction(2).
///
/// # Safety
/// As rt_sigaction(2).
pub(crate) unsafe fn set_action_by_number(given: [c_long; 6]) -> c_long {
    let [signal, new, old, len, e, f] = given;
    let is_told = handler_of(signal as c_int).is_some() || new != 0;
    // The C library does not let its own signals be set.
    let is_own_signal = (32..34).contains(&signal);
    if !is_told || is_own_signal || len as usize != size_of::<u64>() {
        // SAFETY: as the caller says.
        return unsafe { next::syscall(libc::SYS_rt_sigaction, signal, new, old, len, e, f) };
    }
    // SAFETY: null, or as the caller says.
    let new = unsafe { (new as *const KernelAction).as_ref() }.map(KernelAction::to_c);
    // SAFETY: zeros are a valid value of this plain type.
    let mut before: sigaction = unsafe { std::mem::zeroed() };
    let new = new.as_ref().map_or(std::ptr::null(), |new| &raw const *new);
    // SAFETY: both are ours.
    let result = unsafe { set_action(signal as c_int, new, &mut before) };
    // SAFETY: null, or as the caller says.
    if let (0, Some(old)) = (result, unsafe { (old as *mut KernelAction).as_mut() }) {
        *old = KernelAction::of_c(&before);
    }
    result.into()
}

impl KernelAction {
    /// The C library has a way back from handlers of its own.
    const SA_RESTORER: c_ulong = 0x0400_0000;

    fn to_c(&self) -> sigaction {
        // SAFETY: zeros are a valid value of this plain type.
        let mut action: sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = self.handler;
        action.sa_flags = (self.flags & !KernelAction::SA_RESTORER) as c_int;
        // SAFETY: the set begins with the kernel's word.
        unsafe { *(&raw mut action.sa_mask).cast::<u64>() = self.mask };
        action
    }

    fn of_c(action: &sigaction) -> KernelAction {
        KernelAction {
            handler: action.sa_sigaction,
            flags: action.sa_flags as u32 as c_ulong,
            restorer: action.sa_restorer.map_or(0, |restorer| restorer as usize),
            // SAFETY: as above.
            mask: unsafe { *(&raw const action.sa_mask).cast::<u64>() },
        }
    }
}

/// signal(3) and those like it: `set` is the C library's, which decides about flags, and its choice is wrapped afterwards.
pub(crate) fn set_handler(
    signal: c_int,
    handler: sighandler_t,
    set: impl FnOnce() -> sighandler_t,
) -> sighandler_t {
    let known = handler_of(signal);
    if handler == libc::SIG_DFL {
        before_default(signal);
    }
    let old = set();
    if old != libc::SIG_ERR {
        wrap(signal);
    }
    match known {
        Some(known) if old == on_signal as *const () as usize => known.address(),
        _ => old,
    }
}

/// A program takes its handler back for a signal that asks it to end: it most likely ends already, and the next such signal kills it.
fn before_default(signal: c_int) {
    if !ASKING.contains(&signal) || handler_of(signal).is_none() {
        return;
    }
    // SAFETY: zeros are a valid value of this plain type.
    let mut current: sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: there is room for the action.
    let known = unsafe { next::sigaction(signal, std::ptr::null(), &mut current) } == 0;
    if known && current.sa_sigaction == on_signal as *const () as usize {
        tell(asked::before_end);
    }
}

/// siginterrupt(3): the C library changes a flag of the handler that is set.
///
/// # Safety
/// As siginterrupt(3).
pub(crate) unsafe fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int {
    // SAFETY: no memory is involved.
    let result = unsafe { next::siginterrupt(signal, interrupts) };
    let restart = Handler::FLAGS[1].0;
    if let (0, Some(known)) = (result, handler_of(signal)) {
        let packed = if interrupts == 0 { known.0 | restart } else { known.0 & !restart };
        HANDLERS[signal as usize].store(packed, Ordering::Relaxed);
    }
    result
}

/// Handlers are called by the kernel again, without us.
pub(crate) fn give_handlers_back() {
    for signal in 1..SIGNAL_COUNT as c_int {
        let Some(known) = handler_of(signal) else { continue };
        // SAFETY: zeros are a valid value of this plain type.
        let mut action: sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: there is room for the action.
        let is_known = unsafe { next::sigaction(signal, std::ptr::null(), &mut action) } == 0;
        if is_known && action.sa_sigaction == on_signal as *const () as usize {
            known.restore(&mut action);
            // SAFETY: as the program set it.
            unsafe { next::sigaction(signal, &action, std::ptr::null_mut()) };
        }
    }
}

/// Puts our function in front of the handler that `signal` has, if it has one.
fn wrap(signal: c_int) {
    // SAFETY: zeros are a valid value of this plain type.
    let mut current: sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: there is room for the action.
    let known = unsafe { next::sigaction(signal, std::ptr::null(), &mut current) } == 0;
    if !known || current.sa_sigaction == on_signal as *const () as usize {
        return;
    }
    if let Some(wrapped) = wrapped(signal, &current) {
        // SAFETY: the same action, behind our function.
        unsafe { next::sigaction(signal, &wrapped, std::ptr::null_mut()) };
    }
}

/// `action` behind our function, which knows the handler from now on; `None` for actions that stay as they are.
fn wrapped(signal: c_int, action: &sigaction) -> Option<sigaction> {
    let place = usize::try_from(signal).ok().and_then(|signal| HANDLERS.get(signal))?;
    let handler = Handler::of(action).filter(|_| !AT_ONCE.contains(&signal))?;
    place.store(handler.0, Ordering::Relaxed);
    let mut wrapped = *action;
    wrapped.sa_sigaction = on_signal as *const () as usize;
    wrapped.sa_flags = (wrapped.sa_flags | libc::SA_SIGINFO) & !libc::SA_RESETHAND;
    Some(wrapped)
}

fn handler_of(signal: c_int) -> Option<Handler> {
    let packed = HANDLERS.get(usize::try_from(signal).ok()?)?.load(Ordering::Relaxed);
    (packed != 0).then_some(Handler(packed))
}

/// The kernel calls this in place of the program's handler.
extern "C-unwind" fn on_signal(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(handler) = handler_of(signal) else { return };
    // SAFETY: the kernel gave both, and takes the context back when this returns.
    if inside::is_inside() && unsafe { postpone(signal, info, context.cast()) } {
        return;
    }
    if handler.has(libc::SA_RESETHAND) {
        // SAFETY: zeros are the default action.
        unsafe { next::sigaction(signal, &std::mem::zeroed(), std::ptr::null_mut()) };
    }
    // SAFETY: the program set it; one with a single parameter does not look at the others.
    let function = unsafe { std::mem::transmute::<sighandler_t, Function>(handler.address()) };
    inside::awake(|| function(signal, info, context));
    inside::on_handler(signal, handler.has(libc::SA_RESTART));
}

/// Makes the signal pending again and blocks all until the thread leaves our code: then it comes as it came now. False if the kernel
/// has no room for it, and the handler has to run at once.
///
/// # Safety
/// `info` and `context` are what the kernel called a handler with.
unsafe fn postpone(signal: c_int, info: *mut siginfo_t, context: *mut ucontext_t) -> bool {
    let errno = errno();
    // SAFETY: no memory is involved but `info`.
    let queued = unsafe {
        let (process, thread) = (libc::getpid(), libc::gettid());
        libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, signal, info)
    };
    if queued == 0 {
        // SAFETY: the mask to return with begins with the kernel's word; nothing else refers to it.
        let mask = unsafe { &mut *(&raw mut (*context).uc_sigmask).cast::<u64>() };
        inside::defer(*mask, restore_mask);
        *mask = AT_ONCE.iter().fold(u64::MAX, |mask, signal| mask & !(1 << (signal - 1)));
    }
    set_errno(errno);
    queued == 0
}

fn restore_mask(mask: u64) {
    let nothing = std::ptr::null_mut::<u64>();
    let errno = errno();
    // SAFETY: the mask is one word, as is told; pending handlers run within the call.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, nothing, size_of::<u64>())
    };
    set_errno(errno);
}
