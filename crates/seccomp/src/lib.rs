//! Refuses io_uring(7) to the programs that this process starts, so that they use the calls that `sidestep run` hooks.
//!
//! A ring reads and writes sockets past the C library. What it finds at the descriptor of a connection on our stack is a socket of the
//! kernel's that is not connected. Programs that use rings ask first whether there are any, and have a way without: on a kernel built
//! without io_uring, `io_uring_setup` answers `ENOSYS`. That is what the filter answers (seccomp(2)). All descendants have it, too.
//!
//! # Unsafe code
//! One system call. The filter is a constant.

use std::io;

/// `seccomp_data` in `linux/seccomp.h`: where the number of the call is, and where the architecture.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
/// `linux/audit.h`.
#[cfg(target_arch = "x86_64")]
const OWN_ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const OWN_ARCHITECTURE: u32 = 0xc000_00b7;

/// `io_uring_setup`, `io_uring_enter` and `io_uring_register` have numbers in a row, the same on all architectures.
const FIRST: u32 = libc::SYS_io_uring_setup as u32;
const LAST: u32 = libc::SYS_io_uring_register as u32;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const JUMP_IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const JUMP_IF_GREATER: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

const fn instruction(code: u16, k: u32, if_true: u8, if_false: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt: if_true, jf: if_false, k }
}

/// Programs for other architectures (32 bits) are not ours, and may call what they like.
static FILTER: [libc::sock_filter; 7] = [
    instruction(LOAD, ARCHITECTURE, 0, 0),
    instruction(JUMP_IF_EQUAL, OWN_ARCHITECTURE, 0, 3),
    instruction(LOAD, NUMBER, 0, 0),
    instruction(JUMP_IF_AT_LEAST, FIRST, 0, 1),
    instruction(JUMP_IF_GREATER, LAST, 0, 1),
    instruction(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
    instruction(RETURN, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32, 0, 0),
];

/// Refuses rings to the calling thread, and to the threads and programs that it starts from now on. Fails with `EACCES` without
/// CAP_SYS_ADMIN: others may have filters only if they forbid themselves set-user-ID programs, too.
pub fn refuse_rings() -> io::Result<()> {
    let program = libc::sock_fprog { len: FILTER.len() as u16, filter: FILTER.as_ptr().cast_mut() };
    // SAFETY: the kernel only reads the program, which lives as long as the call, and its filter, which is static.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            // Speculation stays as it was: a filter is no sandbox here, and must not slow the program down.
            libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW,
            &raw const program,
        )
    };
    if returned == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel says to a call without arguments.
    fn errno_of(number: libc::c_long) -> Option<i32> {
        // SAFETY: zeroes are a bad address or no descriptor to all of these, and they change nothing.
        let returned = unsafe { libc::syscall(number, 0, 0, 0, 0, 0, 0) };
        (returned < 0).then(|| io::Error::last_os_error().raw_os_error().expect("it was a system call"))
    }

    #[test]
    fn a_thread_with_the_filter_has_no_rings_and_everything_else() {
        let outcome = std::thread::spawn(|| {
            refuse_rings()?;
            let refused = [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];
            assert_eq!(refused.map(errno_of), [Some(libc::ENOSYS); 3]);
            let neighbours = [libc::SYS_pidfd_send_signal, libc::SYS_open_tree];
            assert!(neighbours.map(errno_of).iter().all(|errno| *errno != Some(libc::ENOSYS)));
            assert_eq!(errno_of(libc::SYS_getppid), None);
            Ok::<(), io::Error>(())
        });
        match outcome.join().expect("it does not panic") {
            Err(error) if error.raw_os_error() == Some(libc::EACCES) => {} // Without CAP_SYS_ADMIN.
            outcome => outcome.unwrap(),
        }
    }
}
