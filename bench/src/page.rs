//! A benchmark's place on the page: the conditions of the newest run, the medians over all runs, and every run. Pure.

use lab::markdown_table;

use crate::record::{Figure, Row};
use crate::report::median;

const END: &str = "<!-- /bench -->";

/// The page with the place of the benchmark `name` written anew from `rows`; `None` if it has no such place.
pub(crate) fn write(page: &str, name: &str, rows: &[Row], against: &[&str]) -> Option<String> {
    let mark = format!("<!-- bench:{name} -->");
    let (head, rest) = page.split_once(&mark)?;
    let (_, tail) = rest.split_once(END)?;
    let own: Vec<&Row> = rows.iter().filter(|row| row.name == name).collect();
    Some(format!("{head}{mark}\n\n{}\n{END}{tail}", block(&own, against)?))
}

fn block(rows: &[&Row], against: &[&str]) -> Option<String> {
    let newest = rows.last()?;
    let like = |row: &&&Row| (&row.machine, &row.kernel) == (&newest.machine, &newest.kernel);
    let comparable: Vec<&Row> = rows.iter().filter(like).copied().collect();
    Some(format!(
        "{}\nMedians over all runs on this machine and kernel:\n\n{}\nEvery run, with the lowest and the highest of its rounds:\n\n{}",
        conditions(newest),
        medians(&comparable, against),
        history(rows)
    ))
}

fn conditions(newest: &Row) -> String {
    let Row { date, commit, machine, kernel, network, command, load, .. } = newest;
    format!(
        "- machine: {machine}\n- kernel: {kernel}\n- network: {network}\n- newest run: {date}, commit {commit}\n\
         - command: `{command}`\n- offered load: {load}\n"
    )
}

/// A row for each case and subject, in the order of the newest run and then of those that it lacks.
fn medians(rows: &[&Row], against: &[&str]) -> String {
    let mut keys: Vec<(&str, &str, &str)> = Vec::new();
    for row in newest_first(rows) {
        let Figure { case, subject, unit, .. } = &row.figure;
        let key = (case.as_str(), subject.as_str(), unit.as_str());
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let values = |case: &str, subject: &str| -> Vec<f64> {
        let own = rows.iter().filter(|row| row.figure.case == case && row.figure.subject == subject);
        own.map(|row| row.figure.value).collect()
    };
    let heads: Vec<String> = against.iter().map(|base| format!("x {base}")).collect();
    let mut head = vec!["case", "subject", "unit", "median", "lowest - highest run", "runs"];
    head.extend(heads.iter().map(String::as_str));
    let row = |(case, subject, unit): &(&str, &str, &str)| {
        let mut own = values(case, subject);
        let middle = median(&mut own);
        let (lowest, highest) = (own[0], own[own.len() - 1]); // The median has sorted them.
        let mut cells = vec![(*case).to_owned(), (*subject).to_owned(), (*unit).to_owned(), show(middle)];
        cells.extend([format!("{} - {}", show(lowest), show(highest)), own.len().to_string()]);
        cells.extend(against.iter().map(|base| ratio(middle, &mut values(case, base))));
        cells
    };
    markdown_table(&head, &keys.iter().map(row).collect::<Vec<_>>())
}

/// The rows of the newest run, then those of the run before, and so on.
fn newest_first<'r>(rows: &[&'r Row]) -> Vec<&'r Row> {
    runs(rows).into_iter().rev().flatten().collect()
}

/// The rows of each run, in the order in which they were taken.
fn runs<'r>(rows: &[&'r Row]) -> Vec<Vec<&'r Row>> {
    let same = |one: &&'r Row, other: &&'r Row| (&one.date, &one.commit) == (&other.date, &other.commit);
    rows.chunk_by(same).map(<[&Row]>::to_vec).collect()
}

fn ratio(value: f64, base: &mut [f64]) -> String {
    if base.is_empty() {
        return String::new();
    }
    let base = median(base);
    if base == 0.0 { String::new() } else { format!("{:.2}", value / base) }
}

/// A row for each case of each run, the newest first.
fn history(rows: &[&Row]) -> String {
    let mut lines = Vec::new();
    for run in runs(rows).into_iter().rev() {
        for case in run.chunk_by(|one, other| one.figure.case == other.figure.case) {
            let Some(first) = case.first() else { continue };
            let Row { date, commit, machine, kernel, figure, .. } = first;
            let figures: Vec<String> = case.iter().map(|row| figure_in_history(&row.figure)).collect();
            lines.push(vec![
                date.clone(),
                commit.clone(),
                format!("{machine}, {kernel}"),
                figure.case.clone(),
                figure.rounds.to_string(),
                figures.join("; "),
            ]);
        }
    }
    markdown_table(&["date", "commit", "machine, kernel", "case", "rounds", "medians of the rounds"], &lines)
}

fn figure_in_history(figure: &Figure) -> String {
    let Figure { subject, value, lowest, highest, .. } = figure;
    format!("{subject} {} ({} - {})", show(*value), show(*lowest), show(*highest))
}

/// Three digits at least, and no more behind the point than that takes.
fn show(value: f64) -> String {
    let digits = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(date: &str, machine: &str, subject: &str, value: f64) -> Row {
        let text = str::to_owned;
        let figure = Figure {
            case: text("a"),
            subject: text(subject),
            unit: text("replies/s"),
            value,
            lowest: value - 1.0,
            highest: value + 1.0,
            rounds: 3,
        };
        Row {
            name: text("veth"),
            date: text(date),
            commit: text("c0ffee"),
            machine: text(machine),
            kernel: text("Linux"),
            network: text("veth"),
            command: text("make bench"),
            load: text("queries"),
            figure,
        }
    }

    const PAGE: &str = "<!-- bench:veth -->old<!-- /bench -->\n<!-- bench:tcp -->\nkept\n<!-- /bench -->\n";

    #[test]
    fn ratios_are_of_medians_over_all_runs_and_not_of_the_best() {
        let rows = [
            row("1", "m", "NSD", 100.0),
            row("1", "m", "ours", 300.0),
            row("2", "m", "NSD", 110.0),
            row("2", "m", "ours", 200.0),
            row("3", "m", "NSD", 120.0),
            row("3", "m", "ours", 220.0),
        ];
        let page = write(PAGE, "veth", &rows, &["NSD"]).unwrap();
        let ours = page.lines().find(|line| line.starts_with("| a ") && line.contains("| ours")).unwrap();
        let cells: Vec<&str> = ours.split('|').map(str::trim).collect();
        assert_eq!(cells[2..8], ["ours", "replies/s", "220", "200 - 300", "3", "2.00"]);
        assert!(!page.contains("old") && page.contains("kept"));
        let days: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("| ")?.get(..1)).collect();
        assert!(days.ends_with(&["3", "2", "1"]), "every run has its row, the newest first: {days:?}");
    }

    #[test]
    fn runs_of_another_machine_are_history_only() {
        let rows = [row("1", "fast", "NSD", 500.0), row("2", "slow", "NSD", 100.0)];
        let page = write(PAGE, "veth", &rows, &[]).unwrap();
        assert!(page.contains("- machine: slow") && page.contains("fast, Linux"));
        let median = page.lines().find(|line| line.starts_with("| a ")).unwrap();
        assert!(median.contains("| 100 ") && !median.contains("500"), "{median}");
    }

    #[test]
    fn a_page_without_the_place_is_left_alone() {
        assert_eq!(write("nothing", "veth", &[row("1", "m", "NSD", 1.0)], &[]), None);
        assert_eq!(write("<!-- bench:veth -->", "veth", &[row("1", "m", "NSD", 1.0)], &[]), None);
    }

    #[test]
    fn figures_have_three_digits() {
        assert_eq!([671_432.0, 43.21, 2.384, 0.0].map(show), ["671432", "43.2", "2.38", "0.00"]);
    }
}
