use std::collections::BTreeSet;

use super::*;
use crate::rss::{IndirectionTable, MICROSOFT_KEY};

/// More choices than make the table.
const CHOICES: u32 = 4 * SEARCHES;

const PEERS: [(&str, &str); 3] = [
    ("192.0.2.1", "198.51.100.7:443"),
    ("10.0.0.1", "10.0.0.2:80"),
    ("2001:db8::1", "[2001:db8:ff::7:1]:8080"),
];

/// A generator of numbers, always the same.
fn numbers() -> impl FnMut() -> u64 {
    let mut state = 1u64;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

fn all_ports() -> LocalPorts {
    LocalPorts::new(0..=u16::MAX, &[])
}

fn key(seed: usize) -> Vec<u8> {
    let mut number = numbers();
    for _ in 0..seed {
        number();
    }
    (0..52).map(|_| number() as u8).collect()
}

fn spread(key: &[u8], table: &[u16], ours: &[u16]) -> Spread {
    let table = IndirectionTable::new(table).unwrap();
    let is_home = table.entries().iter().map(|queue| ours.contains(queue)).collect();
    Spread { key: key.to_vec(), is_home, hashes_ports: true }
}

fn ends(peer: (&str, &str)) -> (IpAddr, SocketAddr) {
    (peer.0.parse().unwrap(), peer.1.parse().unwrap())
}

/// The queue of an answer, by the definition of the function, bit by bit: for each bit of the packet's fields that is set, the leftmost 32 bits of the
/// key, which moves to the left by one bit with each.
fn queue_of_answer(
    key: &[u8],
    table: &[u16],
    remote: SocketAddr,
    local: SocketAddr,
    hashes_ports: bool,
) -> u16 {
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let mut fields = [octets(remote.ip()), octets(local.ip())].concat();
    if hashes_ports {
        fields.extend([remote.port().to_be_bytes(), local.port().to_be_bytes()].concat());
    }
    let bit_of_key = |at: usize| u32::from(key[at / 8] >> (7 - at % 8) & 1);
    let mut window = (0..32).fold(0u32, |window, at| window << 1 | bit_of_key(at));
    let mut hash = 0;
    for at in 0..8 * fields.len() {
        if fields[at / 8] >> (7 - at % 8) & 1 == 1 {
            hash ^= window;
        }
        window = window << 1 | if at + 32 < 8 * key.len() { bit_of_key(at + 32) } else { 0 };
    }
    table[hash as usize % table.len()]
}

/// The ports that are given while all 65 536 are to be had, by so many choices.
fn given(ports: &mut SourcePorts, (local, remote): (IpAddr, SocketAddr), choices: u32) -> BTreeSet<u16> {
    let mut random = numbers();
    (0..choices).filter_map(|_| ports.choose(remote, local, &mut random)).map(|(port, _)| port).collect()
}

#[test]
fn of_all_ports_those_come_home_whose_answers_the_definition_puts_into_our_queues() {
    for (seed, peer) in PEERS.into_iter().enumerate() {
        let (local, remote) = ends(peer);
        let (key, table) = (key(seed), IndirectionTable::even(8));
        let ports = SourcePorts::new(spread(&key, table.entries(), &[1, 6]), all_ports()).unwrap();
        for port in 0..=u16::MAX {
            let local = SocketAddr::new(local, port);
            let queue = queue_of_answer(&key, table.entries(), remote, local, true);
            assert_eq!(ports.comes_home(remote, local), [1, 6].contains(&queue), "{local} from {remote}");
        }
    }
}

#[test]
fn each_port_of_the_table_comes_home_and_none_that_does_is_missing() {
    for peer in PEERS {
        let (local, remote) = ends(peer);
        let table = IndirectionTable::even(4);
        let mut ports = SourcePorts::new(spread(&MICROSOFT_KEY, table.entries(), &[2]), all_ports()).unwrap();
        given(&mut ports, (local, remote), SEARCHES + 1);
        let base = ports.toeplitz.hash_ports(remote, SocketAddr::new(local, 0)) as usize % 128;
        let filled = &ports.tables[usize::from(local.is_ipv4())];
        let told: BTreeSet<u16> =
            ports.homes.iter().flat_map(|home| filled.leading(base, *home)).copied().collect();
        let comes_home = |port: &u16| {
            let local = SocketAddr::new(local, *port);
            queue_of_answer(&MICROSOFT_KEY, table.entries(), remote, local, true) == 2
        };
        assert_eq!(told, (1..=u16::MAX).filter(comes_home).collect::<BTreeSet<u16>>(), "{peer:?}");
    }
}

#[test]
fn whatever_is_given_comes_home_on_one_to_64_queues_with_even_and_uneven_tables() {
    for (queues, len) in [(1, 128), (2, 128), (3, 64), (8, 512), (16, 16), (64, 2048)] {
        let even: Vec<u16> = (0..len).map(|entry| entry % queues).collect();
        // The first queue has half of all entries, the last one a single one.
        let uneven: Vec<u16> =
            (0..len).map(|entry| if entry < len / 2 { 0 } else { entry % queues }).collect();
        for (table, peer) in [&even, &uneven].into_iter().flat_map(|table| PEERS.map(|peer| (table, peer))) {
            let (ours, (local, remote)) = (queues - 1, ends(peer));
            let mut ports = SourcePorts::new(
                spread(&MICROSOFT_KEY, table, &[ours]),
                LocalPorts::new(32_768..=60_999, &[]),
            )
            .unwrap();
            let given = given(&mut ports, (local, remote), CHOICES);
            assert!(given.len() > CHOICES as usize / 2, "{queues} queues: {} ports", given.len());
            for port in given {
                let end = SocketAddr::new(local, port);
                let queue = queue_of_answer(&MICROSOFT_KEY, table, remote, end, true);
                assert_eq!(queue, ours, "{queues} queues, {end} from {remote}");
                assert!((32_768..=60_999).contains(&port));
            }
        }
    }
}

#[test]
fn the_first_ports_are_searched_and_the_others_are_in_the_table() {
    let mut ports =
        SourcePorts::new(spread(&MICROSOFT_KEY, IndirectionTable::even(2).entries(), &[0]), all_ports())
            .unwrap();
    let (mut random, (local, remote)) = (numbers(), ends(PEERS[0]));
    let found: Vec<Found> =
        (0..CHOICES).map(|_| ports.choose(remote, local, &mut random).unwrap().1).collect();
    let searched = SEARCHES as usize;
    assert!(found[..searched].iter().all(|found| *found == Found::Search));
    assert!(found[searched..].iter().all(|found| *found == Found::Table));
    assert_eq!(
        ports.choose(ends(PEERS[1]).1, local, &mut random).unwrap().1,
        Found::Table,
        "all peers have one"
    );
    assert_eq!(
        ports.choose(ends(PEERS[2]).1, ends(PEERS[2]).0, &mut random).unwrap().1,
        Found::Search,
        "but IPv6 another"
    );
}

#[test]
fn every_port_that_comes_home_is_given_with_about_the_same_chance() {
    let mut ports = SourcePorts::new(
        spread(&MICROSOFT_KEY, IndirectionTable::even(2).entries(), &[1]),
        LocalPorts::new(40_000..=40_199, &[]),
    )
    .unwrap();
    let (mut random, (local, remote)) = (numbers(), ends(PEERS[0]));
    let mut times = std::collections::BTreeMap::<u16, u32>::new();
    const EACH: u32 = 1000;
    let count = (40_000..40_200)
        .filter(|port| ports.comes_home(remote, SocketAddr::new(local, *port)))
        .count() as u32;
    for _ in 0..EACH * count {
        *times.entry(ports.choose(remote, local, &mut random).unwrap().0).or_default() += 1;
    }
    assert_eq!(times.len() as u32, count);
    // Six standard deviations.
    assert!(times.values().all(|times| times.abs_diff(EACH) < 190), "{times:?}");
}

#[test]
fn reserved_ports_are_not_given() {
    let reserved = [40_000..=40_049, 40_060..=40_099];
    let ports = LocalPorts::new(40_000..=40_099, &reserved);
    let mut ports = SourcePorts::new(spread(&MICROSOFT_KEY, &[0, 0], &[0]), ports).unwrap();
    assert_eq!(given(&mut ports, ends(PEERS[0]), 1000), (40_050..=40_059).collect());
}

#[test]
fn the_only_port_that_comes_home_is_found() {
    let (local, remote) = ends(PEERS[1]);
    let table: Vec<u16> = (0..128).map(|entry| u16::from(entry == 77)).collect();
    let all = SourcePorts::new(spread(&MICROSOFT_KEY, &table, &[1]), all_ports()).unwrap();
    let only = (32_768..=60_999).find(|port| all.comes_home(remote, SocketAddr::new(local, *port))).unwrap();
    let others = [32_768..=only - 1, only + 1..=60_999];
    let mut ports =
        SourcePorts::new(spread(&MICROSOFT_KEY, &table, &[1]), LocalPorts::new(32_768..=60_999, &others))
            .unwrap();
    assert_eq!(given(&mut ports, (local, remote), CHOICES), BTreeSet::from([only]));
}

#[test]
fn where_no_port_comes_home_none_is_given() {
    let (local, remote) = ends(PEERS[0]);
    let even = IndirectionTable::even(4);
    let mut never = SourcePorts::new(spread(&MICROSOFT_KEY, even.entries(), &[9]), all_ports()).unwrap();
    assert_eq!(given(&mut never, (local, remote), CHOICES), BTreeSet::new());
    // A key of which no bit is where the port is: all ports add nothing, and the addresses alone choose the queue.
    let mut key = MICROSOFT_KEY;
    key[9..].fill(0);
    let is_ours = |queue: u16| {
        let mut ports = SourcePorts::new(spread(&key, even.entries(), &[queue]), all_ports()).unwrap();
        let given = given(&mut ports, (local, remote), CHOICES);
        assert!(given.is_empty() || given.len() > CHOICES as usize / 2);
        !given.is_empty()
    };
    assert_eq!((0..4).filter(|queue| is_ours(*queue)).count(), 1);
    // The ports that would are reserved.
    let none = LocalPorts::new(1..=1000, &[1..=1000]);
    let mut reserved = SourcePorts::new(spread(&MICROSOFT_KEY, even.entries(), &[0]), none).unwrap();
    assert_eq!(given(&mut reserved, (local, remote), CHOICES), BTreeSet::new());
}

#[test]
fn where_only_addresses_are_hashed_all_ports_come_home_or_none_does() {
    for peer in PEERS {
        let (local, remote) = ends(peer);
        let even = IndirectionTable::even(4);
        let expected =
            queue_of_answer(&MICROSOFT_KEY, even.entries(), remote, SocketAddr::new(local, 1), false);
        for queue in 0..4 {
            let spread = Spread { hashes_ports: false, ..spread(&MICROSOFT_KEY, even.entries(), &[queue]) };
            let mut ports = SourcePorts::new(spread, all_ports()).unwrap();
            assert_eq!(ports.comes_home(remote, SocketAddr::new(local, 5)), queue == expected);
            assert_eq!(given(&mut ports, (local, remote), CHOICES).is_empty(), queue != expected);
        }
    }
}

#[test]
fn a_device_that_is_not_understood_gives_no_ports() {
    let good = spread(&MICROSOFT_KEY, &[0, 1], &[0]);
    let made = |spread| SourcePorts::new(spread, all_ports()).is_some();
    assert!(made(good.clone()));
    assert!(!made(Spread { key: MICROSOFT_KEY[..39].to_vec(), ..good.clone() }));
    assert!(!made(Spread { is_home: vec![true; 3], ..good.clone() }));
    assert!(!made(Spread { is_home: vec![true; 2 * ENTRIES_MAX], ..good.clone() }));
    assert!(!made(Spread { is_home: Vec::new(), ..good }));
}
