//! One burst through one device: from received frames to transmitted answers.

use std::os::fd::BorrowedFd;

use arrayvec::ArrayVec;
use clock::{Duration, Instant};
use device::{BURST, Burst, Capabilities, Device};
use wire::{ChecksumPolicy, UdpHeaders, parse_udp, turn_around};

use crate::counters::{DeviceReport, EngineCounters};
use crate::handle::DeviceId;
use crate::responder::{Datagram, UdpResponder};

/// A device as the engine uses it.
pub(crate) struct Port {
    device: Box<dyn Device>,
    capabilities: Capabilities,
    /// Answers for which there was no room; nothing is received until they are gone, so none are lost.
    unsent: Burst,
}

impl Port {
    pub(crate) fn new(device: Box<dyn Device>) -> Port {
        let capabilities = device.capabilities();
        Port { device, capabilities, unsent: Burst::new() }
    }

    /// Moves at most one burst in and its answers out; returns the number of frames that moved.
    pub(crate) fn serve<R: UdpResponder>(
        &mut self,
        responder: &mut R,
        counters: &EngineCounters,
        now: Instant,
    ) -> usize {
        let late = self.transmit(now);
        if !self.unsent.is_empty() {
            return late;
        }
        let mut received = Burst::new();
        if self.device.rx_burst(&mut received, now) == 0 {
            return late;
        }
        let count = received.len();
        let mut headers = ArrayVec::<UdpHeaders, BURST>::new();
        let mut requests = Burst::new();
        self.classify(received, &mut requests, &mut headers, counters);
        if !requests.is_empty() {
            let replies = answer(&mut requests, &headers, self.capabilities.mtu, responder);
            self.turn_around_all(requests, &headers, &replies);
            let replied = self.unsent.len();
            counters.on_burst(headers.len(), replied);
            self.transmit(now);
        }
        late + count
    }

    /// Splits a burst into UDP requests and frames that nobody here wants; those are counted and released.
    fn classify(
        &mut self,
        received: Burst,
        requests: &mut Burst,
        headers: &mut ArrayVec<UdpHeaders, BURST>,
        counters: &EngineCounters,
    ) {
        let policy = ChecksumPolicy {
            verified: self.capabilities.rx_checksum_verified,
            accept_partial: self.capabilities.partial_checksums,
        };
        for frame in received {
            match parse_udp(frame.bytes(), policy) {
                Ok(found) => {
                    headers.push(found);
                    requests.push(frame);
                }
                Err(reason) => {
                    counters.on_drop(reason);
                    self.device.release(frame);
                }
            }
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

    fn transmit(&mut self, now: Instant) -> usize {
        if self.unsent.is_empty() { 0 } else { self.device.tx_burst(&mut self.unsent, now) }
    }

    /// Answers what is waiting already, and ends. Frames that still find no room are released.
    pub(crate) fn close<R: UdpResponder>(&mut self, responder: &mut R, counters: &EngineCounters) {
        const BURSTS_MAX: usize = 1024;
        let now = Instant::ZERO;
        for _ in 0..BURSTS_MAX {
            if self.serve(responder, counters, now) == 0 {
                break;
            }
        }
        for frame in self.unsent.drain(..) {
            counters.on_unsent();
            self.device.release(frame);
        }
    }

    pub(crate) fn prepare_wait(&mut self) -> bool {
        self.device.prepare_wait()
    }

    pub(crate) fn wait_fds<'p>(&'p self, fds: &mut Vec<BorrowedFd<'p>>) {
        self.device.wait_fds(fds);
    }

    /// When to look at the device though no descriptor says so.
    pub(crate) fn poll_timeout(&self, now: Instant, retry_after: Duration) -> Option<Instant> {
        let retry = (!self.unsent.is_empty()).then(|| now + retry_after);
        [self.device.poll_timeout(), retry].into_iter().flatten().min()
    }

    pub(crate) fn report(&self, id: DeviceId) -> DeviceReport {
        let description = self.device.capabilities().description;
        DeviceReport { id, description, counters: self.device.counters() }
    }
}

/// Lets the responder answer; returns the length of each reply.
fn answer<R: UdpResponder>(
    requests: &mut Burst,
    headers: &[UdpHeaders],
    mtu: u16,
    responder: &mut R,
) -> ArrayVec<Option<usize>, BURST> {
    let mut batch: ArrayVec<Datagram<'_>, BURST> = requests
        .iter_mut()
        .zip(headers)
        .map(|(frame, headers)| {
            let request = headers.payload_range();
            let room = &mut frame.bytes_and_tailroom_mut()[request.start..];
            // A request may exceed our MTU if its sender's is larger; the answer may not.
            let most = headers.max_payload(mtu).max(request.len()).min(room.len());
            Datagram { buffer: &mut room[..most], len: request.len(), reply: None }
        })
        .collect();
    responder.respond(&mut batch);
    let cap = |datagram: &Datagram<'_>| datagram.reply.filter(|&len| len <= datagram.buffer.len());
    batch.iter().map(cap).collect()
}
