//! Proportional rate reduction (RFC 9937, which replaces RFC 6937).

/// Paces a recovery: as many octets go out as arrive, in proportion to how much the window shrinks.
#[derive(Debug, Default)]
pub(super) struct Prr {
    /// Octets delivered since the recovery began.
    delivered: u32,
    /// Octets sent since.
    out: u32,
    /// RecoverFS: octets that were in flight when it began.
    flight_size: u32,
    /// Octets that may be in flight until the next acknowledgement.
    window: u32,
    is_active: bool,
}

/// What one acknowledgement, or the reordering timer, reports to the reduction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivery {
    pub(super) delivered: u32,
    /// The pipe after it.
    pub(super) in_flight: u32,
    /// The window to end with.
    pub(super) ssthresh: u32,
    /// SafeACK: SND.UNA moved, and nothing more was found lost.
    pub(super) is_safe: bool,
    pub(super) mss: u32,
}

impl Prr {
    /// A recovery begins with `flight_size` octets sent and neither cumulatively nor selectively acknowledged before the
    /// acknowledgement that begins it.
    pub(super) fn start(&mut self, flight_size: u32) {
        *self = Prr { flight_size: flight_size.max(1), is_active: true, ..Prr::default() };
    }

    /// The window of the controller holds again.
    pub(super) fn stop(&mut self) {
        self.is_active = false;
    }

    pub(super) fn is_active(&self) -> bool {
        self.is_active
    }

    /// Sets what may go out (RFC 9937, 6.2): CEIL(prr_delivered * ssthresh / RecoverFS) - prr_out while more is in flight
    /// than should be, then what was delivered (CRB) and a segment more if that is safe (SSRB).
    pub(super) fn on_delivered(&mut self, delivery: Delivery) {
        let Delivery { delivered, in_flight, ssthresh, is_safe, mss } = delivery;
        self.delivered = self.delivered.saturating_add(delivered);
        let mut send = if in_flight > ssthresh {
            let due = u64::from(self.delivered) * u64::from(ssthresh);
            let due = due.div_ceil(u64::from(self.flight_size.max(1)));
            u32::try_from(due).unwrap_or(u32::MAX).saturating_sub(self.out)
        } else {
            let conserving = self.delivered.saturating_sub(self.out).max(delivered);
            let growing = if is_safe { mss } else { 0 };
            conserving.saturating_add(growing).min(ssthresh - in_flight)
        };
        if self.out == 0 || in_flight == 0 {
            send = send.max(mss); // the fast retransmission itself; or none would ask for the next
        }
        self.window = in_flight.saturating_add(send);
    }

    pub(super) fn on_sent(&mut self, octets: u32) {
        self.out = self.out.saturating_add(octets);
    }

    /// Octets that may be in flight now; none outside of a recovery.
    pub(super) fn window(&self) -> Option<u32> {
        self.is_active.then_some(self.window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;

    /// Applies one acknowledgement of one segment and sends all that is allowed, in segments; segments sent.
    fn step(prr: &mut Prr, pipe: &mut u32, ssthresh: u32, is_safe: bool) -> u32 {
        let delivery = Delivery { delivered: MSS, in_flight: *pipe, ssthresh, is_safe, mss: MSS };
        prr.on_delivered(delivery);
        let mut segments = 0;
        while *pipe + MSS <= prr.window().unwrap() {
            *pipe += MSS;
            segments += 1;
            prr.on_sent(MSS);
        }
        segments
    }

    #[test]
    fn one_segment_goes_out_for_two_delivered_when_the_window_halves_rfc9937_6_2() {
        let (mut prr, mut pipe) = (Prr::default(), 20 * MSS);
        prr.start(20 * MSS);
        let mut sent = Vec::new();
        pipe -= MSS; // the one that is lost
        for _ in 0..18 {
            pipe -= MSS;
            sent.push(step(&mut prr, &mut pipe, 10 * MSS, false));
        }
        assert_eq!(sent, [1, 0, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 1, 1]);
        assert_eq!(pipe, 10 * MSS);
    }

    #[test]
    fn below_the_threshold_what_is_delivered_is_sent_and_one_more_if_safe_rfc9937_6_2() {
        for (is_safe, expected) in [(false, 1), (true, 2)] {
            let (mut prr, mut pipe) = (Prr::default(), 4 * MSS);
            prr.start(20 * MSS);
            prr.on_sent(MSS);
            prr.delivered = MSS;
            pipe -= MSS;
            assert_eq!(step(&mut prr, &mut pipe, 10 * MSS, is_safe), expected);
        }
    }

    #[test]
    fn an_empty_pipe_lets_one_segment_go_however_little_arrived() {
        let mut prr = Prr::default();
        prr.start(20 * MSS);
        prr.on_sent(5 * MSS);
        let little = Delivery { delivered: 10, in_flight: 0, ssthresh: 10 * MSS, is_safe: false, mss: MSS };
        prr.on_delivered(little);
        assert_eq!(prr.window(), Some(MSS));
    }

    #[test]
    fn the_proportion_is_rounded_up_rfc9937_6_2() {
        let mut prr = Prr::default();
        prr.start(3 * MSS);
        let one =
            Delivery { delivered: MSS + 1, in_flight: 2500, ssthresh: 2 * MSS, is_safe: false, mss: 10 };
        prr.on_delivered(one);
        assert_eq!(prr.window(), Some(2500 + 668)); // 667.3
    }

    #[test]
    fn the_first_retransmission_goes_out_whatever_is_in_flight_rfc9937_6_2() {
        let mut prr = Prr::default();
        prr.start(20 * MSS);
        let nothing =
            Delivery { delivered: 0, in_flight: 19 * MSS, ssthresh: 10 * MSS, is_safe: false, mss: MSS };
        prr.on_delivered(nothing);
        assert_eq!(prr.window(), Some(20 * MSS));
    }
}
