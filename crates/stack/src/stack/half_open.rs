//! Half-open connections: SYN-ACKs and the answers to them (RFC 9293, 3.10.7.4 for SYN-RECEIVED; RFC 4987).

use super::arrival::Whose;
use super::passive::Opening;
use super::{HALF_OPEN, ListenerId, Rooms, Stack, TRANSMIT_QUANTUM, Transmit};
use crate::path::LinkId;
use crate::segment::Segment;
use crate::tcp::handshake::{HalfOpen, HalfOpenVerdict, retries};
use crate::tcp::{SegmentWriter, mss_of_link};
use clock::Instant;
use std::sync::Arc;

impl Stack {
    /// Keeps a half-open connection and has its SYN-ACK sent.
    pub(super) fn open_half(&mut self, opening: Opening, now: Instant) {
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
            answered_at: None,
            queued: true,
            first_sent_at: now,
            fast_open: cookie,
            saved_syn: None,
        };
        let place =
            self.half_open.insert_with(|_| half_open).expect("the limit was looked at before").index();
        self.flows.insert(self.flows.hash_of(&key), place | HALF_OPEN);
        self.half_open_ready.push(hop.link, place);
        if let Some(listener) = self.listeners.get_mut(id) {
            listener.half_open += 1;
        }
    }

    /// Sends the next SYN-ACK that is due.
    pub(super) fn transmit_syn_ack(
        &mut self,
        now: Instant,
        rooms: &mut (impl Rooms + ?Sized),
    ) -> Option<Transmit> {
        let mut links = self.half_open_ready.links();
        links.find_map(|link| self.transmit_syn_ack_by(link, now, rooms))
    }

    fn transmit_syn_ack_by(
        &mut self,
        link: LinkId,
        now: Instant,
        rooms: &mut (impl Rooms + ?Sized),
    ) -> Option<Transmit> {
        while let Some(&place) = self.half_open_ready.front(link) {
            let is_due = |half_open: &HalfOpen| half_open.queued && half_open.link == link;
            let Some((_, half_open)) = self.half_open.at_mut(place).filter(|(_, it)| is_due(it)) else {
                self.half_open_ready.pop(link);
                continue;
            };
            let room = rooms.room(link)?;
            self.half_open_ready.pop(link);
            self.half_open_ready.pass_turn(link, 1, TRANSMIT_QUANTUM);
            half_open.queued = false;
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
            return Some(Transmit::whole(len, hop));
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

    pub(super) fn repeat_syn_ack(&mut self, place: u32) {
        if let Some((_, half_open)) = self.half_open.at_mut(place)
            && !std::mem::replace(&mut half_open.queued, true)
        {
            self.half_open_ready.push(half_open.link, place);
        }
    }

    pub(super) fn forget_half_open(&mut self, place: u32) -> Option<HalfOpen> {
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

    /// Answers by an ACK, once an interval: see [`Config::out_of_window_ack_interval`](crate::Config::out_of_window_ack_interval).
    fn challenge_half_open(&mut self, place: u32, now: Instant) {
        let Some((_, half_open)) = self.half_open.at_mut(place) else {
            return;
        };
        let interval = self.shared.config.out_of_window_ack_interval;
        if half_open.answered_at.is_some_and(|at| now.since(at) < interval) {
            self.shared.counters.acks_skipped_syn_received += 1;
            return;
        }
        if self.shared.challenges.may_send(self.shared.config.challenge_acks_per_second, now) {
            half_open.answered_at = Some(now);
            self.shared.counters.challenge_acks += 1;
            let hop = self.shared.paths.hop(half_open.path);
            self.replies.push(half_open.key, hop, half_open.bare_ack(now), &mut self.shared.counters);
        }
    }

    /// The peer takes the connection for complete, and only we have it wait.
    fn note_acknowledged(&mut self, place: u32, now: Instant) {
        if let Some((_, half_open)) = self.half_open.at_mut(place) {
            half_open.acknowledged_at.get_or_insert(now);
        }
    }

    /// A segment came for a handshake. Returns whose it is.
    ///
    /// What acknowledges another SYN-ACK than ours may be another process's: the peer sent its SYN again, and by another queue, because this process did
    /// not run for a while.
    pub(super) fn on_half_open_segment(&mut self, place: u32, segment: &Segment<'_>, now: Instant) -> Whose {
        let Some((_, half_open)) = self.half_open.at(place) else {
            return Whose::Ours;
        };
        if self.shared.config.strays_max > 0 && half_open.is_of_another(segment) {
            return Whose::Unknown;
        }
        let listener_id = half_open.listener;
        let Some(listener) = self.listeners.get(listener_id) else {
            return Whose::Ours;
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
            HalfOpenVerdict::Acknowledge => self.challenge_half_open(place, now),
            HalfOpenVerdict::ResetPeer => {
                let key = half_open.key;
                self.reset_peer(key, hop, segment);
            }
            HalfOpenVerdict::Remove => {
                self.shared.counters.embryonic_rsts += 1;
                self.shared.counters.attempt_fails += 1;
                self.forget_half_open(place);
            }
            HalfOpenVerdict::Defer => self.note_acknowledged(place, now),
            HalfOpenVerdict::Complete if listener.is_full() => {
                self.shared.counters.listen_overflows += 1;
                self.shared.counters.listen_drops += 1;
                self.note_acknowledged(place, now);
            }
            HalfOpenVerdict::Complete => self.complete(place, hop, segment, now),
        }
        Whose::Ours
    }
}
