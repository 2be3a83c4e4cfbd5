//! Sockets as programs know them: descriptors, blocking, epoll, poll, errno, on an engine that the program's own calls drive.
//!
//! Start at [`calls`]: one function for each family of system calls. Everything there takes safe types; `preload` makes them of
//! C's.
#![forbid(unsafe_code)]

pub mod calls;
mod errno;
pub mod inside;

pub use errno::Errno;
