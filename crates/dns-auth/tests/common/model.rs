//! The search of RFC 1034, 4.3.2, over lists of records: from the apex down, label by label, as the RFC tells it.
//!
//! Nothing here is shared with the code under test, and nothing is fast.

use dns_auth::fuzz::{Record, Reply};
use dns_wire::{Name, Rcode, Rtype};

use super::{ZoneList, ZoneRecord};

/// An answer without limits of size. Owners are in lower case, records have no order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub rcode: u16,
    pub authoritative: bool,
    pub sections: [Vec<Record>; 3],
}

impl Answer {
    /// What a real answer says, in the terms of the model.
    pub fn from_reply(reply: &Reply) -> Answer {
        let authoritative = reply.flags & 0x400 != 0;
        Answer { rcode: reply.rcode(), authoritative, sections: reply.sections.clone() }.normalise()
    }

    fn normalise(mut self) -> Answer {
        for section in &mut self.sections {
            for record in section.iter_mut() {
                record.owner.make_ascii_lowercase();
                // A name that is compressed may take another spelling of the zone (RFC 4343, 4.1).
                let names = match record.rtype {
                    Rtype::NS | Rtype::CNAME | Rtype::PTR => 0..record.rdata.len(),
                    Rtype::MX => 2..record.rdata.len(),
                    Rtype::SOA => 0..record.rdata.len() - 20,
                    _ => 0..0,
                };
                record.rdata[names].make_ascii_lowercase();
                record.end = 0;
            }
            section.sort();
        }
        self
    }

    fn push(&mut self, section: usize, owner: &[u8], ttl: u32, records: &[&ZoneRecord]) {
        for record in records {
            let (owner, rdata) = (owner.to_vec(), record.rdata.clone());
            self.sections[section].push(Record { owner, rtype: record.rtype, class: 1, ttl, rdata, end: 0 });
        }
    }
}

/// Names that are followed at most.
const HOPS_MAX: usize = 16;

/// The answer of a server with these zones.
pub fn answer(zones: &[ZoneList], qname: &[u8], qtype: Rtype) -> Answer {
    let (mut answer, mut seen, mut name) = (Answer::default(), Vec::new(), qname.to_vec());
    while seen.len() < HOPS_MAX && !seen.contains(&name.to_ascii_lowercase()) {
        let Some(zone) = zone_for(zones, &name, qtype) else {
            if seen.is_empty() {
                answer.rcode = Rcode::Refused as u16;
            }
            break;
        };
        seen.push(name.to_ascii_lowercase());
        match step(zone, &name, qtype, &mut answer) {
            Some(next) => name = next,
            None => break,
        }
    }
    answer.normalise()
}

/// Step 2: the nearest zone above the name; for DS at its apex the one above, if that delegates it.
fn zone_for<'z>(zones: &'z [ZoneList], name: &[u8], qtype: Rtype) -> Option<&'z ZoneList> {
    let nearest = |name: &[u8]| {
        let above = zones.iter().filter(|zone| is_at_or_below(name, zone.origin.as_name().as_bytes()));
        above.max_by_key(|zone| zone.origin.as_name().len())
    };
    let zone = nearest(name)?;
    if qtype != Rtype::DS || name == [0] || !same(name, zone.origin.as_name().as_bytes()) {
        return Some(zone);
    }
    let delegates = |parent: &&ZoneList| {
        let path = path(parent, name);
        let is_boundary = |above: &&[u8]| is_cut(parent, above) || has(parent, above, Rtype::DNAME);
        is_cut(parent, name) && !path[..path.len() - 1].iter().any(is_boundary)
    };
    nearest(parent_of(name)).filter(delegates).or(Some(zone))
}

/// Step 3: from the apex down. Returns the name to go on with.
fn step(zone: &ZoneList, name: &[u8], qtype: Rtype, answer: &mut Answer) -> Option<Vec<u8>> {
    let path = path(zone, name);
    let first = answer.sections[0].is_empty();
    for (index, here) in path.iter().enumerate() {
        let last = index + 1 == path.len();
        if !exists(zone, here) {
            answer.authoritative |= first;
            let wildcard = [b"\x01*", path[index - 1]].concat();
            if exists(zone, &wildcard) {
                return data(zone, &wildcard, name, qtype, answer);
            }
            deny(zone, Rcode::NxDomain, answer);
            return None;
        }
        if is_cut(zone, here) && !(last && qtype == Rtype::DS) {
            refer(zone, here, answer);
            return None;
        }
        if has(zone, here, Rtype::DNAME) && !last {
            answer.authoritative |= first;
            return redirect(zone, here, name, qtype, answer);
        }
    }
    answer.authoritative |= first;
    data(zone, name, name, qtype, answer)
}

fn data(zone: &ZoneList, node: &[u8], name: &[u8], qtype: Rtype, answer: &mut Answer) -> Option<Vec<u8>> {
    let first = zone.records.iter().find(|record| same(record.owner.as_name().as_bytes(), node));
    let wanted = if qtype == Rtype::ANY { first.map_or(qtype, |record| record.rtype) } else { qtype };
    let mut found = set(zone, node, wanted);
    if qtype == Rtype::ANY && wanted == Rtype::RRSIG {
        // ANY gets one set, and signatures are sets by what they cover.
        let covered = found[0].rdata[..2].to_vec();
        found.retain(|record| record.rdata.starts_with(&covered));
    }
    if !found.is_empty() {
        for record in &found {
            answer.push(0, name, ttl(zone, &[record]), &[record]);
        }
        for target in targets(&found, name) {
            add_host(zone, &target, node, name, wanted, answer);
        }
        return None;
    }
    let alias = set(zone, node, Rtype::CNAME);
    if alias.is_empty() {
        deny(zone, Rcode::NoError, answer);
        return None;
    }
    answer.push(0, name, ttl(zone, &alias), &alias);
    Some(alias[0].rdata.clone())
}

fn redirect(
    zone: &ZoneList,
    owner: &[u8],
    name: &[u8],
    qtype: Rtype,
    answer: &mut Answer,
) -> Option<Vec<u8>> {
    let dname = set(zone, owner, Rtype::DNAME);
    if !answer.sections[0].iter().any(|record| record.rtype == Rtype::DNAME && same(&record.owner, owner)) {
        answer.push(0, owner, ttl(zone, &dname), &dname);
    }
    let target = [&name[..name.len() - owner.len()], &dname[0].rdata[..]].concat();
    if target.len() > 255 {
        answer.rcode = Rcode::YxDomain as u16;
        return None;
    }
    let cname = ZoneRecord { rtype: Rtype::CNAME, rdata: target.clone(), ..dname[0].clone() };
    answer.push(0, name, ttl(zone, &dname), &[&cname]);
    (qtype != Rtype::CNAME && qtype != Rtype::ANY).then_some(target)
}

fn refer(zone: &ZoneList, cut: &[u8], answer: &mut Answer) {
    let servers = set(zone, cut, Rtype::NS);
    answer.push(1, cut, ttl(zone, &servers), &servers);
    for server in &servers {
        add_addresses(zone, &server.rdata, answer);
    }
}

fn deny(zone: &ZoneList, rcode: Rcode, answer: &mut Answer) {
    let soa = set(zone, zone.origin.as_name().as_bytes(), Rtype::SOA);
    let minimum = u32::from_be_bytes(*soa[0].rdata.last_chunk().unwrap());
    answer.rcode = rcode as u16;
    answer.push(1, zone.origin.as_name().as_bytes(), minimum.min(ttl(zone, &soa)), &soa);
}

/// What a record of `wanted` brings about a host: addresses, and if it binds a service, what that host says about it. A host that
/// is `name`, which `node` answers, has that node's data.
fn add_host(zone: &ZoneList, host: &[u8], node: &[u8], name: &[u8], wanted: Rtype, answer: &mut Answer) {
    let is_binding = matches!(wanted, Rtype::SVCB | Rtype::HTTPS);
    if is_binding && same(host, name) {
        for rtype in [Rtype::A, Rtype::AAAA] {
            let addresses = set(zone, node, rtype);
            if !addresses.is_empty() {
                answer.push(2, name, ttl(zone, &addresses), &addresses);
            }
        }
        return;
    }
    add_addresses(zone, host, answer);
    let in_zone = is_at_or_below(host, zone.origin.as_name().as_bytes());
    let here = || !path(zone, host).iter().any(|above| is_cut(zone, above)) && !is_behind_dname(zone, host);
    let bindings = if is_binding && in_zone && here() { set(zone, host, wanted) } else { Vec::new() };
    if !bindings.is_empty() {
        answer.push(2, host, ttl(zone, &bindings), &bindings);
    }
}

/// The hosts that records of `owner` name, each once.
fn targets(records: &[&ZoneRecord], owner: &[u8]) -> Vec<Vec<u8>> {
    let mut targets: Vec<Vec<u8>> = Vec::new();
    for record in records {
        let target = match record.rtype {
            Rtype::NS => &record.rdata[..],
            Rtype::MX => &record.rdata[2..],
            Rtype::SRV => &record.rdata[6..],
            Rtype::SVCB | Rtype::HTTPS => match Name::split_from(&record.rdata[2..]).unwrap().0.as_bytes() {
                [0] if record.rdata.starts_with(&[0, 0]) => continue,
                [0] => owner,
                name => name,
            },
            _ => continue,
        };
        if !targets.iter().any(|earlier| same(earlier, target)) {
            targets.push(target.to_vec());
        }
    }
    targets
}

fn add_addresses(zone: &ZoneList, host: &[u8], answer: &mut Answer) {
    if !is_at_or_below(host, zone.origin.as_name().as_bytes()) {
        return;
    }
    if is_behind_dname(zone, host) {
        return;
    }
    for rtype in [Rtype::A, Rtype::AAAA] {
        let addresses = set(zone, host, rtype);
        if !addresses.is_empty() {
            answer.push(2, host, ttl(zone, &addresses), &addresses);
        }
    }
}

/// Whether the first boundary above a name is a DNAME, which hides it.
fn is_behind_dname(zone: &ZoneList, name: &[u8]) -> bool {
    let path = path(zone, name);
    let boundary =
        path[..path.len() - 1].iter().find(|above| is_cut(zone, above) || has(zone, above, Rtype::DNAME));
    boundary.is_some_and(|boundary| !is_cut(zone, boundary))
}

/// The records of one name and type, without duplicates.
fn set<'z>(zone: &'z ZoneList, owner: &[u8], rtype: Rtype) -> Vec<&'z ZoneRecord> {
    let mut set: Vec<&ZoneRecord> = Vec::new();
    for record in &zone.records {
        let here = record.rtype == rtype && same(record.owner.as_name().as_bytes(), owner);
        if here && !set.iter().any(|earlier| is_duplicate(rtype, &earlier.rdata, &record.rdata)) {
            set.push(record);
        }
    }
    set
}

/// RFC 4343, 3: names in the data are the same in any case; what stands before them is no name.
fn is_duplicate(rtype: Rtype, left: &[u8], right: &[u8]) -> bool {
    let before_name = match rtype {
        Rtype::NS | Rtype::CNAME | Rtype::DNAME | Rtype::PTR => 0,
        Rtype::MX => 2,
        Rtype::SRV => 6,
        _ => return left == right,
    };
    left[..before_name] == right[..before_name] && same(&left[before_name..], &right[before_name..])
}

/// RFC 2181, 5.2: one TTL for all, the lowest, also of the duplicates. RFC 4034, 3: that of the set which a signature covers.
fn ttl(zone: &ZoneList, records: &[&ZoneRecord]) -> u32 {
    let first = records[0];
    let covered = |record: &ZoneRecord| {
        let is_signature = record.rtype == Rtype::RRSIG;
        is_signature.then(|| Rtype(u16::from_be_bytes([record.rdata[0], record.rdata[1]])))
    };
    if let Some(covered) = covered(first) {
        let signed = set(zone, first.owner.as_name().as_bytes(), covered);
        if !signed.is_empty() {
            return ttl(zone, &signed);
        }
    }
    let alike = |record: &&ZoneRecord| {
        record.rtype == first.rtype && record.owner == first.owner && covered(record) == covered(first)
    };
    zone.records.iter().filter(alike).map(|record| record.ttl).min().unwrap()
}

fn has(zone: &ZoneList, owner: &[u8], rtype: Rtype) -> bool {
    !set(zone, owner, rtype).is_empty()
}

fn is_cut(zone: &ZoneList, name: &[u8]) -> bool {
    !same(name, zone.origin.as_name().as_bytes()) && has(zone, name, Rtype::NS)
}

/// RFC 4592, 2.2.2: a name exists if it, or any name below it, has data. RFC 5155, 7.2.8: a hash is no name.
fn exists(zone: &ZoneList, name: &[u8]) -> bool {
    let of_hash = |record: &ZoneRecord| match record.rtype {
        Rtype::NSEC3 => true,
        Rtype::RRSIG => record.rdata.starts_with(&Rtype::NSEC3.0.to_be_bytes()),
        _ => false,
    };
    let mut records = zone.records.iter().filter(|record| !of_hash(record));
    records.any(|record| is_at_or_below(record.owner.as_name().as_bytes(), name))
}

/// The names from the apex of the zone down to `name`.
fn path<'n>(zone: &ZoneList, name: &'n [u8]) -> Vec<&'n [u8]> {
    let mut path = vec![name];
    while path.last().unwrap().len() > zone.origin.as_name().len() {
        path.push(parent_of(path.last().unwrap()));
    }
    path.reverse();
    path
}

fn is_at_or_below(name: &[u8], ancestor: &[u8]) -> bool {
    let mut suffix = name;
    while !same(suffix, ancestor) {
        if suffix == [0] {
            return false;
        }
        suffix = parent_of(suffix);
    }
    true
}

fn parent_of(name: &[u8]) -> &[u8] {
    &name[1 + usize::from(name[0])..]
}

fn same(left: &[u8], right: &[u8]) -> bool {
    left.eq_ignore_ascii_case(right)
}
