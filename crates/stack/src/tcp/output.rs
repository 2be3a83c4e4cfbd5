//! Decides what is sent, and writes it.

use crate::congestion::CongestionControl;
use crate::pacer::window_rate;
use crate::seq::SeqRange;
use crate::tcp::connection::{Connection, Shared, State};
use crate::tcp::super_segment::Packet;
use crate::tcp::timers::Timer;
use crate::tcp::transfer::Transfer;
use clock::{Duration, Instant};

/// Longest time that cork and `MSG_MORE` hold data back with nothing in flight, as on Linux.
const HOLD_MAX: Duration = Duration::from_millis(200);

impl Connection {
    /// Whether [`Connection::poll_transmit`] would send something, as far as can be told cheaply.
    #[inline]
    pub(crate) fn has_something_due(&self) -> bool {
        self.receive.is_ack_due()
            || self.flags.handshake_due
            || self.flags.reset_due
            || self.flags.probe_due
            || self.transfer.as_ref().is_some_and(|transfer| transfer.loss_probe.is_some())
            || self.may_send() && (self.unsent_len() > 0 || self.is_fin_due() || self.lost() > 0)
    }

    /// Writes one packet into `room` if one is due: a segment, or the headers of several.
    ///
    /// The order: what ends or begins the connection, what was lost, what is new, probes, and a bare acknowledgement if
    /// nothing carried it.
    pub(crate) fn poll_transmit(
        &mut self,
        room: &mut [u8],
        shared: &mut Shared,
        now: Instant,
    ) -> Option<Packet> {
        if self.flags.reset_due {
            return self.transmit_reset(room, shared, now).map(Packet::whole);
        }
        if self.flags.handshake_due {
            return self.transmit_handshake(room, shared, now).map(Packet::whole);
        }
        if self.may_send() {
            if let Some(probe) = self.due_loss_probe() {
                return self.transmit_loss_probe(probe, room, shared, now).map(Packet::whole);
            }
            if let Some(range) = self.due_retransmission() {
                return self.transmit_again(range, room, shared, now).map(|(len, _)| Packet::whole(len));
            }
            if let Some(octets) = self.due_new_octets(shared, now) {
                return match self.super_segment_octets(octets, shared, now) {
                    Some(octets) => self.transmit_super_segment(octets, room, shared, now),
                    None => self.transmit_new(octets, room, shared, now).map(Packet::whole),
                };
            }
        }
        if self.flags.probe_due {
            self.flags.probe_due = false;
            return self.transmit_bare(self.send.snd_una - 1, room, shared, now).map(Packet::whole);
        }
        if self.receive.is_ack_due() && self.state != State::SynSent {
            return self.transmit_bare(self.send.snd_nxt, room, shared, now).map(Packet::whole);
        }
        None
    }

    /// After a segment was sent: whether to call [`Connection::poll_transmit`] again.
    pub(crate) fn has_more_to_send(&mut self, now: Instant) -> bool {
        let has_more = self.has_something_due();
        if !has_more {
            self.on_all_sent(now);
        }
        has_more
    }

    /// All data was sent: from now on the application limits the rate.
    fn on_all_sent(&mut self, now: Instant) {
        self.note_send_limit(now);
        self.flags.push = false;
        if let Some(transfer) = &mut self.transfer {
            transfer.recovery.mark_app_limited();
        }
    }

    /// RFC 7413, 4.2.2: a child made by Fast Open may answer before the handshake is complete, others may not. RFC 9293, 3.10.4:
    /// a FIN of which no data is in front does not wait for the end of the handshake either.
    fn may_send(&self) -> bool {
        let is_open = self.flags.syn_acknowledged || self.flags.fast_open_child;
        let is_lone_fin = || self.flags.write_closed && self.send.queue.is_empty();
        (is_open || is_lone_fin()) && (self.state.may_send() || self.state == State::SynReceived)
    }

    /// Whether to send a FIN for the first time.
    pub(crate) fn is_fin_due(&self) -> bool {
        self.flags.write_closed && !self.flags.fin_was_sent && self.may_send()
    }

    pub(super) fn due_retransmission(&self) -> Option<SeqRange> {
        let Transfer { recovery, controller, .. } = self.transfer.as_deref()?;
        if recovery.lost() == 0 {
            return None;
        }
        let range = recovery.next_retransmission(u32::from(self.send.mss))?;
        (recovery.allowance(controller.cwnd()) > 0).then_some(range)
    }

    /// Octets of the peer's window that are not in use.
    pub(crate) fn usable_window(&self) -> u32 {
        let end = self.data_una() + self.send.snd_wnd;
        if end.is_after(self.send.snd_nxt) { end.since(self.send.snd_nxt) } else { 0 }
    }

    /// Octets of new data that one segment carries now; zero for a bare FIN; `None` if nothing may go out.
    pub(super) fn due_new_octets(&mut self, shared: &mut Shared, now: Instant) -> Option<u32> {
        let unsent = self.unsent_len();
        if unsent == 0 {
            self.on_all_sent(now);
            return (self.is_fin_due() && self.usable_window() > 0).then_some(0);
        }
        let transfer = self.wake(shared, now);
        let allowance = transfer.recovery.allowance(transfer.controller.cwnd());
        let usable = self.usable_window();
        let mss = u32::from(self.send.mss);
        let record = self.record_from(self.send.snd_nxt).min(unsent);
        let octets = record.min(mss).min(usable);
        // A window that takes a part of a segment is used only if that part is worth it.
        self.wake(shared, now).cwnd_limited = allowance < octets;
        self.note_send_limit(now);
        if octets == 0 || allowance < octets {
            return None;
        }
        let is_followed = octets == record && record < unsent;
        if octets < mss && !is_followed && !self.may_send_small(octets, unsent, now) {
            return None;
        }
        if !self.is_departure_due(now) {
            return None;
        }
        Some(self.due_mtu_probe((record, allowance), shared, now).unwrap_or(octets))
    }

    /// RFC 9293, 3.7.4 and 3.8.6.2.1: Nagle's rule, cork, and the sender's part against silly windows.
    pub(super) fn may_send_small(&mut self, octets: u32, unsent: u32, now: Instant) -> bool {
        if octets < unsent {
            // The window cuts: worth it for half of the largest window, or when the override timer says so.
            return octets >= self.send.max_window / 2 || self.flags.window_override;
        }
        if self.flags.write_closed || self.flags.push || self.is_sending_urgent() {
            return true;
        }
        if self.options.cork || self.flags.held_for_more {
            // With something in flight, its acknowledgement comes first.
            if self.is_all_acknowledged() && !self.is_timer_set(Timer::Send) {
                self.set_timer(Timer::Send, now + HOLD_MAX);
            }
            return false;
        }
        self.options.no_delay || !self.send.has_small_in_flight()
    }

    /// Whether the pacer lets the next segment go; if not, a timer will.
    pub(super) fn is_departure_due(&mut self, now: Instant) -> bool {
        let at = self.transfer.as_ref().map_or(now, |transfer| transfer.pacer.earliest_departure(now));
        if at <= now {
            return true;
        }
        self.set_timer(Timer::Send, at);
        false
    }

    pub(super) fn pacing_rate(&self) -> Option<u64> {
        let controller = &self.transfer.as_ref()?.controller;
        let Some(limit) = self.options.pacing_rate_max else {
            return controller.pacing_rate();
        };
        let wanted = controller.pacing_rate();
        let wanted =
            wanted.or_else(|| window_rate(controller.cwnd(), controller.ssthresh(), self.rtt.srtt()));
        Some(wanted.map_or(limit, |rate| rate.min(limit)))
    }
}
