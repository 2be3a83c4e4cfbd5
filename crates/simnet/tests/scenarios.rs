//! Plays the scenarios in `specs/tcp`: each is a specification in packetdrill's language, read by people first.
//!
//! Time is simulated, so nothing is late by chance: an event may be off by a tenth of a millisecond where the script does
//! not say more. Packets that no scenario expects fail it, at its end, too.

use std::path::{Path, PathBuf};

use simnet::pkt::ast::{Position, ScriptOption};
use simnet::pkt::parser::Definitions;
use simnet::pkt::play;

const OPTIONS: &[(&str, &str)] =
    &[("tolerance_usecs", "100"), ("tolerance_percent", "0"), ("check_rest", "1")];

fn scenarios() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs/tcp");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "pkt"))
        .collect();
    files.sort();
    files
}

/// The options of this test as a script's, for files that say nothing else, and as the command line's.
fn options() -> (Vec<ScriptOption>, String) {
    let at = Position { line: 0, column: 0 };
    let option = |(name, value): &(&str, &str)| ScriptOption {
        name: (*name).to_owned(),
        value: Some((*value).to_owned()),
        at,
    };
    let words: Vec<String> = OPTIONS.iter().map(|(name, value)| format!("--{name}={value}")).collect();
    (OPTIONS.iter().map(option).collect(), words.join(" "))
}

#[test]
fn every_scenario_plays_as_written() {
    let (options, words) = options();
    let mut failures = Vec::new();
    let files = scenarios();
    for path in &files {
        let name = format!("specs/tcp/{}", path.file_name().unwrap().to_string_lossy());
        let text = std::fs::read_to_string(path).unwrap();
        let report = play(&text, &options, &Definitions::default());
        if !report.passed() {
            let replay = format!("cargo run -p simnet --bin pkt -- -v {words} {name}");
            failures.push(format!("{}\n  replay: {replay}", report.display(&name)));
        }
    }
    assert!(failures.is_empty(), "{} of {} fail\n{}", failures.len(), files.len(), failures.join("\n"));
}

#[test]
fn every_scenario_says_in_its_first_line_what_it_proves() {
    for path in scenarios() {
        let text = std::fs::read_to_string(&path).unwrap();
        let comment: String = text.lines().take_while(|line| line.starts_with("//")).collect();
        let names_source = ["RFC ", "(7)", "(2)"].iter().any(|source| comment.contains(source));
        assert!(names_source, "{}: the comment at the top names no RFC or manual page", path.display());
    }
}
