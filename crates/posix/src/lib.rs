//! The socket API on our stack: descriptors, blocking, epoll, poll, errno. The program's own calls drive the engine.
//!
//! Start at [`calls`]: one function for each system call, one file for each family of them. Everything there takes safe types, which
//! `preload` makes from C's. Each floor uses what is below it, by names and by methods of `process::State` (`tests/tests/floors.rs` holds
//! that):
//!
//! | module | what it has |
//! | --- | --- |
//! | `calls/` | a file for each family of calls: reads the arguments, looks up the socket, waits, answers; fork, exec and exit, too |
//! | `wait/` | calls that wait: they drive the engine; the watchdog, which drives while no call does |
//! | `claiming.rs` | sockets that are claimed as soon as a thread waits there |
//! | `turns/` | a turn of the engine: packets, news of the broker, what is due |
//! | `closing.rs`, `observing.rs` | what is closed while a call uses it; tools that observe the process |
//! | `moves/` | sockets on their way between stack and kernel, or between processes |
//! | `shadows/` | listeners and UDP sockets, which are on the stack and in the kernel |
//! | `global.rs` | the process that we are loaded into |
//! | `process/` | the state behind one lock: what belongs to the process, and one `Queue` |
//! | `queue/` | what belongs to a queue: engine, ports, who sleeps on it |
//! | `socket/` | a socket: role, place, settings; pure but for options that it reads of the kernel |
//! | `epoll/`, `kinship.rs` | an epoll instance; what parent and children share |
//! | `broker_side/` | requests to the broker, and its news |
//! | `moved_in_calls.rs` | the kernel's sockets of connections that have moved while a call used them |
//! | `address.rs`, `waiter.rs`, `own_thread.rs` | `sockaddr`s; threads that sleep; threads of our own |
//! | `descriptors/`, `ids.rs`, `request.rs`, `inside.rs`, `batch.rs`, `errno.rs` | the kind of each descriptor, with one load; names and values that all use |
#![forbid(unsafe_code)]

mod address;
mod batch;
mod broker_side;
pub mod calls;
mod claiming;
mod closing;
mod descriptors;
mod epoll;
mod errno;
mod global;
mod ids;
pub mod inside;
mod kinship;
mod moved_in_calls;
mod moves;
mod observing;
mod own_thread;
mod process;
mod queue;
mod request;
mod shadows;
mod socket;
#[cfg(test)]
mod tests;
mod turns;
mod wait;
mod waiter;

pub use errno::Errno;
