//! Signatures for one answer (RFC 9824).
//!
//! A zone that is denied compactly has no signature for a name that somebody invents, so an answer about it needs one of its own. That takes a thousand times as
//! long as an answer from a table: each responder has a budget for it, and keeps what it signed last. Beyond the budget there is no signature.

use std::fmt::Debug;
use std::sync::Arc;

use clock::{Duration, Instant};
use dns_wire::{Name, NameBuf, Rtype, fold};

/// Signs with the keys of a zone.
pub trait SignOnline: Debug + Send + Sync {
    /// A number that no other one of the process has, also of another version of the zone.
    fn id(&self) -> u64;

    /// About how long the signatures of one set take.
    fn cost(&self) -> Duration;

    /// The data of a set's RRSIG records; `None` if it cannot be signed.
    fn sign(&self, set: &OnlineSet<'_>) -> Option<Vec<Vec<u8>>>;
}

/// A record set that one answer has.
#[derive(Clone, Copy, Debug)]
pub struct OnlineSet<'s> {
    /// The name that is made or denied.
    pub owner: Name<'s>,
    /// The type.
    pub rtype: Rtype,
    /// In seconds.
    pub ttl: u32,
    /// The data of each record.
    pub records: &'s [&'s [u8]],
}

/// Why a set has no signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsigned {
    /// They would be beyond the budget of the responder.
    OverBudget,
    /// The keys are not here, or do not sign.
    NoKeys,
}

/// What became of the sets that one answer needed signatures for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Sets that were signed.
    pub signed: u8,
    /// Sets whose signatures were there from an answer before.
    pub reused: u8,
    /// Sets that were not signed, as they were beyond the budget.
    pub over_budget: u8,
    /// Sets that nobody could sign.
    pub failed: u8,
}

/// Who signs for the zone that an answer has come to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ZoneSigner<'a> {
    pub(crate) signer: &'a dyn SignOnline,
    /// Whether the set of a name and type is the same for all clients.
    pub(crate) is_same_for_all: bool,
}

/// What a responder has for signatures.
#[derive(Debug)]
pub struct Online {
    /// Its last batch began then.
    now: Instant,
    /// How much of the time may go into signatures.
    percent: u8,
    /// For answers over UDP, and for those over connections: who sends questions from forged addresses uses up the first alone.
    budgets: [Budget; 2],
    has_connection: bool,
    cache: Cache,
    tally: Tally,
}

impl Online {
    /// One whose signatures may take so much of the time: `percent` of it for answers over UDP, and as much for those over connections.
    pub(crate) fn new(percent: u8) -> Online {
        let (now, has_connection, cache, tally) = Default::default();
        Online { now, percent, budgets: [Budget::FULL; 2], has_connection, cache, tally }
    }

    pub(crate) fn set_percent(&mut self, percent: u8) {
        self.percent = percent;
    }

    pub(crate) fn set_time(&mut self, now: Instant) {
        self.now = now;
    }

    /// Says whether the answers from here on go over connections.
    pub(crate) fn set_connection(&mut self, has_connection: bool) {
        self.has_connection = has_connection;
    }

    /// Begins another answer.
    pub(crate) fn begin(&mut self) {
        self.tally = Tally::default();
    }

    /// What became of the sets of this answer.
    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    /// The data of a set's signatures.
    pub(crate) fn sign(
        &mut self,
        zone: Option<ZoneSigner<'_>>,
        set: &OnlineSet<'_>,
    ) -> Result<Arc<[Vec<u8>]>, Unsigned> {
        let Some(ZoneSigner { signer, is_same_for_all }) = zone else {
            self.tally.failed += 1;
            return Err(Unsigned::NoKeys);
        };
        if is_same_for_all && let Some(held) = self.cache.find(signer.id(), set, self.now) {
            self.tally.reused += 1;
            return Ok(held);
        }
        let budget = &mut self.budgets[usize::from(self.has_connection)];
        if !budget.take(signer.cost(), self.now, self.percent) {
            self.tally.over_budget += 1;
            return Err(Unsigned::OverBudget);
        }
        let Some(signatures) = signer.sign(set).filter(|signatures| !signatures.is_empty()) else {
            self.tally.failed += 1;
            return Err(Unsigned::NoKeys);
        };
        self.tally.signed += 1;
        let signatures: Arc<[Vec<u8>]> = signatures.into();
        if is_same_for_all {
            self.cache.keep(signer.id(), set, self.now, &signatures);
        }
        Ok(signatures)
    }
}

/// The share of this time is what a budget holds after a pause. Other questions of a batch wait for no longer than that.
const BURST: Duration = Duration::from_millis(100);

/// Time that may go into signatures.
#[derive(Clone, Copy, Debug)]
struct Budget {
    left_nanos: u64,
    filled: Instant,
}

impl Budget {
    const FULL: Budget = Budget { left_nanos: u64::MAX, filled: Instant::ZERO };

    /// Takes what a signature costs, if that is there. One signature is there after a pause, however much it costs.
    fn take(&mut self, cost: Duration, now: Instant, percent: u8) -> bool {
        let share = |time: Duration| time.as_nanos().saturating_mul(u64::from(percent)) / 100;
        let cost = cost.as_nanos().max(1);
        let most = share(BURST).max(cost);
        self.left_nanos = self.left_nanos.saturating_add(share(now.since(self.filled))).min(most);
        self.filled = now;
        let is_there = self.left_nanos >= cost;
        if is_there {
            self.left_nanos -= cost;
        }
        is_there
    }
}

/// Names whose signatures are kept, by a part of their hash: each has one place, and takes it from the one before.
const CACHED: usize = 1024;

/// For so long they are kept: they are good for days.
const CACHED_FOR: Duration = Duration::from_secs(3600);

/// The signatures of before. It takes no memory before there is one.
#[derive(Debug, Default)]
struct Cache(Vec<Option<Cached>>);

#[derive(Clone, Debug)]
struct Cached {
    signer: u64,
    owner: NameBuf,
    rtype: Rtype,
    since: Instant,
    signatures: Arc<[Vec<u8>]>,
}

impl Cache {
    fn find(&self, signer: u64, set: &OnlineSet<'_>, now: Instant) -> Option<Arc<[Vec<u8>]>> {
        let held = self.0.get(Cache::place(signer, set))?.as_ref()?;
        let is_it = held.signer == signer && held.rtype == set.rtype && held.owner.as_name() == set.owner;
        (is_it && now.since(held.since) < CACHED_FOR).then(|| Arc::clone(&held.signatures))
    }

    fn keep(&mut self, signer: u64, set: &OnlineSet<'_>, since: Instant, signatures: &Arc<[Vec<u8>]>) {
        self.0.resize(CACHED, None);
        let (owner, signatures) = (NameBuf::from(set.owner), Arc::clone(signatures));
        self.0[Cache::place(signer, set)] =
            Some(Cached { signer, owner, rtype: set.rtype, since, signatures });
    }

    fn place(signer: u64, set: &OnlineSet<'_>) -> usize {
        let hash = fold::hash_with_type(fold::hash_name(set.owner.as_bytes(), signer), set.rtype.0);
        hash as usize % CACHED
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Signs by writing down what it signs. Each signature costs a millisecond.
    #[derive(Debug)]
    pub(crate) struct Fake {
        id: u64,
        pub(crate) count: AtomicU64,
    }

    impl Fake {
        pub(crate) fn new(id: u64) -> Fake {
            Fake { id, count: AtomicU64::new(0) }
        }
    }

    impl SignOnline for Fake {
        fn id(&self) -> u64 {
            self.id
        }

        fn cost(&self) -> Duration {
            Duration::from_millis(1)
        }

        fn sign(&self, set: &OnlineSet<'_>) -> Option<Vec<Vec<u8>>> {
            self.count.fetch_add(1, Ordering::Relaxed);
            Some(vec![[&set.rtype.0.to_be_bytes(), set.owner.as_bytes()].concat()])
        }
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn name(number: usize) -> NameBuf {
        NameBuf::from_text(format!("x{number}.example.").as_bytes(), None).unwrap()
    }

    /// How many of so many names are signed, from a number on.
    fn signed(online: &mut Online, fake: &Fake, names: std::ops::Range<usize>) -> usize {
        online.begin();
        names.filter(|number| sign(online, fake, &name(*number)).is_ok()).count()
    }

    fn sign(online: &mut Online, fake: &Fake, owner: &NameBuf) -> Result<Arc<[Vec<u8>]>, Unsigned> {
        let zone = ZoneSigner { signer: fake, is_same_for_all: true };
        let set = OnlineSet { owner: owner.as_name(), rtype: Rtype::NSEC, ttl: 5, records: &[] };
        online.sign(Some(zone), &set)
    }

    #[test]
    fn signatures_take_no_more_than_their_part_of_the_time() {
        let (mut online, fake) = (Online::new(5), Fake::new(1));
        online.set_time(at(1000));
        assert_eq!(signed(&mut online, &fake, 0..100), 5, "a tenth of a second's part");
        online.set_time(at(1019));
        assert_eq!(signed(&mut online, &fake, 100..200), 0);
        online.set_time(at(1020));
        assert_eq!(signed(&mut online, &fake, 200..300), 1);
        online.set_time(at(2020));
        assert_eq!(signed(&mut online, &fake, 300..400), 5, "no more after a long pause");
        for milli in 0..10_000 {
            online.set_time(at(3000 + milli));
            let first = 1000 * milli as usize;
            signed(&mut online, &fake, first..first + 3);
        }
        let count = fake.count.load(Ordering::Relaxed) - 11;
        assert!((500..=505).contains(&count), "{count} signatures in 10 s");
    }

    #[test]
    fn connections_have_a_budget_of_their_own() {
        let (mut online, fake) = (Online::new(5), Fake::new(1));
        assert_eq!(signed(&mut online, &fake, 0..100), 5);
        online.set_connection(true);
        assert_eq!(signed(&mut online, &fake, 100..200), 5);
        assert_eq!(online.tally(), Tally { signed: 5, over_budget: 95, ..Tally::default() });
    }

    #[test]
    fn a_signature_that_costs_more_than_the_budget_holds_is_made_after_a_pause() {
        let mut budget = Budget::FULL;
        let cost = Duration::from_millis(50);
        assert!(budget.take(cost, at(0), 5));
        assert!(!budget.take(cost, at(999), 5));
        assert!(budget.take(cost, at(1000), 5));
    }

    #[test]
    fn signatures_are_used_again_by_the_same_version_for_an_hour() {
        let (mut online, fake, next) = (Online::new(100), Fake::new(1), Fake::new(2));
        let first = sign(&mut online, &fake, &name(1)).unwrap();
        online.set_time(at(1000));
        assert!(Arc::ptr_eq(&first, &sign(&mut online, &fake, &name(1)).unwrap()));
        assert_eq!(online.tally(), Tally { signed: 1, reused: 1, ..Tally::default() });
        assert!(!Arc::ptr_eq(&first, &sign(&mut online, &next, &name(1)).unwrap()), "another version");
        sign(&mut online, &fake, &name(1)).unwrap();
        online.set_time(at(3_601_000));
        sign(&mut online, &fake, &name(1)).unwrap();
        assert_eq!((fake.count.load(Ordering::Relaxed), next.count.load(Ordering::Relaxed)), (2, 1));
    }

    #[test]
    fn without_keys_nothing_is_signed() {
        let (mut online, owner) = (Online::new(5), name(1));
        let set = OnlineSet { owner: owner.as_name(), rtype: Rtype::NSEC, ttl: 5, records: &[] };
        assert_eq!(online.sign(None, &set).err(), Some(Unsigned::NoKeys));
        assert_eq!(online.tally().failed, 1);
    }
}
