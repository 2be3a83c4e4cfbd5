//! The broker: one thread, which never waits for a client.
//!
//! From the top, each floor uses what is below it (`tests/tests/floors.rs` holds that):
//!
//! | file | what it does |
//! | --- | --- |
//! | `handle.rs`; `fuzz.rs`, `made_up.rs` | the thread, and the handle of `sidestep run` on it; the whole broker for fuzzers, at an interface that is made up |
//! | `turns.rs` | how it starts, what it does in a turn, how it ends |
//! | `requests.rs` | what comes in |
//! | `return_of_clients.rs`, `claiming.rs`, `ways.rs`, `moves.rs`, `deliveries.rs`, `inheritance.rs`, `search.rs`, `succession.rs`, `farewells.rs`, `observers.rs`, `status.rs` | each kind of request |
//! | `interfaces.rs` | interfaces, addresses and routes that change |
//! | `actions.rs` | the registry's actions; sockets that were closed without a message |
//! | `clients.rs`, `aside.rs` | clients: connecting, sending, leaving; requests on which helpers work |
//! | `broker.rs` | the broker's state, on which all of these are methods |
//! | `port.rs`, `routes.rs`, `questions.rs`, `strays.rs`, `orphans.rs`, `handshakes.rs`, `look.rs`, `recent_moves.rs`, `kept_sockets.rs`, `kernel_memory.rs`, `under_way.rs`, `connection.rs`, `successor.rs`, `accept_queues.rs`, `books_left.rs` | its parts |
//! | `helpers.rs`, `strangers.rs`, `outcome.rs` | threads for what may take long; who is turned away; what comes of a request |
//! | `member.rs` | a `sidestep run` that joins the broker of another one |
//! | `data_path.rs`, `queues_left.rs`, `pins.rs`, `place.rs` | operations on an interface; what it goes on by after a broker that has left; what keeps them if the broker is killed; whose place this one takes |
//! | `shadow.rs`, `datagram.rs`, `family.rs`, `privilege.rs`, `confinement.rs`, `names.rs`, `notice.rs`, `token.rs`, `machine.rs`, `choice.rs`, `config.rs`, `spread.rs` | single questions and values |

mod accept_queues;
mod actions;
mod aside;
mod books_left;
mod broker;
mod choice;
mod claiming;
mod clients;
mod config;
mod confinement;
mod connection;
mod data_path;
mod datagram;
mod deliveries;
mod family;
mod farewells;
mod fuzz;
mod handle;
mod handshakes;
mod helpers;
mod inheritance;
mod interfaces;
mod kept_sockets;
mod kernel_memory;
mod look;
mod machine;
mod made_up;
mod member;
mod moves;
mod names;
mod notice;
mod observers;
mod orphans;
mod outcome;
mod pins;
mod place;
mod port;
mod privilege;
mod questions;
mod queues_left;
mod recent_moves;
mod requests;
mod return_of_clients;
mod routes;
mod search;
mod shadow;
mod spread;
mod status;
mod strangers;
mod strays;
mod succession;
mod successor;
#[cfg(test)]
mod tests;
mod token;
mod turns;
mod under_way;
mod ways;

use std::io;

use clock::Instant;

pub use config::{Config, OpenError, TakeOver};
pub use fuzz::fuzz_requests;
pub use handle::{Handle, Reporter};
pub use member::{JoinError, Member};
pub use status::{ClaimStatus, InterfaceStatus, ProgramStatus, StatusReport};

use broker::{Broker, own_namespace};
use data_path::Xdp;
use family::Family;
use pins::Pins;
use place::Place;
use queues_left::QueuesLeft;
use turns::Setup;

/// A broker that is attached to its interfaces and serves nobody yet. Dropping it undoes everything.
pub struct Server {
    broker: Broker,
    notes: Vec<String>,
    verbose: bool,
}

impl Server {
    /// Attaches to the interfaces, in the network namespace of the calling thread. Fails if none can be used.
    pub fn open(config: Config) -> Result<Server, OpenError> {
        Server::open_with(config, QueuesLeft::default())
    }

    /// Takes the place of the broker that was joined, and has left or was killed.
    pub fn succeed(member: &Member, config: Config) -> Result<Server, OpenError> {
        let take_over = TakeOver::From(member.name().to_owned());
        let config = Config { interfaces: Vec::new(), take_over, ..config };
        Server::open_with(config, member.queues_left())
    }

    fn open_with(config: Config, queues_left: QueuesLeft) -> Result<Server, OpenError> {
        let options = config.options();
        let Config {
            interfaces: named,
            verbose,
            group,
            observed_in,
            kept_in,
            zero_copy,
            share,
            xdp_mode,
            take_over,
            ..
        } = config;
        let pins = Pins::in_directory(&kept_in.unwrap_or_default(), own_namespace()?);
        let left = pins.as_ref().map(|pins| match &take_over {
            TakeOver::From(name) => pins.of(name),
            TakeOver::IfThereIs | TakeOver::Only => pins.left(),
        });
        let left = left.unwrap_or_default();
        let take_over = take_over != TakeOver::IfThereIs;
        let is_chosen = named.is_empty() && !take_over;
        let mut interfaces = if is_chosen { choice::candidates()? } else { named };
        let mut notes = choice::take_out_useless(&mut interfaces)?;
        let Place { name, socket, interfaces, is_successor } = Place::take(&left, interfaces, take_over)?;
        let setup = Setup {
            socket: (name.clone(), socket),
            interfaces,
            is_successor,
            paths: Box::new(
                Xdp::new(xdp_mode, pins.map(|pins| (pins, name)))
                    .sharing(share)
                    .with_queues_left(queues_left),
            ),
            family: Family { head: std::process::id(), group },
            options,
            observed_in,
            zero_copy,
            identify: privilege::identify,
            accept_queue: device_xdp::AcceptQueueProgram::attach,
        };
        let mut broker = Broker::open(setup, Instant::ZERO)?;
        if is_successor && !broker.has_taken_over(&left) {
            let failures = broker.describe_failures().join("; ");
            broker.leave(Instant::ZERO);
            return Err(OpenError::NotTakenOver(failures));
        }
        notes.extend(broker.describe_failures());
        if !broker.has_interface() {
            let none = || "there is no interface with an address".to_owned();
            return Err(OpenError::NoInterface(
                notes.into_iter().reduce(|all, note| all + "; " + &note).unwrap_or_else(none),
            ));
        }
        if is_chosen {
            notes.extend(broker.be_choosy(&left));
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
