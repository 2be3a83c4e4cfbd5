//! Who has which claim and which queue, and the resulting actions. Pure: requests and times come in, [`Action`]s come out.
//!
//! A queue belongs to one client at a time; where clients of one user share a queue, each has a number of its own, which takes the queue's place
//! everywhere here. A claim takes packets from the kernel only on its client's queues. So every worker that
//! shares a listener claims it, and the terms in the steering program are the sum of these claims. When a client leaves, its
//! claims and queues go with it.
//!
//! When a claim starts on a queue, the kernel may have connections whose packets arrive there. It must keep them:
//!
//! ```text
//!   mark: SYNs pass and are marked --5 ms--> look: mark the kernel's connections, too ------> take the queue's packets,
//!         nothing is taken yet                                                               except those of marked flows
//!                                                                                                     |
//!            take all, remove the marks <----------- look again: if the kernel has none ----- 20 ms, 10 s, ...
//! ```
//!
//! The second look is needed because SYNs still pass while the first one takes place. Marks are removed, because later connections with the
//! same ends may be ours. The library's page `posix`, `moves/`, shows how a client gives a queue back
//! under load.
//!
//! After each call that may change something, call [`Registry::poll`] until it returns `None`, and again at
//! [`Registry::poll_timeout`].

mod bound;
mod claim_table;
mod claims;
mod interface;
mod left;
mod left_sockets;
pub(crate) mod model;
mod ports;
mod queues;
mod terms;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use clock::{Duration, Instant};
use steering::{ClaimTerms, Marks, QueueSet, Transport};

pub(crate) use bound::is_link_local;
pub use bound::{Bound, Scope};
pub use interface::View;

use crate::protocol::{ClaimId, Purpose};
use crate::shares::{Shares, User};
use claim_table::ClaimTable;
use claims::{Alike, Likeness};
use interface::{Interface, Key};
use left_sockets::LeftSockets;
use ports::PortTable;
use queues::Needs;

/// Number of a client: a process that is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// A claim: its number, and whose it is. A client that comes back brings the numbers that another broker gave, so these are its own, and
/// say nothing of what others have. Who claimed later has the higher number.
pub type ClaimKey = (ClaimId, ClientId);

/// Who a process is for all that it will do: it cannot become anybody else. Processes that share a queue see each other's packets, so only those
/// of one identity may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its user.
    pub user: u32,
    /// Its group.
    pub group: u32,
}

impl Identity {
    /// That of all processes whose user lets them share with anybody. No user and no group has these numbers: setuid(2).
    pub const ANYBODY: Identity = Identity { user: u32::MAX, group: u32::MAX };
}

/// Number of an interface, the same for as long as the broker runs.
pub type LinkNumber = u16;

/// An action for the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Lend queues to a client; if that fails, tell [`Registry::on_not_lent`]. It says itself when it serves them.
    Lend {
        /// The client that gets it.
        client: ClientId,
        /// Of which interface.
        link: LinkNumber,
        /// Which.
        queues: Vec<u16>,
    },
    /// Stop delivering to the sockets of these queues.
    Withdraw {
        /// Of which interface.
        link: LinkNumber,
        /// Which.
        queues: Vec<u16>,
    },
    /// Tell a client that its queues are gone with their interface, or come again in a moment.
    TellLost {
        /// The client.
        client: ClientId,
        /// Which interface.
        link: LinkNumber,
    },
    /// Take packets from the kernel, or on other terms than before.
    PutClaim {
        /// On which interface.
        link: LinkNumber,
        /// Which packets.
        claim: steering::Claim,
        /// On which queues, and with which exceptions.
        terms: ClaimTerms,
    },
    /// Leave packets to the kernel.
    RemoveClaim {
        /// On which interface.
        link: LinkNumber,
        /// Which packets.
        claim: steering::Claim,
    },
    /// Enter the kernel's connections on these local TCP ports into the maps of all interfaces, then tell [`Registry::on_looked`].
    Look {
        /// Which: all that are due, as the kernel looks through all that it has for one as for many.
        ports: Vec<u16>,
    },
}

/// A socket that a client proved to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shadow {
    /// UDP or TCP.
    pub transport: Transport,
    /// What for.
    pub purpose: Purpose,
    /// Where it is bound.
    pub bound: Bound,
    /// The kernel's number for it, which is never used again (SO_COOKIE).
    pub cookie: u64,
    /// The user id of its owner.
    pub owner: u32,
}

/// A client with more claims than this is taken to have some that nobody else has.
const COMPARED_MAX: usize = 64;

#[derive(Debug)]
struct Claim {
    client: ClientId,
    /// Whose client that is.
    user: User,
    shadow: Shadow,
    draining: bool,
}

/// A listener that a client had.
#[derive(Clone, Copy, Debug)]
struct Former {
    bound: Bound,
    owner: u32,
    cookie: u64,
}

/// See the module's page.
#[derive(Debug, Default)]
pub struct Registry {
    clients: BTreeMap<ClientId, BTreeSet<ClaimKey>>,
    /// Those that may share queues with others of their kind.
    identities: BTreeMap<ClientId, Identity>,
    /// The clients that want queues, in the order in which they asked.
    attached: Vec<ClientId>,
    claims: ClaimTable,
    /// Drained listeners, and when to see whether their clients still have queues.
    drained: BTreeSet<(Instant, ClaimKey)>,
    /// How many of them are alike.
    alike: BTreeMap<Likeness, Alike>,
    /// How many each user has.
    shares: Shares,
    /// The users of clients; root where none is named.
    users: BTreeMap<ClientId, User>,
    /// Where sockets are bound that nobody has claimed, by port.
    unclaimed: BTreeMap<(Transport, u16), BTreeSet<Bound>>,
    /// Those that the kernel serves better.
    left_sockets: LeftSockets,
    /// The listeners that clients had, whose claims are released; the latest last.
    former: BTreeMap<ClientId, VecDeque<Former>>,
    /// Interfaces that are attached, or were.
    interfaces: BTreeMap<LinkNumber, Interface>,
    ports: PortTable,
    actions: VecDeque<Action>,
    /// Keys about which the steering program may have to be told something.
    dirty: BTreeSet<(LinkNumber, Key)>,
    last_client: u64,
    last_claim: u64,
    /// Numbers up to this one may be those of brokers whose place this one has taken.
    others_claims: u64,
}

/// Clients.
impl Registry {
    /// A process connected.
    pub fn add_client(&mut self) -> ClientId {
        self.last_client += 1;
        let client = ClientId(self.last_client);
        self.clients.insert(client, BTreeSet::new());
        client
    }

    /// Whose process a client is, before it claims anything.
    pub fn set_user(&mut self, client: ClientId, user: User) {
        self.users.insert(client, user);
    }

    fn user_of(&self, client: ClientId) -> User {
        self.users.get(&client).copied().unwrap_or_default()
    }

    /// With whom a client may share a queue: with nobody unless this is said.
    pub fn set_identity(&mut self, client: ClientId, identity: Option<Identity>) {
        match identity {
            Some(identity) => self.identities.insert(client, identity),
            None => self.identities.remove(&client),
        };
        self.interfaces.values_mut().for_each(|interface| interface.queues.set_identity(client, identity));
    }

    /// What was said by [`Registry::set_identity`].
    pub fn identity(&self, client: ClientId) -> Option<Identity> {
        self.identities.get(&client).copied()
    }

    /// A process is gone, and with it all that it had.
    pub fn remove_client(&mut self, client: ClientId, now: Instant) {
        self.give_back(client, now);
        self.set_identity(client, None);
        for claim in self.clients.remove(&client).unwrap_or_default() {
            self.forget_claim(claim);
        }
        self.former.remove(&client);
        self.users.remove(&client);
    }

    /// A client wants queues.
    pub fn attach(&mut self, client: ClientId, now: Instant) {
        if self.clients.contains_key(&client) {
            self.attached.retain(|other| *other != client);
            self.attached.push(client);
            self.interfaces.values_mut().for_each(|interface| interface.queues.attach(client, now));
        }
    }

    /// A client is about to connect to a peer, which is of use only with all queues of an interface: a part of them would miss answers.
    /// If it is alone, it does not wait for processes that may want queues as well; but a server does, whose workers may be about to come.
    pub fn on_connecting(&mut self, client: ClientId, now: Instant) {
        let mut claims =
            self.clients.get(&client).into_iter().flatten().filter_map(|id| self.claims.get(*id));
        if claims.all(|claim| claim.shadow.purpose == Purpose::Outgoing) {
            self.interfaces.values_mut().for_each(|interface| interface.queues.settle(client, now));
        }
        self.interfaces.values_mut().for_each(|interface| interface.queues.on_connecting(client));
    }

    /// A client serves queues that were lent to it.
    pub fn on_ready(&mut self, client: ClientId, link: LinkNumber, queues: &[u16]) {
        if let Some(interface) = self.interfaces.get_mut(&link) {
            interface.queues.on_ready(client, queues);
            self.touch_client(client, link);
        }
    }

    /// A client has closed its sockets, and wants no others. Clients with the same listeners get its queues first.
    pub fn give_back(&mut self, client: ClientId, now: Instant) {
        self.attached.retain(|other| *other != client);
        let listeners = self.listeners_of(client);
        let mut touched = Vec::new();
        for (&link, interface) in &mut self.interfaces {
            let queues = interface.queues.detach(client, &listeners, now);
            let given_back = queues.iter().copied().collect();
            self.dirty.extend(interface.forget_left(given_back, true).into_iter().map(|key| (link, key)));
            if !queues.is_empty() {
                self.actions.push_back(Action::Withdraw { link, queues });
                touched.push(link);
            }
        }
        touched.into_iter().for_each(|link| self.touch_client(client, link));
    }

    /// Nobody gets queues any more.
    pub fn refuse_all(&mut self) {
        self.attached.clear();
        self.interfaces.values_mut().for_each(|interface| interface.queues.refuse_all());
    }

    /// Whether whatever arrives at the interface arrives at this client.
    pub fn has_all_queues(&self, client: ClientId, link: LinkNumber) -> bool {
        self.interfaces.get(&link).is_some_and(|interface| interface.queues.is_whole(client))
    }

    /// Whether the client has a queue of this interface, or is about to.
    pub fn has_queues(&self, client: ClientId, link: LinkNumber) -> bool {
        let interface = self.interfaces.get(&link);
        interface.is_some_and(|interface| interface.queues.owned(client).next().is_some())
    }

    /// Whether the client wants queues and has none.
    pub fn waits(&self, client: ClientId) -> bool {
        let mut links = self.interfaces.keys();
        self.attached.contains(&client) && !links.any(|link| self.has_queues(client, *link))
    }

    /// Whether the client has no queue because it may not share those of others.
    pub fn is_kept_apart(&self, client: ClientId) -> bool {
        let tables = || self.interfaces.values().map(|interface| &interface.queues);
        self.waits(client) && tables().next().is_some() && tables().all(|table| table.is_kept_apart(client))
    }

    /// The queue that several processes can have, one of them by this number; `None` if it is one process's.
    pub fn shared_queue(&self, link: LinkNumber, number: u16) -> Option<u16> {
        self.interfaces.get(&link)?.queues.shared_queue(number)
    }

    /// The queue of an interface that a number is of.
    pub fn queue_of(&self, link: LinkNumber, number: u16) -> u16 {
        self.interfaces.get(&link).map_or(number, |interface| interface.queues.queue_of(number))
    }

    /// How many queues of an interface have an owner.
    pub fn queues_lent(&self, link: LinkNumber) -> u16 {
        self.interfaces.get(&link).map_or(0, |interface| interface.queues.taken())
    }

    /// The queues of an interface that are the client's, or about to be.
    pub fn queues_owned(&self, client: ClientId, link: LinkNumber) -> QueueSet {
        let interface = self.interfaces.get(&link);
        interface.map_or(QueueSet::NONE, |interface| interface.queues.owned(client).collect())
    }

    /// By which queues of an interface packets for the client may come, and those for whoever shares these, as numbers of all of them.
    pub fn queues_met(&self, client: ClientId, link: LinkNumber) -> QueueSet {
        let Some(interface) = self.interfaces.get(&link) else { return QueueSet::NONE };
        let owned = interface.queues.owned(client);
        owned.flat_map(|number| interface.queues.numbers_beside(number)).collect()
    }

    /// The queues of an interface that the client serves.
    pub fn queues_of(&self, client: ClientId, link: LinkNumber) -> QueueSet {
        self.interfaces.get(&link).map_or(QueueSet::NONE, |interface| interface.queues.served_by(client))
    }
}

/// Interfaces.
impl Registry {
    /// The steering program was attached to an interface, and knows no claim yet.
    pub fn on_attached(&mut self, link: LinkNumber, view: View, now: Instant) {
        let interface = self.interfaces.entry(link).or_default();
        self.identities.iter().for_each(|(client, it)| interface.queues.set_identity(*client, Some(*it)));
        self.attached.iter().for_each(|client| interface.queues.attach(*client, now));
        self.on_view(link, view, now);
    }

    /// So many processes can have each queue of the interface at a time.
    pub fn set_places(&mut self, link: LinkNumber, places: u16) {
        if let Some(interface) = self.interfaces.get_mut(&link) {
            interface.queues.set_places(places);
        }
    }

    /// The interface has other queues, or other addresses.
    pub fn on_view(&mut self, link: LinkNumber, view: View, now: Instant) {
        let Some(interface) = self.interfaces.get_mut(&link) else { return };
        interface.queues.set_count(view.queues);
        if interface.show(view, now) {
            self.place_all(link);
        }
    }

    /// Addresses of an interface have come or gone: what claims take there is found out anew.
    fn place_all(&mut self, link: LinkNumber) {
        let Some(interface) = self.interfaces.get_mut(&link) else { return };
        for (key, state) in &mut interface.keys {
            state.users.clear();
            self.dirty.insert((link, *key));
        }
        let kinds: Vec<Likeness> = self.alike.keys().copied().collect();
        kinds.into_iter().for_each(|kind| self.place(kind, link));
    }

    /// The steering program is no longer attached to an interface.
    pub fn on_detached(&mut self, link: LinkNumber) {
        let Some(mut interface) = self.interfaces.remove(&link) else { return };
        self.dirty.retain(|(other, _)| *other != link);
        self.actions.retain(|action| action.link() != Some(link));
        let owners = interface.queues.clear();
        self.actions.extend(owners.into_iter().map(|client| Action::TellLost { client, link }));
    }

    /// The interface takes packets that need larger frames: who has queues gets the same again, with such. Claims hold meanwhile.
    pub fn on_reopening(&mut self, link: LinkNumber) {
        let Some(interface) = self.interfaces.get_mut(&link) else { return };
        for (client, queues) in interface.queues.reopen() {
            self.actions.push_back(Action::Withdraw { link, queues });
            self.actions.push_back(Action::TellLost { client, link });
        }
    }

    /// Queues could not be lent; that is tried again after `pause`.
    pub fn on_not_lent(&mut self, link: LinkNumber, queues: &[u16], pause: Duration, now: Instant) {
        if let Some(interface) = self.interfaces.get_mut(&link) {
            interface.queues.block(queues, now + pause);
        }
    }

    /// Which notes of flows on this TCP port count now.
    pub fn marks(&self, port: u16) -> Marks {
        self.ports.marks(port)
    }

    /// The kernel was asked whether it has connections on these ports. Of those on which it did not answer it has some, to be careful.
    pub fn on_looked(&mut self, found: &[(u16, bool)], now: Instant) {
        for &(port, found) in found {
            let is_drained = self.claims.at(Transport::Tcp, port).any(|(_, claim)| claim.draining);
            self.ports.on_looked(port, found || is_drained, now);
            self.clear(port, now);
            self.touch_port(Transport::Tcp, port);
            self.forget_unused_port(port);
        }
    }
}

/// The next action.
impl Registry {
    /// What to do next.
    pub fn poll(&mut self, now: Instant) -> Option<Action> {
        for port in self.ports.stop_awaiting(now) {
            self.touch_port(Transport::Tcp, port);
        }
        self.expire_drained(now);
        self.expire_left(now);
        self.expire_away(now);
        if self.actions.is_empty() {
            self.deal(now);
        }
        if self.actions.is_empty() {
            let ports = self.ports.due(now);
            self.actions.extend((!ports.is_empty()).then_some(Action::Look { ports }));
        }
        // Claims first: no packet is to wait at a socket that is about to go.
        self.settle_claims(now);
        self.actions.pop_front()
    }

    /// When to call [`Registry::poll`] again though nothing happened.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let queues = self.interfaces.values().filter_map(|interface| interface.queues.poll_timeout());
        let drained = self.drained.first().map(|(at, _)| *at);
        let left = self.interfaces.values().filter_map(Interface::left_timeout);
        let away = self.interfaces.values().filter_map(Interface::away_timeout);
        queues.chain(self.ports.poll_timeout()).chain(drained).chain(left).chain(away).min()
    }

    fn expire_away(&mut self, now: Instant) {
        let interfaces = self.interfaces.iter_mut();
        let changed: Vec<LinkNumber> =
            interfaces.filter_map(|(link, interface)| interface.expire_away(now).then_some(*link)).collect();
        changed.into_iter().for_each(|link| self.place_all(link));
    }

    fn deal(&mut self, now: Instant) {
        let (clients, claims) = (&self.clients, &self.claims);
        let own = |client: ClientId| {
            let ids = clients.get(&client).into_iter().flatten();
            ids.filter_map(|id| claims.get(*id)).filter(|claim| !claim.draining)
        };
        let listens = |client: ClientId, listeners: &BTreeSet<u64>| {
            own(client).any(|claim| claim.is_listener_of(listeners))
        };
        let misses = |client: ClientId, others: &BTreeSet<ClientId>| {
            let has_it = |claim: &Claim| claims.is_claimed_alike(&claim.shadow, others);
            let received = own(client).filter(|claim| claim.shadow.purpose != Purpose::Outgoing);
            received.enumerate().any(|(at, claim)| at >= COMPARED_MAX || !has_it(claim))
        };
        let needs = Needs { listens: &listens, misses: &misses };
        for (&link, interface) in &mut self.interfaces {
            for (client, queues) in interface.queues.deal(&needs, now) {
                // Each shared one has memory of its own.
                let (shared, alone): (Vec<u16>, Vec<u16>) =
                    queues.into_iter().partition(|queue| interface.queues.shared_queue(*queue).is_some());
                let lots = shared.into_iter().map(|queue| vec![queue]).chain([alone]);
                let lots = lots.filter(|queues| !queues.is_empty());
                self.actions.extend(lots.map(|queues| Action::Lend { client, link, queues }));
            }
        }
    }
}

impl Action {
    fn link(&self) -> Option<LinkNumber> {
        match self {
            Action::Lend { link, .. }
            | Action::Withdraw { link, .. }
            | Action::TellLost { link, .. }
            | Action::PutClaim { link, .. }
            | Action::RemoveClaim { link, .. } => Some(*link),
            Action::Look { .. } => None,
        }
    }
}
