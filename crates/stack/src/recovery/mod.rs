//! Loss recovery: which sent octets have arrived, which are lost, what to send again, and when.
//!
//! The connection reports each transmission, each acknowledgement and each timeout to [`Recovery`], and asks it what may be sent:
//!
//! ```text
//!  on_ack ─┬─▶ while allowance(cwnd) has room:  next_retransmission(mss) ─▶ on_retransmitted
//!          │                                    else new data ────────────▶ on_sent
//!  on_timeout ─▶ TimeoutAction                                             deadline ─▶ one timer
//! ```
//!
//! With SACK, RACK-TLP (RFC 8985) finds losses on a scoreboard (RFC 2018, 6675). Without SACK, duplicate
//! acknowledgements are counted (RFC 5681, 6582). PRR (RFC 9937) paces fast recovery. Timeouts follow RFC 6298, and are undone if
//! they were spurious (RFC 3522, 3708, 5682). Limited transmit (RFC 3042) needs no code: data that a selective or duplicate
//! acknowledgement reports has left the pipe, so as much new data may be sent.
//!
//! [`Recovery`] is small and part of the connection. The rest is in a flight from the engine's [`FlightPool`], while data
//! is in flight. Start at [`Recovery::on_ack`], in `acknowledge.rs`.

mod acknowledge;
mod cwnd_usage;
mod delivery_rate;
mod duplicate_acks;
mod episodes;
mod events;
mod flight;
mod forward_rto;
mod interface;
mod news;
mod prr;
mod rack;
mod sack_blocks;
mod sacked_ranges;
mod scoreboard;
mod segment;
mod tail_loss_probe;
mod timeouts;
mod undo;

#[cfg(test)]
mod tests;

use clock::{Duration, Instant};

use self::delivery_rate::Delivered;
use self::flight::Flight;
use self::rack::ReorderingWindow;
use self::segment::{Segment, Standing};
use self::tail_loss_probe::TailLossProbe;
use self::undo::Undo;
use crate::seq::{SeqNum, SeqRange};

pub use events::{Event, Events};
pub use flight::FlightPool;
pub use interface::{
    AckOutcome, AckSegment, Context, Probe, Retransmission, State, TimeoutAction, TimeoutOutcome,
    Transmission,
};

/// Loss detection and recovery of one connection's sending side.
#[derive(Debug)]
pub struct Recovery {
    /// While something is in flight.
    flight: Option<Box<Flight>>,
    delivered: Delivered,
    last_sent_at: Instant,
    reordering: ReorderingWindow,
    probe: TailLossProbe,
    undo: Undo,
    /// SND.NXT when the last reduction of the window began: acknowledged, it ends a recovery (RFC 6582's recover), and what
    /// is behind it may reduce the window again (RFC 3168, 6.1.2). Kept close behind SND.UNA if that is far beyond.
    recovery_point: SeqNum,
    /// SND.UNA before it moved last (RFC 6582, 4.1's prev_highest_ack).
    una_before: SeqNum,
    state: State,
}

impl Recovery {
    /// Nothing sent yet; `iss` is the initial send sequence number.
    pub fn new(iss: SeqNum) -> Recovery {
        Recovery {
            flight: None,
            delivered: Delivered::default(),
            last_sent_at: Instant::ZERO,
            reordering: ReorderingWindow::default(),
            probe: TailLossProbe::default(),
            undo: Undo::default(),
            recovery_point: iss,
            una_before: iss,
            state: State::Open,
        }
    }

    /// Before new data is sent while nothing is in flight, and before [`Recovery::allowance`] is asked: tells the controller
    /// how long the pause was (RFC 5681, 4.1). Unless the window `shrinks`, no pause is longer than the timeout.
    pub fn restart_after_idle(&mut self, shrinks: bool, cx: &mut Context<'_>) {
        if self.flight.is_none() && self.last_sent_at != Instant::ZERO {
            let idle = cx.now.since(self.last_sent_at);
            let rto = if shrinks { cx.rtt.rto() } else { Duration::MAX };
            cx.controller.on_restart_after_idle(idle, rto, cx.now);
        }
    }

    /// New data went out, behind all sent before.
    pub fn on_sent(&mut self, sent: &Transmission, cx: &mut Context<'_>) {
        let Transmission { range, timestamp_value, has_control_octet } = *sent;
        if range.is_empty() {
            return;
        }
        let flight = self.flight.get_or_insert_with(|| {
            self.delivered.restart(cx.now);
            let mut flight = cx.pool.take(range.start);
            flight.rate_start = cx.now;
            flight.rto_at = cx.now + cx.rtt.rto(); // RFC 6298, 5.1
            flight
        });
        flight.mss = cx.mss;
        cx.controller.on_sent(cx.now, flight.in_flight());
        let segment = Segment {
            range,
            sent_at: cx.now,
            first_sent_at: cx.now,
            snapshot: self.delivered.snapshot(flight.rate_start, cx.now),
            timestamp_value,
            standing: Standing::InFlight,
            transmissions: 1,
            has_control_octet,
        };
        flight.scoreboard.push(segment, cx.mss);
        flight.prr.on_sent(range.len());
        let (una, in_flight) = (flight.una(range.start), flight.in_flight());
        flight.usage.on_sent(una, range.end, in_flight, cx.controller.cwnd(), cx.mss);
        self.last_sent_at = cx.now;
        self.arm_probe(cx);
    }

    /// What is in flight now was sent by another stack, at times that are not known: it counts as sent again, so that it is no
    /// sample of the round-trip time (RFC 6298, 3) and no evidence of reordering.
    pub fn mark_taken_over(&mut self) {
        if let Some(flight) = &mut self.flight {
            flight.scoreboard.mark_sent_before();
            flight.rack.reconsider(&flight.scoreboard);
        }
    }

    /// Octets that were sent before went out again.
    pub fn on_retransmitted(&mut self, sent: &Transmission, cx: &mut Context<'_>) -> Retransmission {
        let range = sent.range;
        let Some(flight) = self.flight.as_deref_mut().filter(|_| !range.is_empty()) else {
            return Retransmission::Other;
        };
        flight.mss = cx.mss;
        cx.controller.on_sent(cx.now, flight.in_flight());
        let snapshot = self.delivered.snapshot(flight.rate_start, cx.now);
        flight.scoreboard.retransmit(range, cx.now, sent.timestamp_value, snapshot);
        flight.rack.on_retransmitted(range, cx.now, &flight.scoreboard);
        flight.prr.on_sent(range.len());
        flight.forced = 0;
        flight.retransmitting_since.get_or_insert(cx.now);
        if range.start == flight.una(range.start) {
            flight.rto_at = cx.now + cx.rtt.rto(); // the first segment has its own time again
        }
        self.undo.on_retransmitted(range.len(), sent.timestamp_value);
        self.last_sent_at = cx.now;
        match self.state {
            State::Recovery => Retransmission::Fast,
            State::Loss => Retransmission::SlowStart,
            State::Open | State::Disorder | State::Cwr => Retransmission::Other,
        }
    }

    /// A probe that [`TimeoutAction::SendProbe`] asked for went out; `snd_nxt` is after it.
    pub fn on_probe_sent(&mut self, probe: Probe, snd_nxt: SeqNum) {
        self.probe.on_sent(probe, snd_nxt);
        if let Some(flight) = &mut self.flight {
            flight.early = None; // one probe at a time
        }
    }

    /// What was sent last is a probe of a larger path MTU: if it alone is lost, the window stays (RFC 4821, 7.4).
    pub fn mark_mtu_probe(&mut self, probe: SeqRange) {
        if let Some(flight) = &mut self.flight {
            flight.mtu_probe = Some(probe);
        }
    }

    /// The application has nothing more to send though the window has room: rate samples say so from now on.
    pub fn mark_app_limited(&mut self) {
        self.delivered.mark_app_limited(self.in_flight());
    }

    /// The path takes less than before: segments of more than `cx.mss` octets are marked lost, without a congestion response
    /// (RFC 1191, 6.4; RFC 8201, 5.4). Octets newly marked lost.
    pub fn on_mss_reduced(&mut self, cx: &mut Context<'_>) -> u32 {
        let Some(flight) = &mut self.flight else { return 0 };
        flight.mss = cx.mss;
        flight.scoreboard.mark_lost_where(|segment| segment.len() > segment.len_max(cx.mss))
    }

    /// The handshake is over, and data went out before: its timers start now.
    pub fn restart_timers(&mut self, cx: &Context<'_>) {
        if let Some(flight) = &mut self.flight {
            flight.rto_at = cx.now + cx.rtt.rto();
            flight.early = None;
        }
        self.arm_probe(cx);
    }

    /// Forgets all that is in flight, such as when the connection ends.
    pub fn clear(&mut self, pool: &mut FlightPool) {
        if let Some(flight) = self.flight.take() {
            pool.give_back(flight);
        }
        self.state = State::Open;
    }

    /// What to send again first: at most `mss` octets, or one more with a SYN or FIN. None while F-RTO has new data go first
    /// (RFC 5682, 2.1, step 2b).
    pub fn next_retransmission(&self, mss: u32) -> Option<SeqRange> {
        let flight = self.flight.as_deref().filter(|flight| !flight.frto.holds_retransmissions())?;
        flight.scoreboard.next_lost(mss)
    }

    /// Octets that may go out now, new or again, by a window of `cwnd` octets: a segment goes if all of it fits. The peer's
    /// window is the connection's matter.
    pub fn allowance(&self, cwnd: u32) -> u32 {
        let Some(flight) = &self.flight else { return cwnd };
        if flight.scoreboard.waiting() == 0 && flight.scoreboard.is_full(flight.mss) {
            return 0; // so many tiny segments are in flight that more would cost too much memory
        }
        let window = flight.prr.window().unwrap_or(cwnd);
        window.saturating_sub(flight.in_flight()).max(flight.forced)
    }

    /// Octets in flight (RFC 6675's pipe).
    pub fn in_flight(&self) -> u32 {
        self.flight.as_ref().map_or(0, |flight| flight.in_flight())
    }

    /// When to call [`Recovery::on_timeout`]; `None` while nothing is in flight.
    pub fn deadline(&self) -> Option<Instant> {
        let flight = self.flight.as_ref()?;
        let early = flight.early.map_or(flight.rto_at, |early| early.at());
        Some(flight.rto_at.min(early))
    }

    /// Whether nothing is between SND.UNA and SND.NXT.
    pub fn is_idle(&self) -> bool {
        self.flight.is_none()
    }

    /// Whether an acknowledgement without SACK blocks and ECN-echo can tell of nothing. Blocks may: what is acknowledged may
    /// have arrived twice.
    pub fn is_quiet(&self) -> bool {
        self.flight.is_none() && !self.probe.is_outstanding()
    }

    /// The state (`tcpi_ca_state`).
    pub fn state(&self) -> State {
        self.state
    }

    /// Retransmission timeouts since SND.UNA moved (`tcpi_retransmits`): what RFC 9293, 3.8.3 compares with R1 and R2.
    pub fn timeouts(&self) -> u32 {
        self.flight.as_ref().map_or(0, |flight| flight.timeouts)
    }

    /// When the first octet that is not acknowledged was first sent: RFC 5482's timeout counts from there.
    pub fn first_unacked_sent_at(&self) -> Option<Instant> {
        self.flight.as_ref()?.scoreboard.front().map(|front| front.first_sent_at)
    }

    /// When something was first sent again since SND.UNA moved.
    pub fn retransmitting_since(&self) -> Option<Instant> {
        self.flight.as_ref()?.retransmitting_since
    }

    /// Octets selectively acknowledged (`tcpi_sacked`), or what duplicate acknowledgements stand for.
    pub fn sacked(&self) -> u32 {
        self.flight.as_ref().map_or(0, |flight| flight.scoreboard.sacked() + flight.duplicates.arrived())
    }

    /// Octets marked lost, sent again or not (`tcpi_lost`).
    pub fn lost(&self) -> u32 {
        self.flight.as_ref().map_or(0, |flight| flight.scoreboard.lost())
    }

    /// Octets sent again and not yet known to have arrived (`tcpi_retrans`).
    pub fn retransmitted(&self) -> u32 {
        self.flight.as_ref().map_or(0, |flight| flight.scoreboard.retransmitted())
    }

    /// Most octets by which a segment was overtaken on the way (`tcpi_reordering` in octets).
    pub fn reordering(&self) -> u32 {
        self.reordering.distance()
    }

    /// Octets delivered since the connection began.
    pub fn delivered(&self) -> u64 {
        self.delivered.total()
    }
}
