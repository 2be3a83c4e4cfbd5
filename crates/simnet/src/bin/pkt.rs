//! Plays scripts in packetdrill's language against Sidestep's TCP, in this process and in simulated time.
//!
//! `pkt [--option=value]... [-D NAME=value]... FILE...` prints a line for each file: ok, FAILED, or NOT SUPPORTED with
//! the reason. The exit status is 0 if all files passed, 1 if one failed, 2 if none failed and one is not supported.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use simnet::pkt::ast::{Position, ScriptOption};
use simnet::pkt::parser::Definitions;
use simnet::pkt::{Verdict, play};

const USAGE: &str = "\
usage: pkt [options] FILE...

Plays scripts in packetdrill's language against Sidestep's TCP under simulated time.

  --ip_version=ipv4|ipv4-mapped-ipv6|ipv6
  --local_ip=ADDRESS --remote_ip=ADDRESS   the stack's and its peer's
  --bind_port=PORT --connect_port=PORT     where `...` binds and connects (8080)
  --mtu=OCTETS                             of the link (1500)
  --mss=OCTETS                             larger segments of the peer arrive cut to this size
  --tolerance_usecs=N                      how far from its time an event may happen (4000)
  --tolerance_percent=N                    the same, of the time since the event before (12.5)
  --tcp_ts_tick_usecs=N                    compare timestamps, whose tick is this long
  --strict_segments                        a packet of the script is one packet, never several in a row
  --non_fatal=packet,syscall               tell differences and go on
  --any_push                               do not compare the PSH flag
  --check_rest                             packets that nobody expected fail a script at its end, too
  --dry_run                                only read the scripts
  -D NAME=value, --define=NAME=value       NAME stands for value
  -v, --verbose                            tell every packet and call
";

/// Options whose value may be the next argument.
const TAKE_VALUES: &[&str] = &[
    "ip_version",
    "local_ip",
    "remote_ip",
    "bind_port",
    "connect_port",
    "mtu",
    "mss",
    "tolerance_usecs",
    "tolerance_percent",
    "tcp_ts_tick_usecs",
    "non_fatal",
    "define",
    "gateway_ip",
    "netmask_ip",
    "speed",
    "init_scripts",
];

struct CommandLine {
    options: Vec<ScriptOption>,
    definitions: Definitions,
    files: Vec<String>,
}

fn main() -> ExitCode {
    let command_line = match parse(std::env::args().skip(1)) {
        Ok(command_line) if !command_line.files.is_empty() => command_line,
        Ok(_) => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
        Err(message) => {
            eprintln!("pkt: {message}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let worst = command_line.files.iter().map(|file| play_file(file, &command_line)).max();
    ExitCode::from(match worst {
        Some(Outcome::Failed) => 1,
        Some(Outcome::Unsupported) => 2,
        Some(Outcome::Passed) | None => 0,
    })
}

/// Worse ones are greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Passed,
    Unsupported,
    Failed,
}

fn play_file(file: &str, command_line: &CommandLine) -> Outcome {
    let text = match std::fs::read(file) {
        Ok(octets) => String::from_utf8_lossy(&octets).into_owned(),
        Err(error) => {
            println!("{file}: FAILED\n  {error}");
            return Outcome::Failed;
        }
    };
    let report = play(&text, &command_line.options, &command_line.definitions);
    println!("{}", report.display(file));
    match report.verdict {
        Verdict::Passed => Outcome::Passed,
        Verdict::Failed(_) => Outcome::Failed,
        Verdict::Unsupported(_) => Outcome::Unsupported,
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<CommandLine, String> {
    let mut line =
        CommandLine { options: Vec::new(), definitions: Definitions::default(), files: Vec::new() };
    while let Some(argument) = arguments.next() {
        if let Some(definition) = argument.strip_prefix("-D") {
            let definition =
                if definition.is_empty() { next(&mut arguments, "-D")? } else { definition.to_owned() };
            define(&mut line, &definition)?;
        } else if let Some(option) = argument.strip_prefix("--").or((argument == "-v").then_some("verbose")) {
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None if TAKE_VALUES.contains(&option) => {
                    (option.to_owned(), Some(next(&mut arguments, &argument)?))
                }
                None => (option.to_owned(), None),
            };
            if name == "define" {
                define(&mut line, value.as_deref().unwrap_or_default())?;
            } else {
                line.options.push(ScriptOption { name, value, at: Position { line: 0, column: 0 } });
            }
        } else {
            line.files.push(argument);
        }
    }
    Ok(line)
}

fn next(arguments: &mut impl Iterator<Item = String>, name: &str) -> Result<String, String> {
    arguments.next().ok_or_else(|| format!("{name} needs a value"))
}

fn define(line: &mut CommandLine, text: &str) -> Result<(), String> {
    line.definitions.define(text).ok_or_else(|| format!("`{text}` is not NAME=value"))
}
