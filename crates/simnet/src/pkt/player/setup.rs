//! What a script says before its first event, and what it takes for granted.

use std::net::SocketAddr;

use crate::pkt::ast::{Action, Command, OptionSpec, Script, flag};
use crate::pkt::cookies::{Cookies, cookie_of};
use crate::pkt::host::{Host, HostConfig};
use crate::pkt::packet::{Packet, Segment, Transport, decode, encode};
use crate::pkt::parser::Definitions;
use crate::pkt::report::{Finding, Report, Verdict};
use crate::pkt::settings::{OptionError, Settings};
use crate::pkt::shell::{Effect, effects};
use crate::pkt::world::START;

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
        Effect::MssClamp(size) => config.mss_clamp = Some(size),
        Effect::Ignored(text) => notes.push(format!("{}: `{text}` was left out", command.at)),
        Effect::LosesAll(true) => return Err("a queue that loses all from the start".to_owned()),
        Effect::LosesAll(false) | Effect::RememberCounters => {}
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

/// The name by which scripts call the Fast Open cookie that is right for their peer, and octets for it.
const COOKIE: (&str, &str) = ("TFO_COOKIE", "3021b9d889017eeb");

/// The definitions, and those that the scripts of the Linux kernel expect from their player.
pub(super) fn with_usual_definitions(definitions: &Definitions) -> Definitions {
    let mut definitions = definitions.clone();
    if definitions.get(COOKIE.0).is_none() {
        definitions.define(&format!("{}={}", COOKIE.0, COOKIE.1));
    }
    definitions
}

/// What the cookies of scripts stand for.
pub(super) fn cookies(definitions: &Definitions, config: &HostConfig, settings: &Settings) -> Cookies {
    let mut cookies = Cookies::default();
    let name = definitions.get(COOKIE.0).unwrap_or_default();
    let script: Option<Vec<u8>> =
        (0..name.len()).step_by(2).map(|at| u8::from_str_radix(name.get(at..at + 2)?, 16).ok()).collect();
    if let (Some(script), Some(live)) = (script, cookie_of_stack(config, settings)) {
        cookies.stand_for(&script, &live);
    }
    cookies
}

/// The cookie that a stack like the one under test gives the peer: another such stack is asked.
fn cookie_of_stack(config: &HostConfig, settings: &Settings) -> Option<Vec<u8>> {
    let mut host = Host::new(config.clone(), START);
    let mut options = host.default_options();
    options.fast_open_queue = 1;
    let local = SocketAddr::new(settings.local_ip, settings.bind_port);
    host.listen(local, 1, &options).ok()?;
    let syn = Segment {
        ports: (settings.connect_port, settings.bind_port),
        seq: 0,
        ack: 0,
        flags: u16::from(flag::SYN),
        window: u16::MAX,
        urgent: 0,
        options: vec![OptionSpec::FastOpen { cookie: Vec::new(), experimental: false }],
        payload: Vec::new(),
    };
    let packet = Packet {
        source: settings.remote_ip,
        destination: settings.local_ip,
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
        body: Transport::Tcp(syn),
    };
    host.receive(&encode(&packet).ok()?, START).ok()?;
    let answer = decode(&host.transmit(START)?).ok()?;
    answer.segment()?.options.iter().find_map(cookie_of).map(<[u8]>::to_vec)
}
