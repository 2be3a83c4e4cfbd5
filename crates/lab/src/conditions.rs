//! The conditions of a figure, and how they are printed.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::namespaces::run;
use crate::peers::version::{KNOT, KXDPGUN, NSD};
use crate::workspace_root;

/// The laboratory's wire.
pub const VETH: &str = "veth pair between two network namespaces, one core at each end";

/// Everything that a reader needs to judge a figure.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// When it was taken, in UTC.
    pub date: String,
    /// Processor and cores.
    pub machine: String,
    /// The system.
    pub kernel: String,
    /// What carried the packets.
    pub network: String,
    /// Of this repository.
    pub commit: String,
    /// What printed it.
    pub command: String,
    /// What was offered.
    pub offered: String,
    /// Versions and ages of the others, if there are others.
    peers: Option<String>,
    load_before: String,
}

impl Conditions {
    /// Of this machine at this moment, for a figure printed by `command` of what `network` carries when `offered` is.
    pub fn here(command: &str, network: &str, offered: &str) -> Conditions {
        Conditions {
            date: first_line("date", &["-u", "+%Y-%m-%d %H:%M:%S"]),
            machine: machine(),
            kernel: first_line("uname", &["-sr"]),
            network: network.to_owned(),
            commit: commit(&workspace_root()),
            command: command.to_owned(),
            offered: offered.to_owned(),
            peers: None,
            load_before: fs::read_to_string("/proc/loadavg").unwrap_or_default(),
        }
    }

    /// With the versions and ages of NSD, Knot and kxdpgun.
    #[must_use]
    pub fn with_peers(self) -> Conditions {
        Conditions { peers: Some(format!("{NSD}; {KNOT}; {KXDPGUN}")), ..self }
    }
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "- machine: {}", self.machine)?;
        writeln!(f, "- kernel: {}", self.kernel)?;
        writeln!(f, "- network: {}", self.network)?;
        writeln!(f, "- commit: {}, {}", self.commit, self.date)?;
        writeln!(f, "- command: `{}`", self.command)?;
        writeln!(f, "- offered load: {}", self.offered)?;
        if let Some(peers) = &self.peers {
            writeln!(f, "- peers: {peers}")?;
        }
        // Other work on the same cores lowers every figure, and not equally.
        write!(f, "- load average before the run: {}", self.load_before.trim())
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

/// The commit of the repository at `root`. Pages of figures are no change: each benchmark writes them, and the next one is built of the same
/// commit all the same.
fn commit(root: &Path) -> String {
    const CODE: [&str; 4] = ["--", ".", ":!docs/benchmarks.md", ":!docs/benchmarks.tsv"];
    let git = |arguments: &[&str]| {
        let output = run(Command::new("git").current_dir(root).args(arguments));
        output.unwrap_or_default().trim().to_owned()
    };
    let hash = git(&["rev-parse", "--short=12", "HEAD"]);
    let changed = !git(&[&["status", "--porcelain", "--untracked-files=no"], &CODE[..]].concat()).is_empty();
    match (hash.is_empty(), changed) {
        (true, _) => "unknown".to_owned(),
        (false, true) => format!("{hash}, with changes"),
        (false, false) => hash,
    }
}

fn first_line(program: &str, arguments: &[&str]) -> String {
    let output = run(Command::new(program).args(arguments)).unwrap_or_else(|error| error.to_string());
    output.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Directory;

    #[test]
    fn pages_of_figures_are_no_change_of_a_commit() {
        let root = Directory::new().unwrap();
        let write = |file: &str, text: &str| fs::write(root.path().join(file), text).unwrap();
        let git = |arguments: &[&str]| {
            let author = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
            run(Command::new("git").current_dir(root.path()).args(author).args(arguments)).unwrap()
        };
        fs::create_dir(root.path().join("docs")).unwrap();
        for file in ["docs/benchmarks.md", "docs/benchmarks.tsv", "code"] {
            write(file, "before");
        }
        git(&["init", "--quiet"]);
        git(&["add", "."]);
        git(&["commit", "--quiet", "--message", "all"]);
        write("docs/benchmarks.md", "after");
        write("docs/benchmarks.tsv", "after");
        assert!(!commit(root.path()).contains("changes"), "{}", commit(root.path()));
        write("code", "after");
        assert!(commit(root.path()).ends_with(", with changes"), "{}", commit(root.path()));
    }

    #[test]
    fn tables_are_padded() {
        let table = markdown_table(&["server", "n"], &[vec!["a".into(), "10".into()]]);
        assert_eq!(table, "| server | n  |\n| ------ | -- |\n| a      | 10 |\n");
    }
}
