//! What parents say, and when keys may end because of it.

use dns_wire::NameBuf;

use super::*;
use crate::key::{Algorithm, KeyFiles, Times};

const NOW: u64 = 1_800_000_000;
const DAY: u64 = 86_400;
/// When both keys of a roll-over have been told to the parent.
const TOLD: u64 = NOW + 2 * DAY;

fn origin() -> NameBuf {
    NameBuf::from_text(b"example.", None).unwrap()
}

fn key(times: Times) -> Key {
    let files = KeyFiles::generate(origin().as_name(), Role::KeySigning, times).unwrap();
    Key::read(origin().as_name(), &files.public, &files.private).unwrap()
}

/// A zone whose key is being replaced: the old one and the new one, and what the parent says.
struct Roll {
    keys: KeySet,
    old: Vec<u8>,
    new: Vec<u8>,
    parent: Parent,
}

impl Roll {
    fn new() -> Roll {
        let (old, new) = Times::first(NOW).roll(Role::KeySigning, NOW + DAY);
        let (first, second) = (key(old), key(new));
        let [old, new] = [&first, &second].map(|key| key.ds(origin().as_name()));
        Roll { keys: KeySet::new(vec![first, second]), old, new, parent: Parent::default() }
    }

    /// Notes what servers say, one after the other.
    fn say(&mut self, now: u64, said: &[Said]) -> Vec<ParentChange> {
        let address = |number: usize| SocketAddr::from(([192, 0, 2, number as u8], 53));
        let said: Vec<_> =
            said.iter().enumerate().map(|(number, said)| (address(number), said.clone())).collect();
        self.parent.note(origin().as_name(), &self.keys, &said, now)
    }

    fn key(&self, ds: &[u8]) -> &Key {
        self.keys.keys().iter().find(|key| key.ds(origin().as_name()) == ds).unwrap()
    }

    /// When the old key may end, by what is known.
    fn end(&self, now: u64) -> Option<u64> {
        self.parent.end_of(origin().as_name(), &self.keys, self.key(&self.old), now)
    }

    /// Whether it ends.
    fn ends(&self, now: u64) -> bool {
        !self.parent.ended(origin().as_name(), &self.keys, now).is_empty()
    }

    fn problems(&self) -> Vec<String> {
        self.parent.servers().iter().filter_map(|server| server.problem.clone()).collect()
    }
}

fn ds(ttl: u32, records: &[&[u8]]) -> Said {
    Said::Ds { ttl, records: records.iter().map(|ds| ds.to_vec()).collect() }
}

fn silence() -> Said {
    Said::Nothing("no answer".to_owned())
}

#[test]
fn the_old_key_ends_when_all_servers_show_the_new_one_and_the_ttl_of_the_old_ds_is_over() {
    let mut roll = Roll::new();
    let (old, new) = (roll.old.clone(), roll.new.clone());
    roll.say(NOW, &[ds(3600, &[&old]), ds(7200, &[&old])]);
    roll.say(TOLD, &[ds(60, &[&new]), ds(7200, &[&old])]);
    assert_eq!(roll.end(TOLD), None);
    assert!(roll.problems()[0].starts_with("it has the DS record of"), "{:?}", roll.problems());
    let shown = roll.say(TOLD + 10, &[ds(60, &[&new]), ds(60, &[&old, &new])]);
    assert_eq!(shown, [ParentChange::Shown(roll.key(&new).tag())]);
    assert_eq!((roll.end(TOLD + 10), roll.problems()), (Some(TOLD + 10 + 7200), Vec::new()));
    roll.say(TOLD + 7209, &[ds(60, &[&new]), ds(60, &[&new])]);
    assert!(!roll.ends(TOLD + 7209));
    roll.say(TOLD + 7210, &[ds(60, &[&new]), ds(60, &[&new])]);
    assert!(roll.ends(TOLD + 7210));
}

#[test]
fn an_old_ds_that_was_never_seen_is_waited_for_two_days() {
    let mut roll = Roll::new();
    let new = roll.new.clone();
    roll.say(TOLD, &[ds(60, &[&new])]);
    assert_eq!(roll.end(TOLD), Some(TOLD + 2 * DAY));
}

#[test]
fn the_ttl_of_a_set_with_both_records_does_not_tell_that_of_the_set_before() {
    let mut roll = Roll::new();
    let (old, new) = (roll.old.clone(), roll.new.clone());
    roll.say(TOLD, &[ds(60, &[&old, &new])]);
    assert_eq!(roll.end(TOLD), Some(TOLD + 2 * DAY));
    roll.say(TOLD + 1, &[ds(3600, &[&old])]);
    roll.say(TOLD + 2, &[ds(60, &[&old, &new])]);
    assert_eq!(roll.end(TOLD + 2), Some(TOLD + 2 + 3600));
}

#[test]
fn a_server_that_is_silent_holds_the_old_key_and_one_that_falls_back_begins_the_wait_anew() {
    let mut roll = Roll::new();
    let (old, new) = (roll.old.clone(), roll.new.clone());
    let both = [ds(60, &[&new]), ds(60, &[&new])];
    roll.say(NOW, &[ds(60, &[&old]), ds(60, &[&old])]);
    roll.say(TOLD, &[ds(60, &[&new]), silence()]);
    assert_eq!(roll.end(TOLD), None);
    roll.say(TOLD, &both);
    roll.say(TOLD + 60, &[ds(60, &[&new]), silence()]);
    assert_eq!((roll.end(TOLD + 60), roll.ends(TOLD + 60)), (Some(TOLD + 60), false));
    let lost = roll.say(TOLD + 61, &[ds(60, &[&new]), ds(60, &[])]);
    assert_eq!((lost, roll.end(TOLD + 61)), (vec![ParentChange::Lost(roll.key(&new).tag())], None));
    roll.say(TOLD + 70, &both);
    assert_eq!(roll.end(TOLD + 70), Some(TOLD + 130));
}

#[test]
fn a_clock_that_was_behind_shortens_no_wait() {
    let year = 365 * DAY;
    let mut roll = Roll::new();
    let (old, new) = (roll.old.clone(), roll.new.clone());
    roll.say(NOW - year, &[ds(3600, &[&old])]);
    roll.say(TOLD - year, &[ds(60, &[&new])]);
    roll.parent.on_jump(year, TOLD + 60);
    roll.say(TOLD + 60, &[ds(60, &[&new])]);
    assert_eq!((roll.end(TOLD + 60), roll.ends(TOLD + 60)), (Some(TOLD + 3600), false));
    // What was noted by a clock that was right begins anew, and no later.
    roll.parent.on_jump(year, TOLD + 70);
    assert_eq!(roll.end(TOLD + 70), Some(TOLD + 70 + 3600));
    // A time to come stays.
    roll.parent.on_jump(year, TOLD);
    assert_eq!(roll.end(TOLD), Some(TOLD + 70 + 3600));
}

#[test]
fn no_key_ends_that_is_not_being_replaced() {
    let mut roll = Roll::new();
    let (old, new) = (roll.old.clone(), roll.new.clone());
    roll.say(NOW + DAY, &[ds(60, &[&old, &new])]);
    assert_eq!(
        (roll.end(NOW + DAY), roll.ends(NOW + DAY + 60)),
        (None, false),
        "it is not told to the parent yet"
    );
    let alone =
        Roll { keys: KeySet::new(vec![key(Times { sync_delete: Some(NOW), ..Times::first(NOW) })]), ..roll };
    assert_eq!(alone.parent.ended(origin().as_name(), &alone.keys, TOLD).len(), 0);
}

#[test]
fn a_record_by_sha_1_keeps_the_old_key_and_does_not_count_for_the_new_one() {
    let mut roll = Roll::new();
    let (old, new) = (roll.old.clone(), roll.new.clone());
    let sha1 = |ds: &[u8]| {
        let key = roll.key(ds);
        key.ds_by(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, 1, origin().as_name())
    };
    let (old, weak) = (sha1(&old), sha1(&new));
    roll.say(NOW, &[ds(7200, &[&old])]);
    roll.say(TOLD, &[ds(60, &[&weak])]);
    assert_eq!(roll.end(TOLD), None);
    roll.say(TOLD, &[ds(60, &[&new])]);
    assert_eq!(roll.end(TOLD), Some(TOLD + 7200));
}

#[test]
fn the_state_of_a_key_says_how_far_the_parent_is() {
    let mut roll = Roll::new();
    let (old, new) = (roll.old.clone(), roll.new.clone());
    let states = |roll: &Roll, now| {
        [&old, &new].map(|ds| roll.parent.state_of(origin().as_name(), &roll.keys, roll.key(ds), now))
    };
    assert_eq!(states(&roll, NOW), [AtParent::NotTold; 2]);
    assert_eq!(states(&roll, NOW + DAY), [AtParent::Told, AtParent::NotTold]);
    roll.say(NOW + DAY, &[ds(60, &[&old])]);
    assert_eq!(states(&roll, TOLD), [AtParent::HasDs(NOW + DAY), AtParent::Told]);
    assert!(roll.parent.is_awaited(origin().as_name(), &roll.keys, TOLD));
    roll.say(TOLD, &[ds(60, &[&new])]);
    assert_eq!(states(&roll, TOLD), [AtParent::NotTold, AtParent::HasDs(TOLD)]);
}

#[test]
fn a_key_whose_algorithm_ends_waits_until_the_parent_does_not_name_it_any_more() {
    let before = KeySet::new(vec![key(Times::first(NOW - DAY))]);
    let change = before.to_algorithm(Algorithm::Ed25519, NOW).unwrap();
    let (drawn, timed) = (change.drawn[0].1, change.timed[0].1);
    let files =
        KeyFiles::generate_by(Algorithm::Ed25519, origin().as_name(), Role::KeySigning, drawn).unwrap();
    let second = Key::read(origin().as_name(), &files.public, &files.private).unwrap();
    let mut first = before.into_keys().pop().unwrap();
    first.times = timed;
    let [old, new] = [&first, &second].map(|key| key.ds(origin().as_name()));
    let keys = KeySet::new(vec![first, second]);
    let mut roll = Roll { keys, old: old.clone(), new: new.clone(), parent: Parent::default() };
    let told = NOW + 9 * DAY;
    roll.say(told - DAY, &[ds(3600, &[&old])]);
    roll.say(told, &[ds(7200, &[&old, &new])]);
    assert_eq!(roll.end(told), None);
    roll.say(told + 60, &[ds(60, &[&new])]);
    assert_eq!(roll.end(told + 60), Some(told + 60 + 7200));
}
