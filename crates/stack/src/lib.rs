//! UDP and TCP: packets in, packets out, timers.
//!
//! Pure: it opens nothing, reads no clock and knows no device. Each engine has one [`Stack`]. The caller passes packets, the
//! time and 32 secret octets in, and takes packets, deadlines and events out. The RFC and its section stand beside the code
//! that implements it.
//!
//! Start at [`Stack`], then the modules [`tcp`] and [`udp`].
#![forbid(unsafe_code)]

mod address;
pub mod assembler;
pub mod buffer;
pub mod config;
pub mod congestion;
pub mod counters;
pub mod fast_open;
pub mod flow_table;
pub mod isn;
pub mod pacer;
pub mod path;
pub mod path_mtu;
pub mod recovery;
pub mod rtt;
pub mod segment;
pub mod slab;
mod sources;

mod stack;
pub mod syn_cookie;

pub mod tcp;
pub mod time_wait;
pub mod timer_wheel;
pub mod trace;
pub mod udp;

pub use config::{Config, TcpOptions};
pub use counters::Counters;
pub use path::{Link, RouteClamp};

pub use sources::SourceFilter;
pub use stack::{
    Arrival, AttachError, Book, Connect, ConnectError, ConnectionId, Event, LateSegment, ListenError,
    ListenerId, Payload, Rooms, Socket, Stack, Stray, Transmit,
};
pub use tcp::{DetachError, Detached};
pub use transit::{Established, Handshake, Hop, LinkHeader, LinkId, seq};
