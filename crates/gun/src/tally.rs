//! What came of the questions, as a whole and second by second.

use std::collections::BTreeMap;

use clock::{Duration, Instant};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Nanoseconds of the longest time that is told apart.
const LONGEST: u64 = 60_000_000_000;
/// Significant digits of times.
const DIGITS: u8 = 3;
/// A generator with less of its time to spare was the bottleneck, or nearly.
const SPARE_MIN: f64 = 0.03;
/// So is one that sent a hundredth of its questions later than this.
const LAG_MAX: Duration = Duration::from_millis(1);
/// A question that was sent so much later than due says nothing of the server: the whole load was another.
const SENT_MIN: f64 = 0.97;

/// Counts while a load runs.
#[derive(Debug)]
pub struct Tally {
    start: Instant,
    counts: Counts,
    rcodes: BTreeMap<u16, u64>,
    latency: Histogram<u64>,
    lag: Histogram<u64>,
    /// Of the second that is under way.
    second: Histogram<u64>,
    seconds: Vec<Second>,
    faults: BTreeMap<&'static str, u64>,
    /// Answers that took longer are no good ones.
    within: Duration,
    counts_before: Counts,
    busy: Duration,
    spare: Duration,
}

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Questions that were sent.
    pub sent: u64,
    /// Those of them that the system refused, or had no room for.
    pub refused: u64,
    /// Answers to questions under way, that repeat the question.
    pub answered: u64,
    /// Answers that are cut (TC).
    pub truncated: u64,
    /// Answers to questions under way that are to another question than was asked. A sample is looked at.
    pub mismatched: u64,
    /// Answers to nothing that is under way: late, or doubled.
    pub unexpected: u64,
    /// What came and is no answer.
    pub malformed: u64,
    /// Octets of all answers.
    pub octets: u64,
    /// Requests that were due, and given up before a connection was free for them.
    #[serde(default)]
    pub unsent: u64,
    /// Answers that came within the time that a search allows; all of them without one.
    #[serde(default)]
    pub in_time: u64,
}

/// A second of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Questions sent in it.
    pub sent: u64,
    /// Answers that came in it.
    pub answered: u64,
    /// Their times, in microseconds.
    pub latency_us: Percentiles,
}

/// Times that so many hundredths did not exceed, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// The shortest.
    pub min: f64,
    /// Half of them.
    pub p50: f64,
    /// Nine tenths.
    pub p90: f64,
    /// All but a hundredth.
    pub p99: f64,
    /// All but a thousandth.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

/// What came of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Questions a second that were to be sent; 0 if each was sent as soon as an answer made room for it.
    pub offered: u32,
    /// Seconds.
    pub length_s: f64,
    /// What was counted.
    pub counts: Counts,
    /// Questions without an answer.
    pub lost: u64,
    /// Answers by response code, as numbers.
    pub rcodes: BTreeMap<u16, u64>,
    /// From when questions were due to their answers.
    pub latency_us: Percentiles,
    /// From when questions were due to when they were sent.
    pub lag_us: Percentiles,
    /// The part of its time in which the generator had nothing to do.
    pub spare: f64,
    /// Why the generator was the bottleneck, if it was.
    pub bottleneck: Option<String>,
    /// What went wrong with connections, by name: how many requests it cost, or connections where it cost none.
    #[serde(default)]
    pub faults: BTreeMap<String, u64>,
    /// Second by second.
    pub seconds: Vec<Second>,
}

impl Tally {
    /// Nothing yet.
    pub fn new(start: Instant) -> Tally {
        Tally {
            start,
            counts: Counts::default(),
            rcodes: BTreeMap::new(),
            latency: histogram(),
            lag: histogram(),
            second: histogram(),
            seconds: Vec::new(),
            faults: BTreeMap::new(),
            within: Duration::MAX,
            counts_before: Counts::default(),
            busy: Duration::ZERO,
            spare: Duration::ZERO,
        }
    }

    /// What is counted so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    pub(crate) fn counts_mut(&mut self) -> &mut Counts {
        &mut self.counts
    }

    pub(crate) fn on_sent(&mut self, due: Instant, now: Instant) {
        self.counts.sent += 1;
        self.on_taken(due, now);
    }

    /// The generator was so late to notice what was due, whatever became of it then.
    pub(crate) fn on_taken(&mut self, due: Instant, now: Instant) {
        self.lag.saturating_record(now.since(due).as_nanos());
    }

    /// What was sent is to be sent once more.
    pub(crate) fn on_unsent(&mut self) {
        self.counts.sent = self.counts.sent.saturating_sub(1);
    }

    /// A request leaves.
    pub(crate) fn on_begun(&mut self) {
        self.counts.sent += 1;
    }

    /// It cost so many requests.
    pub(crate) fn on_fault(&mut self, name: &'static str, times: u64) {
        *self.faults.entry(name).or_default() += times;
    }

    /// The load begins now: what happened before was its preparation.
    pub(crate) fn begin(&mut self, now: Instant, within: Duration) {
        (self.start, self.within) = (now, within);
    }

    pub(crate) fn on_answer(&mut self, due: Instant, now: Instant, code: Option<u16>) {
        self.counts.answered += 1;
        self.counts.in_time += u64::from(now.since(due) <= self.within);
        if let Some(code) = code {
            *self.rcodes.entry(code).or_default() += 1;
        }
        self.second.saturating_record(now.since(due).as_nanos());
    }

    /// So much time went by, and there was something to do in it or not.
    pub fn on_time(&mut self, time: Duration, was_busy: bool) {
        *(if was_busy { &mut self.busy } else { &mut self.spare }) += time;
    }

    /// Ends each second that is over; the last of them, if there is one.
    pub fn end_seconds(&mut self, now: Instant) -> Option<&Second> {
        let before = self.seconds.len();
        while now >= self.start + Duration::from_secs(self.seconds.len() as u64 + 1) {
            self.end_second();
        }
        (self.seconds.len() > before).then(|| self.seconds.last())?
    }

    fn end_second(&mut self) {
        let latency_us = percentiles(&self.second);
        self.latency.add(&self.second).expect("both have the same bounds");
        self.second.reset();
        let before = std::mem::replace(&mut self.counts_before, self.counts);
        let (sent, answered) =
            (self.counts.sent.saturating_sub(before.sent), self.counts.answered - before.answered);
        self.seconds.push(Second { sent, answered, latency_us });
    }

    /// What came of it: `lost` questions got no answer, of `offered` a second that were to be sent for this time.
    pub fn summary(mut self, offered: u32, length: Duration, lost: u64) -> Summary {
        self.latency.add(&self.second).expect("both have the same bounds");
        let whole = (self.busy + self.spare).as_secs_f64();
        let spare = if whole > 0.0 { self.spare.as_secs_f64() / whole } else { 1.0 };
        let mut summary = Summary {
            offered,
            length_s: length.as_secs_f64(),
            counts: self.counts,
            lost,
            rcodes: self.rcodes,
            latency_us: percentiles(&self.latency),
            lag_us: percentiles(&self.lag),
            spare,
            bottleneck: None,
            faults: self.faults.into_iter().map(|(name, times)| (name.to_owned(), times)).collect(),
            seconds: self.seconds,
        };
        summary.bottleneck = summary.find_bottleneck();
        summary
    }
}

impl Summary {
    /// Questions a second that were sent.
    pub fn sent_rate(&self) -> f64 {
        self.counts.sent as f64 / self.length_s
    }

    /// Questions a second that the generator would have sent, had there been a connection for each.
    pub fn due_rate(&self) -> f64 {
        (self.counts.sent + self.counts.unsent) as f64 / self.length_s
    }

    /// Answers a second.
    pub fn answered_rate(&self) -> f64 {
        self.counts.answered as f64 / self.length_s
    }

    /// Answers a second that came in time.
    pub fn in_time_rate(&self) -> f64 {
        self.counts.in_time as f64 / self.length_s
    }

    fn find_bottleneck(&self) -> Option<String> {
        let Counts { sent, refused, .. } = self.counts;
        if self.due_rate() < f64::from(self.offered) * SENT_MIN {
            let part = 100.0 * self.due_rate() / f64::from(self.offered);
            return Some(format!("it sent {part:.0} % of what it was to send"));
        }
        if refused as f64 > sent as f64 * (1.0 - SENT_MIN) {
            return Some(format!("the system refused {refused} of its {sent} packets"));
        }
        if self.lag_us.p99 > LAG_MAX.as_secs_f64() * 1e6 {
            return Some(format!("it sent a hundredth {:.1} ms late and later", self.lag_us.p99 / 1e3));
        }
        (self.spare < SPARE_MIN).then(|| format!("it had {:.0} % of its core to spare", 100.0 * self.spare))
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, DIGITS).expect("the bounds are in order")
}

fn percentiles(times: &Histogram<u64>) -> Percentiles {
    if times.is_empty() {
        return Percentiles::default();
    }
    let at = |quantile| times.value_at_quantile(quantile) as f64 / 1e3;
    let (min, max) = (times.min() as f64 / 1e3, times.max() as f64 / 1e3);
    Percentiles { min, p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1000)
    }

    /// A load of 1000 questions in a second, each sent `lag` microseconds late and answered after 100.
    fn load(lag: u64) -> Tally {
        let mut tally = Tally::new(at(0));
        for number in 0..1000 {
            let due = number * 1000;
            tally.on_sent(at(due), at(due + lag));
            tally.on_answer(at(due), at(due + 100), Some(0));
        }
        tally.on_time(SECOND / 2, true);
        tally.on_time(SECOND / 2, false);
        tally
    }

    #[test]
    fn a_load_with_time_to_spare_has_no_bottleneck() {
        let summary = load(3).summary(1000, SECOND, 0);
        assert_eq!((summary.bottleneck.clone(), summary.spare), (None, 0.5));
        assert_eq!((summary.sent_rate(), summary.answered_rate()), (1000.0, 1000.0));
        assert!((summary.latency_us.p99 - 100.0).abs() < 1.0 && (summary.lag_us.p50 - 3.0).abs() < 0.1);
    }

    #[test]
    fn it_says_when_it_was_the_bottleneck_itself() {
        let bottleneck = |tally: Tally, offered| tally.summary(offered, SECOND, 0).bottleneck.unwrap();
        assert_eq!(bottleneck(load(3), 2000), "it sent 50 % of what it was to send");
        assert_eq!(bottleneck(load(2000), 1000), "it sent a hundredth 2.0 ms late and later");
        let mut full = load(3);
        full.on_time(SECOND * 100, true);
        assert_eq!(bottleneck(full, 1000), "it had 0 % of its core to spare");
        let mut refused = load(3);
        refused.counts_mut().refused = 100;
        assert_eq!(bottleneck(refused, 1000), "the system refused 100 of its 1000 packets");
    }

    #[test]
    fn seconds_have_their_own_counts_and_times() {
        let mut tally = Tally::new(at(0));
        tally.on_sent(at(0), at(0));
        tally.on_answer(at(0), at(50), Some(0));
        assert_eq!(tally.end_seconds(at(999_999)), None);
        assert_eq!(tally.end_seconds(at(1_000_000)).unwrap().answered, 1);
        tally.on_answer(at(0), at(1_200_000), Some(3));
        let second = tally.end_seconds(at(3_000_000)).unwrap().clone();
        assert_eq!((second.answered, second.latency_us), (0, Percentiles::default()), "the third was empty");
        let summary = tally.summary(1, SECOND * 3, 0);
        assert!((summary.seconds[1].latency_us.max / 1.2e6 - 1.0).abs() < 0.01);
        assert_eq!(summary.rcodes, BTreeMap::from([(0, 1), (3, 1)]));
        assert!(summary.latency_us.min < 51.0 && summary.latency_us.max > 1.19e6, "all of them");
    }
}
