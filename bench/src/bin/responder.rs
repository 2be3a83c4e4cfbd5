//! The responder alone, on one core: answers a second, and instructions an answer under callgrind.
//!
//! Usage: `responder [NAMES [ANSWERS]]`   (without arguments: 10 000 and 1 000 000 names, medians of five)
//!        `responder changed NAMES ANSWERS`   (of these names 999 were changed, each in a version of its own)
//!        `responder denials LABELS [ANSWERS]`   (names that are not there, of so many labels, among 10 000)
//!
//! Each query is copied into a buffer as a device would leave it there, then answered in place, in batches of 64.

use std::sync::Arc;
use std::time::Instant;

use bench::load::{denials, queries, with_another_address, zone};
use bench::record::{Figure, Run};
use bench::report::median;
use dns_auth::{Catalog, Counters, Outcome, Prepared, Responder, Settings, Transport};
use lab::Conditions;

const BATCH: usize = 64;
/// Room for a query of a name that is there, and for any query.
const SHORT: usize = 64;
const LONG: usize = 12 + 255 + 4;

fn main() {
    let first = std::env::args().nth(1);
    let denials = first.as_ref().is_some_and(|word| word == "denials");
    let changed = first.as_ref().is_some_and(|word| word == "changed");
    let arguments: Vec<usize> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    match arguments[..] {
        [labels] if denials => table_of_denials(labels),
        [labels, answers] if denials => {
            let rate = Bench::<LONG>::of_denials(labels).run(answers);
            println!("{labels} labels, {answers} answers: {:.2} million a second", rate / 1e6);
        }
        [names, answers] => {
            let mut bench = Bench::<SHORT>::of_addresses(names, false);
            if changed {
                bench.change(names);
            }
            let rate = bench.run(answers);
            println!("{names} names, {answers} answers: {:.1} million a second", rate / 1e6);
        }
        [names] => table(&[names]),
        _ => table(&[10_000, 1_000_000]),
    }
}

/// The unit of all figures.
const UNIT: &str = "million answers/s";

fn table(sizes: &[usize]) {
    let offered = "random names, type A, in batches of 64";
    let conditions = Conditions::here("make bench FIGURES=responder", "none", offered);
    println!("# The responder alone, on one core\n\n{conditions}\n");
    let mut figures = Vec::new();
    for &names in sizes {
        for edns in [false, true] {
            let with = if edns { "with EDNS" } else { "without EDNS" };
            let rates = rates(Bench::<SHORT>::of_addresses(names, edns), 1 << 23);
            println!("{names} names, {with}: {:.1} {UNIT}", median(&mut rates.clone()));
            figures.extend(Figure::of(&format!("{names} names, {with}"), "responder", UNIT, &rates));
        }
    }
    let run = Run { name: "responder", conditions: &conditions, figures, against: &[] };
    run.keep().expect("the page of figures");
}

fn table_of_denials(labels: usize) {
    let offered = "names that are not there, type A, in batches of 64";
    println!("{}\n", Conditions::here(&format!("responder denials {labels}"), "none", offered));
    println!("{labels} labels: {:.2} {UNIT}", median(&mut rates(Bench::<LONG>::of_denials(labels), 1 << 21)));
}

/// Five runs of `count` answers each, in millions a second.
fn rates<const LEN: usize>(mut bench: Bench<LEN>, count: usize) -> Vec<f64> {
    bench.run(count / 8);
    (0..5).map(|_| bench.run(count) / 1e6).collect()
}

/// Queries of up to `LEN` octets, and who answers them.
struct Bench<const LEN: usize> {
    catalog: Catalog,
    responder: Responder,
    /// One behind the other, as a card leaves them.
    queries: Vec<[u8; LEN]>,
    query_len: Vec<u16>,
    buffers: Vec<[u8; 512]>,
    prepared: Vec<Prepared>,
}

impl<const LEN: usize> Bench<LEN> {
    fn of_addresses(names: usize, edns: bool) -> Bench<LEN> {
        Bench::new(names, &queries((1 << 20).min(names * 16), names, edns, 42))
    }

    fn of_denials(labels: usize) -> Bench<LEN> {
        Bench::new(10_000, &denials(1 << 16, labels, 42))
    }

    fn new(names: usize, queries: &[Vec<u8>]) -> Bench<LEN> {
        let padded = |query: &Vec<u8>| {
            let mut padded = [0; LEN];
            padded[..query.len()].copy_from_slice(query);
            padded
        };
        Bench {
            query_len: queries.iter().map(|query| query.len() as u16).collect(),
            queries: queries.iter().map(padded).collect(),
            catalog: Catalog::new([Arc::new(zone(names))], 7),
            responder: Responder::new(Arc::new(Settings::default()), Arc::new(Counters::default())),
            buffers: vec![[0; 512]; BATCH],
            prepared: vec![Prepared::default(); BATCH],
        }
    }

    /// Changes names all over the zone.
    fn change(&mut self, names: usize) {
        const CHANGES: usize = 999; // Fewer than make a zone be built anew.
        let mut served = Arc::clone(&self.catalog.zones()[0]);
        for number in 0..CHANGES {
            served = Arc::new(with_another_address(&served, number * (names / CHANGES)));
        }
        self.catalog = Catalog::new([served], 7);
    }

    /// Answers `count` queries, rounded down to batches; returns answers a second.
    fn run(&mut self, count: usize) -> f64 {
        let start = Instant::now();
        let mut next = 0;
        let mut answered = 0;
        for _ in 0..count / BATCH {
            for (buffer, prepared) in self.buffers.iter_mut().zip(&mut self.prepared) {
                let len = usize::from(self.query_len[next]);
                buffer[..LEN].copy_from_slice(&self.queries[next]);
                next = if next + 1 == self.queries.len() { 0 } else { next + 1 };
                self.responder.prepare(&self.catalog, buffer, len, prepared);
            }
            for prepared in &mut self.prepared {
                self.responder.fetch(&self.catalog, prepared);
            }
            for (buffer, prepared) in self.buffers.iter_mut().zip(&self.prepared) {
                let client = || [192, 0, 2, 1].into();
                let outcome =
                    self.responder.complete(&self.catalog, prepared, buffer, Transport::Udp, client);
                answered += usize::from(matches!(outcome, Outcome::Reply(len) if len > 40));
            }
        }
        assert_eq!(answered, count / BATCH * BATCH, "every query is answered with a record");
        count as f64 / start.elapsed().as_secs_f64()
    }
}
