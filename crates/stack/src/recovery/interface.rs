//! Inputs and outputs of recovery.

use clock::{Duration, Instant};

use super::events::Events;
use super::flight::FlightPool;
use crate::congestion::{Congestion, CongestionControl};
use crate::rtt::RttEstimator;
use crate::seq::{SeqNum, SeqRange};

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
    /// Whether there is unsent data that would go out now if the congestion window let it: the peer's window, as this
    /// segment left it, has room, and Nagle's rule does not hold it back. F-RTO sends it instead of what is lost.
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
    /// The window was reduced: the next segment of new data carries CWR if ECN was agreed on (RFC 3168, 6.1.2).
    pub congestion: Option<Congestion>,
    /// Congestion is echoed though the window is one segment already and cannot be less: new data waits for the time of a
    /// retransmission timeout (RFC 3168, 6.1.2).
    pub pause: bool,
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
    /// Nothing: the timer was early. Ask for the deadline again.
    None,
    /// Segments were found lost: send what [`Recovery::allowance`](super::Recovery::allowance) allows.
    LossFound,
    /// Send one segment of new data if there is any that the peer's window takes, else `last` again, whatever the allowance
    /// is; after `on_sent` or `on_retransmitted` call [`on_probe_sent`](super::Recovery::on_probe_sent) (RFC 8985, 7.3).
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
