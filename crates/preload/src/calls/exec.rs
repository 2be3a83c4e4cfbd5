//! Starting other programs: the execve(2) family and posix_spawn(3).
//!
//! A program that is started with a new environment, as nginx starts its successor, is accelerated as well: it gets the
//! two variables that this one was started with. If it has `SIDESTEP_BROKER` and no `LD_PRELOAD`, that is intended, and it is left out.
//!
//! The child of posix_spawn(3), and so of system(3) and popen(3), shares our memory until it calls execve(2), and acts only inside the C
//! library, bypassing all hooks. So what it inherits moves to the kernel before: connections without `FD_CLOEXEC`, even if its file
//! actions close them, and connections that the actions duplicate under another number
//! (`posix_spawn_file_actions_adddup2`).

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::OnceLock;

use crate::answer::{Asked, tell};
use crate::asked::{self, Verdict};
use crate::hooks::next;
use crate::start::{BROKER, PRELOAD};

/// A list of strings that ends with null: argv and envp.
pub(crate) type Strings = *const *const c_char;

/// `NAME=value` of the variables that make a program one of the family.
static FAMILY: OnceLock<[CString; 2]> = OnceLock::new();

unsafe extern "C" {
    static environ: Strings;
}

/// Keeps this process's variables, since programs write over their own environment.
pub(crate) fn remember_family(broker: &CStr, preload: &CStr) {
    let variable = |name: &CStr, value: &CStr| {
        CString::new([name.to_bytes(), b"=", value.to_bytes()].concat())
            .expect("C strings have no zeros inside")
    };
    let _ = FAMILY.set([variable(BROKER, broker), variable(PRELOAD, preload)]);
}

/// # Safety
/// As execve(2).
pub(crate) unsafe fn execve(path: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    tell(asked::before_exec);
    // SAFETY: as the caller says.
    unsafe { with_family(environment, |environment| next::execve(path, arguments, environment)) }
}

/// # Safety
/// As execv(3).
pub(crate) unsafe fn execv(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: as the caller says; the environment is read as execv does.
    unsafe { execve(path, arguments, environ) }
}

/// # Safety
/// As execvpe(3).
pub(crate) unsafe fn execvpe(file: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    tell(asked::before_exec);
    // SAFETY: as the caller says.
    unsafe { with_family(environment, |environment| next::execvpe(file, arguments, environment)) }
}

/// # Safety
/// As execvp(3).
pub(crate) unsafe fn execvp(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: as the caller says; the environment is read as execvp does.
    unsafe { execvpe(file, arguments, environ) }
}

/// # Safety
/// As fexecve(3).
pub(crate) unsafe fn fexecve(fd: c_int, arguments: Strings, environment: Strings) -> c_int {
    tell(asked::before_exec);
    // SAFETY: as the caller says.
    unsafe { with_family(environment, |environment| next::fexecve(fd, arguments, environment)) }
}

/// # Safety
/// As execveat(2).
pub(crate) unsafe fn execveat(
    folder: c_int,
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
    flags: c_int,
) -> c_int {
    tell(asked::before_exec);
    let exec = |environment| {
        // SAFETY: as the caller says.
        unsafe { next::execveat(folder, path, arguments, environment, flags) }
    };
    // SAFETY: as the caller says.
    unsafe { with_family(environment, exec) }
}

/// posix_spawn(3), as `body` does it with an environment.
///
/// # Safety
/// `environment` is null or a list of strings.
pub(crate) unsafe fn spawn(environment: Strings, body: impl FnOnce(Strings) -> c_int) -> c_int {
    tell(asked::before_spawn);
    // SAFETY: as the caller says.
    unsafe { with_family(environment, body) }
}

/// system(3) and popen(3), whose environment is ours.
pub(crate) fn before_spawn<T>() -> Asked<T> {
    asked::before_spawn();
    Ok(Verdict::Kernel)
}

/// A child will get `fd` under another number: it moves to the kernel before that.
pub(crate) fn move_for_child(fd: c_int) -> Asked<c_int> {
    asked::move_to_kernel(fd);
    Ok(Verdict::Kernel)
}

/// Calls `body` with `environment`, to which the family's variables are added if it says nothing of a broker.
///
/// Between fork(2) and execve(2) of a program with threads nothing may be allocated that another thread could have been allocating: the
/// longer list is a page of its own, or several.
///
/// # Safety
/// `environment` is null or a list of strings.
pub(crate) unsafe fn with_family(environment: Strings, body: impl FnOnce(Strings) -> c_int) -> c_int {
    // SAFETY: as the caller says.
    let given = unsafe { variables(environment) };
    let Some(family) = FAMILY.get().filter(|_| !names_broker(given)) else { return body(environment) };
    let count = given.len() + family.len() + 1;
    let len = count * size_of::<*const c_char>();
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let list = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
    if list == libc::MAP_FAILED {
        return body(environment);
    }
    // SAFETY: the mapping has room for `count` pointers and is zero.
    let longer = unsafe { std::slice::from_raw_parts_mut(list.cast::<*const c_char>(), count) };
    let added = family.iter().map(|variable| variable.as_ptr());
    for (to, variable) in longer.iter_mut().zip(added.chain(given.iter().copied())) {
        *to = variable;
    }
    let result = body(list.cast::<*const c_char>());
    // SAFETY: mapped above, and the call that read it has returned.
    unsafe { libc::munmap(list, len) };
    result
}

/// # Safety
/// `environment` is null or a list of strings that ends with null.
unsafe fn variables<'a>(environment: Strings) -> &'a [*const c_char] {
    if environment.is_null() {
        return &[];
    }
    // SAFETY: the list ends with null.
    let count = (0..).take_while(|index| unsafe { !(*environment.add(*index)).is_null() }).count();
    // SAFETY: so many were seen.
    unsafe { std::slice::from_raw_parts(environment, count) }
}

fn names_broker(variables: &[*const c_char]) -> bool {
    variables.iter().any(|variable| {
        // SAFETY: the variables of an environment are strings.
        let variable = unsafe { CStr::from_ptr(*variable) }.to_bytes();
        variable.strip_prefix(BROKER.to_bytes()).is_some_and(|rest| rest.first() == Some(&b'='))
    })
}
