//! What answers datagrams.

use std::net::SocketAddr;

use wire::UdpHeaders;

/// A request, and room for its answer in the same place.
#[derive(Debug)]
pub struct Datagram<'f> {
    /// Starts with the request; its end is the longest answer that the path takes.
    pub buffer: &'f mut [u8],
    /// Octets of the request; at most the length of `buffer`.
    pub len: usize,
    /// The octets of the frame in front of `buffer`, and where its headers lie in them.
    pub(crate) headers: (&'f [u8], &'f UdpHeaders),
    /// Octets of the answer, which the responder left in `buffer`; `None` sends nothing.
    pub reply: Option<usize>,
}

impl Datagram<'_> {
    /// Who sent it.
    pub fn source(&self) -> SocketAddr {
        self.headers.1.source(self.headers.0)
    }
}

/// A service that answers each datagram with at most one, in place. Never blocks.
pub trait UdpResponder: Send {
    /// Answers a batch of 1 to [`device::BURST`] datagrams by setting their `reply`.
    fn respond(&mut self, batch: &mut [Datagram<'_>]);
}

/// Sends every request back as it came: what the engine and the device can do without a service.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo;

impl UdpResponder for Echo {
    fn respond(&mut self, batch: &mut [Datagram<'_>]) {
        for datagram in batch {
            datagram.reply = Some(datagram.len);
        }
    }
}

/// `None` answers nothing.
impl<R: UdpResponder> UdpResponder for Option<R> {
    fn respond(&mut self, batch: &mut [Datagram<'_>]) {
        if let Some(responder) = self {
            responder.respond(batch);
        }
    }
}
