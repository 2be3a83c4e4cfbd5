//! All claims, found by their numbers and by their ports: there are tens of thousands, and each request asks for some.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use steering::Transport;

use super::{Claim, ClaimKey, ClientId, Shadow};

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct ClaimTable {
    claims: BTreeMap<ClaimKey, Claim>,
    by_port: BTreeMap<(Transport, u16), BTreeSet<ClaimKey>>,
    /// How many are for each socket, by the kernel's number for it.
    by_cookie: BTreeMap<u64, usize>,
}

impl ClaimTable {
    pub(super) fn insert(&mut self, id: ClaimKey, claim: Claim) {
        self.by_port.entry(place_of(&claim)).or_default().insert(id);
        *self.by_cookie.entry(claim.shadow.cookie).or_default() += 1;
        self.claims.insert(id, claim);
    }

    pub(super) fn remove(&mut self, id: ClaimKey) -> Option<Claim> {
        let claim = self.claims.remove(&id)?;
        let count = self.by_cookie.get_mut(&claim.shadow.cookie).expect("every claim is counted");
        *count -= 1;
        if *count == 0 {
            self.by_cookie.remove(&claim.shadow.cookie);
        }
        let place = place_of(&claim);
        let others = self.by_port.get_mut(&place).expect("every claim has its place");
        others.remove(&id);
        if others.is_empty() {
            self.by_port.remove(&place);
        }
        Some(claim)
    }

    pub(super) fn get(&self, id: ClaimKey) -> Option<&Claim> {
        self.claims.get(&id)
    }

    /// Its socket stays where it is bound.
    /// False if it is so already.
    pub(super) fn set_draining(&mut self, id: ClaimKey) -> bool {
        self.claims.get_mut(&id).is_some_and(|claim| !std::mem::replace(&mut claim.draining, true))
    }

    /// Whether anybody has claimed the socket of this number.
    pub(super) fn has_socket(&self, cookie: u64) -> bool {
        self.by_cookie.contains_key(&cookie)
    }

    /// So many from the first after `last` on, in the order of their numbers.
    pub(super) fn behind(
        &self,
        last: Option<ClaimKey>,
        max: usize,
    ) -> impl Iterator<Item = (ClaimKey, &Claim)> + '_ {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        self.claims.range((from, Bound::Unbounded)).take(max).map(|(id, claim)| (*id, claim))
    }

    /// Whether any is of this port.
    pub(super) fn has_port(&self, transport: Transport, port: u16) -> bool {
        self.by_port.contains_key(&(transport, port))
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (ClaimKey, &Claim)> + '_ {
        self.claims.iter().map(|(id, claim)| (*id, claim))
    }

    /// Those of a port, the earliest first.
    pub(super) fn at(
        &self,
        transport: Transport,
        port: u16,
    ) -> impl DoubleEndedIterator<Item = (ClaimKey, &Claim)> + '_ {
        let ids = self.by_port.get(&(transport, port));
        ids.into_iter().flatten().filter_map(|id| Some((*id, self.claims.get(id)?)))
    }

    /// Whether one of these clients has claimed what comes to such a socket, too.
    pub(super) fn is_claimed_alike(&self, shadow: &Shadow, clients: &BTreeSet<ClientId>) -> bool {
        let is_alike = |it: &Claim| !it.draining && it.shadow.bound == shadow.bound;
        let mut others = self.at(shadow.transport, shadow.bound.port);
        others.any(|(_, it)| {
            clients.contains(&it.client) && is_alike(it) && it.shadow.purpose == shadow.purpose
        })
    }

    /// Whether there is any of this kind.
    pub(super) fn has_any(&self, transport: Transport) -> bool {
        self.by_port.range((transport, 0)..=(transport, u16::MAX)).next().is_some()
    }
}

fn place_of(claim: &Claim) -> (Transport, u16) {
    (claim.shadow.transport, claim.shadow.bound.port)
}
