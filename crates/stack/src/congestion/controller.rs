//! The controller of a connection: one of three.

use clock::{Duration, Instant};

use super::{Acked, Algorithm, Bbr, Congestion, CongestionControl, Cubic, NewReno};

/// A congestion controller by value, for connections to hold. An idle one allocates nothing, except BBR's model.
#[derive(Clone, Debug)]
pub enum Controller {
    /// RFC 5681.
    NewReno(NewReno),
    /// RFC 9438.
    Cubic(Cubic),
    /// draft-ietf-ccwg-bbr.
    Bbr(Box<Bbr>),
}

impl Controller {
    /// A controller for segments of `mss` octets. `seed` is the connection's own and sets apart in time what BBR flows
    /// do periodically; equal seeds behave alike.
    pub fn new(algorithm: Algorithm, mss: u32, seed: u32, now: Instant) -> Controller {
        match algorithm {
            Algorithm::NewReno => Controller::NewReno(NewReno::new(mss)),
            Algorithm::Cubic => Controller::Cubic(Cubic::new(mss)),
            Algorithm::Bbr => Controller::Bbr(Box::new(Bbr::new(mss, seed, now))),
        }
    }

    /// Which one it is.
    pub fn algorithm(&self) -> Algorithm {
        match self {
            Controller::NewReno(_) => Algorithm::NewReno,
            Controller::Cubic(_) => Algorithm::Cubic,
            Controller::Bbr(_) => Algorithm::Bbr,
        }
    }
}

/// Calls a method of whichever controller it is. Not by `dyn`: what is a field, as `cwnd` mostly is, is then read as one.
macro_rules! each {
    ($controller:expr, $one:ident => $call:expr) => {
        match $controller {
            Controller::NewReno($one) => $call,
            Controller::Cubic($one) => $call,
            Controller::Bbr($one) => $call,
        }
    };
}

impl CongestionControl for Controller {
    fn name(&self) -> &'static str {
        each!(self, it => it.name())
    }

    #[inline]
    fn cwnd(&self) -> u32 {
        each!(self, it => it.cwnd())
    }

    #[inline]
    fn ssthresh(&self) -> u32 {
        each!(self, it => it.ssthresh())
    }

    #[inline]
    fn pacing_rate(&self) -> Option<u64> {
        each!(self, it => it.pacing_rate())
    }

    fn reduces_proportionally(&self) -> bool {
        each!(self, it => it.reduces_proportionally())
    }

    #[inline]
    fn on_sent(&mut self, now: Instant, in_flight: u32) {
        each!(self, it => it.on_sent(now, in_flight));
    }

    fn on_acked(&mut self, acked: &Acked) {
        each!(self, it => it.on_acked(acked));
    }

    fn on_congestion(&mut self, congestion: Congestion, flight_size: u32, now: Instant) {
        each!(self, it => it.on_congestion(congestion, flight_size, now));
    }

    fn on_recovered(&mut self, now: Instant) {
        each!(self, it => it.on_recovered(now));
    }

    fn on_undo(&mut self, now: Instant) {
        each!(self, it => it.on_undo(now));
    }

    fn on_restart_after_idle(&mut self, idle: Duration, rto: Duration, now: Instant) {
        each!(self, it => it.on_restart_after_idle(idle, rto, now));
    }

    fn on_handshake_loss(&mut self) {
        each!(self, it => it.on_handshake_loss());
    }

    fn on_handshake_rtt(&mut self, srtt: Duration) {
        each!(self, it => it.on_handshake_rtt(srtt));
    }

    fn resume(&mut self, cwnd: u32, ssthresh: u32) {
        each!(self, it => it.resume(cwnd, ssthresh));
    }

    fn set_mss(&mut self, mss: u32) {
        each!(self, it => it.set_mss(mss));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_idle_connections_afford_their_controllers() {
        assert!(size_of::<Controller>() <= 120, "{} octets", size_of::<Controller>());
    }

    #[test]
    fn algorithms_go_by_the_names_that_linux_has() {
        for (algorithm, name) in
            [(Algorithm::NewReno, "reno"), (Algorithm::Cubic, "cubic"), (Algorithm::Bbr, "bbr")]
        {
            let controller = Controller::new(algorithm, 1460, 1, Instant::ZERO);
            assert_eq!((controller.name(), controller.algorithm()), (name, algorithm));
            assert_eq!(Algorithm::from_name(name), Some(algorithm));
        }
        assert_eq!(Algorithm::from_name("vegas"), None);
    }
}
