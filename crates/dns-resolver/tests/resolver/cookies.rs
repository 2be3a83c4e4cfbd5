//! Cookies to servers (RFC 7873, 5): sent, remembered, and demanded of those who have them.

use clock::{Duration, Instant};
use dns_resolver::{ClientId, Directed, DirectedKind, Options, Resolver, Transmit, Transport, Zones};

use crate::rpl::message::{Message, name};

const SERVER_PART: &[u8] = b"sixteen octets!!";
const BADCOOKIE: u16 = 23;

/// A resolver, and the only server of `example.`.
struct Pair {
    resolver: Resolver,
    now: Instant,
    asked: u64,
}

impl Pair {
    fn new() -> Pair {
        let server = "192.0.2.1:53".parse().unwrap();
        let directed = Directed { zone: name("example."), kind: DirectedKind::Stub, servers: vec![server] };
        let zones = Zones { directed: vec![directed], ..Zones::default() };
        let resolver = Resolver::new(Options::default(), zones, [3; 16], Instant::ZERO);
        Pair { resolver, now: Instant::ZERO, asked: 0 }
    }

    /// A client asks for a name that was not asked for before; the query that leaves for it.
    fn ask(&mut self) -> Transmit {
        self.asked += 1;
        self.now += Duration::from_millis(1);
        let question = Some((name(&format!("n{}.example.", self.asked)), dns_wire::Rtype::A));
        let query = Message { flags: vec!["RD".to_owned()], question, ..Message::default() };
        self.resolver.on_query(ClientId(self.asked), Transport::Udp, &query.to_octets(), self.now);
        self.sent().expect("a query for it")
    }

    /// The query for an address that is to be sent now.
    fn sent(&mut self) -> Option<Transmit> {
        let is_for_address = |octets: &[u8]| question(octets).ends_with(&[0, 1, 0, 1]);
        std::iter::from_fn(|| self.resolver.poll_transmit()).find(|transmit| is_for_address(&transmit.octets))
    }

    /// The server answers; `cookie` is the data of its option.
    fn answer(&mut self, transmit: &Transmit, rcode: u16, cookie: Option<&[u8]>) {
        let octets = response(&transmit.octets, rcode, cookie);
        self.resolver.on_response(transmit.query, transmit.server, &octets, self.now);
    }

    /// Whether the client that asked last has an answer.
    fn has_answered(&mut self) -> bool {
        std::iter::from_fn(|| self.resolver.poll_answer()).any(|answer| answer.client == ClientId(self.asked))
    }
}

/// Name, type and class.
fn question(octets: &[u8]) -> &[u8] {
    let name_len = octets[12..].iter().position(|octet| *octet == 0).unwrap() + 1;
    &octets[12..12 + name_len + 4]
}

/// The data of the COOKIE option, which is the only one.
fn cookie(transmit: &Transmit) -> &[u8] {
    let options = &transmit.octets[12 + question(&transmit.octets).len() + 11..];
    assert_eq!(options[..2], [0, 10], "{options:?}");
    &options[4..]
}

fn response(query: &[u8], rcode: u16, cookie: Option<&[u8]>) -> Vec<u8> {
    let mut octets = query[..2].to_vec();
    octets.extend_from_slice(&[0x84, rcode as u8 & 0xf, 0, 1, 0, u8::from(rcode == 0), 0, 0, 0, 1]);
    octets.extend_from_slice(question(query));
    if rcode == 0 {
        octets.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 0, 0, 4, 192, 0, 2, 9]);
    }
    octets.extend_from_slice(&[0, 0, 41, 4, 208, (rcode >> 4) as u8, 0, 0, 0]);
    let option = cookie.map_or(Vec::new(), |data| [&[0, 10, 0, data.len() as u8], data].concat());
    octets.extend_from_slice(&(option.len() as u16).to_be_bytes());
    octets.extend_from_slice(&option);
    octets
}

/// A pair whose server has sent a cookie; and the whole cookie.
fn acquainted() -> (Pair, Vec<u8>) {
    let mut pair = Pair::new();
    let first = pair.ask();
    assert_eq!(cookie(&first).len(), 8);
    let whole = [cookie(&first), SERVER_PART].concat();
    pair.answer(&first, 0, Some(&whole));
    assert!(pair.has_answered());
    (pair, whole)
}

#[test]
fn the_cookie_of_a_server_comes_with_every_later_query() {
    let (mut pair, whole) = acquainted();
    for _ in 0..3 {
        let query = pair.ask();
        assert_eq!(cookie(&query), whole);
        pair.answer(&query, 0, Some(&whole));
        assert!(pair.has_answered());
    }
}

#[test]
fn an_answer_with_another_cookie_is_ignored() {
    let mut pair = Pair::new();
    let query = pair.ask();
    pair.answer(&query, 0, Some(&[b"forgery!", SERVER_PART].concat()));
    assert!(!pair.has_answered());
    let whole = [cookie(&query), SERVER_PART].concat();
    pair.answer(&query, 0, Some(&whole));
    assert!(pair.has_answered());
    assert_eq!(cookie(&pair.ask()), whole, "the forger's is not remembered");
}

#[test]
fn a_server_without_cookies_is_believed() {
    let mut pair = Pair::new();
    for _ in 0..3 {
        let query = pair.ask();
        assert_eq!(cookie(&query).len(), 8);
        pair.answer(&query, 0, None);
        assert!(pair.has_answered());
    }
}

#[test]
fn an_answer_without_the_cookie_of_a_server_that_has_one_is_asked_for_over_tcp() {
    let (mut pair, whole) = acquainted();
    let query = pair.ask();
    assert_eq!(cookie(&query), whole);
    pair.answer(&query, 0, None);
    assert!(!pair.has_answered());
    let repeated = pair.sent().expect("it is repeated");
    assert_eq!(repeated.transport, Transport::Tcp);
    pair.answer(&repeated, 0, None);
    assert!(pair.has_answered());
    assert_eq!(cookie(&pair.ask()).len(), 8, "it has no cookies any more");
}

#[test]
fn a_server_that_wants_its_new_cookie_gets_it_once_and_then_is_asked_over_tcp() {
    let (mut pair, whole) = acquainted();
    let query = pair.ask();
    let new = [&whole[..8], b"another 16 octet"].concat();
    pair.answer(&query, BADCOOKIE, Some(&new));
    let again = pair.sent().expect("it is repeated");
    assert_eq!((again.transport, cookie(&again)), (Transport::Udp, &new[..]));
    pair.answer(&again, BADCOOKIE, Some(&new));
    let over_tcp = pair.sent().expect("it is repeated");
    assert_eq!(over_tcp.transport, Transport::Tcp);
    pair.answer(&over_tcp, 0, Some(&new));
    assert!(pair.has_answered());
}
