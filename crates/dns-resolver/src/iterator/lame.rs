//! Servers that do not serve a zone that is delegated to them, for as long as that is believed.
//!
//! One name that a server fails for says nothing about the zone: its data may be broken there, or the server may refuse a type. Two names in a
//! row do.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use clock::{Duration, Instant};
use dns_wire::{Name, NameBuf};

/// How long a server is not asked about a zone that it did not know. A minute: operators repair this, and a question every
/// minute tells nobody off.
const LAME_TTL: Duration = Duration::from_secs(60);
/// Pairs that are remembered; beyond it the memory starts anew.
const PAIRS_MAX: usize = 10_000;

/// A server that failed for a name of a zone.
#[derive(Debug)]
struct Suspicion {
    name: Box<[u8]>,
    /// It failed for another name, too, with no good answer between.
    is_lame: bool,
    until: Instant,
}

/// Pairs of zone and server.
#[derive(Debug, Default)]
pub(crate) struct LameServers(BTreeMap<(Box<[u8]>, SocketAddr), Suspicion>);

impl LameServers {
    /// `address` gave no useful answer for `name` in `zone`.
    pub(crate) fn note(&mut self, zone: Name<'_>, address: SocketAddr, name: Name<'_>, now: Instant) {
        if self.0.len() >= PAIRS_MAX {
            self.0.retain(|_, suspicion| suspicion.until > now);
            if self.0.len() >= PAIRS_MAX {
                self.0.clear();
            }
        }
        let (pair, name, until) = ((key(zone), address), key(name), now + LAME_TTL);
        match self.0.get_mut(&pair).filter(|suspicion| suspicion.until > now) {
            Some(suspicion) => {
                suspicion.is_lame |= suspicion.name != name;
                suspicion.until = until;
            }
            None => drop(self.0.insert(pair, Suspicion { name, is_lame: false, until })),
        }
    }

    /// `address` has answered a question about `zone`.
    pub(crate) fn clear(&mut self, zone: Name<'_>, address: SocketAddr) {
        if !self.0.is_empty() {
            self.0.remove(&(key(zone), address));
        }
    }

    /// Takes those that do not serve `zone` out of `addresses`, unless that are all.
    pub(crate) fn remove_from(&self, addresses: &mut Vec<SocketAddr>, zone: Name<'_>, now: Instant) {
        if self.0.is_empty() {
            return;
        }
        let zone = key(zone);
        let is_lame = |address: &SocketAddr| {
            let suspicion = self.0.get(&(zone.clone(), *address));
            suspicion.is_some_and(|suspicion| suspicion.is_lame && suspicion.until > now)
        };
        if !addresses.iter().all(is_lame) {
            addresses.retain(|address| !is_lame(address));
        }
    }
}

fn key(name: Name<'_>) -> Box<[u8]> {
    let mut name = NameBuf::from(name);
    name.make_lowercase();
    name.as_name().as_bytes().into()
}
