//! The broker as a process sees it: what can be asked of it, and what it tells.

mod attachment;
pub(crate) mod brokered;
mod left_to_kernel;
mod strays;
mod values;
mod ways;

pub(crate) use attachment::*;
pub(crate) use left_to_kernel::*;
