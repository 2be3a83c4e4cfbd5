//! What the servers of the parent say of a zone's DS records, and what follows for its keys (RFC 7583, 3.3).

use std::net::SocketAddr;

use dns_wire::Name;
use serde::{Deserialize, Serialize};

use crate::key::{Key, Role, State};
use crate::key_set::KeySet;

/// Seconds for which caches may have a DS set whose TTL is not known: two days, the longest TTL that parents are known to give.
pub const UNKNOWN_TTL: u32 = 172_800;

/// What one server of the parent said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The DS set, with its TTL in seconds. Without records there is none.
    Ds {
        /// Seconds for which caches keep the set.
        ttl: u32,
        /// The data of its records.
        records: Vec<Vec<u8>>,
    },
    /// Nothing that counts, and why.
    Nothing(String),
}

/// What the servers of the parent have said so far. It is kept over restarts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Parent {
    servers: Vec<Server>,
    keys: Vec<Seen>,
}

/// What is wrong with what a server said last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Server {
    /// Where it is.
    pub address: SocketAddr,
    /// Why keys have to wait for it.
    pub problem: Option<String>,
}

/// What was seen of the DS records of one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Seen {
    /// The data of its DS record by SHA-256, in hexadecimal: tags are not unique.
    ds: String,
    /// The longest TTL of a set that had one of its records.
    ttl: Option<u32>,
    /// Whether that is the TTL of a set with none of another key's: the set before may have had a longer one.
    #[serde(default)]
    is_seen_alone: bool,
    /// Since when all servers have one, in seconds since 1970.
    shown_since: Option<u64>,
    /// Since when no server has one.
    absent_since: Option<u64>,
    /// Whether all servers had one when they were asked last.
    is_shown: bool,
}

/// How far the parent is with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtParent {
    /// It is not to have a DS record: not yet, or not any more.
    NotTold,
    /// CDS and CDNSKEY records ask for a DS record, which not all servers have.
    Told,
    /// All servers have its DS record, since this time in seconds since 1970.
    HasDs(u64),
}

/// What has changed with the last answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParentChange {
    /// All servers have the DS record of the key of this tag, and not all had.
    Shown(u16),
    /// A server does not have it any more.
    Lost(u16),
}

impl Parent {
    /// Takes in what all servers said at `now`, in seconds since 1970.
    pub fn note(
        &mut self,
        origin: Name<'_>,
        keys: &KeySet,
        said: &[(SocketAddr, Said)],
        now: u64,
    ) -> Vec<ParentChange> {
        let key_signing = || keys.keys().iter().filter(|key| key.role() == Role::KeySigning);
        let mut changes = Vec::new();
        let mut all = Vec::new();
        for key in key_signing() {
            let mut seen = self.seen(origin, key).cloned().unwrap_or_else(|| Seen::new(origin, key));
            let before = seen.shown_since;
            let of_other = |ds: &[u8]| {
                key_signing().any(|other| other.dnskey() != key.dnskey() && other.is_named_by(origin, ds))
            };
            seen.is_seen_alone |= said.iter().any(|(_, said)| match said {
                Said::Ds { records, .. } => {
                    let is_own = records.iter().any(|ds| key.is_named_by(origin, ds));
                    is_own && !records.iter().any(|ds| of_other(ds))
                }
                Said::Nothing(_) => false,
            });
            seen.note(origin, key, said, now);
            match (before, seen.shown_since) {
                (None, Some(_)) => changes.push(ParentChange::Shown(key.tag())),
                (Some(_), None) => changes.push(ParentChange::Lost(key.tag())),
                _ => {}
            }
            all.push(seen);
        }
        self.keys = all;
        let told: Vec<&Key> = keys.at(now).map(|active| active.synced).unwrap_or_default();
        let server = |(address, said): &(SocketAddr, Said)| Server {
            address: *address,
            problem: said.problem(origin, &told),
        };
        self.servers = said.iter().map(server).collect();
        changes
    }

    /// Takes in that the clock has jumped forwards by `seconds`, to `now` in seconds since 1970, as the clock of a machine does that was behind
    /// when it started. What was noted by the clock before counts from as much later, but from no later than now: a wait for caches never becomes
    /// shorter by a jump, and begins anew at most.
    pub fn on_jump(&mut self, seconds: u64, now: u64) {
        for seen in &mut self.keys {
            for since in [&mut seen.shown_since, &mut seen.absent_since].into_iter().flatten() {
                *since = since.saturating_add(seconds).min(now).max(*since);
            }
        }
    }

    /// The servers that were asked last.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// How far the parent is with a key-signing key.
    pub fn state_of(&self, origin: Name<'_>, keys: &KeySet, key: &Key, now: u64) -> AtParent {
        match self.seen(origin, key).and_then(|seen| seen.shown_since) {
            Some(since) => AtParent::HasDs(since),
            None if keys.is_synced(key, now) => AtParent::Told,
            None => AtParent::NotTold,
        }
    }

    /// Whether something is still to happen at the parent, or because of it.
    pub fn is_awaited(&self, origin: Name<'_>, keys: &KeySet, now: u64) -> bool {
        let signing = |key: &&Key| key.role() == Role::KeySigning && key.times.state(now) == State::Signing;
        keys.keys()
            .iter()
            .filter(signing)
            .any(|key| keys.is_leaving(key, now) || self.state_of(origin, keys, key, now) == AtParent::Told)
    }

    /// When a key-signing key may end that another one has taken the place of, in seconds since 1970; `None` while that is not known.
    ///
    /// All servers have to show the DS records of the keys that are to be trusted. From then on caches forget the set before, for as long as its
    /// TTL. If the algorithm ends with the key, the parent must not name that any more (RFC 6781, 4.1.4).
    pub fn end_of(&self, origin: Name<'_>, keys: &KeySet, old: &Key, now: u64) -> Option<u64> {
        let active = keys.at(now).ok().filter(|_| keys.is_leaving(old, now))?;
        let seen = self.seen(origin, old);
        let ttl = u64::from(seen.map_or(UNKNOWN_TTL, Seen::ttl));
        let shown = active.synced.iter().map(|key| self.seen(origin, key)?.shown_since);
        let shown = shown.collect::<Option<Vec<u64>>>()?.into_iter().max()?;
        let goes_on = active.synced.iter().any(|key| key.algorithm() == old.algorithm());
        let since = if goes_on { shown } else { shown.max(seen?.absent_since?) };
        Some(since + ttl)
    }

    /// The key-signing keys that may end now.
    pub fn ended<'k>(&self, origin: Name<'_>, keys: &'k KeySet, now: u64) -> Vec<&'k Key> {
        let active = keys.at(now).map(|active| active.synced).unwrap_or_default();
        // What one server has lost, or is silent about, may have been lost at others.
        let are_shown = active.iter().all(|key| self.seen(origin, key).is_some_and(|seen| seen.is_shown));
        let is_over = |key: &&Key| self.end_of(origin, keys, key, now).is_some_and(|end| end <= now);
        keys.keys().iter().filter(|_| are_shown).filter(is_over).collect()
    }

    fn seen(&self, origin: Name<'_>, key: &Key) -> Option<&Seen> {
        let ds = hexadecimal(&key.ds(origin));
        self.keys.iter().find(|seen| seen.ds == ds)
    }
}

impl Seen {
    fn new(origin: Name<'_>, key: &Key) -> Seen {
        let ds = hexadecimal(&key.ds(origin));
        Seen { ds, ttl: None, is_seen_alone: false, shown_since: None, absent_since: None, is_shown: false }
    }

    /// Seconds for which caches may have a set with one of its records.
    fn ttl(&self) -> u32 {
        let least = if self.is_seen_alone { 0 } else { UNKNOWN_TTL };
        self.ttl.unwrap_or(UNKNOWN_TTL).max(least)
    }

    fn note(&mut self, origin: Name<'_>, key: &Key, said: &[(SocketAddr, Said)], now: u64) {
        let sets = || {
            said.iter().filter_map(|(_, said)| match said {
                Said::Ds { ttl, records } => Some((*ttl, records)),
                Said::Nothing(_) => None,
            })
        };
        let have_all_said = sets().count() == said.len() && !said.is_empty();
        // Validators may pass over SHA-1 (RFC 8624, 3.3), so such a record leads to nothing, but a cache may still have it.
        let names = |records: &[Vec<u8>]| records.iter().any(|ds| key.is_named_by(origin, ds));
        let leads = |records: &[Vec<u8>]| records.iter().any(|ds| key.is_trusted_by(origin, ds));
        self.ttl = sets().filter(|(_, records)| names(records)).map(|(ttl, _)| ttl).chain(self.ttl).max();
        self.is_shown = have_all_said && sets().all(|(_, records)| leads(records));
        // Silence neither begins the wait anew nor ends it.
        self.shown_since = match self.is_shown {
            true => self.shown_since.or(Some(now)),
            false => self.shown_since.filter(|_| sets().all(|(_, records)| leads(records))),
        };
        let is_absent = !sets().any(|(_, records)| names(records));
        self.absent_since = match is_absent && have_all_said {
            true => self.absent_since.or(Some(now)),
            false => self.absent_since.filter(|_| is_absent),
        };
    }
}

impl Said {
    /// Why keys have to wait for the server that said this. `told` are those that it should have DS records of.
    fn problem(&self, origin: Name<'_>, told: &[&Key]) -> Option<String> {
        let records = match self {
            Said::Nothing(why) => return Some(why.clone()),
            Said::Ds { records, .. } => records,
        };
        let lacks = |key: &&&Key| !records.iter().any(|ds| key.is_trusted_by(origin, ds));
        let lacking: Vec<String> = told.iter().filter(lacks).map(|key| key.tag().to_string()).collect();
        if lacking.is_empty() {
            return None;
        }
        let lacking = lacking.join(", ");
        if records.is_empty() {
            return Some(format!("it has no DS record, and should have that of {lacking}"));
        }
        let tags = records.iter().filter_map(|ds| Some(u16::from_be_bytes(*ds.first_chunk()?).to_string()));
        let tags = tags.collect::<Vec<_>>().join(", ");
        Some(format!("it has the DS record of {tags}, and should have that of {lacking}"))
    }
}

fn hexadecimal(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

#[cfg(test)]
#[path = "parent_tests.rs"]
mod tests;
