//! The zones of `specs/dns/dnssec`, each at the servers that its parent names, in simulated time.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use clock::{Duration, Instant};
use dns_resolver::{
    ClientId, Hints, NegativeAnchor, Options, Resolver, Transport, Trust, TrustAnchor, Zones,
};
use dns_wire::{NameBuf, Rtype};

use super::authority::{Zone, below};
use crate::rpl::message::{Message, name};

/// 2026-01-01.
pub(crate) const TODAY: u64 = 1_767_225_600;

/// What a server does to its response before it sends it.
pub(crate) type Mangle = Box<dyn Fn(&Internet, SocketAddr, &mut Message)>;

pub(crate) struct Internet {
    pub(crate) resolver: Resolver,
    pub(crate) now: Instant,
    pub(crate) zones: Vec<Zone>,
    servers: BTreeMap<SocketAddr, Vec<usize>>,
    pub(crate) mangle: Mangle,
    /// Queries that were sent.
    pub(crate) sent: Vec<(SocketAddr, NameBuf, Rtype)>,
    clients: u64,
}

pub(crate) fn options() -> Options {
    Options { ipv6: false, fetch_child_addresses: false, ..Options::default() }
}

/// What trusts the key of the root.
pub(crate) fn trust() -> Trust {
    let root = Zone::load("root.zone");
    Trust { anchors: vec![anchor(&root)], negative: Vec::new() }
}

/// What trusts the key of a zone.
pub(crate) fn anchor(zone: &Zone) -> TrustAnchor {
    let keys = zone.set(&zone.apex, Rtype::DNSKEY);
    let keys = keys.iter().filter(|record| record.rtype == Rtype::DNSKEY);
    let keys: Vec<_> = keys.map(|key| (key.rtype, &key.rdata[..])).collect();
    TrustAnchor::new(zone.apex.as_name(), keys).expect("they are keys")
}

pub(crate) fn suspended(zone: &str, until: Option<u64>) -> NegativeAnchor {
    NegativeAnchor { zone: name(zone), until }
}

impl Internet {
    pub(crate) fn new() -> Internet {
        Internet::with(options(), trust())
    }

    pub(crate) fn with(options: Options, trust: Trust) -> Internet {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../specs/dns/dnssec");
        let files = std::fs::read_dir(folder)
            .expect("the zones are there")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"));
        let mut files: Vec<String> = files.filter(|file| file.ends_with(".zone")).collect();
        files.sort();
        let mut zones: Vec<Zone> = files.iter().map(|file| Zone::load(file)).collect();
        let unsigned: Vec<Zone> =
            zones.iter().filter(|zone| zone.apex.as_name().label_count() == 2).map(unsigned_below).collect();
        zones.extend(unsigned);
        zones.push(Zone::new(PLAIN));
        let mut servers: BTreeMap<SocketAddr, Vec<usize>> = BTreeMap::new();
        for (index, zone) in zones.iter().enumerate() {
            for address in addresses(zone, &zones) {
                servers.entry(address).or_default().push(index);
            }
        }
        let hints = Hints::new([(name("a.root."), vec!["198.51.100.1".parse().expect("an address")])]);
        let resolver_zones = Zones { hints, trust, ..Zones::default() };
        let mut resolver = Resolver::new(options, resolver_zones, [5; 16], Instant::ZERO);
        resolver.on_wall_clock(TODAY, Instant::ZERO);
        Internet {
            resolver,
            now: Instant::ZERO,
            zones,
            servers,
            mangle: Box::new(|_, _, _| {}),
            sent: Vec::new(),
            clients: 0,
        }
    }

    pub(crate) fn mangled(mangle: impl Fn(&Internet, SocketAddr, &mut Message) + 'static) -> Internet {
        Internet { mangle: Box::new(mangle), ..Internet::new() }
    }

    /// The zone of a name.
    pub(crate) fn zone(&self, apex: &str) -> &Zone {
        self.zones.iter().find(|zone| zone.apex == name(apex)).expect("there is such a zone")
    }

    /// The answer to a client's question, with the flags of `flags`: upper-case words.
    pub(crate) fn ask(&mut self, question: &str, flags: &str) -> Message {
        let (qname, rtype) = question.split_once(' ').expect("a name and a type");
        let rtype = Rtype::from_text(rtype.as_bytes()).expect("a type");
        self.clients += 1;
        let flags: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
        let has_edns = flags.iter().any(|flag| flag == "DO" || flag == "EDNS");
        let query = Message { flags, question: Some((name(qname), rtype)), has_edns, ..Message::default() };
        self.resolver.on_query(ClientId(self.clients), Transport::Tcp, &query.to_octets(), self.now);
        for _ in 0..10_000 {
            if let Some(answer) = self.resolver.poll_answer() {
                return Message::from_octets(&answer.octets);
            }
            match self.resolver.poll_transmit() {
                Some(transmit) => {
                    let query = Message::from_octets(&transmit.octets);
                    self.now += Duration::from_millis(5);
                    let response = self.respond(transmit.server, &query).to_octets();
                    self.resolver.on_response(transmit.query, transmit.server, &response, self.now);
                }
                None => {
                    self.now = self.resolver.poll_timeout().expect("something is to happen").max(self.now);
                    self.resolver.on_timeout(self.now);
                }
            }
        }
        panic!("{question}: no answer");
    }

    fn respond(&mut self, server: SocketAddr, query: &Message) -> Message {
        let (qname, rtype) = query.question.clone().expect("a question");
        self.sent.push((server, qname.clone(), rtype));
        let mut response = self.lookup(server, &qname, rtype);
        (self.mangle)(self, server, &mut response);
        if !query.has("DO") {
            response.sections.iter_mut().for_each(|section| section.retain(|r| r.rtype != Rtype::RRSIG));
        }
        Message { id: query.id, has_edns: true, ..response }
    }

    /// The answer of the deepest zone of a server.
    pub(crate) fn lookup(&self, server: SocketAddr, qname: &NameBuf, rtype: Rtype) -> Message {
        let own = self.servers.get(&server).into_iter().flatten().map(|index| &self.zones[*index]);
        let knows = |zone: &&Zone| {
            qname.as_name().ends_with(zone.apex.as_name()) && (rtype != Rtype::DS || *qname != zone.apex)
        };
        let zone = own.filter(knows).max_by_key(|zone| zone.apex.as_name().len());
        zone.unwrap_or_else(|| panic!("{server} is asked for {qname} {rtype}")).answer(qname, rtype)
    }
}

const PLAIN: [&str; 4] = [
    "plain. 300 SOA ns.plain. host.plain. 1 3600 900 86400 60",
    "plain. 300 NS ns.plain.",
    "ns.plain. 300 A 198.51.100.3",
    "www.plain. 300 A 192.0.2.83",
];

/// The zone without signatures that every zone has below it, at the same servers.
fn unsigned_below(zone: &Zone) -> Zone {
    let apex = below("unsigned", &zone.apex);
    let glue = zone.set(&below("ns", &apex), Rtype::A);
    let address = std::net::Ipv4Addr::from(<[u8; 4]>::try_from(&glue[0].rdata[..]).expect("an address"));
    let lines = [
        format!("{apex} 300 SOA ns.{apex} host.{apex} 1 3600 900 86400 60"),
        format!("{apex} 300 NS ns.{apex}"),
        format!("ns.{apex} 300 A {address}"),
        format!("www.{apex} 300 A 192.0.2.82"),
    ];
    Zone::new(lines.iter().map(String::as_str))
}

fn addresses(zone: &Zone, zones: &[Zone]) -> Vec<SocketAddr> {
    let servers = zone.set(&zone.apex, Rtype::NS).into_iter().filter(|record| record.rtype == Rtype::NS);
    let servers = servers.map(|ns| dns_wire::Name::from_wire(&ns.rdata).expect("a name").into());
    let sets = servers.flat_map(|server: NameBuf| {
        let holder = zones.iter().find(|zone| !zone.set(&server, Rtype::A).is_empty());
        holder.expect("a server has an address").set(&server, Rtype::A)
    });
    let addresses = sets.filter(|record| record.rtype == Rtype::A);
    let address = |rdata: &[u8]| SocketAddr::new(<[u8; 4]>::try_from(rdata).expect("an address").into(), 53);
    addresses.map(|record| address(&record.rdata)).collect()
}
