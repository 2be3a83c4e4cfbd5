//! Makes a table of what the matrix of programs found, on the kernel and by `sidestep run`.
//!
//! Usage: `program_table RESULTS [PAGE]`: prints the table, or puts it into the page, between the lines that mark its place.

use std::error::Error;
use std::fs;

use lab::{Conditions, VETH, markdown_table};

/// The lines around the table.
const MARKS: [&str; 2] =
    ["<!-- the table begins: scripts/programs.sh writes it -->\n", "<!-- the table ends -->\n"];

/// A line of results: what one load on one network found.
struct Finding<'a> {
    program: &'a str,
    role: &'a str,
    network: &'a str,
    load: &'a str,
    value: f64,
    unit: &'a str,
    errors: &'a str,
    /// Per cent of the packets that the kernel did not take.
    accelerated: f64,
    reason: &'a str,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let results = fs::read_to_string(words.next().ok_or("no file of results")?)?;
    let findings: Vec<Finding<'_>> = results.lines().filter_map(parse).collect();
    let table = table(&findings);
    let Some(page) = words.next() else {
        print!("{table}");
        return Ok(());
    };
    let conditions = Conditions::here("scripts/programs.sh", VETH, "as the table says").with_peers();
    let text = fs::read_to_string(&page)?;
    let (head, rest) = text.split_once(MARKS[0]).ok_or("the page has no place for the table")?;
    let (_, tail) = rest.split_once(MARKS[1]).ok_or("the page has no end of the table")?;
    fs::write(&page, format!("{head}{}\n{conditions}\n\n{table}\n{}{tail}", MARKS[0], MARKS[1]))?;
    Ok(())
}

fn parse(line: &str) -> Option<Finding<'_>> {
    let fields: Vec<&str> = line.split('\t').collect();
    let &[program, role, network, load, value, unit, errors, accelerated, reason] = fields.as_slice() else {
        return None;
    };
    let (value, accelerated) = (value.parse().ok()?, accelerated.parse().ok()?);
    Some(Finding { program, role, network, load, value, unit, errors, accelerated, reason })
}

/// A row for each load that `sidestep run` has had, with the kernel's figure beside it.
fn table(findings: &[Finding<'_>]) -> String {
    let head = [
        "program",
        "role",
        "load",
        "unit",
        "kernel",
        "sidestep run",
        "errors",
        "packets on the stack",
        "remark",
    ];
    let mut ours: Vec<&Finding<'_>> = findings.iter().filter(|finding| finding.network != "kernel").collect();
    // In the order of programs; loads stay in theirs.
    ours.sort_by_key(|finding| (finding.program.to_lowercase(), finding.role));
    let row = |finding: &&Finding<'_>| {
        let is_same = |other: &&Finding<'_>| {
            (other.program, other.role, other.load) == (finding.program, finding.role, finding.load)
                && other.network == "kernel"
        };
        let kernel = findings.iter().find(is_same).map(|other| format!("{:.0}", other.value));
        vec![
            finding.program.to_owned(),
            finding.role.to_owned(),
            finding.load.to_owned(),
            finding.unit.to_owned(),
            kernel.unwrap_or_default(),
            format!("{:.0}", finding.value),
            finding.errors.to_owned(),
            format!("{:.0} %", finding.accelerated),
            finding.reason.to_owned(),
        ]
    };
    markdown_table(&head, &ours.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_networks_share_a_row() {
        let text = "nginx\tserver\tkernel\twrk\t100\tr/s\t0\t0.0\t\nnginx\tserver\tsidestep run\twrk\t150\tr/s\t0\t99.9\t\n";
        let findings: Vec<Finding<'_>> = text.lines().filter_map(parse).collect();
        let table = table(&findings);
        let row: Vec<&str> = table.lines().nth(2).unwrap().split('|').map(str::trim).collect();
        assert_eq!(row[1..10], ["nginx", "server", "wrk", "r/s", "100", "150", "0", "100 %", ""]);
    }
}
