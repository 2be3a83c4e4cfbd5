//! `sidestep dns audit`: what a resolver does with time, place and names. The judgement is in the crate `dns-audit`; here are its sockets.
//!
//! | file | what it does |
//! | --- | --- |
//! | `authority/` | `audit authority`: serves the audit zone |
//! | `options.rs` | the options that `probe` and `watch` share |
//! | `probe.rs` | `audit probe`: resolvers to a report |
//! | `runner.rs` | carries a plan out, at a bounded rate |
//! | `exchange.rs` | one question of a plan, over any transport |
//! | `pace.rs` | the bounds of rate |
//! | `results.rs` | what was found so far |
//! | `clock.rs` | the authority's clock, and its log |
//! | `presence.rs` | whether the authority is there in the meantime |
//! | `mmdb.rs` | networks and countries by MMDB files |
//! | `watch/` | `audit watch`: the same again and again, with a history |

mod authority;
mod clock;
mod exchange;
mod mmdb;
mod options;
mod pace;
mod presence;
mod probe;
mod results;
mod runner;
mod watch;

use std::process::ExitCode;

use clap::Subcommand;

/// Exit status where a resolver has a bad finding.
const BAD: u8 = 2;
/// Exit status where a signal has ended the audit: that of shells for SIGINT.
const INTERRUPTED: u8 = 130;

/// What `sidestep dns audit` can do.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Serve an audit zone: names that say how their answers behave, and a log of who asks for them.
    ///
    /// Delegate the zone to this host: the first lines of the log say which records its parent needs. The probes read the log by DNS.
    #[command(verbatim_doc_comment)]
    Authority(authority::Authority),
    /// Probe resolvers by an audit zone, and report what they do.
    ///
    /// Only the resolvers and authorities that are given are asked, at no more than the given rate. Exit status 2 means that a resolver has
    /// a bad finding. SIGINT prints what was found until then; the exit status is 130.
    #[command(verbatim_doc_comment)]
    Probe(probe::Probe),
    /// Probe resolvers again and again, keep what was found, and say what has changed.
    ///
    /// Each change is a line on stdout, and may be posted to a webhook. With --rounds, exit status 2 means that something has become bad.
    #[command(verbatim_doc_comment)]
    Watch(watch::Watch),
}

/// Runs one of them.
pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Authority(options) => authority::serve(&options),
        Command::Probe(options) => probe::probe(&options),
        Command::Watch(options) => watch::watch(&options),
    }
}
