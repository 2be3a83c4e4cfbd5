//! Compact denial of existence (RFC 9824): NSEC records that each speak of one name alone.
//!
//! The NSEC record of a name leads to the name that directly follows in canonical order, so records form no chain, and deny nothing but types.
//! Names that do not exist get such a record for one answer, and so do empty non-terminals.

use dns_wire::name::{LABEL_LEN_MAX, NAME_LEN_MAX};
use dns_wire::{Name, NameBuf, Rtype};

use crate::tree::Zone;

/// The name that directly follows `name` in canonical order (RFC 4471, 3.1.2), in lower case as it is signed. At a cut, the one that follows all names below, as
/// those are not the zone's (RFC 9824, 3.4). `name` is at or below `origin`, which is the result behind the last name of the zone.
pub fn next_name(name: Name<'_>, origin: Name<'_>, is_cut: bool) -> NameBuf {
    let mut next = NameBuf::from(name);
    next.make_lowercase();
    // Nothing can be below a name that is too long for this.
    if !is_cut && next.prepend(&[0]).is_ok() {
        return next;
    }
    let mut left = name;
    while left.len() > origin.len()
        && let Some((label, above)) = left.labels().next().zip(left.parent())
    {
        if let Some(label) = next_label(label, left.len() < NAME_LEN_MAX) {
            next.set(above);
            next.make_lowercase();
            next.prepend(&label).expect("it is as long as before, or there is room for one octet more");
            return next;
        }
        left = above;
    }
    NameBuf::from(origin)
}

/// The label that follows another one, with whatever is below that; `None` behind the last one. `has_room` says that it may be longer.
fn next_label(label: &[u8], has_room: bool) -> Option<Vec<u8>> {
    let mut next = label.to_ascii_lowercase();
    if has_room && next.len() < LABEL_LEN_MAX {
        next.push(0);
        return Some(next);
    }
    while next.last() == Some(&u8::MAX) {
        next.pop();
    }
    let last = next.last_mut()?;
    // In canonical order there are no upper-case letters.
    *last = if *last == b'A' - 1 { b'Z' + 1 } else { *last + 1 };
    Some(next)
}

/// Whether a zone is denied compactly: the NSEC record of its apex leads to the name that directly follows, and not because that name exists. A zone that has
/// that name, too, is compact if the same holds there.
pub(crate) fn is_compact(zone: &Zone) -> bool {
    let mut name = NameBuf::from(zone.origin());
    loop {
        let node = zone.find(name.as_name().as_bytes());
        let Some(nsec) = node.and_then(|node| node.rrset(Rtype::NSEC)) else {
            return name.as_name() != zone.origin();
        };
        let next = nsec.records().next().and_then(|rdata| Name::split_from(rdata).ok());
        // It ends, as names become longer.
        if name.prepend(&[0]).is_err() || next.is_none_or(|(next, _)| next != name.as_name()) {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Denial, ZoneBuilder, ZoneEditor};

    fn name(text: &str) -> NameBuf {
        NameBuf::from_text(text.as_bytes(), None).unwrap()
    }

    fn next(text: &str, is_cut: bool) -> String {
        next_name(name(text).as_name(), name("example.").as_name(), is_cut).to_string()
    }

    #[test]
    fn a_name_is_followed_by_the_first_one_below_and_a_cut_by_the_first_one_beside() {
        assert_eq!(next("A.Example.", false), "\\000.a.example.");
        assert_eq!(next("A.Example.", true), "a\\000.example.");
        assert_eq!(next("example.", false), "\\000.example.");
    }

    #[test]
    fn nothing_is_between_a_long_name_and_the_one_that_follows() {
        let long = |label: &str, last: &str| format!("{}{last}.{label}", "x".repeat(62));
        assert_eq!(next(&long("example.", "a"), true), long("example.", "b"));
        assert_eq!(next(&long("example.", "@"), true), long("example.", "["));
        assert_eq!(next(&long("example.", "\\255"), true), format!("{}y.example.", "x".repeat(61)));
        let last = "\\255".repeat(63);
        assert_eq!(next(&format!("{last}.example."), true), "example.");
        assert_eq!(next(&format!("{last}.a.example."), true), "a\\000.example.");
        // 254 and 255 octets: there is no room for a label in front.
        let labels = [61, 63, 63].map(|len| "l".repeat(len)).join(".");
        for (len, expected) in [(54, "x\\000"), (55, "y")] {
            let found = next(&format!("{}.{labels}.example.", "x".repeat(len)), false);
            assert_eq!(found, format!("{}{expected}.{labels}.example.", "x".repeat(len - 1)), "{len}");
        }
    }

    /// A zone in which the NSEC record of each of these owners leads to the other name.
    fn zone(links: &[(&str, &str)]) -> Zone {
        let mut builder = ZoneBuilder::new(name("example.").as_name(), 5);
        builder.add(name("example.").as_name(), 60, Rtype::SOA, &[0; 22]).unwrap();
        for (owner, next) in links {
            let rdata = [name(next).as_name().as_bytes(), &[0, 1, 0x40]].concat();
            builder.add(name(owner).as_name(), 60, Rtype::NSEC, &rdata).unwrap();
        }
        builder.finish().unwrap()
    }

    fn is_compact(zone: &Zone) -> bool {
        matches!(zone.denial(), Some(Denial::Compact))
    }

    #[test]
    fn a_zone_is_compact_if_its_records_lead_to_names_that_are_not_there() {
        let (apex, below) = ("example.", "\\000.example.");
        assert!(is_compact(&zone(&[(apex, below)])));
        assert!(is_compact(&zone(&[(apex, below), (below, "\\000.\\000.example.")])));
        assert!(!is_compact(&zone(&[(apex, below), (below, apex)])), "a chain of two names");
        assert!(!is_compact(&zone(&[(apex, apex)])));
        assert!(zone(&[]).denial().is_none());
    }

    #[test]
    fn a_change_of_the_zone_may_change_how_it_is_denied() {
        let (apex, next) = (name("example."), name("\\000.example."));
        let to = |target: &NameBuf| [target.as_name().as_bytes(), &[0, 1, 0x40]].concat();
        let with = |zone: &Zone, target: &NameBuf| {
            let mut editor = ZoneEditor::new(zone);
            editor.remove_sets(apex.as_name(), |set| set.rtype() == Rtype::NSEC);
            editor.add(apex.as_name(), 60, Rtype::NSEC, &to(target)).unwrap();
            editor.finish().unwrap().zone
        };
        let chained = with(&zone(&[("example.", "\\000.example.")]), &apex);
        assert!(matches!(chained.denial(), Some(Denial::Nsec(_))));
        let compact = with(&chained, &next);
        assert!(is_compact(&compact) && is_compact(&with(&compact, &next)));
    }
}
