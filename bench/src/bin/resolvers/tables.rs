//! What was found, as figures: a row for each, a column for each resolver.

use std::time::Duration;

use lab::markdown_table;

use crate::clients::{Asked, Outcome};
use crate::peers::Peer;
use crate::script::{Phase, Question};
use crate::servers::Arrival;
use crate::zones::{self, SERVERS, SLOW, ZONES};

/// A second in which at most this share of a resolver's queries goes to servers shows that it has left them.
const LEFT: f64 = 0.1;
/// A second in which at least this share goes to servers shows that it has come to them.
const FOLLOWED: f64 = 0.5;

/// What one resolver did.
pub(crate) struct Found {
    pub(crate) peer: Peer,
    pub(crate) asked: Vec<Asked>,
    pub(crate) arrivals: Vec<Arrival>,
    pub(crate) outage: u64,
}

/// A figure's name, its unit, and how it is had; `None` where nothing can be said.
type Row = (&'static str, &'static str, fn(&Found) -> Option<f64>);

/// A group of figures.
pub(crate) type Group = (&'static str, &'static [Row]);

/// All figures.
pub(crate) const GROUPS: &[Group] = &[
    (
        "All is well: names that nobody knows yet",
        &[
            ("right answers", "%", |found| found.share(Phase::Healthy, new, Outcome::Right)),
            ("mean", "ms", |found| found.mean(Phase::Healthy, 0, 40)),
            ("p50", "ms", |found| found.quantile(Phase::Healthy, 0, 40, 0.5)),
            ("p95", "ms", |found| found.quantile(Phase::Healthy, 0, 40, 0.95)),
            ("p99", "ms", |found| found.quantile(Phase::Healthy, 0, 40, 0.99)),
            ("queries to servers for each question", "", |found| found.cost(Phase::Healthy)),
            ("of those to the twenty zones: to the server at 5 ms", "%", |found| {
                found.to_server(Phase::Healthy, 0)
            }),
            ("at 12 ms", "%", |found| found.to_server(Phase::Healthy, 1)),
            ("at 60 ms", "%", |found| found.to_server(Phase::Healthy, 2)),
            ("at 180 ms", "%", |found| found.to_server(Phase::Healthy, 3)),
        ],
    ),
    (
        "The nearest server of every zone dies",
        &[
            ("right answers", "%", |found| found.share(Phase::Dead, new, Outcome::Right)),
            ("first 10 s: mean", "ms", |found| found.mean(Phase::Dead, 0, 10)),
            ("p99", "ms", |found| found.quantile(Phase::Dead, 0, 10, 0.99)),
            ("worst", "ms", |found| found.quantile(Phase::Dead, 0, 10, 1.0)),
            ("after 20 s: mean", "ms", |found| found.mean(Phase::Dead, 20, 40)),
            ("p99", "ms", |found| found.quantile(Phase::Dead, 20, 40, 0.99)),
            ("it gets more than 10 % of a second's queries for addresses, for", "s", Found::left_after),
            ("queries to it, after the first 10 s", "", |found| Some(found.to_dead(10, |_| true))),
            ("of those, for addresses", "", |found| {
                Some(found.to_dead(10, |arrival| arrival.is_for_address))
            }),
        ],
    ),
    (
        "It is back",
        &[
            ("it gets half of a second's queries for addresses, after", "s", |found| {
                found.followed_after(Phase::Back)
            }),
            ("after 10 s: mean", "ms", |found| found.mean(Phase::Back, 10, 20)),
        ],
    ),
    (
        "The nearest and the farthest server change places",
        &[
            ("right answers", "%", |found| found.share(Phase::Swapped, new, Outcome::Right)),
            ("first 10 s: mean", "ms", |found| found.mean(Phase::Swapped, 0, 10)),
            ("p99", "ms", |found| found.quantile(Phase::Swapped, 0, 10, 0.99)),
            ("the new nearest gets half of a second's queries for addresses, after", "s", |found| {
                found.followed_after(Phase::Swapped)
            }),
            ("after 20 s: mean", "ms", |found| found.mean(Phase::Swapped, 20, 30)),
        ],
    ),
    (
        "Expired data",
        &[
            ("from a server that takes 600 ms, and answers", "%", |found| found.slow_share(Outcome::Expired)),
            ("in an outage of all servers of all zones: expired answers", "%", |found| {
                found.share(Phase::Outage, late, Outcome::Expired)
            }),
            ("failures", "%", |found| found.share(Phase::Outage, late, Outcome::Failed)),
            ("nothing", "%", |found| found.share(Phase::Outage, late, Outcome::Nothing)),
            ("median time to an expired answer", "ms", |found| found.expired_quantile(0.5)),
            ("p99", "ms", |found| found.expired_quantile(0.99)),
            ("queries to servers for each question", "", |found| found.cost(Phase::Outage)),
            ("after its end: last answer that is not fresh", "s", Found::recovered_after),
        ],
    ),
];

/// Prints the groups, a table each.
pub(crate) fn print(found: &[Found]) {
    for (title, rows) in GROUPS {
        let names: Vec<&str> = found.iter().map(|one| one.peer.name()).collect();
        let head = [&["", "unit"][..], &names].concat();
        let row = |(name, unit, value): &Row| {
            let shown = found.iter().map(|one| value(one).map_or_else(|| "-".to_owned(), show));
            [(*name).to_owned(), (*unit).to_owned()].into_iter().chain(shown).collect()
        };
        println!("## {title}\n\n{}", markdown_table(&head, &rows.iter().map(row).collect::<Vec<_>>()));
    }
}

fn show(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// Questions for names that nobody knows yet.
fn new(asked: &Asked) -> bool {
    matches!(asked.question, Question::New { .. })
}

/// Questions asked when what the resolver knows of the name has expired.
fn late(asked: &Asked) -> bool {
    matches!(asked.question, Question::Clock { zone, .. } if zone != SLOW)
}

impl Found {
    fn during(&self, phase: Phase, from: u64, to: u64) -> impl Iterator<Item = &Asked> {
        let start = phase.start(self.outage);
        let span = start + Duration::from_secs(from)..start + Duration::from_secs(to);
        self.asked.iter().filter(move |asked| asked.phase == phase && span.contains(&asked.at))
    }

    fn whole(&self, phase: Phase) -> impl Iterator<Item = &Asked> {
        self.during(phase, 0, phase.length(self.outage).as_secs())
    }

    fn share(&self, phase: Phase, which: fn(&Asked) -> bool, outcome: Outcome) -> Option<f64> {
        percent(self.whole(phase).filter(|asked| which(asked)), |asked| asked.outcome == outcome)
    }

    /// Of the questions to the zone whose servers take 600 ms.
    fn slow_share(&self, outcome: Outcome) -> Option<f64> {
        let slow = |asked: &&Asked| matches!(asked.question, Question::Clock { zone: SLOW, .. });
        percent(self.asked.iter().filter(slow), |asked| asked.outcome == outcome)
    }

    /// Sorted times to an answer or, where none came, of the client's patience, in milliseconds.
    fn times(&self, phase: Phase, from: u64, to: u64) -> Vec<f64> {
        let times = self
            .during(phase, from, to)
            .filter(|asked| new(asked))
            .map(|asked| asked.took.as_secs_f64() * 1e3);
        sorted(times.collect())
    }

    fn mean(&self, phase: Phase, from: u64, to: u64) -> Option<f64> {
        let times = self.times(phase, from, to);
        (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)
    }

    fn quantile(&self, phase: Phase, from: u64, to: u64, part: f64) -> Option<f64> {
        quantile(&self.times(phase, from, to), part)
    }

    fn expired_quantile(&self, part: f64) -> Option<f64> {
        let expired = self.whole(Phase::Outage).filter(|asked| asked.outcome == Outcome::Expired);
        quantile(&sorted(expired.map(|asked| asked.took.as_secs_f64() * 1e3).collect()), part)
    }

    fn queries(&self, phase: Phase) -> impl Iterator<Item = &Arrival> {
        let start = phase.start(self.outage);
        let span = start..start + phase.length(self.outage);
        self.arrivals.iter().filter(move |arrival| span.contains(&arrival.at))
    }

    fn cost(&self, phase: Phase) -> Option<f64> {
        let questions = self.whole(phase).count();
        (questions > 0).then(|| self.queries(phase).count() as f64 / questions as f64)
    }

    fn to_server(&self, phase: Phase, server: usize) -> Option<f64> {
        percent(self.queries(phase).filter(|arrival| rank(arrival).is_some()), |arrival| {
            rank(arrival) == Some(server)
        })
    }

    /// For each second of a phase: the share of queries to the zones, for addresses, that went to that server.
    fn shares(&self, phase: Phase, server: usize) -> Vec<f64> {
        let start = phase.start(self.outage);
        let seconds = phase.length(self.outage).as_secs() as usize;
        let mut counts = vec![(0, 0); seconds];
        for arrival in self.queries(phase) {
            let Some(rank) = rank(arrival).filter(|_| arrival.is_for_address) else { continue };
            let (own, all) = &mut counts[(arrival.at - start).as_secs() as usize];
            *all += 1;
            *own += u32::from(rank == server);
        }
        counts.iter().map(|(own, all)| f64::from(*own) / f64::from((*all).max(1))).collect()
    }

    fn left_after(&self) -> Option<f64> {
        let shares = self.shares(Phase::Dead, Phase::Healthy.best());
        Some(shares.iter().rposition(|share| *share > LEFT).map_or(0.0, |second| second as f64 + 1.0))
    }

    fn to_dead(&self, after: u64, which: fn(&Arrival) -> bool) -> f64 {
        let from = Phase::Dead.start(self.outage) + Duration::from_secs(after);
        let dead = |arrival: &&Arrival| rank(arrival) == Some(Phase::Healthy.best()) && arrival.at >= from;
        self.queries(Phase::Dead).filter(dead).filter(|arrival| which(arrival)).count() as f64
    }

    fn followed_after(&self, phase: Phase) -> Option<f64> {
        let shares = self.shares(phase, phase.best());
        shares.iter().position(|share| *share >= FOLLOWED).map(|second| second as f64 + 1.0)
    }

    fn recovered_after(&self) -> Option<f64> {
        let start = Phase::Recovered.start(self.outage);
        let late = self.whole(Phase::Recovered).filter(|asked| asked.outcome != Outcome::Right);
        Some(late.last().map_or(0.0, |asked| (asked.at - start).as_secs_f64()))
    }
}

/// Which server of its zone it is, if it is one of the twenty zones.
fn rank(arrival: &Arrival) -> Option<usize> {
    let [.., zone, server] = arrival.server.octets();
    let first = zones::leaf_server(0, 0).octets()[2];
    let zone = usize::from(zone.checked_sub(first)?);
    (zone < ZONES && usize::from(server) <= SERVERS).then(|| usize::from(server) - 1)
}

fn percent<T>(all: impl Iterator<Item = T>, which: impl Fn(&T) -> bool) -> Option<f64> {
    let (mut own, mut count) = (0_u32, 0_u32);
    for one in all {
        count += 1;
        own += u32::from(which(&one));
    }
    (count > 0).then(|| 100.0 * f64::from(own) / f64::from(count))
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    Some(sorted[(last as f64 * part).round() as usize])
}
