//! Sockets that wait for peers (LISTEN of RFC 9293, 3.3.2).

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::config::TcpOptions;
use crate::slab::Handle;
use crate::tcp::connection::Connection;
use clock::{Duration, Instant};

/// How long a child made by Fast Open counts that was reset before its handshake was complete, as on Linux.
const FAST_OPEN_RESET_COUNTS: Duration = Duration::from_secs(60);

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    /// Unspecified address: any of ours, of either family if `dual_stack`.
    pub(crate) local: SocketAddr,
    pub(crate) dual_stack: bool,
    pub(crate) options: Arc<TcpOptions>,
    /// Of the first on an address: the others that listen there.
    pub(crate) beside: Vec<Handle<Listener>>,
    /// Connections that wait for accept. Linux takes one more than the backlog says.
    backlog: u32,
    accept_queue: VecDeque<Handle<Connection>>,
    /// Half-open connections.
    pub(crate) half_open: u32,
    /// Children made by Fast Open whose handshake is not complete, and those of `fast_open_resets`.
    fast_open_pending: u32,
    /// When the places of those that were reset become free, the earliest first.
    fast_open_resets: VecDeque<Instant>,
    pub(crate) signalled: bool,
    pub(crate) token: u64,
}

impl Listener {
    pub(crate) fn new(
        local: SocketAddr,
        dual_stack: bool,
        backlog: u32,
        options: Arc<TcpOptions>,
    ) -> Listener {
        Listener {
            local,
            dual_stack,
            options,
            beside: Vec::new(),
            backlog,
            accept_queue: VecDeque::new(),
            half_open: 0,
            fast_open_pending: 0,
            fast_open_resets: VecDeque::new(),
            signalled: false,
            token: 0,
        }
    }

    /// Whether packets to `destination` are for this listener.
    pub(crate) fn matches(&self, destination: SocketAddr) -> bool {
        let family =
            self.local.is_ipv4() == destination.is_ipv4() || self.dual_stack && !self.local.is_ipv4();
        let address = self.local.ip().is_unspecified() || self.local.ip() == destination.ip();
        self.local.port() == destination.port() && family && address
    }

    /// `sk_acceptq_is_full`: more than the backlog wait.
    pub(crate) fn is_full(&self) -> bool {
        self.accept_queue.len() as u32 > self.backlog
    }

    /// Whether as many half-open connections as the backlog wait (`inet_csk_reqsk_queue_is_full`), and as many as any listener may have.
    pub(crate) fn is_half_open_full(&self, min: u32) -> bool {
        self.half_open >= self.backlog.max(1).max(min)
    }

    /// Whether one more child may be made by Fast Open (RFC 7413, 5.1; `tcp_fastopen_queue_check`).
    pub(crate) fn has_fast_open_room(&mut self, pending_max: u32, now: Instant) -> bool {
        if self.fast_open_pending >= pending_max && self.fast_open_resets.front().is_some_and(|at| *at <= now)
        {
            self.fast_open_resets.pop_front();
            self.fast_open_pending -= 1;
        }
        self.fast_open_pending < pending_max
    }

    pub(crate) fn begin_fast_open(&mut self) {
        self.fast_open_pending += 1;
    }

    /// The handshake of a child made by Fast Open is complete, or the child is over.
    ///
    /// Its place is free, but not yet if a reset ended it. Who sends SYNs with the address of another, and a cookie that was
    /// once given to it, lets the other's resets make room for more of them (RFC 7413, 5.1; `reqsk_fastopen_remove`).
    pub(crate) fn end_fast_open(&mut self, was_reset: bool, now: Instant) {
        if was_reset {
            self.fast_open_resets.push_back(now + FAST_OPEN_RESET_COUNTS);
        } else {
            self.fast_open_pending = self.fast_open_pending.saturating_sub(1);
        }
    }

    pub(crate) fn set_backlog(&mut self, backlog: u32) {
        self.backlog = backlog;
    }

    /// Connections that wait, and how many may.
    pub(crate) fn queue_lengths(&self) -> (u32, u32) {
        (self.accept_queue.len() as u32, self.backlog)
    }

    pub(crate) fn push(&mut self, connection: Handle<Connection>) {
        self.accept_queue.push_back(connection);
    }

    /// Takes a connection out of the queue that is no longer to be accepted.
    pub(crate) fn remove(&mut self, connection: Handle<Connection>) {
        self.accept_queue.retain(|waiting| *waiting != connection);
    }

    pub(crate) fn pop(&mut self) -> Option<Handle<Connection>> {
        self.accept_queue.pop_front()
    }
}
