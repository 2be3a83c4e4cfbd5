//! The table, by theme.

mod accept;
mod bind;
mod connect;
mod descriptors;
mod epoll_control;
mod epoll_wait;
mod files;
mod flags;
mod listen;
mod names;
mod poll;
mod read;
mod select;
mod shutdown;
mod write;

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
    ];
    themes.into_iter().flatten().collect()
}
