//! Finds the socket of a packet.

use clock::Instant;
use wire::ip::Ip;
use wire::tcp::{Tcp, flag};
use wire::{DropReason, protocol};

use super::{Arrival, ConnectionId, HALF_OPEN, Stack};
use crate::address::is_on_wires;
use crate::flow_table::FlowKey;
use crate::isn::timestamp_clock;
use crate::path::Hop;
use crate::segment::{Ecn, Segment, SegmentOptions, Timestamps};
use crate::tcp::{Fate, Outgoing};
use crate::time_wait::{SegmentSummary, TimeWaitVerdict};

/// What handles a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// This stack, which has done so.
    Ours,
    /// The new owner of its connection, which has left.
    Departed,
    /// Nobody's, as far as this stack knows.
    Unknown,
}

impl Stack {
    /// Takes an IP packet that arrived. What it sets in motion is sent by [`Stack::poll_transmit`] and told by
    /// [`Stack::poll_event`].
    ///
    /// The error says why it was not for us, or malformed. The caller only counts it.
    pub fn on_packet(&mut self, packet: &[u8], arrival: &Arrival, now: Instant) -> Result<(), DropReason> {
        let ip = parse_ip(packet)?;
        match ip.protocol() {
            protocol::TCP => self.on_tcp(packet, &ip, arrival, now),
            protocol::UDP => self.on_udp(&ip, arrival, now),
            protocol::ICMP | protocol::ICMPV6 => self.on_icmp(&ip, now),
            _ => Err(DropReason::ProtocolUnknown),
        }
    }

    fn on_tcp(
        &mut self,
        packet: &[u8],
        ip: &Ip<'_>,
        arrival: &Arrival,
        now: Instant,
    ) -> Result<(), DropReason> {
        self.shared.counters.in_segs += 1;
        let tcp = Tcp::parse(ip.payload()).inspect_err(|_| self.shared.counters.in_errs += 1)?;
        if !tcp.checksum_is_accepted(ip.pseudo_header(ip.payload().len()), arrival.checksums) {
            self.shared.counters.in_csum_errors += 1;
            self.shared.counters.in_errs += 1;
            return Err(DropReason::TcpChecksum);
        }
        check_addresses(ip, tcp.source_port())?;
        let key = FlowKey::of_packet(ip, tcp.source_port(), tcp.destination_port());
        let segment = Segment::new(&tcp, Ecn::of_traffic_class(traffic_class(ip)));
        if is_opening(&segment) && !self.sources.allow(arrival.link, &arrival.header, ip.source()) {
            return Err(DropReason::SourceUnexpected);
        }
        let hop = Hop { link: arrival.link, header: arrival.header.reversed() };
        match self.on_segment(key, &segment, hop, now) {
            Whose::Ours => {}
            Whose::Departed => self.on_late_segment(&key, segment.flags, ip.payload()),
            Whose::Unknown => self.on_stranger(key, hop, &segment, ip.payload(), now),
        }
        if self.saves_syns && is_opening(&segment) {
            self.save_syn(&key, packet, ip);
        }
        Ok(())
    }

    fn on_segment(&mut self, key: FlowKey, segment: &Segment<'_>, hop: Hop, now: Instant) -> Whose {
        let hash = self.flows.hash_of(&key);
        match self.find_flow(hash, &key) {
            Some(place) if place & HALF_OPEN != 0 => {
                return self.on_half_open_segment(place & !HALF_OPEN, segment, now);
            }
            Some(place) => {
                if let Some((id, _)) = self.connections.at(place) {
                    self.on_connection_segment(id, hop, segment, now);
                }
            }
            None => return self.on_unknown_segment(key, hash, hop, segment, now),
        }
        Whose::Ours
    }

    pub(super) fn on_connection_segment(
        &mut self,
        id: ConnectionId,
        hop: Hop,
        segment: &Segment<'_>,
        now: Instant,
    ) {
        let Some(key) = self.connections.get(id).map(|connection| connection.key) else {
            return;
        };
        let fate =
            self.with_connection(id, now, |connection, shared| connection.on_segment(segment, shared, now));
        if matches!(fate, Some(Fate::ResetPeer | Fate::Refused)) {
            self.reset_peer(key, hop, segment);
        }
    }

    /// No connection: TIME-WAIT, a listener, or nothing.
    fn on_unknown_segment(
        &mut self,
        key: FlowKey,
        hash: u64,
        hop: Hop,
        segment: &Segment<'_>,
        now: Instant,
    ) -> Whose {
        let mut least_iss = None;
        match self.ask_time_wait(&key, hash, segment, now) {
            Some(TimeWaitVerdict::Acknowledge { seq, ack, window, ts_recent }) => {
                let timestamps = ts_recent.map(|echo| Timestamps {
                    value: timestamp_clock(now).wrapping_add(self.isn.timestamp_offset(&key)),
                    echo,
                });
                let options = SegmentOptions { timestamps, ..SegmentOptions::default() };
                let outgoing =
                    Outgoing { seq, ack, flags: flag::ACK, window, options, ..Outgoing::default() };
                self.replies.push(key, hop, outgoing, &mut self.shared.counters);
                return Whose::Ours;
            }
            Some(TimeWaitVerdict::Ignore | TimeWaitVerdict::Remove) => return Whose::Ours,
            Some(TimeWaitVerdict::Skip) => {
                self.shared.counters.acks_skipped_time_wait += 1;
                return Whose::Ours;
            }
            // The entry stays until the new connection is established (RFC 1122, 4.2.2.13).
            Some(TimeWaitVerdict::Reuse { min_iss }) => least_iss = Some(min_iss),
            None => {}
        }
        if self.departed.contains(hash, &key, now) {
            return Whose::Departed;
        }
        match self.find_listener(&key) {
            Some(listener) => self.on_listener_segment(listener, key, hop, segment, least_iss, now),
            None if self.has_left_listener(key.local(), now) => {
                self.shared.counters.departed_ignored += 1;
                Whose::Ours
            }
            None => Whose::Unknown,
        }
    }

    fn ask_time_wait(
        &mut self,
        key: &FlowKey,
        hash: u64,
        segment: &Segment<'_>,
        now: Instant,
    ) -> Option<TimeWaitVerdict> {
        if self.time_wait.is_empty() {
            return None;
        }
        let summary = SegmentSummary {
            seq: segment.seq,
            len: segment.payload.len() as u32,
            flags: segment.flags,
            ts_val: segment.options.timestamps.map(|timestamps| timestamps.value),
        };
        self.time_wait.on_segment(hash, key, &summary, now)
    }
}

fn parse_ip(packet: &[u8]) -> Result<Ip<'_>, DropReason> {
    let ip = match packet.first().map(|first| first >> 4) {
        Some(4) => {
            let ipv4 = wire::ipv4::Ipv4::parse(packet)?;
            if !ipv4.checksum_is_valid() {
                return Err(DropReason::Ipv4Checksum);
            }
            Ip::V4(ipv4)
        }
        Some(6) => Ip::V6(wire::ipv6::Ipv6::parse(packet)?),
        Some(_) => return Err(DropReason::IpVersion),
        None => return Err(DropReason::IpTruncated),
    };
    if ip.is_fragment() {
        return Err(DropReason::IpFragment);
    }
    Ok(ip)
}

pub(super) fn traffic_class(ip: &Ip<'_>) -> u8 {
    match ip {
        Ip::V4(packet) => packet.traffic_class(),
        Ip::V6(packet) => packet.traffic_class(),
    }
}

/// RFC 9293, 3.10.7.2 (MUST-57) and 3.9.2.3 (MUST-63): no connection with or by group addresses; nor with who says to be this host.
fn check_addresses(ip: &Ip<'_>, source_port: u16) -> Result<(), DropReason> {
    if !is_on_wires(ip.source()) || ip.source() == ip.destination() {
        return Err(DropReason::SourceAddress);
    }
    if !is_on_wires(ip.destination()) {
        return Err(DropReason::DestinationAddress);
    }
    if source_port == 0 {
        return Err(DropReason::SourcePortZero);
    }
    Ok(())
}

/// Whether a segment opens a connection.
pub(super) fn is_opening(segment: &Segment<'_>) -> bool {
    segment.has(flag::SYN) && segment.flags & (flag::ACK | flag::RST | flag::FIN) == 0
}
