//! Plays every scenario in `specs/dns/resolver`.
//!
//! Chance is fixed: `RESOLVER_SEED=N` replays with another seed, `RESOLVER_SCENARIO=word` only those whose names contain the word.

use crate::rpl;

use std::path::{Path, PathBuf};

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs/dns/resolver");
    let entries = std::fs::read_dir(folder).expect("the scenarios are there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "rpl"));
    files.sort();
    files
}

fn seeds() -> Vec<u8> {
    match std::env::var("RESOLVER_SEED") {
        Ok(seed) => vec![seed.parse().expect("RESOLVER_SEED is a number up to 255")],
        Err(_) => (1..=5).collect(),
    }
}

#[test]
fn scenarios_play_as_written() {
    let only = std::env::var("RESOLVER_SCENARIO").unwrap_or_default();
    let mut failures = Vec::new();
    let mut played = 0;
    for file in files() {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if !name.contains(&only) {
            continue;
        }
        let text = std::fs::read_to_string(&file).expect("a text");
        assert!(text.starts_with("; "), "{name}: the first line says what the scenario proves");
        let scenario = rpl::parse(&text);
        played += 1;
        for seed in seeds() {
            if let Err(complaint) = rpl::play(&scenario, [seed; 16]) {
                let replay =
                    format!("RESOLVER_SEED={seed} RESOLVER_SCENARIO={name} cargo test -p dns-resolver");
                failures.push(format!("{name}: {complaint}\nreplay: {replay}"));
                break;
            }
        }
    }
    assert!(failures.is_empty(), "{} of {played} fail:\n{}", failures.len(), failures.join("\n\n"));
    assert!(played > 0, "no scenario of that name");
}
