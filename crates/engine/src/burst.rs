//! One burst through one device: from received frames to transmitted answers.

use arrayvec::ArrayVec;
use clock::{Duration, Instant};
use device::{BURST, Burst, Capabilities, Device, SuperSegment, Taken};
use frame::Frame;
use stack::{LinkId, Stack};
use wire::{ChecksumPolicy, DropReason, UdpHeaders, parse_udp, turn_around};

use crate::counters::{DeviceReport, EngineCounters};
use crate::handle::DeviceId;
use crate::link_layer;
use crate::responder::{Datagram, ReturnPath, UdpResponder};
use crate::tap::{Direction, Taps};
use crate::{Role, Sampling};

/// A device as the engine uses it.
pub(crate) struct AttachedDevice {
    pub(crate) id: DeviceId,
    pub(crate) role: Role,
    /// What the stack calls it; `None` for one that the stack neither hears nor sends by.
    pub(crate) link: Option<LinkId>,
    pub(crate) device: Box<dyn Device>,
    capabilities: Capabilities,
    /// Answers for which there was no room; nothing is received until they are gone, so none are lost.
    unsent: Burst,
    /// When the datagrams came whose answers these are, if the time of one of them is taken.
    sample: Option<Instant>,
    /// Packets of the stack. They may wait while others are received: else two full rings would wait for each other.
    pub(crate) outgoing: Burst,
    /// Those at the front of `outgoing` that taps were shown before, when there was no room for them.
    outgoing_shown: usize,
    /// A super-segment for which there was no room. Nothing more of the stack's is taken before it has left.
    held: Option<HeldSegments>,
}

/// A copy of a super-segment.
struct HeldSegments {
    headers: Vec<u8>,
    payload: Vec<u8>,
    segment_size: u16,
}

impl AttachedDevice {
    pub(crate) fn new(
        id: DeviceId,
        role: Role,
        link: Option<LinkId>,
        device: Box<dyn Device>,
    ) -> AttachedDevice {
        let capabilities = device.capabilities();
        let (unsent, outgoing) = (Burst::new(), Burst::new());
        AttachedDevice {
            id,
            role,
            link,
            device,
            capabilities,
            unsent,
            sample: None,
            outgoing,
            outgoing_shown: 0,
            held: None,
        }
    }

    pub(crate) fn set_mtu(&mut self, mtu: u16) {
        self.device.set_mtu(mtu);
        self.capabilities = self.device.capabilities();
    }

    /// Moves at most one burst in and its answers out; returns the number of frames that moved.
    pub(crate) fn serve<R: UdpResponder>(
        &mut self,
        responder: &mut R,
        stack: Option<&mut Stack>,
        counters: &EngineCounters,
        (taps, sampling): (&mut Taps, &mut Sampling),
        now: Instant,
    ) -> usize {
        let late = self.transmit(now);
        if !self.unsent.is_empty() {
            return late;
        }
        let mut received = Burst::new();
        let count = self.device.rx_burst(&mut received, now);
        if count == 0 {
            return late;
        }
        self.show(&received, Direction::Inbound, taps, now);
        let mut headers = ArrayVec::<UdpHeaders, BURST>::new();
        let mut requests = Burst::new();
        self.classify(received, &mut requests, &mut headers, stack, counters, now);
        if !requests.is_empty() {
            let replies = answer(&mut requests, &headers, self.id, self.capabilities.mtu, responder, now);
            self.turn_around_all(requests, &headers, &replies);
            let replied = self.unsent.len();
            counters.on_burst(headers.len(), replied);
            if sampling.is_due(replied as u32) {
                self.sample = Some(now);
            }
            self.show(&self.unsent, Direction::Outbound, taps, now);
            self.transmit(now);
        }
        late + count
    }

    /// When the datagrams came whose answers have all left, if the time of one of them is taken.
    #[inline(always)]
    pub(crate) fn take_sample(&mut self) -> Option<Instant> {
        if self.unsent.is_empty() { self.sample.take() } else { None }
    }

    /// Splits a burst into UDP requests, packets for the stack, and other frames, which are counted. Releases all
    /// but the requests.
    fn classify(
        &mut self,
        received: Burst,
        requests: &mut Burst,
        headers: &mut ArrayVec<UdpHeaders, BURST>,
        mut stack: Option<&mut Stack>,
        counters: &EngineCounters,
        now: Instant,
    ) {
        let policy = ChecksumPolicy {
            verified: self.capabilities.rx_checksum_verified,
            accept_partial: self.capabilities.partial_checksums,
        };
        // Asked once a burst: most engines have no sockets but the responder.
        let sockets = self.link.is_some() && stack.as_ref().is_some_and(|s| s.udp_sockets().next().is_some());
        for frame in received {
            let reason = match parse_udp(frame.bytes(), policy) {
                Ok(found) if !sockets || !is_for_socket(&found, frame.bytes(), stack.as_deref()) => {
                    headers.push(found);
                    requests.push(frame);
                    continue;
                }
                Ok(_) => DropReason::ProtocolUnknown, // None that the responder speaks.
                Err(reason) => reason,
            };
            if let Err(reason) = self.offer(frame.bytes(), reason, policy, stack.as_deref_mut(), now) {
                counters.on_drop(reason);
            }
            self.device.release(frame);
        }
    }

    /// Offers packets that the responder does not handle, for the given `reason`, to the stack.
    fn offer(
        &self,
        frame: &[u8],
        reason: DropReason,
        policy: ChecksumPolicy,
        stack: Option<&mut Stack>,
        now: Instant,
    ) -> Result<(), DropReason> {
        use DropReason::{Ipv4Options, Ipv6ExtensionHeaders, ProtocolUnknown};
        match (reason, self.link, stack) {
            (ProtocolUnknown | Ipv4Options | Ipv6ExtensionHeaders, Some(link), Some(stack)) => {
                link_layer::deliver(frame, link, policy, stack, now)
            }
            _ => Err(reason),
        }
    }

    /// Makes replies of the answered requests and queues them; releases the others.
    fn turn_around_all(&mut self, requests: Burst, headers: &[UdpHeaders], replies: &[Option<usize>]) {
        for ((mut frame, headers), reply) in requests.into_iter().zip(headers).zip(replies) {
            let Some(payload_len) = *reply else {
                self.device.release(frame);
                continue;
            };
            let room = frame.bytes_and_tailroom_mut();
            let len = turn_around(room, headers, payload_len, self.capabilities.tx_checksum_offload);
            frame.set_len(len);
            self.unsent.push(frame);
        }
    }

    /// Whether all answers have left, so that there is room for a burst of late ones.
    pub(crate) fn has_answered_all(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Queues an answer to a datagram of an earlier burst. It is lost, and counted, if there is no frame for it.
    pub(crate) fn answer_late(&mut self, path: &ReturnPath, answer: &[u8], counters: &EngineCounters) {
        let start = path.octets.len();
        let Some(mut frame) = self.device.alloc() else { return counters.on_unsent() };
        frame.queue = path.queue;
        let room = frame.bytes_and_tailroom_mut();
        // A fresh frame has no more headroom than one that brought a request, unless its device says so.
        if answer.len() > path.room() || start + answer.len() > room.len() {
            self.device.release(frame);
            return counters.on_unsent();
        }
        room[..start].copy_from_slice(&path.octets);
        room[start..start + answer.len()].copy_from_slice(answer);
        let len = turn_around(room, &path.headers, answer.len(), self.capabilities.tx_checksum_offload);
        frame.set_len(len);
        self.unsent.push(frame);
        counters.on_burst(0, 1);
    }

    /// Transmits the late answers that were queued.
    pub(crate) fn transmit_late(&mut self, taps: &mut Taps, now: Instant) {
        self.show(&self.unsent, Direction::Outbound, taps, now);
        self.transmit(now);
    }

    /// Transmits the stack's queued packets, as far as there is space.
    pub(crate) fn transmit_outgoing(&mut self, taps: &mut Taps, now: Instant) {
        self.show(&self.outgoing[self.outgoing_shown..], Direction::Outbound, taps, now);
        self.device.tx_burst(&mut self.outgoing, now);
        self.outgoing_shown = self.outgoing.len();
        if let Some(mut held) = self.held.take() {
            let HeldSegments { headers, payload, segment_size } = &mut held;
            let mut packet = SuperSegment { headers, payload: &[payload], segment_size: *segment_size };
            if self.try_super_segment(&mut packet, now) == Taken::Full {
                self.held = Some(held);
            }
        }
    }

    /// Whether the stack must wait: what it sent last has not left.
    pub(crate) fn is_crowded(&self) -> bool {
        self.outgoing.is_full() || self.held.is_some()
    }

    /// Whether nothing of the stack's waits to be taken.
    pub(crate) fn has_sent_all(&self) -> bool {
        self.outgoing.is_empty() && self.held.is_none()
    }

    /// Sends a super-segment behind what is queued, or keeps a copy until there is room. False if the device cuts none any more: it is lost.
    pub(crate) fn transmit_super_segment(
        &mut self,
        mut packet: SuperSegment<'_>,
        taps: &mut Taps,
        now: Instant,
    ) -> bool {
        self.transmit_outgoing(taps, now);
        if !taps.is_empty() && self.role == Role::Primary {
            taps.show_pieces(packet.headers, packet.payload, self.id, now);
        }
        match self.try_super_segment(&mut packet, now) {
            Taken::Sent => true,
            Taken::Full => {
                let SuperSegment { headers, payload, segment_size } = packet;
                self.held =
                    Some(HeldSegments { headers: headers.to_vec(), payload: payload.concat(), segment_size });
                true
            }
            Taken::Refused => false,
        }
    }

    fn try_super_segment(&mut self, packet: &mut SuperSegment<'_>, now: Instant) -> Taken {
        if self.outgoing.is_empty() { self.device.tx_super_segment(packet, now) } else { Taken::Full }
    }

    fn show(&self, frames: &[Frame], direction: Direction, taps: &mut Taps, now: Instant) {
        if !taps.is_empty() && self.role == Role::Primary {
            taps.show(frames, self.id, direction, now);
        }
    }

    fn transmit(&mut self, now: Instant) -> usize {
        if self.unsent.is_empty() { 0 } else { self.device.tx_burst(&mut self.unsent, now) }
    }

    /// Answers what is already waiting, and ends. Frames that still do not fit are released.
    pub(crate) fn close<R: UdpResponder>(&mut self, responder: &mut R, counters: &EngineCounters) {
        const BURSTS_MAX: usize = 1024;
        let now = Instant::ZERO;
        for _ in 0..BURSTS_MAX {
            // The clock has stopped: no time is taken.
            let (taps, sampling) = (&mut Taps::default(), &mut Sampling::one_in(u32::MAX));
            if self.serve(responder, None, counters, (taps, sampling), now) == 0 {
                break;
            }
        }
        self.transmit_outgoing(&mut Taps::default(), now);
        for frame in self.unsent.drain(..).chain(self.outgoing.drain(..)) {
            counters.on_unsent();
            self.device.release(frame);
        }
    }

    /// When to look at the device though no descriptor says so.
    pub(crate) fn poll_timeout(&self, now: Instant, retry_after: Duration) -> Option<Instant> {
        let is_waiting = !self.unsent.is_empty() || !self.has_sent_all() || self.device.holds_unsent();
        let retry = is_waiting.then(|| now + retry_after);
        [self.device.poll_timeout(), retry].into_iter().flatten().min()
    }

    pub(crate) fn report(&self) -> DeviceReport {
        let description = self.device.capabilities().description;
        DeviceReport { id: self.id, role: self.role, description, counters: self.device.counters() }
    }
}

/// Whether the stack has a socket for a datagram.
fn is_for_socket(headers: &UdpHeaders, frame: &[u8], stack: Option<&Stack>) -> bool {
    stack.is_some_and(|stack| stack.udp_takes(headers.destination(frame), headers.source(frame)))
}

/// Lets the responder answer; returns the length of each reply.
fn answer<R: UdpResponder>(
    requests: &mut Burst,
    headers: &[UdpHeaders],
    device: DeviceId,
    mtu: u16,
    responder: &mut R,
    now: Instant,
) -> ArrayVec<Option<usize>, BURST> {
    let mut batch: ArrayVec<Datagram<'_>, BURST> = requests
        .iter_mut()
        .zip(headers)
        .map(|(frame, headers)| {
            let request = headers.payload_range();
            let brought_by = (device, frame.queue);
            let (before, room) = frame.bytes_and_tailroom_mut().split_at_mut(request.start);
            // A request may exceed our MTU if its sender's is larger; the answer may not.
            let most = headers.max_payload(mtu).max(request.len()).min(room.len());
            Datagram {
                buffer: &mut room[..most],
                len: request.len(),
                headers: (before, headers),
                brought_by,
                reply: None,
            }
        })
        .collect();
    responder.respond(&mut batch, now);
    let cap = |datagram: &Datagram<'_>| datagram.reply.filter(|&len| len <= datagram.buffer.len());
    batch.iter().map(cap).collect()
}

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;

    use device::{Capabilities, DeviceCounters};
    use frame::Frame;

    use super::*;

    /// A device that got frames to send and has not sent them, or has.
    struct Full(bool);

    impl Device for Full {
        fn capabilities(&self) -> Capabilities {
            Capabilities::default()
        }

        fn rx_burst(&mut self, _: &mut Burst, _: Instant) -> usize {
            0
        }

        fn tx_burst(&mut self, _: &mut Burst, _: Instant) -> usize {
            0
        }

        fn alloc(&mut self) -> Option<Frame> {
            None
        }

        fn release(&mut self, _: Frame) {}

        fn wait_fds<'a>(&'a self, _: &mut Vec<BorrowedFd<'a>>) {}

        fn prepare_wait(&mut self) -> bool {
            true
        }

        fn holds_unsent(&self) -> bool {
            self.0
        }

        fn counters(&self) -> DeviceCounters {
            DeviceCounters::default()
        }
    }

    #[test]
    fn a_device_that_holds_what_it_has_not_sent_is_looked_at_again() {
        let soon = Duration::from_millis(1);
        for (holds, expected) in [(false, None), (true, Some(Instant::ZERO + soon))] {
            let attached = AttachedDevice::new(DeviceId(0), Role::Primary, None, Box::new(Full(holds)));
            assert_eq!(attached.poll_timeout(Instant::ZERO, soon), expected);
        }
    }
}
