//! The process's report about itself.

use clock::Instant;
use device::DeviceCounters;

use crate::address::local_of;
use crate::broker_side::{SocketStatus, Status};
use crate::ids::SocketId;
use crate::process::State;
use crate::queue::Runtime;
use crate::socket::{Place, Role, Socket};

/// Sockets in the report at most.
const SOCKETS_MAX: usize = 200;

impl State {
    /// Answers a request for the status.
    pub(crate) fn report(&mut self, _now: Instant) {
        let mut ids: Vec<SocketId> = self.sockets.iter().map(|(id, _)| id).collect();
        ids.sort_by_key(|id| self.sockets.get(*id).is_none_or(|socket| socket.connection().is_some()));
        let more = ids.len().saturating_sub(SOCKETS_MAX) as u64;
        let sockets = ids.into_iter().take(SOCKETS_MAX).filter_map(|id| self.status_of(id)).collect();
        let accelerated = self.queue.stack().map_or(0, |stack| stack.population().0.into());
        let mut counters = self.queue.runtime.as_ref().map(counters_of).unwrap_or_default();
        counters.extend(self.queue.home_ports.named().map(|(name, count)| (name.to_owned(), count)));
        let left_to_kernel = self.left_to_kernel;
        let status = Status { sockets, more, accelerated, left_to_kernel, counters };
        if let Some(attachment) = self.attachment() {
            attachment.report(status);
        }
    }

    pub(crate) fn status_of(&mut self, id: SocketId) -> Option<SocketStatus> {
        let socket = self.sockets.get(id)?;
        let (fd, why) = (socket.fd(), why_on_kernel(socket));
        let (state, is_udp, accelerated) = match &socket.role {
            Role::Listener { on_stack, .. } => ("LISTEN", false, on_stack.is_some()),
            Role::Udp(udp) => ("UNCONN", true, udp.on_stack.is_some()),
            Role::Stream(Place::ToStack { .. }) => ("SYN-SENT", false, true),
            Role::Stream(Place::Stack(_)) => ("ESTAB", false, true),
            Role::Stream(Place::FromParent(_)) => ("ESTAB", false, false),
            Role::Stream(Place::Kernel | Place::Lost) => return None,
        };
        let (local, remote) = match self.endpoints(id) {
            Some((local, remote)) => (local, Some(remote)),
            None => (local_of(fd)?, None),
        };
        Some(SocketStatus { fd, is_udp, local, remote, state, accelerated, why })
    }
}

/// Those of the engine, and those of its devices, added up.
fn counters_of(runtime: &Runtime) -> Vec<(String, u64)> {
    let mut counters = runtime.handle.counters().named();
    let reports = runtime.engine.device_reports();
    let present = reports.present.iter().map(|device| &device.counters);
    let devices: Vec<_> = present.chain([&reports.gone]).map(DeviceCounters::named).collect();
    for (place, (name, _)) in DeviceCounters::default().named().into_iter().enumerate() {
        counters.push((name.to_owned(), devices.iter().map(|device| device[place].1).sum()));
    }
    counters
}

/// Why a socket is the kernel's, if it is.
fn why_on_kernel(socket: &Socket) -> Option<String> {
    if let Some(reason) = &socket.unclaimable {
        return Some(reason.to_string());
    }
    let why = match &socket.role {
        _ if socket.is_on_stack() => return None,
        Role::Stream(Place::FromParent(_)) => "inherited, and not used yet",
        Role::Listener { .. } | Role::Udp(_) if socket.claim.is_some() => "there is no queue for it",
        Role::Udp(udp) if !udp.is_bound => "a client that has not waited often",
        Role::Listener { .. } | Role::Udp(_) => "the program has not waited there",
        _ => return None,
    };
    Some(why.to_owned())
}
