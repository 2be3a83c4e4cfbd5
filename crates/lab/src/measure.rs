//! Reply rates, measured in the same way for every server.
//!
//! A server is offered rising loads until its replies fall: replies peak where the load is a little above what the
//! server can take, and fall beyond it, because the machine then works on queries that nobody answers. The peak counts.
//! A single low point does not end the climb: on a machine that does other work too there are such.
//! Servers take turns, round after round, so that a slow moment of the machine hits all of them; the median of the
//! rounds is the figure, for each place of the machine's cores by itself.

use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use crate::{
    Kxdpgun, Lab, LabError, Peer, Place, Placed, Report, Zone, by_place, in_one_place, markdown_table,
};

/// How to measure.
#[derive(Clone, Debug)]
pub struct Procedure {
    /// Offered loads, rising, in queries a second.
    pub rates: Vec<u32>,
    /// Length of one run of the generator.
    pub seconds: u32,
    /// How often each server is measured.
    pub rounds: u32,
    /// Whether every round climbs, from a step below the first one's peak; otherwise later rounds offer what was best
    /// then and the next step, which is quicker and less exact.
    pub climbs_again: bool,
}

/// One climb of one server.
#[derive(Clone, Debug)]
pub struct Round {
    /// The best run.
    pub peak: Report,
    /// The part of the time that the server was ready to run while somebody else had its core.
    pub wait: f64,
}

/// What was measured of one server, the cores being in one place.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The server's name.
    pub name: String,
    /// Its rounds, perhaps none in this place.
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
        self.rounds.first().map_or(0, |round| round.peak.reply_size)
    }

    /// How much of what was asked was answered at the peaks, in hundredths: at 100, and with higher loads offered, it is the
    /// generator that was measured.
    pub fn answered(&self) -> u64 {
        let share = |round: &Round| round.peak.reply_rate * 100 / round.peak.query_rate.max(1);
        median(&self.rounds.iter().map(share).collect::<Vec<_>>())
    }

    /// The part of the time, at its worst, that the server's core was somebody else's: above some per cent the figure
    /// says as much about the others.
    pub fn disturbance(&self) -> f64 {
        self.rounds.iter().map(|round| round.wait).fold(0.0, f64::max)
    }

    fn reply_rates(&self) -> Vec<u64> {
        self.rounds.iter().map(|round| round.peak.reply_rate).collect()
    }
}

impl Procedure {
    /// Two seconds at each load, `rounds` times, for figures.
    pub fn thorough(rounds: u32) -> Procedure {
        let rates =
            vec![100_000, 150_000, 200_000, 250_000, 325_000, 400_000, 500_000, 650_000, 800_000, 1_000_000];
        Procedure { rates, seconds: 2, rounds, climbs_again: true }
    }

    /// A second at each of a few loads, three times, for people who wait.
    pub fn quick() -> Procedure {
        let rates = vec![100_000, 170_000, 250_000, 350_000, 500_000, 750_000];
        Procedure { rates, seconds: 1, rounds: 3, climbs_again: false }
    }

    /// Measures every server in every round; one outcome for each server, for each place of the cores. `progress` hears of each peak.
    pub fn run(
        &self,
        zone: &Zone,
        queries: &Path,
        peers: &[Peer],
        mut progress: impl FnMut(u32, &Peer, &Placed<Round>),
    ) -> Result<Vec<Place<Round>>, LabError> {
        let mut measured = vec![Vec::new(); peers.len()];
        let mut steps = vec![0..self.rates.len(); peers.len()];
        for round in 1..=self.rounds {
            for (index, peer) in peers.iter().enumerate() {
                let climb = in_one_place(|| self.climb_of(peer, zone, queries, steps[index].clone()))?;
                let (step, placed) = climb.found;
                steps[index] = match self.climbs_again {
                    true => step.saturating_sub(1)..self.rates.len(),
                    false => step..self.rates.len().min(step + 2),
                };
                progress(round, peer, &placed);
                measured[index].push(placed);
            }
        }
        Ok(by_place(measured))
    }

    /// The step of `steps` at which `peer` peaked, and its round, with where the cores were at the peak.
    fn climb_of(
        &self,
        peer: &Peer,
        zone: &Zone,
        queries: &Path,
        steps: Range<usize>,
    ) -> Result<(usize, Placed<Round>), LabError> {
        // A wire of its own for everyone: Knot, for one, leaves its XDP program on the interface.
        let lab = Lab::new()?;
        let server = peer.start(&lab, zone)?;
        let (started, wait_before) = (Instant::now(), server.process.core_wait()?);
        let (step, peak) = self.climb(steps, |rate| {
            let generator = Kxdpgun { seconds: self.seconds, ..Kxdpgun::new(queries.to_owned(), rate) };
            in_one_place(|| generator.run(&lab))
        })?;
        let wait = server.process.core_wait()? - wait_before;
        let round = Round { peak: peak.found, wait: wait.as_secs_f64() / started.elapsed().as_secs_f64() };
        Ok((step, Placed { found: round, apart: peak.apart }))
    }

    /// The step with the most replies, and its report. Climbs until replies have clearly fallen, twice in a row.
    fn climb(
        &self,
        steps: Range<usize>,
        mut measure: impl FnMut(u32) -> Result<Placed<Report>, LabError>,
    ) -> Result<(usize, Placed<Report>), LabError> {
        let mut best = (steps.start, Placed::<Report>::default());
        let mut fallen = 0;
        for step in steps {
            let run = measure(self.rates[step])?;
            let (rate, highest) = (run.found.reply_rate, best.1.found.reply_rate);
            fallen = if rate < highest * 85 / 100 { fallen + 1 } else { 0 };
            if rate > highest {
                best = (step, run);
            }
            if fallen == 2 {
                break;
            }
        }
        Ok(best)
    }
}

/// The outcomes of `peers` in one place.
pub fn outcomes(peers: &[Peer], place: Place<Round>) -> Vec<Outcome> {
    let outcome = |(peer, rounds): (&Peer, _)| Outcome { name: peer.name(), rounds };
    peers.iter().zip(place.contenders).map(outcome).collect()
}

/// A table of `outcomes`: how far others disturbed each, and the ratio of each to every one of `against`,
/// which are names among them. Who has no round is not in it.
pub fn ratio_table(outcomes: &[Outcome], against: &[&str]) -> String {
    let found = |name: &&&str| outcomes.iter().find(|outcome| outcome.name == **name);
    let bases: Vec<&Outcome> = against.iter().filter_map(|name| found(&name)).collect();
    let ratio_heads: Vec<String> = bases.iter().map(|base| format!("x {}", base.name)).collect();
    let mut head = vec![
        "server",
        "rounds",
        "median replies/s",
        "lowest and highest",
        "answered",
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
        cells.push(format!("{} %", outcome.answered()));
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
    fn server(capacity: u64) -> impl FnMut(u32) -> Result<Placed<Report>, LabError> {
        move |rate| {
            let rate = u64::from(rate);
            let excess = rate.saturating_sub(capacity);
            let reply_rate = rate.min(capacity).saturating_sub(excess / 3);
            let found = Report { query_rate: rate, reply_rate, ..Report::default() };
            Ok(Placed { found, ..Placed::default() })
        }
    }

    #[test]
    fn the_peak_is_where_the_load_is_a_little_above_the_capacity() {
        let procedure = Procedure::thorough(1);
        let (step, peak) = procedure.climb(0..10, server(210_000)).unwrap();
        assert_eq!((procedure.rates[step], peak.found.reply_rate), (200_000, 200_000));
    }

    #[test]
    fn the_climb_ends_when_replies_fall() {
        let mut offered = Vec::new();
        let mut server = server(150_000);
        let measure = |rate| {
            offered.push(rate);
            server(rate)
        };
        Procedure::thorough(1).climb(0..10, measure).unwrap();
        assert_eq!(offered, [100_000, 150_000, 200_000, 250_000, 325_000]);
    }

    #[test]
    fn the_median_is_a_value_that_was_measured() {
        assert_eq!(median(&[3, 1, 2]), 2);
        assert_eq!(median(&[4, 1, 2, 3]), 2);
        assert_eq!(median(&[]), 0);
    }
}
