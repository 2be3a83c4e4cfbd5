//! What belongs to a queue: its engine, the ports and sockets that wait for something, and the thread that sleeps on it.

mod awaited_routes;
mod begun;
mod book;
mod driver;
pub(crate) mod ended;
pub(crate) mod ports;
mod resting_ports;
mod runtime;
mod source_ports;
mod spare_sockets;
pub(crate) mod stalls;
mod state;

pub(crate) use begun::{AcceptedAs, Begun};
pub(crate) use book::Book;
pub(crate) use driver::Driver;
pub(crate) use ended::{Ended, Heir, Leaving};
pub(crate) use ports::KeptPort;
pub(crate) use resting_ports::RestingPorts;
pub(crate) use runtime::Runtime;
pub(crate) use stalls::Stalls;
pub(crate) use state::Queue;
