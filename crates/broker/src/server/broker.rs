//! The broker's state and its turns. It never waits for a client.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use clock::{Duration, Instant};
use control::sock_diag::tcp_listeners;
use control::{ClampWatch, NetlinkMonitor};
use log::Level;
use rustix::event::epoll;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

use super::OpenError;
use super::connection::Connection;
use super::data_path::DataPaths;
use super::family::Family;
use super::handshakes::Handshakes;
use super::helpers::{Helpers, Theirs};
use super::kept_sockets::KeptSockets;
use super::moves::RecentMoves;
use super::orphans::Orphan;
use super::port::Port;
use super::questions::Questions;
use super::routes::Routes;
use super::shadow;
use super::under_way::UnderWay;
use crate::protocol::{News, Options, VERSION};
use crate::registry::{ClientId, LinkNumber, Registry};
use crate::transfer::Inbox;

/// How often the interfaces' queues are counted, of which the kernel does not tell, and shadows are looked after.
const TICK: Duration = Duration::from_secs(1);
/// Interfaces at most.
const INTERFACES_MAX: usize = 64;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// What happened, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Notice {
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
    /// The interface takes packets that need larger frames: its queues are lent anew.
    Outgrown {
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
    /// A client speaks another version of the protocol, and was refused.
    OtherVersion {
        /// Its process.
        pid: u32,
        /// What it speaks.
        version: u32,
    },
    /// A client was not told of something.
    NotTold {
        /// Its process.
        pid: u32,
        /// Why.
        error: String,
    },
    /// A program has no control socket, so tools cannot find it: it has no control socket.
    Hidden {
        /// Its process.
        pid: u32,
        /// Why.
        error: String,
    },
}

impl Notice {
    /// How much it matters in a log.
    pub(super) fn level(&self) -> Level {
        match self {
            Notice::Attached { .. } | Notice::Detached { .. } | Notice::Outgrown { .. } => Level::Info,
            Notice::Failed { .. }
            | Notice::Disconnected { .. }
            | Notice::NotTold { .. }
            | Notice::OtherVersion { .. }
            | Notice::Hidden { .. } => Level::Warn,
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Attached { interface, mode } => write!(f, "{interface}: {mode}"),
            Notice::Detached { interface } => {
                write!(f, "{interface}: closed; it is opened again if it comes back")
            }
            Notice::Outgrown { interface } => {
                write!(f, "{interface}: its MTU exceeds the frames; opening it with larger frames")
            }
            Notice::Failed { interface, error } => write!(f, "{interface}: {error}"),
            Notice::Disconnected { pid, fault } => write!(f, "process {pid} was disconnected: {fault}"),
            Notice::OtherVersion { pid, version } => write!(
                f,
                "process {pid} runs on the kernel: its library speaks version {version} of the protocol, and the broker \
                 version {VERSION}; start it again"
            ),
            Notice::NotTold { pid, error } => {
                write!(f, "process {pid} was not told of a change of the network configuration: {error}")
            }
            Notice::Hidden { pid, error } => {
                write!(f, "process {pid} has no control socket, so tools cannot find it: {error}")
            }
        }
    }
}

/// What a broker is to do.
pub(super) struct Setup {
    /// Where programs reach it: the abstract name, and the socket.
    pub(super) socket: (String, OwnedFd),
    /// Names of interfaces. They need not be there yet.
    pub(super) interfaces: Vec<String>,
    /// How they are used.
    pub(super) paths: Box<dyn DataPaths>,
    /// The processes that may connect.
    pub(super) family: Family,
    /// How programs are to run.
    pub(super) options: Options,
    /// Where they have their control sockets.
    pub(super) observed_in: Option<PathBuf>,
    /// Queues are in zero-copy mode whatever the privileges of who has them.
    pub(super) zero_copy: bool,
}

/// The broker without its thread: poll [`Broker::fd`] until [`Broker::poll_timeout`], then call [`Broker::turn`]. Dropping it gives
/// everything back.
pub(super) struct Broker {
    pub(super) paths: Box<dyn DataPaths>,
    pub(super) options: Options,
    pub(super) observed_in: Option<PathBuf>,
    pub(super) zero_copy: bool,
    pub(super) family: Family,
    /// The kernel's number for the network namespace.
    pub(super) namespace: u64,
    name: String,
    /// A client that waits for `accept` may have sent something.
    pub(super) listener: Theirs,
    /// Set while there are no free descriptors for new clients.
    pub(super) deaf_until: Option<Instant>,
    pub(super) epoll: OwnedFd,
    pub(super) monitor: NetlinkMonitor,
    pub(super) ports: Vec<Port>,
    /// Segment sizes by route.
    pub(super) clamps: ClampWatch,
    pub(super) registry: Registry,
    pub(super) connections: BTreeMap<ClientId, Connection>,
    pub(super) kept: KeptSockets,
    /// Those of clients that are gone: closed when their claims are out of the maps, and not before the kernel may give the ports away.
    pub(super) doomed: Vec<Theirs>,
    /// Connections that no process can accept yet.
    pub(super) orphans: Vec<Orphan>,
    /// Handshakes that no process can finish yet.
    pub(super) handshakes: Handshakes,
    pub(super) moves: RecentMoves,
    pub(super) routes: Routes,
    pub(super) questions: Questions,
    pub(super) inbox: Inbox,
    pub(super) helpers: Arc<Helpers>,
    pub(super) under_way: UnderWay,
    next_tick: Instant,
    pub(super) notices: Vec<Notice>,
}

/// epoll's tokens: each client has four, of which three are used.
pub(super) mod token {
    pub(in crate::server) const LISTENER: u64 = 0;
    pub(in crate::server) const NETLINK: u64 = 1;
    pub(in crate::server) const HELPERS: u64 = 2;

    pub(in crate::server) fn socket(client: super::ClientId) -> u64 {
        client.0 * 4
    }

    pub(in crate::server) fn process(client: super::ClientId) -> u64 {
        client.0 * 4 + 1
    }

    pub(in crate::server) fn control(client: super::ClientId) -> u64 {
        client.0 * 4 + 2
    }

    pub(in crate::server) fn client(token: u64) -> super::ClientId {
        super::ClientId(token / 4)
    }
}

impl Broker {
    /// Listens, follows the kernel from now on, and attaches to those of the interfaces that are there.
    pub(super) fn open(setup: Setup, now: Instant) -> Result<Broker, OpenError> {
        let (name, listener) = setup.socket;
        let helpers = Arc::<Helpers>::default();
        let listener = Theirs::new(listener, rustix::process::geteuid().as_raw(), &helpers);
        let namespace = own_namespace()?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
        let monitor = NetlinkMonitor::new()?;
        watch(&epoll, &listener, token::LISTENER, epoll::EventFlags::IN)?;
        let under_way = UnderWay::new()?;
        watch(&epoll, under_way.fd(), token::HELPERS, epoll::EventFlags::IN)?;
        watch(&epoll, monitor.fd(), token::NETLINK, epoll::EventFlags::IN)?;
        let names = setup.interfaces.into_iter().take(INTERFACES_MAX);
        let mut broker = Broker {
            paths: setup.paths,
            options: setup.options,
            observed_in: setup.observed_in,
            zero_copy: setup.zero_copy,
            family: setup.family,
            namespace,
            name,
            listener,
            deaf_until: None,
            epoll,
            monitor,
            ports: (0..).zip(names).map(|(link, name)| Port::new(link, name)).collect(),
            registry: Registry::default(),
            connections: BTreeMap::new(),
            kept: KeptSockets::default(),
            doomed: Vec::new(),
            orphans: Vec::new(),
            handshakes: Handshakes::default(),
            moves: RecentMoves::default(),
            clamps: ClampWatch::default(),
            routes: Routes::default(),
            questions: Questions::default(),
            inbox: Inbox::new(),
            helpers,
            under_way,
            next_tick: now + TICK,
            notices: Vec::new(),
        };
        broker.follow_segment_clamps(true, now);
        broker.follow_interfaces(now);
        broker.settle(now);
        Ok(broker)
    }

    /// The abstract name of its socket, for [`crate::protocol::ENVIRONMENT`].
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Readable when there is something to do.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// When to call [`Broker::turn`] at the latest.
    pub(super) fn poll_timeout(&self, now: Instant) -> Instant {
        let ports = self.ports.iter().filter_map(|port| port.poll_timeout(now));
        let others = [
            self.registry.poll_timeout(),
            self.routes.poll_timeout(),
            self.questions.poll_timeout(),
            self.under_way.poll_timeout(),
            self.deaf_until,
            self.orphans_due(),
        ];
        ports.chain(others.into_iter().flatten()).fold(self.next_tick, Instant::min)
    }

    /// Does what there is to do, without waiting for anything.
    pub(super) fn turn(&mut self, now: Instant) {
        let mut events = Vec::with_capacity(64);
        let no_wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        // A signal leaves the events for the next turn.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&no_wait));
        let mut kernel_has_news = false;
        for event in events {
            match event.data.u64() {
                token::LISTENER => self.accept(now),
                token::NETLINK => kernel_has_news = true,
                token::HELPERS => self.hear_helpers(now),
                other => self.serve(token::client(other), other, event.flags, now),
            }
        }
        let is_tick = now >= self.next_tick;
        if kernel_has_news {
            self.read_news(now);
        }
        if kernel_has_news || is_tick || self.ports.iter().any(Port::is_wanted) {
            self.follow_interfaces(now);
        }
        if is_tick {
            self.next_tick = now + TICK;
            self.look_after_shadows(now);
            self.helpers.retry();
        }
        self.listen_again(now);
        self.settle_orphans(tcp_listeners, now);
        self.settle(now);
    }

    /// What happened since this was asked last.
    pub(super) fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// Tells all clients that this is the end, and gives everything back.
    pub(super) fn close(mut self) {
        for connection in self.connections.values_mut() {
            let _ = connection.tell(News::Closing, Vec::new()); // Who does not read it sees the end of the connection.
        }
    }

    /// Whether no client is connected.
    pub(super) fn is_alone(&self) -> bool {
        self.connections.is_empty()
    }

    /// Whether an interface can be used.
    pub(super) fn has_interface(&self) -> bool {
        self.ports.iter().any(|port| port.open.is_some())
    }

    /// What is in the way of interfaces that cannot be used.
    pub(super) fn describe_failures(&self) -> Vec<String> {
        let failed = self.ports.iter().filter(|port| port.open.is_none());
        failed.map(Port::describe_failure).collect()
    }

    /// Gives up interfaces that nobody named: those that cannot be used, and those that could only in generic mode, if others can
    /// in native mode. Bridges and the like are of these, and each of their packets would cost more, whosever it is. Returns what
    /// is in the way of the latter. To be called before anybody connects.
    pub(super) fn be_choosy(&mut self) -> Vec<String> {
        let is_native = |port: &Port| port.open.as_ref().is_some_and(|open| open.path.is_native());
        let some_native = self.ports.iter().any(is_native);
        let mut notes = Vec::new();
        for port in &mut self.ports {
            if port.open.is_some() && some_native && !is_native(port) {
                port.open = None;
                self.registry.on_detached(port.link);
                notes.push(format!("{} takes XDP in generic mode only: name it to have it used", port.name));
            }
            port.is_given_up = port.open.is_none();
        }
        self.take_notices();
        notes
    }

    pub(super) fn port(&mut self, link: LinkNumber) -> Option<&mut Port> {
        self.ports.get_mut(usize::from(link))
    }
}

/// Listens at an abstract name that is not in use.
pub(super) fn listen_anywhere() -> io::Result<(String, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let [random, _] = random_numbers()?;
    let name = format!("sidestep-run-{}-{random:016x}", std::process::id());
    bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    listen(&socket, BACKLOG)?;
    Ok((name, socket))
}

/// The kernel's number for the network namespace of this thread.
pub(super) fn own_namespace() -> io::Result<u64> {
    shadow::namespace_of(socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

/// Unpredictable numbers.
pub(super) fn random_numbers() -> io::Result<[u64; 2]> {
    use std::io::Read;
    let mut octets = [[0; 8]; 2];
    std::fs::File::open("/dev/urandom")?.read_exact(octets.as_flattened_mut())?;
    Ok(octets.map(u64::from_ne_bytes))
}

pub(super) fn watch(epoll: &OwnedFd, fd: impl AsFd, token: u64, flags: epoll::EventFlags) -> io::Result<()> {
    Ok(epoll::add(epoll, fd, epoll::EventData::new_u64(token), flags)?)
}
