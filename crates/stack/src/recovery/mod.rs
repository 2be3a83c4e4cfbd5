//! Loss recovery: which sent octets have arrived, which are lost, what to send again, and when.
//!
//! The connection tells [`Recovery`] of each transmission, each acknowledgement and each timeout, and asks it what may go out:
//!
//! ```text
//!  on_ack ─┬─▶ while allowance(cwnd) > 0:  next_retransmission(mss) ─▶ on_retransmitted
//!          │                               else new data ────────────▶ on_sent
//!  on_timeout ─▶ TimeoutAction                                         deadline ─▶ one timer
//! ```

mod events;

use clock::{Duration, Instant};

use crate::congestion::{Congestion, CongestionControl};
use crate::rtt::RttEstimator;
use crate::seq::{SeqNum, SeqRange};

pub use events::{Event, Events};

/// The parts of a connection, and of its engine, that recovery works on.
pub struct Context<'a> {
    /// The connection's congestion controller; recovery calls it in the order that the trait asks for.
    pub controller: &'a mut dyn CongestionControl,
    /// The connection's estimator; recovery gives it samples and backs it off.
    pub rtt: &'a mut RttEstimator,
    /// Where state of connections with data in flight comes from and returns to.
    pub pool: &'a mut FlightPool,
    /// Octets of payload that a full segment carries now, options taken off.
    pub mss: u32,
    /// Whether both sides agreed on SACK (RFC 2018).
    pub sack: bool,
    /// The time.
    pub now: Instant,
}

/// One segment going out.
#[derive(Clone, Copy, Debug)]
pub struct Transmission {
    /// Its octets of sequence space, SYN and FIN counted.
    pub range: SeqRange,
    /// Its TSval; zero without timestamps.
    pub timestamp_value: u32,
    /// Whether a SYN or FIN is part of `range`, so that a full segment is an octet longer.
    pub has_control_octet: bool,
}

/// What an acceptable segment with ACK says, and the state of the connection before it.
#[derive(Clone, Copy, Debug)]
pub struct AckSegment<'a> {
    /// SEG.ACK.
    pub ack: SeqNum,
    /// SND.UNA before this segment.
    pub snd_una: SeqNum,
    /// SND.NXT.
    pub snd_nxt: SeqNum,
    /// Blocks of the SACK option as received, not yet validated; the first may be a DSACK (RFC 2883).
    pub sack: &'a [SeqRange],
    /// Whether ECE is set and ECN was agreed on (RFC 3168).
    pub ece: bool,
    /// TSecr, if timestamps were agreed on.
    pub echoed: Option<u32>,
    /// Round-trip time by `echoed`, if it is fit to be a sample (RFC 7323, 4.1).
    pub timestamp_rtt: Option<Duration>,
    /// Whether the segment has payload, SYN or FIN; then it is no duplicate acknowledgement (RFC 5681, 2).
    pub has_payload: bool,
    /// Whether it changed the peer's window; then it is no duplicate acknowledgement either.
    pub window_changed: bool,
    /// Whether there is unsent data that the peer's window, as this segment left it, has room for.
    pub has_unsent: bool,
}

/// What an acknowledgement did.
#[derive(Clone, Copy, Debug, Default)]
pub struct AckOutcome {
    /// Octets that SND.UNA moved over.
    pub cumulative: u32,
    /// Octets newly known to have arrived.
    pub delivered: u32,
    /// Octets newly marked lost.
    pub lost: u32,
    /// The round-trip time that was taken as a sample.
    pub rtt: Option<Duration>,
    /// The window was reduced: the next new segment carries CWR if ECN was agreed on (RFC 3168, 6.1.2).
    pub congestion: Option<Congestion>,
    /// A recovery is complete.
    pub recovered: bool,
    /// A reduction proved spurious and was taken back.
    pub undone: bool,
    /// For counters.
    pub events: Events,
}

/// What the connection does after a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutAction {
    /// Nothing: the timer was early or has nothing to do. Ask for the deadline again.
    None,
    /// Segments were found lost: send what [`Recovery::allowance`] allows.
    LossFound,
    /// Send one segment of new data if there is any that the peer's window takes, else `last` again, whatever the allowance
    /// is; after `on_sent` or `on_retransmitted` call [`Recovery::on_probe_sent`] (RFC 8985, 7.3).
    SendProbe {
        /// The last segment in flight.
        last: SeqRange,
    },
    /// The retransmission timer expired (RFC 6298, 5.4): segments are marked lost, and the allowance has room for the first.
    Rto,
}

/// [`TimeoutAction`], with what a counter or a trace wants to know.
#[derive(Clone, Copy, Debug)]
pub struct TimeoutOutcome {
    /// What to do.
    pub action: TimeoutAction,
    /// Octets newly marked lost.
    pub lost: u32,
    /// The window was reduced, as in [`AckOutcome::congestion`].
    pub congestion: Option<Congestion>,
    /// For counters.
    pub events: Events,
}

/// Why a segment was sent again, for counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retransmission {
    /// In fast recovery (TCPFastRetrans).
    Fast,
    /// After a timeout (TCPSlowStartRetrans).
    SlowStart,
    /// Otherwise: a probe, or after the path MTU fell.
    Other,
}

/// State of loss recovery, named as Linux names it in `tcpi_ca_state`, and numbered so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Nothing unusual.
    #[default]
    Open = 0,
    /// Selective or duplicate acknowledgements arrive.
    Disorder = 1,
    /// The window shrinks because of ECN.
    Cwr = 2,
    /// Fast recovery.
    Recovery = 3,
    /// Recovery after a timeout.
    Loss = 4,
}

/// Whether a probe was new data (RFC 8985, 7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// It was, told by `on_sent`.
    NewData,
    /// It was the last segment again, told by `on_retransmitted`.
    Retransmission,
}

/// Flights that are not in use.
#[derive(Debug, Default)]
pub struct FlightPool {}

impl FlightPool {
    /// A pool that keeps at most `capacity` flights; what is returned beyond that is freed.
    pub fn new(_capacity: usize) -> FlightPool {
        FlightPool {}
    }
}

/// Loss detection and recovery of one connection's sending side.
#[derive(Debug)]
pub struct Recovery {
    state: State,
}

impl Recovery {
    /// Nothing sent yet; `iss` is the initial send sequence number.
    pub fn new(_iss: SeqNum) -> Recovery {
        Recovery { state: State::Open }
    }

    /// Before new data of an application that paused is sent: the window restarts if the pause was longer than the timeout
    /// (RFC 5681, 4.1).
    pub fn restart_after_idle(&mut self, _cx: &mut Context<'_>) {}

    /// New data went out, behind all sent before.
    pub fn on_sent(&mut self, _sent: &Transmission, _cx: &mut Context<'_>) {}

    /// Octets that were sent before went out again.
    pub fn on_retransmitted(&mut self, _sent: &Transmission, _cx: &mut Context<'_>) -> Retransmission {
        Retransmission::Other
    }

    /// A probe that [`TimeoutAction::SendProbe`] asked for went out; `snd_nxt` is after it.
    pub fn on_probe_sent(&mut self, _probe: Probe, _snd_nxt: SeqNum) {}

    /// The application has nothing more to send though the window has room: rate samples say so from now on.
    pub fn mark_app_limited(&mut self) {}

    /// Applies an acknowledgement; one that is after `snd_nxt` does nothing.
    pub fn on_ack(&mut self, _ack: &AckSegment<'_>, _cx: &mut Context<'_>) -> AckOutcome {
        AckOutcome::default()
    }

    /// The deadline passed.
    pub fn on_timeout(&mut self, _cx: &mut Context<'_>) -> TimeoutOutcome {
        TimeoutOutcome { action: TimeoutAction::None, lost: 0, congestion: None, events: Events::default() }
    }

    /// The path takes less than before: segments of more than `cx.mss` octets are marked lost, without a congestion response
    /// (RFC 1191, 6.5; RFC 8201, 5.4). Octets newly marked lost.
    pub fn on_mss_reduced(&mut self, _cx: &mut Context<'_>) -> u32 {
        0
    }

    /// Forgets all that is in flight, such as when the connection ends.
    pub fn clear(&mut self, _pool: &mut FlightPool) {}

    /// What to send again first: at most `mss` octets, or one more with a SYN or FIN.
    pub fn next_retransmission(&self, _mss: u32) -> Option<SeqRange> {
        None
    }

    /// Octets that may go out now, new or again, by a window of `cwnd` octets. The peer's window is the connection's matter.
    pub fn allowance(&self, cwnd: u32) -> u32 {
        cwnd
    }

    /// Octets in flight (RFC 6675's pipe).
    pub fn in_flight(&self) -> u32 {
        0
    }

    /// When to call [`Recovery::on_timeout`]; `None` while nothing is in flight.
    pub fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Whether nothing is in flight.
    pub fn is_idle(&self) -> bool {
        true
    }

    /// The state (`tcpi_ca_state`).
    pub fn state(&self) -> State {
        self.state
    }

    /// Retransmission timeouts since SND.UNA last moved (`tcpi_retransmits`; RFC 9293, 3.8.3's R1 and R2 count these).
    pub fn timeouts(&self) -> u32 {
        0
    }

    /// When the first octet that is not acknowledged was first sent (RFC 5482 counts from there).
    pub fn first_unacked_sent_at(&self) -> Option<Instant> {
        None
    }

    /// When something was last sent again while SND.UNA did not move for the first time.
    pub fn retransmitting_since(&self) -> Option<Instant> {
        None
    }

    /// Octets selectively acknowledged (`tcpi_sacked`), or what duplicate acknowledgements stand for.
    pub fn sacked(&self) -> u32 {
        0
    }

    /// Octets marked lost (`tcpi_lost`).
    pub fn lost(&self) -> u32 {
        0
    }

    /// Octets sent again and not yet known to have arrived (`tcpi_retrans`).
    pub fn retransmitted(&self) -> u32 {
        0
    }

    /// Octets delivered since the connection began.
    pub fn delivered(&self) -> u64 {
        0
    }
}
