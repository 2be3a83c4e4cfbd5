//! One socket.

use std::net::SocketAddr;

use clock::Instant;
use serde::{Deserialize, Serialize};
use stack::tcp::State;
use stack::udp::UdpId;
use stack::{ConnectionId, ListenerId, Stack};
use wire::protocol;

use super::TcpReport;
use crate::filter::{Filter, Subject};

/// A socket of an engine's stack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SocketReport {
    /// The engine's number within the program.
    pub engine: usize,
    /// `tcp` or `udp`.
    pub protocol: String,
    /// The state, by ss's name.
    pub state: String,
    /// Octets received and not read; for a listener, connections that wait for `accept`.
    pub recv_q: u64,
    /// Octets sent and not acknowledged, or not sent; for a listener, the most connections that may wait.
    pub send_q: u64,
    /// Our end.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: Option<SocketAddr>,
    /// Place and generation of a connection, as the trace has them.
    pub id: Option<String>,
    /// Incomplete handshakes of a listener.
    pub half_open: Option<u32>,
    /// Datagrams that a UDP socket dropped because its buffer was full.
    pub drops: Option<u64>,
    /// More about a connection.
    pub tcp: Option<TcpReport>,
}

impl SocketReport {
    fn new(protocol: &str, state: &str, local: SocketAddr) -> SocketReport {
        SocketReport {
            engine: 0,
            protocol: protocol.to_owned(),
            state: state.to_owned(),
            recv_q: 0,
            send_q: 0,
            local,
            remote: None,
            id: None,
            half_open: None,
            drops: None,
            tcp: None,
        }
    }
}

/// The name of a connection: its slot, and how often that was in use before.
pub(crate) fn connection_id(place: u32, generation: u16) -> String {
    format!("{place}.{generation}")
}

/// A connection, if it matches.
pub(crate) fn of_connection(
    stack: &Stack,
    id: ConnectionId,
    filter: &Filter,
    now: Instant,
) -> Option<SocketReport> {
    let (local, remote) = stack.endpoints(id)?;
    if !filter.matches(&Subject::of_socket(protocol::TCP, local, Some(remote))) {
        return None;
    }
    let (recv_q, send_q) = stack.queued(id)?;
    let info = stack.info(id, now)?;
    Some(SocketReport {
        recv_q: recv_q as u64,
        send_q: send_q as u64,
        remote: Some(remote),
        id: Some(connection_id(id.index(), id.generation() as u16)),
        tcp: Some(TcpReport::from(&info)),
        ..SocketReport::new("tcp", state_name(stack.state(id)?), local)
    })
}

/// A listener, if it matches.
pub(crate) fn of_listener(stack: &Stack, id: ListenerId, filter: &Filter) -> Option<SocketReport> {
    let local = stack.listener_address(id)?;
    if !filter.matches(&Subject::of_socket(protocol::TCP, local, None)) {
        return None;
    }
    let (waiting, backlog) = stack.accept_queue(id)?;
    Some(SocketReport {
        recv_q: waiting.into(),
        send_q: backlog.into(),
        half_open: stack.half_open(id),
        ..SocketReport::new("tcp", "LISTEN", local)
    })
}

/// A UDP socket, if it matches.
pub(crate) fn of_udp(stack: &Stack, id: UdpId, filter: &Filter) -> Option<SocketReport> {
    let (local, remote) = stack.udp_endpoints(id)?;
    if !filter.matches(&Subject::of_socket(protocol::UDP, local, remote)) {
        return None;
    }
    let (recv_q, send_q) = stack.udp_queued(id)?;
    Some(SocketReport {
        recv_q: recv_q as u64,
        send_q: send_q as u64,
        remote,
        drops: stack.udp_drops(id),
        ..SocketReport::new("udp", if remote.is_some() { "ESTAB" } else { "UNCONN" }, local)
    })
}

/// ss's names of the states.
pub(super) fn state_name(state: State) -> &'static str {
    match state {
        State::SynSent => "SYN-SENT",
        State::SynReceived => "SYN-RECV",
        State::Established => "ESTAB",
        State::FinWait1 => "FIN-WAIT-1",
        State::FinWait2 => "FIN-WAIT-2",
        State::CloseWait => "CLOSE-WAIT",
        State::Closing => "CLOSING",
        State::LastAck => "LAST-ACK",
        State::TimeWait => "TIME-WAIT",
        State::Closed => "UNCONN",
    }
}
