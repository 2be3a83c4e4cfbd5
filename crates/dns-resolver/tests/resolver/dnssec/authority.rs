//! An authority for zones that were signed elsewhere: it knows RFC 4035, 3.1 and RFC 5155, 7, and signs nothing itself.

use std::collections::BTreeMap;
use std::path::Path;

use dns_wire::{NameBuf, Rtype};

use crate::rpl::message::{Message, Record, name, record};

/// A zone, its signatures among its records.
pub(crate) struct Zone {
    pub(crate) apex: NameBuf,
    nodes: BTreeMap<NameBuf, Vec<Record>>,
    /// Hashes and owners of its NSEC3 records.
    hashes: BTreeMap<Vec<u8>, NameBuf>,
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
        let mut zone = Zone { apex: soa.owner.clone(), nodes: BTreeMap::new(), hashes: BTreeMap::new() };
        for record in records {
            if record.rtype == Rtype::NSEC3 {
                let label = record.owner.as_name().labels().next().expect("a hash").to_ascii_lowercase();
                zone.hashes.insert(label, record.owner.clone());
            }
            zone.nodes.entry(record.owner.clone()).or_default().push(record);
        }
        zone
    }

    /// The set, and its signatures.
    pub(crate) fn set(&self, name: &NameBuf, rtype: Rtype) -> Vec<Record> {
        let records = self.nodes.get(name).into_iter().flatten();
        records.filter(|record| record.rtype == rtype || covers(record) == Some(rtype)).cloned().collect()
    }

    pub(crate) fn answer(&self, qname: &NameBuf, rtype: Rtype) -> Message {
        let mut message = Message { flags: vec!["QR".to_owned(), "AA".to_owned()], ..Message::default() };
        message.question = Some((qname.clone(), rtype));
        if let Some(cut) = self.cut_above(qname, rtype) {
            self.refer(&cut, &mut message);
        } else if self.exists(qname) {
            self.answer_at(qname, qname, rtype, &mut message);
        } else {
            self.answer_without_name(qname, rtype, &mut message);
        }
        message
    }

    fn cut_above(&self, qname: &NameBuf, rtype: Rtype) -> Option<NameBuf> {
        let is_cut = |name: &NameBuf| *name != self.apex && !self.set(name, Rtype::NS).is_empty();
        let mut cuts = ancestors(qname).filter(|above| above.as_name().ends_with(self.apex.as_name()));
        cuts.find(|name| is_cut(name) && !(rtype == Rtype::DS && name == qname))
    }

    fn refer(&self, cut: &NameBuf, message: &mut Message) {
        message.flags.retain(|flag| flag != "AA");
        let ns = self.set(cut, Rtype::NS);
        for server in ns.iter().filter(|record| record.rtype == Rtype::NS) {
            let server = dns_wire::Name::from_wire(&server.rdata).expect("a name").into();
            message.sections[2]
                .extend(self.set(&server, Rtype::A).into_iter().filter(|r| r.rtype == Rtype::A));
        }
        message.sections[1].extend(ns.into_iter().filter(|record| record.rtype == Rtype::NS));
        let ds = self.set(cut, Rtype::DS);
        if ds.is_empty() {
            self.prove_no_data(cut, message);
        }
        message.sections[1].extend(ds);
    }

    /// The answer of the node `source`, which is `qname` or the wildcard in its place.
    fn answer_at(&self, source: &NameBuf, qname: &NameBuf, rtype: Rtype, message: &mut Message) {
        let named = |record: Record| Record { owner: qname.clone(), ..record };
        let (own, alias) = (self.set(source, rtype), self.set(source, Rtype::CNAME));
        if !own.is_empty() {
            message.sections[0].extend(own.into_iter().map(named));
        } else if let Some(cname) = alias.iter().find(|record| record.rtype == Rtype::CNAME) {
            let target: NameBuf = dns_wire::Name::from_wire(&cname.rdata).expect("a name").into();
            message.sections[0].extend(alias.iter().cloned().map(named));
            if target.as_name().ends_with(self.apex.as_name()) {
                let rest = self.answer(&target, rtype);
                message.rcode = rest.rcode;
                let own = message.sections.iter_mut();
                own.zip(rest.sections).for_each(|(section, more)| section.extend(more));
            }
        } else {
            message.sections[1].extend(self.set(&self.apex, Rtype::SOA));
            self.prove_no_data(source, message);
        }
    }

    fn answer_without_name(&self, qname: &NameBuf, rtype: Rtype, message: &mut Message) {
        let has_dname = |name: &NameBuf| !self.set(name, Rtype::DNAME).is_empty();
        if let Some(owner) = ancestors(qname).find(|above| has_dname(above)) {
            return message.sections[0].extend(self.set(&owner, Rtype::DNAME));
        }
        let encloser = ancestors(qname).filter(|above| self.exists(above)).last().expect("the apex exists");
        let wildcard = below("*", &encloser);
        let labels = encloser.as_name().label_count();
        let next_closer = ancestors(qname).find(|above| above.as_name().label_count() == labels + 1);
        let next_closer = next_closer.expect("the name itself is not there");
        if self.exists(&wildcard) {
            self.answer_at(&wildcard, qname, rtype, message);
        } else {
            message.rcode = 3;
            message.sections[1].extend(self.set(&self.apex, Rtype::SOA));
            self.deny(&wildcard, message);
        }
        if self.is_nsec() {
            return self.deny(qname, message);
        }
        self.deny(&next_closer, message);
        let is_plain_answer =
            self.exists(&wildcard) && message.sections[1].iter().all(|r| r.rtype != Rtype::SOA);
        if !is_plain_answer {
            self.prove_existence(&encloser, message);
        }
    }

    /// A name with records, or with names below.
    fn exists(&self, name: &NameBuf) -> bool {
        let is_of_zone =
            |record: &Record| record.rtype != Rtype::NSEC3 && covers(record) != Some(Rtype::NSEC3);
        let mut below = self.nodes.iter().filter(|(owner, _)| owner.as_name().ends_with(name.as_name()));
        below.any(|(_, records)| records.iter().any(is_of_zone))
    }

    fn is_nsec(&self) -> bool {
        self.hashes.is_empty()
    }

    /// That an existing name has no more than its types, or that it is a delegation without a record (opt-out).
    fn prove_no_data(&self, name: &NameBuf, message: &mut Message) {
        if self.is_nsec() {
            return self.deny(name, message);
        }
        if self.hashes.contains_key(&self.hash(name)) {
            return self.prove_existence(name, message);
        }
        self.deny(name, message);
        self.prove_existence(&name.as_name().parent().expect("not the root").into(), message);
    }

    fn prove_existence(&self, name: &NameBuf, message: &mut Message) {
        let owner = self.hashes.get(&self.hash(name)).unwrap_or_else(|| panic!("{name} has no NSEC3"));
        self.push(owner, Rtype::NSEC3, message);
    }

    /// The NSEC or NSEC3 record at or before a name.
    fn deny(&self, name: &NameBuf, message: &mut Message) {
        if self.is_nsec() {
            let has_nsec = |owner: &&NameBuf| !self.set(owner, Rtype::NSEC).is_empty();
            let before = self.nodes.range(..=name.clone()).rev().map(|(owner, _)| owner).find(has_nsec);
            if let Some(owner) = before {
                self.push(owner, Rtype::NSEC, message);
            }
            return;
        }
        let before = self.hashes.range(..=self.hash(name)).next_back().or(self.hashes.iter().next_back());
        self.push(before.expect("it has some").1, Rtype::NSEC3, message);
    }

    fn push(&self, owner: &NameBuf, rtype: Rtype, message: &mut Message) {
        if !message.sections[1].iter().any(|record| record.owner == *owner && record.rtype == rtype) {
            message.sections[1].extend(self.set(owner, rtype));
        }
    }

    /// RFC 5155, 5, in the characters of an owner.
    fn hash(&self, name: &NameBuf) -> Vec<u8> {
        let owner = self.hashes.values().next().expect("it has some");
        let rdata = &self.set(owner, Rtype::NSEC3)[0].rdata;
        let (iterations, salt) =
            (u16::from_be_bytes([rdata[2], rdata[3]]), &rdata[5..5 + usize::from(rdata[4])]);
        let mut lower = name.clone();
        lower.make_lowercase();
        let mut hash = lower.as_name().as_bytes().to_vec();
        for _ in 0..=iterations {
            let salted = [&hash, salt].concat();
            hash = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &salted).as_ref().to_vec();
        }
        base32hex(&hash)
    }
}

fn base32hex(octets: &[u8]) -> Vec<u8> {
    let bit = |index: usize| octets[index / 8] >> (7 - index % 8) & 1;
    let value = |start: usize| (start..start + 5).fold(0, |value, index| value << 1 | bit(index));
    let starts = (0..octets.len() * 8).step_by(5);
    starts.map(|start| b"0123456789abcdefghijklmnopqrstuv"[usize::from(value(start))]).collect()
}

/// The type that a signature covers.
pub(crate) fn covers(record: &Record) -> Option<Rtype> {
    (record.rtype == Rtype::RRSIG).then(|| Rtype(u16::from_be_bytes([record.rdata[0], record.rdata[1]])))
}

pub(crate) fn below(label: &str, parent: &NameBuf) -> NameBuf {
    name(&if parent.as_name().is_root() { format!("{label}.") } else { format!("{label}.{parent}") })
}

/// A name and all above it, the root first.
fn ancestors(name: &NameBuf) -> impl Iterator<Item = NameBuf> {
    let mut names = vec![name.clone()];
    while let Some(parent) = names.last().and_then(|name| name.as_name().parent().map(NameBuf::from)) {
        names.push(parent);
    }
    names.into_iter().rev()
}
