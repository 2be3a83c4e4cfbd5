//! The servers of parents: what they have of the DS records of zones that we sign, and keys that end because of it (RFC 7583).
//!
//! They are asked on a thread of its own, which reads and writes the files of keys, too: answers, updates and reloads wait for none of it.

use std::collections::BTreeMap;
use std::mem;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use anyhow::Context;
use dns_client::{Asker, Server, Transport, Trust};
use dns_message::{Message, question_message};
use dns_sign::{Key, Parent, ParentChange, Said};
use dns_wire::header::flag;
use dns_wire::{Name, NameBuf, Rcode, ReceivedRcode, Rtype};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::config::ZoneSpec;
use super::events::Event;
use super::key_clock::{self, Reading};
use super::key_files;
use super::transfers::random_number;

/// Zones whose parents are asked at once.
const ASKED_MAX: usize = 64;
/// Time for a connection and an answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// A zone's parent is asked so often while a key waits for it, and otherwise.
const AWAITED: Duration = Duration::from_secs(60);
const SETTLED: Duration = Duration::from_secs(3600);
/// Between two rounds: whoever sends SIGHUP without end does not have parents asked without end.
const GAP: Duration = Duration::from_secs(1);
/// What is wrong with a server, and stays so, is said so often.
const SAID_AGAIN: Duration = Duration::from_secs(6 * 3600);

/// A clock that goes ahead of the monotonic one by so many seconds has jumped: it was set.
const JUMP_MIN: u64 = 60;

/// A zone whose parent is asked.
#[derive(Clone, Debug)]
struct Job {
    origin: NameBuf,
    keys: PathBuf,
    servers: Vec<SocketAddr>,
}

/// What has come of asking.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// A key of this zone has another time now.
    KeyChanged(Box<NameBuf>),
    /// All were asked.
    Done(Round),
}

/// A round of questions that has ended.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// When to ask the parent of a zone again.
    again: BTreeMap<NameBuf, Duration>,
    memory: Memory,
}

/// What is remembered from round to round.
#[derive(Debug, Default)]
struct Memory {
    said: Complaints,
    /// What the clocks showed when the answers about a zone were followed last.
    clocks: BTreeMap<NameBuf, Reading>,
}

/// What is wrong with servers, and when the log has said so.
type Complaints = BTreeMap<(NameBuf, SocketAddr), (String, Instant)>;

/// By how many seconds the clock was set forwards between two looks at it.
fn jump(before: &Reading, now: &Reading) -> Option<u64> {
    Some(now.ahead_of(before)).filter(|seconds| *seconds >= JUMP_MIN)
}

/// Asks parents when it is time.
pub(crate) struct Parents {
    events: Sender<Event>,
    /// When the next round begins; `None` while one is under way, as its end is an event, and if there is nobody to ask.
    next: Option<Instant>,
    /// No round begins before.
    not_before: Instant,
    /// When the parent of a zone is asked. One that is not there is asked in the next round.
    due: BTreeMap<NameBuf, Instant>,
    is_asking: bool,
    /// Whether all are to be asked when the round has ended.
    again: bool,
    memory: Memory,
}

impl Parents {
    /// One that has asked nobody, and says on `events` what comes of it.
    pub(crate) fn new(events: Sender<Event>) -> Parents {
        let now = Instant::now();
        Parents {
            events,
            next: Some(now),
            not_before: now,
            due: BTreeMap::new(),
            is_asking: false,
            again: false,
            memory: Memory::default(),
        }
    }

    /// When to begin the next round, if time alone says that.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.next
    }

    /// Has all parents asked again: zones, keys and parents may have changed.
    pub(crate) fn ask_again(&mut self) {
        if self.is_asking {
            self.again = true;
            return;
        }
        self.due.clear();
        self.next = Some(self.not_before);
    }

    /// Begins to ask the parents of those zones that are due.
    pub(crate) fn begin<'z>(&mut self, zones: impl Iterator<Item = (&'z ZoneSpec, Name<'z>)>) {
        let now = Instant::now();
        let mut jobs = Vec::new();
        for (spec, origin) in zones {
            let Some(keys) = spec.keys.clone().filter(|_| !spec.parent.is_empty()) else { continue };
            let origin = NameBuf::from(origin);
            if self.due.get(&origin).is_none_or(|due| *due <= now) {
                self.due.insert(origin.clone(), now + SETTLED);
                jobs.push(Job { origin, keys, servers: spec.parent.clone() });
            }
        }
        self.not_before = now + GAP;
        self.next = self.due.values().min().copied();
        if jobs.is_empty() {
            return;
        }
        let (events, memory) = (self.events.clone(), mem::take(&mut self.memory));
        match thread::Builder::new().name("parents".to_owned()).spawn(move || ask(jobs, memory, &events)) {
            Ok(_) => (self.is_asking, self.next) = (true, None),
            Err(error) => log::error!("the servers of parents are not asked: {error}"),
        }
    }

    /// A round has ended.
    pub(crate) fn end(&mut self, round: Round) {
        let now = Instant::now();
        self.is_asking = false;
        self.not_before = now + GAP;
        self.memory = round.memory;
        if mem::take(&mut self.again) {
            return self.ask_again();
        }
        self.due.extend(round.again.into_iter().map(|(origin, again)| (origin, now + again)));
        self.next = self.due.values().min().map(|due| (*due).max(self.not_before));
    }
}

/// One round, on a thread of its own.
fn ask(jobs: Vec<Job>, memory: Memory, events: &Sender<Event>) {
    let mut round = Round { memory, ..Round::default() };
    let asked = ask_all(jobs, |job, said| {
        let followed = follow(&job, &said, &mut round.memory).unwrap_or_else(|error| {
            log::error!("zone {}: what its parent says is not followed: {error:#}", job.origin);
            Followed { is_changed: false, again: AWAITED }
        });
        if followed.is_changed {
            // A server that ends needs no keys.
            let _ = events.send(Event::Parents(Outcome::KeyChanged(Box::new(job.origin.clone()))));
        }
        round.again.insert(job.origin, followed.again);
    });
    if let Err(error) = asked {
        log::error!("the servers of parents are not asked: {error}");
    }
    let _ = events.send(Event::Parents(Outcome::Done(round)));
}

/// Asks the servers of all parents, some zones at a time, and gives what they say of each zone to `each`.
fn ask_all(jobs: Vec<Job>, mut each: impl FnMut(Job, Vec<(SocketAddr, Said)>)) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut waiting = jobs.into_iter();
        let mut asking = JoinSet::new();
        loop {
            while asking.len() < ASKED_MAX
                && let Some(job) = waiting.next()
            {
                asking.spawn(ask_servers(job));
            }
            match asking.join_next().await {
                Some(Ok((job, said))) => each(job, said),
                Some(Err(error)) => log::error!("a question to a parent: {error}"),
                None => return,
            }
        }
    });
    Ok(())
}

async fn ask_servers(job: Job) -> (Job, Vec<(SocketAddr, Said)>) {
    let mut said = Vec::new();
    for server in &job.servers {
        said.push((*server, ask_server(*server, job.origin.as_name()).await));
    }
    (job, said)
}

/// Asks one server, by TCP: an answer that somebody else has made up must not end a key.
async fn ask_server(address: SocketAddr, origin: Name<'_>) -> Said {
    let question = question_message(random_number() as u16, 0, origin, Rtype::DS);
    let server = Server { address, name: None, path: String::new() };
    let asker = Asker::new(Trust::default(), None);
    match timeout(ANSWER_MAX, asker.ask(&server, Transport::Tcp, &question)).await {
        Err(_) => Said::Nothing(format!("it does not answer within {} s", ANSWER_MAX.as_secs())),
        Ok(Err(error)) => Said::Nothing(format!("it gives no answer: {error}")),
        Ok(Ok(answer)) => said_in(&answer, origin),
    }
}

/// What an answer to the question for the DS records of a zone says.
fn said_in(answer: &[u8], origin: Name<'_>) -> Said {
    let malformed = || Said::Nothing("it answers with a message that is malformed".to_owned());
    let Ok(mut message) = Message::parse(answer) else { return malformed() };
    let (flags, code) = (message.flags(), message.flags() & 0xf);
    if code != Rcode::NoError as u16 && code != Rcode::NxDomain as u16 {
        return Said::Nothing(format!("it answers with {}", ReceivedRcode(code)));
    }
    if flags & flag::AA == 0 {
        return Said::Nothing("it is not an authority for the zone above".to_owned());
    }
    let (mut ttl, mut records) = (0, Vec::new());
    for _ in 0..message.counts()[0] {
        let Ok(record) = message.next_record() else { return malformed() };
        if record.rtype == Rtype::DS && record.owner.as_name() == origin {
            ttl = ttl.max(record.ttl);
            records.push(record.rdata);
        }
    }
    Said::Ds { ttl, records }
}

/// What has come of answers about one zone.
struct Followed {
    /// Whether a key ends.
    is_changed: bool,
    /// When to ask again.
    again: Duration,
}

/// Keeps what the servers of a zone's parent say, and ends the keys that it ends.
fn follow(job: &Job, said: &[(SocketAddr, Said)], memory: &mut Memory) -> anyhow::Result<Followed> {
    let origin = job.origin.as_name();
    let _lock = key_files::lock(&job.keys)?;
    let keys = key_files::read(origin, &job.keys)?;
    let clocks = key_clock::reading(&keys);
    let now = clocks.unix;
    let before = read(origin, &job.keys)?;
    let mut parent = before.clone();
    if let Some(seconds) = memory.clocks.get(&job.origin).and_then(|before| jump(before, &clocks)) {
        log::warn!(
            "zone {origin}: the clock was set forwards by {seconds} s: its keys wait for that much longer"
        );
        parent.on_jump(seconds, now);
    }
    for change in parent.note(origin, &keys, said, now) {
        match change {
            ParentChange::Shown(tag) => {
                log::info!("zone {origin}: the parent has the DS record of the key {tag}")
            }
            ParentChange::Lost(tag) => {
                log::warn!("zone {origin}: the parent has the DS record of the key {tag} no longer")
            }
        }
    }
    if parent != before {
        write(origin, &job.keys, &parent)?;
    }
    memory.clocks.insert(job.origin.clone(), clocks);
    let is_awaited = parent.is_awaited(origin, &keys, now);
    complain(job, &parent, is_awaited, &mut memory.said);
    let ended = parent.ended(origin, &keys, now);
    for key in &ended {
        for (key, times) in keys.retired(key, now) {
            key_files::set_times(origin, &job.keys, key, times)?;
        }
        log::info!(
            "zone {origin}: the key {} ends: the parent has the DS record of its successor, and caches have no other one",
            key.tag()
        );
    }
    let ends = keys.keys().iter().filter_map(|key| parent.end_of(origin, &keys, key, now));
    let next_end = ends.min().map(|end| Duration::from_secs(end.saturating_sub(now).max(1)));
    let usual = if is_awaited { AWAITED } else { SETTLED };
    Ok(Followed { is_changed: !ended.is_empty(), again: next_end.unwrap_or(usual).min(usual) })
}

/// Says what is wrong with servers that a key waits for: when that is new, and again from time to time.
fn complain(job: &Job, parent: &Parent, is_awaited: bool, told: &mut Complaints) {
    for server in parent.servers() {
        let at = (job.origin.clone(), server.address);
        let Some(problem) = server.problem.as_ref().filter(|_| is_awaited) else {
            told.remove(&at);
            continue;
        };
        let is_told =
            told.get(&at).is_some_and(|(text, when)| text == problem && when.elapsed() < SAID_AGAIN);
        if !is_told {
            log::warn!(
                "zone {}: its keys wait for the server {} of the parent: {problem}",
                job.origin,
                server.address
            );
            told.insert(at, (problem.clone(), Instant::now()));
        }
    }
}

/// What is known of the parent of a zone whose keys are in `directory`.
pub(super) fn read(origin: Name<'_>, directory: &Path) -> anyhow::Result<Parent> {
    let path = path(origin, directory);
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Parent::default()),
        text => text.with_context(|| format!("reading {}", path.display()))?,
    };
    serde_json::from_str(&text).with_context(|| {
        format!(
            "reading {}: remove it, and what is not known is waited for as long as it may take",
            path.display()
        )
    })
}

fn write(origin: Name<'_>, directory: &Path, parent: &Parent) -> anyhow::Result<()> {
    let path = path(origin, directory);
    let text = serde_json::to_string_pretty(parent)?;
    let written = key_files::replace(&path, 0o644, &format!("{text}\n"), directory);
    written.with_context(|| format!("writing {}", path.display()))
}

/// Beside the keys: whoever moves them has it move with them.
fn path(origin: Name<'_>, directory: &Path) -> PathBuf {
    directory.join(format!("{}parent.json", Key::file_prefix(origin)))
}

#[cfg(test)]
mod tests {
    use dns_message::{add_to_count, push_record};
    use dns_sign::{Algorithm, AtParent, Role, Times};
    use dns_wire::Class;

    use super::super::key_clock::tests::set_clock;
    use super::*;

    /// An answer with these flags and DS records.
    fn answer(flags: u16, records: &[&[u8]]) -> Vec<u8> {
        let origin = NameBuf::from_text(b"example.org.", None).unwrap();
        let mut message = question_message(1, flag::QR | flags, origin.as_name(), Rtype::DS);
        for rdata in records {
            push_record(&mut message, origin.as_name(), Rtype::DS, Class::IN, 300, rdata);
        }
        add_to_count(&mut message, 0, records.len() as i32);
        message
    }

    fn said(answer: &[u8]) -> Said {
        said_in(answer, NameBuf::from_text(b"Example.org.", None).unwrap().as_name())
    }

    #[test]
    fn only_an_authority_says_what_the_parent_has() {
        let ds = [7, 8, 13, 2, 1];
        assert_eq!(said(&answer(flag::AA, &[&ds])), Said::Ds { ttl: 300, records: vec![ds.to_vec()] });
        let nothing = Said::Ds { ttl: 0, records: Vec::new() };
        assert_eq!(
            [said(&answer(flag::AA, &[])), said(&answer(flag::AA | 3, &[]))],
            [nothing.clone(), nothing]
        );
        for bad in [answer(0, &[&ds]), answer(flag::AA | 2, &[&ds]), vec![0; 5]] {
            assert!(matches!(said(&bad), Said::Nothing(_)), "{bad:?}");
        }
        let mut short = answer(flag::AA, &[&ds]);
        short.pop();
        assert!(matches!(said(&short), Said::Nothing(_)));
    }

    #[test]
    fn a_round_that_is_wanted_while_one_is_under_way_begins_behind_it() {
        let (events, _heard) = std::sync::mpsc::channel();
        let mut parents = Parents::new(events);
        assert!(parents.deadline().is_some());
        (parents.is_asking, parents.next) = (true, None);
        (0..3).for_each(|_| parents.ask_again());
        assert_eq!(parents.deadline(), None, "or the loop would find it due again and again");
        let now = Instant::now();
        parents.end(Round::default());
        assert!(parents.deadline().is_some_and(|next| next >= now + GAP));
        parents.begin(std::iter::empty());
        assert_eq!(parents.deadline(), None, "nobody is to be asked");
    }

    #[test]
    fn a_clock_that_is_set_forwards_has_jumped_and_one_that_goes_or_is_set_back_has_not() {
        let before = Reading::now();
        let after = |monotonic: u64, unix: u64| Reading {
            monotonic: before.monotonic + Duration::from_secs(monotonic),
            unix: before.unix + unix,
        };
        let jump = |monotonic, unix| jump(&before, &after(monotonic, unix));
        assert_eq!([jump(3600, 3600), jump(10, 69), jump(100, 0)], [None; 3]);
        assert_eq!([jump(0, 60), jump(60, 1_000_000)], [Some(60), Some(999_940)]);
    }

    #[test]
    fn what_a_parent_shows_while_the_clock_is_a_year_ahead_is_noted_by_the_time_of_keys() {
        let directory = std::env::temp_dir().join(format!("sidestep-parents-ahead-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let origin = NameBuf::from_text(b"example.org.", None).unwrap();
        let (began, key_signing) = (Reading::now().unix, Role::KeySigning);
        let times = Times::first(began - 86_400);
        key_files::generate(origin.as_name(), &directory, Algorithm::default(), key_signing, times).unwrap();
        let keys = key_files::read(origin.as_name(), &directory).unwrap();
        let records = vec![keys.keys()[0].ds(origin.as_name())];
        let said = [("192.0.2.1:53".parse().unwrap(), Said::Ds { ttl: 300, records })];
        let job = Job { origin: origin.clone(), keys: directory.clone(), servers: Vec::new() };
        set_clock(366 * 86_400);
        follow(&job, &said, &mut Memory::default()).unwrap();
        let parent = read(origin.as_name(), &directory).unwrap();
        let AtParent::HasDs(since) = parent.state_of(origin.as_name(), &keys, &keys.keys()[0], began) else {
            panic!("{parent:?}");
        };
        assert!((began..began + 86_400).contains(&since), "{since} is not about {began}");
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn what_a_parent_has_said_is_known_after_a_restart_and_a_bad_file_is_an_error() {
        let directory = std::env::temp_dir().join(format!("sidestep-parents-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let origin = NameBuf::from_text(b"example.org.", None).unwrap();
        assert_eq!(read(origin.as_name(), &directory).unwrap(), Parent::default());
        let keys = dns_sign::KeySet::default();
        let mut parent = Parent::default();
        parent.note(origin.as_name(), &keys, &[("192.0.2.1:53".parse().unwrap(), said(&[]))], 7);
        write(origin.as_name(), &directory, &parent).unwrap();
        assert_eq!(read(origin.as_name(), &directory).unwrap(), parent);
        fs::write(path(origin.as_name(), &directory), "{").unwrap();
        assert!(read(origin.as_name(), &directory).is_err());
        fs::remove_dir_all(&directory).unwrap();
    }
}
