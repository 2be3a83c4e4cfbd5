//! One entry for fuzzers: messages of several clients while the interfaces and sockets change.
//!
//! ```text
//! step    = message | event
//! message = number of the client (0 to 5), its socket, length (2 octets, little-endian), octets
//! event   = kind (128 and up), two octets of parameters
//! ```
//!
//! Every request is decoded and encoded again. Requests about queues and claims reach the registry, and so does the search for the
//! owner of a waiting connection. [`crate::fuzz_requests`], which is slower, covers the other requests, their order and their descriptors.

use std::net::SocketAddr;

use steering::Transport;

use crate::protocol::{Moving, ProtocolError, Purpose, Request, ToBroker, decode, encode};
use crate::registry::model::{CLIENTS_MAX, Event, LINKS, World, local};

/// Steps at most: longer inputs find nothing that shorter ones do not.
const STEPS_MAX: usize = 300;

/// Reads messages and has the registry decide on them, as the server does with those that it has let in; checks after each step
/// that the steering programs would hold what claims and queues amount to.
///
/// # Panics
/// If something is wrong: that is what fuzzers look for.
pub fn fuzz_broker(data: &[u8]) {
    let mut world = World::slow();
    let mut rest = data;
    for _ in 0..STEPS_MAX {
        let Some(step) = take_step(&mut rest) else { break };
        for event in events_of(step) {
            world.apply(event);
            world.settle();
            world.check();
        }
    }
    // The kernel is asked for what it has, and then all is as it is to be.
    for _ in 0..3 {
        world.apply(Event::Pass(90));
        world.settle();
        world.check();
    }
    world.check_settled();
    while !world.clients.is_empty() {
        world.apply(Event::Leave(0));
        world.settle();
    }
    world.apply(Event::Pass(3000)); // By then nobody is to have what nobody has.
    world.settle();
    assert!(world.maps.values().all(std::collections::BTreeMap::is_empty), "something is claimed by nobody");
}

/// A step of a history.
pub(crate) enum Step<'d> {
    Message { client: usize, socket: u8, octets: &'d [u8] },
    Other { kind: u8, which: u8, how: u8 },
}

/// Takes the first step off `rest`.
pub(crate) fn take_step<'d>(rest: &mut &'d [u8]) -> Option<Step<'d>> {
    let (&[kind, which, how], behind) = rest.split_first_chunk::<3>()?;
    *rest = behind;
    if kind >= 128 {
        return Some(Step::Other { kind, which, how });
    }
    let (&high, behind) = rest.split_first()?;
    let len = usize::from(u16::from_le_bytes([how, high])).min(behind.len());
    let (octets, behind) = behind.split_at(len);
    *rest = behind;
    Some(Step::Message { client: usize::from(kind) % CLIENTS_MAX, socket: which, octets })
}

fn events_of(step: Step<'_>) -> Vec<Event> {
    match step {
        Step::Message { client, socket, octets } => match read(octets) {
            Ok(ToBroker { request, .. }) => events_of_request(client, socket, request),
            Err(_) => vec![Event::Leave(client)], // It is disconnected.
        },
        Step::Other { kind, which, how } => vec![other(kind, which, how)],
    }
}

/// What was read is written as it was meant.
fn read(octets: &[u8]) -> Result<ToBroker, ProtocolError> {
    let message: ToBroker = decode(octets)?;
    if let Ok(again) = encode(&message) {
        assert_eq!(decode::<ToBroker>(&again).ok().as_ref(), Some(&message));
    }
    Ok(message)
}

fn events_of_request(client: usize, socket: u8, request: Request) -> Vec<Event> {
    let event = match request {
        Request::Hello { .. } => Some(Event::Connect),
        Request::Join { .. } => None, // The registry knows nothing of it.
        Request::Queues { wanted: true } => Some(Event::Attach(client)),
        Request::Queues { wanted: false } => Some(Event::GiveBack(client)),
        Request::Serve { queues, key: None } => {
            let known = queues.into_iter().filter(|(link, _)| LINKS.contains(link));
            return known.map(|(link, queues)| Event::Ready(client, link, queues)).collect();
        }
        Request::Claim { transport, purpose, .. } => claim(client, socket, transport.into(), purpose),
        Request::Release { claims, drain } => {
            let event = if drain { Event::DrainBy } else { Event::ReleaseBy };
            return claims.into_iter().map(|claim| event(client, claim)).collect();
        }
        Request::Move { connection, .. } => Some(moved(&connection)),
        Request::Enqueue { connections, .. } => return connections.iter().map(moved).collect(),
        Request::Handshake(handshake) => Some(Event::Awaited(handshake.local.port())),
        Request::Give { token: None } => Some(Event::HandOver(client, end(socket))),
        Request::IsShared { claim } => Some(Event::IsShared(client, claim)),
        // The registry has no part in these.
        Request::Serve { key: Some(_), .. }
        | Request::Route { .. }
        | Request::Unanswered { .. }
        | Request::Give { token: Some(_) }
        | Request::MoveFor { .. }
        | Request::LeaveSocket { .. }
        | Request::Book
        | Request::Deliver { .. }
        | Request::Stray { .. }
        | Request::Unknown { .. }
        | Request::Status(_) => None,
    };
    event.into_iter().collect()
}

fn moved(moving: &Moving) -> Event {
    Event::Moved(moving.connection.local.port())
}

/// A claim for the socket that `socket` stands for; what the kernel would not say of one is refused before.
fn claim(client: usize, socket: u8, transport: Transport, purpose: Purpose) -> Option<Event> {
    let fits = (purpose == Purpose::Udp) == (transport == Transport::Udp);
    let (address, port) = (socket & 3, 80 + u16::from(socket >> 2 & 3));
    fits.then_some(Event::Claim { client, address, port, purpose })
}

/// The end of a connection that `socket` stands for.
fn end(socket: u8) -> SocketAddr {
    SocketAddr::new(local(socket & 3, LINKS[0]).address, 80 + u16::from(socket >> 2 & 3))
}

fn other(kind: u8, which: u8, how: u8) -> Event {
    let link = LINKS[usize::from(which) % LINKS.len()];
    match (kind - 128) % 10 {
        0 => Event::Connect,
        1 => Event::Leave(which.into()),
        2 => Event::View { link, queues: u16::from(how >> 4), addresses: how & 7 },
        3 if which >= 128 => Event::Reopen(link),
        3 => Event::Detach(link),
        4 => Event::ShadowGone(which.into()),
        5 => Event::Moved(80 + u16::from(how & 3)),
        6 => Event::Pass(u64::from(how)),
        7 => Event::Pass(u64::from(how) * 100),
        8 => Event::Release(which.into()),
        _ => Event::Drain(which.into()),
    }
}
