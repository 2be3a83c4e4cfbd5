//! The stack under test, as the player uses it. Nothing else in the player calls the stack.

mod info;
mod options;
mod sysctl;
mod udp;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use clock::Instant;
pub(crate) use stack::tcp::{Events, Readiness, Shutdown};
use stack::tcp::{RecvError, SendError, TcpError, UrgentError};
pub(crate) use stack::udp::{UdpId, UdpOptions};
use stack::{Arrival, Config, Connect, ConnectError, Hop, Link, LinkId, ListenError, Stack};
pub(crate) use stack::{ConnectionId, ListenerId, Socket, TcpOptions};

use super::errno::Errno;

pub(crate) use options::{OptionValue, OptionsError, get_option, set_option};
pub(crate) use udp::{get_udp_option, set_udp_option};

/// Keys hashes and sequence numbers; the same in every run, so that runs are equal.
const SECRET: [u8; 32] = [7; 32];
const LINK: LinkId = LinkId(0);

/// A stack with one link.
pub(crate) struct Host {
    stack: Stack,
    link: Link,
    room: Vec<u8>,
    /// Counters as they were when the script last remembered them.
    remembered: BTreeMap<&'static str, u64>,
}

/// What a host is made with: sysctls and the MTU.
#[derive(Clone, Debug)]
pub(crate) struct HostConfig {
    pub(crate) config: Config,
    pub(crate) mtu: u16,
    pub(crate) mss_clamp: Option<u16>,
}

impl HostConfig {
    pub(crate) fn new(mtu: u16) -> HostConfig {
        // Tables for a handful of connections are made quickly.
        let config = Config {
            connections_max: 1024,
            time_wait_max: 1024,
            buffer_memory: 32 << 20,
            trace_records: 64,
            ..Config::default()
        };
        HostConfig { config, mtu, mss_clamp: None }
    }

    /// Sets a sysctl. `Ok(false)` if it has no equivalent here; the error names a value that cannot be had.
    pub(crate) fn set_sysctl(&mut self, name: &str, value: &str) -> Result<bool, String> {
        sysctl::set(&mut self.config, name, value)
    }
}

impl Host {
    pub(crate) fn new(config: HostConfig, now: Instant) -> Host {
        let mut stack = Stack::new(config.config, SECRET, now);
        let link = Link { mtu: config.mtu, mss_clamp: config.mss_clamp, ..Link::default() };
        stack.set_link(LINK, link, now);
        Host { stack, link, room: vec![0; 1 << 16], remembered: BTreeMap::new() }
    }

    pub(crate) fn set_mtu(&mut self, mtu: u16, now: Instant) {
        self.link.mtu = mtu;
        self.stack.set_link(LINK, self.link, now);
    }

    pub(crate) fn set_mss_clamp(&mut self, size: u16, now: Instant) {
        self.link.mss_clamp = Some(size);
        self.stack.set_link(LINK, self.link, now);
    }

    pub(crate) fn mtu(&self) -> u16 {
        self.link.mtu
    }

    /// Options that new sockets start with.
    pub(crate) fn default_options(&self) -> TcpOptions {
        self.stack.config().tcp.clone()
    }

    /// Gives the stack a packet that arrived; the error names why it dropped it.
    pub(crate) fn receive(&mut self, packet: &[u8], now: Instant) -> Result<(), &'static str> {
        let arrival = Arrival { link: LINK, ..Arrival::default() };
        self.stack.on_packet(packet, &arrival, now).map_err(wire::DropReason::name)
    }

    /// The next packet that the stack sends.
    pub(crate) fn transmit(&mut self, now: Instant) -> Option<Vec<u8>> {
        let transmit = self.stack.poll_transmit(now, &mut self.room[..])?;
        Some(self.room[..transmit.len].to_vec())
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.stack.poll_timeout()
    }

    pub(crate) fn run_timers(&mut self, now: Instant) {
        self.stack.on_timeout(now);
    }

    /// The next news about a socket.
    pub(crate) fn poll_event(&mut self) -> Option<(Socket, Events)> {
        self.stack.poll_event().map(|event| (event.socket, event.events))
    }

    pub(crate) fn listen(
        &mut self,
        local: SocketAddr,
        backlog: u32,
        options: &TcpOptions,
    ) -> Result<ListenerId, Errno> {
        let dual_stack = local.ip().is_unspecified() && local.is_ipv6();
        self.stack.tcp_listen(local, dual_stack, backlog, Arc::new(options.clone())).map_err(|error| {
            match error {
                ListenError::InUse => Errno::EADDRINUSE,
                ListenError::TooMany => Errno::ENOBUFS,
            }
        })
    }

    pub(crate) fn set_backlog(&mut self, id: ListenerId, backlog: u32) {
        self.stack.set_backlog(id, backlog);
    }

    pub(crate) fn accept(&mut self, id: ListenerId) -> Option<ConnectionId> {
        self.stack.tcp_accept(id)
    }

    /// Connections that wait to be accepted.
    pub(crate) fn accept_queue_len(&self, id: ListenerId) -> u32 {
        self.stack.accept_queue(id).map_or(0, |(waiting, _)| waiting)
    }

    pub(crate) fn set_listener_options(&mut self, id: ListenerId, options: &TcpOptions) {
        self.stack.set_listener_options(id, Arc::new(options.clone()));
    }

    pub(crate) fn close_listener(&mut self, id: ListenerId, now: Instant) {
        self.stack.close_listener(id, now);
    }

    pub(crate) fn connect(
        &mut self,
        (local, remote): (SocketAddr, SocketAddr),
        is_bound: bool,
        options: &TcpOptions,
        data: &[u8],
        now: Instant,
    ) -> Result<ConnectionId, Errno> {
        let hop = Hop { link: LINK, ..Hop::default() };
        let connect = Connect { local, remote, is_bound, hop, options: Arc::new(options.clone()), data };
        self.stack.tcp_connect(&connect, now).map_err(|error| match error {
            ConnectError::AddressFamily => Errno::EAFNOSUPPORT,
            ConnectError::InUse => Errno::EADDRNOTAVAIL,
            ConnectError::TooMany => Errno::ENOBUFS,
        })
    }

    pub(crate) fn send(&mut self, id: ConnectionId, data: &[u8], now: Instant) -> Result<usize, Errno> {
        self.stack.send(id, data, now).map_err(send_errno)
    }

    /// What was queued last ends a record.
    pub(crate) fn end_record(&mut self, id: ConnectionId) {
        self.stack.end_record(id);
    }

    /// What was queued last is to be followed by more.
    pub(crate) fn expect_more(&mut self, id: ConnectionId) {
        self.stack.expect_more(id);
    }

    /// Lets go what is held back.
    pub(crate) fn push(&mut self, id: ConnectionId, now: Instant) {
        self.stack.push(id, now);
    }

    pub(crate) fn send_urgent(
        &mut self,
        id: ConnectionId,
        data: &[u8],
        now: Instant,
    ) -> Result<usize, Errno> {
        self.stack.send_urgent(id, data, now).map_err(send_errno)
    }

    /// Whether there was an urgent octet to read.
    pub(crate) fn recv_urgent(&mut self, id: ConnectionId, peek: bool) -> Result<bool, Errno> {
        self.stack.recv_urgent(id, peek).map(|octet| octet.is_some()).map_err(|error| match error {
            UrgentError::None => Errno::EINVAL,
            UrgentError::WouldBlock => Errno::EAGAIN,
            UrgentError::NotConnected => Errno::ENOTCONN,
        })
    }

    pub(crate) fn is_at_urgent_mark(&self, id: ConnectionId) -> bool {
        self.stack.is_at_urgent_mark(id)
    }

    /// Whether the next read begins by skipping an urgent octet.
    pub(crate) fn skips_urgent(&self, id: ConnectionId, now: Instant) -> bool {
        let has_unread = self.stack.info(id, now).is_some_and(|info| info.unread > 0);
        has_unread && self.stack.is_at_urgent_mark(id) && !self.options(id).urgent_inline
    }

    pub(crate) fn recv(&mut self, id: ConnectionId, out: &mut [u8], now: Instant) -> Result<usize, Errno> {
        self.stack.recv(id, out, now).map_err(recv_errno)
    }

    pub(crate) fn peek(&mut self, id: ConnectionId, out: &mut [u8]) -> Result<usize, Errno> {
        self.stack.peek(id, 0, out).map_err(recv_errno)
    }

    pub(crate) fn shutdown(&mut self, id: ConnectionId, how: Shutdown, now: Instant) {
        self.stack.shutdown(id, how, now);
    }

    pub(crate) fn close(&mut self, id: ConnectionId, now: Instant) {
        self.stack.close(id, now);
    }

    pub(crate) fn abort(&mut self, id: ConnectionId, now: Instant) {
        self.stack.abort(id, now);
    }

    pub(crate) fn readiness(&self, id: ConnectionId) -> Readiness {
        self.stack.readiness(id).unwrap_or_default()
    }

    pub(crate) fn take_error(&mut self, id: ConnectionId) -> Option<Errno> {
        self.stack.take_error(id).map(errno)
    }

    /// Our end and the peer's.
    pub(crate) fn endpoints(&self, id: ConnectionId) -> Option<(SocketAddr, SocketAddr)> {
        self.stack.endpoints(id)
    }

    /// Linux's number of a connection's state.
    pub(crate) fn linux_state(&self, id: ConnectionId, now: Instant) -> i64 {
        self.stack.info(id, now).map_or(super::symbols::TCP_CLOSE, |info| i64::from(info.state))
    }

    /// Octets received and not read; octets written and not acknowledged; octets written and not sent.
    pub(crate) fn queued(&self, id: ConnectionId, now: Instant) -> (usize, usize, usize) {
        let (unread, unacknowledged) = self.stack.queued(id).unwrap_or_default();
        let unsent = self.stack.info(id, now).map_or(0, |info| info.notsent_bytes as usize);
        (unread, unacknowledged, unsent)
    }

    pub(crate) fn options(&self, id: ConnectionId) -> TcpOptions {
        self.stack.options(id).map(|options| (**options).clone()).unwrap_or_default()
    }

    /// What an option reads as that was never set.
    pub(crate) fn default_option(&self, level: i64, name: i64) -> Option<OptionValue> {
        use super::symbols as sym;
        let config = self.stack.config();
        match (level, name) {
            (sym::SOL_TCP, sym::TCP_SYNCNT) => Some(OptionValue::Int(config.syn_retries.into())),
            (sym::SOL_TCP, sym::TCP_LINGER2) => Some(OptionValue::Int(config.fin_timeout.as_secs() as i64)),
            _ => None,
        }
    }

    pub(crate) fn set_options(&mut self, id: ConnectionId, options: TcpOptions, now: Instant) {
        self.stack.set_options(id, Arc::new(options), now);
    }

    pub(crate) fn set_quick_ack(&mut self, id: ConnectionId, on: bool, now: Instant) {
        self.stack.set_quick_ack(id, on, now);
    }

    pub(crate) fn is_quick_ack(&self, id: ConnectionId) -> bool {
        self.stack.is_quick_ack(id)
    }

    /// The fields of `tcp_info` by Linux's names, for code in scripts.
    pub(crate) fn tcp_info(&self, id: ConnectionId, now: Instant) -> Vec<(&'static str, i128)> {
        self.stack.info(id, now).map(|info| info::fields(&info)).unwrap_or_default()
    }

    pub(crate) fn remember_counters(&mut self) {
        self.remembered = self.stack.counters().named().collect();
    }

    /// By how much a counter grew since counters were remembered; `None` if there is none of that name.
    pub(crate) fn counter_growth(&self, name: &str) -> Option<u64> {
        let (name, count) = self.stack.counters().named().find(|(known, _)| *known == name)?;
        Some(count - self.remembered.get(name).copied().unwrap_or(0))
    }
}

fn send_errno(error: SendError) -> Errno {
    match error {
        SendError::WouldBlock | SendError::Connecting => Errno::EAGAIN,
        SendError::Closed | SendError::NotConnected => Errno::EPIPE,
        SendError::Failed(error) => errno(error),
    }
}

fn recv_errno(error: RecvError) -> Errno {
    match error {
        RecvError::WouldBlock => Errno::EAGAIN,
        RecvError::NotConnected => Errno::ENOTCONN,
        RecvError::Failed(error) => errno(error),
    }
}

fn errno(error: TcpError) -> Errno {
    match error {
        TcpError::Refused => Errno::ECONNREFUSED,
        TcpError::Reset => Errno::ECONNRESET,
        TcpError::BrokenPipe => Errno::EPIPE,
        TcpError::TimedOut => Errno::ETIMEDOUT,
        TcpError::HostUnreachable => Errno::EHOSTUNREACH,
        TcpError::NetworkUnreachable => Errno::ENETUNREACH,
        TcpError::ProtocolUnreachable => Errno::ENOPROTOOPT,
        TcpError::Aborted => Errno::ECONNABORTED,
    }
}
