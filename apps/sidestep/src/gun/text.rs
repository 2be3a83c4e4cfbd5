//! For the terminal.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};

use dns_wire::Rcode;
use gun::Summary;
use gun::knee::Verdict;
use gun::tally::{Percentiles, Second};

use super::report::{Report, Words};
use crate::output::complain;

/// Bars of a small plot.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Seconds that it shows.
const WIDTH: usize = 30;

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
    complain!("{server}: {what}; {ports} {}, {device}", report.words().places);
}

/// A step of the search for the knee.
pub(crate) fn step(load: &Summary, verdict: Verdict, words: Words) {
    let said = match verdict {
        Verdict::Carried => "carried",
        Verdict::TooMuch => "too much",
        Verdict::NotOffered => "more than can be sent",
    };
    complain!(
        "  {} {}/s: {:.2} % answered, p99 {}: {said}",
        count(load.offered.into()),
        words.requests,
        part(load),
        time(load.latency_us.p99)
    );
}

/// Hundredths of what was due that were answered.
fn part(load: &Summary) -> f64 {
    100.0 * load.counts.answered as f64 / (load.counts.sent + load.counts.unsent).max(1) as f64
}

pub(crate) fn end(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let words = report.words();
    if let Some(knee) = &report.knee {
        match knee.carried {
            Some(rate) => writeln!(
                out,
                "knee      {} {}/s; what limits it is the {}",
                count(rate.into()),
                words.requests,
                knee.limit
            )?,
            None => writeln!(out, "knee      none: no load was carried")?,
        }
    }
    let Some(load) = report.telling() else { return Ok(()) };
    let counts = &load.counts;
    writeln!(out, "{:<9} {} ({})", words.sent, counts.sent, sent_rate(load))?;
    let (part, rate) = (part(load), count(load.answered_rate()));
    writeln!(out, "{:<9} {} ({part:.2} %, {rate}/s)", words.answered, counts.answered)?;
    match &report.held {
        None if report.kind == "gun udp" => {}
        None => writeln!(out, "codes     {}", codes(load, report))?,
        Some(held) => writeln!(out, "held      {} at most, {} at the end", held.most, held.end)?,
    }
    if report.kind == "gun http" {
        writeln!(out, "octets    {} ({}/s)", counts.octets, count(counts.octets as f64 / load.length_s))?;
    }
    if let Some(faults) = faults(load) {
        writeln!(out, "faults    {faults}")?;
    }
    writeln!(out, "latency   {}", times(&load.latency_us))?;
    if load.offered > 0 {
        writeln!(out, "sent late {}", times(&load.lag_us))?;
    }
    match &load.bottleneck {
        Some(why) => writeln!(out, "generator was the bottleneck: {why}")?,
        None => writeln!(out, "generator had {:.0} % of its core to spare", 100.0 * load.spare)?,
    }
    Ok(())
}

fn sent_rate(load: &Summary) -> String {
    match load.offered {
        0 => format!("{}/s, each when there was room for it", count(load.sent_rate())),
        offered => format!("{} of {}/s", count(load.sent_rate()), count(offered.into())),
    }
}

fn codes(load: &Summary, report: &Report) -> String {
    let is_dns = report.kind == "gun dns";
    let name = |code: u16| {
        let rcode = Rcode::ALL.into_iter().find(|known| is_dns && *known as u16 == code);
        rcode.map_or_else(|| code.to_string(), |known| known.name().to_owned())
    };
    let codes: Vec<String> =
        load.rcodes.iter().map(|(code, times)| format!("{} {times}", name(*code))).collect();
    if codes.is_empty() { "none".to_owned() } else { codes.join(", ") }
}

/// What should not have happened.
fn faults(load: &Summary) -> Option<String> {
    let counts = &load.counts;
    let named = [
        (load.lost, "lost"),
        (counts.unsent, "of them never sent"),
        (counts.truncated, "cut"),
        (counts.mismatched, "to another question"),
        (counts.unexpected, "late or doubled"),
        (counts.malformed, "malformed"),
        (counts.refused, "refused by the system"),
    ];
    let mut text = String::new();
    let of_connections = load.faults.iter().map(|(what, times)| (*times, &what[..]));
    for (times, what) in named.into_iter().chain(of_connections).filter(|(times, _)| *times > 0) {
        let _ = write!(text, "{}{times} {what}", if text.is_empty() { "" } else { ", " });
    }
    (!text.is_empty()).then_some(text)
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
    let carried = |report: &Report| report.knee.as_ref().and_then(|knee| knee.carried).map_or(0.0, f64::from);
    let requests = first.words().requests;
    let (knee, offered) = (format!("knee, {requests}/s"), format!("offered, {requests}/s"));
    let figures: [(&str, f64, f64); 9] = [
        (&knee, carried(first), carried(second)),
        (&offered, one.offered.into(), other.offered.into()),
        ("answered, a second", one.answered_rate(), other.answered_rate()),
        ("lost", one.lost as f64, other.lost as f64),
        ("latency p50, us", one.latency_us.p50, other.latency_us.p50),
        ("latency p90, us", one.latency_us.p90, other.latency_us.p90),
        ("latency p99, us", one.latency_us.p99, other.latency_us.p99),
        ("latency p99.9, us", one.latency_us.p999, other.latency_us.p999),
        ("latency max, us", one.latency_us.max, other.latency_us.max),
    ];
    for (name, one, other) in figures.into_iter().filter(|(_, one, other)| *one > 0.0 || *other > 0.0) {
        let ratio = if one > 0.0 { format!("{:.2}", other / one) } else { String::new() };
        writeln!(out, "{name:<22}{one:>18.1}{other:>18.1}{ratio:>9}")?;
    }
    for (name, load) in [("first", one), ("second", other)] {
        if let Some(why) = &load.bottleneck {
            writeln!(out, "in the {name} the generator was the bottleneck: {why}")?;
        }
    }
    Ok(())
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
