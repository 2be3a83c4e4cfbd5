//! The zone, its log and the wall clock: what answers a message, whichever way it came.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use dns_audit::authority::{Answer, Asked, Entry, Log, Via, Zone};

use super::lines::Lines;
use crate::dns::audit::clock::unix_ms;

/// What all transports share.
pub(super) struct Service {
    zone: Zone,
    servers: Vec<SocketAddr>,
    log: Mutex<Log>,
    /// None if there is no file, or it cannot be written any more.
    lines: Mutex<Option<Lines>>,
}

impl Service {
    pub(super) fn new(zone: Zone, servers: Vec<SocketAddr>, entries: usize, lines: Option<Lines>) -> Service {
        Service { zone, servers, log: Mutex::new(Log::new(entries)), lines: Mutex::new(lines) }
    }

    /// Answers a message that came to `destination`.
    pub(super) fn answer(
        &self,
        message: &[u8],
        source: SocketAddr,
        destination: SocketAddr,
        via: Via,
    ) -> Answer {
        let server = self.servers.iter().position(|own| *own == destination).unwrap_or(0);
        let asked = Asked { message, source, server, via };
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = self.zone.answer(&asked, &mut log, unix_ms());
        drop(log);
        if let Some(entry) = &answer.entry {
            self.write(entry);
        }
        answer
    }

    fn write(&self, entry: &Entry) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(own) = lines.as_mut() else { return };
        let text = serde_json::to_string(entry).unwrap_or_default();
        if let Err(error) = own.add(&text) {
            super::complain_once(own.path(), &error);
            *lines = None;
        }
    }
}
