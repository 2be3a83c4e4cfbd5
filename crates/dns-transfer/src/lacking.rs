//! Where in a journal a zone that was read from a file stands.

use std::collections::BTreeSet;
use std::sync::Arc;

use dns_wire::{NameBuf, Rtype};
use dns_zone::Zone;
use dns_zone::builder::{is_same, target_offset};

use crate::difference::{Difference, RecordRef};

/// The differences of a journal that `zone` lacks; `None` if the journal is not for that zone.
///
/// A serial alone does not say where a zone stands: a file may be changed by hand, and serials come round again (RFC 1982). The zone stands
/// behind a difference if it has that one's serial and, of each record that the journal names up to there, what was said of it last. So no
/// change is passed over that the zone does not have. If it stands at several places, all lead to the same version, and the last is taken: what
/// was said last of each record that is named between two of them is so already.
pub fn lacking<'j>(zone: &Zone, journal: &'j [Arc<Difference>]) -> Option<&'j [Arc<Difference>]> {
    if journal.windows(2).any(|pair| pair[0].to() != pair[1].from()) {
        return None;
    }
    let first = journal.first().map(|difference| difference.from());
    let serials = first.into_iter().chain(journal.iter().map(|difference| difference.to()));
    let places = serials.enumerate().filter(|(_, serial)| *serial == zone.serial()).map(|(place, _)| place);
    let (mut compared, mut behind, mut found) = (Compared::new(zone), 0, None);
    for place in places {
        journal[behind..place].iter().for_each(|difference| compared.follow(difference));
        behind = place;
        if compared.is_same() {
            found = Some(place);
        }
    }
    found.map(|place| &journal[place..])
}

/// A zone beside what differences say.
struct Compared<'z> {
    zone: &'z Zone,
    /// Records about which the zone says something else than the last difference that names them: owner, type, data with names in lower case.
    differing: BTreeSet<(NameBuf, Rtype, Vec<u8>)>,
}

impl<'z> Compared<'z> {
    fn new(zone: &'z Zone) -> Compared<'z> {
        Compared { zone, differing: BTreeSet::new() }
    }

    fn follow(&mut self, difference: &Difference) {
        let [removed, added] = difference.halves();
        removed.for_each(|record| self.note(record, self.ttl_of(record).is_none()));
        // All records of a set have one TTL (RFC 2181, 5.2), but signatures that of what they cover, whatever they came with.
        let is_as_added = |ttl: u32, record: RecordRef<'_>| ttl == record.ttl || record.rtype == Rtype::RRSIG;
        for record in added {
            self.note(record, self.ttl_of(record).is_some_and(|ttl| is_as_added(ttl, record)));
        }
    }

    fn note(&mut self, record: RecordRef<'_>, is_same: bool) {
        let key = (NameBuf::from(record.owner), record.rtype, folded(record));
        match is_same {
            true => self.differing.remove(&key),
            false => self.differing.insert(key),
        };
    }

    fn is_same(&self) -> bool {
        self.differing.is_empty()
    }

    /// The TTL that a record has in the zone; `None` if it is not there.
    fn ttl_of(&self, RecordRef { owner, rtype, rdata, .. }: RecordRef<'_>) -> Option<u32> {
        let node = self.zone.find(owner.as_bytes())?;
        let mut sets = node.rrsets().filter(|set| set.rtype() == rtype);
        let set = sets.find(|set| set.records().any(|own| is_same(rtype, own, rdata)))?;
        Some(set.ttl())
    }
}

/// The data of a record, alike for those that are the same.
fn folded(record: RecordRef<'_>) -> Vec<u8> {
    let mut rdata = record.rdata.to_vec();
    // The numbers of a SOA are no name.
    let names_from = target_offset(record.rtype).filter(|_| record.rtype != Rtype::SOA);
    if let Some(names) = names_from.and_then(|from| rdata.get_mut(from..)) {
        names.make_ascii_lowercase();
    }
    rdata
}

#[cfg(test)]
#[path = "lacking_tests.rs"]
mod tests;
