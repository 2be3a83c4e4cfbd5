//! What it costs to choose a local port whose answers come by a queue of ours, for 1 to 64 queues of which one is ours.
//!
//! `source_ports` prints nanoseconds a choice, each for another peer: from the table, which all peers share, and by the search that a program begins with;
//! and what it takes to make the table.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;

use bench::report::median;
use steering::rss::{IndirectionTable, MICROSOFT_KEY};
use steering::{Found, LocalPorts, SourcePorts, Spread};

const QUEUES: [u16; 4] = [1, 2, 8, 64];
const LOCAL_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const LOCAL_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
/// Choices that are measured together, and how often.
const CHOICES: u32 = 1_000_000;
const ROUNDS: usize = 5;
/// Fresh choosers, each of which searches.
const CHOOSERS: usize = 2000;
const SEARCHES: u32 = 8;

fn main() {
    println!("# Local ports that come home: nanoseconds a choice (median of {ROUNDS})\n");
    println!("| queues | table, IPv4 | table, IPv6 | search, IPv4 | the table is made in |");
    println!("| --- | --- | --- | --- | --- |");
    for queues in QUEUES {
        let median =
            |measure: &dyn Fn() -> f64| median(&mut (0..ROUNDS).map(|_| measure()).collect::<Vec<_>>());
        let (v4, v6) = (median(&|| by_table(queues, LOCAL_V4)), median(&|| by_table(queues, LOCAL_V6)));
        let search = median(&|| by_search(queues));
        let made = median(&|| making(queues)) / 1000.0;
        println!("| {queues} | {v4:.1} | {v6:.1} | {search:.1} | {made:.0} us |");
    }
}

fn by_table(queues: u16, local: IpAddr) -> f64 {
    let (mut ports, mut random) = (ports(queues), numbers());
    let mut choose = |number| ports.choose(peer(local, number), local, &mut random);
    while choose(0).is_some_and(|(_, found)| found != Found::Table) {}
    let start = Instant::now();
    for number in 0..CHOICES {
        black_box(choose(number));
    }
    start.elapsed().as_nanos() as f64 / f64::from(CHOICES)
}

fn by_search(queues: u16) -> f64 {
    let mut random = numbers();
    let mut choosers: Vec<SourcePorts> = (0..CHOOSERS).map(|_| ports(queues)).collect();
    // The first of each makes what the others look up.
    for ports in &mut choosers {
        let _ = ports.choose(peer(LOCAL_V4, 0), LOCAL_V4, &mut random);
    }
    let start = Instant::now();
    for ports in &mut choosers {
        for number in 0..SEARCHES {
            black_box(ports.choose(peer(LOCAL_V4, number), LOCAL_V4, &mut random));
        }
    }
    start.elapsed().as_nanos() as f64 / f64::from(CHOOSERS as u32 * SEARCHES)
}

/// Of the choices up to the first one from the table the last one.
fn making(queues: u16) -> f64 {
    let (mut ports, mut random) = (ports(queues), numbers());
    loop {
        let start = Instant::now();
        let chosen = ports.choose(peer(LOCAL_V4, 0), LOCAL_V4, &mut random);
        if chosen.is_none_or(|(_, found)| found == Found::Table) {
            return start.elapsed().as_nanos() as f64;
        }
    }
}

fn ports(queues: u16) -> SourcePorts {
    let table = IndirectionTable::even(queues);
    let is_home = table.entries().iter().map(|queue| *queue == queues - 1).collect();
    let spread = Spread { key: MICROSOFT_KEY.to_vec(), is_home, hashes_ports: true };
    SourcePorts::new(spread, LocalPorts::new(32_768..=60_999, &[]))
        .expect("a key and a table as devices have them")
}

fn peer(local: IpAddr, number: u32) -> SocketAddr {
    let ip = match local {
        IpAddr::V4(_) => Ipv4Addr::from(0x0a00_0000 | number & 0xff_ffff).into(),
        IpAddr::V6(_) => Ipv6Addr::from(0x2001_0db8 << 96 | u128::from(number)).into(),
    };
    SocketAddr::new(ip, 443)
}

fn numbers() -> impl FnMut() -> u64 {
    let mut state = 1u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}
