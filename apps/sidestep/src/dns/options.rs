//! The command line of `sidestep dns`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};

use crate::logging::LogOptions;
use crate::observe::Which;
use crate::xdp_mode::XdpMode;

/// What is served: files that both `serve` and `check` read.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Sources {
    /// Configuration file (TOML). Options on the command line override it. Zones on the command line are added to its zones.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Zone file, and its origin if that is not the owner name of the SOA. May be repeated.
    #[arg(long = "zone", value_name = "[ORIGIN=]FILE")]
    pub(crate) zones: Vec<String>,
}

/// The options of `serve`.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) sources: Sources,

    /// Address to serve, with or without a port (default 53 on an interface, 5300 on kernel sockets). May be repeated.
    #[arg(long = "listen", value_name = "ADDR[:PORT]")]
    pub(crate) listen: Vec<String>,

    /// Interface to serve over AF_XDP; a port of DPDK, such as `dpdk:0000:03:00.0` or `dpdk:net_memif0,role=client`; or `kernel` for kernel
    /// sockets [default: kernel].
    #[arg(long, value_name = "IFNAME|dpdk:PORT|kernel")]
    pub(crate) device: Option<String>,

    /// Name of the TAP interface that a port of DPDK gets: its addresses are served, and all else on it is the kernel's [default: dpdk0].
    #[arg(long, value_name = "IFNAME")]
    pub(crate) tap: Option<String>,

    /// Further arguments for DPDK's environment (EAL), such as `--eal-args='-m 512 --no-huge'`.
    #[arg(long, value_name = "ARGUMENTS", value_delimiter = ' ', allow_hyphen_values = true)]
    pub(crate) eal_args: Vec<String>,

    /// Cores to run on, one engine each, such as `0-3,6` [default: one core per queue of the interface; all on kernel sockets].
    #[arg(long, value_name = "LIST")]
    pub(crate) cores: Option<String>,

    /// Have the engines of the first so many cores receive and send for all, and the others work for them: for an interface with fewer
    /// queues than cores [default: 0, each engine has queues of its own].
    #[arg(long, value_name = "COUNT")]
    pub(crate) dispatchers: Option<u64>,

    /// Percentage of UDP flows that dispatchers answer themselves, 0 to 99 [default: 0].
    #[arg(long, value_name = "PERCENT")]
    pub(crate) dispatcher_share: Option<u64>,

    /// Microseconds to poll for packets before sleeping, 0 to 1000000 [default: 20].
    #[arg(long, value_name = "MICROSECONDS")]
    pub(crate) spin_us: Option<u64>,

    /// How an engine waits for packets [default: off].
    #[arg(long, value_name = "MODE")]
    pub(crate) busy_poll: Option<BusyPoll>,

    /// Where XDP runs on the interface [default: native where the driver has it]. On a veth `native` is faster for DNS over UDP.
    #[arg(long, value_name = "MODE")]
    pub(crate) xdp_mode: Option<XdpMode>,

    /// What answers: `dns`, the zones, or `echo`, each request as it came, which measures the network path alone. `echo=OCTETS` fills
    /// what is shorter up to that length with zeros, so that its answers are as long as others [default: dns].
    #[arg(long, value_name = "WHAT")]
    pub(crate) responder: Option<ResponderKind>,

    /// Control socket (Unix) for `sidestep sockets`, `dns stats` and the other tools, which find the default themselves [default:
    /// PID.sock in /run/sidestep for root, else in $XDG_RUNTIME_DIR/sidestep].
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,

    /// User to become after binding, if root starts the server [default: sidestep if there is such a user, else root].
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,

    #[command(flatten)]
    pub(crate) log: LogOptions,
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
    /// Poll for --spin-us, then sleep until an interrupt.
    #[default]
    Off,
    /// While polling, process the interface's queue on the engine's core (SO_PREFER_BUSY_POLL).
    On,
    /// As `on`, and never sleep: lowest latency, and the core is always busy.
    Always,
}

/// What answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ResponderKind {
    /// The zones.
    #[default]
    Dns,
    /// Each request is sent back. Zeros fill it up to so many octets, if it is shorter.
    Echo(u16),
}

impl FromStr for ResponderKind {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<ResponderKind, Self::Err> {
        let octets = |digits: &str| digits.parse().ok();
        match word {
            "dns" => Some(ResponderKind::Dns),
            "echo" => Some(ResponderKind::Echo(0)),
            word => word.strip_prefix("echo=").and_then(octets).map(ResponderKind::Echo),
        }
        .ok_or("`dns`, `echo` or `echo=OCTETS` is wanted")
    }
}

impl Sources {
    /// The options of a `serve` that reads these files, with defaults for all else.
    pub(crate) fn to_serve(&self) -> Serve {
        Serve { sources: self.clone(), ..Serve::default() }
    }
}
