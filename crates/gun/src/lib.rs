//! A load generator: for DNS and other datagrams over UDP on any [`device::Device`], and for what is spoken over connections ([`streams`]).
//!
//! ```text
//!   Schedule ──due──▶ Questions ──▶ frame ──▶ device ──▶ the server
//!                        │                                 │
//!                     Flights ◀──────── (port, ID) ◀── answer ──▶ Tally
//! ```
//!
//! - [`schedule`]: when each question is due. Nothing that the server does changes that (an *open loop*): latencies count from when a question
//!   was due, so that a server which stalls cannot hide the questions that it kept from being asked ("coordinated omission").
//! - [`questions`]: what is asked, and in which order.
//! - [`messages`]: the same of other datagrams, and what the generator needs to know of either.
//! - [`flights`]: what is under way. An answer is found by the port that it came to and its ID.
//! - [`gun`]: a turn: takes answers in, and sends what is due.
//! - [`streams`]: loads over connections.
//! - [`tally`]: what is counted meanwhile.
//! - [`summary`]: what came of it, what that says of the server, and whether the generator was the bottleneck itself.
//! - [`knee`]: the search for the largest load that a server carries.
//! - [`loss`]: loss that is the same at every load, of which such a search can find nothing.
//!
//! It reads no clock and opens nothing: whoever runs it passes the time and the device.
#![forbid(unsafe_code)]

mod answer;
pub mod flights;
pub mod gun;
pub mod knee;
pub mod loss;
pub mod messages;
pub mod questions;
pub mod schedule;
pub mod streams;
mod subnets;
pub mod summary;
pub mod tally;

pub use crate::flights::Flights;
pub use crate::gun::{Gun, Rest, Setup, Turn};
pub use crate::messages::{Datagrams, Messages};
pub use crate::questions::{Order, Questions, QuestionsError};
pub use crate::schedule::Schedule;
pub use crate::summary::Summary;
pub use crate::tally::Tally;
