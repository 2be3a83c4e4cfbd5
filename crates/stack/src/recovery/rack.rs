//! RACK: a segment is lost if one that was sent sufficiently later has arrived (RFC 8985, 6).
//!
//! Nothing is stored while segments are delivered in order. When the newest delivered one (by time of sending)
//! overtakes others, those become suspects, in the order of sending, until they are delivered,
//! lost, or sent again. Each transmission becomes a suspect at most once, so the cost of acknowledgements is bounded by what they change.

use std::collections::VecDeque;

use clock::{Duration, Instant};

use super::scoreboard::Scoreboard;
use super::segment::Segment;
use crate::seq::{SeqNum, SeqRange};

/// Segments selectively acknowledged that end the wait for reordered ones, if none was reordered before
/// (RFC 5681's and RFC 8985's DupThresh).
pub(super) const DUP_THRESH: u32 = 3;

/// Recoveries after which a window that DSACKs widened is narrow again (RFC 8985, 6.2, step 4).
const WIDE_RECOVERIES: u8 = 16;

/// RACK.reo_wnd and what widens it; kept while nothing is in flight.
#[derive(Debug)]
pub(super) struct ReorderingWindow {
    /// RACK.dsack_round.
    dsack_round: Option<SeqNum>,
    /// RACK.reo_wnd_mult.
    quarters: u8,
    /// RACK.reo_wnd_persist.
    persist: u8,
    /// RACK.reordering_seen.
    reordering_seen: bool,
    /// Most octets from the start of a segment that came late to the end of what had come before it.
    distance: u32,
}

impl Default for ReorderingWindow {
    fn default() -> ReorderingWindow {
        ReorderingWindow { dsack_round: None, quarters: 1, persist: 0, reordering_seen: false, distance: 0 }
    }
}

impl ReorderingWindow {
    /// Widens the window once a round trip in which the peer told of a duplicate (RFC 8985, 6.2, step 4).
    pub(super) fn on_ack(&mut self, una: SeqNum, snd_nxt: SeqNum, has_dsack: bool) {
        if self.dsack_round.is_some_and(|round| una.is_at_or_after(round)) {
            self.dsack_round = None;
        }
        if has_dsack && self.dsack_round.is_none() {
            self.dsack_round = Some(snd_nxt);
            self.quarters = self.quarters.saturating_add(1);
            self.persist = WIDE_RECOVERIES;
        }
    }

    /// How far segments were overtaken, in octets.
    pub(super) fn distance(&self) -> u32 {
        self.distance
    }

    /// A recovery proved spurious: segments were late, not lost.
    pub(super) fn on_spurious_recovery(&mut self) {
        self.reordering_seen = true;
    }

    /// A recovery is over.
    pub(super) fn on_recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.quarters = 1;
        }
    }

    /// How long a segment may be late (RFC 8985, 6.2, step 4).
    pub(super) fn span(&self, is_sure: bool, min_rtt: Duration, srtt: Duration) -> Duration {
        if !self.reordering_seen && is_sure {
            return Duration::ZERO;
        }
        (min_rtt * u32::from(self.quarters) / 4).min(srtt)
    }
}

/// One transmission that may be lost.
#[derive(Clone, Copy, Debug)]
struct Suspect {
    range: SeqRange,
    sent_at: Instant,
}

/// Which segment was sent last of those delivered, and which were sent before it and are not.
#[derive(Debug, Default)]
pub(super) struct Rack {
    /// RACK.xmit_ts.
    newest_sent_at: Instant,
    /// RACK.end_seq.
    newest_end: SeqNum,
    /// RACK.rtt.
    rtt: Duration,
    /// RACK.fack: the end of the highest segment delivered.
    highest_end: SeqNum,
    /// First transmissions up to here are suspects if they are not delivered.
    passed: SeqNum,
    /// By time of sending, as are `resent`.
    suspects: VecDeque<Suspect>,
    /// Retransmissions that are not suspects yet.
    resent: VecDeque<Suspect>,
}

/// What an acknowledgement says of the time at which a segment arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) now: Instant,
    pub(super) min_rtt: Duration,
    /// TSecr.
    pub(super) echoed: Option<u32>,
}

/// What [`Rack::detect_losses`] found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Detected {
    /// Octets marked lost.
    pub(super) lost: u32,
    /// When the last of the suspects would be lost.
    pub(super) wait_until: Option<Instant>,
}

impl Rack {
    /// Starts with nothing sent from `una` on.
    pub(super) fn start(&mut self, una: SeqNum) {
        self.newest_sent_at = Instant::ZERO;
        self.newest_end = una;
        self.rtt = Duration::ZERO;
        self.highest_end = una;
        self.passed = una;
        self.suspects.clear();
        self.resent.clear();
    }

    /// Takes a segment that is newly delivered (RFC 8985, 6.2, steps 1 to 3).
    pub(super) fn on_delivered(
        &mut self,
        segment: &Segment,
        arrival: Arrival,
        window: &mut ReorderingWindow,
    ) {
        let end = segment.range.end;
        if end.is_at_or_after(self.highest_end) {
            self.highest_end = end;
        } else if !segment.was_retransmitted() {
            window.reordering_seen = true;
            window.distance = window.distance.max(self.highest_end.since(segment.range.start));
        }
        let rtt = arrival.now.since(segment.sent_at);
        if segment.was_retransmitted() && is_of_earlier_transmission(segment, rtt, arrival) {
            return;
        }
        self.rtt = rtt;
        if !self.was_sent_before_newest(segment.sent_at, end) {
            self.newest_sent_at = segment.sent_at;
            self.newest_end = end;
        }
    }

    /// Notes that `range` is sent again at `now`.
    pub(super) fn on_retransmitted(&mut self, range: SeqRange, now: Instant, scoreboard: &Scoreboard) {
        while self.resent.front().is_some_and(|it| !scoreboard.is_pending(it.range, it.sent_at)) {
            self.resent.pop_front();
        }
        self.resent.push_back(Suspect { range, sent_at: now });
    }

    /// Whether everything is delivered in the order in which it was sent, so that nothing is suspect.
    pub(super) fn is_in_order(&self, scoreboard: &Scoreboard) -> bool {
        scoreboard.sacked() == 0
            && scoreboard.retransmitted() == 0
            && scoreboard
                .front()
                .is_none_or(|front| !self.was_sent_before_newest(front.sent_at, front.range.end))
    }

    /// Marks lost what was sent more than RACK.rtt and `window` ago and before the newest delivered segment (RFC 8985, 6.2,
    /// step 5).
    pub(super) fn detect_losses(
        &mut self,
        scoreboard: &mut Scoreboard,
        window: Duration,
        now: Instant,
    ) -> Detected {
        self.find_suspects(scoreboard);
        let patience = self.rtt + window;
        let mut lost = 0;
        while let Some(&suspect) = self.suspects.front() {
            if suspect.sent_at + patience <= now {
                lost += scoreboard.mark_lost(suspect.range, suspect.sent_at);
            } else if scoreboard.is_pending(suspect.range, suspect.sent_at) {
                break;
            }
            self.suspects.pop_front();
        }
        while self.suspects.back().is_some_and(|it| !scoreboard.is_pending(it.range, it.sent_at)) {
            self.suspects.pop_back();
        }
        Detected { lost, wait_until: self.suspects.back().map(|last| last.sent_at + patience) }
    }

    /// Whether `segment` is late when the retransmission timer expires (RFC 8985, 6.3).
    pub(super) fn is_late(&self, segment: &Segment, srtt: Duration, window: Duration, now: Instant) -> bool {
        let rtt = if self.rtt.is_zero() { srtt } else { self.rtt };
        segment.sent_at + rtt + window <= now
    }

    /// Suspects all that is pending anew, after marks of loss were taken back.
    pub(super) fn reconsider(&mut self, scoreboard: &Scoreboard) {
        self.suspects.clear();
        self.resent.clear();
        let pending = scoreboard.iter().filter(|it| it.was_retransmitted() && it.standing.is_pending());
        self.resent.extend(pending.map(|it| Suspect { range: it.range, sent_at: it.sent_at }));
        self.resent.make_contiguous().sort_by_key(|it| it.sent_at);
        if let Some(front) = scoreboard.front() {
            self.passed = front.range.start;
        }
    }

    /// Adds to the suspects what was sent before the newest delivered segment, in order of time.
    fn find_suspects(&mut self, scoreboard: &Scoreboard) {
        let mut index = scoreboard.index_of(self.passed);
        loop {
            let resent = self.next_resent();
            match self.next_passed(scoreboard, &mut index) {
                Some(original) if resent.is_none_or(|it| original.sent_at <= it.sent_at) => {
                    self.suspects.push_back(original);
                    self.passed = original.range.end;
                    index += 1;
                }
                _ => {
                    let Some(resent) = resent else { return };
                    self.resent.pop_front();
                    self.suspects.push_back(resent);
                }
            }
        }
    }

    fn next_resent(&self) -> Option<Suspect> {
        self.resent.front().copied().filter(|it| self.was_sent_before_newest(it.sent_at, it.range.end))
    }

    /// The next first transmission that is pending and was sent before the newest delivered one.
    fn next_passed(&mut self, scoreboard: &Scoreboard, index: &mut usize) -> Option<Suspect> {
        while let Some(segment) = scoreboard.get(*index) {
            if !segment.was_retransmitted() {
                if !self.was_sent_before_newest(segment.sent_at, segment.range.end) {
                    return None;
                }
                if segment.standing.is_pending() {
                    return Some(Suspect { range: segment.range, sent_at: segment.sent_at });
                }
            }
            self.passed = segment.range.end;
            *index += 1;
        }
        None
    }

    /// RACK_sent_after of the newest delivered segment.
    fn was_sent_before_newest(&self, sent_at: Instant, end: SeqNum) -> bool {
        sent_at < self.newest_sent_at || (sent_at == self.newest_sent_at && end.is_before(self.newest_end))
    }
}

/// Whether the arrival of a retransmitted segment must be that of an earlier transmission (RFC 8985, 6.2, step 2).
fn is_of_earlier_transmission(segment: &Segment, rtt: Duration, arrival: Arrival) -> bool {
    let echoes_earlier = |echoed| SeqNum(echoed).is_before(SeqNum(segment.timestamp_value));
    rtt < arrival.min_rtt || arrival.echoed.is_some_and(echoes_earlier)
}

#[cfg(test)]
mod tests {
    use super::super::delivery_rate::Snapshot;
    use super::super::segment::Standing;
    use super::super::tests::seq_range;
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    /// RFC 8985, 6.2, step 2. Sent at 100, sent again at 200 with TSval 200, acknowledged later.
    #[test]
    fn which_transmission_arrived_is_told_by_the_echo_or_by_the_time_it_took() {
        let segment = Segment {
            range: seq_range(1, 2),
            sent_at: at(200),
            first_sent_at: at(100),
            snapshot: Snapshot::default(),
            timestamp_value: 200,
            standing: Standing::Resent,
            transmissions: 2,
            has_control_octet: false,
        };
        let table = [
            (250, Some(200), at(200)),
            (250, Some(199), at(0)),
            (250, None, at(200)),
            (229, Some(200), at(0)),
        ];
        for (now, echoed, newest) in table {
            let (mut rack, mut window) = (Rack::default(), ReorderingWindow::default());
            let arrival = Arrival { now: at(now), min_rtt: Duration::from_millis(30), echoed };
            rack.on_delivered(&segment, arrival, &mut window);
            assert_eq!(rack.newest_sent_at, newest, "{now} {echoed:?}");
        }
    }
}
