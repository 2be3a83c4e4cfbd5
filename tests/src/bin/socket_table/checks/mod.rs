//! The table, by theme.

mod accept;
mod bind;
mod connect;
mod listen;
mod names;
mod read;
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
    ];
    themes.into_iter().flatten().collect()
}
