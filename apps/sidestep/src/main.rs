//! `sidestep`: the one command.
#![forbid(unsafe_code)]

mod dns;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: allocator::HugePages = allocator::HugePages;

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
            // The whole chain of causes on one line: what failed, and why.
            eprintln!("sidestep: {error:#}");
            ExitCode::FAILURE
        }
    }
}
