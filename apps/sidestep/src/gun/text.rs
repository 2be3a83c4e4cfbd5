//! For the terminal.

use std::io::{IsTerminal, Write};

use dns_wire::Rcode;
use gun::Summary;
use gun::knee::Verdict;
use gun::summary::{Percentiles, Second};

use super::report::{Report, Words};
use crate::output::complain;

/// Bars of a small plot.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Seconds that it shows.
const WIDTH: usize = 30;

/// Answers that a device leaves to the kernel, and the kernel to its sockets.
pub(super) const BY_KERNEL: &str = "which came in fragments or with IP options";

/// What is under way, on stderr: a line that is written over if that is a terminal, else none.
pub(crate) struct Live {
    offered: u32,
    is_shown: bool,
    rates: Vec<u64>,
    seconds: u64,
}

impl Live {
    pub(crate) fn new(offered: u32) -> Live {
        Live { offered, is_shown: std::io::stderr().is_terminal(), rates: Vec::new(), seconds: 0 }
    }

    pub(crate) fn silent() -> Live {
        Live { offered: 0, is_shown: false, rates: Vec::new(), seconds: 0 }
    }

    pub(crate) fn show(&mut self, second: &Second) {
        self.seconds += 1;
        if !self.is_shown {
            return;
        }
        self.rates.push(second.answered);
        let from = self.rates.len().saturating_sub(WIDTH);
        let line = format!(
            "{:>4} s  {} answers/s  p50 {}  p99 {}  {}",
            self.seconds,
            count(second.answered as f64),
            time(second.latency_us.p50),
            time(second.latency_us.p99),
            plot(&self.rates[from..], u64::from(self.offered))
        );
        let _ = write!(std::io::stderr(), "\r\x1b[2K{line}"); // Nobody may be looking.
    }

    pub(crate) fn end(&mut self) {
        if self.is_shown && self.seconds > 0 {
            let _ = write!(std::io::stderr(), "\r\x1b[2K");
        }
    }
}

fn plot(rates: &[u64], most: u64) -> String {
    let top = rates.iter().copied().max().unwrap_or(0).max(most).max(1);
    rates.iter().map(|rate| BARS[(rate * (BARS.len() as u64 - 1)).div_ceil(top) as usize]).collect()
}

pub(crate) fn begin(report: &Report) {
    let Report { server, subject, questions, device, ports, .. } = report;
    let what = if *questions == 1 { subject.clone() } else { format!("{subject}, {questions} questions") };
    let seed = report.seed.map_or(String::new(), |seed| format!("; seed {seed}"));
    complain!("{server}: {what}; {ports} {}, {device}{seed}", report.words().places);
}

/// A step of the search for the knee.
pub(crate) fn step(load: &Summary, words: Words) {
    let said = match (load.verdict(), &load.bottleneck) {
        (Verdict::Carried, _) => "carried".to_owned(),
        (Verdict::TooMuch, _) => "too much".to_owned(),
        (Verdict::Wrong, _) => "answers to other questions".to_owned(),
        (Verdict::Errors, _) => format!("{:.2} % of the answers are errors", error_part(load)),
        (Verdict::Truncated, _) => format!("{:.2} % of the answers are truncated", truncated_part(load)),
        (Verdict::NoRoom, _) => "all connections are busy".to_owned(),
        (Verdict::NotOffered, None) => "more than can be sent".to_owned(),
        (Verdict::NotOffered, Some(why)) => format!("the generator was the bottleneck: {why}"),
    };
    complain!(
        "  {} {}/s: {:.2} % answered in time, p99 {}: {said}",
        count(load.offered.into()),
        words.requests,
        part(load, load.counts.in_time),
        time(load.latency_us.p99)
    );
}

fn error_part(load: &Summary) -> f64 {
    100.0 * load.counts.errors as f64 / load.counts.answered.max(1) as f64
}

fn truncated_part(load: &Summary) -> f64 {
    100.0 * load.counts.truncated as f64 / load.counts.answered.max(1) as f64
}

/// So many answers as hundredths of what was due.
fn part(load: &Summary, answers: u64) -> f64 {
    100.0 * answers as f64 / (load.counts.sent + load.counts.unsent).max(1) as f64
}

pub(crate) fn end(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let words = report.words();
    if let Some(knee) = &report.knee {
        writeln!(out, "knee      {}", knee.text(words))?;
    }
    let Some(load) = report.telling() else { return Ok(()) };
    let counts = &load.counts;
    writeln!(out, "{:<9} {} ({})", words.sent, counts.sent, sent_rate(load))?;
    let (part, rate) = (part(load, counts.answered), count(load.answered_rate()));
    writeln!(out, "{:<9} {} ({part:.2} %, {rate}/s)", words.answered, counts.answered)?;
    match &report.held {
        None if report.kind == "gun udp" => {}
        None => writeln!(out, "codes     {}", codes(load, report))?,
        Some(held) => writeln!(out, "held      {} at most, {} at the end", held.most, held.end)?,
    }
    if report.kind == "gun http" {
        writeln!(out, "octets    {} ({}/s)", counts.octets, count(load.octet_rate()))?;
    }
    if counts.by_kernel > 0 {
        writeln!(out, "by kernel {} of the answers, {BY_KERNEL}", counts.by_kernel)?;
    }
    if let Some(faults) = faults(load) {
        writeln!(out, "faults    {faults}")?;
    }
    writeln!(out, "latency   {}", times(&load.latency_us))?;
    if load.offered > 0 {
        writeln!(out, "sent late {}", times(load.sent_late_us()))?;
    }
    if load.is_full() {
        writeln!(out, "{}", busy_connections(load, report))?;
    }
    match &load.bottleneck {
        Some(why) => writeln!(out, "generator was the bottleneck: {why}")?,
        None => writeln!(out, "generator had {:.0} % of its core to spare", 100.0 * load.spare)?,
    }
    Ok(())
}

/// What kept requests waiting.
pub(super) fn busy_connections(load: &Summary, report: &Report) -> String {
    let (connections, part) = (report.connections(), 100.0 * load.connections_busy);
    format!("{connections} were all busy for {part:.0} % of the time: {} waited", report.words().requests)
}

fn sent_rate(load: &Summary) -> String {
    match load.offered {
        0 => format!("{}/s, each when there was room for it", count(load.sent_rate())),
        offered => format!("{} of {}/s", count(load.sent_rate()), count(offered.into())),
    }
}

fn codes(load: &Summary, report: &Report) -> String {
    let codes: Vec<String> =
        named_codes(load, report).iter().map(|(name, times)| format!("{name} {times}")).collect();
    if codes.is_empty() { "none".to_owned() } else { codes.join(", ") }
}

/// Answers by response code.
pub(super) fn named_codes(load: &Summary, report: &Report) -> Vec<(String, u64)> {
    let is_dns = report.kind == "gun dns";
    let name = |code: u16| {
        let rcode = Rcode::ALL.into_iter().find(|known| is_dns && *known as u16 == code);
        rcode.map_or_else(|| code.to_string(), |known| known.name().to_owned())
    };
    load.rcodes.iter().map(|(code, times)| (name(*code), *times)).collect()
}

/// What should not have happened.
fn faults(load: &Summary) -> Option<String> {
    let what_and_how_often = named_faults(load);
    let faults: Vec<String> =
        what_and_how_often.iter().map(|(what, times)| format!("{times} {what}")).collect();
    (!faults.is_empty()).then(|| faults.join(", "))
}

/// The same by name, those alone that have happened.
pub(super) fn named_faults(load: &Summary) -> Vec<(String, u64)> {
    let counts = &load.counts;
    let named = [
        ("lost".to_owned(), load.lost),
        ("of them never sent".to_owned(), counts.unsent),
        (
            "of them given up before their time, as the next ones needed their IDs".to_owned(),
            counts.displaced,
        ),
        ("cut".to_owned(), counts.truncated),
        (format!("to another question, of {} compared", counts.compared), counts.mismatched),
        ("late or doubled".to_owned(), counts.unexpected),
        ("from another address or port, or with an ID that no question had".to_owned(), counts.foreign),
        ("malformed".to_owned(), counts.malformed),
        ("dropped here, as buffers were full".to_owned(), counts.missed),
        ("refused by the system".to_owned(), counts.refused),
    ];
    let of_connections = load.faults.iter().map(|(what, times)| (what.clone(), *times));
    named.into_iter().chain(of_connections).filter(|(_, times)| *times > 0).collect()
}

fn times(times: &Percentiles) -> String {
    let named = [
        ("p50", times.p50),
        ("p90", times.p90),
        ("p99", times.p99),
        ("p99.9", times.p999),
        ("max", times.max),
    ];
    named.map(|(name, value)| format!("{name} {}", time(value))).join("  ")
}

/// Both, a line for each figure.
pub(crate) fn compare(first: &Report, second: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let (Some(one), Some(other)) = (first.telling(), second.telling()) else {
        anyhow::bail!("a report without a load");
    };
    writeln!(out, "{:<22}{:>18}{:>18}{:>9}", "", "first", "second", "ratio")?;
    let began = |report: &Report| report.began.chars().take(16).collect::<String>();
    writeln!(out, "{:<22}{:>18}{:>18}", "began", began(first), began(second))?;
    for (name, one, other) in figures(first, second, one, other) {
        let ratio = ratio(one, other).unwrap_or_default();
        writeln!(out, "{name:<22}{one:>18.1}{other:>18.1}{ratio:>9}")?;
    }
    for (name, load) in [("first", one), ("second", other)] {
        if let Some(why) = &load.bottleneck {
            writeln!(out, "in the {name} the generator was the bottleneck: {why}")?;
        }
    }
    Ok(())
}

/// The second one to the first, if there is one.
pub(super) fn ratio(one: f64, other: f64) -> Option<String> {
    (one > 0.0).then(|| format!("{:.2}", other / one))
}

/// What two reports have, those figures alone that one has: `one` and `other` are their loads that tell most.
pub(super) fn figures(
    first: &Report,
    second: &Report,
    one: &Summary,
    other: &Summary,
) -> Vec<(String, f64, f64)> {
    let carried = |report: &Report| report.knee.as_ref().and_then(|knee| knee.carried).map_or(0.0, f64::from);
    let requests = first.words().requests;
    let wrong = |load: &Summary| 100.0 * load.counts.wrong_share();
    let (knee, offered) = (format!("knee, {requests}/s"), format!("offered, {requests}/s"));
    let held = |report: &Report| report.held.as_ref().map_or(0.0, |held| held.most as f64);
    let figures: [(&str, f64, f64); 19] = [
        (&knee, carried(first), carried(second)),
        (&offered, one.offered.into(), other.offered.into()),
        ("answered, a second", one.answered_rate(), other.answered_rate()),
        ("octets, a second", one.octet_rate(), other.octet_rate()),
        ("held at most", held(first), held(second)),
        ("lost", one.lost as f64, other.lost as f64),
        ("cut (TC)", one.counts.truncated as f64, other.counts.truncated as f64),
        ("late or doubled", one.counts.unexpected as f64, other.counts.unexpected as f64),
        ("from another address", one.counts.foreign as f64, other.counts.foreign as f64),
        ("refused by the system", one.counts.refused as f64, other.counts.refused as f64),
        ("error codes", one.counts.errors as f64, other.counts.errors as f64),
        ("to another question, %", wrong(one), wrong(other)),
        ("malformed", one.counts.malformed as f64, other.counts.malformed as f64),
        ("latency p50, us", one.latency_us.p50, other.latency_us.p50),
        ("latency p90, us", one.latency_us.p90, other.latency_us.p90),
        ("latency p99, us", one.latency_us.p99, other.latency_us.p99),
        ("latency p99.9, us", one.latency_us.p999, other.latency_us.p999),
        ("latency max, us", one.latency_us.max, other.latency_us.max),
        ("sent late p99, us", one.sent_late_us().p99, other.sent_late_us().p99),
    ];
    let had = figures.into_iter().filter(|(_, one, other)| *one > 0.0 || *other > 0.0);
    had.map(|(name, one, other)| (name.to_owned(), one, other)).collect()
}

/// A count with a suffix: 1.50 M, 250 k, 999.
pub(super) fn count(value: f64) -> String {
    match value {
        1e6.. => format!("{:.2} M", value / 1e6),
        1e4.. => format!("{:.1} k", value / 1e3),
        _ => format!("{value:.0}"),
    }
}

/// Microseconds in a unit that suits them.
pub(super) fn time(micros: f64) -> String {
    match micros {
        1e6.. => format!("{:.2} s", micros / 1e6),
        1e3.. => format!("{:.1} ms", micros / 1e3),
        _ => format!("{micros:.0} us"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!([1_500_000.0, 250_000.0, 999.0].map(count), ["1.50 M", "250.0 k", "999"]);
        assert_eq!([2_500_000.0, 1500.0, 80.4].map(time), ["2.50 s", "1.5 ms", "80 us"]);
    }

    #[test]
    fn a_small_plot_has_a_bar_a_second() {
        assert_eq!(plot(&[0, 50, 100], 100), "▁▅█");
        assert_eq!(plot(&[0], 0), "▁");
    }
}
