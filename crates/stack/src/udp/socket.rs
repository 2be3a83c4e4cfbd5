//! One socket.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use crate::address::{canonical, is_unicast};
use crate::flow_table::FlowKey;
use crate::path::{Hop, PathId, PathTable};
use crate::tcp::{Events, Readiness};
use crate::udp::datagram_queue::DatagramQueue;
use crate::udp::{ErrorReport, UdpConnectError, UdpError, UdpSend, UdpSendError};

/// What a socket is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpBind {
    /// Address and port. An unspecified address stands for all of its version. The port must be one that is ours.
    pub local: SocketAddr,
    /// With the unspecified address of IPv6: for IPv4 as well. Addresses of IPv4 are told as such, not mapped.
    pub dual_stack: bool,
    /// Other sockets that say so too may share address and port; each flow has one of them (`SO_REUSEPORT`).
    pub reuse_port: bool,
    /// Options to start with.
    pub options: UdpOptions,
    /// What the application wants to find again in events.
    pub token: u64,
}

impl UdpBind {
    /// Bound to `local` alone, with default options.
    pub fn new(local: SocketAddr) -> UdpBind {
        UdpBind { local, dual_stack: false, reuse_port: false, options: UdpOptions::default(), token: 0 }
    }
}

/// Options of one UDP socket; the name of the socket option stands at the end of the line. They take effect on the next
/// datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpOptions {
    /// Octets that may wait to be read, with some 130 octets for each datagram; a single one may always (`SO_RCVBUF`, as it
    /// reads). Default 212992.
    pub receive_buffer: u32,
    /// Octets that may wait to be sent, counted likewise (`SO_SNDBUF`). Default 212992.
    pub send_buffer: u32,
    /// IPv4 TTL or IPv6 hop limit (`IP_TTL`, `IPV6_UNICAST_HOPS`). Default 64.
    pub hop_limit: u8,
    /// IPv4 TOS or IPv6 traffic class, ECN bits included (`IP_TOS`, `IPV6_TCLASS`).
    pub traffic_class: u8,
    /// Tell of all ICMP errors, also if the socket is not connected, and keep reports (`IP_RECVERR`, `IPV6_RECVERR`).
    pub receive_errors: bool,
    /// ICMP errors are believed, though this socket has not sent what they are about: somebody else does that for it.
    pub believe_errors: bool,
    /// What a call sends is split in datagrams of this many octets; zero for one datagram (`UDP_SEGMENT`).
    pub segment_len: u16,
    /// Datagrams of one flow that follow each other are received together (`UDP_GRO`). Saves calls where datagrams of equal
    /// length come in bursts; the reader needs room for 65535 octets.
    pub receive_coalesced: bool,
}

impl Default for UdpOptions {
    fn default() -> UdpOptions {
        UdpOptions {
            receive_buffer: 212_992,
            send_buffer: 212_992,
            hop_limit: 64,
            traffic_class: 0,
            receive_errors: false,
            believe_errors: false,
            segment_len: 0,
            receive_coalesced: false,
        }
    }
}

/// Reports that wait at most; later ones are lost, as in a full error queue of Linux.
const REPORTS_MAX: usize = 16;

/// The other end of a connected socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) key: FlowKey,
    pub(crate) path: PathId,
}

/// Yes-or-no properties.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags {
    /// In the list of sockets with something to send.
    pub(crate) queued: bool,
    /// In the list of sockets with events to tell of.
    pub(crate) signalled: bool,
    /// A writer was refused: tell when there is room.
    pub(crate) writer_waits: bool,
    /// The application has closed it; queued datagrams still leave.
    pub(crate) closing: bool,
}

/// One socket. The page of [`crate::udp`] says which functions call which.
#[derive(Debug)]
pub struct UdpSocket {
    pub(crate) local: SocketAddr,
    dual_stack: bool,
    pub(crate) reuse_port: bool,
    pub(crate) peer: Option<Peer>,
    pub(crate) options: UdpOptions,
    pub(crate) incoming: DatagramQueue,
    pub(crate) outgoing: DatagramQueue,
    /// Octets of the first of `outgoing` that have been sent.
    pub(crate) outgoing_sent: u32,
    pub(crate) flags: Flags,
    pub(crate) events: Events,
    error: Option<UdpError>,
    reports: VecDeque<ErrorReport>,
    /// Datagrams dropped because the receive buffer was full.
    pub(crate) drops: u64,
    pub(crate) token: u64,
}

impl UdpSocket {
    pub(crate) fn new(bind: &UdpBind) -> UdpSocket {
        UdpSocket {
            local: canonical(bind.local),
            dual_stack: bind.dual_stack,
            reuse_port: bind.reuse_port,
            peer: None,
            options: bind.options,
            incoming: DatagramQueue::default(),
            outgoing: DatagramQueue::default(),
            outgoing_sent: 0,
            flags: Flags::default(),
            events: Events::NONE,
            error: None,
            reports: VecDeque::new(),
            drops: 0,
            token: bind.token,
        }
    }

    /// Whether it is for both versions of IP.
    pub(crate) fn is_dual_stack(&self) -> bool {
        self.dual_stack && self.local.is_ipv6() && self.local.ip().is_unspecified()
    }

    /// Whether datagrams from and to such addresses can be its.
    pub(crate) fn is_for_version_of(&self, address: IpAddr) -> bool {
        self.local.is_ipv6() == address.is_ipv6() || self.is_dual_stack()
    }

    /// Our end, as far as it is known.
    pub(crate) fn local(&self) -> SocketAddr {
        self.peer.map_or(self.local, |peer| peer.key.local())
    }

    /// The flow between an address of ours and a peer to connect to.
    pub(crate) fn flow_to(&self, local: IpAddr, remote: SocketAddr) -> Result<FlowKey, UdpConnectError> {
        if remote.port() == 0 || remote.ip().is_unspecified() {
            return Err(UdpConnectError::Destination);
        }
        if !self.is_for_version_of(remote.ip()) || local.is_ipv6() != remote.is_ipv6() {
            return Err(UdpConnectError::AddressFamily);
        }
        let is_bound_to_it = self.local.ip().is_unspecified() || self.local.ip() == local;
        if !is_bound_to_it || !is_unicast(local) {
            return Err(UdpConnectError::Source);
        }
        let local = SocketAddr::new(local, self.local.port());
        FlowKey::new(local, remote).ok_or(UdpConnectError::AddressFamily)
    }

    /// The flow that a datagram to be sent belongs to, and where it leaves.
    pub(crate) fn route(&self, send: &UdpSend, paths: &PathTable) -> Result<(FlowKey, Hop), UdpSendError> {
        let connected = self.peer.map(|peer| (peer.key.remote(), paths.hop(peer.path)));
        let (remote, hop) = match (send.to.map(canonical), connected) {
            (Some(to), Some((peer, hop))) if to == peer => (to, Some(hop)),
            (Some(to), _) => (to, None),
            (None, Some((peer, hop))) => (peer, Some(hop)),
            (None, None) => return Err(UdpSendError::NotConnected),
        };
        if remote.port() == 0 || remote.ip().is_unspecified() {
            return Err(UdpSendError::Destination);
        }
        if !self.is_for_version_of(remote.ip()) {
            return Err(UdpSendError::AddressFamily);
        }
        let source = SocketAddr::new(self.source(send)?, self.local.port());
        let key = FlowKey::new(source, remote).ok_or(UdpSendError::AddressFamily)?;
        Ok((key, send.hop.or(hop).ok_or(UdpSendError::NoHop)?))
    }

    fn source(&self, send: &UdpSend) -> Result<IpAddr, UdpSendError> {
        let source = send.from.map_or(self.local().ip(), |from| from.to_canonical());
        if is_unicast(source) { Ok(source) } else { Err(UdpSendError::Source) }
    }

    /// Takes the error that ICMP told of.
    pub(crate) fn take_error(&mut self) -> Option<UdpError> {
        self.error.take()
    }

    /// Takes the oldest report. What waits to be told as an error is the next one's, as on Linux.
    pub(crate) fn take_report(&mut self) -> Option<ErrorReport> {
        let report = self.reports.pop_front()?;
        self.error = self.reports.front().map(|next| next.error);
        Some(report)
    }

    /// Applies an ICMP error about a datagram of this socket, of which `payload` came back (RFC 1122, 4.1.3.3). Without
    /// [`UdpOptions::receive_errors`] a connected socket hears of hard errors, another of none.
    pub(crate) fn on_icmp_error(&mut self, mut report: ErrorReport, payload: &[u8], is_hard: bool) {
        let is_wanted = self.options.receive_errors || is_hard && self.peer.is_some();
        if !is_wanted {
            return;
        }
        self.error = Some(report.error);
        if self.options.receive_errors && self.reports.len() < REPORTS_MAX {
            report.payload = payload.to_vec();
            self.reports.push_back(report);
        }
        self.events |= Events::ERROR;
    }

    /// What the socket can be used for now.
    pub(crate) fn readiness(&self) -> Readiness {
        let error = self.error.is_some() || !self.reports.is_empty();
        Readiness {
            readable: !self.incoming.is_empty() || self.error.is_some(),
            writable: self.has_send_room() || self.error.is_some(),
            error,
            ..Readiness::default()
        }
    }

    /// Whether half of the send buffer is free, as Linux asks before it calls a socket writable (`sock_writeable`).
    pub(crate) fn has_send_room(&self) -> bool {
        self.outgoing.charge() <= self.options.send_buffer / 2
    }

    /// A datagram has left: a writer that was refused may come again.
    pub(crate) fn note_room(&mut self) {
        if self.flags.writer_waits && self.has_send_room() {
            self.flags.writer_waits = false;
            self.events |= Events::WRITABLE;
        }
    }
}
