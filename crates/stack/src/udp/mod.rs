//! UDP (RFC 768; RFC 1122, 4.1; RFC 8085).
//!
//! [`UdpSocket`] is one socket. `table.rs` finds the socket of a datagram, `datagram_queue.rs` stores received datagrams and those to be
//! sent, `output.rs` writes packets, `icmp_errors.rs` decides what ICMP means for a socket. The application's calls
//! are methods of [`crate::Stack`] and begin with `udp_`.
//!
//! ```text
//!   on_packet ─▶ connected to its sender? ─▶ bound to its address? ─▶ bound to any? ─▶ nobody: counted, left to the kernel
//!                        └───────────────────────┴────────────────────────┴─▶ queue of the socket ─▶ udp_recv_from
//!   udp_send_to ─▶ queue of the socket ─▶ poll_transmit, eight datagrams a turn
//! ```
//!
//! Deliberate differences from other implementations:
//!
//! - Datagrams are never fragmented, as if `IP_MTU_DISCOVER` were `IP_PMTUDISC_DO`. A datagram longer than the path MTU is refused, and
//!   the socket learns which datagram a router found too big.
//! - The stack knows neither addresses nor routes. The sender of a datagram gives the source address, unless the socket is bound to one or
//!   connected, and the [`crate::Hop`]; for a reply, [`Received`] has it.
//! - The stack does not report closed ports: the kernel sends "port unreachable" (RFC 1122, 4.1.3.1).
//! - IPv4 options and fragments never come here: the kernel takes them (RFC 1122, 4.1.3.2).

mod datagram_queue;
mod errors;
mod icmp_errors;
mod messages;
mod output;
mod sent_to;
mod socket;
mod table;

pub use errors::{ErrorReport, UdpBindError, UdpConnectError, UdpError, UdpRecvError, UdpSendError};
pub use messages::{Received, UdpSend};
pub use socket::{UdpBind, UdpOptions, UdpSocket};

pub(crate) use datagram_queue::{Datagram, DatagramStore, Memory, Refused};
pub(crate) use icmp_errors::{error_of, is_plausible_too_big, quoted_len, quoted_payload};
pub(crate) use output::{headers_len, write_packet};
pub(crate) use sent_to::SentTo;
pub(crate) use socket::Peer;
pub(crate) use table::UdpTable;

use crate::slab::Handle;
use crate::stack::link_queues::LinkQueues;

/// Names a UDP socket.
pub type UdpId = Handle<UdpSocket>;

/// Segments that one call may send, or one receive return: Linux's `UDP_MAX_SEGMENTS`.
pub const SEGMENTS_MAX: usize = 128;

/// Sockets that a stack may have.
const SOCKETS_MAX: u32 = 1 << 17;

/// All of UDP in a stack.
#[derive(Debug)]
pub(crate) struct Udp {
    pub(crate) table: UdpTable,
    pub(crate) store: DatagramStore,
    pub(crate) sent_to: SentTo,
    /// Sockets with something to send, each once.
    pub(crate) ready: LinkQueues<UdpId>,
    /// Octets of the longest packet that was sent.
    pub(crate) sent_len_max: u16,
    /// UDP goes before TCP next time, so that neither waits for the other.
    pub(crate) goes_first: bool,
}

impl Udp {
    /// No sockets yet. They may hold half of the `chunks_max` chunks of the stack's buffers.
    pub(crate) fn new(chunks_max: u32, key: [u64; 2]) -> Udp {
        Udp {
            table: UdpTable::new(SOCKETS_MAX, key),
            store: DatagramStore::new(chunks_max),
            sent_to: SentTo::new(key),
            ready: LinkQueues::default(),
            sent_len_max: 0,
            goes_first: false,
        }
    }

    /// A socket that the application still has.
    pub(crate) fn socket(&self, id: UdpId) -> Option<&UdpSocket> {
        self.table.get(id).filter(|socket| !socket.flags.closing)
    }

    /// A socket that the application still has.
    pub(crate) fn socket_mut(&mut self, id: UdpId) -> Option<&mut UdpSocket> {
        self.table.get_mut(id).filter(|socket| !socket.flags.closing)
    }
}

impl Drop for Udp {
    fn drop(&mut self) {
        self.table.forget_queues(); // Their chunks go with the stack's pool.
    }
}
