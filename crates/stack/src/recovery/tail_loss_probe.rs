//! Tail loss probes (RFC 8985, 7).

use clock::Duration;

use super::Probe;
use crate::rtt::RttEstimator;
use crate::seq::{SeqNum, SeqRange};

/// Time to the probe without a round-trip time (RFC 8985, 7.2).
const PTO_INITIAL: Duration = Duration::from_secs(1);

/// Longest delay of an acknowledgement at the peer, which a lone segment may meet (TLP.max_ack_delay).
const ACK_DELAY_MAX: Duration = Duration::from_millis(200);

/// Added otherwise: without it, a round-trip time of microseconds would probe when either side just is slow to run.
/// Linux adds two ticks.
const SLACK: Duration = Duration::from_millis(2);

/// Time from now to the probe, before it is bounded by the retransmission timer (RFC 8985, 7.2).
pub(super) fn probe_timeout(rtt: &RttEstimator, is_one_segment: bool) -> Duration {
    if !rtt.has_sample() {
        return PTO_INITIAL;
    }
    2 * rtt.srtt() + if is_one_segment { ACK_DELAY_MAX } else { SLACK }
}

/// A probe without an answer so far; kept while nothing is in flight.
#[derive(Debug, Default)]
pub(super) struct TailLossProbe {
    /// TLP.end_seq, and TLP.is_retrans.
    episode: Option<(SeqNum, Probe)>,
}

impl TailLossProbe {
    /// Whether no other probe may be sent.
    pub(super) fn is_outstanding(&self) -> bool {
        self.episode.is_some()
    }

    /// A probe went out; `snd_nxt` is after it.
    pub(super) fn on_sent(&mut self, probe: Probe, snd_nxt: SeqNum) {
        self.episode = Some((snd_nxt, probe));
    }

    /// Recovery takes over.
    pub(super) fn cancel(&mut self) {
        self.episode = None;
    }

    /// Says whether the acknowledgement `ack` shows that the probe repaired a loss (RFC 8985, 7.4.2).
    ///
    /// `is_bare_duplicate`: a duplicate acknowledgement without a SACK option.
    pub(super) fn on_ack(&mut self, ack: SeqNum, dsack: Option<SeqRange>, is_bare_duplicate: bool) -> bool {
        let Some((end, probe)) = self.episode.filter(|(end, _)| ack.is_at_or_after(*end)) else {
            return false;
        };
        let original_arrived = dsack.is_some_and(|dsack| dsack.end == end) || is_bare_duplicate;
        let is_over = probe == Probe::NewData || original_arrived || ack.is_after(end);
        if is_over {
            self.episode = None;
        }
        is_over && probe == Probe::Retransmission && !original_arrived
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> clock::Instant {
        clock::Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn the_timeout_is_two_round_trips_and_the_ack_delay_for_a_lone_segment_rfc8985_7_2() {
        let mut rtt = RttEstimator::default();
        assert_eq!(probe_timeout(&rtt, true), Duration::from_secs(1));
        rtt.on_sample(Duration::from_millis(50), at(50));
        assert_eq!(probe_timeout(&rtt, true), Duration::from_millis(300));
        assert_eq!(probe_timeout(&rtt, false), Duration::from_millis(102));
    }

    /// RFC 8985, 7.4.2.
    #[test]
    fn a_probe_is_judged_by_the_acknowledgement_that_covers_it() {
        let (end, dsack) = (SeqNum(100), Some(SeqRange::new(SeqNum(90), SeqNum(100))));
        let table = [
            (Probe::NewData, end, None, false, false, false),
            (Probe::Retransmission, end - 1, None, false, false, true),
            (Probe::Retransmission, end, dsack, false, false, false),
            (Probe::Retransmission, end, None, true, false, false),
            (Probe::Retransmission, end, None, false, false, true),
            (Probe::Retransmission, end + 1, dsack, false, false, false),
            (Probe::Retransmission, end + 1, None, false, true, false),
        ];
        for (probe, ack, dsack, is_bare_duplicate, repaired, outstanding) in table {
            let mut tlp = TailLossProbe::default();
            tlp.on_sent(probe, end);
            assert_eq!(tlp.on_ack(ack, dsack, is_bare_duplicate), repaired, "{probe:?} {ack:?} {dsack:?}");
            assert_eq!(tlp.is_outstanding(), outstanding, "{probe:?} {ack:?} {dsack:?}");
        }
    }
}
