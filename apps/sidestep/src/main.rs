//! `sidestep`: the one command.
#![forbid(unsafe_code)]
// They panic where they cannot write; `output` has what does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod authority;
mod dns;
mod doctor;
mod generate;
mod gun;
mod live;
mod logging;
mod observe;
mod output;
mod port;
mod run;
mod status;
mod systemd;
mod top;
mod xdp_mode;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Run network services past the Linux kernel's network stack, over AF_XDP.
#[derive(Parser)]
#[command(name = "sidestep", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve DNS zones, resolve names, and look at the servers that do.
    Dns {
        #[command(subcommand)]
        command: dns::Command,
    },
    /// Run an unmodified program on Sidestep's TCP/IP stack: `sidestep run -- nginx`.
    ///
    /// If the program cannot be accelerated, it runs on the kernel, and one line on stderr says why. `sidestep run` forwards signals
    /// to the program and returns its exit status.
    Run(run::Options),
    /// Show the programs under `sidestep run`, which of their sockets are accelerated, and why the others are not.
    Status(status::Status),
    /// Show what runs just now, as htop does: programs, how engines spend their time, packets, connections, drops and sockets.
    ///
    /// Arrows select a program, Enter shows its sockets, s changes the order, q quits. Without a terminal, lines are printed.
    Top(top::Top),
    /// List the sockets of running Sidestep programs, as `ss -tin` lists the kernel's sockets.
    ///
    /// Each connection has a second line in the words of ss(8): congestion control, timers, windows, counts. Windows and
    /// flights are in segments. For a listener, Recv-Q is the number of connections that wait for `accept`, and Send-Q the most that may.
    Sockets(observe::Sockets),
    /// Print the counters of running Sidestep programs, as nstat(8) prints the kernel's counters.
    Counters(observe::Counters),
    /// Serve the counters of running Sidestep programs to Prometheus, at http://127.0.0.1:9753/metrics.
    ///
    /// /health answers 200 while at least one program answers, and 503 otherwise. /ready answers 200 while all of them are ready to serve. Runs as a user who may ask the programs: theirs, or root.
    #[command(verbatim_doc_comment)]
    Metrics(observe::Metrics),
    /// Print the latest segments, state changes and timeouts of all connections.
    Trace(observe::Trace),
    /// Capture packets that bypass the kernel, which tcpdump does not see.
    ///
    /// `sidestep capture -w - tcp port 80 | tcpdump -n -r -`, or `| wireshark -k -i -`.
    #[command(verbatim_doc_comment)]
    Capture(observe::Capture),
    /// Load servers, and say how much they carry.
    Gun {
        #[command(subcommand)]
        command: gun::Command,
    },
    /// Look at this machine, an interface and a program: what is good, what is not, what that costs, and which command changes it.
    ///
    /// Exit status: 0 if nothing is bad, 1 if something is, 2 if it could not look.
    Doctor(doctor::Doctor),
    /// Show what could be tuned for an interface, do it with --apply, and undo it with --undo.
    ///
    /// A step that fails ends the run, and undoes the steps before it.
    Tune(doctor::Tune),
    /// Write man pages and completions.
    #[command(hide = true)]
    Generate(generate::Generate),
}

fn main() -> ExitCode {
    let outcome = match arguments().command {
        Command::Dns { command } => dns::run(command),
        Command::Run(options) => run::run(&options),
        Command::Status(options) => status::run(&options),
        Command::Top(options) => top::run(&options),
        Command::Sockets(options) => observe::sockets(&options),
        Command::Counters(options) => observe::counters(&options),
        Command::Metrics(options) => observe::metrics(&options),
        Command::Trace(options) => observe::trace(&options),
        Command::Capture(options) => observe::capture(&options),
        Command::Gun { command } => gun::run(&command),
        Command::Doctor(options) => doctor::doctor(&options),
        Command::Tune(options) => doctor::tune(&options),
        Command::Generate(options) => generate::generate(&options, Arguments::command()),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            report(&explain(&error));
            ExitCode::FAILURE
        }
    }
}

/// The command line. Wrong options end the command with 2, as programs mostly do; where 2 has another meaning, with 1.
fn arguments() -> Arguments {
    Arguments::try_parse().unwrap_or_else(|error| {
        let is_audit = std::env::args_os().skip(1).take(2).eq(["dns", "audit"]);
        if is_audit && error.use_stderr() {
            let _ = error.print(); // There is nowhere else to say it.
            std::process::exit(1);
        }
        error.exit()
    })
}

/// Reports why the command failed: in the log, if it has one.
fn report(error: &str) {
    if log::log_enabled!(log::Level::Error) {
        log::error!("{error}");
    } else {
        output::complain!("sidestep: {error}");
    }
}

/// What failed and why, on one line: the chain of causes. A cause that the text before it contains is left out.
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
