//! Zones from text, queries, answers: what the tests of this crate share.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test program has its own copy of this module and uses part of it"
)]

pub mod model;
pub mod random_zones;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use dns_auth::compile::compile;
use dns_auth::fuzz::{Record, Reply};
use dns_auth::table::Tables;
use dns_auth::{Catalog, Counters, Outcome, Responder, ServedZone, Settings, Transport, Unavailable};
use dns_wire::{NameBuf, Rtype};
use dns_zone::text::{Files, Limits, TextFile, read_zone};
use dns_zone::{Zone, ZoneBuilder};
use domain::base::{Message, Name, ParsedName, ToName};
use domain::rdata::AllRecordData;

/// The directory that paths of sample zones and scenarios start from.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Zone files of `specs/zones` that make a zone.
pub const SAMPLES: [&str; 8] = [
    "2.0.192.in-addr.arpa.zone",
    "example.com.zone",
    "exotic.example.zone",
    "exotic.example.generic.zone",
    "included.example.zone",
    "windows.example.zone",
    "../dns/dnssec/ed25519-nsec.zone",
    "../dns/dnssec/optout.zone",
];

/// A name from its text.
pub fn name(text: &str) -> NameBuf {
    NameBuf::from_text(text.as_bytes(), None).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// A record of a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneRecord {
    pub owner: NameBuf,
    pub ttl: u32,
    pub rtype: Rtype,
    pub rdata: Vec<u8>,
}

/// A zone as a list.
#[derive(Clone, Debug)]
pub struct ZoneList {
    pub origin: NameBuf,
    pub records: Vec<ZoneRecord>,
}

/// A text that stands for a file, beside the real ones of the workspace.
struct TextOrFile<'t>(Option<&'t str>);

impl Files for TextOrFile<'_> {
    fn open(&mut self, path: &Path) -> io::Result<TextFile> {
        match self.0.take() {
            Some(text) => Ok(text.as_bytes().to_vec().into()),
            None => std::fs::read(workspace().join(path)).map(TextFile::from),
        }
    }
}

impl ZoneList {
    /// The zone in the text of a zone file.
    pub fn from_text(origin: &str, text: &str) -> Result<ZoneList, String> {
        ZoneList::read(TextOrFile(Some(text)), Path::new("text"), Some(name(origin)))
    }

    /// The zone in a file, whose path starts at the workspace.
    pub fn from_file(path: &str) -> Result<ZoneList, String> {
        ZoneList::read(TextOrFile(None), Path::new(path), None)
    }

    fn read(mut files: TextOrFile<'_>, path: &Path, origin: Option<NameBuf>) -> Result<ZoneList, String> {
        let mut records = Vec::new();
        let origin = origin.as_ref().map(NameBuf::as_name);
        let summary = read_zone(&mut files, path, origin, &Limits::default(), |record| {
            records.push(ZoneRecord {
                owner: NameBuf::from(record.owner),
                ttl: record.ttl,
                rtype: record.rtype,
                rdata: record.rdata.to_vec(),
            });
            Ok::<(), String>(())
        });
        Ok(ZoneList { origin: summary.map_err(|errors| errors.to_string())?.origin, records })
    }

    /// The zone as a tree.
    pub fn build(&self) -> Zone {
        let mut builder = ZoneBuilder::new(self.origin.as_name(), 23);
        for record in &self.records {
            let added = builder.add(record.owner.as_name(), record.ttl, record.rtype, &record.rdata);
            added.unwrap_or_else(|error| panic!("{record:?}: {error}"));
        }
        builder.finish().expect("the zones of tests have a SOA")
    }

    /// The zone without the records that a builder refuses.
    pub fn accepted(self) -> ZoneList {
        let mut builder = ZoneBuilder::new(self.origin.as_name(), 23);
        let is_taken = |record: &ZoneRecord| {
            builder.add(record.owner.as_name(), record.ttl, record.rtype, &record.rdata).is_ok()
        };
        let records = self.records.into_iter().filter(is_taken).collect();
        ZoneList { origin: self.origin, records }
    }

    /// The zone file.
    pub fn to_text(&self) -> String {
        let line = |record: &ZoneRecord| {
            let (owner, rdata) = (record.owner.as_name().as_bytes().to_vec(), record.rdata.clone());
            print(&Record { owner, rtype: record.rtype, class: 1, ttl: record.ttl, rdata, end: 0 })
        };
        self.records.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

impl ZoneList {
    /// The zone file in the form of RFC 3597, which every server reads, whatever types it knows. The SOA, which servers
    /// look for by name, is spelled out.
    pub fn to_generic_text(&self) -> String {
        let mut text = String::new();
        for record in &self.records {
            if record.rtype == Rtype::SOA {
                text += &ZoneList { origin: self.origin.clone(), records: vec![record.clone()] }.to_text();
            } else {
                let hex: String = record.rdata.iter().map(|octet| format!("{octet:02x}")).collect();
                let len = record.rdata.len();
                text += &format!("{} {} IN TYPE{} \\# {len} {hex}", record.owner, record.ttl, record.rtype.0);
            }
            text += "\n";
        }
        text
    }
}

/// All sample zones.
pub fn samples() -> Vec<ZoneList> {
    SAMPLES.map(|file| ZoneList::from_file(&format!("specs/zones/{file}")).unwrap()).to_vec()
}

/// The same zones twice: with compiled answers, and without any.
pub fn catalogs(zones: &[ZoneList]) -> [Catalog; 2] {
    catalogs_with(zones, &[])
}

/// The same with zones that are unavailable.
pub fn catalogs_with(zones: &[ZoneList], unavailable: &[(NameBuf, Unavailable)]) -> [Catalog; 2] {
    let plain = |zone: Zone| ServedZone::new(zone, Tables::default());
    let catalog = |serve: &dyn Fn(Zone) -> ServedZone| {
        let loaded = zones.iter().map(|zone| serve(zone.build()));
        let others =
            unavailable.iter().map(|(origin, reason)| ServedZone::unavailable(origin.clone(), *reason));
        Catalog::new(loaded.chain(others).map(Arc::new), 3)
    };
    [catalog(&compile), catalog(&plain)]
}

/// A responder of its own.
pub fn responder(settings: &Settings) -> Responder {
    Responder::new(Arc::new(settings.clone()), Arc::new(Counters::default()))
}

/// A query, as far as tests care. Built without the code under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    pub id: u16,
    pub flags: u16,
    pub qname: Vec<u8>,
    pub qtype: Rtype,
    pub qclass: u16,
    pub edns: Option<Edns>,
}

/// The OPT record of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edns {
    pub payload_size: u16,
    pub version: u8,
    pub flags: u16,
    /// The options in wire format.
    pub options: Vec<u8>,
}

impl Query {
    /// The same with the DO bit.
    pub fn with_dnssec(mut self) -> Query {
        self.edns.get_or_insert_default().flags |= 0x8000;
        self
    }

    /// A query in class IN without EDNS.
    pub fn new(qname: &[u8], qtype: Rtype) -> Query {
        Query { id: 0x5aa5, flags: 0, qname: qname.to_vec(), qtype, qclass: 1, edns: None }
    }

    /// The same with an OPT record that allows `payload_size` octets.
    pub fn with_edns(self, payload_size: u16) -> Query {
        Query { edns: Some(Edns { payload_size, ..Edns::default() }), ..self }
    }

    /// The message.
    pub fn to_wire(&self) -> Vec<u8> {
        let additional = u16::from(self.edns.is_some());
        let mut wire = Vec::new();
        for word in [self.id, self.flags, 1, 0, 0, additional] {
            wire.extend_from_slice(&word.to_be_bytes());
        }
        wire.extend_from_slice(&self.qname);
        wire.extend_from_slice(&self.qtype.0.to_be_bytes());
        wire.extend_from_slice(&self.qclass.to_be_bytes());
        if let Some(edns) = &self.edns {
            wire.extend_from_slice(&[0, 0, 41]);
            wire.extend_from_slice(&edns.payload_size.to_be_bytes());
            wire.extend_from_slice(&[0, edns.version]);
            wire.extend_from_slice(&edns.flags.to_be_bytes());
            wire.extend_from_slice(&(edns.options.len() as u16).to_be_bytes());
            wire.extend_from_slice(&edns.options);
        }
        wire
    }
}

/// As a person would ask.
impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let qname = dns_wire::Name::from_wire(&self.qname).expect("queries of tests have names");
        write!(f, "{qname} {}", self.qtype)?;
        match &self.edns {
            Some(edns) => write!(f, " edns={}", edns.payload_size),
            None => Ok(()),
        }
    }
}

/// What becomes of `message`.
pub fn respond(
    responder: &mut Responder,
    catalog: &Catalog,
    message: &[u8],
    transport: Transport,
) -> Result<Vec<u8>, dns_auth::Dropped> {
    respond_to(responder, catalog, message, transport, [192, 0, 2, 1].into())
}

/// What becomes of `message`, if `client` sends it.
pub fn respond_to(
    responder: &mut Responder,
    catalog: &Catalog,
    message: &[u8],
    transport: Transport,
    client: std::net::IpAddr,
) -> Result<Vec<u8>, dns_auth::Dropped> {
    let room = if transport == Transport::Udp { 4096 } else { 65_535 };
    let mut buffer = vec![0; room.max(message.len())];
    buffer[..message.len()].copy_from_slice(message);
    match responder.respond(catalog, &mut buffer, message.len(), transport, client) {
        Outcome::Reply(len) => {
            buffer.truncate(len);
            Ok(buffer)
        }
        Outcome::Drop(reason) => Err(reason),
    }
}

/// A record as in a zone file.
pub fn print(record: &Record) -> String {
    let mut message = vec![0, 0, 0x80, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    message.extend_from_slice(&record.owner);
    message.extend_from_slice(&record.rtype.0.to_be_bytes());
    message.extend_from_slice(&record.class.to_be_bytes());
    message.extend_from_slice(&record.ttl.to_be_bytes());
    message.extend_from_slice(&(record.rdata.len() as u16).to_be_bytes());
    message.extend_from_slice(&record.rdata);
    let message = Message::from_octets(message.as_slice()).unwrap();
    let parsed = message.answer().unwrap().next().unwrap().unwrap();
    match parsed.to_record::<AllRecordData<_, ParsedName<_>>>() {
        Ok(Some(parsed)) => {
            let owner: Name<Vec<u8>> = parsed.owner().to_name();
            format!("{} {} {} {}", owner.fmt_with_dot(), record.ttl, record.rtype, parsed.data())
        }
        _ => format!("{:?} {} {} {:02x?}", record.owner, record.ttl, record.rtype, record.rdata),
    }
}

/// A whole answer for people.
pub fn describe(reply: &Reply) -> String {
    let mut text = format!("flags {:04x} code {}\n", reply.flags, reply.rcode());
    for (title, section) in ["answer", "authority", "additional"].iter().zip(&reply.sections) {
        section.iter().for_each(|record| text += &format!("  {title} {}\n", print(record)));
    }
    text
}

/// That the `domain` crate, which had no part in writing it, reads the whole of an answer.
pub fn check_with_domain(answer: &[u8]) {
    let message = Message::from_octets(answer).expect("a header");
    for question in message.question() {
        question.expect("a question");
    }
    for section in [message.answer(), message.authority(), message.additional()] {
        for record in section.expect("a section") {
            let record = record.expect("a record");
            record.to_record::<AllRecordData<_, ParsedName<_>>>().expect("data of its type");
        }
    }
}
