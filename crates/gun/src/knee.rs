//! The search for a server's knee: the largest load that it still carries. Pure: what a run measured comes in, a verdict and the next
//! load come out. Every server is searched in the same way.
//!
//! ```text
//!   replies                  ______ knee
//!      |                   /       \___   beyond it the machine works on queries that nobody answers
//!      |                 /
//!      |               /   climb until a load is too much, then halve the gap to the last one that was carried,
//!      |_____________/____ until the two are within the precision of each other        offered load ->
//! ```
//!
//! A machine that does other work too makes a run worse, never better. So a load is too much only if two runs in a row say so.

use std::fmt;
use std::ops::RangeInclusive;

/// A run carried its load if so many hundredths of the queries were answered.
pub(crate) const ANSWERED_MIN: f64 = 0.98;
/// The generator offered a load if it sent so many hundredths of it.
pub(crate) const SENT_MIN: f64 = 0.97;
/// Loads that are searched, in queries a second.
const LOADS: RangeInclusive<u32> = 1..=100_000_000;
/// The climb's largest step.
const STEP_MAX: f64 = 2.0;
/// The largest step down. Below the first load there is mostly nothing: a server that answers none of it is soon known.
const STEP_DOWN_MAX: f64 = 8.0;

/// What a run measured, in messages a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Queries that the generator sent.
    pub sent: u64,
    /// Replies that came back.
    pub answered: u64,
}

/// What a run says of its load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nearly all queries were answered.
    Carried,
    /// The server lost too many.
    TooMuch,
    /// Too many answers were to other queries.
    Wrong,
    /// Too many answers were errors.
    Errors,
    /// Too many answers were truncated: their questions have to be asked again over TCP.
    Truncated,
    /// All connections had as many requests under way as they may have.
    NoRoom,
    /// The generator could not send that many, or was the bottleneck in another way.
    NotOffered,
}

impl Verdict {
    /// What kept the load from being carried, if something did.
    fn limit(self) -> Option<Limit> {
        match self {
            Verdict::Carried => None,
            Verdict::TooMuch => Some(Limit::Server),
            Verdict::Wrong => Some(Limit::Answers),
            Verdict::Errors => Some(Limit::Errors),
            Verdict::Truncated => Some(Limit::Truncated),
            Verdict::NoRoom => Some(Limit::Connections),
            Verdict::NotOffered => Some(Limit::Generator),
        }
    }
}

/// Why the search found no larger load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Limit {
    /// The server loses queries beyond.
    #[default]
    Server,
    /// Beyond, the server answers other queries than it was asked; or it does so at every load, as of the two below.
    Answers,
    /// Beyond, the server answers by errors.
    Errors,
    /// Beyond, the server truncates its answers, as one that limits rates does.
    Truncated,
    /// The connections are all busy: with more of them the server may be able to do more.
    Connections,
    /// The generator cannot send more: the server may be able to do more than that.
    Generator,
    /// Every load loses the same part: it is not the load that costs answers.
    Loss,
    /// The search was stopped.
    Stopped,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limit::Server => "server",
            Limit::Answers => "answers",
            Limit::Errors => "errors",
            Limit::Truncated => "truncated",
            Limit::Connections => "connections",
            Limit::Generator => "generator",
            Limit::Loss => "loss",
            Limit::Stopped => "stopped",
        })
    }
}

/// A search under way: offer [`Knee::next_load`], give what came of it to [`Knee::on_run`] or [`Knee::on_verdict`], until there is no next
/// load.
#[derive(Clone, Debug)]
pub struct Knee {
    /// How near the two sides of the knee have to be: 1.02 for two per cent.
    precision: f64,
    /// The factor between loads while the knee has one side only.
    step: f64,
    next: Option<u32>,
    /// The load was too much once.
    is_second_try: bool,
    carried: Option<u32>,
    too_much: Option<(u32, Limit)>,
    is_stopped: bool,
    /// What keeps every load from being carried.
    steady: Option<Limit>,
}

impl Rates {
    /// What these rates say of a load of `offered` queries a second.
    pub fn verdict(self, offered: u32) -> Verdict {
        let (sent, answered) = (self.sent as f64, self.answered as f64);
        if sent < f64::from(offered) * SENT_MIN {
            Verdict::NotOffered
        } else if answered < sent * ANSWERED_MIN {
            Verdict::TooMuch
        } else {
            Verdict::Carried
        }
    }
}

impl Knee {
    /// A search of which nothing is known but a load to begin with.
    pub fn search(first: u32, precision: f64) -> Knee {
        Knee::new(first, precision, STEP_MAX)
    }

    /// A search whose knee was at `last` a while ago.
    pub fn search_near(last: u32, precision: f64) -> Knee {
        Knee::new(last, precision, precision.powi(3))
    }

    fn new(first: u32, precision: f64, step: f64) -> Knee {
        assert!(precision > 1.0, "the precision is a factor above 1");
        let first = first.clamp(*LOADS.start(), *LOADS.end());
        let (carried, too_much, is_stopped, steady) = (None, None, false, None);
        Knee {
            precision,
            step,
            next: Some(first),
            is_second_try: false,
            carried,
            too_much,
            is_stopped,
            steady,
        }
    }

    /// What is to be offered next; `None` when the knee is found.
    pub fn next_load(&self) -> Option<u32> {
        self.next
    }

    /// The largest load that was carried, if any was.
    pub fn carried(&self) -> Option<u32> {
        self.carried
    }

    /// What keeps the knee where it is.
    pub fn limit(&self) -> Limit {
        match (self.steady, self.too_much) {
            _ if self.is_stopped => Limit::Stopped,
            (Some(limit), _) | (None, Some((_, limit))) => limit,
            (None, None) => Limit::Generator,
        }
    }

    /// Ends the search before its end: the knee is at what was carried, or above.
    pub fn stop(&mut self) {
        self.is_stopped |= self.next.take().is_some();
    }

    /// Ends the search: `limit` costs every load the same part. If one was carried, that was by luck.
    pub fn on_steady_loss(&mut self, limit: Limit) {
        (self.next, self.carried, self.steady) = (None, None, Some(limit));
    }

    /// Takes what came of [`Knee::next_load`], and says what it means.
    pub fn on_run(&mut self, rates: Rates) -> Verdict {
        let verdict = self.next.map_or(Verdict::NotOffered, |load| rates.verdict(load));
        self.on_verdict(verdict);
        verdict
    }

    /// Takes what a run of [`Knee::next_load`] said.
    pub fn on_verdict(&mut self, verdict: Verdict) {
        let Some(load) = self.next else { return };
        match verdict.limit() {
            Some(_) if !self.is_second_try => {
                self.is_second_try = true;
                return; // The same load once more.
            }
            Some(limit) => self.too_much = Some((load, limit)),
            None => self.carried = Some(load),
        }
        self.is_second_try = false;
        self.next = self.choose();
    }

    /// The next load: beyond the only side that is known, or between both.
    fn choose(&mut self) -> Option<u32> {
        let (choice, between) = match (self.carried, self.too_much.map(|(load, _)| load)) {
            (Some(low), Some(high)) if f64::from(high) <= f64::from(low) * self.precision => return None,
            (Some(low), Some(high)) => ((f64::from(low) * f64::from(high)).sqrt(), low + 1..high),
            (Some(low), None) => (f64::from(low) * self.take_step(STEP_MAX), low + 1..*LOADS.end() + 1),
            (None, Some(high)) => (f64::from(high) / self.take_step(STEP_DOWN_MAX), *LOADS.start()..high),
            (None, None) => return self.next,
        };
        // Small loads have neighbours with nothing between them.
        (!between.is_empty()).then(|| (choice.round() as u32).clamp(between.start, between.end - 1))
    }

    /// The factor to the next load. A knee that is not near is far: steps grow.
    fn take_step(&mut self, most: f64) -> f64 {
        let step = self.step.min(most);
        self.step = (step * step).min(most);
        step
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PRECISION: f64 = 1.02;

    /// A server and a generator that are made up, with noise.
    #[derive(Clone, Debug)]
    struct MadeUp {
        /// Replies a second at most.
        capacity: f64,
        /// Replies lost for each query beyond that.
        collapse: f64,
        /// Queries a second at most.
        generator: f64,
        /// Parts that runs lose, one after the other: up to 1 per cent each.
        noise: Vec<f64>,
        /// Each so many runs something else has the machine, and half of the replies are lost.
        hiccup_every: usize,
    }

    impl MadeUp {
        fn exact(capacity: f64) -> MadeUp {
            MadeUp { capacity, collapse: 0.5, generator: 1e9, noise: vec![0.0], hiccup_every: usize::MAX }
        }

        fn run(&self, load: u32, number: usize) -> Rates {
            let sent = f64::from(load).min(self.generator);
            let beyond = (sent - self.capacity).max(0.0);
            let noise = self.noise[number % self.noise.len()];
            let hiccup = if number % self.hiccup_every == self.hiccup_every - 1 { 0.5 } else { 1.0 };
            let answered =
                (sent.min(self.capacity) - beyond * self.collapse).max(0.0) * (1.0 - noise) * hiccup;
            Rates { sent: sent.round() as u64, answered: answered.round() as u64 }
        }

        /// The loads that were offered.
        fn search(&self, mut knee: Knee) -> (Knee, Vec<u32>) {
            let mut offered = Vec::new();
            while let Some(load) = knee.next_load() {
                assert!(offered.len() < 60, "no end: {offered:?}");
                knee.on_run(self.run(load, offered.len()));
                offered.push(load);
            }
            (knee, offered)
        }
    }

    #[test]
    fn a_load_is_judged_by_what_was_sent() {
        let rates = |sent, answered| Rates { sent, answered };
        assert_eq!(rates(1000, 980).verdict(1000), Verdict::Carried);
        assert_eq!(rates(1000, 979).verdict(1000), Verdict::TooMuch);
        assert_eq!(rates(970, 970).verdict(1000), Verdict::Carried);
        assert_eq!(rates(969, 969).verdict(1000), Verdict::NotOffered);
        assert_eq!(rates(0, 0).verdict(1000), Verdict::NotOffered);
    }

    #[test]
    fn it_climbs_and_then_halves_the_gap() {
        let (knee, offered) = MadeUp::exact(210_000.0).search(Knee::search(100_000, PRECISION));
        assert_eq!(offered[..5], [100_000, 200_000, 400_000, 400_000, 282_843]);
        assert!((205_000..=213_000).contains(&knee.carried().unwrap()), "{knee:?}");
        assert_eq!(knee.limit(), Limit::Server);
    }

    #[test]
    fn a_knee_between_two_rungs_is_found_as_well_as_one_at_a_rung() {
        // A ladder with rungs at 200 000 and 250 000 gave both of these the same figure.
        let at =
            |capacity| MadeUp::exact(capacity).search(Knee::search(100_000, PRECISION)).0.carried().unwrap();
        let (one, other) = (at(201_000.0), at(245_000.0));
        assert!((197_000..206_000).contains(&one) && (240_000..251_000).contains(&other), "{one} {other}");
    }

    #[test]
    fn one_disturbed_run_changes_nothing() {
        let server = MadeUp { hiccup_every: 2, ..MadeUp::exact(210_000.0) };
        let (knee, _) = server.search(Knee::search(100_000, PRECISION));
        let (quiet, _) = MadeUp::exact(210_000.0).search(Knee::search(100_000, PRECISION));
        assert_eq!(knee.carried(), quiet.carried());
    }

    #[test]
    fn a_generator_that_is_full_is_named() {
        let server = MadeUp { generator: 700_000.0, ..MadeUp::exact(900_000.0) };
        let (knee, _) = server.search(Knee::search(100_000, PRECISION));
        assert_eq!(knee.limit(), Limit::Generator);
        assert!((690_000..730_000).contains(&knee.carried().unwrap()), "{knee:?}");
    }

    #[test]
    fn a_search_begins_at_small_loads_too_and_ends_between_neighbours() {
        for capacity in 1..=40 {
            for first in [1, 7, 30, 1000] {
                let (knee, offered) = MadeUp::exact(capacity.into()).search(Knee::search(first, PRECISION));
                assert_eq!((offered[0], knee.carried()), (first, Some(capacity)), "{offered:?}");
            }
        }
    }

    #[test]
    fn what_a_run_says_is_what_limits_the_knee() {
        let limit = |verdict| {
            let mut knee = Knee::search(1000, PRECISION);
            knee.on_verdict(Verdict::Carried);
            while knee.next_load().is_some() {
                knee.on_verdict(verdict);
            }
            knee.limit()
        };
        for (verdict, expected) in [
            (Verdict::TooMuch, Limit::Server),
            (Verdict::Wrong, Limit::Answers),
            (Verdict::Errors, Limit::Errors),
            (Verdict::Truncated, Limit::Truncated),
            (Verdict::NoRoom, Limit::Connections),
            (Verdict::NotOffered, Limit::Generator),
        ] {
            assert_eq!(limit(verdict), expected);
        }
    }

    #[test]
    fn a_search_on_a_lossy_path_has_no_knee() {
        let mut knee = Knee::search(1000, PRECISION);
        knee.on_verdict(Verdict::Carried);
        knee.on_steady_loss(Limit::Loss);
        assert_eq!((knee.next_load(), knee.carried(), knee.limit()), (None, None, Limit::Loss));
    }

    #[test]
    fn a_search_that_is_stopped_blames_nobody() {
        let mut knee = Knee::search(1000, PRECISION);
        knee.on_verdict(Verdict::Carried);
        knee.stop();
        assert_eq!((knee.next_load(), knee.carried(), knee.limit()), (None, Some(1000), Limit::Stopped));
        let (mut found, _) = MadeUp::exact(1000.0).search(Knee::search(1000, PRECISION));
        found.stop();
        assert_eq!(found.limit(), Limit::Server, "it had ended");
    }

    #[test]
    fn a_knee_that_is_known_is_found_again_in_few_runs() {
        let (knee, offered) = MadeUp::exact(210_000.0).search(Knee::search_near(205_000, PRECISION));
        assert!((205_000..=213_000).contains(&knee.carried().unwrap()) && offered.len() <= 9, "{offered:?}");
    }

    #[test]
    fn a_server_that_answers_nothing_has_no_knee() {
        let (knee, offered) = MadeUp::exact(0.0).search(Knee::search(100_000, PRECISION));
        assert_eq!(knee.carried(), None);
        assert!(offered.len() <= 20, "{offered:?}");
    }

    #[test]
    fn a_server_without_limit_ends_the_search_at_the_largest_load() {
        let (knee, _) = MadeUp::exact(1e9).search(Knee::search(100_000, PRECISION));
        assert_eq!((knee.carried(), knee.limit()), (Some(*LOADS.end()), Limit::Generator));
    }

    prop_compose! {
        fn made_up()(
            capacity in 1e3..4e6f64,
            collapse in 0.0..3.0f64,
            noise in prop::collection::vec(0.0..0.01f64, 7),
            hiccup_every in 2..20usize,
        ) -> MadeUp {
            MadeUp { capacity, collapse, generator: 1e9, noise, hiccup_every }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            rng_seed: proptest::test_runner::RngSeed::Fixed(17), failure_persistence: None, ..ProptestConfig::with_cases(2000)
        })]

        #[test]
        fn the_knee_is_within_its_precision(server in made_up(), first in 1_000..1_000_000u32, is_near in any::<bool>()) {
            let knee = if is_near { Knee::search_near(first, PRECISION) } else { Knee::search(first, PRECISION) };
            let (knee, _) = server.search(knee);
            let carried = f64::from(knee.carried().unwrap());
            // Below the capacity, nothing but noise is lost; beyond it, a little may be.
            prop_assert!(carried >= server.capacity / PRECISION - 1.0, "{carried} of {}", server.capacity);
            prop_assert!(carried <= server.capacity / ANSWERED_MIN + 1.0, "{carried} of {}", server.capacity);
            prop_assert_eq!(knee.limit(), Limit::Server);
        }
    }
}
