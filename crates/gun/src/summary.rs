//! What came of a load: what reports show, and what it says of the server and of the generator.

use std::collections::BTreeMap;

use clock::Duration;
use serde::{Deserialize, Serialize};

use crate::knee::{ANSWERED_MIN, SENT_MIN, Verdict};
use crate::streams::Fault;

/// A generator with less of its time to spare was the bottleneck, or nearly.
const SPARE_MIN: f64 = 0.03;
/// So is one that sent a hundredth of its questions later than this.
const LAG_MAX: Duration = Duration::from_millis(1);
/// A generator that was late sends what was due meanwhile in a burst. One of so many questions, and of so much time, loses none of them.
const BURST_MAX: f64 = 64.0;
const PAUSE_MAX: Duration = Duration::from_millis(10);
/// So is one that had to leave its core to others for this part of the time.
const TAKEN_MAX: f64 = 0.1;
/// A load of which less than this part was sent while it lasted was slower than its rate, though the rest was sent behind.
const SENT_MEANWHILE_MIN: f64 = 0.9;
/// Connections that were all busy for this part of the time are what limits a load.
const BUSY_MAX: f64 = 0.5;
/// RCODEs are below, statuses of HTTP are not.
const STATUS_MIN: u16 = 100;
const STATUS_ERROR_MIN: u16 = 400;
/// RCODEs that are no errors: NOERROR and NXDOMAIN.
const GOOD_RCODES: [u16; 2] = [0, 3];

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
    /// How many answers that sample has.
    #[serde(default)]
    pub compared: u64,
    /// Answers to nothing that is under way: late, or doubled.
    pub unexpected: u64,
    /// Datagrams that are no answer of the server: from another address or port, or with an ID that no question had.
    #[serde(default)]
    pub foreign: u64,
    /// What came and is no answer.
    pub malformed: u64,
    /// What came and was dropped here: buffers of the system or rings of the device were full.
    #[serde(default)]
    pub missed: u64,
    /// Answers that came by the kernel's sockets though a device was asked for: in fragments, or with IP options or extension headers.
    #[serde(default)]
    pub by_kernel: u64,
    /// Octets of all answers.
    pub octets: u64,
    /// Answers that say that something went wrong: RCODEs other than NOERROR and NXDOMAIN, statuses of HTTP from 400 on.
    #[serde(default)]
    pub errors: u64,
    /// Requests that were due, and given up before a connection was free for them.
    #[serde(default)]
    pub unsent: u64,
    /// Questions that were due before the end, and that the generator had not come to then.
    #[serde(default)]
    pub unreached: u64,
    /// Questions that were given up before their time, because the next ones needed their IDs.
    #[serde(default)]
    pub displaced: u64,
    /// Answers that came within the time that a search allows, and are neither errors nor truncated, less those that the server was behind at the end;
    /// all answers without a search.
    #[serde(default)]
    pub in_time: u64,
}

impl Counts {
    /// What was due, whatever became of it.
    pub fn due(&self) -> u64 {
        self.sent + self.unsent + self.unreached
    }
}

/// A second of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// How much of a second it is: the last one may be shorter.
    #[serde(default = "whole")]
    pub span_s: f64,
    /// Questions sent in it.
    pub sent: u64,
    /// Answers that came in it.
    pub answered: u64,
    /// Questions that were due in it and have no answer.
    #[serde(default)]
    pub lost: u64,
    /// Those sent in it that the system refused.
    #[serde(default)]
    pub refused: u64,
    /// Answers in it that say that something went wrong.
    #[serde(default)]
    pub errors: u64,
    /// Answers in it to another question, of the sample.
    #[serde(default)]
    pub mismatched: u64,
    /// What came in it and is no answer.
    #[serde(default)]
    pub malformed: u64,
    /// The times of its answers, in microseconds; without answers `null` in JSON.
    #[serde(with = "or_null")]
    pub latency_us: Percentiles,
}

fn whole() -> f64 {
    1.0
}

/// Times that there are none of are `null`: as zeros they would look like those of a fast server.
mod or_null {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Percentiles;

    pub(super) fn serialize<S: Serializer>(times: &Percentiles, to: S) -> Result<S::Ok, S::Error> {
        times.some().serialize(to)
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Percentiles, D::Error> {
        Ok(Option::deserialize(from)?.unwrap_or_default())
    }
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

impl Percentiles {
    /// These, if anything was timed.
    pub fn some(&self) -> Option<&Percentiles> {
        Some(self).filter(|times| **times != Percentiles::default())
    }
}

/// What came of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Questions a second that were to be sent; 0 if each was sent as soon as an answer made room for it.
    pub offered: u32,
    /// Seconds of sending.
    pub length_s: f64,
    /// What was counted.
    pub counts: Counts,
    /// Questions that were sent in `length_s`, a second. Over connections some are sent later. Older reports do not have it.
    #[serde(default)]
    pub sent_per_s: Option<f64>,
    /// Answers that came in `length_s`, a second.
    #[serde(default)]
    pub answered_per_s: Option<f64>,
    /// Octets of these.
    #[serde(default)]
    pub octets_per_s: Option<f64>,
    /// Questions without an answer.
    pub lost: u64,
    /// Answers by response code, as numbers.
    pub rcodes: BTreeMap<u16, u64>,
    /// From when questions were due to their answers; without answers `null` in JSON.
    #[serde(with = "or_null")]
    pub latency_us: Percentiles,
    /// From when questions were due to when the generator took them up. Without connections it sends them then.
    pub lag_us: Percentiles,
    /// Over connections: from when requests were due to when a connection began to send them.
    #[serde(default)]
    pub sent_late_us: Option<Percentiles>,
    /// The part of the time in which requests waited because all connections were busy.
    #[serde(default)]
    pub connections_busy: f64,
    /// The part of its time in which the generator had nothing to do.
    pub spare: f64,
    /// The part of its time in which the generator was ready to run, and something else had its core.
    #[serde(default)]
    pub core_taken: f64,
    /// Why the generator was the bottleneck, if it was.
    pub bottleneck: Option<String>,
    /// What went wrong with connections, by name: how many requests it cost, or connections where it cost none.
    #[serde(default)]
    pub faults: BTreeMap<String, u64>,
    /// Of some of them, by name: what the first one said.
    #[serde(default)]
    pub reasons: BTreeMap<String, String>,
    /// Second by second, until the last answer.
    pub seconds: Vec<Second>,
}

impl Counts {
    /// The part of the answers that are to another question, as far as a sample tells.
    pub fn wrong_share(&self) -> f64 {
        self.mismatched as f64 / self.compared.max(1) as f64
    }
}

impl Summary {
    /// Questions a second that were sent while the load lasted.
    pub fn sent_rate(&self) -> f64 {
        self.sent_per_s.unwrap_or(self.rate(self.counts.sent))
    }

    /// Answers a second that came while the load lasted. Those that came afterwards say nothing of a second.
    pub fn answered_rate(&self) -> f64 {
        self.answered_per_s.unwrap_or(self.rate(self.counts.answered))
    }

    /// Octets a second of these.
    pub fn octet_rate(&self) -> f64 {
        self.octets_per_s.unwrap_or(self.rate(self.counts.octets))
    }

    fn rate(&self, count: u64) -> f64 {
        if self.length_s > 0.0 { count as f64 / self.length_s } else { 0.0 }
    }

    /// From when questions were due to when they were sent.
    pub fn sent_late_us(&self) -> &Percentiles {
        self.sent_late_us.as_ref().unwrap_or(&self.lag_us)
    }

    /// The name of a fault, with what the first one said.
    pub fn explained(&self, fault: &str) -> String {
        let why = self.reasons.get(fault);
        why.map_or(fault.to_owned(), |why| format!("{fault} (the first: {why})"))
    }

    /// What this load says of the server.
    pub fn verdict(&self) -> Verdict {
        let (enough, in_time) = (self.due() * ANSWERED_MIN, self.counts.in_time as f64);
        let right = self.right_in_time();
        if self.is_short() || self.due() == 0.0 {
            return Verdict::NotOffered;
        }
        match (right >= enough, in_time >= enough) {
            (true, _) if self.was_slow() => Verdict::NotOffered,
            (true, _) => Verdict::Carried,
            (false, true) => Verdict::Wrong,
            (false, false) if self.counts.wrong_share() > 1.0 - ANSWERED_MIN => Verdict::Wrong,
            (false, false) if self.counts.errors as f64 > self.due() - enough => Verdict::Errors,
            (false, false) if self.counts.truncated as f64 > self.due() - enough => Verdict::Truncated,
            (false, false) if self.is_generator_to_blame() => Verdict::NotOffered,
            (false, false) if self.is_full() => Verdict::NoRoom,
            (false, false) => Verdict::TooMuch,
        }
    }

    /// Whether it was sent more slowly than was asked for, though whole: a load that is short may be over before a generator that is behind has sent it.
    fn was_slow(&self) -> bool {
        // One question may be due just when it ends.
        self.sent_rate() * self.length_s + 1.0 < f64::from(self.offered) * self.length_s * SENT_MEANWHILE_MIN
    }

    /// Good answers that came in time, less those that are to other questions, as far as a sample tells.
    pub(crate) fn right_in_time(&self) -> f64 {
        // Answers of the sample that are wrong are not counted as answers.
        let counted = (self.counts.in_time + self.counts.mismatched) as f64;
        counted * (1.0 - self.counts.wrong_share())
    }

    /// Whether the generator was such a bottleneck that questions were lost by it.
    fn is_generator_to_blame(&self) -> bool {
        let late_s = self.lag_us.p99 / 1e6;
        let has_burst = late_s > PAUSE_MAX.as_secs_f64() || late_s * f64::from(self.offered) > BURST_MAX;
        // Where all connections were busy, requests lack those, and not a generator that is sooner.
        let was_late = has_burst && !self.is_full();
        let is_lossy = self.is_refused() || self.has_missed() || self.lacks_sockets() || self.lacks_ids();
        self.bottleneck.is_some() && (was_late || is_lossy || self.spare < SPARE_MIN)
    }

    /// Whether it lost many of the answers itself.
    fn has_missed(&self) -> bool {
        self.counts.missed as f64 > self.due() * (1.0 - ANSWERED_MIN)
    }

    /// Whether the system gave it no socket for many of its connections.
    fn lacks_sockets(&self) -> bool {
        self.without_socket() as f64 > self.due() * (1.0 - ANSWERED_MIN)
    }

    /// Whether it gave up many questions that might have been answered yet.
    fn lacks_ids(&self) -> bool {
        self.counts.displaced as f64 > self.due() * (1.0 - ANSWERED_MIN)
    }

    fn without_socket(&self) -> u64 {
        self.faults.get(Fault::NoSocket.name()).copied().unwrap_or(0)
    }

    /// Whether the system refused many of its packets.
    fn is_refused(&self) -> bool {
        self.counts.refused as f64 > self.counts.sent as f64 * (1.0 - SENT_MIN)
    }

    /// Whether what limits it is how many requests the connections may have under way, and not that some of them failed.
    pub fn is_full(&self) -> bool {
        let failed: u64 = self.faults.values().sum();
        self.connections_busy > BUSY_MAX && (failed as f64) < self.due() * (1.0 - ANSWERED_MIN)
    }

    /// Questions that the generator would have sent, had there been a connection for each.
    fn due(&self) -> f64 {
        (self.counts.sent + self.counts.unsent) as f64
    }

    /// Whether it was less than was due. One question may be due just when it ends.
    fn is_short(&self) -> bool {
        self.due() + 1.0 < self.counts.due() as f64 * SENT_MIN
    }

    pub(crate) fn find_bottleneck(&self) -> Option<String> {
        let Counts { sent, refused, .. } = self.counts;
        if self.is_short() {
            let part = 100.0 * self.due() / self.counts.due() as f64;
            return Some(format!("it sent {part:.0} % of what it was to send"));
        }
        if self.is_refused() {
            return Some(format!("the system refused {refused} of its {sent} packets"));
        }
        if self.has_missed() {
            let missed = self.counts.missed;
            return Some(format!(
                "its own buffers or the device's had no room for {missed} datagrams that came"
            ));
        }
        if self.lacks_ids() {
            let displaced = self.counts.displaced;
            return Some(format!(
                "it gave {displaced} questions up before their time, as it can have no more under way: 65536 for each port, and a million in all"
            ));
        }
        if self.lacks_sockets() {
            let times = self.without_socket();
            return Some(format!("the system had no port or descriptor for {times} connections"));
        }
        if self.lag_us.p99 > LAG_MAX.as_secs_f64() * 1e6 {
            return Some(format!("it sent a hundredth {:.1} ms late and later", self.lag_us.p99 / 1e3));
        }
        if self.core_taken > TAKEN_MAX {
            return Some(format!(
                "something else had its core for {:.0} % of the time",
                100.0 * self.core_taken
            ));
        }
        (self.spare < SPARE_MIN).then(|| format!("it had {:.0} % of its core to spare", 100.0 * self.spare))
    }
}

/// Whether an answer with this code says that something went wrong.
pub(crate) fn is_error(code: u16) -> bool {
    if code < STATUS_MIN { !GOOD_RCODES.contains(&code) } else { code >= STATUS_ERROR_MIN }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A load of 1000 questions in a second that is all right.
    fn load() -> Summary {
        Summary {
            offered: 1000,
            length_s: 1.0,
            counts: Counts { sent: 1000, answered: 1000, in_time: 1000, compared: 16, ..Counts::default() },
            sent_per_s: None,
            answered_per_s: None,
            octets_per_s: None,
            lost: 0,
            rcodes: BTreeMap::new(),
            latency_us: Percentiles::default(),
            lag_us: Percentiles::default(),
            sent_late_us: None,
            connections_busy: 0.0,
            spare: 0.5,
            core_taken: 0.0,
            bottleneck: None,
            faults: BTreeMap::new(),
            reasons: BTreeMap::new(),
            seconds: Vec::new(),
        }
    }

    fn with(change: impl FnOnce(&mut Summary)) -> Verdict {
        let mut load = load();
        change(&mut load);
        load.verdict()
    }

    #[test]
    fn a_load_is_carried_if_98_percent_are_answered_in_time() {
        assert_eq!(with(|_| {}), Verdict::Carried);
        assert_eq!(with(|load| load.counts.in_time = 980), Verdict::Carried);
        assert_eq!(with(|load| load.counts.in_time = 979), Verdict::TooMuch);
        assert_eq!(with(|load| (load.counts.sent, load.counts.unreached) = (900, 100)), Verdict::NotOffered);
        assert_eq!(with(|load| load.length_s = 1.05), Verdict::Carried, "late, and all of it");
        assert_eq!(with(|load| (load.counts.sent, load.counts.unsent) = (900, 100)), Verdict::Carried);
    }

    #[test]
    fn answers_to_other_questions_carry_nothing() {
        assert_eq!(with(|load| (load.counts.mismatched, load.counts.in_time) = (1, 999)), Verdict::Wrong);
        let all = |load: &mut Summary| (load.counts.mismatched, load.counts.in_time) = (16, 984);
        assert_eq!(with(all), Verdict::Wrong);
        let few = |load: &mut Summary| (load.counts.mismatched, load.counts.compared) = (1, 100);
        assert_eq!(with(few), Verdict::Carried, "one hundredth may be lost, too");
    }

    #[test]
    fn errors_carry_nothing() {
        let failing = |load: &mut Summary| (load.counts.errors, load.counts.in_time) = (100, 900);
        assert_eq!(with(failing), Verdict::Errors);
        let few = |load: &mut Summary| (load.counts.errors, load.counts.in_time) = (15, 985);
        assert_eq!(with(few), Verdict::Carried);
        let slow = |load: &mut Summary| (load.counts.errors, load.counts.in_time) = (15, 800);
        assert_eq!(with(slow), Verdict::TooMuch);
    }

    #[test]
    fn truncated_answers_carry_nothing() {
        let limited = |load: &mut Summary| (load.counts.truncated, load.counts.in_time) = (100, 800);
        assert_eq!(with(limited), Verdict::Truncated);
        let few = |load: &mut Summary| (load.counts.truncated, load.counts.in_time) = (15, 985);
        assert_eq!(with(few), Verdict::Carried);
        let slow = |load: &mut Summary| (load.counts.truncated, load.counts.in_time) = (15, 800);
        assert_eq!(with(slow), Verdict::TooMuch);
    }

    #[test]
    fn a_load_that_the_generator_lost_says_nothing_of_the_server() {
        let lost = |change: fn(&mut Summary)| {
            with(|load| {
                load.counts.in_time = 500;
                change(load);
                load.bottleneck = load.find_bottleneck();
            })
        };
        assert_eq!(lost(|_| {}), Verdict::TooMuch);
        assert_eq!(lost(|load| load.spare = 0.0), Verdict::NotOffered);
        assert_eq!(lost(|load| load.counts.refused = 500), Verdict::NotOffered);
        assert_eq!(lost(|load| load.counts.missed = 500), Verdict::NotOffered);
        assert_eq!(lost(|load| load.counts.missed = 20), Verdict::TooMuch, "few of them");
        assert_eq!(lost(|load| load.counts.displaced = 500), Verdict::NotOffered);
        let without_ports = |load: &mut Summary| {
            load.faults.insert(Fault::NoSocket.name().to_owned(), 500);
        };
        assert_eq!(lost(without_ports), Verdict::NotOffered);
        assert_eq!(lost(|load| load.lag_us.p99 = 70_000.0), Verdict::NotOffered, "bursts of seventy");
        assert_eq!(lost(|load| load.lag_us.p99 = 5_000.0), Verdict::TooMuch, "bursts of five lose nothing");
        let carried = |load: &mut Summary| load.bottleneck = Some("it was late".to_owned());
        assert_eq!(with(carried), Verdict::Carried, "the server answered all of it");
    }

    #[test]
    fn connections_that_are_all_busy_are_not_the_server() {
        let full = |load: &mut Summary| (load.counts.in_time, load.connections_busy) = (500, 0.9);
        assert_eq!(with(full), Verdict::NoRoom);
        let late = |load: &mut Summary| {
            full(load);
            load.lag_us.p99 = 70_000.0;
            load.bottleneck = load.find_bottleneck();
        };
        assert_eq!(with(late), Verdict::NoRoom, "the generator had time to spare");
        let hung = |load: &mut Summary| {
            full(load);
            load.faults.insert("timed out".to_owned(), 64);
        };
        assert_eq!(with(hung), Verdict::TooMuch, "they wait for a server that hangs");
    }

    #[test]
    fn a_load_of_few_questions_may_lack_one_that_is_due_at_its_end() {
        let slow = |sent| {
            with(move |load| {
                (load.offered, load.length_s) = (1, 2.001);
                let unreached = 2 - sent;
                load.counts = Counts { sent, answered: sent, in_time: sent, unreached, ..Counts::default() };
            })
        };
        assert_eq!((slow(2), slow(1), slow(0)), (Verdict::Carried, Verdict::Carried, Verdict::NotOffered));
    }

    #[test]
    fn a_load_that_was_sent_more_slowly_than_its_rate_was_not_offered() {
        let sent_meanwhile = |part: f64| with(|load| load.sent_per_s = Some(f64::from(load.offered) * part));
        assert_eq!((sent_meanwhile(0.95), sent_meanwhile(0.5)), (Verdict::Carried, Verdict::NotOffered));
    }

    #[test]
    fn codes_that_say_that_something_went_wrong_are_errors() {
        assert!([1, 2, 5, 23, 400, 404, 503].into_iter().all(is_error));
        assert!(![0, 3, 100, 200, 304].into_iter().any(is_error));
    }
}
