//! Processes: fork, exec, their ends.

use std::ffi::CString;

use libc::{c_char, c_int, pid_t};

use super::{Errno, Result, checked, done};

/// What waitpid(2) says about a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It exited with this status.
    Exited(i32),
    /// This signal ended it.
    Signalled(i32),
}

/// fork(2): `None` in the child.
pub(crate) fn fork() -> Result<Option<pid_t>> {
    // SAFETY: the table forks while it has one thread; the checks that have more only exec or exit in the child.
    let pid = checked(unsafe { libc::fork() })?;
    Ok((pid != 0).then_some(pid))
}

/// Runs `action` in a child that ends with what it returns.
pub(crate) fn fork_to(action: impl FnOnce() -> i32) -> Result<pid_t> {
    match fork()? {
        Some(pid) => Ok(pid),
        None => exit_now(action()),
    }
}

/// waitpid(2).
pub(crate) fn wait_for(pid: pid_t) -> Result<End> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is exclusively ours.
        match checked(unsafe { libc::waitpid(pid, &mut status, 0) }) {
            Err(Errno(libc::EINTR)) => {}
            Err(errno) => return Err(errno),
            Ok(_) => break,
        };
    }
    if libc::WIFSIGNALED(status) {
        return Ok(End::Signalled(libc::WTERMSIG(status)));
    }
    Ok(End::Exited(libc::WEXITSTATUS(status)))
}

/// _exit(2).
pub(crate) fn exit_now(status: c_int) -> ! {
    // SAFETY: it only ends the process.
    unsafe { libc::_exit(status) }
}

/// exit(3).
pub(crate) fn exit(status: c_int) -> ! {
    // SAFETY: it only ends the process; the table registers no handlers.
    unsafe { libc::exit(status) }
}

/// abort(3).
pub(crate) fn abort() -> ! {
    // SAFETY: it only ends the process.
    unsafe { libc::abort() }
}

/// The arguments of an exec, as C has them.
struct Arguments {
    _owned: Vec<CString>,
    pointers: Vec<*mut c_char>,
}

impl Arguments {
    fn new(words: &[String]) -> Arguments {
        let owned: Vec<CString> =
            words.iter().map(|word| CString::new(word.as_str()).unwrap_or_default()).collect();
        let mut pointers: Vec<_> = owned.iter().map(|word| word.as_ptr().cast_mut()).collect();
        pointers.push(std::ptr::null_mut());
        Arguments { _owned: owned, pointers }
    }
}

fn own_path() -> CString {
    // Looked up before, since `/proc/self/exe` cannot be used everywhere.
    let path = std::env::current_exe().unwrap_or_default().display().to_string();
    CString::new(path).unwrap_or_default()
}

unsafe extern "C" {
    static environ: *const *mut c_char;
}

/// execv(3) of this same program; returns only if it cannot be.
pub(crate) fn exec_self(words: &[String]) -> Errno {
    let arguments = Arguments::new(words);
    // SAFETY: path and arguments are C strings, the list ends with null.
    unsafe { libc::execv(own_path().as_ptr(), arguments.pointers.as_ptr().cast()) };
    Errno::last()
}

/// execve(2) of this same program with the environment that it has.
pub(crate) fn execve_self(words: &[String]) -> Errno {
    let arguments = Arguments::new(words);
    // SAFETY: path and arguments are C strings, the lists end with null.
    unsafe { libc::execve(own_path().as_ptr(), arguments.pointers.as_ptr().cast(), environ.cast()) };
    Errno::last()
}

/// posix_spawn(3) of this same program, with `from` made `to` in the new process.
pub(crate) fn spawn_self(words: &[String], from: c_int, to: c_int) -> Result<pid_t> {
    let arguments = Arguments::new(words);
    let mut pid = 0;
    // SAFETY: zeros are overwritten by the initialisation.
    let mut actions: libc::posix_spawn_file_actions_t = unsafe { std::mem::zeroed() };
    // SAFETY: all pointers are valid, the lists end with null, and the actions are destroyed once.
    let status = unsafe {
        libc::posix_spawn_file_actions_init(&mut actions);
        libc::posix_spawn_file_actions_adddup2(&mut actions, from, to);
        let path = own_path();
        let words = arguments.pointers.as_ptr();
        let status = libc::posix_spawn(&mut pid, path.as_ptr(), &actions, std::ptr::null(), words, environ);
        libc::posix_spawn_file_actions_destroy(&mut actions);
        status
    };
    if status == 0 { Ok(pid) } else { Err(Errno(status)) }
}

/// vfork(2) whose child execs this same program.
pub(crate) fn vfork_exec_self(words: &[String]) -> Result<pid_t> {
    unsafe extern "C" {
        fn vfork() -> pid_t;
    }
    let arguments = Arguments::new(words);
    let path = own_path();
    // SAFETY: the child only calls execve and _exit.
    let pid = unsafe { vfork() };
    if pid == 0 {
        // SAFETY: path and arguments are C strings, the lists end with null.
        unsafe {
            libc::execve(path.as_ptr(), arguments.pointers.as_ptr().cast(), environ.cast());
            libc::_exit(126)
        }
    }
    checked(pid)
}

/// Makes the caller the leader of a process group of its own.
pub(crate) fn new_process_group() -> Result<()> {
    // SAFETY: no pointers.
    done(unsafe { libc::setpgid(0, 0) })
}

/// The caller, and what it forks, become nobody.
pub(crate) fn become_nobody() -> Result<()> {
    const NOBODY: u32 = 65_534;
    // SAFETY: no pointers.
    done(unsafe { libc::setgid(NOBODY) })?;
    // SAFETY: no pointers.
    done(unsafe { libc::setuid(NOBODY) })
}

/// daemon(3), without changing the directory or the standard descriptors.
pub(crate) fn daemon() -> Result<()> {
    // SAFETY: no pointers; the caller has one thread.
    done(unsafe { libc::daemon(1, 1) })
}

/// The processor that the caller runs on.
pub(crate) fn processor() -> Result<c_int> {
    // SAFETY: no pointers.
    checked(unsafe { libc::sched_getcpu() })
}

/// execv(3) of a program that is not there.
pub(crate) fn exec_nothing() -> Errno {
    let arguments = Arguments::new(&[]);
    // SAFETY: path and arguments are C strings, the list ends with null.
    unsafe { libc::execv(c"/nonexistent/program".as_ptr(), arguments.pointers.as_ptr().cast()) };
    Errno::last()
}
