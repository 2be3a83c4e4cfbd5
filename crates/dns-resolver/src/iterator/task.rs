//! One question that is being resolved, and the step that it is at.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use clock::Instant;
use dns_wire::{NameBuf, Rtype};

use crate::delegation::Delegation;
use crate::dnssec::Budget;
use crate::dnssec::validation::Validation;
use crate::message::{Ede, Question, Rrset};
use crate::options::Dnssec;
use crate::resolver::{ClientId, QueryId};
use crate::servers::Candidate;
use crate::subnet::Subnet;

/// Names a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskId(pub(crate) u64);

/// Whom a task tells about its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// A client.
    Client(ClientId),
    /// A task that needs the address of a name server.
    Task(TaskId),
}

/// Why a task runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    /// Nobody waits: an entry of the cache is renewed, a name server's address fetched, the root's servers asked for.
    Background,
    /// Somebody waits for it.
    Asked,
}

/// What a question, with all that is looked up for it, may still cost.
#[derive(Clone, Debug)]
pub(crate) struct Account(Arc<Left>);

#[derive(Debug)]
struct Left {
    queries: AtomicU16,
    signatures: AtomicU16,
    hashes: AtomicU16,
}

impl Account {
    pub(crate) fn new(queries: u16, dnssec: &Dnssec) -> Account {
        Account(Arc::new(Left {
            queries: AtomicU16::new(queries),
            signatures: AtomicU16::new(dnssec.signatures_per_question_max),
            hashes: AtomicU16::new(dnssec.hashes_per_question_max),
        }))
    }

    /// Whether a bound of validation has been met: then nothing is known of what was not checked.
    pub(crate) fn is_spent(&self) -> bool {
        [&self.0.signatures, &self.0.hashes].iter().any(|left| left.load(Ordering::Relaxed) == 0)
    }

    /// Takes one query; false if none is left.
    pub(crate) fn take(&self) -> bool {
        take_one(&self.0.queries)
    }
}

impl Budget for Account {
    fn take_signature(&self) -> bool {
        take_one(&self.0.signatures)
    }

    fn take_hash(&self) -> bool {
        take_one(&self.0.hashes)
    }
}

/// One thread works on an account at a time.
fn take_one(left: &AtomicU16) -> bool {
    let before = left.load(Ordering::Relaxed);
    left.store(before.saturating_sub(1), Ordering::Relaxed);
    before > 0
}

/// How servers of a zone are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// As authorities.
    Iterate,
    /// As resolvers that work for us.
    Forward,
}

/// A zone and where its servers are.
#[derive(Clone, Debug)]
pub(crate) struct ZoneServers {
    pub(crate) name: NameBuf,
    pub(crate) mode: Mode,
    /// Asked first.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Glue of servers whose own zone gives other addresses: asked when those are silent.
    pub(crate) fallback: Vec<SocketAddr>,
    /// Name servers without a known address.
    pub(crate) unresolved: Vec<NameBuf>,
    /// Where the name servers come from, if their addresses are worth fetching.
    pub(crate) delegation: Option<Arc<Delegation>>,
}

/// One name and type, asked of the servers of one zone.
#[derive(Debug)]
pub(crate) struct Step {
    /// Tells this step's queries from those of steps before.
    pub(crate) number: u64,
    pub(crate) zone: ZoneServers,
    pub(crate) qname: NameBuf,
    pub(crate) rtype: Rtype,
    /// Only a part of the name is asked for (RFC 9156).
    pub(crate) is_minimised: bool,
    /// How often each server was asked.
    pub(crate) tries: Vec<Candidate>,
    /// Servers that gave no useful answer.
    pub(crate) excluded: Vec<SocketAddr>,
    /// Servers that are asked without EDNS, to see whether they answer that.
    pub(crate) without_edns: Vec<SocketAddr>,
    /// Queries whose wait has not ended.
    pub(crate) waiting: Vec<QueryId>,
    /// Tasks that look for addresses.
    pub(crate) children: Vec<TaskId>,
    /// The network that the response is for; none if it is for all.
    pub(crate) scope: Option<Subnet>,
    pub(crate) sent: u8,
    /// Waits that ended without an answer.
    pub(crate) losses: u32,
    /// When a server was asked for the first time, the last time that was.
    pub(crate) last_first_try: Instant,
    pub(crate) ede: Ede,
}

impl Step {
    /// How often a server was asked.
    pub(crate) fn tries_of(&self, address: SocketAddr) -> u8 {
        self.tries.iter().find(|tried| tried.address == address).map_or(0, |tried| tried.tries)
    }

    /// Notes that a server is asked.
    pub(crate) fn on_sent(&mut self, address: SocketAddr, query: QueryId, now: Instant) {
        self.sent = self.sent.saturating_add(1);
        self.waiting.push(query);
        match self.tries.iter_mut().find(|tried| tried.address == address) {
            Some(tried) => tried.tries = tried.tries.saturating_add(1),
            None => {
                self.tries.push(Candidate { address, tries: 1 });
                self.last_first_try = now;
            }
        }
    }

    /// Servers that may be asked. Glue that was set aside joins once all others were asked in vain.
    pub(crate) fn candidates(&self) -> Vec<Candidate> {
        let usable = |addresses: &[SocketAddr]| -> Vec<Candidate> {
            let left = addresses.iter().filter(|address| !self.excluded.contains(address));
            left.map(|&address| Candidate { address, tries: self.tries_of(address) }).collect()
        };
        let mut candidates = usable(&self.zone.addresses);
        if candidates.iter().all(|candidate| candidate.tries > 0) {
            candidates.extend(usable(&self.zone.fallback));
        }
        candidates
    }
}

/// A response that is being validated, and the tasks for keys that it waits for.
#[derive(Debug)]
pub(crate) struct Checking {
    pub(crate) validation: Validation,
    /// Who sent it.
    pub(crate) server: SocketAddr,
    pub(crate) children: Vec<TaskId>,
}

/// One question that is being resolved.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) question: Question,
    pub(crate) purpose: Purpose,
    /// What the cache has is to be renewed.
    pub(crate) is_refresh: bool,
    pub(crate) waiters: Vec<Waiter>,
    /// The name that is looked for now: that of the question, or where aliases lead.
    pub(crate) sname: NameBuf,
    /// Aliases followed so far.
    pub(crate) chain: Vec<Rrset>,
    pub(crate) step: Option<Step>,
    /// The response of a server of the step, until it is known to be true.
    pub(crate) checking: Option<Box<Checking>>,
    /// Responses that were not.
    pub(crate) bogus: u8,
    /// The zone of the next step, when a server has just named it.
    pub(crate) next_zone: Option<Arc<Delegation>>,
    /// Labels of `sname` that are asked for next; 0: those that the zone needs.
    pub(crate) labels: usize,
    /// Questions for a part of `sname`.
    pub(crate) minimised: usize,
    /// `sname` is asked for as a whole.
    pub(crate) is_whole: bool,
    pub(crate) account: Account,
    pub(crate) referrals: u8,
    pub(crate) address_lookups: u8,
    pub(crate) depth: u8,
    pub(crate) deadline: Instant,
    /// A bound of ours was reached that has little to do with the name.
    pub(crate) is_bounded: bool,
    /// A client's timer has passed.
    pub(crate) is_urgent: bool,
    /// When hope is looked for again, for clients whose timer has passed.
    pub(crate) look_again: Option<Instant>,
    /// The zone for whose name servers this looks.
    pub(crate) fetched_for: Option<NameBuf>,
}

impl Task {
    /// Tasks that this one waits for.
    pub(crate) fn children(&self) -> &[TaskId] {
        match (&self.checking, &self.step) {
            (Some(checking), _) => &checking.children,
            (None, Some(step)) => &step.children,
            (None, None) => &[],
        }
    }

    /// Goes on with another name.
    pub(crate) fn follow(&mut self, aliases: Vec<Rrset>, target: NameBuf) {
        self.chain.extend(aliases);
        self.sname = target;
        self.sname.make_lowercase();
        self.step = None;
        self.next_zone = None;
        (self.labels, self.minimised, self.is_whole) = (0, 0, false);
    }
}

/// How a task ends. `chain` has the aliases before the end.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// The last set of the chain has the type that was asked for.
    Answer(Vec<Rrset>),
    NoData(Vec<Rrset>, Option<Arc<Rrset>>),
    NoName(Vec<Rrset>, Option<Arc<Rrset>>),
    /// RFC 6672, 2.2.
    TooLong(Vec<Rrset>),
    Failed(Ede),
}
