//! The stack, its sockets, its connections and the time: everything that events of a script act on.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clock::Instant;

use super::cookies::Cookies;
use super::flow::{Flow, Stage};
use super::host::{Host, Socket};
use super::packet::{Packet, decode};
use super::settings::Settings;
use super::sockets::{File, SocketFile, SocketState, news_mask};
use super::symbols;
use super::trouble::Trouble;

/// When scripts start; not zero, so that a clock in milliseconds is not zero either.
pub(crate) const START: Instant = Instant::from_nanos(1_000_000_000_000);
/// The first port that a connecting socket or a peer of a listener gets.
const FIRST_PORT: u16 = 40_000;

/// A packet that the stack sent and the script has not expected yet.
pub(crate) struct Sent {
    pub(crate) at: Instant,
    pub(crate) flow: usize,
    pub(crate) packet: Packet,
}

/// See the module's page.
pub(crate) struct World {
    pub(crate) settings: Settings,
    pub(crate) host: Host,
    pub(crate) now: Instant,
    pub(crate) files: BTreeMap<i32, File>,
    pub(crate) flows: Vec<Flow>,
    /// The flow that packets of the script belong to unless they name their ports.
    pub(crate) under_test: Option<usize>,
    pub(crate) sent: VecDeque<Sent>,
    pub(crate) cookies: Cookies,
    /// Whether nothing that the stack sends leaves the host.
    pub(crate) loses_all: bool,
    next_port: u16,
}

impl World {
    pub(crate) fn new(settings: Settings, host: Host, cookies: Cookies) -> World {
        World {
            settings,
            host,
            now: START,
            files: BTreeMap::new(),
            flows: Vec::new(),
            under_test: None,
            sent: VecDeque::new(),
            cookies,
            loses_all: false,
            next_port: FIRST_PORT,
        }
    }

    /// Takes what the stack sends and tells at this moment.
    pub(crate) fn settle(&mut self) -> Result<(), Trouble> {
        while let Some(octets) = self.host.transmit(self.now) {
            let packet = decode(&octets)
                .map_err(|wrong| Trouble::differs(format!("the stack sent a malformed packet: {wrong}")))?;
            if let Some(flow) = self.flow_of_sent(&packet).filter(|_| !self.loses_all) {
                self.sent.push_back(Sent { at: self.now, flow, packet });
            }
        }
        while let Some((socket, events)) = self.host.poll_event() {
            if let Some(fd) = self.fd_of(socket) {
                self.arm(fd, news_mask(events));
            }
        }
        Ok(())
    }

    /// The next time at which the stack has something to do.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.host.next_timeout()
    }

    /// Goes to `time`, at which the stack's timers may be due.
    pub(crate) fn go_to(&mut self, time: Instant) -> Result<(), Trouble> {
        self.now = self.now.max(time);
        self.host.run_timers(self.now);
        self.settle()
    }

    /// A new flow, which is under test from now on.
    pub(crate) fn new_flow(&mut self, stage: Stage, is_udp: bool) -> usize {
        let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        self.flows.push(Flow::new(stage, is_udp, nowhere, nowhere));
        let flow = self.flows.len() - 1;
        self.under_test = Some(flow);
        flow
    }

    /// An unused port.
    pub(crate) fn free_port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = self.next_port.checked_add(1).unwrap_or(FIRST_PORT);
        port
    }

    /// The latest flow between these ends.
    pub(crate) fn flow_between(&self, local: SocketAddr, remote: SocketAddr) -> Option<usize> {
        self.flows.iter().rposition(|flow| flow.local == local && flow.remote == remote)
    }

    /// The connection of a flow, if a descriptor stands for it.
    pub(crate) fn socket_of_flow(&self, flow: usize) -> Option<&SocketFile> {
        self.files.values().find_map(|file| match file {
            File::Socket(socket) if socket.flow == flow => Some(&**socket),
            _ => None,
        })
    }

    /// The socket with descriptor `fd`.
    pub(crate) fn socket(&mut self, fd: i32) -> Result<&mut SocketFile, Trouble> {
        match self.files.get_mut(&fd) {
            Some(File::Socket(socket)) => Ok(socket),
            Some(_) => Err(Trouble::differs(format!("descriptor {fd} is no socket"))),
            None => Err(Trouble::differs(format!("there is no descriptor {fd}"))),
        }
    }

    /// What poll(2) says of a descriptor.
    pub(crate) fn readiness(&self, fd: i32) -> i64 {
        match self.files.get(&fd) {
            Some(File::Socket(socket)) => self.socket_readiness(socket),
            Some(File::Epoll(epoll)) => {
                let is_ready = |interest: &super::sockets::Interest| self.interest_mask(interest) != 0;
                if epoll.interests.iter().any(is_ready) { symbols::POLLIN | symbols::POLLRDNORM } else { 0 }
            }
            Some(File::Plain) => {
                symbols::POLLIN | symbols::POLLRDNORM | symbols::POLLOUT | symbols::POLLWRNORM
            }
            None => symbols::POLLNVAL,
        }
    }

    fn socket_readiness(&self, socket: &SocketFile) -> i64 {
        match socket.state {
            SocketState::Idle if socket.is_udp => symbols::POLLOUT | symbols::POLLWRNORM,
            SocketState::Idle => symbols::POLLOUT | symbols::POLLWRNORM | symbols::POLLHUP,
            SocketState::Deferred(_) => symbols::POLLOUT | symbols::POLLWRNORM,
            SocketState::Datagram(id) => super::sockets::connection_mask(self.host.udp_readiness(id), false),
            SocketState::Listening(id) if self.host.accept_queue_len(id) > 0 => {
                symbols::POLLIN | symbols::POLLRDNORM
            }
            SocketState::Listening(_) => 0,
            SocketState::Connecting(id) | SocketState::Connected(id) => {
                let is_connecting = self.host.linux_state(id, self.now) == symbols::TCP_SYN_SENT;
                let completed = if socket.completions.is_due() { symbols::POLLERR } else { 0 };
                super::sockets::connection_mask(self.host.readiness(id), is_connecting) | completed
            }
        }
    }

    /// What an epoll instance has to tell of one of its interests, triggers aside.
    pub(crate) fn interest_mask(&self, interest: &super::sockets::Interest) -> i64 {
        let always = symbols::EPOLLERR | symbols::EPOLLHUP;
        if interest.spent { 0 } else { self.readiness(interest.fd) & (interest.events | always) }
    }

    /// An event of `mask` happened on `fd`: edge-triggered items with it are reported again.
    pub(crate) fn arm(&mut self, fd: i32, mask: i64) {
        let always = symbols::EPOLLERR | symbols::EPOLLHUP;
        for file in self.files.values_mut() {
            let File::Epoll(epoll) = file else { continue };
            for interest in epoll.interests.iter_mut().filter(|interest| interest.fd == fd) {
                interest.armed |= (interest.events | always) & mask != 0;
            }
        }
    }

    fn fd_of(&self, socket: Socket) -> Option<i32> {
        let is_it = |file: &File| match (file, socket) {
            (File::Socket(tcp), Socket::Listener(id)) => tcp.state == SocketState::Listening(id),
            (File::Socket(tcp), Socket::Connection(id)) => tcp.connection() == Some(id),
            (File::Socket(udp), Socket::Udp(id)) => udp.state == SocketState::Datagram(id),
            _ => false,
        };
        self.files.iter().find(|(_, file)| is_it(file)).map(|(fd, _)| *fd)
    }

    fn flow_of_sent(&self, packet: &Packet) -> Option<usize> {
        let (source, destination) = packet.ports()?;
        self.flow_between(
            SocketAddr::new(packet.source, source),
            SocketAddr::new(packet.destination, destination),
        )
    }
}
