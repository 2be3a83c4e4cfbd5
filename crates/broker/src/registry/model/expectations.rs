//! What must hold in the world, said in the simplest way.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use steering::{ClaimTerms, QueueSet, Transport};

use super::super::ports::MARKING;
use super::super::{LinkNumber, Scope, Shadow};
use super::{LINKS, World};
use crate::protocol::Purpose;

impl World {
    /// A claim takes hold of another queue: connections that the kernel has must be known by now.
    pub(super) fn check_gain(&self, link: LinkNumber, claim: steering::Claim) {
        let end = SocketAddr::new(claim.local.address, claim.port);
        let is_shared = self.claims.iter().any(|(client, id)| {
            self.registry.claims(*client).any(|(own, shadow, _)| {
                own == *id
                    && shadow.transport == Transport::Tcp
                    && shadow.bound.covers(end)
                    && shadow.purpose == Purpose::Listener
            })
        });
        if claim.transport == Transport::Tcp && is_shared {
            assert_eq!(self.looked_at.get(&claim.port), Some(&self.now));
            let since = self.kernel_new_since[&(link, claim)];
            assert!(since + MARKING <= self.now, "SYNs that were passed have no sockets yet");
        }
    }

    /// What the maps are to hold, said in the simplest way.
    fn expected(&self, link: LinkNumber) -> BTreeMap<steering::Claim, QueueSet> {
        let mut expected: BTreeMap<steering::Claim, u64> = BTreeMap::new();
        for (client, claim) in &self.claims {
            let (_, shadow, _) =
                self.registry.claims(*client).find(|(id, ..)| id == claim).expect("it was granted");
            for (own, local) in self.registry.places_of((*claim, *client)) {
                let claim = steering::Claim { transport: shadow.transport, local, port: shadow.bound.port };
                // Connections of an address that is away wait for it, for a while.
                let is_away = !self.addresses[&own].contains(&local);
                if shadow.transport == Transport::Udp && (is_away || self.has_better(shadow, local.address)) {
                    continue;
                }
                let served = self.sockets.iter().filter(|(queue, _)| self.served.contains(queue));
                for ((of, queue), owner) in served {
                    if (own, *of, *owner) == (link, link, *client) {
                        *expected.entry(claim).or_default() |= 1 << queue;
                    }
                }
            }
        }
        expected.into_iter().map(|(claim, bits)| (claim, QueueSet::from_bits(bits))).collect()
    }

    /// Whether datagrams to an address are for another socket, which matches them better.
    fn has_better(&self, shadow: &Shadow, to: IpAddr) -> bool {
        let rank = |shadow: &Shadow| match shadow.bound.scope {
            Scope::One(_) => 2,
            Scope::Any { v4: true, v6: true } if to.is_ipv4() => 0,
            Scope::Any { .. } => 1,
        };
        let end = SocketAddr::new(to, shadow.bound.port);
        let is_better = |other: &Shadow| {
            other.transport == Transport::Udp && other.bound.covers(end) && rank(other) > rank(shadow)
        };
        let clients = self.clients.iter();
        let mut others = clients.flat_map(|client| self.registry.claims(*client));
        others.any(|(_, other, draining)| !draining && is_better(other))
    }

    /// What is claimed when all has settled.
    pub(crate) fn check_settled(&self) {
        for link in LINKS {
            let map = self.maps.get(&link).cloned().unwrap_or_default();
            let held = map.iter().filter(|(claim, terms)| !self.is_kept_for_flows(claim, terms));
            let queues = held.map(|(claim, terms)| (*claim, terms.queues)).collect();
            assert_eq!(self.expected(link), queues, "claims of link {link}");
        }
    }

    /// Whether the claim is in the maps for flows that nobody has yet: it takes nothing.
    fn is_kept_for_flows(&self, claim: &steering::Claim, terms: &ClaimTerms) -> bool {
        terms.queues == QueueSet::NONE && terms.kernel_some && self.is_awaited(claim)
    }

    fn is_awaited(&self, claim: &steering::Claim) -> bool {
        let until = self.awaited_until.get(&claim.port);
        claim.transport == Transport::Tcp && until.is_some_and(|until| self.now < *until)
    }

    /// What must hold at any time.
    pub(crate) fn check(&self) {
        for link in LINKS {
            let map = self.maps.get(&link).cloned().unwrap_or_default();
            let expected = self.expected(link);
            let is_expected =
                |claim, terms| expected.contains_key(claim) || self.is_kept_for_flows(claim, terms);
            assert!(expected.keys().all(|claim| map.contains_key(claim)), "claims of link {link}");
            assert!(map.iter().all(|(claim, terms)| is_expected(claim, terms)), "claims of link {link}");
            for (claim, queues) in expected {
                let terms = map[&claim];
                assert_eq!(terms.queues.bits() & !queues.bits(), 0, "somebody else's queue");
                assert!(terms.queues == queues || terms.kernel_new, "a queue was forgotten");
            }
            for (claim, terms) in &map {
                assert!(!terms.kernel_new || terms.kernel_some, "what passes is found again");
                assert!(!self.is_awaited(claim) || terms.kernel_some, "notes are looked up");
                assert!(claim.transport == Transport::Tcp || !terms.kernel_some);
                let draining = self.claims.iter().any(|(client, id)| {
                    self.registry.claims(*client).any(|(own, shadow, draining)| {
                        own == *id
                            && draining
                            && shadow.transport == claim.transport
                            && shadow.bound.covers(SocketAddr::new(claim.local.address, claim.port))
                            && shadow.purpose != Purpose::Udp
                    })
                });
                let takes_none = terms.kernel_new || self.is_kept_for_flows(claim, terms);
                assert!(!draining || takes_none, "a drained claim takes no new connections");
            }
        }
        for ((link, queue), client) in &self.sockets {
            assert!(self.clients.contains(client), "queue {queue} of link {link} is a dead client's");
            let served = self.registry.queues_of(*client, *link).contains(*queue);
            assert_eq!(served, self.served.contains(&(*link, *queue)));
        }
    }
}
