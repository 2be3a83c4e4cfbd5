//! A log of the answers of a DNS server.
//!
//! Each thread that answers has a [`Writer`], and one thread that writes the log takes what all of them have noted by a [`Reader`]: an [`AnswerLog`]
//! is between them. Between each pair is a ring of fixed size. A thread that answers copies an answer into it; where it is full, the answer has no
//! place in the log and is counted. Nobody who answers waits, allocates or makes a system call, except to wake the thread that writes when that
//! one sleeps.
//!
//! [`dnstap`] puts an answer in the form that other tools read, and [`frames`] puts those into a file or a socket.
#![forbid(unsafe_code)]

pub mod dnstap;
mod entry;
pub mod frames;
mod ring;

pub use entry::{Entry, Transport};
pub use ring::{AnswerLog, Reader, Writer};
