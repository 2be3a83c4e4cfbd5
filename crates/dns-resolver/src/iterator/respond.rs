//! What a task makes of a response.

use std::net::SocketAddr;
use std::sync::Arc;

use clock::{Duration, Instant};
use dns_wire::{NameBuf, Rtype};

use super::classify::{Asked, Verdict, classify};
use super::task::{Mode, Outcome, Purpose, TaskId};
use crate::cache::{Kind, Rank, negative_ttl, whole_secs};
use crate::delegation::Delegation;
use crate::message::{Ede, Message, Rrset};
use crate::options::Minimisation;
use crate::resolver::{Known, Resolver, Transport};
use crate::subnet::Subnet;

impl Resolver {
    /// A message of `server` about the current step of a task.
    pub(super) fn on_message(
        &mut self,
        id: TaskId,
        server: SocketAddr,
        message: &Message,
        (had_edns, scope): (bool, Option<Subnet>),
        now: Instant,
    ) {
        let step = self.tasks[&id].step.as_ref().expect("the message is about it");
        let asked = Asked {
            zone: step.zone.name.as_name(),
            qname: step.qname.as_name(),
            rtype: step.rtype,
            is_forwarder: step.zone.mode == Mode::Forward,
            directed: &self.zones.directed,
            had_edns,
        };
        let mut verdict = classify(message, &asked);
        verdict.set_security(self.unvalidated());
        let is_minimised = step.is_minimised;
        if !matches!(verdict, Verdict::NoEdns | Verdict::Lame) {
            self.lame.clear(step.zone.name.as_name(), server);
            if step.without_edns.contains(&server) {
                self.servers.on_edns_failed(server, now); // It was that, and not the question.
            }
        }
        match verdict {
            Verdict::NoEdns => {
                let task = self.tasks.get_mut(&id).expect("the message is about it");
                task.step.as_mut().expect("the message is about it").without_edns.push(server);
                if !self.ask(id, server, Transport::Udp, now) {
                    self.on_useless(id, server, Ede::INVALID_DATA, now);
                }
            }
            Verdict::Lame => self.on_useless(id, server, Ede::NO_REACHABLE_AUTHORITY, now),
            Verdict::Referral(set) => {
                self.fetch_for_step(id, now);
                self.descend(id, &set, message, now);
            }
            verdict if is_minimised => self.on_part(id, server, verdict, message, now),
            verdict => {
                if let Some(step) = self.tasks.get_mut(&id).and_then(|task| task.step.as_mut()) {
                    step.scope = scope;
                }
                self.fetch_for_step(id, now);
                self.note_root(id, message, now);
                self.check(id, server, verdict, message, now);
            }
        }
    }

    /// A server of a used zone has answered: the zone's own addresses of its servers are worth knowing.
    fn fetch_for_step(&mut self, id: TaskId, now: Instant) {
        let task = &self.tasks[&id];
        let delegation = task.step.as_ref().and_then(|step| step.zone.delegation.clone());
        if let Some(delegation) = delegation.filter(|_| task.purpose == Purpose::Asked && task.depth == 0) {
            self.fetch_addresses(&delegation, now);
        }
    }

    /// The response to a question for a part of the name that leads no further down (RFC 9156, 2.3).
    fn on_part(&mut self, id: TaskId, server: SocketAddr, verdict: Verdict, message: &Message, now: Instant) {
        let is_strict = self.options.minimisation == Minimisation::Strict;
        let task = self.tasks.get_mut(&id).expect("the message is about it");
        let step = task.step.take().expect("the message is about it");
        task.labels = step.qname.as_name().label_count();
        task.minimised += 1;
        match verdict {
            // What is below a name that does not exist does not exist (RFC 8020): but some servers do not know it.
            Verdict::NoName { aliases, name, soa } if is_strict => {
                task.step = Some(step);
                self.check(id, server, Verdict::NoName { aliases, name, soa }, message, now);
            }
            Verdict::NoName { .. } => {
                task.is_whole = true;
                self.ready.push_back(id);
            }
            Verdict::NoData { aliases, name, soa: Some(soa) } if aliases.is_empty() => {
                self.cache.put_denial(name.as_name(), Kind::Type(step.rtype), &soa, now);
                self.ready.push_back(id);
            }
            _ => self.ready.push_back(id),
        }
    }

    /// Goes on with the servers of a zone further down. That zone is forgotten no later than the one that named it: a zone that its parent
    /// has removed cannot live on in its own children (the "ghost domain" attack).
    fn descend(&mut self, id: TaskId, set: &Rrset, message: &Message, now: Instant) {
        let ttl_of_parent = self.ttl_of_zone(id, now);
        let task = self.tasks.get_mut(&id).expect("the message is about it");
        let step = task.step.take().expect("the message is about it");
        let delegation = Arc::new(Delegation::new(set, message, step.zone.name.as_name()));
        let ttl = set.ttl.min(ttl_of_parent);
        self.cache.put_zone((*delegation).clone(), ttl, now);
        task.referrals = task.referrals.saturating_add(1);
        task.labels = task.labels.max(delegation.zone.as_name().label_count());
        task.next_zone = Some(delegation);
        self.ready.push_back(id);
    }

    /// Seconds for which the zone of a task's step is still known. The root, and zones that the user names, stay.
    fn ttl_of_zone(&mut self, id: TaskId, now: Instant) -> u32 {
        let zone = &self.tasks[&id].step.as_ref().expect("the message is about it").zone;
        if zone.name.as_name().is_root() || zone.delegation.is_none() {
            return u32::MAX;
        }
        let name = zone.name.clone();
        self.cache.get_fresh(name.as_name(), Kind::Zone, now).map_or(0, |found| found.ttl(now))
    }

    /// What the root says about its own servers takes the place of the hints (RFC 9609, 3.3).
    fn note_root(&mut self, id: TaskId, message: &Message, now: Instant) {
        let question = &self.tasks[&id].question;
        if question.rtype != Rtype::NS || !question.name.as_name().is_root() {
            return;
        }
        let root = NameBuf::root();
        if let Some(set) = message.answer_set(root.as_name(), Rtype::NS) {
            let mut delegation = Delegation::new(&set, message, root.as_name());
            // Addresses that did not fit the message are still those of the hints.
            for server in delegation.servers.iter_mut().filter(|server| server.glue.is_empty()) {
                let hint = self.zones.hints.0.servers.iter().find(|hint| hint.name == server.name);
                server.glue = hint.map_or(Vec::new(), |hint| hint.glue.clone());
            }
            self.cache.put_zone(delegation, set.ttl, now);
        }
    }

    /// Keeps what a response says, and ends the task or goes on at the alias's target.
    pub(super) fn conclude(&mut self, id: TaskId, verdict: Verdict, now: Instant) {
        let rtype = self.tasks[&id].question.rtype;
        let mut chain = std::mem::take(&mut self.tasks.get_mut(&id).expect("the message is about it").chain);
        let outcome = match verdict {
            Verdict::Answer { mut aliases, mut set, rank } => {
                self.keep_aliases(id, &mut aliases, &set.owner, rank, now);
                self.clamp(&mut set);
                match self.network_of(id) {
                    Some(network) => self.keep_for_network(
                        &set.owner,
                        rtype,
                        network,
                        Known::Records(set.clone()),
                        set.ttl,
                        now,
                    ),
                    None => self.cache.put_records(&set, rank, now),
                }
                chain.extend(aliases);
                chain.push(set);
                Outcome::Answer(chain)
            }
            Verdict::Alias { mut aliases, target, rank } => {
                self.keep_aliases(id, &mut aliases, &target, rank, now);
                let task = self.tasks.get_mut(&id).expect("the message is about it");
                task.chain = chain;
                task.follow(aliases, target);
                return self.ready.push_back(id);
            }
            Verdict::NoData { mut aliases, name, soa } => {
                self.keep_aliases(id, &mut aliases, &name, Rank::Authority, now);
                self.keep_denial(&name, Kind::Type(rtype), soa.as_ref(), rtype, now);
                chain.extend(aliases);
                Outcome::NoData(chain, self.clamp_denial(soa))
            }
            Verdict::NoName { mut aliases, name, soa } => {
                self.keep_aliases(id, &mut aliases, &name, Rank::Authority, now);
                // The zone above may deny one that the user sends elsewhere: then it has no DS record, but may well be there.
                let is_directed = self.directed(name.as_name()).is_some_and(|other| other.zone == name);
                let kind = if rtype == Rtype::DS && is_directed { Kind::Type(rtype) } else { Kind::NoName };
                self.keep_denial(&name, kind, soa.as_ref(), rtype, now);
                chain.extend(aliases);
                Outcome::NoName(chain, self.clamp_denial(soa))
            }
            Verdict::TooLong => Outcome::TooLong(chain),
            Verdict::Referral(_) | Verdict::NoEdns | Verdict::Lame => return,
        };
        self.finish(id, outcome, now);
    }

    /// The network that the response of a task's step is for, if it is not for all. Denials are for all (RFC 7871, 7.4).
    fn network_of(&self, id: TaskId) -> Option<Subnet> {
        self.tasks[&id].step.as_ref().and_then(|step| step.scope)
    }

    fn keep_for_network(
        &mut self,
        name: &NameBuf,
        rtype: Rtype,
        network: Subnet,
        known: Known,
        ttl: u32,
        now: Instant,
    ) {
        let mut name = name.clone();
        name.make_lowercase();
        self.cache.note_change(name.as_name().as_bytes()); // Whole answers that were for all are not for this network.
        self.by_network.put(name, rtype, network, known, ttl, now);
    }

    /// Keeps aliases, which lead to `target`, apart from CNAME records that we made from a DNAME record: that makes them again.
    fn keep_aliases(
        &mut self,
        id: TaskId,
        aliases: &mut [Rrset],
        target: &NameBuf,
        rank: Rank,
        now: Instant,
    ) {
        if let Some(network) = self.network_of(id).filter(|_| !aliases.is_empty()) {
            let (name, rtype) = (self.tasks[&id].sname.clone(), self.tasks[&id].question.rtype);
            aliases.iter_mut().for_each(|set| self.clamp(set));
            let ttl = aliases.iter().map(|set| set.ttl).min().unwrap_or(0);
            let known = Known::Alias(aliases.to_vec(), target.clone());
            return self.keep_for_network(&name, rtype, network, known, ttl, now);
        }
        let mut redirected = false;
        for set in aliases {
            self.clamp(set);
            if !redirected {
                self.cache.put_records(set, rank, now);
            }
            redirected = set.rtype == Rtype::DNAME;
        }
    }

    /// Keeps a denial. One without an SOA record ends what the cache has and is not kept (RFC 2308, 5).
    fn keep_denial(
        &mut self,
        name: &NameBuf,
        kind: Kind,
        soa: Option<&Arc<Rrset>>,
        rtype: Rtype,
        now: Instant,
    ) {
        match soa {
            Some(soa) => {
                self.cache.put_denial(name.as_name(), kind, soa, now);
                let ttl = Duration::from_secs(negative_ttl(soa).into());
                self.gaps.note(soa, now + ttl.min(self.options.cache.negative_ttl_max));
            }
            None => self.cache.forget(name.as_name(), Kind::Type(rtype)),
        }
    }

    /// Answers have no longer TTL than the cache.
    fn clamp(&self, set: &mut Rrset) {
        set.ttl = set.ttl.min(whole_secs(self.options.cache.ttl_max));
    }

    /// The SOA record of a denial says how long the denial lasts (RFC 2308, 5).
    fn clamp_denial(&self, soa: Option<Arc<Rrset>>) -> Option<Arc<Rrset>> {
        let max = whole_secs(self.options.cache.negative_ttl_max);
        soa.map(|soa| Arc::new(Rrset { ttl: negative_ttl(&soa).min(max), ..(*soa).clone() }))
    }

    /// A server's answer is no use for the step: another one is asked.
    pub(super) fn on_useless(&mut self, id: TaskId, server: SocketAddr, ede: Ede, now: Instant) {
        let Some(step) = self.tasks.get_mut(&id).and_then(|task| task.step.as_mut()) else { return };
        step.excluded.push(server);
        if !step.ede.is_bogus() {
            step.ede = ede;
        }
        if !step.is_minimised && step.zone.mode == Mode::Iterate {
            self.lame.note(step.zone.name.as_name(), server, step.qname.as_name(), now);
        }
        self.pursue(id, now);
    }
}
