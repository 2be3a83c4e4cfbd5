//! What a killed broker left, whose place this one has taken.
//!
//! The steering programs are as they were, and so are the queues of clients that have not come back yet, or never will: they are reserved for
//! a while, and after that whoever gets one has to wait until its socket is closed. What was claimed on such a queue stays claimed, by [`KeyState::left`], until
//!
//! - its owner has come back, and had a minute to claim its sockets again. What is drained stays, as there is no socket by which to
//!   claim it, until the owner gives the queue back. What may only have been about to start, when new connections are the kernel's, too, is
//!   told from that when its owner claims it again;
//! - or its owner has ended, or somebody else has the queue.
//!
//! [`KeyState::left`]: super::interface::KeyState::left

use std::net::SocketAddr;

use clock::{Duration, Instant};
use steering::{ClaimTerms, QueueSet, Transport};

use super::interface::{Interface, Key};
use super::{Action, ClientId, LinkNumber, Registry, Shadow};

/// How long queues are reserved for clients that have yet to come back.
const RETURN_MAX: Duration = Duration::from_secs(10);
/// How long a client that has come back may take to claim its sockets again. Connections whose sockets were closed end meanwhile.
const CLAIM_AGAIN_MAX: Duration = Duration::from_secs(60);

/// A queue of a killed broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeftQueue {
    /// Its owner has not come back.
    Away,
    /// It has, and what it does not claim again is forgotten then.
    Back(Instant),
}

impl Registry {
    /// Claims are numbered from here on, and so are epochs: below are those of killed brokers.
    pub fn number_from(&mut self, number: u64) {
        (self.last_claim, self.others_claims) = (number, number);
        self.ports.begin_at(number >> 20); // Some milliseconds of a number in nanoseconds: more than there were epochs.
    }

    /// A killed broker left an interface with these claims, and these queues to its clients.
    pub fn on_left(
        &mut self,
        link: LinkNumber,
        claims: &[(steering::Claim, ClaimTerms)],
        queues: &[u16],
        now: Instant,
    ) {
        let Some(interface) = self.interfaces.get_mut(&link) else { return };
        interface.queues.reserve(queues, now + RETURN_MAX);
        interface.left.extend(queues.iter().map(|queue| (*queue, LeftQueue::Away)));
        let owned: QueueSet = queues.iter().copied().collect();
        for (claim, terms) in claims {
            let key = Key { transport: claim.transport, port: claim.port, local: claim.local };
            let state = interface.keys.entry(key).or_default();
            state.left = QueueSet::from_bits(terms.queues.bits() & owned.bits());
            state.left_drained = if terms.kernel_new { state.left } else { QueueSet::NONE };
            state.left_listening = QueueSet::from_bits(terms.listening.bits() & owned.bits());
            state.told = Some(*terms);
            if key.transport == Transport::Tcp {
                self.ports.restore(key.port, terms.marks);
                if terms.kernel_some {
                    self.ports.note_kernel_connections(key.port, now);
                }
            }
            self.dirty.insert((link, key));
        }
    }

    /// A client has come back to queues that it serves; returns those that are its own again.
    pub fn on_return(
        &mut self,
        client: ClientId,
        link: LinkNumber,
        queues: &[u16],
        now: Instant,
    ) -> Vec<u16> {
        let Some(interface) = self.interfaces.get_mut(&link) else { return Vec::new() };
        let own = interface.queues.take_back(client, queues, now);
        let back = LeftQueue::Back(now + CLAIM_AGAIN_MAX);
        interface.left.extend(own.iter().map(|queue| (*queue, back)));
        if !own.is_empty() && !self.attached.contains(&client) {
            self.attach(client, now);
        }
        own
    }

    /// Queues were lent: nobody else has them any more.
    pub fn on_lent(&mut self, link: LinkNumber, queues: &[u16]) {
        let Some(interface) = self.interfaces.get_mut(&link) else { return };
        let keys = interface.forget_left(queues.iter().copied().collect(), true);
        self.dirty.extend(keys.into_iter().map(|key| (link, key)));
    }

    /// Whether the owner of one of these queues has not come back.
    pub fn is_left(&self, link: LinkNumber, queues: &[u16]) -> bool {
        let Some(interface) = self.interfaces.get(&link) else { return false };
        queues.iter().any(|queue| interface.left.get(queue) == Some(&LeftQueue::Away))
    }

    /// The queues of an interface whose owners have not come back.
    pub fn queues_left(&self, link: LinkNumber) -> Vec<u16> {
        let left = self.interfaces.get(&link).into_iter().flat_map(|interface| &interface.left);
        left.filter(|(_, left)| **left == LeftQueue::Away).map(|(queue, _)| *queue).collect()
    }

    /// The owner of a queue has ended, and never came back.
    pub fn on_left_gone(&mut self, link: LinkNumber, queue: u16) {
        let Some(interface) = self.interfaces.get_mut(&link) else { return };
        interface.queues.free_reserved(queue);
        self.on_lent(link, &[queue]);
        self.actions.push_back(Action::Withdraw { link, queues: vec![queue] });
    }

    /// A client has claimed again what it had on its queues, so it had not drained that.
    pub(super) fn on_claimed_again(&mut self, client: ClientId, shadow: &Shadow) {
        for (&link, interface) in &mut self.interfaces {
            let owned: QueueSet = interface.queues.owned(client).collect();
            for key in shadow.keys_on(&interface.view) {
                let Some(state) = interface.keys.get_mut(&key) else { continue };
                state.left_drained = QueueSet::from_bits(state.left_drained.bits() & !owned.bits());
                self.dirty.insert((link, key));
            }
        }
    }

    /// Whether packets to `local` are this client's by a claim that it cannot make again.
    pub(super) fn has_left(&self, client: ClientId, transport: Transport, local: SocketAddr) -> bool {
        self.interfaces.values().any(|interface| {
            let owned: QueueSet = interface.queues.owned(client).collect();
            interface.keys_of(transport, local.port()).filter(|key| key.local.address == local.ip()).any(
                |key| interface.keys.get(&key).is_some_and(|state| state.left.bits() & owned.bits() != 0),
            )
        })
    }

    /// Whether somebody who had claimed packets to `local` by a killed broker has not come back.
    pub fn has_clients_away(&self, local: SocketAddr) -> bool {
        self.interfaces.iter().any(|(link, interface)| {
            let away: QueueSet = self.queues_left(*link).into_iter().collect();
            let is_left = |key: &Key| {
                let left = interface.keys.get(key).map_or(0, |state| state.left.bits());
                key.local.address == local.ip() && left & away.bits() != 0
            };
            away != QueueSet::NONE && interface.keys_of(Transport::Tcp, local.port()).any(|key| is_left(&key))
        })
    }

    pub(super) fn expire_left(&mut self, now: Instant) {
        for (&link, interface) in &mut self.interfaces {
            let is_over = |it: &LeftQueue| matches!(it, LeftQueue::Back(until) if *until <= now);
            let over = interface.left.iter().filter(|(_, left)| is_over(left)).map(|(queue, _)| *queue);
            let over: QueueSet = over.collect();
            let keys = interface.forget_left(over, false);
            self.dirty.extend(keys.into_iter().map(|key| (link, key)));
        }
    }
}

impl Interface {
    /// Forgets what was claimed on these queues by a killed broker; what was drained, too, if `all`. Returns of which keys that was.
    pub(super) fn forget_left(&mut self, queues: QueueSet, all: bool) -> Vec<Key> {
        if queues.bits() == 0 {
            return Vec::new(); // As almost always; there may be thousands of keys.
        }
        self.left.retain(|queue, _| !queues.contains(*queue));
        let mut changed = Vec::new();
        for (key, state) in &mut self.keys {
            let drained = if all { QueueSet::NONE } else { state.left_drained };
            let kept = state.left.bits() & (!queues.bits() | drained.bits());
            if kept != state.left.bits() {
                state.left = QueueSet::from_bits(kept);
                state.left_drained = QueueSet::from_bits(kept & state.left_drained.bits());
                state.left_listening = QueueSet::from_bits(kept & state.left_listening.bits());
                changed.push(*key);
            }
        }
        changed
    }

    /// When something that a killed broker left is over.
    pub(super) fn left_timeout(&self) -> Option<Instant> {
        let until = |left: &LeftQueue| match left {
            LeftQueue::Back(until) => Some(*until),
            LeftQueue::Away => None,
        };
        self.left.values().filter_map(until).min()
    }
}

#[cfg(test)]
mod tests {
    use steering::{LocalAddress, Marks, VlanTags};

    use super::super::{Bound, Scope, View};
    use super::*;
    use crate::protocol::{ClaimId, Purpose, Refusal};

    const LINK: LinkNumber = 3;

    fn at(secs: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(secs)
    }

    fn key() -> steering::Claim {
        let local = LocalAddress { address: [192, 0, 2, 1].into(), vlan: VlanTags::default() };
        steering::Claim { transport: Transport::Tcp, local, port: 80 }
    }

    fn terms(queues: &[u16], kernel_new: bool, kernel_some: bool) -> ClaimTerms {
        let queues: QueueSet = queues.iter().copied().collect();
        let marks = Marks { table: 3, epoch: 7 };
        ClaimTerms { queues, listening: queues, kernel_new, kernel_some, marks }
    }

    fn listener() -> Shadow {
        let bound = Bound { scope: Scope::Any { v4: true, v6: false }, port: 80, device: None };
        let (transport, purpose) = (Transport::Tcp, Purpose::Listener);
        Shadow { transport, purpose, bound, cookie: 5, owner: 0 }
    }

    /// An interface of two queues, which a killed broker left with these terms of a claim on both.
    fn left(terms: ClaimTerms) -> Registry {
        let mut registry = Registry::default();
        registry.number_from(100);
        let addresses = [key().local].into_iter().collect();
        registry.on_attached(LINK, View { index: 1, queues: 2, addresses, merges_datagrams: false }, at(0));
        registry.on_left(LINK, &[(key(), terms)], &[0, 1], at(0));
        registry
    }

    /// What there is to do; the kernel has connections wherever it is asked.
    fn actions(registry: &mut Registry, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some(action) = registry.poll(now) {
            match action {
                Action::Look { ports } => {
                    let found: Vec<_> = ports.into_iter().map(|port| (port, true)).collect();
                    registry.on_looked(&found, now);
                }
                action => actions.push(action),
            }
        }
        actions
    }

    fn put(terms: ClaimTerms) -> Action {
        Action::PutClaim { link: LINK, claim: key(), terms }
    }

    #[test]
    fn what_is_claimed_again_changes_nothing_for_packets() {
        for before in [terms(&[0, 1], false, false), terms(&[0, 1], false, true)] {
            let mut registry = left(before);
            assert!(actions(&mut registry, at(1)).is_empty());
            let client = registry.add_client();
            assert_eq!(registry.on_return(client, LINK, &[0, 1], at(2)), [0, 1]);
            assert_eq!(registry.claim_again(client, listener(), ClaimId(9)), Ok(ClaimId(9)));
            assert!(actions(&mut registry, at(2)).is_empty());
            assert!(actions(&mut registry, at(63)).is_empty(), "it is claimed, as it was");
            assert_eq!(registry.claim(client, listener()), Ok(ClaimId(101)));
            assert_eq!(registry.claim_again(client, listener(), ClaimId(102)), Err(Refusal::NoSuchClaim));
        }
    }

    #[test]
    fn what_was_about_to_start_goes_on_when_its_owner_claims_it_again() {
        let mut registry = left(terms(&[0, 1], true, true));
        let (first, second) = (registry.add_client(), registry.add_client());
        registry.on_return(first, LINK, &[0], at(1));
        registry.claim_again(first, listener(), ClaimId(9)).unwrap();
        assert!(actions(&mut registry, at(1)).is_empty(), "the other one may have drained it");
        registry.on_return(second, LINK, &[1], at(2));
        registry.claim_again(second, listener(), ClaimId(8)).unwrap();
        assert_eq!(actions(&mut registry, at(2)), [put(terms(&[0, 1], false, true))]);
    }

    #[test]
    fn numbers_of_claims_are_their_clients_own() {
        let mut registry = left(terms(&[0, 1], false, false));
        let (first, second) = (registry.add_client(), registry.add_client());
        for client in [first, second] {
            assert_eq!(registry.claim_again(client, listener(), ClaimId(9)), Ok(ClaimId(9)));
            assert_eq!(registry.claim_again(client, listener(), ClaimId(9)), Err(Refusal::NoSuchClaim));
        }
        assert_eq!(registry.release(first, ClaimId(9)), Ok(()));
        assert_eq!(registry.claims(second).map(|(claim, ..)| claim).collect::<Vec<_>>(), [ClaimId(9)]);
    }

    #[test]
    fn a_queue_whose_owner_has_ended_is_withdrawn_and_the_next_ones_at_once() {
        let mut registry = left(terms(&[0], false, false));
        registry.on_left_gone(LINK, 0);
        let other = registry.add_client();
        registry.attach(other, at(1));
        let done = actions(&mut registry, at(1));
        for action in [
            Action::RemoveClaim { link: LINK, claim: key() },
            Action::Withdraw { link: LINK, queues: vec![0] },
            Action::Lend { client: other, link: LINK, queues: vec![0] },
        ] {
            assert!(done.contains(&action), "{done:?}");
        }
        assert_eq!(registry.queues_left(LINK), [1]);
    }

    #[test]
    fn what_is_not_claimed_again_is_the_kernels_after_a_minute_but_for_what_was_drained() {
        for (is_drained, goes) in
            [(false, vec![Action::RemoveClaim { link: LINK, claim: key() }]), (true, vec![])]
        {
            let mut registry = left(terms(&[0, 1], is_drained, is_drained));
            let client = registry.add_client();
            registry.on_return(client, LINK, &[0, 1], at(0));
            let ours = "192.0.2.1:80".parse().unwrap();
            assert!(actions(&mut registry, at(59)).is_empty());
            assert!(registry.covers(client, Transport::Tcp, ours), "connections can move");
            assert_eq!(registry.poll_timeout().filter(|_| !is_drained), (!is_drained).then_some(at(60)));
            assert_eq!(actions(&mut registry, at(60)), goes);
            assert_eq!(registry.covers(client, Transport::Tcp, ours), is_drained);
            registry.remove_client(client, at(61));
            let removed =
                actions(&mut registry, at(61)).contains(&Action::RemoveClaim { link: LINK, claim: key() });
            assert_eq!(removed, is_drained);
            assert!(registry.interfaces[&LINK].keys.is_empty());
        }
    }

    #[test]
    fn a_queue_whose_owner_stays_away_is_tried_after_ten_seconds_and_its_claims_go_with_it() {
        let mut registry = left(terms(&[0, 1], false, false));
        let (other, returns) = (registry.add_client(), registry.add_client());
        registry.on_return(returns, LINK, &[1], at(1));
        registry.give_back(returns, at(2));
        registry.attach(other, at(2));
        let lend = |queue| Action::Lend { client: other, link: LINK, queues: vec![queue] };
        let done = actions(&mut registry, at(3));
        assert!(done.contains(&put(terms(&[0], false, false))) && done.contains(&lend(1)), "{done:?}");
        assert_eq!((registry.queues_left(LINK), registry.is_left(LINK, &[0])), (vec![0], true));
        assert!(actions(&mut registry, at(9)).is_empty());
        assert_eq!(actions(&mut registry, at(10)), [lend(0)]);
        registry.on_not_lent(LINK, &[0], Duration::from_secs(1), at(10));
        assert!(actions(&mut registry, at(10)).is_empty(), "who has it still gets its packets");
        assert!(registry.on_return(returns, LINK, &[1], at(10)).is_empty(), "another has it by now");
        assert_eq!(actions(&mut registry, at(11)), [lend(0)]);
        registry.on_lent(LINK, &[0]);
        assert_eq!(actions(&mut registry, at(11)), [Action::RemoveClaim { link: LINK, claim: key() }]);
        assert!(registry.queues_left(LINK).is_empty());
    }
}
