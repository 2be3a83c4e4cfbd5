//! What the benchmarks share: zones and queries made from a seed, a load at a fixed rate, medians, and the conditions of a run.
#![forbid(unsafe_code)]

pub mod load;
pub mod open_loop;
pub mod processor;
pub mod report;
