//! Runs checks, each in a process of its own with a time limit, and prints what they say.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use crate::checks;
use crate::scene::{Scene, Stage};
use crate::sys::{self, End, Errno};
use crate::table::{Check, Failure, Variant};

/// Time that a check has.
const TIME_MAX: Duration = Duration::from_secs(5);

/// What is to be run, and where.
pub(crate) struct Run {
    /// Addresses and the peer.
    pub(crate) stage: Stage,
    /// Which part of how many: every so-manieth check.
    pub(crate) shard: (usize, usize),
    /// Parts of names; all if there are none.
    pub(crate) filters: Vec<String>,
}

impl Run {
    /// Runs the checks one after the other, and writes what they say to `output`.
    pub(crate) fn run(&self, output: &mut dyn Write) {
        let table = checks::all();
        let (own, all) = self.shard;
        for (check, variant) in selected(&table, &self.filters).skip(own).step_by(all.max(1)) {
            let start = Instant::now();
            let said = run_one(check, variant, &self.stage);
            let took = start.elapsed().as_millis();
            let report = format!("== {}{}\n{said}# took {took} ms\n", check.name, variant.suffix);
            // Nobody to tell if nobody reads.
            let _ = output.write_all(report.as_bytes());
        }
    }
}

/// The checks whose names contain one of `filters`, or all.
pub(crate) fn selected<'a>(
    table: &'a [Check],
    filters: &[String],
) -> impl Iterator<Item = (&'a Check, Variant)> {
    let all = table.iter().flat_map(|check| check.variants.iter().map(move |variant| (check, *variant)));
    all.filter(move |(check, variant)| {
        let name = format!("{}{}", check.name, variant.suffix);
        filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()))
    })
}

/// What a check says, with a line at its end if it did not end well.
fn run_one(check: &Check, variant: Variant, stage: &Stage) -> String {
    match start(check, variant, stage) {
        Ok((pid, reader)) => follow(pid, reader),
        Err(errno) => format!("not started: {errno}\n"),
    }
}

fn start(check: &Check, variant: Variant, stage: &Stage) -> sys::Result<(libc::pid_t, File)> {
    let [reader, writer] = sys::pipe(libc::O_CLOEXEC)?;
    let pid = sys::fork_to(|| {
        // So that whatever it starts can be ended with it. A failure would show as processes left behind.
        let _ = sys::new_process_group();
        let _ = sys::close(reader);
        let scene = Scene::new(sys::own(writer), stage.clone(), variant);
        let status = std::panic::catch_unwind(AssertUnwindSafe(|| act(check, scene)));
        // As most programs end.
        sys::exit(status.unwrap_or(101))
    })?;
    sys::close(writer)?;
    Ok((pid, sys::own(reader)))
}

fn act(check: &Check, mut scene: Scene) -> i32 {
    if let Err(failure) = scene.prepare().map_err(Failure::from).and_then(|()| (check.run)(&mut scene)) {
        scene.say(&format!("failed: {}", failure.0));
    }
    0
}

/// Reads what the check says until its process ends.
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
        Err(errno) => format!("lost: {errno}\n"),
    };
    // Nothing writes any more, except for what left the group, which ends by itself.
    let _ = sys::fcntl(fd_of(&reader), libc::F_SETFL, libc::O_NONBLOCK.into());
    let _ = reader.read_to_end(&mut said); // Ends with EAGAIN in that case.
    String::from_utf8_lossy(&said).into_owned() + &end
}

/// Whether it ended in time.
fn wait_until_ended(pid: libc::pid_t, reader: &mut File, said: &mut Vec<u8>) -> sys::Result<bool> {
    let ended = sys::pidfd_open(pid)?;
    let deadline = Instant::now() + TIME_MAX;
    let outcome = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break Ok(false);
        }
        let wanted = [(ended, libc::POLLIN), (fd_of(reader), libc::POLLIN)];
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
                Ok(len) => said.extend_from_slice(&piece[..len]),
                Err(error) => break Err(Errno(error.raw_os_error().unwrap_or_default())),
            }
        }
    };
    sys::close(ended)?;
    outcome
}

fn fd_of(file: &File) -> RawFd {
    file.as_raw_fd()
}

fn end_group(pid: libc::pid_t) {
    let _ = sys::kill(-pid, libc::SIGKILL); // Nobody left is fine.
}

fn describe(end: sys::Result<End>) -> String {
    match end {
        Ok(End::Exited(0)) => String::new(),
        Ok(End::Exited(status)) => format!("ended with {status}\n"),
        Ok(End::Signalled(signal)) => format!("ended by signal {signal}\n"),
        Err(errno) => format!("lost: {errno}\n"),
    }
}
