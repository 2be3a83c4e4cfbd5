//! The broker itself: one thread, which never waits for a client.
//!
//! | file | what it does |
//! | --- | --- |
//! | `port.rs`, `data_path.rs` | interfaces as they come and go, and what is done to them |
//! | `clients.rs`, `connection.rs`, `family.rs` | who connects, and what they may cost |
//! | `requests.rs` | what each request does |
//! | `shadow.rs` | what the kernel says of the sockets that claims are about |
//! | `actions.rs` | what the registry wants done; sockets that went without a word |
//! | `routes.rs`, `questions.rs`, `moves.rs` | answers that take their time; connections that become the kernel's |
//! | `status.rs` | what all this looks like |
//!
//! Poll [`Server::fd`] until [`Server::poll_timeout`], then call [`Server::turn`]. Dropping it gives everything back.

mod actions;
mod clients;
mod connection;
mod data_path;
mod family;
mod moves;
mod port;
mod questions;
mod requests;
mod routes;
mod shadow;
mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use clock::{Duration, Instant};
use control::{MonitorError, NetlinkMonitor};
use rustix::event::epoll;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

pub use data_path::{DataPath, DataPaths, LentQueues, Xdp};
pub use status::{ClaimStatus, InterfaceStatus, ProgramStatus, StatusReport};

use crate::protocol::{ClaimId, News, Options};
use crate::registry::{ClientId, LinkNumber, Registry};
use crate::transfer::Inbox;
use connection::Connection;
use family::Family;
use port::Port;
use questions::Questions;
use routes::Routes;

/// How often the interfaces' queues are counted, of which the kernel does not tell, and shadows are looked after.
const TICK: Duration = Duration::from_secs(1);
/// Interfaces at most.
const INTERFACES_MAX: usize = 64;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// What a broker is to do.
pub struct Config {
    /// Names of interfaces. They need not be there yet.
    pub interfaces: Vec<String>,
    /// How they are used.
    pub paths: Box<dyn DataPaths>,
    /// The process whose descendants may connect: usually this one.
    pub family: u32,
    /// A group whose members may connect too, by its number.
    pub group: Option<u32>,
    /// How a program of this name is to run.
    pub options: Box<dyn Fn(&str) -> Options>,
}

/// Why there is no broker.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The kernel's state cannot be read.
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    /// A socket or the like was not to be had.
    #[error("the broker's socket: {0}")]
    System(#[from] io::Error),
}

/// What happened, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Packets can be had from an interface.
    Attached {
        /// Its name.
        interface: String,
        /// How.
        mode: String,
    },
    /// The interface went, or must be opened anew.
    Detached {
        /// Its name.
        interface: String,
    },
    /// An interface cannot be used, or not wholly; what concerns it runs on the kernel.
    Failed {
        /// Its name.
        interface: String,
        /// Why.
        error: String,
    },
    /// A client was disconnected.
    Disconnected {
        /// Its process.
        pid: u32,
        /// Why.
        fault: String,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Attached { interface, mode } => write!(f, "{interface}: {mode}"),
            Notice::Detached { interface } => write!(f, "{interface}: gone, or to be opened anew"),
            Notice::Failed { interface, error } => write!(f, "{interface}: {error}"),
            Notice::Disconnected { pid, fault } => write!(f, "process {pid} was disconnected: {fault}"),
        }
    }
}

/// See the module's page.
pub struct Server {
    config: Config,
    family: Family,
    /// The kernel's number for the network namespace.
    namespace: u64,
    name: String,
    listener: OwnedFd,
    /// Set while no descriptors are to be had for those who connect.
    deaf_until: Option<Instant>,
    epoll: OwnedFd,
    monitor: NetlinkMonitor,
    ports: Vec<Port>,
    registry: Registry,
    connections: BTreeMap<ClientId, Connection>,
    /// Shadows of outgoing connections: while we have them, nobody else gets their ports.
    kept: BTreeMap<ClaimId, OwnedFd>,
    routes: Routes,
    questions: Questions,
    inbox: Inbox,
    next_tick: Instant,
    notices: Vec<Notice>,
}

/// What epoll tells of: clients have two tokens each.
mod token {
    pub(super) const LISTENER: u64 = 0;
    pub(super) const NETLINK: u64 = 1;

    pub(super) fn socket(client: super::ClientId) -> u64 {
        client.0 * 2
    }

    pub(super) fn process(client: super::ClientId) -> u64 {
        client.0 * 2 + 1
    }
}

impl Server {
    /// Listens, follows the kernel from now on, and attaches to the interfaces that are there. Call [`Server::turn`] next.
    pub fn open(config: Config, now: Instant) -> Result<Server, ServerError> {
        let (name, listener) = listen_anywhere()?;
        let namespace = shadow::namespace_of(&any_socket()?)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
        let monitor = NetlinkMonitor::new()?;
        watch(&epoll, &listener, token::LISTENER, epoll::EventFlags::IN)?;
        watch(&epoll, monitor.fd(), token::NETLINK, epoll::EventFlags::IN)?;
        let names = config.interfaces.iter().take(INTERFACES_MAX);
        let ports = (0..).zip(names).map(|(link, name)| Port::new(link, name.clone())).collect();
        let mut server = Server {
            family: Family { head: config.family, group: config.group },
            config,
            namespace,
            name,
            listener,
            deaf_until: None,
            epoll,
            monitor,
            ports,
            registry: Registry::default(),
            connections: BTreeMap::new(),
            kept: BTreeMap::new(),
            routes: Routes::default(),
            questions: Questions::default(),
            inbox: Inbox::new(),
            next_tick: now + TICK,
            notices: Vec::new(),
        };
        server.follow_interfaces(now);
        server.settle(now);
        Ok(server)
    }

    /// The abstract name of its socket, for [`crate::protocol::ENVIRONMENT`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Readable when there is something to do.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// When to call [`Server::turn`] at the latest.
    pub fn poll_timeout(&self, now: Instant) -> Instant {
        let ports = self.ports.iter().filter_map(|port| port.poll_timeout(now));
        let others = [
            self.registry.poll_timeout(),
            self.routes.poll_timeout(),
            self.questions.poll_timeout(),
            self.deaf_until,
        ];
        ports.chain(others.into_iter().flatten()).fold(self.next_tick, Instant::min)
    }

    /// Does what there is to do, without waiting for anything.
    pub fn turn(&mut self, now: Instant) {
        let mut events = Vec::with_capacity(64);
        let no_wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        // A signal leaves the events for the next turn.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&no_wait));
        let mut kernel_has_news = false;
        for event in events {
            match event.data.u64() {
                token::LISTENER => self.accept(now),
                token::NETLINK => kernel_has_news = true,
                other => self.serve(ClientId(other / 2), other, event.flags, now),
            }
        }
        let is_tick = now >= self.next_tick;
        if kernel_has_news {
            self.read_news();
        }
        if kernel_has_news || is_tick || self.ports.iter().any(|port| port.open.is_none()) {
            self.follow_interfaces(now);
        }
        if is_tick {
            self.next_tick = now + TICK;
            self.look_after_shadows(now);
        }
        self.listen_again(now);
        self.settle(now);
    }

    /// What happened since this was asked last.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// Tells all clients that this is the end, and gives everything back.
    pub fn close(mut self) {
        for connection in self.connections.values_mut() {
            let _ = connection.tell(News::Closing, Vec::new()); // Who does not read it sees the end of the connection.
        }
    }

    fn port(&mut self, link: LinkNumber) -> Option<&mut Port> {
        self.ports.get_mut(usize::from(link))
    }
}

/// Listens at an abstract name that nobody else has.
fn listen_anywhere() -> io::Result<(String, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let [random, _] = random_numbers()?;
    let name = format!("sidestep-run-{}-{random:016x}", std::process::id());
    bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    listen(&socket, BACKLOG)?;
    Ok((name, socket))
}

/// A socket of this network namespace.
fn any_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

/// Numbers that nobody can guess.
fn random_numbers() -> io::Result<[u64; 2]> {
    use std::io::Read;
    let mut octets = [[0; 8]; 2];
    std::fs::File::open("/dev/urandom")?.read_exact(octets.as_flattened_mut())?;
    Ok(octets.map(u64::from_ne_bytes))
}

fn watch(epoll: &OwnedFd, fd: impl AsFd, token: u64, flags: epoll::EventFlags) -> io::Result<()> {
    Ok(epoll::add(epoll, fd, epoll::EventData::new_u64(token), flags)?)
}
