//! What the broker has to say.

use std::os::fd::RawFd;

use clock::{Duration, Instant};
use engine::DeviceId;
use stack::LinkId;

use crate::broker_side::Incident;
use crate::descriptors::fd_table::Entry;
use crate::ids::SocketId;
use crate::process::State;
use crate::queue::{RestingPorts, Runtime, Stalls};
use crate::socket::Happening;

impl State {
    /// Listens to what the broker has to say.
    pub(crate) fn hear(&mut self, now: Instant) {
        self.hears_soon = false;
        self.heard_at = now;
        while let Some(incident) = self.attachment.as_mut().and_then(|attachment| attachment.poll()) {
            self.on_incident(incident, now);
        }
        if !self.asked_by_children.is_empty() {
            self.answer_children(now);
        }
    }

    /// Listens to what is known here already, without a system call.
    pub(crate) fn hear_what_has_come(&mut self, now: Instant) {
        while self.has_incident()
            && let Some(incident) = self.attachment.as_mut().and_then(|attachment| attachment.poll())
        {
            self.on_incident(incident, now);
        }
    }

    /// Listens to the broker after work that may have left something to be heard.
    pub(crate) fn hear_if_due(&mut self, now: Instant) {
        if self.hears_soon {
            self.hear(now);
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
            Incident::Enqueued(request, enqueued) => self.on_enqueued(request, enqueued),
            Incident::Adopt { claim, socket } => self.on_adopt(claim, socket, now),
            Incident::Handshake(handshake) => self.on_handshake(&handshake, now),
            Incident::Strayed { token, local, remote, octets } => {
                self.on_strayed(token, (local, remote), &octets, now);
            }
            Incident::Nobodys(stray) => {
                if let Some(stack) = self.queue.stack() {
                    stack.reset_stray(*stray);
                }
            }
            Incident::ChildAsks { token, local, remote } => self.on_child_asks(token, local, remote, now),
            Incident::Mtu(link, mtu) => {
                if let Some(runtime) = &self.queue.runtime {
                    runtime.handle.set_mtu(link, mtu);
                }
            }
            Incident::SpreadChanged(link) => self.on_spread_changed(link, now),
            Incident::SocketLeft(claim) => self.on_socket_left(claim, now),
            Incident::Sources(link, filters) => {
                if let Some(stack) = self.queue.stack() {
                    stack.set_sources(link, filters);
                }
            }
            Incident::Neighbour { link, old, new } => {
                if let Some(stack) = self.queue.stack() {
                    stack.replace_neighbour(link, old, new);
                }
            }
            Incident::SegmentsClamped(clamps) => {
                if let Some(stack) = self.queue.stack() {
                    stack.set_route_clamps(clamps);
                }
            }
            Incident::StatusWanted => self.report(now),
            Incident::Observer(observer) => self.on_observer(observer),
            Incident::Returned => self.claim_all_again(),
            Incident::Closing => {
                self.leave_to_kernel(now);
                self.on_broker_gone();
            }
            Incident::Gone => self.on_broker_gone(),
        }
    }

    pub(crate) fn on_granted(
        &mut self,
        (link, index): (LinkId, u32),
        device: Box<dyn device::Device>,
        descriptors: Vec<RawFd>,
        now: Instant,
    ) {
        let is_first = self.queue.runtime.is_none();
        if is_first {
            let gather = self.attachment.as_ref().map_or(Duration::ZERO, |attachment| attachment.gather());
            let Ok(runtime) = Runtime::new(gather) else { return };
            self.queue.runtime = Some(runtime);
            self.keep_book();
        }
        for fd in &descriptors {
            self.table.set(*fd, Entry::Internal);
        }
        let Some(runtime) = &mut self.queue.runtime else { return };
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
        self.queue.wake_driver();
    }

    fn on_lost(&mut self, link: LinkId) {
        let descriptors =
            self.queue.runtime.as_mut().map(|runtime| runtime.remove_link(link)).unwrap_or_default();
        self.queue.wake_driver(); // It sleeps on what is closed.
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

    /// The broker has ended, and its XDP program with it, so that there are no queues. (One that was killed does not answer, and its program
    /// goes on where it is pinned.) Connections of the stack are cut off; new ones run on
    /// the kernel.
    fn on_broker_gone(&mut self) {
        self.show_attachment();
        self.attachment = None;
        self.attached = false;
        self.queue.resting_ports = RestingPorts::default();
        let now = self.clock.now();
        self.on_happening_to_all(Happening::BrokerEnds, now);
        for place in 0..self.sockets.places() {
            if let Some((_, socket)) = self.sockets.at_mut(place) {
                socket.claim = None;
            }
        }
        self.queue.awaited_routes.clear();
        self.asked_by_children.clear();
        self.queue.begun.clear();
        self.queue.ended.clear();
        self.drop_leaving();
        self.queue.kept_ports.clear();
        self.queue.stalls = Stalls::default();
        let descriptors = self.queue.runtime.as_mut().map(Runtime::remove_devices).unwrap_or_default();
        for fd in descriptors {
            self.table.set(fd, Entry::None);
        }
        self.queue.drop_runtime();
        self.queue.wake_driver();
    }
}
