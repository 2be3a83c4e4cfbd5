//! What the thread with the timers hears of: each zone waits once, so that nothing is lost, and no more waits than there are zones.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dns_transfer::Notice;
use dns_wire::NameBuf;

use super::Outcome;

/// Where others leave what the thread with the timers is to hear. They never wait for it.
#[derive(Clone, Default)]
pub(crate) struct Notices(Arc<Shared>);

#[derive(Default)]
struct Shared {
    heard: Mutex<Heard>,
    has_come: Condvar,
}

/// What has come since the thread looked last.
#[derive(Default)]
pub(super) struct Heard {
    /// Zones whose primaries are to be asked. Whoever leaves a notice has found that it is of a secondary zone, so they are no more than those.
    pub(super) wanted: BTreeMap<NameBuf, Wanted>,
    /// The names of configured zones, which no catalog may bring, if they are others now.
    pub(super) taken: Option<BTreeSet<NameBuf>>,
    /// What came of refreshes of the zones of these numbers. A zone is not asked for again before that was heard.
    pub(super) refreshed: Vec<(usize, Outcome)>,
}

/// Why the primaries of a zone are to be asked.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Primaries that say that it has changed. Which serials they name does not matter: they are asked for those of now.
    pub(super) told_by: BTreeSet<IpAddr>,
    /// An operator wants it, or a signature proves that a primary does: it is asked for without delay.
    pub(super) is_sure: bool,
    /// An operator wants all of it, whatever serial the primaries have.
    pub(super) is_wanted_anew: bool,
}

impl Notices {
    /// A primary says that a zone has changed.
    pub(crate) fn notify(&self, notice: Notice) {
        let Notice { zone, from, is_signed } = notice;
        self.want(zone, |wanted| {
            wanted.told_by.insert(from.to_canonical());
            wanted.is_sure |= is_signed;
        });
    }

    /// An operator wants a zone's primaries to be asked.
    pub(crate) fn refresh(&self, zone: NameBuf) {
        self.want(zone, |wanted| wanted.is_sure = true);
    }

    /// An operator wants all of a zone to be transferred.
    pub(crate) fn retransfer(&self, zone: NameBuf) {
        self.want(zone, |wanted| (wanted.is_sure, wanted.is_wanted_anew) = (true, true));
    }

    /// These are the names of configured zones now.
    pub(crate) fn take(&self, names: BTreeSet<NameBuf>) {
        self.leave(|heard| heard.taken = Some(names));
    }

    /// The primaries of a zone were asked.
    pub(super) fn refreshed(&self, number: usize, outcome: Outcome) {
        self.leave(|heard| heard.refreshed.push((number, outcome)));
    }

    /// All that has come; waits for `patience` at most until there is something.
    pub(super) fn wait(&self, patience: Duration) -> Heard {
        let is_nothing = |heard: &mut Heard| {
            heard.wanted.is_empty() && heard.taken.is_none() && heard.refreshed.is_empty()
        };
        let waited = self.0.has_come.wait_timeout_while(self.heard(), patience, is_nothing);
        let (mut heard, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut heard)
    }

    fn want(&self, zone: NameBuf, note: impl FnOnce(&mut Wanted)) {
        self.leave(|heard| note(heard.wanted.entry(zone).or_default()));
    }

    fn leave(&self, note: impl FnOnce(&mut Heard)) {
        note(&mut self.heard());
        self.0.has_come.notify_one();
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.0.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(number: usize) -> NameBuf {
        NameBuf::from_text(format!("zone-{number}.test.").as_bytes(), None).unwrap()
    }

    #[test]
    fn of_ten_thousand_zones_whose_primaries_tell_while_nobody_looks_none_is_lost_and_each_waits_once() {
        let notices = Notices::default();
        let [first, second, mapped] =
            ["192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1"].map(|text| text.parse().unwrap());
        for from in [first, second, mapped] {
            let notice = |number| Notice { zone: zone(number), from, is_signed: number == 8 };
            (0..10_000).for_each(|number| notices.notify(notice(number)));
        }
        notices.retransfer(zone(7));
        notices.refresh(zone(6));
        notices.take(BTreeSet::from([zone(1)]));
        notices.take(BTreeSet::from([zone(2)]));
        let heard = notices.wait(Duration::ZERO);
        assert_eq!(heard.wanted.len(), 10_000);
        assert!(heard.wanted.values().all(|wanted| wanted.told_by == BTreeSet::from([first, second])));
        let anew = heard.wanted.iter().filter(|(_, wanted)| wanted.is_wanted_anew);
        assert_eq!(anew.map(|(name, _)| name.clone()).collect::<Vec<_>>(), [zone(7)]);
        let sure = heard.wanted.iter().filter(|(_, wanted)| wanted.is_sure);
        assert_eq!(sure.map(|(name, _)| name.clone()).collect::<Vec<_>>(), [6, 7, 8].map(zone));
        assert_eq!(heard.taken, Some(BTreeSet::from([zone(2)])));
        assert!(notices.wait(Duration::ZERO).wanted.is_empty());
    }
}
