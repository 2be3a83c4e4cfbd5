//! Questions under way. Each has a place: one of the ports that we send from, and some of the bits of its ID. The other bits of the ID count how
//! often the place was used, so that an answer which comes when its place has the next question is not taken for that one's.

use std::cmp::Ordering;

use clock::{Duration, Instant};

/// Questions under way at most: as many seconds of silence are survived as this is questions a second.
const PLACES_MAX: usize = 1 << 20;
/// For one port.
const IDS_MAX: usize = 1 << 16;
/// Questions that leave by one port before it is the next one's turn, at most.
const RUN_MAX: u64 = 16;
/// Ports at most: each has room for some runs.
pub const PORTS_MAX: usize = PLACES_MAX / (4 * RUN_MAX as usize);

/// What is under way.
#[derive(Debug)]
pub struct Flights {
    places: Vec<Option<Flight>>,
    ports: usize,
    /// Questions that leave by one port before it is the next one's turn are two to this power: a division takes long.
    run_bits: u32,
    /// IDs of each port that are used at a time, a power of two.
    ids: usize,
    sent: u64,
    under_way: usize,
    given_up: u64,
}

/// A question under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// When it was due.
    pub due: Instant,
    /// How many were sent before it.
    pub number: u64,
    /// Microseconds from `due` until it was sent; 71 minutes at most.
    late_us: u32,
    id: u16,
}

impl Flight {
    /// When it was sent.
    pub fn sent(&self) -> Instant {
        self.due + Duration::from_micros(self.late_us.into())
    }
}

/// Where a question goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// By which of the ports.
    pub port: usize,
    /// With which ID.
    pub id: u16,
    /// How many were sent before it.
    pub number: u64,
}

impl Flights {
    /// None under way yet, by so many ports: at least one, at most [`PORTS_MAX`], each of which has `run` questions in a row, a power of two up to 16. `sent` were
    /// sent before: answers to those are known by their IDs.
    pub fn new(ports: usize, run: u64, sent: u64) -> Flights {
        let ports = ports.clamp(1, PORTS_MAX);
        let ids = (PLACES_MAX / ports).min(IDS_MAX);
        let ids = 1 << ids.ilog2();
        let places = vec![None; ports * ids];
        let run_bits = run.clamp(1, RUN_MAX).ilog2();
        Flights { places, ports, run_bits, ids, sent, under_way: 0, given_up: 0 }
    }

    /// How many questions wait for their answers.
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// How many have no answer: they wait, or were given up for the next ones.
    pub fn unanswered(&self) -> u64 {
        self.given_up + self.under_way as u64
    }

    /// How many were ever sent.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Whether a question of the last 65536 of this port had this ID.
    pub fn was_asked(&self, port: usize, id: u16) -> bool {
        let (run, within) = self.split(self.sent);
        let (round, next) = (run / self.ports as u64, (run % self.ports as u64) as usize);
        let of_this_round = match port.cmp(&next) {
            Ordering::Less => 1 << self.run_bits,
            Ordering::Equal => within,
            Ordering::Greater => 0,
        };
        u64::from(id) < (round << self.run_bits) + of_this_round
    }

    /// In which run the question of this number is, and how many are before it there.
    fn split(&self, number: u64) -> (u64, u64) {
        (number >> self.run_bits, number & ((1 << self.run_bits) - 1))
    }

    /// The place of the next question, which is sent now, and the question that had it until now, which is given up. Ports take turns.
    pub fn begin(&mut self, due: Instant, now: Instant) -> (Place, Option<Flight>) {
        let number = self.sent;
        self.sent += 1;
        let (run, within) = self.split(number);
        let port = (run % self.ports as u64) as usize;
        let turn = (run / self.ports as u64) << self.run_bits | within;
        let id = turn as u16; // The low bits name the place, the others its use.
        let place = &mut self.places[port * self.ids + turn as usize % self.ids];
        let late_us = u32::try_from(now.since(due).as_micros()).unwrap_or(u32::MAX);
        let before = place.replace(Flight { due, number, late_us, id });
        match before {
            None => self.under_way += 1,
            Some(_) => self.given_up += 1,
        }
        (Place { port, id, number }, before)
    }

    /// The question that an answer to this port with this ID is for, which ends with it.
    pub fn end(&mut self, port: usize, id: u16) -> Option<Flight> {
        let place = self.places.get_mut(port * self.ids + usize::from(id) % self.ids)?;
        let flight = place.take_if(|flight| flight.id == id)?;
        self.under_way -= 1;
        Some(flight)
    }

    /// What ended just now came too late: the question has no answer.
    pub fn give_up(&mut self) {
        self.given_up += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: u64 = 16;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn an_answer_ends_its_question_once() {
        let mut flights = Flights::new(3, RUN, 0);
        let places: Vec<Place> =
            (0..4 * RUN).map(|number| flights.begin(at(number), at(number + 3000)).0).collect();
        let ports: Vec<usize> = places.iter().step_by(RUN as usize).map(|place| place.port).collect();
        assert_eq!(ports, [0, 1, 2, 0], "they take turns");
        let asked = places[50];
        let flight = flights.end(asked.port, asked.id).unwrap();
        assert_eq!((flight.due, flight.sent(), flight.number), (at(50), at(3050), 50));
        assert_eq!(flights.end(asked.port, asked.id), None);
        assert_eq!(flights.end(2, asked.id + 100), None, "nobody asked that");
        assert!(flights.was_asked(asked.port, asked.id) && !flights.was_asked(2, asked.id + 100));
        for port in 0..3 {
            let last = places.iter().rev().find(|place| place.port == port).unwrap().id;
            assert!(flights.was_asked(port, last) && !flights.was_asked(port, last + 1), "{port}");
        }
        assert_eq!((flights.under_way(), flights.unanswered()), (places.len() - 1, places.len() as u64 - 1));
        flights.give_up();
        assert_eq!(flights.unanswered(), places.len() as u64);
    }

    #[test]
    fn a_late_answer_is_not_taken_for_the_next_question_of_its_place() {
        let mut flights = Flights::new(PORTS_MAX, RUN, 0);
        let first = flights.begin(at(1), at(1)).0;
        for _ in 1..flights.places.len() {
            assert_eq!(flights.begin(at(2), at(2)).1, None);
        }
        let given_up = flights.begin(at(2), at(2)).1.map(|flight| flight.number);
        assert_eq!(given_up, Some(first.number));
        assert_eq!(flights.under_way(), flights.places.len(), "the oldest is given up");
        assert_eq!(flights.unanswered(), flights.places.len() as u64 + 1, "and stays without an answer");
        assert_eq!(flights.end(first.port, first.id), None);
    }

    #[test]
    fn an_answer_to_an_earlier_load_is_not_taken_for_one_to_this() {
        let mut earlier = Flights::new(64, RUN, 0);
        let asked = earlier.begin(at(1), at(1)).0;
        let mut flights = Flights::new(64, RUN, earlier.sent());
        flights.begin(at(2), at(2));
        assert_eq!(flights.end(asked.port, asked.id), None);
    }

    #[test]
    fn ports_may_take_turns_with_each_question() {
        let mut flights = Flights::new(3, 1, 0);
        let ports: Vec<usize> = (0..5).map(|_| flights.begin(at(1), at(1)).0.port).collect();
        assert_eq!(ports, [0, 1, 2, 0, 1]);
        assert!(flights.was_asked(1, 1) && !flights.was_asked(2, 1));
    }

    #[test]
    fn one_port_uses_all_ids() {
        let mut flights = Flights::new(1, RUN, 0);
        let ids: std::collections::BTreeSet<u16> =
            (0..IDS_MAX).map(|_| flights.begin(at(1), at(1)).0.id).collect();
        assert_eq!(ids.len(), IDS_MAX);
    }
}
