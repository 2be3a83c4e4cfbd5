//! From query to response: semantics on the tree, speed from precompiled answers.
//!
//! There are two ways to an answer, and a property test shows that both give the same octets:
//!
//! - [`resolve`] walks the zone trees as RFC 1034, 4.3.2 says, and composes a message. It can answer everything.
//! - [`table`] stores the finished octets that follow the question, for each existing name and type. It answers most queries.
//!
//! [`Responder`] chooses between them and is the same for every transport. Pure: a catalog and octets in, octets out.
//! Nothing allocates once a responder is made.
#![forbid(unsafe_code)]

pub mod catalog;
pub mod compile;
pub mod counters;
mod due;
mod extended_error;
#[doc(hidden)]
pub mod fuzz;
mod latency;
pub mod lines;
pub mod online;
pub mod pools;
mod proof;
pub mod resolve;
pub mod responder;
pub mod settings;
mod subnet;
pub mod table;
mod view;
pub mod writer;

pub use catalog::{Catalog, ServedZone, Unavailable};
pub use counters::{Counters, Dropped, Transport, ZONE_COUNTERS};
pub use extended_error::ExtendedError;
#[doc(hidden)]
pub use fuzz::fuzz_message;
pub use lines::{LeftOut, LineData, LineOverlays, SignFailure, SignSets};
pub use online::{OnlineSet, SignOnline};
pub use pools::Pool;
pub use responder::{Outcome, Prepared, Responder};
pub use settings::Settings;
