//! Our answers beside those of NSD and Knot DNS, which serve the same zones on loopback.
//!
//! Each server is a child process with a configuration of its own in a temporary directory. Where a program is missing,
//! the test says `skipped:` and passes. What may differ is listed, with its reason, at [`tolerated`].

mod common;

use std::fmt::Write as _;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use common::random_zones::{QTYPES, names};
use common::{Query, ZoneList, ZoneRecord, catalogs, describe, respond, responder, samples, workspace};
use dns_auth::fuzz::{Record, Reply};
use dns_auth::resolve::HOPS_MAX;
use dns_auth::{Settings, Transport};
use dns_wire::header::flag;
use dns_wire::{Name, Rtype};

/// Questions for each server and set of zones.
const QUERIES: usize = 4000;
/// Zones of these scenarios are served, one set after the other.
const SCENARIOS: [&str; 5] =
    ["rfc1034_lookup", "rfc2181_zone_cuts", "rfc2308_negative", "rfc4592_wildcards", "rfc6672_dname"];

/// Zones that BIND's tools have signed: asked for with DO.
const SIGNED: &str = "specs/dns/dnssec";

#[test]
fn nsd_answers_alike() {
    compare_all(Server::Nsd);
}

#[test]
fn knot_answers_alike() {
    compare_all(Server::Knot);
}

fn compare_all(server: Server) {
    let Some(program) = server.program() else {
        lab::skip(&format!("{server:?} is not installed"));
        return;
    };
    let mut sets = vec![("specs/zones".to_owned(), distinct(samples()))];
    sets.extend(SCENARIOS.map(|scenario| (scenario.to_owned(), scenario_zones(scenario))));
    sets.push((SIGNED.to_owned(), signed_zones()));
    let mut differences = String::new();
    for (title, zones) in sets {
        let running = Running::start(server, &program, &zones);
        let (compared, tolerated) = compare_set(server, &running, &title, &zones, &mut differences);
        println!("{server:?}, {title}: {compared} answers alike, {tolerated} different in tolerated ways");
        assert!(compared >= 100, "{title}: only {compared} answers compared");
    }
    assert!(differences.is_empty(), "\n{differences}");
}

/// Asks both about the names of `zones`. Returns how many answers agreed, and how many differed as they may.
fn compare_set(
    server: Server,
    running: &Running,
    title: &str,
    zones: &[ZoneList],
    differences: &mut String,
) -> (usize, usize) {
    let settings = Settings { udp_payload_max: 4096, ..Settings::default() };
    let ([catalog, _], mut responder) = (catalogs(zones), responder(&settings));
    let (mut alike, mut different) = (0, 0);
    let names = names(zones);
    let step = (names.len() * QTYPES.len()).div_ceil(QUERIES);
    let questions = names.iter().flat_map(|name| QTYPES.map(|qtype| (name, qtype)));
    for (qname, qtype) in questions.step_by(step | 1) {
        let query = Query::new(qname, qtype).with_edns(4096);
        let query = if title == SIGNED { query.with_dnssec() } else { query };
        let wire = query.to_wire();
        let ours = Reply::read(&respond(&mut responder, &catalog, &wire, Transport::Udp).unwrap()).unwrap();
        let theirs = running.ask(&wire).unwrap_or_else(|error| panic!("{query}: {error}"));
        let (ours, theirs) = (comparable(ours), comparable(theirs));
        if ours.flags & flag::TC != 0 || theirs.flags & flag::TC != 0 {
            continue;
        }
        match difference(&ours, &theirs) {
            None => alike += 1,
            Some(_) if tolerated(server, zones, &query, &ours, &theirs).is_some() => different += 1,
            Some(what) => {
                let (ours, theirs) = (describe(&ours), describe(&theirs));
                writeln!(differences, "{query}: {what}\nours: {ours}{server:?}: {theirs}").unwrap();
            }
        }
    }
    (alike, different)
}

/// Names in lower case, since NSD keeps no case; records sorted.
fn comparable(mut reply: Reply) -> Reply {
    for section in &mut reply.sections {
        for record in section.iter_mut() {
            record.end = 0;
            record.owner.make_ascii_lowercase();
            let numbers = match record.rtype {
                Rtype::NS | Rtype::CNAME | Rtype::PTR | Rtype::DNAME | Rtype::MX | Rtype::SRV => 0,
                Rtype::SOA => 20,
                _ => continue,
            };
            let names = record.rdata.len() - numbers;
            record.rdata[..names].make_ascii_lowercase();
        }
        section.sort();
        section.dedup(); // Both repeat the records of a loop.
    }
    reply
}

/// What two answers do not share: the code, AA, the answer section, or the records of the authority section.
fn difference(ours: &Reply, theirs: &Reply) -> Option<&'static str> {
    let [our_answer, our_authority, _] = &ours.sections;
    let [their_answer, their_authority, _] = &theirs.sections;
    if ours.rcode() != theirs.rcode() {
        Some("the code")
    } else if ours.flags & flag::AA != theirs.flags & flag::AA {
        Some("AA")
    } else if our_answer != their_answer {
        Some("the answer")
    } else if our_authority != their_authority {
        Some("the authority")
    } else {
        None
    }
}

/// Why two answers may differ.
fn tolerated(
    server: Server,
    zones: &[ZoneList],
    query: &Query,
    ours: &Reply,
    theirs: &Reply,
) -> Option<&'static str> {
    let same_code = ours.rcode() == theirs.rcode() && ours.flags == theirs.flags;
    let [our_answer, ..] = &ours.sections;
    let [their_answer, their_authority, _] = &theirs.sections;
    let is_theirs = |record: &Record| their_answer.iter().any(|other| other.owner == record.owner);
    if query.qtype == Rtype::ANY && same_code && !our_answer.is_empty() && our_answer.iter().all(is_theirs) {
        return Some("of several record sets, which one answers ANY is the server's choice (RFC 8482, 4.1)");
    }
    let made_cname = our_answer.iter().any(|record| record.rtype == Rtype::DNAME);
    if query.qtype == Rtype::ANY
        && made_cname
        && our_answer.iter().all(|record| their_answer.contains(record))
    {
        return Some(
            "the CNAME that a DNAME makes is the answer to ANY, as one of the zone would be; they go on",
        );
    }
    let only_rrsig = |records: &[Record]| records.iter().all(|record| record.rtype == Rtype::RRSIG);
    if server == Server::Knot && same_code && only_rrsig(our_answer) && only_rrsig(their_answer) {
        return Some("Knot gives signatures that cover nothing another TTL");
    }
    let follows_alias = our_answer.iter().any(|record| record.rtype == Rtype::CNAME);
    if server == Server::Knot && query.qtype == Rtype::RRSIG && follows_alias && their_answer.is_empty() {
        return Some(
            "signatures may stand beside a CNAME (RFC 4035, 2.5), so Knot denies them there; we and NSD follow",
        );
    }
    if server == Server::Knot && crosses_zone_border(zones, ours, theirs) {
        return Some(
            "Knot follows an alias within its zone only; we follow it into every zone, and so does NSD",
        );
    }
    let qname = Name::from_wire(&query.qname).unwrap();
    let mut nsec3 = zones.iter().flat_map(|zone| &zone.records).filter(|record| record.rtype == Rtype::NSEC3);
    if server == Server::Nsd && nsec3.any(|record| qname.ends_with(record.owner.as_name())) {
        return Some(
            "to NSD, the owners of NSEC3 records are names; to us and Knot they do not exist (RFC 5155, 7.2.8)",
        );
    }
    let [_, our_authority, _] = &ours.sections;
    let theirs_is_more = our_authority.iter().all(|record| their_authority.contains(record));
    if server == Server::Nsd && qname.is_wildcard() && same_code && theirs_is_more {
        return Some("asked for a wildcard itself, NSD also proves that the name above it exists");
    }
    let aliases = our_answer.iter().filter(|record| record.rtype == Rtype::CNAME).count();
    if aliases == HOPS_MAX && their_answer.iter().all(|record| our_answer.contains(record)) {
        return Some("how far an endless chain is followed is the server's choice");
    }
    let is_apex = zones.iter().any(|zone| zone.origin.as_name() == qname);
    let refers =
        theirs.flags & flag::AA == 0 && their_authority.iter().all(|record| record.rtype == Rtype::NS);
    if query.qtype == Rtype::DS && is_apex && refers && ours.flags & flag::AA != 0 && our_answer.is_empty() {
        return Some(
            "a zone without its parent denies DS itself (RFC 4035, 3.1.4.1); they refer from further up",
        );
    }
    None
}

/// Whether an alias that both have leads from one zone into another.
fn crosses_zone_border(zones: &[ZoneList], ours: &Reply, theirs: &Reply) -> bool {
    let zone = |name: &[u8]| {
        let name = Name::from_wire(name).unwrap();
        let above = zones.iter().filter(|zone| name.ends_with(zone.origin.as_name()));
        above.map(|zone| zone.origin.as_name()).max_by_key(|origin| origin.len())
    };
    let leads_out =
        |record: &&Record| record.rtype == Rtype::CNAME && zone(&record.owner) != zone(&record.rdata);
    theirs.sections[0].iter().filter(leads_out).any(|record| ours.sections[0].contains(record))
}

/// One zone per origin: the servers take no second one.
fn distinct(zones: Vec<ZoneList>) -> Vec<ZoneList> {
    let mut distinct: Vec<ZoneList> = Vec::new();
    for zone in zones {
        if distinct.iter().all(|earlier| earlier.origin != zone.origin) {
            distinct.push(zone);
        }
    }
    distinct
}

/// The zones of this folder, of which one is for each algorithm and kind of denial.
fn signed_zones() -> Vec<ZoneList> {
    let entries = fs::read_dir(workspace().join(SIGNED)).unwrap().map(|entry| entry.unwrap().file_name());
    let mut files: Vec<String> = entries.map(|file| file.into_string().unwrap()).collect();
    files.retain(|file| file.ends_with(".zone"));
    files.sort();
    let zone = |file: &String| {
        let origin = match file.strip_suffix(".zone").unwrap() {
            "root" => ".".to_owned(),
            "tld" => "tld.".to_owned(),
            below => format!("{below}.tld."),
        };
        let text = fs::read_to_string(workspace().join(SIGNED).join(file)).unwrap();
        ZoneList::from_text(&origin, &text).unwrap()
    };
    files.iter().map(zone).collect()
}

/// The zones that a scenario spells out.
fn scenario_zones(scenario: &str) -> Vec<ZoneList> {
    let text = fs::read_to_string(workspace().join(format!("specs/dns/{scenario}.scenario"))).unwrap();
    let mut zones = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(origin) = line.strip_prefix("zone ") {
            let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "end").collect();
            zones.push(without_data_below_dnames(ZoneList::from_text(origin, &body.join("\n")).unwrap()));
        }
    }
    zones
}

/// Both servers refuse zones that have such data (RFC 6672, 2.4).
fn without_data_below_dnames(mut zone: ZoneList) -> ZoneList {
    let dnames = zone.records.iter().filter(|record| record.rtype == Rtype::DNAME);
    let dnames: Vec<_> = dnames.map(|record| record.owner.clone()).collect();
    let is_below = |record: &ZoneRecord| {
        let owner = record.owner.as_name();
        dnames.iter().any(|dname| owner != dname.as_name() && owner.ends_with(dname.as_name()))
    };
    zone.records.retain(|record| !is_below(record));
    zone
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Nsd,
    Knot,
}

impl Server {
    /// Where the program is, if it is installed.
    fn program(self) -> Option<PathBuf> {
        let program = if self == Server::Nsd { "nsd" } else { "knotd" };
        let path = env::var_os("PATH").unwrap_or_default();
        let places = env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
        places.map(|place| place.join(program)).find(|program| program.is_file())
    }

    fn config(self, directory: &Path, port: u16, zones: &[(String, PathBuf)]) -> String {
        let at = directory.display();
        let mut config = match self {
            Server::Nsd => format!(
                "server:\n ip-address: 127.0.0.1@{port}\n username: \"\"\n chroot: \"\"\n zonesdir: \"{at}\"\n \
                 pidfile: \"{at}/pid\"\n xfrdfile: \"{at}/xfrd\"\n xfrdir: \"{at}\"\n zonelistfile: \"{at}/list\"\n \
                 database: \"\"\n server-count: 1\n ipv4-edns-size: 4096\n minimal-responses: yes\n \
                 refuse-any: no\n rrl-ratelimit: 0\n round-robin: no\nremote-control:\n control-enable: no\n"
            ),
            Server::Knot => format!(
                "server:\n  rundir: \"{at}\"\n  listen: 127.0.0.1@{port}\n  udp-max-payload: 4096\n  \
                 udp-workers: 1\n  tcp-workers: 1\n  background-workers: 1\ndatabase:\n  storage: \"{at}\"\n\
                 template:\n  - id: default\n    storage: \"{at}\"\n    zonefile-load: whole\n    \
                 journal-content: none\n    semantic-checks: off\nzone:\n"
            ),
        };
        for (origin, file) in zones {
            let file = file.display();
            config += &match self {
                Server::Nsd => format!("zone:\n name: \"{origin}\"\n zonefile: \"{file}\"\n"),
                Server::Knot => format!("  - domain: \"{origin}\"\n    file: \"{file}\"\n"),
            };
        }
        config
    }
}

/// A server under test, until dropped.
struct Running {
    child: Child,
    socket: UdpSocket,
    directory: PathBuf,
}

impl Running {
    fn start(server: Server, program: &Path, zones: &[ZoneList]) -> Running {
        let port = lab::quiet_port();
        let directory = env::temp_dir().join(format!("sidestep-{server:?}-{}-{port}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let write = |(number, zone): (usize, &ZoneList)| {
            let file = directory.join(format!("{number}.zone"));
            fs::write(&file, zone.to_generic_text()).unwrap();
            (zone.origin.to_string(), file)
        };
        let files: Vec<(String, PathBuf)> = zones.iter().enumerate().map(write).collect();
        let config = directory.join("config");
        fs::write(&config, server.config(&directory, port, &files)).unwrap();
        let log = fs::File::create(directory.join("log")).unwrap();
        let mut command = Command::new(program);
        if server == Server::Nsd {
            command.arg("-d");
        }
        command.arg("-c").arg(&config).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(("127.0.0.1", port)).unwrap();
        let running = Running { child, socket, directory };
        zones.iter().for_each(|zone| running.wait_for(zone));
        running
    }

    /// Returns once the zone is served.
    fn wait_for(&self, zone: &ZoneList) {
        let query = Query::new(zone.origin.as_name().as_bytes(), Rtype::SOA).to_wire();
        let deadline = Instant::now() + Duration::from_secs(20);
        let is_served = || {
            self.socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            let answer = self.exchange(&query);
            answer.is_ok_and(|reply| reply.rcode() == 0 && reply.flags & flag::AA != 0)
        };
        while !is_served() {
            let log = || fs::read_to_string(self.directory.join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "{} is not served:\n{}", zone.origin, log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The answer to `query`, which is sent again if need be.
    fn ask(&self, query: &[u8]) -> Result<Reply, String> {
        self.socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        (0..5).find_map(|_| self.exchange(query).ok()).ok_or_else(|| "no answer".to_owned())
    }

    fn exchange(&self, query: &[u8]) -> Result<Reply, String> {
        let mut answer = [0; 65_535];
        self.socket.send(query).map_err(|error| error.to_string())?;
        let len = self.socket.recv(&mut answer).map_err(|error| error.to_string())?;
        let reply = Reply::read(&answer[..len])?;
        // An answer to an earlier question came late: wait for the right one.
        if query[12..].starts_with(&reply.question) {
            Ok(reply)
        } else {
            Err("of another question".to_owned())
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // NSD ends its own children only if it is asked to end.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}
