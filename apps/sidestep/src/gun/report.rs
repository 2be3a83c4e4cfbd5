//! What came of one or several loads.

use std::net::SocketAddr;

use gun::Summary;
use gun::knee::{Knee, Limit, Verdict};
use gun::loss::{SteadyLoss, loss_of_all, steady_loss};
use gun::streams::Fault;
use gun::summary::Counts;
use serde::{Deserialize, Serialize};

use super::text::count;

/// One foreign datagram in so many questions may be a stray one.
const FOREIGN_ONE_IN: u64 = 100;

/// What `--json` writes. A field is never given another meaning; new ones may come.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Of what this is a report: `gun dns`, `gun udp`, `gun http`, `gun connect`.
    pub(crate) kind: String,
    /// When it began, by the clock of this machine (RFC 3339).
    pub(crate) began: String,
    pub(crate) server: String,
    /// What was asked: a file, a name, a request.
    pub(crate) subject: String,
    /// How many questions that is.
    pub(crate) questions: usize,
    pub(crate) device: String,
    /// Or connections.
    pub(crate) ports: u32,
    /// What carried it, if not UDP: `tcp`, `tls`, `https`, `http/1.1`, `http/2`.
    #[serde(default)]
    pub(crate) transport: Option<String>,
    /// Requests that may be under way on a connection.
    #[serde(default)]
    pub(crate) pipeline: Option<u32>,
    /// What chance came from, of `gun dns`: `--seed` repeats it.
    #[serde(default)]
    pub(crate) seed: Option<u64>,
    pub(crate) loads: Vec<Summary>,
    /// If it was searched.
    pub(crate) knee: Option<Found>,
    /// Connections that were held, of `gun connect`.
    #[serde(default)]
    pub(crate) held: Option<Held>,
}

/// Connections that were held.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Held {
    /// At the same time.
    pub(crate) most: usize,
    /// Until the end.
    pub(crate) end: usize,
}

/// The knee.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Found {
    /// The largest load that was carried, in questions a second.
    pub(crate) carried: Option<u32>,
    /// What keeps it there: `server`, `generator`, `connections`, `errors`, `truncated` or `answers`; `loss`, if each load loses the same part; or `stopped`, if the
    /// search was.
    pub(crate) limit: String,
    /// The same in words. Older reports do not have it.
    #[serde(default)]
    pub(crate) why: Option<String>,
}

impl Found {
    /// What a search has found, whose loads are in `report`.
    pub(crate) fn of(knee: &Knee, report: &Report) -> Found {
        let (carried, limit) = (knee.carried(), knee.limit());
        Found { carried, limit: limit.to_string(), why: Some(why(limit, carried, report)) }
    }

    /// Whether the load is not what keeps answers from being good: there is no knee.
    fn is_of_any_load(&self) -> bool {
        let limits = [Limit::Loss, Limit::Errors, Limit::Truncated, Limit::Answers];
        self.carried.is_none() && limits.iter().any(|limit| self.limit == limit.to_string())
    }

    /// For people: the rate, and what keeps it there.
    pub(crate) fn text(&self, words: Words) -> String {
        let carried = match self.carried {
            Some(rate) => format!("{} {}/s", count(rate.into()), words.requests),
            None if self.is_of_any_load() => "none".to_owned(),
            None => "none: no load was carried".to_owned(),
        };
        let why = self.why.clone().unwrap_or_else(|| format!("what limits it is the {}", self.limit));
        format!("{carried}; {why}")
    }
}

fn why(limit: Limit, carried: Option<u32>, report: &Report) -> String {
    if let Some(loss) = report.loss_of_any_load(limit, carried) {
        return why_of_any_load(loss, report.words());
    }
    match limit {
        Limit::Server => "what limits it is the server".to_owned(),
        Limit::Generator => {
            let is_meant = |load: &&Summary| load.verdict() == Verdict::NotOffered;
            let load = report.loads.iter().rev().find(is_meant);
            let why = load.and_then(|load| load.bottleneck.as_ref());
            let why = why.map_or(String::new(), |why| format!(": {why}"));
            format!("what limits it is the generator{why}")
        }
        Limit::Connections => {
            format!("{} are all busy: the server is too slow for so few, or for any", report.connections())
        }
        Limit::Answers => "beyond, too many answers are to other questions than were asked".to_owned(),
        Limit::Errors => "beyond, too many answers are errors".to_owned(),
        Limit::Truncated => {
            "beyond, too many answers are truncated (TC): what limits it may be a limit of rates".to_owned()
        }
        Limit::Loss => "every load loses the same part".to_owned(),
        Limit::Stopped => "the search was stopped".to_owned(),
    }
}

/// Why there is no knee: all loads lose the same.
fn why_of_any_load(loss: SteadyLoss, words: Words) -> String {
    let (least, most) = loss.loads;
    let (what, why) = match loss.limit {
        Limit::Errors => ("answers are errors", "the server has them however little it is asked"),
        Limit::Truncated => (
            "answers are truncated (TC)",
            "they are too long for UDP or --payload, or the server truncates them whatever it is asked. Over --transport tcp they are whole",
        ),
        Limit::Answers => (
            "answers are to other questions than were asked",
            "the server mixes them up however little it is asked",
        ),
        _ if loss.is_late => (
            "answers come later than --within allows",
            "the path or the server takes so long however little it is asked",
        ),
        _ => ("have no answer in time", "the path loses them, or the server does however little it is asked"),
    };
    let of_requests = loss.limit == Limit::Loss && !loss.is_late;
    let requests = if of_requests { format!("{} ", words.requests) } else { String::new() };
    let share = 100.0 * loss.share;
    format!("about {share:.0} % of the {requests}{what}, of {most} a second as of {least}: {why}")
}

/// Words for what a report counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    /// What is sent.
    pub(crate) requests: &'static str,
    /// What it is sent by.
    pub(crate) places: &'static str,
    /// The lines of both figures.
    pub(crate) sent: &'static str,
    pub(crate) answered: &'static str,
}

impl Report {
    /// A report without loads, that begins now.
    pub(crate) fn begin(kind: &str, server: SocketAddr, subject: String) -> Report {
        Report {
            kind: kind.to_owned(),
            began: humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string(),
            server: server.to_string(),
            subject,
            questions: 1,
            ..Report::default()
        }
    }

    pub(crate) fn words(&self) -> Words {
        let places = if self.transport.is_some() { "connections" } else { "ports" };
        let (sent, answered) = ("sent", "answered");
        match &self.kind[..] {
            "gun http" => Words { requests: "requests", places, sent, answered },
            "gun udp" => Words { requests: "datagrams", places, sent, answered },
            "gun connect" => Words { requests: "connections", places, sent: "begun", answered: "opened" },
            _ => Words { requests: "questions", places, sent, answered },
        }
    }

    /// Its connections, in words.
    pub(crate) fn connections(&self) -> String {
        let (connections, requests) = (self.ports, self.words().requests);
        match self.pipeline {
            Some(pipeline @ 2..) => format!("the {connections} connections with {pipeline} {requests} each"),
            _ => format!("the {connections} connections"),
        }
    }

    /// What is wrong with answers, each in a line: such loads say nothing of a server that works.
    pub(crate) fn wrong_answers(&self) -> Vec<String> {
        let sum = |count: fn(&Counts) -> u64| self.loads.iter().map(|load| count(&load.counts)).sum::<u64>();
        let (mismatched, compared) = (sum(|it| it.mismatched), sum(|it| it.compared));
        let (all, malformed) = (sum(|it| it.answered) + mismatched, sum(|it| it.malformed));
        let mut lines = Vec::new();
        if mismatched > 0 {
            let about = (all as f64 * mismatched as f64 / compared.max(mismatched) as f64).round();
            lines.push(format!(
                "{mismatched} of the {compared} answers that were compared are to another question than was asked: about {about} of all {all}"
            ));
        }
        let foreign = sum(|it| it.foreign);
        // A stray datagram is none of the server's faults.
        if foreign * FOREIGN_ONE_IN > sum(|it| it.sent) {
            let what = match self.transport {
                None => "datagrams came from another address or port, or with an ID that no question had",
                Some(_) => "answers have an ID that no question had",
            };
            lines.push(format!("{foreign} {what}"));
        }
        if malformed > 0 {
            lines.push(format!("{malformed} answers are malformed"));
        }
        for fault in [Fault::NotTheProtocol, Fault::Status].map(Fault::name) {
            let of_load = |load: &Summary| Some((*load.faults.get(fault)?, load.explained(fault)));
            let of_loads: Vec<(u64, String)> = self.loads.iter().filter_map(of_load).collect();
            let times: u64 = of_loads.iter().map(|(times, _)| times).sum();
            lines.extend(of_loads.first().map(|(_, what)| format!("{times} {what}")));
        }
        lines
    }

    /// What a search has lost at every load, whatever the load was, if that is why it found no knee.
    fn loss_of_any_load(&self, limit: Limit, carried: Option<u32>) -> Option<SteadyLoss> {
        let is_alike = |loss: &SteadyLoss| match limit {
            // A server that is too slow for one question a second, and for more, is no lossy path.
            Limit::Server => loss.is_late,
            limit => loss.limit == limit,
        };
        let loss = steady_loss(&self.loads).filter(is_alike);
        loss.or_else(|| loss_of_all(&self.loads).filter(is_alike)).filter(|_| carried.is_none())
    }

    /// The load that tells most: the one at the knee, else the last one; of a search whose loads all lost the same part, the largest.
    pub(crate) fn telling(&self) -> Option<&Summary> {
        if self.knee.as_ref().is_some_and(Found::is_of_any_load) {
            return self.loads.iter().max_by_key(|load| load.counts.sent);
        }
        let carried = self.knee.as_ref().and_then(|knee| knee.carried);
        let at_knee = self.loads.iter().rev().find(|load| Some(load.offered) == carried);
        at_knee.or(self.loads.last())
    }
}

#[cfg(test)]
mod tests {
    use gun::Tally;

    use super::*;

    /// A report of a load of DNS of which this was counted.
    fn report(counts: Counts) -> Report {
        let mut load = Tally::new(clock::Instant::ZERO).summary(0, clock::Duration::from_secs(1), 0);
        load.counts = counts;
        Report { kind: "gun dns".to_owned(), ports: 64, loads: vec![load], ..Report::default() }
    }

    #[test]
    fn answers_that_do_not_match_are_told_of_all_though_a_sample_was_compared() {
        let counts = Counts { answered: 9_961, mismatched: 39, compared: 156, ..Counts::default() };
        let expected = "39 of the 156 answers that were compared are to another question than was asked: about 2500 of all 10000";
        assert_eq!(report(counts).wrong_answers(), [expected]);
        assert_eq!(report(Counts { answered: 5, ..Counts::default() }).wrong_answers(), [""; 0]);
    }

    #[test]
    fn answers_that_are_none_are_told() {
        assert_eq!(report(Counts { sent: 1000, foreign: 1, ..Counts::default() }).wrong_answers(), [""; 0]);
        let foreign = "20 datagrams came from another address or port, or with an ID that no question had";
        assert_eq!(
            report(Counts { sent: 1000, foreign: 20, ..Counts::default() }).wrong_answers(),
            [foreign]
        );
        let mut report = report(Counts { malformed: 3, ..Counts::default() });
        report.loads[0].faults.insert("answers that are not in the protocol".to_owned(), 2);
        let expected = ["3 answers are malformed", "2 answers that are not in the protocol"];
        assert_eq!(report.wrong_answers(), expected);
    }

    #[test]
    fn a_knee_says_what_keeps_it_there() {
        let mut report = report(Counts { sent: 50, answered: 50, unreached: 950, ..Counts::default() });
        (report.transport, report.pipeline) = (Some("tcp".to_owned()), Some(16));
        report.loads[0].offered = 1000;
        report.loads[0].bottleneck = Some("it sent 5 % of what it was to send".to_owned());
        let said = |limit| why(limit, None, &report);
        assert_eq!(
            said(Limit::Generator),
            "what limits it is the generator: it sent 5 % of what it was to send"
        );
        assert_eq!(
            said(Limit::Connections),
            "the 64 connections with 16 questions each are all busy: the server is too slow for so few, or for any"
        );
        let mut knee = Knee::search(1000, 1.05);
        knee.stop();
        let found = Found::of(&knee, &report).text(report.words());
        assert_eq!(found, "none: no load was carried; the search was stopped");
    }
}
