//! Reply rates, measured in the same way for every server.
//!
//! In each round every server is searched for its knee, the largest load that it still carries ([`Knee`]); the replies a second there
//! are the round's figure. Servers take turns, round after round, so that a slow moment of the machine hits all of them. The headline
//! is the median over all rounds; tables for each place of the machine's cores stand beside it.

use std::time::Instant;

use crate::{
    Knee, Kxdpgun, Lab, LabError, Limit, Peer, Placed, Questions, Rates, Report, Verdict, in_one_place,
    markdown_table,
};

/// How to measure.
#[derive(Clone, Debug)]
pub struct Procedure {
    /// The load that a first search begins with, in queries a second. Later ones begin where the last one ended.
    pub first_load: u32,
    /// How exactly the knee is searched: 1.02 for two per cent.
    pub precision: f64,
    /// Length of one run of the generator.
    pub seconds: u32,
    /// How often each server is measured.
    pub rounds: u32,
}

/// One search of one server.
#[derive(Clone, Debug)]
pub struct Round {
    /// The run at the knee; all zero if the server carried no load at all.
    pub knee: Report,
    /// The load of that run, in queries a second.
    pub load: u32,
    /// Why the knee is where it is.
    pub limit: Limit,
    /// The most replies a second of any run, however many queries were lost.
    pub most: u64,
    /// The part of the time that the server was ready to run while other work had its core.
    pub wait: f64,
}

/// What was measured of one server.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The server's name.
    pub name: String,
    /// Its rounds, perhaps none.
    pub rounds: Vec<Round>,
}

impl Outcome {
    /// Replies a second: the median over the rounds.
    pub fn reply_rate(&self) -> u64 {
        median(&self.reply_rates())
    }

    /// The lowest and the highest round.
    pub fn spread(&self) -> (u64, u64) {
        let rates = self.reply_rates();
        (rates.iter().copied().min().unwrap_or(0), rates.iter().copied().max().unwrap_or(0))
    }

    /// Octets of an average answer, for comparison: servers that send less have less to do.
    pub fn reply_size(&self) -> u64 {
        self.rounds.first().map_or(0, |round| round.knee.reply_size)
    }

    /// The most replies a second of any load: the median over the rounds.
    pub fn most(&self) -> u64 {
        median(&self.rounds.iter().map(|round| round.most).collect::<Vec<_>>())
    }

    /// What the knee was limited by: the generator, if it was so in any round.
    pub fn limit(&self) -> Limit {
        let by_generator = self.rounds.iter().any(|round| round.limit == Limit::Generator);
        if by_generator { Limit::Generator } else { Limit::Server }
    }

    /// The part of the time, at its worst, that the server's core was somebody else's: above some per cent the figure
    /// says as much about the others.
    pub fn disturbance(&self) -> f64 {
        self.rounds.iter().map(|round| round.wait).fold(0.0, f64::max)
    }

    fn reply_rates(&self) -> Vec<u64> {
        self.rounds.iter().map(|round| round.knee.reply_rate).collect()
    }
}

impl Procedure {
    /// Two seconds at each load, to two per cent, `rounds` times: for figures.
    pub fn thorough(rounds: u32) -> Procedure {
        Procedure { first_load: 100_000, precision: 1.02, seconds: 2, rounds }
    }

    /// A second at each load, to ten per cent, three times: for people who wait.
    pub fn quick() -> Procedure {
        Procedure { first_load: 100_000, precision: 1.1, seconds: 1, rounds: 3 }
    }

    /// Measures every server in every round; returns the rounds of each. `progress` sees each round as it ends.
    pub fn run(
        &self,
        questions: &Questions,
        peers: &[Peer],
        mut progress: impl FnMut(u32, &Peer, &Placed<Round>),
    ) -> Result<Vec<Vec<Placed<Round>>>, LabError> {
        let mut measured: Vec<Vec<Placed<Round>>> = vec![Vec::new(); peers.len()];
        for round in 1..=self.rounds {
            for (peer, measured) in peers.iter().zip(&mut measured) {
                let last = measured.last().map(|placed| placed.found.load).filter(|load| *load > 0);
                let placed = in_one_place(|| self.measure(peer, questions, last))?;
                progress(round, peer, &placed);
                measured.push(placed);
            }
        }
        Ok(measured)
    }

    /// One round of one server, whose knee was at `last` in the round before.
    fn measure(&self, peer: &Peer, questions: &Questions, last: Option<u32>) -> Result<Round, LabError> {
        // A wire of its own for everyone: Knot, for one, leaves its XDP program on the interface.
        let lab = Lab::new()?;
        let server = peer.start(&lab, &questions.zone)?;
        let (started, wait_before) = (Instant::now(), server.process.core_wait()?);
        let mut round = self.search(last, |load| {
            let generator = Kxdpgun { seconds: self.seconds, ..Kxdpgun::asking(questions, load) };
            Ok(in_one_place(|| generator.run(&lab))?.found)
        })?;
        let wait = server.process.core_wait()? - wait_before;
        round.wait = wait.as_secs_f64() / started.elapsed().as_secs_f64();
        Ok(round)
    }

    fn search(
        &self,
        last: Option<u32>,
        mut measure: impl FnMut(u32) -> Result<Report, LabError>,
    ) -> Result<Round, LabError> {
        let mut knee = match last {
            Some(load) => Knee::search_near(load, self.precision),
            None => Knee::search(self.first_load, self.precision),
        };
        let (mut at_knee, mut most) = (Report::default(), 0);
        while let Some(load) = knee.next_load() {
            let report = measure(load)?;
            most = most.max(report.reply_rate);
            let rates = Rates { sent: report.query_rate, answered: report.reply_rate };
            if knee.on_run(rates) == Verdict::Carried {
                at_knee = report;
            }
        }
        Ok(Round { knee: at_knee, load: knee.carried().unwrap_or(0), limit: knee.limit(), most, wait: 0.0 })
    }
}

/// What was measured of `peers`, given the rounds of each.
pub fn outcomes(peers: &[Peer], rounds: Vec<Vec<Round>>) -> Vec<Outcome> {
    let outcome = |(peer, rounds): (&Peer, _)| Outcome { name: peer.name(), rounds };
    peers.iter().zip(rounds).map(outcome).collect()
}

/// A table of `outcomes`: how far others disturbed each, and the ratio of each to every one of `against`,
/// which are names among them. A server without a round is not in it.
pub fn ratio_table(outcomes: &[Outcome], against: &[&str]) -> String {
    let found = |name: &&&str| outcomes.iter().find(|outcome| outcome.name == **name);
    let bases: Vec<&Outcome> = against.iter().filter_map(|name| found(&name)).collect();
    let ratio_heads: Vec<String> = bases.iter().map(|base| format!("x {}", base.name)).collect();
    let mut head = vec![
        "server",
        "rounds",
        "median replies/s",
        "lowest and highest",
        "most at any load",
        "limit",
        "octets/reply",
        "disturbed",
    ];
    head.extend(ratio_heads.iter().map(String::as_str));
    let row = |outcome: &Outcome| {
        let (lowest, highest) = outcome.spread();
        let ratio = |base: &&Outcome| match base.reply_rate() {
            0 => "-".to_owned(),
            rate => format!("{:.2}", outcome.reply_rate() as f64 / rate as f64),
        };
        let mut cells = vec![outcome.name.clone(), outcome.rounds.len().to_string()];
        cells.extend([outcome.reply_rate().to_string(), format!("{lowest} - {highest}")]);
        cells.extend([outcome.most().to_string(), outcome.limit().to_string()]);
        cells.extend([outcome.reply_size().to_string(), format!("{:.0} %", outcome.disturbance() * 100.0)]);
        cells.extend(bases.iter().map(ratio));
        cells
    };
    let rows = outcomes.iter().filter(|outcome| !outcome.rounds.is_empty()).map(row);
    markdown_table(&head, &rows.collect::<Vec<_>>())
}

/// The middle value; of an even number, the lower of the two in the middle; of none, zero.
pub fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers `capacity` a second, and less the more it is offered beyond.
    fn server(capacity: u64) -> impl FnMut(u32) -> Result<Report, LabError> {
        move |rate| {
            let rate = u64::from(rate);
            let excess = rate.saturating_sub(capacity);
            let reply_rate = rate.min(capacity).saturating_sub(excess / 3);
            Ok(Report { query_rate: rate, reply_rate, ..Report::default() })
        }
    }

    #[test]
    fn the_figure_is_of_the_run_at_the_knee() {
        let round = Procedure::thorough(1).search(None, server(210_000)).unwrap();
        assert_eq!((round.knee.query_rate, round.limit), (u64::from(round.load), Limit::Server));
        assert!((205_000..=214_000).contains(&round.load), "{round:?}");
        assert!(round.most >= round.knee.reply_rate && round.most <= 210_000, "{round:?}");
    }

    #[test]
    fn every_round_searches_by_itself_from_where_the_last_one_ended() {
        let again = Procedure::thorough(1).search(Some(150_000), server(300_000)).unwrap();
        let first = Procedure::thorough(1).search(None, server(300_000)).unwrap();
        assert!(again.load.abs_diff(first.load) <= first.load / 50, "{} and {}", again.load, first.load);
    }

    #[test]
    fn one_round_at_the_generators_limit_marks_the_figure() {
        let round = |limit| Round { knee: Report::default(), load: 1, limit, most: 0, wait: 0.0 };
        let outcome =
            Outcome { name: String::new(), rounds: vec![round(Limit::Server), round(Limit::Generator)] };
        assert_eq!(outcome.limit(), Limit::Generator);
    }

    #[test]
    fn the_median_is_a_value_that_was_measured() {
        assert_eq!(median(&[3, 1, 2]), 2);
        assert_eq!(median(&[4, 1, 2, 3]), 2);
        assert_eq!(median(&[]), 0);
    }
}
