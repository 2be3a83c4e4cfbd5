//! An epoll instance, as far as it is ours: what it watches, and which of that is ready.

pub(crate) mod absent;
pub(crate) mod armed;
pub(crate) mod bell;
pub(crate) mod instance;

pub(crate) use instance::{Epoll, Item};
