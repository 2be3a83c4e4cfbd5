//! `sidestep`: the one command.
#![forbid(unsafe_code)]

mod dns;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Network services around the Linux kernel.
#[derive(Parser)]
#[command(name = "sidestep", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The DNS: an authoritative server and what belongs to it.
    Dns {
        #[command(subcommand)]
        command: dns::Command,
    },
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Dns { command } => dns::run(command),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("sidestep: {}", explain(&error));
            ExitCode::FAILURE
        }
    }
}

/// What failed and why, on one line: the chain of causes, without those that the text before has told already.
fn explain(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| {
        if text.is_empty() {
            cause
        } else if text.contains(&cause) {
            text
        } else {
            format!("{text}: {cause}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn a_cause_is_told_once() {
        let inner = Err::<(), _>(std::io::Error::other("no such thing"));
        let told = inner.context("opening x (no such thing)").context("starting").unwrap_err();
        assert_eq!(explain(&told), "starting: opening x (no such thing)");
    }

    #[test]
    fn every_cause_is_told() {
        let inner = Err::<(), _>(std::io::Error::other("no such thing"));
        assert_eq!(explain(&inner.context("opening x").unwrap_err()), "opening x: no such thing");
    }
}
