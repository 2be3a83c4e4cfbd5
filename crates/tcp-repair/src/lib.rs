//! A TCP connection as a value, and the kernel's socket made of it by `TCP_REPAIR`.
//!
//! What can no longer live on our stack goes on living on the kernel's: with the same sequence numbers, windows, options and
//! queues, and without a packet that tells the peer.
//!
//! ```text
//!   value ── prepare ──▶ Prepared ── start ──▶ descriptor
//!                           │
//!                           └ the kernel has the socket and says nothing of its own accord yet: from here on, and not
//!                             before, the connection's packets may reach it
//! ```
//!
//! A packet that reaches the kernel earlier is answered by a reset. One that came to the old stack between the value's making and then
//! is given to the kernel by [`deliver`]; else it is lost, and sent again.
//!
//! | file | what it does |
//! | --- | --- |
//! | `established.rs` | [`Established`]: the value, and what of it cannot be |
//! | `kernel.rs` | [`prepare`], [`Prepared`]: the order of things |
//! | `socket.rs` | one safe function per system call: where the unsafe is |
//! | `stand_in.rs` | segments in the peer's name, for a FIN that came already; [`deliver`] |
//! | `fuzz.rs` | what fuzzers call |

mod established;
mod fuzz;
mod kernel;
mod socket;
mod stand_in;

pub use established::{Established, Invalid, State, Timestamps};
pub use fuzz::fuzz_late_segment;
pub use kernel::{Prepared, make_kernel_socket, prepare};
pub use stand_in::deliver;
