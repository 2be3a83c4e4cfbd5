//! Who has which queue of an interface.

use std::collections::{BTreeMap, BTreeSet};

use clock::{Duration, Instant};
use steering::QueueSet;

use super::{ClientId, Identity};
use crate::protocol::QUEUES_MAX;

/// How long after the last process that asked the rest of the queues is dealt out: workers of one program ask at about the same
/// time.
const SETTLING: Duration = Duration::from_millis(100);
/// How long a queue that was released waits for a new process before it goes to one that has others: a worker that ended is
/// replaced.
const SUCCESSION: Duration = Duration::from_secs(1);

/// The queues of one interface. One number belongs to one client at a time. Where processes share queues, each queue has several numbers: its
/// own, and some from the highest downwards.
#[derive(Debug)]
pub(super) struct QueueTable {
    count: u16,
    /// Numbers of each queue: 1 where one process has it alone.
    places: u16,
    /// Only clients of one identity share a queue, and those that have none do not.
    identities: BTreeMap<ClientId, Identity>,
    owners: BTreeMap<u16, ClientId>,
    /// The queues of these numbers: they stay what they were when the interface has other queues.
    queues: BTreeMap<u16, u16>,
    /// Queues that their owners serve; the others are on their way.
    ready: QueueSet,
    /// The listeners that the last owners of queues had, by the kernel's numbers.
    bequeathed: BTreeMap<u16, BTreeSet<u64>>,
    /// Queues that could not be lent, and when to try again.
    blocked: BTreeMap<u16, Instant>,
    /// Queues that must be lent to their owners again.
    anew: BTreeSet<u16>,
    /// The clients that want queues, in the order in which they asked.
    attached: Vec<ClientId>,
    /// Clients that make connections: the answers may come by any queue.
    connecting: BTreeSet<ClientId>,
    /// Clients that may need more of the queues that others have than they needed before.
    unsure: BTreeSet<ClientId>,
    /// Before this time, no client gets more than one.
    settled_at: Instant,
}

/// What tells who needs a queue.
pub(super) struct Needs<'a> {
    /// Whether a client has one of these listeners.
    pub(super) listens: &'a dyn Fn(ClientId, &BTreeSet<u64>) -> bool,
    /// Whether a client has claimed what none of these others has: if it comes by their queue, nobody receives it.
    pub(super) misses: &'a dyn Fn(ClientId, &BTreeSet<ClientId>) -> bool,
}

impl Default for QueueTable {
    fn default() -> QueueTable {
        QueueTable {
            count: 0,
            places: 1,
            identities: BTreeMap::new(),
            owners: BTreeMap::new(),
            queues: BTreeMap::new(),
            ready: QueueSet::NONE,
            bequeathed: BTreeMap::new(),
            blocked: BTreeMap::new(),
            anew: BTreeSet::new(),
            attached: Vec::new(),
            connecting: BTreeSet::new(),
            unsure: BTreeSet::new(),
            settled_at: Instant::ZERO,
        }
    }
}

impl QueueTable {
    /// The interface has this many queues now.
    pub(super) fn set_count(&mut self, count: u16) {
        self.count = count;
        self.doubt();
    }

    /// So many processes can have each queue from now on. Those that have one keep it.
    pub(super) fn set_places(&mut self, places: u16) {
        self.places = places.max(1);
        self.doubt();
    }

    /// `client` has claimed something new.
    pub(super) fn on_claimed(&mut self, client: ClientId) {
        self.unsure.insert(client);
    }

    /// `client` makes a connection.
    pub(super) fn on_connecting(&mut self, client: ClientId) {
        if self.connecting.insert(client) {
            self.unsure.insert(client);
        }
    }

    /// Everybody may need more than before.
    fn doubt(&mut self) {
        self.unsure.extend(self.owners.values());
    }

    /// With whom a client may share a queue: with nobody unless this is said.
    pub(super) fn set_identity(&mut self, client: ClientId, identity: Option<Identity>) {
        match identity {
            Some(identity) => self.identities.insert(client, identity),
            None => self.identities.remove(&client),
        };
    }

    /// The queue that several processes can have, one of them by this number; `None` if it is one process's.
    pub(super) fn shared_queue(&self, number: u16) -> Option<u16> {
        let queue = self.queue_of(number);
        let has_sharers = || self.queues.iter().any(|(other, of)| *of == queue && *other != queue);
        (self.places > 1 || number >= self.count || has_sharers()).then_some(queue)
    }

    /// The queue that a number is of.
    pub(super) fn queue_of(&self, number: u16) -> u16 {
        match self.queues.get(&number) {
            Some(queue) => *queue,
            None if number < self.count || number >= QUEUES_MAX => number,
            None => (QUEUES_MAX - 1 - number) % self.count.max(1),
        }
    }

    /// A client has a queue by this number.
    fn give(&mut self, number: u16, client: ClientId) {
        self.queues.insert(number, self.queue_of(number));
        self.owners.insert(number, client);
        self.unsure.insert(client);
    }

    /// Numbers without an owner are what the interface's queues make them.
    fn forget_queues(&mut self) {
        self.queues.retain(|number, _| self.owners.contains_key(number));
    }

    /// All numbers of the queue that a number is of, if it is shared; else this one.
    pub(super) fn numbers_beside(&self, number: u16) -> Vec<u16> {
        let Some(queue) = self.shared_queue(number) else { return vec![number] };
        let given = self.queues.iter().filter(|(_, of)| **of == queue).map(|(number, _)| *number);
        let numbers: BTreeSet<u16> =
            [queue].into_iter().chain(self.other_numbers(queue)).chain(given).collect();
        numbers.into_iter().filter(|number| self.queue_of(*number) == queue).collect()
    }

    /// The numbers of a queue besides its own, as the interface is now.
    fn other_numbers(&self, queue: u16) -> impl Iterator<Item = u16> + use<> {
        let (count, places) = (u32::from(self.count), u32::from(self.places));
        let distances = (0..places.saturating_sub(1)).map(move |place| place * count + u32::from(queue));
        let numbers = distances.filter_map(|distance| u32::from(QUEUES_MAX - 1).checked_sub(distance));
        numbers.filter(move |number| *number >= count).map(|number| number as u16)
    }

    /// Those who have a queue by any of its numbers.
    fn owners_of(&self, queue: u16) -> impl Iterator<Item = ClientId> + '_ {
        let of_queue = move |(number, _): &(&u16, &ClientId)| self.queue_of(**number) == queue;
        self.owners.iter().filter(of_queue).map(|(_, owner)| *owner)
    }

    /// Whether a client may have a queue with those who have it: they see each other's packets.
    fn may_join(&self, client: ClientId, queue: u16) -> bool {
        let own = self.identities.get(&client);
        let is_alike = |owner: ClientId| own.is_some() && self.identities.get(&owner) == own;
        self.owners_of(queue).all(|owner| owner == client || is_alike(owner))
    }

    /// Whether a client may be given a queue that has no owner by its own number: not if it shares it already.
    fn may_get(&self, client: ClientId, queue: u16) -> bool {
        self.may_join(client, queue) && !self.owners_of(queue).any(|owner| owner == client)
    }

    /// Whether a client that has no queue could not share one with those who have them.
    pub(super) fn is_kept_apart(&self, client: ClientId) -> bool {
        self.places > 1 && !(0..self.count.min(QUEUES_MAX)).any(|queue| self.may_join(client, queue))
    }

    /// `client` wants queues, now and later.
    pub(super) fn attach(&mut self, client: ClientId, now: Instant) {
        if !self.attached.contains(&client) {
            self.attached.push(client);
            self.settled_at = self.settled_at.max(now + SETTLING);
        }
    }

    /// Nobody gets a queue any more, until somebody asks.
    pub(super) fn refuse_all(&mut self) {
        self.attached.clear();
    }

    /// `client` gets the rest of the queues now if nobody else wants any.
    pub(super) fn settle(&mut self, client: ClientId, now: Instant) {
        if self.attached == [client] {
            self.settled_at = self.settled_at.min(now);
        }
    }

    /// Queues that clients of a killed broker have: nobody else gets them before this time.
    pub(super) fn reserve(&mut self, queues: &[u16], until: Instant) {
        self.blocked.extend(queues.iter().map(|queue| (*queue, until)));
    }

    /// Such a queue is anybody's.
    pub(super) fn free_reserved(&mut self, queue: u16) {
        self.blocked.remove(&queue);
    }

    /// `client` has these, and serves them, by a killed broker; returns those of which nobody else is the owner by now.
    pub(super) fn take_back(&mut self, client: ClientId, queues: &[u16], now: Instant) -> Vec<u16> {
        let limit = if self.places > 1 { QUEUES_MAX } else { self.count.min(QUEUES_MAX) };
        let is_free = |queue: &&u16| **queue < limit && !self.owners.contains_key(queue);
        let own: Vec<u16> = queues.iter().filter(is_free).copied().collect();
        for &queue in &own {
            self.give(queue, client);
            self.blocked.remove(&queue);
        }
        if !own.is_empty() {
            self.on_ready(client, &own);
            self.attach(client, now);
        }
        own
    }

    /// `client`, which had these listeners, wants no more queues; returns what was its own.
    pub(super) fn detach(&mut self, client: ClientId, listeners: &BTreeSet<u64>, now: Instant) -> Vec<u16> {
        self.attached.retain(|other| *other != client);
        self.connecting.remove(&client);
        let released: Vec<u16> = self.owned(client).collect();
        self.owners.retain(|queue, _| !released.contains(queue));
        self.forget_queues();
        self.ready = without(self.ready, &released);
        self.anew.retain(|queue| !released.contains(queue));
        self.bequeathed.extend(released.iter().map(|queue| (*queue, listeners.clone())));
        if !released.is_empty() {
            self.settled_at = self.settled_at.max(now + SUCCESSION);
            self.doubt();
        }
        released
    }

    /// All queues are gone with the interface; returns their owners. Clients that wanted queues still do.
    pub(super) fn clear(&mut self) -> BTreeSet<ClientId> {
        self.blocked.clear();
        self.anew.clear();
        self.bequeathed.clear();
        self.ready = QueueSet::NONE;
        self.queues.clear();
        std::mem::take(&mut self.owners).into_values().collect()
    }

    /// All queues are to be lent again, each to its owner, which counts as serving it meanwhile; returns whose they are.
    pub(super) fn reopen(&mut self) -> BTreeMap<ClientId, Vec<u16>> {
        self.anew.extend(self.owners.keys());
        let mut owned: BTreeMap<ClientId, Vec<u16>> = BTreeMap::new();
        self.owners.iter().for_each(|(queue, owner)| owned.entry(*owner).or_default().push(*queue));
        owned
    }

    /// `client` serves these of its queues.
    pub(super) fn on_ready(&mut self, client: ClientId, queues: &[u16]) {
        let ready: QueueSet = self.owned(client).filter(|queue| queues.contains(queue)).collect();
        self.ready = QueueSet::from_bits(self.ready.bits() | ready.bits());
    }

    /// These queues, dealt out just now, could not be lent, and are tried again at `until`. Those that their owners have served
    /// before stay theirs.
    pub(super) fn block(&mut self, queues: &[u16], until: Instant) {
        for &queue in queues {
            if self.ready.contains(queue) {
                self.anew.insert(queue);
            } else {
                self.owners.remove(&queue);
            }
            self.blocked.insert(queue, until);
        }
        self.forget_queues();
    }

    /// Deals out again what is to be opened anew, to its owners; and what is free: to each client without a queue one, in the order in
    /// which they asked, but first to who listens where the queue's last owner did; once that has settled, the rest to those who have
    /// the fewest. Who has none then shares one, if it may, and who needs others shares those.
    pub(super) fn deal(&mut self, needs: &Needs<'_>, now: Instant) -> Vec<(ClientId, Vec<u16>)> {
        let blocked = self.blocked.len();
        self.blocked.retain(|_, until| *until > now);
        if self.blocked.len() < blocked {
            self.doubt();
        }
        let mut dealt = self.due_anew();
        for queue in self.free() {
            let successor = self
                .bequeathed
                .get(&queue)
                .and_then(|listeners| self.without_queue().find(|client| (needs.listens)(*client, listeners)))
                .filter(|client| self.may_join(*client, queue));
            let Some(client) = successor.or_else(|| self.next_owner(queue, now)) else { continue };
            self.give(queue, client);
            dealt.push((client, queue));
        }
        for client in self.without_queue().collect::<Vec<_>>() {
            let Some(number) = self.place_beside_others(client) else { continue };
            self.give(number, client);
            dealt.push((client, number));
        }
        if now >= self.settled_at {
            dealt.extend(self.deal_needed(needs));
        }
        let mut lots: BTreeMap<ClientId, Vec<u16>> = BTreeMap::new();
        dealt.into_iter().for_each(|(client, number)| lots.entry(client).or_default().push(number));
        lots.into_iter().collect()
    }

    /// What is to be lent to its owner again, and can be by now.
    fn due_anew(&mut self) -> Vec<(ClientId, u16)> {
        let anew = std::mem::take(&mut self.anew).into_iter();
        let (due, waits): (Vec<u16>, Vec<u16>) = anew.partition(|queue| !self.blocked.contains_key(queue));
        self.anew.extend(waits);
        due.into_iter().filter_map(|queue| Some((*self.owners.get(&queue)?, queue))).collect()
    }

    /// Places on the queues that a client needs besides its own. Half of the places of each are kept for those who have no queue.
    fn deal_needed(&mut self, needs: &Needs<'_>) -> Vec<(ClientId, u16)> {
        let mut dealt = Vec::new();
        for client in std::mem::take(&mut self.unsure) {
            for (number, others) in self.more_for(client) {
                if self.connecting.contains(&client) || (needs.misses)(client, &others) {
                    self.give(number, client);
                    dealt.push((client, number));
                }
            }
        }
        self.unsure.clear(); // What somebody was given is what he needs.
        dealt
    }

    /// By which number a client that has a queue can share each other one, and with whom.
    fn more_for(&self, client: ClientId) -> Vec<(u16, BTreeSet<ClientId>)> {
        let has_one = self.owned(client).next().is_some();
        let queues = (0..self.count.min(QUEUES_MAX)).filter(|queue| has_one && self.may_get(client, *queue));
        let shared = queues.filter_map(|queue| {
            let others: BTreeSet<ClientId> = self.owners_of(queue).collect();
            let has_room = !others.is_empty() && others.len() < usize::from(self.places / 2);
            Some((has_room.then(|| self.free_number(queue))??, others))
        });
        shared.collect()
    }

    /// The number by which a client can share a queue: that of the fewest.
    fn place_beside_others(&self, client: ClientId) -> Option<u16> {
        let places = (0..self.count.min(QUEUES_MAX)).filter_map(|queue| {
            let others = self.owners_of(queue).count();
            let may_join = others > 0 && self.may_join(client, queue);
            let number = may_join.then(|| self.free_number(queue))??;
            Some((others, number))
        });
        places.min_by_key(|(others, _)| *others).map(|(_, number)| number)
    }

    /// A number of a queue besides its own that nobody has.
    fn free_number(&self, queue: u16) -> Option<u16> {
        let is_free = |number: &u16| !self.owners.contains_key(number) && !self.blocked.contains_key(number);
        self.other_numbers(queue).find(is_free)
    }

    fn free(&self) -> Vec<u16> {
        let usable = 0..self.count.min(QUEUES_MAX);
        let is_free = |queue: &u16| !self.owners.contains_key(queue) && !self.blocked.contains_key(queue);
        usable.filter(is_free).collect()
    }

    /// The clients that want a queue and have none.
    fn without_queue(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.attached.iter().copied().filter(|client| self.owned(*client).next().is_none())
    }

    /// The client that gets this queue, if it is reserved for none.
    fn next_owner(&self, queue: u16, now: Instant) -> Option<ClientId> {
        let candidates = self.attached.iter().copied().filter(|client| self.may_get(*client, queue));
        let poorest = candidates.min_by_key(|client| self.owned(*client).count())?;
        (self.owned(poorest).next().is_none() || now >= self.settled_at).then_some(poorest)
    }

    /// The queues of `client`.
    pub(super) fn owned(&self, client: ClientId) -> impl Iterator<Item = u16> + '_ {
        self.owners.iter().filter(move |(_, owner)| **owner == client).map(|(queue, _)| *queue)
    }

    /// How many queues have an owner.
    pub(super) fn taken(&self) -> u16 {
        let taken: BTreeSet<u16> = self.owners.keys().map(|number| self.queue_of(*number)).collect();
        taken.len() as u16 // At most QUEUES_MAX.
    }

    /// The queues that `client` serves.
    pub(super) fn served_by(&self, client: ClientId) -> QueueSet {
        self.owned(client).filter(|queue| self.ready.contains(*queue)).collect()
    }

    /// Whether whatever arrives arrives at `client`.
    pub(super) fn is_whole(&self, client: ClientId) -> bool {
        self.count > 0 && (0..self.count).all(|queue| self.owners_of(queue).any(|owner| owner == client))
    }

    /// Whether any client has asked for queues.
    #[cfg(test)]
    pub(super) fn is_wanted(&self) -> bool {
        !self.attached.is_empty()
    }

    /// When to deal again though nothing happened.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let unblocked = self.blocked.values().min().copied();
        let waits = self.free().iter().any(|queue| self.attached.iter().any(|it| self.may_get(*it, *queue)));
        let are_unsure = self.unsure.iter().any(|client| !self.more_for(*client).is_empty());
        let settled = (waits || are_unsure).then_some(self.settled_at);
        unblocked.into_iter().chain(settled).min()
    }
}

fn without(set: QueueSet, queues: &[u16]) -> QueueSet {
    let gone: QueueSet = queues.iter().copied().collect();
    QueueSet::from_bits(set.bits() & !gone.bits())
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClientId = ClientId(1);
    const B: ClientId = ClientId(2);
    const C: ClientId = ClientId(3);

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    /// No client has claimed anything.
    const NOTHING: Needs<'static> = Needs { listens: &|_, _| false, misses: &|_, _| false };

    fn table(count: u16) -> QueueTable {
        let mut table = QueueTable::default();
        table.set_count(count);
        table
    }

    #[test]
    fn the_first_gets_one_at_once_and_the_rest_when_nobody_else_asked() {
        let mut table = table(3);
        table.attach(A, at(0));
        assert_eq!(table.deal(&NOTHING, at(0)), [(A, vec![0])]);
        assert_eq!(table.deal(&NOTHING, at(99)), []);
        assert_eq!(table.poll_timeout(), Some(at(100)));
        assert_eq!(table.deal(&NOTHING, at(100)), [(A, vec![1, 2])]);
        assert_eq!(table.poll_timeout(), None);
        assert!(table.is_whole(A));
    }

    #[test]
    fn workers_share_evenly() {
        let mut table = table(5);
        table.attach(A, at(0));
        assert_eq!(table.deal(&NOTHING, at(0)), [(A, vec![0])]);
        table.attach(B, at(50));
        assert_eq!(table.deal(&NOTHING, at(50)), [(B, vec![1])]);
        assert_eq!(table.deal(&NOTHING, at(149)), []);
        assert_eq!(table.deal(&NOTHING, at(150)), [(A, vec![2, 4]), (B, vec![3])]);
    }

    #[test]
    fn who_waits_gets_what_is_released() {
        let mut table = table(1);
        table.attach(A, at(0));
        table.attach(B, at(0));
        assert_eq!(table.deal(&NOTHING, at(0)), [(A, vec![0])]);
        assert_eq!(table.deal(&NOTHING, at(500)), []);
        assert_eq!(table.detach(A, &BTreeSet::new(), at(600)), [0]);
        assert_eq!(table.deal(&NOTHING, at(600)), [(B, vec![0])]);
    }

    #[test]
    fn who_listens_where_the_last_owner_did_goes_before_those_who_asked_earlier() {
        let mut table = table(1);
        let needs = Needs {
            listens: &|client, listeners: &BTreeSet<u64>| client == C && listeners.contains(&7),
            ..NOTHING
        };
        [A, B, C].into_iter().for_each(|client| table.attach(client, at(0)));
        assert_eq!(table.deal(&needs, at(0)), [(A, vec![0])]);
        table.detach(A, &BTreeSet::from([7]), at(10));
        assert_eq!(table.deal(&needs, at(10)), [(C, vec![0])]);
        table.block(&[0], at(15));
        assert_eq!(table.deal(&needs, at(15)), [(C, vec![0])], "its last socket was not gone yet");
        table.detach(C, &BTreeSet::from([8]), at(20));
        assert_eq!(table.deal(&needs, at(20)), [(B, vec![0])], "nobody has that one");
    }

    #[test]
    fn what_is_released_waits_a_second_for_a_successor() {
        let mut table = table(2);
        table.attach(A, at(0));
        table.attach(B, at(0));
        table.deal(&NOTHING, at(0));
        table.detach(A, &BTreeSet::new(), at(1000));
        assert_eq!(table.deal(&NOTHING, at(1999)), []);
        let mut succeeded = table;
        assert_eq!(succeeded.poll_timeout(), Some(at(2000)));
        succeeded.attach(C, at(1999));
        assert_eq!(succeeded.deal(&NOTHING, at(1999)), [(C, vec![0])]);
    }

    #[test]
    fn a_blocked_queue_is_tried_again() {
        let mut table = table(1);
        table.attach(A, at(0));
        table.deal(&NOTHING, at(0));
        table.block(&[0], at(50));
        assert_eq!(table.deal(&NOTHING, at(49)), []);
        assert_eq!(table.poll_timeout(), Some(at(50)));
        assert_eq!(table.deal(&NOTHING, at(50)), [(A, vec![0])]);
    }

    #[test]
    fn what_is_opened_anew_goes_to_who_has_it_as_soon_as_it_can_be_lent() {
        let mut table = table(3);
        [A, B].into_iter().for_each(|client| table.attach(client, at(0)));
        assert_eq!(table.deal(&NOTHING, at(100)), [(A, vec![0, 2]), (B, vec![1])]);
        table.on_ready(A, &[0, 2]);
        table.on_ready(B, &[1]);
        table.detach(A, &BTreeSet::new(), at(200));
        table.attach(C, at(200));
        assert_eq!(table.deal(&NOTHING, at(200)), [(C, vec![0])]);
        table.on_ready(C, &[0]);
        assert_eq!(table.reopen(), BTreeMap::from([(B, vec![1]), (C, vec![0])]));
        assert_eq!(table.deal(&NOTHING, at(300)), [(B, vec![1]), (C, vec![0])]);
        table.block(&[1], at(320));
        assert!(table.served_by(B).contains(1));
        assert_eq!(table.deal(&NOTHING, at(319)), []);
        assert_eq!(table.poll_timeout(), Some(at(320)));
        assert_eq!(table.deal(&NOTHING, at(320)), [(B, vec![1])]);
        table.reopen();
        table.detach(B, &BTreeSet::new(), at(400));
        assert_eq!(table.deal(&NOTHING, at(400)), [(C, vec![0])], "who has gone gets nothing");
    }

    /// A table of so many queues that eight processes of one user can share each.
    fn shareable(count: u16) -> QueueTable {
        let mut table = table(count);
        table.set_places(8);
        (1..=9).for_each(|client| table.set_identity(ClientId(client), identity(0)));
        table
    }

    fn identity(user: u32) -> Option<Identity> {
        Some(Identity { user, group: 100 })
    }

    #[test]
    fn who_finds_no_queue_free_shares_one_at_once() {
        let mut table = shareable(1);
        [A, B, C].into_iter().for_each(|client| table.attach(client, at(0)));
        assert_eq!(table.deal(&NOTHING, at(0)), [(A, vec![0]), (B, vec![63]), (C, vec![62])]);
        assert_eq!([0, 63, 62].map(|number| table.shared_queue(number)), [Some(0); 3]);
        assert!([A, B, C].into_iter().all(|client| table.is_whole(client)), "each gets all that is its own");
        assert_eq!((table.taken(), table.poll_timeout()), (1, None));
        table.detach(B, &BTreeSet::new(), at(1));
        table.attach(B, at(2));
        assert_eq!(table.deal(&NOTHING, at(2)), [(B, vec![63])]);
    }

    #[test]
    fn sharers_spread_over_the_queues_and_get_no_more_than_they_need() {
        let mut table = shareable(2);
        let clients: Vec<ClientId> = (1..=5).map(ClientId).collect();
        clients.iter().for_each(|client| table.attach(*client, at(0)));
        let dealt: Vec<Vec<u16>> =
            table.deal(&NOTHING, at(0)).into_iter().map(|(_, numbers)| numbers).collect();
        assert_eq!(dealt, [[0], [1], [63], [62], [61]]);
        assert_eq!([63, 62, 61].map(|number| table.queue_of(number)), [0, 1, 0]);
        assert!(!table.is_whole(A), "nobody needs another");
        assert_eq!(table.deal(&NOTHING, at(1000)), []);
    }

    #[test]
    fn who_has_claimed_what_others_have_not_gets_a_place_on_each_queue() {
        let mut table = shareable(2);
        let misses_all = Needs { misses: &|client, _| client == A, ..NOTHING };
        [A, B].into_iter().for_each(|client| table.attach(client, at(0)));
        assert_eq!(table.deal(&misses_all, at(0)), [(A, vec![0]), (B, vec![1])]);
        assert_eq!(table.poll_timeout(), Some(at(100)), "others may be about to claim the same");
        assert_eq!(table.deal(&misses_all, at(100)), [(A, vec![62])]);
        assert_eq!((table.queue_of(62), table.is_whole(A), table.is_whole(B)), (1, true, false));
        assert_eq!(table.poll_timeout(), None);
        let both = Needs { misses: &|_, _| true, ..NOTHING };
        assert_eq!(table.deal(&both, at(200)), [], "nobody has claimed anything since");
        table.on_claimed(B);
        assert_eq!(table.deal(&both, at(200)), [(B, vec![63])]);
    }

    #[test]
    fn who_connects_gets_a_place_on_each_queue() {
        let mut table = shareable(3);
        [A, B].into_iter().for_each(|client| table.attach(client, at(0)));
        table.deal(&NOTHING, at(0));
        assert_eq!(table.deal(&NOTHING, at(100)), [(A, vec![2])]);
        table.on_connecting(B);
        assert_eq!(table.deal(&NOTHING, at(101)), [(B, vec![63, 61])]);
        assert!(table.is_whole(B) && !table.is_whole(A));
        table.detach(A, &BTreeSet::new(), at(200));
        assert_eq!(table.deal(&NOTHING, at(1200)), [], "it has them all");
    }

    #[test]
    fn half_of_the_places_are_kept_for_those_who_have_none() {
        let mut table = shareable(2);
        let both = Needs { misses: &|_, _| true, ..NOTHING };
        (1..=6).for_each(|client| table.attach(ClientId(client), at(0)));
        let owners = |table: &QueueTable| [0, 1].map(|queue| table.owners_of(queue).count());
        table.deal(&both, at(0));
        assert_eq!(owners(&table), [3, 3]);
        table.deal(&both, at(100));
        assert_eq!(owners(&table), [4, 4]);
        (7..=9).for_each(|client| table.attach(ClientId(client), at(200)));
        table.deal(&both, at(200));
        assert_eq!(owners(&table), [6, 5]);
    }

    #[test]
    fn who_needs_a_queue_that_cannot_be_lent_gets_it_later() {
        let mut table = shareable(2);
        let both = Needs { misses: &|client, _| client == B, ..NOTHING };
        [A, B].into_iter().for_each(|client| table.attach(client, at(0)));
        table.deal(&both, at(0));
        assert_eq!(table.deal(&both, at(100)), [(B, vec![63])]);
        table.block(&[63], at(120));
        assert_eq!(table.deal(&both, at(110)), []);
        assert_eq!(table.poll_timeout(), Some(at(120)));
        assert_eq!(table.deal(&both, at(120)), [(B, vec![63])]);
    }

    #[test]
    fn there_are_so_many_places_and_then_who_comes_waits() {
        let mut table = shareable(1);
        (1..=9).for_each(|client| table.attach(ClientId(client), at(0)));
        let dealt = table.deal(&NOTHING, at(0));
        assert_eq!(dealt.len(), 8);
        assert_eq!(table.deal(&NOTHING, at(1000)), []);
        assert_eq!(table.poll_timeout(), None);
        table.detach(ClientId(3), &BTreeSet::new(), at(1001));
        assert_eq!(table.deal(&NOTHING, at(1001)), [(ClientId(9), vec![62])]);
    }

    #[test]
    fn users_do_not_share() {
        let mut table = shareable(1);
        table.set_identity(B, identity(1000));
        [A, B, C].into_iter().for_each(|client| table.attach(client, at(0)));
        assert_eq!(table.deal(&NOTHING, at(0)), [(A, vec![0]), (C, vec![63])]);
        assert!(table.is_kept_apart(B) && !table.is_kept_apart(C));
        table.detach(A, &BTreeSet::new(), at(1));
        assert_eq!(table.deal(&NOTHING, at(5000)), [], "it has the queue already");
        assert_eq!(table.poll_timeout(), None);
        table.detach(C, &BTreeSet::new(), at(6000));
        assert_eq!(table.deal(&NOTHING, at(6000)), [(B, vec![0])]);
    }

    #[test]
    fn who_has_no_identity_shares_with_nobody() {
        let mut table = shareable(1);
        [A, B].into_iter().for_each(|client| table.set_identity(client, None));
        [A, B, C].into_iter().for_each(|client| table.attach(client, at(0)));
        assert_eq!(table.deal(&NOTHING, at(0)), [(A, vec![0])]);
        assert!(table.is_kept_apart(B) && table.is_kept_apart(C));
        table.detach(A, &BTreeSet::new(), at(1));
        table.set_identity(B, identity(0));
        assert_eq!(
            table.deal(&NOTHING, at(1)),
            [(B, vec![0]), (C, vec![63])],
            "it is an ordinary user's by now"
        );
    }

    #[test]
    fn numbers_stay_those_of_their_queues_when_the_interface_has_others() {
        let mut table = shareable(1);
        [A, B, C].into_iter().for_each(|client| table.attach(client, at(0)));
        table.deal(&NOTHING, at(0));
        table.set_count(2);
        assert_eq!([0, 63, 62].map(|number| table.queue_of(number)), [0; 3]);
        assert!(![A, B, C].into_iter().any(|client| table.is_whole(client)), "nobody has queue 1");
        let beside = QueueSet::from_iter(table.numbers_beside(62));
        assert!([0, 62, 63].into_iter().all(|number| beside.contains(number)) && !beside.contains(1));
        table.set_places(1);
        assert_eq!(table.shared_queue(0), Some(0), "as enough queues are no reason to end what is shared");
        table.detach(C, &BTreeSet::new(), at(1));
        table.set_places(8);
        assert_eq!(table.queue_of(62), 1, "it is nobody's");
        let mut fewer = shareable(2);
        [A, B].into_iter().for_each(|client| fewer.attach(client, at(0)));
        fewer.deal(&NOTHING, at(0));
        fewer.set_count(1);
        assert_eq!(fewer.queue_of(1), 1);
    }

    #[test]
    fn a_queue_that_cannot_be_lent_is_not_tried_by_its_other_numbers() {
        let mut table = shareable(1);
        table.attach(A, at(0));
        table.deal(&NOTHING, at(0));
        table.block(&[0], at(20));
        table.attach(B, at(1));
        assert_eq!(table.deal(&NOTHING, at(1)), []);
        assert_eq!(table.deal(&NOTHING, at(20)), [(A, vec![0]), (B, vec![63])]);
        table.block(&[63], at(40));
        assert_eq!(table.deal(&NOTHING, at(21)), [(B, vec![62])], "its last process is not gone yet");
    }

    #[test]
    fn queues_that_have_no_bit_are_nobodys() {
        let mut table = table(QUEUES_MAX + 1);
        table.attach(A, at(0));
        table.deal(&NOTHING, at(0));
        assert_eq!(table.deal(&NOTHING, at(100)).first().map(|(_, queues)| queues.len()), Some(63));
        assert!(!table.is_whole(A), "something arrives where nobody can be");
    }
}
