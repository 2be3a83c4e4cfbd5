//! What uses a connection: one end of it, following a plan.

use clock::{Duration, Instant};

use super::content::Content;
use super::host::{Host, Io, SocketNumber};
use super::random::Random;
use super::violation::{Broken, require};

/// What an application does, step by step, while it also reads what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Writes so many octets.
    Send(u64),
    /// Waits until so many octets have come in all.
    Await(u64),
    /// Does nothing.
    Pause(Duration),
    /// Says that it sends no more.
    Finish,
    /// Closes without waiting for the peer to finish.
    Close,
    /// Resets the connection.
    Abort,
}

/// How one end of a connection is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What it does.
    pub steps: Vec<Step>,
    /// Most octets of one write.
    pub write_max: usize,
    /// Most octets of one read.
    pub read_max: usize,
    /// Time between two reads.
    pub read_pause: Duration,
    /// Time before the first read.
    pub read_after: Duration,
}

impl Plan {
    /// Does `steps`, and reads what comes as soon as it can.
    pub fn new(steps: Vec<Step>) -> Plan {
        let none = Duration::ZERO;
        Plan { steps, write_max: 16 << 10, read_max: 16 << 10, read_pause: none, read_after: none }
    }

    /// Octets that it sends.
    pub fn sends(&self) -> u64 {
        let octets = |step: &Step| if let Step::Send(octets) = step { *octets } else { 0 };
        self.steps.iter().map(octets).sum()
    }

    /// Whether it ends by a reset.
    pub fn aborts(&self) -> bool {
        self.steps.contains(&Step::Abort)
    }
}

/// How far an application came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There is more to do.
    Running,
    /// Everything was sent, and everything came.
    Complete,
    /// It reset the connection as planned.
    Aborted,
    /// The connection failed.
    Failed(String),
}

/// One end of a connection at work.
#[derive(Debug)]
pub struct Application {
    plan: Plan,
    connection: usize,
    socket: SocketNumber,
    outgoing: Content,
    incoming: Content,
    /// Octets that the peer sends in all.
    expected: u64,
    step: usize,
    /// Octets of the current step that are written.
    written: u64,
    sent: u64,
    received: u64,
    at_end: bool,
    /// Until when the current step, and reading, pause.
    step_pause: Option<Instant>,
    read_pause: Option<Instant>,
    wake_told: Option<Instant>,
    outcome: Outcome,
    random: Random,
    calls: u64,
}

impl Application {
    /// One end of a connection, given by the connection's number and the host's socket, from `now` on. `contents` is what
    /// goes out and what comes in, `already_sent` what is queued already.
    pub fn new(
        plan: Plan,
        (connection, socket): (usize, SocketNumber),
        contents: (Content, Content),
        expected: u64,
        already_sent: u64,
        now: Instant,
        random: Random,
    ) -> Application {
        let read_pause = (!plan.read_after.is_zero()).then(|| now + plan.read_after);
        Application {
            plan,
            connection,
            socket,
            outgoing: contents.0,
            incoming: contents.1,
            expected,
            step: 0,
            written: already_sent,
            sent: already_sent,
            received: 0,
            at_end: false,
            step_pause: None,
            read_pause,
            wake_told: None,
            outcome: Outcome::Running,
            random,
            calls: 0,
        }
    }

    /// Number of the connection.
    pub fn connection(&self) -> usize {
        self.connection
    }

    /// How far it came.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Octets that it has received.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Octets that it has written.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// In words, for a report of a failure.
    pub fn describe(&self) -> String {
        let (sent, received, expected) = (self.sent, self.received, self.expected);
        let step = self.plan.steps.get(self.step);
        let of = self.plan.sends();
        format!("{:?} at {step:?}, sent {sent} of {of}, received {received} of {expected}", self.outcome)
    }

    /// Calls that it made and that moved data.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// When it continues by itself, unless that was reported before.
    pub fn poll_wake(&mut self) -> Option<Instant> {
        let at = [self.step_pause, self.read_pause].into_iter().flatten().min();
        let news = at.filter(|_| self.outcome == Outcome::Running && at != self.wake_told);
        self.wake_told = at;
        news
    }

    /// Does all that can be done now.
    pub fn run(&mut self, host: &mut dyn Host, now: Instant) -> Result<(), Broken> {
        while self.outcome == Outcome::Running {
            let read = self.read(host, now)?;
            let wrote = self.outcome == Outcome::Running && self.act(host, now)?;
            self.complete(host, now);
            if !read && !wrote {
                break;
            }
        }
        Ok(())
    }

    fn complete(&mut self, host: &mut dyn Host, now: Instant) {
        let done = self.step >= self.plan.steps.len() && self.at_end;
        if self.outcome == Outcome::Running && done {
            host.close(self.socket, now);
            self.outcome = Outcome::Complete;
        }
    }

    fn fail(&mut self, host: &mut dyn Host, reason: String, now: Instant) {
        host.close(self.socket, now);
        self.outcome = Outcome::Failed(reason);
    }

    /// Reads once, if it is time; whether anything came.
    fn read(&mut self, host: &mut dyn Host, now: Instant) -> Result<bool, Broken> {
        if self.at_end || self.read_pause.is_some_and(|until| now < until) {
            return Ok(false);
        }
        self.read_pause = None;
        let mut room = [0; 1 << 16];
        let most = self.random.between(1, self.plan.read_max as u64) as usize;
        match host.recv(self.socket, &mut room[..most], now) {
            Io::Moved(count) => self.take(&room[..count], now)?,
            Io::Blocked => return Ok(false),
            Io::End => {
                let (received, expected) = (self.received, self.expected);
                require!(received == expected, "the stream ended after {received} octets of {expected}");
                self.at_end = true;
            }
            Io::Failed(reason) => self.fail(host, reason, now),
        }
        Ok(true)
    }

    fn take(&mut self, octets: &[u8], now: Instant) -> Result<(), Broken> {
        let differs = self.incoming.first_difference(self.received, octets);
        require!(differs.is_none(), "octet {} of the stream arrived wrong", differs.unwrap_or_default());
        self.received += octets.len() as u64;
        self.calls += 1;
        let (received, expected) = (self.received, self.expected);
        require!(received <= expected, "{received} octets arrived of {expected}");
        if !self.plan.read_pause.is_zero() {
            self.read_pause = Some(now + self.plan.read_pause);
        }
        Ok(())
    }

    /// Goes on with the current step; whether anything was done.
    fn act(&mut self, host: &mut dyn Host, now: Instant) -> Result<bool, Broken> {
        let Some(step) = self.plan.steps.get(self.step).copied() else {
            return Ok(false);
        };
        let done = match step {
            Step::Send(octets) => return Ok(self.write(host, octets, now)),
            Step::Await(octets) => self.received >= octets,
            Step::Pause(span) => self.pause(span, now),
            Step::Finish => host.finish(self.socket, now),
            Step::Close => {
                host.close(self.socket, now);
                self.outcome = Outcome::Complete;
                true
            }
            Step::Abort => {
                host.abort(self.socket, now);
                self.outcome = Outcome::Aborted;
                true
            }
        };
        if done {
            self.next_step();
        }
        Ok(done)
    }

    fn next_step(&mut self) {
        self.step += 1;
        self.written = 0;
        self.step_pause = None;
    }

    fn pause(&mut self, span: Duration, now: Instant) -> bool {
        let until = *self.step_pause.get_or_insert(now + span);
        now >= until
    }

    fn write(&mut self, host: &mut dyn Host, octets: u64, now: Instant) -> bool {
        if self.written >= octets {
            self.next_step();
            return true;
        }
        let mut room = [0; 1 << 16];
        let most = self.random.between(1, self.plan.write_max as u64).min(octets - self.written);
        let data = &mut room[..most as usize];
        self.outgoing.fill(self.sent, data);
        match host.send(self.socket, data, now) {
            Io::Moved(count) => {
                self.written += count as u64;
                self.sent += count as u64;
                self.calls += 1;
            }
            Io::Blocked => return false,
            Io::End => self.fail(host, "sending is over".to_owned(), now),
            Io::Failed(reason) => self.fail(host, reason, now),
        }
        true
    }
}
