//! Loss that is the same at every load: a server that has too much to do loses more of a larger one. Errors, truncated and wrong answers are
//! lost, too. Pure.

use crate::knee::{Knee, Limit, Verdict};
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
    /// The part of the questions that have no answer in time; or of the answers, those that are errors, truncated or wrong.
    pub share: f64,
    /// The smallest load that lost it, and the largest.
    pub loads: (u32, u32),
    /// What costs most: [`Limit::Loss`], [`Limit::Errors`], [`Limit::Truncated`] or [`Limit::Answers`].
    pub limit: Limit,
    /// Of [`Limit::Loss`]: most of these questions were answered, but too late.
    pub is_late: bool,
}

/// What was due, and what became of it. Wrong answers are known by a sample, so these are no whole numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    due: f64,
    /// All answers, the bad ones too.
    answered: f64,
    /// Good ones that came in time.
    good: f64,
    /// Good ones that came later.
    late: f64,
    errors: f64,
    truncated: f64,
    wrong: f64,
}

impl Sum {
    fn of<'l>(loads: impl Iterator<Item = &'l &'l Summary>) -> Sum {
        loads.fold(Sum::default(), |sum, load| sum.add(load))
    }

    fn add(self, load: &Summary) -> Sum {
        let counts = &load.counts;
        let answered = counts.answered + counts.mismatched;
        let not_late = counts.in_time + counts.errors + counts.truncated;
        Sum {
            due: self.due + (counts.sent + counts.unsent) as f64,
            answered: self.answered + answered as f64,
            good: self.good + load.right_in_time(),
            late: self.late + counts.answered.saturating_sub(not_late) as f64,
            errors: self.errors + counts.errors as f64,
            truncated: self.truncated + counts.truncated as f64,
            wrong: self.wrong + answered as f64 * counts.wrong_share(),
        }
    }

    /// The part of the questions that has a good answer in time.
    fn kept(self) -> f64 {
        self.good / self.due.max(1.0)
    }

    fn lost(self) -> f64 {
        1.0 - self.kept()
    }

    /// What costs most, of `loads`.
    fn loss(self, loads: (u32, u32)) -> SteadyLoss {
        let silent = (self.due - self.answered).max(0.0);
        let of_answers = |count: f64| count / self.answered.max(1.0);
        let causes = [
            (silent + self.late, Limit::Loss, (silent + self.late) / self.due.max(1.0)),
            (self.errors, Limit::Errors, of_answers(self.errors)),
            (self.truncated, Limit::Truncated, of_answers(self.truncated)),
            (self.wrong, Limit::Answers, of_answers(self.wrong)),
        ];
        let most = causes.into_iter().max_by(|one, other| one.0.total_cmp(&other.0));
        let (_, limit, share) = most.expect("there are four causes");
        SteadyLoss { share, loads, limit, is_late: limit == Limit::Loss && self.late > silent }
    }
}

/// What all loads of a search have lost alike, the small ones as the large ones, if they have.
pub fn steady_loss(loads: &[Summary]) -> Option<SteadyLoss> {
    let loads = telling(loads);
    let (smallest, largest) = span(&loads)?;
    if f64::from(largest) < f64::from(smallest) * SPAN_MIN {
        return None;
    }
    let middle = (f64::from(smallest) * f64::from(largest)).sqrt();
    let is_small = |load: &&&Summary| f64::from(load.offered) < middle;
    let small = Sum::of(loads.iter().filter(is_small));
    let large = Sum::of(loads.iter().filter(|load| !is_small(load)));
    let has_lost = [small, large].into_iter().all(|sum| sum.lost() >= SHARE_MIN);
    let is_alike = large.kept() >= SHARE_MIN && small.kept() <= large.kept() * RATIO_MAX;
    // Some of the loads may have been carried by luck, but not most.
    let carried = loads.iter().filter(|load| load.verdict() == Verdict::Carried).count();
    let is_most = carried * 2 < loads.len();
    let is_steady = has_lost && is_alike && small.lost() * 2.0 >= large.lost() && is_most;
    is_steady.then(|| Sum::of(loads.iter()).loss((smallest, largest)))
}

/// The load whose loss, beside that of `loads`, tells whether the `knee` that they have found is one; `None` if they tell it already.
pub fn far_load(knee: &Knee, loads: &[Summary]) -> Option<u32> {
    let is_of_server =
        matches!(knee.limit(), Limit::Server | Limit::Answers | Limit::Errors | Limit::Truncated);
    knee.carried().filter(|_| is_of_server)?;
    let (smallest, largest) = span(&telling(loads))?;
    let far = ((f64::from(largest) / SPAN_MIN) as u32).max(1);
    (far < smallest).then_some(far)
}

/// What a search that carried no load has lost of the smallest one, and of all others for which the same is to be said.
pub fn loss_of_all(loads: &[Summary]) -> Option<SteadyLoss> {
    let loads: Vec<&Summary> = loads.iter().filter(|load| is_of_server(load)).collect();
    let least = loads.iter().min_by_key(|load| load.offered)?;
    let alike: Vec<&Summary> =
        loads.iter().copied().filter(|load| load.verdict() == least.verdict()).collect();
    let loads = span(&alike)?;
    let SteadyLoss { limit, is_late, .. } = Sum::default().add(least).loss(loads);
    let loss = Sum::of(alike.iter()).loss(loads);
    (loss.limit == limit).then_some(SteadyLoss { is_late, ..loss })
}

/// Whether what was lost is neither the generator's fault nor its connections'.
fn is_of_server(load: &Summary) -> bool {
    !matches!(load.verdict(), Verdict::NotOffered | Verdict::NoRoom)
}

/// Those of the loads that say something of what the server loses.
fn telling(loads: &[Summary]) -> Vec<&Summary> {
    let has_many = |load: &&Summary| load.counts.sent + load.counts.unsent >= QUESTIONS_MIN;
    loads.iter().filter(|load| is_of_server(load)).filter(has_many).collect()
}

/// The smallest load, and the largest.
fn span(loads: &[&Summary]) -> Option<(u32, u32)> {
    let offered = || loads.iter().map(|load| load.offered);
    Some((offered().min()?, offered().max()?))
}

#[cfg(test)]
mod tests {
    use clock::{Duration, Instant};

    use super::*;
    use crate::summary::Counts;
    use crate::tally::Tally;

    fn load(offered: u32, answered: f64) -> Summary {
        let mut load = Tally::new(Instant::ZERO).summary(offered, Duration::from_secs(1), 0);
        load.counts.sent = offered.into();
        load.counts.in_time = (f64::from(offered) * answered.min(1.0)) as u64;
        load.counts.answered = load.counts.in_time;
        load.bottleneck = None;
        load
    }

    /// A load whose other questions are answered, too, by what `count` counts.
    fn bad_load(offered: u32, good: f64, count: impl Fn(&mut Counts, u64)) -> Summary {
        let mut load = load(offered, good);
        load.counts.answered = load.counts.sent;
        let bad = load.counts.sent - load.counts.in_time;
        count(&mut load.counts, bad);
        load
    }

    fn loss_of(loads: &[(u32, f64)]) -> Option<SteadyLoss> {
        let loads: Vec<Summary> = loads.iter().map(|(offered, answered)| load(*offered, *answered)).collect();
        steady_loss(&loads)
    }

    #[test]
    fn a_path_that_loses_a_part_of_every_load_is_known() {
        let loss = loss_of(&[(1000, 0.7), (1000, 0.69), (500, 0.71), (500, 0.7), (125, 0.65), (125, 0.75)]);
        let SteadyLoss { share, loads, limit, is_late } = loss.unwrap();
        assert!((0.29..0.32).contains(&share), "{share}");
        assert_eq!((loads, limit, is_late), ((125, 1000), Limit::Loss, false));
        // One load of few questions was carried by luck.
        let lucky =
            [(1000, 0.95), (1000, 0.95), (500, 0.95), (500, 0.95), (125, 0.985), (250, 0.95), (250, 0.94)];
        assert!(loss_of(&lucky).is_some());
        assert_eq!(loss_of(&[(1000, 0.7), (1000, 0.7), (500, 0.7)]), None, "too near to each other");
        assert_eq!(loss_of(&[(40, 0.7), (10, 0.7), (1, 0.0)]), None, "too few questions");
    }

    /// What is wrong with a search of which each load has so many bad answers, and the share of it.
    fn loss_of_bad(good: f64, count: impl Fn(&mut Counts, u64)) -> Option<(Limit, bool, f64)> {
        let offered = [1000, 1000, 500, 500, 125, 125];
        let loads = offered.map(|offered| bad_load(offered, good, &count));
        steady_loss(&loads).map(|loss| (loss.limit, loss.is_late, (loss.share * 100.0).round()))
    }

    #[test]
    fn answers_of_which_the_same_part_is_bad_at_every_load_are_known() {
        let truncated = loss_of_bad(0.7, |counts, bad| counts.truncated = bad);
        assert_eq!(truncated, Some((Limit::Truncated, false, 30.0)));
        let errors = |good| loss_of_bad(good, |counts, bad| counts.errors = bad);
        assert_eq!(errors(0.968), Some((Limit::Errors, false, 3.0)));
        assert_eq!(errors(0.3), Some((Limit::Errors, false, 70.0)));
        let late = loss_of_bad(0.7, |_, _| {});
        assert_eq!(late, Some((Limit::Loss, true, 30.0)));
        // A sample of the answers is compared, and those of it that are wrong are not counted as answers.
        let wrong = loss_of_bad(1.0, |counts, _| {
            (counts.compared, counts.mismatched) = (50, 5);
            (counts.answered, counts.in_time) = (counts.sent - 5, counts.sent - 5);
        });
        assert_eq!(wrong, Some((Limit::Answers, false, 10.0)));
    }

    #[test]
    fn a_search_that_carried_nothing_says_what_became_of_the_smallest_load() {
        let errors = |offered| bad_load(offered, 0.0, |counts, bad| counts.errors = bad);
        let loss = loss_of_all(&[load(8000, 0.0), errors(1000), errors(1000), errors(1), errors(1)]).unwrap();
        assert_eq!((loss.limit, loss.loads, loss.share), (Limit::Errors, (1, 1000), 1.0));
        let late = |offered| bad_load(offered, 0.0, |_, _| {});
        assert!(loss_of_all(&[load(1000, 0.0), load(1000, 0.0), late(1), late(1)]).unwrap().is_late);
        assert_eq!(loss_of_all(&[]), None);
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
