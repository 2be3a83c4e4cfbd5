//! The registry's state of one interface: who has its queues, and the claims on it.

use std::collections::{BTreeMap, BTreeSet};

use clock::{Duration, Instant};
use steering::{Claim, ClaimTerms, LocalAddress, QueueSet, Transport};

use super::claims::Likeness;
use super::left::LeftQueue;
use super::queues::QueueTable;

/// An interface as the registry sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The kernel's number for it.
    pub index: u32,
    /// Its queues.
    pub queues: u16,
    /// Addresses that packets on it may be meant for.
    pub addresses: BTreeSet<LocalAddress>,
    /// Several datagrams may come as one packet, and nothing tells where each ends: what a sender on the same host hands over at once
    /// (UDP_SEGMENT), at an interface whose packets are taken as the kernel's stack would get them.
    pub merges_datagrams: bool,
}

/// How long what is claimed of an address stays claimed after the interface has lost it. One that comes back within this time (a lease, a
/// network that is configured anew) has its connections as before; else their next segments went to the kernel, which would reset them.
const AWAY_MAX: Duration = Duration::from_secs(10);
/// So many addresses are waited for at a time.
const AWAY_COUNT_MAX: usize = 64;

/// An interface that the steering program is attached to.
#[derive(Debug, Default)]
pub(super) struct Interface {
    /// What it has, and the addresses that are away.
    pub(super) view: View,
    /// Addresses that it had, and until when they are waited for. Nothing that begins there is taken.
    pub(super) away: BTreeMap<LocalAddress, Instant>,
    pub(super) queues: QueueTable,
    pub(super) keys: BTreeMap<Key, KeyState>,
    /// Queues of a killed broker: see `left.rs`.
    pub(super) left: BTreeMap<u16, LeftQueue>,
}

/// What the steering program looks up; ordered so that a port's are together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) transport: Transport,
    pub(super) port: u16,
    pub(super) local: LocalAddress,
}

/// The clients that claim a key.
#[derive(Debug)]
pub(super) struct KeyState {
    pub(super) users: BTreeSet<Likeness>,
    /// Queues of its users on which the kernel's own connections are known, so that all others can be taken.
    pub(super) cleared: QueueSet,
    /// Since when new connections are left to the kernel, for those that it has to be known.
    pub(super) marked_at: Option<Instant>,
    /// Queues on which a killed broker's claim still holds, and those of them whose owners may have drained it.
    pub(super) left: QueueSet,
    pub(super) left_drained: QueueSet,
    /// Those of them whose owners listen.
    pub(super) left_listening: QueueSet,
    /// The latest terms in the steering program.
    pub(super) told: Option<ClaimTerms>,
}

impl Default for KeyState {
    fn default() -> KeyState {
        KeyState {
            users: BTreeSet::new(),
            cleared: QueueSet::NONE,
            marked_at: None,
            left: QueueSet::NONE,
            left_drained: QueueSet::NONE,
            left_listening: QueueSet::NONE,
            told: None,
        }
    }
}

impl Key {
    pub(super) fn claim(self) -> Claim {
        Claim { transport: self.transport, local: self.local, port: self.port }
    }
}

impl Interface {
    /// Takes in what the interface has now; whether that changes anything.
    pub(super) fn show(&mut self, mut view: View, now: Instant) -> bool {
        let mut away = self.away.clone();
        for address in self.view.addresses.difference(&view.addresses) {
            if away.len() < AWAY_COUNT_MAX {
                away.entry(*address).or_insert(now + AWAY_MAX);
            }
        }
        away.retain(|address, until| now < *until && !view.addresses.contains(address));
        view.addresses.extend(away.keys());
        let changes = (&view, &away) != (&self.view, &self.away);
        (self.view, self.away) = (view, away);
        changes
    }

    /// Lets go of the addresses that have been away for too long; whether there are such.
    pub(super) fn expire_away(&mut self, now: Instant) -> bool {
        if self.away_timeout().is_none_or(|until| now < until) {
            return false;
        }
        let mut view = self.view.clone();
        view.addresses.retain(|address| !self.away.contains_key(address));
        self.show(view, now)
    }

    /// When an address has been away for too long.
    pub(super) fn away_timeout(&self) -> Option<Instant> {
        self.away.values().min().copied()
    }

    /// The keys of a port.
    pub(super) fn keys_of(&self, transport: Transport, port: u16) -> impl Iterator<Item = Key> + '_ {
        let of_port = move |key: &&Key| (key.transport, key.port) == (transport, port);
        let lowest = LocalAddress { address: [0, 0, 0, 0].into(), vlan: Default::default() };
        let from = Key { transport, port, local: lowest };
        self.keys.range(from..).map(|(key, _)| key).take_while(of_port).copied()
    }
}
