//! When expired data is served (RFC 8767).
//!
//! A client waits for a fresh answer while there is hope of one. Expired data is served
//!
//! - when the resolution fails, or a failure of the same question is remembered; or
//! - when the *client timer* has passed **and** the resolution is hopeless: every server of the zone has been asked and has had `grace` to
//!   answer, at least two waits have ended in vain, and no server that answered its last query is within its wait.
//!
//! ```text
//! question       client timer: max(400 ms, 2 x best time of the zone's servers)
//!    │                        │
//!    ▼                        ▼
//!    ├── ask A ── ask B ──────┼─ ask all that are left ──▶ an answer: fresh
//!    │   (silent)  (slow)     └─ B still within its wait: go on waiting
//!    ├── ask A ── ask B ── ask A ┼──────────────────────▶ all silent: expired data, TTL 30, EDE 3 or 19
//!    └── ask A ── ask B ── ... ── failure ──────────────▶ expired data at once
//! ```
//!
//! So a server that answers within its usual time keeps its clients from expired data, however slow it is. After a stale answer
//! the resolution goes on. Probes find out when a server is back; the first question after that is resolved again.

use clock::Duration;

use crate::options::Stale;

/// How a resolution stands with the servers that it asks now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Waits that ended without an answer.
    pub losses: u32,
    /// Whether a server that answered its last query is being asked, within its wait.
    pub waits_for_live_server: bool,
    /// Whether a server is left that was not asked yet.
    pub has_server_left: bool,
    /// Whether the server that was asked last for the first time has had less than [`Stale::grace`] to answer.
    pub is_early: bool,
}

impl Progress {
    /// Whether waiting longer is unlikely to give a fresh answer.
    #[must_use]
    pub fn is_hopeless(self) -> bool {
        self.losses >= 2 && !self.waits_for_live_server && !self.has_server_left && !self.is_early
    }
}

/// How long a client waits before expired data is considered. `best_rtt` is the shortest time of the zone's servers, if one is known.
#[must_use]
pub fn client_timer(options: &Stale, best_rtt: Option<Duration>) -> Duration {
    options.client_timer.max(best_rtt.unwrap_or_default() * 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_timer_respects_slow_servers() {
        let timer = |millis: u64| client_timer(&Stale::default(), Some(Duration::from_millis(millis)));
        assert_eq!(timer(10), Duration::from_millis(400));
        assert_eq!(timer(300), Duration::from_millis(600));
        assert_eq!(client_timer(&Stale::default(), None), Duration::from_millis(400));
    }

    #[test]
    fn there_is_hope_while_a_live_server_may_answer() {
        let dead =
            Progress { losses: 2, waits_for_live_server: false, has_server_left: false, is_early: false };
        assert!(dead.is_hopeless());
        for hope in [
            Progress { losses: 1, ..dead },
            Progress { waits_for_live_server: true, ..dead },
            Progress { has_server_left: true, ..dead },
            Progress { is_early: true, ..dead },
        ] {
            assert!(!hope.is_hopeless());
        }
    }
}
