//! `sidestep top`: the status, repeated, with packet rates.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use broker::server::StatusReport;
use clap::Args;

use super::process::Process;
use super::socket::{self, Answers};
use super::text;
use crate::output::{Reader, to_stdout};

/// Puts the cursor into the upper left corner and clears what is below, as terminals have understood since the VT100.
const CLEAR: &str = "\x1b[H\x1b[J";

/// The options of `top`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Top {
    /// Show only the `sidestep run` with this process id.
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,

    /// Seconds between updates.
    #[arg(long, short, value_name = "S", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,

    /// Stop after so many updates [default: never].
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

/// Counts of interfaces, by `sidestep run` and name.
type Counts = BTreeMap<(u32, String, String), u64>;

/// `sidestep top`. Ends when the last `sidestep run` ends, when nobody reads its output, and by SIGINT.
pub(crate) fn run(options: &Top) -> anyhow::Result<ExitCode> {
    let mut before: Option<(Instant, Counts)> = None;
    let mut looks = 0;
    loop {
        let mut answers = socket::ask(options.pid);
        if looks == 0 {
            answers = answers.unless_none(options.pid)?;
        } else if answers.is_of_nobody() {
            return Ok(ExitCode::SUCCESS);
        }
        let Answers { reports, failures } = answers;
        let (now, counts) = (Instant::now(), counts(&reports));
        let mut screen = String::new();
        if std::io::stdout().is_terminal() {
            screen.push_str(CLEAR);
        }
        reports.iter().for_each(|(pid, report)| screen.push_str(&text::report(*pid, report, &Process::of)));
        if let Some((earlier, old)) = &before {
            screen.push_str(&rates(old, &counts, now.duration_since(*earlier)));
        }
        failures.iter().for_each(|failure| screen.push_str(&format!("{failure}\n")));
        let reader = to_stdout(|out| Ok(out.write_all(screen.as_bytes())?))?;
        before = Some((now, counts));
        looks += 1;
        if reader == Reader::Gone || options.count.is_some_and(|count| looks >= count) {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(Duration::from_secs(options.interval));
    }
}

fn counts(reports: &[(u32, StatusReport)]) -> Counts {
    let interfaces = reports
        .iter()
        .flat_map(|(pid, report)| report.interfaces.iter().map(move |interface| (*pid, interface)));
    let counts = interfaces.flat_map(|(pid, interface)| {
        let of = move |(name, count): &(String, u64)| ((pid, interface.name.clone(), name.clone()), *count);
        interface.counters.iter().map(of)
    });
    counts.collect()
}

/// Packets a second, by counter. An interface that is new, or whose counters started anew, has no rate yet.
fn rates(old: &Counts, new: &Counts, time: Duration) -> String {
    let mut text = String::new();
    for (key, count) in new {
        let gained = old.get(key).map_or(0, |before| count.saturating_sub(*before));
        if gained > 0 {
            let (_, interface, name) = key;
            let rate = gained as f64 / time.as_secs_f64();
            let _ = writeln!(text, "{interface}: {rate:.0} packets a second {name}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_counted_meanwhile_has_a_rate() {
        let counts = |redirected, passed| {
            let key = |name: &str| (1, "eth0".to_owned(), name.to_owned());
            BTreeMap::from([(key("redirected"), redirected), (key("passed_not_ip"), passed)])
        };
        let text = rates(&counts(100, 5), &counts(300, 5), Duration::from_secs(2));
        assert_eq!(text, "eth0: 100 packets a second redirected\n");
        assert_eq!(rates(&counts(100, 5), &counts(3, 0), Duration::from_secs(1)), "", "counted anew");
        assert_eq!(rates(&BTreeMap::new(), &counts(3, 0), Duration::from_secs(1)), "");
    }
}
