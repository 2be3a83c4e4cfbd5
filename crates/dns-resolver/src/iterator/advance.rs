//! What a task does next.

use std::net::SocketAddr;

use clock::Instant;
use dns_wire::{Name, NameBuf, Rtype};

use super::minimise::{last_labels, next_label_count};
use super::task::{Mode, Outcome, Purpose, Step, TaskId, ZoneServers};
use crate::local_zones::LocalAnswer;
use crate::message::{Ede, Question};
use crate::options::Minimisation;
use crate::resolver::{Known, Resolver, Transport};

/// How the start of a step ends.
enum Start {
    /// There are servers to ask.
    Step,
    /// The name is an alias; the task has followed it.
    Followed,
    /// The cache knows the end.
    End(Outcome),
}

impl Resolver {
    /// Lets every task go on that can.
    pub(crate) fn run_ready(&mut self, now: Instant) {
        while let Some(id) = self.ready.pop_front() {
            self.advance(id, now);
        }
    }

    fn advance(&mut self, id: TaskId, now: Instant) {
        loop {
            match self.tasks.get(&id) {
                None => return,
                Some(task) if task.checking.is_some() => return self.validate(id, now),
                Some(task) if task.step.is_some() => return self.pursue(id, now),
                Some(_) => {}
            }
            match self.start_step(id, now) {
                Start::Step | Start::Followed => {}
                Start::End(outcome) => return self.finish(id, outcome, now),
            }
        }
    }

    /// Looks into the cache, then chooses zone and name of the next step.
    fn start_step(&mut self, id: TaskId, now: Instant) -> Start {
        let task = &self.tasks[&id];
        if task.chain.len() > usize::from(self.options.limits.aliases_max) {
            return Start::End(Outcome::Failed(Ede::INVALID_DATA));
        }
        let (sname, rtype) = (task.sname.clone(), task.question.rtype);
        if let Some(start) = self.start_from_knowledge(id, &sname, rtype, now) {
            return start;
        }
        if self.tasks[&id].referrals > self.options.limits.referrals_max {
            return Start::End(Outcome::Failed(Ede::INVALID_DATA));
        }
        let next_zone = self.tasks.get_mut(&id).and_then(|task| task.next_zone.take());
        let zone = match next_zone {
            Some(delegation) => self.delegated_zone(&delegation, now),
            None => self.find_zone(sname.as_name(), rtype, now),
        };
        if zone.name.as_name().is_root() && zone.delegation.is_some() && self.has_only_hints(now) {
            self.prime(now);
        }
        let step = self.make_step(id, zone, now);
        self.tasks.get_mut(&id).expect("it is there").step = Some(step);
        Start::Step
    }

    fn start_from_knowledge(
        &mut self,
        id: TaskId,
        sname: &NameBuf,
        rtype: Rtype,
        now: Instant,
    ) -> Option<Start> {
        let task = &self.tasks[&id];
        if task.is_refresh && task.chain.is_empty() {
            return None;
        }
        let question = task.question.clone();
        let known = match self.local.answer(sname.as_name(), rtype) {
            Some(LocalAnswer::Records(set)) => Known::Records(*set),
            Some(LocalAnswer::NoData(soa)) => Known::NoData(soa),
            Some(LocalAnswer::NoName(soa)) => Known::NoName(soa),
            None => self.look_up_for(&question, sname.as_name(), false, now)?.known,
        };
        let task = self.tasks.get_mut(&id).expect("it is there");
        let mut chain = std::mem::take(&mut task.chain);
        Some(match known {
            Known::Alias(sets, target) => {
                task.chain = chain;
                task.follow(sets, target);
                Start::Followed
            }
            Known::Records(set) => {
                chain.push(set);
                Start::End(Outcome::Answer(chain))
            }
            Known::NoData(soa) => Start::End(Outcome::NoData(chain, Some(soa))),
            Known::NoName(soa) => Start::End(Outcome::NoName(chain, Some(soa))),
        })
    }

    /// The step that asks the servers of `zone` for the next part of the name.
    fn make_step(&mut self, id: TaskId, zone: ZoneServers, now: Instant) -> Step {
        let number = self.new_id();
        let task = &self.tasks[&id];
        let (sname, rtype) = (task.sname.clone(), task.question.rtype);
        let labels = self.labels_to_ask(id, &zone, now);
        let is_minimised = labels < sname.as_name().label_count();
        let qname = last_labels(sname.as_name(), labels).into();
        Step {
            number,
            zone,
            qname,
            rtype: if is_minimised { Rtype::A } else { rtype },
            is_minimised,
            tries: Vec::new(),
            excluded: Vec::new(),
            without_edns: Vec::new(),
            waiting: Vec::new(),
            children: Vec::new(),
            scope: None,
            sent: 0,
            losses: 0,
            last_first_try: now,
            ede: Ede::NO_REACHABLE_AUTHORITY,
        }
    }

    /// Labels of the name that the servers of `zone` are asked for. Parts that the cache knows not to be zones are skipped.
    fn labels_to_ask(&mut self, id: TaskId, zone: &ZoneServers, now: Instant) -> usize {
        let task = &self.tasks[&id];
        let (sname, total) = (task.sname.clone(), task.sname.as_name().label_count());
        let is_off = self.options.minimisation == Minimisation::Off || zone.mode == Mode::Forward;
        if is_off || task.is_whole {
            return total;
        }
        let (minimised, mut known) = (task.minimised, task.labels.max(zone.name.as_name().label_count()));
        loop {
            let next = next_label_count(known, total, minimised);
            let part = last_labels(sname.as_name(), next);
            let is_known = next < total
                && self
                    .look_up(part, Rtype::A, false, true, now)
                    .is_some_and(|knowledge| matches!(knowledge.known, Known::Records(_) | Known::NoData(_)));
            if !is_known {
                return next;
            }
            known = next;
        }
    }

    /// Asks the next server of the step, or looks for more servers, or gives up.
    pub(super) fn pursue(&mut self, id: TaskId, now: Instant) {
        let Some(task) = self.tasks.get(&id) else { return };
        let Some(step) = &task.step else { return };
        if !step.waiting.is_empty() || task.checking.is_some() {
            return;
        }
        let is_first = step.sent == 0;
        let in_trouble = step.losses >= self.options.selection.losses_to_hurry;
        let mut candidates = step.candidates();
        let mut chosen = Vec::new();
        if step.sent < self.options.limits.tries_max {
            let has_candidates = !candidates.is_empty();
            candidates.retain(|candidate| self.has_room(candidate.address));
            if has_candidates && candidates.is_empty() {
                self.note_bound(id, true);
                return self.finish(id, Outcome::Failed(Ede::OTHER), now);
            }
            chosen = self.servers.choose(&candidates, &mut self.random, now);
            candidates.retain(|candidate| candidate.tries == 0 && !chosen.contains(&candidate.address));
            if in_trouble && chosen.len() == 1 {
                chosen.extend(self.servers.choose(&candidates, &mut self.random, now).first());
            }
        }
        for (index, address) in chosen.iter().enumerate() {
            if !self.ask(id, *address, Transport::Udp, now) && index == 0 {
                return self.finish(id, Outcome::Failed(Ede::OTHER), now);
            }
        }
        if !chosen.is_empty() {
            if is_first {
                self.probe_step(id, &chosen, now);
            }
            return;
        }
        if self.look_for_addresses(id, now) {
            return;
        }
        self.give_up(id, now);
    }

    /// Measures the step's other servers.
    fn probe_step(&mut self, id: TaskId, asked: &[SocketAddr], now: Instant) {
        let step = self.tasks[&id].step.as_ref().expect("it has just asked");
        if step.zone.mode == Mode::Iterate {
            let (zone, addresses) = (step.zone.name.clone(), step.zone.addresses.clone());
            self.probe(&zone, &addresses, asked, now);
        }
    }

    /// No server of the step answers. A server may answer for the whole name that fails for a part of it (RFC 9156, 2.3).
    fn give_up(&mut self, id: TaskId, now: Instant) {
        let task = self.tasks.get_mut(&id).expect("it is being pursued");
        let step = task.step.as_ref().expect("it is being pursued");
        let ede = step.ede;
        if step.is_minimised
            && !step.excluded.is_empty()
            && self.options.minimisation == Minimisation::Relaxed
        {
            task.is_whole = true;
            task.step = None;
            self.ready.push_back(id);
            return;
        }
        self.finish(id, Outcome::Failed(ede), now);
    }

    /// Asks the root's servers where the root's servers are (RFC 9609, 3), in the background.
    fn prime(&mut self, now: Instant) {
        let question = Question::new(Name::ROOT, Rtype::NS);
        if !self.by_question.contains_key(&question) {
            self.start_task(&question, Purpose::Background, None, now);
        }
    }
}
