//! `sidestep top`: what runs just now, as htop(1) shows it.
//!
//! | file | what it does |
//! | --- | --- |
//! | `look.rs`, `left_alone.rs`, `cpu.rs` | asks brokers, programs and the kernel |
//! | `figures.rs` | rates and shares, from two looks |
//! | `choice.rs` | order, selection and keys |
//! | `screen.rs`, `text.rs` | the screen, and lines where there is none |

mod choice;
mod cpu;
mod figures;
mod left_alone;
mod look;
mod screen;
mod text;

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use ratatui::Frame;

use crate::live::{Feed, Key, Next, View, is_interactive, show, write_picture};
use crate::observe::Which;
use crate::output::{Reader, complain, to_stdout};

use choice::Choice;
use figures::{Figures, figures};
use look::{Look, Looker};

/// The first rates come after this time.
const FIRST: Duration = Duration::from_millis(250);
/// Lines of a picture.
const PICTURE_ROWS: u16 = 24;

/// The options of `top`. `--pid` may also be that of a `sidestep run`, for the programs under it.
#[derive(Args, Clone, Debug)]
pub(crate) struct Top {
    #[command(flatten)]
    which: Which,

    /// Begin with the sockets of this program; print them, where lines are printed.
    #[arg(long, value_name = "PID")]
    sockets: Option<u32>,

    /// Seconds between updates.
    #[arg(long, short, value_name = "S", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,

    /// Print lines, and stop after so many updates [default: never, if there is no terminal].
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Print the lines of one update. The same as --count 1.
    #[arg(long, conflicts_with = "count")]
    once: bool,

    /// Write the screen after one interval as a picture into FILE, in SVG.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["count", "once"])]
    svg: Option<PathBuf>,
}

/// `sidestep top`.
pub(crate) fn run(options: &Top) -> anyhow::Result<ExitCode> {
    match &options.svg {
        Some(path) => picture(options, path)?,
        None if options.once || options.count.is_some() || !is_interactive() => lines(options)?,
        None => on_terminal(options)?,
    }
    Ok(ExitCode::SUCCESS)
}

impl Top {
    fn choice(&self) -> Choice {
        Choice { selected: self.sockets, shows_sockets: self.sockets.is_some(), ..Choice::default() }
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(self.interval)
    }

    /// The first look. An error if nothing runs, or not the program whose sockets are wanted.
    fn first_look(&self, looker: &mut Looker) -> anyhow::Result<Look> {
        let look = looker.look(self.sockets);
        if look.is_of_nobody() { Err(self.why_nobody(&look)) } else { self.with_sockets(look) }
    }

    fn with_sockets(&self, look: Look) -> anyhow::Result<Look> {
        let Some(pid) = self.sockets.filter(|pid| !look.has(*pid)) else { return Ok(look) };
        match look.failures(Some(pid)).next() {
            Some(why) => bail!("{why}"),
            None => bail!("--sockets: no Sidestep program {pid} is running here"),
        }
    }

    fn why_nobody(&self, look: &Look) -> anyhow::Error {
        let all = |of| look.failures(of).collect::<Vec<_>>().join("; ");
        let (own, all) = (all(self.which.pid), all(None));
        let nobody = |pid| format!("no Sidestep program {pid} and no `sidestep run` {pid} is running here");
        match self.which.pid {
            _ if !own.is_empty() => anyhow::anyhow!(own),
            Some(pid) if all.is_empty() => anyhow::anyhow!(nobody(pid)),
            // A program without a queue is known to its broker alone.
            Some(pid) => anyhow::anyhow!("{}, as far as those say who answer: {all}", nobody(pid)),
            None => anyhow::anyhow!("no Sidestep program is running here"),
        }
    }
}

/// Prints lines until nothing runs any more, nobody reads them, or there were enough updates. An error if there was nothing to print.
fn lines(options: &Top) -> anyhow::Result<()> {
    let mut looker = Looker::new(options.which.clone());
    let mut old = options.first_look(&mut looker)?;
    let choice = options.choice();
    let mut left = if options.once { Some(1) } else { options.count };
    let mut has_told = false;
    while left != Some(0) {
        std::thread::sleep(options.interval());
        let new = looker.look(options.sockets);
        left = left.map(|left| left - 1);
        if new.is_of_nobody() {
            let is_last = new.is_over() || left == Some(0);
            if is_last && !has_told {
                return Err(options.why_nobody(&new));
            }
            if new.is_over() {
                break;
            }
            new.failures(None).for_each(|why| complain!("sidestep: {why}"));
            continue;
        }
        let text = text::lines(&figures(Some(&old), &new), &choice);
        if to_stdout(|out| Ok(out.write_all(text.as_bytes())?))? == Reader::Gone {
            break;
        }
        (old, has_told) = (new, true);
    }
    Ok(())
}

/// Writes what the screen shows after one interval.
fn picture(options: &Top, path: &Path) -> anyhow::Result<()> {
    let mut looker = Looker::new(options.which.clone());
    let old = options.first_look(&mut looker)?;
    std::thread::sleep(options.interval());
    let figures = figures(Some(&old), &looker.look(options.sockets));
    let choice = options.choice();
    write_picture(path, PICTURE_ROWS, |frame| screen::draw(frame, &figures, &choice))
}

fn on_terminal(options: &Top) -> anyhow::Result<()> {
    let feed = Feed::new().context("making a descriptor")?;
    let wish = Arc::new(Wish { selected: Mutex::new(options.sockets), ..Wish::default() });
    let (looks, wanted, interval) = (feed.clone(), Arc::clone(&wish), options.interval());
    let mut looker = Looker::new(options.which.clone());
    let gather = move || {
        let mut pause = FIRST.min(interval);
        loop {
            looks.put(looker.look(wanted.selected()));
            wanted.wait(std::mem::replace(&mut pause, interval));
        }
    };
    // It ends with the process: it may be waiting for a program that does not answer.
    std::thread::Builder::new().name("looks".to_owned()).spawn(gather).context("starting a thread")?;
    show(&mut Screen {
        feed,
        wish,
        interval,
        base: None,
        older: None,
        figures: Figures::default(),
        choice: options.choice(),
    })
}

/// The view.
struct Screen {
    feed: Feed<Look>,
    wish: Arc<Wish>,
    interval: Duration,
    /// The look that rates count from, and the one before it, for a look that comes too soon behind.
    base: Option<Look>,
    older: Option<Look>,
    figures: Figures,
    choice: Choice,
}

impl View for Screen {
    fn refresh(&mut self) -> anyhow::Result<()> {
        if let Some(look) = self.feed.take() {
            // A look out of turn, for the sockets of another program, is too near the last one for rates.
            let is_due = self.base.as_ref().is_none_or(|base| look.is_after(base, self.interval / 2));
            let since = if is_due { None } else { self.older.as_ref() };
            self.figures = figures(since.or(self.base.as_ref()), &look);
            if is_due {
                self.older = self.base.replace(look);
            }
        }
        Ok(())
    }

    fn on_key(&mut self, key: Key) -> Next {
        let next = self.choice.on_key(key, &self.figures);
        let programs = self.choice.sorted(&self.figures);
        let selected = programs.get(self.choice.place_in(&programs)).map(|program| program.pid);
        self.wish.select(selected.filter(|_| self.choice.shows_sockets));
        next
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        screen::draw(frame, &self.figures, &self.choice);
    }

    fn bell(&self) -> BorrowedFd<'_> {
        self.feed.bell()
    }
}

/// Whose sockets the user wants to see, told to the thread that looks.
#[derive(Default)]
struct Wish {
    selected: Mutex<Option<u32>>,
    changed: Condvar,
}

impl Wish {
    fn selected(&self) -> Option<u32> {
        *self.selected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn select(&self, pid: Option<u32>) {
        let mut selected = self.selected.lock().unwrap_or_else(PoisonError::into_inner);
        if *selected != pid {
            *selected = pid;
            self.changed.notify_all();
        }
    }

    /// Waits so long, or until another program is selected.
    fn wait(&self, time: Duration) {
        let selected = self.selected.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *selected;
        drop(self.changed.wait_timeout_while(selected, time, |selected| *selected == before));
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::look::Seen;
    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        top: Top,
    }

    #[test]
    fn sockets_of_what_is_no_sidestep_program_are_an_error() {
        let look = |failures: &[(Option<u32>, String)]| Look {
            at: std::time::Instant::now(),
            programs: vec![Seen { pid: 7, ..Seen::default() }],
            interfaces: Vec::new(),
            brokers: 0,
            failures: failures.to_vec(),
            may_answer: false,
        };
        let check = |words: &[&str], look| {
            let top = Words::parse_from([&["top"], words].concat()).top;
            top.with_sockets(look).map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(check(&[], look(&[])), Ok(()));
        assert_eq!(check(&["--sockets", "7"], look(&[])), Ok(()));
        let none = "--sockets: no Sidestep program 1 is running here".to_owned();
        assert_eq!(check(&["--sockets", "1"], look(&[(None, "others".to_owned())])), Err(none));
        let silent = check(&["--sockets", "1"], look(&[(Some(1), "1 does not answer".to_owned())]));
        assert_eq!(silent, Err("1 does not answer".to_owned()));
    }
}
