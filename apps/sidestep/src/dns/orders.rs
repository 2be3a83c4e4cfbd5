//! What operators have done with single zones of a running server: `sidestep dns zone reload`, `freeze` and `thaw`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Sender, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use dns_wire::NameBuf;
use observe::protocol::{CHANGE_MAX, ZoneAction};

use super::etcd;
use super::events::Event;
use super::lines::LineSpecs;
use super::pools::PoolSpec;
use super::service::origin_of;
use super::version::Version;

/// What came of an order, or what is wrong, for people.
pub(crate) type Outcome = Result<String, String>;

/// Something that is to be done with a zone.
pub(crate) struct Order {
    pub(crate) origin: Box<NameBuf>,
    pub(crate) action: ZoneAction,
    reply: SyncSender<Outcome>,
}

impl Order {
    pub(crate) fn answer(self, outcome: Outcome) {
        let _ = self.reply.send(outcome); // Who asked may have gone.
    }
}

/// Where tools leave orders.
#[derive(Clone)]
pub(crate) struct Orders(Sender<Event>);

impl Orders {
    pub(crate) fn new(events: Sender<Event>) -> Orders {
        Orders(events)
    }

    /// Has it done, and waits for what comes of it.
    pub(crate) fn carry_out(&self, origin: NameBuf, action: ZoneAction) -> Outcome {
        let (reply, outcome) = sync_channel(1);
        let sent = self.0.send(Event::Order(Order { origin: Box::new(origin), action, reply }));
        sent.map_err(|_| "the server ends".to_owned())?;
        outcome.recv_timeout(CHANGE_MAX).map_err(|_| "the server does not say what came of it".to_owned())?
    }
}

/// What is known of zones beside their versions, for who asks.
#[derive(Debug, Default)]
pub(crate) struct States {
    /// Zones that take no updates.
    pub(crate) frozen: BTreeSet<NameBuf>,
    /// When the version of a secondary zone came from a primary, in seconds since 1970.
    pub(crate) transfers: BTreeMap<NameBuf, u64>,
    /// Why zones from files are not what their files and keys say.
    pub(crate) problems: BTreeMap<NameBuf, String>,
    /// The same about signatures that should have been renewed.
    pub(crate) not_renewed: BTreeMap<NameBuf, String>,
    /// Why the last reload changed nothing, if it did not.
    pub(crate) bad_reload: Option<String>,
    /// The zones from etcd, and why they are not what etcd has.
    pub(crate) etcd: BTreeMap<NameBuf, Option<String>>,
    /// Those of them that are not served, as there is another zone of that name.
    pub(crate) etcd_hidden: BTreeSet<NameBuf>,
    /// The connection to etcd, if there is to be one.
    pub(crate) etcd_link: Option<etcd::Link>,
    /// The catalog that is made.
    pub(crate) catalog: Option<NameBuf>,
    /// The secondary zones, as the thread that follows them has them.
    pub(crate) secondaries: BTreeMap<NameBuf, Followed>,
    /// Zones that have metrics of their own, at most.
    pub(crate) zone_metrics_max: usize,
    /// All sockets are open, and what there is at first is served.
    pub(crate) has_started: bool,
    /// Secondary zones without data that nobody has been asked for yet.
    pub(crate) awaits_primaries: bool,
    /// Lines, as they were configured.
    pub(crate) lines: Arc<LineSpecs>,
    /// Why lines are not as they were configured.
    pub(crate) lines_problem: Option<String>,
    /// Pools, as they were configured.
    pub(crate) pools: Arc<[PoolSpec]>,
}

/// How a secondary zone is.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    /// When it expires, or has expired, in seconds since 1970; `None` if it never came.
    pub(crate) expires_at: Option<u64>,
    /// Why it may not be what its primaries have, or its file what is served.
    pub(crate) problem: Option<String>,
}

impl States {
    /// Whether clients may be sent here.
    pub(crate) fn is_ready(&self) -> bool {
        self.has_started && !self.awaits_primaries
    }

    /// Notes which of the zones from etcd are not `served`.
    pub(crate) fn note_hidden(&mut self, from_etcd: &BTreeMap<NameBuf, Version>, served: &[&Version]) {
        self.etcd_hidden.clear();
        if served.len() < from_etcd.len() {
            self.etcd_hidden.extend(from_etcd.keys().cloned());
            for version in served {
                self.etcd_hidden.remove(&origin_of(version));
            }
        }
    }

    /// Why a zone from etcd that is served is not what etcd has; `None` if it is from elsewhere.
    pub(crate) fn etcd_problem(&self, origin: &NameBuf) -> Option<&Option<String>> {
        self.etcd.get(origin).filter(|_| !self.etcd_hidden.contains(origin))
    }

    /// Why a zone from a file is not what the configuration, its files and its keys say, in one line: the log has the others.
    pub(crate) fn problem(&self, origin: &NameBuf) -> Option<String> {
        let own = self.problems.get(origin).or_else(|| self.not_renewed.get(origin)).cloned();
        let problem =
            own.or_else(|| Some(format!("the last reload failed: {}", self.bad_reload.as_ref()?)))?;
        problem.lines().next().map(str::to_owned)
    }
}

/// The same, to be asked from any thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedStates(Arc<Mutex<States>>);

impl SharedStates {
    /// Looks at the states, or changes them.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut States) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
