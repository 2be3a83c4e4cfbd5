//! Tests that cross crates: the `sidestep` command as its users see it, on kernel sockets and in the laboratory.
//!
//! Here is what they share; the tests are in `tests/kernel`, which need no privilege, and in `tests/laboratory` and
//! `tests/programs`, which need root and AF_XDP and say so when they cannot run.
#![forbid(unsafe_code)]

mod counters;
mod dig;
mod exchange;
mod idle;
mod keys;
mod liar;
mod load;
pub mod mmdb;
mod reload;
mod serving;
mod stream;

pub use counters::Counters;
pub use dig::{Dig, Transport};
pub use exchange::{Answer, Exchange, ExchangeTally};
pub use idle::assert_comes_to_rest;
pub use keys::make_keys_older;
pub use lab::make_certificate;
pub use liar::{EGRESS, Fault, Liar, Upstream, WORLD};
pub use load::{Load, Tally};
pub use reload::{VERSION_NAME, VersionedZone, reload_under_load};
pub use serving::{Serving, command, stats};
pub use stream::{StreamHash, fill_pattern, pattern_hash};
