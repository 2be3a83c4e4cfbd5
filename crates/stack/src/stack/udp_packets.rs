//! UDP on the wire: datagrams that arrive and leave, and ICMP errors about ours.

use std::net::SocketAddr;

use clock::Instant;
use wire::icmp::{ErrorKind, IcmpError};
use wire::ip::Ip;
use wire::{ChecksumPolicy, DropReason};

use super::arrival::traffic_class;
use super::{Arrival, Rooms, Stack, TRANSMIT_QUANTUM, Transmit};
use crate::address::{is_on_wires, is_unicast};
use crate::flow_table::FlowKey;
use crate::path::{Hop, LinkId};
use crate::path_mtu::PathMtu;
use crate::segment::Ecn;
use crate::tcp::Events;
use crate::udp::{
    Datagram, ErrorReport, Memory, Refused, Udp, UdpError, UdpId, UdpSocket, error_of, is_plausible_too_big,
    quoted_len, quoted_payload, write_packet,
};

impl Stack {
    pub(super) fn on_udp(&mut self, ip: &Ip<'_>, arrival: &Arrival, now: Instant) -> Result<(), DropReason> {
        let udp = self.parse_datagram(ip, arrival.checksums)?;
        let local = SocketAddr::new(ip.destination(), udp.destination_port());
        let remote = SocketAddr::new(ip.source(), udp.source_port());
        check_ends(local, remote, arrival.checksums)?;
        let key = FlowKey::new(local, remote).ok_or(DropReason::IpVersion)?;
        let Some(id) = self.udp.table.find(&key) else {
            self.shared.counters.udp_no_ports += 1;
            return Err(DropReason::NoListener);
        };
        if !self.sources.allow(arrival.link, &arrival.header, ip.source()) {
            return Err(DropReason::SourceUnexpected);
        }
        let datagram = Datagram {
            key,
            hop: Hop { link: arrival.link, header: arrival.header.reversed() },
            at: now,
            len: udp.payload().len() as u32,
            segment_len: 0,
            traffic_class: traffic_class(ip),
            hop_limit: hop_limit(ip),
        };
        self.deliver(id, datagram, udp.payload());
        Ok(())
    }

    fn parse_datagram<'a>(
        &mut self,
        ip: &Ip<'a>,
        policy: ChecksumPolicy,
    ) -> Result<wire::udp::Udp<'a>, DropReason> {
        let counters = &mut self.shared.counters;
        let parsed = wire::udp::Udp::parse(ip.payload()).inspect_err(|_| counters.udp_in_errors += 1)?;
        check_checksum(&parsed, ip, policy).inspect_err(|_| {
            counters.udp_in_csum_errors += 1;
            counters.udp_in_errors += 1;
        })?;
        Ok(parsed)
    }

    fn deliver(&mut self, id: UdpId, datagram: Datagram, payload: &[u8]) {
        let Udp { table, store, .. } = &mut self.udp;
        let Some(socket) = table.get_mut(id) else {
            return;
        };
        let budget = socket.options.receive_buffer;
        let memory = &mut Memory { store, pool: &mut self.shared.buffers };
        let counters = &mut self.shared.counters;
        let is_coalesced =
            socket.options.receive_coalesced && socket.incoming.coalesce(&datagram, payload, budget, memory);
        if !is_coalesced && let Err(refused) = socket.incoming.push(datagram, payload, budget, memory) {
            socket.drops += 1;
            counters.udp_in_errors += 1;
            *match refused {
                Refused::Budget => &mut counters.udp_rcvbuf_errors,
                Refused::Memory => &mut counters.udp_mem_errors,
            } += 1;
            return;
        }
        counters.udp_in_datagrams += 1;
        counters.in_ce += u64::from(Ecn::of_traffic_class(datagram.traffic_class) == Ecn::Ce);
        socket.events |= Events::READABLE;
        self.signal_udp(id);
    }

    /// Writes the next datagram of the next socket in turn, if there is one.
    #[inline]
    pub(super) fn transmit_udp(&mut self, rooms: &mut (impl Rooms + ?Sized)) -> Option<Transmit> {
        if self.udp.ready.is_empty() { None } else { self.transmit_ready_udp(rooms) }
    }

    fn transmit_ready_udp(&mut self, rooms: &mut (impl Rooms + ?Sized)) -> Option<Transmit> {
        let mut links = self.udp.ready.links();
        links.find_map(|link| self.transmit_udp_by(link, rooms))
    }

    /// A socket is in the queue of the link that its next datagram leaves by.
    fn transmit_udp_by(&mut self, link: LinkId, rooms: &mut (impl Rooms + ?Sized)) -> Option<Transmit> {
        while let Some(&id) = self.udp.ready.front(link) {
            let Udp { table, store, .. } = &mut self.udp;
            let datagram = table.get_mut(id).and_then(|socket| socket.outgoing.front(store).copied());
            let transmit = match datagram {
                Some(datagram) => self.transmit_datagram(id, datagram, rooms.room(datagram.hop.link)?),
                None => None,
            };
            self.end_udp_turn(link, id);
            if transmit.is_some() {
                return transmit;
            }
        }
        None
    }

    fn transmit_datagram(&mut self, id: UdpId, datagram: Datagram, room: &mut [u8]) -> Option<Transmit> {
        let Udp { table, store, .. } = &mut self.udp;
        let socket = table.get_mut(id)?;
        let offset = socket.outgoing_sent;
        let payload_len = datagram.len_at(offset);
        let link = self.shared.paths.link(datagram.hop.link);
        let len = write_packet(room, &datagram, payload_len as usize, link.tx_checksum_offload, |octets| {
            socket.outgoing.copy_front(offset, octets, store, &self.shared.buffers);
        });
        socket.outgoing_sent += payload_len;
        if socket.outgoing_sent >= datagram.len {
            socket.outgoing_sent = 0;
            socket.outgoing.pop(&mut Memory { store, pool: &mut self.shared.buffers });
            socket.note_room();
        }
        let counters = &mut self.shared.counters;
        let Some(len) = len.filter(|len| *len <= usize::from(link.mtu)) else {
            counters.udp_out_too_long += 1;
            return None;
        };
        counters.udp_out_datagrams += 1;
        Some(Transmit::whole(len, datagram.hop))
    }

    /// The socket at the head of the list has sent one datagram: it stays there for its share, goes to the end if it has more,
    /// and else away.
    fn end_udp_turn(&mut self, link: LinkId, id: UdpId) {
        let Udp { table, ready, store, .. } = &mut self.udp;
        let Some(socket) = table.get_mut(id) else {
            ready.pop(link);
            return;
        };
        let next = socket.outgoing.front(store).map(|datagram| datagram.hop.link);
        let is_done = next.is_none();
        if ready.note_sent(link, 1, TRANSMIT_QUANTUM) || next != Some(link) {
            ready.pop(link);
            socket.flags.queued = !is_done;
            if let Some(next) = next {
                ready.push(next, id);
            }
        }
        if is_done && socket.flags.closing {
            table.remove(id);
        }
        self.signal_udp(id);
    }

    /// An ICMP error quotes a datagram from us. It is believed only if it quotes one that we have sent, as far as can be told
    /// (RFC 8085, 5.2).
    pub(super) fn on_udp_icmp(&mut self, ip: &Ip<'_>, icmp: &IcmpError, key: &FlowKey, now: Instant) {
        let is_ours = ip.destination() == key.local().ip();
        let id = self.udp.table.find(key).filter(|id| is_ours && self.has_sent(*id, key));
        let Some(id) = id else {
            self.shared.counters.icmp_unknown += 1;
            return;
        };
        let error = match icmp.kind {
            ErrorKind::TooBig { mtu } => self.on_udp_too_big(ip, mtu, key, now).map(|error| (error, true)),
            kind => error_of(key.is_v6(), kind),
        };
        let Some((error, is_hard)) = error else {
            return;
        };
        let report = ErrorReport {
            error,
            kind: icmp.kind,
            type_and_code: ip.payload().first_chunk().map_or((0, 0), |[kind, code]| (*kind, *code)),
            local: key.local(),
            remote: key.remote(),
            reporter: ip.source(),
            payload: Vec::new(),
        };
        if let Some(socket) = self.udp.table.get_mut(id) {
            socket.on_icmp_error(report, quoted_payload(ip).unwrap_or_default(), is_hard);
        }
        self.signal_udp(id);
    }

    fn has_sent(&self, id: UdpId, key: &FlowKey) -> bool {
        let is_believed = |socket: &UdpSocket| socket.peer.is_some() || socket.options.believe_errors;
        self.udp.socket(id).is_some_and(is_believed) || self.udp.sent_to.contains(key)
    }

    /// RFC 1191, 3; RFC 8201, 4: lowers the path MTU to a host. The error for the socket, if its datagram was too long.
    fn on_udp_too_big(&mut self, ip: &Ip<'_>, mtu: u32, key: &FlowKey, now: Instant) -> Option<UdpError> {
        let quoted = quoted_len(ip).filter(|len| is_plausible_too_big(*len, mtu, self.udp.sent_len_max));
        let Some(sent_len) = quoted.and_then(|len| u16::try_from(len).ok()) else {
            self.shared.counters.icmp_unknown += 1;
            return None;
        };
        let remote = key.remote().ip();
        let mut path = PathMtu::with_floor(sent_len, self.path_mtu_floor(key));
        if let Some(cached) = self.shared.path_mtus.get(remote, now) {
            path.start_at(cached);
        }
        if path.on_packet_too_big(u16::try_from(mtu).unwrap_or(u16::MAX), sent_len, now) {
            self.shared.counters.path_mtu_reductions += 1;
            self.shared.path_mtus.insert(remote, path.mtu(), now);
        }
        (path.mtu() < sent_len).then_some(UdpError::TooLong { mtu: path.mtu() })
    }
}

/// RFC 768: no checksum over IPv4 is right; RFC 8200, 8.1: over IPv6 it is not.
fn check_checksum(udp: &wire::udp::Udp<'_>, ip: &Ip<'_>, policy: ChecksumPolicy) -> Result<(), DropReason> {
    if policy.verified {
        return Ok(());
    }
    if udp.checksum() == 0 && matches!(ip, Ip::V6(_)) {
        return Err(DropReason::UdpChecksumMissing);
    }
    let pseudo_header = ip.pseudo_header(udp.total_len());
    let is_partial = policy.accept_partial && udp.checksum() == pseudo_header.fold();
    if is_partial || udp.checksum_is_valid(pseudo_header) { Ok(()) } else { Err(DropReason::UdpChecksum) }
}

/// RFC 1122, 4.1.3.6: nobody has a group address as a source, and nobody on a wire has ours. What a socket of the kernel's has received,
/// whose checksums are verified, may be from this host. What is for groups is the kernel's. Source port 0 is right: such a sender
/// wants no answer (RFC 768).
fn check_ends(local: SocketAddr, remote: SocketAddr, policy: ChecksumPolicy) -> Result<(), DropReason> {
    let is_from_wire = !policy.verified;
    if !is_unicast(remote.ip()) || is_from_wire && (!is_on_wires(remote.ip()) || remote.ip() == local.ip()) {
        return Err(DropReason::SourceAddress);
    }
    if !is_unicast(local.ip()) || is_from_wire && !is_on_wires(local.ip()) {
        return Err(DropReason::DestinationAddress);
    }
    if local.port() == 0 {
        return Err(DropReason::DestinationPortZero);
    }
    Ok(())
}

fn hop_limit(ip: &Ip<'_>) -> u8 {
    match ip {
        Ip::V4(packet) => packet.ttl(),
        Ip::V6(packet) => packet.hop_limit(),
    }
}
