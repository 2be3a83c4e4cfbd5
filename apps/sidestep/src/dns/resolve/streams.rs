//! TCP of clients: all connections, and which answer goes where.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use clock::Instant;
use dns_server::Admission;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry};

use super::server::{Kind, token};
use super::stream::{Closed, Stream};

/// Names a connection; none is used twice.
pub(super) type StreamId = u64;

/// The connections.
pub(super) struct Streams {
    admission: Arc<Admission>,
    open: BTreeMap<StreamId, (SocketAddr, Stream<TcpStream>)>,
    next: StreamId,
}

impl Streams {
    pub(super) fn new(admission: Arc<Admission>) -> Streams {
        Streams { admission, open: BTreeMap::new(), next: 0 }
    }

    /// Accepts one connection; `None` if there is none now. Connections beyond a limit are closed at once, and so are those of clients
    /// that may not ask: they take no place from others.
    pub(super) fn accept(
        &mut self,
        listener: &TcpListener,
        registry: &Registry,
        may_ask: impl Fn(IpAddr) -> bool,
        now: Instant,
    ) -> io::Result<Option<StreamId>> {
        loop {
            let (mut socket, peer) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            if !may_ask(peer.ip()) {
                continue;
            }
            let Some(permit) = self.admission.admit(peer.ip()) else { continue };
            self.next += 1;
            let interest = Interest::READABLE | Interest::WRITABLE;
            if registry.register(&mut socket, token(Kind::Stream, self.next), interest).is_err() {
                continue; // For want of memory: the client is gone, and its permit given back.
            }
            let _ = socket.set_nodelay(true); // Answers are whole; without it they come later, but they come.
            self.open.insert(self.next, (peer, Stream::new(socket, permit, now)));
            return Ok(Some(self.next));
        }
    }

    /// Writes what can be; returns the next query that came, and who asks it.
    pub(super) fn next_query(&mut self, id: StreamId, now: Instant) -> Option<(SocketAddr, Vec<u8>)> {
        let (peer, stream) = self.open.get_mut(&id)?;
        match stream.next_query(now) {
            Ok(query) => query.map(|query| (*peer, query)),
            Err(Closed) => {
                self.open.remove(&id);
                None
            }
        }
    }

    /// Sends an answer; a client that has gone gets none.
    pub(super) fn answer(&mut self, id: StreamId, octets: &[u8], now: Instant) {
        let Some((_, stream)) = self.open.get_mut(&id) else { return };
        if stream.answer(octets, now) == Err(Closed) {
            self.open.remove(&id);
        }
    }

    /// Closes connections that are idle.
    pub(super) fn sweep(&mut self, now: Instant) {
        let limit = self.admission.limits().idle_timeout;
        let before = self.open.len();
        self.open.retain(|_, (_, stream)| !stream.is_idle(limit, now));
        (self.open.len()..before).for_each(|_| self.admission.on_idle_closed());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn admission(&self) -> &Admission {
        &self.admission
    }
}
