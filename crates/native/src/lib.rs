//! Programs that link Sidestep: an interface, its engines and its shadows put together.
//!
//! A program makes its engines, each with a responder for UDP and an application for TCP ([`engine`]), runs them on threads,
//! and opens an [`Interface`] that feeds them. A thread then follows the kernel's changes. It gives devices to the engines and
//! takes them back, keeps a kernel socket (a *shadow*) for each claimed address and port, and tells the engines about
//! new MTUs and neighbours. The examples `echo` and `http_hello` are whole programs.
#![forbid(unsafe_code)]
// These macros panic if they cannot write, and so end the program.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod departure;
mod follower;
mod interface;
mod shadow;

pub use departure::{Departure, DepartureError};
pub use follower::Notice;
pub use interface::{Dispatch, Interface, InterfaceConfig, OpenError, SteeringCounts};
pub use shadow::{Owner, Reserved};
