//! Calls, commands and code.

use clock::Instant;

use super::{Failure, Player};
use crate::pkt::ast::{Call, Command, Event, When};
use crate::pkt::host::HostConfig;
use crate::pkt::python::{PythonError, Value};
use crate::pkt::shell::{Effect, effects};
use crate::pkt::sockets::{Progress, Running};
use crate::pkt::trouble::Trouble;
use crate::pkt::world::START;

/// How long a call may wait that the script does not expect to wait; what it waits for may still come by itself.
const WAIT_MAX_SECONDS: u64 = 24 * 3600;

impl<'a> Player<'a> {
    /// Makes a call. A call that the script expects to block continues beside the events that follow.
    pub(super) fn call(&mut self, event: &'a Event, call: &'a Call) -> Result<(), Failure<'a>> {
        let wrap = |trouble| Failure { event, trouble };
        let end = call.end.map(|end| match event.when {
            When::At(_) => START + end,
            _ => self.event_base + end,
        });
        let mut running = Running::new(call, event, self.world.now, end);
        if end.is_some() && self.running.is_some() {
            let message = "a call blocks already, and no more than one at a time is played";
            return Err(wrap(Trouble::differs(message)));
        }
        match self.attempt(&mut running).map_err(wrap)? {
            Progress::Done(reply) => {
                self.finish(&running, reply)?;
                self.go_on()
            }
            Progress::Blocked(until) if end.is_some() => {
                running.until = until;
                self.running = Some(running);
                Ok(())
            }
            Progress::Blocked(until) => self.wait_for(running, until),
        }
    }

    /// A call that was not expected to block holds up the script until what it waits for happens by itself.
    fn wait_for(&mut self, mut running: Running<'a>, mut until: Option<Instant>) -> Result<(), Failure<'a>> {
        let event = running.event;
        let wrap = |trouble| Failure { event, trouble };
        let limit = self.world.now + clock::Duration::from_secs(WAIT_MAX_SECONDS);
        loop {
            let deadline = [self.next_deadline(), until].into_iter().flatten().min();
            let Some(deadline) = deadline.filter(|deadline| *deadline < limit) else {
                let name = &running.call.name;
                return Err(wrap(Trouble::differs(format!(
                    "{name}() blocks, and nothing will ever end that"
                ))));
            };
            self.step(deadline)?;
            match self.attempt(&mut running).map_err(wrap)? {
                Progress::Done(reply) => return self.finish(&running, reply),
                Progress::Blocked(later) => until = later,
            }
        }
    }

    pub(super) fn command(&mut self, command: &Command) -> Result<(), Trouble> {
        for effect in effects(&command.text).map_err(Trouble::unsupported)? {
            match effect {
                Effect::Ignored(text) => self.notes.push(format!("{}: `{text}` was left out", command.at)),
                Effect::Sysctl(name, value) => self.late_sysctl(command, &name, &value)?,
                Effect::MssClamp(size) => self.world.host.set_mss_clamp(size, self.world.now),
                Effect::Mtu(mtu) => self.world.host.set_mtu(mtu, self.world.now),
                Effect::LosesAll(loses_all) => self.world.loses_all = loses_all,
                Effect::RememberCounters => self.world.host.remember_counters(),
                Effect::CounterChanged(name) => self.check_counter(&name)?,
            }
        }
        Ok(())
    }

    /// The stack's settings are those that it was made with; a sysctl without equivalent is left out at any time.
    fn late_sysctl(&mut self, command: &Command, name: &str, value: &str) -> Result<(), Trouble> {
        let known = HostConfig::new(self.world.settings.mtu).set_sysctl(name, value);
        if known != Ok(false) {
            return Err(Trouble::unsupported(format!("sysctl {name}={value} after the start of a script")));
        }
        self.notes.push(format!("{}: sysctl {name}={value} has no equivalent and was left out", command.at));
        Ok(())
    }

    fn check_counter(&mut self, name: &str) -> Result<(), Trouble> {
        match self.world.host.counter_growth(name) {
            None => Err(Trouble::unsupported(format!("counter {name}"))),
            Some(0) => Err(Trouble::differs(format!("counter {name} has not grown"))),
            Some(_) => Ok(()),
        }
    }

    /// Runs code with what `tcp_info` says of the connection under test.
    pub(super) fn code(&mut self, code: &str) -> Result<(), Trouble> {
        let flow = self.world.under_test;
        let id = flow
            .and_then(|flow| self.world.socket_of_flow(flow))
            .and_then(|socket| socket.connection().or(socket.failed));
        if let Some(id) = id {
            for (name, value) in self.world.host.tcp_info(id, self.world.now) {
                self.interpreter.set(name, Value::Int(value));
            }
        }
        self.interpreter.run(code).map_err(|error| match error {
            PythonError::Unsupported(what) => Trouble::unsupported(format!("Python's {what}")),
            error => Trouble::differs(error.to_string()),
        })
    }
}
