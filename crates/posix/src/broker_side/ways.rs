//! A cache of the routes to peers that the broker reported a moment ago.

use std::collections::BTreeMap;
use std::net::IpAddr;

use clock::{Duration, Instant};

use crate::broker_side::attachment::Way;

/// How long a route is valid without news: the broker does not hear of everything that may change one, such as
/// rules and redirects.
const GOOD: Duration = Duration::from_secs(1);
/// Ways that are remembered; with more, all are asked for anew.
const WAYS_MAX: usize = 1024;

/// Where to, and from which address if that matters.
type Ends = (IpAddr, Option<IpAddr>);

/// The ways.
#[derive(Default)]
pub(crate) struct Ways {
    known: BTreeMap<Ends, (Way, Instant)>,
}

impl Ways {
    pub(crate) fn note(&mut self, ends: Ends, way: Way, now: Instant) {
        if self.known.len() >= WAYS_MAX {
            self.known.clear();
        }
        self.known.insert(ends, (way, now));
    }

    pub(crate) fn find(&self, ends: Ends, now: Instant) -> Option<Way> {
        self.known.get(&ends).filter(|(_, told_at)| now < *told_at + GOOD).map(|(way, _)| way.clone())
    }

    /// Something changed.
    pub(crate) fn forget(&mut self) {
        self.known.clear();
    }
}

#[cfg(test)]
mod tests {
    use stack::Hop;

    use super::*;
    use crate::broker_side::attachment::Answers;

    const NEAR: Ends = (IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)), None);

    fn way() -> Way {
        Way { local: [192, 0, 2, 2].into(), hop: Hop::default(), answers: Answers::Ours }
    }

    #[test]
    fn a_way_is_good_for_a_second_or_until_something_changes() {
        let mut ways = Ways::default();
        let (last, second) = (Instant::from_nanos(999_999_999), Instant::ZERO + GOOD);
        ways.note(NEAR, way(), Instant::ZERO);
        assert_eq!(ways.find(NEAR, last), Some(way()));
        assert_eq!(ways.find(NEAR, second), None);
        ways.note(NEAR, way(), second);
        ways.forget();
        assert_eq!(ways.find(NEAR, second), None);
    }

    #[test]
    fn a_way_is_from_one_address() {
        let mut ways = Ways::default();
        ways.note(NEAR, way(), Instant::ZERO);
        assert_eq!(ways.find((NEAR.0, Some([192, 0, 2, 9].into())), Instant::ZERO), None);
    }

    #[test]
    fn not_all_that_were_ever_asked_for_are_remembered() {
        let mut ways = Ways::default();
        for address in 0..5000u32 {
            let peer = IpAddr::from(address.to_be_bytes());
            ways.note((peer, None), way(), Instant::ZERO);
            assert!(ways.find((peer, None), Instant::ZERO).is_some() && ways.known.len() <= WAYS_MAX);
        }
    }
}
