//! The application's calls on UDP sockets. None waits: a call that is not possible yet says so, and an event reports when it is.

use std::net::{IpAddr, SocketAddr};

use clock::Instant;

use super::{Event, Socket, Stack};
use crate::address::canonical;
use crate::flow_table::FlowKey;
use crate::path::{Hop, LinkId};
use crate::tcp::Readiness;
use crate::udp::{
    Datagram, ErrorReport, Memory, Peer, Received, Refused, SEGMENTS_MAX, Udp, UdpBind, UdpBindError,
    UdpConnectError, UdpError, UdpId, UdpOptions, UdpRecvError, UdpSend, UdpSendError, UdpSocket,
    headers_len,
};

impl Stack {
    /// Makes a socket that receives what is sent to an address and port. Of several sockets, one that is connected to the
    /// sender goes before one for the very address, and that before one for any.
    ///
    /// Only the same address and port twice are refused here; what may overlap is up to whoever gives out ports on this host.
    pub fn udp_bind(&mut self, bind: &UdpBind) -> Result<UdpId, UdpBindError> {
        let socket = UdpSocket::new(bind);
        if socket.local.port() == 0 || socket.local.ip().is_multicast() {
            return Err(UdpBindError::Invalid);
        }
        self.udp.table.insert(socket)
    }

    /// Connects a socket: from now on it receives from `remote` to `local` alone, hears of ICMP errors, and needs no
    /// destination to send. `local` is the address that it is bound to, if that is a particular one. A connected socket
    /// may be connected anew; what waits to be read stays.
    pub fn udp_connect(
        &mut self,
        id: UdpId,
        local: IpAddr,
        remote: SocketAddr,
        hop: Hop,
    ) -> Result<(), UdpConnectError> {
        let socket = self.udp.socket(id).ok_or(UdpConnectError::Closed)?;
        let key = socket.flow_to(local.to_canonical(), canonical(remote))?;
        if self.udp.table.find_connected(&key).is_some_and(|other| other != id) {
            return Err(UdpConnectError::InUse);
        }
        let path = self.shared.paths.acquire(hop).ok_or(UdpConnectError::TooMany)?;
        self.udp.table.hide(id);
        self.udp.table.show_connected(id, &key);
        self.replace_peer(id, Some(Peer { key, path }));
        Ok(())
    }

    /// Undoes [`Stack::udp_connect`]: the socket receives from any peer again.
    pub fn udp_disconnect(&mut self, id: UdpId) -> Result<(), UdpConnectError> {
        let socket = self.udp.socket(id).ok_or(UdpConnectError::Closed)?;
        if socket.peer.is_none() {
            return Ok(());
        }
        if !self.udp.table.may_show_bound(id) {
            return Err(UdpConnectError::InUse);
        }
        self.udp.table.hide(id);
        self.replace_peer(id, None);
        self.udp.table.show_bound(id);
        Ok(())
    }

    fn replace_peer(&mut self, id: UdpId, peer: Option<Peer>) {
        let socket = self.udp.table.get_mut(id);
        if let Some(before) = socket.and_then(|socket| std::mem::replace(&mut socket.peer, peer)) {
            self.shared.paths.release(before.path);
        }
    }

    /// Sends a datagram, or several if segments are asked for: `payload` is taken whole or not at all. It leaves by
    /// [`Stack::poll_transmit`].
    ///
    /// We do not fragment: what exceeds the path MTU is refused.
    pub fn udp_send_to(
        &mut self,
        id: UdpId,
        send: &UdpSend,
        payload: &[u8],
        now: Instant,
    ) -> Result<(), UdpSendError> {
        let socket = self.udp.socket_mut(id).ok_or(UdpSendError::Closed)?;
        if let Some(error) = socket.take_error() {
            return Err(UdpSendError::Failed(error));
        }
        let (key, hop) = socket.route(send, &self.shared.paths)?;
        let options = socket.options;
        let segment_len = send.segment_len.unwrap_or(options.segment_len);
        let is_split = segment_len != 0 && usize::from(segment_len) < payload.len();
        if is_split && payload.len().div_ceil(usize::from(segment_len)) > SEGMENTS_MAX {
            return Err(UdpSendError::Segments);
        }
        let datagram = Datagram {
            key,
            hop,
            at: now,
            len: u32::try_from(payload.len()).unwrap_or(u32::MAX),
            segment_len: if is_split { segment_len } else { 0 },
            traffic_class: send.traffic_class.unwrap_or(options.traffic_class),
            hop_limit: send.hop_limit.unwrap_or(options.hop_limit),
        };
        self.check_datagram_len(&datagram, now)?;
        self.enqueue_datagram(id, datagram, payload)
    }

    fn check_datagram_len(&mut self, datagram: &Datagram, now: Instant) -> Result<(), UdpSendError> {
        if datagram.segment_len != 0 && datagram.len > u32::from(u16::MAX) {
            return Err(UdpSendError::Segments);
        }
        let packet_len = datagram.len_at(0) as usize + headers_len(&datagram.key);
        let mtu = self.mtu_for(packet_len, datagram, now);
        if packet_len > usize::from(mtu) {
            return Err(UdpSendError::TooLong { mtu });
        }
        Ok(())
    }

    /// The path MTU for a packet of `packet_len` octets, which is looked for only if the packet could exceed it.
    fn mtu_for(&mut self, packet_len: usize, datagram: &Datagram, now: Instant) -> u16 {
        if packet_len <= usize::from(self.path_mtu_floor(&datagram.key)) {
            return self.shared.paths.link(datagram.hop.link).mtu;
        }
        self.udp_path_mtu(datagram.key.remote().ip(), datagram.hop.link, now)
    }

    /// Octets below which no ICMP error lowers the path MTU of a flow.
    pub(super) fn path_mtu_floor(&self, key: &FlowKey) -> u16 {
        const IPV6_MIN: u16 = 1280; // RFC 8200, 5.
        if key.is_v6() { IPV6_MIN } else { self.shared.config.path_mtu_min }
    }

    fn enqueue_datagram(
        &mut self,
        id: UdpId,
        datagram: Datagram,
        payload: &[u8],
    ) -> Result<(), UdpSendError> {
        let Udp { table, store, ready, .. } = &mut self.udp;
        let socket = table.get_mut(id).ok_or(UdpSendError::Closed)?;
        let memory = &mut Memory { store, pool: &mut self.shared.buffers };
        let pushed = socket.outgoing.push(datagram, payload, socket.options.send_buffer, memory);
        if let Err(refused) = pushed {
            self.shared.counters.udp_sndbuf_errors += 1;
            socket.flags.writer_waits |= refused == Refused::Budget;
            return Err(match refused {
                Refused::Budget => UdpSendError::WouldBlock,
                Refused::Memory => UdpSendError::NoMemory,
            });
        }
        if !std::mem::replace(&mut socket.flags.queued, true) {
            ready.push(datagram.hop.link, id);
        }
        self.note_sent(id, &datagram);
        Ok(())
    }

    /// Remembers what ICMP errors may quote: connected flows are known as such, of others only what may bring an error that
    /// matters.
    fn note_sent(&mut self, id: UdpId, datagram: &Datagram) {
        let packet_len = datagram.len_at(0) as usize + headers_len(&datagram.key);
        let floor = self.path_mtu_floor(&datagram.key);
        self.udp.sent_len_max = self.udp.sent_len_max.max(packet_len as u16); // Within an MTU, which was checked.
        let Some(socket) = self.udp.table.get(id) else {
            return;
        };
        if socket.peer.is_none() && (socket.options.receive_errors || packet_len > usize::from(floor)) {
            self.udp.sent_to.note(&datagram.key);
        }
    }

    /// Takes the oldest datagram: copies what fits into `out`, and forgets the rest.
    pub fn udp_recv_from(&mut self, id: UdpId, out: &mut [u8]) -> Result<Received, UdpRecvError> {
        let received = self.udp_peek_from(id, out)?;
        self.udp_discard(id);
        Ok(received)
    }

    /// As [`Stack::udp_recv_from`], but the datagram stays (`MSG_PEEK`).
    pub fn udp_peek_from(&mut self, id: UdpId, out: &mut [u8]) -> Result<Received, UdpRecvError> {
        let socket = self.udp.table.get_mut(id).filter(|socket| !socket.flags.closing);
        let socket = socket.ok_or(UdpRecvError::Closed)?;
        if let Some(error) = socket.take_error() {
            return Err(UdpRecvError::Failed(error));
        }
        let datagram = *socket.incoming.front(&self.udp.store).ok_or(UdpRecvError::WouldBlock)?;
        let len = socket.incoming.copy_front(0, out, &self.udp.store, &self.shared.buffers);
        Ok(Received::new(&datagram, len))
    }

    /// The oldest datagram in place, for handlers that look at it and then [`Stack::udp_discard`] it. Up to 2048 octets
    /// are there in one piece; of more, as happens with jumbo frames and coalesced datagrams, the first
    /// [`Received::len`] octets, and [`Stack::udp_recv_from`] has the rest.
    pub fn udp_peek(&self, id: UdpId) -> Option<(Received, &[u8])> {
        let socket = self.udp.socket(id)?;
        let datagram = socket.incoming.front(&self.udp.store)?;
        let octets = socket.incoming.front_octets(&self.udp.store, &self.shared.buffers);
        Some((Received::new(datagram, octets.len()), octets))
    }

    /// Forgets the oldest datagram; returns whether there was one.
    pub fn udp_discard(&mut self, id: UdpId) -> bool {
        let Udp { table, store, .. } = &mut self.udp;
        let memory = &mut Memory { store, pool: &mut self.shared.buffers };
        table.get_mut(id).is_some_and(|socket| socket.incoming.pop(memory).is_some())
    }

    /// Closes the socket: queued datagrams are still sent, unread ones are lost, and the handle becomes invalid.
    pub fn udp_close(&mut self, id: UdpId) {
        if self.udp.socket(id).is_none() {
            return;
        }
        self.udp.table.hide(id);
        self.replace_peer(id, None);
        let Udp { table, store, .. } = &mut self.udp;
        if let Some(socket) = table.get_mut(id) {
            socket.incoming.clear(&mut Memory { store, pool: &mut self.shared.buffers });
            socket.flags.closing = true;
            if socket.outgoing.is_empty() {
                table.remove(id);
            }
        }
    }

    /// What the socket can be used for now.
    pub fn udp_readiness(&self, id: UdpId) -> Option<Readiness> {
        self.udp.socket(id).map(UdpSocket::readiness)
    }

    /// The error that ICMP told of, once (`SO_ERROR`). Sending and receiving take it too.
    pub fn udp_take_error(&mut self, id: UdpId) -> Option<UdpError> {
        self.udp.socket_mut(id)?.take_error()
    }

    /// The oldest ICMP error in full; there are some only with [`UdpOptions::receive_errors`] (`MSG_ERRQUEUE`).
    pub fn udp_take_report(&mut self, id: UdpId) -> Option<ErrorReport> {
        self.udp.socket_mut(id)?.take_report()
    }

    /// Our end, and the peer's if the socket is connected.
    pub fn udp_endpoints(&self, id: UdpId) -> Option<(SocketAddr, Option<SocketAddr>)> {
        let socket = self.udp.socket(id)?;
        Some((socket.local(), socket.peer.map(|peer| peer.key.remote())))
    }

    /// Options of a socket.
    pub fn udp_options(&self, id: UdpId) -> Option<UdpOptions> {
        self.udp.socket(id).map(|socket| socket.options)
    }

    /// Changes options of a socket, for datagrams that come from now on.
    pub fn udp_set_options(&mut self, id: UdpId, options: UdpOptions) {
        if let Some(socket) = self.udp.socket_mut(id) {
            socket.options = options;
        }
    }

    /// Whether a datagram from `remote` to `local` is for a socket here.
    pub fn udp_takes(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        FlowKey::new(local, remote).is_some_and(|key| self.udp.table.find(&key).is_some())
    }

    /// Whatever the application wants to find again in events of a socket.
    pub fn udp_set_token(&mut self, id: UdpId, token: u64) {
        if let Some(socket) = self.udp.socket_mut(id) {
            socket.token = token;
        }
    }

    /// Octets of the oldest datagram (`SIOCINQ`), and octets that wait to be sent, with what each datagram costs beside them
    /// (`SIOCOUTQ`).
    pub fn udp_queued(&self, id: UdpId) -> Option<(usize, usize)> {
        let socket = self.udp.socket(id)?;
        let next = socket.incoming.front(&self.udp.store).map_or(0, |datagram| datagram.len_at(0));
        Some((next as usize, socket.outgoing.charge() as usize))
    }

    /// Datagrams that were dropped because the receive buffer or the memory was full (`SO_RXQ_OVFL`).
    pub fn udp_drops(&self, id: UdpId) -> Option<u64> {
        self.udp.socket(id).map(|socket| socket.drops)
    }

    /// All UDP sockets.
    pub fn udp_sockets(&self) -> impl Iterator<Item = UdpId> + '_ {
        self.udp.table.iter().filter(|(_, socket)| !socket.flags.closing).map(|(id, _)| id)
    }

    /// Octets of the largest packet, IP header included, that can be sent to `remote` by a link (`IP_MTU`).
    pub fn udp_path_mtu(&mut self, remote: IpAddr, link: LinkId, now: Instant) -> u16 {
        let link_mtu = self.shared.paths.link(link).mtu;
        let cached = self.shared.path_mtus.get(remote, now);
        cached.map_or(link_mtu, |cached| cached.mtu.min(link_mtu))
    }

    /// Tells what happened since the last event about a socket.
    pub(super) fn take_udp_event(&mut self, id: UdpId) -> Option<Event> {
        let socket = self.udp.socket_mut(id)?;
        socket.flags.signalled = false;
        let events = std::mem::take(&mut socket.events);
        Some(Event { socket: Socket::Udp(id), events, token: socket.token })
    }

    /// Lists a socket on which something happened.
    pub(super) fn signal_udp(&mut self, id: UdpId) {
        if let Some(socket) = self.udp.socket_mut(id)
            && !socket.events.is_empty()
            && !std::mem::replace(&mut socket.flags.signalled, true)
        {
            self.signals.push_back(Socket::Udp(id));
        }
    }
}
