//! Scenarios in Unbound's `.rpl` form, played against the resolver in simulated time.
//!
//! A file has a configuration (`server:`, `stub-zone:`, `forward-zone:` and their options, up to `CONFIG_END`), then between
//! `SCENARIO_BEGIN` and `SCENARIO_END` what servers answer in which steps (`RANGE_BEGIN`) and the steps themselves.
//!
//! Of Unbound's form this player knows `RANGE`, `ENTRY`, `MATCH`, `ADJUST`, `REPLY`, `SECTION`, and the steps `QUERY`, `CHECK_ANSWER` and
//! `TIME_PASSES ELAPSE`. Time passes by itself: a query that no entry answers is lost. Our own additions are
//!
//! - `DELAY ms` in a range: what the server's answers take there and back (10 ms without it);
//! - `UNREACHABLE` in a range: queries to it fail at once;
//! - `ADJUST forge=N`: N copies with a wrong ID come instead of the answer; `ADJUST garbage`: the answer is cut in the middle;
//! - `MATCH TCP`, `UDP`, `EDNS`, `NOEDNS`, `RD` on queries to servers; `MATCH ede=N`, `ttl` and `noanswer` on answers;
//! - the steps `CHECK_SENT address N` (or `N+`, `N-`): so many queries went to the address since it was checked last, `all` meaning
//!   every address; `CHECK_TIME min max`: the last answer took so many milliseconds; `RELOAD`; and a fraction in `ELAPSE`.

mod config;
mod entry;
pub(crate) mod message;
mod parse;
mod play;

pub(crate) use parse::parse;
pub(crate) use play::play;
