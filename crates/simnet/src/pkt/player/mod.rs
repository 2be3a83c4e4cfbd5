//! Plays a script: event after event against a stack, in simulated time.
//!
//! Time moves only between events, from one deadline of the stack to the next. What the stack sends is queued with its
//! time until the script expects it. A call that blocks is tried again after everything that happens.

mod act;
mod clockwork;
mod expect;
mod inject;
mod setup;

use clock::{Duration, Instant};

use super::ast::{Action, Direction, Event, PacketSpec, Script, ScriptOption, When};
use super::host::Host;
use super::parser::{Definitions, parse};
use super::python::{Interpreter, Value};
use super::report::{Finding, Report, Verdict};
use super::settings::Settings;
use super::sockets::Running;
use super::symbols;
use super::trouble::Trouble;
use super::world::{START, World};

/// Plays the script `text` with the options and definitions of the command line.
pub fn play(text: &str, options: &[ScriptOption], definitions: &Definitions) -> Report {
    let definitions = setup::with_usual_definitions(definitions);
    let script = match parse(text, &definitions) {
        Ok(script) => script,
        Err(error) => return Report::of_parse_error(&error, text),
    };
    let settings = match Settings::new(script.options.iter().chain(options)) {
        Ok(settings) => settings,
        Err(error) => return setup::report_of_option(&error, &script),
    };
    if settings.dry_run {
        return Report::of(Verdict::Passed);
    }
    let mut notes = Vec::new();
    let verbose = settings.verbose;
    let config = match setup::host_config(&script, &settings, &mut notes) {
        Ok(config) => config,
        Err(finding) => return Report { notes, ..Report::of(Verdict::Unsupported(finding)) },
    };
    let cookies = setup::cookies(&definitions, &config, &settings);
    let mut player = Player::new(World::new(settings, Host::new(config, START), cookies), notes);
    let verdict = player.run(&script);
    if verbose {
        let rest = player.take_rest();
        player.trace.extend(rest);
    }
    // Ignored settings matter to readers who wonder why something differs.
    let notes = if verbose || verdict != Verdict::Passed { player.notes } else { player.told };
    Report { verdict, notes, trace: player.trace }
}

struct Player<'a> {
    world: World,
    interpreter: Interpreter,
    running: Option<Running<'a>>,
    /// The event that is played.
    current: Option<&'a Event>,
    /// What relative times of the current event count from.
    event_base: Instant,
    /// When the event before this one happened, by the script.
    last_event: Instant,
    /// Steps that were made without time passing.
    steps_now: u32,
    notes: Vec<String>,
    /// Differences that are only to be told; they are among the notes, too.
    told: Vec<String>,
    trace: Vec<String>,
}

/// When an event is to happen: between two times, or at any.
#[derive(Clone, Copy, Debug)]
struct Target {
    range: Option<(Instant, Instant)>,
}

/// Where in the script something went wrong, and what.
struct Failure<'a> {
    event: &'a Event,
    trouble: Trouble,
}

impl<'a> Player<'a> {
    fn new(world: World, notes: Vec<String>) -> Player<'a> {
        let mut interpreter = Interpreter::default();
        for (name, value) in symbols::python_names() {
            interpreter.set(name, Value::Int(value.into()));
        }
        Player {
            world,
            interpreter,
            running: None,
            current: None,
            event_base: START,
            last_event: START,
            steps_now: 0,
            notes,
            told: Vec::new(),
            trace: Vec::new(),
        }
    }

    fn run(&mut self, script: &'a Script) -> Verdict {
        let in_setup =
            script.events.iter().take_while(|event| matches!(event.action, Action::Command(_))).count();
        let events = script.events.iter().skip(in_setup);
        let failure = events.clone().find_map(|event| self.play_event(event).err());
        let failure = failure.or_else(|| self.end(script).err());
        match failure {
            None => Verdict::Passed,
            Some(Failure { event, trouble }) => {
                let finding = |details| Finding { at: Some(event.at), text: event.text.clone(), details };
                match trouble {
                    Trouble::Differs(details) => Verdict::Failed(finding(details)),
                    Trouble::Unsupported(what) => {
                        Verdict::Unsupported(finding(vec![format!("{what} is not supported")]))
                    }
                }
            }
        }
    }

    fn play_event(&mut self, event: &'a Event) -> Result<(), Failure<'a>> {
        self.current = Some(event);
        self.event_base = self.world.now;
        let target = self.target(event.when);
        let wrap = |trouble| Failure { event, trouble };
        let is_outbound =
            matches!(&event.action, Action::Packet(packet) if packet.direction == Direction::Outbound);
        if let (false, Some((at, _))) = (is_outbound, target.range) {
            self.wait_until(at)?;
            self.check_punctual(at).map_err(wrap)?;
        }
        match &event.action {
            Action::Packet(packet) if is_outbound => self.expect(event, packet, target)?,
            Action::Packet(packet) => {
                self.inject(event, packet).map_err(wrap)?;
                self.go_on()?;
            }
            Action::Call(call) => self.call(event, call)?,
            Action::Command(command) => self.command(command).map_err(wrap)?,
            Action::Code(code) => self.code(code).map_err(wrap)?,
        }
        self.last_event = target.range.map_or(self.world.now, |(at, _)| at);
        Ok(())
    }

    fn target(&self, when: When) -> Target {
        let now = self.world.now;
        let range = match when {
            When::At(time) => Some((START + time, START + time)),
            When::After(time) => Some((now + time, now + time)),
            When::Between(from, to) => Some((START + from, START + to)),
            When::AfterBetween(from, to) => Some((now + from, now + to)),
            When::Anytime => None,
        };
        Target { range }
    }

    /// How far from `at` an event may happen: what is allowed always, or a share of the time since the event before.
    fn tolerance(&self, at: Instant, before: Instant) -> Duration {
        let share =
            at.since(before).as_secs_f64() * self.world.settings.tolerance_percent.clamp(0.0, 1000.0) / 100.0;
        self.world.settings.tolerance.max(Duration::from_secs_f64(share))
    }

    /// Events before this one may have taken so long that its time has passed.
    fn check_punctual(&self, at: Instant) -> Result<(), Trouble> {
        let now = self.world.now;
        if now.since(at) <= self.tolerance(at, self.last_event) {
            return Ok(());
        }
        Err(Trouble::differs(format!(
            "this was to happen at {}, and it is {} already",
            seconds(at),
            seconds(now)
        )))
    }

    /// A difference that `--non_fatal` allows is reported; any other ends the script.
    fn tell_or_fail(
        &mut self,
        event: &'a Event,
        trouble: Trouble,
        may_differ: bool,
    ) -> Result<(), Failure<'a>> {
        match trouble {
            Trouble::Differs(details) if may_differ => {
                let told = format!("{}: {} differs: {}", event.at, event.text, details.join("; "));
                self.told.push(told.clone());
                self.notes.push(told);
                Ok(())
            }
            trouble => Err(Failure { event, trouble }),
        }
    }

    fn note(&mut self, direction: char, at: Instant, text: &str) {
        if self.world.settings.verbose {
            self.trace.push(format!("{} {direction} {text}", seconds(at)));
        }
    }
}

/// Seconds since the start of the script.
fn seconds(at: Instant) -> String {
    format!("{:.6}", at.since(START).as_secs_f64())
}

/// The flow that a packet of the script belongs to by its ports, if it names them and such a flow is known.
fn flow_by_ports(world: &World, packet: &PacketSpec) -> Option<usize> {
    let (source, destination) = packet.ports?;
    let (local, remote) = match packet.direction {
        Direction::Inbound => (destination, source),
        Direction::Outbound => (source, destination),
    };
    world.flows.iter().rposition(|flow| flow.local.port() == local && flow.remote.port() == remote)
}
