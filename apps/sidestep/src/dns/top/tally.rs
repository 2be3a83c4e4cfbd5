//! What answers are about: the most frequent names, clients, types and codes, and how many a second. Pure.

use std::net::IpAddr;
use std::time::Duration;

use dns_wire::Name;
use dns_wire::header::ReceivedRcode;

use super::answer::Answer;
use super::heavy::{HeavyHitters, Hit};

/// Names and clients that have counters: no share is wrong by more than a thousandth and a bit.
const NAMES: usize = 1024;
/// Types and codes that have.
const KINDS: usize = 64;
/// After this time, answers weigh half.
const HALF_LIFE: Duration = Duration::from_secs(10);
/// Shares below are not shown.
const SHARE_MIN: f64 = 0.001;

/// Counts answers.
pub(super) struct Tally {
    /// Labels of the names above, the root's not counted.
    labels: usize,
    names: HeavyHitters<Vec<u8>>,
    above: HeavyHitters<Vec<u8>>,
    clients: HeavyHitters<IpAddr>,
    types: HeavyHitters<u16>,
    codes: HeavyHitters<u16>,
}

/// What came of one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Round {
    /// Answers that were seen.
    pub(super) answers: u64,
    /// How long they were looked for.
    pub(super) span: Duration,
    /// Packets that matched the filter, and those of them that captures lost.
    pub(super) passed: u64,
    pub(super) dropped: u64,
}

/// A list of the most frequent.
pub(super) type List = Vec<Hit<String>>;

/// All that is shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures {
    /// Programs that are looked at.
    pub(super) programs: Vec<String>,
    /// Programs that cannot be, with the reason.
    pub(super) refused: Vec<String>,
    /// Answers a second.
    pub(super) rate: f64,
    /// The part of them that was seen.
    pub(super) seen: f64,
    pub(super) names: List,
    pub(super) above: List,
    pub(super) clients: List,
    pub(super) types: List,
    pub(super) codes: List,
    /// Labels of the names in `above`.
    pub(super) labels: usize,
}

impl Round {
    /// Answers a second, those that captures lost included.
    pub(super) fn rate(&self) -> f64 {
        let span = self.span.as_secs_f64();
        if span > 0.0 { self.answers as f64 / self.captured() / span } else { 0.0 }
    }

    /// The part of the packets that captures did not lose.
    pub(super) fn captured(&self) -> f64 {
        match self.passed.saturating_sub(self.dropped) {
            0 => 1.0,
            kept => kept as f64 / self.passed as f64,
        }
    }
}

impl Tally {
    /// One that sums up names by their last `labels` labels.
    pub(super) fn new(labels: usize) -> Tally {
        Tally {
            labels,
            names: HeavyHitters::new(NAMES),
            above: HeavyHitters::new(NAMES),
            clients: HeavyHitters::new(NAMES),
            types: HeavyHitters::new(KINDS),
            codes: HeavyHitters::new(KINDS),
        }
    }

    /// Counts an answer.
    pub(super) fn add(&mut self, answer: &Answer) {
        self.clients.add(&answer.client);
        self.codes.add(&answer.rcode);
        if let Some(qtype) = answer.qtype {
            self.types.add(&qtype.0);
            self.names.add(&answer.qname[..]);
            self.above.add(above(&answer.qname, self.labels));
        }
    }

    /// Lets what was counted weigh less after a `span`.
    pub(super) fn age(&mut self, span: Duration) {
        let factor = 0.5f64.powf(span.as_secs_f64() / HALF_LIFE.as_secs_f64());
        self.names.age(factor);
        self.above.age(factor);
        self.clients.age(factor);
        self.types.age(factor);
        self.codes.age(factor);
    }

    /// What there is to show after a round.
    pub(super) fn figures(&self, round: &Round, programs: Vec<String>, refused: Vec<String>) -> Figures {
        let rtype = |number: &u16| dns_wire::Rtype(*number).to_string();
        Figures {
            programs,
            refused,
            rate: round.rate(),
            seen: round.captured(),
            names: list(&self.names, |name| text(name)),
            above: list(&self.above, |name| text(name)),
            clients: list(&self.clients, IpAddr::to_string),
            types: list(&self.types, rtype),
            codes: list(&self.codes, |code| ReceivedRcode(*code).to_string()),
            labels: self.labels,
        }
    }
}

fn list<K: Clone + Eq + std::hash::Hash>(hitters: &HeavyHitters<K>, text: impl Fn(&K) -> String) -> List {
    let hits = hitters.hits(SHARE_MIN).into_iter();
    hits.map(|Hit { key, at_least, at_most }| Hit { key: text(&key), at_least, at_most }).collect()
}

/// The last labels of a name in wire format.
fn above(qname: &[u8], labels: usize) -> &[u8] {
    let Ok(mut name) = Name::from_wire(qname) else { return qname };
    let mut more = name.label_count().saturating_sub(labels);
    while more > 0
        && let Some(parent) = name.parent()
    {
        name = parent;
        more -= 1;
    }
    name.as_bytes()
}

fn text(qname: &[u8]) -> String {
    Name::from_wire(qname).map_or_else(|_| "?".to_owned(), |name| name.to_string())
}

#[cfg(test)]
mod tests {
    use dns_wire::{NameBuf, Rtype};

    use super::*;

    fn answer(name: &str, client: &str, rcode: u16) -> Answer {
        let qname = NameBuf::from_text(name.as_bytes(), Some(Name::ROOT)).unwrap();
        Answer {
            client: client.parse().unwrap(),
            qname: qname.as_name().as_bytes().to_vec(),
            qtype: Some(Rtype::A),
            rcode,
        }
    }

    fn keys(list: &List) -> Vec<&str> {
        list.iter().map(|hit| hit.key.as_str()).collect()
    }

    #[test]
    fn answers_count_by_name_name_above_client_type_and_code() {
        let mut tally = Tally::new(2);
        for (name, client, rcode) in [
            ("www.example.org", "192.0.2.1", 0),
            ("www.example.org", "192.0.2.2", 0),
            ("x.y.example.org", "192.0.2.1", 3),
            ("org", "192.0.2.1", 0),
        ] {
            tally.add(&answer(name, client, rcode));
        }
        let round = Round { answers: 4, span: Duration::from_secs(2), passed: 8, dropped: 0 };
        let figures = tally.figures(&round, vec!["dns/7".to_owned()], Vec::new());
        assert_eq!((figures.rate, figures.seen), (2.0, 1.0));
        assert_eq!(keys(&figures.names)[0], "www.example.org.");
        assert_eq!(figures.above[0], Hit { key: "example.org.".to_owned(), at_least: 0.75, at_most: 0.75 });
        assert_eq!(keys(&figures.clients), ["192.0.2.1", "192.0.2.2"]);
        assert_eq!(keys(&figures.types), ["A"]);
        assert_eq!(keys(&figures.codes), ["NOERROR", "NXDOMAIN"]);
    }

    #[test]
    fn answers_that_captures_lost_count_in_the_rate() {
        let round = Round { answers: 100, span: Duration::from_secs(1), passed: 1000, dropped: 800 };
        assert_eq!((round.rate().round(), round.captured()), (500.0, 0.2));
        let all_lost = Round { answers: 0, dropped: 1000, ..round };
        assert_eq!((all_lost.rate(), all_lost.captured()), (0.0, 1.0));
        assert_eq!(Round::default().rate(), 0.0);
    }

    #[test]
    fn an_answer_without_question_counts_by_client_and_code_alone() {
        let mut tally = Tally::new(2);
        tally.add(&Answer { qname: Vec::new(), qtype: None, ..answer("a", "192.0.2.1", 1) });
        let figures = tally.figures(&Round::default(), Vec::new(), Vec::new());
        assert_eq!((figures.names.len(), figures.types.len()), (0, 0));
        assert_eq!(keys(&figures.codes), ["FORMERR"]);
    }

    #[test]
    fn names_above_are_the_last_labels() {
        let of = |name: &str, labels| {
            let name = NameBuf::from_text(name.as_bytes(), Some(Name::ROOT)).unwrap();
            text(above(name.as_name().as_bytes(), labels))
        };
        assert_eq!(
            [of("a.b.c.d", 2), of("a", 2), of(".", 2), of("a.b.c.d", 3), of("a.b", 0)],
            ["c.d.", "a.", ".", "b.c.d.", "."]
        );
    }
}
