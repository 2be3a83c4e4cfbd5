//! What a broker is told at its start, and why there is none.

use std::io;
use std::path::PathBuf;

use clock::Duration;
use control::MonitorError;
use device_xdp::AttachMode;

use crate::protocol::Profile;

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
    /// Where XDP is to run. `None`: in the driver if that can be, else in generic mode.
    pub xdp_mode: Option<AttachMode>,
    /// Only serves the programs of a broker that was killed, on the interfaces that it had: fails if there is none.
    pub take_over: bool,
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
