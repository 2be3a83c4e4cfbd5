//! libsidestep_preload.so: the C library's socket functions, each a few lines over `posix`.
//!
//! `hooks` is the table of all hooked functions. Each row names the function of `calls` that turns C's arguments into types
//! and asks `posix`. Calls that do not concern `posix` go on to the C library's own function, which `next` finds. `start` runs
//! before `main`.
//!
//! # Unsafe code
//! A hooked function has the C library's contract: pointers are as its manual page says. Only `memory` turns them into slices and
//! references; it knows what the kernel would refuse (`EFAULT`, `EINVAL`). `posix` sees only types.
//!
//! # Unwinding
//! The C library cancels threads by unwinding them out of its own `read` and the like, and so through our functions, which have nothing to
//! drop at that point (`macros`). A panic of ours does not leave: `answer::ask` ends the process.
//!
//! # What a program can notice
//! * A wild pointer ends it, where the kernel would return `EFAULT`. Null, and what else no program has, is `EFAULT` here, too.
//! * The child of vfork(2) has its own memory, as the standard permits.
//! * Calls that do not go through the C library bypass all hooks: system calls by the program's own instructions (Go), and
//!   io_uring(7), which `sidestep run` refuses. They see the kernel's socket, which for a connection on our stack is not connected. A process that was
//!   made in this way runs on the kernel, with the kernel sockets that it inherits.

#[macro_use]
mod macros;

mod answer;
mod calls;
mod hooks;
mod memory;
mod next;
mod start;
mod trampolines;

// What is asked and told is `posix`'s; the example `mirror` is this library with the kernel in its place.
use posix::calls as asked;
