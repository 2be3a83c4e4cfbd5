//! Which zone is asked for next: zones wait for others of the same primaries, and never for primaries that do not answer.
//!
//! Zones with the same primaries are a group. A group whose first primary has answered may take any place. The others are *doubtful*: nobody
//! knows yet, or they were silent. They share a part of the places, one for a group, those that were silent last of all.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Zones that are asked for at a time.
pub(super) const PLACES: usize = 16;
/// Of those, zones of primaries that may not answer.
const DOUBTFUL_MAX: usize = 12;
/// Zones of the same primaries: a primary is not to be overrun.
const GROUP_MAX: usize = 4;
/// For so long a primary that was silent is asked behind the others of its zones.
const SILENT_FOR: Duration = Duration::from_secs(600);

/// What waits, by the primaries that it waits for.
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    has_changed: Condvar,
}

struct State<T> {
    groups: BTreeMap<Vec<SocketAddr>, Group<T>>,
    /// What came of the last question to each primary.
    heard: HashMap<SocketAddr, Heard>,
    doubtful: usize,
}

struct Group<T> {
    waiting: VecDeque<T>,
    running: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Heard {
    Answered,
    Silent(Instant),
}

/// Something that has a place now, until [`Queue::end`] takes it back.
pub(super) struct Place<T> {
    pub(super) item: T,
    group: Vec<SocketAddr>,
    is_doubtful: bool,
}

impl<T> Queue<T> {
    pub(super) fn new() -> Queue<T> {
        let state = State { groups: BTreeMap::new(), heard: HashMap::new(), doubtful: 0 };
        Queue { state: Mutex::new(state), has_changed: Condvar::new() }
    }

    /// Puts something at the end of those with the same primaries.
    pub(super) fn push(&self, primaries: Vec<SocketAddr>, item: T) {
        let empty = || Group { waiting: VecDeque::new(), running: 0 };
        self.state().groups.entry(primaries).or_insert_with(empty).waiting.push_back(item);
        self.has_changed.notify_one();
    }

    /// What is next, if there is something that may have a place.
    pub(super) fn try_take(&self) -> Option<Place<T>> {
        self.state().take()
    }

    /// Waits for what is next.
    pub(super) fn take(&self) -> Place<T> {
        let mut state = self.state();
        loop {
            if let Some(place) = state.take() {
                return place;
            }
            state = self.has_changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A place is free again.
    pub(super) fn end(&self, group: Ended) {
        let mut state = self.state();
        state.doubtful -= usize::from(group.is_doubtful);
        if let Some(ended) = state.groups.get_mut(&group.group) {
            ended.running -= 1;
            if ended.running == 0 && ended.waiting.is_empty() {
                state.groups.remove(&group.group);
            }
        }
        drop(state);
        self.has_changed.notify_all();
    }

    /// The numbers of the primaries in the order in which they are asked: first those that come `first`, last those that were silent a while ago.
    pub(super) fn in_order(&self, primaries: &[SocketAddr], first: impl Fn(&usize) -> bool) -> Vec<usize> {
        let state = self.state();
        let mut numbers: Vec<usize> = (0..primaries.len()).collect();
        numbers.sort_by_key(|number| (!first(number), state.was_silent(&primaries[*number])));
        numbers
    }

    /// A primary has answered, or was silent.
    pub(super) fn on_heard(&self, primary: SocketAddr, has_answered: bool) {
        let heard = if has_answered { Heard::Answered } else { Heard::Silent(Instant::now()) };
        self.state().heard.insert(primary, heard);
        self.has_changed.notify_all();
    }

    /// A primary has sent something by itself: it may answer again.
    pub(super) fn on_sign_of_life(&self, primary: IpAddr) {
        let is_answering = |heard: &Heard| *heard == Heard::Answered;
        self.state().heard.retain(|address, heard| address.ip() != primary || is_answering(heard));
        self.has_changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What has had a place.
pub(super) struct Ended {
    group: Vec<SocketAddr>,
    is_doubtful: bool,
}

impl<T> Place<T> {
    /// The item, and what gives the place back.
    pub(super) fn split(self) -> (T, Ended) {
        (self.item, Ended { group: self.group, is_doubtful: self.is_doubtful })
    }
}

impl<T> State<T> {
    fn was_silent(&self, primary: &SocketAddr) -> bool {
        matches!(self.heard.get(primary), Some(Heard::Silent(since)) if since.elapsed() < SILENT_FOR)
    }

    /// What is known of the primary that a group asks first.
    fn first_heard(&self, primaries: &[SocketAddr]) -> Option<Heard> {
        let first = primaries.iter().find(|primary| !self.was_silent(primary)).or(primaries.first());
        self.heard.get(first?).copied()
    }

    fn take(&mut self) -> Option<Place<T>> {
        let with_work = || self.groups.iter().filter(|(_, group)| !group.waiting.is_empty());
        let good = with_work()
            .filter(|(primaries, group)| {
                group.running < GROUP_MAX && self.first_heard(primaries) == Some(Heard::Answered)
            })
            .min_by_key(|(_, group)| group.running);
        // Those that nobody knows before those that were silent, and of these the ones first that were asked longest ago.
        let silence = |primaries: &[SocketAddr]| match self.first_heard(primaries) {
            Some(Heard::Silent(since)) => Some(since),
            _ => None,
        };
        let doubtful = || {
            with_work()
                .filter(|(primaries, group)| {
                    group.running == 0 && self.first_heard(primaries) != Some(Heard::Answered)
                })
                .min_by_key(|(primaries, _)| silence(primaries))
                .filter(|_| self.doubtful < DOUBTFUL_MAX)
        };
        let is_doubtful = good.is_none();
        let group = good.or_else(doubtful).map(|(primaries, _)| primaries.clone())?;
        self.doubtful += usize::from(is_doubtful);
        let taken = self.groups.get_mut(&group)?;
        taken.running += 1;
        let item = taken.waiting.pop_front()?;
        Some(Place { item, group, is_doubtful })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 53))
    }

    fn taken(queue: &Queue<u8>) -> Option<(u8, Ended)> {
        queue.try_take().map(Place::split)
    }

    #[test]
    fn zones_whose_primary_answers_never_wait_for_those_whose_primaries_do_not() {
        let queue = Queue::new();
        queue.on_heard(address(200), true);
        (1..100).for_each(|dead| queue.push(vec![address(dead)], dead));
        let dead: Vec<_> = std::iter::from_fn(|| taken(&queue)).collect();
        assert_eq!(dead.len(), DOUBTFUL_MAX);
        (0..9).for_each(|_| queue.push(vec![address(200)], 200));
        let healthy: Vec<_> = std::iter::from_fn(|| taken(&queue)).collect();
        assert_eq!(healthy.len(), GROUP_MAX);
        assert!(healthy.iter().all(|(item, _)| *item == 200));
    }

    #[test]
    fn a_primary_that_nobody_knows_takes_one_place_until_it_answers() {
        let queue = Queue::new();
        (0..9).for_each(|item| queue.push(vec![address(1)], item));
        let (first, place) = taken(&queue).unwrap();
        assert_eq!(first, 0);
        assert!(taken(&queue).is_none());
        queue.on_heard(address(1), true);
        queue.end(place);
        assert_eq!(std::iter::from_fn(|| taken(&queue)).count(), GROUP_MAX);
    }

    #[test]
    fn those_that_were_silent_come_behind_those_that_nobody_knows() {
        let queue = Queue::new();
        [1, 2].iter().for_each(|last| queue.on_heard(address(*last), false));
        (1..=3).rev().for_each(|last| queue.push(vec![address(last)], last));
        let order: Vec<u8> = std::iter::from_fn(|| taken(&queue).map(|(item, _)| item)).collect();
        assert_eq!(order, [3, 1, 2]);
    }

    #[test]
    fn a_primary_that_was_silent_is_asked_behind_the_others_until_it_is_heard_of() {
        let queue = Queue::<u8>::new();
        let primaries = [1, 2, 3].map(address);
        let in_order = || queue.in_order(&primaries, |_| false);
        assert_eq!(in_order(), [0, 1, 2]);
        queue.on_heard(address(1), false);
        assert_eq!(in_order(), [1, 2, 0]);
        queue.on_sign_of_life(address(1).ip());
        assert_eq!(in_order(), [0, 1, 2]);
    }

    #[test]
    fn primaries_that_have_told_of_a_change_are_asked_before_all_others() {
        let queue = Queue::<u8>::new();
        queue.on_heard(address(1), false);
        assert_eq!(queue.in_order(&[1, 2, 3].map(address), |number| *number == 2), [2, 1, 0]);
    }
}
