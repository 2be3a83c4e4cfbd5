//! Rounds of captures: each one asks the programs that run, takes their answers for an interval, and ends with what was lost.
//!
//! A round takes a bounded number of packets and then rests until its interval is over, so a busy server is looked at for a part of the
//! time only.

use std::time::{Duration, Instant};

use anyhow::Context;
use observe::Direction;
use observe::client::{Answer as Parts, ClientError, Connection};
use observe::protocol::{Message, Reply, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::answer::Answer;
use super::tally::{Figures, Round, Tally};
use crate::dns::resolve;
use crate::observe::Which;

/// Packets of a round at most, those to the server included.
const PACKETS_MAX: u64 = 200_000;
/// Octets of a packet that are captured: answers over UDP are hardly ever longer.
const SNAPLEN: u32 = 4096;
/// How long a program may take to begin, and for its last packets and its report.
const PATIENCE: Duration = Duration::from_secs(2);
/// Programs that were refused are named up to this number.
const REFUSED_MAX: usize = 8;

/// Looks again and again.
pub(super) struct Gatherer {
    which: Which,
    filter: String,
    interval: Duration,
    tally: Tally,
    labels: usize,
}

/// A capture in one program.
struct Session {
    name: String,
    parts: Parts,
    is_over: bool,
}

/// What a round has so far.
struct Running {
    sessions: Vec<Session>,
    round: Round,
    packets: u64,
}

impl Gatherer {
    /// `filter` is one of captures, or empty.
    pub(super) fn new(which: Which, filter: &str, interval: Duration, labels: usize) -> Gatherer {
        let filter = if filter.is_empty() { "udp".to_owned() } else { format!("udp and ({filter})") };
        Gatherer { which, filter, interval, tally: Tally::new(labels), labels }
    }

    /// Forgets what was counted.
    pub(super) fn forget(&mut self) {
        self.tally = Tally::new(self.labels);
    }

    /// A round. The error says why nothing can be looked at.
    pub(super) fn round(&mut self) -> anyhow::Result<Figures> {
        let began = Instant::now();
        let (sessions, refused) = self.begin()?;
        let programs = sessions.iter().map(|session| session.name.clone()).collect();
        let mut running = Running { sessions, round: Round::default(), packets: 0 };
        self.tally.age(self.interval);
        let asked = Instant::now();
        running.take_until(began + self.interval, PACKETS_MAX, &mut self.tally)?;
        running.round.span = asked.elapsed();
        running.finish(&mut self.tally)?;
        let round = running.round;
        std::thread::sleep((began + self.interval).saturating_duration_since(Instant::now()));
        Ok(self.tally.figures(&round, programs, refused))
    }

    /// Begins to capture in all programs that have engines. The second list says why others are left out.
    fn begin(&self) -> anyhow::Result<(Vec<Session>, Vec<String>)> {
        let (mut sessions, mut refused, mut failed) = (Vec::new(), Vec::new(), None);
        for connection in self.which.connections()? {
            let place = connection.path().display().to_string();
            match self.begin_at(connection) {
                Ok(Ok(session)) => sessions.push(session),
                Ok(Err(why)) => refused.push(why),
                Err(error) => {
                    refused.push(format!("{place}: {error}"));
                    failed = Some(error);
                }
            }
        }
        refused.truncate(REFUSED_MAX);
        if sessions.is_empty() {
            let why = refused.join("; ");
            return Err(match failed {
                Some(error) => anyhow::Error::new(error).context(why),
                None => anyhow::Error::msg(why),
            });
        }
        Ok((sessions, refused))
    }

    /// The inner error says why the program is of no use here.
    fn begin_at(&self, connection: Connection) -> Result<Result<Session, String>, ClientError> {
        let request = Request::Capture { filter: self.filter.clone(), snaplen: SNAPLEN };
        let (answering, parts) = connection.within(PATIENCE).ask(&request)?;
        let name = format!("{}/{}", answering.name, answering.pid);
        if answering.engines > 0 {
            return Ok(Ok(Session { name, parts, is_over: false }));
        }
        Ok(Err(if answering.name == resolve::NAME {
            format!(
                "{name} is a resolver, whose answers no capture sees: `sidestep dns stats` has its counters, and query-log its answers"
            )
        } else {
            format!("{name} has no engines to capture at")
        }))
    }
}

impl Running {
    /// Takes what comes until `end`, or until there were `most` packets.
    fn take_until(&mut self, end: Instant, most: u64, tally: &mut Tally) -> anyhow::Result<()> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.packets >= most || self.sessions.iter().all(|session| session.is_over) {
                return Ok(());
            }
            self.wait_and_take(left, tally)?;
        }
    }

    /// Ends the captures, and takes their last packets and their reports.
    fn finish(&mut self, tally: &mut Tally) -> anyhow::Result<()> {
        self.sessions.iter().for_each(|session| session.parts.end());
        self.take_until(Instant::now() + PATIENCE, u64::MAX, tally)
    }

    /// Waits up to `time` for more, and takes it.
    fn wait_and_take(&mut self, time: Duration, tally: &mut Tally) -> anyhow::Result<()> {
        let open = || self.sessions.iter().enumerate().filter(|(_, session)| !session.is_over);
        let mut fds: Vec<PollFd<'_>> =
            open().map(|(_, session)| PollFd::from_borrowed_fd(session.parts.fd(), PollFlags::IN)).collect();
        let numbers: Vec<usize> = open().map(|(number, _)| number).collect();
        let time = Timespec::try_from(time).context("the interval")?;
        match poll(&mut fds, Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("waiting for packets"),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        for (number, _) in numbers.into_iter().zip(ready).filter(|(_, ready)| *ready) {
            self.take(number, tally);
        }
        Ok(())
    }

    /// Reads once from a program. One that fails has gone, or is of another version: the next round tells.
    fn take(&mut self, number: usize, tally: &mut Tally) {
        let Running { sessions, round, packets } = self;
        let session = &mut sessions[number];
        if session.parts.read_more().is_err() {
            session.is_over = true;
        }
        while session.parts.has_message() {
            match session.parts.next_message() {
                Ok(Some(Message::Packet(header, frame))) => {
                    *packets += 1;
                    if header.direction == Direction::Outbound
                        && let Some(answer) = Answer::in_frame(&frame)
                    {
                        round.answers += 1;
                        tally.add(&answer);
                    }
                }
                Ok(Some(Message::Reply(Reply::Capture(report)))) => {
                    round.passed += report.passed;
                    round.dropped += report.dropped;
                }
                Ok(Some(Message::Reply(_))) => {}
                Ok(None) | Err(_) => {
                    session.is_over = true;
                    return;
                }
            }
        }
    }
}
