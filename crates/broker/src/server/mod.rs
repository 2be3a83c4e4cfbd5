//! The broker: one thread, which never waits for a client.
//!
//! | file | what it does |
//! | --- | --- |
//! | `broker.rs` | the broker's state, and its turns |
//! | `handle.rs` | its thread, and the handle of `sidestep run` on it |
//! | `port.rs`, `data_path.rs`, `pins.rs`, `choice.rs` | interfaces that come and go, and operations on them |
//! | `clients.rs`, `connection.rs`, `family.rs`, `privilege.rs` | who may connect, and limits |
//! | `requests.rs` | what each request does |
//! | `shares.rs`, `kept_sockets.rs` | what each user may have; sockets that keep ports |
//! | `shadow.rs` | the kernel's description of the sockets behind claims |
//! | `actions.rs` | the registry's actions; sockets that were closed without a message |
//! | `helpers.rs`, `under_way.rs` | operations that may take long, on other threads |
//! | `routes.rs`, `questions.rs` | answers that take time |
//! | `moves.rs`, `datagram.rs`, `orphans.rs` | connections and datagrams that move to the kernel |
//! | `handshakes.rs` | handshakes that another process completes |
//! | `observers.rs` | control sockets of the programs |
//! | `status.rs` | the report for `sidestep status` |
//! | `fuzz.rs`, `made_up.rs` | the whole broker for fuzzers, at an interface that is made up |

mod actions;
mod broker;
mod choice;
mod clients;
mod confinement;
mod connection;
mod data_path;
mod datagram;
mod family;
mod fuzz;
mod handle;
mod handshakes;
mod helpers;
mod kept_sockets;
mod made_up;
mod moves;
mod observers;
mod orphans;
mod pins;
mod port;
mod privilege;
mod questions;
mod requests;
mod routes;
mod shadow;
mod shares;
mod status;
#[cfg(test)]
mod tests;
mod under_way;

use std::io;
use std::path::PathBuf;

use clock::{Duration, Instant};
use control::MonitorError;

pub use fuzz::fuzz_requests;
pub use handle::{Handle, Reporter};
pub use status::{ClaimStatus, InterfaceStatus, ProgramStatus, StatusReport};

use crate::protocol::{Options, Profile};
use broker::{Broker, Setup, listen_anywhere, own_namespace};
use data_path::Xdp;
use family::Family;
use pins::Pins;

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
}

/// Why there is no broker.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Nothing can be accelerated: each interface and its obstacle.
    #[error("{0}")]
    NoInterface(String),
    /// The kernel's state cannot be read.
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    /// A socket or the like was not to be had.
    #[error("the broker's socket: {0}")]
    System(#[from] io::Error),
}

/// A broker that is attached to its interfaces and serves nobody yet. Dropping it undoes everything.
pub struct Server {
    broker: Broker,
    notes: Vec<String>,
    verbose: bool,
}

impl Server {
    /// Attaches to the interfaces, in the network namespace of the calling thread. Fails if none can be used.
    pub fn open(config: Config) -> Result<Server, OpenError> {
        let micros = |span: Duration| u32::try_from(span.as_micros()).unwrap_or(u32::MAX);
        let (spin_us, gather_us) = (micros(config.spin), micros(config.gather));
        let Config {
            interfaces: named,
            mss_clamp,
            verbose,
            profile,
            group,
            observed_in,
            kept_in,
            zero_copy,
            ..
        } = config;
        let is_chosen = named.is_empty();
        let mut interfaces = if is_chosen { choice::candidates()? } else { named };
        let mut notes = choice::take_out_useless(&mut interfaces)?;
        let (name, socket) = listen_anywhere()?;
        let namespace = own_namespace()?;
        let pins = kept_in.and_then(|directory| Pins::in_directory(&directory, namespace, &name));
        let setup = Setup {
            socket: (name, socket),
            interfaces,
            paths: Box::new(Xdp::new(pins)),
            family: Family { head: std::process::id(), group },
            options: Options { spin_us, gather_us, mss_clamp, verbose, profile },
            observed_in,
            zero_copy,
        };
        let mut broker = Broker::open(setup, Instant::ZERO)?;
        notes.extend(broker.describe_failures());
        if !broker.has_interface() {
            let none = || "there is no interface with an address".to_owned();
            return Err(OpenError::NoInterface(
                notes.into_iter().reduce(|all, note| all + "; " + &note).unwrap_or_else(none),
            ));
        }
        if is_chosen {
            notes.extend(broker.be_choosy());
        }
        Ok(Server { broker, notes, verbose })
    }

    /// The name of its socket, for [`crate::protocol::ENVIRONMENT`].
    pub fn name(&self) -> &str {
        self.broker.name()
    }

    /// Interfaces that are left out, and why.
    pub fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    /// Serves from now on, on a thread of its own.
    pub fn start(self) -> io::Result<Handle> {
        handle::start(self.broker, self.verbose)
    }
}
