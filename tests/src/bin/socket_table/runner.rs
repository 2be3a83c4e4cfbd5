//! Runs checks in processes that have a time limit, and prints what they say.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use crate::checks;
use crate::scene::{Scene, Stage};
use crate::sys::{self, End, Errno};
use crate::table::{Check, Failure, Variant};

/// Time that a check has, on a machine that does other work too.
const TIME_MAX: Duration = Duration::from_secs(60);
/// Checks that one process does after each other, at most.
const TOGETHER_MAX: usize = 12;

/// What is to be run, and where.
pub(crate) struct Run {
    /// Addresses and the peer.
    pub(crate) stage: Stage,
    /// Which part of how many: every so-manieth check.
    pub(crate) shard: (usize, usize),
    /// Parts of names; all if there are none.
    pub(crate) filters: Vec<String>,
}

/// A check in one of its settings.
type Selected<'a> = (&'a Check, Variant);

impl Run {
    /// Runs the checks one after the other, and writes what they say to `output`.
    pub(crate) fn run(&self, output: &mut dyn Write) {
        let table = checks::all();
        let (own, all) = self.shard;
        let selected: Vec<Selected<'_>> =
            selected(&table, &self.filters).skip(own).step_by(all.max(1)).collect();
        let mut left = &selected[..];
        while !left.is_empty() {
            let together = left.iter().take_while(|(check, _)| !check.alone).count();
            let (now, _) = left.split_at(together.clamp(1, TOGETHER_MAX));
            let (said, done) = run_in_a_process(now, &self.stage);
            // Nobody to tell if nobody reads.
            let _ = output.write_all(said.as_bytes());
            // One that broke the process is done; those behind it get another one.
            left = &left[done.clamp(1, now.len())..];
        }
    }
}

/// The checks whose names contain one of `filters`, or all.
pub(crate) fn selected<'a>(table: &'a [Check], filters: &[String]) -> impl Iterator<Item = Selected<'a>> {
    let all = table.iter().flat_map(|check| check.variants.iter().map(move |variant| (check, *variant)));
    all.filter(move |(check, variant)| {
        let name = format!("{}{}", check.name, variant.suffix);
        filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()))
    })
}

/// What comes in front of what a check says.
fn head((check, variant): &Selected<'_>) -> String {
    format!("== {}{}", check.name, variant.suffix)
}

/// What checks say that share a process, with a line at its end if that did not end well; and how many have begun.
fn run_in_a_process(together: &[Selected<'_>], stage: &Stage) -> (String, usize) {
    match start(together, stage) {
        Ok((pid, reader)) => {
            let said = follow(pid, reader);
            let begun = said.lines().filter(|line| line.starts_with("== ")).count();
            (said, begun)
        }
        Err(errno) => (format!("{}\nnot started: {errno}\n", head(&together[0])), 1),
    }
}

fn start(together: &[Selected<'_>], stage: &Stage) -> sys::Result<(libc::pid_t, File)> {
    let [reader, writer] = sys::pipe(libc::O_CLOEXEC)?;
    let pid = sys::fork_to(|| {
        // So that whatever it starts can be ended with it. A failure would show as processes left behind.
        let _ = sys::new_process_group();
        // As most programs end.
        sys::exit(act(together, &sys::own(writer), stage))
    })?;
    sys::close(writer)?;
    Ok((pid, sys::own(reader)))
}

/// Does one check after the other; what sockets one has left does not live to the next.
fn act(together: &[Selected<'_>], output: &File, stage: &Stage) -> i32 {
    // All that a check opens is above.
    let lowest = output.as_raw_fd() + 1;
    for selected in together {
        let Ok(own_output) = output.try_clone() else { return 1 };
        let mut scene = Scene::new(own_output, stage.clone(), selected.1);
        let start = Instant::now();
        scene.say(&head(selected));
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
            scene.prepare().map_err(Failure::from).and_then(|()| (selected.0.run)(&mut scene))
        }));
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => scene.say(&format!("failed: {}", failure.0)),
            Err(_) => return 101,
        }
        scene.say(&format!("# took {} ms", start.elapsed().as_millis()));
        if together.len() > 1 {
            std::mem::forget(scene); // Its descriptor is among those that are closed.
            let _ = sys::close_range(lowest as u32, u32::MAX, 0); // What is open shows in the next check.
        }
    }
    0
}

/// Reads what the checks say until their process ends.
fn follow(pid: libc::pid_t, mut reader: File) -> String {
    let mut said = Vec::new();
    let end = match wait_until_ended(pid, &mut reader, &mut said) {
        Ok(true) => {
            end_group(pid);
            describe(sys::wait_for(pid))
        }
        Ok(false) => {
            end_group(pid);
            let _ = sys::wait_for(pid); // It was killed.
            "timed out\n".to_owned()
        }
        Err(errno) => format!("not followed: {errno}\n"),
    };
    // Nothing writes any more, except for what left the group, which ends by itself.
    let _ = sys::fcntl(reader.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK.into());
    let _ = reader.read_to_end(&mut said); // Ends with EAGAIN in that case.
    String::from_utf8_lossy(&said).into_owned() + &end
}

/// Whether it ended in time. The time of each check begins when it says its name.
fn wait_until_ended(pid: libc::pid_t, reader: &mut File, said: &mut Vec<u8>) -> sys::Result<bool> {
    let ended = sys::pidfd_open(pid)?;
    let mut deadline = Instant::now() + TIME_MAX;
    let outcome = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break Ok(false);
        }
        let wanted = [(ended, libc::POLLIN), (reader.as_raw_fd(), libc::POLLIN)];
        let events = match sys::poll(&wanted, left.as_millis() as i32 + 1) {
            Ok((_, events)) => events,
            Err(errno) => break Err(errno),
        };
        if events[0] != 0 {
            break Ok(true);
        }
        if events[1] != 0 {
            let mut piece = [0; 4096];
            match reader.read(&mut piece) {
                // Its output is closed, as some checks do; its end is still to come.
                Ok(0) => std::thread::sleep(Duration::from_millis(1)),
                Ok(len) => {
                    if piece[..len].windows(3).any(|window| window == b"== ") {
                        deadline = Instant::now() + TIME_MAX;
                    }
                    said.extend_from_slice(&piece[..len]);
                }
                Err(error) => break Err(Errno(error.raw_os_error().unwrap_or_default())),
            }
        }
    };
    close_quietly(ended);
    outcome
}

fn close_quietly(fd: RawFd) {
    let _ = sys::close(fd); // It was open.
}

fn end_group(pid: libc::pid_t) {
    let _ = sys::kill(-pid, libc::SIGKILL); // Nobody left is fine.
}

fn describe(end: sys::Result<End>) -> String {
    match end {
        Ok(End::Exited(0)) => String::new(),
        Ok(End::Exited(status)) => format!("ended with {status}\n"),
        Ok(End::Signalled(signal)) => format!("ended by signal {signal}\n"),
        Err(errno) => format!("not followed: {errno}\n"),
    }
}
