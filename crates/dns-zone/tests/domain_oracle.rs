//! For types that both know, our RDATA is what the `domain` crate makes of the same text.

mod common;

use std::collections::BTreeSet;

use bytes_of::rdata_by_domain;
use common::{OwnedRecord, Workspace, records, workspace};
use dns_zone::text::Position;

mod bytes_of {
    use domain::base::iana::Class;
    use domain::base::rdata::ComposeRecordData;
    use domain::zonefile::inplace::{Entry, Zonefile};

    /// The RDATA of the only record in `text`; `None` if `domain` cannot read it.
    pub(super) fn rdata_by_domain(text: &str) -> Option<Vec<u8>> {
        let mut zonefile = Zonefile::from(text);
        zonefile.set_default_class(Class::IN);
        let Ok(Some(Entry::Record(record))) = zonefile.next_entry() else { return None };
        let mut rdata = Vec::new();
        record.data().compose_rdata(&mut rdata).expect("a vector takes any RDATA");
        Some(rdata)
    }
}

/// Types whose text format `domain` 0.12 knows.
const KNOWN: &[&str] = &[
    "A",
    "AAAA",
    "CAA",
    "CDNSKEY",
    "CDS",
    "CNAME",
    "DNAME",
    "DNSKEY",
    "DS",
    "HINFO",
    "IPSECKEY",
    "MX",
    "NAPTR",
    "NS",
    "NSEC",
    "NSEC3",
    "NSEC3PARAM",
    "OPENPGPKEY",
    "PTR",
    "RP",
    "RRSIG",
    "SOA",
    "SRV",
    "SSHFP",
    "TLSA",
    "TXT",
    "ZONEMD",
];

#[test]
fn rdata_is_what_domain_makes_of_the_same_text() {
    let text = std::fs::read_to_string(workspace().join("specs/zones/example.com.zone")).unwrap();
    let (_, records) = records(&mut Workspace, "specs/zones/example.com.zone").unwrap();
    let mut compared = BTreeSet::new();
    for (index, record) in records.iter().enumerate() {
        let next = records.get(index + 1).map(|next| next.position);
        let Some(theirs) = rdata_by_domain(&alone(&text, record, next)) else { continue };
        assert_eq!(record.rdata, theirs, "{} {}", record.owner, record.rtype);
        compared.insert(record.rtype.to_string());
    }
    for rtype in KNOWN {
        assert!(compared.contains(*rtype), "{rtype} was not compared: {compared:?}");
    }
}

#[test]
fn the_generic_form_of_our_rdata_is_read_by_domain_for_every_type() {
    let (_, records) = records(&mut Workspace, "specs/zones/example.com.zone").unwrap();
    for record in records {
        let hex: String = record.rdata.iter().map(|octet| format!("{octet:02x}")).collect();
        let text = format!("a. 1 IN TYPE{} \\# {} {hex}\n", record.rtype.0, record.rdata.len());
        assert_eq!(rdata_by_domain(&text).as_ref(), Some(&record.rdata), "{text}");
    }
}

/// The text of one record as a zone of its own, with its owner in front even where it was left out.
fn alone(text: &str, record: &OwnedRecord, next: Option<Position>) -> String {
    let start = offset(text, record.position);
    let end = next.map_or(text.len(), |next| offset(text, next));
    let owner = if record.position.column == 1 { String::new() } else { format!("{} ", record.owner) };
    format!("$ORIGIN example.com.\n$TTL 3600\n{owner}{}\n", &text[start..end])
}

fn offset(text: &str, position: Position) -> usize {
    let lines_before = text.split_inclusive('\n').take(position.line as usize - 1);
    lines_before.map(str::len).sum::<usize>() + position.column as usize - 1
}
