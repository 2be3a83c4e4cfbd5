//! Zones from etcd: a thread that watches the keys, one that makes zones of them, and one that writes files.
//!
//! | file | what it does |
//! | --- | --- |
//! | `config.rs` | `[etcd]` |
//! | `messages.rs`, `client.rs` | the three calls of etcd that are needed |
//! | `watch.rs` | reads all that is there, then follows what changes, over lost connections and compactions |
//! | `keeper.rs` | the zones: one writer, what is published |
//! | `kept.rs` | one zone |
//! | `files.rs` | their files |
//!
//! What keys and values mean is in the crate `dns-etcd`. These threads wait; nobody who answers does.

mod client;
mod config;
mod files;
mod keeper;
mod kept;
mod messages;
mod watch;

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use dns_etcd::{Layout, Revision};
use dns_wire::NameBuf;
use tokio::sync::mpsc;

pub(crate) use self::config::EtcdSpec;
pub(crate) use self::kept::{Prepared, count_kept, prepare};
use super::events::Event;
use super::orders::SharedStates;
use super::version::Version;

/// What zones are served as from now on; `None` if they are not.
pub(crate) type Changes = BTreeMap<NameBuf, Option<Version>>;

/// What became of zones and is not published yet: of each zone the last.
#[derive(Clone, Default)]
pub(crate) struct Unpublished(Arc<Mutex<Changes>>);

impl Unpublished {
    /// Leaves what is to be published together. Whether somebody has to be told, as nothing has waited.
    pub(crate) fn leave(&self, changes: Changes) -> bool {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = waiting.is_empty() && !changes.is_empty();
        waiting.extend(changes);
        is_news
    }

    /// All that waits.
    pub(crate) fn take(&self) -> Changes {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What the thread that makes zones hears.
pub(crate) enum Input {
    /// All is read as it is at a revision: first the keys of zones, then those of records in their order.
    All { revision: u64 },
    /// Keys of zones that are there.
    Zones(Vec<Pair>),
    /// There are no other zones.
    Listed,
    /// One zone is read: its records follow.
    Zone { revision: u64, zone: Pair },
    /// Keys of records.
    Records(Vec<Pair>),
    /// Nothing more is read.
    End,
    /// What a transaction changes.
    Revision(Revision),
    /// What came so far is published, up to this revision.
    Publish(u64),
    /// There is a connection, or none.
    Connected(bool),
    /// Signatures are looked at, if it is time; at once if keys may have changed.
    Renew { at_once: bool },
}

/// A key, and its value.
pub(crate) struct Pair {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// What is known of etcd, for who asks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Link {
    pub(crate) is_connected: bool,
    /// Up to which revision all is served.
    pub(crate) revision: u64,
}

/// Tells the threads what they cannot see for themselves.
#[derive(Clone)]
pub(crate) struct Follower(mpsc::Sender<Input>);

impl Follower {
    /// Keys may have changed. A thread that is busy looks by itself later.
    pub(crate) fn look_at_keys(&self) {
        let _ = self.0.try_send(Input::Renew { at_once: true });
    }
}

/// Inputs that wait at most; each is a page of keys or a transaction.
const WAITING_MAX: usize = 8;
/// How often signatures are looked at, if it is time.
const RENEWAL_TICK: Duration = Duration::from_secs(20);

/// Starts the threads. Changes go to `events`.
pub(crate) fn start(
    spec: &Arc<EtcdSpec>,
    prepared: Vec<Prepared>,
    events: Sender<Event>,
    states: SharedStates,
) -> io::Result<Follower> {
    let (sender, mut inputs) = mpsc::channel(WAITING_MAX);
    let files = files::Files::start()?;
    let mut keeper = keeper::Keeper::new(Arc::clone(spec), prepared, files, events, states);
    let keep = move || {
        while let Some(input) = inputs.blocking_recv() {
            keeper.take(input);
        }
    };
    thread::Builder::new().name("etcd-zones".to_owned()).spawn(keep)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (spec, to_keeper) = (Arc::clone(spec), sender.clone());
    let watch = move || {
        let follow = watch::follow(&spec, Layout::new(&spec.prefix), &to_keeper);
        runtime.block_on(async {
            tokio::select! {
                () = follow => {}
                () = tick(&to_keeper) => {}
            }
        });
    };
    thread::Builder::new().name("etcd-watch".to_owned()).spawn(watch)?;
    Ok(Follower(sender))
}

/// Has signatures looked at, until nobody does that any more.
async fn tick(to_keeper: &mpsc::Sender<Input>) {
    while to_keeper.send(Input::Renew { at_once: false }).await.is_ok() {
        tokio::time::sleep(RENEWAL_TICK).await;
    }
}
