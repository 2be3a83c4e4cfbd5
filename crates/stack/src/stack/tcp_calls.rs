//! The application's calls on TCP sockets. None waits: a call that is not possible yet says so, and an event reports when it is.

use std::net::SocketAddr;
use std::sync::Arc;

use clock::{Duration, Instant};

use super::{ConnectionId, ListenerId, Stack};
use crate::config::TcpOptions;
use crate::flow_table::FlowKey;
use crate::path::Hop;
use crate::seq::SeqNum;
use crate::tcp::{
    Connection, Fate, Listener, Origin, Readiness, RecvError, SendError, Shutdown, State, TcpError, TcpInfo,
    UrgentError,
};

/// Where to connect to.
#[derive(Clone, Debug)]
pub struct Connect<'a> {
    /// Our end. The port is one that whoever gives out ports on this host has given to us.
    pub local: SocketAddr,
    /// Whether the program insists on this port: then a flow in TIME-WAIT is taken over at once, if timestamps tell old segments from
    /// new ones, as on Linux. Else [`Config::time_wait_reuse`](crate::Config) says when.
    pub is_bound: bool,
    /// The peer's.
    pub remote: SocketAddr,
    /// Where packets to it leave.
    pub hop: Hop,
    /// Options to start with.
    pub options: Arc<TcpOptions>,
    /// Data to send as soon as possible: in the SYN, if [`TcpOptions::fast_open_connect`] is on and the peer gave a cookie
    /// before (RFC 7413).
    pub data: &'a [u8],
}

/// Why no connection was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// The two ends are not of one IP version (`EAFNOSUPPORT`), or one is not a unicast address.
    AddressFamily,
    /// This very flow exists (`EADDRNOTAVAIL`).
    InUse,
    /// There are too many connections (`ENOBUFS`).
    TooMany,
}

/// Why no listener was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenError {
    /// Another listener has the address (`EADDRINUSE`).
    InUse,
    /// There are too many listeners (`ENOBUFS`).
    TooMany,
}

impl std::fmt::Display for ListenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ListenError::InUse => "address already in use",
            ListenError::TooMany => "too many listeners",
        })
    }
}

impl std::error::Error for ListenError {}

impl Stack {
    /// Changes how many connections may wait.
    pub fn set_backlog(&mut self, id: ListenerId, backlog: u32) {
        if let Some(listener) = self.listeners.get_mut(id) {
            listener.set_backlog(backlog);
        }
    }

    /// Options that accepted connections start with.
    pub fn set_listener_options(&mut self, id: ListenerId, options: Arc<TcpOptions>) {
        self.saves_syns |= options.save_syn;
        if let Some(listener) = self.listeners.get_mut(id) {
            listener.options = options;
        }
    }

    /// Where a listener listens.
    pub fn listener_address(&self, id: ListenerId) -> Option<SocketAddr> {
        self.listeners.get(id).map(|listener| listener.local)
    }

    /// Connections that wait to be accepted, and the backlog.
    pub fn accept_queue(&self, id: ListenerId) -> Option<(u32, u32)> {
        self.listeners.get(id).map(Listener::queue_lengths)
    }

    /// Connections that peers have begun at a listener and not completed.
    pub fn half_open(&self, id: ListenerId) -> Option<u32> {
        self.listeners.get(id).map(|listener| listener.half_open)
    }

    /// All listeners.
    pub fn listeners(&self) -> impl Iterator<Item = ListenerId> + '_ {
        self.listeners.iter().map(|(id, _)| id)
    }

    /// Takes the connection that waited longest; one that failed meanwhile is given all the same, as on Linux.
    pub fn tcp_accept(&mut self, id: ListenerId) -> Option<ConnectionId> {
        let listener = self.listeners.get_mut(id)?;
        let accepted = listener.pop()?;
        if let Some(connection) = self.connections.get_mut(accepted) {
            connection.flags.waits_for_accept = false;
            // Earlier news is found by reading; events report only what is new.
            connection.events = Default::default();
        }
        Some(accepted)
    }

    /// Begins to connect.
    pub fn tcp_connect(&mut self, connect: &Connect<'_>, now: Instant) -> Result<ConnectionId, ConnectError> {
        let key = FlowKey::new(connect.local, connect.remote).ok_or(ConnectError::AddressFamily)?;
        if connect.remote.ip().is_multicast() || connect.remote.ip().is_unspecified() {
            return Err(ConnectError::AddressFamily);
        }
        let hash = self.flows.hash_of(&key);
        if self.find_flow(hash, &key).is_some() || self.connections.is_full() {
            return Err(if self.connections.is_full() { ConnectError::TooMany } else { ConnectError::InUse });
        }
        if !connect.is_bound && self.fin_refused.contains(hash, &key, now) {
            return Err(ConnectError::InUse);
        }
        let least_iss = self.least_iss_beside_time_wait(hash, &key, connect.is_bound, now)?;
        let path = self.shared.paths.acquire(connect.hop).ok_or(ConnectError::TooMany)?;
        let iss = self.isn.isn(&key, now);
        let iss = least_iss.map_or(iss, |least| iss.max(least));
        let offset = self.isn.timestamp_offset(&key);
        let options = Arc::clone(&connect.options);
        let shared = &mut self.shared;
        let make = |handle| {
            let on = (path, connect.hop.link);
            let mut connection = Connection::new(handle, key, on, Origin::Active, options, shared, now);
            connection.open(iss, offset, shared);
            connection
        };
        let id = self.connections.insert_with(make).ok_or(ConnectError::TooMany)?;
        self.flows.insert(hash, id.index());
        self.note_begun(id);
        self.shared.counters.active_opens += 1;
        self.prepare_fast_open(id, connect, now);
        self.with_connection(id, now, |connection, shared| {
            connection.enqueue(connect.data, shared, now);
            Fate::Alive
        });
        Ok(id)
    }

    /// Whether there is a connection between these ends, or one begins.
    pub fn has_connection(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        FlowKey::new(local, remote)
            .is_some_and(|key| self.find_flow(self.flows.hash_of(&key), &key).is_some())
    }

    /// Whether TIME-WAIT lets a flow be connected anew, and where its sequence numbers begin then.
    fn least_iss_beside_time_wait(
        &mut self,
        hash: u64,
        key: &FlowKey,
        is_bound: bool,
        now: Instant,
    ) -> Result<Option<SeqNum>, ConnectError> {
        if !self.time_wait.contains(hash, key) {
            return Ok(None);
        }
        let config = &self.shared.config;
        let age = if is_bound { Some(Duration::ZERO) } else { config.time_wait_reuse };
        let age = age.filter(|_| config.timestamps);
        let least = age.and_then(|age| self.time_wait.may_connect(hash, key, age, now));
        let least = least.ok_or(ConnectError::InUse)?;
        self.time_wait.remove(hash, key);
        self.shared.counters.time_wait_recycled += 1;
        Ok(Some(least))
    }

    /// RFC 7413, 4.1: with a cookie the data goes into the SYN; without one it is asked for.
    fn prepare_fast_open(&mut self, id: ConnectionId, connect: &Connect<'_>, now: Instant) {
        if !connect.options.fast_open_connect || !self.shared.config.fast_open_client {
            return;
        }
        let remote = connect.remote.ip();
        if self.shared.fast_open_cache.is_paused(remote, now) {
            return;
        }
        let known = self.shared.fast_open_cache.get(remote, now);
        let (cookie, mss) = known.map(|known| (known.cookie.clone(), known.mss)).unzip();
        if let Some(connection) = self.connections.get_mut(id) {
            connection.try_fast_open(cookie.unwrap_or_default(), mss);
        }
    }

    /// Queues data; returns how much was taken.
    pub fn send(&mut self, id: ConnectionId, data: &[u8], now: Instant) -> Result<usize, SendError> {
        let mut result = Err(SendError::NotConnected);
        self.with_connection(id, now, |connection, shared| {
            result = connection.send(data, shared, now);
            Fate::Alive
        });
        result
    }

    /// Octets that [`Stack::send`] would take now, as far as memory goes; none where there is no connection.
    pub fn send_room(&self, id: ConnectionId) -> usize {
        self.connections.get(id).map_or(0, |connection| connection.send_room())
    }

    /// What was queued last ends a record (`MSG_EOR`): no segment carries it together with what follows.
    pub fn end_record(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.end_record();
        }
    }

    /// What was queued last is to be followed by more (`MSG_MORE`): what of it does not fill a segment waits for that, for the next
    /// acknowledgement, or for 200 ms if nothing is in flight.
    pub fn expect_more(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.expect_more();
        }
    }

    /// Takes [`Stack::expect_more`] back: nothing follows. Cork and Nagle's rule hold as before.
    pub fn expect_no_more(&mut self, id: ConnectionId, now: Instant) {
        self.with_connection(id, now, |connection, _| {
            connection.expect_no_more();
            Fate::Alive
        });
    }

    /// Lets go what is held back by Nagle's rule, cork or [`Stack::expect_more`]; what is queued later is held back anew. On Linux
    /// `TCP_NODELAY` does so whenever it is set.
    pub fn push(&mut self, id: ConnectionId, now: Instant) {
        self.with_connection(id, now, |connection, _| {
            connection.push_held();
            Fate::Alive
        });
    }

    /// Queues data whose last octet is urgent (`MSG_OOB`); returns how much was taken, the last of which is urgent.
    pub fn send_urgent(&mut self, id: ConnectionId, data: &[u8], now: Instant) -> Result<usize, SendError> {
        let mut result = Err(SendError::NotConnected);
        self.with_connection(id, now, |connection, shared| {
            result = connection.send_urgent(data, shared, now);
            Fate::Alive
        });
        result
    }

    /// The peer's urgent octet, read by itself (`MSG_OOB`), or looked at; `None` at the end of the stream.
    pub fn recv_urgent(&mut self, id: ConnectionId, peek: bool) -> Result<Option<u8>, UrgentError> {
        self.connections.get_mut(id).ok_or(UrgentError::NotConnected)?.recv_urgent(peek)
    }

    /// Whether reading has come to the place of the peer's urgent octet (`SIOCATMARK`, sockatmark(3)).
    pub fn is_at_urgent_mark(&self, id: ConnectionId) -> bool {
        self.connections.get(id).is_some_and(Connection::is_at_mark)
    }

    /// Takes received data; zero octets at the end of the stream.
    pub fn recv(&mut self, id: ConnectionId, out: &mut [u8], now: Instant) -> Result<usize, RecvError> {
        let connection = self.connections.get_mut(id).ok_or(RecvError::NotConnected)?;
        let result = connection.recv(out, &mut self.shared, now);
        self.settle_reading(id, now);
        result
    }

    /// Copies received data from `offset` on without taking it.
    pub fn peek(&mut self, id: ConnectionId, offset: usize, out: &mut [u8]) -> Result<usize, RecvError> {
        let connection = self.connections.get_mut(id).ok_or(RecvError::NotConnected)?;
        connection.peek(offset, out, &self.shared)
    }

    /// Received data that lies in one piece, to be looked at in place; [`Stack::consume`] takes it.
    pub fn received(&self, id: ConnectionId) -> &[u8] {
        self.connections.get(id).map(|connection| connection.front(&self.shared)).unwrap_or_default()
    }

    /// Takes octets that [`Stack::received`] showed.
    pub fn consume(&mut self, id: ConnectionId, octets: usize, now: Instant) {
        if let Some(connection) = self.connections.get_mut(id).filter(|_| octets > 0) {
            connection.consume(octets, &mut self.shared, now);
            self.settle_reading(id, now);
        }
    }

    /// Reading causes nothing, except the acknowledgement that reports a window that has opened far.
    fn settle_reading(&mut self, id: ConnectionId, now: Instant) {
        if self.connections.get(id).is_some_and(|connection| connection.receive.is_ack_due()) {
            self.settle(id, Fate::Alive, now, true);
        }
    }

    /// Shuts one or both directions down.
    pub fn shutdown(&mut self, id: ConnectionId, how: Shutdown, now: Instant) {
        self.with_connection(id, now, |connection, shared| {
            connection.shutdown(how, shared, now);
            Fate::Alive
        });
    }

    /// Closes the socket: queued data is still sent, and the handle becomes invalid.
    pub fn close(&mut self, id: ConnectionId, now: Instant) {
        self.with_connection(id, now, |connection, shared| connection.close(shared, now));
    }

    /// Resets the connection and closes the socket.
    pub fn abort(&mut self, id: ConnectionId, now: Instant) {
        self.with_connection(id, now, |connection, shared| {
            connection.abandon(shared);
            connection.abort(shared, now)
        });
    }

    /// What the socket can be used for now.
    pub fn readiness(&self, id: ConnectionId) -> Option<Readiness> {
        self.connections.get(id).map(Connection::readiness)
    }

    /// The error that ended the connection, once.
    pub fn take_error(&mut self, id: ConnectionId) -> Option<TcpError> {
        let connection = self.connections.get_mut(id)?;
        connection.error.take().or_else(|| connection.soft_error.take())
    }

    /// The connection's state.
    pub fn state(&self, id: ConnectionId) -> Option<State> {
        self.connections.get(id).map(|connection| connection.state)
    }

    /// Our end and the peer's.
    pub fn endpoints(&self, id: ConnectionId) -> Option<(SocketAddr, SocketAddr)> {
        self.connections.get(id).map(|connection| (connection.key.local(), connection.key.remote()))
    }

    /// What there is to know about a connection.
    pub fn info(&self, id: ConnectionId, now: Instant) -> Option<TcpInfo> {
        self.connections.get(id).map(|connection| connection.info(now))
    }

    /// Options of a connection.
    pub fn options(&self, id: ConnectionId) -> Option<&Arc<TcpOptions>> {
        self.connections.get(id).map(|connection| &connection.options)
    }

    /// Changes options of a connection; they take effect at once.
    pub fn set_options(&mut self, id: ConnectionId, options: Arc<TcpOptions>, now: Instant) {
        self.with_connection(id, now, |connection, shared| {
            connection.set_options(options, shared, now);
            Fate::Alive
        });
    }

    /// `TCP_QUICKACK`: acknowledges at once for a while, or delays from now on.
    pub fn set_quick_ack(&mut self, id: ConnectionId, on: bool, now: Instant) {
        self.with_connection(id, now, |connection, _| {
            connection.set_quick_ack(on);
            Fate::Alive
        });
    }

    /// `TCP_QUICKACK` as it reads.
    pub fn is_quick_ack(&self, id: ConnectionId) -> bool {
        self.connections.get(id).is_some_and(|connection| connection.receive.is_quick_ack())
    }

    /// Whatever the application wants to find again in events of a connection.
    pub fn set_token(&mut self, id: ConnectionId, token: u64) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.token = token;
        }
    }

    /// What was set.
    pub fn token(&self, id: ConnectionId) -> Option<u64> {
        self.connections.get(id).map(|connection| connection.token)
    }

    /// The same for a listener.
    pub fn set_listener_token(&mut self, id: ListenerId, token: u64) {
        if let Some(listener) = self.listeners.get_mut(id) {
            listener.token = token;
        }
    }

    /// Octets received and not read, up to an urgent one that is not in line, and octets queued and not acknowledged
    /// (`SIOCINQ`, `SIOCOUTQ`).
    pub fn queued(&self, id: ConnectionId) -> Option<(usize, usize)> {
        let connection = self.connections.get(id)?;
        Some((connection.unread_up_to_mark(), connection.send.queue.len()))
    }
}
