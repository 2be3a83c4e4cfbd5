//! The cores that everything runs on, and their distance.
//!
//! Passing a packet from one core to another costs the transfer of each cache line. The host of a virtual machine chooses where the
//! machine's cores run and may change that at any moment: near each other, with a common cache, or far apart. So every figure says how far
//! they were apart, and only figures at about the same distance are compared.

use std::fmt;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, Pid, sched_setaffinity};

use crate::median;

/// Distances within this factor count as the same place: within one place they differed by up to 1.6, between places by 3 and more.
const SAME_PLACE: u32 = 2;
/// How often a measurement is repeated because the cores moved meanwhile.
const TRIES: u32 = 3;

const BATCHES: u32 = 21;
const TRIPS_IN_BATCH: u32 = 2000;

/// The core that servers run on: the second one, if there is one.
pub fn server_core() -> usize {
    usize::from(thread::available_parallelism().is_ok_and(|cores| cores.get() > 1))
}

/// The core that clients and generators run on.
pub fn generator_core() -> usize {
    0
}

/// Keeps the calling thread on `core`, if there is one of that number.
pub fn stay_on(core: usize) {
    set_core(None, core);
}

/// Keeps all threads of a process on `core`, also those that the process itself has put on another one.
pub(crate) fn keep_on(process: u32, core: usize) {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return }; // It has ended.
    for thread in threads.flatten() {
        let id = thread.file_name().to_str().and_then(|id| id.parse().ok()).and_then(Pid::from_raw);
        set_core(id, core);
    }
}

/// The same for one thread: the calling one if none is named.
fn set_core(thread: Option<Pid>, core: usize) {
    let mut set = CpuSet::new();
    if core < CpuSet::MAX_CPU {
        set.set(core);
        let _ = sched_setaffinity(thread, &set); // On a machine with fewer cores it stays where it is.
    }
}

/// How long a cache line takes from the generator's core to the server's and back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Distance(Duration);

impl Distance {
    /// The distance now; zero on a machine with one core. Uses both cores for some milliseconds.
    pub fn measure() -> Distance {
        if server_core() == generator_core() {
            return Distance::default();
        }
        let line = AtomicU32::new(0);
        let batches = thread::scope(|scope| {
            scope.spawn(|| {
                stay_on(server_core());
                (0..BATCHES * TRIPS_IN_BATCH).for_each(|trip| pass_on(&line, 2 * trip + 1));
            });
            let asking = scope.spawn(|| {
                stay_on(generator_core());
                let batch = |batch| {
                    let began = Instant::now();
                    let trips = batch * TRIPS_IN_BATCH..(batch + 1) * TRIPS_IN_BATCH;
                    trips.for_each(|trip| pass_on(&line, 2 * trip));
                    began.elapsed().as_nanos() as u64
                };
                (0..BATCHES).map(batch).collect::<Vec<u64>>()
            });
            asking.join().unwrap_or_default() // It has nothing to panic about.
        });
        Distance(Duration::from_nanos(median(&batches) / u64::from(TRIPS_IN_BATCH)))
    }

    fn is_same_place(self, other: Distance) -> bool {
        self.max(other).0 <= self.min(other).0 * SAME_PLACE
    }
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns", self.0.as_nanos())
    }
}

/// Waits until `number` is on the cache line, and writes the next one.
fn pass_on(line: &AtomicU32, number: u32) {
    while line.load(Ordering::Acquire) != number {
        std::hint::spin_loop();
    }
    line.store(number + 1, Ordering::Release);
}

/// A result, and how far the cores were apart meanwhile.
#[derive(Clone, Copy, Debug, Default)]
pub struct Placed<T> {
    /// The result.
    pub found: T,
    /// The larger of the distances before and after.
    pub apart: Distance,
}

/// All tries of the last measurement were disturbed: the cores move all the time.
static IS_RESTLESS: AtomicBool = AtomicBool::new(false);

/// Measures, and repeats the measurement a few times if the cores moved meanwhile. Once that has failed, later measurements run once only.
pub fn in_one_place<T, E>(mut measure: impl FnMut() -> Result<T, E>) -> Result<Placed<T>, E> {
    let mut tries = if IS_RESTLESS.load(Ordering::Relaxed) { 1 } else { TRIES };
    loop {
        let before = Distance::measure();
        let found = measure()?;
        let after = Distance::measure();
        tries -= 1;
        let is_undisturbed = before.is_same_place(after);
        if is_undisturbed || tries == 0 {
            IS_RESTLESS.store(!is_undisturbed, Ordering::Relaxed);
            return Ok(Placed { found, apart: before.max(after) });
        }
        eprintln!("the cores were {before} apart, and are {after} now: once more");
    }
}

/// The results of several contenders while the cores were at about the same distance.
#[derive(Clone, Debug)]
pub struct Place<T> {
    /// The smallest and the largest distance.
    pub apart: (Distance, Distance),
    /// The results of each contender's rounds, perhaps none.
    pub contenders: Vec<Vec<T>>,
}

impl<T> fmt::Display for Place<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rounds: Vec<String> = self.contenders.iter().map(|rounds| rounds.len().to_string()).collect();
        write!(
            f,
            "Cores {} to {} apart (a cache line there and back); rounds: {}",
            self.apart.0,
            self.apart.1,
            rounds.join(", ")
        )
    }
}

/// The rounds of each contender, wherever the cores were.
pub fn all_places<T: Clone>(contenders: &[Vec<Placed<T>>]) -> Vec<Vec<T>> {
    let found = |rounds: &Vec<Placed<T>>| rounds.iter().map(|placed| placed.found.clone()).collect();
    contenders.iter().map(found).collect()
}

/// The rounds of all places together, and then, if the cores moved, those of each place. No round is left out.
pub fn all_then_by_place<T: Clone>(contenders: Vec<Vec<Placed<T>>>) -> Vec<Place<T>> {
    let distances = || contenders.iter().flatten().map(|placed| placed.apart);
    let apart = (distances().min().unwrap_or_default(), distances().max().unwrap_or_default());
    let all = Place { apart, contenders: all_places(&contenders) };
    let places = by_place(contenders);
    if places.len() > 1 { std::iter::once(all).chain(places).collect() } else { vec![all] }
}

/// Sorts the rounds of each contender by the places of the cores, the nearest first.
pub fn by_place<T>(contenders: Vec<Vec<Placed<T>>>) -> Vec<Place<T>> {
    let distances = contenders.iter().flatten().map(|placed| placed.apart).collect();
    let mut places: Vec<Place<T>> = ranges(distances)
        .into_iter()
        .map(|apart| Place { apart, contenders: contenders.iter().map(|_| Vec::new()).collect() })
        .collect();
    for (index, rounds) in contenders.into_iter().enumerate() {
        for placed in rounds {
            if let Some(place) = places.iter_mut().find(|place| placed.apart <= place.apart.1) {
                place.contenders[index].push(placed.found);
            }
        }
    }
    places
}

/// The smallest and the largest of each group of distances that are the same place as its smallest.
fn ranges(mut distances: Vec<Distance>) -> Vec<(Distance, Distance)> {
    distances.sort_unstable();
    let mut ranges: Vec<(Distance, Distance)> = Vec::new();
    for distance in distances {
        match ranges.last_mut() {
            Some((least, largest)) if least.is_same_place(distance) => *largest = distance,
            _ => ranges.push((distance, distance)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apart(ns: u64) -> Distance {
        Distance(Duration::from_nanos(ns))
    }

    #[test]
    fn rounds_are_compared_with_those_of_the_same_place() {
        let placed = |found, ns| Placed { found, apart: apart(ns) };
        let one = vec![placed('a', 80), placed('b', 400), placed('c', 130)];
        let other = vec![placed('d', 390), placed('e', 385)];
        let places = by_place(vec![one, other]);
        assert_eq!(places.len(), 2);
        assert_eq!(places[0].apart, (apart(80), apart(130)));
        assert_eq!(places[0].contenders, [vec!['a', 'c'], vec![]]);
        assert_eq!(places[1].apart, (apart(385), apart(400)));
        assert_eq!(places[1].contenders, [vec!['b'], vec!['d', 'e']]);
    }

    #[test]
    fn a_machine_that_is_everywhere_the_same_has_one_place() {
        let placed = |found| Placed { found, apart: Distance::default() };
        assert_eq!(by_place(vec![vec![placed(1), placed(2)]]).len(), 1);
        assert_eq!(all_then_by_place(vec![vec![placed(1), placed(2)]]).len(), 1);
    }

    #[test]
    fn the_rounds_of_all_places_come_first() {
        let placed = |found, ns| Placed { found, apart: apart(ns) };
        let places = all_then_by_place(vec![vec![placed('a', 80), placed('b', 400)], vec![placed('c', 390)]]);
        assert_eq!(places.len(), 3);
        assert_eq!(places[0].apart, (apart(80), apart(400)));
        assert_eq!(places[0].contenders, [vec!['a', 'b'], vec!['c']]);
        assert_eq!(places[1].contenders, [vec!['a'], vec![]]);
    }

    #[test]
    fn a_line_takes_its_time_between_two_cores() {
        assert_eq!(Distance::measure() > Distance::default(), server_core() != generator_core());
    }
}
