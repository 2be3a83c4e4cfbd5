//! Packets that leave as several.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use clock::Instant;
use frame::Frame;
use wire::DropReason;
use wire::ethernet::Ethernet;
use wire::super_segment::{Headers, Part, parts};

use crate::{BURST, Burst, Capabilities, Device, DeviceCounters};

/// A TCP packet that is longer than the link takes, for the device to cut ([`wire::super_segment`]).
#[derive(Debug)]
pub struct SuperSegment<'a> {
    /// Ethernet, IP and TCP header. The device may change them.
    pub headers: &'a mut [u8],
    /// What follows them, in pieces.
    pub payload: &'a [&'a [u8]],
    /// Octets of payload in each segment, but for the last.
    pub segment_size: u16,
}

/// What became of a super-segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is sent, or dropped and counted, as a frame is.
    Sent,
    /// There is no room for it now.
    Full,
    /// The device cuts none, or none any more: [`Capabilities::tso_max`](crate::Capabilities::tso_max) has changed. The packet is lost.
    Refused,
}

impl SuperSegment<'_> {
    /// Octets of the payload.
    pub fn payload_len(&self) -> usize {
        self.payload.iter().map(|piece| piece.len()).sum()
    }

    /// Segments that it is cut into.
    pub fn segments(&self) -> usize {
        self.payload_len().div_ceil(usize::from(self.segment_size).max(1))
    }

    /// Octets of the Ethernet header.
    pub fn link_header_len(&self) -> Result<usize, DropReason> {
        Ok(Ethernet::parse(self.headers)?.payload_offset())
    }

    /// Writes one of its segments as an Ethernet frame. The frame's length; `None` if `room` is shorter.
    fn write_frame(
        &self,
        room: &mut [u8],
        link_len: usize,
        headers: &Headers<'_>,
        part: Part,
    ) -> Option<usize> {
        let (link, packet) = room.split_at_mut_checked(link_len)?;
        link.copy_from_slice(&self.headers[..link_len]);
        Some(link_len + headers.write_segment(packet, part, |out| self.copy_part(part, out))?)
    }

    fn copy_part(&self, part: Part, mut out: &mut [u8]) {
        let mut before = part.offset;
        for piece in self.payload {
            let skipped = before.min(piece.len());
            before -= skipped;
            let piece = &piece[skipped..];
            let count = piece.len().min(out.len());
            let (here, rest) = out.split_at_mut(count);
            here.copy_from_slice(&piece[..count]);
            out = rest;
        }
    }
}

/// Cuts super-segments for a device that does not, into frames of its pool. The pool needs as many frames as the longest super-segment has
/// segments: with fewer it never leaves.
#[derive(Debug)]
pub struct Segmenter<D: Device> {
    device: D,
    /// Segments for which there was no room yet. All other frames wait behind them.
    waiting: VecDeque<Frame>,
}

impl<D: Device> Segmenter<D> {
    /// Cuts for `device`.
    pub fn new(device: D) -> Segmenter<D> {
        Segmenter { device, waiting: VecDeque::new() }
    }

    /// Sends what waits; true if nothing does any more.
    fn flush(&mut self, now: Instant) -> bool {
        while !self.waiting.is_empty() {
            let count = self.waiting.len().min(BURST);
            let mut burst: Burst = self.waiting.drain(..count).collect();
            self.device.tx_burst(&mut burst, now);
            if !burst.is_empty() {
                burst.into_iter().rev().for_each(|frame| self.waiting.push_front(frame));
                return false;
            }
        }
        true
    }

    /// Cuts a packet into frames; all of them, or none if there are too few.
    fn cut(&mut self, packet: &SuperSegment<'_>) -> Result<Taken, DropReason> {
        let link_len = packet.link_header_len()?;
        let headers = Headers::parse(&packet.headers[link_len..])?;
        for part in parts(packet.payload_len(), packet.segment_size.into()) {
            let Some(mut frame) = self.device.alloc() else {
                self.release_waiting();
                return Ok(Taken::Full);
            };
            let len = packet.write_frame(frame.bytes_and_tailroom_mut(), link_len, &headers, part);
            frame.set_len(len.unwrap_or(0));
            self.waiting.push_back(frame);
            if len.is_none() {
                self.release_waiting();
                return Ok(Taken::Refused);
            }
        }
        Ok(Taken::Sent)
    }

    fn release_waiting(&mut self) {
        self.waiting.drain(..).for_each(|frame| self.device.release(frame));
    }
}

impl<D: Device> Device for Segmenter<D> {
    fn capabilities(&self) -> Capabilities {
        Capabilities { tso_max: u16::MAX, ..self.device.capabilities() }
    }

    fn rx_burst(&mut self, burst: &mut Burst, now: Instant) -> usize {
        self.flush(now);
        self.device.rx_burst(burst, now)
    }

    fn tx_burst(&mut self, burst: &mut Burst, now: Instant) -> usize {
        if self.flush(now) { self.device.tx_burst(burst, now) } else { 0 }
    }

    fn tx_super_segment(&mut self, packet: &mut SuperSegment<'_>, now: Instant) -> Taken {
        if !self.flush(now) {
            return Taken::Full;
        }
        let taken = self.cut(packet).unwrap_or(Taken::Refused);
        self.flush(now);
        taken
    }

    fn alloc(&mut self) -> Option<Frame> {
        self.device.alloc()
    }

    fn release(&mut self, frame: Frame) {
        self.device.release(frame);
    }

    fn take_foreign(&mut self) -> Option<Frame> {
        self.device.take_foreign()
    }

    fn set_mtu(&mut self, mtu: u16) {
        self.device.set_mtu(mtu);
    }

    fn wait_fds<'a>(&'a self, fds: &mut Vec<BorrowedFd<'a>>) {
        self.device.wait_fds(fds);
    }

    fn prepare_wait(&mut self) -> bool {
        self.device.prepare_wait()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.device.poll_timeout()
    }

    fn holds_unsent(&self) -> bool {
        !self.waiting.is_empty() || self.device.holds_unsent()
    }

    fn counters(&self) -> DeviceCounters {
        self.device.counters()
    }
}

impl<D: Device> Drop for Segmenter<D> {
    fn drop(&mut self) {
        self.release_waiting();
    }
}
