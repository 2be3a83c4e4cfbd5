//! The start and the end of tasks.

use clock::Instant;
use dns_wire::NameBuf;

use super::task::{Account, Outcome, Purpose, Step, Task, TaskId, Waiter};
use crate::message::{Ede, Question};
use crate::resolver::{Resolver, Timer, Transport};
use crate::stale::Progress;

/// Queries of a task that nobody waits for. Half of them may go for keys.
const BACKGROUND_QUERIES_MAX: u16 = 32;
/// How far tasks are followed that wait for each other: a chain of trust has two for each label.
pub(super) const WAITS_MAX: u8 = 32;

impl Resolver {
    /// The task that resolves `question`: the one there is, or a new one on the account of `parent`. `None` if there are too many.
    pub(crate) fn start_task(
        &mut self,
        question: &Question,
        purpose: Purpose,
        parent: Option<TaskId>,
        now: Instant,
    ) -> Option<TaskId> {
        let limits = self.options.limits;
        if let Some(&id) = self.by_question.get(question) {
            self.join(id, purpose, parent, now);
            return Some(id);
        }
        if self.tasks.len() >= limits.tasks_max {
            return None;
        }
        let parent = parent.and_then(|parent| self.tasks.get(&parent));
        let own = if purpose == Purpose::Asked { limits.queries_max } else { BACKGROUND_QUERIES_MAX };
        let account =
            parent.map_or_else(|| Account::new(own, &self.options.dnssec), |parent| parent.account.clone());
        let depth = parent.map_or(0, |parent| parent.depth + 1);
        let address_lookups = parent.map_or(0, |parent| parent.address_lookups);
        let id = TaskId(self.new_id());
        let deadline = now + limits.resolution_max;
        let task = Task {
            question: question.clone(),
            purpose,
            is_refresh: false,
            waiters: Vec::new(),
            sname: question.name.clone(),
            chain: Vec::new(),
            step: None,
            checking: None,
            bogus: 0,
            next_zone: None,
            labels: 0,
            minimised: 0,
            is_whole: false,
            account,
            referrals: 0,
            address_lookups,
            depth,
            deadline,
            is_bounded: false,
            is_urgent: false,
            look_again: None,
            fetched_for: None,
        };
        self.tasks.insert(id, task);
        self.by_question.insert(question.clone(), id);
        self.timers.set(deadline, Timer::Task(id));
        self.ready.push_back(id);
        Some(id)
    }

    /// Somebody waits for a task that was started for another purpose: what it may still cost is theirs now. A client, whose question it
    /// becomes, gets as much and as long as for a new one.
    fn join(&mut self, id: TaskId, purpose: Purpose, parent: Option<TaskId>, now: Instant) {
        let limits = self.options.limits;
        let parent = parent.and_then(|parent| self.tasks.get(&parent));
        let parent = parent.map(|parent| (parent.account.clone(), parent.depth + 1));
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let is_own = task.purpose == Purpose::Asked && task.depth == 0;
        if purpose != Purpose::Asked || is_own || (parent.is_some() && task.purpose == purpose) {
            return;
        }
        task.purpose = purpose;
        if let Some((account, depth)) = parent {
            (task.account, task.depth) = (account, depth);
            return;
        }
        task.account = Account::new(limits.queries_max, &self.options.dnssec);
        (task.depth, task.address_lookups, task.is_bounded) = (0, 0, false);
        self.timers.cancel(task.deadline, Timer::Task(id));
        task.deadline = now + limits.resolution_max;
        self.timers.set(task.deadline, Timer::Task(id));
    }

    /// A bound of ours ends a task. That says something about its name only if the whole of what a client's question may cost was
    /// spent on it; `is_overload` if it was spent on others.
    pub(super) fn note_bound(&mut self, id: TaskId, is_overload: bool) {
        if let Some(task) = self.tasks.get_mut(&id) {
            task.is_bounded |= is_overload || task.depth > 0 || task.purpose == Purpose::Background;
        }
    }

    /// Ends a task and tells everybody who waits for it. A failure is remembered (RFC 9520), unless a bound of ours caused it.
    pub(super) fn finish(&mut self, id: TaskId, outcome: Outcome, now: Instant) {
        let Some(task) = self.tasks.remove(&id) else { return };
        self.by_question.remove(&task.question);
        self.timers.cancel(task.deadline, Timer::Task(id));
        if let Some(at) = task.look_again {
            self.timers.cancel(at, Timer::LookAgain(id));
        }
        if let Outcome::Failed(ede) = outcome
            && !task.is_bounded
        {
            let zone = task.step.as_ref().map_or(NameBuf::root(), |step| step.zone.name.clone());
            self.cache.put_failure(task.question.name.as_name(), task.question.rtype, ede, &zone, now);
        }
        if let (Some(zone), Outcome::Answer(chain)) = (&task.fetched_for, &outcome) {
            self.probe_fetched(zone, chain, now);
        }
        for waiter in &task.waiters {
            match *waiter {
                Waiter::Client(client) => self.on_resolved(client, &outcome, now),
                Waiter::Task(parent) => self.on_child(parent, id, &task.question, &outcome),
            }
        }
    }

    /// A task that another one waits for has ended.
    fn on_child(&mut self, parent: TaskId, child: TaskId, question: &Question, outcome: &Outcome) {
        let Some(task) = self.tasks.get(&parent) else { return };
        if !task.children().contains(&child) {
            return;
        }
        if task.checking.is_some() {
            self.on_fact(parent, child, question, outcome);
        } else {
            self.on_address(parent, child, outcome);
        }
    }

    /// A question has taken too long.
    pub(crate) fn on_task_deadline(&mut self, id: TaskId, now: Instant) {
        let ede = self.tasks.get(&id).and_then(|task| task.step.as_ref()).map(|step| step.ede);
        self.finish(id, Outcome::Failed(ede.unwrap_or(Ede::OTHER)), now);
    }

    /// A client has waited for long: the task asks every server that is left.
    pub(crate) fn hurry(&mut self, id: TaskId, now: Instant) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if std::mem::replace(&mut task.is_urgent, true) {
            return;
        }
        let children = task.children().to_vec();
        let candidates = task.step.as_ref().filter(|_| task.checking.is_none()).map(Step::candidates);
        let sent = task.step.as_ref().map_or(0, |step| step.sent);
        let room = usize::from(self.options.limits.tries_max.saturating_sub(sent));
        let left = candidates.iter().flatten().filter(|candidate| candidate.tries == 0);
        for address in left.map(|candidate| candidate.address).take(room).collect::<Vec<_>>() {
            self.ask(id, address, Transport::Udp, now);
        }
        for child in children {
            self.hurry(child, now);
        }
    }

    /// Whether nothing is to be expected of a task soon; see [`crate::stale`].
    pub(crate) fn is_hopeless(&self, id: TaskId, depth: u8, now: Instant) -> bool {
        let Some(task) = self.tasks.get(&id) else { return false };
        let Some(step) = task.step.as_ref().filter(|step| !step.ede.is_bogus()) else { return false };
        if !task.children().is_empty() {
            let deeper = |child: &TaskId| self.is_hopeless(*child, depth + 1, now);
            return depth < WAITS_MAX && task.children().iter().all(deeper);
        }
        let is_live = |address| !self.servers.is_silent(address);
        let waiting = step.waiting.iter().filter_map(|query| self.in_flight.get(query));
        let has_room = step.sent < self.options.limits.tries_max;
        let progress = Progress {
            losses: step.losses,
            waits_for_live_server: waiting.into_iter().any(|query| is_live(query.server)),
            has_server_left: has_room && step.candidates().iter().any(|candidate| candidate.tries == 0),
            is_early: now < step.last_first_try + self.options.stale.grace,
        };
        progress.is_hopeless()
    }
}
