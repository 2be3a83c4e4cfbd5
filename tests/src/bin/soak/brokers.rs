//! The broker of the programs: the first one started them, and each later one takes over from one that was killed.

use std::thread;
use std::time::{Duration, Instant};

use lab::programs::Running;
use lab::{Child, Lab, LabError, SERVER_INTERFACE, Side};
use rustix::process::{Pid, Signal, kill_process};

/// Words before those of a program that needs a BPF file system, which every machine with systemd has. It ends with the last process.
pub(crate) const WITH_BPF_FILE_SYSTEM: [&str; 4] =
    ["sh", "-ec", "mount -t bpf bpf /sys/fs/bpf; exec \"$@\"", "with-bpf-file-system"];

/// Programs look for a broker once a second.
const TAKE_OVER_MAX: Duration = Duration::from_secs(60);
/// Between two looks at the status.
const PAUSE: Duration = Duration::from_millis(100);

/// Who serves the programs now, and who has.
pub(crate) struct Brokers {
    first: Pid,
    /// A process of the programs, which lives as long as they do, and has their mount namespace.
    witness: Pid,
    later: Vec<Child>,
}

impl Brokers {
    pub(crate) fn new(running: &Running, witness: Pid) -> Brokers {
        let first = Pid::from_raw(running.process.pid() as i32).expect("a process has a number");
        Brokers { first, witness, later: Vec::new() }
    }

    /// The one that serves the programs.
    pub(crate) fn pid(&self) -> Pid {
        self.later.last().and_then(|last| Pid::from_raw(last.pid() as i32)).unwrap_or(self.first)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let _ = kill_process(self.pid(), signal); // One that has ended shows in the load.
    }

    /// What `sidestep status` says.
    pub(crate) fn status(&self, lab: &Lab) -> Result<String, LabError> {
        let broker = self.pid().as_raw_nonzero().to_string();
        let sidestep = lab::sidestep_binary().display().to_string();
        lab.run_in(Side::Server, &sidestep, &["status", "--pid", &broker])
    }

    /// Starts the broker after one that was killed; returns when it serves as many listeners as that one did.
    pub(crate) fn start_next(&mut self, lab: &Lab, listeners: usize) -> Result<(), LabError> {
        let witness = self.witness.as_raw_nonzero().to_string();
        let sidestep = lab::sidestep_binary().display().to_string();
        let words = ["-t", &witness, "-m", &sidestep, "run", "--device", SERVER_INTERFACE, "--take-over"];
        self.later.push(lab.spawn_in(Side::Server, "nsenter", &words)?);
        let deadline = Instant::now() + TAKE_OVER_MAX;
        while self.listeners(lab) < listeners {
            if Instant::now() > deadline {
                let output = self.status(lab).unwrap_or_else(|error| error.to_string());
                let (name, wanted) =
                    ("sidestep run --take-over".to_owned(), format!("{listeners} listeners"));
                return Err(LabError::NotSeen { name, wanted, timeout: TAKE_OVER_MAX, output });
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Accelerated listeners, as the status has them; none while there is no status.
    pub(crate) fn listeners(&self, lab: &Lab) -> usize {
        let status = self.status(lab).unwrap_or_default();
        status.lines().filter(|line| line.contains("LISTEN") && line.ends_with(" accelerated")).count()
    }

    /// What those said that panicked.
    pub(crate) fn panics(&self) -> impl Iterator<Item = String> {
        self.later.iter().map(Child::output).filter(|output| output.contains("panicked"))
    }
}
