//! Dynamic update without sockets: what a message demands of a zone, and the version that it leads to (RFC 2136).

use std::collections::BTreeMap;

use dns_message::{Malformed, Message, Record, is_older, serial_of};
use dns_wire::{Class, Name, NameBuf, Rcode, Rtype};
use dns_zone::builder::is_same;
use dns_zone::text::is_rdata;
use dns_zone::{Changed, Node, RecordError, Rrset, Zone, ZoneEditor};

use crate::difference::Difference;

/// RFC 2181, 8.
const TTL_MAX: u32 = (1 << 31) - 1;

/// What an update demands, and what it changes (RFC 2136, 2.4 and 2.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    prerequisites: Vec<Record>,
    changes: Vec<Record>,
}

/// What comes of an update that is carried out.
#[derive(Debug)]
pub enum Updated {
    /// All of it was so already.
    Nothing,
    /// The next version, and what leads to it.
    Next(Box<Changed>, Box<Difference>),
}

impl Update {
    /// Reads what is behind the question of a message, which such a message calls its zone section. A signature has been cut off.
    ///
    /// # Errors
    /// The message is malformed.
    pub fn read(octets: &[u8]) -> Result<Update, Malformed> {
        let mut message = Message::parse(octets)?;
        let [prerequisites, changes, additionals] = message.counts();
        let mut records =
            |count: u16| (0..count).map(|_| message.next_update_record()).collect::<Result<Vec<_>, _>>();
        let update = Update { prerequisites: records(prerequisites)?, changes: records(changes)? };
        records(additionals)?;
        if message.is_at_end() { Ok(update) } else { Err(Malformed) }
    }

    /// The owners of NS records at wildcards that the update would add, which are passed over.
    pub fn wildcard_servers(&self) -> impl Iterator<Item = Name<'_>> {
        let is_one = |record: &&Record| {
            let Record { owner, rtype, class, .. } = record;
            *class == Class::IN && *rtype == Rtype::NS && owner.as_name().is_wildcard()
        };
        self.changes.iter().filter(is_one).map(|record| record.owner.as_name())
    }

    /// Carries the update out on the version `held`: all of it, or nothing.
    ///
    /// # Errors
    /// The code of the answer: a prerequisite is not met, a record is not fit, or the zone is signed, by signatures that would not fit any more.
    pub fn apply(&self, held: &Zone) -> Result<Updated, Rcode> {
        if held.is_signed() {
            return Err(Rcode::Refused);
        }
        self.check_prerequisites(held)?;
        self.check_changes(held)?;
        let mut edit = Edit { editor: ZoneEditor::new(held), touched: Vec::new() };
        self.changes.iter().try_for_each(|record| edit.change(record))?;
        edit.finish(held)
    }

    /// RFC 2136, 3.2.
    fn check_prerequisites(&self, held: &Zone) -> Result<(), Rcode> {
        let mut demanded: BTreeMap<(NameBuf, u16), Vec<&[u8]>> = BTreeMap::new();
        for record in &self.prerequisites {
            let Record { owner, rtype, class, ttl, rdata } = record;
            check_owner(held, owner)?;
            if *ttl != 0 {
                return Err(Rcode::FormErr);
            }
            if *class == Class::IN && !rtype.is_meta() {
                demanded.entry((owner.clone(), rtype.0)).or_default().push(rdata);
                continue;
            }
            let is_any = *rtype == Rtype::ANY;
            if !rdata.is_empty() || rtype.is_meta() && !is_any {
                return Err(Rcode::FormErr);
            }
            let node = held.find(owner.as_name().as_bytes());
            let is_there = match is_any {
                true => node.is_some_and(|node| node.rrsets().next().is_some()),
                false => !data_of(node, *rtype).is_empty(),
            };
            match (*class, is_any) {
                (Class::ANY, true) if !is_there => return Err(Rcode::NxDomain),
                (Class::ANY, false) if !is_there => return Err(Rcode::NxRrset),
                (Class::NONE, true) if is_there => return Err(Rcode::YxDomain),
                (Class::NONE, false) if is_there => return Err(Rcode::YxRrset),
                (Class::ANY | Class::NONE, _) => {}
                _ => return Err(Rcode::FormErr),
            }
        }
        let is_met = |((owner, rtype), wanted): (&(NameBuf, u16), &Vec<&[u8]>)| {
            let rtype = Rtype(*rtype);
            let found = data_of(held.find(owner.as_name().as_bytes()), rtype);
            let is_in = |rdata: &[u8], of: &[&[u8]]| of.iter().any(|other| is_same(rtype, rdata, other));
            let within = |all: &[&[u8]], of: &[&[u8]]| all.iter().all(|rdata| is_in(rdata, of));
            within(&found, wanted) && within(wanted, &found)
        };
        if demanded.iter().all(is_met) { Ok(()) } else { Err(Rcode::NxRrset) }
    }

    /// RFC 2136, 3.4.1: an update is looked through before any of it is carried out.
    fn check_changes(&self, held: &Zone) -> Result<(), Rcode> {
        for Record { owner, rtype, class, ttl, rdata } in &self.changes {
            check_owner(held, owner)?;
            let is_fit = match *class {
                // What could not be read again from the zone's file is not to come into the zone.
                Class::IN => !rtype.is_meta() && *ttl <= TTL_MAX && is_rdata(*rtype, rdata),
                Class::ANY => *ttl == 0 && rdata.is_empty() && (!rtype.is_meta() || *rtype == Rtype::ANY),
                Class::NONE => *ttl == 0 && !rtype.is_meta(),
                _ => false,
            };
            if !is_fit {
                return Err(Rcode::FormErr);
            }
            // Signatures and proofs are made by whoever has the keys, and not by updates (RFC 3007, 4.3).
            if rtype.is_made_by_signing() {
                return Err(Rcode::Refused);
            }
        }
        Ok(())
    }
}

fn check_owner(held: &Zone, owner: &NameBuf) -> Result<(), Rcode> {
    if owner.as_name().ends_with(held.origin()) { Ok(()) } else { Err(Rcode::NotZone) }
}

/// The data of the records of one type.
fn data_of(node: Option<Node<'_>>, rtype: Rtype) -> Vec<&[u8]> {
    let sets = node.into_iter().flat_map(Node::rrsets).filter(|set| set.rtype() == rtype);
    sets.flat_map(Rrset::records).collect()
}

/// Types of which a name has one record: another one takes its place (RFC 2136, 1.1.5; RFC 6672, 2.4).
fn is_single(rtype: Rtype) -> bool {
    matches!(rtype, Rtype::SOA | Rtype::CNAME | Rtype::DNAME)
}

/// The next version in the making.
struct Edit {
    editor: ZoneEditor,
    /// Owners of changed records.
    touched: Vec<NameBuf>,
}

impl Edit {
    /// RFC 2136, 3.4.2.
    fn change(&mut self, record: &Record) -> Result<(), Rcode> {
        let owner = record.owner.as_name();
        let is_apex = owner == self.editor.zone().origin();
        self.touched.push(record.owner.clone());
        match (record.class, record.rtype) {
            (Class::IN, _) => self.add(record),
            // The zone keeps its SOA and NS records whatever is deleted (3.4.2.3 and 3.4.2.4).
            (_, Rtype::SOA) => Ok(()),
            (Class::ANY, Rtype::NS) if is_apex => Ok(()),
            (Class::ANY, rtype) => {
                let is_kept = |own| is_apex && matches!(own, Rtype::SOA | Rtype::NS);
                let is_meant = |own| (rtype == Rtype::ANY || own == rtype) && !is_kept(own);
                self.editor.remove_sets(owner, |set| is_meant(set.rtype()));
                Ok(())
            }
            (_, Rtype::NS) if is_apex && self.count(owner, Rtype::NS) == 1 => Ok(()),
            (_, rtype) => self.editor.remove(owner, rtype, &record.rdata).map(|_| ()).map_err(code_of),
        }
    }

    fn add(&mut self, Record { owner, rtype, ttl, rdata, .. }: &Record) -> Result<(), Rcode> {
        let owner = owner.as_name();
        if !self.may_stand_at(owner, *rtype) || !self.is_newer_soa(owner, *rtype, rdata) {
            return Ok(());
        }
        // Servers do not agree on what those mean (RFC 4592, 4.2), and BIND, which passes them over as well, refuses to transfer a zone that has some.
        if *rtype == Rtype::NS && owner.is_wildcard() {
            return Ok(());
        }
        // It belongs to the parent (RFC 4035, 2.4), and validators' tools refuse a zone that has one.
        if *rtype == Rtype::DS && owner == self.editor.zone().origin() {
            return Ok(());
        }
        if is_single(*rtype) {
            self.editor.remove_sets(owner, |set| set.rtype() == *rtype);
        }
        self.editor.add(owner, *ttl, *rtype, rdata).map_err(code_of)?;
        // All records of a set have one TTL (RFC 2181, 5.2): that of the last one that came.
        self.editor.set_ttl(owner, *rtype, *ttl);
        Ok(())
    }

    /// A CNAME stands alone, and what does not fit beside it is passed over (RFC 2136, 3.4.2.2).
    fn may_stand_at(&self, owner: Name<'_>, rtype: Rtype) -> bool {
        let Some(node) = self.editor.zone().find(owner.as_bytes()) else { return true };
        let is_alone = node.rrsets().all(|set| set.rtype() == Rtype::CNAME);
        if rtype == Rtype::CNAME { is_alone } else { !node.has_cname() }
    }

    /// Whether a SOA is the zone's next one; true for records of other types.
    fn is_newer_soa(&self, owner: Name<'_>, rtype: Rtype, rdata: &[u8]) -> bool {
        let zone = self.editor.zone();
        let is_newer = || serial_of(rdata).is_some_and(|serial| is_older(zone.serial(), serial));
        rtype != Rtype::SOA || owner == zone.origin() && is_newer()
    }

    fn count(&self, owner: Name<'_>, rtype: Rtype) -> usize {
        data_of(self.editor.zone().find(owner.as_bytes()), rtype).len()
    }

    /// Gives the version a serial of its own, unless the update did (RFC 2136, 3.6), and finds out what differs.
    fn finish(mut self, held: &Zone) -> Result<Updated, Rcode> {
        self.sort_touched();
        let difference = self.difference(held);
        let is_same_serial = self.editor.zone().serial() == held.serial();
        if difference.is_empty() && is_same_serial {
            return Ok(Updated::Nothing);
        }
        if is_same_serial {
            self.raise_serial(held)?;
        }
        self.remove_old_digest(held);
        let difference = self.difference(held);
        let changed = self.editor.finish().map_err(|_| Rcode::ServFail)?;
        Ok(Updated::Next(Box::new(changed), Box::new(difference)))
    }

    fn sort_touched(&mut self) {
        self.touched.sort();
        self.touched.dedup();
    }

    /// The digest of the version before is not this one's, and whoever checks it would refuse the zone (RFC 8976, 4). One that the update brought stays.
    fn remove_old_digest(&mut self, held: &Zone) {
        let origin = held.origin();
        let of = |zone: &Zone| data_of(zone.find(origin.as_bytes()), Rtype::ZONEMD).concat();
        let old = of(held);
        if !old.is_empty() && of(self.editor.zone()) == old {
            self.editor.remove_sets(origin, |set| set.rtype() == Rtype::ZONEMD);
            self.touched.push(NameBuf::from(origin));
            self.sort_touched();
        }
    }

    fn difference(&self, held: &Zone) -> Difference {
        Difference::at(held, self.editor.zone(), &self.touched)
    }

    /// A serial of 0 is passed over: it means "unset" to some.
    fn raise_serial(&mut self, held: &Zone) -> Result<(), Rcode> {
        let (soa, serial) = (held.soa(), held.serial().wrapping_add(1).max(1));
        let old = soa.records().next().ok_or(Rcode::ServFail)?;
        let mut new = old.to_vec();
        let at = new.len() - 20; // Five numbers end a SOA, and the serial is the first.
        new[at..at + 4].copy_from_slice(&serial.to_be_bytes());
        self.editor.remove(held.origin(), Rtype::SOA, old).map_err(code_of)?;
        self.editor.add(held.origin(), soa.ttl(), Rtype::SOA, &new).map_err(code_of)
    }
}

fn code_of(error: RecordError) -> Rcode {
    match error {
        RecordError::OutOfZone => Rcode::NotZone,
        RecordError::NotData(_) | RecordError::Malformed(_) => Rcode::FormErr,
        RecordError::CnameAndOtherData | RecordError::Second(_) | RecordError::SoaBelowOrigin => {
            Rcode::Refused
        }
        RecordError::RrsetTooLarge | RecordError::ZoneTooLarge => Rcode::ServFail,
    }
}

#[cfg(test)]
#[path = "update_tests.rs"]
mod tests;
