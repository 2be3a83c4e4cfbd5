//! The error queue of UDP sockets, for ICMP errors that arrive at the stack (`IP_RECVERR`, `MSG_ERRQUEUE`).

use stack::udp::{ErrorReport, UdpError};

use crate::address::write_name;
use crate::errno::Errno;
use crate::ids::SocketId;
use crate::process::State;
use crate::request::{Receive, Received};
use crate::socket::Role;
use crate::socket::control_messages::ControlWriter;
use crate::socket::error_queue::{ErrorOrigin, ExtendedError};
use crate::socket::udp::scatter;

impl State {
    /// The oldest ICMP error about a datagram, with what came back of it; `None` if the stack knows of none.
    pub(crate) fn receive_report(
        &mut self,
        id: SocketId,
        request: &mut Receive<'_, '_>,
    ) -> Option<Result<Received, Errno>> {
        let socket = self.sockets.get(id)?;
        let domain = socket.domain;
        let Role::Udp(udp) = &socket.role else { return None };
        let on_stack = udp.on_stack?;
        let report = self.queue.stack()?.udp_take_report(on_stack)?;
        let room: usize = request.buffers.iter().map(|buffer| buffer.len()).sum();
        let len = report.payload.len().min(room);
        scatter(&report.payload[..len], request.buffers);
        let mut control = ControlWriter::new(request.control.as_deref_mut());
        extended(&report).put(&mut control, domain, Some(report.reporter));
        let (control_len, cut) = control.finish();
        let truncated = if len < report.payload.len() { libc::MSG_TRUNC } else { 0 };
        let name = request.name.as_deref_mut();
        Some(Ok(Received {
            len,
            name_len: name.map_or(0, |name| write_name(report.remote, domain, name)),
            control_len,
            flags: libc::MSG_ERRQUEUE | truncated | cut | request.flags & libc::MSG_CMSG_CLOEXEC,
        }))
    }
}

fn extended(report: &ErrorReport) -> ExtendedError {
    let origin = if report.reporter.is_ipv4() { ErrorOrigin::Icmp } else { ErrorOrigin::Icmp6 };
    let (kind, code) = report.type_and_code;
    let info = if let UdpError::TooLong { mtu } = report.error { mtu.into() } else { 0 };
    ExtendedError { errno: Errno::from(report.error).0, origin, kind, code, info, data: 0 }
}
