//! The kernel socket that `TCP_REPAIR` makes of a connection in transit ([`transit::Established`]).
//!
//! A connection that our stack cannot keep moves to the kernel's stack with the same sequence numbers, windows, options and
//! queues. No packet tells the peer.
//!
//! ```text
//!   value ── prepare ──▶ Prepared ── start ──▶ descriptor
//!                           │
//!                           └ the kernel has the socket and sends nothing on its own yet. From now on, and not
//!                             before, packets of the connection may reach the kernel
//! ```
//!
//! The kernel answers a packet that reaches it earlier with a reset. [`deliver`] passes a packet that reached the old stack in between
//! to the kernel; otherwise the packet is lost, and the peer sends it again.
//!
//! | file | what it does |
//! | --- | --- |
//! | `kernel.rs` | [`prepare`], [`Prepared`]: the order of the steps |
//! | `socket.rs` | one safe function per system call; all the unsafe code |
//! | `stand_in.rs` | segments in the peer's name, for a FIN that has already arrived; [`deliver`] |
//! | `enqueuing.rs` | [`Enqueuing`]: a connection that waits to be accepted, for a listener of the kernel's |
//! | `fuzz.rs` | what fuzzers call |

mod enqueuing;
mod fuzz;
mod kernel;
mod socket;
mod stand_in;

pub use enqueuing::Enqueuing;
pub use fuzz::fuzz_late_segment;
pub use kernel::{Prepared, extra_memory, make_kernel_socket, prepare};
pub use stand_in::{deliver, probe};
