//! The table, by theme.

mod accept;
mod accept_errors;
mod aliases;
mod bind;
mod close;
mod close_states;
mod connect;
mod connect_errors;
mod descriptors;
mod epoll_control;
mod epoll_control_errors;
mod epoll_edge;
mod epoll_listen;
mod epoll_threads;
mod epoll_wait;
mod exec;
mod files;
mod flags;
mod fork;
mod fork_first;
mod fork_listener;
mod fork_shared;
mod ioctl;
mod kernel_only;
mod listen;
mod listen_addresses;
mod names;
mod option_names;
mod option_values;
mod options;
mod poll;
mod poll_signals;
mod read;
mod read_errors;
mod select;
mod send_descriptor;
mod shutdown;
mod signals;
mod signals_pipe;
mod splice;
mod tcp_features;
mod tcp_info;
mod tcp_listeners;
mod threads;
mod threads_listen;
mod udp;
mod udp_clients;
mod udp_connected;
mod udp_control;
mod udp_errors;
mod udp_information;
mod udp_segments;
mod udp_unusual;
mod urgent;
mod write;
mod write_errors;
mod zerocopy;

use crate::table::Check;

/// All checks, in the order in which they run.
pub(crate) fn all() -> Vec<Check> {
    let themes = [
        accept::checks(),
        accept_errors::checks(),
        listen::checks(),
        listen_addresses::checks(),
        bind::checks(),
        names::checks(),
        connect::checks(),
        connect_errors::checks(),
        read::checks(),
        read_errors::checks(),
        write::checks(),
        write_errors::checks(),
        shutdown::checks(),
        close_states::checks(),
        poll::checks(),
        poll_signals::checks(),
        select::checks(),
        epoll_control::checks(),
        epoll_control_errors::checks(),
        epoll_wait::checks(),
        epoll_edge::checks(),
        epoll_threads::checks(),
        epoll_listen::checks(),
        descriptors::checks(),
        close::checks(),
        flags::checks(),
        ioctl::checks(),
        files::checks(),
        splice::checks(),
        fork::checks(),
        fork_first::checks(),
        fork_shared::checks(),
        fork_listener::checks(),
        exec::checks(),
        send_descriptor::checks(),
        signals::checks(),
        signals_pipe::checks(),
        threads::checks(),
        threads_listen::checks(),
        aliases::checks(),
        options::checks(),
        option_values::checks(),
        option_names::checks(),
        kernel_only::checks(),
        tcp_info::checks(),
        tcp_features::checks(),
        tcp_listeners::checks(),
        urgent::checks(),
        zerocopy::checks(),
        udp::checks(),
        udp_unusual::checks(),
        udp_clients::checks(),
        udp_connected::checks(),
        udp_control::checks(),
        udp_information::checks(),
        udp_errors::checks(),
        udp_segments::checks(),
    ];
    themes.into_iter().flatten().collect()
}
