//! Segments whose owners are being looked for.

use broker::client::Ticket;
use clock::{Duration, Instant};
use stack::Stray;

/// How long a port that no other process has is taken to be ours alone. Whoever floods us with segments of no connection does not keep the broker busy.
const ALONE_FOR: Duration = Duration::from_secs(1);
/// Ports that are remembered.
const PORTS_MAX: usize = 64;

/// What was asked, and what was learnt.
#[derive(Default)]
pub(super) struct Strays {
    pub(super) asked: Vec<Sought>,
    /// Ports that were ours alone, and when that was asked.
    alone: Vec<(u16, Instant)>,
}

/// A segment, and the question for its owner.
pub(super) struct Sought {
    pub(super) stray: Box<Stray>,
    pub(super) ticket: Ticket,
    pub(super) at: Instant,
}

impl Strays {
    /// Whether the owner of this one's connection is being looked for: its sender may have sent it again, and a broker that is stopped has room for few
    /// questions.
    pub(super) fn is_asked(&self, stray: &Stray) -> bool {
        let ends = |stray: &Stray| (stray.local, stray.remote);
        self.asked.iter().any(|sought| ends(&sought.stray) == ends(stray))
    }

    /// No other process had the port when it was asked for at `at`.
    pub(super) fn on_alone(&mut self, port: u16, at: Instant) {
        self.alone.retain(|(other, _)| *other != port);
        if self.alone.len() >= PORTS_MAX {
            self.alone.remove(0);
        }
        self.alone.push((port, at));
    }

    /// Whether no other process had the port a moment ago.
    pub(super) fn is_alone(&self, port: u16, now: Instant) -> bool {
        self.alone.iter().any(|(other, at)| *other == port && now.since(*at) < ALONE_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_port_is_ours_alone_for_a_second() {
        let mut strays = Strays::default();
        strays.on_alone(80, at(5));
        assert!(strays.is_alone(80, at(1004)) && !strays.is_alone(81, at(6)));
        assert!(!strays.is_alone(80, at(1005)));
    }

    #[test]
    fn few_ports_are_remembered_the_latest_ones() {
        let mut strays = Strays::default();
        (1..1000).for_each(|port| strays.on_alone(port, at(port.into())));
        assert_eq!(strays.alone.len(), PORTS_MAX);
        assert!(strays.is_alone(999, at(999)) && !strays.is_alone(1, at(1)));
    }
}
