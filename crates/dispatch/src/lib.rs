//! One device shared by several engines: more cores than queues, or cores that only receive and send.
//!
//! ```text
//!                 ┌────────────── Dispatcher ──────────────┐        ┌──── Worker 0 ────┐
//!   device ──▶ rx │ its share of UDP ──▶ its own engine     │──ring─▶│ another engine   │
//!          ◀── tx │◀─ answers of its own engine             │◀─ring──│ answers in place │
//!                 │◀─ answers of workers, and spent frames  │   ⋮    └──────────────────┘
//!                 └─────────────────────────────────────────┘──ring─▶  Worker 1
//! ```
//!
//! [`share`] makes a [`Dispatcher`] and some [`Worker`]s of a device. All are devices themselves, so an engine does not know
//! that it works with others. The engine with the dispatcher drives the real device: each of its turns brings frames in, hands most of
//! them on, and sends what has come back. Frames travel themselves, in batches, over rings with one producer and one
//! consumer; nothing is copied, allocated or locked on the way.
//!
//! - *Pipeline*: the dispatcher's share is 0 %, and all packets are the workers'.
//! - *Hybrid*: its engine answers a share of the UDP flows itself.
//! - *Run to completion* is not to use this crate: an engine with its own queue, and nothing between them.
//!
//! A flow goes to one worker as long as there are as many workers, whichever queue its packets arrive on ([`Scatter`]). So its packets
//! stay in order, and TCP connections survive a NIC that spreads flows anew, as long as all dispatchers scatter by the same key.
#![forbid(unsafe_code)]

mod bell;
mod dispatcher;
mod lane;
mod scatter;
mod worker;

pub use dispatcher::{Dispatcher, share};
pub use scatter::{Place, Scatter};
pub use worker::Worker;

/// Most frames that one worker has at a time, those on their way to it and back included. What comes for it beyond is dropped and
/// counted: it is further behind than a queue of this length helps.
pub const OUTSTANDING_MAX: usize = 512;

/// Empty frames that a worker keeps for packets that answer none, such as segments of TCP.
pub const STOCK: usize = 64;
