//! A process with its output. It ends when its owner drops it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::{LabError, registry};

/// Time for a process to end after SIGTERM, before SIGKILL.
const GRACE: Duration = Duration::from_secs(3);
/// Time to read the last output of a process after its end.
const READ_MAX: Duration = Duration::from_secs(5);
/// How often an ending process is polled.
const GLANCE: Duration = Duration::from_millis(5);

/// A running process. On drop it gets SIGTERM, and SIGKILL if it does not end.
pub struct Child {
    name: String,
    command_line: String,
    process: std::process::Child,
    pid: Pid,
    status: Option<ExitStatus>,
    captured: Arc<Captured>,
    /// Lines before this one have been found by [`Child::wait_for_line`].
    seen: usize,
}

/// Lines that the process wrote, stdout and stderr in the order in which they came.
#[derive(Default)]
struct Captured {
    lines: Mutex<Vec<String>>,
    grown: Condvar,
}

impl Captured {
    fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        self.lines.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Child {
    /// Starts `command` and reads what it writes. `name` is for messages.
    pub fn spawn(name: &str, command: &mut Command) -> Result<Child, LabError> {
        registry::prepare();
        let words = [command.get_program()].into_iter().chain(command.get_args());
        let command_line = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| LabError::Start { program: name.to_owned(), source })?;
        let pid = Pid::from_child(&process);
        registry::add_process(pid);
        let captured = Arc::new(Captured::default());
        read_lines(process.stdout.take(), &captured);
        read_lines(process.stderr.take(), &captured);
        Ok(Child { name: name.to_owned(), command_line, process, pid, status: None, captured, seen: 0 })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The command line that started it.
    pub fn command_line(&self) -> &str {
        &self.command_line
    }

    /// Everything it has written so far; after its end has been seen, everything.
    pub fn output(&self) -> String {
        let deadline = Instant::now() + READ_MAX;
        // The last output may still be in the pipe; but a child of the process may keep the pipe open, too.
        while self.status.is_some() && Arc::strong_count(&self.captured) > 1 && Instant::now() < deadline {
            thread::sleep(GLANCE / 5);
        }
        self.captured.lines().join("\n")
    }

    /// Waits for a line that contains `wanted`, after the last one that was found.
    pub fn wait_for_line(&mut self, wanted: &str, timeout: Duration) -> Result<String, LabError> {
        let deadline = Instant::now() + timeout;
        let mut lines = self.captured.lines();
        loop {
            if let Some(index) = lines.iter().skip(self.seen).position(|line| line.contains(wanted)) {
                self.seen += index + 1;
                return Ok(lines[self.seen - 1].clone());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            // A process that has ended and closed its output writes nothing more.
            if left.is_zero() || Arc::strong_count(&self.captured) == 1 {
                drop(lines);
                return Err(self.not_seen(format!("line with {wanted:?}"), timeout));
            }
            let waited = self.captured.grown.wait_timeout(lines, left.min(GLANCE * 10));
            lines = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }

    /// Sends it a signal; one that has ended gets none.
    pub fn signal(&self, signal: Signal) {
        if self.status.is_none() {
            let _ = kill_process(self.pid, signal); // Ended this moment: nobody to tell.
        }
    }

    /// Waits for its end.
    pub fn wait(&mut self, timeout: Duration) -> Result<ExitStatus, LabError> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = self.try_wait() {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                return Err(self.not_seen("end".to_owned(), timeout));
            }
            thread::sleep(GLANCE);
        }
    }

    /// How it ended, if it has.
    pub fn try_wait(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.process.try_wait().ok().flatten();
            if self.status.is_some() {
                registry::remove_process(self.pid);
            }
        }
        self.status
    }

    /// Ends it: SIGTERM, then SIGKILL.
    pub fn end(&mut self) {
        self.signal(Signal::TERM);
        if self.wait(GRACE).is_err() {
            self.kill();
        }
    }

    /// Ends it at once: SIGKILL.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.wait(GRACE); // A process that SIGKILL does not end waits for the kernel; so do its remains.
    }

    /// Processor time it has used, in user mode and in the kernel: all its threads.
    pub fn cpu_time(&self) -> Result<Duration, LabError> {
        const TICKS_PER_SECOND: f64 = 100.0; // USER_HZ, the same on every architecture that we run on.
        let path = format!("/proc/{}/stat", self.pid());
        let text = std::fs::read_to_string(&path).map_err(LabError::system(&path))?;
        // The name, in parentheses, may hold anything; utime and stime are fields 14 and 15, proc_pid_stat(5).
        let fields: Vec<&str> =
            text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok());
        let sum = ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0);
        Ok(Duration::from_secs_f64(sum / TICKS_PER_SECOND))
    }

    /// Time during which its threads were ready to run and other work had the core.
    pub fn core_wait(&self) -> Result<Duration, LabError> {
        let directory = format!("/proc/{}/task", self.pid());
        let tasks = std::fs::read_dir(&directory).map_err(LabError::system(&directory))?;
        let wait_ns = |task: std::fs::DirEntry| -> Option<u64> {
            // Time on a core, time waiting for one, both in nanoseconds: Documentation/scheduler/sched-stats.rst.
            let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split_whitespace().nth(1)?.parse().ok()
        };
        Ok(Duration::from_nanos(tasks.flatten().filter_map(wait_ns).sum()))
    }

    /// The error of a process that did not do in time what was `wanted`.
    pub fn not_seen(&self, wanted: String, timeout: Duration) -> LabError {
        LabError::NotSeen { name: self.name.clone(), wanted, timeout, output: self.output() }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.try_wait().is_none() {
            self.end();
        }
    }
}

fn read_lines(stream: Option<impl Read + Send + 'static>, captured: &Arc<Captured>) {
    let Some(stream) = stream else { return };
    let captured = Arc::clone(captured);
    thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            captured.lines().push(String::from_utf8_lossy(&line).into_owned());
            captured.grown.notify_all();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Child {
        Child::spawn("sh", Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn each_line_is_found_once() {
        let mut child = shell("echo one; echo two >&2; echo one; sleep 100");
        let timeout = Duration::from_secs(60);
        assert_eq!(child.wait_for_line("one", timeout).unwrap(), "one");
        assert_eq!(child.wait_for_line("one", timeout).unwrap(), "one");
        assert!(child.wait_for_line("one", Duration::from_millis(50)).is_err());
    }

    #[test]
    fn a_child_ends_with_its_owner_even_if_it_does_not_want_to() {
        let mut child = shell("trap '' TERM; echo ready; while :; do sleep 0.1; done");
        child.wait_for_line("ready", Duration::from_secs(60)).unwrap();
        let process = format!("/proc/{}", child.pid());
        drop(child);
        assert!(!std::path::Path::new(&process).exists());
    }

    #[test]
    fn the_output_of_one_that_ended_is_whole() {
        for _ in 0..20 {
            let mut child = shell("seq 1000");
            child.wait(Duration::from_secs(60)).unwrap();
            assert!(child.output().ends_with("\n1000"));
        }
    }

    #[test]
    fn processor_time_is_counted() {
        let child = shell("while :; do :; done");
        let deadline = Instant::now() + Duration::from_secs(60);
        while child.cpu_time().unwrap() <= Duration::from_millis(20) {
            assert!(Instant::now() < deadline, "it computes all the time");
            thread::sleep(GLANCE);
        }
    }
}
