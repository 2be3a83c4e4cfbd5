//! [`Workload`]: what servers are asked, from which zone.

use std::fmt::{self, Write as _};
use std::path::PathBuf;

use crate::{Directory, LabError, Zone};

/// Questions of each workload.
pub const QUESTIONS: u32 = 10_000;

/// Labels of a deep name: with a letter each, nearly as many as a name can have.
const DEEP_LABELS: usize = 115;

/// A kind of questions. All but [`Workload::Tcp`] are asked by UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Addresses of names that have one.
    Address,
    /// Names that do not exist.
    NxDomain,
    /// Names that do not exist, of 115 random labels: what costs a server most, which may search the zone for each.
    Deep,
    /// Names below delegations: the answer is a referral with glue.
    Referral,
    /// MX records, each with the address of its mail server beside it.
    Mx,
    /// The NS records of the zone, with their addresses beside them.
    Ns,
    /// Addresses of names in random upper and lower case, as resolvers ask that use 0x20.
    MixedCase,
    /// Addresses by TCP, a connection for each question.
    Tcp,
    /// What an authority is asked in practice: a mix of types and names.
    Authority,
    /// As [`Workload::Address`], with DO, from a signed zone.
    Signed,
    /// As [`Workload::NxDomain`], with DO, from a signed zone.
    SignedNxDomain,
}

/// A workload with its zone and its queries.
#[derive(Clone, Debug)]
pub struct Questions {
    /// What is asked.
    pub workload: Workload,
    /// What the server serves.
    pub zone: Zone,
    /// The queries, for kxdpgun.
    pub file: PathBuf,
}

/// What a question is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Address,
    /// IPv6 addresses of names that have none: no data.
    NoAddress,
    Nothing,
    /// Nothing, many labels below the zone.
    NothingDeep,
    Delegation,
    Mail,
    Apex,
}

/// Hundredths of the questions to an authority. Types are those of 7.1 million queries that one authority counted (BIND's statistics,
/// published in March 2014 at gist.github.com/jmoiron/9334419): A 72.9 %, AAAA 25.6 %, NS 1.1 %, MX 0.2 %; 25.8 % of the answers were
/// NODATA. The part of names that do not exist is of 7.5 trillion queries to authorities (NS1, 2023, by way of circleid.com): 3 to 4 %
/// is typical.
const AUTHORITY: [(u32, Subject); 5] = [
    (70, Subject::Address),
    (25, Subject::NoAddress),
    (3, Subject::Nothing),
    (1, Subject::Apex),
    (1, Subject::Mail),
];

impl Workload {
    /// All of them.
    pub const ALL: [Workload; 11] = [
        Workload::Address,
        Workload::NxDomain,
        Workload::Deep,
        Workload::Referral,
        Workload::Mx,
        Workload::Ns,
        Workload::MixedCase,
        Workload::Tcp,
        Workload::Authority,
        Workload::Signed,
        Workload::SignedNxDomain,
    ];

    /// Its name on command lines and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Address => "a",
            Workload::NxDomain => "nxdomain",
            Workload::Deep => "deep",
            Workload::Referral => "referral",
            Workload::Mx => "mx",
            Workload::Ns => "ns",
            Workload::MixedCase => "0x20",
            Workload::Tcp => "tcp",
            Workload::Authority => "authority",
            Workload::Signed => "signed",
            Workload::SignedNxDomain => "signed-nxdomain",
        }
    }

    /// The workload of that name.
    pub fn by_name(name: &str) -> Option<Workload> {
        Workload::ALL.into_iter().find(|workload| workload.name() == name)
    }

    /// Whether each question has a connection of its own.
    pub fn is_over_tcp(self) -> bool {
        self == Workload::Tcp
    }

    /// Whether the zone is signed, and the questions have the DO bit.
    fn is_signed(self) -> bool {
        matches!(self, Workload::Signed | Workload::SignedNxDomain)
    }

    /// Writes its zone and its queries.
    pub fn prepare(self, directory: &Directory) -> Result<Questions, LabError> {
        let subjects = self.subjects();
        let mut records = String::new();
        for number in 0..QUESTIONS {
            subjects.iter().for_each(|(_, subject)| subject.write_records(number, &mut records));
        }
        let zone = Zone::with_records(directory, &records)?;
        let zone = if self.is_signed() { zone.signed(directory)? } else { zone };
        let flags = if self.is_signed() { " D" } else { "" };
        let mut random = Random(1);
        let mut queries = String::new();
        for number in scattered(QUESTIONS) {
            let query = pick(subjects, random.below(100)).query(number, &zone.origin);
            let spelled = if self == Workload::MixedCase { random.spell(&query) } else { query };
            let _ = writeln!(queries, "{spelled}{flags}"); // A String takes everything.
        }
        let file = directory.write("queries.txt", &queries)?;
        Ok(Questions { workload: self, zone, file })
    }

    /// What is asked, and in how many hundredths of the questions.
    fn subjects(self) -> &'static [(u32, Subject)] {
        match self {
            Workload::Address | Workload::MixedCase | Workload::Tcp | Workload::Signed => {
                &[(100, Subject::Address)]
            }
            Workload::NxDomain => &[(100, Subject::Nothing)],
            // The zone has something to deny between.
            Workload::SignedNxDomain => &[(0, Subject::Address), (100, Subject::Nothing)],
            Workload::Deep => &[(100, Subject::NothingDeep)],
            Workload::Referral => &[(100, Subject::Delegation)],
            Workload::Mx => &[(100, Subject::Mail)],
            Workload::Ns => &[(100, Subject::Apex)],
            Workload::Authority => &AUTHORITY,
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Subject {
    /// Adds the records of question number `number` to a zone.
    fn write_records(self, number: u32, zone: &mut String) {
        let [_, a, b, c] = number.to_be_bytes();
        let address = format!("10.{a}.{b}.{c}");
        let _ = match self {
            Subject::Address => writeln!(zone, "h{number} A {address}"),
            Subject::Delegation => writeln!(zone, "d{number} NS ns.d{number}\nns.d{number} A {address}"),
            Subject::Mail => writeln!(zone, "m{number} MX 10 mx.m{number}\nmx.m{number} A {address}"),
            Subject::NoAddress | Subject::Nothing | Subject::NothingDeep | Subject::Apex => Ok(()),
        };
    }

    fn query(self, number: u32, origin: &str) -> String {
        match self {
            Subject::Address => format!("h{number}.{origin} A"),
            Subject::NoAddress => format!("h{number}.{origin} AAAA"),
            Subject::Nothing => format!("x{number}.{origin} A"),
            Subject::NothingDeep => deep_query(number, origin),
            Subject::Delegation => format!("www.d{number}.{origin} A"),
            Subject::Mail => format!("m{number}.{origin} MX"),
            Subject::Apex => format!("{origin} NS"),
        }
    }
}

/// A name of [`DEEP_LABELS`] labels, all of which are random but those of the origin.
fn deep_query(number: u32, origin: &str) -> String {
    let mut random = Random(u64::from(number) + 1);
    let mut query = String::new();
    for _ in origin.split('.').count()..DEEP_LABELS {
        query.push(char::from(b'a' + random.below(26) as u8));
        query.push('.');
    }
    format!("{query}{origin} A")
}

/// The subject that the hundredth `at` belongs to.
fn pick(subjects: &[(u32, Subject)], at: u32) -> Subject {
    let mut end = 0;
    let found = subjects.iter().find(|(share, _)| {
        end += share;
        at < end
    });
    found.expect("shares add up to a hundred").1
}

/// The numbers below `count` in an order without pattern: a step that shares no factor with the count visits each once.
fn scattered(count: u32) -> impl Iterator<Item = u32> {
    let step = (1..).map(|n| count / 2 + n).find(|step| greatest_common_divisor(*step, count) == 1);
    let step = u64::from(step.unwrap_or(1));
    (0..u64::from(count)).map(move |n| (n * step % u64::from(count)) as u32)
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// An xorshift generator: the same questions every time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % u64::from(bound)) as u32
    }

    /// `query` with each letter of its name in upper or lower case.
    fn spell(&mut self, query: &str) -> String {
        let (name, rtype) = query.split_once(' ').unwrap_or((query, ""));
        let mut letter = |letter: char| {
            if self.below(2) == 0 { letter.to_ascii_lowercase() } else { letter.to_ascii_uppercase() }
        };
        format!("{} {rtype}", name.chars().map(&mut letter).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{Device, Kxdpgun, Lab, Peer, Sidestep, require_root_and_xdp};

    fn queries(workload: Workload) -> Vec<String> {
        let directory = Directory::new().unwrap();
        let questions = workload.prepare(&directory).unwrap();
        std::fs::read_to_string(questions.file).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn every_name_is_asked_for_once() {
        let queries = queries(Workload::Address);
        let names: BTreeSet<&String> = queries.iter().collect();
        assert_eq!((queries.len(), names.len()), (QUESTIONS as usize, QUESTIONS as usize));
        assert!(queries.contains(&"h9999.example.com A".to_owned()));
    }

    #[test]
    fn mixed_case_is_in_the_name_only_and_everywhere() {
        let queries = queries(Workload::MixedCase);
        let names: Vec<&str> = queries.iter().map(|query| query.strip_suffix(" A").unwrap()).collect();
        assert!(names.iter().all(|name| name.to_ascii_lowercase().ends_with(".example.com")));
        let spellings: BTreeSet<&str> = names.iter().map(|name| name.split_once('.').unwrap().1).collect();
        assert!(spellings.len() > 900, "{} of 1024 spellings", spellings.len());
    }

    #[test]
    fn deep_names_have_their_labels_and_differ() {
        let queries = queries(Workload::Deep);
        assert!(queries.iter().all(|query| query.split('.').count() == DEEP_LABELS));
        assert_eq!(queries.iter().collect::<BTreeSet<_>>().len(), QUESTIONS as usize);
    }

    #[test]
    fn an_authority_is_asked_in_the_published_shares() {
        let queries = queries(Workload::Authority);
        let of = |kind: fn(&str) -> bool| queries.iter().filter(|query| kind(query)).count();
        assert!((6900..7100).contains(&of(|query| query.starts_with('h') && query.ends_with(" A"))));
        assert!((2350..2650).contains(&of(|query| query.ends_with(" AAAA"))));
        assert!((250..350).contains(&of(|query| query.starts_with('x'))));
        assert!((60..140).contains(&of(|query| query.ends_with(" MX"))));
        assert!((60..140).contains(&of(|query| query == "example.com NS")));
    }

    #[test]
    fn shares_are_hundredths() {
        for workload in Workload::ALL {
            assert_eq!(workload.subjects().iter().map(|(share, _)| share).sum::<u32>(), 100, "{workload}");
            assert_eq!(Workload::by_name(workload.name()), Some(workload));
        }
    }

    #[test]
    fn each_workload_is_answered_as_it_is_meant() {
        if !require_root_and_xdp() {
            return;
        }
        for workload in Workload::ALL {
            let directory = Directory::new().unwrap();
            let questions = workload.prepare(&directory).unwrap();
            let lab = Lab::new().unwrap();
            let _server = Peer::Sidestep(Sidestep::on(Device::Xdp)).start(&lab, &questions.zone).unwrap();
            let report = Kxdpgun { seconds: 1, ..Kxdpgun::asking(&questions, 2000) }.run(&lab).unwrap();
            let (good, bad) = (report.rcode("NOERROR"), report.rcode("NXDOMAIN"));
            // Over TCP kxdpgun was without a third of its answers once, on a busy machine; nobody knows why.
            let is_whole = good + bad == report.queries;
            assert!(is_whole || workload == Workload::Tcp, "{workload}: {}", report.text);
            let wrong = ["SERVFAIL", "REFUSED", "FORMERR"].map(|code| report.rcode(code));
            assert!(good + bad > 0 && wrong == [0; 3], "{workload}: {}", report.text);
            match workload {
                Workload::NxDomain | Workload::Deep | Workload::SignedNxDomain => assert_eq!(good, 0),
                Workload::Authority => assert!(bad > 0 && bad * 10 < good, "{}", report.text),
                _ => assert_eq!(bad, 0, "{workload}"),
            }
        }
    }
}
