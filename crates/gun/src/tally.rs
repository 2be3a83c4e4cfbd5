//! Counts while a load runs, as a whole and second by second.

use std::collections::BTreeMap;

use clock::{Duration, Instant};
use hdrhistogram::Histogram;

use crate::schedule::Schedule;
use crate::streams::Fault;
use crate::summary::{Counts, Percentiles, Second, Summary, is_error};

/// Nanoseconds of the longest time that is told apart: a day.
const LONGEST: u64 = 86_400_000_000_000;
/// Significant digits of times.
const DIGITS: u8 = 3;
/// Letters of a reason at most.
const REASON_MAX: usize = 200;
const SECOND: Duration = Duration::from_secs(1);
/// So long after the end of sending, answers belong to the second that ends there: few of them make no second of their own.
const GRACE: Duration = Duration::from_millis(100);
/// The first of so many parts of a load tells what an answer takes before a server has a queue.
const EARLY_PART: u64 = 10;
/// It has so many questions at least: fewer tell little of times that differ.
const EARLY_MIN: u64 = 30;
/// A server is behind if chance explains it no better than once in forty loads: so many standard deviations.
const DEVIATIONS: f64 = 2.0;
/// The shortest last second, so that its rates are numbers.
const SPAN_MIN: Duration = Duration::from_millis(1);

/// Counts while a load runs.
#[derive(Debug)]
pub struct Tally {
    start: Instant,
    counts: Counts,
    rcodes: BTreeMap<u16, u64>,
    latency: Histogram<u64>,
    lag: Histogram<u64>,
    /// Over connections: until requests were begun.
    sent_late: Option<Histogram<u64>>,
    /// Of the second that is under way: its times, and when it began and ends.
    second: Histogram<u64>,
    second_began: Instant,
    second_ends: Instant,
    seconds: Vec<Second>,
    /// By the second in which questions were due.
    fates: Vec<Fate>,
    faults: BTreeMap<&'static str, u64>,
    reasons: BTreeMap<&'static str, String>,
    /// Answers that took longer are no good ones.
    within: Duration,
    counts_before: Counts,
    /// When sending ended, and what was counted by then.
    sending_ended: Option<(Instant, Counts)>,
    last_answer: Instant,
    busy: Duration,
    spare: Duration,
    /// It was ready to run, and something else had its core.
    waited: Duration,
    early: Early,
    /// Good answers that came after the end of sending, and still in time.
    in_time_after_end: u64,
}

/// What became of the questions of the first part of a load.
#[derive(Clone, Copy, Debug)]
struct Early {
    until: Instant,
    /// The length of the whole load: no answer that takes longer tells more.
    length: Duration,
    questions: u64,
    /// Seconds that good answers took, and their squares.
    sum: f64,
    squares: f64,
}

impl Early {
    fn new(start: Instant, schedule: Option<&Schedule>) -> Early {
        let length = schedule.map_or(Duration::ZERO, Schedule::length);
        let rate = schedule.map_or(1, |schedule| schedule.rate().max(1));
        let part = (length.as_nanos() / EARLY_PART).max(EARLY_MIN * SECOND.as_nanos() / rate);
        let until = start + Duration::from_nanos(part);
        Early { until, length, questions: 0, sum: 0.0, squares: 0.0 }
    }

    fn on_good_answer(&mut self, due: Instant, took: Duration) {
        if due < self.until {
            let took = took.min(self.length).as_secs_f64();
            self.sum += took;
            self.squares += took * took;
        }
    }

    /// How many answers of a load of `rate` questions a second may come after its end, if the server goes on as it began. A question without a good
    /// answer is one that took no time.
    ///
    /// The mean is `rate` times the mean time (Little's law). By chance there are more of them: the times of those questions differ, and so do
    /// those of the early ones, from which the mean is estimated.
    fn after_end_max(&self, rate: f64) -> f64 {
        let questions = self.questions.max(1) as f64;
        let mean = self.sum / questions;
        let variance = (self.squares / questions - mean * mean).max(0.0);
        // Var(B) = rate * integral of F * (1 - F) = rate * E|X - X'| / 2, at most rate * sigma / sqrt(3).
        let of_last_ones = rate * variance.sqrt() / 3.0_f64.sqrt();
        let of_mean = rate * rate * variance / questions;
        // One question may be due just when the load ends.
        rate * mean + DEVIATIONS * (of_last_ones + of_mean).sqrt() + 1.0
    }
}

/// What became of the questions that were due in a second.
#[derive(Clone, Copy, Debug, Default)]
struct Fate {
    /// Of those that were sent, or tried to be.
    due: u64,
    answered: u64,
    unreached: u64,
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
            sent_late: None,
            second: histogram(),
            second_began: start,
            second_ends: start + SECOND,
            seconds: Vec::new(),
            fates: Vec::new(),
            faults: BTreeMap::new(),
            reasons: BTreeMap::new(),
            within: Duration::MAX,
            counts_before: Counts::default(),
            sending_ended: None,
            last_answer: start,
            busy: Duration::ZERO,
            spare: Duration::ZERO,
            waited: Duration::ZERO,
            early: Early::new(start, None),
            in_time_after_end: 0,
        }
    }

    /// What is counted so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    pub(crate) fn counts_mut(&mut self) -> &mut Counts {
        &mut self.counts
    }

    /// The load begins now: what happened before was its preparation. Without a schedule, questions are due as soon as others are answered.
    pub(crate) fn begin(&mut self, now: Instant, schedule: Option<&Schedule>, within: Duration) {
        (self.start, self.within) = (now, within);
        self.early = Early::new(now, schedule);
        (self.second_began, self.second_ends) = (now, now + SECOND);
    }

    /// Nothing more is due. Answers may come still.
    pub fn end_sending(&mut self, now: Instant) {
        if self.sending_ended.is_none() {
            self.sending_ended = Some((now, self.counts));
            self.second_ends += GRACE;
        }
    }

    pub(crate) fn on_sent(&mut self, due: Instant, now: Instant) {
        self.counts.sent += 1;
        self.on_taken(due, now);
    }

    /// The generator was so late to notice what was due, whatever became of it then.
    pub(crate) fn on_taken(&mut self, due: Instant, now: Instant) {
        self.fate(due).due += 1;
        self.early.questions += u64::from(due < self.early.until);
        self.lag.saturating_record(now.since(due).as_nanos());
    }

    /// What was sent is to be sent once more.
    pub(crate) fn on_unsent(&mut self) {
        self.counts.sent = self.counts.sent.saturating_sub(1);
    }

    /// A connection begins to send a request.
    pub(crate) fn on_begun(&mut self, due: Instant, now: Instant) {
        self.counts.sent += 1;
        self.sent_late.get_or_insert_with(histogram).saturating_record(now.since(due).as_nanos());
    }

    /// What is known of a fault beyond its name. The first of a kind is kept: the others are mostly like it.
    pub fn explain(&mut self, fault: Fault, why: &str) {
        let printable = || why.chars().filter(|letter| !letter.is_control()).take(REASON_MAX).collect();
        self.reasons.entry(fault.name()).or_insert_with(printable);
    }

    /// It cost so many requests.
    pub(crate) fn on_fault(&mut self, name: &'static str, times: u64) {
        *self.faults.entry(name).or_default() += times;
    }

    /// An answer came. One that is cut (TC) tells the client to ask again.
    pub(crate) fn on_answer(&mut self, due: Instant, now: Instant, code: Option<u16>, is_cut: bool) {
        self.counts.answered += 1;
        self.counts.truncated += u64::from(is_cut);
        let is_good = !is_cut && !code.is_some_and(is_error);
        self.counts.in_time += u64::from(self.is_in_time(due, now, is_good));
        self.fate(due).answered += 1;
        self.last_answer = now;
        if let Some(code) = code {
            self.counts.errors += u64::from(is_error(code));
            *self.rcodes.entry(code).or_default() += 1;
        }
        self.second.saturating_record(now.since(due).as_nanos());
    }

    /// Whether an answer counts for a search: it is a good one, and came soon.
    fn is_in_time(&mut self, due: Instant, now: Instant, is_good: bool) -> bool {
        if self.within == Duration::MAX {
            return true;
        }
        let took = now.since(due);
        let is_in_time = is_good && took <= self.within;
        if is_in_time {
            self.early.on_good_answer(due, took);
            self.in_time_after_end += u64::from(self.sending_ended.is_some_and(|(ended, _)| now > ended));
        }
        is_in_time
    }

    /// By how many answers the server was behind at the end of a load: they came in time because nothing more was sent.
    ///
    /// A server that is too slow by a part answers the first questions as fast as ever, and its queue grows. So more answers come after the end
    /// than the times of the first answers explain.
    fn behind(&self) -> u64 {
        let length = self.early.length.as_secs_f64();
        if self.in_time_after_end == 0 || length == 0.0 {
            return 0;
        }
        let due: u64 = self.fates.iter().map(|fate| fate.due).sum();
        let explained = self.early.after_end_max(due as f64 / length);
        (self.in_time_after_end as f64 - explained).max(0.0) as u64
    }

    /// An answer was compared with its question. Whether it counts as an answer.
    pub(crate) fn on_compared(&mut self, due: Instant, is_repeated: bool) -> bool {
        self.counts.compared += 1;
        if !is_repeated {
            self.counts.mismatched += 1;
            self.fate(due).answered += 1;
        }
        is_repeated
    }

    /// The system refused so many more of what was sent.
    pub(crate) fn on_refused(&mut self, count: u64) {
        self.counts.refused += count;
    }

    /// So many questions that were due in a second, the first of which is 0, were never come to.
    pub(crate) fn on_unreached(&mut self, second: usize, count: u64) {
        self.counts.unreached += count;
        self.fate_in(second).unreached += count;
    }

    fn fate(&mut self, due: Instant) -> &mut Fate {
        self.fate_in(due.since(self.start).as_secs() as usize)
    }

    fn fate_in(&mut self, second: usize) -> &mut Fate {
        if second >= self.fates.len() {
            self.fates.resize(second + 1, Fate::default());
        }
        &mut self.fates[second]
    }

    /// So much time went by, and there was something to do in it or not.
    pub fn on_time(&mut self, time: Duration, was_busy: bool) {
        *(if was_busy { &mut self.busy } else { &mut self.spare }) += time;
    }

    /// For so long of the sending the generator was ready to run, and something else had its core.
    pub fn on_waited(&mut self, time: Duration) {
        self.waited += time;
    }

    /// Whether [`Tally::end_seconds`] has something to do.
    pub(crate) fn has_second_ended(&self, now: Instant) -> bool {
        now >= self.second_ends
    }

    /// Ends each second that is over; the last of them, if there is one.
    pub fn end_seconds(&mut self, now: Instant) -> Option<&Second> {
        let before = self.seconds.len();
        while self.has_second_ended(now) {
            self.end_second(self.second_ends);
        }
        (self.seconds.len() > before).then(|| self.seconds.last())?
    }

    /// Ends the second that is under way, in which something was sent until then, or came.
    fn end_second(&mut self, sent_until: Instant) {
        let latency_us = percentiles(&self.second);
        self.latency.add(&self.second).expect("both have the same bounds");
        self.second.reset();
        let before = std::mem::replace(&mut self.counts_before, self.counts);
        let since = |count: fn(&Counts) -> u64| count(&self.counts).saturating_sub(count(&before));
        let sent_until = self.sending_ended.map_or(sent_until, |(at, _)| at);
        let until = sent_until.max(self.last_answer);
        let is_short = self.second_began < sent_until;
        let span = if is_short { until.since(self.second_began).clamp(SPAN_MIN, SECOND) } else { SECOND };
        self.seconds.push(Second {
            span_s: span.as_secs_f64(),
            sent: since(|counts| counts.sent),
            answered: since(|counts| counts.answered),
            lost: 0, // Known at the end.
            refused: since(|counts| counts.refused),
            errors: since(|counts| counts.errors),
            mismatched: since(|counts| counts.mismatched),
            malformed: since(|counts| counts.malformed),
            latency_us,
        });
        self.second_began = self.second_ends;
        self.second_ends += SECOND;
    }

    /// Ends the second that is under way, if something happened in it, and drops those in which it only waited for answers that did not come.
    fn end_last_second(&mut self, length: Duration) {
        while self.counts != self.counts_before || self.seconds.len() < self.fates.len() {
            self.end_second(self.start + length);
        }
        let kept = self.fates.len().max((length + SECOND - GRACE).as_secs() as usize);
        let is_empty = |it: &Second| it.sent + it.answered + it.mismatched + it.malformed == 0;
        while self.seconds.len() > kept && self.seconds.last().is_some_and(is_empty) {
            self.seconds.pop();
        }
        for (second, fate) in self.seconds.iter_mut().zip(&self.fates) {
            second.lost = (fate.due + fate.unreached).saturating_sub(fate.answered);
        }
    }

    /// What came of it: `lost` questions got no answer, of `offered` a second that were to be sent for this time.
    pub fn summary(mut self, offered: u32, length: Duration, lost: u64) -> Summary {
        self.counts.in_time -= self.behind();
        self.end_last_second(length);
        let whole = (self.busy + self.spare).as_secs_f64();
        // It may have waited where it thought that it slept.
        let spare = self.spare.as_secs_f64() - self.waited.as_secs_f64();
        let part = |time: f64| (whole > 0.0).then_some((time / whole).clamp(0.0, 1.0));
        let length_s = length.as_secs_f64();
        let counted = self.sending_ended.map_or(self.counts, |(_, counts)| counts);
        let rate = |count: u64| (length_s > 0.0).then_some(count as f64 / length_s);
        let mut summary = Summary {
            offered,
            length_s,
            counts: self.counts,
            sent_per_s: rate(counted.sent),
            answered_per_s: rate(counted.answered),
            octets_per_s: rate(counted.octets),
            lost,
            rcodes: self.rcodes,
            latency_us: percentiles(&self.latency),
            lag_us: percentiles(&self.lag),
            sent_late_us: self.sent_late.as_ref().map(percentiles),
            connections_busy: 0.0,
            spare: part(spare).unwrap_or(1.0),
            core_taken: part(self.waited.as_secs_f64()).unwrap_or(0.0),
            bottleneck: None,
            faults: self.faults.into_iter().map(|(name, times)| (name.to_owned(), times)).collect(),
            reasons: self.reasons.into_iter().map(|(name, why)| (name.to_owned(), why)).collect(),
            seconds: self.seconds,
        };
        summary.bottleneck = summary.find_bottleneck();
        summary
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

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1000)
    }

    /// A load of 1000 questions in a second, each sent `lag` microseconds late and answered after 100.
    fn load(lag: u64) -> Tally {
        let mut tally = Tally::new(at(0));
        for number in 0..1000 {
            let due = number * 1000;
            tally.on_sent(at(due), at(due + lag));
            tally.on_answer(at(due), at(due + 100), Some(0), false);
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
        let mut short = load(3);
        short.on_unreached(0, 1000);
        assert_eq!(bottleneck(short, 2000), "it sent 50 % of what it was to send");
        assert_eq!(bottleneck(load(2000), 1000), "it sent a hundredth 2.0 ms late and later");
        let mut full = load(3);
        full.on_time(SECOND * 100, true);
        assert_eq!(bottleneck(full, 1000), "it had 0 % of its core to spare");
        let mut refused = load(3);
        refused.counts_mut().refused = 100;
        assert_eq!(bottleneck(refused, 1000), "the system refused 100 of its 1000 packets");
    }

    #[test]
    fn a_core_that_others_had_is_none_to_spare() {
        let mut shared = load(3);
        shared.on_waited(SECOND / 4);
        let summary = shared.summary(1000, SECOND, 0);
        assert_eq!((summary.spare, summary.core_taken), (0.25, 0.25));
        assert_eq!(summary.bottleneck.unwrap(), "something else had its core for 25 % of the time");
        let mut full = load(3);
        full.on_waited(SECOND);
        assert_eq!(full.summary(1000, SECOND, 0).spare, 0.0);
    }

    /// A load of a second, of a server that begins with a question each `each` thousandths of the distance between two, and has its answer
    /// `base` microseconds after that. What is in time, in parts of the whole.
    fn in_time(questions: u32, each: u64, within: Duration, mut base: impl FnMut() -> u64) -> f64 {
        let mut tally = Tally::new(at(0));
        tally.begin(at(0), Some(&Schedule::new(at(0), questions, SECOND)), within);
        let distance = 1_000_000_000 / u64::from(questions);
        let mut free = 0;
        let mut answers = Vec::new();
        for number in 0..u64::from(questions) {
            let due = number * distance;
            free = free.max(due) + distance * each / 1000;
            tally.on_sent(Instant::from_nanos(due), Instant::from_nanos(due));
            answers.push((free + base() * 1000, due));
        }
        answers.sort_unstable();
        for (now, due) in answers {
            if now >= SECOND.as_nanos() {
                tally.end_sending(at(1_000_000));
            }
            tally.on_answer(Instant::from_nanos(due), Instant::from_nanos(now), Some(0), false);
        }
        tally.summary(questions, SECOND, 0).counts.in_time as f64 / f64::from(questions)
    }

    /// Numbers below 1000 (the generator of Numerical Recipes).
    fn random(mut seed: u64) -> impl FnMut() -> u64 {
        move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % 1000
        }
    }

    /// Three tenths of the answers take 200 to 800 ms, the others 1.
    fn resolved(seed: u64) -> impl FnMut() -> u64 {
        let mut random = random(seed);
        move || if random() < 300 { 200_000 + random() * 600 } else { 1000 }
    }

    #[test]
    fn a_server_that_keeps_up_is_in_time_whatever_its_answers_take() {
        for questions in [1, 2, 10, 50, 1000, 30_000] {
            for base in [0, 60_000, 500_000, 999_000] {
                assert_eq!(in_time(questions, 0, SECOND, || base), 1.0, "{questions} {base}");
            }
        }
        for seed in 0..40 {
            for questions in [10, 100, 1000, 30_000] {
                let mut random = random(seed);
                let uniform = in_time(questions, 0, SECOND, || random() * 800);
                let bimodal = in_time(questions, 0, SECOND, resolved(seed));
                assert!(uniform >= 0.98 && bimodal >= 0.98, "{seed} {questions} {uniform} {bimodal}");
            }
        }
        assert_eq!(in_time(1000, 0, SECOND * 10, || 2_500_000), 1.0, "all of them come after the end");
    }

    #[test]
    fn what_a_server_was_behind_at_the_end_is_not_in_time() {
        let (short, long) = (SECOND / 10, SECOND);
        for questions in [1000, 30_000] {
            for base in [0, 40_000] {
                let behind = |each| in_time(questions, each, short, || base);
                assert!((0.975..0.987).contains(&behind(1020)), "a fiftieth: {}", behind(1020));
                assert!((0.95..0.965).contains(&behind(1050)), "a twentieth: {}", behind(1050));
                assert!(in_time(questions, 1500, long, || base) < 0.75, "a half");
            }
        }
        for seed in 0..40 {
            let mut near = random(seed);
            let near = in_time(1000, 1050, short, || near() * 50);
            // The more the times differ, the more questions it takes to be sure.
            let far = in_time(30_000, 1050, long * 2, resolved(seed));
            let half = in_time(1000, 1500, long * 2, resolved(seed));
            assert!(near < 0.975 && far < 0.98 && half < 0.85, "{seed} {near} {far} {half}");
        }
        let tenfold = in_time(1000, 10_000, long * 10, || 0);
        assert!(tenfold < 0.7, "though all is answered within 10 s: {tenfold}");
    }

    #[test]
    fn errors_are_no_answers_of_a_search() {
        let mut tally = Tally::new(at(0));
        tally.begin(at(0), Some(&Schedule::new(at(0), 1000, SECOND)), Duration::from_millis(100));
        [0, 2, 3, 503, 200].into_iter().for_each(|code| tally.on_answer(at(0), at(10), Some(code), false));
        assert_eq!((tally.counts().in_time, tally.counts().answered), (3, 5));
    }

    #[test]
    fn truncated_answers_are_no_answers_of_a_search() {
        let mut tally = Tally::new(at(0));
        tally.begin(at(0), Some(&Schedule::new(at(0), 1000, SECOND)), Duration::from_millis(100));
        [true, false, true].into_iter().for_each(|is_cut| tally.on_answer(at(0), at(10), Some(0), is_cut));
        let counts = tally.counts();
        assert_eq!((counts.in_time, counts.answered, counts.truncated), (1, 3, 2));
    }

    #[test]
    fn seconds_have_their_own_counts_and_times() {
        let mut tally = Tally::new(at(0));
        tally.on_sent(at(0), at(0));
        tally.on_answer(at(0), at(50), Some(0), false);
        assert_eq!(tally.end_seconds(at(999_999)), None);
        assert_eq!(tally.end_seconds(at(1_000_000)).unwrap().answered, 1);
        tally.on_answer(at(0), at(1_200_000), Some(3), false);
        let second = tally.end_seconds(at(3_000_000)).unwrap().clone();
        assert_eq!((second.answered, second.latency_us), (0, Percentiles::default()), "the third was empty");
        let summary = tally.summary(1, SECOND * 3, 0);
        assert!((summary.seconds[1].latency_us.max / 1.2e6 - 1.0).abs() < 0.01);
        assert_eq!(summary.rcodes, BTreeMap::from([(0, 1), (3, 1)]));
        assert!(summary.latency_us.min < 51.0 && summary.latency_us.max > 1.19e6, "all of them");
    }

    #[test]
    fn what_comes_after_the_time_of_sending_is_in_no_rate() {
        let mut tally = Tally::new(at(0));
        for number in 0..1000 {
            tally.on_sent(at(number * 1000), at(number * 1000));
        }
        (0..400).for_each(|number| tally.on_answer(at(number), at(900_000), Some(0), false));
        tally.counts_mut().octets = 800;
        tally.end_sending(at(1_000_000));
        tally.counts_mut().octets = 2000;
        tally.on_begun(at(0), at(1_500_000));
        (400..1000).for_each(|number| tally.on_answer(at(number), at(2_500_000), Some(0), false));
        let summary = tally.summary(1000, SECOND, 0);
        assert_eq!((summary.counts.answered, summary.answered_rate()), (1000, 400.0));
        assert_eq!((summary.counts.sent, summary.sent_rate()), (1001, 1000.0), "one was late");
        assert_eq!((summary.counts.octets, summary.octet_rate()), (2000, 800.0));
    }

    #[test]
    fn the_last_second_is_there_though_nobody_has_ended_it() {
        let mut tally = load(0);
        tally.end_sending(at(1_000_000));
        assert_eq!(tally.end_seconds(at(1_050_000)), None, "answers of now belong to the second before");
        tally.on_sent(at(999_500), at(999_500));
        tally.on_answer(at(999_500), at(1_050_000), Some(0), false);
        let summary = tally.summary(1000, SECOND, 0);
        let seconds: Vec<_> = summary.seconds.iter().map(|it| (it.sent, it.answered, it.span_s)).collect();
        assert_eq!(seconds, [(1001, 1001, 1.0)]);
    }

    #[test]
    fn a_load_of_two_seconds_and_a_half_has_a_short_one_at_its_end() {
        let mut tally = Tally::new(at(0));
        for millis in 0..2500 {
            tally.end_seconds(at(millis * 1000));
            tally.on_sent(at(millis * 1000), at(millis * 1000));
        }
        tally.end_sending(at(2_500_000));
        assert_eq!(tally.end_seconds(at(6_000_000)).map(|second| second.sent), Some(0));
        let summary = tally.summary(1000, Duration::from_millis(2500), 2500);
        let seconds: Vec<_> = summary.seconds.iter().map(|it| (it.sent, it.lost, it.span_s)).collect();
        let expected = [(1000, 1000, 1.0), (1000, 1000, 1.0), (500, 500, 0.5)];
        assert_eq!(seconds, expected, "the wait for answers has no seconds");
    }

    #[test]
    fn seconds_add_up_to_the_totals_though_nothing_was_answered() {
        let mut tally = Tally::new(at(0));
        tally.on_sent(at(0), at(0));
        tally.end_sending(at(1_000_000));
        tally.end_seconds(at(2_000_000));
        // It waited for a connection.
        tally.on_sent(at(900_000), at(2_500_000));
        tally.end_seconds(at(6_000_000));
        let summary = tally.summary(2, SECOND, 2);
        let sent: u64 = summary.seconds.iter().map(|it| it.sent).sum();
        assert_eq!((sent, summary.counts.sent), (2, 2));
    }

    #[test]
    fn what_goes_wrong_is_counted_in_its_second() {
        let mut tally = Tally::new(at(0));
        for due in [0, 1, 2, 1_000_000, 1_000_001] {
            tally.on_sent(at(due), at(due));
        }
        tally.on_answer(at(0), at(10), Some(2), false);
        assert!(!tally.on_compared(at(1), false) && tally.on_compared(at(2), true));
        tally.counts_mut().refused += 1;
        tally.end_seconds(at(1_000_000));
        tally.counts_mut().malformed += 1;
        tally.on_answer(at(1_000_000), at(1_000_010), Some(3), false);
        let summary = tally.summary(3, SECOND * 2, 2);
        let of = |second: &Second| {
            (second.lost, second.refused, second.errors, second.mismatched, second.malformed)
        };
        assert_eq!(summary.seconds.iter().map(of).collect::<Vec<_>>(), [(1, 1, 1, 1, 0), (1, 0, 0, 0, 1)]);
        assert_eq!((summary.counts.compared, summary.counts.wrong_share()), (2, 0.5));
    }
}
