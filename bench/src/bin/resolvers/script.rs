//! What happens to the Internet, and when; and the questions, which are the same for every resolver at the same moments.

use std::time::Duration;

use crate::internet::{DISTANCES, Internet};
use crate::servers::Fault;
use crate::zones::{self, CLOCKS, SLOW, ZONES};

/// Questions a second for each zone.
pub(crate) const RATE: u64 = 5;
/// Between two questions to one resolver.
pub(crate) const PACE: Duration = Duration::from_micros(1_000_000 / (RATE * ZONES as u64));
/// One question in so many goes to the slow zone, for a name whose address is the time.
const SLOW_EVERY: u64 = 50;
/// The nearest and the farthest server of a zone.
const NEAREST: usize = 0;
const FARTHEST: usize = DISTANCES.len() - 1;

/// A time with a state of the Internet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// All is well; nothing is cached.
    Healthy,
    /// The nearest server of every zone is silent.
    Dead,
    /// It is back.
    Back,
    /// The nearest and the farthest have changed places.
    Swapped,
    /// They are at their old places again. Every second round is for names whose address is the time.
    Settled,
    /// No server of any zone answers. Only names whose address is the time are asked for.
    Outage,
    /// All answer again; questions as before.
    Recovered,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// A name of a zone that nobody knows yet.
    New { zone: usize, name: u64 },
    /// A name whose address is the time.
    Clock { zone: usize, name: u64 },
}

impl Phase {
    /// All of them, in order.
    pub(crate) const ALL: [Phase; 7] = [
        Phase::Healthy,
        Phase::Dead,
        Phase::Back,
        Phase::Swapped,
        Phase::Settled,
        Phase::Outage,
        Phase::Recovered,
    ];

    /// How long it is, with an outage of so many seconds.
    pub(crate) fn length(self, outage: u64) -> Duration {
        Duration::from_secs(match self {
            Phase::Healthy | Phase::Dead => 40,
            Phase::Back | Phase::Settled | Phase::Recovered => 20,
            Phase::Swapped => 30,
            Phase::Outage => outage,
        })
    }

    /// When it starts.
    pub(crate) fn start(self, outage: u64) -> Duration {
        Phase::ALL.iter().take_while(|phase| **phase < self).map(|phase| phase.length(outage)).sum()
    }

    /// Changes the Internet.
    pub(crate) fn begin(self, internet: &Internet) {
        let [near, far] = [DISTANCES[NEAREST], DISTANCES[FARTHEST]].map(Duration::from_millis);
        let everywhere = |fault| {
            (0..DISTANCES.len())
                .for_each(|server| internet.of_each_zone(server, |server| server.suffer(fault)));
        };
        match self {
            Phase::Healthy => {}
            Phase::Dead => internet.of_each_zone(NEAREST, |server| server.suffer(Fault::Silent)),
            Phase::Back => internet.of_each_zone(NEAREST, |server| server.suffer(Fault::None)),
            Phase::Swapped => {
                internet.of_each_zone(NEAREST, |server| server.move_to(far));
                internet.of_each_zone(FARTHEST, |server| server.move_to(near));
            }
            Phase::Settled => {
                internet.of_each_zone(NEAREST, |server| server.move_to(near));
                internet.of_each_zone(FARTHEST, |server| server.move_to(far));
            }
            Phase::Outage => everywhere(Fault::Silent),
            Phase::Recovered => everywhere(Fault::None),
        }
    }

    /// The server of each zone that is the nearest that answers.
    pub(crate) fn best(self) -> usize {
        match self {
            Phase::Dead => NEAREST + 1,
            Phase::Swapped => FARTHEST,
            _ => NEAREST,
        }
    }

    /// What is asked there as the `number`th question of all.
    pub(crate) fn question(self, number: u64) -> Question {
        let zones = ZONES as u64;
        let (round, zone) = (number / zones, (number % zones) as usize);
        // The next clock of the nearest zone that has some: signed zones have none.
        let clock = Question::Clock { zone: zone & !1, name: (round / 2 * 2 + number % 2) % CLOCKS };
        match self {
            Phase::Outage | Phase::Recovered => clock,
            Phase::Settled if round % 2 == 0 => clock,
            _ if number % SLOW_EVERY == SLOW_EVERY - 1 => Question::Clock { zone: SLOW, name: 0 },
            _ => Question::New { zone, name: round },
        }
    }
}

impl Question {
    /// Its name; the type is A.
    pub(crate) fn name(self) -> String {
        match self {
            Question::New { zone, name } => format!("n{name}.{}", zones::leaf(zone)),
            Question::Clock { zone, name } => format!("clock{name}.{}", zones::leaf(zone)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_new_name_is_asked_for_twice() {
        let mut asked: Vec<String> = (0..10_000)
            .map(|number| Phase::Healthy.question(number))
            .filter(|question| matches!(question, Question::New { .. }))
            .map(Question::name)
            .collect();
        let count = asked.len();
        asked.sort();
        asked.dedup();
        assert_eq!(asked.len(), count);
    }

    #[test]
    fn clocks_are_in_unsigned_zones() {
        for phase in Phase::ALL {
            for number in 0..1000 {
                if let Question::Clock { zone, .. } = phase.question(number) {
                    assert!(!zones::is_signed(zone));
                }
            }
        }
    }
}
