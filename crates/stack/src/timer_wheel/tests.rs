use std::collections::BTreeMap;

use clock::Duration;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;

const START: Instant = Instant::from_nanos(123_456_789_012_345);

fn expired(wheel: &mut TimerWheel, now: Instant) -> Vec<u32> {
    core::iter::from_fn(|| wheel.poll_expired(now)).collect()
}

#[test]
fn a_deadline_expires_at_its_nanosecond_and_not_before() {
    let mut wheel = TimerWheel::new(START, 8);
    for span in [0, 1, 5000, 9000, 1 << 20, 1 << 30, 1 << 40, 1 << 50] {
        let deadline = START + Duration::from_nanos(span);
        let mut wheel = TimerWheel::new(START, 8);
        wheel.schedule(3, deadline);
        assert_eq!((wheel.next_deadline(), wheel.deadline_of(3)), (Some(deadline), Some(deadline)));
        if span > 0 {
            assert_eq!(wheel.poll_expired(START + Duration::from_nanos(span - 1)), None);
        }
        assert_eq!(wheel.poll_expired(deadline), Some(3));
        assert_eq!((wheel.next_deadline(), wheel.deadline_of(3)), (None, None));
    }
    assert_eq!(wheel.poll_expired(START), None);
}

#[test]
fn a_deadline_in_the_past_expires_at_once() {
    let mut wheel = TimerWheel::new(START, 8);
    assert_eq!(wheel.poll_expired(START + Duration::from_secs(1)), None);
    wheel.schedule(1, Instant::ZERO);
    assert!(wheel.next_deadline().unwrap() <= START);
    assert_eq!(wheel.poll_expired(START + Duration::from_secs(1)), Some(1));
}

#[test]
fn the_end_of_time_can_be_scheduled() {
    let end = Instant::from_nanos(u64::MAX);
    let mut wheel = TimerWheel::new(Instant::ZERO, 8);
    wheel.schedule(0, end);
    assert_eq!(expired(&mut wheel, Instant::from_nanos(u64::MAX - 1)), []);
    assert_eq!(expired(&mut wheel, end), [0]);
}

#[test]
fn a_cancelled_or_moved_deadline_does_not_expire() {
    let mut wheel = TimerWheel::new(START, 8);
    let after = |millis| START + Duration::from_millis(millis);
    wheel.schedule(0, after(5));
    wheel.schedule(1, after(5));
    wheel.schedule(2, after(5));
    wheel.cancel(1);
    wheel.cancel(7);
    wheel.schedule(2, after(50_000));
    assert_eq!((wheel.len(), expired(&mut wheel, after(6))), (2, vec![0]));
    wheel.schedule(2, after(7));
    assert_eq!(expired(&mut wheel, after(7)), [2]);
    assert!(wheel.is_empty());
}

#[test]
fn a_jump_of_hours_expires_everything_in_order_of_ticks() {
    let mut wheel = TimerWheel::new(START, 100);
    for key in 0..100 {
        wheel.schedule(key, START + Duration::from_secs(u64::from(key * 37 % 100) * 100));
    }
    let order = expired(&mut wheel, START + Duration::from_secs(7 * 3600));
    assert!(order.iter().map(|key| key * 37 % 100).eq(0..100));
}

#[test]
fn a_crowded_slot_is_worked_off_in_bounded_steps() {
    let keys = 10 * CASCADE_MAX as u32;
    let mut wheel = TimerWheel::new(START, keys as usize);
    let deadline = START + Duration::from_secs(7200);
    (0..keys).for_each(|key| wheel.schedule(key, deadline));
    let (mut count, mut turns) = (0, 0);
    while wheel.next_deadline().is_some_and(|next| next <= deadline) {
        count += expired(&mut wheel, deadline).len();
        turns += 1;
    }
    assert_eq!(count, keys as usize);
    assert!((10..100).contains(&turns), "{turns} turns");
}

#[test]
fn a_key_moved_early_from_a_crowded_slot_is_waited_for() {
    let mut wheel = TimerWheel::new(START, 0);
    let early = START + Duration::from_secs(7200);
    (1..600).for_each(|key| wheel.schedule(key, early + Duration::from_secs(1)));
    wheel.schedule(0, early); // The first of its slot.
    assert_eq!(wheel.poll_expired(early), None);
    assert!(wheel.next_deadline().unwrap() <= early);
    let expired = (0..10).find_map(|_| wheel.poll_expired(early));
    assert_eq!(expired, Some(0));
}

#[test]
fn a_crowded_slot_may_empty_while_it_is_worked_off() {
    let mut wheel = TimerWheel::new(START, 0);
    let deadline = START + Duration::from_secs(7200);
    (0..600).for_each(|key| wheel.schedule(key, deadline));
    assert_eq!(wheel.poll_expired(deadline), None);
    (0..600).for_each(|key| wheel.cancel(key));
    assert_eq!((wheel.len(), wheel.next_deadline()), (0, None));
}

#[test]
fn waiting_for_the_next_deadline_always_gets_further() {
    let begin = Instant::from_nanos(tick(START) << TICK_BITS);
    let mut wheel = TimerWheel::new(begin, 0);
    (0..100).for_each(|key| wheel.schedule(key, begin + Duration::from_nanos(5000 + u64::from(key))));
    for key in 0..100 {
        let next = wheel.next_deadline().unwrap();
        assert_eq!(
            (next - begin, wheel.poll_expired(next)),
            (Duration::from_nanos(5000 + u64::from(key)), Some(key))
        );
    }
}

#[derive(Clone, Debug)]
enum Step {
    Schedule(u32, u64),
    Cancel(u32),
    Advance(u64),
    AdvanceToNext,
}

fn step() -> impl Strategy<Value = Step> {
    let span = || (0u32..44).prop_flat_map(|bits| 0u64..1 << bits);
    prop_oneof![
        6 => (0u32..600, span()).prop_map(|(key, span)| Step::Schedule(key, span)),
        1 => (0u32..600).prop_map(Step::Cancel),
        1 => span().prop_map(Step::Advance),
        2 => Just(Step::AdvanceToNext),
    ]
}

/// The wheel beside a sorted map.
struct Modelled {
    wheel: TimerWheel,
    deadlines: BTreeMap<u32, Instant>,
    now: Instant,
}

impl Modelled {
    fn apply(&mut self, step: Step) {
        match step {
            Step::Schedule(key, span) => {
                let deadline = Instant::from_nanos((self.now + Duration::from_nanos(span)).as_nanos() - 3000);
                self.wheel.schedule(key, deadline);
                self.deadlines.insert(key, deadline);
            }
            Step::Cancel(key) => {
                self.wheel.cancel(key);
                self.deadlines.remove(&key);
            }
            Step::Advance(span) => self.advance(self.now + Duration::from_nanos(span)),
            Step::AdvanceToNext => self.advance(self.wheel.next_deadline().unwrap_or(self.now)),
        }
    }

    fn advance(&mut self, to: Instant) {
        self.now = self.now.max(to);
        let mut key = self.wheel.poll_expired(self.now);
        while key.is_some() || self.wheel.next_deadline().is_some_and(|next| next <= self.now) {
            if let Some(key) = key {
                assert!(self.deadlines.remove(&key).is_some_and(|deadline| deadline <= self.now));
            }
            key = self.wheel.poll_expired(self.now);
        }
    }

    fn check(&self) {
        let earliest = self.deadlines.values().min();
        assert_eq!(self.wheel.next_deadline().is_some(), earliest.is_some());
        assert!(self.wheel.next_deadline() <= earliest.copied());
        assert_eq!(self.wheel.len(), self.deadlines.len());
        assert!((0..600).all(|key| self.wheel.deadline_of(key) == self.deadlines.get(&key).copied()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn the_wheel_expires_what_a_sorted_map_expires(steps in vec(step(), 1..300)) {
        let wheel = TimerWheel::new(START, 0);
        let mut modelled = Modelled { wheel, deadlines: BTreeMap::new(), now: START };
        for step in steps {
            let advances = matches!(step, Step::Advance(_) | Step::AdvanceToNext);
            modelled.apply(step);
            modelled.check();
            prop_assert!(!advances || modelled.deadlines.values().all(|deadline| *deadline > modelled.now));
        }
    }

    #[test]
    fn keys_may_come_and_go_while_a_crowded_slot_is_worked_off(
        seconds in 1u64..10_000,
        changes in vec((0u32..2000, any::<Option<u16>>()), 1..200),
    ) {
        let wheel = TimerWheel::new(START, 0);
        let mut modelled = Modelled { wheel, deadlines: BTreeMap::new(), now: START };
        (0..2000).for_each(|key| modelled.apply(Step::Schedule(key, seconds * 1_000_000_000 + u64::from(key))));
        modelled.now = START + Duration::from_secs(seconds + 1);
        for (key, span) in changes {
            if let Some(key) = modelled.wheel.poll_expired(modelled.now) {
                prop_assert!(modelled.deadlines.remove(&key).is_some_and(|deadline| deadline <= modelled.now));
            }
            modelled.apply(span.map_or(Step::Cancel(key), |span| Step::Schedule(key, u64::from(span) << 20)));
        }
        modelled.advance(modelled.now);
        prop_assert!(modelled.deadlines.values().all(|deadline| *deadline > modelled.now));
    }
}
