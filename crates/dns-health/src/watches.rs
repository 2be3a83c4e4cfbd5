//! When each host is checked, and after how many checks it counts as up or down.

use std::collections::{BTreeMap, BTreeSet};

use clock::{Duration, Instant};

/// How a host is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// From the begin of one check to that of the next.
    pub interval: Duration,
    /// Good checks in a row after which a host that is down is up.
    pub rise: u32,
    /// Failed checks in a row after which a host that is up is down.
    pub fall: u32,
}

/// Hosts that are checked, as `T` tells them apart.
///
/// Call [`Watches::poll`] until it gives nothing, and again at [`Watches::deadline`] and after each [`Watches::on_checked`]. No more checks run at once
/// than were allowed, and they begin no closer to each other than the gap that was given.
#[derive(Debug)]
pub struct Watches<T> {
    hosts: BTreeMap<T, Host>,
    due: BTreeSet<(Instant, T)>,
    running: usize,
    running_max: usize,
    gap: Duration,
    /// When the next check may begin.
    free_at: Instant,
}

#[derive(Debug)]
struct Host {
    policy: Policy,
    /// `None` until the first check has ended, which decides alone.
    is_up: Option<bool>,
    /// Checks in a row that say the opposite.
    against: u32,
    began: Instant,
    is_running: bool,
}

impl<T: Clone + Ord> Watches<T> {
    /// Nothing to watch yet.
    pub fn new(running_max: usize, gap: Duration) -> Watches<T> {
        let (hosts, due) = (BTreeMap::new(), BTreeSet::new());
        Watches { hosts, due, running: 0, running_max, gap, free_at: Instant::ZERO }
    }

    /// Watches these hosts and no others. Those that were watched before go on as they were, also under another policy.
    pub fn set(&mut self, wanted: &BTreeMap<T, Policy>, now: Instant) {
        let gone: Vec<T> = self.hosts.keys().filter(|key| !wanted.contains_key(*key)).cloned().collect();
        for key in gone {
            self.running -= usize::from(self.hosts.remove(&key).is_some_and(|host| host.is_running));
        }
        let hosts = &self.hosts;
        self.due.retain(|(_, key)| hosts.contains_key(key));
        for (key, policy) in wanted {
            let known = self.hosts.get_mut(key).map(|host| host.policy = *policy);
            if known.is_none() {
                let host = Host { policy: *policy, is_up: None, against: 0, began: now, is_running: false };
                self.hosts.insert(key.clone(), host);
                self.due.insert((now, key.clone()));
            }
        }
    }

    /// A host that is to be checked now.
    pub fn poll(&mut self, now: Instant) -> Option<T> {
        if self.running >= self.running_max || self.free_at > now {
            return None;
        }
        self.due.first().filter(|(at, _)| *at <= now)?;
        let (_, key) = self.due.pop_first()?;
        let host = self.hosts.get_mut(&key)?;
        (host.began, host.is_running) = (now, true);
        self.running += 1;
        self.free_at = now + self.gap;
        Some(key)
    }

    /// When to poll again, if nothing else happens.
    pub fn deadline(&self) -> Option<Instant> {
        let (at, _) = self.due.first().filter(|_| self.running < self.running_max)?;
        Some((*at).max(self.free_at))
    }

    /// A check of a host has ended. Whether it is up, if that is news; a host about which nothing is known counts as up.
    pub fn on_checked(&mut self, key: &T, is_good: bool, now: Instant) -> Option<bool> {
        let host = self.hosts.get_mut(key).filter(|host| host.is_running)?;
        host.is_running = false;
        self.running -= 1;
        self.due.insert(((host.began + host.policy.interval).max(now), key.clone()));
        let was_up = host.is_up.unwrap_or(true);
        host.against = if is_good == was_up { 0 } else { host.against + 1 };
        let limit = match host.is_up {
            None => 1,
            Some(true) => host.policy.fall,
            Some(false) => host.policy.rise,
        };
        let is_up = if host.against >= limit { is_good } else { was_up };
        host.is_up = Some(is_up);
        if is_up == was_up {
            return None;
        }
        host.against = 0;
        Some(is_up)
    }

    /// Whether a host is up; `None` as long as nothing is known.
    pub fn is_up(&self, key: &T) -> Option<bool> {
        self.hosts.get(key)?.is_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Policy = Policy { interval: Duration::from_millis(100), rise: 2, fall: 3 };

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn watches(hosts: &[u32], running_max: usize, gap_ms: u64) -> Watches<u32> {
        let mut watches = Watches::new(running_max, Duration::from_millis(gap_ms));
        watches.set(&hosts.iter().map(|host| (*host, POLICY)).collect(), at(0));
        watches
    }

    /// The news that outcomes bring, a check each 100 ms.
    fn news(outcomes: &[bool]) -> Vec<Option<bool>> {
        let mut watches = watches(&[1], 1, 0);
        let check = |(number, is_good): (usize, &bool)| {
            let now = at(100 * number as u64);
            assert_eq!((watches.deadline(), watches.poll(now)), (Some(now), Some(1)));
            watches.on_checked(&1, *is_good, now)
        };
        outcomes.iter().enumerate().map(check).collect()
    }

    #[test]
    fn a_host_falls_and_rises_after_as_many_checks_as_the_policy_says() {
        let (good, bad) = (true, false);
        assert_eq!(news(&[good, bad, bad, bad]), [None, None, None, Some(false)]);
        assert_eq!(news(&[good, bad, bad, good, bad, bad]), [None; 6], "not in a row");
        assert_eq!(news(&[bad, good, bad, good, good]), [Some(false), None, None, None, Some(true)]);
        assert_eq!(news(&[bad, bad]), [Some(false), None], "the first one decides alone");
    }

    #[test]
    fn no_more_checks_run_at_once_than_were_allowed() {
        let mut watches = watches(&[1, 2, 3], 2, 0);
        assert_eq!([watches.poll(at(0)), watches.poll(at(0)), watches.poll(at(0))], [Some(1), Some(2), None]);
        assert_eq!(watches.deadline(), None, "one has to end first");
        watches.on_checked(&2, true, at(50));
        assert_eq!([watches.poll(at(50)), watches.poll(at(50))], [Some(3), None]);
        watches.set(&[(3, POLICY)].into(), at(60));
        assert_eq!((watches.poll(at(60)), watches.on_checked(&1, false, at(60))), (None, None), "1 has gone");
        watches.on_checked(&3, true, at(70));
        assert_eq!(
            (watches.deadline(), watches.poll(at(149)), watches.poll(at(150))),
            (Some(at(150)), None, Some(3))
        );
    }

    #[test]
    fn checks_begin_with_a_gap_between_them() {
        let mut watches = watches(&[1, 2], 9, 5);
        assert_eq!([watches.poll(at(0)), watches.poll(at(4))], [Some(1), None]);
        assert_eq!((watches.deadline(), watches.poll(at(5))), (Some(at(5)), Some(2)));
    }

    #[test]
    fn a_host_that_stays_keeps_what_is_known() {
        let mut watches = watches(&[1], 1, 0);
        watches.poll(at(0));
        watches.on_checked(&1, false, at(0));
        watches.set(&[(1, POLICY), (2, POLICY)].into(), at(1));
        assert_eq!((watches.is_up(&1), watches.is_up(&2)), (Some(false), None));
    }
}
