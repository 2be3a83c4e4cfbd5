//! Passive opens: SYN, SYN-ACK, ACK (RFC 9293, 3.10.7.2; RFC 4987; RFC 7413).

use super::arrival::{Whose, is_opening};
use super::{ConnectionId, ListenerId, Socket, Stack};
use crate::config::{EcnMode, SynCookies, TcpOptions};
use crate::flow_table::FlowKey;
use crate::path::Hop;
use crate::segment::{FastOpenCookie, Segment};
use crate::seq::SeqNum;
use crate::slab::Handle;
use crate::tcp::handshake::Agreement;
use crate::tcp::{Connection, Origin, micros, receive_limit, scale_for};
use clock::{Duration, Instant};
use std::sync::Arc;
use wire::tcp::flag;

/// The most that a SYN-ACK offers as window, which is never scaled (RFC 7323, 2.2).
const WINDOW_MAX: u32 = 65_535;

/// A SYN that is taken: what was agreed, and the Fast Open cookie to send with the SYN-ACK.
pub(super) struct Opening {
    pub(super) listener: ListenerId,
    pub(super) key: FlowKey,
    pub(super) hop: Hop,
    pub(super) agreement: Agreement,
    pub(super) cookie: Option<Box<FastOpenCookie>>,
}

impl Stack {
    pub(super) fn on_listener_segment(
        &mut self,
        listener: ListenerId,
        key: FlowKey,
        hop: Hop,
        segment: &Segment<'_>,
        least_iss: Option<SeqNum>,
        now: Instant,
    ) -> Whose {
        if is_opening(segment) {
            self.on_syn(listener, key, hop, segment, least_iss, now);
            return Whose::Ours;
        }
        let is_ack = segment.has(flag::ACK) && !segment.has(flag::RST);
        if is_ack && !segment.has(flag::SYN) && self.cookies_are_believed(now) {
            return self.on_cookie(listener, key, hop, segment, now);
        }
        // What has neither is no answer to anything, and none is due (RFC 9293, 3.10.7.2).
        if is_ack || segment.has(flag::RST) { Whose::Unknown } else { Whose::Ours }
    }

    /// `least_iss` is set if TIME-WAIT of an older connection makes room for this one.
    pub(super) fn on_syn(
        &mut self,
        id: ListenerId,
        key: FlowKey,
        hop: Hop,
        segment: &Segment<'_>,
        least_iss: Option<SeqNum>,
        now: Instant,
    ) {
        let Some(listener) = self.listeners.get(id) else {
            return;
        };
        if listener.is_full() {
            self.shared.counters.listen_overflows += 1;
            self.shared.counters.listen_drops += 1;
            return;
        }
        if self.shared.buffers.is_nearly_spent() || self.connections.is_full() {
            self.shared.counters.memory_refused += 1;
            self.shared.counters.listen_drops += 1;
            return;
        }
        let is_full = listener.is_half_open_full(self.shared.config.half_open_min);
        let crowded = is_full || self.half_open.is_full();
        let options = Arc::clone(&listener.options);
        let mut agreement = self.agree(&key, segment, &options, now);
        if let Some(least) = least_iss {
            // RFC 1122, 4.2.2.13: above what the old connection used, should it have been faster than the clock.
            agreement.iss = agreement.iss.max(least);
        }
        match self.shared.config.syn_cookies {
            SynCookies::Always => return self.send_cookie(key, hop, segment, agreement, now),
            SynCookies::UnderPressure if crowded => {
                self.shared.counters.req_q_full_do_cookies += 1;
                return self.send_cookie(key, hop, segment, agreement, now);
            }
            SynCookies::Never if crowded => {
                self.shared.counters.req_q_full_drop += 1;
                self.shared.counters.listen_drops += 1;
                return;
            }
            _ => {}
        }
        let (cookie, fast) = self.judge_fast_open(id, &key, segment, &options, now);
        if fast {
            let opening = Opening { listener: id, key, hop, agreement, cookie };
            self.open_fast(opening, segment, now);
        } else {
            self.open_half(Opening { listener: id, key, hop, agreement, cookie }, now);
        }
    }

    /// What the SYN offers against what we do.
    pub(super) fn agree(
        &self,
        key: &FlowKey,
        segment: &Segment<'_>,
        options: &TcpOptions,
        now: Instant,
    ) -> Agreement {
        let config = &self.shared.config;
        let limit = receive_limit(options);
        let ours = scale_for(limit);
        let timestamps = segment.options.timestamps.filter(|_| config.timestamps);
        let default_mss = if key.is_v6() { 1220 } else { 536 };
        let asks_ecn = segment.has(flag::ECE | flag::CWR) && config.ecn != EcnMode::Off;
        Agreement {
            irs: segment.seq,
            iss: self.isn.isn(key, now),
            peer_mss: segment.options.mss.unwrap_or(default_mss),
            scales: segment
                .options
                .window_scale
                .filter(|_| config.window_scaling)
                .map(|theirs| (theirs, ours)),
            sack: segment.options.sack_permitted && config.sack,
            ecn: asks_ecn,
            ts_recent: timestamps.map(|timestamps| timestamps.value),
            timestamp_offset: self.isn.timestamp_offset(key),
            window: options
                .receive_buffer
                .unwrap_or(options.receive_buffer_initial)
                .min(limit)
                .min(WINDOW_MAX) as u16,
        }
    }

    /// The handshake is complete: the half-open connection becomes one, to which the segment belongs.
    pub(super) fn complete(&mut self, place: u32, hop: Hop, segment: &Segment<'_>, now: Instant) {
        let Some(half_open) = self.forget_half_open(place) else {
            return;
        };
        self.end_time_wait(&half_open.key);
        // What the peer waited before it sent data is not part of the round trip.
        let deferred = half_open.acknowledged_at.map_or(Duration::ZERO, |at| now.since(at));
        let (sent, first_sent_at) = (half_open.sent, half_open.first_sent_at + deferred);
        let Some(id) = self.open_passive(half_open.listener, half_open.key, hop, half_open.agreement, now)
        else {
            return;
        };
        if let Some(connection) = self.connections.get_mut(id) {
            connection.handshakes = sent;
            connection.handshake_sent_at = micros(first_sent_at);
            if half_open.saved_syn.is_some() {
                connection.rare().saved_syn = half_open.saved_syn;
            }
        }
        self.on_connection_segment(id, hop, segment, now);
        self.offer_to_accept(half_open.listener, id);
    }

    /// A new connection takes the place of the one in TIME-WAIT, if there is one.
    pub(super) fn end_time_wait(&mut self, key: &FlowKey) {
        if !self.time_wait.is_empty() && self.time_wait.remove(self.flows.hash_of(key), key) {
            self.shared.counters.time_wait_recycled += 1;
        }
    }

    /// Makes a connection in SYN-RECEIVED out of what was agreed.
    pub(super) fn open_passive(
        &mut self,
        listener: ListenerId,
        key: FlowKey,
        hop: Hop,
        agreement: Agreement,
        now: Instant,
    ) -> Option<ConnectionId> {
        let options = self.listeners.get(listener).map(|listener| Arc::clone(&listener.options))?;
        let path = self.shared.paths.acquire(hop)?;
        let shared = &mut self.shared;
        let make = |handle: Handle<Connection>| {
            let mut connection =
                Connection::new(handle, key, (path, hop.link), Origin::Passive, options, shared, now);
            connection.adopt(agreement, shared, now);
            connection.listener = Some(listener);
            connection.flags.waits_for_accept = true;
            connection
        };
        let Some(id) = self.connections.insert_with(make) else {
            self.shared.paths.release(path);
            self.shared.counters.memory_refused += 1;
            self.shared.counters.listen_drops += 1;
            return None;
        };
        self.flows.insert(self.flows.hash_of(&key), id.index());
        self.note_begun(id);
        self.shared.counters.passive_opens += 1;
        Some(id)
    }

    /// Puts a connection into the accept queue and notifies the listener's owner.
    pub(super) fn offer_to_accept(&mut self, listener_id: ListenerId, id: ConnectionId) {
        let Some(listener) = self.listeners.get_mut(listener_id) else {
            return;
        };
        listener.push(id);
        if !std::mem::replace(&mut listener.signalled, true) {
            self.signals.push_back(Socket::Listener(listener_id));
        }
    }
}
