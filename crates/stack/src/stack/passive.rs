//! Connections that peers begin: SYN, SYN-ACK, ACK (RFC 9293, 3.10.7.2; RFC 4987; RFC 7413).

use std::sync::Arc;

use clock::{Duration, Instant};
use wire::tcp::flag;

use super::arrival::is_opening;
use super::{ConnectionId, HALF_OPEN, ListenerId, Socket, Stack, Transmit};
use crate::config::{EcnMode, SynCookies, TcpOptions};
use crate::fast_open::CookieVerdict;
use crate::flow_table::FlowKey;
use crate::path::Hop;
use crate::segment::{FastOpenCookie, Segment};
use crate::seq::SeqNum;
use crate::slab::Handle;
use crate::tcp::handshake::{Agreement, HalfOpen, HalfOpenVerdict, retries};
use crate::tcp::{Connection, Events, Origin, SegmentWriter, mss_of_link, receive_limit, scale_for};

/// How long cookies are believed after the last was sent: they live two minutes (RFC 4987, 3.6).
const COOKIES_BELIEVED: Duration = Duration::from_secs(120);
/// What a SYN-ACK offers as window, before scaling: what the receive buffer starts with.
const WINDOW_INITIAL: u32 = 65_535;

/// A SYN that is taken: what was agreed, and the Fast Open cookie to send with the SYN-ACK.
struct Opening {
    listener: ListenerId,
    key: FlowKey,
    hop: Hop,
    agreement: Agreement,
    cookie: Option<Box<FastOpenCookie>>,
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
    ) {
        if segment.has(flag::RST) {
            return;
        }
        if is_opening(segment) {
            return self.on_syn(listener, key, hop, segment, least_iss, now);
        }
        if segment.has(flag::ACK) && !segment.has(flag::SYN) && self.cookies_are_believed(now) {
            return self.on_cookie(listener, key, hop, segment, now);
        }
        if segment.has(flag::ACK) {
            self.reset_peer(key, hop, segment);
        }
    }

    /// `least_iss` is set if TIME-WAIT of an older connection makes room for this one.
    fn on_syn(
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
        if self.shared.is_under_pressure() || self.connections.is_full() {
            self.shared.counters.memory_refused += 1;
            self.shared.counters.listen_drops += 1;
            return;
        }
        let crowded = listener.is_half_open_full() || self.half_open.is_full();
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
        let (cookie, fast) = self.judge_fast_open(id, &key, segment, &options);
        if fast {
            let opening = Opening { listener: id, key, hop, agreement, cookie };
            self.open_fast(opening, segment, now);
        } else {
            self.open_half(Opening { listener: id, key, hop, agreement, cookie }, now);
        }
    }

    /// What the SYN offers against what we do.
    fn agree(&self, key: &FlowKey, segment: &Segment<'_>, options: &TcpOptions, now: Instant) -> Agreement {
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
            window: options.receive_buffer.unwrap_or(WINDOW_INITIAL).min(limit).min(WINDOW_INITIAL) as u16,
        }
    }

    /// Keeps a half-open connection and has its SYN-ACK sent.
    fn open_half(&mut self, opening: Opening, now: Instant) {
        let Opening { listener: id, key, hop, agreement, cookie } = opening;
        let Some(path) = self.shared.paths.acquire(hop) else {
            self.shared.counters.listen_drops += 1;
            return;
        };
        let half_open = HalfOpen {
            key,
            listener: id,
            path,
            link: hop.link,
            agreement,
            sent: 0,
            timeouts: 0,
            acknowledged_at: None,
            queued: true,
            first_sent_at: now,
            fast_open: cookie,
        };
        let place =
            self.half_open.insert_with(|_| half_open).expect("the limit was looked at before").index();
        self.flows.insert(self.flows.hash_of(&key), place | HALF_OPEN);
        self.half_open_ready.push_back(place);
        if let Some(listener) = self.listeners.get_mut(id) {
            listener.half_open += 1;
        }
    }

    /// Sends the next SYN-ACK that is due.
    pub(super) fn transmit_syn_ack(&mut self, now: Instant, room: &mut [u8]) -> Option<Transmit> {
        while let Some(place) = self.half_open_ready.pop_front() {
            let Some((_, half_open)) = self.half_open.at_mut(place) else {
                continue;
            };
            if !std::mem::replace(&mut half_open.queued, false) {
                continue;
            }
            half_open.sent = half_open.sent.saturating_add(1);
            let options =
                self.listeners.get(half_open.listener).map(|listener| Arc::clone(&listener.options));
            let options = options.unwrap_or_default();
            let mss = mss_of_link(&self.shared, half_open.link, &half_open.key, options.mss_max);
            let outgoing = half_open.syn_ack(mss, now);
            let writer = SegmentWriter {
                key: half_open.key,
                hop_limit: options.hop_limit,
                traffic_class: options.traffic_class & !3,
                checksum_offload: self.shared.paths.link(half_open.link).tx_checksum_offload,
            };
            let hop = self.shared.paths.hop(half_open.path);
            let again = half_open.sent > 1;
            let key = self.shared.config.connections_max + place;
            self.timers.schedule(key, half_open.next_timeout(now));
            let counters = &mut self.shared.counters;
            *if again { &mut counters.retrans_segs } else { &mut counters.out_segs } += 1;
            let len = writer.write(room, &outgoing, 0, |_| ())?;
            return Some(Transmit { len, hop });
        }
        None
    }

    pub(super) fn on_half_open_timeout(&mut self, place: u32, now: Instant) {
        let Some((_, half_open)) = self.half_open.at_mut(place) else {
            return;
        };
        let listener = self.listeners.get(half_open.listener);
        let configured = self.shared.config.syn_ack_retries;
        let acknowledged = half_open.acknowledged_at.is_some();
        let limit = listener.map_or(0, |listener| retries(&listener.options, configured, acknowledged));
        let defer_accept = listener.and_then(|listener| listener.options.defer_accept);
        half_open.timeouts = half_open.timeouts.saturating_add(1);
        if half_open.timeouts > limit {
            self.shared.counters.attempt_fails += 1;
            self.forget_half_open(place);
            return;
        }
        self.shared.counters.timeouts += 1;
        if half_open.is_repetition_due(defer_accept) {
            return self.repeat_syn_ack(place);
        }
        let at = half_open.next_timeout(now);
        self.timers.schedule(self.shared.config.connections_max + place, at);
    }

    fn repeat_syn_ack(&mut self, place: u32) {
        if let Some((_, half_open)) = self.half_open.at_mut(place)
            && !std::mem::replace(&mut half_open.queued, true)
        {
            self.half_open_ready.push_back(place);
        }
    }

    fn forget_half_open(&mut self, place: u32) -> Option<HalfOpen> {
        let (id, half_open) = self.half_open.at(place)?;
        self.flows.remove(self.flows.hash_of(&half_open.key), place | HALF_OPEN);
        self.timers.cancel(self.shared.config.connections_max + place);
        let half_open = self.half_open.remove(id)?;
        self.shared.paths.release(half_open.path);
        if let Some(listener) = self.listeners.get_mut(half_open.listener) {
            listener.half_open = listener.half_open.saturating_sub(1);
        }
        Some(half_open)
    }

    /// Forgets all half-open connections of a listener that is closed.
    pub(super) fn forget_half_open_of(&mut self, listener: ListenerId) {
        let of_it = self.half_open.iter().filter(|(_, half_open)| half_open.listener == listener);
        let places: Vec<u32> = of_it.map(|(id, _)| id.index()).collect();
        for place in places {
            self.forget_half_open(place);
        }
    }

    pub(super) fn on_half_open_segment(&mut self, place: u32, segment: &Segment<'_>, now: Instant) {
        let Some((_, half_open)) = self.half_open.at(place) else {
            return;
        };
        let listener_id = half_open.listener;
        let Some(listener) = self.listeners.get(listener_id) else {
            return;
        };
        let hop = self.shared.paths.hop(half_open.path);
        match half_open.on_segment(segment, listener.options.defer_accept) {
            HalfOpenVerdict::Ignore => {}
            HalfOpenVerdict::Repeat => {
                if let Some((_, half_open)) = self.half_open.at_mut(place) {
                    half_open.note_repetition(segment);
                }
                self.repeat_syn_ack(place);
            }
            HalfOpenVerdict::Acknowledge => {
                let (key, ack) = (half_open.key, half_open.bare_ack(now));
                if self.shared.challenges.may_send(self.shared.config.challenge_acks_per_second, now) {
                    self.shared.counters.challenge_acks += 1;
                    self.replies.push(key, hop, ack, &mut self.shared.counters);
                }
            }
            HalfOpenVerdict::ResetPeer => {
                let key = half_open.key;
                self.reset_peer(key, hop, segment);
            }
            HalfOpenVerdict::Remove => {
                self.shared.counters.embryonic_rsts += 1;
                self.shared.counters.attempt_fails += 1;
                self.forget_half_open(place);
            }
            HalfOpenVerdict::Defer => {
                if let Some((_, half_open)) = self.half_open.at_mut(place) {
                    half_open.acknowledged_at.get_or_insert(now);
                }
            }
            HalfOpenVerdict::Complete if listener.is_full() => {
                self.shared.counters.listen_overflows += 1;
            }
            HalfOpenVerdict::Complete => self.complete(place, hop, segment, now),
        }
    }

    /// The handshake is complete: the half-open connection becomes one, to which the segment belongs.
    fn complete(&mut self, place: u32, hop: Hop, segment: &Segment<'_>, now: Instant) {
        let Some(half_open) = self.forget_half_open(place) else {
            return;
        };
        if self.time_wait.remove(self.flows.hash_of(&half_open.key), &half_open.key) {
            self.shared.counters.time_wait_recycled += 1;
        }
        // What the peer waited before it sent data is not part of the round trip.
        let deferred = half_open.acknowledged_at.map_or(Duration::ZERO, |at| now.since(at));
        let (sent, first_sent_at) = (half_open.sent, half_open.first_sent_at + deferred);
        let Some(id) = self.open_passive(half_open.listener, half_open.key, hop, half_open.agreement, now)
        else {
            return;
        };
        if let Some(connection) = self.connections.get_mut(id) {
            connection.handshakes = sent;
            connection.handshake_sent_at = first_sent_at;
        }
        self.on_connection_segment(id, hop, segment, now);
        self.offer_to_accept(half_open.listener, id);
    }

    /// Makes a connection in SYN-RECEIVED out of what was agreed.
    fn open_passive(
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
            return None;
        };
        self.flows.insert(self.flows.hash_of(&key), id.index());
        self.shared.counters.passive_opens += 1;
        Some(id)
    }

    /// Puts a connection into the accept queue and tells the listener's owner.
    fn offer_to_accept(&mut self, listener_id: ListenerId, id: ConnectionId) {
        let Some(listener) = self.listeners.get_mut(listener_id) else {
            return;
        };
        listener.push(id);
        if !std::mem::replace(&mut listener.signalled, true) {
            self.signals.push_back(Socket::Listener(listener_id));
        }
    }

    // --- SYN cookies ---

    fn send_cookie(
        &mut self,
        key: FlowKey,
        hop: Hop,
        segment: &Segment<'_>,
        mut agreement: Agreement,
        now: Instant,
    ) {
        agreement.iss = self.cookies.make(&key, segment.seq, agreement.peer_mss, now);
        let mss = mss_of_link(&self.shared, hop.link, &key, self.shared.config.tcp.mss_max);
        let mut outgoing = agreement.syn_ack(mss, now);
        match &mut outgoing.options.timestamps {
            // The options of the SYN travel in the low bits of our timestamp, and come back with the ACK.
            Some(timestamps) => {
                let options = agreement.cookie_options();
                timestamps.value = crate::syn_cookie::encode_timestamp(timestamps.value, options);
            }
            None => {
                outgoing.options.window_scale = None;
                outgoing.options.sack_permitted = false;
                outgoing.flags &= !flag::ECE;
            }
        }
        self.cookies_sent_at = Some(now);
        self.shared.counters.syncookies_sent += 1;
        self.replies.push(key, hop, outgoing, &mut self.shared.counters);
    }

    fn cookies_are_believed(&self, now: Instant) -> bool {
        self.cookies_sent_at.is_some_and(|at| now.since(at) < COOKIES_BELIEVED)
    }

    /// An ACK for nothing that we remember: perhaps for a cookie.
    fn on_cookie(&mut self, id: ListenerId, key: FlowKey, hop: Hop, segment: &Segment<'_>, now: Instant) {
        let irs = segment.seq - 1;
        let cookie = segment.ack - 1;
        let Some(mss) = self.cookies.check(&key, irs, cookie, now) else {
            self.shared.counters.syncookies_failed += 1;
            return self.reset_peer(key, hop, segment);
        };
        if self.listeners.get(id).is_none_or(|listener| listener.is_full()) {
            self.shared.counters.listen_overflows += 1;
            return;
        }
        self.shared.counters.syncookies_recv += 1;
        let Some(options) = self.listeners.get(id).map(|listener| Arc::clone(&listener.options)) else {
            return;
        };
        let mut agreement = self.agree(&key, segment, &options, now);
        agreement.restore_from_cookie(irs, cookie, mss, &segment.options, scale_for(receive_limit(&options)));
        if let Some(connection) = self.open_passive(id, key, hop, agreement, now) {
            if let Some(connection) = self.connections.get_mut(connection) {
                connection.handshakes = 0; // No sample: when the SYN-ACK was sent is not known.
            }
            self.on_connection_segment(connection, hop, segment, now);
            self.offer_to_accept(id, connection);
        }
    }

    // --- Fast Open ---

    /// The cookie to send, if one was asked for, and whether the data in the SYN may be taken (RFC 7413, 4.2.1).
    fn judge_fast_open(
        &mut self,
        id: ListenerId,
        key: &FlowKey,
        segment: &Segment<'_>,
        options: &TcpOptions,
    ) -> (Option<Box<FastOpenCookie>>, bool) {
        let enabled = self.shared.config.fast_open_server && options.fast_open_queue > 0;
        let Some(offered) = segment.options.fast_open.as_ref().filter(|_| enabled) else {
            return (None, false);
        };
        let client = key.remote().ip();
        let fresh = || -> Option<Box<FastOpenCookie>> {
            Some(Box::new(self.fast_open_server.cookie(client).into_iter().collect()))
        };
        let counters = &mut self.shared.counters;
        if offered.is_empty() {
            counters.fast_open_cookie_requested += 1;
            return (fresh(), false);
        }
        let verdict = self.fast_open_server.validate(client, offered);
        if verdict == CookieVerdict::Invalid {
            counters.fast_open_passive_fail += 1;
            return (fresh(), false);
        }
        let renewed = if verdict == CookieVerdict::ValidUntilRotation { fresh() } else { None };
        let pending = self.listeners.get(id).map_or(0, |listener| listener.fast_open_pending);
        if pending >= u32::from(options.fast_open_queue) {
            counters.fast_open_listen_overflow += 1;
            return (None, false);
        }
        (renewed, true)
    }

    /// Makes a connection of a SYN with a right cookie, which may be read and answered before the handshake is complete.
    fn open_fast(&mut self, opening: Opening, segment: &Segment<'_>, now: Instant) {
        let Opening { listener, key, hop, agreement, cookie } = opening;
        let Some(id) = self.open_passive(listener, key, hop, agreement, now) else {
            return;
        };
        self.shared.counters.fast_open_passive += 1;
        if let Some(listener) = self.listeners.get_mut(listener) {
            listener.fast_open_pending += 1;
        }
        self.with_connection(id, now, |connection, shared| {
            connection.fast_open = cookie;
            connection.begin_fast(segment, shared, now)
        });
        self.offer_to_accept(listener, id);
        if let Some(connection) = self.connections.get_mut(id) {
            connection.events |= Events::READABLE;
        }
    }
}
