//! libsidestep_preload.so: the C library's socket functions, each a few lines over `posix`.
//!
//! `hooks` is the table of all functions that are hooked; each row names the function of `calls` that turns C's arguments into types
//! and asks `posix`. What `posix` has no part in goes on to the C library's own function, found by `next`. `start` is what happens
//! before `main`.
//!
//! # Unsafe code
//! A hooked function owes its caller exactly what the C library's owes: pointers are as its manual page says. They become slices and
//! references in `memory` only, which knows what the kernel would refuse (`EFAULT`, `EINVAL`); `posix` sees nothing but types.
//!
//! # What unwinds
//! The C library cancels threads by unwinding them out of its own `read` and the like, and so through ours, where nothing is to be
//! dropped at that point (`macros`). A panic of ours does not get out: `answer::ask` ends the process.
//!
//! # What a program can tell
//! * A wild pointer ends it, where the kernel would answer `EFAULT`; null is answered so.
//! * The child of vfork(2) has a memory of its own, as the standard permits.
//! * What passes no function of the C library passes no hook: system calls made by instructions of the program's own (Go), and
//!   io_uring(7). They see the kernel's socket, which for a connection on our stack is one that is not connected. A process that was
//!   made so is the kernel's, with what it has of sockets there.

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
