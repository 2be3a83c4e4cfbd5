//! What the benchmarks share: zones and queries made from a seed, a load at a fixed rate, medians, and where figures are kept.
#![forbid(unsafe_code)]

pub mod gun;
pub mod knees;
pub mod load;
pub mod open_loop;
mod page;
pub mod processor;
pub mod record;
pub mod report;
pub mod scaling;
pub mod source;
