//! What answers datagrams.

use std::net::SocketAddr;

use arrayvec::ArrayVec;
use clock::{Duration, Instant};
use wire::UdpHeaders;

use crate::handle::DeviceId;

/// The longest headers in front of a payload: Ethernet with two VLAN tags, IPv6, UDP.
const HEADERS_MAX: usize = 14 + 2 * 4 + 40 + 8;

/// A request, and room for its answer in the same place.
#[derive(Debug)]
pub struct Datagram<'f> {
    /// Starts with the request; its end is the longest answer that the path takes.
    pub buffer: &'f mut [u8],
    /// Octets of the request; at most the length of `buffer`.
    pub len: usize,
    /// The octets of the frame in front of `buffer`, and where its headers lie in them.
    pub(crate) headers: (&'f [u8], &'f UdpHeaders),
    /// The device that brought it, and its queue.
    pub(crate) brought_by: (DeviceId, u16),
    /// Octets of the answer, which the responder left in `buffer`; `None` sends nothing.
    pub reply: Option<usize>,
}

impl<'f> Datagram<'f> {
    /// Who sent it.
    pub fn source(&self) -> SocketAddr {
        self.headers.1.source(self.headers.0)
    }

    /// Which address and port were asked.
    pub fn destination(&self) -> SocketAddr {
        self.headers.1.destination(self.headers.0)
    }

    /// The same, to be asked for while the buffer is written.
    pub fn sender(&self) -> Sender<'f> {
        Sender { headers: self.headers }
    }

    /// The way back, for an answer that is not known yet: see [`UdpResponder::late_answer`].
    pub fn return_path(&self) -> ReturnPath {
        let (octets, headers) = self.headers;
        let octets = ArrayVec::try_from(octets).expect("no headers are longer");
        let (device, queue) = self.brought_by;
        ReturnPath { device, queue, octets, headers: *headers, room: self.buffer.len() }
    }
}

/// Who sent a datagram; its address is read from the headers when somebody wants to know it.
#[derive(Clone, Copy)]
pub struct Sender<'f> {
    headers: (&'f [u8], &'f UdpHeaders),
}

impl Sender<'_> {
    /// The address and port.
    #[inline(always)]
    pub fn address(&self) -> SocketAddr {
        self.headers.1.source(self.headers.0)
    }
}

/// The way back to who sent a datagram.
#[derive(Clone, Debug)]
pub struct ReturnPath {
    pub(crate) device: DeviceId,
    pub(crate) queue: u16,
    /// The datagram's frame in front of the payload.
    pub(crate) octets: ArrayVec<u8, HEADERS_MAX>,
    pub(crate) headers: UdpHeaders,
    room: usize,
}

impl ReturnPath {
    /// Octets of the longest answer that it takes.
    pub fn room(&self) -> usize {
        self.room
    }
}

/// A service that answers each datagram with at most one: in place, or later. Never blocks.
pub trait UdpResponder: Send {
    /// Answers a batch of 1 to [`device::BURST`] datagrams, which came until `now`, by setting their `reply`.
    fn respond(&mut self, batch: &mut [Datagram<'_>], now: Instant);

    /// An answer took so long: from the look at the clock before its datagram came off the device until the device had the answer. Said of few of them.
    fn on_sample(&mut self, _took: Duration) {}

    /// Whether there is an answer to a datagram of an earlier batch. Asked in each turn.
    fn has_late_answers(&self) -> bool {
        false
    }

    /// The next of these answers. Asked for as many as there is room for.
    fn late_answer(&mut self) -> Option<(ReturnPath, Vec<u8>)> {
        None
    }
}

/// Sends every request back as it came: what the engine and the device can do without a service.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo;

impl UdpResponder for Echo {
    fn respond(&mut self, batch: &mut [Datagram<'_>], _now: Instant) {
        for datagram in batch {
            datagram.reply = Some(datagram.len);
        }
    }
}

/// `None` answers nothing.
impl<R: UdpResponder> UdpResponder for Option<R> {
    fn respond(&mut self, batch: &mut [Datagram<'_>], now: Instant) {
        if let Some(responder) = self {
            responder.respond(batch, now);
        }
    }

    fn on_sample(&mut self, took: Duration) {
        self.iter_mut().for_each(|responder| responder.on_sample(took));
    }

    fn has_late_answers(&self) -> bool {
        self.as_ref().is_some_and(UdpResponder::has_late_answers)
    }

    fn late_answer(&mut self) -> Option<(ReturnPath, Vec<u8>)> {
        self.as_mut().and_then(UdpResponder::late_answer)
    }
}
