//! The program and its descendants: starting it, forwarding signals, waiting for all of them.

use std::fs;
use std::io::{self, IsTerminal};
use std::process::Command;

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use signal_hook::consts::{
    SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH,
};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};

/// Signals that we forward to the program.
const PASSED_ON: [i32; 9] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT, SIGALRM];
/// The number that a shell adds to the signal that ended a program.
const SIGNALLED: u8 = 128;

/// Starts a program and becomes the parent of its orphans.
pub(super) struct Family {
    signals: SignalsInfo<WithOrigin>,
}

/// A started program.
pub(super) struct Running {
    signals: SignalsInfo<WithOrigin>,
    program: Pid,
    /// How the program itself ended.
    code: Option<u8>,
}

impl Family {
    /// Orphans of this process's children become its children, instead of init's: PR_SET_CHILD_SUBREAPER in prctl(2). A program
    /// that goes into the background becomes an orphan.
    pub(super) fn adopt_orphans() -> io::Result<Family> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let ignored = ignored_signals()?;
        let passed_on = PASSED_ON.into_iter().filter(|signal| ignored & bit(*signal) == 0);
        let signals = SignalsInfo::new(passed_on.chain([SIGCHLD]))?;
        Ok(Family { signals })
    }

    /// Starts the program.
    pub(super) fn start(self, command: &mut Command) -> io::Result<Running> {
        // Dropping the handle neither ends the program nor waits for it.
        let child = command.spawn()?;
        let program = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process has a number");
        Ok(Running { signals: self.signals, program, code: None })
    }
}

impl Running {
    /// Waits until the program and all its descendants have ended. Returns the program's exit status as a shell reports it.
    pub(super) fn wait(mut self) -> u8 {
        while self.reap() {
            let arrived: Vec<Origin> = self.signals.wait().collect();
            self.reap(); // A signal to a program that has just ended is its descendants'.
            for origin in arrived.iter().filter(|origin| PASSED_ON.contains(&origin.signal)) {
                if !is_of_the_terminal(origin) {
                    self.pass_on(origin.signal);
                }
            }
        }
        self.code.unwrap_or_default()
    }

    /// Collects the processes that have ended; false if none is left.
    fn reap(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.program => self.code = Some(exit_code(status)),
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false, // ECHILD: nobody is left.
            }
        }
    }

    /// Sends a signal to the program; after its end, to its descendants that became our children.
    fn pass_on(&self, signal: i32) {
        let to = if self.code.is_none() { vec![self.program] } else { children() };
        if let Some(signal) = Signal::from_named_raw(signal) {
            for pid in to {
                let _ = kill_process(pid, signal); // Who has ended meanwhile needs none.
            }
        }
    }
}

/// Whether the terminal sent this signal, to all processes in the foreground: then the program has it already.
fn is_of_the_terminal(origin: &Origin) -> bool {
    let input = io::stdin();
    matches!(origin.signal, SIGINT | SIGQUIT | SIGWINCH)
        && origin.cause == Cause::Kernel
        && input.is_terminal()
        && rustix::termios::tcgetpgrp(&input).is_ok_and(|foreground| foreground == rustix::process::getpgrp())
}

/// The signals that our parent has ignored, as nohup(1) and background jobs of scripts do, as a mask. They stay ignored here and
/// in the program, which inherits that. `SigIgn` in proc(5).
fn ignored_signals() -> io::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    Ok(mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0))
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// The processes whose parent we are: proc(5).
fn children() -> Vec<Pid> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let numbers: Vec<i32> = lists
        .flat_map(|list| list.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<i32>>())
        .collect();
    numbers.into_iter().filter_map(Pid::from_raw).collect()
}

fn exit_code(status: WaitStatus) -> u8 {
    let by_signal = || status.terminating_signal().map(|signal| SIGNALLED.wrapping_add(signal as u8));
    status.exit_status().map(|code| code as u8).or_else(by_signal).unwrap_or_default()
}
