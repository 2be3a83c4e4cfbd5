//! SIGPIPE as this process was started with it, for programs that it starts or becomes.
//!
//! Rust's runtime ignores SIGPIPE before `main`, and has it act again in what [`Command`] executes: whether it was ignored before that,
//! as systemd does for services (`IgnoreSIGPIPE=` in systemd.exec(5)), is forgotten. Who wraps another program must not forget it: a
//! server that relies on `EPIPE` would be killed. Its one unsafe idea: it looks before the runtime does.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether SIGPIPE was ignored at the start.
static WAS_IGNORED: AtomicBool = AtomicBool::new(false);

/// The C library calls what stands here before `main`, and thus before Rust's runtime: `.init_array` in the System V ABI.
// SAFETY: entries of this section are pointers to functions of the C ABI, which is what this static is.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = look;

extern "C" fn look() {
    WAS_IGNORED.store(is_ignored(), Ordering::Relaxed);
}

fn is_ignored() -> bool {
    // SAFETY: a `sigaction` is numbers and pointers, all of which may be zero.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: no new action is given, and the old one goes to a place of its own that outlives the call.
    let returned = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut action) };
    returned == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Has what `command` executes find SIGPIPE as this process did.
pub fn hand_on(command: &mut Command) {
    if WAS_IGNORED.load(Ordering::Relaxed) {
        // SAFETY: in a child between fork and exec only functions of signal-safety(7) may be called, as `signal` is, which changes
        // nothing but this one signal there.
        unsafe { command.pre_exec(ignore) };
    }
}

fn ignore() -> io::Result<()> {
    // SAFETY: SIG_IGN is a disposition, and no function that could be called.
    match unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) } {
        libc::SIG_ERR => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
