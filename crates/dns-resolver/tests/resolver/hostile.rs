//! Anything may come from anywhere: nothing panics, nothing is left over, nothing grows.

use clock::{Duration, Instant};
use dns_resolver::{ClientId, Options, Random, Resolver, Transport, Trust, TrustAnchor, Zones};

use crate::rpl::message::{Message, name};

const SERVERS: [&str; 3] = ["192.0.2.1:53", "198.41.0.4:53", "[2001:db8::1]:53"];

/// Octets that are often nearly a message.
fn octets(random: &mut Random, around: &[u8]) -> Vec<u8> {
    let mut octets = around.to_vec();
    match random.below(4) {
        0 => octets.truncate(random.below(octets.len() as u64 + 1) as usize),
        1 => (0..random.below(40)).for_each(|_| octets.push(random.draw() as u8)),
        2 => octets = (0..random.below(80)).map(|_| random.draw() as u8).collect(),
        _ => {}
    }
    for _ in 0..random.below(6) {
        if !octets.is_empty() {
            let at = random.below(octets.len() as u64) as usize;
            octets[at] = if random.below(2) == 0 { 0xc0 } else { random.draw() as u8 };
        }
    }
    octets
}

#[test]
fn random_octets_from_clients_and_servers_leave_nothing_behind() {
    for seed in 1..6 {
        let mut random = Random::new([seed; 16]);
        let anchors = if seed % 2 == 0 { vec![TrustAnchor::root()] } else { Vec::new() };
        let zones = Zones { trust: Trust { anchors, negative: Vec::new() }, ..Zones::default() };
        let mut resolver = Resolver::new(Options::default(), zones, [seed; 16], Instant::ZERO);
        let mut now = Instant::ZERO;
        let question = Message {
            flags: vec!["RD".to_owned()],
            question: Some((name("www.example.com."), dns_wire::Rtype::A)),
            has_edns: true,
            ..Message::default()
        };
        let question = question.to_octets();
        for round in 0..20_000 {
            now += Duration::from_micros(random.below(20_000));
            let query = octets(&mut random, &question);
            resolver.on_query(ClientId(round), Transport::Udp, &query, now);
            while let Some(transmit) = resolver.poll_transmit() {
                let mut response = octets(&mut random, &transmit.octets);
                if let [id_high, id_low, flags, ..] = &mut response[..] {
                    (*id_high, *id_low, *flags) = (transmit.octets[0], transmit.octets[1], *flags | 0x80);
                }
                resolver.on_response(transmit.query, transmit.server, &response, now);
                let stranger = SERVERS[random.below(3) as usize].parse().expect("an address");
                resolver.on_response(transmit.query, stranger, &response, now);
                if random.below(20) == 0 {
                    resolver.on_unreachable(transmit.query, now);
                }
            }
            while resolver.poll_answer().is_some() || resolver.poll_closed().is_some() {}
            if resolver.poll_timeout().is_some_and(|at| at <= now) {
                resolver.on_timeout(now);
            }
        }
        for _ in 0..1000 {
            now += Duration::from_millis(50);
            resolver.on_timeout(now);
            while resolver.poll_transmit().is_some() || resolver.poll_closed().is_some() {}
            while resolver.poll_answer().is_some() {}
        }
        assert_eq!(resolver.load(), [0, 0, 0], "seed {seed}: tasks, clients, queries");
    }
}

#[test]
fn malformed_queries_get_formerr_or_silence() {
    let mut resolver = Resolver::new(Options::default(), Zones::default(), [1; 16], Instant::ZERO);
    let mut rcode = |octets: &[u8]| {
        resolver.on_query(ClientId(1), Transport::Udp, octets, Instant::ZERO);
        resolver.poll_answer().expect("every question gets one").octets.get(3).map(|flags| flags & 0xf)
    };
    assert_eq!(rcode(b""), None);
    assert_eq!(rcode(b"\0\x01\x80\0\0\x01\0\0\0\0\0\0\0\0\x01\0\x01"), None, "a response");
    assert_eq!(rcode(b"\0\x01\x01\0\0\x01\0\0\0\0\0\0"), Some(1), "no question where one is announced");
    assert_eq!(rcode(b"\0\x01\x01\0\0\x02\0\0\0\0\0\0\0\0\x01\0\x01"), Some(1), "RFC 9619");
    assert_eq!(rcode(b"\0\x01\x21\0\0\x01\0\0\0\0\0\0\0\0\x01\0\x01"), Some(4), "another opcode");
    assert_eq!(rcode(b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\0\0\x01\0\x03"), Some(5), "class CH");
}
