//! `sidestep`: the one command.
#![forbid(unsafe_code)]
// They panic where they cannot write; `output` has what does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod dns;
mod observe;
mod output;
mod run;
mod status;

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
    /// Run a program on our stack, unchanged: `sidestep run -- nginx`.
    ///
    /// What cannot be accelerated runs on the kernel, and one line says why. Signals and the exit status pass through.
    Run(run::Options),
    /// Show what `sidestep run` runs: programs, their sockets, which are accelerated, and why the others are not.
    Status(status::Status),
    /// The same again and again, with the packets of each second.
    Top(status::Top),
    /// List the sockets of running Sidestep programs, as `ss -tin` does for the kernel's.
    ///
    /// Each connection has a second line in the words of ss(8): congestion control, timers, windows, counts. Windows and
    /// flights are in segments. A listener's Recv-Q is who waits to be accepted, its Send-Q how many may.
    Sockets(observe::Sockets),
    /// Print the counters of running Sidestep programs, as nstat(8) does for the kernel's.
    Counters(observe::Counters),
    /// Print what the stacks remember: the latest segments, states and timeouts of all connections.
    Trace(observe::Trace),
    /// Capture packets that go around the kernel, where tcpdump does not see them.
    ///
    /// `sidestep capture -w - tcp port 80 | tcpdump -n -r -`, or `| wireshark -k -i -`.
    #[command(verbatim_doc_comment)]
    Capture(observe::Capture),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Dns { command } => dns::run(command),
        Command::Run(options) => run::run(&options),
        Command::Status(options) => status::run(&options),
        Command::Top(options) => status::top(&options),
        Command::Sockets(options) => observe::sockets(&options),
        Command::Counters(options) => observe::counters(&options),
        Command::Trace(options) => observe::trace(&options),
        Command::Capture(options) => observe::capture(&options),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            output::complain!("sidestep: {}", explain(&error));
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
