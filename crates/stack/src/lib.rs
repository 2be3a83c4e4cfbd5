//! UDP and TCP: packets in, packets out, timers.
#![forbid(unsafe_code)]

pub mod assembler;
pub mod buffer;
pub mod congestion;
pub mod fast_open;
pub mod flow_table;
pub mod isn;
pub mod pacer;
pub mod path_mtu;
pub mod ports;
pub mod recovery;
pub mod rtt;
pub mod seq;
pub mod syn_cookie;
pub mod time_wait;
pub mod timer_wheel;
