//! What the benchmarks share: zones and queries made from a seed, medians, and the conditions of a run.
#![forbid(unsafe_code)]

/// The command's allocator, so that what is measured here is what runs there.
#[global_allocator]
static ALLOCATOR: allocator::HugePages = allocator::HugePages;

pub mod load;
pub mod report;
