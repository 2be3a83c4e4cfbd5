//! Servers beside each other by their knees: measured in turns, as rows of a table and as figures.

use std::process::ExitCode;

use lab::{LabError, Placed, all_places, in_one_place, markdown_table};

use crate::gun::Knee;
use crate::record::Figure;

/// A benchmark `name` whose only argument is how many rounds there are (3), in a process of its own.
pub fn run_rounds(name: &str, measure: fn(u32) -> Result<(), LabError>) -> ExitCode {
    if !lab::require_root_and_xdp() {
        return ExitCode::SUCCESS;
    }
    let rounds = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(3);
    match measure(rounds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What was found so far, one case after the other.
#[derive(Debug, Default)]
pub struct Knees {
    rows: Vec<Vec<String>>,
    figures: Vec<Figure>,
}

impl Knees {
    /// Has `run` measure each of `servers`, which it gets by number, `rounds` times in turns. The ratios of the case are those to the first server.
    ///
    /// # Errors
    /// Those of `run`.
    pub fn measure(
        &mut self,
        case: &str,
        servers: &[String],
        rounds: u32,
        mut run: impl FnMut(usize) -> Result<Knee, LabError>,
    ) -> Result<(), LabError> {
        let mut all = vec![Vec::new(); servers.len()];
        for round in 1..=rounds {
            for (number, server) in servers.iter().enumerate() {
                let placed = in_one_place(|| run(number))?;
                show_progress(round, case, server, &placed);
                all[number].push(placed);
            }
        }
        self.add(case, servers, &all_places(&all));
        Ok(())
    }

    fn add(&mut self, case: &str, servers: &[String], measured: &[Vec<Knee>]) {
        let mut first = None;
        for (server, found) in servers.iter().zip(measured) {
            let rates: Vec<f64> = found.iter().map(|found| found.rate).collect();
            let Some(figure) = Figure::of(case, server, "answers/s", &rates) else { continue };
            self.rows.push(row(&figure, *first.get_or_insert(figure.value), found));
            self.figures.push(figure);
        }
    }

    /// A table of all. `what` heads the column of the cases.
    pub fn table(&self, what: &str) -> String {
        let head = [what, "server", "rounds", "answers/s", "lowest and highest", "limits", "ratio"];
        markdown_table(&head, &self.rows)
    }

    /// What is to be kept.
    pub fn into_figures(self) -> Vec<Figure> {
        self.figures
    }
}

fn show_progress(round: u32, case: &str, server: &str, placed: &Placed<Knee>) {
    let Knee { rate, limit, .. } = &placed.found;
    eprintln!(
        "round {round}: {case}: {server}: {rate:.0} answers/s, limit: {limit}, cores {} apart",
        placed.apart
    );
}

fn row(figure: &Figure, first: f64, found: &[Knee]) -> Vec<String> {
    let limits: Vec<&str> = found.iter().map(|found| &found.limit[..]).collect();
    vec![
        figure.case.clone(),
        figure.subject.clone(),
        figure.rounds.to_string(),
        format!("{:.0}", figure.value),
        format!("{:.0} - {:.0}", figure.lowest, figure.highest),
        limits.join(", "),
        format!("{:.2}", figure.value / first),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knee(rate: f64) -> Knee {
        Knee { rate, limit: "server".to_owned(), whole: true }
    }

    #[test]
    fn ratios_are_those_to_the_first_server_of_each_case() {
        let servers = ["one", "two"].map(str::to_owned);
        let mut knees = Knees::default();
        knees.add("plain", &servers, &[vec![knee(100.0), knee(200.0), knee(400.0)], vec![knee(500.0)]]);
        knees.add("cookies", &servers, &[vec![], vec![knee(50.0)]]);
        let ratios: Vec<&str> = knees.rows.iter().map(|row| &row[6][..]).collect();
        assert_eq!(ratios, ["1.00", "2.50", "1.00"]);
        let medians: Vec<f64> = knees.into_figures().iter().map(|figure| figure.value).collect();
        assert_eq!(medians, [200.0, 500.0, 50.0]);
    }
}
