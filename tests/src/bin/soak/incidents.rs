//! What happens to programs and their broker while the load goes on.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use lab::programs::{Network, Running};
use lab::{Lab, LabError};
use rustix::process::{Pid, Signal, kill_process};
use simnet::net::Random;

use crate::brokers::Brokers;
use crate::footprint::pids;

/// From the end of one incident to the next: clients whose connections were cut are back by then.
const PAUSE: Duration = Duration::from_secs(3);
/// The longest stop of a worker or of redis: shorter than the clients' patience.
const PROGRAM_STOPPED_MAX_MS: u64 = 2_000;
/// The longest stop of the broker.
const BROKER_STOPPED_MAX_MS: u64 = 10_000;
/// The longest time without a broker.
const NO_BROKER_MAX_MS: u64 = 5_000;

/// Something that operators or the kernel do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Incident {
    /// nginx gets new workers (SIGHUP). Nobody loses a connection in use.
    Reload,
    /// The worker, or redis, is stopped for a while (SIGSTOP, SIGCONT). Nobody loses a connection.
    ProgramStopped,
    /// nginx's worker is killed. Its clients lose their connections.
    WorkerKilled,
    /// The broker is stopped for a while. Nobody loses a connection.
    BrokerStopped,
    /// The broker is killed, and after a while another one takes over. Nobody loses a connection.
    BrokerKilled,
}

impl fmt::Display for Incident {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Incident::Reload => "reloads",
            Incident::ProgramStopped => "stops of a program",
            Incident::WorkerKilled => "killed workers",
            Incident::BrokerStopped => "stops of the broker",
            Incident::BrokerKilled => "killed brokers",
        })
    }
}

/// How often each has happened.
pub(crate) type Tally = BTreeMap<Incident, u64>;

/// Those to whom it happens.
pub(crate) struct Scene<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) running: &'a Running,
    pub(crate) brokers: &'a mut Brokers,
    pub(crate) chance: &'a mut Random,
}

impl Scene<'_> {
    /// One incident after the other for that long, at least one.
    pub(crate) fn play(&mut self, duration: Duration) -> Result<Tally, LabError> {
        let end = Instant::now() + duration;
        let mut tally = Tally::new();
        while Instant::now() < end {
            let incident = self.draw();
            self.happen(incident)?;
            *tally.entry(incident).or_default() += 1;
            thread::sleep(PAUSE);
        }
        Ok(tally)
    }

    fn draw(&mut self) -> Incident {
        let is_on_stack = matches!(Network::wanted(), Network::Sidestep(_));
        // Half are reloads, which move the most.
        match self.chance.below(if is_on_stack { 8 } else { 6 }) {
            0..4 => Incident::Reload,
            4 => Incident::ProgramStopped,
            5 => Incident::WorkerKilled,
            6 => Incident::BrokerStopped,
            _ => Incident::BrokerKilled,
        }
    }

    fn happen(&mut self, incident: Incident) -> Result<(), LabError> {
        match incident {
            Incident::Reload => signal(self.master(), Signal::HUP),
            Incident::ProgramStopped => {
                let program = if self.chance.below(2) == 0 { self.worker() } else { self.redis() };
                self.stopped(program, PROGRAM_STOPPED_MAX_MS);
            }
            Incident::WorkerKilled => signal(self.worker(), Signal::KILL),
            Incident::BrokerStopped => self.stopped(Some(self.brokers.pid()), BROKER_STOPPED_MAX_MS),
            Incident::BrokerKilled => {
                let listeners = self.brokers.listeners(self.lab);
                self.brokers.signal(Signal::KILL);
                self.pause(NO_BROKER_MAX_MS);
                self.brokers.start_next(self.lab, listeners)?;
            }
        }
        Ok(())
    }

    fn stopped(&mut self, process: Option<Pid>, most_ms: u64) {
        signal(process, Signal::STOP);
        self.pause(most_ms);
        signal(process, Signal::CONT);
    }

    fn pause(&mut self, most_ms: u64) {
        thread::sleep(Duration::from_millis(self.chance.between(1, most_ms)));
    }

    fn master(&self) -> Option<Pid> {
        self.running.pid_in("pid")
    }

    /// The newest of nginx's workers; none in the moment in which one follows another.
    fn worker(&self) -> Option<Pid> {
        let master = self.master()?;
        self.newest(|process| parent(process) == Some(master))
    }

    fn redis(&self) -> Option<Pid> {
        self.newest(|process| read(process, "comm").trim() == "redis-server")
    }

    fn newest(&self, is_wanted: impl Fn(Pid) -> bool) -> Option<Pid> {
        pids(self.lab).filter(|&process| is_wanted(process)).max_by_key(|process| process.as_raw_nonzero())
    }
}

/// A file of procfs about a process; empty if the process has ended.
fn read(process: Pid, file: &str) -> String {
    fs::read_to_string(format!("/proc/{}/{file}", process.as_raw_nonzero())).unwrap_or_default()
}

fn parent(process: Pid) -> Option<Pid> {
    let status = read(process, "status");
    let number = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    Pid::from_raw(number.trim().parse().ok()?)
}

fn signal(process: Option<Pid>, signal: Signal) {
    if let Some(process) = process {
        let _ = kill_process(process, signal); // One that has ended shows in the load.
    }
}
