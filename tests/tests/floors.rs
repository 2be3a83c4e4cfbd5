//! Within a crate arrows point one way too: modules of a directory lie on floors, and name only what lies below them.
//!
//! [`FLOORS`] lists the directories that have floors. The modules of one floor do not know each other. Tests may name anything, and
//! modules within a file are not followed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A directory of modules, and its floors from the top.
type House = (&'static str, &'static [&'static [&'static str]]);

const FLOORS: &[House] = &[
    (
        "crates/broker/src",
        &[&["client", "server"], &["fuzz"], &["registry"], &["moving", "transfer"], &["protocol"], &["peer"]],
    ),
    (
        "crates/broker/src/server",
        &[
            &["handle", "fuzz"],
            &["made_up"],
            &["turns"],
            &["requests"],
            &["claiming", "ways", "moves", "deliveries", "inheritance", "succession", "observers", "status"],
            &["interfaces"],
            &["actions"],
            &["clients", "aside"],
            &["broker"],
            &[
                "routes",
                "questions",
                "orphans",
                "handshakes",
                "recent_moves",
                "kept_sockets",
                "kernel_memory",
                "under_way",
            ],
            &["port", "connection", "outcome"],
            &["helpers", "data_path"],
            &[
                "shadow",
                "datagram",
                "family",
                "privilege",
                "confinement",
                "names",
                "notice",
                "choice",
                "config",
                "pins",
                "token",
                "machine",
            ],
            &["shares"],
        ],
    ),
];

/// What a file names by a path from `crate` or `super`: the module of the directory, or `None` for what its `mod.rs` has itself.
#[derive(Debug, PartialEq, Eq)]
struct Arrow {
    from: String,
    to: Option<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests lie in the workspace").to_owned()
}

#[test]
fn modules_name_only_what_lies_below_them() {
    for (directory, floors) in FLOORS {
        let place_of: BTreeMap<&str, usize> = floors
            .iter()
            .enumerate()
            .flat_map(|(place, names)| names.iter().map(move |name| (*name, place)))
            .collect();
        let files = sources(&root().join(directory));
        for (path, _) in &files {
            let module = &path[0];
            assert!(place_of.contains_key(module.as_str()), "{directory}: {module} has no floor");
        }
        let within = module_of(directory);
        let faults: Vec<String> = files
            .iter()
            .flat_map(|(path, text)| arrows(&within, path, text))
            .filter(|arrow| !goes_down(arrow, &place_of))
            .map(|Arrow { from, to }| format!("{from} -> {}", to.as_deref().unwrap_or("mod.rs")))
            .collect();
        assert!(faults.is_empty(), "{directory}: upward or sideways: {faults:#?}");
    }
}

fn goes_down(arrow: &Arrow, place_of: &BTreeMap<&str, usize>) -> bool {
    let place = |module: &str| place_of.get(module).copied();
    match &arrow.to {
        Some(to) if *to == arrow.from => true,
        Some(to) => place(to) > place(&arrow.from),
        None => false,
    }
}

/// The path of a directory's module from the root of its crate: of `crates/broker/src/server`, `["server"]`.
fn module_of(directory: &str) -> Vec<String> {
    let (_, below) = directory.split_once("/src").expect("sources lie in src");
    below.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The sources below a directory, without tests: the path of each module from there, and its text.
fn sources(directory: &Path) -> Vec<(Vec<String>, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if ["tests", "testing"].contains(&name.as_str()) || name.ends_with("_tests") {
            continue;
        }
        if path.is_dir() {
            let below =
                sources(&path).into_iter().map(|(below, text)| ([vec![name.clone()], below].concat(), text));
            found.extend(below);
            let own = path.join("mod.rs");
            found.extend(fs::read_to_string(own).ok().map(|text| (vec![name], text)));
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && !["mod", "lib"].contains(&name.as_str())
        {
            found.push((vec![name], fs::read_to_string(&path).unwrap()));
        }
    }
    found
}

/// The arrows of a file: `within` is the directory's module, and `path` the file's from there.
fn arrows(within: &[String], path: &[String], text: &str) -> Vec<Arrow> {
    let production = text.lines().take_while(|line| !line.ends_with("mod tests {"));
    let code: Vec<&str> = production.filter(|line| !line.trim_start().starts_with("//")).collect();
    let own: Vec<String> = [within, path].concat();
    let targets = named_paths(&code.join("\n")).into_iter().filter_map(|named| resolve(&own, &named));
    let inside = targets.filter_map(|target| target.strip_prefix(within).map(<[String]>::to_vec));
    let arrow = |target: Vec<String>| {
        // A type or a function is `mod.rs`'s own; modules are in lower case, and so are functions, which are followed by nothing.
        let to = target
            .into_iter()
            .next()
            .filter(|name| name.starts_with(|first: char| first.is_ascii_lowercase()));
        Arrow { from: path[0].clone(), to }
    };
    inside.filter(|target| !target.is_empty()).map(arrow).collect()
}

/// Where a path leads that a module names: `None` if out of the crate.
fn resolve(own: &[String], named: &[String]) -> Option<Vec<String>> {
    let mut at = own.to_vec();
    let mut rest = named;
    if rest.first().is_some_and(|first| first == "crate") {
        at.clear();
        rest = &rest[1..];
    }
    while rest.first().is_some_and(|first| first == "super") {
        at.pop()?;
        rest = &rest[1..];
    }
    Some([at, rest.to_vec()].concat())
}

/// All paths of a text that begin with `crate` or `super`, those in braces one by one.
fn named_paths(text: &str) -> Vec<Vec<String>> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for start in ["crate::", "super::"] {
        for (at, _) in text.match_indices(start) {
            let before = &text[..at];
            if !before.ends_with(is_word) && !before.ends_with("::") {
                read_path(&text[at..], &mut Vec::new(), &mut found);
            }
        }
    }
    found
}

/// Reads a path, behind `prefix`; returns what follows it.
fn read_path<'t>(text: &'t str, prefix: &mut Vec<String>, found: &mut Vec<Vec<String>>) -> &'t str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = read_path(rest, &mut prefix.clone(), found).trim_start();
            match rest.strip_prefix(',') {
                Some(next) if !next.trim_start().starts_with('}') => rest = next,
                Some(next) => return &next.trim_start()[1..],
                None => return rest.strip_prefix('}').unwrap_or(rest),
            }
        }
    }
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    prefix.push(text[..end].to_owned());
    match text[end..].strip_prefix("::") {
        Some(rest) => read_path(rest, prefix, found),
        None => {
            found.push(std::mem::take(prefix));
            let rest = text[end..].trim_start();
            let renamed = rest.strip_prefix("as ").map(|rest| rest.trim_start());
            renamed.map_or(&text[end..], |rest| {
                rest.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_')
            })
        }
    }
}

#[cfg(test)]
mod own {
    use super::*;

    fn words(path: &str) -> Vec<String> {
        path.split("::").map(str::to_owned).collect()
    }

    #[test]
    fn paths_are_read_out_of_braces() {
        let text = "use super::{shadow, helpers::{self, Theirs as T}, port::address};\nlet it = crate::protocol::Key(1);";
        let expected =
            ["super::shadow", "super::helpers::self", "super::helpers::Theirs", "super::port::address"];
        let mut found = named_paths(text);
        let last = words("crate::protocol::Key");
        assert!(found.contains(&last));
        found.retain(|path| *path != last);
        assert_eq!(found, expected.map(words));
    }

    #[test]
    fn an_arrow_leads_to_a_module_of_the_directory_or_to_what_its_parent_has() {
        let arrow =
            |path: &str, text: &str| arrows(&words("server"), &words(path), text).pop().map(|arrow| arrow.to);
        assert_eq!(arrow("moves", "use super::broker::Broker;"), Some(Some("broker".to_owned())));
        assert_eq!(
            arrow("socket::place", "use super::super::broker::Broker;"),
            Some(Some("broker".to_owned()))
        );
        assert_eq!(arrow("socket::place", "use crate::server::broker;"), Some(Some("broker".to_owned())));
        assert_eq!(arrow("moves", "use super::OpenError;"), Some(None));
        assert_eq!(arrow("moves", "use crate::protocol::Key;"), None);
        assert_eq!(arrow("moves", "// as super::broker does\n"), None);
        assert_eq!(arrow("moves", "#[cfg(test)]\nmod tests {\n    use super::super::broker;\n}"), None);
    }

    #[test]
    fn what_lies_above_or_beside_is_a_fault() {
        let floors = BTreeMap::from([("requests", 0), ("clients", 1), ("moves", 1)]);
        let is_good = |from: &str, to: Option<&str>| {
            goes_down(&Arrow { from: from.to_owned(), to: to.map(str::to_owned) }, &floors)
        };
        assert!(is_good("requests", Some("clients")) && is_good("clients", Some("clients")));
        assert!(!is_good("clients", Some("requests")) && !is_good("clients", Some("moves")));
        assert!(!is_good("clients", None) && !is_good("requests", Some("elsewhere")));
    }
}
