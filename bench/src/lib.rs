//! What the benchmarks share: zones and queries made from a seed, medians, and the conditions of a run.
#![forbid(unsafe_code)]

pub mod load;
pub mod report;
