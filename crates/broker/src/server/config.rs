//! What a broker is told at its start, and why there is none.

use std::io;
use std::path::PathBuf;

use clock::Duration;
use control::MonitorError;
use device_xdp::AttachMode;

use crate::protocol::{Options, Profile};

/// What a broker is to do.
#[derive(Clone, Debug)]
pub struct Config {
    /// Names of interfaces. None: all that can be used.
    pub interfaces: Vec<String>,
    /// How long programs poll before they sleep.
    pub spin: Duration,
    /// How long packets may gather while they sleep.
    pub gather: Duration,
    /// The largest TCP segment on their connections.
    pub mss_clamp: Option<u16>,
    /// Whether the broker logs what happens, and its programs say it on stderr.
    pub verbose: bool,
    /// What is accelerated of the programs.
    pub profile: Profile,
    /// Members of the group of this number may connect, in addition to this process's descendants.
    pub group: Option<u32>,
    /// Where programs have their control sockets ([`observe::ControlListener`]); nowhere if not told.
    pub observed_in: Option<PathBuf>,
    /// A directory in a BPF file system: programs go on by it if the broker is killed.
    pub kept_in: Option<PathBuf>,
    /// Programs have queues in zero-copy mode, where interfaces have it, though they have less privilege than the broker.
    pub zero_copy: bool,
    /// Programs may share queues with those of other users, and of root, that may, too: each sees the others' packets.
    pub share: bool,
    /// Where XDP is to run. `None`: in the driver if that can be, else in generic mode.
    pub xdp_mode: Option<AttachMode>,
    /// Whose place it takes.
    pub take_over: TakeOver,
}

/// Whose place a broker takes, with its interfaces and its programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakeOver {
    /// That of one that was killed and had one of its interfaces, if there is one; else it makes a place of its own.
    IfThereIs,
    /// That of one that was killed: fails if there is none.
    Only,
    /// That of the one with this name: fails if it is there still, or another one by now.
    From(String),
}

impl Config {
    /// How programs are to run.
    pub(super) fn options(&self) -> Options {
        let micros = |span: Duration| u32::try_from(span.as_micros()).unwrap_or(u32::MAX);
        Options {
            spin_us: micros(self.spin),
            gather_us: micros(self.gather),
            mss_clamp: self.mss_clamp,
            verbose: self.verbose,
            share: self.share,
            profile: self.profile.clone(),
        }
    }
}

/// Why there is no broker.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Nothing can be accelerated: each interface and its obstacle.
    #[error("{0}")]
    NoInterface(String),
    /// There is nothing to take over.
    #[error("no broker was killed whose programs could be taken over")]
    NothingLeft,
    /// Somebody is there, or about to be.
    #[error("another broker takes over the programs of the one that was killed")]
    Taken,
    /// What a killed broker left cannot be taken over now; it is as it was.
    #[error(
        "the programs of a broker that was killed keep their connections, and cannot be taken over now: {0}"
    )]
    NotTakenOver(String),
    /// The kernel's state cannot be read.
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    /// A socket or the like was not to be had.
    #[error("the broker's socket: {0}")]
    System(#[from] io::Error),
}
