//! EDNS Client Subnet (RFC 7871): who is told, and whom an answer is for.

use clock::{Duration, Instant};
use dns_resolver::{
    ClientId, Directed, DirectedKind, Minimisation, Options, Resolver, Subnet, Terms, Transmit, Transport,
    Zones,
};
use dns_wire::Rtype;

use crate::rpl::message::{Message, name};

/// A resolver that tells the servers of `cdn.example.` where clients are, and the only server of `example.`.
struct Pair {
    resolver: Resolver,
    now: Instant,
    asked: u64,
}

/// What the server says of whom its answer is for.
#[derive(Clone, Copy)]
enum Says {
    Scope(u8),
    Nothing,
    /// That of another network.
    Other,
}

impl Pair {
    fn new(by_network: &[&str]) -> Pair {
        let server = "192.0.2.1:53".parse().unwrap();
        let directed = Directed { zone: name("example."), kind: DirectedKind::Stub, servers: vec![server] };
        let by_network = by_network.iter().map(|zone| name(zone)).collect();
        let zones = Zones { directed: vec![directed], by_network, ..Zones::default() };
        let options = Options { minimisation: Minimisation::Off, ..Options::default() };
        let resolver = Resolver::new(options, zones, [3; 16], Instant::ZERO);
        Pair { resolver, now: Instant::ZERO, asked: 0 }
    }

    /// A client at `address`, or nowhere, asks. Its answer's last address, if it comes at once, or the query that leaves for it.
    fn ask(&mut self, qname: &str, address: &str) -> Result<u8, Transmit> {
        self.asked += 1;
        self.now += Duration::from_millis(1);
        let question = Some((name(qname), Rtype::A));
        let query = Message { flags: vec!["RD".to_owned()], question, ..Message::default() };
        let subnet = address.parse().map_or(Subnet::NOWHERE, |address| Subnet::new(address, 24));
        let terms = Terms { subnet: Some(subnet), ..Transport::Udp.into() };
        let octets = query.to_octets();
        let known = self.resolver.recall(&octets, self.now).map(|known| known.to_octets(&octets));
        self.resolver.on_query(ClientId(self.asked), terms, &octets, self.now);
        let is_asked = |transmit: &Transmit| question_of(&transmit.octets).ends_with(&[0, 1, 0, 1]);
        match std::iter::from_fn(|| self.resolver.poll_transmit()).find(is_asked) {
            Some(transmit) => Err(transmit),
            None => {
                let answer = self.answer().expect("an answer, or a query");
                assert!(
                    known.is_none_or(|known| last_octet(&known) == Some(answer)),
                    "what is known is answered"
                );
                Ok(answer)
            }
        }
    }

    /// The last octet of the client's answer.
    fn answer(&mut self) -> Option<u8> {
        let answers = std::iter::from_fn(|| self.resolver.poll_answer());
        last_octet(&answers.last()?.octets)
    }

    /// The server answers with 192.0.2.`last`; then the client's answer.
    fn respond(&mut self, transmit: &Transmit, last: u8, says: Says) -> Option<u8> {
        let mut option = subnet_of(transmit).unwrap_or_default();
        match says {
            Says::Scope(scope) => option[3] = scope,
            Says::Nothing => option.clear(),
            Says::Other => option[4] ^= 1,
        }
        let octets = response(&transmit.octets, last, &option);
        self.resolver.on_response(transmit.query, transmit.server, &octets, self.now);
        self.answer()
    }
}

/// That of the last address in an answer.
fn last_octet(answer: &[u8]) -> Option<u8> {
    Message::from_octets(answer).sections[0].last().and_then(|record| record.rdata.last().copied())
}

/// Name, type and class.
fn question_of(octets: &[u8]) -> &[u8] {
    let name_len = octets[12..].iter().position(|octet| *octet == 0).unwrap() + 1;
    &octets[12..12 + name_len + 4]
}

/// The data of the option in a query, behind its cookie.
fn subnet_of(transmit: &Transmit) -> Option<Vec<u8>> {
    let mut options = &transmit.octets[12 + question_of(&transmit.octets).len() + 11..];
    while let [high, low, _, len, rest @ ..] = options {
        if (*high, *low) == (0, 8) {
            return Some(rest[..usize::from(*len)].to_vec());
        }
        options = &rest[usize::from(*len)..];
    }
    None
}

fn response(query: &[u8], last: u8, subnet: &[u8]) -> Vec<u8> {
    let mut octets = query[..2].to_vec();
    octets.extend_from_slice(&[0x84, 0, 0, 1, 0, 1, 0, 0, 0, 1]);
    octets.extend_from_slice(question_of(query));
    octets.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, last]);
    let len = if subnet.is_empty() { 0 } else { subnet.len() as u8 + 4 };
    octets.extend_from_slice(&[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, len]);
    if len > 0 {
        octets.extend_from_slice(&[0, 8, 0, len - 4]);
        octets.extend_from_slice(subnet);
    }
    octets
}

#[test]
fn only_servers_of_the_named_zones_are_told() {
    let mut pair = Pair::new(&["cdn.example."]);
    let told = |pair: &mut Pair, qname| subnet_of(&pair.ask(qname, "198.51.100.7").unwrap_err());
    assert_eq!(told(&mut pair, "www.cdn.example."), Some(vec![0, 1, 24, 0, 198, 51, 100]));
    assert_eq!(told(&mut pair, "www.example."), None);
    assert_eq!(told(&mut Pair::new(&[]), "www.cdn.example."), None);
}

#[test]
fn an_answer_is_for_the_network_that_its_scope_says() {
    let mut pair = Pair::new(&["cdn.example."]);
    let query = pair.ask("www.cdn.example.", "198.51.100.7").unwrap_err();
    assert_eq!(pair.respond(&query, 1, Says::Scope(16)), Some(1));
    assert_eq!(pair.ask("www.cdn.example.", "198.51.200.7").unwrap(), 1, "the same /16");
    let query = pair.ask("www.cdn.example.", "203.0.113.7").expect_err("another network");
    assert_eq!(pair.respond(&query, 2, Says::Scope(32)), Some(2));
    assert_eq!(pair.ask("www.cdn.example.", "203.0.113.8").unwrap(), 2, "what the server was told");
    assert!(pair.ask("www.cdn.example.", "203.0.114.8").is_err(), "is all that it spoke of");
    pair.now += Duration::from_secs(61);
    assert!(pair.ask("www.cdn.example.", "198.51.100.7").is_err(), "it has expired");
}

#[test]
fn two_networks_are_asked_for_at_the_same_time_and_neither_gets_the_others_answer() {
    let mut pair = Pair::new(&["cdn.example."]);
    let first = pair.ask("www.cdn.example.", "198.51.100.7").unwrap_err();
    let second = pair.ask("www.cdn.example.", "203.0.113.7").unwrap_err();
    assert_eq!(pair.respond(&first, 1, Says::Scope(24)), Some(1));
    assert_eq!(pair.respond(&second, 2, Says::Scope(24)), Some(2));
}

#[test]
fn an_answer_without_scope_is_for_all() {
    for says in [Says::Scope(0), Says::Nothing] {
        let mut pair = Pair::new(&["cdn.example."]);
        let query = pair.ask("www.cdn.example.", "198.51.100.7").unwrap_err();
        assert_eq!(pair.respond(&query, 1, says), Some(1));
        assert_eq!(pair.ask("www.cdn.example.", "203.0.113.7").unwrap(), 1);
    }
}

#[test]
fn what_nobody_in_particular_is_told_is_for_those_of_whom_servers_learn_nothing() {
    let mut pair = Pair::new(&["cdn.example."]);
    let query = pair.ask("www.cdn.example.", "nowhere").unwrap_err();
    assert_eq!(subnet_of(&query), Some(vec![0, 1, 0, 0]));
    assert_eq!(pair.respond(&query, 1, Says::Scope(0)), Some(1));
    assert_eq!(pair.ask("www.cdn.example.", "nowhere").unwrap(), 1);
    let query = pair.ask("www.cdn.example.", "198.51.100.7").expect_err("it is for others");
    assert_eq!(pair.respond(&query, 2, Says::Scope(24)), Some(2));
    assert_eq!(pair.ask("www.cdn.example.", "nowhere").unwrap(), 1);
}

#[test]
fn an_answer_for_all_takes_the_place_of_none_that_is_for_a_network() {
    let mut pair = Pair::new(&["cdn.example."]);
    let query = pair.ask("www.cdn.example.", "198.51.100.7").unwrap_err();
    pair.respond(&query, 1, Says::Scope(24));
    let query = pair.ask("www.cdn.example.", "203.0.113.7").unwrap_err();
    pair.respond(&query, 2, Says::Scope(0));
    for _ in 0..2 {
        assert_eq!(pair.ask("www.cdn.example.", "192.88.99.7").unwrap(), 2);
    }
    assert_eq!(pair.ask("www.cdn.example.", "198.51.100.7").unwrap(), 1);
}

#[test]
fn an_answer_for_a_network_ends_what_was_kept_whole_for_all() {
    let mut pair = Pair::new(&["cdn.example."]);
    let query = pair.ask("www.cdn.example.", "203.0.113.7").unwrap_err();
    let late = pair.ask("www.cdn.example.", "198.51.100.7").unwrap_err();
    pair.respond(&query, 2, Says::Scope(0));
    for _ in 0..2 {
        assert_eq!(pair.ask("www.cdn.example.", "192.88.99.7").unwrap(), 2);
    }
    assert_eq!(pair.respond(&late, 1, Says::Scope(24)), Some(1));
    assert_eq!(pair.ask("www.cdn.example.", "198.51.100.7").unwrap(), 1);
}

#[test]
fn an_answer_about_another_network_is_a_forgery() {
    let mut pair = Pair::new(&["cdn.example."]);
    let query = pair.ask("www.cdn.example.", "198.51.100.7").unwrap_err();
    assert_eq!(pair.respond(&query, 66, Says::Other), None);
    assert_eq!(pair.resolver.counters().forgeries, 1);
    assert_eq!(pair.respond(&query, 1, Says::Scope(24)), Some(1));
}

#[test]
fn a_zone_that_is_named_later_is_asked_again() {
    let mut pair = Pair::new(&[]);
    let query = pair.ask("www.cdn.example.", "198.51.100.7").unwrap_err();
    assert_eq!(pair.respond(&query, 1, Says::Nothing), Some(1));
    let server = "192.0.2.1:53".parse().unwrap();
    let directed = Directed { zone: name("example."), kind: DirectedKind::Stub, servers: vec![server] };
    let zones =
        Zones { directed: vec![directed], by_network: vec![name("cdn.example.")], ..Zones::default() };
    let options = Options { minimisation: Minimisation::Off, ..Options::default() };
    pair.resolver.reconfigure(options, zones);
    let query = pair.ask("www.cdn.example.", "198.51.100.7").expect_err("it may differ by network");
    assert!(subnet_of(&query).is_some());
}

#[test]
fn what_is_kept_is_forgotten_with_the_rest() {
    let mut pair = Pair::new(&["cdn.example."]);
    let query = pair.ask("www.cdn.example.", "198.51.100.7").unwrap_err();
    pair.respond(&query, 1, Says::Scope(24));
    pair.resolver.flush(&name("www.cdn.example."), dns_resolver::Scope::Name);
    assert!(pair.ask("www.cdn.example.", "198.51.100.7").is_err());
    assert_eq!(pair.resolver.load()[2], 1, "queries in flight are found again");
}
