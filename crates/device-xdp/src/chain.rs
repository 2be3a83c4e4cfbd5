//! Packets that come in several frames: [`Chain`].
//!
//! In generic mode a packet is what the kernel's stack would get: a TCP segment of up to 64 KiB, which a peer on the same host left uncut, or
//! which GRO has put together. The kernel copies it into as many frames as it takes, a *chain* (af_xdp.rst, "Multi-Buffer Rx"). It becomes one TCP
//! segment per frame here, without another copy: the frames have room in front for the headers.
//!
//! ```text
//!   [Ethernet IP TCP |.. payload ..]   [.. payload ..]   [. payload .]        one packet, three frames
//!   [Ethernet IP TCP |.. payload ..]   [Ethernet IP TCP |.. payload ..]   [Ethernet IP TCP |. payload .]
//! ```
//!
//! So engine and stack know nothing of chains. The steering program lets through none but those of TCP.

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use device::Burst;
use frame::Frame;
use wire::ethernet::Ethernet;
use wire::super_segment::{Headers, Part};

/// Frames of one chain at most: 64 KiB in the smallest, and some.
const PARTS_MAX: usize = 64;
/// Octets of the longest headers: Ethernet with two tags, IPv6, TCP with all its options.
const HEADERS_MAX: usize = 14 + 2 * 4 + 40 + 60;

/// The frames of a packet that has not come whole yet, and segments that wait for room in a burst.
#[derive(Default)]
pub(crate) struct Chain {
    parts: Vec<Frame>,
    /// It has more parts than a packet can have: what comes of it is dropped.
    is_spoiled: bool,
    ready: VecDeque<Frame>,
}

/// What a frame made of a chain.
pub(crate) enum Outcome {
    /// More is to come, or its segments are there now.
    Taken,
    /// It makes no sense: these frames are to be released.
    Dropped(Vec<Frame>),
}

impl Chain {
    /// Whether the next frame begins a packet.
    pub(crate) fn is_between_packets(&self) -> bool {
        self.parts.is_empty() && !self.is_spoiled
    }

    /// Whether there are segments that wait for room.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Moves segments that wait into a burst, as far as it has room.
    pub(crate) fn drain_into(&mut self, burst: &mut Burst) {
        let count = self.ready.len().min(burst.remaining_capacity());
        burst.extend(self.ready.drain(..count));
    }

    /// All frames, to be released.
    pub(crate) fn clear(&mut self) -> impl Iterator<Item = Frame> + use<> {
        self.is_spoiled = false;
        std::mem::take(&mut self.parts).into_iter().chain(std::mem::take(&mut self.ready))
    }

    /// Takes the next frame of a packet; `continues`: it is not the last.
    pub(crate) fn push(&mut self, frame: Frame, continues: bool) -> Outcome {
        self.parts.push(frame);
        self.is_spoiled |= self.parts.len() > PARTS_MAX;
        if self.is_spoiled {
            self.is_spoiled = continues;
            return Outcome::Dropped(std::mem::take(&mut self.parts));
        }
        if continues {
            return Outcome::Taken;
        }
        match cut(&mut self.parts) {
            Some(()) => {
                self.ready.extend(self.parts.drain(..)); // The list keeps its memory.
                Outcome::Taken
            }
            None => Outcome::Dropped(std::mem::take(&mut self.parts)),
        }
    }

    /// A frame was lost: what the rest of its packet says cannot be told.
    pub(crate) fn spoil(&mut self, continues: bool) -> Vec<Frame> {
        self.is_spoiled = continues;
        std::mem::take(&mut self.parts)
    }
}

/// Makes a segment of each frame of a packet; `None` if it is no whole TCP segment, with its payload in all of them.
fn cut(parts: &mut [Frame]) -> Option<()> {
    let whole = parts.first()?.bytes();
    let start = Ethernet::parse(whole).ok()?.payload_offset();
    let len = start + Headers::parse(whole.get(start..)?).ok()?.len();
    let head = ArrayVec::<u8, HEADERS_MAX>::try_from(&whole[..len]).ok()?;
    let headers = Headers::parse(&head[start..]).ok()?;
    let pieces = parts
        .iter()
        .enumerate()
        .map(|(number, part)| if number == 0 { &part.bytes()[len..] } else { part.bytes() });
    if pieces.clone().any(<[u8]>::is_empty) || !headers.are_of(pieces) {
        return None;
    }
    let last = parts.len() - 1;
    let mut offset = 0;
    for (number, part) in parts.iter_mut().enumerate() {
        if number > 0 {
            if part.headroom() < len {
                return None;
            }
            part.push_front(len).copy_from_slice(&head);
        }
        let octets = part.len() - len;
        let own = Part { offset, len: octets, is_last: number == last };
        headers.write_unfinished(&mut part.bytes_mut()[start..len], own)?;
        offset += octets;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use frame::{Pool, Region};
    use wire::ip::Ip;
    use wire::tcp::{Tcp, flag};
    use wire::{ethernet, ipv4, protocol, tcp};

    use super::*;

    const SLOT: usize = 2048;
    const HEADROOM: usize = 256;
    /// What the kernel puts into a frame.
    const ROOM: usize = SLOT - HEADROOM;

    fn pool() -> Pool {
        Pool::new(Region::anonymous(256 * SLOT).unwrap(), SLOT as u16, HEADROOM as u16)
    }

    /// A packet of this protocol with a payload of so many octets, whose checksum is unfinished.
    fn packet(protocol: u8, payload: usize) -> Vec<u8> {
        let (source, destination) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
        let payload_len = tcp::HEADER_LEN + payload;
        let fields = ipv4::Fields { source, destination, protocol, ttl: 64, traffic_class: 0, payload_len };
        let mut octets = vec![0; 14 + ipv4::HEADER_LEN + payload_len];
        octets[12..14].copy_from_slice(&ethernet::ethertype::IPV4.to_be_bytes());
        ipv4::write(&mut octets[14..], &fields).unwrap();
        let segment = &mut octets[14 + ipv4::HEADER_LEN..];
        let fields = tcp::Fields { sequence_number: 5, flags: flag::ACK | flag::PSH, ..Default::default() };
        tcp::write(segment, &fields, None).unwrap();
        segment[tcp::HEADER_LEN..]
            .iter_mut()
            .zip(0..)
            .for_each(|(octet, n): (&mut u8, usize)| *octet = n as u8);
        let _ = wire::super_segment::offload(&mut octets[14..], payload);
        octets
    }

    /// Gives the chain a packet, in frames; what came of it.
    fn push(chain: &mut Chain, pool: &mut Pool, packet: &[u8]) -> Outcome {
        let mut pieces = packet.chunks(ROOM).peekable();
        loop {
            let mut frame = pool.alloc().unwrap();
            frame.copy_from(pieces.next().unwrap());
            match (chain.push(frame, pieces.peek().is_some()), pieces.peek().is_some()) {
                (Outcome::Taken, true) => {}
                (outcome, _) => return outcome,
            }
        }
    }

    /// Sequence number and payload of each segment.
    fn read(segments: &[Frame]) -> Vec<(u32, Vec<u8>)> {
        let one = |frame: &Frame| {
            let ethernet = Ethernet::parse(frame.bytes()).unwrap();
            let ip = Ip::in_frame(&ethernet).unwrap();
            let tcp = Tcp::parse(ip.payload()).unwrap();
            let policy = wire::ChecksumPolicy { verified: false, accept_partial: true };
            assert!(tcp.checksum_is_accepted(ip.pseudo_header(ip.payload().len()), policy));
            (tcp.sequence_number(), tcp.payload().to_vec())
        };
        segments.iter().map(one).collect()
    }

    #[test]
    fn a_long_segment_becomes_one_for_each_frame() {
        let (mut chain, mut pool) = (Chain::default(), pool());
        let packet = packet(protocol::TCP, 60_000);
        assert!(matches!(push(&mut chain, &mut pool, &packet), Outcome::Taken));
        let mut burst = Burst::new();
        chain.drain_into(&mut burst);
        let segments = read(&burst);
        assert_eq!(segments.len(), packet.len().div_ceil(ROOM));
        let mut next = 5;
        for (sequence_number, payload) in &segments {
            assert_eq!(*sequence_number, next);
            next += payload.len() as u32;
        }
        let joined: Vec<u8> = segments.into_iter().flat_map(|segment| segment.1).collect();
        assert_eq!(joined, packet[14 + ipv4::HEADER_LEN + tcp::HEADER_LEN..]);
        assert!(chain.is_between_packets() && !chain.has_ready());
    }

    #[test]
    fn segments_wait_for_room_in_a_burst() {
        let (mut chain, mut pool) = (Chain::default(), pool());
        push(&mut chain, &mut pool, &packet(protocol::TCP, 60_000));
        push(&mut chain, &mut pool, &packet(protocol::TCP, 60_000));
        let mut all = Vec::new();
        while chain.has_ready() {
            let mut burst = Burst::new();
            chain.drain_into(&mut burst);
            all.extend(burst);
        }
        assert_eq!(all.len(), 2 * 60_054_usize.div_ceil(ROOM));
    }

    #[test]
    fn what_is_no_whole_segment_is_dropped() {
        let mut cut_off = packet(protocol::TCP, 9000);
        cut_off.truncate(8000);
        let mut garbled = packet(protocol::TCP, 9000);
        garbled[14 + ipv4::HEADER_LEN + 16] ^= 1; // The checksum.
        let mut fragment = packet(protocol::TCP, 9000);
        fragment[14 + 6] = 0x20;
        for packet in [cut_off, garbled, fragment, packet(protocol::UDP, 9000), vec![0; 9000]] {
            let (mut chain, mut pool) = (Chain::default(), pool());
            let Outcome::Dropped(frames) = push(&mut chain, &mut pool, &packet) else {
                panic!("it is taken")
            };
            assert_eq!(frames.len(), packet.len().div_ceil(ROOM), "no frame is lost");
            assert!(chain.is_between_packets());
        }
    }

    #[test]
    fn a_packet_that_never_ends_keeps_no_memory() {
        let (mut chain, mut pool) = (Chain::default(), pool());
        let mut dropped = 0;
        for number in 0..1000 {
            let mut frame = pool.alloc().expect("all that were dropped are there again");
            frame.copy_from(&[0; 100]);
            if let Outcome::Dropped(frames) = chain.push(frame, number < 999) {
                dropped += frames.len();
                frames.into_iter().for_each(|frame| pool.release(frame));
            }
        }
        assert_eq!((dropped, pool.available()), (1000, pool.slots()));
        assert!(chain.is_between_packets(), "the next packet is not dropped");
    }
}
