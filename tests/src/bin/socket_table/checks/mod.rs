//! The table, by theme.

mod accept;
mod aliases;
mod bind;
mod connect;
mod descriptors;
mod epoll_control;
mod epoll_wait;
mod exec;
mod files;
mod flags;
mod fork;
mod listen;
mod names;
mod option_values;
mod options;
mod poll;
mod read;
mod select;
mod shutdown;
mod signals;
mod tcp_features;
mod tcp_info;
mod threads;
mod udp;
mod udp_control;
mod write;
mod zerocopy;

use crate::table::Check;

/// All checks, in the order in which they run.
pub(crate) fn all() -> Vec<Check> {
    let themes = [
        accept::checks(),
        listen::checks(),
        bind::checks(),
        names::checks(),
        connect::checks(),
        read::checks(),
        write::checks(),
        shutdown::checks(),
        poll::checks(),
        select::checks(),
        epoll_control::checks(),
        epoll_wait::checks(),
        descriptors::checks(),
        flags::checks(),
        files::checks(),
        fork::checks(),
        exec::checks(),
        signals::checks(),
        threads::checks(),
        aliases::checks(),
        options::checks(),
        option_values::checks(),
        tcp_info::checks(),
        tcp_features::checks(),
        zerocopy::checks(),
        udp::checks(),
        udp_control::checks(),
    ];
    themes.into_iter().flatten().collect()
}
