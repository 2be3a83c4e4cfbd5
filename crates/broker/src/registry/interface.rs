//! The registry's state of one interface: who has its queues, and the claims on it.

use std::collections::{BTreeMap, BTreeSet};

use clock::Instant;
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

/// An interface that the steering program is attached to.
#[derive(Debug, Default)]
pub(super) struct Interface {
    pub(super) view: View,
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
    /// The keys of a port.
    pub(super) fn keys_of(&self, transport: Transport, port: u16) -> impl Iterator<Item = Key> + '_ {
        let of_port = move |key: &&Key| (key.transport, key.port) == (transport, port);
        let lowest = LocalAddress { address: [0, 0, 0, 0].into(), vlan: Default::default() };
        let from = Key { transport, port, local: lowest };
        self.keys.range(from..).map(|(key, _)| key).take_while(of_port).copied()
    }
}
