//! Whether the authority answers while resolvers are asked for its names: it is asked itself, all the time.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use dns_audit::transcript::Outcome;
use dns_wire::Name;

use super::clock::{self, unix_ms};
use super::exchange::{Askers, server};
use super::pace::Turns;

/// Between two questions at least.
const INTERVAL: Duration = Duration::from_secs(1);
/// Of the rate at the authority, one question in so many is for this.
const SHARE: u32 = 10;

/// The authority, as far as it can be asked itself.
#[derive(Debug)]
pub(super) struct Authority {
    pub(super) address: SocketAddr,
    /// By how much its clock is ahead, in milliseconds.
    pub(super) offset: i64,
    /// From when to when it did not answer, by its clock; spans that follow each other are one.
    absences: Mutex<Vec<(u64, u64)>>,
}

impl Authority {
    pub(super) fn new(address: SocketAddr, offset: i64) -> Authority {
        Authority { address, offset, absences: Mutex::default() }
    }

    /// Asks again and again, so that what resolvers do without the authority is not held against them.
    pub(super) async fn watch(&self, askers: &Askers, zone: Name<'_>, turns: &Turns<'_>, rate: u32) {
        let Ok(step) = clock::sign_of_life(zone) else { return };
        let interval = INTERVAL.max(Duration::from_secs(1) * SHARE / rate.max(1));
        let server = server(self.address, None);
        let mut was_absent = false;
        loop {
            let from_ms = self.now_ms();
            let asked = askers.exchange(&step, &server, turns).await;
            let is_absent = matches!(asked.outcome, Outcome::Silence | Outcome::Failed(_));
            if is_absent {
                self.add(from_ms, was_absent);
            }
            was_absent = is_absent;
            tokio::time::sleep(interval).await;
        }
    }

    fn now_ms(&self) -> u64 {
        unix_ms().saturating_add_signed(self.offset)
    }

    fn add(&self, from_ms: u64, is_same: bool) {
        let until_ms = self.now_ms();
        let mut absences = self.absences.lock().unwrap_or_else(PoisonError::into_inner);
        match absences.last_mut().filter(|_| is_same) {
            Some(last) => last.1 = until_ms,
            None => absences.push((from_ms, until_ms)),
        }
    }

    /// Those that had not ended at `since_ms`.
    pub(super) fn absences(&self, since_ms: u64) -> Vec<(u64, u64)> {
        let absences = self.absences.lock().unwrap_or_else(PoisonError::into_inner);
        absences.iter().copied().filter(|(_, until_ms)| *until_ms >= since_ms).collect()
    }
}
