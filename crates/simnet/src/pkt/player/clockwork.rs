//! Time: from one deadline to the next, and calls that wait.

use clock::Instant;

use super::{Failure, Player, seconds};
use crate::pkt::ast::Script;
use crate::pkt::errno::Errno;
use crate::pkt::sockets::{Progress, Reply, Running, attempt};
use crate::pkt::trouble::Trouble;

/// Deadlines of the stack at one moment; more of them would be a stack that turns in circles.
const STEPS_MAX: u32 = 10_000;

impl<'a> Player<'a> {
    /// Lets time pass until `time`.
    pub(super) fn wait_until(&mut self, time: Instant) -> Result<(), Failure<'a>> {
        while self.world.now < time {
            self.step(time)?;
        }
        Ok(())
    }

    /// Goes to the next deadline, at most to `limit`.
    pub(super) fn step(&mut self, limit: Instant) -> Result<(), Failure<'a>> {
        let now = self.world.now;
        let deadline = self.next_deadline().unwrap_or(limit).clamp(now, limit.max(now));
        self.steps_now = if deadline == now { self.steps_now + 1 } else { 0 };
        if self.steps_now > STEPS_MAX {
            self.blame(Err(Trouble::differs(format!("the stack's timers never let {} pass", seconds(now)))))?;
        }
        self.go_to(deadline)
    }

    /// When something happens by itself.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let of_call = self.running.as_ref().and_then(|running| running.until);
        [self.world.next_timeout(), of_call].into_iter().flatten().min()
    }

    fn go_to(&mut self, time: Instant) -> Result<(), Failure<'a>> {
        let result = self.world.go_to(time);
        self.blame(result)?;
        self.go_on()
    }

    /// Takes packets and events from the stack, and continues a call that waits.
    pub(super) fn go_on(&mut self) -> Result<(), Failure<'a>> {
        let result = self.world.settle();
        self.blame(result)?;
        let Some(mut running) = self.running.take() else { return Ok(()) };
        match self.attempt(&mut running) {
            Ok(Progress::Blocked(until)) => {
                running.until = until;
                self.running = Some(running);
                Ok(())
            }
            Ok(Progress::Done(reply)) => self.finish(&running, reply),
            Err(trouble) => Err(Failure { event: running.event, trouble }),
        }
    }

    /// Tries a call, and takes what the stack sends on it.
    pub(super) fn attempt(&mut self, running: &mut Running<'a>) -> Result<Progress, Trouble> {
        let progress = attempt(&mut self.world, running)?;
        self.world.settle()?;
        Ok(progress)
    }

    /// Compares what a call returned, and when, with what the script says.
    pub(super) fn finish(&mut self, running: &Running<'a>, reply: Reply) -> Result<(), Failure<'a>> {
        let shown = match reply {
            Ok(value) => value.to_string(),
            Err(errno) => format!("-1 {errno}"),
        };
        self.note_call(running, &shown);
        let result = check_reply(running, reply, &shown).and_then(|()| self.check_end(running));
        let may_differ = self.world.settings.calls_may_differ;
        result.or_else(|trouble| self.tell_or_fail(running.event, trouble, may_differ))
    }

    fn note_call(&mut self, running: &Running<'_>, shown: &str) {
        let text = format!("{}() = {shown}", running.call.name);
        self.note(' ', self.world.now, &text);
    }

    fn check_end(&self, running: &Running<'_>) -> Result<(), Trouble> {
        let (Some(end), now) = (running.end, self.world.now) else { return Ok(()) };
        let tolerance = self.tolerance(end, running.started);
        if now.since(end).max(end.since(now)) <= tolerance {
            return Ok(());
        }
        let name = &running.call.name;
        Err(Trouble::differs(format!(
            "{name}() was to return at {}, and returned at {}",
            seconds(end),
            seconds(now)
        )))
    }

    /// A malformed packet is a fault of the stack; it is reported at the current event.
    fn blame(&mut self, result: Result<(), Trouble>) -> Result<(), Failure<'a>> {
        let Some(event) = self.current else { return Ok(()) };
        result.map_err(|trouble| Failure { event, trouble })
    }

    /// The script is over: a waiting call must return, and no expected packet may be missing.
    pub(super) fn end(&mut self, script: &'a Script) -> Result<(), Failure<'a>> {
        if let Some(end) = self.running.as_ref().map(|running| running.end.unwrap_or(running.started)) {
            self.wait_until(end + self.tolerance(end, self.last_event))?;
        }
        if let Some(running) = &self.running {
            let trouble =
                Trouble::differs(format!("{}() still blocks at the end of the script", running.call.name));
            return Err(Failure { event: running.event, trouble });
        }
        match script.events.last() {
            Some(event) if self.world.settings.check_rest => {
                self.check_rest().map_err(|trouble| Failure { event, trouble })
            }
            _ => Ok(()),
        }
    }
}

fn check_reply(running: &Running<'_>, reply: Reply, shown: &str) -> Result<(), Trouble> {
    let expected = crate::pkt::sockets::integer(&running.call.result)?;
    let came = reply.unwrap_or(-1);
    let expected_errno = match &running.call.errno {
        None => None,
        Some(name) => {
            Some(Errno::named(name).ok_or_else(|| Trouble::unsupported(format!("the error {name}")))?)
        }
    };
    let is_same_error = expected_errno.is_none_or(|errno| reply == Err(errno));
    if expected == came && is_same_error {
        return Ok(());
    }
    let expected = match expected_errno {
        Some(errno) => format!("{expected} {errno}"),
        None => expected.to_string(),
    };
    Err(Trouble::differs(format!("expected {expected}, came {shown}")))
}
