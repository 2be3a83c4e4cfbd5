//! What etcd has, and what becomes of it: read once, then watched.
//!
//! All is read at one revision, in pages, and watched from the next one on. Whatever goes wrong ends the connection. Each connection, to the next
//! member, begins by reading all, at the last revision that was taken: etcd has another history if a backup was restored meanwhile, and nothing
//! else tells that for certain. Where it has none, nothing differs, and the watch goes on behind that revision, with the serials that other servers
//! have, too. If etcd has forgotten the revision (a compaction), or has not come to it, all is read at the newest one.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use dns_etcd::{Key, KeyChange, KeyRange, Layout, Revision, Revisions};
use dns_wire::NameBuf;
use tokio::sync::mpsc::Sender;
use tokio::time::{sleep, timeout};

use super::client::{CallError, Client};
use super::config::EtcdSpec;
use super::messages::{KeyValue, RangeResponse, ResponseHeader, WatchResponse};
use super::{Input, Pair};

/// Between two attempts: after each round over all members it doubles, up to the most. A connection that has held for longer than that begins anew.
const WAIT_MIN: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Keys of a page. Fewer, while they have too many octets for a message.
const PAGE: usize = 1000;
/// For so long a watch may wait to be confirmed.
const CREATED_MAX: Duration = Duration::from_secs(20);

/// Up to where all was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    cluster_id: u64,
    revision: u64,
}

/// Follows etcd until the server ends.
pub(super) async fn follow(spec: &EtcdSpec, layout: Layout, keeper: &Sender<Input>) {
    let (mut known, mut wait) = (None, WAIT_MIN);
    // What was said of each endpoint last.
    let mut said = vec![String::new(); spec.endpoints.len()];
    for number in (0..spec.endpoints.len()).cycle() {
        let endpoint = &spec.endpoints[number];
        let mut session = Session { layout: &layout, keeper, endpoint, known: &mut known, connected: None };
        let Err(error) = session.run(spec).await;
        if keeper.is_closed() {
            return;
        }
        let why = format!("etcd {endpoint}: {}", in_words(&error));
        if let Some(connected) = session.connected {
            said.iter_mut().for_each(String::clear);
            if connected.elapsed() > WAIT_MAX {
                wait = WAIT_MIN;
            }
        }
        if said[number] != why {
            log::warn!("{why}; zones stay as they are meanwhile");
            said[number] = why;
        }
        let _ = keeper.send(Input::Connected(false)).await;
        sleep(wait).await;
        if number + 1 == spec.endpoints.len() {
            wait = (2 * wait).min(WAIT_MAX);
        }
    }
}

/// An error with its causes. Those that repeat what stands above them are left out.
fn in_words(error: &anyhow::Error) -> String {
    let mut words = Vec::<String>::new();
    for cause in error.chain().map(ToString::to_string) {
        if words.last().is_none_or(|last| !last.contains(&cause)) {
            words.push(cause);
        }
    }
    words.join(": ")
}

/// One connection.
struct Session<'s> {
    layout: &'s Layout,
    keeper: &'s Sender<Input>,
    endpoint: &'s str,
    known: &'s mut Option<Known>,
    /// Since when, if it is.
    connected: Option<Instant>,
}

impl Session<'_> {
    async fn run(&mut self, spec: &EtcdSpec) -> anyhow::Result<Infallible> {
        let mut client = Client::connect(spec, self.endpoint).await?;
        loop {
            let known = self.catch_up(&mut client).await?;
            self.watch(&mut client, known).await?;
        }
    }

    /// Reads all zones, at the revision that is known, if etcd has that one; up to where they are known then.
    async fn catch_up(&mut self, client: &mut Client) -> anyhow::Result<Known> {
        // Reads go through the cluster's leader, so this is not behind.
        let header = header_of(&client.range(&self.layout.zones(), 0, 1).await?)?;
        if let Some(known) = *self.known {
            if known.cluster_id != header.cluster_id || known.revision > revision_of(header.revision) {
                log::warn!(
                    "etcd {}: this is another etcd, or an older one: all zones are read anew",
                    self.endpoint
                );
                *self.known = None;
            } else {
                match self.read_all(client, known.revision).await {
                    Err(error) if is_compacted(&error) => self.forget(),
                    read => return read,
                }
            }
        }
        self.read_all(client, 0).await
    }

    /// Reads all zones as they were at one revision; 0 is the newest one.
    async fn read_all(&mut self, client: &mut Client, revision: u64) -> anyhow::Result<Known> {
        let mut pages = Pages::new(self.layout.zones(), revision);
        let mut page = pages.next(client).await?;
        let Known { cluster_id, revision } = pages.known.context("an answer without a revision")?;
        self.send(Input::All { revision }).await?;
        while let Some(zones) = page {
            self.send(Input::Zones(zones)).await?;
            page = pages.next(client).await?;
        }
        self.send(Input::Listed).await?;
        let mut pages = Pages::new(self.layout.records(), revision);
        while let Some(page) = pages.next(client).await? {
            self.send(Input::Records(page)).await?;
            self.send(Input::Publish(0)).await?;
        }
        self.send(Input::End).await?;
        self.send(Input::Publish(revision)).await?;
        let known = Known { cluster_id, revision };
        *self.known = Some(known);
        Ok(known)
    }

    /// Follows what becomes of all keys; returns if all has to be read anew.
    async fn watch(&mut self, client: &mut Client, known: Known) -> anyhow::Result<()> {
        let mut watch = client.watch(&self.layout.all(), known.revision + 1).await?;
        let (mut revisions, mut is_created) = (Revisions::default(), false);
        loop {
            let next = watch.message();
            let message = match is_created {
                true => next.await,
                false => timeout(CREATED_MAX, next).await.context("the watch is not confirmed")?,
            };
            let message = message.map_err(CallError::from)?.context("etcd ends the watch")?;
            if message.canceled {
                if message.compact_revision == 0 {
                    bail!("etcd ends the watch: {}", message.cancel_reason);
                }
                self.forget();
                return Ok(());
            }
            if message.created {
                is_created = true;
                self.connected.get_or_insert_with(Instant::now);
                log::info!("etcd {}: connected, at revision {}", self.endpoint, known.revision);
                self.send(Input::Connected(true)).await?;
                continue;
            }
            match self.take(client, &mut revisions, message).await {
                Err(error) if is_compacted(&error) => {
                    self.forget();
                    return Ok(());
                }
                taken => taken?,
            }
        }
    }

    /// What comes behind what is known is not there any more.
    fn forget(&mut self) {
        *self.known = None;
        log::warn!(
            "etcd {}: it has forgotten the last changes (compaction): all zones are read anew",
            self.endpoint
        );
    }

    /// Passes on what a message of the watch tells. A zone that joins is read first.
    async fn take(
        &mut self,
        client: &mut Client,
        revisions: &mut Revisions,
        message: WatchResponse,
    ) -> anyhow::Result<()> {
        let has_events = !message.events.is_empty();
        let whole = revisions.add(message.events.into_iter().filter_map(change_in), message.fragment);
        let mut last = whole.last().map(|revision| revision.revision);
        if !has_events && !message.fragment {
            // Nothing has happened up to there.
            last = message.header.map(|header| revision_of(header.revision));
        }
        for revision in whole {
            let number = revision.revision;
            let joins = self.joins_in(&revision);
            self.send(Input::Revision(revision)).await?;
            // Whatever happens next, a revision is not carried out again behind later ones. Zones that join are among those that are read when a
            // connection begins.
            self.known.iter_mut().for_each(|known| known.revision = number);
            self.read_joining(client, number, joins).await?;
        }
        if let Some((last, known)) = last.zip(self.known.as_mut()) {
            known.revision = known.revision.max(last);
            let revision = known.revision;
            self.send(Input::Publish(revision)).await?;
        }
        Ok(())
    }

    /// The zones whose keys a revision sets.
    fn joins_in(&self, revision: &Revision) -> Vec<(Box<NameBuf>, Pair)> {
        let joins = revision.changes.iter().filter_map(|KeyChange { key, value }| {
            let Ok(Key::Zone(zone)) = self.layout.parse(key) else { return None };
            Some((zone, Pair { key: key.clone(), value: value.clone()? }))
        });
        joins.collect()
    }

    /// Reads zones as they are at a revision.
    async fn read_joining(
        &self,
        client: &mut Client,
        revision: u64,
        joins: Vec<(Box<NameBuf>, Pair)>,
    ) -> anyhow::Result<()> {
        for (origin, zone) in joins {
            self.send(Input::Zone { revision, zone }).await?;
            let mut pages = Pages::new(self.layout.records_of(origin.as_name()), revision);
            while let Some(page) = pages.next(client).await? {
                self.send(Input::Records(page)).await?;
            }
            self.send(Input::End).await?;
        }
        Ok(())
    }

    async fn send(&self, input: Input) -> anyhow::Result<()> {
        self.keeper.send(input).await.map_err(|_| anyhow!("the server ends"))
    }
}

/// A range, page by page, as it was at one revision.
struct Pages {
    rest: Option<KeyRange>,
    /// 0, until the first page says which is the newest.
    revision: u64,
    limit: usize,
    /// What the first page says.
    known: Option<Known>,
}

impl Pages {
    fn new(range: KeyRange, revision: u64) -> Pages {
        Pages { rest: Some(range), revision, limit: PAGE, known: None }
    }

    /// The next page; `None` behind the last one.
    async fn next(&mut self, client: &mut Client) -> anyhow::Result<Option<Vec<Pair>>> {
        let Some(range) = &mut self.rest else { return Ok(None) };
        let answer = loop {
            match client.range(range, self.revision, self.limit).await {
                Err(error) if error.is_too_long() && self.limit > 1 => self.limit = self.limit.div_ceil(8),
                answer => break answer?,
            }
        };
        self.limit = (2 * self.limit).min(PAGE);
        let header = header_of(&answer)?;
        if self.revision == 0 {
            self.revision = revision_of(header.revision);
        }
        self.known.get_or_insert(Known { cluster_id: header.cluster_id, revision: self.revision });
        match answer.kvs.last().filter(|_| answer.more) {
            Some(last) => range.first = [&last.key[..], &[0]].concat(),
            None => self.rest = None,
        }
        let pair = |KeyValue { key, value, .. }| Pair { key, value };
        Ok(Some(answer.kvs.into_iter().map(pair).collect()))
    }
}

fn is_compacted(error: &anyhow::Error) -> bool {
    error.downcast_ref::<CallError>().is_some_and(CallError::is_compacted)
}

fn header_of(answer: &RangeResponse) -> anyhow::Result<ResponseHeader> {
    answer.header.context("an answer without a header")
}

/// Revisions count from 1.
fn revision_of(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or(0)
}

fn change_in(event: super::messages::WatchEvent) -> Option<(u64, KeyChange)> {
    let KeyValue { key, mod_revision, value } = event.kv?;
    let value = (event.kind == 0).then_some(value);
    Some((revision_of(mod_revision), KeyChange { key, value }))
}
