//! Addresses of name servers: looked up when a task needs them, and fetched from their own zone in the background.

use std::net::SocketAddr;
use std::sync::Arc;

use clock::Instant;
use dns_wire::{Name, NameBuf, Rtype};

use super::task::{Outcome, Purpose, Task, TaskId, Waiter};
use crate::cache::Kind;
use crate::delegation::{Delegation, address};
use crate::message::{Question, Rrset};
use crate::resolver::Resolver;

/// Name servers whose addresses are looked up at the same time for one step.
const AT_ONCE: usize = 2;

impl Resolver {
    /// Starts tasks for addresses of name servers that have none. True if the step waits for such tasks.
    pub(super) fn look_for_addresses(&mut self, id: TaskId, now: Instant) -> bool {
        let limits = self.options.limits;
        loop {
            let task = self.tasks.get_mut(&id).expect("it is being pursued");
            let step = task.step.as_mut().expect("it is being pursued");
            if !step.children.is_empty() {
                return true;
            }
            if step.zone.unresolved.is_empty() {
                return false;
            }
            if task.depth >= limits.depth_max {
                self.note_bound(id, false);
                return false;
            }
            let left = usize::from(limits.address_lookups_max.saturating_sub(task.address_lookups));
            let names: Vec<NameBuf> = {
                let count = step.zone.unresolved.len().min(AT_ONCE).min(left);
                step.zone.unresolved.drain(..count).collect()
            };
            if names.is_empty() {
                self.note_bound(id, false);
                return false;
            }
            task.address_lookups += names.len() as u8; // At most two.
            for name in names {
                self.look_up_server(id, &name, now);
            }
        }
    }

    /// Looks for the addresses of one name server.
    fn look_up_server(&mut self, parent: TaskId, name: &NameBuf, now: Instant) {
        let types: &[Rtype] = if self.options.ipv6 { &[Rtype::A, Rtype::AAAA] } else { &[Rtype::A] };
        for &rtype in types {
            let question = self.question_for_us(name.as_name(), rtype);
            if self.is_known_to_fail(&question, now) || self.would_wait_for_itself(parent, &question) {
                continue;
            }
            let Some(child) = self.start_task(&question, Purpose::Asked, Some(parent), now) else {
                return self.note_bound(parent, true);
            };
            self.tasks.get_mut(&child).expect("it was just started").waiters.push(Waiter::Task(parent));
            let step = self.tasks.get_mut(&parent).and_then(|task| task.step.as_mut());
            step.expect("it is being pursued").children.push(child);
        }
    }

    fn is_known_to_fail(&mut self, question: &Question, now: Instant) -> bool {
        self.known_failure(question, now).is_some()
    }

    /// A question for the address of a name server. It is not validated: where it leads is, and validating it could wait for itself.
    fn question_for_us(&self, name: Name<'_>, rtype: Rtype) -> Question {
        Question { is_unchecked: self.zones.trust.is_on(), ..Question::new(name, rtype) }
    }

    /// Whether the task for `question` waits, however indirectly, for `id`.
    pub(super) fn would_wait_for_itself(&self, id: TaskId, question: &Question) -> bool {
        let Some(&child) = self.by_question.get(question) else { return false };
        let (mut seen, mut front) = (vec![child], vec![child]);
        while let Some(task) = front.pop() {
            if task == id {
                return true;
            }
            for &next in self.tasks.get(&task).map_or(&[][..], Task::children) {
                if !seen.contains(&next) {
                    seen.push(next);
                    front.push(next);
                }
            }
        }
        false
    }

    /// A task for an address has ended: its parent has more servers, or goes on without.
    pub(super) fn on_address(&mut self, parent: TaskId, child: TaskId, outcome: &Outcome) {
        let found = match outcome {
            // A name server's name is no alias (RFC 2181, 10.3).
            Outcome::Answer(chain) if chain.len() == 1 => {
                let set = &chain[0];
                let addresses = set.rdatas.iter().filter_map(|rdata| address(set.rtype, rdata));
                self.usable(addresses.collect::<Vec<_>>())
            }
            _ => Vec::new(),
        };
        let limit = self.options.limits.addresses_max;
        let Some(step) = self.tasks.get_mut(&parent).and_then(|task| task.step.as_mut()) else { return };
        step.children.retain(|other| *other != child);
        for address in found {
            if step.zone.addresses.len() < limit && !step.zone.addresses.contains(&address) {
                step.zone.addresses.push(address);
            }
        }
        self.ready.push_back(parent);
    }

    /// Fetches the addresses of a zone's name servers from their own zone, once one of its servers has answered. They are preferred from
    /// then on: the zone may have moved them, or may give each resolver those that are close to it.
    pub(super) fn fetch_addresses(&mut self, delegation: &Arc<Delegation>, now: Instant) {
        if !self.options.fetch_child_addresses || Resolver::is_exempt(&delegation.zone) {
            return;
        }
        for server in &delegation.servers {
            for rtype in [Rtype::A, Rtype::AAAA] {
                if rtype == Rtype::AAAA && !self.options.ipv6 || self.knows(server.name.as_name(), rtype, now)
                {
                    continue;
                }
                if !self.take_fetch_token(now) {
                    return;
                }
                let question = self.question_for_us(server.name.as_name(), rtype);
                if self.by_question.contains_key(&question) {
                    continue;
                }
                let id = self.start_task(&question, Purpose::Background, None, now);
                if let Some(task) = id.and_then(|id| self.tasks.get_mut(&id)) {
                    task.fetched_for = Some(delegation.zone.clone());
                }
            }
        }
    }

    /// Measures the addresses that were fetched: they are preferred as soon as one of them has answered.
    pub(super) fn probe_fetched(&mut self, zone: &NameBuf, chain: &[Rrset], now: Instant) {
        let [set] = chain else { return };
        let addresses = self.usable(set.rdatas.iter().filter_map(|rdata| address(set.rtype, rdata)));
        let unproven: Vec<SocketAddr> =
            addresses.into_iter().filter(|address| !self.servers.is_proven(*address)).collect();
        self.probe(zone, &unproven, &[], now);
    }

    /// Whether there is nothing to fetch: the cache has something, or fetching failed a moment ago.
    fn knows(&mut self, name: Name<'_>, rtype: Rtype, now: Instant) -> bool {
        self.look_up(name, rtype, false, true, now).is_some()
            || self.cache.get_fresh(name, Kind::Failure(rtype), now).is_some()
    }

    fn take_fetch_token(&mut self, now: Instant) -> bool {
        let rate = u64::from(self.options.limits.address_fetch_rate_max);
        let (tokens, since) = self.fetch_tokens;
        let refill = now.since(since).as_millis().min(10_000) * rate;
        let tokens = (tokens + refill).min(rate * 1000);
        self.fetch_tokens = (tokens.saturating_sub(1000), now);
        if tokens < 1000 {
            self.fetch_tokens = (tokens, now);
        }
        tokens >= 1000
    }
}
