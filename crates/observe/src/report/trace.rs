//! One record of a trace.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use stack::tcp::State;
use stack::trace::{TraceKind, TraceRecord};

use super::connection_id;
use super::socket::state_name;

/// An event on a connection. Sequence numbers are as on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceReport {
    /// The engine's number within the program.
    pub engine: usize,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Place and generation of the connection.
    pub connection: String,
    /// Its ends, as far as it still exists.
    pub ends: Option<(SocketAddr, SocketAddr)>,
    /// `received`, `sent`, `retransmitted`, `dropped`, `state`, `timeout`, `loss-probe`, `aborted`.
    pub event: String,
    /// The state that was entered, by ss's name.
    pub state: Option<String>,
    /// Flags, sequence numbers and window of a segment.
    pub segment: Option<SegmentReport>,
    /// Congestion window in octets, with what was sent and what expired.
    pub cwnd: Option<u32>,
}

/// A segment in a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentReport {
    /// tcpdump's letters: `S`, `F`, `R`, `P`, `.` for ACK, `U`, `E`, `W`.
    pub flags: String,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Window as in the header, not scaled.
    pub window: u16,
    /// Octets of payload.
    pub len: u16,
}

/// A record of an engine whose clock started at `epoch_ns`.
pub(crate) fn of_record(
    record: &TraceRecord,
    ends: Option<(SocketAddr, SocketAddr)>,
    epoch_ns: u64,
) -> TraceReport {
    let is_segment = matches!(
        record.kind,
        TraceKind::Received | TraceKind::Dropped | TraceKind::Sent | TraceKind::Retransmitted
    );
    let segment = SegmentReport {
        flags: flag_letters(record.flags),
        seq: record.seq.0,
        ack: record.ack.0,
        window: record.window,
        len: record.len,
    };
    let state = state_by_number(record.flags).filter(|_| record.kind == TraceKind::State);
    TraceReport {
        engine: 0,
        time_ns: epoch_ns + record.at.as_nanos(),
        connection: connection_id(record.connection, record.generation),
        ends,
        event: event_name(record.kind).to_owned(),
        state: state.map(|state| state_name(state).to_owned()),
        segment: is_segment.then_some(segment),
        cwnd: (record.cwnd > 0).then_some(record.cwnd),
    }
}

fn event_name(kind: TraceKind) -> &'static str {
    match kind {
        TraceKind::Unused => "unused",
        TraceKind::Received => "received",
        TraceKind::Dropped => "dropped",
        TraceKind::Sent => "sent",
        TraceKind::Retransmitted => "retransmitted",
        TraceKind::State => "state",
        TraceKind::Timeout => "timeout",
        TraceKind::LossProbe => "loss-probe",
        TraceKind::Aborted => "aborted",
    }
}

fn state_by_number(number: u8) -> Option<State> {
    const ALL: [State; 10] = [
        State::SynSent,
        State::SynReceived,
        State::Established,
        State::FinWait1,
        State::FinWait2,
        State::CloseWait,
        State::Closing,
        State::LastAck,
        State::TimeWait,
        State::Closed,
    ];
    ALL.into_iter().find(|state| *state as u8 == number)
}

/// A segment's flags as tcpdump's letters, in its order.
pub fn flag_letters(flags: u8) -> String {
    use wire::tcp::flag;
    let letters = [
        (flag::FIN, 'F'),
        (flag::SYN, 'S'),
        (flag::RST, 'R'),
        (flag::PSH, 'P'),
        (flag::ACK, '.'),
        (flag::URG, 'U'),
        (flag::ECE, 'E'),
        (flag::CWR, 'W'),
    ];
    letters.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, letter)| letter).collect()
}
