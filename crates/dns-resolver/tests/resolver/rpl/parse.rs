//! Scenario files.

use std::net::SocketAddr;

use clock::Duration;
use dns_wire::Rtype;

use super::config::{Config, address};
use super::entry::Entry;
use super::message::{Message, RCODES, name, record};

/// What a server answers in some of the steps.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) steps: (u64, u64),
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) delay: Duration,
    pub(crate) is_unreachable: bool,
    pub(crate) entries: Vec<Entry>,
}

/// What happens in a step.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Query(Entry),
    CheckAnswer(Entry),
    TimePasses(Duration),
    CheckSent(Option<SocketAddr>, u64, u64),
    CheckTime(u64, u64),
    Reload,
}

/// A scenario.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) config: Config,
    pub(crate) ranges: Vec<Range>,
    pub(crate) steps: Vec<(u64, Action)>,
}

/// Reads a file.
pub(crate) fn parse(text: &str) -> Scenario {
    let mut lines = Lines { lines: text.lines().collect(), at: 0 };
    let mut config = Config::new();
    while let Some(words) = lines.next() {
        if words[0] == "CONFIG_END" {
            break;
        }
        config.line(lines.current());
    }
    let mut scenario = Scenario { config, ranges: Vec::new(), steps: Vec::new() };
    while let Some(words) = lines.next() {
        match words[0] {
            "SCENARIO_BEGIN" => {}
            "SCENARIO_END" => return scenario,
            "RANGE_BEGIN" => {
                let range = parse_range(&mut lines, &words);
                scenario.ranges.push(range);
            }
            "STEP" => {
                let step = parse_step(&mut lines, &words);
                scenario.steps.push(step);
            }
            other => panic!("line {}: {other}", lines.at),
        }
    }
    panic!("SCENARIO_END is missing");
}

struct Lines<'a> {
    lines: Vec<&'a str>,
    at: usize,
}

impl<'a> Lines<'a> {
    /// The words of the next line that has any; what follows a semicolon is a comment.
    fn next(&mut self) -> Option<Vec<&'a str>> {
        loop {
            let line = self.lines.get(self.at)?;
            self.at += 1;
            let words: Vec<&str> = line.split(';').next()?.split_whitespace().collect();
            if !words.is_empty() {
                return Some(words);
            }
        }
    }

    fn current(&self) -> &'a str {
        self.lines[self.at - 1].split(';').next().expect("split gives one part at least")
    }
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| panic!("{word}: not a number"))
}

fn parse_range(lines: &mut Lines<'_>, begin: &[&str]) -> Range {
    let mut range = Range {
        steps: (number(begin[1]), number(begin[2])),
        addresses: Vec::new(),
        delay: Duration::from_millis(10),
        is_unreachable: false,
        entries: Vec::new(),
    };
    while let Some(words) = lines.next() {
        match words[0] {
            "RANGE_END" => return range,
            "ADDRESS" => range.addresses.push(address(words[1])),
            "DELAY" => range.delay = Duration::from_millis(number(words[1])),
            "UNREACHABLE" => range.is_unreachable = true,
            "ENTRY_BEGIN" => range.entries.push(parse_entry(lines)),
            other => panic!("line {}: {other} in a range", lines.at),
        }
    }
    panic!("RANGE_END is missing");
}

fn parse_step(lines: &mut Lines<'_>, words: &[&str]) -> (u64, Action) {
    let entry = |lines: &mut Lines<'_>| {
        assert_eq!(lines.next().as_deref(), Some(&["ENTRY_BEGIN"][..]), "line {}", lines.at);
        parse_entry(lines)
    };
    let action = match words[2] {
        "QUERY" => Action::Query(entry(lines)),
        "CHECK_ANSWER" => Action::CheckAnswer(entry(lines)),
        "TIME_PASSES" => {
            let secs: f64 = words[4].parse().expect("seconds");
            Action::TimePasses(Duration::from_millis((secs * 1000.0) as u64))
        }
        "CHECK_SENT" => {
            let whom = (words[3] != "all").then(|| address(words[3]));
            let (least, most) = match words[4].strip_suffix('+') {
                Some(least) => (number(least), u64::MAX),
                None => match words[4].strip_suffix('-') {
                    Some(most) => (0, number(most)),
                    None => (number(words[4]), number(words[4])),
                },
            };
            Action::CheckSent(whom, least, most)
        }
        "CHECK_TIME" => Action::CheckTime(number(words[3]), number(words[4])),
        "RELOAD" => Action::Reload,
        other => panic!("line {}: step {other}", lines.at),
    };
    (number(words[1]), action)
}

fn parse_entry(lines: &mut Lines<'_>) -> Entry {
    let mut entry = Entry { line: lines.at, ..Entry::default() };
    let mut section = None;
    while let Some(words) = lines.next() {
        let rest = || words[1..].iter().map(|word| (*word).to_owned());
        match words[0] {
            "ENTRY_END" => return entry,
            "MATCH" => entry.matches.extend(rest()),
            "ADJUST" => entry.adjust.extend(rest()),
            "REPLY" => words[1..].iter().for_each(|word| set_flag(&mut entry.message, word)),
            "SECTION" => section = Some(words[1]),
            _ => match section.unwrap_or_else(|| panic!("line {}: {:?}", lines.at, words)) {
                "QUESTION" => entry.message.question = Some(question(&words)),
                "ANSWER" => entry.message.sections[0].push(record(lines.current())),
                "AUTHORITY" => entry.message.sections[1].push(record(lines.current())),
                "ADDITIONAL" => entry.message.sections[2].push(record(lines.current())),
                other => panic!("line {}: section {other}", lines.at),
            },
        }
    }
    panic!("ENTRY_END is missing");
}

fn question(words: &[&str]) -> (dns_wire::NameBuf, Rtype) {
    let rtype = words.last().expect("a type");
    let rtype = Rtype::from_text(rtype.as_bytes()).unwrap_or_else(|| panic!("{rtype}: not a type"));
    (name(words[0]), rtype)
}

fn set_flag(message: &mut Message, word: &str) {
    if let Some((_, rcode)) = RCODES.iter().find(|(known, _)| *known == word) {
        message.rcode = *rcode;
    } else if word == "EDNS" {
        message.has_edns = true;
    } else {
        message.flags.push(word.to_owned());
        message.has_edns |= word == "DO";
    }
}
