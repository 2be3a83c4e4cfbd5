//! What a descriptor stands for.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use clock::Duration;

use super::error_queue::Completions;
use crate::pkt::host::{ConnectionId, Events, ListenerId, Readiness, TcpOptions, UdpId, UdpOptions};
use crate::pkt::symbols as sym;

/// What a descriptor stands for.
pub(crate) enum File {
    Socket(Box<SocketFile>),
    Epoll(Epoll),
    /// A file that was opened: whatever a script wants to send of it is there.
    Plain,
}

/// A socket.
pub(crate) struct SocketFile {
    pub(crate) is_udp: bool,
    pub(crate) state: SocketState,
    pub(crate) is_v6: bool,
    pub(crate) nonblocking: bool,
    /// Options of TCP before there is a connection, whose own they are then.
    pub(crate) options: TcpOptions,
    /// Options of UDP.
    pub(crate) udp_options: UdpOptions,
    /// Where it is bound.
    pub(crate) local: Option<SocketAddr>,
    pub(crate) receive_timeout: Option<Duration>,
    pub(crate) send_timeout: Option<Duration>,
    /// Options that the player only keeps, by level and name.
    pub(crate) kept: BTreeMap<(i64, i64), i64>,
    /// Its error queue.
    pub(crate) completions: Completions,
    /// A connection that failed; what it was is known until the socket has another.
    pub(crate) failed: Option<ConnectionId>,
    /// Number of its flow.
    pub(crate) flow: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketState {
    /// Neither listening nor connected.
    Idle,
    Listening(ListenerId),
    /// connect() was called, and the SYN waits for data to take along (`TCP_FASTOPEN_CONNECT`).
    Deferred(SocketAddr),
    /// connect() was called, and its result was not reported yet.
    Connecting(ConnectionId),
    Connected(ConnectionId),
    /// A UDP socket with an address.
    Datagram(UdpId),
}

impl SocketFile {
    pub(crate) fn new(is_udp: bool, is_v6: bool, options: TcpOptions, flow: usize) -> SocketFile {
        SocketFile {
            is_udp,
            state: SocketState::Idle,
            is_v6,
            nonblocking: false,
            options,
            udp_options: UdpOptions::default(),
            local: None,
            receive_timeout: None,
            send_timeout: None,
            kept: BTreeMap::new(),
            completions: Completions::default(),
            failed: None,
            flow,
        }
    }

    pub(crate) fn connection(&self) -> Option<ConnectionId> {
        match self.state {
            SocketState::Connecting(id) | SocketState::Connected(id) => Some(id),
            _ => None,
        }
    }

    /// An option that is only kept, as it was set; zero before.
    pub(crate) fn kept(&self, level: i64, name: i64) -> i64 {
        self.kept.get(&(level, name)).copied().unwrap_or(0)
    }
}

/// An epoll instance.
#[derive(Default)]
pub(crate) struct Epoll {
    pub(crate) interests: Vec<Interest>,
}

/// One descriptor that an epoll instance watches.
pub(crate) struct Interest {
    pub(crate) fd: i32,
    pub(crate) events: i64,
    pub(crate) data: i64,
    /// Something happened since it was last told of; edge-triggered ones are only told of then.
    pub(crate) armed: bool,
    /// A one-shot item that was reported.
    pub(crate) spent: bool,
}

/// What poll(2) says of a connection.
pub(crate) fn connection_mask(readiness: Readiness, is_connecting: bool) -> i64 {
    let mut mask = 0;
    if readiness.readable && !is_connecting || readiness.error || readiness.hangup {
        mask |= sym::POLLIN | sym::POLLRDNORM;
    }
    if readiness.writable {
        mask |= sym::POLLOUT | sym::POLLWRNORM;
    }
    if readiness.read_closed {
        mask |= sym::POLLIN | sym::POLLRDNORM | sym::POLLRDHUP;
    }
    if readiness.hangup {
        mask |= sym::POLLHUP;
    }
    if readiness.error {
        mask |= sym::POLLERR;
    }
    if readiness.urgent {
        mask |= sym::POLLPRI;
    }
    mask
}

/// The masks of poll(2) that news of the stack may concern.
pub(crate) fn news_mask(events: Events) -> i64 {
    let table = [
        (Events::READABLE, sym::POLLIN | sym::POLLRDNORM),
        (Events::WRITABLE, sym::POLLOUT | sym::POLLWRNORM),
        (Events::READ_CLOSED, sym::POLLIN | sym::POLLRDNORM | sym::POLLRDHUP),
        (Events::CLOSED, sym::POLLHUP),
        (Events::ERROR, sym::POLLERR),
        (Events::URGENT, sym::POLLPRI),
    ];
    table.into_iter().filter(|(event, _)| events.intersects(*event)).fold(0, |mask, (_, bits)| mask | bits)
}
