//! Connections that wait for `accept` at a closed listener, while no other process with the same listener has claimed it yet.
//!
//! A worker that replaces another one claims the listener when it first waits on it, and sends us nothing before. On a busy
//! machine the other worker may have closed its listener by then.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use clock::{Duration, Instant};
use rustix::net::sockopt::set_socket_linger;

use super::actions::List;
use super::broker::Broker;
use super::helpers::Theirs;
use super::shares::has_room;
use crate::protocol::News;
use crate::registry::ClientId;

/// When to check whether any process has the listener: the one that closed it has it a moment longer.
const LOOK_AFTER: Duration = Duration::from_millis(20);
/// How long they wait.
const PATIENCE: Duration = Duration::from_secs(3);
/// How many wait at most, of which one user has its share: see [`has_room`].
const ORPHANS_MAX: usize = 256;

/// One connection.
pub(super) struct Orphan {
    socket: Theirs,
    local: SocketAddr,
    remote: SocketAddr,
    /// The kernel's numbers of the listeners that it may have waited at.
    listeners: BTreeSet<u64>,
    until: Instant,
    /// When to look whether one of them is still there.
    look_at: Option<Instant>,
}

impl Broker {
    /// Keeps a connection for a client that comes after `from`; returns it if there cannot be one.
    pub(super) fn keep_orphan(
        &mut self,
        from: ClientId,
        socket: Theirs,
        (local, remote): (SocketAddr, SocketAddr),
        now: Instant,
    ) -> Result<(), Theirs> {
        let listeners = self.registry.listeners_at(from, local);
        let users = self.orphans.iter().map(|orphan| orphan.socket.user());
        if listeners.is_empty() || !has_room(ORPHANS_MAX, users, socket.user()) {
            return Err(socket);
        }
        let (until, look_at) = (now + PATIENCE, Some(now + LOOK_AFTER));
        self.orphans.push(Orphan { socket, local, remote, listeners, until, look_at });
        Ok(())
    }

    /// Gives them to the clients that have come, and gives those up for which no client can come.
    pub(super) fn settle_orphans(&mut self, list: List, now: Instant) {
        let alive = self.list_for_orphans(list, now);
        for mut orphan in std::mem::take(&mut self.orphans) {
            let heir = self.registry.claimant(&orphan.listeners, orphan.local);
            if let Some((heir, claim)) = heir.filter(|(heir, _)| self.is_patient(*heir)) {
                let Orphan { socket, local, remote, .. } = orphan;
                self.tell(heir, News::Adopt { claim, local, remote }, vec![socket.into()], now);
                continue;
            }
            let is_time = orphan.look_at.is_some_and(|at| now >= at);
            let is_lost = alive.as_ref().is_some_and(|alive| alive.is_disjoint(&orphan.listeners));
            if now >= orphan.until || is_time && is_lost {
                // As the kernel does with connections that wait at a listener when it is closed.
                orphan.socket.have_done(reset);
                continue;
            }
            orphan.look_at = orphan.look_at.filter(|_| !is_time);
            self.orphans.push(orphan);
        }
    }

    /// The listeners that there are, if it is time to look for some: once for all. If the kernel does not tell, there may be any.
    fn list_for_orphans(&self, list: List, now: Instant) -> Option<BTreeSet<u64>> {
        let is_time = |orphan: &Orphan| orphan.look_at.is_some_and(|at| now >= at);
        let alive = self.orphans.iter().any(is_time).then(list)?.ok()?;
        Some(alive.iter().map(|socket| socket.cookie).collect())
    }

    /// When to look at them though nothing happened.
    pub(super) fn orphans_due(&self) -> Option<Instant> {
        self.orphans.iter().map(|orphan| orphan.look_at.unwrap_or(orphan.until)).min()
    }
}

/// Sets a socket's option under its lock, and closes it: a helper's work.
fn reset(socket: Theirs) {
    let _ = set_socket_linger(&socket, Some(std::time::Duration::ZERO)); // What is no connection any more needs none.
    socket.close();
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::super::tests::broker;
    use super::*;
    use crate::protocol::Purpose;
    use crate::registry::{Bound, Scope, Shadow};

    #[test]
    fn one_users_connections_leave_room_for_those_of_others() {
        let (mut broker, now) = (broker(), Instant::from_nanos(1));
        let (local, remote) = ("192.0.2.1:80".parse().unwrap(), "192.0.2.2:4000".parse().unwrap());
        let from = broker.registry.add_client();
        let bound = Bound { scope: Scope::Any { v4: true, v6: true }, port: 80, device: None };
        let (transport, purpose) = (steering::Transport::Tcp, Purpose::Listener);
        let shadow = Shadow { transport, purpose, bound, cookie: 7, owner: 0, shares_port: false };
        broker.registry.claim(from, shadow).unwrap();
        let mut is_kept = |user| {
            let socket = Theirs::new(std::fs::File::open("/dev/null").unwrap().into(), user, &broker.helpers);
            broker.keep_orphan(from, socket, (local, remote), now).is_ok()
        };
        assert_eq!((0..ORPHANS_MAX).take_while(|_| is_kept(1)).count(), ORPHANS_MAX / 2);
        assert!(is_kept(2));
    }

    #[test]
    fn the_kernel_is_asked_once_for_all_who_wait() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let list: List = || {
            ASKED.fetch_add(1, Relaxed);
            Ok(Vec::new())
        };
        let (mut broker, now) = (broker(), Instant::from_nanos(1));
        let (local, remote) = ("192.0.2.1:80".parse().unwrap(), "192.0.2.2:4000".parse().unwrap());
        for cookie in 0..ORPHANS_MAX as u64 {
            let socket = std::fs::File::open("/dev/null").unwrap().into();
            let socket = Theirs::new(socket, 0, &broker.helpers);
            let (until, look_at) = (now + PATIENCE, Some(now + LOOK_AFTER));
            let listeners = BTreeSet::from([cookie]);
            broker.orphans.push(Orphan { socket, local, remote, listeners, until, look_at });
        }
        broker.settle_orphans(list, now);
        assert_eq!((broker.orphans.len(), ASKED.load(Relaxed)), (ORPHANS_MAX, 0), "it is not time yet");
        broker.settle_orphans(list, now + LOOK_AFTER);
        assert_eq!((broker.orphans.len(), ASKED.load(Relaxed)), (0, 1));
    }
}
