//! From a response to one that is known to be true: the facts that [`Validation`] asks for come from the cache or from tasks.

use std::net::SocketAddr;

use clock::Instant;
use dns_wire::{Name, Rtype};

use super::classify::Verdict;
use super::task::{Checking, Outcome, TaskId, Waiter};
use crate::dnssec::Security;
use crate::dnssec::chain::{Context, Fact};
use crate::dnssec::validation::{ABSENCE_MAX, Progress, Validation};
use crate::message::{Ede, Message, Question};
use crate::resolver::{Known, Resolver};

impl Resolver {
    /// What a set is worth that nobody validates.
    pub(super) fn unvalidated(&self) -> Security {
        if self.zones.trust.is_on() { Security::Unchecked } else { Security::Insecure(None) }
    }

    /// Validates what `server` said about the step of a task, and concludes from it once it is known to be true.
    pub(super) fn check(
        &mut self,
        id: TaskId,
        server: SocketAddr,
        mut verdict: Verdict,
        message: &Message,
        now: Instant,
    ) {
        let task = self.tasks.get_mut(&id).expect("the message is about it");
        let step = task.step.as_ref().expect("the message is about it");
        if task.question.is_unchecked || !self.zones.trust.is_on() {
            verdict.set_security(self.unvalidated());
            return self.conclude(id, verdict, now);
        }
        let absence = message.absence(ABSENCE_MAX);
        let validation = Validation::new(verdict, task.question.rtype, step.zone.name.as_name(), absence);
        task.checking = Some(Box::new(Checking { validation, server, children: Vec::new() }));
        self.validate(id, now);
    }

    /// Goes on with the validation of a task's response, as far as the facts that are known allow.
    pub(super) fn validate(&mut self, id: TaskId, now: Instant) {
        let wall_secs = self.wall_secs(now);
        loop {
            let Some(task) = self.tasks.get_mut(&id) else { return };
            let account = task.account.clone();
            let Some(checking) = task.checking.as_mut().filter(|checking| checking.children.is_empty())
            else {
                return;
            };
            let context = Context {
                trust: &self.zones.trust,
                options: &self.options.dnssec,
                wall_secs,
                budget: &account,
            };
            match checking.validation.advance(&context) {
                Progress::Need(question) => self.find_fact(id, *question, now),
                Progress::Done => {
                    let checking = task.checking.take().expect("it is being validated");
                    return self.conclude(id, checking.validation.into_verdict(), now);
                }
                Progress::Bogus(_) if account.is_spent() => {
                    self.note_bound(id, true);
                    return self.finish(id, Outcome::Failed(Ede::OTHER), now);
                }
                Progress::Bogus(ede) => return self.on_bogus(id, ede, now),
                Progress::Failed(ede) => return self.finish(id, Outcome::Failed(ede), now),
            }
        }
    }

    /// Takes a fact from the cache, or starts a task for it.
    fn find_fact(&mut self, id: TaskId, question: Question, now: Instant) {
        let fact = match self.known_fact(&question, now) {
            Some(fact) => fact,
            // Keys that are denied by their own signatures, or DS records by something unsigned: nothing follows from that.
            None if self.would_wait_for_itself(id, &question) => Fact::Failed(match question.rtype {
                Rtype::DNSKEY => Ede::DNSKEY_MISSING,
                _ => Ede::RRSIGS_MISSING,
            }),
            None => {
                let purpose = self.tasks[&id].purpose;
                if let Some(child) = self.start_task(&question, purpose, Some(id), now) {
                    let task = self.tasks.get_mut(&child).expect("it was just started");
                    task.waiters.push(Waiter::Task(id));
                    return self.checking(id).children.push(child);
                }
                self.note_bound(id, true);
                Fact::Failed(Ede::OTHER)
            }
        };
        self.checking(id).validation.learn(question, fact);
    }

    fn checking(&mut self, id: TaskId) -> &mut Checking {
        let task = self.tasks.get_mut(&id).expect("it is being validated");
        task.checking.as_mut().expect("it is being validated")
    }

    fn known_fact(&mut self, question: &Question, now: Instant) -> Option<Fact> {
        let name: Name<'_> = question.name.as_name();
        if let Some(knowledge) = self.look_up(name, question.rtype, false, false, now) {
            return Some(match knowledge.known {
                Known::Records(set) => Fact::Set(set.into()),
                Known::Alias(sets, _) => Fact::Other(sets[0].security),
                Known::NoData(soa) | Known::NoName(soa) => Fact::Absent(soa),
            });
        }
        self.known_failure(question, now).map(|failure| Fact::Failed(failure.ede))
    }

    /// A task for a DNSKEY or DS set has ended.
    pub(super) fn on_fact(&mut self, parent: TaskId, child: TaskId, question: &Question, outcome: &Outcome) {
        let fact = match outcome {
            Outcome::Answer(chain) if chain.len() == 1 => Fact::Set(chain[0].clone().into()),
            Outcome::NoData(chain, Some(soa)) | Outcome::NoName(chain, Some(soa)) if chain.is_empty() => {
                Fact::Absent(soa.clone())
            }
            // It is not validated, so nothing follows from it.
            Outcome::TooLong(_) => Fact::Failed(Ede::BOGUS),
            Outcome::Answer(chain) | Outcome::NoData(chain, _) | Outcome::NoName(chain, _) => {
                // Only what is insecure is denied without an SOA record.
                Fact::Other(chain.first().map_or(Security::Insecure(None), |set| set.security))
            }
            Outcome::Failed(ede) => Fact::Failed(*ede),
        };
        let checking = self.checking(parent);
        checking.children.retain(|other| *other != child);
        checking.validation.learn(question.clone(), fact);
        self.ready.push_back(parent);
    }

    /// A response is false: perhaps another server of the zone has a true one.
    fn on_bogus(&mut self, id: TaskId, ede: Ede, now: Instant) {
        self.counters.bogus += 1;
        let bogus_max = self.options.dnssec.bogus_max;
        let task = self.tasks.get_mut(&id).expect("it is being validated");
        let checking = task.checking.take().expect("it is being validated");
        task.bogus = task.bogus.saturating_add(1);
        let is_enough = task.bogus >= bogus_max;
        let step = task.step.as_mut().expect("a response to it was validated");
        step.excluded.push(checking.server);
        step.ede = ede;
        if is_enough {
            return self.finish(id, Outcome::Failed(ede), now);
        }
        self.pursue(id, now);
    }
}
