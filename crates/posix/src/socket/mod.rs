//! A socket of the program: what it is, where it is, and what the program has set. It makes no decision about others.

pub(crate) mod control_messages;
mod entry;
pub(crate) mod error_queue;
pub(crate) mod flags;
pub(crate) mod judge;
pub(crate) mod kernel_only;
pub(crate) mod learned_ways;
pub(crate) mod option_table;
pub(crate) mod own_run;
mod owner;
pub(crate) mod place;
pub(crate) mod queueing;
mod readiness;
pub(crate) mod send_times;
pub(crate) mod settings;
pub(crate) mod stall;
pub(crate) mod tcp_info;
pub(crate) mod times;
pub(crate) mod touched;
pub(crate) mod udp;
pub(crate) mod udp_messages;
pub(crate) mod usage;

pub(crate) use entry::{Role, Socket};
pub(crate) use place::{At, Happening, Inherited, Place, Step};
pub(crate) use readiness::{READABLE, WRITABLE};
