//! For the terminal.

use std::io::{IsTerminal, Write};

use dns_wire::Rcode;
use gun::Summary;
use gun::knee::Verdict;
use gun::summary::{Counts, Percentiles, Second};

use super::report::{Report, Words};
use crate::output::complain;

/// Bars of a small plot.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Seconds that it shows at most.
const WIDTH: usize = 30;
/// Columns of a terminal that does not say how many it has.
const COLUMNS: usize = 80;

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
        let line = self.line(second, columns());
        let _ = write!(std::io::stderr(), "\r\x1b[2K{line}"); // Nobody may be looking.
    }

    /// What is shown of a second: one line of a terminal with so many columns. The last one stays free, as some terminals wrap behind it.
    fn line(&self, second: &Second, columns: usize) -> String {
        let room = columns.saturating_sub(1);
        let figures = format!(
            "{:>4} s  {} answers/s  p50 {}  p99 {}  ",
            self.seconds,
            count(second.answered as f64),
            time(second.latency_us.p50),
            time(second.latency_us.p99)
        );
        let width = room.saturating_sub(figures.len()).min(WIDTH);
        let from = self.rates.len().saturating_sub(width);
        let bars = plot(&self.rates[from..], u64::from(self.offered));
        (figures + &bars).chars().take(room).collect()
    }

    pub(crate) fn end(&mut self) {
        if self.is_shown && self.seconds > 0 {
            let _ = write!(std::io::stderr(), "\r\x1b[2K");
        }
    }
}

/// Those of the terminal that stderr is.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr());
    size.ok().map(|size| size.ws_col.into()).filter(|columns| *columns > 0).unwrap_or(COLUMNS)
}

fn plot(rates: &[u64], most: u64) -> String {
    let top = rates.iter().copied().max().unwrap_or(0).max(most).max(1);
    rates.iter().map(|rate| BARS[(rate * (BARS.len() as u64 - 1)).div_ceil(top) as usize]).collect()
}

pub(crate) fn begin(report: &Report) {
    complain!("{}", headline(report));
}

/// Who is asked what, and how.
fn headline(report: &Report) -> String {
    let Report { server, subject, questions, device, ports, .. } = report;
    let what = if *questions == 1 { subject.clone() } else { format!("{subject}, {questions} questions") };
    let seed = report.seed.map_or(String::new(), |seed| format!("; seed {seed}"));
    format!("{server}: {what}; {ports} {}, {device}{seed}", report.words().places)
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
    100.0 * answers as f64 / load.counts.due().max(1) as f64
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
        ("of them never sent".to_owned(), counts.unsent + counts.unreached),
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
    let of_connections = load.faults.iter().map(|(what, times)| (load.explained(what), *times));
    named.into_iter().chain(of_connections).filter(|(_, times)| *times > 0).collect()
}

fn times(times: &Percentiles) -> String {
    if *times == Percentiles::default() {
        return "none".to_owned();
    }
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
    for (name, report) in [("first", first), ("second", second)] {
        let began = report.began.chars().take(16).collect::<String>();
        writeln!(out, "{name:<8} {began}  {}, {}", report.kind, headline(report))?;
    }
    writeln!(out, "{:<22}{:>18}{:>18}{:>9}", "", "first", "second", "ratio")?;
    for Figure { name, first, second } in figures((first, one), (second, other)) {
        let ratio = ratio(first, second).unwrap_or_default();
        let [first, second] = [first, second].map(figure);
        writeln!(out, "{name:<22}{first:>18}{second:>18}{ratio:>9}")?;
    }
    for (name, load) in [("first", one), ("second", other)] {
        if let Some(why) = &load.bottleneck {
            writeln!(out, "in the {name} the generator was the bottleneck: {why}")?;
        }
    }
    Ok(())
}

/// A line of a comparison. `None`: the report has no such figure.
pub(super) struct Figure {
    pub(super) name: &'static str,
    pub(super) first: Option<f64>,
    pub(super) second: Option<f64>,
}

/// A figure for people.
pub(super) fn figure(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value > 0.0 && value < 1.0 => format!("{value:.4}"),
        Some(value) => format!("{value:.1}"),
    }
}

/// The second one to the first, if there is one.
pub(super) fn ratio(one: Option<f64>, other: Option<f64>) -> Option<String> {
    let (one, other) = one.zip(other).filter(|(one, _)| *one > 0.0)?;
    Some(format!("{:.2}", other / one))
}

/// What two reports have, each with its load that tells most: those figures that one of them has.
pub(super) fn figures(first: (&Report, &Summary), second: (&Report, &Summary)) -> Vec<Figure> {
    let pairs = figures_of(first.0, first.1).into_iter().zip(figures_of(second.0, second.1));
    let figures = pairs.map(|((name, first), (_, second))| Figure { name, first, second });
    let is_there = |value: Option<f64>| value.is_some_and(|value| value > 0.0);
    figures.filter(|it| is_there(it.first) || is_there(it.second)).collect()
}

/// What a report has. Loads differ in size, so what went wrong is a part of what was due.
fn figures_of(report: &Report, load: &Summary) -> [(&'static str, Option<f64>); 19] {
    let Counts { truncated, unexpected, foreign, refused, errors, malformed, .. } = load.counts;
    let latency = &load.latency_us;
    let time = |value: f64| (load.counts.answered > 0).then_some(value);
    let fault = |count: u64| Some(part(load, count));
    [
        ("knee, a second", report.knee.as_ref().and_then(|knee| knee.carried).map(f64::from)),
        ("offered, a second", (load.offered > 0).then_some(load.offered.into())),
        ("answered, a second", Some(load.answered_rate())),
        ("octets, a second", Some(load.octet_rate())),
        ("held at most", report.held.as_ref().map(|held| held.most as f64)),
        ("lost, %", fault(load.lost)),
        ("cut (TC), %", fault(truncated)),
        ("late or doubled, %", fault(unexpected)),
        ("no answers, %", fault(foreign)),
        ("refused here, %", fault(refused)),
        ("error codes, %", fault(errors)),
        ("other question, %", Some(100.0 * load.counts.wrong_share())),
        ("malformed, %", fault(malformed)),
        ("latency p50, us", time(latency.p50)),
        ("latency p90, us", time(latency.p90)),
        ("latency p99, us", time(latency.p99)),
        ("latency p99.9, us", time(latency.p999)),
        ("latency max, us", time(latency.max)),
        ("sent late p99, us", (load.offered > 0).then_some(load.sent_late_us().p99)),
    ]
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
    fn what_is_shown_of_a_second_fits_the_terminal() {
        let mut live = Live::silent();
        live.rates = vec![140_600; 100];
        live.seconds = 100_000;
        let mut tally = gun::Tally::new(clock::Instant::ZERO);
        let mut second = tally.end_seconds(clock::Instant::from_nanos(1_000_000_000)).unwrap().clone();
        (second.answered, second.latency_us.p50, second.latency_us.p99) = (140_600, 742_900.0, 742_900.0);
        for columns in [0, 1, 20, 40, 80] {
            let width = live.line(&second, columns).chars().count();
            assert!(width < columns.max(1), "{columns}: {width}");
        }
        assert!(live.line(&second, 200).ends_with(&plot(&[140_600; WIDTH], 0)));
        assert!(live.line(&second, 80).contains(BARS[7]));
    }

    fn report(kind: &str, counts: Counts) -> Report {
        let mut load = gun::Tally::new(clock::Instant::ZERO).summary(100, clock::Duration::from_secs(1), 0);
        (load.counts, load.lost) = (counts, counts.sent - counts.answered);
        Report { kind: kind.to_owned(), loads: vec![load], ..Report::default() }
    }

    #[test]
    fn a_figure_that_a_report_does_not_have_is_not_zero() {
        let silent = report("gun dns", Counts { sent: 100, ..Counts::default() });
        let mut answered = report("gun udp", Counts { sent: 1000, answered: 990, ..Counts::default() });
        answered.loads[0].latency_us.p50 = 5.0;
        let mut text = Vec::new();
        compare(&answered, &silent, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let line = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            line[name.len()..].split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(line("latency p50, us"), ["5.0", "-"], "{text}");
        assert_eq!(line("lost, %"), ["1.0", "100.0", "100.00"], "{text}");
        assert!(text.contains("gun udp, ") && text.contains("gun dns, ") && !text.contains("knee"), "{text}");
    }

    #[test]
    fn a_small_plot_has_a_bar_a_second() {
        assert_eq!(plot(&[0, 50, 100], 100), "▁▅█");
        assert_eq!(plot(&[0], 0), "▁");
    }
}
