//! The broker as a process sees it: what can be asked of it, and what it tells.

mod attachment;
pub(crate) mod brokered;
mod strays;
mod ways;

pub(crate) use attachment::*;
