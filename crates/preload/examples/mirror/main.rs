//! The library with the kernel in place of `posix`: every socket and every epoll is "ours", and each question is answered by its system
//! call. A program must see no difference; if it does, a hook has lost something on the way from C to types and back.
//!
//! The tests build it and start programs with it. It takes itself for active wherever `SIDESTEP_BROKER` is set.

#[macro_use]
#[path = "../../src/macros.rs"]
mod macros;

#[path = "../../src/answer.rs"]
mod answer;
#[path = "../../src/calls/mod.rs"]
mod calls;
#[path = "../../src/hooks.rs"]
mod hooks;
#[path = "../../src/memory.rs"]
mod memory;
#[path = "../../src/next.rs"]
mod next;
#[path = "../../src/start.rs"]
mod start;
#[path = "../../src/trampolines.rs"]
mod trampolines;

mod asked;
