//! What a script says before its first event.

use crate::pkt::ast::{Action, Command, Script};
use crate::pkt::host::HostConfig;
use crate::pkt::report::{Finding, Report, Verdict};
use crate::pkt::settings::{OptionError, Settings};
use crate::pkt::shell::{Effect, effects};

/// What the stack is made with: the sysctls of the script's first commands. Those without equivalent are noted.
pub(super) fn host_config(
    script: &Script,
    settings: &Settings,
    notes: &mut Vec<String>,
) -> Result<HostConfig, Finding> {
    let mut config = HostConfig::new(settings.mtu);
    let at_start = script.events.iter().map_while(|event| match &event.action {
        Action::Command(command) => Some(command),
        _ => None,
    });
    for command in script.setup.iter().chain(at_start) {
        let unsupported = |what: String| Finding {
            at: Some(command.at),
            text: command.text.lines().next().unwrap_or_default().to_owned(),
            details: vec![format!("{what} is not supported")],
        };
        for effect in effects(&command.text).map_err(unsupported)? {
            apply(&mut config, command, effect, notes).map_err(unsupported)?;
        }
    }
    Ok(config)
}

fn apply(
    config: &mut HostConfig,
    command: &Command,
    effect: Effect,
    notes: &mut Vec<String>,
) -> Result<(), String> {
    match effect {
        Effect::Sysctl(name, value) => {
            if !config.set_sysctl(&name, &value)? {
                notes.push(format!(
                    "{}: sysctl {name}={value} has no equivalent and was left out",
                    command.at
                ));
            }
        }
        Effect::Mtu(mtu) => config.mtu = mtu,
        Effect::Ignored(text) => notes.push(format!("{}: `{text}` was left out", command.at)),
        Effect::RememberCounters => {}
        Effect::CounterChanged(name) => return Err(format!("counter {name} before the first event")),
    }
    Ok(())
}

/// The report for an option that was refused.
pub(super) fn report_of_option(error: &OptionError, script: &Script) -> Report {
    let name = match error {
        OptionError::Unknown(name) | OptionError::Unsupported(name) | OptionError::Value { name, .. } => name,
    };
    let option = script.options.iter().find(|option| option.name == *name);
    let text = option.map(|option| match &option.value {
        Some(value) => format!("--{}={value}", option.name),
        None => format!("--{}", option.name),
    });
    let at = option.map(|option| option.at);
    let finding = Finding { at, text: text.unwrap_or_default(), details: vec![error.to_string()] };
    Report::of(match error {
        OptionError::Unsupported(_) => Verdict::Unsupported(finding),
        _ => Verdict::Failed(finding),
    })
}
