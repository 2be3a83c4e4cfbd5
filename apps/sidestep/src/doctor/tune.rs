//! `sidestep tune`: the plan, its steps one after the other, and back.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use ::doctor::{Command, Facts, Finding, Setting, Step, Verdict};
use anyhow::{Context, bail};
use clap::Args;
use control::NetlinkMonitor;
use serde::Serialize;

use super::state::{Change, State, StateFile};
use super::{EXIT_ERROR, WishOptions, failed, interface, machine, settings, text};
use crate::output::{self, complain};

/// Options of `sidestep tune`.
#[derive(Args)]
pub(crate) struct Tune {
    /// The interface [default: that of the default route; with --undo, all that was changed].
    #[arg(value_name = "IF")]
    interface: Option<String>,
    /// Carry the plan out. Without this it is shown only.
    #[arg(long)]
    apply: bool,
    /// Restore what was before, latest change first. What others have changed since is left alone.
    #[arg(long, conflicts_with_all = ["apply", "without", "busy_poll", "huge_pages", "ports", "queues"])]
    undo: bool,
    /// The file that keeps what was before.
    #[arg(long, value_name = "FILE", default_value = STATE)]
    state: PathBuf,
    /// Leave out a finding of `sidestep doctor`, by its name, such as queues.count. May be repeated.
    #[arg(long, value_name = "ID", value_parser = known_id)]
    without: Vec<String>,
    #[command(flatten)]
    wishes: WishOptions,
    /// Print JSON: the plan, or what was undone.
    #[arg(long)]
    json: bool,
}

impl Tune {
    fn undo_command(&self) -> String {
        match self.state.to_str() {
            Some(STATE) => "sidestep tune --undo".to_owned(),
            _ => format!("sidestep tune --undo --state {}", self.state.display()),
        }
    }
}

fn known_id(text: &str) -> Result<String, String> {
    let ids: BTreeSet<&str> = ::doctor::topics().map(|topic| topic.id).collect();
    match ids.contains(text) {
        true => Ok(text.to_owned()),
        false => Err(format!("there are {}", ids.into_iter().collect::<Vec<_>>().join(", "))),
    }
}

const STATE: &str = "/var/lib/sidestep/tune.json";
/// Where the text of a step begins.
const PLAN_INDENT: usize = 5;

/// A step of the plan, and why it is there.
#[derive(Serialize)]
struct Planned {
    finding: &'static str,
    why: String,
    #[serde(flatten)]
    step: Step,
    command: String,
}

/// What is to be done, and whether more follows it.
struct Plan {
    steps: Vec<Planned>,
    /// Queues get new interrupts, whose affinity can be planned when they are there.
    makes_interrupts: bool,
}

impl Plan {
    /// A plan of these steps, in their order, for an interface that has interrupts or not.
    fn new(mut steps: Vec<Planned>, has_interrupts: bool) -> Plan {
        let changes_queues = steps.iter().any(|planned| planned.step.setting.makes_interrupts());
        if changes_queues {
            steps.retain(|planned| !planned.step.setting.is_of_interrupt());
        }
        Plan { steps, makes_interrupts: changes_queues && has_interrupts }
    }

    /// What is to be done afterwards, if something is.
    fn note(&self) -> Option<&'static str> {
        let note = "The number of queues changes, and new queues have new interrupts: run this again afterwards for the affinity of those.";
        self.makes_interrupts.then_some(note)
    }
}

/// Shows the plan, carries it out, or undoes what was done.
pub(crate) fn tune(options: &Tune) -> anyhow::Result<ExitCode> {
    let outcome = match (options.undo, options.apply) {
        (true, _) => undo(options),
        (false, false) => plan(options).and_then(|plan| show(options, &plan)),
        (false, true) => plan(options).and_then(|plan| apply(options, &plan)),
    };
    Ok(outcome.unwrap_or_else(|error| failed(&error)))
}

fn plan(options: &Tune) -> anyhow::Result<Plan> {
    let Some(name) = options.interface.clone().or_else(interface::default_name) else {
        bail!("there is no default route whose interface could be meant: name one");
    };
    let interface = interface::look(&name)?;
    let has_interrupts = interface.interrupts.get().is_some_and(|interrupts| !interrupts.is_empty());
    let facts = Facts { machine: Some(machine::look()), interface: Some(interface), program: None };
    let wishes = options.wishes.wishes();
    let findings = ::doctor::examine(&facts, &wishes);
    for (option, id) in [("--port", "queues.port"), ("--huge-pages", "memory.huge-pages")] {
        let refused = |finding: &&Finding| finding.id == id && finding.verdict == Verdict::Bad;
        if let Some(finding) = findings.iter().find(refused) {
            bail!("{option}: {}", finding.seen);
        }
    }
    let wanted = findings.iter().filter(|finding| !options.without.iter().any(|id| id == finding.id));
    let mut steps = Vec::new();
    for finding in wanted {
        for command in &finding.commands {
            let Command::Step(step) = command else { continue };
            let (step, command) = (step.clone(), command.line());
            steps.push(Planned { finding: finding.id, why: finding.seen.clone(), step, command });
        }
    }
    Ok(Plan::new(steps, has_interrupts))
}

fn show(options: &Tune, plan: &Plan) -> anyhow::Result<ExitCode> {
    output::to_stdout(|out| {
        if options.json {
            return Ok(writeln!(out, "{}", serde_json::to_string_pretty(&plan.steps)?)?);
        }
        write_plan(out, &plan.steps)?;
        if !plan.steps.is_empty() {
            let undo = options.undo_command();
            writeln!(out, "\nNothing has changed. With --apply it does; `{undo}` restores it.")?;
        }
        Ok(())
    })?;
    tell_note(plan);
    Ok(ExitCode::SUCCESS)
}

/// On stderr, where it is in the way of no JSON.
fn tell_note(plan: &Plan) {
    if let Some(note) = plan.note() {
        complain!("{note}");
    }
}

fn write_plan(out: &mut dyn Write, plan: &[Planned]) -> anyhow::Result<()> {
    if plan.is_empty() {
        return Ok(writeln!(out, "Nothing is to be tuned. `sidestep doctor` shows what was looked at.")?);
    }
    for (number, planned) in (1..).zip(plan) {
        let Step { setting, from, to } = &planned.step;
        writeln!(out, "{number:>3}. {setting}: {from} becomes {to}")?;
        let mut why = String::new();
        text::wrap(&mut why, PLAN_INDENT, "", &format!("{} ({})", planned.why, planned.finding));
        writeln!(out, "{why}     {}", planned.command)?;
    }
    Ok(())
}

fn apply(options: &Tune, plan: &Plan) -> anyhow::Result<ExitCode> {
    if plan.steps.is_empty() {
        return show(options, plan);
    }
    let file = StateFile::open(&options.state)?;
    let mut state = State::new()?;
    if let Some(earlier) = file.load()?.filter(|earlier| earlier.is_of_boot(&state)) {
        earlier.check_place()?;
        state.changes = earlier.changes;
    }
    let mut done = Vec::new();
    for planned in &plan.steps {
        if let Err(error) = carry_out(&file, &mut state, &planned.step, &mut done) {
            complain!("sidestep: {}: {}", planned.command, crate::explain(&error));
            return give_up(options, &file, state, done);
        }
    }
    output::to_stdout(|out| {
        if options.json {
            return Ok(writeln!(out, "{}", serde_json::to_string_pretty(&done)?)?);
        }
        for Change { setting, before, after, .. } in &done {
            writeln!(out, "{setting}: {before} is now {after}")?;
        }
        let (state, undo) = (options.state.display(), options.undo_command());
        Ok(writeln!(out, "\n{state} has what was before; `{undo}` restores it.")?)
    })?;
    tell_note(plan);
    Ok(ExitCode::SUCCESS)
}

/// Does one step, and adds it to what is `done`. What was before is in the file first.
fn carry_out(file: &StateFile, state: &mut State, step: &Step, done: &mut Vec<Change>) -> anyhow::Result<()> {
    let before = settings::read(&step.setting)?.context("it is gone")?;
    if before == step.to {
        return Ok(()); // An earlier step, or somebody else, has done it.
    }
    let number = settings::interface_number(&step.setting)?;
    let mut change = Change { setting: step.setting.clone(), number, before, after: step.to.clone() };
    done.push(change.clone());
    state.note(change.clone());
    file.save(state)?;
    settings::write(&step.setting, &step.to)?;
    let after = settings::read(&step.setting)?.context("it is gone")?;
    // Drivers round.
    if change.after != after {
        if change.before == after {
            bail!("the kernel took the value, and the setting stays as it was");
        }
        change.after = after;
        let is_short = number_in(&change.after) < number_in(&step.to);
        state.changes.last_mut().expect("it was just noted").after.clone_from(&change.after);
        let after = change.after.clone();
        *done.last_mut().expect("it was just added") = change;
        file.save(state)?;
        if is_short && matches!(step.setting, Setting::File { .. }) {
            bail!("the kernel made it {after}, which is less than {}", step.to);
        }
    }
    Ok(())
}

fn number_in(value: &str) -> Option<u64> {
    value.trim().parse().ok()
}

/// Undoes what this run has changed, after a step that failed.
fn give_up(
    options: &Tune,
    file: &StateFile,
    mut state: State,
    done: Vec<Change>,
) -> anyhow::Result<ExitCode> {
    let undone: Vec<(Change, Outcome)> =
        done.into_iter().rev().map(|change| (change.clone(), restore(&change))).collect();
    for (change, outcome) in &undone {
        if !matches!(outcome, Outcome::AsBefore) {
            complain!("sidestep: {}", outcome.text(change));
        }
    }
    complain!("sidestep: a step failed{}", said_of(&undone, options));
    for (change, _) in undone.into_iter().filter(|(_, outcome)| !outcome.is_left()) {
        state.forget(change);
    }
    keep(file, &state)?;
    Ok(ExitCode::from(EXIT_ERROR))
}

/// How much of what a run has changed was undone.
fn said_of(undone: &[(Change, Outcome)], options: &Tune) -> String {
    let (undo, state) = (options.undo_command(), options.state.display());
    let has_failed = undone.iter().any(|(_, outcome)| matches!(outcome, Outcome::Failed(_)));
    match undone.iter().filter(|(_, outcome)| outcome.is_left()).count() {
        0 => ": everything is as it was before".to_owned(),
        _ if has_failed => format!(", and not all was undone: try `{undo}`"),
        left => format!(
            ": what it had changed is as it was before, but for {left} that others have changed since; {state} has what was before"
        ),
    }
}

fn keep(file: &StateFile, state: &State) -> anyhow::Result<()> {
    match (state.changes.is_empty(), file.load()?.is_some()) {
        (true, true) => file.remove(),
        (true, false) => Ok(()),
        (false, _) => file.save(state),
    }
}

/// What became of one change at an undo.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    /// It has its value of before again.
    Restored,
    /// So it has, and its interface has this name now.
    RestoredAs(String),
    /// It had that already.
    AsBefore,
    /// Somebody has given it this value since.
    Others(String),
    /// The interface or the file is gone.
    Gone,
    /// The kernel refused.
    Failed(String),
}

impl Outcome {
    /// Whether the setting is there, and has another value than before.
    fn is_left(&self) -> bool {
        match self {
            Outcome::Restored | Outcome::RestoredAs(_) | Outcome::AsBefore | Outcome::Gone => false,
            Outcome::Others(_) | Outcome::Failed(_) => true,
        }
    }

    fn text(&self, change: &Change) -> String {
        let Change { setting, before, after, .. } = change;
        match self {
            Outcome::Restored => format!("{setting}: {after} is {before} again"),
            Outcome::RestoredAs(name) => {
                format!("{setting}, which is {name} now: {after} is {before} again")
            }
            Outcome::AsBefore => format!("{setting}: is {before} already"),
            Outcome::Others(now) => {
                format!(
                    "{setting}: left alone: others have changed it from {after} to {now} ({before} before)"
                )
            }
            Outcome::Gone => format!("{setting}: is gone, and so nothing is to be restored"),
            Outcome::Failed(error) => format!("{setting}: could not be restored to {before}: {error}"),
        }
    }
}

fn restore(change: &Change) -> Outcome {
    let restore = || -> anyhow::Result<Outcome> {
        let setting = settings::of_today(&change.setting, change.number)?;
        let Some(setting) = setting else { return Ok(Outcome::Gone) };
        let Some(now) = settings::read(&setting)? else { return Ok(Outcome::Gone) };
        if now == change.before {
            return Ok(Outcome::AsBefore);
        }
        if now != change.after {
            return Ok(Outcome::Others(now));
        }
        settings::write(&setting, &change.before)?;
        Ok(match setting.interface().filter(|name| change.setting.interface() != Some(name)) {
            Some(name) => Outcome::RestoredAs(name.to_owned()),
            None => Outcome::Restored,
        })
    };
    restore().unwrap_or_else(|error| Outcome::Failed(crate::explain(&error)))
}

/// Of which interface changes are to be undone.
struct Meant {
    /// As the user named it, and as the kernel does; none: all that was changed.
    names: Vec<String>,
}

impl Meant {
    fn of(given: Option<&str>) -> Meant {
        Meant { names: given.map_or(Vec::new(), |name| vec![name.to_owned(), control::kernel_name(name)]) }
    }

    /// Whether the change is of it, by its name of then or of today.
    fn has(&self, change: &Change) -> bool {
        let today = settings::of_today(&change.setting, change.number).ok().flatten();
        let is_named = |setting: &Setting| {
            setting.interface().is_some_and(|name| self.names.iter().any(|meant| meant == name))
        };
        self.names.is_empty() || is_named(&change.setting) || today.as_ref().is_some_and(is_named)
    }

    /// Complains of a name that neither an interface nor a change has: it may be mistyped.
    fn check(&self, changes: &[Change]) -> anyhow::Result<()> {
        let Some(name) = self.names.last().filter(|_| !changes.iter().any(|change| self.has(change))) else {
            return Ok(());
        };
        interface::open(name, NetlinkMonitor::new()?.mirror()).map(drop)
    }
}

fn nothing_to_undo(options: &Tune, why: &str) -> anyhow::Result<ExitCode> {
    let said = if options.json { "[]".to_owned() } else { format!("Nothing is to be undone: {why}") };
    output::to_stdout(|out| Ok(writeln!(out, "{said}")?))?;
    Ok(ExitCode::SUCCESS)
}

fn undo(options: &Tune) -> anyhow::Result<ExitCode> {
    #[derive(Serialize)]
    struct Undone<'c> {
        #[serde(flatten)]
        change: &'c Change,
        outcome: &'c Outcome,
    }
    let meant = Meant::of(options.interface.as_deref());
    let file = StateFile::open_existing(&options.state)?;
    let state = file.as_ref().map_or(Ok(None), StateFile::load)?;
    let Some((file, mut state)) = file.zip(state) else {
        meant.check(&[])?;
        return nothing_to_undo(options, &format!("there is no {}.", options.state.display()));
    };
    meant.check(&state.changes)?;
    if !state.is_of_boot(&State::new()?) {
        file.remove()?;
        let why = "the machine was started again since, and nothing of what was changed survives that.";
        return nothing_to_undo(options, why);
    }
    state.check_place()?;
    let meant: Vec<Change> = state.changes.extract_if(.., |change| meant.has(change)).collect();
    let outcomes: Vec<(Change, Outcome)> =
        meant.into_iter().rev().map(|change| (change.clone(), restore(&change))).collect();
    let failed: Vec<Change> = outcomes
        .iter()
        .rev()
        .filter(|(_, outcome)| matches!(outcome, Outcome::Failed(_)))
        .map(|(change, _)| change.clone())
        .collect();
    let failures = failed.len();
    state.changes.extend(failed);
    keep(&file, &state)?;
    output::to_stdout(|out| {
        if options.json {
            let undone: Vec<_> =
                outcomes.iter().map(|(change, outcome)| Undone { change, outcome }).collect();
            return Ok(writeln!(out, "{}", serde_json::to_string_pretty(&undone)?)?);
        }
        outcomes.iter().try_for_each(|(change, outcome)| Ok(writeln!(out, "{}", outcome.text(change))?))
    })?;
    if failures == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    bail!("{failures} changes could not be undone; {} still has them", options.state.display());
}

#[cfg(test)]
mod tests {
    use ::doctor::Parameter;
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        tune: Tune,
    }

    fn planned(setting: Setting) -> Planned {
        let step = Step { setting, from: "1".to_owned(), to: "2".to_owned() };
        Planned { finding: "a.finding", why: String::new(), step, command: String::new() }
    }

    fn affinity() -> Setting {
        let path = "/proc/irq/40/smp_affinity_list".to_owned();
        Setting::File { path, interface: Some("eth0".to_owned()) }
    }

    #[test]
    fn affinity_waits_until_queues_have_their_interrupts() {
        let parameter = |parameter| planned(Setting::Parameter { interface: "eth0".to_owned(), parameter });
        let plan = Plan::new(vec![parameter(Parameter::CombinedQueues), planned(affinity())], true);
        assert!(plan.steps.len() == 1 && plan.steps[0].step.setting.makes_interrupts());
        assert!(plan.note().unwrap().contains("run this again"));
        let plan = Plan::new(vec![parameter(Parameter::RxRing), planned(affinity())], true);
        assert_eq!((plan.steps.len(), plan.note()), (2, None));
        assert_eq!(Plan::new(vec![parameter(Parameter::RxQueues)], false).note(), None, "a veth has none");
    }

    #[test]
    fn what_others_have_changed_meanwhile_is_not_as_it_was() {
        let options = Words::parse_from(["tune", "eth0", "--state", "/s.json"]).tune;
        let said = |outcomes: Vec<Outcome>| {
            let undone: Vec<_> = outcomes.into_iter().map(|outcome| (change("1", "2"), outcome)).collect();
            said_of(&undone, &options)
        };
        assert_eq!(said(vec![Outcome::Restored, Outcome::Gone]), ": everything is as it was before");
        let others = || Outcome::Others("3".to_owned());
        let expected = ": what it had changed is as it was before, but for 1 that others have changed since; /s.json has what was before";
        assert_eq!(said(vec![Outcome::Restored, others()]), expected);
        let failed = said(vec![others(), Outcome::Failed("no".to_owned())]);
        assert_eq!(failed, ", and not all was undone: try `sidestep tune --undo --state /s.json`");
    }

    /// A setting that every kernel has and nobody here changes.
    fn change(before: &str, after: &str) -> Change {
        let setting = Setting::Feature { interface: "lo".to_owned(), name: "loopback".to_owned() };
        Change { setting, number: None, before: before.to_owned(), after: after.to_owned() }
    }

    #[test]
    fn what_is_as_before_is_no_fault() {
        assert!(matches!(restore(&change("on", "off")), Outcome::AsBefore));
    }

    #[test]
    fn what_others_have_changed_is_left_alone() {
        let outcome = restore(&change("a", "b"));
        assert!(matches!(&outcome, Outcome::Others(now) if now == "on"));
        assert!(outcome.text(&change("a", "b")).contains("left alone"));
    }

    #[test]
    fn what_is_gone_needs_nothing() {
        let setting = Setting::Feature { interface: "no-such-if".to_owned(), name: "rx-gro".to_owned() };
        assert!(matches!(restore(&Change { setting, ..change("on", "off") }), Outcome::Gone));
    }

    #[test]
    fn an_undo_of_what_is_no_interface_and_has_no_change_is_an_error() {
        let gone = Setting::Feature { interface: "was-here".to_owned(), name: "rx-gro".to_owned() };
        let changes = [Change { setting: gone, ..change("on", "off") }];
        assert!(Meant::of(Some("was-here")).check(&changes).is_ok());
        assert!(Meant::of(Some("lo")).check(&changes).is_ok() && Meant::of(None).check(&[]).is_ok());
        let path = std::env::temp_dir().join(format!("sidestep-undo-{}.json", std::process::id()));
        let words = ["tune", "was-heer", "--undo", "--state", path.to_str().unwrap()];
        let error = undo(&Words::parse_from(words).tune).unwrap_err().to_string();
        assert!(error.starts_with("there is no interface was-heer; there are "), "{error}");
        let _ = std::fs::remove_file(path.with_extension("json.lock"));
    }

    #[test]
    fn a_finding_that_does_not_exist_cannot_be_left_out() {
        assert!(known_id("queues.count").is_ok());
        assert!(known_id("queues.county").unwrap_err().contains("queues.count"));
    }
}
