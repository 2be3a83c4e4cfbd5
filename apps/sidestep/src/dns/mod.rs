//! `sidestep dns`: the authoritative server.
//!
//! | file | what it does |
//! | --- | --- |
//! | `options.rs` | the command line |
//! | `config.rs`, `config_file.rs` | what the user wrote, and what the program runs on |
//! | `check.rs`, `serial.rs` | `sidestep dns check` |
//! | `load.rs` | zone files to catalogs, with errors for people |
//! | `service.rs` | the parts put together: start, ready line, drain |
//! | `events.rs` | what it waits for: signals, and zones that load beside it |
//! | `reload.rs` | SIGHUP |
//! | `engines.rs` | the engines: one per core, with a stack where there is an interface |
//! | `ports.rs`, `interface.rs` | which devices the engines serve: kernel sockets, or an interface with its shadows |
//! | `tcp.rs`, `tcp_connection.rs` | DNS over TCP on kernel sockets |
//! | `stats.rs` | counters, over a Unix socket |

mod check;
mod config;
mod config_file;
mod engines;
mod events;
mod interface;
mod load;
mod options;
mod ports;
mod reload;
mod serial;
mod service;
mod stats;
mod tcp;
mod tcp_connection;

use std::process::ExitCode;

use clap::Subcommand;

/// What `sidestep dns` can do.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Serve zones by UDP and TCP.
    ///
    /// Without --device, on kernel sockets: 127.0.0.1 and ::1, port 5300; no privilege needed.
    /// With --device IFNAME, over AF_XDP: port 53 on every address of that interface; the kernel keeps everything else.
    ///
    /// SIGHUP reads the zones and the configuration again; SIGTERM answers what has come and ends.
    #[command(verbatim_doc_comment)]
    Serve(options::Serve),
    /// Check zones and configuration as `serve` would read them, and serve nothing.
    ///
    /// Prints a line for each zone that is good, and one for each finding: `FILE:LINE:COLUMN: error: ...` or `ZONE NAME: warning: ...`.
    /// An error is what `serve` would refuse; a warning is what it would serve and what works badly. Only errors make the exit status 1.
    #[command(verbatim_doc_comment)]
    Check(options::Check),
    /// Print the counters of a running server.
    Stats(options::Stats),
}

/// Runs one of them.
pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Serve(options) => service::serve(&options),
        Command::Check(options) => check::check(&options),
        Command::Stats(options) => stats::print(&options),
    }
}
