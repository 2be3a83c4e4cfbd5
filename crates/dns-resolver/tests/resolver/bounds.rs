//! What one zone, or one want of this host, must not do to all others; and what a reload must forget.

use std::net::SocketAddr;

use clock::{Duration, Instant};
use dns_resolver::{ClientId, Directed, DirectedKind, Limits, Options, Resolver, Transmit, Transport, Zones};
use dns_wire::Rtype;

use crate::rpl::message::{Message, name, record};

fn stub(zone: &str, servers: &[&str]) -> Directed {
    let servers = servers.iter().map(|server| format!("{server}:53").parse().expect("an address")).collect();
    Directed { zone: name(zone), kind: DirectedKind::Stub, servers }
}

struct Stage {
    resolver: Resolver,
    now: Instant,
    clients: u64,
}

impl Stage {
    fn new(directed: Vec<Directed>, options: Options) -> Stage {
        let zones = Zones { directed, ..Zones::default() };
        Stage {
            resolver: Resolver::new(options, zones, [3; 16], Instant::ZERO),
            now: Instant::ZERO,
            clients: 0,
        }
    }

    fn ask(&mut self, qname: &str) {
        self.clients += 1;
        let question = Some((name(qname), Rtype::A));
        let query = Message { flags: vec!["RD".to_owned()], question, ..Message::default() };
        self.resolver.on_query(ClientId(self.clients), Transport::Udp, &query.to_octets(), self.now);
    }

    fn transmits(&mut self) -> Vec<Transmit> {
        std::iter::from_fn(|| self.resolver.poll_transmit()).collect()
    }

    fn answers(&mut self) -> Vec<Message> {
        std::iter::from_fn(|| self.resolver.poll_answer())
            .map(|answer| Message::from_octets(&answer.octets))
            .collect()
    }

    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(next) = self.resolver.poll_timeout().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.resolver.on_timeout(self.now);
        }
        self.now = end;
    }

    /// Answers with an address whose last octet is `last`.
    fn respond(&mut self, transmit: &Transmit, last: u8) {
        let query = Message::from_octets(&transmit.octets);
        let (qname, _) = query.question.clone().expect("a question");
        let mut response = Message { flags: vec!["QR".to_owned(), "AA".to_owned()], ..query };
        response.sections[0].push(record(&format!("{qname} 60 IN A 192.0.2.{last}")));
        self.resolver.on_response(transmit.query, transmit.server, &response.to_octets(), self.now);
    }
}

#[test]
fn questions_for_a_dead_zone_leave_room_for_others() {
    let limits = Limits { in_flight_max: 500, ..Limits::default() };
    let dead = ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"];
    let zones = vec![stub("dead.", &dead), stub("live.", &["192.0.2.9"])];
    let mut stage = Stage::new(zones, Options { limits, ..Options::default() });
    for number in 0..3000 {
        stage.ask(&format!("x{number}.dead."));
    }
    let mut to_dead = stage.transmits();
    to_dead.retain(|transmit| {
        Message::from_octets(&transmit.octets).question.is_some_and(|(_, rtype)| rtype == Rtype::A)
    });
    assert!((100..=200).contains(&to_dead.len()), "{} queries to four servers", to_dead.len());
    assert!(stage.answers().iter().all(|answer| answer.rcode == 2), "beyond that they fail");
    stage.ask("www.live.");
    let to_live = stage.transmits();
    let live: SocketAddr = "192.0.2.9:53".parse().expect("an address");
    assert_eq!(to_live.iter().map(|transmit| transmit.server).collect::<Vec<_>>(), [live]);
    stage.respond(&to_live[0], 1);
    assert_eq!(stage.answers()[0].rcode, 0);
}

#[test]
fn a_server_that_answers_gets_more_at_a_time_than_one_that_does_not() {
    let mut stage = Stage::new(vec![stub("live.", &["192.0.2.9"])], Options::default());
    stage.ask("first.live.");
    let first = stage.transmits();
    stage.now += Duration::from_millis(5);
    stage.respond(&first[0], 1);
    for number in 0..2000 {
        stage.ask(&format!("x{number}.live."));
    }
    assert_eq!(stage.transmits().len(), 1000);
}

#[test]
fn what_this_host_cannot_send_is_not_its_servers_silence() {
    let mut stage = Stage::new(vec![stub("live.", &["192.0.2.1", "192.0.2.2"])], Options::default());
    stage.ask("www.live.");
    for transmit in stage.transmits() {
        stage.resolver.on_not_sent(transmit.query, stage.now);
    }
    let servers = stage.resolver.servers(stage.now);
    assert!(servers.iter().all(|server| server.losses == 0 && server.silent == 0), "{servers:?}");
    for transmit in stage.transmits() {
        stage.respond(&transmit, 1);
    }
    assert_eq!(stage.answers()[0].rcode, 0, "the next attempt counts");
    stage.ask("ftp.live.");
    stage.transmits().iter().for_each(|transmit| stage.resolver.on_unreachable(transmit.query, stage.now));
    assert!(
        stage.resolver.servers(stage.now).iter().any(|server| server.losses == 1),
        "but the network's word is"
    );
}

#[test]
fn a_reload_forgets_what_comes_from_elsewhere_now() {
    let mut stage =
        Stage::new(vec![stub("a.", &["192.0.2.1"]), stub("b.", &["192.0.2.2"])], Options::default());
    for qname in ["www.a.", "www.b."] {
        stage.ask(qname);
        let transmits = stage.transmits();
        transmits.iter().for_each(|transmit| stage.respond(transmit, 1));
        assert_eq!(stage.answers()[0].sections[0][0].rdata[3], 1);
    }
    let directed = vec![stub("a.", &["192.0.2.3"]), stub("b.", &["192.0.2.2"])];
    stage.resolver.reconfigure(Options::default(), Zones { directed, ..Zones::default() });
    stage.pass(Duration::from_secs(1));
    stage.ask("www.b.");
    assert_eq!(stage.answers()[0].sections[0][0].rdata[3], 1, "the cache stays");
    stage.ask("www.a.");
    assert!(stage.answers().is_empty(), "but not for the zone that has moved");
    let transmits = stage.transmits();
    transmits
        .iter()
        .filter(|transmit| transmit.server.ip().to_string() == "192.0.2.3")
        .for_each(|transmit| stage.respond(transmit, 7));
    assert_eq!(stage.answers()[0].sections[0][0].rdata[3], 7);
}
