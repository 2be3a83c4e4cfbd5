//! The broker's state.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use clock::Instant;
use control::sock_diag::KernelSocket;
use control::{ClampWatch, NetlinkMonitor};
use rustix::event::epoll;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::accept_queues::AcceptQueues;
use super::books_left::BooksLeft;
use super::connection::Connection;
use super::data_path::DataPaths;
use super::family::Families;
use super::handshakes::Handshakes;
use super::helpers::{Helpers, Theirs};
use super::kept_sockets::KeptSockets;
use super::kernel_memory::KernelMemory;
use super::look::Look;
use super::notice::Notice;
use super::orphans::Orphan;
use super::port::Port;
use super::privilege::Identify;
use super::questions::Questions;
use super::recent_moves::RecentMoves;
use super::routes::Routes;
use super::shadow;
use super::strangers::Strangers;
use super::strays::Strays;
use super::successor::Succession;
use super::under_way::UnderWay;
use crate::registry::{ClientId, LinkNumber, Registry};
use crate::transfer::Inbox;

/// Addresses of all interfaces together in a message, and of one in news.
pub(super) const ADDRESSES_MAX: usize = 400;

/// Lists sockets of the kernel's.
pub(super) type List = fn() -> io::Result<Vec<KernelSocket>>;

/// The broker without its thread: poll [`Broker::fd`] until [`Broker::poll_timeout`], then call [`Broker::turn`]. Dropping it gives
/// everything back.
pub(super) struct Broker {
    pub(super) paths: Box<dyn DataPaths>,
    pub(super) observed_in: Option<PathBuf>,
    pub(super) zero_copy: bool,
    pub(super) identify: Identify,
    pub(super) accept_queues: AcceptQueues,
    /// Programs are to move what they have to the kernel.
    pub(super) is_closing: bool,
    pub(super) families: Families,
    /// The kernel's number for the network namespace.
    pub(super) namespace: u64,
    pub(super) name: String,
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
    /// What is known of the killed broker whose place this one has taken, if it has.
    pub(super) succession: Option<Succession>,
    pub(super) connections: BTreeMap<ClientId, Connection>,
    pub(super) kept: KeptSockets,
    pub(super) kernel_memory: KernelMemory,
    /// Those of clients that are gone: closed when their claims are out of the maps, and not before the kernel may give the ports away.
    pub(super) doomed: Vec<Theirs>,
    /// Connections that no process can accept yet.
    pub(super) orphans: Vec<Orphan>,
    /// Handshakes that no process can finish yet.
    pub(super) handshakes: Handshakes,
    pub(super) moves: RecentMoves,
    pub(super) farewells: BooksLeft,
    pub(super) routes: Routes,
    pub(super) questions: Questions,
    pub(super) strays: Strays,
    /// Sockets of connections that helpers send to clients.
    pub(super) sending: u32,
    /// Those of them that clients are given to accept by others of their user.
    pub(super) gives: BTreeMap<ClientId, u32>,
    pub(super) strangers: Strangers,
    pub(super) inbox: Inbox,
    pub(super) helpers: Arc<Helpers>,
    pub(super) under_way: UnderWay<Broker>,
    /// A look after sockets behind claims that has not come to its end.
    pub(super) look: Option<Look>,
    pub(super) next_tick: Instant,
    pub(super) last_turn: Instant,
    pub(super) notices: Vec<Notice>,
}

impl Broker {
    /// The abstract name of its socket, for [`crate::protocol::ENVIRONMENT`].
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Readable when there is something to do.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// What happened since this was asked last.
    pub(super) fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// Whether no program of this `sidestep run` is connected, and nobody has a queue by a killed broker, with which it may come back.
    pub(super) fn is_alone(&self) -> bool {
        let mut ports = self.ports.iter();
        let is_anothers = |(client, connection): (&ClientId, &Connection)| {
            connection.joined.is_some() || connection.is_stranger() || self.families.is_head(*client)
        };
        self.connections.iter().all(is_anothers)
            && ports.all(|port| self.registry.queues_left(port.link).is_empty())
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

    pub(super) fn port(&mut self, link: LinkNumber) -> Option<&mut Port> {
        self.ports.iter_mut().find(|port| port.link == link)
    }
}

/// The kernel's number for the network namespace of this thread.
pub(super) fn own_namespace() -> io::Result<u64> {
    shadow::namespace_of(socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

pub(super) fn watch(epoll: &OwnedFd, fd: impl AsFd, token: u64, flags: epoll::EventFlags) -> io::Result<()> {
    Ok(epoll::add(epoll, fd, epoll::EventData::new_u64(token), flags)?)
}
