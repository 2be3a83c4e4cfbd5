//! Whether the authority is there while resolvers are asked for its names: what it answers itself, all the time, where its address is known, and
//! what it makes for resolvers.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dns_audit::presence::Presence;
use dns_audit::transcript::Outcome;
use dns_wire::Name;
use tokio::time::Instant;

use super::clock::{self, unix_ms};
use super::exchange::{Askers, server};
use super::pace::{Pace, Turns};

/// Between two questions at least.
const INTERVAL: Duration = Duration::from_secs(1);
/// Of the rate at the authority, one question in so many is for this at most: at one a second there is time for a lost one within a gap.
const SHARE: u32 = 2;

/// By how much the authority's clock may be misread, in milliseconds.
const MISREAD_MS: u64 = 500;

/// The bounds of rate at the authority: for signs of life, and for all else. A log of many resolvers is not to hold up signs of life.
pub(super) fn paces(rate: u32) -> [Pace; 2] {
    let rate = f64::from(rate.max(1));
    let signs = (rate / f64::from(SHARE)).min(1.0 / INTERVAL.as_secs_f64());
    [signs, rate - signs].map(|rate| Pace::with_interval(Duration::from_secs_f64(1.0 / rate)))
}

/// What all audits of a run know of the authority.
#[derive(Debug, Default)]
pub(super) struct Sightings(Mutex<Presence>);

impl Sightings {
    fn lock(&self) -> MutexGuard<'_, Presence> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It did something at that time, by its clock.
    pub(super) fn add_sign(&self, at_ms: u64) {
        self.lock().add_sign(at_ms);
    }

    /// The authority's clock was set: what was seen by the old one says nothing of the times of the new one.
    pub(super) fn forget(&self) {
        *self.lock() = Presence::default();
    }

    /// What is known so far.
    pub(super) fn so_far(&self) -> Presence {
        self.lock().clone()
    }
}

/// The authority, where its address is known.
#[derive(Debug)]
pub(super) struct Authority {
    pub(super) address: SocketAddr,
    pub(super) clock: Clock,
}

/// By how much the authority's clock is ahead of this host's, in milliseconds, as it was last read.
#[derive(Debug, Default)]
pub(super) struct Clock(AtomicI64);

impl Clock {
    pub(super) fn new(offset: i64) -> Clock {
        Clock(AtomicI64::new(offset))
    }

    /// Whether that is another time than before, by more than it may be misread.
    pub(super) fn set(&self, offset: i64) -> bool {
        let before = self.0.swap(offset, Ordering::Relaxed); // A number by itself.
        before.abs_diff(offset) > MISREAD_MS
    }

    /// The time by the authority's clock, in milliseconds since 1970.
    pub(super) fn now_ms(&self) -> u64 {
        unix_ms().saturating_add_signed(self.0.load(Ordering::Relaxed))
    }
}

impl Authority {
    /// Asks again and again, so that what resolvers do without the authority is not held against them.
    pub(super) async fn watch(
        &self,
        sightings: &Sightings,
        askers: &Askers,
        zone: Name<'_>,
        turns: &Turns<'_>,
    ) {
        let Ok(step) = clock::sign_of_life(zone) else { return };
        let server = server(self.address, None);
        let mut was_absent = false;
        loop {
            let began = Instant::now();
            let began_ms = self.clock.now_ms();
            let asked = askers.exchange(&step, &server, turns).await;
            let waited_ms = u64::try_from((asked.sent - began).as_millis()).unwrap_or(0);
            let sent_ms = began_ms + waited_ms;
            match asked.outcome {
                Outcome::Answer(answer) if clock::is_alive(&answer) => {
                    sightings.add_sign(sent_ms);
                    was_absent = false;
                }
                Outcome::Answer(_) | Outcome::Silence | Outcome::Failed(_) => {
                    sightings.lock().add_absence(sent_ms, self.clock.now_ms(), was_absent);
                    was_absent = true;
                }
                // Nobody was asked: nothing is known.
                Outcome::Unsent(_) => {}
            }
            // At a low rate the turn comes later.
            tokio::time::sleep(INTERVAL).await;
        }
    }
}
