//! Whether the congestion window limits what is sent (RFC 7661, in the way of Linux).

use crate::seq::SeqNum;

/// How much of the window the last round used.
#[derive(Debug, Default)]
pub(super) struct CwndUsage {
    /// The round ends when this is acknowledged.
    round_end: SeqNum,
    /// The most that was in flight in it.
    in_flight_max: u32,
    is_limited: bool,
}

impl CwndUsage {
    pub(super) fn start(&mut self, una: SeqNum) {
        *self = CwndUsage { round_end: una, ..CwndUsage::default() };
    }

    /// New data was sent, and `in_flight` octets are in flight with it.
    pub(super) fn on_sent(&mut self, una: SeqNum, snd_nxt: SeqNum, in_flight: u32, cwnd: u32, mss: u32) {
        let is_limited = in_flight.saturating_add(mss) > cwnd;
        let is_new_round = una.is_at_or_after(self.round_end);
        if is_new_round || is_limited || (!self.is_limited && in_flight > self.in_flight_max) {
            *self = CwndUsage { round_end: snd_nxt, in_flight_max: in_flight, is_limited };
        }
    }

    /// Whether the window may grow by an acknowledgement: it was used up, or half of it in slow start.
    pub(super) fn is_limited(&self, cwnd: u32, ssthresh: u32) -> bool {
        self.is_limited || (cwnd < ssthresh && cwnd < self.in_flight_max.saturating_mul(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_that_used_the_window_up_counts_until_the_next_one() {
        let mut usage = CwndUsage::default();
        usage.start(SeqNum(0));
        usage.on_sent(SeqNum(0), SeqNum(9_500), 9_500, 10_000, 1000);
        usage.on_sent(SeqNum(2_000), SeqNum(9_600), 7_600, 10_000, 1000);
        assert!(usage.is_limited(10_000, 5_000));
        usage.on_sent(SeqNum(9_600), SeqNum(10_600), 1_000, 10_000, 1000);
        assert!(!usage.is_limited(10_000, 5_000));
        assert!(!usage.is_limited(10_000, 20_000));
        usage.on_sent(SeqNum(9_600), SeqNum(14_700), 5_100, 10_000, 1000);
        assert!(usage.is_limited(10_000, 20_000));
    }
}
