//! Connections that the kernel serves better are left to it.
//!
//! A call that carries little costs less here than on the kernel. Three ways to use a connection cost more:
//!
//! | use | why it costs more here |
//! | --- | --- |
//! | calls that send much | the kernel copies what a program writes once, and a file not at all; here all is copied into the send queue and to the device |
//! | calls that receive much | packets come in single segments, each of which the kernel copies into a frame |
//! | a sleep that another thread ends | one thread sleeps on the devices for all; a packet wakes that one first, and it wakes the thread that waits |
//!
//! A connection tells by what it does which kind it is. Once it has moved [`ENOUGH`] octets by large calls, or has mostly slept until
//! another thread woke it, it moves to the kernel, with all that is queued. Profiles may say that it stays.

use clock::Instant;

use crate::process::State;
use crate::socket::place::Happening;
use crate::socket::{Socket, SocketId};

/// Octets that a large call sends at least.
const LARGE_SENT: usize = 8 << 10;
/// Octets that a large call receives at least: more than two segments of most networks.
const LARGE_RECEIVED: usize = 4 << 10;
/// Octets that a connection moves by large calls before it leaves: leaving asks the broker, and begins with a new congestion window.
const ENOUGH: u32 = 1 << 20;
/// Sleeps of a connection's threads that others end before it leaves.
const WAKES: u32 = 64;

/// How a connection was used, of late.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// By large calls, in both directions.
    octets: u32,
    sleeps: u32,
    /// The sleeps that another thread has ended.
    wakes: u32,
    /// The kernel did not take it: it is not asked again.
    stays: bool,
}

/// Why a connection is better left to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unsuited {
    Bulk,
    Threads,
}

impl Usage {
    fn note_call(&mut self, octets: usize) {
        self.octets = self.octets.saturating_add(u32::try_from(octets).unwrap_or(u32::MAX));
    }

    fn note_sleep(&mut self, by_other: bool) {
        self.sleeps = self.sleeps.saturating_add(1);
        self.wakes = self.wakes.saturating_add(by_other.into());
    }

    fn unsuited(self) -> Option<Unsuited> {
        match self {
            Usage { stays: true, .. } => None,
            Usage { octets: ENOUGH.., .. } => Some(Unsuited::Bulk),
            Usage { wakes: WAKES.., .. } if self.wakes > self.sleeps / 2 => Some(Unsuited::Threads),
            _ => None,
        }
    }
}

impl Socket {
    /// A call that was to send `wanted` octets has sent `sent` of them.
    pub(in crate::socket) fn note_sent(&mut self, wanted: usize, sent: usize) {
        if wanted >= LARGE_SENT {
            self.usage.note_call(sent);
        }
    }

    /// A call has received so many octets.
    pub(in crate::socket) fn note_received(&mut self, received: usize) {
        if received >= LARGE_RECEIVED {
            self.usage.note_call(received);
        }
    }

    /// A call has slept, until another thread woke it or something else ended its sleep.
    pub(crate) fn note_sleep(&mut self, by_other: bool) {
        self.usage.note_sleep(by_other);
    }
}

impl State {
    /// Leaves a connection to the kernel if its use does not suit the stack; whether it has left. One that cannot leave now may after as
    /// much use again.
    pub(in crate::socket) fn leave_if_unsuited(&mut self, id: SocketId, now: Instant) -> bool {
        let Some(socket) = self.sockets.get_mut(id) else { return false };
        let Some(unsuited) = socket.usage.unsuited() else { return false };
        socket.usage = Usage::default();
        // A thread whose call waits knows the connection as it is: it would not find one that the kernel refuses, and that comes back.
        let is_free = socket.callers.is_empty();
        if !is_free || !self.attachment().is_some_and(|it| it.leaves_unsuited()) {
            return false;
        }
        let step = self.step(id, Happening::Unsuited);
        let _ = self.carry_out(id, step, now); // What is lost says so in the call itself.
        let has_left = self.sockets.get(id).is_none();
        match unsuited {
            Unsuited::Bulk => self.left_to_kernel.bulk += u64::from(has_left),
            Unsuited::Threads => self.left_to_kernel.threads += u64::from(has_left),
        }
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.usage.stays = !has_left;
        }
        has_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After `sleeps`, each of which another thread has ended or not.
    fn unsuited_after(sleeps: impl Iterator<Item = bool>) -> Option<Unsuited> {
        let mut usage = Usage::default();
        sleeps.for_each(|by_other| usage.note_sleep(by_other));
        usage.unsuited()
    }

    #[test]
    fn who_is_mostly_woken_by_others_leaves() {
        assert_eq!(unsuited_after((0..WAKES).map(|_| true)), Some(Unsuited::Threads));
        assert_eq!(unsuited_after((1..WAKES).map(|_| true)), None, "not yet");
    }

    #[test]
    fn who_mostly_finds_its_packets_itself_stays() {
        assert_eq!(unsuited_after((0..100 * WAKES).map(|sleep| sleep % 3 == 0)), None);
    }
}
