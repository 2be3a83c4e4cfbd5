//! Between Ethernet frames and the stack's IP packets.

use clock::Instant;
use frame::Frame;
use stack::{Arrival, LinkHeader, LinkId, Stack, Transmit};
use wire::ethernet::{Ethernet, ethertype};
use wire::{ChecksumPolicy, DropReason, ethernet};

/// Octets in front of a packet that the stack writes: room for an Ethernet header with two tags, and aligned.
pub(crate) const HEADROOM: usize = 32;

/// Gives the IP packet in `frame` to the stack.
pub(crate) fn deliver(
    frame: &[u8],
    link: LinkId,
    checksums: ChecksumPolicy,
    stack: &mut Stack,
    now: Instant,
) -> Result<(), DropReason> {
    let ethernet = Ethernet::parse(frame)?;
    if ethernet.destination().is_group() {
        return Err(DropReason::EthernetGroupDestination);
    }
    if ethernet.source().is_group() {
        return Err(DropReason::EthernetGroupSource);
    }
    if !matches!(ethernet.ethertype(), ethertype::IPV4 | ethertype::IPV6) {
        return Err(DropReason::EthertypeUnknown);
    }
    let header =
        LinkHeader { destination: ethernet.destination(), source: ethernet.source(), tags: ethernet.tags() };
    stack.on_packet(ethernet.payload(), &Arrival { link, header, checksums }, now)
}

/// Completes the frame that the stack has written a packet, or the headers of one, into: its length, and the link's header in front.
pub(crate) fn finish(frame: &mut Frame, transmit: &Transmit) {
    frame.set_len(transmit.len);
    let header = transmit.hop.header;
    let ethertype = match frame.bytes().first().map(|first| first >> 4) {
        Some(6) => ethertype::IPV6,
        _ => ethertype::IPV4,
    };
    let room = frame.push_front(ethernet::header_len(header.tags));
    ethernet::write(room, header.destination, header.source, header.tags, ethertype);
}
