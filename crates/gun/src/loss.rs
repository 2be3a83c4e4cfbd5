//! Loss that is the same at every load: a server that has too much to do loses more of a larger one. Truncated answers are lost, too. Pure.

use crate::knee::{Limit, Verdict};
use crate::summary::Summary;

/// A load of fewer questions says little of what is lost on the whole.
const QUESTIONS_MIN: u64 = 50;
/// The largest load is at least so many times the smallest one.
const SPAN_MIN: f64 = 4.0;
/// Of the larger loads, so many times less may be answered. A server at its limit answers less by as much as there is more to answer.
const RATIO_MAX: f64 = 1.5;
/// So much of both is lost at least, and is answered at least: a server that answers nothing is none behind a lossy path.
const SHARE_MIN: f64 = 0.01;

/// Loss that does not depend on the load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SteadyLoss {
    /// The part of the questions that have no answer in time.
    pub share: f64,
    /// The smallest load that lost it, and the largest.
    pub loads: (u32, u32),
    /// [`Limit::Truncated`] if most of these loads had answers, but truncated ones; else [`Limit::Loss`].
    pub limit: Limit,
}

/// What was due, and what was answered in time.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    due: u64,
    in_time: u64,
}

impl Sum {
    fn of<'l>(loads: impl Iterator<Item = &'l &'l Summary>) -> Sum {
        let add = |sum: Sum, load: &&Summary| Sum {
            due: sum.due + load.counts.sent + load.counts.unsent,
            in_time: sum.in_time + load.counts.in_time,
        };
        loads.fold(Sum::default(), add)
    }

    fn answered(self) -> f64 {
        self.in_time as f64 / self.due.max(1) as f64
    }

    fn lost(self) -> f64 {
        1.0 - self.answered()
    }
}

/// What all loads of a search have lost alike, the small ones as the large ones, if they have.
pub fn steady_loss(loads: &[Summary]) -> Option<SteadyLoss> {
    let tells = |load: &&Summary| {
        let is_judged = matches!(load.verdict(), Verdict::Carried | Verdict::TooMuch | Verdict::Truncated);
        is_judged && load.counts.sent + load.counts.unsent >= QUESTIONS_MIN
    };
    let loads: Vec<&Summary> = loads.iter().filter(tells).collect();
    let smallest = loads.iter().map(|load| load.offered).min()?;
    let largest = loads.iter().map(|load| load.offered).max()?;
    if f64::from(largest) < f64::from(smallest) * SPAN_MIN {
        return None;
    }
    let middle = (f64::from(smallest) * f64::from(largest)).sqrt();
    let is_small = |load: &&&Summary| f64::from(load.offered) < middle;
    let small = Sum::of(loads.iter().filter(is_small));
    let large = Sum::of(loads.iter().filter(|load| !is_small(load)));
    let has_lost = [small, large].into_iter().all(|sum| sum.lost() >= SHARE_MIN);
    let is_alike = large.answered() >= SHARE_MIN && small.answered() <= large.answered() * RATIO_MAX;
    // Some of the loads may have been carried by luck, but not most.
    let count = |verdict| loads.iter().filter(|load| load.verdict() == verdict).count();
    let (too_much, truncated) = (count(Verdict::TooMuch), count(Verdict::Truncated));
    let is_most = (too_much + truncated) * 2 > loads.len();
    let limit = if truncated > too_much { Limit::Truncated } else { Limit::Loss };
    (has_lost && is_alike && small.lost() * 2.0 >= large.lost() && is_most).then(|| SteadyLoss {
        share: Sum::of(loads.iter()).lost(),
        loads: (smallest, largest),
        limit,
    })
}

#[cfg(test)]
mod tests {
    use clock::{Duration, Instant};

    use super::*;
    use crate::tally::Tally;

    fn load(offered: u32, answered: f64) -> Summary {
        let mut load = Tally::new(Instant::ZERO).summary(offered, Duration::from_secs(1), 0);
        load.counts.sent = offered.into();
        load.counts.in_time = (f64::from(offered) * answered.min(1.0)) as u64;
        load.bottleneck = None;
        load
    }

    fn loss_of(loads: &[(u32, f64)]) -> Option<SteadyLoss> {
        let loads: Vec<Summary> = loads.iter().map(|(offered, answered)| load(*offered, *answered)).collect();
        steady_loss(&loads)
    }

    #[test]
    fn a_path_that_loses_a_part_of_every_load_is_known() {
        let loss = loss_of(&[(1000, 0.7), (1000, 0.69), (500, 0.71), (500, 0.7), (125, 0.65), (125, 0.75)]);
        let SteadyLoss { share, loads, limit } = loss.unwrap();
        assert!((0.29..0.32).contains(&share), "{share}");
        assert_eq!((loads, limit), ((125, 1000), Limit::Loss));
        // One load of few questions was carried by luck.
        let lucky =
            [(1000, 0.95), (1000, 0.95), (500, 0.95), (500, 0.95), (125, 0.985), (250, 0.95), (250, 0.94)];
        assert!(loss_of(&lucky).is_some());
        assert_eq!(loss_of(&[(1000, 0.7), (1000, 0.7), (500, 0.7)]), None, "too near to each other");
        assert_eq!(loss_of(&[(40, 0.7), (10, 0.7), (1, 0.0)]), None, "too few questions");
    }

    #[test]
    fn a_zone_some_of_whose_answers_are_always_truncated_is_known() {
        let loads = [1000, 1000, 500, 500, 125, 125].map(|offered| {
            let mut load = load(offered, 0.7);
            load.counts.truncated = load.counts.sent - load.counts.in_time;
            load
        });
        assert_eq!(steady_loss(&loads).map(|loss| loss.limit), Some(Limit::Truncated));
    }

    #[test]
    fn servers_that_have_too_much_to_do_lose_more_of_more() {
        for capacity in [1.0, 20.0, 60.0, 100.0, 200.0, 300.0, 600.0, 990.0, 5000.0] {
            let offered = [1000, 1000, 500, 500, 125, 125, 250, 354, 707, 2000, 4000];
            let loads = offered.map(|offered| (offered, capacity / f64::from(offered)));
            assert_eq!(loss_of(&loads), None, "{capacity}");
        }
        assert_eq!(loss_of(&[(1000, 0.0), (500, 0.0), (125, 0.0)]), None, "it answers nothing");
    }
}
