//! State that exists only while data is in flight.

use clock::Instant;

use super::cwnd_usage::CwndUsage;
use super::duplicate_acks::DuplicateAcks;
use super::forward_rto::ForwardRto;
use super::prr::Prr;
use super::rack::Rack;
use super::scoreboard::Scoreboard;
use crate::seq::{SeqNum, SeqRange};

/// A timer that expires before the retransmission timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EarlyTimer {
    /// RACK waits for reordered segments (RFC 8985, 6.2, step 5).
    Reordering(Instant),
    /// A tail loss probe is due (RFC 8985, 7.2).
    Probe(Instant),
}

impl EarlyTimer {
    pub(super) fn at(self) -> Instant {
        match self {
            EarlyTimer::Reordering(at) | EarlyTimer::Probe(at) => at,
        }
    }
}

/// State of a connection with octets between SND.UNA and SND.NXT.
#[derive(Debug, Default)]
pub(super) struct Flight {
    pub(super) scoreboard: Scoreboard,
    pub(super) rack: Rack,
    pub(super) prr: Prr,
    pub(super) duplicates: DuplicateAcks,
    pub(super) frto: ForwardRto,
    pub(super) usage: CwndUsage,
    /// When the first of the segments of the last rate sample was sent.
    pub(super) rate_start: Instant,
    /// When the retransmission timer expires.
    pub(super) rto_at: Instant,
    pub(super) early: Option<EarlyTimer>,
    /// Retransmission timeouts since SND.UNA moved.
    pub(super) timeouts: u32,
    /// First retransmission since SND.UNA moved.
    pub(super) retransmitting_since: Option<Instant>,
    /// Octets that go out whatever the window is: the retransmission after a timeout.
    pub(super) forced: u32,
    /// A probe of a larger path MTU, until it is found lost.
    pub(super) mtu_probe: Option<SeqRange>,
    /// Octets of a full segment at the last call.
    pub(super) mss: u32,
}

impl Flight {
    /// RFC 6675's pipe, or what duplicate acknowledgements leave of it.
    pub(super) fn in_flight(&self) -> u32 {
        self.scoreboard.pipe().saturating_sub(self.duplicates.arrived())
    }

    /// SND.UNA, or `otherwise` if nothing is in flight.
    pub(super) fn una(&self, otherwise: SeqNum) -> SeqNum {
        self.scoreboard.front().map_or(otherwise, |front| front.range.start)
    }

    /// Forgets everything, for a connection whose SND.UNA and SND.NXT are `una`. Field by field, as this happens for each
    /// request of an idle connection.
    fn start(&mut self, una: SeqNum) {
        let Flight { scoreboard, rack, prr, duplicates, frto, usage, .. } = self;
        scoreboard.clear();
        rack.start(una);
        prr.stop();
        duplicates.clear();
        *frto = ForwardRto::Off;
        usage.start(una);
        self.rate_start = Instant::ZERO;
        self.rto_at = Instant::ZERO;
        self.early = None;
        self.mtu_probe = None;
        self.timeouts = 0;
        self.retransmitting_since = None;
        self.forced = 0;
        self.mss = 0;
    }
}

/// Flights that are not in use. Traffic of requests and responses takes and returns them without allocating.
#[derive(Debug, Default)]
pub struct FlightPool {
    #[expect(clippy::vec_box, reason = "a box is what a connection takes")]
    free: Vec<Box<Flight>>,
    capacity: usize,
}

impl FlightPool {
    /// A pool that keeps at most `capacity` flights; what is returned beyond that is freed.
    pub fn new(capacity: usize) -> FlightPool {
        FlightPool { free: Vec::new(), capacity }
    }

    pub(super) fn take(&mut self, una: SeqNum) -> Box<Flight> {
        let mut flight = self.free.pop().unwrap_or_default();
        flight.start(una);
        flight
    }

    pub(super) fn give_back(&mut self, flight: Box<Flight>) {
        if self.free.len() < self.capacity {
            self.free.push(flight);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_reuses_flights_and_keeps_as_many_as_it_may() {
        let mut pool = FlightPool::new(1);
        let (one, two) = (pool.take(SeqNum(1)), pool.take(SeqNum(2)));
        let address = &raw const *one;
        pool.give_back(one);
        pool.give_back(two);
        assert_eq!(pool.free.len(), 1);
        assert!(core::ptr::eq(address, &raw const *pool.take(SeqNum(3))));
    }
}
