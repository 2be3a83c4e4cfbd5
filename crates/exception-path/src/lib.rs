//! The kernel's side of a device that has no kernel interface, such as a DPDK port.
//!
//! ```text
//!   port --> claimed? --yes--> engine
//!                 |no                        a user configures the TAP interface with ip(8), as any other one;
//!                 v                          ARP, ICMP, routing and all other programs are the kernel's there
//!            TAP interface <--> kernel
//! ```
//!
//! [`TapInterface`] is that interface. [`Steered`] wraps a device: frames that no claim matches go to the TAP interface, and what the kernel
//! sends there leaves by the device. With AF_XDP the steering program does the first, and the kernel has the interface itself.
//!
//! # Where the unsafe is
//!
//! `tap.rs`: three ioctl(2) calls.

mod steered;
mod tap;

pub use steered::{Counts, Steered};
pub use tap::{TapError, TapInterface};
