//! Calls that wait: they drive the engine until they have what they wait for.

mod callers;
pub(crate) mod connecting;
mod driver;
mod inherit;
mod moving;
mod on;
mod waiting;
mod watchdog;

pub(crate) use on::{MOVED, On, Several, Stop, Waiting};
