//! ARCHITECTURE.md is the map of the tree; here the two are held together.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

struct Package {
    kind: String,
    uses: BTreeSet<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests lie in the workspace").to_owned()
}

/// The rows of the table of crates: name, kind, what it uses.
fn map() -> BTreeMap<String, Package> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let table = text.split("## Crates").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    rows.map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let uses = cells[2].split_whitespace().map(|name| name.trim_matches('`').to_owned()).collect();
        (cells[0].trim_matches('`').to_owned(), Package { kind: cells[1].to_owned(), uses })
    })
    .collect()
}

fn packages_on_disk() -> BTreeSet<String> {
    let entries = fs::read_dir(root().join("crates")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Names of the crates that `package` depends on, without those that only tests use.
fn dependencies(package: &str, packages: &BTreeSet<String>) -> BTreeSet<String> {
    let manifest = fs::read_to_string(root().join("crates").join(package).join("Cargo.toml")).unwrap();
    let section =
        manifest.split("[dependencies]").nth(1).unwrap_or("").split("\n[").next().unwrap().to_owned();
    let names = section.lines().filter_map(|line| line.split(['.', ' ', '=']).next()).map(str::to_owned);
    names.filter(|name| packages.contains(name)).collect()
}

fn sources(package: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join("crates").join(package).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") && !is_test(&path) {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    found
}

/// Whether a source is compiled for tests only, by our names for such files.
fn is_test(path: &Path) -> bool {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    stem == "tests" || stem == "testing" || stem.ends_with("_tests")
}

#[test]
fn the_map_names_every_crate_and_no_other() {
    assert_eq!(map().into_keys().collect::<BTreeSet<_>>(), packages_on_disk());
}

#[test]
fn arrows_are_those_of_the_map() {
    let packages = packages_on_disk();
    for (name, package) in map() {
        assert_eq!(dependencies(&name, &packages), package.uses, "what {name} uses");
    }
}

#[test]
fn arrows_point_one_way() {
    let map = map();
    let mut settled = BTreeSet::new();
    while settled.len() < map.len() {
        let ready: Vec<&String> = map
            .iter()
            .filter(|(name, package)| !settled.contains(*name) && package.uses.is_subset(&settled))
            .map(|(name, _)| name)
            .collect();
        assert!(!ready.is_empty(), "a cycle among the crates that are not in {settled:?}");
        settled.extend(ready.into_iter().cloned());
    }
}

#[test]
fn unsafe_code_is_forbidden_outside_of_the_fenced_crates() {
    for (name, package) in map().into_iter().filter(|(_, package)| package.kind != "unsafe") {
        let text = fs::read_to_string(root().join("crates").join(&name).join("src/lib.rs")).unwrap();
        assert!(text.contains("#![forbid(unsafe_code)]"), "{name} is {} and does not say so", package.kind);
    }
}

#[test]
fn pure_crates_read_no_clock_open_nothing_and_spawn_nothing() {
    const FOREIGN: [&str; 10] = [
        "std::time::",
        "std::fs",
        "std::env::",
        "thread::spawn",
        "thread::sleep",
        "net::TcpStream",
        "net::UdpSocket",
        "std::process",
        "HashMap",
        "HashSet",
    ];
    for (name, _) in map().into_iter().filter(|(_, package)| package.kind == "pure") {
        for (path, text) in sources(&name) {
            let production = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            for word in FOREIGN {
                assert!(!production.contains(word), "{}: {word} in a pure crate", path.display());
            }
        }
    }
}
