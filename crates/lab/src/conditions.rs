//! The conditions of a figure, and how they are printed.

use std::fmt;
use std::fs;
use std::process::Command;

use crate::namespaces::run;
use crate::workspace_root;

/// Everything that a reader needs to judge a figure.
#[derive(Clone, Debug)]
pub struct Conditions {
    machine: String,
    kernel: String,
    commit: String,
    command: String,
    peers: String,
    load: String,
}

impl Conditions {
    /// Of this machine at this moment, for a figure printed by `command`.
    pub fn here(command: &str) -> Conditions {
        Conditions {
            machine: machine(),
            kernel: first_line("uname", &["-sr"]),
            commit: commit(),
            command: command.to_owned(),
            peers: peers(),
            load: fs::read_to_string("/proc/loadavg").unwrap_or_default(),
        }
    }
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "- machine: {}", self.machine)?;
        writeln!(f, "- kernel: {}", self.kernel)?;
        writeln!(f, "- commit: {}", self.commit)?;
        writeln!(f, "- command: `{}`", self.command)?;
        writeln!(f, "- peers: {}", self.peers)?;
        // Other work on the same cores lowers every figure, and not equally.
        write!(f, "- load before the run: {}", self.load.trim())
    }
}

/// A table in Markdown, its columns padded so that it also reads well in a terminal.
pub fn markdown_table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().enumerate().map(|(column, cell)| format!(" {cell:<0$} |", width(column)));
        format!("|{}\n", padded.collect::<String>())
    };
    let rule: Vec<String> = (0..head.len()).map(|column| "-".repeat(width(column))).collect();
    let mut table = line(head.to_vec());
    table += &line(rule.iter().map(String::as_str).collect());
    for row in rows {
        table += &line(row.iter().map(String::as_str).collect());
    }
    table
}

fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{} cores, {}", cores, model.map_or("unknown processor", |(_, name)| name))
}

fn commit() -> String {
    let root = workspace_root();
    let git = |arguments: &[&str]| {
        run(Command::new("git").current_dir(&root).args(arguments)).unwrap_or_default().trim().to_owned()
    };
    let hash = git(&["rev-parse", "--short=12", "HEAD"]);
    let changed = !git(&["status", "--porcelain", "--untracked-files=no"]).is_empty();
    match (hash.is_empty(), changed) {
        (true, _) => "unknown".to_owned(),
        (false, true) => format!("{hash}, with changes"),
        (false, false) => hash,
    }
}

/// Versions of the other servers and of the generator.
fn peers() -> String {
    // nsd prints its version on stderr; the other two on stdout.
    let nsd = Command::new("nsd").arg("-v").output().ok();
    let nsd = nsd.map(|output| String::from_utf8_lossy(&output.stderr).into_owned()).unwrap_or_default();
    let nsd = nsd.lines().next().unwrap_or("no NSD").trim_end_matches('.').to_owned();
    [nsd, first_line("knotd", &["--version"]), first_line("kxdpgun", &["--version"])].join("; ")
}

fn first_line(program: &str, arguments: &[&str]) -> String {
    let output = run(Command::new(program).args(arguments)).unwrap_or_else(|error| error.to_string());
    output.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_padded() {
        let table = markdown_table(&["server", "n"], &[vec!["a".into(), "10".into()]]);
        assert_eq!(table, "| server | n  |\n| ------ | -- |\n| a      | 10 |\n");
    }
}
