//! The command line of `sidestep dns`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::observe::Which;

/// What is served: files that both `serve` and `check` read.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Sources {
    /// Configuration file (TOML). Options on the command line override it; zones are added to its zones.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Zone file, with its origin if that is not the owner of the SOA. May be repeated.
    #[arg(long = "zone", value_name = "[ORIGIN=]FILE")]
    pub(crate) zones: Vec<String>,
}

/// The options of `serve`; what it does stands at the command itself.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) sources: Sources,

    /// Address to serve, with or without port (53 with a device, 5300 without). May be repeated.
    #[arg(long = "listen", value_name = "ADDR[:PORT]")]
    pub(crate) listen: Vec<String>,

    /// Network interface to serve over AF_XDP, or `kernel` for kernel sockets [default: kernel].
    #[arg(long, value_name = "IFNAME|kernel")]
    pub(crate) device: Option<String>,

    /// Cores to run on, one engine each, such as `0-3,6` [default: with a device, as many as it has queues; else all].
    #[arg(long, value_name = "LIST")]
    pub(crate) cores: Option<String>,

    /// Microseconds to look for packets before sleeping, 0 to 1000000 [default: 20].
    #[arg(long, value_name = "MICROSECONDS")]
    pub(crate) spin_us: Option<u64>,

    /// How an engine waits: `off` sleeps, `on` has the kernel poll the card from our core, `always` never sleeps either
    /// [default: off].
    #[arg(long, value_name = "MODE")]
    pub(crate) busy_poll: Option<BusyPoll>,

    /// What answers: the zones, or a bare echo to measure the ways to here and back [default: dns].
    #[arg(long, value_name = "WHAT")]
    pub(crate) responder: Option<ResponderKind>,

    /// Unix socket by which tools look at the server [default: PID.sock in /run/sidestep, $XDG_RUNTIME_DIR/sidestep if not
    /// root; found there by `sidestep sockets` and the like].
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
}

/// Check zones and configuration.
#[derive(Args, Clone, Debug)]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) sources: Sources,

    /// Server that serves these zones now: a serial that is older than its own is reported.
    #[arg(long, value_name = "ADDR[:PORT]")]
    pub(crate) server: Option<String>,
}

/// Print the counters of a running server, one `name value` a line.
#[derive(Args, Clone, Debug)]
pub(crate) struct Stats {
    #[command(flatten)]
    pub(crate) which: Which,
}

/// How an engine waits for packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum BusyPoll {
    /// Spin for a while, then sleep until an interrupt.
    #[default]
    Off,
    /// While spinning, process the card's queue from our own core (SO_PREFER_BUSY_POLL).
    On,
    /// As `on`, and never sleep: burns the core.
    Always,
}

/// What answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ResponderKind {
    /// The zones.
    #[default]
    Dns,
    /// Every request comes back as it is.
    Echo,
}

impl Sources {
    /// The options of a `serve` that reads these files and has nothing else to say.
    pub(crate) fn to_serve(&self) -> Serve {
        Serve { sources: self.clone(), ..Serve::default() }
    }
}
