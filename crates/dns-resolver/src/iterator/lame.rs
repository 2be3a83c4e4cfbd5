//! Servers that do not serve a zone that is delegated to them, for as long as that is believed.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use clock::{Duration, Instant};
use dns_wire::{Name, NameBuf};

/// How long a server is not asked about a zone that it did not know. A minute: operators repair this, and a question every
/// minute tells nobody off.
const LAME_TTL: Duration = Duration::from_secs(60);
/// Pairs that are remembered; beyond it the memory starts anew.
const PAIRS_MAX: usize = 10_000;

/// Pairs of zone and server.
#[derive(Debug, Default)]
pub(crate) struct LameServers {
    until: BTreeMap<(Box<[u8]>, SocketAddr), Instant>,
}

impl LameServers {
    /// `address` does not serve `zone`.
    pub(crate) fn note(&mut self, zone: Name<'_>, address: SocketAddr, now: Instant) {
        if self.until.len() >= PAIRS_MAX {
            self.until.retain(|_, until| *until > now);
            if self.until.len() >= PAIRS_MAX {
                self.until.clear();
            }
        }
        self.until.insert((key(zone), address), now + LAME_TTL);
    }

    /// Takes those that do not serve `zone` out of `addresses`, unless that are all.
    pub(crate) fn remove_from(&self, addresses: &mut Vec<SocketAddr>, zone: Name<'_>, now: Instant) {
        if self.until.is_empty() {
            return;
        }
        let zone = key(zone);
        let is_lame = |address: &SocketAddr| {
            self.until.get(&(zone.clone(), *address)).is_some_and(|until| *until > now)
        };
        if !addresses.iter().all(is_lame) {
            addresses.retain(|address| !is_lame(address));
        }
    }
}

fn key(zone: Name<'_>) -> Box<[u8]> {
    let mut zone = NameBuf::from(zone);
    zone.make_lowercase();
    zone.as_name().as_bytes().into()
}
