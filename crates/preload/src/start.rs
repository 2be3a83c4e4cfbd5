//! Runs before `main`.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

use posix::inside::Inside;

use crate::calls::{cancel, exec, fork, signal};
use crate::hooks::next;
use crate::{answer, asked};

/// Names the broker's socket.
pub(crate) const BROKER: &CStr = c"SIDESTEP_BROKER";
/// Is there if programs may have rings of io_uring(7).
const IO_URING: &CStr = c"SIDESTEP_IO_URING";
/// Names this library, for the dynamic linker.
pub(crate) const PRELOAD: &CStr = c"LD_PRELOAD";

/// The dynamic linker calls this after the constructors of the libraries that the program needs, and before the program's own.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = start;

/// Each step relies on those before it.
extern "C" fn start() {
    // 1. Find the broker. Most processes with this library in their environment have none, and nothing is changed in them.
    let Some(broker) = variable(BROKER) else { return };
    let Some(inside) = Inside::enter() else { return };
    let is_there = broker.to_str().is_ok_and(asked::start);
    drop(inside);
    if !is_there {
        return;
    }
    PERMITS_RINGS.store(variable(IO_URING).is_some(), Ordering::Relaxed);
    // 2. The C library's functions, all of them: a handler or a child of fork may not look up any.
    next::look_up();
    answer::find_threads();
    // 3. What children are to have, before the program writes its title over its environment.
    exec::remember_family(broker, variable(PRELOAD).unwrap_or_default());
    // 4. Forks. The handlers run around the fork innermost, being the first: other libraries' may still use sockets.
    fork::register();
    // 5. The end: exit(3) and quick_exit(3) call what was registered first last; _exit(2) is a hook.
    register_exit();
    // 6. Threads that are cancelled while they sleep.
    cancel::register();
    // 7. Hooks ask from here on.
    answer::activate();
    // 8. Handlers that libraries set before all this.
    signal::adopt_handlers();
}

static PERMITS_RINGS: AtomicBool = AtomicBool::new(false);

/// Whether the program may have rings of io_uring(7): its user has said so, and knows what they pass by.
pub(crate) fn permits_rings() -> bool {
    PERMITS_RINGS.load(Ordering::Relaxed)
}

fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: no thread changes the environment yet; a value stays until the program changes it, and is copied by then.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value))
    }
}

fn register_exit() {
    unsafe extern "C" {
        fn __cxa_at_quick_exit(
            function: extern "C" fn(*mut std::ffi::c_void),
            object: *mut std::ffi::c_void,
        ) -> std::ffi::c_int;
    }
    // SAFETY: the functions are of this library, which is never unloaded.
    unsafe {
        libc::atexit(at_exit);
        __cxa_at_quick_exit(at_quick_exit, std::ptr::null_mut());
    }
}

extern "C" fn at_exit() {
    answer::tell(asked::before_exit);
}

extern "C" fn at_quick_exit(_: *mut std::ffi::c_void) {
    at_exit();
}
