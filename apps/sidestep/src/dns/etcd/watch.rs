//! What etcd has, and what becomes of it: read once, then watched.
//!
//! All is read at one revision, in pages, and watched from the next one on. Whatever goes wrong ends the connection. Another one, to the next
//! member, goes on behind the last revision that was taken. If etcd has forgotten that one (a compaction), or never had it (another cluster, or a
//! backup that was restored), all is read anew.

use std::convert::Infallible;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use dns_etcd::{Key, KeyChange, KeyRange, Layout, Revision, Revisions};
use tokio::sync::mpsc::Sender;
use tokio::time::{sleep, timeout};

use super::client::{CallError, Client};
use super::config::EtcdSpec;
use super::messages::{KeyValue, RangeResponse, ResponseHeader, WatchResponse};
use super::{Input, Pair};

/// Between two attempts: after each round over all members it doubles, up to the most.
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
    let (mut known, mut wait, mut said) = (None, WAIT_MIN, String::new());
    for number in (0..spec.endpoints.len()).cycle() {
        let endpoint = &spec.endpoints[number];
        let mut session =
            Session { layout: &layout, keeper, endpoint, known: &mut known, has_connected: false };
        let Err(error) = session.run(spec).await;
        if keeper.is_closed() {
            return;
        }
        let why = format!("etcd {endpoint}: {}", in_words(&error));
        if session.has_connected {
            (wait, said) = (WAIT_MIN, String::new());
        }
        if said != why {
            log::warn!("{why}; zones stay as they are meanwhile");
            said = why;
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
    has_connected: bool,
}

impl Session<'_> {
    async fn run(&mut self, spec: &EtcdSpec) -> anyhow::Result<Infallible> {
        let mut client = Client::connect(spec, self.endpoint).await?;
        loop {
            let known = self.catch_up(&mut client).await?;
            self.watch(&mut client, known).await?;
        }
    }

    /// Where the watch can begin: behind what is known, if this is the etcd that it is known of, else behind all, which is read.
    async fn catch_up(&mut self, client: &mut Client) -> anyhow::Result<Known> {
        // Reads go through the cluster's leader, so this is not behind.
        let header = header_of(&client.range(&self.layout.zones(), 0, 1).await?)?;
        let is_same = |known: &Known| {
            known.cluster_id == header.cluster_id && known.revision <= revision_of(header.revision)
        };
        if let Some(known) = self.known.filter(is_same) {
            return Ok(known);
        }
        if self.known.take().is_some() {
            log::warn!(
                "etcd {}: this is another etcd, or an older one: all zones are read anew",
                self.endpoint
            );
        }
        self.read_all(client).await
    }

    /// Reads all zones at one revision.
    async fn read_all(&mut self, client: &mut Client) -> anyhow::Result<Known> {
        let mut pages = Pages::new(self.layout.zones(), 0);
        let mut zones = Vec::new();
        while let Some(page) = pages.next(client).await? {
            zones.extend(page);
        }
        let Known { cluster_id, revision } = pages.known.context("an answer without a revision")?;
        self.send(Input::All { revision, zones }).await?;
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
                return self.forget();
            }
            if message.created {
                is_created = true;
                self.has_connected = true;
                log::info!("etcd {}: connected, at revision {}", self.endpoint, known.revision);
                self.send(Input::Connected(true)).await?;
                continue;
            }
            match self.take(client, &mut revisions, message).await {
                Err(error) if error.downcast_ref::<CallError>().is_some_and(CallError::is_compacted) => {
                    return self.forget();
                }
                taken => taken?,
            }
        }
    }

    /// What comes behind what is known is not there any more.
    fn forget(&mut self) -> anyhow::Result<()> {
        *self.known = None;
        log::warn!(
            "etcd {}: it has forgotten the last changes (compaction): all zones are read anew",
            self.endpoint
        );
        Ok(())
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
            self.take_revision(client, revision).await?;
            // Whatever happens next, a revision is not carried out again behind later ones.
            self.known.iter_mut().for_each(|known| known.revision = number);
        }
        if let Some((last, known)) = last.zip(self.known.as_mut()) {
            known.revision = known.revision.max(last);
            let revision = known.revision;
            self.send(Input::Publish(revision)).await?;
        }
        Ok(())
    }

    async fn take_revision(&mut self, client: &mut Client, revision: Revision) -> anyhow::Result<()> {
        let number = revision.revision;
        let joins = revision.changes.iter().filter_map(|KeyChange { key, value }| {
            let Ok(Key::Zone(zone)) = self.layout.parse(key) else { return None };
            Some((zone, Pair { key: key.clone(), value: value.clone()? }))
        });
        let joins: Vec<_> = joins.collect();
        self.send(Input::Revision(revision)).await?;
        for (zone, pair) in joins {
            self.send(Input::Zone { revision: number, zone: pair }).await?;
            let mut pages = Pages::new(self.layout.records_of(zone.as_name()), number);
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
