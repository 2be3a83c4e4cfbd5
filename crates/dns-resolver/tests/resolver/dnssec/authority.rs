//! An authority for zones that were signed elsewhere: Sidestep's own, so that it and the resolver prove each other right.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use dns_auth::compile::compile;
use dns_auth::{Catalog, Counters, Outcome, Responder, Settings, Transport};
use dns_wire::{NameBuf, Rtype};
use dns_zone::ZoneBuilder;

use crate::rpl::message::{Message, Record, name, record};

/// A zone, its signatures among its records.
pub(crate) struct Zone {
    pub(crate) apex: NameBuf,
    records: Vec<Record>,
    catalog: Catalog,
}

impl Zone {
    /// The zone of a file in `specs/dns/dnssec`.
    pub(crate) fn load(file: &str) -> Zone {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs/dns/dnssec").join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
        Zone::new(text.lines())
    }

    /// The zone of these records.
    pub(crate) fn new<'a>(lines: impl IntoIterator<Item = &'a str>) -> Zone {
        let records: Vec<Record> = lines.into_iter().map(record).collect();
        let soa = records.iter().find(|record| record.rtype == Rtype::SOA).expect("a zone has an SOA");
        let apex = soa.owner.clone();
        let mut builder = ZoneBuilder::new(apex.as_name(), 1);
        for Record { owner, rtype, ttl, rdata } in &records {
            builder.add(owner.as_name(), *ttl, *rtype, rdata).expect("a record of a zone");
        }
        let zone = builder.finish().expect("it has an SOA");
        Zone { apex, records, catalog: Catalog::new([Arc::new(compile(zone))], 2) }
    }

    /// The set, and its signatures.
    pub(crate) fn set(&self, name: &NameBuf, rtype: Rtype) -> Vec<Record> {
        let is_of_set = |record: &&Record| {
            record.owner == *name && (record.rtype == rtype || covers(record) == Some(rtype))
        };
        self.records.iter().filter(is_of_set).cloned().collect()
    }

    /// The answer for a client that sets DO.
    pub(crate) fn answer(&self, qname: &NameBuf, rtype: Rtype) -> Message {
        let query = Message {
            flags: vec!["DO".to_owned()],
            question: Some((qname.clone(), rtype)),
            has_edns: true,
            ..Message::default()
        };
        let query = query.to_octets();
        let mut buffer = vec![0; 65_535];
        buffer[..query.len()].copy_from_slice(&query);
        let mut responder = Responder::new(Arc::new(Settings::default()), Arc::new(Counters::default()));
        match responder.respond(
            &self.catalog,
            &mut buffer,
            query.len(),
            Transport::Tcp,
            Ipv4Addr::LOCALHOST.into(),
        ) {
            Outcome::Reply(len) => Message::from_octets(&buffer[..len]),
            Outcome::Drop(reason) => panic!("{qname} {rtype}: {reason:?}"),
        }
    }
}

/// The type that a signature covers.
pub(crate) fn covers(record: &Record) -> Option<Rtype> {
    (record.rtype == Rtype::RRSIG).then(|| Rtype(u16::from_be_bytes([record.rdata[0], record.rdata[1]])))
}

pub(crate) fn below(label: &str, parent: &NameBuf) -> NameBuf {
    name(&if parent.as_name().is_root() { format!("{label}.") } else { format!("{label}.{parent}") })
}
