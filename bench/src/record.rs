//! What a run found, kept for good: a line for each figure in `docs/benchmarks.tsv`, from which `docs/benchmarks.md` is written.
//!
//! Nothing is kept unless the environment names the page ([`PAGE`]), as `make bench` does.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use lab::{Conditions, LabError};

use crate::page;
use crate::report::median;

/// The variable that names the page.
pub const PAGE: &str = "SIDESTEP_BENCH_PAGE";

/// One figure: a median over the rounds of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What is measured: a scenario, a workload, a quantile.
    pub case: String,
    /// Of what or whom.
    pub subject: String,
    /// In what.
    pub unit: String,
    /// The median over the rounds.
    pub value: f64,
    /// The lowest round.
    pub lowest: f64,
    /// The highest round.
    pub highest: f64,
    /// How many rounds there were.
    pub rounds: usize,
}

/// All figures of one run.
pub struct Run<'r> {
    /// The benchmark's name, which its place on the page has too.
    pub name: &'r str,
    /// How they were taken.
    pub conditions: &'r Conditions,
    /// The figures.
    pub figures: Vec<Figure>,
    /// Subjects that the others are compared with.
    pub against: &'r [&'r str],
}

/// A figure with the run that it belongs to: a line of the file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) date: String,
    pub(crate) commit: String,
    pub(crate) machine: String,
    pub(crate) kernel: String,
    pub(crate) network: String,
    pub(crate) command: String,
    pub(crate) load: String,
    pub(crate) figure: Figure,
}

impl Figure {
    /// The figure of some rounds; none if there was no round.
    pub fn of(case: &str, subject: &str, unit: &str, rounds: &[f64]) -> Option<Figure> {
        if rounds.is_empty() {
            return None;
        }
        Some(Figure {
            case: case.to_owned(),
            subject: subject.to_owned(),
            unit: unit.to_owned(),
            value: median(&mut rounds.to_vec()),
            lowest: rounds.iter().copied().fold(f64::INFINITY, f64::min),
            highest: rounds.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            rounds: rounds.len(),
        })
    }
}

impl Run<'_> {
    /// Adds the run to the file, and then writes its place on the page anew: figures of hours are not lost for want of a place.
    ///
    /// # Errors
    /// If a file cannot be read or written, or the page has no place for this benchmark.
    pub fn keep(&self) -> Result<(), LabError> {
        let Some(page) = std::env::var_os(PAGE).map(PathBuf::from) else { return Ok(()) };
        self.keep_in(&page).map_err(|source| LabError::System { what: page.display().to_string(), source })
    }

    fn keep_in(&self, page: &Path) -> io::Result<()> {
        let file = page.with_extension("tsv");
        let before = match fs::read_to_string(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        let added: String = self.rows().map(|row| row.line()).collect();
        fs::OpenOptions::new().create(true).append(true).open(&file)?.write_all(added.as_bytes())?;
        let rows: Vec<Row> = before.lines().chain(added.lines()).filter_map(Row::read).collect();
        let written = page::write(&fs::read_to_string(page)?, self.name, &rows, self.against);
        let written =
            written.ok_or_else(|| io::Error::other(format!("there is no place for {}", self.name)))?;
        fs::write(page, written)
    }

    fn rows(&self) -> impl Iterator<Item = Row> {
        let Conditions { date, commit, machine, kernel, network, command, offered, .. } = self.conditions;
        self.figures.iter().map(|figure| Row {
            name: self.name.to_owned(),
            date: date.clone(),
            commit: commit.clone(),
            machine: machine.clone(),
            kernel: kernel.clone(),
            network: network.clone(),
            command: command.clone(),
            load: offered.clone(),
            figure: figure.clone(),
        })
    }
}

impl Row {
    fn line(&self) -> String {
        let Figure { case, subject, unit, value, lowest, highest, rounds } = &self.figure;
        let (own, figure) = (self.texts(), [case, subject, unit]);
        let texts: Vec<String> =
            own.into_iter().chain(figure).map(|text| text.replace(['\t', '\n'], " ")).collect();
        format!("{}\t{value}\t{lowest}\t{highest}\t{rounds}\n", texts.join("\t"))
    }

    fn read(line: &str) -> Option<Row> {
        let mut fields = line.split('\t');
        let mut text = || fields.next().map(str::to_owned);
        let (name, date, commit, machine) = (text()?, text()?, text()?, text()?);
        let (kernel, network, command, load) = (text()?, text()?, text()?, text()?);
        let (case, subject, unit) = (text()?, text()?, text()?);
        let (value, lowest, highest) = (text()?.parse().ok()?, text()?.parse().ok()?, text()?.parse().ok()?);
        let rounds = text()?.parse().ok()?;
        let figure = Figure { case, subject, unit, value, lowest, highest, rounds };
        Some(Row { name, date, commit, machine, kernel, network, command, load, figure })
    }

    fn texts(&self) -> [&String; 8] {
        let Row { name, date, commit, machine, kernel, network, command, load, .. } = self;
        [name, date, commit, machine, kernel, network, command, load]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_figure_is_the_median_of_its_rounds() {
        let figure = Figure::of("a", "NSD", "replies/s", &[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((figure.value, figure.lowest, figure.highest, figure.rounds), (2.0, 1.0, 3.0, 3));
        assert_eq!(Figure::of("a", "NSD", "replies/s", &[]), None);
    }

    #[test]
    fn runs_are_added_and_the_page_has_all_of_them() {
        let directory = lab::Directory::new().unwrap();
        let page =
            directory.write("page.md", "before\n<!-- bench:veth -->\n<!-- /bench -->\nafter\n").unwrap();
        for rate in [100.0, 300.0, 200.0] {
            let mut conditions = Conditions::here("make bench", "veth", "some\tload");
            conditions.date = format!("day {rate}");
            let figures = Figure::of("a", "NSD", "replies/s", &[rate]).into_iter().collect();
            Run { name: "veth", conditions: &conditions, figures, against: &["NSD"] }.keep_in(&page).unwrap();
        }
        let (text, file) = (fs::read_to_string(&page).unwrap(), page.with_extension("tsv"));
        let lines: Vec<String> = fs::read_to_string(&file).unwrap().lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| Row::read(line).is_some_and(|row| row.line().trim_end() == line)));
        assert!(
            text.starts_with("before\n<!-- bench:veth -->\n") && text.ends_with("<!-- /bench -->\nafter\n")
        );
        assert!(text.contains("day 100") && text.contains("day 300"), "{text}");
        let row = text.lines().find(|line| line.starts_with("| a")).unwrap();
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!(cells[1..], ["a", "NSD", "replies/s", "200", "100 - 300", "3", "1.00", ""]);
    }

    #[test]
    fn a_page_without_the_place_is_an_error_and_the_figures_are_kept() {
        let directory = lab::Directory::new().unwrap();
        let page = directory.write("page.md", "nothing here\n").unwrap();
        let conditions = Conditions::here("make bench", "veth", "load");
        let figures = Figure::of("a", "NSD", "replies/s", &[1.0]).into_iter().collect();
        let run = Run { name: "veth", conditions: &conditions, figures, against: &[] };
        assert!(run.keep_in(&page).is_err());
        assert_eq!(fs::read_to_string(page.with_extension("tsv")).unwrap().lines().count(), 1);
    }

    #[test]
    fn every_benchmark_has_its_place_on_the_real_page() {
        let root = lab::workspace_root();
        let real = fs::read_to_string(root.join("docs/benchmarks.md")).unwrap();
        let names = names_of_runs(&root.join("bench/src/bin"));
        assert!(names.contains("veth") && names.contains("responder"), "{names:?}");
        for name in names {
            let directory = lab::Directory::new().unwrap();
            let page = directory.write("page.md", &real).unwrap();
            let conditions = Conditions::here("make bench", "veth", "load");
            let figures = Figure::of("a", "NSD", "replies/s", &[1.0]).into_iter().collect();
            let run = Run { name: &name, conditions: &conditions, figures, against: &[] };
            run.keep_in(&page).unwrap();
        }
    }

    /// The names in the sources of the benchmarks.
    fn names_of_runs(directory: &Path) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                names.extend(names_of_runs(&path));
                continue;
            }
            let text = fs::read_to_string(path).unwrap();
            let runs = text.split("Run {").skip(1);
            let named = runs.filter_map(|rest| rest.trim_start().strip_prefix("name: \"")?.split('"').next());
            names.extend(named.map(str::to_owned));
        }
        names
    }
}
