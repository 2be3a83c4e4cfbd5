//! The command line of `sidestep dns resolve` and `sidestep dns servers`.

use std::path::PathBuf;

use clap::Args;

use crate::logging::LogOptions;
use crate::observe::Which;

/// The options of `resolve`.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Resolve {
    /// Configuration file (TOML). Options on the command line override it.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Address to serve, with or without a port (default 5300). May be repeated [default: 127.0.0.1 and ::1].
    #[arg(long = "listen", value_name = "ADDR[:PORT]")]
    pub(crate) listen: Vec<String>,

    /// Interface whose packets are taken over AF_XDP, for UDP at the addresses of `--listen` that it has [default listen: port 53 of
    /// every address]. Needs root.
    #[arg(long, value_name = "INTERFACE")]
    pub(crate) device: Option<String>,

    /// Networks whose clients may ask, such as 192.0.2.0/24. May be repeated [default: 127.0.0.0/8 and ::1/128].
    #[arg(long = "allow", value_name = "NETWORK")]
    pub(crate) allow: Vec<String>,

    /// File with names and addresses of root servers, in the format of `named.root` [default: those of the Internet, built in].
    #[arg(long, value_name = "FILE")]
    pub(crate) root_hints: Option<PathBuf>,

    /// Control socket (Unix) for `sidestep dns servers` and `dns stats`, which find the default themselves [default:
    /// PID.sock in /run/sidestep for root, else in $XDG_RUNTIME_DIR/sidestep].
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,

    /// User to become after binding, if root starts the resolver [default: sidestep if there is such a user, else root].
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,

    #[command(flatten)]
    pub(crate) log: LogOptions,
}

/// Drop what a running resolver's cache has about names.
#[derive(Args, Clone, Debug)]
pub(crate) struct Flush {
    /// The name.
    #[arg(required_unless_present = "all")]
    pub(crate) name: Option<String>,

    /// And all names below it.
    #[arg(long)]
    pub(crate) below: bool,

    /// Everything.
    #[arg(long, conflicts_with_all = ["name", "below"])]
    pub(crate) all: bool,

    #[command(flatten)]
    pub(crate) which: Which,
}

/// Show the name servers that a running resolver knows.
#[derive(Args, Clone, Debug)]
pub(crate) struct ShowServers {
    #[command(flatten)]
    pub(crate) which: Which,
}
