//! Within a crate arrows point one way too: modules of a directory lie on floors, and name only what lies below them.
//!
//! [`FLOORS`] lists the directories that have floors. The modules of one floor do not know each other. Tests may name anything, and
//! modules within a file are not followed. Where all modules add methods to one type, [`STATES`] names it: calling such a method is an
//! arrow to the file that has it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A directory of modules, and its floors from the top.
type House = (&'static str, &'static [&'static [&'static str]]);

const FLOORS: &[House] = &[
    (
        "crates/broker/src",
        &[
            &["client", "server"],
            &["fuzz"],
            &["registry"],
            &["moving", "transfer"],
            &["protocol"],
            &["peer", "machine_clock", "shares", "book"],
        ],
    ),
    (
        "crates/broker/src/server",
        &[
            &["handle", "fuzz", "place", "member"],
            &["made_up"],
            &["turns"],
            &["requests"],
            &[
                "return_of_clients",
                "claiming",
                "ways",
                "moves",
                "deliveries",
                "inheritance",
                "search",
                "succession",
                "farewells",
                "observers",
                "status",
            ],
            &["interfaces"],
            &["actions"],
            &["clients", "aside"],
            &["broker"],
            &[
                "routes",
                "questions",
                "strays",
                "orphans",
                "handshakes",
                "recent_moves",
                "kept_sockets",
                "kernel_memory",
                "under_way",
                "accept_queues",
                "books_left",
                "successor",
                "look",
            ],
            &["port", "connection", "outcome"],
            &["strangers"],
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
                "queues_left",
                "spread",
            ],
        ],
    ),
    (
        "crates/posix/src",
        &[
            &["calls"],
            &["wait"],
            &["claiming"],
            &["turns"],
            &["closing", "observing"],
            &["moves"],
            &["shadows", "global"],
            &["process"],
            &["queue"],
            &["socket"],
            &["epoll", "kinship", "broker_side", "moved_in_calls"],
            &["address", "waiter", "own_thread"],
            &["descriptors"],
            &["ids", "request", "inside", "batch"],
            &["errno"],
        ],
    ),
    (
        "crates/posix/src/calls",
        &[
            &["options", "sendfile"],
            &["connect", "control", "kernel_only", "lifecycle", "receive", "send", "poll", "epoll_wait"],
            &[
                "accept",
                "close",
                "datagrams",
                "duplicate",
                "epoll_control",
                "epoll_kernel",
                "open",
                "listen",
                "names",
            ],
            &["error_queue", "option_answers"],
            &["send_times", "option_value", "stream_messages", "udp_errors", "interrupted", "identity"],
        ],
    ),
    (
        "crates/posix/src/wait",
        &[&["moving"], &["connecting", "inherit", "watchdog"], &["waiting"], &["callers", "driver"], &["on"]],
    ),
    ("crates/posix/src/turns", &[&["turn"], &["news"], &["report"]]),
    (
        "crates/posix/src/moves",
        &[
            &["usage"],
            &["brokers", "inherited", "strays", "unserved"],
            &["steps"],
            &["keep", "to_stack"],
            &["leaving"],
            &["listener"],
            &["datagrams", "renewal"],
            &["queues"],
            &["waiting"],
            &["driving"],
            &["to_kernel", "places"],
            &["behind", "ports", "family", "claims"],
        ],
    ),
    ("crates/posix/src/shadows", &[&["claimed"], &["datagrams", "listener"], &["shadow"]]),
    (
        "crates/posix/src/process",
        &[
            &["traffic", "send_times"],
            &["ready", "collect"],
            &["bell", "broker", "connections", "watched"],
            &["state"],
        ],
    ),
    (
        "crates/posix/src/queue",
        &[
            &["state"],
            &["driver", "begun", "ports", "stalls", "runtime", "book"],
            &["awaited_routes", "ended", "resting_ports", "source_ports", "spare_sockets"],
        ],
    ),
    (
        "crates/posix/src/socket",
        &[
            &["flags", "kernel_only"],
            &["entry"],
            &["send_times", "udp", "tcp_info"],
            &["settings"],
            &["judge", "udp_messages", "error_queue"],
            &[
                "option_table",
                "times",
                "touched",
                "place",
                "readiness",
                "own_run",
                "owner",
                "learned_ways",
                "stall",
                "queueing",
                "usage",
            ],
            &["control_messages"],
        ],
    ),
    ("crates/posix/src/epoll", &[&["armed"], &["instance"], &["absent", "bell"]]),
    (
        "crates/posix/src/broker_side",
        &[&["brokered"], &["strays", "ways", "values"], &["attachment"], &["left_to_kernel"]],
    ),
    ("crates/posix/src/descriptors", &[&["internal"], &["fd_table"]]),
];

/// Of a directory, the types whose methods are in many files, and what values of each are called.
const STATES: &[(&str, &[(&str, &str)])] =
    &[("crates/posix/src", &[("State", "state"), ("Process", "process"), ("Queue", "queue")])];

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
        let methods = Methods::of(directory);
        let faults: Vec<String> = files
            .iter()
            .flat_map(|(path, text)| {
                let own = [&within[..], path].concat();
                arrows(&within, path, text).into_iter().chain(methods.arrows(&within, &own, text))
            })
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
    let code: Vec<&str> = code(text).collect();
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
    inside.filter(|target| target.first().is_some_and(|first| first != "tests")).map(arrow).collect()
}

/// The production code of a file, line by line.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let production = text.lines().take_while(|line| !line.ends_with("mod tests {"));
    production.filter(|line| !line.trim_start().starts_with("//"))
}

/// Methods of [`STATES`]: for a type and a name the module that has it.
struct Methods {
    of: BTreeMap<(&'static str, String), Vec<String>>,
    values: &'static [(&'static str, &'static str)],
}

impl Methods {
    /// Those of the crate that a directory belongs to.
    fn of(directory: &str) -> Methods {
        let Some((crate_root, values)) = STATES.iter().find(|(root, _)| directory.starts_with(root)) else {
            return Methods { of: BTreeMap::new(), values: &[] };
        };
        let mut methods = Methods { of: BTreeMap::new(), values };
        for (path, text) in sources(&root().join(crate_root)) {
            for (of, line) in methods.by_type(&text).collect::<Vec<_>>() {
                let name = line.split_once("fn ").filter(|(before, _)| is_visibility(before));
                let name = name.and_then(|(_, rest)| rest.split(['(', '<']).next());
                if let (Some(of), Some(name)) = (of, name) {
                    methods.of.insert((of, name.to_owned()), path.clone());
                }
            }
        }
        methods
    }

    /// The lines of a file, with the type whose methods they belong to.
    fn by_type<'t>(&self, text: &'t str) -> impl Iterator<Item = (Option<&'static str>, &'t str)> {
        let values = self.values;
        code(text).scan(None, move |within, line| {
            if line.starts_with("impl") {
                let name = line.rsplit(' ').nth(1);
                *within = values.iter().map(|(of, _)| *of).find(|of| Some(*of) == name);
            } else if line.starts_with('}') {
                *within = None;
            }
            Some((*within, line))
        })
    }

    /// The methods that a file calls, as arrows within a directory.
    fn arrows(&self, within: &[String], own: &[String], text: &str) -> Vec<Arrow> {
        let mut found = Vec::new();
        for (own_type, line) in self.by_type(text) {
            for (called_on, name) in calls(line) {
                let of = match called_on {
                    "self" => own_type,
                    "lock()" => Some("State"),
                    word => {
                        self.values.iter().find(|(of, value)| [*of, *value].contains(&word)).map(|it| it.0)
                    }
                };
                let to = of.and_then(|of| self.of.get(&(of, name.to_owned())));
                if let (Some(to), Some(from)) =
                    (to.and_then(|to| to.strip_prefix(within)), own.strip_prefix(within))
                    && let [from, ..] = from
                    && let [to, ..] = to
                {
                    found.push(Arrow { from: from.clone(), to: Some(to.clone()) });
                }
            }
        }
        found
    }
}

/// Whether this may stand before `fn` at the beginning of a method.
fn is_visibility(before: &str) -> bool {
    let words = before.split_whitespace().collect::<Vec<_>>();
    words.is_empty() || words[0].starts_with("pub")
}

/// All `value.method` and `Type::method` of a line, as far as a call or the name of one may follow.
fn calls(line: &str) -> Vec<(&str, &str)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let dots = line.match_indices(['.', ':']);
    let pairs = dots.filter_map(|(at, separator)| {
        let before = line[..at].trim_end_matches(':');
        let start = before.trim_end_matches("()").rfind(|c: char| !is_word(c)).map_or(0, |start| start + 1);
        let after = &line[at + separator.len()..];
        let name = &after[..after.find(|c: char| !is_word(c)).unwrap_or(after.len())];
        let is_method = separator == ":" || after[name.len()..].starts_with('(');
        (!name.is_empty() && is_method).then_some((&before[start..], name))
    });
    pairs.collect()
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
    fn a_method_is_called_on_a_value_or_named_by_its_type() {
        assert_eq!(
            calls("state.turn(now, self.moves); self.lock().hear(now)"),
            [("state", "turn"), ("self", "lock"), ("lock()", "hear")]
        );
        assert_eq!(calls("with(Process::before_fork)"), [("Process", "before_fork")]);
    }

    #[test]
    fn a_called_method_is_an_arrow_to_the_file_that_has_it() {
        let methods = Methods {
            of: BTreeMap::from([(("State", "hear".to_owned()), words("turns::news"))]),
            values: &[("State", "state")],
        };
        let arrows = |text: &str| methods.arrows(&[], &words("moves::listener"), text);
        let arrow = Arrow { from: "moves".to_owned(), to: Some("turns".to_owned()) };
        assert_eq!(arrows("impl State {\n    fn f(&mut self) {\n        self.hear(now);"), [arrow]);
        assert_eq!(arrows("impl Queue {\n    fn f(&mut self) {\n        self.hear(now);"), []);
        assert_eq!(arrows("impl State {\n    // as self.hear(now)"), []);
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
