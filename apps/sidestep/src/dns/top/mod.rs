//! `sidestep dns top`: what a server is asked just now, by captures of its answers.
//!
//! | file | what it does |
//! | --- | --- |
//! | `gather.rs` | captures, round after round |
//! | `answer.rs` | an answer in a frame |
//! | `heavy.rs`, `tally.rs` | the most frequent names, clients, types and codes, in bounded memory |
//! | `screen.rs` | the screen |

mod answer;
mod gather;
mod heavy;
mod screen;
mod tally;

use std::fmt::Write as _;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use observe::client::ClientError;
use ratatui::Frame;

use crate::live::{Feed, Key, Next, View, is_interactive, rate, show, write_picture};
use crate::observe::{Which, filter_of};
use crate::output::{Reader, complain, to_stdout};

use gather::Gatherer;
use screen::{Choice, share};
use tally::{Figures, List};

/// Lines of a picture.
const PICTURE_ROWS: u16 = 24;
/// Time between two looks for a server while none runs.
const PAUSE: Duration = Duration::from_secs(1);

/// Show what DNS servers are asked just now: names, names above them, clients, types, response codes, rates.
///
/// Answers over UDP count, as `sidestep capture` sees them: those of `dns serve`, and of DNS servers under `sidestep run`. A resolver
/// (`dns resolve`) has no engines, and is refused. Memory is bounded: shares marked with ≥ may be larger, never smaller.
///
/// Tab chooses a list, Enter gives it the screen, r forgets what was counted, q quits. Without a terminal, lines are printed.
#[derive(Args, Clone, Debug)]
pub(crate) struct Top {
    #[command(flatten)]
    which: Which,

    /// Seconds between updates.
    #[arg(long, short, value_name = "S", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,

    /// Print lines, and stop after so many updates [default: never, if there is no terminal].
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Print the lines of one update. The same as --count 1.
    #[arg(long, conflicts_with = "count")]
    once: bool,

    /// Labels of the names above.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=127))]
    labels: u8,

    /// Print so many lines of each list.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    lines: u16,

    /// Write the screen after one interval as a picture into FILE, in SVG.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["count", "once"])]
    svg: Option<PathBuf>,

    /// Count only matching answers, such as `dst net 192.0.2.0/24`. See docs/observability.md.
    #[arg(value_name = "FILTER", trailing_var_arg = true)]
    filter: Vec<String>,
}

/// `sidestep dns top`.
pub(crate) fn run(options: &Top) -> anyhow::Result<ExitCode> {
    let filter = filter_of(&options.filter)?;
    let interval = Duration::from_secs(options.interval);
    let gatherer = Gatherer::new(options.which.clone(), &filter, interval, options.labels.into());
    match &options.svg {
        Some(path) => picture(gatherer, path)?,
        None if options.once || options.count.is_some() || !is_interactive() => lines(options, gatherer)?,
        None => on_terminal(gatherer)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints lines until no server runs any more, nobody reads them, or there were enough updates. A round without an answer is told.
fn lines(options: &Top, mut gatherer: Gatherer) -> anyhow::Result<()> {
    let mut left = if options.once { Some(1) } else { options.count };
    let mut has_told = false;
    while left != Some(0) {
        let outcome = gatherer.round();
        left = left.map(|left| left - 1);
        let figures = match outcome {
            Err(error) if has_told && is_gone(&error) => break,
            Err(error) if has_told || (left != Some(0) && may_answer(&error)) => {
                complain!("sidestep: {}", crate::explain(&error));
                std::thread::sleep(PAUSE);
                continue;
            }
            outcome => outcome?,
        };
        if !has_told {
            figures.refused.iter().for_each(|why| complain!("sidestep: {why}"));
        }
        let text = text(&figures, options.lines.into());
        if to_stdout(|out| Ok(out.write_all(text.as_bytes())?))? == Reader::Gone {
            break;
        }
        has_told = true;
    }
    Ok(())
}

/// Whether an error means that there is no program any more.
fn is_gone(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(ClientError::is_gone)
}

/// Whether a program was too slow for this round. One that ended in it is gone in the next one.
fn may_answer(error: &anyhow::Error) -> bool {
    let is_slow = |error: &ClientError| {
        matches!(error, ClientError::Silent { .. } | ClientError::Connection(_) | ClientError::CutOff)
    };
    error.downcast_ref().is_some_and(|error: &ClientError| is_slow(error) && !error.is_gone())
}

/// What is printed of one round.
fn text(figures: &Figures, lines: usize) -> String {
    let mut text = String::new();
    let _ = write!(text, "answers {}/s over UDP from {}", rate(figures.rate), figures.programs.join(", "));
    if figures.seen < 0.9995 {
        let _ = write!(text, "; {:.1}% of them seen", figures.seen * 100.0);
    }
    text.push('\n');
    let mut add = |kind: &str, list: &List| {
        for hit in list.iter().take(lines) {
            let _ =
                writeln!(text, "{kind} {} {} {}/s", hit.key, share(hit), rate(hit.at_least * figures.rate));
        }
    };
    add("name", &figures.names);
    add("above", &figures.above);
    add("client", &figures.clients);
    add("type", &figures.types);
    add("code", &figures.codes);
    text
}

/// Writes what the screen shows after one interval.
fn picture(mut gatherer: Gatherer, path: &Path) -> anyhow::Result<()> {
    let figures = gatherer.round()?;
    write_picture(path, PICTURE_ROWS, |frame| screen::draw(frame, &figures, &Choice::default()))
}

fn on_terminal(mut gatherer: Gatherer) -> anyhow::Result<()> {
    let feed = Feed::new().context("making a descriptor")?;
    let forgets = Arc::new(AtomicBool::new(false));
    let (rounds, is_to_forget) = (feed.clone(), Arc::clone(&forgets));
    let gather = move || {
        loop {
            if is_to_forget.swap(false, Ordering::Relaxed) {
                gatherer.forget();
            }
            match gatherer.round() {
                Ok(figures) => rounds.put(figures),
                Err(error) => {
                    let refused = if is_gone(&error) { Vec::new() } else { vec![crate::explain(&error)] };
                    rounds.put(Figures { refused, ..Figures::default() });
                    std::thread::sleep(PAUSE); // Servers come and go.
                }
            }
        }
    };
    // It ends with the process: it may be waiting for a program that does not answer.
    std::thread::Builder::new().name("rounds".to_owned()).spawn(gather).context("starting a thread")?;
    show(&mut Screen { feed, forgets, figures: Figures::default(), choice: Choice::default() })
}

/// The view.
struct Screen {
    feed: Feed<Figures>,
    /// Told to the thread that gathers.
    forgets: Arc<AtomicBool>,
    figures: Figures,
    choice: Choice,
}

impl View for Screen {
    fn refresh(&mut self) -> anyhow::Result<()> {
        if let Some(figures) = self.feed.take() {
            self.figures = figures;
        }
        Ok(())
    }

    fn on_key(&mut self, key: Key) -> Next {
        let next = self.choice.on_key(key);
        if std::mem::take(&mut self.choice.forgets) {
            self.forgets.store(true, Ordering::Relaxed);
        }
        next
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        screen::draw(frame, &self.figures, &self.choice);
    }

    fn bell(&self) -> BorrowedFd<'_> {
        self.feed.bell()
    }
}

#[cfg(test)]
mod tests {
    use super::heavy::Hit;
    use super::*;

    #[test]
    fn each_of_the_most_frequent_has_a_line() {
        let hit = |key: &str, at_least, at_most| Hit { key: key.to_owned(), at_least, at_most };
        let figures = Figures {
            programs: vec!["dns/7".to_owned()],
            rate: 200.0,
            seen: 0.5,
            names: vec![
                hit("a.example.", 0.5, 0.5),
                hit("b.example.", 0.25, 0.5),
                hit("c.example.", 0.1, 0.1),
            ],
            codes: vec![hit("NOERROR", 1.0, 1.0)],
            ..Figures::default()
        };
        let expected = "\
answers 200/s over UDP from dns/7; 50.0% of them seen
name a.example. 50.0% 100/s
name b.example. ≥25.0% 50/s
code NOERROR 100.0% 200/s
";
        assert_eq!(text(&figures, 2), expected);
    }
}
