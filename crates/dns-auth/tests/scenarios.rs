//! Plays the scenarios in `specs/dns`: each is a specification, read by people first.
//!
//! A scenario file is a list of lines. A line starts with a word that says what it is; `;` starts a comment, but not
//! behind that word, and the first line of a file is one that says what the file proves.
//!
//! ```text
//! set nsid TEXT                   settings: nsid, version, hostname, udp_payload_max, rotate
//! zone ORIGIN                     a zone file up to a line `end`
//! zone file PATH                  a zone file of the workspace
//! unavailable ORIGIN REASON       a zone without data: not-ready or invalid-data
//! query NAME TYPE [OPTION ...]    a question. Options: tcp; flags rd cd ad aa tc z; class=, opcode=; id=;
//!                                 edns=SIZE, and with it version=, do, ednsflags=HEX, option=CODE:HEX
//! message HEX ...                 or any octets; with the words `udp` (the default) or `tcp` in front
//! reply CODE [FLAG ...]           flags AA TC RD CD; edns=SIZE, do, nsid=TEXT, ede=CODE; `header`: no question
//! drop REASON                     or no answer
//! answer RECORD                   a record of the answer section; likewise authority and additional
//! ```
//!
//! Records are compared with the case of their names, without regard to their order. Every query is played against the
//! compiled answers and against the tree.

mod common;

use std::fmt::Write;
use std::path::PathBuf;

use common::{Edns, Query, ZoneList, catalogs_with, check_with_domain, name, respond, responder, workspace};
use dns_auth::fuzz::{Record, Reply, check_reply};
use dns_auth::{Catalog, Dropped, Responder, Settings, Transport, Unavailable};
use dns_wire::header::flag;
use dns_wire::{Class, NameBuf, Rcode, Rtype};

/// The files, in order.
fn scenarios() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(workspace().join("specs/dns"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "scenario"))
        .collect();
    files.sort();
    files
}

#[test]
fn every_scenario_plays_as_written() {
    let files = scenarios();
    let (mut queries, mut failures) = (0, String::new());
    for path in &files {
        let text = std::fs::read_to_string(path).unwrap();
        let file = path.file_name().unwrap().to_string_lossy();
        let (scenario, steps) = parse(&text).unwrap_or_else(|error| panic!("specs/dns/{file}:{error}"));
        queries += steps.len();
        for (line, difference) in play(&scenario, &steps) {
            writeln!(failures, "specs/dns/{file}:{line}: {difference}").unwrap();
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
    assert!(queries >= 200, "only {queries} queries in {} files", files.len());
}

#[test]
fn every_scenario_says_in_its_first_line_what_it_proves() {
    for path in scenarios() {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("; RFC "), "{}: the first line names no RFC", path.display());
    }
}

#[derive(Default)]
struct Scenario {
    settings: Settings,
    zones: Vec<ZoneList>,
    unavailable: Vec<(NameBuf, Unavailable)>,
}

struct Step {
    line: usize,
    message: Vec<u8>,
    transport: Transport,
    expected: Result<Expected, String>,
}

#[derive(Default)]
struct Expected {
    rcode: u16,
    flags: u16,
    header_only: bool,
    /// The fixed part of the OPT record without the code: size, flags, options.
    edns: Option<(u16, u16, Vec<u8>)>,
    sections: [Vec<String>; 3],
}

/// Plays all steps on both catalogs; what differs, with the line of the query.
fn play(scenario: &Scenario, steps: &[Step]) -> Vec<(usize, String)> {
    let mut differences = Vec::new();
    for (way, catalog) in
        ["compiled", "tree"].iter().zip(catalogs_with(&scenario.zones, &scenario.unavailable))
    {
        let mut responder = responder(&scenario.settings);
        for step in steps {
            if let Err(difference) = play_step(step, &mut responder, &catalog) {
                differences.push((step.line, format!("from the {way} answer: {difference}")));
            }
        }
    }
    differences
}

fn play_step(step: &Step, responder: &mut Responder, catalog: &Catalog) -> Result<(), String> {
    let outcome = respond(responder, catalog, &step.message, step.transport);
    let (expected, octets) = match (&step.expected, outcome) {
        (Ok(expected), Ok(octets)) => (expected, octets),
        (Err(reason), Err(dropped)) if *reason == dropped_name(dropped) => return Ok(()),
        (_, Ok(octets)) => {
            return Err(format!("expected no answer\n{}", common::describe(&Reply::read(&octets)?)));
        }
        (_, Err(dropped)) => return Err(format!("no answer: {}", dropped_name(dropped))),
    };
    let limit = if step.transport == Transport::Udp { 4096 } else { 65_535 };
    check_reply(&step.message, &octets, limit);
    check_with_domain(&octets);
    let reply = Reply::read(&octets)?;
    compare("the code", &rcode_name(expected.rcode), &rcode_name(reply.rcode()), &reply)?;
    let flags = reply.flags & (flag::AA | flag::TC | flag::RD | flag::CD);
    compare("the flags", &flag_names(expected.flags), &flag_names(flags), &reply)?;
    compare("header only", &expected.header_only, &reply.question.is_empty(), &reply)?;
    let edns = reply.opt.as_ref().map(|opt| (opt.class, opt.ttl as u16, opt.rdata.clone()));
    compare("EDNS", &expected.edns, &edns, &reply)?;
    for (title, (expected, found)) in
        ["answer", "authority", "additional"].iter().zip(expected.sections.iter().zip(&reply.sections))
    {
        compare(title, &sorted(expected)?, &sort(found.clone()), &reply)?;
    }
    Ok(())
}

fn compare<T: PartialEq + std::fmt::Debug>(
    what: &str,
    expected: &T,
    found: &T,
    reply: &Reply,
) -> Result<(), String> {
    if expected == found {
        return Ok(());
    }
    Err(format!("{what} differs\nexpected {expected:?}\nfound    {found:?}\n{}", common::describe(reply)))
}

/// The records of these lines, as a message would carry them.
fn sorted(lines: &[String]) -> Result<Vec<Record>, String> {
    lines.iter().map(|line| record(line)).collect::<Result<_, _>>().map(sort)
}

/// A line as a zone file has it. A zone begins with a SOA: that of the line, or one in front of it.
fn record(line: &str) -> Result<Record, String> {
    let owner = line.split_whitespace().next().unwrap_or("");
    let zone = if line.contains(" SOA ") {
        ZoneList::from_text(owner, line)?
    } else {
        ZoneList::from_text(".", &format!(". 0 SOA . . 0 0 0 0 0\n{line}\n"))?
    };
    let record = zone.records.into_iter().last().ok_or("no record")?;
    let (owner, class) = (record.owner.as_name().as_bytes().to_vec(), Class::IN.0);
    Ok(Record { owner, rtype: record.rtype, class, ttl: record.ttl, rdata: record.rdata, end: 0 })
}

fn sort(mut records: Vec<Record>) -> Vec<Record> {
    for record in &mut records {
        record.end = 0;
        if record.class == Class::CH.0 {
            record.class = Class::IN.0; // The reader of zone files knows no other.
        }
    }
    records.sort();
    records
}

fn dropped_name(dropped: Dropped) -> String {
    format!("{dropped:?}").to_lowercase()
}

fn rcode_name(number: u16) -> String {
    let known = Rcode::ALL.iter().find(|rcode| **rcode as u16 == number);
    known.map_or_else(|| number.to_string(), |rcode| rcode.name().to_owned())
}

const FLAGS: [(&str, u16); 7] = [
    ("aa", flag::AA),
    ("tc", flag::TC),
    ("rd", flag::RD),
    ("ra", 0x80),
    ("z", 0x40),
    ("ad", 0x20),
    ("cd", flag::CD),
];

fn flag_names(flags: u16) -> Vec<&'static str> {
    FLAGS.iter().filter(|(_, bit)| flags & bit != 0).map(|(name, _)| *name).collect()
}

fn parse(text: &str) -> Result<(Scenario, Vec<Step>), String> {
    let (mut scenario, mut steps) = (Scenario::default(), Vec::new());
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let (word, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        let parsed = match word {
            "" | ";" => Ok(()),
            "set" => set(&mut scenario.settings, rest),
            "unavailable" => unavailable(rest).map(|zone| scenario.unavailable.push(zone)),
            "zone" => zone(rest, &mut lines).map(|zone| scenario.zones.push(zone)),
            "query" => query(rest).map(|(message, transport)| steps.push(step(index, message, transport))),
            "message" => {
                message(rest).map(|(message, transport)| steps.push(step(index, message, transport)))
            }
            _ => expect(steps.last_mut(), word, rest),
        };
        parsed.map_err(|error| format!("{}: {error}", index + 1))?;
    }
    match steps.iter().find(|step| matches!(&step.expected, Err(reason) if reason.is_empty())) {
        Some(step) => Err(format!("{}: nothing is expected of this query", step.line)),
        None => Ok((scenario, steps)),
    }
}

fn step(index: usize, message: Vec<u8>, transport: Transport) -> Step {
    Step { line: index + 1, message, transport, expected: Err(String::new()) }
}

fn set(settings: &mut Settings, text: &str) -> Result<(), String> {
    let (option, value) = text.split_once(' ').ok_or("an option and its value")?;
    match option {
        "nsid" => settings.nsid = Some(value.replace("$255", &"x".repeat(255)).into_bytes()),
        "version" => settings.version = Some(value.to_owned()),
        "hostname" => settings.hostname = Some(value.to_owned()),
        "udp_payload_max" => settings.udp_payload_max = number(value)?,
        "rotate" => settings.rotate = value == "yes",
        _ => return Err(format!("no setting {option}")),
    }
    Ok(())
}

fn zone<'t>(text: &str, lines: &mut impl Iterator<Item = (usize, &'t str)>) -> Result<ZoneList, String> {
    if let Some(path) = text.strip_prefix("file ") {
        return ZoneList::from_file(path);
    }
    let body: Vec<&str> = lines.map(|(_, line)| line).take_while(|line| line.trim() != "end").collect();
    ZoneList::from_text(text, &body.join("\n"))
}

fn unavailable(text: &str) -> Result<(NameBuf, Unavailable), String> {
    match text.split_once(' ') {
        Some((origin, "not-ready")) => Ok((name(origin), Unavailable::NotReady)),
        Some((origin, "invalid-data")) => Ok((name(origin), Unavailable::InvalidData)),
        _ => Err("an origin and a reason".to_owned()),
    }
}

fn query(text: &str) -> Result<(Vec<u8>, Transport), String> {
    let mut words = text.split_whitespace();
    let (Some(qname), Some(qtype)) = (words.next(), words.next()) else {
        return Err("a name and a type".into());
    };
    let qtype = Rtype::from_text(qtype.as_bytes()).ok_or_else(|| format!("no type {qtype}"))?;
    let mut query = Query::new(name(qname).as_name().as_bytes(), qtype);
    let mut transport = Transport::Udp;
    for word in words {
        let (option, value) = word.split_once('=').unwrap_or((word, ""));
        let edns = || query.edns.clone().ok_or("edns= comes first");
        match option {
            "tcp" => transport = Transport::Tcp,
            "id" => query.id = number(value)?,
            "class" => query.qclass = Class::from_text(value.as_bytes()).ok_or("no class")?.0,
            "opcode" => query.flags |= number(value)? << 11,
            "edns" => query = query.with_edns(number(value)?),
            "version" => query.edns = Some(Edns { version: number(value)? as u8, ..edns()? }),
            "do" => query.edns = Some(Edns { flags: edns()?.flags | 0x8000, ..edns()? }),
            "ednsflags" => query.edns = Some(Edns { flags: be16(&hex(value)?), ..edns()? }),
            "option" => query.edns = Some(with_option(edns()?, value)?),
            flag => query.flags |= flag_bit(flag)?,
        }
    }
    Ok((query.to_wire(), transport))
}

fn with_option(mut edns: Edns, text: &str) -> Result<Edns, String> {
    let (code, data) = text.split_once(':').ok_or("CODE:HEX")?;
    let data = hex(data)?;
    for word in [number(code)?, data.len() as u16] {
        edns.options.extend_from_slice(&word.to_be_bytes());
    }
    edns.options.extend_from_slice(&data);
    Ok(edns)
}

fn message(text: &str) -> Result<(Vec<u8>, Transport), String> {
    match text.strip_prefix("tcp ") {
        Some(text) => Ok((hex(text)?, Transport::Tcp)),
        None => Ok((hex(text.strip_prefix("udp ").unwrap_or(text))?, Transport::Udp)),
    }
}

/// Takes a line that says what the answer to the last query is.
fn expect(step: Option<&mut Step>, word: &str, text: &str) -> Result<(), String> {
    let step = step.ok_or("no query so far")?;
    match (word, &mut step.expected) {
        ("drop", expected) => *expected = Err(text.to_owned()),
        ("reply", expected) => *expected = Ok(reply(text)?),
        ("answer", Ok(expected)) => expected.sections[0].push(text.to_owned()),
        ("authority", Ok(expected)) => expected.sections[1].push(text.to_owned()),
        ("additional", Ok(expected)) => expected.sections[2].push(text.to_owned()),
        _ => return Err(format!("what is `{word}`?")),
    }
    Ok(())
}

fn reply(text: &str) -> Result<Expected, String> {
    let mut words = text.split_whitespace();
    let code = words.next().ok_or("a code")?;
    let known = Rcode::ALL.iter().find(|rcode| rcode.name() == code).ok_or("no code")?;
    let mut expected = Expected { rcode: *known as u16, ..Expected::default() };
    for word in words {
        let (option, value) = word.split_once('=').unwrap_or((word, ""));
        let edns = || expected.edns.clone().ok_or("edns= comes first");
        match option {
            "header" => expected.header_only = true,
            "edns" => expected.edns = Some((number(value)?, 0, Vec::new())),
            "do" => expected.edns = Some((edns()?.0, 0x8000, edns()?.2)),
            "nsid" => {
                let value = value.replace("$255", &"x".repeat(255));
                let head = [0, 3, 0, value.len() as u8];
                expected.edns = Some((edns()?.0, edns()?.1, [&head, value.as_bytes()].concat()));
            }
            "ede" => {
                let (size, flags, options) = edns()?;
                let option = [&[0, 15, 0, 2][..], &number(value)?.to_be_bytes()].concat();
                expected.edns = Some((size, flags, [options, option].concat()));
            }
            flag => expected.flags |= flag_bit(&flag.to_lowercase())?,
        }
    }
    Ok(expected)
}

fn flag_bit(name: &str) -> Result<u16, String> {
    let flag = FLAGS.iter().find(|(known, _)| *known == name);
    flag.map(|(_, bit)| *bit).ok_or_else(|| format!("what is `{name}`?"))
}

fn number(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

fn be16(octets: &[u8]) -> u16 {
    octets.iter().fold(0, |number, octet| number << 8 | u16::from(*octet))
}

/// Octets from hexadecimal digits; `"text"` stands for itself.
fn hex(text: &str) -> Result<Vec<u8>, String> {
    let mut octets = Vec::new();
    for word in text.split_whitespace() {
        if let Some(plain) = word.strip_prefix('"').and_then(|word| word.strip_suffix('"')) {
            octets.extend_from_slice(plain.as_bytes());
            continue;
        }
        for at in (0..word.len()).step_by(2) {
            let digits = word.get(at..at + 2).ok_or("an odd number of digits")?;
            octets.push(u8::from_str_radix(digits, 16).map_err(|_| format!("`{digits}` is no octet"))?);
        }
    }
    Ok(octets)
}
