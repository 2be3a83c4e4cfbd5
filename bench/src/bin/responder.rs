//! The responder alone, on one core: answers a second, and instructions an answer under callgrind.
//!
//! Usage: `responder [NAMES [ANSWERS]]`   (without arguments: 10 000 and 1 000 000 names, medians of five)
//!        `responder changed NAMES ANSWERS`   (of these names 999 were changed, each in a version of its own)
//!        `responder lines|networks NAMES ANSWERS PREFIXES`   (each name has another address for one of two lines; clients are chosen at random,
//!        and show their address, or their network as EDNS client subnet)
//!        `responder plain-networks NAMES ANSWERS PREFIXES`   (the same queries of networks, in a zone without lines)
//!        `responder prefixes COUNT`   (look-ups in a table of so many prefixes alone)
//!        `responder engine NAMES ANSWERS`   (from frame to frame, by the engine between two devices in memory)
//!        `responder denials LABELS [ANSWERS]`   (names that are not there, of so many labels, among 10 000)
//!        `responder signed-denials [ANSWERS]`   (such names of three labels, in a zone with NSEC records, with DO)
//!
//! Each query is copied into a buffer as a device would leave it there, then answered in place, in batches of 64.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use bench::load::{
    Random, denials, lines, queries, query, with_another_address, zone, zone_with_a_line, zone_with_denials,
};
use bench::record::{Figure, Run};
use bench::report::median;
use device::{BURST, Burst, Device, memory};
use dns_auth::{Catalog, Counters, Outcome, Prepared, Responder, Settings, Transport};
use dns_server::{DnsResponder, Published};
use engine::{DeviceId, Engine, Role};
use lab::Conditions;
use wire::{Endpoints, Envelope, write_udp};

const BATCH: usize = BURST;
/// Room for a query of a name that is there, and for any query.
const SHORT: usize = 64;
const WITH_NETWORK: usize = 80;
const LONG: usize = 12 + 255 + 4;

fn main() {
    let first = std::env::args().nth(1);
    let denials = first.as_ref().is_some_and(|word| word == "denials");
    let changed = first.as_ref().is_some_and(|word| word == "changed");
    let arguments: Vec<usize> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let word = first.as_deref().unwrap_or_default();
    match arguments[..] {
        [count] if word == "prefixes" => look_up(count),
        [names, answers, prefixes] if ["lines", "networks", "plain-networks"].contains(&word) => {
            let rate = of_lines(names, word, prefixes).run(answers);
            println!("{names} names, {prefixes} prefixes, {word}: {:.1} million a second", rate / 1e6);
        }
        [answers] if word == "signed-denials" => {
            let rate = of_signed_denials().run(answers);
            println!("{answers} signed denials: {:.2} million a second", rate / 1e6);
        }
        [labels] if denials => table_of_denials(labels),
        [labels, answers] if denials => {
            let rate = Bench::<LONG>::of_denials(labels).run(answers);
            println!("{labels} labels, {answers} answers: {:.2} million a second", rate / 1e6);
        }
        [names, answers] if word == "engine" => {
            let rate = through_engine(names, answers);
            println!("{names} names, {answers} answers by the engine: {:.1} million a second", rate / 1e6);
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

fn of_signed_denials() -> Bench<SHORT> {
    const NAMES: usize = 10_000;
    let mut random = Random(42);
    let mut query = || {
        let qname = format!("{:x}", random.number() & 0xffff_ffff_ffff);
        let qname = [&[qname.len() as u8], qname.as_bytes(), b"\x07example\x03com\0"].concat();
        let mut query = query(&qname, true);
        let flags = query.len() - 4;
        query[flags] = 0x80; // DO.
        query
    };
    let queries: Vec<Vec<u8>> = (0..1 << 16).map(|_| query()).collect();
    let mut bench = Bench::<SHORT>::new(1, &queries);
    bench.catalog = Catalog::new([Arc::new(zone_with_denials(NAMES))], 7);
    bench
}

fn of_lines(names: usize, word: &str, prefixes: usize) -> Bench<WITH_NETWORK> {
    let mut bench =
        Bench::<WITH_NETWORK>::new(names, &queries((1 << 20).min(names * 16), names, word != "lines", 42));
    let mut random = Random(9);
    bench.clients = (0..1 << 16).map(|_| (random.number() as u32).to_be_bytes()).collect();
    if word != "lines" {
        for (number, (query, len)) in bench.queries.iter_mut().zip(&mut bench.query_len).enumerate() {
            let [a, b, c, _] = bench.clients[number % (1 << 16)];
            let end = usize::from(*len);
            query[end - 1] = 11; // Octets of options.
            query[end..end + 11].copy_from_slice(&[0, 8, 0, 7, 0, 1, 24, 0, a, b, c]);
            *len += 11;
        }
    }
    let zone = if word == "plain-networks" { zone(names) } else { zone_with_a_line(names) };
    bench.catalog = Catalog::new([Arc::new(zone)], 7).by_lines(&Arc::new(lines(prefixes)));
    bench
}

/// Answers a second of an engine that takes frames from a device in memory and gives them back to it.
fn through_engine(names: usize, count: usize) -> f64 {
    let published = Published {
        catalog: Arc::new(Catalog::new([Arc::new(zone(names))], 7)),
        settings: Arc::default(),
        transfers: Arc::default(),
        guard: None,
        log: None,
    };
    let responder = DnsResponder::new(&Arc::new(ArcSwap::from_pointee(published)), Arc::default());
    let (mut left, mut right) = memory::pair(&memory::Config::default());
    let config = engine::Config { never_sleep: true, ..engine::Config::default() };
    let (mut engine, handle) = Engine::new(config, responder).expect("descriptors for an engine");
    handle.add_device(DeviceId(0), Role::Primary, Box::new(right.remove(0)));
    let packets: Vec<Vec<u8>> =
        queries(1 << 16, names, false, 42).iter().map(|query| packet(query)).collect();
    let (device, now) = (&mut left[0], clock::Instant::ZERO);
    let (start, mut next, mut answered) = (Instant::now(), packets.iter().cycle(), 0);
    for _ in 0..count / BATCH {
        let mut burst = Burst::new();
        for packet in next.by_ref().take(BATCH) {
            let mut frame = device.alloc().expect("all frames came back");
            frame.copy_from(packet);
            burst.push(frame);
        }
        device.tx_burst(&mut burst, now);
        engine.step(now);
        let mut received = Burst::new();
        answered += device.rx_burst(&mut received, now);
        received.into_iter().for_each(|frame| device.release(frame));
    }
    assert_eq!(answered, count / BATCH * BATCH, "every query is answered");
    count as f64 / start.elapsed().as_secs_f64()
}

/// The frame that brings a query.
fn packet(query: &[u8]) -> Vec<u8> {
    let [client, server] = [([192, 0, 2, 2], 4000), ([192, 0, 2, 1], 53)].map(SocketAddr::from);
    let endpoints = Endpoints::new(client, server).expect("both are of IPv4");
    let mut frame = vec![0; 600];
    let len = write_udp(&mut frame, &Envelope::untagged(endpoints), query).expect("it has room");
    frame.truncate(len);
    frame
}

/// Look-ups a second, each for another address.
fn look_up(count: usize) {
    const LOOK_UPS: u32 = 1 << 24;
    let start = Instant::now();
    let lines = lines(count);
    println!(
        "{count} prefixes: {} KiB, made in {:.2} s",
        lines.memory() >> 10,
        start.elapsed().as_secs_f64()
    );
    let (start, mut random, mut sum) = (Instant::now(), Random(3), 0);
    for _ in 0..LOOK_UPS {
        let address = std::net::Ipv4Addr::from_bits(random.number() as u32);
        sum += u64::from(lines.find(address.into()).length);
    }
    let each = start.elapsed().as_secs_f64() * 1e9 / f64::from(LOOK_UPS);
    println!(
        "{each:.1} ns a look-up of a random address, {:.1} bits on average",
        sum as f64 / f64::from(LOOK_UPS)
    );
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
    /// Who asks, one after the other.
    clients: Vec<[u8; 4]>,
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
            clients: vec![[192, 0, 2, 1]],
            buffers: vec![[0; 512]; BATCH],
            prepared: vec![Prepared::default(); BATCH],
        }
    }

    /// Changes names all over the zone.
    fn change(&mut self, names: usize) {
        const CHANGES: usize = 999; // Fewer than make a zone be built anew.
        let mut served = Arc::clone(self.catalog.zones().next().expect("it has a zone"));
        for number in 0..CHANGES {
            served = Arc::new(with_another_address(&served, number * (names / CHANGES)));
        }
        self.catalog = Catalog::new([served], 7);
    }

    /// Answers `count` queries, rounded down to batches; returns answers a second.
    fn run(&mut self, count: usize) -> f64 {
        let start = Instant::now();
        let mut next = 0;
        let (mut answered, mut client) = (0, 0);
        for _ in 0..count / BATCH {
            for (buffer, prepared) in self.buffers.iter_mut().zip(&mut self.prepared) {
                let len = usize::from(self.query_len[next]);
                buffer[..LEN].copy_from_slice(&self.queries[next]);
                next = if next + 1 == self.queries.len() { 0 } else { next + 1 };
                self.responder.prepare(&self.catalog, buffer, len, prepared);
            }
            for (place, (prepared, buffer)) in self.prepared.iter_mut().zip(&self.buffers).enumerate() {
                let client = || self.clients[(client + 1 + place) & (self.clients.len() - 1)].into();
                self.responder.fetch(&self.catalog, prepared, buffer, client);
            }
            for (buffer, prepared) in self.buffers.iter_mut().zip(&self.prepared) {
                client = (client + 1) & (self.clients.len() - 1);
                let client = || self.clients[client].into();
                let outcome =
                    self.responder.complete(&self.catalog, prepared, buffer, Transport::Udp, client);
                answered += usize::from(matches!(outcome, Outcome::Reply(len) if len > 40));
            }
        }
        assert_eq!(answered, count / BATCH * BATCH, "every query is answered with a record");
        count as f64 / start.elapsed().as_secs_f64()
    }
}
