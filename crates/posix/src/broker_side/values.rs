//! What passes between a process and the broker, in the words of each.

use std::net::IpAddr;

use broker::client::{ClientError, Event};
use broker::protocol::{
    News, ProgramReport, Purpose as ClaimedFor, Refusal, SocketReport, Sources, Transport,
};
use stack::{LinkId, RouteClamp, SourceFilter};
use steering::{LocalPorts, Spread};
use wire::MacAddress;

use crate::broker_side::attachment::{
    CameOfBegun, ClaimId, HomePorts, Incident, NotMoved, Purpose, SocketStatus, Status,
};

/// Entries of an indirection table at most.
const ENTRIES_MAX: u32 = 1 << 16;

/// Connections of a list that were refused, by their places.
type Refused = Vec<(usize, Refusal)>;

/// What came of each of so many connections.
pub(super) fn outcomes(count: usize, refused: Refused) -> Vec<Result<(), NotMoved>> {
    let mut outcomes = vec![Ok(()); count];
    for (at, refusal) in refused {
        let never = matches!(refusal, Refusal::NoAcceptQueues(_));
        let why = if never { NotMoved::Never } else { NotMoved::Refused };
        outcomes.get_mut(at).into_iter().for_each(|it| *it = Err(why));
    }
    outcomes
}

/// The same if the broker had begun with them before; without an answer nobody knows.
pub(super) fn came_of_begun(count: usize, answer: Result<Result<Refused, Refusal>, String>) -> CameOfBegun {
    match answer {
        Ok(Ok(refused)) => Ok(outcomes(count, refused)),
        Ok(Err(_)) => Err(NotMoved::Refused),
        Err(_) => Err(NotMoved::Lost),
    }
}

/// Takes a refusal for an answer.
pub(super) fn unless_refused<T>(answer: Result<T, ClientError>) -> Result<Result<T, Refusal>, ClientError> {
    match answer {
        Ok(answer) => Ok(Ok(answer)),
        Err(ClientError::Refused(refusal)) => Ok(Err(refusal)),
        Err(error) => Err(error),
    }
}

pub(super) fn incident_of(news: News) -> Option<Incident> {
    Some(match news {
        News::QueuesLost { link } => Incident::Lost(LinkId(link)),
        News::MtuChanged { link, mtu } => Incident::Mtu(LinkId(link), mtu),
        News::SourcesChanged { link, sources } => {
            Incident::Sources(LinkId(link), sources.into_iter().map(filter_of).collect())
        }
        News::NeighbourMoved { link, old, new } => {
            Incident::Neighbour { link: LinkId(link), old: MacAddress(old), new: MacAddress(new) }
        }
        News::SegmentsClamped { clamps } => {
            Incident::SegmentsClamped(clamps.into_iter().map(clamp_of).collect())
        }
        News::ChildAsks { token, local, remote } => Incident::ChildAsks { token, local, remote },
        News::Strayed { token, local, remote, octets } => Incident::Strayed { token, local, remote, octets },
        News::Handshake(begun) => Incident::Handshake(Box::new(begun)),
        News::ReportStatus => Incident::StatusWanted,
        News::Closing => Incident::Closing,
        News::SpreadChanged { link } => Incident::SpreadChanged(LinkId(link)),
        News::SocketLeft { claim } => Incident::SocketLeft(ClaimId(claim.0)),
        // These come with descriptors, as events of their own, or are about ways; addresses are the broker's to follow; queues are left to
        // whoever has joined it.
        News::QueueGranted(_)
        | News::Adopt { .. }
        | News::Observer { .. }
        | News::AddressesChanged { .. }
        | News::QueueLeft(_)
        | News::WaysChanged => return None,
    })
}

/// What a claim is for, in the words of the protocol.
pub(super) fn asked(purpose: Purpose) -> (Transport, ClaimedFor) {
    match purpose {
        Purpose::Listener => (Transport::Tcp, ClaimedFor::Listener),
        Purpose::Outgoing => (Transport::Tcp, ClaimedFor::Outgoing),
        Purpose::Udp => (Transport::Udp, ClaimedFor::Udp),
    }
}

fn clamp_of((network, prefix_len, mss): (IpAddr, u8, u16)) -> RouteClamp {
    RouteClamp { network, prefix_len, mss }
}

pub(super) fn filter_of(sources: Sources) -> SourceFilter {
    let ranges = |of: Vec<(IpAddr, IpAddr)>| of.into_iter().map(|(first, last)| first..=last).collect();
    SourceFilter { vlan: sources.vlan, allowed: ranges(sources.allowed), routed: ranges(sources.routed) }
}

/// Whether the way to a peer may be another than before, or its interface another's.
pub(super) fn changes_ways(event: &Event) -> bool {
    match event {
        Event::QueueGranted(_) | Event::Returned(_) => true,
        Event::Adopt { .. } | Event::Observer { .. } => false,
        Event::News(news) => matches!(
            news,
            News::QueuesLost { .. }
                | News::AddressesChanged { .. }
                | News::NeighbourMoved { .. }
                | News::WaysChanged
                | News::SpreadChanged { .. }
        ),
    }
}

pub(super) fn home_ports_of(told: broker::protocol::HomePorts) -> HomePorts {
    let bit = |entry: usize| told.home.get(entry / 64).is_some_and(|word| word >> (entry % 64) & 1 == 1);
    let is_home = (0..told.entries.min(ENTRIES_MAX) as usize).map(bit).collect();
    let reserved: Vec<_> = told.reserved.iter().map(|(first, last)| *first..=*last).collect();
    HomePorts {
        spread: Spread { key: told.key, is_home, hashes_ports: told.hashes_ports },
        ports: LocalPorts::new(told.range.0..=told.range.1, &reserved),
    }
}

/// A process's report about itself, in the words of the protocol.
pub(super) fn program_report(status: Status) -> ProgramReport {
    let sockets = status.sockets.into_iter().map(socket_report).collect();
    let left = status.left_to_kernel;
    let owned =
        |causes: Vec<(&str, u64)>| causes.into_iter().map(|(why, count)| (why.to_owned(), count)).collect();
    ProgramReport {
        sockets,
        more: status.more,
        accelerated: status.accelerated,
        accepted_from_kernel: left.accepted,
        made_by_kernel: left.made(),
        made_because: owned(left.made_because()),
        moved_to_kernel: left.moved,
        moved_because: owned(left.moved_because()),
        counters: status.counters,
    }
}

fn socket_report(socket: SocketStatus) -> SocketReport {
    SocketReport {
        fd: socket.fd,
        transport: if socket.is_udp { Transport::Udp } else { Transport::Tcp },
        local: socket.local,
        remote: socket.remote,
        state: socket.state.to_owned(),
        accelerated: socket.accelerated,
        why: socket.why,
    }
}
