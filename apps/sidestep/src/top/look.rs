//! One look at all programs: what brokers say of those under `sidestep run`, what programs say themselves, and what the kernel
//! counts of their threads.
//!
//! All are asked at the same time, so that one that does not answer delays the others by no more than its time. Then it is left alone
//! for a while.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use broker::server::{ProgramStatus, StatusReport};
use observe::client::{Answer, Answering, ClientError, Connection, Wanted, connect};
use observe::protocol::{Message, Reply, Request};
use observe::report::{CountersReport, EngineReport, SocketReport};

use super::cpu::CpuTimes;
use super::left_alone::LeftAlone;
use crate::observe::Which;
use crate::status::{self, Answers};

/// How long a program may take to answer, and to go on with its answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long all that a program or a broker answers may take: it may be another user's, and go on for ever.
const WHOLE: Duration = Duration::from_secs(6);
/// Engines of a program that are shown.
const ENGINES_MAX: usize = 1024;
/// Sockets of the selected program that are read: a program may have a million.
pub(super) const SOCKETS_MAX: usize = 512;

/// What was seen.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    /// When.
    pub(super) at: Instant,
    /// The programs, by process id.
    pub(super) programs: Vec<Seen>,
    /// Packets of interfaces, by broker and name.
    pub(super) interfaces: Vec<SeenInterface>,
    /// Brokers that run.
    pub(super) brokers: usize,
    /// Who did not answer, and why: with the process id, if that is known.
    pub(super) failures: Vec<(Option<u32>, String)>,
    /// Whether one of them may yet answer.
    pub(super) may_answer: bool,
}

/// A program.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// When its counters and its times were read. Another program may have held up the look before or after that.
    pub(super) at: Option<Instant>,
    pub(super) pid: u32,
    pub(super) name: String,
    /// The `sidestep run` that it is under.
    pub(super) broker: Option<u32>,
    /// Its queues by interface, if it is under a broker.
    pub(super) queues: Vec<(String, Vec<u16>)>,
    pub(super) cpu: Option<CpuTimes>,
    pub(super) counters: Option<CountersReport>,
    pub(super) engines: Vec<EngineReport>,
    /// If they were wanted: at most [`SOCKETS_MAX`].
    pub(super) sockets: Option<Vec<SocketReport>>,
    /// Why it does not answer.
    pub(super) silent: Option<String>,
}

/// An interface of a broker.
#[derive(Clone, Debug)]
pub(super) struct SeenInterface {
    /// When its packets were counted.
    pub(super) at: Instant,
    pub(super) broker: u32,
    pub(super) name: String,
    pub(super) counters: Vec<(String, u64)>,
}

impl Look {
    /// Whether nothing runs.
    pub(super) fn is_of_nobody(&self) -> bool {
        self.programs.is_empty() && self.brokers == 0
    }

    /// Whether this program runs.
    pub(super) fn has(&self, pid: u32) -> bool {
        self.programs.iter().any(|program| program.pid == pid)
    }

    /// Whether nothing runs, and nobody was too slow to say that it does.
    pub(super) fn is_over(&self) -> bool {
        self.is_of_nobody() && !self.may_answer
    }

    /// Who did not answer, and why; of one process, if it is said.
    pub(super) fn failures(&self, of: Option<u32>) -> impl Iterator<Item = &str> {
        let is_meant = move |it: &&(Option<u32>, String)| of.is_none() || it.0 == of;
        self.failures.iter().filter(is_meant).map(|(_, why)| why.as_str())
    }

    /// Whether it was made at least so long after another one.
    pub(super) fn is_after(&self, earlier: &Look, span: Duration) -> bool {
        self.at.saturating_duration_since(earlier.at) >= span
    }
}

/// Looks again and again.
pub(super) struct Looker {
    /// Only this program, or those under the `sidestep run` with this process id.
    which: Which,
    /// Programs that did not answer.
    programs: LeftAlone,
    /// Brokers that did not.
    brokers: LeftAlone,
}

/// What one program answers.
struct Told {
    at: Instant,
    cpu: Option<CpuTimes>,
    counters: Option<CountersReport>,
    engines: Vec<EngineReport>,
    sockets: Option<Vec<SocketReport>>,
}

impl Looker {
    pub(super) fn new(which: Which) -> Looker {
        Looker { which, programs: LeftAlone::default(), brokers: LeftAlone::default() }
    }

    /// Looks at all programs, and at the sockets of the `selected` one.
    pub(super) fn look(&mut self, selected: Option<u32>) -> Look {
        let now = Instant::now();
        self.programs.forget(now);
        self.brokers.forget(now);
        // A `sidestep run` is no program that answers here, so all are asked for its process id too.
        let control = self.which.control.clone();
        let wanted = control.clone().map_or(Wanted::All, Wanted::At);
        let (mut failures, mut may_answer) = (Vec::new(), false);
        let connections = connect(&wanted).unwrap_or_else(|error| {
            // Otherwise nobody runs.
            let is_denied = matches!(error, ClientError::Permission(_) | ClientError::Stranger { .. });
            failures.extend((control.is_some() || is_denied).then(|| (None, error.to_string())));
            may_answer = !error.is_gone() && !is_denied;
            Vec::new()
        });
        let (brokers, silent) = if control.is_none() { self.find_brokers(now) } else { Default::default() };
        let (answers, told) = std::thread::scope(|scope| {
            let asking: Vec<_> = connections
                .into_iter()
                .map(|connection| (connection.process(), connection))
                .filter(|(pid, _)| !pid.is_some_and(|pid| self.programs.has(pid, now)))
                .map(|(pid, connection)| {
                    let wants_sockets = selected.is_some() && (pid == selected || pid.is_none()); // One at a path may be it.
                    scope.spawn(move || (pid, ask(connection, wants_sockets)))
                })
                .collect();
            let answers = status::ask(&brokers, PATIENCE);
            let told: Vec<_> = asking.into_iter().filter_map(|thread| thread.join().ok()).collect();
            (answers, told)
        });
        let only = self.which.pid;
        let mut programs = BTreeMap::new();
        let (interfaces, brokers) = add_of_brokers(&mut programs, &answers, only);
        let answers = self.note_brokers(answers, silent, now);
        may_answer |= !answers.is_empty();
        failures.extend(answers);
        for (pid, told) in told {
            match (pid, told) {
                (Some(pid), told) => self.add(&mut programs, pid, told, now),
                (None, Ok(told)) => self.add(&mut programs, told.0.pid, Ok(told), now),
                (None, Err(error)) => {
                    may_answer = true; // If it has gone, the next look tells.
                    failures.push((None, error.to_string()));
                }
            }
        }
        for pid in self.programs.pids().filter(|pid| is_alive(*pid)) {
            let seen = programs.entry(pid).or_insert_with(|| Seen { pid, ..Seen::default() });
            if seen.counters.is_none() {
                seen.silent.get_or_insert_with(|| "it does not answer".to_owned());
            }
        }
        let is_meant = |seen: &Seen| only.is_none_or(|only| seen.pid == only || seen.broker == Some(only));
        let mut programs: Vec<Seen> = programs.into_values().filter(is_meant).collect();
        for seen in &mut programs {
            if seen.at.is_none() {
                (seen.at, seen.cpu) = (Some(Instant::now()), CpuTimes::of(seen.pid, 0));
            }
            if seen.name.is_empty() {
                seen.name = command_of(seen.pid);
            }
        }
        let is_meant = |it: &SeenInterface| only.is_none_or(|only| it.broker == only);
        let interfaces = interfaces.into_iter().filter(is_meant).collect();
        Look { at: Instant::now(), programs, interfaces, brokers, failures, may_answer }
    }

    /// The brokers that are to be asked, and those that are left alone.
    fn find_brokers(&self, now: Instant) -> (Vec<status::Socket>, Vec<u32>) {
        let mut sockets = status::find(None);
        // One that is named is all that is wanted.
        if sockets.iter().any(|socket| Some(socket.process) == self.which.pid) {
            sockets.retain(|socket| Some(socket.process) == self.which.pid);
        }
        let (silent, asked): (Vec<_>, Vec<_>) =
            sockets.into_iter().partition(|socket| self.brokers.has(socket.process, now));
        (asked, silent.into_iter().map(|socket| socket.process).collect())
    }

    /// Notes which brokers have answered, and says which have not, those that are left alone included.
    fn note_brokers(
        &mut self,
        answers: Answers,
        silent: Vec<u32>,
        now: Instant,
    ) -> Vec<(Option<u32>, String)> {
        let is_silent = |pid: u32| answers.failures.iter().any(|(it, _)| *it == pid);
        answers
            .reports
            .iter()
            .filter(|told| !is_silent(told.process))
            .for_each(|told| self.brokers.remove(told.process));
        for (pid, _) in &answers.failures {
            self.brokers.add(*pid, now);
        }
        let left_alone = silent.into_iter().map(|pid| {
            (Some(pid), format!("`sidestep run` {pid} did not answer, and is left alone for a while"))
        });
        answers.failures.into_iter().map(|(pid, why)| (Some(pid), why)).chain(left_alone).collect()
    }

    fn add(
        &mut self,
        programs: &mut BTreeMap<u32, Seen>,
        pid: u32,
        told: Result<(Answering, Told), ClientError>,
        now: Instant,
    ) {
        match told {
            Ok((answering, told)) => {
                self.programs.remove(pid);
                let seen = programs.entry(pid).or_default();
                seen.pid = pid;
                seen.name = answering.name;
                seen.at = Some(told.at);
                seen.cpu = told.cpu;
                seen.counters = told.counters;
                seen.engines = told.engines;
                seen.sockets = told.sockets;
            }
            // It has gone between two looks, or has too many tools at it just now.
            Err(ClientError::CutOff | ClientError::Refused(_)) => {}
            Err(error) => {
                self.programs.add(pid, now);
                let seen = programs.entry(pid).or_insert_with(|| Seen { pid, ..Seen::default() });
                seen.silent = Some(match error {
                    ClientError::Connection(_) => "it does not answer".to_owned(),
                    error => error.to_string(),
                });
            }
        }
    }
}

/// Adds the programs that brokers have; returns their interfaces, and how many brokers there are.
fn add_of_brokers(
    programs: &mut BTreeMap<u32, Seen>,
    answers: &Answers,
    only: Option<u32>,
) -> (Vec<SeenInterface>, usize) {
    let mut interfaces = Vec::new();
    for status::Told { process: broker, at, report } in &answers.reports {
        let StatusReport { programs: known, interfaces: used } = report;
        for ProgramStatus { pid, program, queues, .. } in known {
            let seen = Seen {
                pid: *pid,
                name: program.clone(),
                broker: Some(*broker),
                queues: queues.clone(),
                ..Seen::default()
            };
            programs.insert(*pid, seen);
        }
        interfaces.extend(used.iter().map(|interface| SeenInterface {
            at: *at,
            broker: *broker,
            name: interface.name.clone(),
            counters: interface.counters.clone(),
        }));
    }
    let is_meant = |told: &&status::Told| only.is_none_or(|only| only == told.process);
    (interfaces, answers.reports.iter().filter(is_meant).count())
}

/// Asks one program: what its engines hold, its counters, and its sockets if they are wanted.
fn ask(connection: Connection, wants_sockets: bool) -> Result<(Answering, Told), ClientError> {
    let path = connection.path().to_owned();
    let again = || connect(&Wanted::At(path.clone()))?.pop().ok_or(ClientError::CutOff);
    let bounded = |connection: Connection| connection.within(PATIENCE).in_all(WHOLE);
    let (answering, answer) = bounded(connection).ask(&Request::Counters)?;
    let mut counters = None;
    take(answer, |reply| {
        if let Reply::Counters(report) = reply {
            counters = Some(report);
        }
        true
    })?;
    let engines = counters.as_ref().map_or(0, |counters: &CountersReport| counters.engines.len());
    let cpu = CpuTimes::of(answering.pid, engines);
    let mut told = Told { at: Instant::now(), cpu, counters, engines: Vec::new(), sockets: None };
    let listening = Request::Sockets { filter: String::new(), listening: true };
    take(bounded(again()?).ask(&listening)?.1, |reply| {
        if let Reply::Engine(report) = reply {
            told.engines.push(report);
        }
        told.engines.len() < ENGINES_MAX
    })?;
    if wants_sockets {
        let all = Request::Sockets { filter: String::new(), listening: false };
        let mut sockets = Vec::new();
        take(bounded(again()?).ask(&all)?.1, |reply| {
            if let Reply::Sockets(more) = reply {
                sockets.extend(more);
            }
            sockets.len() < SOCKETS_MAX
        })?;
        sockets.truncate(SOCKETS_MAX);
        told.sockets = Some(sockets);
    }
    Ok((answering, told))
}

/// Passes replies on until there are no more, or none is wanted.
fn take(mut answer: Answer, mut wants_more: impl FnMut(Reply) -> bool) -> Result<(), ClientError> {
    while let Some(message) = answer.next_message()? {
        if let Message::Reply(reply) = message
            && !wants_more(reply)
        {
            break;
        }
    }
    Ok(())
}

/// What the kernel calls a process that has never answered (proc(5)). It may have called itself anything.
fn command_of(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().replace(char::is_control, "?")
}

fn is_alive(pid: u32) -> bool {
    std::path::Path::new("/proc").join(pid.to_string()).exists()
}
