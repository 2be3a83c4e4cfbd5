//! Congestion control: how much may be in flight, and how fast it is sent.
//!
//! A controller learns what was acknowledged and what was lost, and returns a window and, if it paces, a rate. [`crate::recovery`]
//! decides what is lost. Quantities are octets, rates octets a second.

mod bbr;
mod controller;
mod cubic;
mod episode;
mod hystart;
mod new_reno;

#[cfg(test)]
mod bottleneck;
#[cfg(test)]
mod tests;

use clock::{Duration, Instant};

use crate::seq::SeqNum;

pub use bbr::Bbr;
pub use controller::Controller;
pub use cubic::Cubic;
pub use new_reno::NewReno;

/// Which controller a connection uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// RFC 5681 with RFC 6582.
    NewReno,
    /// RFC 9438, with the slow start of RFC 9406.
    #[default]
    Cubic,
    /// Bottleneck bandwidth and round-trip time.
    Bbr,
}

impl Algorithm {
    /// Name as Linux's `TCP_CONGESTION` has it.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::NewReno => "reno",
            Algorithm::Cubic => "cubic",
            Algorithm::Bbr => "bbr",
        }
    }

    /// The algorithm of that name, if there is one.
    pub fn from_name(name: &str) -> Option<Algorithm> {
        [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Bbr].into_iter().find(|it| it.name() == name)
    }
}

/// What one acknowledgement told.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// When it arrived.
    pub now: Instant,
    /// Octets newly known to have arrived, cumulatively or selectively acknowledged; may be zero.
    pub delivered: u32,
    /// Of those, octets that `snd_una` moved over.
    pub cumulative: u32,
    /// Octets in flight (RFC 6675's pipe) before this acknowledgement.
    pub prior_in_flight: u32,
    /// Octets in flight after it.
    pub in_flight: u32,
    /// The sample that this acknowledgement gave, if it gave one.
    pub rtt: Option<Duration>,
    /// Smoothed round-trip time (RFC 6298); zero before the first sample.
    pub srtt: Duration,
    /// Least round-trip time seen lately (RFC 8985's window).
    pub min_rtt: Duration,
    /// Delivery rate sample, if this acknowledgement gave one.
    pub rate: Option<RateSample>,
    /// Whether the window, and not the application or the peer, limited what was sent in the last round.
    pub cwnd_limited: bool,
    /// Whether a recovery (fast or after a timeout) is going on: then PRR or slow start after loss sets the pace.
    pub in_recovery: bool,
    /// Acknowledged up to here.
    pub snd_una: SeqNum,
    /// Sent up to here.
    pub snd_nxt: SeqNum,
    /// Octets newly marked lost: by this acknowledgement, or by a timer since the one before.
    pub lost: u32,
}

/// Delivery rate over the flight of one segment (Linux's tcp_rate; draft-cheng-iccrg-delivery-rate-estimation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateSample {
    /// Octets delivered over `interval`.
    pub delivered: u64,
    /// Time over which they were.
    pub interval: Duration,
    /// Total octets delivered on the connection when the newest acknowledged segment was sent.
    pub prior_delivered: u64,
    /// Whether the application left the window unused when that segment was sent.
    pub app_limited: bool,
}

/// Why the window must shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// Loss found by acknowledgements: once a recovery, at its start.
    Loss,
    /// ECN-echo: once a round trip (RFC 3168, 6.1.2).
    Ecn,
    /// The retransmission timer expired.
    Timeout,
}

/// A congestion controller.
///
/// Order of calls: `on_sent` for each transmission; `on_congestion` when an event begins, before the `on_acked` of the same
/// acknowledgement; `on_recovered` when the recovery point is acknowledged; `on_undo` when the event proves spurious, in
/// place of `on_recovered`.
pub trait CongestionControl {
    /// Name as `TCP_CONGESTION` has it.
    fn name(&self) -> &'static str;

    /// Octets that may be in flight.
    fn cwnd(&self) -> u32;

    /// Slow-start threshold in octets; `u32::MAX` before the first congestion.
    fn ssthresh(&self) -> u32;

    /// Rate at which to pace in octets a second; `None` sends what the window allows at once.
    fn pacing_rate(&self) -> Option<u64>;

    /// Whether fast recovery sends by proportional rate reduction (RFC 6937) towards `ssthresh`; if not, `cwnd` and
    /// `pacing_rate` hold in recovery too.
    fn reduces_proportionally(&self) -> bool {
        true
    }

    /// A segment was sent; `in_flight` is before it.
    fn on_sent(&mut self, now: Instant, in_flight: u32);

    /// An acknowledgement arrived.
    fn on_acked(&mut self, acked: &Acked);

    /// A congestion event begins. `flight_size` is RFC 5681's FlightSize: octets sent and not cumulatively acknowledged
    /// (`snd_nxt - snd_una`) when it was found, lost and selectively acknowledged ones among them.
    ///
    /// A sender that gets ECN-echo at a window of one segment must slow down by its timer (RFC 3168, 6.1.2); that is
    /// the caller's.
    fn on_congestion(&mut self, congestion: Congestion, flight_size: u32, now: Instant);

    /// The recovery that the last event began is complete.
    fn on_recovered(&mut self, now: Instant);

    /// The last event was spurious: what it took is given back.
    fn on_undo(&mut self, now: Instant);

    /// Nothing was in flight for `idle` and the application sends again (RFC 5681, 4.1; RFC 9438, 5.8).
    fn on_restart_after_idle(&mut self, idle: Duration, rto: Duration, now: Instant);

    /// The SYN or SYN-ACK had to be sent again: the initial window is one segment (RFC 5681, 3.1).
    fn on_handshake_loss(&mut self);

    /// The handshake showed this round-trip time; nothing has been sent yet.
    fn on_handshake_rtt(&mut self, _srtt: Duration) {}

    /// The connection rested: it begins with this window and this threshold.
    fn resume(&mut self, cwnd: u32, ssthresh: u32);

    /// The segment size changed, such as by path MTU discovery.
    fn set_mss(&mut self, mss: u32);
}

/// No window is larger: the largest that a receiver can offer (RFC 7323, 2.2).
const MAX_WINDOW: u32 = 65_535 << 14;

/// Window that a connection starts with: ten segments (RFC 6928).
pub fn initial_window(mss: u32) -> u32 {
    let segments = |count: u32| mss.saturating_mul(count).min(MAX_WINDOW);
    segments(10).min(segments(2).max(14_600))
}

/// `mss` within what the option of a SYN can say (RFC 9293, 3.7.1).
fn valid_mss(mss: u32) -> u32 {
    mss.clamp(1, 65_535)
}

/// `cwnd` and `ssthresh` of a sender that was idle for longer than its timeout, `None` if it was not.
///
/// The window halves with each timeout that passed, down to the initial one, as on Linux (RFC 2861, 3.1): RFC 5681, 4.1, would have
/// the initial one after the first. `ssthresh` keeps three quarters of the window that the path has carried (RFC 7661, 4.4).
fn window_after_idle(
    cwnd: u32,
    ssthresh: u32,
    mss: u32,
    idle: Duration,
    rto: Duration,
) -> Option<(u32, u32)> {
    if idle <= rto {
        return None;
    }
    let least = cwnd.min(initial_window(mss));
    let timeouts = (idle.as_nanos() - 1) / rto.as_nanos().max(1);
    let halved = cwnd.checked_shr(timeouts.min(32) as u32).unwrap_or(0);
    Some((halved.max(least), ssthresh.max(cwnd / 4 * 3)))
}
