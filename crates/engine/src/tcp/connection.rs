//! A connection as its handler sees it.

use std::net::SocketAddr;
use std::sync::Arc;

use clock::Instant;
use stack::tcp::{Shutdown, TcpInfo};
use stack::timer_wheel::TimerWheel;
use stack::{ConnectionId, Stack, TcpOptions};

/// One connection, for as long as its handler is called.
pub struct Connection<'s> {
    pub(super) id: ConnectionId,
    pub(super) stack: &'s mut Stack,
    pub(super) deadlines: &'s mut TimerWheel,
    /// Room for received data that does not lie in one piece.
    pub(super) scratch: &'s mut Vec<u8>,
    pub(super) now: Instant,
    /// The handler closed it.
    pub(super) over: bool,
}

impl Connection<'_> {
    /// Received data, as far as it lies in one piece: empty only if there is none. Pieces end anywhere, also within a line or a
    /// message: [`Connection::contiguous`] shows those whole.
    pub fn received(&self) -> &[u8] {
        self.stack.received(self.id)
    }

    /// Received data from its beginning in one piece: `count` octets or more, or all if there are fewer. Octets that lie in one
    /// piece are shown in place; others are copied, so ask for no more than a message may be long.
    pub fn contiguous(&mut self, count: usize) -> &[u8] {
        let wanted = count.min(self.unread());
        if self.received().len() >= wanted {
            return self.stack.received(self.id);
        }
        if self.scratch.len() < wanted {
            self.scratch.resize(wanted, 0);
        }
        let copied = self.stack.peek(self.id, 0, &mut self.scratch[..wanted]).unwrap_or(0);
        &self.scratch[..copied]
    }

    /// Octets that are received and not consumed.
    pub fn unread(&self) -> usize {
        self.stack.queued(self.id).map_or(0, |(unread, _)| unread)
    }

    /// Octets that were given to [`Connection::send`] and that the peer has not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.stack.queued(self.id).map_or(0, |(_, unacknowledged)| unacknowledged)
    }

    /// Whether the peer sends no more: what is not consumed is the last of it.
    pub fn is_ended(&self) -> bool {
        self.stack.readiness(self.id).is_none_or(|ready| ready.read_closed)
    }

    /// Copies received data without consuming it; returns how much.
    pub fn peek(&mut self, out: &mut [u8]) -> usize {
        self.stack.peek(self.id, 0, out).unwrap_or(0)
    }

    /// Drops `count` octets of received data: they are done with.
    pub fn consume(&mut self, count: usize) {
        if count > 0 {
            self.stack.consume(self.id, count, self.now);
        }
    }

    /// Queues data to be sent; returns how much was taken. After less than all, [`super::TcpHandler::on_writable`] tells when
    /// there is room for more. A connection that failed takes nothing.
    pub fn send(&mut self, data: &[u8]) -> usize {
        if data.is_empty() || self.over {
            return 0;
        }
        self.stack.send(self.id, data, self.now).unwrap_or(0)
    }

    /// Sends a FIN after what is queued; data from the peer is still received.
    pub fn finish(&mut self) {
        self.stack.shutdown(self.id, Shutdown::Write, self.now);
    }

    /// Ends the connection: what is queued is still sent. With received data that is not consumed, the peer is told by a
    /// reset that it was lost.
    pub fn close(&mut self) {
        if !std::mem::replace(&mut self.over, true) {
            self.stack.close(self.id, self.now);
        }
    }

    /// Ends the connection by a reset.
    pub fn abort(&mut self) {
        if !std::mem::replace(&mut self.over, true) {
            self.stack.abort(self.id, self.now);
        }
    }

    /// When to call [`super::TcpHandler::on_timeout`], in place of what was set before; `None`: never.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        match deadline {
            Some(at) => self.deadlines.schedule(self.id.index(), at),
            None => self.deadlines.cancel(self.id.index()),
        }
    }

    /// The time of this call.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The peer.
    ///
    /// # Panics
    /// If the connection was closed in this very call; so does [`Connection::local`].
    pub fn remote(&self) -> SocketAddr {
        self.stack.endpoints(self.id).expect("a handler is called for a connection that exists").1
    }

    /// Our end.
    pub fn local(&self) -> SocketAddr {
        self.stack.endpoints(self.id).expect("a handler is called for a connection that exists").0
    }

    /// Changes the options of this connection.
    pub fn set_options(&mut self, options: Arc<TcpOptions>) {
        self.stack.set_options(self.id, options, self.now);
    }

    /// What there is to know about it.
    pub fn info(&self) -> Option<TcpInfo> {
        self.stack.info(self.id, self.now)
    }

    /// How the stack calls it.
    pub fn id(&self) -> ConnectionId {
        self.id
    }
}
