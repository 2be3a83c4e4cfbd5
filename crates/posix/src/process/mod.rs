//! A process and what it knows, behind one lock; and what every call may do with that.

mod bell;
mod broker;
mod collect;
mod connections;
mod ready;
mod send_times;
mod state;
mod traffic;
mod watched;

pub(crate) use state::{AskedByChild, Closing, Process, State};
