//! A connection between a check and the peer.

use std::os::fd::RawFd;

use crate::peer::{Peer, Slot};
use crate::scene::SOON_MS;
use crate::show::pattern_from;
use crate::sys::{self, Errno, Result};

/// A connection between the program and the peer.
pub(crate) struct Pair {
    /// The program's end.
    pub(crate) fd: RawFd,
    /// The peer.
    pub(crate) peer: Peer,
    /// The peer's end.
    pub(crate) other: Slot,
}

impl Pair {
    /// The peer sends `octets`, which have arrived when this returns.
    pub(crate) fn tell(&mut self, octets: &[u8]) -> Result<()> {
        self.peer.send(self.other, octets)?;
        self.peer.wait_acked(self.other)
    }

    /// What the peer receives, at most `room` octets.
    pub(crate) fn hear(&mut self, room: usize) -> Result<Vec<u8>> {
        self.peer.recv(self.other, room)
    }

    /// Sends the pattern until there is room for nothing, also when all that is on its way has arrived; gives how many octets
    /// went.
    pub(crate) fn fill(&self) -> Result<usize> {
        const PIECE: usize = 20_000;
        const SETTLED_MS: i32 = 100;
        let mut sent = 0;
        loop {
            while let Ok(len) = sys::send(self.fd, &pattern_from(sent, PIECE), libc::MSG_DONTWAIT) {
                sent += len;
            }
            if sys::poll_one(self.fd, libc::POLLOUT, SETTLED_MS)? == 0 {
                return Ok(sent);
            }
        }
    }

    /// Has the peer receive `len` octets of the pattern while this process goes on.
    pub(crate) fn hear_meanwhile(mut self, len: usize) -> Hearing {
        Hearing(std::thread::spawn(move || {
            let heard = self.peer.recv_pattern(self.other, len);
            (self, heard)
        }))
    }

    /// The peer ends its direction, which is known here when this returns.
    pub(crate) fn peer_ends(&mut self) -> Result<()> {
        self.peer.shutdown(self.other, libc::SHUT_WR)?;
        self.peer.wait_acked(self.other)
    }

    /// The peer closes, which is known here when this returns.
    pub(crate) fn peer_closes(&mut self) -> Result<()> {
        self.peer_ends()?;
        self.peer.close(self.other)
    }

    /// The peer resets the connection, which is known here when this returns.
    pub(crate) fn peer_resets(&mut self) -> Result<()> {
        self.peer.reset(self.other)?;
        sys::poll_one(self.fd, 0, SOON_MS).map(drop) // POLLERR and POLLHUP come unasked.
    }
}

/// The peer receives, see [`Pair::hear_meanwhile`].
pub(crate) struct Hearing(std::thread::JoinHandle<(Pair, Result<(usize, bool)>)>);

impl Hearing {
    /// How many octets came, and whether they are the pattern.
    pub(crate) fn wait(self) -> Result<(usize, bool)> {
        self.0.join().map_or(Err(Errno(libc::EIO)), |(_, heard)| heard)
    }
}
