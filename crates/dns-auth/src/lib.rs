//! From query to response: semantics on the tree, speed from precompiled answers.
//!
//! Two ways lead to an answer, and a property test holds them to the same octets:
//!
//! - [`resolve`] walks the zone trees as RFC 1034, 4.3.2 says and composes a message. It answers everything.
//! - [`table`] holds the finished octets behind the question for each existing name and type. It answers most.
//!
//! [`Responder`] chooses between them and is the same for every transport. Pure: a catalog and octets in, octets out;
//! nothing allocates once a responder is made.
#![forbid(unsafe_code)]

pub mod catalog;
pub mod compile;
pub mod counters;
#[doc(hidden)]
pub mod fuzz;
pub mod resolve;
pub mod responder;
pub mod settings;
pub mod table;
pub mod writer;

pub use catalog::{Catalog, ServedZone, Unavailable};
pub use counters::{Counters, Dropped, Transport};
#[doc(hidden)]
pub use fuzz::fuzz_message;
pub use responder::{Outcome, Prepared, Responder};
pub use settings::Settings;
