//! Kernel memory that moved connections have beyond what any socket may take: their buffers are set by force, to hold what comes with
//! them. One user has no more than its share.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clock::{Duration, Instant};
use control::sock_diag::KernelSocket;

use super::machine::memory_len;
use crate::shares::{Shares, User};

/// The part of the machine's memory that all may have together.
const PART: usize = 8;
/// How often the kernel is asked which of the sockets are closed by now.
const LOOK: Duration = Duration::from_secs(1);

/// Lists the kernel's connections with these local ports.
type List = fn(&[u16]) -> io::Result<Vec<KernelSocket>>;

/// See the module's page.
pub(super) struct KernelMemory {
    pub(super) max: usize,
    shares: Arc<Mutex<Shares>>,
    /// By the sockets' cookies, with their local ports.
    held: BTreeMap<u64, (u16, Reservation)>,
    next_look: Instant,
}

/// Memory of a user's. Dropping it makes room.
pub(super) struct Reservation {
    shares: Arc<Mutex<Shares>>,
    user: User,
    octets: usize,
}

impl KernelMemory {
    pub(super) fn of_this_machine() -> KernelMemory {
        let max = memory_len() / PART;
        KernelMemory { max, shares: Arc::default(), held: BTreeMap::new(), next_look: Instant::ZERO }
    }

    /// So many octets for a connection; `None` if its user has too much already.
    pub(super) fn reserve(
        &mut self,
        user: User,
        octets: usize,
        list: List,
        now: Instant,
    ) -> Option<Reservation> {
        if !lock(&self.shares).have_room(self.max, user, octets) && now >= self.next_look {
            self.next_look = now + LOOK;
            self.forget_closed(list);
        }
        let mut shares = lock(&self.shares);
        if !shares.have_room(self.max, user, octets) {
            return None;
        }
        shares.add(user, octets);
        Some(Reservation { shares: Arc::clone(&self.shares), user, octets })
    }

    /// The socket with this cookie has the memory, until it is closed.
    pub(super) fn hold(&mut self, cookie: u64, local_port: u16, reservation: Reservation) {
        if reservation.octets > 0 {
            self.held.insert(cookie, (local_port, reservation));
        }
    }

    fn forget_closed(&mut self, list: List) {
        let ports: Vec<u16> = self.held.values().map(|(port, _)| *port).collect();
        if let Ok(open) = list(&ports) {
            let open: std::collections::BTreeSet<u64> = open.iter().map(|socket| socket.cookie).collect();
            self.held.retain(|cookie, _| open.contains(cookie));
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        lock(&self.shares).remove(self.user, self.octets);
    }
}

fn lock(shares: &Mutex<Shares>) -> MutexGuard<'_, Shares> {
    shares.lock().unwrap_or_else(PoisonError::into_inner) // Each change is whole.
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing_is_open(_: &[u16]) -> io::Result<Vec<KernelSocket>> {
        Ok(Vec::new())
    }

    fn nobody_knows(_: &[u16]) -> io::Result<Vec<KernelSocket>> {
        Err(io::ErrorKind::Other.into())
    }

    #[test]
    fn a_users_memory_ends_where_the_others_begins_and_comes_back_with_closed_sockets() {
        let mut memory = KernelMemory { max: 100, ..KernelMemory::of_this_machine() };
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let much = 40;
        let first = memory.reserve(1, much, nobody_knows, at(0)).unwrap();
        memory.hold(7, 80, first);
        assert!(memory.reserve(1, much, nobody_knows, at(0)).is_none(), "it has half");
        assert!(memory.reserve(1, 0, nobody_knows, at(0)).is_some(), "most need none");
        let other = memory.reserve(2, much, nobody_knows, at(0)).unwrap();
        assert!(memory.reserve(1, much, nothing_is_open, at(999)).is_none(), "the kernel was asked just now");
        assert!(memory.reserve(1, much, nothing_is_open, at(1000)).is_some());
        assert!(memory.held.is_empty());
        drop(other);
        assert!(lock(&memory.shares).have_room(100, 0, 100));
    }
}
