//! Connections that are opened at a rate, held, and say nothing.

use clock::{Duration, Instant};

use super::fault::Fault;
use crate::schedule::Schedule;
use crate::summary::Summary;
use crate::tally::Tally;

/// Connections of a load, by number from 0 on in the order in which they are opened.
pub struct Holding {
    schedule: Schedule,
    timeout: Duration,
    /// Of each that was begun.
    states: Vec<State>,
    dialling: usize,
    held: usize,
    held_most: usize,
    /// Connections before this one are not being opened any more.
    first_dialling: usize,
    tally: Tally,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Was due, and was begun.
    Dialling(Instant, Instant),
    Held,
    Over,
}

impl Holding {
    /// Connections as the schedule has requests. What is not there after `timeout` is given up.
    pub fn new(schedule: Schedule, timeout: Duration, start: Instant) -> Holding {
        Holding {
            states: Vec::new(),
            schedule,
            timeout,
            dialling: 0,
            held: 0,
            held_most: 0,
            first_dialling: 0,
            tally: Tally::new(start),
        }
    }

    /// What is counted so far.
    pub fn tally(&mut self) -> &mut Tally {
        &mut self.tally
    }

    /// When the next connection is due; `None` after the last one.
    pub fn next_due(&self) -> Option<Instant> {
        self.schedule.next_due()
    }

    /// Whether all connections were begun, and each is there or given up.
    pub fn is_settled(&self) -> bool {
        self.dialling == 0 && self.next_due().is_none()
    }

    /// Connections that are open.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Connections that were open at the same time.
    pub fn held_most(&self) -> usize {
        self.held_most
    }

    /// The next connection to be opened, if it is due.
    pub fn poll_dial(&mut self, now: Instant) -> Option<usize> {
        let due = self.schedule.take(now)?;
        self.tally.on_sent(due, now);
        self.states.push(State::Dialling(due, now));
        self.dialling += 1;
        Some(self.states.len() - 1)
    }

    /// A connection is there.
    pub fn on_open(&mut self, number: usize, now: Instant) {
        let Some(State::Dialling(due, _)) = self.states.get(number).copied() else { return };
        self.states[number] = State::Held;
        self.dialling -= 1;
        self.held += 1;
        self.held_most = self.held_most.max(self.held);
        self.tally.on_answer(due, now, None, false);
    }

    /// A connection failed, or has ended.
    pub fn on_end(&mut self, number: usize, fault: Fault) {
        match self.states.get(number) {
            Some(State::Dialling(..)) => {
                self.dialling -= 1;
                self.tally.on_fault(fault.name(), 1);
            }
            Some(State::Held) => {
                self.held -= 1;
                let is_reset = fault == Fault::Reset;
                self.tally.on_fault(if is_reset { "reset while held" } else { "closed while held" }, 1);
            }
            Some(State::Over) | None => return,
        }
        self.states[number] = State::Over;
    }

    /// The next connection that took too long: its socket is to be closed.
    pub fn poll_expired(&mut self, now: Instant) -> Option<usize> {
        while let Some(state) = self.states.get(self.first_dialling) {
            match state {
                State::Dialling(_, begun) if *begun + self.timeout > now => return None,
                State::Dialling(..) => {
                    self.on_end(self.first_dialling, Fault::NotConnected);
                    return Some(self.first_dialling);
                }
                State::Held | State::Over => self.first_dialling += 1,
            }
        }
        None
    }

    /// What came of it, of `offered` connections a second in `length` of opening.
    pub fn finish(self, offered: u32, length: Duration) -> Summary {
        let counts = self.tally.counts();
        let lost = counts.sent - counts.answered;
        self.tally.summary(offered, length, lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn connections_are_opened_at_their_rate_and_what_becomes_of_them_is_counted() {
        let schedule = Schedule::new(at(0), 1000, Duration::from_millis(5));
        let mut holding = Holding::new(schedule, Duration::from_millis(100), at(0));
        let dialled: Vec<usize> = std::iter::from_fn(|| holding.poll_dial(at(3))).collect();
        assert_eq!(dialled, [0, 1, 2, 3]);
        holding.on_open(0, at(4));
        holding.on_open(2, at(4));
        holding.on_end(1, Fault::Refused);
        assert_eq!(holding.poll_dial(at(4)), Some(4));
        assert_eq!((holding.poll_expired(at(102)), holding.is_settled()), (None, false));
        assert_eq!((holding.poll_expired(at(103)), holding.poll_expired(at(103))), (Some(3), None));
        holding.on_open(4, at(103));
        assert_eq!((holding.is_settled(), holding.held(), holding.held_most()), (true, 3, 3));
        holding.on_end(0, Fault::Reset);
        holding.on_end(2, Fault::ClosedEarly);
        holding.on_end(2, Fault::ClosedEarly);
        assert_eq!((holding.held(), holding.held_most()), (1, 3));
        let summary = holding.finish(1000, Duration::from_millis(5));
        assert_eq!((summary.counts.sent, summary.counts.answered, summary.lost), (5, 3, 2));
        let faults: Vec<(&str, u64)> =
            summary.faults.iter().map(|(name, times)| (&name[..], *times)).collect();
        let expected =
            ["closed while held", "connections not made in time", "connections refused", "reset while held"];
        assert_eq!(faults, expected.map(|name| (name, 1)));
    }
}
