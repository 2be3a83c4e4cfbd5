//! What a host on the simulated network can do, whichever stack it runs.

use std::fmt::Debug;
use std::net::SocketAddr;

use clock::{Duration, Instant};

use super::violation::Broken;

/// Number of a connection on its host, in the order in which they began there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SocketNumber(pub usize);

/// What a call that moves data came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Io {
    /// Octets moved.
    Moved(usize),
    /// Not now; the host wakes the application when it is worth another try.
    Blocked,
    /// There will be no more.
    End,
    /// The connection failed.
    Failed(String),
}

/// A host: packets, time and an application's calls go in; packets, deadlines and wake-ups come out. Times are those of its
/// own clock.
pub trait Host: Debug {
    /// A packet arrived; one that is not for the host, or damaged, vanishes.
    fn on_packet(&mut self, packet: &[u8], now: Instant);
    /// Does what is due.
    fn on_timeout(&mut self, now: Instant);
    /// When [`Host::on_timeout`] is to be called.
    fn poll_timeout(&mut self, now: Instant) -> Option<Instant>;
    /// Writes the next packet into `room` and tells its length.
    fn poll_transmit(&mut self, now: Instant, room: &mut [u8]) -> Option<usize>;
    /// The next socket on which something happened since it was last named.
    fn poll_woken(&mut self, now: Instant) -> Option<SocketNumber>;

    /// Accepts connections to `local`.
    fn listen(&mut self, local: SocketAddr);
    /// A connection that a peer began, and that peer.
    fn accept(&mut self, now: Instant) -> Option<(SocketNumber, SocketAddr)>;
    /// Begins a connection; `data` is what it sends first, and how much of that was taken comes back.
    fn connect(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        data: &[u8],
        now: Instant,
    ) -> (SocketNumber, usize);
    /// Queues data to be sent.
    fn send(&mut self, socket: SocketNumber, data: &[u8], now: Instant) -> Io;
    /// Takes data that arrived.
    fn recv(&mut self, socket: SocketNumber, room: &mut [u8], now: Instant) -> Io;
    /// Sends no more; false if it is too early for that, because the connection is not established yet.
    fn finish(&mut self, socket: SocketNumber, now: Instant) -> bool;
    /// Wants no more.
    fn close(&mut self, socket: SocketNumber, now: Instant);
    /// Ends the connection by a reset.
    fn abort(&mut self, socket: SocketNumber, now: Instant);

    /// Has all connections go on in another stack, if the host has such a thing; the one they were in gets their packets for
    /// `late` more.
    fn move_connections(&mut self, late: Duration, now: Instant) {
        let _ = (late, now);
    }

    /// Checks what must hold inside the host between two turns.
    fn check(&mut self, now: Instant) -> Result<(), Broken>;
    /// Checks that nothing is left of any connection.
    fn check_empty(&mut self) -> Result<(), Broken>;
    /// Whether it has something to send and will never do so by itself: a fault of its own.
    fn is_stuck(&mut self, now: Instant) -> bool;
    /// Whether all rules are asked of it, and not only that data arrives.
    fn is_ours(&self) -> bool;
    /// What there is to know about its connections, for a report of a failure.
    fn describe(&mut self, now: Instant) -> String;
}
