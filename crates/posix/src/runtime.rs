//! The engine of a process, and the broker's messages to it.

use std::os::fd::{AsFd, RawFd};
use std::sync::Arc;

use clock::{Duration, Instant};
use engine::{Application, Config, Datagram, DeviceId, Engine, EngineHandle, UdpResponder};
use stack::{Event, LinkId, Stack};

use crate::attachment::{Attachment, ClaimId, Incident, Purpose};
use crate::fd_table::Entry;
use crate::process::State;
use crate::socket::place::Happening;
use crate::socket::{RestingPorts, Role, SocketId, Stalls};

/// Connections that the tables of a process are made for.
const CONNECTIONS_MAX: u32 = 1 << 18;

/// Segments that wait to be given to the kernel: more than come between two turns.
const LATE_SEGMENTS_MAX: usize = 1 << 10;

/// Keeps what happened on the stack until the turn is over.
#[derive(Default)]
pub(crate) struct Events(pub(crate) Vec<Event>);

impl Application for Events {
    fn on_start(&mut self, _: &mut Stack, _: Instant) {}

    fn on_event(&mut self, event: Event, _: &mut Stack, _: Instant) {
        self.0.push(event);
    }
}

/// Programs answer within one or two of their calls; and a peer that waits for its acknowledgement (RFC 896) does not notice this.
const ACK_HOLD_MAX: Duration = Duration::from_millis(1);

/// UDP is for sockets; what no socket wants is not answered.
pub(crate) struct Nobody;

impl UdpResponder for Nobody {
    fn respond(&mut self, _: &mut [Datagram<'_>]) {}
}

/// What a process has once it has a queue.
pub(crate) struct Runtime {
    pub(crate) engine: Engine<Nobody, Events>,
    pub(crate) handle: EngineHandle,
    /// Events of the turn that is being worked on: kept for its memory.
    pub(crate) spare: Vec<Event>,
    /// The kernel's numbers for interfaces.
    indices: Vec<(LinkId, u32)>,
    /// Devices by the interface that they belong to, with their descriptors.
    devices: Vec<(DeviceId, LinkId, Vec<RawFd>)>,
    next_device: u32,
}

impl Runtime {
    fn new(gather: Duration) -> std::io::Result<Runtime> {
        let stack = stack::Config {
            connections_max: CONNECTIONS_MAX,
            // The kernel chooses the ports, and does not know which of them our TIME-WAIT still has.
            time_wait_reuse: true,
            late_segments_max: LATE_SEGMENTS_MAX,
            ack_hold_max: ACK_HOLD_MAX,
            ..stack::Config::default()
        };
        let (engine, handle) =
            Engine::driven(Config { gather, ..Config::default() }, Nobody, stack, Events::default())?;
        Ok(Runtime {
            engine,
            handle,
            spare: Vec::new(),
            indices: Vec::new(),
            devices: Vec::new(),
            next_device: 0,
        })
    }

    pub(crate) fn stack(&mut self) -> &mut Stack {
        self.engine.stack()
    }

    /// Interfaces that we have queues of.
    pub(crate) fn links(&self) -> impl Iterator<Item = LinkId> + '_ {
        self.devices.iter().map(|(_, link, _)| *link)
    }

    /// The kernel's number for an interface; zero if we have had no queue of it.
    pub(crate) fn index_of(&self, link: LinkId) -> u32 {
        self.indices.iter().find(|it| it.0 == link).map_or(0, |it| it.1)
    }

    /// Lets go of all devices; returns their descriptors, which are closed.
    pub(crate) fn remove_devices(&mut self) -> Vec<RawFd> {
        self.remove_those(|_| true)
    }

    /// The same for the devices of an interface.
    fn remove_link(&mut self, link: LinkId) -> Vec<RawFd> {
        self.remove_those(|of| of == link)
    }

    fn remove_those(&mut self, is_meant: impl Fn(LinkId) -> bool) -> Vec<RawFd> {
        let devices = std::mem::take(&mut self.devices).into_iter();
        let (gone, kept) = devices.partition(|device| is_meant(device.1));
        self.devices = kept;
        let gone: Vec<(DeviceId, LinkId, Vec<RawFd>)> = gone;
        gone.iter().for_each(|(id, ..)| self.engine.remove_device(*id));
        gone.into_iter().flat_map(|(.., descriptors)| descriptors).collect()
    }
}

impl State {
    /// The stack, if the process has one.
    pub(crate) fn stack(&mut self) -> Option<&mut Stack> {
        self.runtime.as_mut().map(Runtime::stack)
    }

    /// Asks for queues, if that was not done yet; claims take effect with the first queue.
    pub(crate) fn attach(&mut self, now: Instant) {
        if self.attached {
            return;
        }
        self.attached = self.reach();
        if let Some(attachment) = self.attachment.as_mut().filter(|_| self.attached) {
            attachment.attach();
        }
        self.hear(now);
    }

    /// Sees to it that the broker can be asked.
    pub(crate) fn reach(&mut self) -> bool {
        let is_reached = self.attachment.as_mut().is_some_and(|attachment| attachment.reach());
        self.hide_attachment();
        is_reached
    }

    /// Whether the broker's client has news that its descriptor does not tell of.
    pub(crate) fn has_incident(&self) -> bool {
        self.attachment.as_ref().is_some_and(|attachment| attachment.has_incident())
    }

    /// Listens to what the broker has to say.
    pub(crate) fn hear(&mut self, now: Instant) {
        while let Some(incident) = self.attachment.as_mut().and_then(|attachment| attachment.poll()) {
            self.on_incident(incident, now);
        }
    }

    fn on_incident(&mut self, incident: Incident, now: Instant) {
        match incident {
            Incident::Granted { link, index, device, descriptors } => {
                self.on_granted((link, index), device, descriptors, now)
            }
            Incident::Lost(link) => self.on_lost(link),
            Incident::Routed(request, routed) => self.on_routed(request, routed, now),
            Incident::ParentAnswers(request, socket) => self.on_parent_answers(request, socket),
            Incident::Adopt { claim, socket } => self.on_adopt(claim, socket, now),
            Incident::Handshake(handshake) => self.on_handshake(&handshake, now),
            Incident::ChildAsks { token, local, remote } => self.on_child_asks(token, local, remote, now),
            Incident::Mtu(link, mtu) => {
                if let Some(runtime) = &self.runtime {
                    runtime.handle.set_mtu(link, mtu);
                }
            }
            Incident::Sources(link, filters) => {
                if let Some(stack) = self.stack() {
                    stack.set_sources(link, filters);
                }
            }
            Incident::Neighbour { link, old, new } => {
                if let Some(stack) = self.stack() {
                    stack.replace_neighbour(link, old, new);
                }
            }
            Incident::SegmentsClamped(clamps) => {
                if let Some(stack) = self.stack() {
                    stack.set_route_clamps(clamps);
                }
            }
            Incident::StatusWanted => self.report(now),
            Incident::Observer(observer) => self.on_observer(observer),
            Incident::Gone => self.on_broker_gone(),
        }
    }

    fn on_granted(
        &mut self,
        (link, index): (LinkId, u32),
        device: Box<dyn device::Device>,
        descriptors: Vec<RawFd>,
        now: Instant,
    ) {
        let is_first = self.runtime.is_none();
        if is_first {
            let gather = self.attachment.as_ref().map_or(Duration::ZERO, |attachment| attachment.gather());
            let Ok(runtime) = Runtime::new(gather) else { return };
            self.runtime = Some(runtime);
        }
        for fd in &descriptors {
            self.table.set(*fd, Entry::Internal);
        }
        let Some(runtime) = &mut self.runtime else { return };
        let id = DeviceId(runtime.next_device);
        runtime.next_device += 1;
        let mss_clamp = self.attachment.as_ref().and_then(|attachment| attachment.mss_clamp());
        runtime.handle.set_mss_clamp(link, mss_clamp);
        runtime.engine.add_link(id, link, device, now);
        runtime.devices.push((id, link, descriptors));
        runtime.indices.retain(|it| it.0 != link);
        runtime.indices.push((link, index));
        if let Some(attachment) = &mut self.attachment {
            attachment.ready(link);
        }
        if is_first {
            self.install_claimed();
        }
        self.wake_driver();
    }

    fn on_lost(&mut self, link: LinkId) {
        let descriptors = self.runtime.as_mut().map(|runtime| runtime.remove_link(link)).unwrap_or_default();
        self.wake_driver(); // It sleeps on what is closed.
        for fd in descriptors {
            self.table.set(fd, Entry::None);
        }
    }

    /// Claims come into force on the stack as soon as there is one.
    fn install_claimed(&mut self) {
        let claimed: Vec<SocketId> =
            self.sockets.iter().filter(|(_, socket)| socket.claim.is_some()).map(|(id, _)| id).collect();
        for id in claimed {
            self.install(id);
        }
    }

    /// Claims where a shadow is bound, once. Returns whether that is ours now, or will be with the first queue.
    pub(crate) fn claim(&mut self, id: SocketId, purpose: Purpose, now: Instant) -> bool {
        let Some(socket) = self.sockets.get(id) else { return false };
        if socket.claim.is_some() || socket.unclaimable.is_some() {
            return socket.claim.is_some();
        }
        let fd = socket.fd();
        let Some(local) = crate::socket::address::local_of(fd) else { return false };
        if local.ip().is_loopback() || local.port() == 0 {
            self.note_unclaimable(id, "bound to loopback".to_owned());
            return false;
        }
        if let Some(reason) = self.why_kernel_only(id, local) {
            self.note_unclaimable(id, reason.to_owned());
            return false;
        }
        self.attach(now);
        let Some(attachment) = &mut self.attachment else { return false };
        if !attachment.wants(purpose) {
            self.note_unclaimable(id, "the profile leaves it to the kernel".to_owned());
            return false;
        }
        let Some(shadow) = crate::internal::copy(fd) else { return false };
        let claimed = attachment.claim(shadow.as_fd(), purpose);
        crate::internal::close(shadow);
        match claimed {
            Ok(claim) => {
                if let Some(socket) = self.sockets.get_mut(id) {
                    socket.claim = Some(claim);
                    // It may have been made so, by another process too; from here on we are told.
                    let flags = syscall::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0);
                    socket.nonblocking = flags & libc::O_NONBLOCK != 0;
                }
                self.refresh_timeout(id);
                self.supersede_ended(local);
                self.install(id);
                self.hear(now); // Handshakes may be waiting for who claims this.
                true
            }
            Err(reason) => {
                self.note_unclaimable(id, reason);
                false
            }
        }
    }

    fn note_unclaimable(&mut self, id: SocketId, reason: String) {
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.unclaimable = Some(reason.into());
        }
    }

    /// Brings a claimed socket onto the stack, if there is one.
    fn install(&mut self, id: SocketId) {
        if self.runtime.is_none() {
            return;
        }
        match self.sockets.get(id).map(|socket| &socket.role) {
            Some(Role::Listener { .. }) => self.install_listener(id),
            Some(Role::Udp { .. }) => self.install_udp(id),
            _ => {}
        }
    }

    pub(crate) fn release_claim(&mut self, claim: Option<ClaimId>) {
        if let Some(claim) = claim {
            self.resting_ports.forget(claim);
            self.release_claims(&[claim]);
        }
    }

    pub(crate) fn release_claims(&mut self, claims: &[ClaimId]) {
        if let Some(attachment) = self.attachment.as_mut().filter(|_| !claims.is_empty()) {
            attachment.release(claims);
        }
    }

    /// The broker has ended, and its XDP program with it, so that there are no queues. (One that was killed does not answer, and its program
    /// goes on where it is pinned.) Connections of the stack are cut off; new ones run on
    /// the kernel.
    fn on_broker_gone(&mut self) {
        self.show_attachment();
        self.attachment = None;
        self.attached = false;
        self.resting_ports = RestingPorts::default();
        let now = self.clock.now();
        self.on_happening_to_all(Happening::BrokerEnds, now);
        for place in 0..self.sockets.places() {
            if let Some((_, socket)) = self.sockets.at_mut(place) {
                socket.claim = None;
            }
        }
        self.awaiting_route.clear();
        self.ended.clear();
        self.kept_ports.clear();
        self.stalls = Stalls::default();
        let descriptors = self.runtime.as_mut().map(Runtime::remove_devices).unwrap_or_default();
        for fd in descriptors {
            self.table.set(fd, Entry::None);
        }
        self.runtime = None;
        self.wake_driver();
    }

    /// The attachment, for calls that need it and the rest of the state.
    pub(crate) fn attachment(&mut self) -> Option<&mut (dyn Attachment + 'static)> {
        self.attachment.as_deref_mut()
    }
}

/// Reasons are kept for status; most are shared.
pub(crate) type Reason = Arc<str>;
