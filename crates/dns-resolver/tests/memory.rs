//! What the cache says that it takes, and what the process really takes.
//!
//! It is the only test of its program: others would take memory meanwhile.

use clock::{Duration, Instant};
use dns_resolver::{ClientId, Directed, DirectedKind, Options, Resolver, Transport, Zones};
use dns_wire::NameBuf;

const ENTRIES: u64 = 200_000;

fn query(number: u64) -> Vec<u8> {
    let label = format!("host{number:07}");
    let mut octets = b"\0\x01\x01\0\0\x01\0\0\0\0\0\0".to_vec();
    octets.push(label.len() as u8);
    octets.extend_from_slice(label.as_bytes());
    octets.extend_from_slice(b"\x07example\x03com\0\0\x01\0\x01");
    octets
}

/// The query with one address behind its question.
fn response(query: &[u8], number: u64) -> Vec<u8> {
    let name_len = query[12..].iter().position(|octet| *octet == 0).expect("the root ends a name") + 1;
    let mut octets = query[..12 + name_len + 4].to_vec(); // Without the OPT record.
    (octets[2], octets[3], octets[7], octets[11]) = (0x84, 0, 1, 0);
    octets.extend_from_slice(b"\xc0\x0c\0\x01\0\x01\0\x01\x51\x80\0\x04");
    octets.extend_from_slice(&(number as u32).to_be_bytes());
    octets
}

/// Octets of memory of this process (proc(5)).
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("this is Linux");
    let pages: usize = text.split_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a number");
    pages * 4096
}

#[test]
fn an_entry_takes_less_than_600_octets_and_no_more_than_the_cache_says() {
    let zone = NameBuf::root();
    let servers = vec!["192.0.2.1:53".parse().expect("an address")];
    let zones =
        Zones { directed: vec![Directed { zone, kind: DirectedKind::Forward, servers }], ..Zones::default() };
    let mut resolver = Resolver::new(Options::default(), zones, [1; 16], Instant::ZERO);
    let before = resident();
    let mut now = Instant::ZERO;
    for number in 0..ENTRIES {
        now += Duration::from_micros(100);
        resolver.on_query(ClientId(number), Transport::Udp, &query(number), now);
        while let Some(transmit) = resolver.poll_transmit() {
            let response = response(&transmit.octets, number);
            resolver.on_response(transmit.query, transmit.server, &response, now);
        }
        while resolver.poll_answer().is_some() || resolver.poll_closed().is_some() {}
    }
    let (entries, octets, evictions) = resolver.cache_usage();
    assert_eq!((entries as u64, evictions), (ENTRIES, 0));
    let (said, taken) = (octets / entries, (resident() - before) / entries);
    assert!(said < 600 && taken < 600, "an entry takes {taken} octets and the cache says {said}");
    assert!(taken < said * 3 / 2, "an entry takes {taken} octets and the cache says {said}");
    println!("an entry takes {taken} octets and the cache says {said}");
}
