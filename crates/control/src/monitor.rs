//! The netlink socket behind a mirror: rtnetlink(7).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::neighbour::NeighbourMessage;
use netlink_packet_route::route::RouteMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::mirror::{Change, Mirror};

/// RTNLGRP_LINK, NEIGH, IPV4_IFADDR, IPV4_ROUTE, IPV6_IFADDR, IPV6_ROUTE (linux/rtnetlink.h).
const GROUPS: [u32; 6] = [1, 3, 5, 7, 9, 11];
/// Buffer for messages that were not read yet. When it overflows, everything is read again.
const RECEIVE_BUFFER: usize = 1 << 20;
/// How many dumps may be interrupted by changes before that is an error.
const DUMPS_MAX: usize = 20;
/// The kernel's answers come in parts of at most this many octets.
const PART_MAX: usize = 1 << 16;

/// Reading the kernel's state failed.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// The netlink socket failed and no longer sees changes: open another monitor.
    #[error("netlink: {0}")]
    Socket(#[from] io::Error),
    /// Interfaces, addresses or routes change so fast that no dump is ever complete. Try again later.
    #[error("netlink: the kernel's tables change faster than Sidestep can read them")]
    Unstable,
}

/// A mirror that follows the kernel: poll the descriptor, then call [`NetlinkMonitor::on_readable`].
///
/// It sees the network namespace that the thread was in when it was made.
pub struct NetlinkMonitor {
    socket: Socket,
    mirror: Mirror,
    buffer: Vec<u8>,
}

impl NetlinkMonitor {
    /// Subscribes to changes, then reads everything.
    pub fn new() -> Result<NetlinkMonitor, MonitorError> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        // A refusal (it is capped by net.core.rmem_max) leaves a smaller buffer, which overflows sooner.
        let _ = socket.set_rx_buf_sz(RECEIVE_BUFFER as i32);
        socket.set_non_blocking(true)?;
        for group in GROUPS {
            socket.add_membership(group)?;
        }
        Ok(NetlinkMonitor { socket, mirror: dump()?, buffer: Vec::with_capacity(PART_MAX) })
    }

    /// The kernel's state as of the last read.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// Readable when there is news.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Reads all news without blocking. Lost messages show as [`Change::Resynchronised`].
    pub fn on_readable(&mut self) -> Result<Vec<Change>, MonitorError> {
        let mut changes = Vec::new();
        loop {
            self.buffer.clear();
            match self.socket.recv(&mut self.buffer, 0) {
                Ok(_) => {
                    let messages = parse(&self.buffer);
                    changes.extend(messages.filter_map(|message| match message.payload {
                        NetlinkPayload::InnerMessage(inner) => self.mirror.on_message(&inner),
                        _ => None,
                    }));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(changes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                // ENOBUFS: the kernel dropped messages (netlink(7)). Those still queued are older than the dump or
                // repeat it, and end in the state that it saw.
                Err(error) if error.raw_os_error() == Some(ENOBUFS) => {
                    self.mirror = dump()?;
                    changes.push(Change::Resynchronised);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

const ENOBUFS: i32 = 105;

/// Reads the kernel's state through a separate socket, so that no news mix with the dump.
fn dump() -> Result<Mirror, MonitorError> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    for _ in 0..DUMPS_MAX {
        let mut mirror = Mirror::default();
        let requests = [
            RouteNetlinkMessage::GetLink(LinkMessage::default()),
            RouteNetlinkMessage::GetAddress(AddressMessage::default()),
            RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()),
            RouteNetlinkMessage::GetRoute(RouteMessage::default()),
        ];
        let mut whole = true;
        for request in requests {
            whole &= dump_into(&socket, &mut mirror, request)?;
        }
        if whole {
            return Ok(mirror);
        }
    }
    Err(MonitorError::Unstable)
}

/// Reads one table; false if it changed while it was read.
fn dump_into(socket: &Socket, mirror: &mut Mirror, request: RouteNetlinkMessage) -> io::Result<bool> {
    let mut message = NetlinkMessage::from(request);
    message.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    message.finalize();
    let mut octets = vec![0; message.buffer_len()];
    message.serialize(&mut octets);
    socket.send_to(&octets, &SocketAddr::new(0, 0), 0)?;

    let mut whole = true;
    let mut buffer = Vec::with_capacity(PART_MAX);
    loop {
        buffer.clear();
        socket.recv(&mut buffer, 0)?;
        for message in parse(&buffer) {
            whole &= message.header.flags & NLM_F_DUMP_INTR == 0;
            match message.payload {
                NetlinkPayload::InnerMessage(inner) => drop(mirror.on_message(&inner)),
                NetlinkPayload::Done(_) => return Ok(whole),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                _ => (),
            }
        }
    }
}

/// The messages of one datagram. A message that cannot be parsed, for instance of a newer kind, is left out.
fn parse(mut octets: &[u8]) -> impl Iterator<Item = NetlinkMessage<RouteNetlinkMessage>> + '_ {
    std::iter::from_fn(move || {
        let (message, rest) = split_message(octets)?;
        octets = rest;
        Some(NetlinkMessage::deserialize(message).ok())
    })
    .flatten()
}

/// Cuts off the first message, using the length in its header, padded to four octets (netlink(7)).
pub(crate) fn split_message(octets: &[u8]) -> Option<(&[u8], &[u8])> {
    const HEADER: usize = 16;
    let len = u32::from_ne_bytes(octets.get(..4)?.try_into().ok()?) as usize;
    let message = octets.get(..len).filter(|_| len >= HEADER)?;
    Some((message, octets.get(len.next_multiple_of(4)..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_in_the_first_dump() {
        let monitor = NetlinkMonitor::new().unwrap();
        assert!(monitor.mirror().link("lo").is_some());
    }

    #[test]
    fn a_datagram_is_cut_by_the_lengths_in_it() {
        let mut octets = vec![0; 40];
        octets[0] = 18; // Padded to 20.
        octets[20] = 20;
        let (first, rest) = split_message(&octets).unwrap();
        assert_eq!((first.len(), rest.len()), (18, 20));
        assert_eq!(split_message(rest).unwrap().1.len(), 0);
    }

    #[test]
    fn nonsense_lengths_end_the_datagram() {
        for len in [0u8, 15, 200] {
            let mut octets = vec![0; 32];
            octets[0] = len;
            assert!(split_message(&octets).is_none());
        }
    }
}
